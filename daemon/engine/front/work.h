/*
 * work.h - long work off the loop thread: headers of model files, vocabularies, texts of megabytes, long answers.
 *
 * There are two threads. The quick one takes every job first, unless its cost is known to be large; a job that turns
 * out to take more than WORK_QUICK bytes is stopped there and started anew on the slow one. So a short job waits at
 * most for other short ones, each of which is bounded, whatever the slow thread is doing. On each thread clients take
 * turns, one job each, so that a client with a hundred jobs delays only itself. The slow thread runs at a lower
 * priority than the threads that compute.
 *
 * A job can be stopped when nobody needs it any more: its loops call pace() (daemon/model/pace.h).
 *
 * Thread: all functions are called by the loop; `run` is called on a worker thread.
 */
#ifndef HEARTH_ENGINE_WORK_H
#define HEARTH_ENGINE_WORK_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "daemon/engine/post.h"

enum {
    WORK_LOOP = 4 << 10,  /* the most bytes that the loop thread processes by itself for one request */
    WORK_QUICK = 1 << 20, /* the most bytes of a job on the quick thread */
};

struct job {
    struct post_item item; /* first */
    TAILQ_ENTRY(job) link;
    int64_t client; /* takes turns with other clients; 0: no client in particular */
    size_t cost;    /* in bytes, if known in advance; otherwise 0 */
    int (*run)(struct job *j, struct hearth_err *e);
    void *owner;
    struct hearth_err err; /* after its end: code 0, or what `run` returned; HEARTH_ECANCELLED if it was stopped */

    /* Private to work.c. */
    _Atomic bool cancelled;
    bool slow, queued;
    size_t done;  /* bytes processed in this run */
    bool stopped; /* on_pace() told it to end */
};

struct work;

int work_open(struct work **out, struct hearth_err *e);
/* Stops every job and frees the threads; jobs that have not been taken back remain their owners'. False if a job has
 * not stopped within `seconds`: then nothing was freed, and the process should simply exit. */
bool work_close(struct work *w, double seconds);

/* Starts a job, which belongs to the workers until work_next() returns it. All fields except work.c's must be set. */
void work_begin(struct work *w, struct job *j);
/* Cancels a job, at once if it has not started; it is still returned by work_next(). */
void work_cancel(struct work *w, struct job *j);

/* The descriptor is readable when jobs have ended; work_take() then fetches them all, work_next() returns them one by
 * one (NULL: no more). */
int work_fd(const struct work *w);
void work_take(struct work *w);
struct job *work_next(struct work *w);

#endif
