/*
 * sessions.h - sessions as clients ask for them: by a name or an id, of one user. It stands above the streams, because
 * a session is busy while a stream runs in it, and because streams whose turn could not be written are tried again
 * first. Loop thread.
 */
#ifndef DAEMON_SESSIONS_H
#define DAEMON_SESSIONS_H

#include "daemon/stream/session.h"

/* Whether a generation runs in the stored session with that id; whether one is creating a session of that name. */
bool session_is_busy(const struct server *s, const char *id);
bool session_is_reserved(const struct server *s, uid_t uid, const char *name);

/* Whether a generation runs in it, or the turn of one that has ended is still to be written. */
bool session_is_in_use(const struct server *s, const char *id);

/* `rc` of looking for a session by the client's reference, but HEARTH_ESESSIONBUSY where there is none because a
 * generation is creating it. */
int session_or_creating(const struct server *s, uid_t uid, const char *ref, int rc, struct hearth_err *e);

/* Reads a session by the client's reference. HEARTH_ENOSESSION; HEARTH_ESESSIONBUSY while a generation creates it;
 * HEARTH_ESTORE for a damaged one or without a store. */
int session_get(struct server *s, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e);

/* Whether the user may have so many more sessions, with so many bytes: HEARTH_ELIMIT. Others may make way where
 * these are over their limit, but not the one with the id `keep`; NULL: any. */
int session_check_room(struct server *s, uid_t uid, int64_t more, const char *keep, int64_t bytes,
                       struct hearth_err *e);

/* Describes a session as sessions.list and the like do; borrows the strings. */
void session_describe(const struct server *s, const struct store_session *from, struct wire_session *to);

/* Opens what the request's `session` and `model` mean for that uid: a stored session with its timeline, a new one, or
 * an unnamed one. HEARTH_ESESSIONBUSY, HEARTH_EMODELMISMATCH, HEARTH_ELIMIT and others. */
int session_open(struct server *s, uid_t uid, const struct wire_generate *g, struct session **out,
                 struct hearth_err *e);

/* Removes a session and all that there is of it on the disk. Where that fails nothing but KV is lost. */
int session_remove(struct server *s, const struct store_session *row, struct hearth_err *e);

/* Removes the KV of a session that is about to lose all but what is `left`, or all but what forks have of it; and the
 * KV of removed sessions that nobody has then. */
int session_forget_kv(struct server *s, const struct store_session *row, const struct store_shared *left,
                      struct hearth_err *e);
int session_forget_removed_kv(struct server *s, const struct store_session *row, struct hearth_err *e);

/* Removes the journals of a session's ended streams that reach beyond its first `from` tokens, once these are gone. */
void session_forget_streams(struct server *s, const char *id, int64_t from);

#endif
