/*
 * queue.h - generations that wait for others to end, because their user, or all users, have as many as they may. Loop
 * thread.
 *
 * The queue is bounded, in requests and for each user in their bytes; beyond it is HEARTH_ELIMIT. It goes by class,
 * then by the order of arrival, but users take turns: the one with the fewest streams is next. Who waits is told where
 * in his user's line he is, and how long that may take, by stream.queued: at once, and when it has changed.
 */
#ifndef DAEMON_QUEUE_H
#define DAEMON_QUEUE_H

#include "daemon/rpc/call.h"

/* Whether a generation of that call's user may begin now. HEARTH_ELIMIT says why not; one that has waited goes first.
 */
int queue_check(const struct call *call, struct hearth_err *e);

/* Whether there are so few streams that it may begin, if nobody goes before it. */
bool queue_has_room(const struct call *call);

/* Whether it wants more streams than there may be at all. */
bool queue_is_over(const struct call *call);

/* Queues a call that queue_check() has refused: it goes to its handler once more. HEARTH_ELIMIT, where there is no room
 * in the queue either, keeps the reason that *e has and adds that. */
int queue_wait(struct call *call, struct hearth_err *e);

/* How many generations wait, of all users. */
int64_t queue_waiting(const struct server *s);

/* Whether the user has calls in the queue. */
bool queue_has(const struct server *s, uid_t uid);

/* Ends a waiting generation of that user, found by its request id, as often as it was asked for: CANCELLED. False: none
 * waits. */
bool queue_cancel(struct server *s, uid_t uid, const char *request);

/* Runs the calls for which there is room by now; true where there was one. As takeover_resume(). */
bool queue_resume(struct server *s);

#endif
