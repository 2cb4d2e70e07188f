/*
 * kv-world.h - a model of the device's memory, for the tests of the page table and prefix cache.
 *
 * Every row of every page of every pool remembers as one hash from which uid and token ids, counted from the root, its
 * KV was computed; copies and clearings are carried out on the model. Whatever kv_match() returns must hold exactly
 * those rows of the requested timeline that the next token sees, however pages were shared, copied, evicted and given
 * to other uids before. A page of states has one such hash, of all tokens up to where it was kept.
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

#define STATES UINT32_MAX /* in place of a window: the group has recurrent states */

extern uint32_t len_max;                     /* the greatest length of random timelines */
extern struct kv_shape shape[KV_GROUPS_MAX]; /* shape of the groups of the table under test */
extern uint32_t n_group;

/* For a table whose memory comes in extents: the source of memory. */
extern uint32_t extent; /* pages in an extent; 0: no extents */
struct extents {
    bool has[KV_GROUPS_MAX][MAX_PAGES];
    bool full; /* there is no more memory */
    uint32_t mapped, unmapped;
};
extern struct extents extents;

extern bool states_within; /* steps can give a state within their tokens */

struct timeline {
    struct kv_table t;
    int32_t id[MAX_LEN];
    uint32_t n, done; /* number of ids, and how many of them have KV */
    bool live;
};

uint32_t rnd(uint32_t n); /* 0 .. n - 1, from the table's seed */

/* Creates a table with pools of n_page pages each and these windows, or with one pool without a window. */
struct kv *fresh_groups(uint32_t n_page, const uint32_t *window, uint32_t n, uint64_t seed);
struct kv *fresh(uint32_t n_page, uint64_t seed);

/* Draws a random timeline: usually the beginning of an earlier one, then new ids of a small alphabet. */
void draw_timeline(struct timeline *s, uint32_t n_uid);
/* remember() records a released timeline; the other returns the longest beginning that `id` shares with a recorded
 * one. */
void remember(const struct timeline *s);
uint32_t longest_past(int64_t uid, const int32_t *id, uint32_t n);

void carry_out(struct kv *kv); /* carries out copies and clearings */
/* Writes the states of a step that ends at token `upto`; one that is `stopped` leaves arbitrary contents. */
void compute_states(struct timeline *s, uint32_t upto, bool stopped);
/* Runs a step up to that token: KV and states. */
void compute(struct timeline *s, uint32_t upto);
/* Checks that what the next token sees is present. */
void verify(const struct timeline *s);
/* Computes up to token n in chunks, as the scheduler does. */
void feed(struct kv *kv, struct timeline *s, uint32_t n);

/* Counts the group's pages that tables hold, and those that are cached. */
struct kv_counts counted(const struct kv *kv, uint32_t group);

#endif
