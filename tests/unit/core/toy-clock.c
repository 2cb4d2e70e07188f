/*
 * toy-clock.c - replaces the engine's clock by the toy's while toy_clock_on is set. For programs that are linked with
 * --wrap=clock_gettime (tests/local.mk), by which the linker replaces the real function by this one.
 */
#include "tests/unit/core/toy.h"

_Atomic bool toy_clock_on;

int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    if (!toy_clock_on || clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, t);
    t->tv_sec = (time_t)toy_now;
    t->tv_nsec = (long)((toy_now - (double)t->tv_sec) * 1e9);
    return 0;
}
