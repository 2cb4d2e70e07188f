/*
 * kv-world.h - a model of the device's memory, for the tests of the page table and prefix cache.
 *
 * The model: every row of every page of every pool remembers which (uid, token ids from the root) its KV was computed
 * from, as one hash; copies and clearings are carried out on it. Whatever kv_match hands out must hold exactly the rows
 * of the timeline asked for that the next token sees, however pages were shared, copied, evicted and given to other
 * uids before. A page of states has one such hash, of all tokens up to where it was kept.
 */
#ifndef HEARTH_TEST_KV_WORLD_H
#define HEARTH_TEST_KV_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/sched/kv-size.h"

enum { MAX_LEN = 420, MAX_SEQ = 12, MAX_PAGES = 4096, LOOKAHEAD = 24 };

#define STATES UINT32_MAX /* as a window: the group is one of recurrent states */

extern uint32_t len_max;                     /* of timelines that are drawn */
extern struct kv_shape shape[KV_GROUPS_MAX]; /* of the table under test */
extern uint32_t n_group;

/* Of a table whose memory comes in extents: what has none, and who gives it. */
extern uint32_t extent; /* pages; 0: there are none */
struct extents {
    bool has[KV_GROUPS_MAX][MAX_PAGES];
    bool full; /* there is no more memory */
    uint32_t mapped, unmapped;
};
extern struct extents extents;

extern bool states_within; /* steps give a state from between their tokens */

struct timeline {
    struct kv_table t;
    int32_t id[MAX_LEN];
    uint32_t n, done; /* ids, and of those how many have KV */
    bool live;
};

uint32_t rnd(uint32_t n); /* 0 .. n - 1, of the table's seed */

/* A table of pools of n_page pages each, with these windows; of one without. */
struct kv *fresh_groups(uint32_t n_page, const uint32_t *window, uint32_t n, uint64_t seed);
struct kv *fresh(uint32_t n_page, uint64_t seed);

/* A random timeline: as a rule the beginning of an earlier one, then new ids of a small alphabet. */
void draw_timeline(struct timeline *s, uint32_t n_uid);
/* What was released, to compare the length of a match with: the longest beginning of it that `id` has. */
void remember(const struct timeline *s);
uint32_t longest_past(int64_t uid, const int32_t *id, uint32_t n);

void carry_out(struct kv *kv); /* copies and clearings */
/* A step that ends at token `upto` writes its states; one that is `stopped` leaves anything there. */
void compute_states(struct timeline *s, uint32_t upto, bool stopped);
/* A step up to that token: KV and states. */
void compute(struct timeline *s, uint32_t upto);
/* What the next token sees is there. */
void verify(const struct timeline *s);
/* Computes up to token n in pieces, as the scheduler does. */
void feed(struct kv *kv, struct timeline *s, uint32_t n);

/* Pages of the group that tables hold, and that are cached. */
struct kv_counts counted(const struct kv *kv, uint32_t group);

#endif
