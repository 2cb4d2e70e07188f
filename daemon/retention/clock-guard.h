/*
 * clock-guard.h - may the wall clock be believed when it says that something is old? Pure: times are arguments.
 *
 * Ages decide about deleting, and clocks jump: an empty battery, a wrong date typed in, the first minute after a
 * resume. One jump must not take everything that somebody kept. So the wall clock is watched against one that only
 * counts (CLOCK_BOOTTIME, which goes on in a suspended machine). Nothing is removed for its age until both have agreed
 * for CLOCK_GUARD_HOLDOFF seconds since
 *   - they disagreed by more than CLOCK_GUARD_MAX_STEP between two looks,
 *   - or, between two hearthds, the wall clock went back by more than that, or forward by more than
 * CLOCK_GUARD_MAX_OFF. What was seen last, and the doubt that is left, are kept in the database: a restart does not end
 * a doubt. A machine that was really off for so long only keeps its old things for a day of use more.
 *
 * Removing for room needs none of it: order is enough there. KV files have a clock of their own (kv-eviction.h),
 * because their order has to be right too, and they can be computed again.
 */
#ifndef DAEMON_AGE_H
#define DAEMON_AGE_H

#include <stdbool.h>

enum { CLOCK_GUARD_HOLDOFF = 24 * 3600, CLOCK_GUARD_MAX_STEP = 3600, CLOCK_GUARD_MAX_OFF = 7 * 24 * 3600 };

struct clock_guard {
    double wall, boot; /* at the last look: seconds since the epoch, and since the machine was started */
    double holdoff;    /* seconds of agreement that are still wanted */
};

/* At start; `wall` and `doubt` as they were kept, 0 and 0 where nothing was. */
void clock_guard_init(struct clock_guard *a, double saved_wall, double saved_holdoff, double wall, double boot);

/* A look at both clocks, now and then; true where things may be removed for their age. */
bool clock_guard_update(struct clock_guard *a, double wall, double boot);

#endif
