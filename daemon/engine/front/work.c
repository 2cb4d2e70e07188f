/* work.c - two threads for long work; see work.h. */
#include "config.h"

#include "daemon/engine/front/work.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "daemon/model/pace.h"

enum { LANES = 2, QUICK = 0, SLOW = 1, NICE_SLOW = 10 };

TAILQ_HEAD(job_list, job);

struct lane {
    struct work *work;
    pthread_t thread;
    pthread_cond_t more;
    struct job_list jobs;
    int64_t last;        /* the client whose job was run last */
    struct job *running; /* NULL if none is */
};

struct work {
    pthread_mutex_t lock;
    bool closing; /* protected by `lock`, as are the lanes' `jobs` */
    struct lane lane[LANES];
    struct post ended;        /* ended jobs on their way to the loop */
    struct post_list arrived; /* the loop thread's */
};

/* Selects the next job: the first one of the client whose number follows that of the last client, cyclically. */
static struct job *pick(const struct lane *l)
{
    struct job *j, *next = NULL, *first = NULL;
    TAILQ_FOREACH (j, &l->jobs, link) {
        if (j->client > l->last && (!next || j->client < next->client))
            next = j;
        if (!first || j->client < first->client)
            first = j;
    }
    return next ? next : first;
}

static void enqueue(struct work *w, struct job *j)
{
    struct lane *l = &w->lane[j->slow ? SLOW : QUICK];
    TAILQ_INSERT_TAIL(&l->jobs, j, link);
    j->queued = true;
    pthread_cond_signal(&l->more);
}

static int set_unwanted(struct hearth_err *e)
{
    return err_set(e, HEARTH_ECANCELLED, "nobody waits for it any more");
}

/* The pace callback of a worker thread. */
static int on_pace(void *arg, size_t bytes, struct hearth_err *e)
{
    struct job *j = arg;
    j->done += bytes;
    bool unwanted = atomic_load(&j->cancelled);
    j->stopped = unwanted || (!j->slow && j->done > WORK_QUICK);
    return !j->stopped ? 0
           : unwanted  ? set_unwanted(e)
                       : err_set(e, HEARTH_ECANCELLED, "too long for the quick thread");
}

static void give_back(struct work *w, struct job *j)
{
    struct post_list list;
    post_list_init(&list);
    post_list_push(&list, &j->item);
    post_send(&w->ended, &list);
}

static void run(struct work *w, struct job *j)
{
    j->done = 0;
    j->stopped = false;
    j->err = (struct hearth_err){0};
    pace_set(on_pace, j);
    int rc = j->run(j, &j->err);
    pace_set(NULL, NULL);
    if (rc && j->stopped)
        rc = j->err.code = HEARTH_ECANCELLED; /* whatever error the stopped job returned */
    pthread_mutex_lock(&w->lock);
    bool again = rc == HEARTH_ECANCELLED && !j->slow && !atomic_load(&j->cancelled);
    w->lane[j->slow ? SLOW : QUICK].running = NULL;
    if (again) {
        j->slow = true;
        enqueue(w, j);
    }
    pthread_mutex_unlock(&w->lock);
    if (again)
        return;
    if (!rc)
        j->err.code = 0;
    give_back(w, j);
}

static void *lane_main(void *arg)
{
    struct lane *l = arg;
    struct work *w = l->work;
    if (l == &w->lane[SLOW])
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE_SLOW); /* of this thread; failing does no harm */
    pthread_mutex_lock(&w->lock);
    while (!w->closing) {
        struct job *j = pick(l);
        if (!j) {
            pthread_cond_wait(&l->more, &w->lock);
            continue;
        }
        TAILQ_REMOVE(&l->jobs, j, link);
        j->queued = false;
        l->last = j->client;
        l->running = j;
        pthread_mutex_unlock(&w->lock);
        run(w, j);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void destroy(struct work *w)
{
    while (work_next(w)) /* jobs belong to their owners */
        continue;
    post_fini(&w->ended);
    for (int i = 0; i < LANES; i++)
        pthread_cond_destroy(&w->lane[i].more);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

int work_open(struct work **out, struct hearth_err *e)
{
    struct work *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, HEARTH_ENOMEM, "no memory for the workers");
    int rc = post_init(&w->ended, e);
    if (rc) {
        free(w);
        return rc;
    }
    post_list_init(&w->arrived);
    pthread_mutex_init(&w->lock, NULL);
    for (int i = 0; i < LANES; i++) {
        w->lane[i].work = w;
        pthread_cond_init(&w->lane[i].more, NULL);
        TAILQ_INIT(&w->lane[i].jobs);
    }
    for (int i = 0; i < LANES; i++) {
        int why = pthread_create(&w->lane[i].thread, NULL, lane_main, &w->lane[i]);
        if (!why)
            continue;
        w->lane[i].thread = 0; /* pthread_create() leaves it undefined where it fails */
        if (i)
            work_close(w, 1);
        else
            destroy(w);
        return err_set(e, HEARTH_ENOMEM, "cannot start a thread: %s", strerror(why));
    }
    *out = w;
    return 0;
}

bool work_close(struct work *w, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + (int64_t)(1e9 * seconds);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    for (int i = 0; i < LANES; i++) {
        if (w->lane[i].running)
            atomic_store(&w->lane[i].running->cancelled, true);
        pthread_cond_signal(&w->lane[i].more);
    }
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < LANES; i++)
        if (w->lane[i].thread && pthread_timedjoin_np(w->lane[i].thread, NULL, &until))
            return false;
    work_take(w);
    destroy(w);
    return true;
}

void work_begin(struct work *w, struct job *j)
{
    atomic_store(&j->cancelled, false);
    j->slow = j->cost > WORK_QUICK;
    pthread_mutex_lock(&w->lock);
    enqueue(w, j);
    pthread_mutex_unlock(&w->lock);
}

void work_cancel(struct work *w, struct job *j)
{
    pthread_mutex_lock(&w->lock);
    bool waits = j->queued;
    if (waits) {
        TAILQ_REMOVE(&w->lane[j->slow ? SLOW : QUICK].jobs, j, link);
        j->queued = false;
        set_unwanted(&j->err);
    }
    atomic_store(&j->cancelled, true);
    pthread_mutex_unlock(&w->lock);
    if (waits)
        give_back(w, j);
}

int work_fd(const struct work *w)
{
    return w->ended.fd;
}

void work_take(struct work *w)
{
    post_take(&w->ended, &w->arrived);
}

struct job *work_next(struct work *w)
{
    return (struct job *)post_list_pop(&w->arrived);
}
