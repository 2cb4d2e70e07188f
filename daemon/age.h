/*
 * age.h - may the wall clock be believed when it says that something is old? Pure: times are arguments.
 *
 * Ages decide about deleting, and clocks jump: an empty battery, a wrong date typed in, the first minute after a
 * resume. One jump must not take everything that somebody kept. So the wall clock is watched against one that only
 * counts (CLOCK_BOOTTIME, which goes on in a suspended machine). Nothing is removed for its age until both have agreed
 * for AGE_DOUBT seconds since
 *   - they disagreed by more than AGE_LEAP between two looks,
 *   - or, between two hearthds, the wall clock went back by more than that, or forward by more than AGE_AWAY.
 * What was seen last, and the doubt that is left, are kept in the database: a restart does not end a doubt. A machine
 * that was really off for so long only keeps its old things for a day of use more.
 *
 * Removing for room needs none of it: order is enough there. KV files have a clock of their own (kvrule.h), because
 * their order has to be right too, and they can be computed again.
 */
#ifndef DAEMON_AGE_H
#define DAEMON_AGE_H

#include <stdbool.h>

enum { AGE_DOUBT = 24 * 3600, AGE_LEAP = 3600, AGE_AWAY = 7 * 24 * 3600 };

struct age {
    double wall, boot; /* at the last look: seconds since the epoch, and since the machine was started */
    double doubt;      /* seconds of agreement that are still wanted */
};

/* At start; `wall` and `doubt` as they were kept, 0 and 0 where nothing was. */
void age_start(struct age *a, double kept_wall, double kept_doubt, double wall, double boot);

/* A look at both clocks, now and then; true where things may be removed for their age. */
bool age_look(struct age *a, double wall, double boot);

#endif
