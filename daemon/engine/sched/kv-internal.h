/*
 * kv-internal.h - pages and nodes of a page table, for kv.c (block tables), kv-state.c (recurrent states) and
 * kv-cache.c (pages, and the tree of what is cached) alone. Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_KV_INTERNAL_H
#define HEARTH_ENGINE_KV_INTERNAL_H

#include "daemon/engine/sched/kv.h"

struct page {
    int64_t uid;         /* the last owner, also while free */
    uint32_t node;       /* the node whose content it holds, where that is cached; else KV_NONE */
    uint32_t refs;       /* block tables that reference it */
    uint32_t leaving;    /* of these references, those that kv_count_leaving() counts as released */
    uint32_t next, prev; /* on the free list (next only) or in the LRU list of unreferenced cached pages */
    bool kept;           /* it stays cached when a window has passed it, or a later state is kept */
};

/* What cached KV depends on besides its token ids: the owner and the frequency set. Part of every look-up. */
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
    uint32_t depth;      /* number of ancestors */
    uint32_t parent;     /* KV_NONE at the root */
    uint32_t n_child;
    uint32_t refs;                       /* block tables that lead through it */
    uint32_t hash_next;                  /* next full node in the bucket of its hash; next free node */
    uint32_t sibling_next, sibling_prev; /* nodes in the bucket of the parent's hash, newest first */
    uint32_t page[KV_GROUPS_MAX]; /* by group; KV_NONE: none, possible only in groups that do not see everything */
};

struct group {
    struct kv_shape shape;
    struct page *page; /* [shape.n_page] */
    uint32_t free, n_free;
    uint32_t n_absent; /* pages without memory */
    uint32_t n_extent; /* 0: they all have memory */
    /* [n_extent] pages of the extent that are not free; KV_NONE: the extent has no memory. */
    uint32_t *n_used;
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
    bool longest_stale; /* the longest one was removed: walk the nodes to find the next */
    struct kv_memory memory;
    bool refused; /* memory was refused; cleared by kv_may_grow() */
    struct kv_action *action;
    uint32_t n_action, next_action, cap_action;
};

/* Whether the table is of no user, such as that of an eval: nobody will look for its pages, so none of them stays
 * cached. */
static inline bool kv_is_nobodys(const struct kv_table *t)
{
    return t->uid < 0;
}

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

/* The next step ends at token n at most and has at most `ahead` tokens. Where it may pass a place at which a state is
 * kept, kv_state_ahead gives the table a third page for that state, if there is one; kv_state_spare, called first,
 * frees a third page that is not needed. */
void kv_state_spare(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t n, uint32_t ahead);
void kv_state_ahead(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t n, uint32_t ahead);
/* Whether the state after `pos` tokens stays cached once a later one is kept. */
bool kv_state_stays(const struct kv_table *t, uint32_t pos);
/* Where a state is to be kept after the current number of tokens, leaves it in its place of the table. The state kept
 * before is released, unless it is to stay cached, once it is known that the timeline gets there. */
void kv_state_keep(struct kv *kv, struct kv_table *t, uint32_t group);
/* Takes the page of the table's last place, the state of `at` tokens, as the state to continue from. */
void kv_state_take(struct kv *kv, struct kv_table *t, uint32_t group);
/* Called before the table is released: the state goes to its place if it covers n tokens, and is freed otherwise. */
void kv_state_leave(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t n);

/* --- kv.c ----------------------------------------------------------------------------------------------------- */

void kv_release_page(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t i, bool drop);

/* --- kv-cache.c: pages ---------------------------------------------------------------------------------------- */

/* Makes n pages of the group free, as far as there is memory for more. */
void kv_pages_ahead(struct kv *kv, uint32_t group, uint32_t n);
/* Allocates a private page for uid, or returns KV_NONE. It may evict cached pages, but none that is referenced. */
uint32_t kv_page_alloc(struct kv *kv, uint32_t group, int64_t uid);
void kv_page_ref(struct kv *kv, uint32_t group, uint32_t page);
/* With `drop`, a page without other references is freed even where it is cached, unless it is marked `kept`. */
void kv_page_unref(struct kv *kv, uint32_t group, uint32_t page, bool drop);
bool kv_action_reserve(struct kv *kv, uint32_t n);
void kv_action_push(struct kv *kv, struct kv_action action);

/* --- kv-cache.c: nodes ---------------------------------------------------------------------------------------- */

/* Makes a node for id[0..n_tok) after `parent`, without pages; KV_NONE: no memory. */
uint32_t kv_node_add(struct kv *kv, uint32_t parent, uint32_t depth, struct kv_key of, const int32_t *id,
                     uint32_t n_tok);
/* Removes a node without children from the cache; pages that block tables reference become private, the others free. */
void kv_node_remove(struct kv *kv, uint32_t node);
void kv_node_unref(struct kv *kv, uint32_t node);
/* Attaches the page to the node, which must have none of that group. */
void kv_node_attach(struct kv *kv, uint32_t node, uint32_t group, uint32_t page);
/* Returns the full node with these ids after `parent`, or KV_NONE. */
uint32_t kv_node_find(const struct kv *kv, uint32_t parent, struct kv_key of, const int32_t *id);
/* Returns the child of `parent` that shares the longest prefix with id[0..n), n < KV_PAGE; *len is the prefix's length,
 * 0: none. */
uint32_t kv_node_find_partial(const struct kv *kv, uint32_t parent, struct kv_key of, const int32_t *id, uint32_t n,
                              uint32_t *len);

#endif
