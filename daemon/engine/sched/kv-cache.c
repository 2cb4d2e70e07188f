/* kv-cache.c - pages, and the tree of cached nodes that hold them; see kv-internal.h. Pure. Thread: the device
 * thread's. */
#include "daemon/engine/sched/kv-internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    SIBLING_SCAN = 256, /* children of a node compared for a common prefix: bounds time, not correctness */
    NODES_FIRST = 256,
};
static const int64_t uid_nobody = -1; /* the uid of a page never used, whose memory is as the device initialised it */

static uint64_t hash_root(struct kv_key of)
{
    return XXH3_64bits_withSeed(&of.uid, sizeof of.uid, of.freq_set);
}

static uint64_t hash_chain(uint64_t parent, const int32_t *id)
{
    return XXH3_64bits_withSeed(id, KV_PAGE * sizeof *id, parent);
}

static uint64_t parent_hash(const struct kv *kv, uint32_t parent, struct kv_key of)
{
    return parent == KV_NONE ? hash_root(of) : kv->node[parent].hash;
}

static int group_new(struct group *g, const struct kv_shape *shape)
{
    g->shape = *shape;
    g->oldest = g->newest = g->free = KV_NONE;
    if (!(g->page = calloc(shape->n_page, sizeof *g->page)))
        return HEARTH_ENOMEM;
    for (uint32_t p = shape->n_page; p-- > 0;) { /* low pages first: memory is committed as it is first written */
        g->page[p].uid = uid_nobody;
        g->page[p].node = KV_NONE;
        g->page[p].next = g->free;
        g->free = shape->extent ? KV_NONE : p;
    }
    if (!shape->extent) {
        g->n_free = shape->n_page;
        return 0;
    }
    g->n_absent = shape->n_page;
    g->n_extent = (shape->n_page + shape->extent - 1) / shape->extent;
    if (!(g->n_used = malloc(g->n_extent * sizeof *g->n_used)))
        return HEARTH_ENOMEM;
    memset(g->n_used, 0xff, g->n_extent * sizeof *g->n_used);
    return 0;
}

int kv_cache_new(struct kv **out, const struct kv_shape *shape, uint32_t n_group, struct hearth_err *e)
{
    uint32_t buckets = 16, most = 0;
    struct kv *kv = calloc(1, sizeof *kv);
    assert(n_group > 0 && n_group <= KV_GROUPS_MAX);
    if (!kv)
        goto nomem;
    for (;
         kv->n_group<n_group; most = shape[kv->n_group].n_page> most ? shape[kv->n_group].n_page : most, kv->n_group++)
        if (group_new(&kv->group[kv->n_group], &shape[kv->n_group]))
            goto nomem;
    while (buckets < most && buckets < 1u << 30)
        buckets *= 2;
    kv->by_hash = malloc(buckets * sizeof *kv->by_hash);
    kv->by_parent = malloc(buckets * sizeof *kv->by_parent);
    if (!kv->by_hash || !kv->by_parent)
        goto nomem;
    kv->free_node = KV_NONE;
    kv->bucket_mask = buckets - 1;
    memset(kv->by_hash, 0xff, buckets * sizeof *kv->by_hash);
    memset(kv->by_parent, 0xff, buckets * sizeof *kv->by_parent);
    *out = kv;
    return 0;
nomem:
    kv_cache_free(kv);
    return err_set(e, HEARTH_ENOMEM, "no memory for the table of KV pages");
}

void kv_cache_free(struct kv *kv)
{
    if (!kv)
        return;
    for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) {
        free(kv->group[g].page);
        free(kv->group[g].n_used);
    }
    free(kv->node);
    free(kv->by_hash);
    free(kv->by_parent);
    free(kv->action);
    free(kv);
}

/* --- the LRU lists of unreferenced pages ----------------------------------------------------------------- */

static void lru_push(struct group *g, uint32_t p)
{
    struct page *pg = &g->page[p];
    pg->next = KV_NONE;
    pg->prev = g->newest;
    if (g->newest != KV_NONE)
        g->page[g->newest].next = p;
    else
        g->oldest = p;
    g->newest = p;
    g->n_lru++;
}

