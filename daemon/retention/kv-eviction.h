/*
 * kv-eviction.h - which KV files have to go, and by what clock. Pure: no files, no database, time is an argument.
 *
 * The clock is the time that hearthds have seen pass, not the wall's: CLOCK_BOOTTIME while one runs, and between two of
 * them what the wall clock says went by, a week at most and never less than nothing. A wall clock that jumps to 1970
 * or ten years ahead so costs the files a week of age at the most, and their order nothing.
 */
#ifndef DAEMON_KVRULE_H
#define DAEMON_KVRULE_H

#include "daemon/store/kv-manifest.h"

struct kv_eviction_policy {
    int64_t bytes, bytes_per_uid; /* at most */
    size_t files;                 /* likewise, of all users */
    double age;                   /* seconds unused, 0 = any */
    double age_unowned;           /* the same, of what is no session's */
};

/* What the clock says at a start: `seen` and `wall` are what the last hearthd wrote. Anything may be in them. */
double kv_eviction_clock(double seen, double wall, double wall_now);

/*
 * Sorts the files, the first to go first, and sets gone[i] for those that have to: what nobody used for too long, and
 * what alone is too large; then what a user has over his share; then, where all together are too many, of the user who
 * has the most. Least recently used first, and of those used together the last of a timeline, without which the others
 * are still of use. Returns how many go; negative without memory.
 */
ptrdiff_t kv_eviction_pick(const struct kv_eviction_policy *r, struct kv_manifest_row **files, size_t n, double now,
                           bool *victims);

#endif
