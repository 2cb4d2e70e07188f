/*
 * str.h - Python's str: immutable, in UTF-8, with an account of what came out of the context. Strings are made on top
 * of the output and then cut off into the arena.
 */
#ifndef MODEL_CHAT_STR_H
#define MODEL_CHAT_STR_H

#include "daemon/model/chat/run.h"

/* Bytes are UTF-8; a lone surrogate, which Python's strings may hold, is three bytes like any other code point. */
enum origin {
    ORIGIN_TEMPLATE,
    ORIGIN_CONTEXT,
    ORIGIN_MIXED /* spans say which */
};
struct str {
    const char *p;
    uint32_t n;
    int32_t codes; /* code points, -1: not counted yet */
    bool markup;   /* Markup: what is joined to it is escaped */
    uint8_t origin;
    uint32_t n_span;
    const struct jinja_span *span;
};

struct str *str_new(struct run *r, const char *p, size_t n);                           /* borrows the bytes */
const struct str *str_sub(struct run *r, const struct str *s, size_t from, size_t to); /* bytes [from, to) */
int64_t str_codes(struct run *r, const struct str *s);                                 /* len() */
size_t str_offset(struct run *r, const struct str *s, int64_t code);                   /* the byte of code point i */
bool str_is(const struct str *s, const char *text);
bool str_same(const struct str *a, const struct str *b);
const struct str *str_char(struct run *r, const struct str *s, size_t at); /* the code point at a byte, as a string */
/* The first place of b in a[from, to), or -1; of an empty b from itself. */
int64_t str_find(struct run *r, const struct str *a, const struct str *b, size_t from, size_t to);
int64_t str_rfind(struct run *r, const struct str *a, const struct str *b, size_t from, size_t to);

/* --- making strings on top of the output ------------------------------------------------------------------ */

struct mark {
    size_t n_out, n_span;
};
struct mark string_begin(struct run *r);
struct str *string_end(struct run *r, struct mark m); /* cuts off what was put since */
void put_str(struct run *r, const struct str *s);
/* All that was put since m counts as s does, for what has no exact account: as the context's where any of s is. */
void put_as(struct run *r, struct mark m, const struct str *s);

#endif
