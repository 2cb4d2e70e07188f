/*
 * pool.h - a few threads that share the items of one job; the caller is one of them.
 *
 * A decode step is some forty jobs of ten microseconds, so a worker spins a little before it sleeps, items are taken
 * one by one (a core that another process holds takes fewer), and the caller waits for items, never for workers: one
 * that the machine has not scheduled delays nobody.
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
 * `thread` in [0, n_thread) is unique among the calls that run at one time. */
void pool_run(struct pool *p, uint32_t n_item, void (*fn)(void *arg, uint32_t item, uint32_t thread), void *arg);

#endif
