/* chat.h - a conversation, as chat.c has it and chat-commands.c changes it. */
#ifndef CLIENT_CHAT_H
#define CLIENT_CHAT_H

#include "client/cmd.h"

struct chat {
    struct hearth *h;
    struct gen *gen;
    int64_t turns; /* answered here */
    bool begun;    /* the session exists */
    bool new_name; /* the session was named here and not by anybody: it is told at the end */
    bool over;     /* /bye */
    char name[48]; /* of a session that was named here */
    char **owned;  /* texts that commands gave: name of the session, system message, values of options */
    size_t n_owned;
};

/* Names a session that nobody else has: a conversation is worth keeping. */
void chat_new_session(struct chat *c);

/* Does what a line says that is a command ("/help"). False: it is none, but a message. */
bool chat_command(struct chat *c, struct hearth_bytes line);

#endif
