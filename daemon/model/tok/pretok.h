/*
 * pretok.h - pre-tokenization: splits text into the words within which byte-level BPE merges; one row per
 * `tokenizer.ggml.pre`.
 *
 * A struct pretok is immutable after opening; any thread may split text by it.
 */
#ifndef HEARTH_PRETOK_H
#define HEARTH_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/err.h"

struct pretok_kind {
    const char *name;
    const char *const *patterns; /* applied in turn, each to the words of the previous one; NULL-terminated */
    bool ignore_merges;          /* a word that is a token becomes that token, without merging */
    bool add_bos;                /* the default where the file has no key for it */
};

/* Returns the row of that name (not NUL-terminated), or NULL. */
const struct pretok_kind *pretok_find(const char *name, size_t n);

/* What becomes of a match: with PRETOK_INVERT, of what is between matches. With PRETOK_LETTERS, this pattern and those
 * after it are matched in GPT-2's alphabet, in which each byte is a letter. hf/pre-tokenizer.c writes these numbers. */
enum pretok_behavior {
    PRETOK_ISOLATED,   /* it is a word */
    PRETOK_REMOVED,    /* it is dropped */
    PRETOK_PREVIOUS,   /* it ends the word before it */
    PRETOK_NEXT,       /* it begins the word after it */
    PRETOK_CONTIGUOUS, /* a run of matches is one word */
    PRETOK_INVERT = 8,
    PRETOK_LETTERS = 16
};

/* A pattern of a tokenizer.json, in Oniguruma's syntax. Not NUL-terminated. */
struct pretok_pattern {
    const char *s;
    size_t n;
    int behavior;
};

struct pretok;
/* Opens the patterns of a file, which are untrusted; n = 0: text is one word. HEARTH_EUNSUPPORTED names a construct
 * that means something else to PCRE2 than to Oniguruma. */
int pretok_open_patterns(struct pretok **out, const struct pretok_pattern *v, size_t n, struct hearth_err *e);
int pretok_open(struct pretok **out, const struct pretok_kind *kind, struct hearth_err *e);
void pretok_close(struct pretok *p);
bool pretok_removes(const struct pretok *p); /* whether a pattern may drop some of the text */

/* Returns in *ends the end offsets of text's words, ascending, the last one n; the array is malloc'd and the caller
 * frees it. Text may be any bytes; n <= INT32_MAX. PRETOK_GONE is added to the end of what is dropped. */
#define PRETOK_GONE 0x80000000u
int pretok_split(const struct pretok *p, const char *text, size_t n, uint32_t **ends, size_t *n_word,
                 struct hearth_err *e);

/* Sets the range of the word w; false if it is dropped. */
static inline bool pretok_word(const uint32_t *ends, size_t w, size_t *from, size_t *to)
{
    *from = w ? ends[w - 1] & ~PRETOK_GONE : 0;
    *to = ends[w] & ~PRETOK_GONE;
    return !(ends[w] & PRETOK_GONE);
}

#endif
