/* nearest.c - see nearest.h. */
#include "libclient/nearest.h"

#include <stdio.h>
#include <string.h>

enum { KEY_MAX = 32 }; /* bytes; no key is as long, so nothing is near to one that is longer */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The edit distance of two short strings: one row of the table of prefixes at a time. */
static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t row[KEY_MAX + 1];
    for (size_t j = 0; j <= n_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, least(row[j - 1], row[j]) + 1);
        }
    }
    return row[n_b];
}

struct search {
    const char *key;
    size_t n, best; /* the distance that a candidate must beat */
    char *out;
    size_t size;
};

static void search(struct search *s, const struct wire_type *t, const char *within)
{
    for (const struct wire_field *f = t->fields; f->name; f++) {
        size_t n = strlen(f->name), d = n <= KEY_MAX ? distance(s->key, s->n, f->name, n) : s->best;
        if (d < s->best) {
            s->best = d;
            snprintf(s->out, s->size, "%s%s%s", within ? within : "", within ? "." : "", f->name);
        }
        if (f->type == WIRE_STRUCT && !within)
            search(s, f->sub, f->name);
    }
}

void nearest_key(const struct wire_type *t, const char *key, size_t n, char *out, size_t size)
{
    struct search s = {.key = key, .n = n, .best = n / 3 + 1, .out = out, .size = size};
    out[0] = '\0';
    if (n <= KEY_MAX)
        search(&s, t, NULL);
}
