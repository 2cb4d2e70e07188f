/*
 * kv.h - the pages of KV and their users: reference counts, block tables, and the prefix cache.
 *
 * Pure: no device and no clock. A page here is a number in the pool of its layer group; an operation on its memory (a
 * copy, a clear) is queued as a `struct kv_action`, and the engine carries the queue out, in order, before its next
 * step.
 *
 * The memory of a pool may come and go in extents of pages (struct kv_memory). A page whose extent has none is nowhere:
 * it is on no list. An extent gets memory when pages are wanted and none is free, before anything cached is evicted; it
 * is given back by kv_shrink, once none of its pages is referenced or cached.
 *
 * A model has a pool for each of its layer groups (kernels/backend.h), and KV_PAGE tokens of a timeline have a page in
 * each. A page is in one of three places:
 *     free      on its pool's free list; its memory still holds its last uid's KV, and is cleared before another uid
 *               gets it
 *     private   in exactly one block table, being written
 *     cached    its content is known by token ids and found by them; in any number of block tables. Unreferenced
 *               cached pages stand in a list, least recently used first, and are taken when the free list is empty.
 *
 * The cache is a tree of nodes: a node is the KV_PAGE ids that follow its parent's, with the pages that hold their KV.
 * It is found by a hash chained from the root over the token ids, salted by uid and set of frequencies, and accepted
 * only after all of these and its parent were compared. So resume, sharing between sessions and recovery are one
 * mechanism, and no uid ever meets another's pages. A full node is shared as it is; of the last one, the longest common
 * prefix is used: in place where no other table references it, else by copy on write.
 *
 * A group whose layers see everything has a page in every node, and without it the node is gone. A table that
 * references a page references its ancestors too, and releases its pages last to first; so a page is always more
 * recently used than its children, and evicting the oldest never orphans one.
 *
 * A group with a window needs the window before the token that is computed next, and no more. Its pages are allocated
 * as the tokens come near (kv_grow's `ahead`) and freed when the window has left them; but those of the window before
 * the prompt's end (kv_table.keep) and before the timeline's end when it is released stay cached, with KV_SLACK tokens
 * more, because those are the places that others go on from. A prefix of a timeline is found where its nodes are, and
 * the pages of every window before its end. Where timelines will part is not known while the first of them is read, and
 * to keep windows at fixed places in between, for all, would be a share of what windows save: 1024 tokens of each 4096
 * are a quarter of a full cache. So of two prompts that begin with one document and then differ the second computes all
 * of it again; but it finds the nodes of the first, and keeps what is before the place where it leaves them
 * (kv_table.part), if that is PART_LEAST tokens and more beyond where it could go on from: the third goes on from
 * there. Who means to share a document at once computes it first, alone (max_tokens 0), or forks there.
 *
 * A group of recurrent states (kernels/backend.h) has a page in a node where the state after that node's last token was
 * kept. A table has two pages of its own: the state before the next step, which that step only reads, so that it can be
 * stopped and run again, and the one that it writes. What was written is kept by leaving it in its place of the table
 * and writing elsewhere from then on: nothing is copied. Where the device gives a state from within a step
 * (kv_shape.within), and there is a third page for that, a step may go on beyond one place where a state is kept; else
 * it must end there (kv_cut). These are whole places:
 *   - KV_SLACK tokens or a little more before the prompt's end, for those who go on from there;
 *   - where timelines part, as for windows;
 *   - each STATE_READ tokens of a prompt up to that place, or STATE_READ_APART where a step must end for that, and each
 *     STATE_SAID after the prompt: the last of them, for the timeline's end; and of these, as long as there is room,
 *     those at a multiple of STATE_SPARSE;
 * and the state at the very end, when the table is released. A prefix of a timeline is found where its state is.
 *
 * Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_KV_H
#define HEARTH_ENGINE_KV_H

#include "kernels/backend.h"

#define KV_NONE UINT32_MAX
enum { KV_SLACK = 2 * KV_PAGE /* tokens kept before a window: who goes on from there may go back by a few */ };
enum { STATE_READ = 512, STATE_READ_APART = 2048, STATE_SAID = 128, STATE_SPARSE = 4096 }; /* multiples of KV_PAGE */
enum { PART_LEAST = 512 };

struct kv; /* the pages of a model's pools */

/* A pool. */
struct kv_shape {
    uint32_t n_page;
    uint32_t window; /* tokens visible, the own one included; 0: all */
    bool state;      /* of recurrent states, not of KV */
    uint32_t extent; /* pages that have memory together, or none; 0: all have, always */
    bool within;     /* of states: a step gives one from between its tokens */
};

/* Who has the memory. */
struct kv_memory {
    bool (*map)(void *arg, uint32_t group, uint32_t extent); /* false: there is none for now */
    void (*unmap)(void *arg, uint32_t group, uint32_t extent);
    void *arg;
};

/* A sequence's own pages in a group of states. */
struct kv_state {
    uint32_t page[3]; /* the state after `at` tokens, and those that the next step writes: batch_seq.pages */
    bool has[3];      /* of the first: not where `at` is 0; of the third: where the next step may want it */
};

/* The block table of a sequence. Zero-initialise, and set uid, freq_set and keep; kv_match may set part; kv_release
 * empties it and frees its memory. */
