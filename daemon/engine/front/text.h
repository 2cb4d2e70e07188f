/*
 * text.h - a stream's text: from token ids to the UTF-8 that may be told so far.
 *
 * Three steps, each holding back what it cannot decide yet:
 *     bytes of the token -> valid UTF-8 (an unfinished character waits, bad bytes become U+FFFD)
 *                        -> no stop string (the beginning of one waits, also across tokens)
 * What a token completes is told with that token. What was told never contains a stop string, nor any part of the
 * one that ended the stream; it does not depend on where tokens were cut. Replaying the same tokens tells the same
 * text, frame by frame, which is how a stream goes on after a crash.
 *
 * Thread: the loop's.
 */
#ifndef HEARTH_ENGINE_TEXT_H
#define HEARTH_ENGINE_TEXT_H

#include "daemon/model/tok/tok.h"

enum { TEXT_STOP_MAX = 1024 /* bytes in a stop string */ };

struct text {
    const struct vocab *vocab; /* borrowed, as are the stop strings */
    const char *const *stop;
    size_t n_stop;
    unsigned char part[4]; /* an unfinished character */
    size_t n_part;
    char *pending; /* valid UTF-8: [0, n_emitted) was given out by the last call, the rest is held back */
    size_t n_pending, n_emitted, cap;
    bool stopped; /* a stop string came */
};

/* HEARTH_EPARAMS: a stop string is empty or too long. */
int text_init(struct text *t, const struct vocab *v, const char *const *stop, size_t n_stop, struct hearth_err *e);
void text_fini(struct text *t);

/* Takes a token; *out[0..*n) is what can be told with it, valid until the next call. Sets t->stopped where a stop
 * string is complete. HEARTH_ENOMEM. */
int text_push(struct text *t, int32_t id, const char **out, size_t *n, struct hearth_err *e);
/* The same for bytes. */
int text_push_bytes(struct text *t, const char *bytes, size_t len, const char **out, size_t *n, struct hearth_err *e);

/* The stream ended: all that was held back, unless a stop string ended it. */
int text_end(struct text *t, const char **out, size_t *n, struct hearth_err *e);

#endif
