/*
 * clock-guard.h - whether the wall clock can be trusted when it says that something is old. Pure: times are arguments.
 *
 * Retention removes what is old, and wall clocks jump: an empty battery, a wrong date typed in, the first minute after
 * a resume. One jump must not remove everything that a user kept. So the wall clock is compared with a monotonic one,
 * CLOCK_BOOTTIME, which also advances while the machine is suspended. A hold-off of CLOCK_GUARD_HOLDOFF seconds, in
 * which nothing is removed for its age, begins when
 *   - the two clocks differ by more than CLOCK_GUARD_MAX_STEP between two updates, or
 *   - between two runs of hearthd the wall clock went back by more than that, or forward by more than
 *     CLOCK_GUARD_MAX_OFF.
 * The last update and the rest of the hold-off are stored in the database, so a restart does not end a hold-off. A
 * machine that really was off for that long merely keeps its old sessions for one more day of use.
 *
 * Removal to free space does not need this: the order of use is enough there. KV files have a clock of their own
 * (kv-eviction.h), because their order has to be right too, and because they can be recomputed.
 */
#ifndef DAEMON_CLOCK_GUARD_H
#define DAEMON_CLOCK_GUARD_H

#include <stdbool.h>

enum { CLOCK_GUARD_HOLDOFF = 24 * 3600, CLOCK_GUARD_MAX_STEP = 3600, CLOCK_GUARD_MAX_OFF = 7 * 24 * 3600 };

struct clock_guard {
    double wall, boot; /* at the last update: seconds since the epoch, and since the machine was booted */
    double holdoff;    /* seconds for which the clocks still have to agree */
};

/* Called at a start. `saved_wall` and `saved_holdoff` are what the previous hearthd stored, 0 and 0 if nothing is
 * stored. */
void clock_guard_init(struct clock_guard *a, double saved_wall, double saved_holdoff, double wall, double boot);

/* Compares both clocks; to be called at least once an hour. True if sessions may be removed for their age. */
bool clock_guard_update(struct clock_guard *a, double wall, double boot);

#endif
