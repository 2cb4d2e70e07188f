/*
 * tier-world.h - the fixture of the tiers' tests: a folder, a pool of the CPU backend, a model without weights, and
 * sequences whose pages hold what their timeline says. Nothing computes here: a page's content is made from its
 * timeline, and compared when it is restored.
 */
#ifndef TESTS_UNIT_TIER_WORLD_H
#define TESTS_UNIT_TIER_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "daemon/engine/core/device.h"
#include "daemon/engine/kvtier/tier-internal.h"

enum { WINDOW = 20, WINDOW_POOL = 16 };
enum { POOL = 64, N = 12 /* pages of a timeline */, UID = 7, BYTES = 2 * 2 * 2 * KV_PAGE * 16 * 4 /* of a page */ };

struct world {
    char dir[64];
    const struct backend *be;
    struct device *dev;
    struct model_entry m;
    struct model model;
    struct kv_fingerprint fingerprint, window_fingerprint;
    struct tier *tier;
    struct tier_counters counters;
    uint32_t step; /* pages that a step of a turn computes, and gives states on its way; 0: one page, and does not */
    int saved, used, bad;
    char bad_file[KVFILE_NAME], last_file[KVFILE_NAME]; /* of those saved */
};

/* cmocka fixtures: *state is the world. A test opens the tier; the teardown closes it, and finds nothing held. */
int world_setup(void **state);
int world_setup_windows(void **state); /* a second layer group, of a window of WINDOW tokens and a small pool */
int world_setup_states(void **state);  /* a second layer group, of recurrent states */
int world_teardown(void **state);

void world_open(struct world *w, bool files, uint64_t ram);
/* The device's pages go: what an unload or a new process leaves. */
void world_fresh_pool(struct world *w);
/* A new process: nothing is known but the files. */
void world_restart(struct world *w, bool files, uint64_t ram);
void world_empty_folder(const struct world *w);

/* Every file of the group loses its last three bytes, or has one of them changed. */
void world_damage(const struct world *w, const struct kv_fingerprint *p, bool cut);
/* A timeline of n pages and a token; `seed` tells one from another, from page `fork` on. */
struct seq *world_seq(struct world *w, int64_t uid, uint32_t n, uint32_t fork, int32_t seed);
/* Computes the sequence and ends its turn, of which q->kv.keep is a place to go on from; q is gone. */
void world_take_turn(struct world *w, struct seq *q);
/* One turn of the tier, which waits 10 ms at most for the I/O thread; and until nothing is on its way. */
void world_turn(struct world *w);
void world_settle(struct world *w);

/* The pages of the timeline that can be gone on from, after the tiers had their say; their content must be right. */
uint32_t world_pages_back(struct world *w, struct seq *q);
uint32_t world_back(struct world *w, int64_t uid, uint32_t n, uint32_t fork, int32_t seed);

#endif
