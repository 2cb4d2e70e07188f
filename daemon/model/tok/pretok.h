/*
 * pretok.h - cuts text into the words within which byte-level BPE merges; one row per `tokenizer.ggml.pre`.
 *
 * Immutable after opening; any thread may split.
 */
#ifndef HEARTH_PRETOK_H
#define HEARTH_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/err.h"

struct pretok_kind {
    const char *name;
    const char *const *patterns; /* applied one after the other to what the last one left; NULL-terminated */
    bool ignore_merges;          /* a word that is a token is that token, whatever the merges say */
    bool add_bos;                /* where the file does not say */
};

/* The row of that name (not NUL-terminated), or NULL. */
const struct pretok_kind *pretok_find(const char *name, size_t n);

/* A pattern of a tokenizer.json, in Oniguruma's syntax. Not NUL-terminated. */
struct pretok_pattern {
    const char *s;
    size_t n;
};

struct pretok;
/* From patterns that a file brings, none of which may be trusted; n = 0: text is one word. HEARTH_EUNSUPPORTED names
 * what PCRE2 would read otherwise than Oniguruma. */
int pretok_open_patterns(struct pretok **out, const struct pretok_pattern *v, size_t n, struct hearth_err *e);
int pretok_open(struct pretok **out, const struct pretok_kind *kind, struct hearth_err *e);
void pretok_close(struct pretok *p);

/* The end offsets of text's words, ascending, the last one n; *ends is malloc'd. Any bytes; n <= INT32_MAX. */
int pretok_split(const struct pretok *p, const char *text, size_t n, uint32_t **ends, size_t *n_word,
                 struct hearth_err *e);

#endif