struct kv_table {
    int64_t uid;
    uint32_t freq_set; /* batch_seq.freq_set: with other frequencies the same ids have other KV */
    uint32_t keep;     /* the position from which others may go on: where the prompt ends; 0: none */
    uint32_t part;     /* where others' timelines leave this one, whole places, and more may: likewise; 0: not known */
    uint32_t n, cap;
    uint32_t n_cached;             /* leading places that are in the cache; the pages of the others are private */
    uint32_t *node;                /* [n_cached] of the cache */
    uint32_t *page[KV_GROUPS_MAX]; /* [n] by group; KV_NONE: none, out of the window */
    uint32_t from[KV_GROUPS_MAX];  /* the first of them that may be there */
    struct kv_state state[KV_GROUPS_MAX];
    uint32_t at;     /* tokens that the states are of */
    uint32_t within; /* tokens that the third page is of after the step that kv_cut was asked about; 0: it has none */
};

enum kv_action_kind { KV_COPY, KV_CLEAR };
struct kv_action {
    enum kv_action_kind kind;
    uint32_t group;
    uint32_t page; /* the page written */
    uint32_t from; /* KV_COPY */
};

struct kv_counts {
    uint32_t total /* that have memory */, free, held /* by block tables */,
        cached /* unreferenced, in the prefix cache */;
};

int kv_cache_new(struct kv **out, const struct kv_shape *shape, uint32_t n_group, struct hearth_err *e);
void kv_cache_free(struct kv *kv);

/* Fills the empty table with cached pages for the longest cached prefix of ids[0..n) that can be gone on from, and
 * returns its length in tokens. */
uint32_t kv_match(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n);

/* The timeline, which can be gone on from at `from`, is somebody else's up to `at`, whole places: a place to be kept,
 * if that is much. */
void kv_parts(struct kv_table *t, uint32_t from, uint32_t at);

/* How many tokens of what kv_match_nodes has found kv_match would. */
uint32_t kv_usable(const struct kv *kv, const struct kv_table *t);

/* For what moves pages to and from other tiers. kv_match_nodes does so with full pages alone and without those of
 * windows: it allocates no page and copies nothing. Returns the number of places. */
uint32_t kv_match_nodes(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n);
/* Whether the cache has the page of this group at place i < t->n_cached. */
bool kv_has(const struct kv *kv, const struct kv_table *t, uint32_t group, uint32_t i);
/* References such a page, which the cache has. */
void kv_hold(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t i);
/* Whether the table's page there is private: not in the cache, but to be filled. */
bool kv_is_private(const struct kv *kv, const struct kv_table *t, uint32_t group, uint32_t i);
/* A private page at place i < t->n_cached was filled: others may find it from now on. */
void kv_enter(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t i);
/* Releases all from place n on. */
void kv_truncate(struct kv *kv, struct kv_table *t, uint32_t n);

/*
 * Makes the table long enough for n tokens, of which `done` are computed or in a step already submitted. Where layers
 * have a window it releases the pages that the window has left, and allocates those of the next `ahead` tokens alone.
 * Returns false, with no page allocated, where there are not that many.
 */
bool kv_grow(struct kv *kv, struct kv_table *t, uint32_t done, uint32_t n, uint32_t ahead);

/* Tells that a step up to `done` tokens was submitted, as kv_grow does; before kv_release, which then keeps the state.
 */
void kv_advance(struct kv *kv, struct kv_table *t, uint32_t done);

/* Returns how many of the n tokens after `done` a step may compute, after kv_grow for that step: it must end where a
 * state is to be kept, unless that one is in t->within. */
uint32_t kv_cut(const struct kv *kv, struct kv_table *t, uint32_t done, uint32_t n);

/* Allocates the pages of a timeline of n tokens, whole places, that are to be filled from elsewhere, without those that
 * who goes on from its end does not need. As kv_grow, which is for sequences that are computed. */
bool kv_reserve(struct kv *kv, struct kv_table *t, uint32_t n);

/* Whether a timeline can be gone on from after each of its full pages, and not only where a window or a state is kept.
 */
bool kv_joins_anywhere(const struct kv *kv);

/* Must be called before pages are allocated where a shape has extents. */
void kv_set_memory(struct kv *kv, const struct kv_memory *m);
/* Whether memory was refused since kv_may_grow; until then it is not asked for again. */
bool kv_was_refused(const struct kv *kv);
void kv_may_grow(struct kv *kv);
/* Has so many pages free of each pool, as far as there is memory. False: there is not. */
bool kv_ahead(struct kv *kv, uint32_t n);
/* Gives memory back, as many extents of the group as have no page in use, but `most` at most; with `cached` what is
 * cached and unreferenced is evicted for it, least recently used first. Returns how many. No action is queued, and no
 * step or move is under way that names a page without references. */
uint32_t kv_shrink(struct kv *kv, uint32_t group, uint32_t most, bool cached);

/* Returns how many pages of the fullest pool kv_grow could allocate now: free ones, unreferenced cached ones, and those
 * that may still get memory. */
uint32_t kv_available(const struct kv *kv);

/* The most pages that a table needs of a pool with that window, whatever its length. */
uint32_t kv_most(uint32_t window, uint32_t ahead);

/* Enters the full pages of ids[0..n) into the prefix cache. Their KV must have been computed, or be in a step already
 * submitted. A page whose content is cached already is exchanged for that one. */
void kv_publish(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n);

/* Releases all pages; those that hold KV of ids[0..n) stay in the prefix cache, an unfinished last page included. */
void kv_release(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n);

/* Takes the next action from the queue; false where it is empty. */
bool kv_next_action(struct kv *kv, struct kv_action *out);

void kv_count(const struct kv *kv, uint32_t group, struct kv_counts *out);
/* Tokens of the longest cached sequence. */
uint32_t kv_longest(struct kv *kv);

/* Walks all pages and returns whether the invariants above hold; for tests. */
bool kv_check(const struct kv *kv);

#endif
