/*
 * commit.h - streams that have ended and whose turn could not be written: the disk was full. Loop thread.
 *
 * Their readers were told so (finish_reason error, STORE) and have the text. The journal has it too, as far as the disk
 * let it, and the next start writes the turn down; but on a full disk there is no journal either, and whoever makes
 * room goes on at once, not with another hearthd. So these streams are kept in memory, and written when somebody comes
 * for the session or asks for the same request again: unless the session has gone on without that turn by then.
 *
 * One that was written so stays here, too: the same request once more is answered with it, and does not generate again.
 * A few for each user, the last ones; and of a session the last one, for the others were computed without each other.
 */
#ifndef DAEMON_FOLD_H
#define DAEMON_FOLD_H

#include "daemon/stream/stream.h"

/* A stream that has been delivered; from now on it is kept or freed here. */
void commit_retry_add(struct stream *st);

/* That uid's, by number or by request id; NULL. It is to be taken or left at once. */
struct stream *commit_retry_find(struct server *s, uid_t uid, int64_t number, const char *request);

/* Out of here and into the server's list, for readers; written, if that can be. */
void commit_retry_take(struct stream *st);

/* The session is removed, and what its streams made with it. */
void commit_retry_forget(struct server *s, const char *session);

/* Writes what the uid has here, as far as that can be; and all that there is, at the end. */
void commit_retry(struct server *s, uid_t uid);
void commit_retry_fini(struct server *s);

#endif
