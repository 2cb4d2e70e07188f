/*
 * pool.h - a thread pool: a few threads, including the caller, share the items of one job.
 *
 * A decode step is about forty jobs of ten microseconds each. So a worker spins a little before it sleeps; items are
 * claimed one by one, so that a core that is shared with another process claims fewer; and the caller waits for items,
 * never for workers, so that a worker that the operating system has not scheduled causes no delay.
 */
#ifndef HEARTH_POOL_H
#define HEARTH_POOL_H

#include <stdint.h>

#include "libclient/err.h"

struct pool;

/* n_thread includes the caller: 1 starts no thread. */
int pool_new(struct pool **out, uint32_t n_thread, struct hearth_err *e);
void pool_free(struct pool *p);

/* Calls fn(arg, item, thread) once for every item in [0, n_item), on any thread, and returns when all are done.
 * `thread` in [0, n_thread) is unique among concurrent calls. */
void pool_run(struct pool *p, uint32_t n_item, void (*fn)(void *arg, uint32_t item, uint32_t thread), void *arg);

#endif
