/* kv.c - pages, block tables and the prefix cache; see kv.h. Pure. Thread: the device thread's. */
#include "daemon/engine/sched/kv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    SIBLING_SCAN = 256, /* children of a page compared for a common prefix: bounds time, not correctness */
};
static const int64_t uid_nobody = -1; /* the uid of a page never used, whose memory is as the device initialised it */

struct page {
    int64_t uid;                         /* the last owner, also while free */
    uint64_t hash;                       /* chained over all ids from the root to here; cached pages only */
    int32_t id[KV_PAGE];                 /* cached pages only */
    uint32_t refs;                       /* block tables */
    uint32_t n_tok;                      /* ids known: 0 = not cached */
    uint32_t depth;                      /* pages before this one */
    uint32_t parent;                     /* cached page before this one; KV_NONE at the root */
    uint32_t n_child;                    /* cached pages after this one */
    uint32_t hash_next;                  /* next full page in the bucket of its hash */
    uint32_t sibling_next, sibling_prev; /* cached pages in the bucket of the parent's hash, newest first */
    uint32_t next, prev;                 /* on the free list (next only) or in the LRU list of unreferenced pages */
};

struct kv {
    struct page *page; /* [n_page] */
    uint32_t n_page;
    uint32_t free, n_free;          /* free list */
    uint32_t oldest, newest, n_lru; /* cached and unreferenced */
    uint32_t *by_hash, *by_parent;  /* buckets: full pages by hash, cached pages by parent's hash */
    uint32_t bucket_mask;
    uint32_t longest;
    bool longest_stale; /* the longest may be evicted: walk the pages to find the next */
    struct kv_action *action;
    uint32_t n_action, next_action, cap_action;
};

static uint64_t hash_root(int64_t uid)
{
    return XXH3_64bits(&uid, sizeof uid);
}

static uint64_t hash_chain(uint64_t parent, const int32_t *id)
{
    return XXH3_64bits_withSeed(id, KV_PAGE * sizeof *id, parent);
}

static uint64_t parent_hash(const struct kv *kv, uint32_t parent, int64_t uid)
{
    return parent == KV_NONE ? hash_root(uid) : kv->page[parent].hash;
}

int kv_cache_new(struct kv **out, uint32_t n_page, struct hearth_err *e)
{
    uint32_t buckets = 16;
    while (buckets < n_page && buckets < 1u << 30)
        buckets *= 2;
    struct kv *kv = calloc(1, sizeof *kv);
    if (!kv)
        goto nomem;
    kv->page = calloc(n_page, sizeof *kv->page);
    kv->by_hash = malloc(buckets * sizeof *kv->by_hash);
    kv->by_parent = malloc(buckets * sizeof *kv->by_parent);
    if (!kv->page || !kv->by_hash || !kv->by_parent)
        goto nomem;
    kv->n_page = n_page;
    kv->bucket_mask = buckets - 1;
    memset(kv->by_hash, 0xff, buckets * sizeof *kv->by_hash);
    memset(kv->by_parent, 0xff, buckets * sizeof *kv->by_parent);
    kv->oldest = kv->newest = kv->free = KV_NONE;
    for (uint32_t p = n_page; p-- > 0;) { /* low pages first: memory is committed as it is first written */
        kv->page[p].uid = uid_nobody;
        kv->page[p].next = kv->free;
        kv->free = p;
    }
    kv->n_free = n_page;
    *out = kv;
    return 0;
nomem:
    kv_cache_free(kv);
    return err_set(e, HEARTH_ENOMEM, "no memory for the table of %u KV pages", n_page);
}

void kv_cache_free(struct kv *kv)
{
    if (!kv)
        return;
    free(kv->page);
    free(kv->by_hash);
    free(kv->by_parent);
    free(kv->action);
    free(kv);
}

/* --- the LRU list of unreferenced pages ----------------------------------------------------------------- */

static void lru_push(struct kv *kv, uint32_t p)
{
    struct page *pg = &kv->page[p];
    pg->next = KV_NONE;
    pg->prev = kv->newest;
    if (kv->newest != KV_NONE)
        kv->page[kv->newest].next = p;
    else
        kv->oldest = p;
    kv->newest = p;
    kv->n_lru++;
}

