/*
 * kv-internal.h - pages and nodes of a page table, for kv.c (block tables), kv-state.c (recurrent states) and
 * kv-cache.c (pages, and the tree of what is cached) alone. Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_KV_INTERNAL_H
#define HEARTH_ENGINE_KV_INTERNAL_H

#include "daemon/engine/sched/kv.h"

struct page {
    int64_t uid;         /* the last owner, also while free */
    uint32_t node;       /* what it holds, where that is cached; else KV_NONE */
    uint32_t refs;       /* block tables */
    uint32_t next, prev; /* on the free list (next only) or in the LRU list of unreferenced cached pages */
    bool kept;           /* it stays cached when a window leaves it */
};

/* Whose timeline it is, and what else its KV depends on beside its ids; found by all of it. */
struct kv_key {
    int64_t uid;
    uint32_t freq_set;
};
static inline bool kv_key_same(struct kv_key a, struct kv_key b)
{
    return a.uid == b.uid && a.freq_set == b.freq_set;
}
static inline struct kv_key kv_key_of(const struct kv_table *t)
{
    return (struct kv_key){t->uid, t->freq_set};
}

/* Cached content: up to KV_PAGE ids after those of the node's ancestors, and the pages that hold their KV. */
struct node {
    struct kv_key of;
    uint64_t hash;       /* chained over all ids from the root to here; full nodes only */
    int32_t id[KV_PAGE]; /* [n_tok] */
    uint32_t n_tok;      /* 0: the node is free */
    uint32_t depth;      /* nodes before this one */
    uint32_t parent;     /* KV_NONE at the root */
    uint32_t n_child;
    uint32_t refs;                       /* block tables that lead through it */
    uint32_t hash_next;                  /* next full node in the bucket of its hash; next free node */
    uint32_t sibling_next, sibling_prev; /* nodes in the bucket of the parent's hash, newest first */
    uint32_t page[KV_GROUPS_MAX]; /* by group; KV_NONE where there is none, in groups that do not see everything */
};

struct group {
    struct kv_shape shape;
    struct page *page; /* [shape.n_page] */
    uint32_t free, n_free;
    uint32_t n_absent;              /* pages without memory */
    uint32_t n_extent;              /* 0: they all have memory */
    uint32_t *n_used;               /* [n_extent] pages of the extent that are not free; KV_NONE: it has no memory */
    uint32_t oldest, newest, n_lru; /* cached and unreferenced */
};

struct kv {
    struct group group[KV_GROUPS_MAX];
    uint32_t n_group;
    struct node *node; /* [cap_node] */
    uint32_t n_node /* ever used */, cap_node, free_node;
    uint32_t *by_hash, *by_parent; /* buckets: full nodes by hash, nodes by parent's hash */
    uint32_t bucket_mask;
    uint32_t longest;
    bool longest_stale; /* the longest may be evicted: walk the nodes to find the next */
    struct kv_memory memory;
    bool refused; /* memory, until kv_may_grow() */
    struct kv_action *action;
    uint32_t n_action, next_action, cap_action;
};

static inline uint32_t kv_pages_for(uint32_t n_tok)
{
    return n_tok / KV_PAGE + (n_tok % KV_PAGE != 0);
}

/* Whether the group has a page in every node. */
static inline bool kv_sees_all(const struct kv *kv, uint32_t group)
{
    return !kv->group[group].shape.window && !kv->group[group].shape.state;
}

/* --- kv-state.c ----------------------------------------------------------------------------------------------- */

/* The next step goes up to token n and is of `ahead` tokens at most. Where it may pass a place that a state is kept at
 * the table has a page for that one, if there is any; the first lets go of one that is of no use. */
void kv_state_spare(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t n, uint32_t ahead);
void kv_state_ahead(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t n, uint32_t ahead);
/* Keeps the state in its place of the table, where one is to be kept after so many tokens, and lets go of the one kept
 * before, unless it is to stay cached. */
void kv_state_keep(struct kv *kv, struct kv_table *t, uint32_t group);
/* The page of the table's last place, that of `at` tokens, is where the sequence goes on from. */
void kv_state_take(struct kv *kv, struct kv_table *t, uint32_t group);
/* The table is about to be released: the state goes to its place, if it is of n tokens, or is let go. */
void kv_state_leave(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t n);

/* --- kv.c ----------------------------------------------------------------------------------------------------- */

void kv_release_page(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t i, bool drop);

/* --- kv-cache.c: pages ---------------------------------------------------------------------------------------- */

/* Has n pages of the group free, as far as there is memory for more. */
void kv_pages_ahead(struct kv *kv, uint32_t group, uint32_t n);
/* Allocates a private page for uid, or returns KV_NONE. It may evict what is cached, but nothing that is referenced. */
uint32_t kv_page_alloc(struct kv *kv, uint32_t group, int64_t uid);
void kv_page_ref(struct kv *kv, uint32_t group, uint32_t page);
/* `drop`: a page without other references is freed even where it is cached, unless it is to be kept. */
void kv_page_unref(struct kv *kv, uint32_t group, uint32_t page, bool drop);
bool kv_action_reserve(struct kv *kv, uint32_t n);
void kv_action_push(struct kv *kv, struct kv_action action);

/* --- kv-cache.c: nodes ---------------------------------------------------------------------------------------- */

/* Makes a node that holds id[0..n_tok) after `parent`, without pages; KV_NONE: no memory. */
uint32_t kv_node_add(struct kv *kv, uint32_t parent, uint32_t depth, struct kv_key of, const int32_t *id,
                     uint32_t n_tok);
/* Takes a node without children out of the cache; pages that block tables reference become private, the others free. */
void kv_node_remove(struct kv *kv, uint32_t node);
void kv_node_unref(struct kv *kv, uint32_t node);
/* The page becomes the node's, which has none of that group. */
void kv_node_attach(struct kv *kv, uint32_t node, uint32_t group, uint32_t page);
/* The full node with these ids after `parent`, or KV_NONE. */
uint32_t kv_node_find(const struct kv *kv, uint32_t parent, struct kv_key of, const int32_t *id);
/* The child of `parent` that shares the longest beginning with id[0..n), n < KV_PAGE; *len is its length, 0: none. */
uint32_t kv_node_find_partial(const struct kv *kv, uint32_t parent, struct kv_key of, const int32_t *id, uint32_t n,
                              uint32_t *len);

#endif
