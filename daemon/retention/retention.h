/*
 * retention.h - what hearthd removes by itself, at its start and every hour: sessions that nobody uses, streams that
 * have ended long ago, KV files. Loop thread.
 *
 * The policy, in the words of hearth.conf(5): by age only while the clock can be believed (clock-guard.h); for room the
 * least recently used first; never what is pinned or in use; each by name in the log.
 */
#ifndef DAEMON_RETENTION_H
#define DAEMON_RETENTION_H

#include <stdbool.h>

#include "daemon/context.h"
#include "daemon/store/store.h"

struct retention;

/* What retention needs of sessions and streams, which live above it. */
struct retention_calls {
    /* Whether a stream runs in the session with that id. */
    bool (*is_busy)(const struct server *s, const char *id);
    /* Removes a session with all that there is of it on the disk. */
    int (*remove)(struct server *s, const struct store_session *row, struct hearth_err *e);
    /* Removes the journals of streams that ended long ago. */
    void (*expire_streams)(struct server *s);
};

/* Makes the first sweep before it returns, and one every hour from then on. `calls` is borrowed for good. */
int retention_new(struct retention **out, struct server *s, const struct retention_calls *calls, struct hearth_err *e);
void retention_free(struct retention *t);

/* May the wall clock be believed now when it says that something is old? Not while hearthd is starting. */
bool retention_trusts_clock(struct server *s);

/* A session was removed: what is left of its text in the database is cleared away, soon and at once for all that go. */
void retention_purge_later(struct server *s);

/* Makes room among a uid's sessions where they hold more than they may. */
void retention_trim_uid(struct server *s, uid_t uid);

/* HEARTH_ELIMIT where that uid, or that session of it (NULL: none yet), has as much as it may have. */
int retention_check_quota(struct server *s, uid_t uid, const struct store_session *row, struct hearth_err *e);

/* When a session is removed for its age if nobody uses it; 0: never. */
double retention_expires(const struct server *s, const struct store_session *row);

#endif
