/*
 * reasoning.h - what a model writes, divided into its reasoning and its text by the markers of its family.
 *
 * The families are rows of one table: how reasoning begins and ends, what else is markup, and how a chat template is
 * asked for it or not to have it. A marker is made of tokens that most vocabularies have as special ones; then only
 * these count, wherever they come, and no text that looks like them. Elsewhere a marker is text, which the model may
 * also write about: there reasoning begins where the answer begins, or right after another marker.
 *
 * One byte after the other is looked at once; what may be the beginning of a marker is held back, and so are the
 * newlines around markers, which belong to them. So the parts do not depend on where tokens were cut.
 *
 * Thread: any; a struct reasoning belongs to one at a time.
 */
#ifndef HEARTH_ENGINE_REASONING_H
#define HEARTH_ENGINE_REASONING_H

#include "daemon/model/tok/tok.h"

struct reasoning_family;

/* The family of a model with that chat template and that vocabulary (which may be NULL); NULL: it has no markers. */
const struct reasoning_family *reasoning_family_of(const char *source, size_t n, const struct vocab *v);
const struct reasoning_family *reasoning_family_named(const char *name); /* NULL: there is none */
const char *reasoning_family_name(const struct reasoning_family *f);

/* Whether a prompt of that family ends inside of reasoning, which a template may begin by itself. */
bool reasoning_is_open(const struct reasoning_family *f, const char *prompt, size_t n);

/* Variables by which a chat template of the family (NULL: of one that is not known) is asked to have the model think,
 * or not to: members of a JSON object. */
const char *reasoning_switches(const struct reasoning_family *f, bool think);

/* The key under which such a template reads the reasoning of an answer; NULL where it reads none, and then *before and
 * *after are what stands around it in front of the content. */
const char *reasoning_key(const struct reasoning_family *f, const char *source, size_t n, const char **before,
                          const char **after);

enum {
    REASONING_TOKENS = 6,
    REASONING_MARKERS = 10,
    REASONING_MARKER = 80,   /* bytes */
    REASONING_NEWLINES = 64, /* that are held back; of more in a row the first ones belong to no marker */
};

struct reasoning {
    const struct reasoning_family *family; /* NULL: all is text */
    int32_t special[REASONING_TOKENS];     /* ids of the family's tokens; -1: text in this vocabulary */
    struct reasoning_mark {
        enum { MARK_OPEN, MARK_CLOSE, MARK_SKIP } kind;
        size_t n;
        char s[REASONING_MARKER]; /* EXACT before each special token */
    } mark[REASONING_MARKERS];
    size_t n_mark;
    enum { REASONING_START, REASONING_THINK, REASONING_TEXT } state; /* START: nothing but newlines has come */
    bool fresh;                  /* nothing has come since a marker: newlines are the marker's */
    bool touched;                /* reasoning, or a marker of it, has come since the last reasoning_count() */
    size_t n_newline;            /* held back */
    char part[REASONING_MARKER]; /* the beginning of what may be a marker */
    size_t n_part;
    int64_t n_waiting, n_tokens; /* tokens that are undecided, and those of reasoning */
};

/* `open`: what comes first is reasoning. */
void reasoning_begin(struct reasoning *r, const struct reasoning_family *f, const struct vocab *v, bool open);

/* The text of a special token that may be part of a marker, for reasoning_feed() with `exact`; NULL: it is another. */
const char *reasoning_token(const struct reasoning *r, int32_t id);

/* Where the parts go; the caller has made room in both for n + reasoning_held() bytes. */
struct reasoning_out {
    char *text, *thought;
    size_t n_text, n_thought;
};
size_t reasoning_held(const struct reasoning *r);

/* Takes bytes of valid UTF-8, or (exact) those of one special token. */
void reasoning_feed(struct reasoning *r, const char *s, size_t n, bool exact, struct reasoning_out *out);
/* Nothing more comes: what was held back is given out. */
void reasoning_end(struct reasoning *r, struct reasoning_out *out);
/* After each token: counts those of reasoning, with its markers, in n_tokens. */
void reasoning_count(struct reasoning *r);

#endif
