/*
 * output.h - the tokens, text, reasoning and logprobs of a generation so far, the text that is held back, and a
 * subscriber's cursor into them. Pure.
 *
 *     ids        0 ......... at ......... n_ids        texts and logprobs are cut at the same marks: a piece
 *     reasoning  0 ......... at ......... n_reasoning  never holds a token without the text that belongs to
 *     text       0 ......... at ......... n_text       the frame of that token
 *     marks      [ one per append          ]
 */
#ifndef DAEMON_OUTPUT_H
#define DAEMON_OUTPUT_H

#include "libclient/wire.h"

struct output_mark {
    size_t ids, text, reasoning; /* totals after an append */
};

struct output {
    int32_t *ids;
    size_t n_ids, cap_ids;
    char *text;
    size_t n_text, cap_text;
    char *reasoning;
    size_t n_reasoning, cap_reasoning;
    int64_t reasoning_tokens;
    struct wire_token_logprobs *logprobs; /* one per id, or none if they were not requested */
    size_t n_logprobs, cap_logprobs;
    struct output_mark *marks;
    size_t n_marks, cap_marks;
    char *held; /* what would be appended if the tokens ended here: text, then reasoning */
    size_t n_held, n_held_reasoning, cap_held;
};

/* A subscriber's position in the output; all zero is the beginning. */
struct output_cursor {
    size_t ids, text, reasoning; /* what was sent to it, in tokens and in bytes */
    size_t mark;                 /* number of marks up to this position */
};

void output_fini(struct output *o);

/* Appends copies. After HEARTH_ENOMEM nothing more may be appended, because some of the logprobs may have been. */
int output_append(struct output *o, const struct wire_engine_tokens *t, struct hearth_err *e);

/* All of the reasoning; absent if there is none. Borrowed until the next append. */
struct wire_bytes output_reasoning(const struct output *o);

/* Text and reasoning that are held back; absent if there is none. Borrowed until the next append, which may append
 * these very bytes. */
struct wire_bytes output_held(const struct output *o);
struct wire_bytes output_held_reasoning(const struct output *o);

/* Returns the next piece at the cursor and moves the cursor past it: true, with all of *f but the stream set, borrowed
 * until the next append. A subscriber that is behind gets many tokens as one piece. Within a piece, reasoning comes
 * before text. */
bool output_next(const struct output *o, struct output_cursor *cursor, struct wire_stream_tokens *f);

/* Moves the cursor to token `from`, or to the end if there are fewer. The text of a mark belongs to its last token. */
void output_seek(const struct output *o, size_t from, struct output_cursor *cursor);

#endif
