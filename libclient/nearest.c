/* nearest.c - see nearest.h. */
#include "libclient/nearest.h"

#include <stdio.h>
#include <string.h>

#include "libclient/distance.h"

enum {
    KEY_MAX = 32, /* bytes; all known keys are shorter, so no longer key is similar to one */
    SHORT = 3     /* bytes of an abbreviation, at least */
};

struct search {
    const char *key;
    size_t n, best;   /* the distance that a candidate must beat */
    size_t short_for; /* the distance of a name that the key abbreviates */
    char *out;
    size_t size;
};

static void search(struct search *s, const struct wire_type *t, const char *within)
{
    for (const struct wire_field *f = t->fields; f->name; f++) {
        size_t n = strlen(f->name), d = n <= KEY_MAX ? text_distance(s->key, s->n, f->name, n) : s->best;
        if (s->n >= SHORT && s->n < n && !memcmp(f->name, s->key, s->n) && s->short_for < d)
            d = s->short_for;
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
    struct search s = {.key = key, .n = n, .best = n / 3 + 1, .short_for = n / 3, .out = out, .size = size};
    out[0] = '\0';
    if (n <= KEY_MAX)
        search(&s, t, NULL);
}
