/*
 * takeover.h - session takeover: a request takes a session, or a place among the streams, over from a generation
 * without subscribers. Loop thread.
 *
 * A client has died, or its user has pressed Ctrl+C; the stream goes on for attach_grace seconds, so that somebody can
 * attach to it. Another request of the same user for the session does not wait for that: the stream is cancelled, its
 * turn is committed as that of any cancelled stream, and then the request runs. Attaching first keeps the stream. A
 * stream that hearthd has recovered is not taken over, because its client lost it by hearthd's end and is expected
 * back.
 */
#ifndef DAEMON_TAKEOVER_H
#define DAEMON_TAKEOVER_H

#include "daemon/rpc/call.h"

/* The call was refused because of a generation in that session (an id or a name). True where that generation has no
 * subscriber: it is being cancelled, and the call goes to its handler once more after that end, never before this
 * returns. */
bool takeover_wait(struct call *call, const char *session);

/* The same of a call that was refused because its user has as many streams as he may: one of them that has no
 * subscriber makes way. */
bool takeover_wait_for_room(struct call *call);

/* Cancels a waiting `generate` of that user, found by its request id, as soon as it has begun; false: none waits. */
bool takeover_cancel(struct server *s, uid_t uid, const char *request);

/* Runs the calls whose stream has ended; true where there was one. It is called at the end of the loop's turn, and
 * before a new request is handled, so that waiting calls go first; never from inside a stream's end. */
bool takeover_resume(struct server *s);

#endif
