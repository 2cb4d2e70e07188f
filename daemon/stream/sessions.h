/*
 * sessions.h - sessions as clients refer to them: by name or id, for one user. It is a layer above the streams, because
 * a session is busy while a stream runs in it, and because turns that could not be written are retried before a session
 * is read. Loop thread.
 */
#ifndef DAEMON_SESSIONS_H
#define DAEMON_SESSIONS_H

#include "daemon/stream/session.h"

/* Whether a generation runs in the stored session with that id; whether one is creating a session of that name. */
bool session_is_busy(const struct server *s, const char *id);
bool session_is_reserved(const struct server *s, uid_t uid, const char *name);

/* Whether a generation runs in it, or the turn of an ended one has yet to be written. */
bool session_is_in_use(const struct server *s, const char *id);

/* Takes the result `rc` of looking up a session by the client's reference, and returns it, or HEARTH_ESESSIONBUSY if
 * the session was not found because a generation is creating it. */
int session_or_creating(const struct server *s, uid_t uid, const char *ref, int rc, struct hearth_err *e);

/* Reads a session by the client's reference. HEARTH_ENOSESSION; HEARTH_ESESSIONBUSY while a generation is creating it;
 * HEARTH_ESTORE if it is damaged or there is no store. */
int session_get(struct server *s, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e);

/* Whether the user may have `more` additional sessions with `bytes` additional bytes: 0 or HEARTH_ELIMIT. If the user
 * is over the limit of bytes already, unused sessions are removed for it, but not the one with the id `keep`; NULL: any
 * may be. */
int session_check_room(struct server *s, uid_t uid, int64_t more, const char *keep, int64_t bytes,
                       struct hearth_err *e);

/* Describes a session as sessions.list and similar methods do; the strings are borrowed. */
void session_describe(const struct server *s, const struct store_session *from, struct wire_session *to);

/* Opens the session that the request's `session` and `model` refer to for that uid: a stored session with its timeline,
 * a new one, or an unnamed one. HEARTH_ESESSIONBUSY, HEARTH_EMODELMISMATCH, HEARTH_ELIMIT and others. */
int session_open(struct server *s, uid_t uid, const struct wire_generate *g, struct session **out,
                 struct hearth_err *e);

/* Removes a session and everything on the disk that belongs to it. If that fails, nothing but KV is lost. */
int session_remove(struct server *s, const struct store_session *row, struct hearth_err *e);

/* session_forget_kv() removes the KV of a session that is about to be cut down to what is `left`;
 * session_forget_removed_kv() that of one about to be removed, except what its forks share. Both also remove the KV of
 * sessions removed earlier that nobody shares then. */
int session_forget_kv(struct server *s, const struct store_session *row, const struct store_shared *left,
                      struct hearth_err *e);
int session_forget_removed_kv(struct server *s, const struct store_session *row, struct hearth_err *e);

/* Called once a session has lost all but its first `from` tokens: removes the journals of its ended streams that reach
 * beyond them, and drops its streams whose turn has yet to be written. */
void session_forget_streams(struct server *s, const char *id, int64_t from);

#endif
