/*
 * text.h - incremental detokenisation: the text of a stream, from token ids to the UTF-8 that may be emitted so far.
 *
 * Each stage holds back what it cannot decide yet:
 *     bytes of the token -> valid UTF-8 (an unfinished character is held back, invalid bytes become U+FFFD)
 *                        -> reasoning and text (reasoning.h; a possible beginning of a marker is held back)
 *                        -> text without a stop string (the beginning of one is held back, also across tokens)
 * Text is emitted with the token that completes it. What is held back is reported with each token, so that hearthd has
 * it if the engine dies. Emitted text never contains a stop string, nor any part of the one that ended the stream, and
 * it does not depend on where tokens were cut. Replaying the same tokens emits the same text token by token, which
 * makes it possible to resume a stream after a crash.
 *
 * Thread: the loop's.
 */
#ifndef HEARTH_ENGINE_TEXT_H
#define HEARTH_ENGINE_TEXT_H

#include "daemon/engine/front/reasoning.h"

enum { TEXT_STOP_MAX = 1024 /* bytes in a stop string */ };

struct text {
    const struct vocab *vocab; /* borrowed, as are the stop strings */
    const char *const *stop;
    size_t n_stop;
    unsigned char part[4]; /* the bytes of an unfinished character */
    size_t n_part;
    char *pending; /* valid UTF-8: [0, n_emitted) was emitted by the last call, the rest is held back */
    size_t n_pending, n_emitted, cap;
    bool stopped; /* a stop string is complete */
    struct reasoning reasoning;
    char *thought; /* the reasoning of the last call, valid UTF-8: [0, n_thought) */
    size_t n_thought, cap_thought;
    char *held, *held_thought; /* from the last text_held(): n_held and n_held_thought bytes of valid UTF-8 */
    size_t n_held, n_held_thought, cap_held, cap_held_thought;
    bool held_stops; /* a stop string is complete in what is held back, whose end was left out */
};

/* Borrows the vocabulary and the stop strings. HEARTH_EPARAMS if a stop string is empty or too long. */
int text_init(struct text *t, const struct vocab *v, const char *const *stop, size_t n_stop, struct hearth_err *e);
void text_fini(struct text *t);
/* To be called before the first token: reasoning, recognised by the markers of the family, goes to t->thought; `open`:
 * it has already begun. */
void text_divide(struct text *t, const struct reasoning_family *f, bool open);

/* Pushes a token; (*out)[0..*n) is the text that is emitted with it, to be sent after t->thought; both are valid until
 * the next call. Sets t->stopped if a stop string is complete. HEARTH_ENOMEM. */
int text_push(struct text *t, int32_t id, const char **out, size_t *n, struct hearth_err *e);
/* Pushes the bytes of a token. */
int text_push_bytes(struct text *t, const char *bytes, size_t len, const char **out, size_t *n, struct hearth_err *e);

/* Reports in t->held and t->held_thought what is held back and will be emitted if no token follows; nothing if a stop
 * string has ended the text. HEARTH_ENOMEM. */
int text_held(struct text *t, struct hearth_err *e);

#endif