static void lru_remove(struct group *g, uint32_t p)
{
    struct page *pg = &g->page[p];
    if (pg->prev != KV_NONE)
        g->page[pg->prev].next = pg->next;
    else
        g->oldest = pg->next;
    if (pg->next != KV_NONE)
        g->page[pg->next].prev = pg->prev;
    else
        g->newest = pg->prev;
    g->n_lru--;
}

/* --- nodes ----------------------------------------------------------------------------------------------- */

static uint32_t cached_end(const struct node *v)
{
    return v->depth * KV_PAGE + v->n_tok;
}

static uint32_t node_alloc(struct kv *kv)
{
    uint32_t v = kv->free_node;
    if (v != KV_NONE) {
        kv->free_node = kv->node[v].hash_next;
        return v;
    }
    if (kv->n_node == kv->cap_node) {
        uint32_t cap = kv->cap_node ? 2 * kv->cap_node : NODES_FIRST;
        struct node *node = cap < KV_NONE / 2 ? realloc(kv->node, cap * sizeof *node) : NULL;
        if (!node)
            return KV_NONE;
        kv->node = node;
        kv->cap_node = cap;
    }
    return kv->n_node++;
}

uint32_t kv_node_add(struct kv *kv, uint32_t parent, uint32_t depth, struct kv_key of, const int32_t *id,
                     uint32_t n_tok)
{
    uint32_t v = node_alloc(kv);
    if (v == KV_NONE)
        return v;
    struct node *nd = &kv->node[v];
    uint64_t above = parent_hash(kv, parent, of);
    *nd = (struct node){.of = of, .n_tok = n_tok, .depth = depth, .parent = parent};
    memset(nd->page, 0xff, sizeof nd->page);
    memcpy(nd->id, id, n_tok * sizeof *id);
    if (parent != KV_NONE)
        kv->node[parent].n_child++;
    if (n_tok == KV_PAGE) {
        nd->hash = hash_chain(above, id);
        uint32_t *head = &kv->by_hash[nd->hash & kv->bucket_mask];
        nd->hash_next = *head;
        *head = v;
    }
    uint32_t *head = &kv->by_parent[above & kv->bucket_mask];
    nd->sibling_prev = KV_NONE;
    nd->sibling_next = *head;
    if (*head != KV_NONE)
        kv->node[*head].sibling_prev = v;
    *head = v;
    if (cached_end(nd) > kv->longest)
        kv->longest = cached_end(nd);
    return v;
}

static void page_to_free_list(struct group *g, uint32_t p)
{
    g->page[p].next = g->free;
    g->free = p;
    g->n_free++;
    if (g->n_extent)
        g->n_used[p / g->shape.extent]--;
}

static uint32_t page_from_free_list(struct group *g)
{
    uint32_t p = g->free;
    if (p == KV_NONE)
        return p;
    g->free = g->page[p].next;
    g->n_free--;
    if (g->n_extent)
        g->n_used[p / g->shape.extent]++;
    return p;
}

void kv_node_remove(struct kv *kv, uint32_t v)
{
    struct node *nd = &kv->node[v];
    assert(nd->n_child == 0);
    if (nd->n_tok == KV_PAGE) {
        uint32_t *at = &kv->by_hash[nd->hash & kv->bucket_mask];
        while (*at != v)
            at = &kv->node[*at].hash_next;
        *at = nd->hash_next;
    }
    if (nd->sibling_prev != KV_NONE)
        kv->node[nd->sibling_prev].sibling_next = nd->sibling_next;
    else
        kv->by_parent[parent_hash(kv, nd->parent, nd->of) & kv->bucket_mask] = nd->sibling_next;
    if (nd->sibling_next != KV_NONE)
        kv->node[nd->sibling_next].sibling_prev = nd->sibling_prev;
    if (nd->parent != KV_NONE)
        kv->node[nd->parent].n_child--;
    if (cached_end(nd) == kv->longest)
        kv->longest_stale = true;
    for (uint32_t g = 0; g < kv->n_group; g++) {
        if (nd->page[g] == KV_NONE)
            continue;
        struct page *pg = &kv->group[g].page[nd->page[g]];
        pg->node = KV_NONE;
        if (pg->refs)
            continue;
        lru_remove(&kv->group[g], nd->page[g]);
        page_to_free_list(&kv->group[g], nd->page[g]);
    }
    nd->n_tok = 0;
    nd->hash_next = kv->free_node;
    kv->free_node = v;
}

