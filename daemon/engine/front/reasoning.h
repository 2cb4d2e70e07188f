/*
 * reasoning.h - divides what a model writes into its reasoning and its text, by the markers of its family.
 *
 * The families are rows of one table: how reasoning begins and ends, what else is markup, and how a chat template is
 * asked to make the model reason or not. A marker consists of tokens that are special tokens in most vocabularies; in
 * these only the tokens themselves count, wherever they come, and no text that looks like them. In other vocabularies a
 * marker is plain text, which the model may also write about; there reasoning begins only at the beginning of the
 * answer, or right after another marker.
 *
 * Bytes are examined one at a time. A possible beginning of a marker is held back, and so are the newlines around
 * markers, which belong to the markers. So the division does not depend on where tokens were cut.
 *
 * Thread: any; a struct reasoning belongs to one at a time.
 */
#ifndef HEARTH_ENGINE_REASONING_H
#define HEARTH_ENGINE_REASONING_H

#include "daemon/model/tok/tok.h"

struct reasoning_family;

/* The family of a model with that chat template and that vocabulary (may be NULL); NULL if it has no markers. */
const struct reasoning_family *reasoning_family_of(const char *source, size_t n, const struct vocab *v);
const struct reasoning_family *reasoning_family_named(const char *name); /* NULL if there is none */
const char *reasoning_family_name(const struct reasoning_family *f);
const struct reasoning_family *reasoning_family_at(size_t i); /* NULL after the last one */

/* Whether a prompt of that family ends inside reasoning, which a template may open by itself. */
bool reasoning_is_open(const struct reasoning_family *f, const char *prompt, size_t n);

/* The variables that ask a chat template of the family (NULL: of an unknown one) to make the model think, or not to: as
 * members of a JSON object. */
const char *reasoning_switches(const struct reasoning_family *f, bool think);

/* The key under which such a template reads the reasoning of an answer; NULL if it reads none, and then *before and
 * *after enclose the reasoning in front of the content. */
const char *reasoning_key(const struct reasoning_family *f, const char *source, size_t n, const char **before,
                          const char **after);

enum {
    REASONING_TOKENS = 6,
    REASONING_MARKERS = 12,
    REASONING_MARKER = 80,   /* bytes */
    REASONING_NEWLINES = 64, /* that are held back; of more in a row, the first ones belong to no marker */
};

struct reasoning {
    const struct reasoning_family *family; /* NULL: everything is text */
    int32_t special[REASONING_TOKENS];     /* ids of the family's tokens; -1: plain text in this vocabulary */
    struct reasoning_mark {
        enum { MARK_OPEN, MARK_CLOSE, MARK_SKIP } kind;
        size_t n;
        char s[REASONING_MARKER]; /* with EXACT before each special token */
    } mark[REASONING_MARKERS];
    size_t n_mark;
    enum { REASONING_START, REASONING_THINK, REASONING_TEXT } state; /* START: nothing but newlines has come so far */
    bool fresh;                  /* nothing has come since a marker: newlines belong to the marker */
    bool touched;                /* reasoning, or a marker of it, has come since the last reasoning_count() */
    size_t n_newline;            /* held back */
    char part[REASONING_MARKER]; /* a possible beginning of a marker */
    size_t n_part;
    int64_t n_waiting, n_tokens; /* tokens whose kind is undecided, and tokens of reasoning */
};

/* `open`: the output begins with reasoning. */
void reasoning_begin(struct reasoning *r, const struct reasoning_family *f, const struct vocab *v, bool open);

/* The text of a special token that may be part of a marker, for reasoning_feed() with `exact`; NULL for other
 * tokens. */
const char *reasoning_token(const struct reasoning *r, int32_t id);

/* The output; the caller has made room in both buffers for n + reasoning_held() bytes. */
struct reasoning_out {
    char *text, *thought;
    size_t n_text, n_thought;
};
size_t reasoning_held(const struct reasoning *r);

/* Takes bytes of valid UTF-8, or (exact) those of one special token. */
void reasoning_feed(struct reasoning *r, const char *s, size_t n, bool exact, struct reasoning_out *out);
/* Marks the end of the input: outputs everything that was held back. */
void reasoning_end(struct reasoning *r, struct reasoning_out *out);
/* To be called after each token: counts the tokens of reasoning, including its markers, in n_tokens. */
void reasoning_count(struct reasoning *r);

#endif
