/* run.c - see run.h: the arenas, the limits, the error exit, and text at the end of the output. */
#include "config.h" /* vasprintf */

#include "daemon/model/chat/run.h"
#include "daemon/model/chat/unicode.h"
#include "daemon/model/pace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void run_fail(struct run *r, enum jinja_failure failure, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    r->err->failure = failure;
    r->err->line = failure == JINJA_RAISED || failure == JINJA_INPUT ? 0 : r->line;
    if (vasprintf(&r->err->message, fmt, ap) < 0)
        r->err->message = NULL;
    va_end(ap);
    longjmp(r->escape, 1);
}

/* --- the arena -------------------------------------------------------------------------------------------- */

struct chunk {
    struct chunk *before;
    max_align_t data[];
};
#define CHUNK_MIN ((size_t)16 << 10)
#define CHUNK_MAX ((size_t)1 << 20)

static void *arena_take(struct run *r, struct arena *a, size_t n)
{
    if (!a->last || (size_t)(a->end - a->at) < n) { /* `at` of no chunk is NULL, to which not even 0 may be added */
        size_t size = r->used < CHUNK_MIN ? CHUNK_MIN : r->used > CHUNK_MAX ? CHUNK_MAX : r->used;
        if (size < n)
            size = n;
        if (size > JINJA_MEMORY_MAX || r->used > JINJA_MEMORY_MAX - size)
            run_fail(r, JINJA_LIMIT, "the template makes more than %zu MiB of values", JINJA_MEMORY_MAX >> 20);
        struct chunk *c = malloc(sizeof *c + size);
        if (!c)
            run_fail(r, JINJA_NOMEM, "no memory for a template's values");
        r->used += size;
        *c = (struct chunk){.before = a->last};
        a->last = c;
        a->at = (char *)c->data;
        a->end = a->at + size;
    }
    void *p = a->at;
    a->at += n;
    return p;
}

void *run_alloc(struct run *r, size_t n, size_t size)
{
    if (n > JINJA_MEMORY_MAX / size)
        run_fail(r, JINJA_LIMIT, "the template makes more than %zu MiB of values", JINJA_MEMORY_MAX >> 20);
    return arena_take(r, &r->cells, (n * size + 15) & ~(size_t)15);
}

void *run_alloc0(struct run *r, size_t n, size_t size)
{
    return memset(run_alloc(r, n, size), 0, n * size);
}

char *run_alloc_bytes(struct run *r, size_t n)
{
    return arena_take(r, &r->bytes, n);
}

void run_arena_free(struct arena *a)
{
    while (a->last) {
        struct chunk *c = a->last;
        a->last = c->before;
        free(c);
    }
    *a = (struct arena){0};
}

void *run_grow(struct run *r, void *old, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap)
        return old;
    uint32_t more = *cap ? *cap * 2 : 8;
    void *v = run_alloc(r, more, size);
    if (n)
        memcpy(v, old, n * size);
    *cap = more;
    return v;
}

/* --- work and depth --------------------------------------------------------------------------------------- */

enum { STEP_BYTES = 16 /* a step takes about as long as this many bytes of other work */ };

void run_charge(struct run *r, uint64_t steps)
{
    r->steps += steps;
    if (pace(steps * STEP_BYTES, NULL))
        run_fail(r, JINJA_LIMIT, "the template was stopped");
    if (r->steps > JINJA_STEPS_MAX + r->more_steps)
        run_fail(r, JINJA_LIMIT, "the template takes more than %llu steps",
                 (unsigned long long)(JINJA_STEPS_MAX + r->more_steps));
}

void run_charge_bytes(struct run *r, size_t n)
{
    run_charge(r, n / 64);
}

void run_enter(struct run *r)
{
    if (++r->depth > 10 * JINJA_DEPTH_MAX)
        run_fail(r, JINJA_LIMIT, "the template nests too deeply");
}

/* --- text at the end of the output ------------------------------------------------------------------------ */

static void reserve(struct run *r, size_t n)
{
    if (n <= r->cap_out - r->n_out)
        return;
    if (n > JINJA_OUTPUT_MAX || r->n_out > JINJA_OUTPUT_MAX - n)
        run_fail(r, JINJA_LIMIT, "the template makes a text of more than %zu MiB", JINJA_OUTPUT_MAX >> 20);
    size_t cap = r->cap_out * 2 > r->n_out + n ? r->cap_out * 2 : r->n_out + n + 1024;
    char *out = realloc(r->out, cap);
    if (!out)
        run_fail(r, JINJA_NOMEM, "no memory for a template's text");
    r->out = out;
    r->cap_out = cap;
}

void put_span(struct run *r, size_t from, size_t to)
{
    if (from == to)
        return;
    if (r->n_span == r->cap_span) {
        size_t cap = r->cap_span ? r->cap_span * 2 : 64;
        struct jinja_span *span = realloc(r->span, cap * sizeof *span);
        if (!span)
            run_fail(r, JINJA_NOMEM, "no memory for a template's text");
        r->span = span;
        r->cap_span = cap;
    }
    r->span[r->n_span++] = (struct jinja_span){(uint32_t)from, (uint32_t)to};
}

void put_bytes(struct run *r, const char *s, size_t n)
{
    reserve(r, n);
    if (n)
        memcpy(r->out + r->n_out, s, n);
    r->n_out += n;
}

void put_char(struct run *r, char c)
{
    put_bytes(r, &c, 1);
}

void put_code(struct run *r, uint32_t code)
{
    char c[4];
    put_bytes(r, c, code_put(c, code));
}

void put_fill(struct run *r, uint32_t code, int64_t n)
{
    if (n > (int64_t)JINJA_OUTPUT_MAX)
        n = (int64_t)JINJA_OUTPUT_MAX + 1;
    if (n > 0)
        reserve(r, (size_t)n);
    for (; n > 0; n--)
        put_code(r, code);
}

void put_text(struct run *r, const char *s)
{
    put_bytes(r, s, strlen(s));
}

void put_fmt(struct run *r, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    put_bytes(r, text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}