/* Removes the node if nothing needs it any more, and then its ancestors likewise. */
static void prune(struct kv *kv, uint32_t v)
{
    while (v != KV_NONE) {
        const struct node *nd = &kv->node[v];
        uint32_t above = nd->parent;
        if (nd->refs || nd->n_child)
            return;
        for (uint32_t g = 0; g < kv->n_group; g++)
            if (nd->page[g] != KV_NONE)
                return;
        kv_node_remove(kv, v);
        v = above;
    }
}

void kv_node_unref(struct kv *kv, uint32_t v)
{
    assert(kv->node[v].refs > 0);
    kv->node[v].refs--;
    prune(kv, v);
}

void kv_node_attach(struct kv *kv, uint32_t v, uint32_t group, uint32_t page)
{
    assert(kv->node[v].page[group] == KV_NONE && kv->group[group].page[page].refs);
    kv->node[v].page[group] = page;
    kv->group[group].page[page].node = v;
}

uint32_t kv_node_find(const struct kv *kv, uint32_t parent, struct kv_key of, const int32_t *id)
{
    uint64_t hash = hash_chain(parent_hash(kv, parent, of), id);
    for (uint32_t v = kv->by_hash[hash & kv->bucket_mask]; v != KV_NONE; v = kv->node[v].hash_next) {
        const struct node *nd = &kv->node[v];
        if (nd->hash == hash && kv_key_same(nd->of, of) && nd->parent == parent && !memcmp(nd->id, id, sizeof nd->id))
            return v;
    }
    return KV_NONE;
}

uint32_t kv_node_find_partial(const struct kv *kv, uint32_t parent, struct kv_key of, const int32_t *id, uint32_t n,
                              uint32_t *len)
{
    uint32_t best = KV_NONE, looked = 0;
    *len = 0;
    for (uint32_t v = kv->by_parent[parent_hash(kv, parent, of) & kv->bucket_mask];
         v != KV_NONE && looked < SIBLING_SCAN; v = kv->node[v].sibling_next) {
        const struct node *nd = &kv->node[v];
        if (nd->parent != parent || !kv_key_same(nd->of, of))
            continue;
        looked++;
        uint32_t common = 0;
        while (common < n && common < nd->n_tok && nd->id[common] == id[common])
            common++;
        /* Among equally long prefixes a node that ends there is better, because it may be continued without a copy. */
        if (common > *len || (common && common == *len && nd->n_tok == common && nd->refs == 0)) {
            *len = common;
            best = v;
        }
    }
    return best;
}

/* --- pages ----------------------------------------------------------------------------------------------- */

void kv_page_ref(struct kv *kv, uint32_t group, uint32_t page)
{
    struct page *pg = &kv->group[group].page[page];
    if (pg->refs++ == 0 && pg->node != KV_NONE)
        lru_remove(&kv->group[group], page);
}

void kv_page_unref(struct kv *kv, uint32_t group, uint32_t page, bool drop)
{
    struct group *g = &kv->group[group];
    struct page *pg = &g->page[page];
    uint32_t v = pg->node;
    assert(pg->refs > 0);
    if (--pg->refs)
        return;
    if (v != KV_NONE && (!drop || pg->kept)) {
        lru_push(g, page);
        return;
    }
    pg->node = KV_NONE;
    page_to_free_list(g, page);
    if (v != KV_NONE) {
        kv->node[v].page[group] = KV_NONE;
        prune(kv, v);
    }
}

bool kv_action_reserve(struct kv *kv, uint32_t n)
{
    if (kv->n_action + n <= kv->cap_action)
        return true;
    uint32_t cap = kv->cap_action ? 2 * kv->cap_action : 64;
    struct kv_action *a = realloc(kv->action, cap * sizeof *a);
    if (!a)
        return false;
    kv->action = a;
    kv->cap_action = cap;
    return true;
}

void kv_action_push(struct kv *kv, struct kv_action action)
{
    kv->action[kv->n_action++] = action;
}

/*
 * Evicts the least recently used page; there must be one. Where layers see everything, its node has no children left
 * (kv.h) and is useless without it, and so are the node's other pages. In other groups the node stays.
 */
