/* pool.c - see pool.h. There is one caller thread; it alone writes the job's fields, and only between jobs. */
#include "kernels/cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SPINS = 5000 }; /* about 50 us: longer than the gaps within a step, far shorter than those of an idle daemon */

struct worker {
    struct pool *pool;
    uint32_t index;
    pthread_t thread;
};

struct pool {
    /* The job number in the high half, the number of unclaimed items in the low half: one compare-and-swap claims an
     * item of exactly the job that was read, so that a late worker can never touch a job that has ended. */
    _Alignas(64) _Atomic uint64_t claim;
    _Alignas(64) _Atomic uint32_t done;
    _Alignas(64) _Atomic(void *) arg;
    void (*_Atomic fn)(void *, uint32_t, uint32_t);
    _Atomic uint32_t n_sleeping;
    _Atomic bool stop;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint32_t n_worker;
    struct worker worker[];
};

static void cpu_relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

static void work(struct pool *p, uint32_t thread)
{
    uint64_t c = atomic_load_explicit(&p->claim, memory_order_acquire);
    while ((uint32_t)c) {
        if (!atomic_compare_exchange_weak_explicit(&p->claim, &c, c - 1, memory_order_acq_rel, memory_order_acquire))
            continue;
        /* This thread has claimed the item, so the job cannot end before the item is counted: fn and arg are this
         * job's. */
        void (*fn)(void *, uint32_t, uint32_t) = atomic_load_explicit(&p->fn, memory_order_relaxed);
        fn(atomic_load_explicit(&p->arg, memory_order_relaxed), (uint32_t)c - 1, thread);
        atomic_fetch_add_explicit(&p->done, 1, memory_order_release);
        c = atomic_load_explicit(&p->claim, memory_order_acquire);
    }
}

static void sleep_until_work(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (!(uint32_t)atomic_load(&p->claim) && !atomic_load(&p->stop))
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    while (!atomic_load(&p->stop)) {
        int spin = 0;
        while (!(uint32_t)atomic_load_explicit(&p->claim, memory_order_relaxed) && spin < SPINS) {
            cpu_relax();
            spin++;
        }
        if (spin == SPINS)
            sleep_until_work(p);
        work(p, w->index);
    }
    return NULL;
}

void pool_run(struct pool *p, uint32_t n_item, void (*fn)(void *arg, uint32_t item, uint32_t thread), void *arg)
{
    if (!n_item)
        return;
    if (!p->n_worker || n_item == 1) { /* waking a core costs more than one item */
        for (uint32_t i = 0; i < n_item; i++)
            fn(arg, i, 0);
        return;
    }
    atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&p->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    uint64_t job = (atomic_load_explicit(&p->claim, memory_order_relaxed) >> 32) + 1;
    atomic_store(&p->claim, job << 32 | n_item); /* sequentially consistent with n_sleeping: see sleep_until_work */
    if (atomic_load(&p->n_sleeping)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
    work(p, 0);
    for (int spin = 0; atomic_load_explicit(&p->done, memory_order_acquire) != n_item; spin++)
        if (spin < SPINS)
            cpu_relax();
        else
            sched_yield(); /* the worker that has the last item may need this core */
}

int pool_new(struct pool **out, uint32_t n_thread, struct hearth_err *e)
{
    uint32_t n = n_thread ? n_thread - 1 : 0;
    struct pool *p = aligned_alloc(64, (sizeof *p + n * sizeof *p->worker + 63) / 64 * 64);
    if (!p)
        return err_set(e, HEARTH_ENOMEM, "no memory for %u worker threads", (unsigned)n);
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (; p->n_worker < n; p->n_worker++) {
        struct worker *w = &p->worker[p->n_worker];
        w->pool = p;
        w->index = p->n_worker + 1;
        int rc = pthread_create(&w->thread, NULL, worker_main, w);
        if (rc) {
            err_set(e, HEARTH_ENOMEM, "cannot start worker thread %u of %u: %s", (unsigned)w->index, (unsigned)n,
                    strerror(rc));
            pool_free(p);
            return HEARTH_ENOMEM;
        }
    }
    *out = p;
    return 0;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->n_worker; i++)
        pthread_join(p->worker[i].thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
