/*
 * str.h - Python's str: immutable, in UTF-8, with a record of which bytes came from the context. A string is built at
 * the end of the output buffer and then moved into the arena.
 */
#ifndef MODEL_CHAT_STR_H
#define MODEL_CHAT_STR_H

#include "daemon/model/chat/run.h"

/* Bytes are UTF-8; a lone surrogate, which Python's strings may contain, is three bytes like other code points of its
 * range. */
enum origin {
    ORIGIN_TEMPLATE,
    ORIGIN_CONTEXT,
    ORIGIN_MIXED /* `span` tells which bytes came from the context */
};
struct str {
    const char *p;
    uint32_t n;
    int32_t codes; /* code points, -1: not counted yet */
    bool markup;   /* Markup: strings that are joined to it are escaped */
    uint8_t origin;
    uint32_t n_span;
    const struct jinja_span *span;
};

struct str *str_new(struct run *r, const char *p, size_t n);                           /* borrows the bytes */
const struct str *str_sub(struct run *r, const struct str *s, size_t from, size_t to); /* bytes [from, to) */
int64_t str_codes(struct run *r, const struct str *s);                                 /* len() */
size_t str_offset(struct run *r, const struct str *s, int64_t code);                   /* of code point number `code` */
bool str_is(const struct str *s, const char *text);
bool str_same(const struct str *a, const struct str *b);
const struct str *str_char(struct run *r, const struct str *s, size_t at); /* the code point at a byte offset, as a
                                                                              string */
/* The byte offset of the first (str_rfind: the last) occurrence of b in a[from, to), or -1; an empty b is found at
 * `from` (str_rfind: at `to`). */
int64_t str_find(struct run *r, const struct str *a, const struct str *b, size_t from, size_t to);
int64_t str_rfind(struct run *r, const struct str *a, const struct str *b, size_t from, size_t to);

/* --- building strings at the end of the output ------------------------------------------------------------ */

struct mark {
    size_t n_out, n_span;
};
struct mark string_begin(struct run *r);
struct str *string_end(struct run *r, struct mark m); /* removes what was put since m, and returns it as a string */
void put_str(struct run *r, const struct str *s);
/* Attributes everything that was put since m to the origin of s, for operations without exact spans: to the context, if
 * any of s is from there. */
void put_as(struct run *r, struct mark m, const struct str *s);

#endif
