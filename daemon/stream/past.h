/*
 * past.h - the messages of a stored session, which the engine renders together with the new ones. Loop thread.
 *
 * Raw text, and what was generated from it, counts as part of the answer before it. At the beginning of a session, it
 * precedes all messages.
 */
#ifndef DAEMON_PAST_H
#define DAEMON_PAST_H

#include "daemon/context.h"
#include "daemon/store/store.h"
#include "libclient/wire.h"

struct past {
    struct wire_past_message *v;
    size_t n;
    int64_t at; /* number of ids in the timeline before the first message */
    struct store_turn *turns;
    size_t n_turns;
    char **joined; /* [n] contents joined from several turns */
    void **blocks; /* [n] unpacked generation metadata, which hold the reasoning */
};

/* Reads the messages of a stored session. HEARTH_ESTORE, HEARTH_ENOMEM. */
int past_read(struct server *s, const struct store_session *row, struct past *out, struct hearth_err *e);
void past_fini(struct past *p);

#endif
