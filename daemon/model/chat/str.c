/* str.c - see str.h. */
#include "daemon/model/chat/str.h"
#include "daemon/model/chat/unicode.h"

#include <string.h>

struct str *str_new(struct run *r, const char *p, size_t n)
{
    struct str *s = run_alloc(r, 1, sizeof *s);
    *s = (struct str){.p = p, .n = (uint32_t)n, .codes = -1};
    return s;
}

int64_t str_codes(struct run *r, const struct str *s)
{
    if (s->codes < 0) {
        int32_t n = 0;
        for (uint32_t i = 0; i < s->n; i++)
            n += code_begins(s->p[i]);
        run_charge_bytes(r, s->n);
        ((struct str *)s)->codes = n;
    }
    return s->codes;
}

size_t str_offset(struct run *r, const struct str *s, int64_t code)
{
    if (code >= str_codes(r, s))
        return s->n;
    if (s->codes == (int64_t)s->n)
        return (size_t)code;
    size_t at = 0;
    run_charge_bytes(r, (size_t)code);
    for (; code > 0; code--)
        do
            at++;
        while (!code_begins(s->p[at]));
    return at;
}

const struct str *str_sub(struct run *r, const struct str *s, size_t from, size_t to)
{
    if (to < from)
        to = from;
    if (!from && to == s->n)
        return s;
    struct str *sub = str_new(r, s->p + from, to - from);
    sub->markup = s->markup;
    if (s->codes == (int64_t)s->n)
        sub->codes = (int32_t)sub->n;
    sub->origin = to == from ? ORIGIN_TEMPLATE : s->origin;
    if (s->origin != ORIGIN_MIXED)
        return sub;
    struct jinja_span *span = run_alloc(r, s->n_span, sizeof *span);
    for (uint32_t i = 0; i < s->n_span; i++) {
        size_t a = s->span[i].from < from ? from : s->span[i].from, b = s->span[i].to > to ? to : s->span[i].to;
        if (a < b)
            span[sub->n_span++] = (struct jinja_span){(uint32_t)(a - from), (uint32_t)(b - from)};
    }
    sub->span = span;
    run_charge(r, s->n_span / 8);
    return sub;
}

bool str_is(const struct str *s, const char *text)
{
    return strlen(text) == s->n && !memcmp(s->p, text, s->n);
}

bool str_same(const struct str *a, const struct str *b)
{
    return a == b || (a->n == b->n && !memcmp(a->p, b->p, a->n));
}

const struct str *str_char(struct run *r, const struct str *s, size_t at)
{
    size_t to = at + 1;
    while (to < s->n && !code_begins(s->p[to]))
        to++;
    return str_sub(r, s, at, to);
}

int64_t str_find(struct run *r, const struct str *a, const struct str *b, size_t from, size_t to)
{
    if (to < from || to - from < b->n)
        return -1;
    if (!b->n)
        return (int64_t)from;
    const char *p = a->p + from, *end = a->p + to - b->n + 1;
    run_charge_bytes(r, b->n);
    for (; p < end; p++) {
        const char *c = memchr(p, b->p[0], (size_t)(end - p));
        run_charge_bytes(r, c ? (size_t)(c - p) + b->n : (size_t)(end - p));
        if (!c)
            return -1;
        if (!memcmp(c, b->p, b->n))
            return c - a->p;
        p = c;
    }
    return -1;
}

int64_t str_rfind(struct run *r, const struct str *a, const struct str *b, size_t from, size_t to)
{
    if (to < from || to - from < b->n)
        return -1;
    for (size_t at = to - b->n + 1; at-- > from;) {
        if (!memcmp(a->p + at, b->p, b->n)) {
            run_charge_bytes(r, to - at);
            return (int64_t)at;
        }
        run_charge_bytes(r, b->n);
    }
    run_charge_bytes(r, to - from);
    return -1;
}

/* --- building strings at the end of the output ------------------------------------------------------------ */

struct mark string_begin(struct run *r)
{
    return (struct mark){r->n_out, r->n_span};
}

static const struct jinja_span *copy_spans(struct run *r, struct mark m, uint32_t n)
{
    struct jinja_span *to = run_alloc(r, n, sizeof *to);
    for (uint32_t i = 0; i < n; i++) {
        const struct jinja_span *s = &r->span[m.n_span + i];
        to[i] = (struct jinja_span){s->from - (uint32_t)m.n_out, s->to - (uint32_t)m.n_out};
    }
    return to;
}

struct str *string_end(struct run *r, struct mark m)
{
    size_t n = r->n_out - m.n_out;
    uint32_t n_span = (uint32_t)(r->n_span - m.n_span);
    run_charge_bytes(r, n);
    char *p = run_alloc_bytes(r, n);
    if (n)
        memcpy(p, r->out + m.n_out, n);
    struct str *s = str_new(r, p, n);
    if (n_span) {
        const struct jinja_span *first = &r->span[m.n_span];
        s->origin = first->from == m.n_out && first->to == r->n_out ? ORIGIN_CONTEXT : ORIGIN_MIXED;
        if (s->origin == ORIGIN_MIXED) {
            s->span = copy_spans(r, m, n_span);
            s->n_span = n_span;
        }
    }
    r->n_out = m.n_out;
    r->n_span = m.n_span;
    return s;
}

void put_str(struct run *r, const struct str *s)
{
    size_t from = r->n_out;
    put_bytes(r, s->p, s->n);
    if (s->origin == ORIGIN_CONTEXT)
        put_span(r, from, r->n_out);
    for (uint32_t i = 0; i < s->n_span; i++)
        put_span(r, from + s->span[i].from, from + s->span[i].to);
}

void put_as(struct run *r, struct mark m, const struct str *s)
{
    r->n_span = m.n_span;
    if (s->origin != ORIGIN_TEMPLATE)
        put_span(r, m.n_out, r->n_out);
}
