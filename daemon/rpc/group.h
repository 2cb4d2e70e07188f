/*
 * group.h - a generate with several choices: each is a stream with its own journal and seed, and the one request is
 * answered when all have ended. Loop thread.
 *
 * A stream knows of the others only its own index and their number: each is recovered, cancelled and found individually
 * by its number. The engine shares the KV of the common prompt as it does among any requests with a common prefix, also
 * while that is being computed. Choice i has the seed of the first one plus i, so that a single request with that seed
 * generates the same.
 */
#ifndef DAEMON_RPC_GROUP_H
#define DAEMON_RPC_GROUP_H

#include "daemon/rpc/call.h"

struct stream;

/* How many of a generate's choices have yet to be generated; those that an earlier request with the same id has started
 * do not count. */
int64_t group_missing(const struct call *call);

/* HEARTH_ELIMIT if all choices of that request of the call's user have ended and may not be delivered again now; not
 * where one is running, to which the call attaches at once. To be called before the two functions below attach to them:
 * a choice that is refused alone would be missing in the answer. */
int group_check_replay(const struct call *call, const char *request, struct hearth_err *e);

/* Takes over the call: attaches it to the choices that exist, and starts the others. Returns an error, and leaves the
 * call to the caller, only when out of memory; choices that fail are part of the answer. */
int group_generate(struct call *call, uint64_t hash, struct hearth_err *e);

/* Attaches the call, a stream.attach by request id, to all choices of the request that `first` belongs to, from token
 * `from` of each on. */
int group_attach(struct call *call, struct stream *first, const char *request, int64_t from, struct hearth_err *e);

#endif
