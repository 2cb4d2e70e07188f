/*
 * pace.h - long work on outside input says how far it has come, so that whoever started it can end it.
 *
 * A vocabulary of millions of tokens or a text of megabytes takes seconds. The loops that read them call pace() with
 * the bytes that they are about to take; a thread that runs such work for others installs a function that counts them,
 * and that ends the work by an error where nobody wants it any more. A thread without one is never stopped.
 *
 * Thread: each has its own.
 */
#ifndef HEARTH_MODEL_PACE_H
#define HEARTH_MODEL_PACE_H

#include <stddef.h>

#include "libclient/err.h"

/* Bytes between two calls of a thread's function, about: what it costs is far below the work itself. */
enum { PACE_STEP = 16 << 10 };

/* Told of that many bytes more; an error ends the work. */
typedef int pace_fn(void *arg, size_t bytes, struct hearth_err *e);

/* Installs this thread's function; NULL: none. */
void pace_set(pace_fn *fn, void *arg);

/* Called ahead of `bytes` of work. 0, or the error with which to end, which is HEARTH_ECANCELLED; `e` may be NULL. */
int pace(size_t bytes, struct hearth_err *e);

#endif
