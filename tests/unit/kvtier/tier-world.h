/*
 * tier-world.h - the fixture of the tiers' tests: a folder, a pool of the CPU backend, a model without weights, and
 * sequences. Nothing is computed: the content of a page is derived from its timeline, and compared when it is restored.
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
    uint32_t step; /* pages that a step of a turn computes, with states within the step; 0: one page, without them */
    int saved, used, bad;
    char bad_file[KVFILE_NAME], last_file[KVFILE_NAME]; /* names of saved files */
};

/* cmocka fixtures: *state is the world. A test opens the tier; the teardown closes it and checks that nothing is
 * held. */
int world_setup(void **state);
int world_setup_windows(
    void **state); /* with a second layer group that has a window of WINDOW tokens and a small pool */
int world_setup_states(void **state); /* with a second layer group of recurrent states */
int world_teardown(void **state);

void world_open(struct world *w, bool files, uint64_t ram);
/* Drops the device's pages, as an unload or a new process does. */
void world_fresh_pool(struct world *w);
/* A new process: nothing is known but the files. */
void world_restart(struct world *w, bool files, uint64_t ram);
void world_empty_folder(const struct world *w);

/* Truncates each file of the group by three bytes, or changes one of its bytes. */
void world_damage(const struct world *w, const struct kv_fingerprint *p, bool cut);
/* A timeline of n pages and one token. From page `fork` on its ids depend on `seed`. */
struct seq *world_seq(struct world *w, int64_t uid, uint32_t n, uint32_t fork, int32_t seed);
/* Computes the sequence and ends its turn, for which q->kv.keep is a place to continue from. Frees q. */
void world_take_turn(struct world *w, struct seq *q);
/* One iteration of the tier, which waits for the I/O thread for at most 10 ms; and iterations until nothing is under
 * way. */
void world_turn(struct world *w);
void world_settle(struct world *w);

/* The number of pages from which the timeline can continue after the tiers have restored what they can. Checks their
 * contents. */
uint32_t world_pages_back(struct world *w, struct seq *q);
uint32_t world_back(struct world *w, int64_t uid, uint32_t n, uint32_t fork, int32_t seed);

#endif
