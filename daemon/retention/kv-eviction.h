/*
 * kv-eviction.h - chooses which KV files are evicted, and defines the clock of their ages. Pure: no files, no database,
 * time is an argument.
 *
 * The clock is not the wall clock: it advances with CLOCK_BOOTTIME while hearthd runs, and between two runs by what the
 * wall clock says, at most a week and never backwards. So a wall clock that jumps to 1970, or ten years ahead, ages the
 * files by at most a week and does not change their order.
 */
#ifndef DAEMON_KV_EVICTION_H
#define DAEMON_KV_EVICTION_H

#include "daemon/store/kv-manifest.h"

struct kv_eviction_policy {
    int64_t bytes, bytes_per_uid; /* limits for all users together, and for each */
    size_t files;                 /* limit for all users together */
    double age;                   /* seconds that a file may be unused; 0: no limit */
    double age_unowned;           /* the same for files that belong to no session */
};

/* Returns the clock's time at a start. `seen` and `wall` are what the previous hearthd stored; they may be damaged and
 * hold anything. */
double kv_eviction_clock(double seen, double wall, double wall_now);

/*
 * Sorts the files into the order of eviction and sets victims[i] for those to evict: first files that have been unused
 * for too long or by themselves exceed a limit; then, for each user above bytes_per_uid, that user's files until the
 * rest fits; then, while all together exceed a limit, a file of the user with the most bytes. The order is LRU. Among
 * files used in the same second, the one that is last in its timeline goes first, because the others are useful without
 * it. Returns the number of victims, or HEARTH_ENOMEM.
 */
ptrdiff_t kv_eviction_pick(const struct kv_eviction_policy *r, struct kv_manifest_row **files, size_t n, double now,
                           bool *victims);

#endif
