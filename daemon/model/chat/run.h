/*
 * run.h - what one compilation or one rendering has: memory, limits, an error to leave by, and text being made.
 *
 * All memory of a rendering lies in an arena and in one growing buffer, so an error may leave from any depth:
 * run_fail() unwinds with longjmp() to the setjmp() in render.c, which frees both. Nothing else may be owned on the
 * way.
 */
#ifndef MODEL_CHAT_RUN_H
#define MODEL_CHAT_RUN_H

#include <setjmp.h>
#include <stdbool.h>

#include "daemon/model/chat/jinja.h"

struct chunk;
struct val;
struct arena {
    struct chunk *last;
    char *at, *end;
};

struct run {
    jmp_buf escape;
    struct jinja_err *err;
    struct arena cells; /* structs */
    struct arena bytes; /* characters: a string that was made last can grow where it is */
    size_t used;        /* bytes of both */
    int line;           /* of the source, for errors */
    unsigned depth;     /* C frames inside each other: expressions, statements, values */
    unsigned calls;     /* macros inside each other */
    unsigned nest;      /* levels of a value that is printed */
    uint64_t steps;
    /* The text so far, and on top of it the strings that are being made: string_begin() to string_end(). */
    char *out;
    size_t n_out, cap_out;
    struct jinja_span *span; /* of out, in order */
    size_t n_span, cap_span;
    const struct jinja *tmpl;
    const struct tm *now;
    struct val *context; /* by name id: the variables given and the globals; V_MISSING where there is none */
};

_Noreturn void run_fail(struct run *r, enum jinja_failure failure, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define type_error(r, ...) run_fail(r, JINJA_RUNTIME, __VA_ARGS__)

/* Uninitialised memory that lives as long as the run; zeroed with alloc0. */
void *run_alloc(struct run *r, size_t n, size_t size);
void *run_alloc0(struct run *r, size_t n, size_t size);
char *run_alloc_bytes(struct run *r, size_t n);
void run_arena_free(struct arena *a);

/* Doubles a growing array of the arena (the old one stays until the end). */
void *run_grow(struct run *r, void *old, uint32_t n, uint32_t *cap, size_t size);

/* Counts work; fails at the limit. Bulk work over bytes counts 64 of them as one step. */
void run_charge(struct run *r, uint64_t steps);
void run_charge_bytes(struct run *r, size_t n);

/* Counts recursion; every run_enter() has its run_leave(). */
void run_enter(struct run *r);
static inline void run_leave(struct run *r)
{
    r->depth--;
}

/* --- more text at the end of the output ------------------------------------------------------------------- */

void put_bytes(struct run *r, const char *s, size_t n);
void put_char(struct run *r, char c);
void put_code(struct run *r, uint32_t code);
void put_fill(struct run *r, uint32_t code, int64_t n);
void put_text(struct run *r, const char *s); /* NUL-terminated */
void put_fmt(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* out[from, to) came out of the context. */
void put_span(struct run *r, size_t from, size_t to);

#endif
