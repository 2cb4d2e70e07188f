/* wire-same.h - compares two messages of a type field by field, as the tables describe them. For the round-trip test
 * and the fuzzer. */
#ifndef HEARTH_WIRE_SAME_H
#define HEARTH_WIRE_SAME_H

#include "libclient/wire-table.h"

#include <string.h>

#define AT(T, msg, off) (*(T *)(void *)((char *)(msg) + (off)))

static bool same_bytes(struct wire_bytes a, struct wire_bytes b)
{
    return !a.data == !b.data && a.len == b.len && (!a.len || !memcmp(a.data, b.data, a.len));
}

static bool same_pairs(const struct wire_bias *a, const struct wire_bias *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i].id != b[i].id || a[i].bias != b[i].bias)
            return false;
    return true;
}

/* NULL if they are equal, else the name of a field that differs. */
static const char *differs(const struct wire_type *t, void *a, void *b);

static bool same_structs(const struct wire_type *t, void *a, size_t n_a, void *b, size_t n_b)
{
    if (!a != !b || n_a != n_b)
        return false;
    for (size_t i = 0; i < n_a; i++)
        if (differs(t, (char *)a + i * t->size, (char *)b + i * t->size))
            return false;
    return true;
}

static bool same_field(const struct wire_field *f, void *a, void *b)
{
    switch ((enum wire_field_type)f->type) {
    case WIRE_BOOL:
        return AT(bool, a, f->offset) == AT(bool, b, f->offset);
    case WIRE_INT:
        return AT(int64_t, a, f->offset) == AT(int64_t, b, f->offset);
    case WIRE_UINT:
        if (f->flags & FIELD_HAS && AT(bool, a, f->beside) != AT(bool, b, f->beside))
            return false;
        return AT(uint64_t, a, f->offset) == AT(uint64_t, b, f->offset);
    case WIRE_FLOAT:
        return AT(double, a, f->offset) == AT(double, b, f->offset);
    case WIRE_JSON: /* both sides were read from the wire, and so are in the same form */
    case WIRE_STR: {
        const char *s = AT(const char *, a, f->offset), *u = AT(const char *, b, f->offset);
        return s && u ? !strcmp(s, u) : s == u;
    }
    case WIRE_BYTES:
        return same_bytes(AT(struct wire_bytes, a, f->offset), AT(struct wire_bytes, b, f->offset));
    case WIRE_IDS: {
        struct wire_ids s = AT(struct wire_ids, a, f->offset), u = AT(struct wire_ids, b, f->offset);
        return !s.v == !u.v && s.n == u.n && (!s.n || !memcmp(s.v, u.v, s.n * sizeof *s.v));
    }
    case WIRE_STRS: {
        struct wire_strs s = AT(struct wire_strs, a, f->offset), u = AT(struct wire_strs, b, f->offset);
        if (!s.v != !u.v || s.n != u.n)
            return false;
        for (size_t i = 0; i < s.n; i++)
            if (strcmp(s.v[i], u.v[i]))
                return false;
        return true;
    }
    case WIRE_STRUCT:
        if (f->flags & FIELD_HAS && AT(bool, a, f->beside) != AT(bool, b, f->beside))
            return false;
        return !differs(f->sub, (char *)a + f->offset, (char *)b + f->offset);
    case WIRE_ARRAY:
        return same_structs(f->sub, AT(void *, a, f->offset), AT(size_t, a, f->beside), AT(void *, b, f->offset),
                            AT(size_t, b, f->beside));
    case WIRE_PAIRS: {
        struct wire_bias *s = AT(struct wire_bias *, a, f->offset), *u = AT(struct wire_bias *, b, f->offset);
        size_t n = AT(size_t, a, f->beside);
        return !s == !u && n == AT(size_t, b, f->beside) && same_pairs(s, u, n);
    }
    case WIRE_TOPS: {
        struct wire_top *s = AT(struct wire_top *, a, f->offset), *u = AT(struct wire_top *, b, f->offset);
        size_t n = AT(size_t, a, f->beside);
        if (!s != !u || n != AT(size_t, b, f->beside))
            return false;
        for (size_t i = 0; i < n; i++)
            if (s[i].n != u[i].n || !same_pairs((void *)s[i].v, (void *)u[i].v, s[i].n))
                return false;
        return true;
    }
    case WIRE_FAULT: {
        struct wire_fault s = AT(struct wire_fault, a, f->offset), u = AT(struct wire_fault, b, f->offset);
        return s.is_request == u.is_request && !strcmp(s.line, u.line);
    }
    case WIRE_CONTENT: {
        struct wire_message *s = a, *u = b;
        if (!s->json != !u->json || (s->json && strcmp(s->json, u->json)))
            return false;
        return same_bytes(s->content, u->content) && same_structs(f->sub, s->parts, s->n_parts, u->parts, u->n_parts);
    }
    }
    return false;
}

static const char *differs(const struct wire_type *t, void *a, void *b)
{
    for (const struct wire_field *f = t->fields; f->name; f++)
        if (!same_field(f, a, b))
            return f->name;
    return NULL;
}

#endif
