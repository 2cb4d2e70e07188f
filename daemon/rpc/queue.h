/*
 * queue.h - generations that wait for others to end, because their user, or all users together, have as many streams as
 * allowed. Loop thread.
 *
 * The queue is bounded in requests, and for each user also in bytes; beyond that a request is refused with
 * HEARTH_ELIMIT. The order is by class, then by arrival, but within a class the user with the fewest streams is next;
 * where no call of a class has begun for some seconds, each user's first call counts as of the class above among those
 * of other users, so that nobody starves. stream.queued reports to a waiting client its position among its user's
 * requests and the expected waiting time: at once, and whenever the position changes.
 */
#ifndef DAEMON_QUEUE_H
#define DAEMON_QUEUE_H

#include "daemon/rpc/call.h"

/* Whether a generation of that call's user may begin now; HEARTH_ELIMIT with the reason. A call that has left the queue
 * goes before those of its user that still wait. */
int queue_check(const struct call *call, struct hearth_err *e);

/* Whether the limits of streams allow it to begin, if no other call goes before it. */
bool queue_has_room(const struct call *call);

/* Whether it wants more streams than the limits can ever allow. */
bool queue_is_over(const struct call *call);

/* Queues a call that queue_check() has refused; later its handler runs once more. If there is no room in the queue
 * either, returns HEARTH_ELIMIT with the reason in *e extended by that. */
int queue_wait(struct call *call, struct hearth_err *e);

/* The number of waiting generations, of all users. */
int64_t queue_waiting(const struct server *s);

/* Whether the user has calls in the queue. */
bool queue_has(const struct server *s, uid_t uid);

/* A stream of that user with that request id (NULL: it has none) has begun: waiting calls with the same id run next, as
 * they have to be attached to it, and not to wait until there is room for a stream of their own. */
void queue_join(struct server *s, uid_t uid, const char *request);

/* Cancels all waiting generations of that user with that request id: they fail with HEARTH_ECANCELLED. False: none was
 * waiting. */
bool queue_cancel(struct server *s, uid_t uid, const char *request);

/* Runs the calls for which there is room by now; true if there was any. To be called where takeover_resume() is. */
bool queue_resume(struct server *s);

#endif