static void evict(struct kv *kv, uint32_t group)
{
    struct group *g = &kv->group[group];
    uint32_t p = g->oldest, v = g->page[p].node;
    if (kv_sees_all(kv, group)) {
        kv_node_remove(kv, v);
        return;
    }
    lru_remove(g, p);
    g->page[p].node = KV_NONE;
    page_to_free_list(g, p);
    kv->node[v].page[group] = KV_NONE;
    prune(kv, v);
}

/* --- extents --------------------------------------------------------------------------------------------- */

static uint32_t extent_end(const struct group *g, uint32_t extent)
{
    uint32_t end = (extent + 1) * g->shape.extent;
    return end < g->shape.n_page ? end : g->shape.n_page;
}

/* Maps the first extent without memory. */
static bool add_extent(struct kv *kv, uint32_t group)
{
    struct group *g = &kv->group[group];
    uint32_t x = 0;
    if (!g->n_absent || kv->refused)
        return false;
    while (g->n_used[x] != KV_NONE)
        x++;
    if (!kv->memory.map(kv->memory.arg, group, x)) {
        kv->refused = true;
        return false;
    }
    uint32_t first = x * g->shape.extent, n = extent_end(g, x) - first;
    g->n_used[x] = n;
    g->n_absent -= n;
    for (uint32_t p = first + n; p-- > first;) {
        g->page[p].uid = uid_nobody; /* its memory is zero */
        page_to_free_list(g, p);
    }
    return true;
}

/* Unmaps an extent, of which all pages must be free. */
static void drop_extent(struct kv *kv, uint32_t group, uint32_t x)
{
    struct group *g = &kv->group[group];
    uint32_t first = x * g->shape.extent, end = extent_end(g, x), *at = &g->free;
    while (*at != KV_NONE) {
        uint32_t p = *at;
        if (p >= first && p < end)
            *at = g->page[p].next;
        else
            at = &g->page[p].next;
    }
    g->n_free -= end - first;
    g->n_absent += end - first;
    g->n_used[x] = KV_NONE;
    kv->memory.unmap(kv->memory.arg, group, x);
}

void kv_pages_ahead(struct kv *kv, uint32_t group, uint32_t n)
{
    while (kv->group[group].n_free < n && add_extent(kv, group))
        continue;
}

void kv_set_memory(struct kv *kv, const struct kv_memory *m)
{
    kv->memory = *m;
}

bool kv_was_refused(const struct kv *kv)
{
    return kv->refused;
}

void kv_may_grow(struct kv *kv)
{
    kv->refused = false;
}

bool kv_ahead(struct kv *kv, uint32_t n)
{
    bool all = true;
    for (uint32_t g = 0; g < kv->n_group; g++) {
        uint32_t most = kv->group[g].shape.n_page, want = n < most ? n : most;
        kv_pages_ahead(kv, g, want);
        all = all && kv->group[g].n_free >= want;
    }
    return all;
}

/* Unmaps extents that are free, `most` at most, the last ones first. */
static uint32_t drop_free(struct kv *kv, uint32_t group, uint32_t most)
{
    uint32_t n = 0;
    for (uint32_t x = kv->group[group].n_extent; x-- > 0 && n < most;)
        if (kv->group[group].n_used[x] == 0) {
            drop_extent(kv, group, x);
            n++;
        }
    return n;
}

uint32_t kv_shrink(struct kv *kv, uint32_t group, uint32_t most, bool cached)
{
    struct group *g = &kv->group[group];
    uint32_t n = drop_free(kv, group, most);
    while (g->n_extent && cached && n < most && g->oldest != KV_NONE) {
        uint32_t x = g->oldest / g->shape.extent;
        evict(kv, group);
        if (g->n_used[x] == 0) {
            drop_extent(kv, group, x);
            n++;
        }
    }
    return n;
}

uint32_t kv_page_alloc(struct kv *kv, uint32_t group, int64_t uid)
{
    struct group *g = &kv->group[group];
    if (!kv_action_reserve(kv, 2)) /* for a clear now and perhaps a copy */
        return KV_NONE;
    kv_pages_ahead(kv, group, 1);
    if (g->free == KV_NONE && g->oldest != KV_NONE)
        evict(kv, group);
    uint32_t p = page_from_free_list(g);
    if (p == KV_NONE)
        return KV_NONE;
    struct page *pg = &g->page[p];
    if (pg->uid != uid && pg->uid != uid_nobody)
        kv_action_push(kv, (struct kv_action){KV_CLEAR, group, p, KV_NONE});
    pg->uid = uid;
    pg->refs = 1;
    pg->node = KV_NONE;
    pg->kept = false;
    return p;
}

