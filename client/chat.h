/* chat.h - the state of a conversation, which chat.c runs and chat-commands.c changes. */
#ifndef CLIENT_CHAT_H
#define CLIENT_CHAT_H

#include "client/cmd.h"

struct chat {
    struct hearth *h;
    struct gen *gen;
    int64_t turns; /* answered in this process */
    bool begun;    /* the session exists */
    bool new_name; /* the session got its name here (generated, or by /save): how to resume it is printed at the end */
    char *name_later; /* /save before the first message: the session gets this name as soon as it exists; or NULL */
    bool over;        /* /bye */
    char name[48];    /* generated session name */
    char **owned;     /* texts from commands that must live as long as the conversation: session name, system message,
                         option values */
    size_t n_owned;
};

/* Starts a new session under a unique generated name, so that the conversation is kept. */
void chat_new_session(struct chat *c);

/* Gives the session the name that /save asked for, if it has begun meanwhile. */
void chat_name_begun(struct chat *c);

/* Runs a line that is a command ("/help"). Returns false where it is a message instead. */
bool chat_command(struct chat *c, struct hearth_bytes line);

#endif
