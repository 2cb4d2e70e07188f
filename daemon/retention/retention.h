/*
 * retention.h - what hearthd removes by itself, at its start and every hour: sessions that nobody uses, journals of
 * streams that ended long ago, KV files. Loop thread.
 *
 * The policy (hearth.conf(5)): things are removed for their age only while the clock can be trusted (clock-guard.h),
 * and for room the least recently used first. What is pinned or in use is never removed. The log names each session.
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

/* Whether the wall clock can be trusted to say that something is old. Never while hearthd is starting. */
bool retention_trusts_clock(struct server *s);

/* The time as a session's `used`: later than all others', even after the clock was set back, as what was used last must
 * not be the first to go. */
double retention_used(struct server *s);

/* A session was removed: clears the rest of its text out of the database from the loop, soon. */
void retention_purge_later(struct server *s);

/* Removes a uid's least recently used sessions while they exceed session_bytes_per_uid. */
void retention_trim_uid(struct server *s, uid_t uid);

/* HEARTH_ELIMIT where that uid, or its session `row` (NULL: a new one), has reached its limit, or would with so many
 * more bytes, for which nothing makes way. Sessions that are not used do where it is over its limit already, but
 * neither `row` nor the one with the id `keep` (NULL: none). */
int retention_check_quota(struct server *s, uid_t uid, const struct store_session *row, const char *keep, int64_t more,
                          struct hearth_err *e);

/* When the session will be removed for its age unless it is used; 0: never. */
double retention_expires(const struct server *s, const struct store_session *row);

#endif
