/*
 * group.h - a generate that makes several choices: a stream each, with a journal and a seed of its own, under one
 * request, which is answered when all have ended. Loop thread.
 *
 * The streams know nothing of each other but which of how many they are: they are taken up again, cancelled, and found
 * by their numbers one by one. The engine finds the KV of the common prompt as for any requests that begin alike, also
 * while it is made. Choice i has the seed of the first one plus i, so that a lone request with it makes the same.
 */
#ifndef DAEMON_RPC_GROUP_H
#define DAEMON_RPC_GROUP_H

#include "daemon/rpc/call.h"

struct stream;

/* How many of a generate's choices are still to be made; those of an earlier request with the same id are not. */
int64_t group_missing(const struct call *call);

/* Takes the call: attaches it to the choices that there are, and begins the others. HEARTH_ECONFLICT, HEARTH_ENOMEM and
 * what a session refuses leave it the caller's. */
int group_generate(struct call *call, uint64_t hash, struct hearth_err *e);

/* Attaches the call, a stream.attach by request, to all choices of which `first` is one, from token `from` of each on.
 */
int group_attach(struct call *call, struct stream *first, const char *request, int64_t from, struct hearth_err *e);

#endif