static void lru_remove(struct kv *kv, uint32_t p)
{
    struct page *pg = &kv->page[p];
    if (pg->prev != KV_NONE)
        kv->page[pg->prev].next = pg->next;
    else
        kv->oldest = pg->next;
    if (pg->next != KV_NONE)
        kv->page[pg->next].prev = pg->prev;
    else
        kv->newest = pg->prev;
    kv->n_lru--;
}

/* --- the cache ------------------------------------------------------------------------------------------ */

static uint32_t cached_end(const struct page *pg)
{
    return pg->depth * KV_PAGE + pg->n_tok;
}

/* Enters a page that holds id[0..n_tok) after `parent`. */
static void cache_add(struct kv *kv, uint32_t p, uint32_t parent, uint32_t depth, const int32_t *id, uint32_t n_tok)
{
    struct page *pg = &kv->page[p];
    uint64_t above = parent_hash(kv, parent, pg->uid);
    memcpy(pg->id, id, n_tok * sizeof *id);
    pg->n_tok = n_tok;
    pg->depth = depth;
    pg->parent = parent;
    pg->n_child = 0;
    if (parent != KV_NONE)
        kv->page[parent].n_child++;
    if (n_tok == KV_PAGE) {
        pg->hash = hash_chain(above, id);
        uint32_t *head = &kv->by_hash[pg->hash & kv->bucket_mask];
        pg->hash_next = *head;
        *head = p;
    }
    uint32_t *head = &kv->by_parent[above & kv->bucket_mask];
    pg->sibling_prev = KV_NONE;
    pg->sibling_next = *head;
    if (*head != KV_NONE)
        kv->page[*head].sibling_prev = p;
    *head = p;
    if (cached_end(pg) > kv->longest)
        kv->longest = cached_end(pg);
}

static void cache_remove(struct kv *kv, uint32_t p)
{
    struct page *pg = &kv->page[p];
    assert(pg->n_child == 0);
    if (pg->n_tok == KV_PAGE) {
        uint32_t *at = &kv->by_hash[pg->hash & kv->bucket_mask];
        while (*at != p)
            at = &kv->page[*at].hash_next;
        *at = pg->hash_next;
    }
    if (pg->sibling_prev != KV_NONE)
        kv->page[pg->sibling_prev].sibling_next = pg->sibling_next;
    else
        kv->by_parent[parent_hash(kv, pg->parent, pg->uid) & kv->bucket_mask] = pg->sibling_next;
    if (pg->sibling_next != KV_NONE)
        kv->page[pg->sibling_next].sibling_prev = pg->sibling_prev;
    if (pg->parent != KV_NONE)
        kv->page[pg->parent].n_child--;
    if (cached_end(pg) == kv->longest)
        kv->longest_stale = true;
    pg->n_tok = 0;
}

/* The cached full page with these ids after `parent`, or KV_NONE. */
static uint32_t cache_find(const struct kv *kv, uint32_t parent, int64_t uid, const int32_t *id)
{
    uint64_t hash = hash_chain(parent_hash(kv, parent, uid), id);
    for (uint32_t p = kv->by_hash[hash & kv->bucket_mask]; p != KV_NONE; p = kv->page[p].hash_next) {
        const struct page *pg = &kv->page[p];
        if (pg->hash == hash && pg->uid == uid && pg->parent == parent && !memcmp(pg->id, id, sizeof pg->id))
            return p;
    }
    return KV_NONE;
}

/* Returns the child of `parent` that shares the longest prefix with id[0..n), n < KV_PAGE; *len is that prefix's
 * length, 0 where there is none. */
static uint32_t cache_find_partial(const struct kv *kv, uint32_t parent, int64_t uid, const int32_t *id, uint32_t n,
                                   uint32_t *len)
{
    uint32_t best = KV_NONE, looked = 0;
    *len = 0;
    for (uint32_t p = kv->by_parent[parent_hash(kv, parent, uid) & kv->bucket_mask];
         p != KV_NONE && looked < SIBLING_SCAN; p = kv->page[p].sibling_next) {
        const struct page *pg = &kv->page[p];
        if (pg->parent != parent || pg->uid != uid)
            continue;
        looked++;
        uint32_t common = 0;
        while (common < n && common < pg->n_tok && pg->id[common] == id[common])
            common++;
        /* Of equal prefixes a page that ends there is better, because it may be continued without a copy. */
        if (common > *len || (common && common == *len && pg->n_tok == common && pg->refs == 0)) {
            *len = common;
            best = p;
        }
    }
    return best;
}

