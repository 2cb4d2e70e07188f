/*
 * past.h - a session's messages for the engine, which renders them and the new ones together. Loop thread.
 *
 * Raw text and what followed it belong to the answer before them; where a session began with them, they come before all
 * messages.
 */
#ifndef DAEMON_PAST_H
#define DAEMON_PAST_H

#include "daemon/context.h"
#include "daemon/store/store.h"
#include "libclient/wire.h"

struct past {
    struct wire_past_message *v;
    size_t n;
    int64_t at; /* ids of the timeline before the first of them */
    struct store_turn *turns;
    size_t n_turns;
    char **joined; /* [n] contents that are made of several turns */
    void **blocks; /* [n] that hold what was thought */
};

/* Reads the messages of a stored session. HEARTH_ESTORE, HEARTH_ENOMEM. */
int past_read(struct server *s, const struct store_session *row, struct past *out, struct hearth_err *e);
void past_fini(struct past *p);

/* Whether a turn's role is one of those of raw text, which no message may have. */
bool past_is_raw(const char *role);

#endif
