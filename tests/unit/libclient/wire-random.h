/*
 * wire-random.h - random messages for every row of the tables, so that a new field or method is covered without a new
 * test.
 */
#ifndef HEARTH_WIRE_RANDOM_H
#define HEARTH_WIRE_RANDOM_H

#include "libclient/wire-json.h"
#include "tests/unit/libclient/wire-same.h"

#include <stdlib.h>
#include <string.h>

/* All memory to which a random message points; freed together. */
struct arena {
    void *part[65536];
    size_t n;
    uint64_t seed;
};

static uint64_t draw(struct arena *a)
{
    a->seed = a->seed * 6364136223846793005u + 1442695040888963407u;
    return a->seed >> 33 ^ a->seed << 31;
}

static void *give(struct arena *a, size_t n)
{
    if (a->n == sizeof a->part / sizeof *a->part)
        abort();
    return a->part[a->n++] = calloc(1, n ? n : 1);
}

static void arena_fini(struct arena *a)
{
    while (a->n)
        free(a->part[--a->n]);
}

static const char *random_str(struct arena *a, size_t lo, size_t hi)
{
    static const char *const pieces[] = {"a",           "Z", "~", " ", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x94\xa5",
                                         "\xef\xbf\xbd"};
    size_t n = lo + draw(a) % 12, at = 0;
    char *s = give(a, 64);
    while (n-- && at < 50) {
        const char *p = pieces[draw(a) % 8];
        if (at + strlen(p) > hi)
            break;
        strcpy(s + at, p);
        at += strlen(p);
    }
    return s;
}

static struct wire_bytes random_bytes(struct arena *a)
{
    size_t n = draw(a) % 4 ? draw(a) % 20 : draw(a) % 70000;
    char *s = give(a, n + 1);
    for (size_t i = 0; i < n; i++)
        s[i] = (char)draw(a);
    if (draw(a) % 2)
        return (struct wire_bytes){s, n};
    const char *text = random_str(a, 0, 50);
    return (struct wire_bytes){text, strlen(text)};
}

static int64_t random_int(struct arena *a, int64_t lo, int64_t hi)
{
    switch (draw(a) % 4) {
    case 0:
        return lo;
    case 1:
        return hi;
    default: /* a range of any width */
        return lo + (int64_t)((draw(a) >> draw(a) % 64) % ((uint64_t)hi - (uint64_t)lo));
    }
}

static double random_float(struct arena *a, double lo, double hi)
{
    double u = (double)(draw(a) >> 11) / 9007199254740992.0;
    switch (draw(a) % 4) {
    case 0:
        return lo;
    case 1:
        return hi;
    default:
        return lo + u * (hi - lo);
    }
}

static struct wire_bias *random_pairs(struct arena *a, size_t n, double limit)
{
    struct wire_bias *v = give(a, n * sizeof *v);
    for (size_t i = 0; i < n; i++)
        v[i] = (struct wire_bias){random_int(a, 0, INT32_MAX), random_float(a, -limit, limit)};
    return v;
}

/* Appends JSON in the codec's own form, so that it comes back unchanged. kind: 0 any, 1 an array, 2 an object. */
static void random_json(struct arena *a, char *to, int kind, int depth)
{
    static const char *const leaves[] = {"null",
                                         "true",
                                         "false",
                                         "0",
                                         "-1",
                                         "255",
                                         "18446744073709551615",
                                         "-9223372036854775808",
                                         "1.0",
                                         "-0.5",
                                         "1.0000000000000001e+300",
                                         "0.10000000000000001",
                                         "\"\"",
                                         "\"\\\"\\\\\\u0000\\u001f/\"",
                                         "\"\xf0\x9f\x94\xa5 \xc3\xa4\""};
    size_t n = draw(a) % 4;
    bool map = kind ? kind == 2 : draw(a) % 2;
    if (!kind && (depth == 4 || strlen(to) > 2000 || draw(a) % 2)) {
        strcat(to, leaves[draw(a) % (sizeof leaves / sizeof *leaves)]);
        return;
    }
    strcat(to, map ? "{" : "[");
    for (size_t i = 0; i < n; i++) {
        if (i)
            strcat(to, ",");
        if (map) /* keys may be repeated and come in any order */
            strcat(to, draw(a) % 2 ? "\"b\":" : "\"a\\u000a\":");
        random_json(a, to, 0, depth + 1);
    }
    strcat(to, map ? "}" : "]");
}

static void random_struct(struct arena *a, const struct wire_type *t, void *msg);