/* --- pages ---------------------------------------------------------------------------------------------- */

static void page_to_free_list(struct kv *kv, uint32_t p)
{
    kv->page[p].next = kv->free;
    kv->free = p;
    kv->n_free++;
}

static void page_ref(struct kv *kv, uint32_t p)
{
    struct page *pg = &kv->page[p];
    if (pg->refs++ == 0 && pg->n_tok)
        lru_remove(kv, p);
}

static void page_unref(struct kv *kv, uint32_t p)
{
    struct page *pg = &kv->page[p];
    assert(pg->refs > 0);
    if (--pg->refs)
        return;
    if (pg->n_tok)
        lru_push(kv, p);
    else
        page_to_free_list(kv, p);
}

static bool action_reserve(struct kv *kv, uint32_t n)
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

static void action_push(struct kv *kv, enum kv_action_kind kind, uint32_t page, uint32_t from)
{
    kv->action[kv->n_action++] = (struct kv_action){kind, page, from};
}

/* Allocates a private page for uid, or returns KV_NONE. */
static uint32_t page_alloc(struct kv *kv, int64_t uid)
{
    if (!action_reserve(kv, 2)) /* for a clear now and perhaps a copy */
        return KV_NONE;
    uint32_t p = kv->free;
    if (p != KV_NONE) {
        kv->free = kv->page[p].next;
        kv->n_free--;
    } else {
        p = kv->oldest;
        if (p == KV_NONE)
            return KV_NONE;
        lru_remove(kv, p);
        cache_remove(kv, p);
    }
    struct page *pg = &kv->page[p];
    if (pg->uid != uid && pg->uid != uid_nobody)
        action_push(kv, KV_CLEAR, p, KV_NONE);
    pg->uid = uid;
    pg->refs = 1;
    pg->n_tok = 0;
    return p;
}

/* --- block tables --------------------------------------------------------------------------------------- */

static uint32_t pages_for(uint32_t n_tok)
{
    return n_tok / KV_PAGE + (n_tok % KV_PAGE != 0);
}

static bool table_reserve(struct kv_table *t, uint32_t n)
{
    if (n <= t->cap)
        return true;
    uint32_t cap = n + n / 4 + 8;
    uint32_t *page = realloc(t->page, cap * sizeof *page);
    if (!page)
        return false;
    t->page = page;
    t->cap = cap;
    return true;
}

static uint32_t table_last(const struct kv_table *t)
{
    return t->n ? t->page[t->n - 1] : KV_NONE;
}

uint32_t kv_match_pages(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n)
{
    assert(t->n == 0);
    if (!table_reserve(t, pages_for(n)))
        return 0;
    while ((t->n + 1) * KV_PAGE <= n) {
        uint32_t p = cache_find(kv, table_last(t), t->uid, ids + (size_t)t->n * KV_PAGE);
        if (p == KV_NONE)
            break;
        page_ref(kv, p);
        t->page[t->n++] = p;
    }
    t->n_cached = t->n;
    return t->n;
}

uint32_t kv_match(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n)
{
    uint32_t matched = kv_match_pages(kv, t, ids, n) * KV_PAGE, len;
    if (t->cap < pages_for(n))
        return 0; /* no memory for the table */
    uint32_t left = n - matched < KV_PAGE ? n - matched : KV_PAGE - 1;
    uint32_t p = cache_find_partial(kv, table_last(t), t->uid, ids + matched, left, &len);
    if (!len)
        return matched;
    page_ref(kv, p); /* so that the allocation below cannot take it */
    if (kv->page[p].refs == 1 && kv->page[p].n_tok == len) {
        cache_remove(kv, p); /* no other table has it, and nothing is lost: continue it in place */
    } else {
        uint32_t copy = page_alloc(kv, t->uid);
        if (copy != KV_NONE)
            action_push(kv, KV_COPY, copy, p);
        page_unref(kv, p);
        p = copy;
    }
    if (p == KV_NONE)
        return matched;
    t->page[t->n++] = p;
    return matched + len;
}

bool kv_grow(struct kv *kv, struct kv_table *t, uint32_t n)
{
    uint32_t want = pages_for(n), had = t->n;
    if (want <= had)
        return true;
    if (want - had > kv_available(kv) || !table_reserve(t, want))
        return false;
    while (t->n < want) {
        uint32_t p = page_alloc(kv, t->uid);
        if (p == KV_NONE) {
            while (t->n > had)
                page_unref(kv, t->page[--t->n]);
            return false;
        }
        t->page[t->n++] = p;
    }
    return true;
}

