/*
 * clock.h - the engine's monotonic clock, and rates: how much of something was done per second recently.
 *
 * Thread: any; a struct rate belongs to its owner, and every thread may read the value that it publishes in `out`.
 */
#ifndef HEARTH_ENGINE_CLOCK_H
#define HEARTH_ENGINE_CLOCK_H

#include <stdatomic.h>
#include <time.h>

/* Seconds of CLOCK_MONOTONIC. */
static inline double engine_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Sums over the last seconds of busy time; older work decays. */
struct rate {
    double amount, seconds;
};

static inline void rate_add(struct rate *r, double amount, double seconds, _Atomic double *out)
{
    static const double memory = 2; /* seconds of busy time */
    r->amount += amount;
    r->seconds += seconds;
    if (r->seconds > memory) {
        r->amount *= memory / 2 / r->seconds;
        r->seconds = memory / 2;
    }
    if (r->seconds > 0)
        atomic_store(out, r->amount / r->seconds);
}

#endif
