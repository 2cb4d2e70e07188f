/*
 * work.h - long work off the loop thread: headers of model files, vocabularies, texts of megabytes, long answers.
 *
 * Two threads. The quick one takes every job first, unless its cost is known to be large; a job that turns out to take
 * more than WORK_QUICK bytes is stopped there and begins anew on the slow one. So a short job waits for other short
 * ones at most, each of which is bounded, whatever the slow thread is at. On each thread clients take turns, one job
 * each, so that a client with a hundred jobs waits for itself. The slow thread runs at a lower priority than those that
 * compute.
 *
 * A job is stopped where nobody wants it any more: the loops that it runs call pace() (daemon/model/pace.h).
 *
 * Thread: all calls are the loop's; `run` is called on a worker's.
 */
#ifndef HEARTH_ENGINE_WORK_H
#define HEARTH_ENGINE_WORK_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "daemon/engine/post.h"

enum {
    WORK_LOOP = 32 << 10, /* bytes that the loop thread works at by itself, at most, for one request */
    WORK_QUICK = 1 << 20, /* bytes of a job on the quick thread, at most */
};

struct job {
    struct post_item item; /* first */
    TAILQ_ENTRY(job) link;
    int64_t client; /* who takes turns; 0: nobody in particular */
    size_t cost;    /* bytes, where they are known before; 0: they are not */
    int (*run)(struct job *j, struct hearth_err *e);
    void *owner;
    struct hearth_err
        err; /* when it has ended: code 0, or what `run` returned, HEARTH_ECANCELLED where it was stopped */

    /* work.c's. */
    _Atomic bool cancelled;
    bool slow, queued;
    size_t done;  /* bytes of this run */
    bool stopped; /* it was told to end */
};

struct work;

int work_open(struct work **out, struct hearth_err *e);
/* Stops every job and frees the threads; jobs that have not been taken stay their owners'. False where one of them has
 * not stopped within `seconds`: then nothing was freed, and the process should just end. */
bool work_close(struct work *w, double seconds);

/* Begins a job, which is the workers' until work_next() gives it back. Fields but for work.c's are set. */
void work_begin(struct work *w, struct job *j);
/* Stops a job, at once where it has not begun; it still comes back. */
void work_cancel(struct work *w, struct job *j);

/* Readable when jobs have ended; work_take() then fetches them all, work_next() gives them one by one (NULL: no more).
 */
int work_fd(const struct work *w);
void work_take(struct work *w);
struct job *work_next(struct work *w);

#endif
