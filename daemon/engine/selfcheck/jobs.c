/*
 * jobs.c - computes the reference's results on some threads while the device does its own part; see selfcheck.h. Each
 * thread has its own single-threaded reference: there are more jobs than threads, and most are short.
 *
 * Thread: jobs_begin and jobs_end are called by the device thread; between them the model and the batches are only
 * read.
 */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/selfcheck/selfcheck.h"

struct worker {
    struct check_jobs *all;
    struct reference ref;
    pthread_t thread;
    bool open, started;
};
struct check_jobs {
    struct worker worker[CHECK_THREADS];
    struct check_job *job;
    uint32_t n;
    _Atomic uint32_t next;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct check_jobs *all = w->all;
    for (uint32_t i; (i = atomic_fetch_add(&all->next, 1)) < all->n;) {
        struct check_job *j = &all->job[i];
        if (!j->deferred)
            j->rc = reference_run(&w->ref, j, &j->err);
    }
    return NULL;
}

int jobs_begin(struct check_jobs **out, const struct model *m, const struct backend *ref,
               const struct device_params *params, enum dtype kv_type, struct check_job *job, uint32_t n,
               struct hearth_err *e)
{
    struct device_params one = *params;
    struct check_jobs *all = calloc(1, sizeof *all);
    if (!all)
        return err_set(e, HEARTH_ENOMEM, "no memory for the self-check's reference");
    one.threads = 1;
    all->job = job;
    all->n = n;
    *out = all;
    for (uint32_t i = 0; i < CHECK_THREADS; i++) {
        struct worker *w = &all->worker[i];
        w->all = all; /* jobs_free() reads it even where this fails */
        int rc = reference_open(&w->ref, m, ref, &one, kv_type, e);
        if (rc)
            return rc;
        w->open = true;
    }
    for (uint32_t i = 1; i < CHECK_THREADS; i++) /* the caller is worker 0 */
        all->worker[i].started = !pthread_create(&all->worker[i].thread, NULL, work, &all->worker[i]);
    return 0;
}

struct reference *jobs_end(struct check_jobs *all)
{
    work(&all->worker[0]); /* the remaining jobs: all of them where no thread could be started */
    for (uint32_t i = 1; i < CHECK_THREADS; i++)
        if (all->worker[i].started)
            pthread_join(all->worker[i].thread, NULL);
    for (uint32_t i = 1; i < CHECK_THREADS; i++)
        all->worker[i].started = false;
    return &all->worker[0].ref;
}

void jobs_free(struct check_jobs *all)
{
    if (!all)
        return;
    atomic_store(&all->next, all->n);
    jobs_end(all);
    for (uint32_t i = 0; i < CHECK_THREADS; i++)
        if (all->worker[i].open)
            reference_close(&all->worker[i].ref);
    free(all);
}