/* --- queries --------------------------------------------------------------------------------------------- */

bool kv_next_action(struct kv *kv, struct kv_action *out)
{
    if (kv->next_action == kv->n_action) {
        kv->next_action = kv->n_action = 0;
        return false;
    }
    *out = kv->action[kv->next_action++];
    return true;
}

uint32_t kv_longest(struct kv *kv)
{
    if (!kv->longest_stale)
        return kv->longest;
    kv->longest = 0;
    for (uint32_t v = 0; v < kv->n_node; v++)
        if (kv->node[v].n_tok && cached_end(&kv->node[v]) > kv->longest)
            kv->longest = cached_end(&kv->node[v]);
    kv->longest_stale = false;
    return kv->longest;
}

void kv_count(const struct kv *kv, uint32_t group, struct kv_counts *out)
{
    const struct group *g = &kv->group[group];
    out->total = g->shape.n_page - g->n_absent;
    out->free = g->n_free;
    out->cached = g->n_lru;
    out->held = out->total - out->free - out->cached;
}

static bool check_group(const struct kv *kv, uint32_t group)
{
    const struct group *g = &kv->group[group];
    uint32_t n_free = 0, n_lru = 0;
    for (uint32_t p = g->free; p != KV_NONE; p = g->page[p].next, n_free++)
        if (n_free > g->shape.n_page || g->page[p].refs || g->page[p].node != KV_NONE)
            return false;
    for (uint32_t p = g->oldest; p != KV_NONE; p = g->page[p].next, n_lru++)
        if (n_lru > g->shape.n_page || g->page[p].refs || g->page[p].node == KV_NONE)
            return false;
    uint32_t n_absent = 0;
    for (uint32_t x = 0; x < g->n_extent; x++) {
        uint32_t n_used = 0, first = x * g->shape.extent, end = extent_end(g, x);
        for (uint32_t p = first; p < end; p++)
            n_used += g->page[p].refs || g->page[p].node != KV_NONE;
        n_absent += g->n_used[x] == KV_NONE ? end - first : 0;
        if (n_used != (g->n_used[x] == KV_NONE ? 0 : g->n_used[x]))
            return false;
    }
    if (n_absent != g->n_absent)
        return false;
    for (uint32_t p = 0; p < g->shape.n_page; p++) {
        uint32_t v = g->page[p].node;
        if (g->page[p].leaving)
            return false;
        if (v != KV_NONE &&
            (!kv->node[v].n_tok || kv->node[v].page[group] != p || kv->node[v].of.uid != g->page[p].uid))
            return false;
    }
    return n_free == g->n_free && n_lru == g->n_lru;
}

bool kv_check(const struct kv *kv)
{
    uint32_t n_child = 0, n_parent = 0;
    for (uint32_t g = 0; g < kv->n_group; g++)
        if (!check_group(kv, g))
            return false;
    for (uint32_t v = 0; v < kv->n_node; v++) {
        const struct node *nd = &kv->node[v];
        if (!nd->n_tok)
            continue;
        uint32_t n_page = 0;
        n_child += nd->n_child;
        for (uint32_t g = 0; g < kv->n_group; g++) {
            if (nd->page[g] == KV_NONE && kv_sees_all(kv, g))
                return false;
            n_page += nd->page[g] != KV_NONE;
            if (nd->page[g] != KV_NONE && kv->group[g].page[nd->page[g]].node != v)
                return false;
        }
        if (!n_page && !nd->n_child && !nd->refs)
            return false;
        if (nd->parent == KV_NONE)
            continue;
        const struct node *above = &kv->node[nd->parent];
        n_parent++;
        if (above->n_tok != KV_PAGE || !kv_key_same(above->of, nd->of) || above->depth + 1 != nd->depth ||
            (nd->refs && !above->refs))
            return false;
    }
    return n_child == n_parent;
}