static void *random_structs(struct arena *a, const struct wire_type *t, size_t n)
{
    char *v = give(a, n * t->size);
    for (size_t i = 0; i < n; i++)
        random_struct(a, t, v + i * t->size);
    return v;
}

static void random_field(struct arena *a, const struct wire_field *f, void *msg)
{
    size_t n = (size_t)f->i.lo + draw(a) % 4;
    switch ((enum wire_field_type)f->type) {
    case WIRE_BOOL:
        AT(bool, msg, f->offset) = draw(a) & 1;
        break;
    case WIRE_INT:
        AT(int64_t, msg, f->offset) = random_int(a, f->i.lo, f->i.hi);
        break;
    case WIRE_UINT:
        AT(uint64_t, msg, f->offset) = draw(a) % 2 ? draw(a) : UINT64_MAX;
        if (f->flags & FIELD_HAS)
            AT(bool, msg, f->beside) = true;
        break;
    case WIRE_FLOAT:
        AT(double, msg, f->offset) = random_float(a, f->f.lo, f->f.hi);
        break;
    case WIRE_STR:
        AT(const char *, msg, f->offset) = f->one_of ? f->one_of[0] : random_str(a, (size_t)f->i.lo, (size_t)f->i.hi);
        break;
    case WIRE_JSON: {
        char *text = give(a, 4096);
        random_json(a, text, f->i.lo == WIRE_JSON_MAP ? 2 : 1, 0);
        AT(const char *, msg, f->offset) = text;
        break;
    }
    case WIRE_BYTES:
        AT(struct wire_bytes, msg, f->offset) = random_bytes(a);
        break;
    case WIRE_IDS: {
        int32_t *v = give(a, n * sizeof *v);
        for (size_t i = 0; i < n; i++)
            v[i] = (int32_t)random_int(a, 0, INT32_MAX);
        AT(struct wire_ids, msg, f->offset) = (struct wire_ids){v, n};
        break;
    }
    case WIRE_STRS: {
        const char **v = give(a, n * sizeof *v);
        if (n > (size_t)f->i.hi)
            n = (size_t)f->i.hi;
        for (size_t i = 0; i < n; i++)
            v[i] = random_str(a, 1, 50);
        AT(struct wire_strs, msg, f->offset) = (struct wire_strs){v, n};
        break;
    }
    case WIRE_STRUCT:
        random_struct(a, f->sub, (char *)msg + f->offset);
        if (f->flags & FIELD_HAS)
            AT(bool, msg, f->beside) = true;
        break;
    case WIRE_ARRAY:
        AT(void *, msg, f->offset) = random_structs(a, f->sub, n);
        AT(size_t, msg, f->beside) = n;
        break;
    case WIRE_PAIRS:
        AT(struct wire_bias *, msg, f->offset) = random_pairs(a, n, WIRE_BIAS_LIMIT);
        AT(size_t, msg, f->beside) = n;
        break;
    case WIRE_TOPS: {
        struct wire_top *v = give(a, n * sizeof *v);
        for (size_t i = 0; i < n; i++) {
            v[i].n = draw(a) % 3;
            v[i].v = (void *)random_pairs(a, v[i].n, 1e9);
        }
        AT(struct wire_top *, msg, f->offset) = v;
        AT(size_t, msg, f->beside) = n;
        break;
    }
    case WIRE_FAULT:
        AT(struct wire_fault, msg, f->offset) = (struct wire_fault){draw(a) & 1, random_str(a, 1, 50)};
        break;
    case WIRE_CONTENT: {
        struct wire_message *m = msg;
        if (draw(a) % 3 == 0) { /* the whole message as JSON, from which role and content are read */
            char *text = give(a, 4096);
            strcpy(text, "{\"tool_calls\":");
            random_json(a, text, 1, 0);
            strcat(text, ",\"role\":\"user\",\"content\":\"x\"}");
            *m = (struct wire_message){.role = "user", .content = {"x", 1}, .json = text};
        } else if (draw(a) % 2) {
            m->content = random_bytes(a);
        } else {
            m->parts = random_structs(a, f->sub, n);
            m->n_parts = n;
        }
        break;
    }
    }
}

static void random_struct(struct arena *a, const struct wire_type *t, void *msg)
{
    do {
        wire_defaults(t, msg);
        for (const struct wire_field *f = t->fields; f->name; f++)
            if (f->flags & FIELD_REQUIRED || draw(a) % 2)
                random_field(a, f, msg);
    } while (t->check && t->check(msg, NULL));
}

#endif
