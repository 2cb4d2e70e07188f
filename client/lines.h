/*
 * lines.h - messages from a person: lines edited on a terminal, with a history, or plain lines of stdin.
 *
 * On a terminal a message may have many lines: between """ and """, after a backslash at a line's end, and as a whole
 * where it was pasted (bracketed paste). Off a terminal a message is a line, as it is.
 */
#ifndef CLIENT_LINES_H
#define CLIENT_LINES_H

#include <limits.h>
#include <stdbool.h>

#include <histedit.h>

#include "client/cmd.h"

struct lines {
    EditLine *el; /* NULL: plain */
    History *history;
    char file[PATH_MAX]; /* of the history; empty: none is kept */
    char *line;          /* of plain stdin */
    size_t cap;
    char *message; /* the message so far */
    size_t n_message;
    bool goes_on; /* the prompt says so */
};

void lines_open(struct lines *in);
void lines_close(struct lines *in);

/* The next message, without its newline; false at the end of input. It is valid until the next call. */
bool lines_next(struct lines *in, struct hearth_bytes *out);

#endif
