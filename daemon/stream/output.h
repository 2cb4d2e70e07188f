/*
 * output.h - the tokens, text and logprobs of a generation so far, and a cursor of a subscriber in them. Pure.
 *
 *     ids      0 ......... at ......... n_ids          text and logprobs are cut at the same marks: a piece
 *     text     0 ......... at ......... n_text         never holds a token without the text that belongs to
 *     marks    [ one per append          ]             the frame of that token
 */
#ifndef DAEMON_OUTPUT_H
#define DAEMON_OUTPUT_H

#include "libclient/wire.h"

struct output_mark {
    size_t ids, text; /* totals after an append */
};

struct output {
    int32_t *ids;
    size_t n_ids, cap_ids;
    char *text;
    size_t n_text, cap_text;
    struct wire_token_logprobs *logprobs; /* one per id, or none where none was asked for */
    size_t n_logprobs, cap_logprobs;
    struct output_mark *marks;
    size_t n_marks, cap_marks;
};

/* A subscriber's place in the output; zero is the beginning. */
struct output_cursor {
    size_t ids, text; /* what it has been sent, in tokens and in bytes */
    size_t mark;      /* marks before the place */
};

void output_fini(struct output *o);

/* Appends copies. After HEARTH_ENOMEM nothing more may be appended: a part of the logprobs may have been. */
int output_append(struct output *o, const struct wire_ids *ids, const struct wire_bytes *text,
                  const struct wire_token_logprobs *logprobs, size_t n_logprobs, struct hearth_err *e);

/* The next piece for the cursor, which moves behind it: true, with index, count, tokens, text and logprobs of *f set.
 * They are borrowed until the next append. A subscriber that is behind gets many tokens as one piece. */
bool output_next(const struct output *o, struct output_cursor *cursor, struct wire_stream_tokens *f);

/* Moves the cursor to token `from`, or to the end where there are fewer. A mark's text belongs to its last token. */
void output_seek(const struct output *o, size_t from, struct output_cursor *cursor);

#endif
