/*
 * retention.h - what hearthd removes on its own, at its start and every hour: sessions that nobody uses, journals of
 * streams that ended long ago, KV files. Loop thread.
 *
 * The policy (hearth.conf(5)): things are removed for their age only while the clock can be trusted (clock-guard.h),
 * and, to free space, the least recently used first. Whatever is pinned or in use is never removed. The log names each
 * session.
 */
#ifndef DAEMON_RETENTION_H
#define DAEMON_RETENTION_H

#include <stdbool.h>

#include "daemon/context.h"
#include "daemon/store/store.h"

struct retention;

/* What retention needs from sessions and streams, which are in higher layers. */
struct retention_calls {
    /* Whether a stream is running in the session with that id. */
    bool (*is_busy)(const struct server *s, const char *id);
    /* Removes a session and everything that it has on the disk. */
    int (*remove)(struct server *s, const struct store_session *row, struct hearth_err *e);
    /* Removes the journals of streams that ended long ago. */
    void (*expire_streams)(struct server *s);
};

/* Makes the first sweep before it returns, and one every hour from then on. `calls` must outlive the retention. */
int retention_new(struct retention **out, struct server *s, const struct retention_calls *calls, struct hearth_err *e);
void retention_free(struct retention *t);

/* Whether the wall clock can be trusted to say that something is old. Never while hearthd is starting. */
bool retention_trusts_clock(struct server *s);

/* The current time, to be stored as a session's `used`: later than all others', even after the clock was set back,
 * because the most recently used session must not be the first to be removed. */
double retention_used(struct server *s);

/* To be called after a session was removed: the rest of its text is soon cleared from the database, from the loop. */
void retention_purge_later(struct server *s);

/* To be called when a thread has stopped reading the database, before another one begins: removed text is cleared from
 * the database's log now if that was put off for the reader. */
void retention_read_ended(struct server *s);

/* Removes a uid's least recently used sessions while the total exceeds session_bytes_per_uid. */
void retention_trim_uid(struct server *s, uid_t uid);

/* HEARTH_ELIMIT if the uid or its session `row` (NULL: a new session) has reached its limit, or if the uid would exceed
 * its limit with `more` further bytes. Unused sessions are removed if the uid is over its limit already, but none is
 * removed to make room for `more`. Neither `row` nor the session with the id `keep` (may be NULL) is removed. */
int retention_check_quota(struct server *s, uid_t uid, const struct store_session *row, const char *keep, int64_t more,
                          struct hearth_err *e);

/* When the session will be removed for its age unless it is used before; 0: never. */
double retention_expires(const struct server *s, const struct store_session *row);

#endif
