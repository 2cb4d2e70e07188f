/*
 * run.h - the state of one compilation or one rendering: memory, limits, error exit, and the text under construction.
 *
 * All memory of a rendering is in arenas and in growing buffers that struct run owns, so an error may exit from any
 * depth: run_fail() unwinds with longjmp() to the setjmp() in render.c, which frees them. Code in between must not own
 * anything else.
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

/* The bytes and spans of a string that has been appended to, with room for more: see concat() in ops.c. */
struct room {
    char *p;
    size_t n, cap;
    struct jinja_span *span;
    uint32_t n_span, cap_span;
};

struct run {
    jmp_buf escape;
    struct jinja_err *err;
    struct arena cells;  /* structs */
    struct arena bytes;  /* characters */
    struct room room[4]; /* the strings that were appended to last, however much was made since */
    unsigned next_room;
    size_t used;                /* bytes of both arenas */
    int line;                   /* of the source, for errors */
    unsigned depth;             /* nested C frames: expressions, statements, values */
    unsigned calls;             /* nested macro calls */
    unsigned nest;              /* nesting level of the value that is being printed */
    uint64_t steps, more_steps; /* more_steps: than JINJA_STEPS_MAX */
    /* The text so far, followed by the strings under construction, between string_begin() and string_end(). */
    char *out;
    size_t n_out, cap_out;
    struct jinja_span *span; /* of out, sorted */
    size_t n_span, cap_span;
    const struct jinja *tmpl;
    const struct tm *now;
    struct val *context; /* by name id: the given variables and the globals; V_MISSING where there is neither */
};

_Noreturn void run_fail(struct run *r, enum jinja_failure failure, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define type_error(r, ...) run_fail(r, JINJA_RUNTIME, __VA_ARGS__)

/* Uninitialised memory that lives as long as the run; zeroed with alloc0. */
void *run_alloc(struct run *r, size_t n, size_t size);
void *run_alloc0(struct run *r, size_t n, size_t size);
char *run_alloc_bytes(struct run *r, size_t n);
void run_arena_free(struct arena *a);

/* Doubles a growing array in the arena (the old one stays allocated until the end of the run). */
void *run_grow(struct run *r, void *old, uint32_t n, uint32_t *cap, size_t size);

/* Count work and fail at the limit. 64 bytes of bulk work count as one step. */
void run_charge(struct run *r, uint64_t steps);
void run_charge_bytes(struct run *r, size_t n);

/* Counts recursion; every run_enter() needs a run_leave(). */
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

/* Records that out[from, to) came from the context. */
void put_span(struct run *r, size_t from, size_t to);

#endif
