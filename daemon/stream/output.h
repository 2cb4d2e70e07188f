/*
 * output.h - what a generation has made so far, and how far a reader of it has come. Pure; embedded in a stream.
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
    struct wire_token_logprobs *logprobs; /* one per id, or none at all */
    size_t n_logprobs, cap_logprobs;
    struct output_mark *marks;
    size_t n_marks, cap_marks;
};

/* Where a reader is; zero is the beginning. */
struct output_cursor {
    size_t ids, text, mark; /* marks before it */
};

void output_fini(struct output *o);

/* Copies. Without memory HEARTH_ENOMEM, and the output is as it was or has ended: do not append again. */
int output_append(struct output *o, const struct wire_ids *ids, const struct wire_bytes *text,
                  const struct wire_token_logprobs *logprobs, size_t n_logprobs, struct hearth_err *e);

/* The next piece to hand on: true and index, count, tokens, text and logprobs of *f, borrowed until the next append.
 * Where the reader is behind, one piece is many tokens. */
bool output_next(const struct output *o, struct output_cursor *cursor, struct wire_stream_tokens *f);

/* Goes on at token `from`, or at the end where there are not so many. The text of a mark goes with its last token. */
void output_seek(const struct output *o, size_t from, struct output_cursor *cursor);

#endif
