/*
 * kv.h - the pages of KV and their users: reference counts, block tables, and the prefix cache.
 *
 * Pure: no device and no clock. A page here is a number; an operation on its memory (a copy, a clear) is queued as a
 * `struct kv_action`, and the engine carries the queue out, in order, before its next step.
 *
 * A page is in one of three places:
 *     free      on the free list; its memory still holds its last uid's KV, and is cleared before another uid gets it
 *     private   in exactly one block table, being written
 *     cached    its content is known by token ids and found by them; in any number of block tables. Unreferenced
 *               cached pages stand in a list, least recently used first, and are taken when the free list is empty.
 *
 * The cache is a tree: a cached page is the child of the cached page before it. It is found by a hash chained from
 * the root over the token ids, salted by uid, and accepted only after its ids and its parent were compared. So resume,
 * sharing between sessions and recovery are one mechanism, and no uid ever meets another's pages. A full page is shared
 * as it is; of the last one, the longest common prefix is used: in place where no other table references it, else by
 * copy on write.
 *
 * A table that references a page references its ancestors too, and releases its pages last to first; so a page is
 * always more recently used than its children, and evicting the oldest never orphans one.
 *
 * Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_KV_H
#define HEARTH_ENGINE_KV_H

#include "kernels/backend.h"

#define KV_NONE UINT32_MAX

struct kv; /* the pages of one pool */

/* The block table of a sequence. Zero-initialise and set uid; kv_release empties it and frees its memory. */
struct kv_table {
    int64_t uid;
    uint32_t *page; /* [n] */
    uint32_t n, cap;
    uint32_t n_cached; /* leading pages that are in the cache; the others are private */
};

enum kv_action_kind { KV_COPY, KV_CLEAR };
struct kv_action {
    enum kv_action_kind kind;
    uint32_t page; /* the page written */
    uint32_t from; /* KV_COPY */
};

struct kv_counts {
    uint32_t total, free, held /* by block tables */, cached /* unreferenced, in the prefix cache */;
    uint32_t longest; /* tokens of the longest cached sequence */
};

int kv_cache_new(struct kv **out, uint32_t n_page, struct hearth_err *e);
void kv_cache_free(struct kv *kv);

/* Fills the empty table with cached pages for the longest cached prefix of ids[0..n) and returns its length in
 * tokens. */
uint32_t kv_match(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n);

/* Does so with full pages alone: it allocates no page and copies nothing. Returns the number of pages. */
uint32_t kv_match_pages(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n);

/* Makes the table long enough for n tokens. Returns false, with no page allocated, where there are not that many. */
bool kv_grow(struct kv *kv, struct kv_table *t, uint32_t n);

/* Returns the number of pages that kv_grow could allocate now: free ones and unreferenced cached ones. */
uint32_t kv_available(const struct kv *kv);

/* Enters the full pages of ids[0..n) into the prefix cache. Their KV must have been computed, or be in a step already
 * submitted. A page whose content is cached already is exchanged for that one. */
void kv_publish(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n);

/* Releases all pages; those that hold KV of ids[0..n) stay in the prefix cache, an unfinished last page included. */
void kv_release(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n);

/* Takes the next action from the queue; false where it is empty. */
bool kv_next_action(struct kv *kv, struct kv_action *out);

void kv_count(struct kv *kv, struct kv_counts *out);

/* Walks all pages and returns whether the invariants above hold; for tests. */
bool kv_check(const struct kv *kv);

#endif
