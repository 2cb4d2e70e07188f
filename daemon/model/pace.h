/*
 * pace.h - progress reports of long work on untrusted input, through which the thread's owner can cancel it.
 *
 * A vocabulary of millions of tokens or a text of megabytes takes seconds. The loops that read them call pace() with
 * the number of bytes that they are about to process. A thread that does such work for others installs a function that
 * counts these bytes and cancels the work, by returning an error, when nobody needs the result any more. Work on a
 * thread without such a function is never cancelled.
 *
 * Thread: the function is thread-local.
 */
#ifndef HEARTH_MODEL_PACE_H
#define HEARTH_MODEL_PACE_H

#include <stddef.h>

#include "libclient/err.h"

/* Approximate number of bytes between two calls of a thread's function, so that the calls cost far less than the
 * work. */
enum { PACE_STEP = 16 << 10 };

/* Called with the number of bytes since the last call; an error ends the work. */
typedef int pace_fn(void *arg, size_t bytes, struct hearth_err *e);

/* Installs this thread's function; NULL removes it. */
void pace_set(pace_fn *fn, void *arg);

/* Called before `bytes` of work. Returns 0, or the error with which the caller must stop, HEARTH_ECANCELLED; `e` may be
 * NULL. */
int pace(size_t bytes, struct hearth_err *e);

#endif