uint32_t kv_available(const struct kv *kv)
{
    return kv->n_free + kv->n_lru;
}

void kv_publish(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n)
{
    while (t->n_cached < t->n && (t->n_cached + 1) * KV_PAGE <= n) {
        uint32_t i = t->n_cached++, p = t->page[i];
        uint32_t parent = i ? t->page[i - 1] : KV_NONE;
        const int32_t *id = ids + (size_t)i * KV_PAGE;
        uint32_t known = cache_find(kv, parent, t->uid, id);
        if (known == KV_NONE) {
            cache_add(kv, p, parent, i, id, KV_PAGE);
        } else { /* two sequences computed the same prefix at once: one page suffices */
            page_ref(kv, known);
            t->page[i] = known;
            page_unref(kv, p);
        }
    }
}

/* Enters the unfinished page p into the cache, unless its content is there already. A cached page that is a prefix of
 * it is dropped, as it has become redundant. */
static void publish_tail(struct kv *kv, uint32_t p, uint32_t parent, uint32_t depth, const int32_t *id, uint32_t n)
{
    int64_t uid = kv->page[p].uid;
    uint32_t len;
    uint32_t match = cache_find_partial(kv, parent, uid, id, n, &len);
    if (match != KV_NONE && len == n)
        return;
    if (match != KV_NONE && kv->page[match].n_tok == len && kv->page[match].refs == 0) {
        lru_remove(kv, match);
        cache_remove(kv, match);
        page_to_free_list(kv, match);
    }
    cache_add(kv, p, parent, depth, id, n);
}

void kv_release(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n)
{
    kv_publish(kv, t, ids, n);
    uint32_t full = n / KV_PAGE, rest = n % KV_PAGE;
    if (rest && full < t->n && full == t->n_cached)
        publish_tail(kv, t->page[full], full ? t->page[full - 1] : KV_NONE, full, ids + (size_t)full * KV_PAGE, rest);
    while (t->n) /* last to first: a page outlives its children */
        page_unref(kv, t->page[--t->n]);
    free(t->page);
    *t = (struct kv_table){.uid = t->uid};
}

bool kv_next_action(struct kv *kv, struct kv_action *out)
{
    if (kv->next_action == kv->n_action) {
        kv->next_action = kv->n_action = 0;
        return false;
    }
    *out = kv->action[kv->next_action++];
    return true;
}

void kv_count(struct kv *kv, struct kv_counts *out)
{
    if (kv->longest_stale) {
        kv->longest = 0;
        for (uint32_t p = 0; p < kv->n_page; p++)
            if (kv->page[p].n_tok && cached_end(&kv->page[p]) > kv->longest)
                kv->longest = cached_end(&kv->page[p]);
        kv->longest_stale = false;
    }
    out->total = kv->n_page;
    out->free = kv->n_free;
    out->cached = kv->n_lru;
    out->held = kv->n_page - kv->n_free - kv->n_lru;
    out->longest = kv->longest;
}

bool kv_check(const struct kv *kv)
{
    uint32_t n_free = 0, n_lru = 0, n_child = 0, n_parent = 0;
    for (uint32_t p = kv->free; p != KV_NONE; p = kv->page[p].next, n_free++)
        if (n_free > kv->n_page || kv->page[p].refs || kv->page[p].n_tok)
            return false;
    for (uint32_t p = kv->oldest; p != KV_NONE; p = kv->page[p].next, n_lru++)
        if (n_lru > kv->n_page || kv->page[p].refs || !kv->page[p].n_tok)
            return false;
    for (uint32_t p = 0; p < kv->n_page; p++) {
        const struct page *pg = &kv->page[p];
        n_child += pg->n_tok ? pg->n_child : 0;
        if (!pg->n_tok || pg->parent == KV_NONE)
            continue;
        const struct page *above = &kv->page[pg->parent];
        n_parent++;
        if (above->n_tok != KV_PAGE || above->uid != pg->uid || above->depth + 1 != pg->depth ||
            (pg->refs && !above->refs))
            return false;
    }
    return n_free == kv->n_free && n_lru == kv->n_lru && n_child == n_parent;
}
