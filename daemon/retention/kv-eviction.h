/*
 * kv-eviction.h - which KV files are evicted, and the clock of their ages. Pure: no files, no database, time is an
 * argument.
 *
 * The clock is not the wall's: it runs with CLOCK_BOOTTIME while a hearthd runs, and between two of them it advances by
 * what the wall clock says, a week at most and never back. So a wall clock that jumps to 1970, or ten years ahead, ages
 * the files by a week at most and does not change their order.
 */
#ifndef DAEMON_KV_EVICTION_H
#define DAEMON_KV_EVICTION_H

#include "daemon/store/kv-manifest.h"

struct kv_eviction_policy {
    int64_t bytes, bytes_per_uid; /* limits of all users together, and of each */
    size_t files;                 /* limit of all users together */
    double age;                   /* seconds that a file may be unused; 0: no limit */
    double age_unowned;           /* the same for files without a session */
};

/* Returns the clock's time at a start. `seen` and `wall` are what the last hearthd stored; they may be damaged, and
 * hold anything. */
double kv_eviction_clock(double seen, double wall, double wall_now);

/*
 * Sorts the files into the order of eviction and sets victims[i] for those that are evicted: files that were unused for
 * too long or are larger than a limit by themselves; then those by which a user exceeds bytes_per_uid; then, while all
 * together exceed a limit, a file of the user who has the most. The order is LRU; of files used in the same second the
 * last of a timeline comes first, because the others are of use without it. Returns the number of victims, or
 * HEARTH_ENOMEM.
 */
ptrdiff_t kv_eviction_pick(const struct kv_eviction_policy *r, struct kv_manifest_row **files, size_t n, double now,
                           bool *victims);

#endif
