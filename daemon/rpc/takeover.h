/*
 * takeover.h - a session whose generation nobody reads any more. Loop thread.
 *
 * A client died, or its user pressed Ctrl+C and went away; the stream goes on for attach_grace, so that it can be
 * attached to. Whoever of the same user wants to go on with the session meanwhile does not have to wait for that: the
 * stream is cancelled, what it has made is kept as of any cancelled one, and the request is carried out when that is
 * written down. Attaching first keeps it. A stream that an earlier hearthd left behind is not taken over: its reader
 * was cut off by hearthd and is expected back.
 */
#ifndef DAEMON_TAKEOVER_H
#define DAEMON_TAKEOVER_H

#include "daemon/rpc/call.h"

/* The call was refused because of a generation in that session (an id or a name). True where that generation has no
 * subscriber: it is being cancelled, and the call goes to its handler once more after that end, never before this
 * returns. */
bool takeover_wait(struct call *call, const char *session);

/* A generate of that user which waits, by its request id, is cancelled as soon as it has begun; false: none waits. */
bool takeover_cancel(struct server *s, uid_t uid, const char *request);

/* Resumes the calls whose stream has ended; true where there was one. At the end of the loop's turn and before a new
 * request is looked at, so that whoever waited longer goes first; never from inside a stream's end. */
bool takeover_resume(struct server *s);

#endif
