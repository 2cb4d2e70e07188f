/*
 * lines.h - reads the user's messages: lines edited on a terminal, with a history, or plain lines of stdin.
 *
 * On a terminal a message may have several lines: between """ and """, after a backslash at the end of a line, or
 * pasted (bracketed paste). Without a terminal, each line is a message as it is.
 */
#ifndef CLIENT_LINES_H
#define CLIENT_LINES_H

#include <limits.h>
#include <stdbool.h>

#include <histedit.h>

#include "client/cmd.h"

struct lines {
    EditLine *el; /* NULL: plain lines of stdin */
    History *history;
    char file[PATH_MAX]; /* history file; empty: none */
    char *line;          /* line buffer for plain stdin */
    size_t cap;
    char *message; /* the message so far */
    size_t n_message;
    bool goes_on; /* the message continues on the next line, which the prompt shows */
};

/* Writes the path of the history file, $XDG_STATE_HOME/hearth/chat_history, next to the sessions; "" where there can be
 * none. */
void lines_history_file(char *path, size_t size);

void lines_open(struct lines *in);
void lines_close(struct lines *in);

/* Reads the next message, without its newline; returns false at the end of input. The message is valid until the next
 * call. */
bool lines_next(struct lines *in, struct hearth_bytes *out);

#endif
