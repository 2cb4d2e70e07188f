/*
 * takeover.h - session takeover: a request takes over a session, or a place within the limit of streams, from a
 * generation without subscribers. Loop thread.
 *
 * When a client has died, or its user has pressed Ctrl+C, the stream continues for attach_grace seconds so that a
 * client can attach to it. Another request of the same user for the session does not wait for that: the stream is
 * cancelled, its turn is committed like that of any cancelled stream, and then the request runs. Attaching to the
 * stream before keeps it alive. A stream that hearthd has recovered is not taken over, because its client lost it when
 * hearthd ended and is expected to come back.
 */
#ifndef DAEMON_TAKEOVER_H
#define DAEMON_TAKEOVER_H

#include "daemon/rpc/call.h"

/* For a call that was refused because of a generation in that session (an id or a name). True if that generation has no
 * subscriber: it is being cancelled, and after its end the call's handler runs once more, never before this function
 * returns. */
bool takeover_wait(struct call *call, const char *session);

/* The same for a call that was refused because its user has as many streams as allowed: one of them without a
 * subscriber is cancelled. */
bool takeover_wait_for_room(struct call *call);

/* Marks a waiting `generate` of that user, found by its request id, to be cancelled as soon as it has begun; false:
 * none is waiting. */
bool takeover_cancel(struct server *s, uid_t uid, const char *request);

/* Runs the calls whose stream has ended; true if there was any. Called at the end of the loop's turn, and before a new
 * request is handled so that waiting calls go first; never from within a stream's end. */
bool takeover_resume(struct server *s);

#endif
