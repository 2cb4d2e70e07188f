/* tier-index.c - the index of KV pages by content; see tier-index.h. Pure. Thread: the device thread's. */
#include "daemon/engine/kvtier/tier-index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { ENTRIES_MAX = 2 << 20 /* some 390 MB; pages beyond that are not entered */ };

void index_init(struct tier_index *x, struct host *host)
{
    *x = (struct tier_index){.host = host};
    TAILQ_INIT(&x->namespaces);
    TAILQ_INIT(&x->owners);
    TAILQ_INIT(&x->retired);
}

static void namespace_free(struct tier_index *x, struct kv_namespace *s)
{
    struct tier_file *f;
    for (uint32_t b = 0; b < s->n_bucket; b++)
        for (struct tier_entry *en = s->bucket[b], *next; en; en = next) {
            next = en->next;
            if (en->host)
                host_give(x->host, en->host);
            free(en);
        }
    for (uint32_t b = 0; b < FILE_BUCKETS; b++)
        while ((f = TAILQ_FIRST(&s->files[b]))) {
            TAILQ_REMOVE(&s->files[b], f, link);
            free(f);
        }
    TAILQ_REMOVE(&x->namespaces, s, link);
    free(s->bucket);
    free(s);
}

void index_fini(struct tier_index *x)
{
    struct kv_namespace *s;
    struct tier_owner *o;
    while ((s = TAILQ_FIRST(&x->namespaces)))
        namespace_free(x, s);
    while ((o = TAILQ_FIRST(&x->owners))) {
        TAILQ_REMOVE(&x->owners, o, link);
        free(o);
    }
}

struct kv_namespace *index_namespace(struct tier_index *x, const struct kv_fingerprint *fingerprint)
{
    struct kv_namespace *s;
    TAILQ_FOREACH (s, &x->namespaces, link)
        if (!memcmp(&s->fingerprint, fingerprint, sizeof *fingerprint))
            return s;
    if (!(s = calloc(1, sizeof *s)))
        return NULL;
    s->fingerprint = *fingerprint;
    s->n_bucket = 256;
    for (uint32_t b = 0; b < FILE_BUCKETS; b++)
        TAILQ_INIT(&s->files[b]);
    if (!(s->bucket = calloc(s->n_bucket, sizeof *s->bucket))) {
        free(s);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&x->namespaces, s, link);
    return s;
}

/* --- entries -------------------------------------------------------------------------------------------- */

struct tier_entry *index_lookup(const struct kv_namespace *s, const struct kv_hash *hash)
{
    struct tier_entry *en = s->bucket[hash->lo & (s->n_bucket - 1)];
    while (en && !kv_hash_same(&en->hash, hash))
        en = en->next;
    return en;
}

struct tier_entry *index_find(const struct kv_namespace *s, const struct kv_hash *hash, const struct kv_hash *parent,
                              int64_t uid, const int32_t *id)
{
    struct tier_entry *en = index_lookup(s, hash);
    bool same = en && kv_hash_same(&en->parent, parent) && en->owner->uid == uid && !memcmp(en->id, id, sizeof en->id);
    return same ? en : NULL;
}

static struct tier_owner *owner_of(struct tier_index *x, int64_t uid)
{
    struct tier_owner *o;
    TAILQ_FOREACH_REVERSE(o, &x->owners, tier_owners, link)
    if (o->uid == uid)
        return o;
    if ((o = calloc(1, sizeof *o))) {
        o->uid = uid;
        TAILQ_INIT(&o->lru);
        TAILQ_INSERT_TAIL(&x->owners, o, link);
    }
    return o;
}

static void owner_release(struct tier_index *x, struct tier_owner *o)
{
    if (--o->n_entry)
        return;
    TAILQ_REMOVE(&x->owners, o, link);
    free(o);
}

/* Failure is ignored: a hash table that cannot grow is only slower. */
static void grow(struct kv_namespace *s)
{
    uint32_t n = 2 * s->n_bucket;
    struct tier_entry **bucket = calloc(n, sizeof *bucket);
    if (!bucket)
        return;
    for (uint32_t b = 0; b < s->n_bucket; b++)
        for (struct tier_entry *en = s->bucket[b], *next; en; en = next) {
            next = en->next;
            en->next = bucket[en->hash.lo & (n - 1)];
            bucket[en->hash.lo & (n - 1)] = en;
        }
    free(s->bucket);
    s->bucket = bucket;
    s->n_bucket = n;
}

struct tier_entry *index_add(struct tier_index *x, struct kv_namespace *s, const struct kv_hash *hash,
                             const struct kv_hash *parent, int64_t uid, uint32_t pos, const int32_t *id)
{
    struct tier_entry *en = index_lookup(s, hash);
    if (en)
        return index_find(s, hash, parent, uid, id);
    struct tier_owner *owner = owner_of(x, uid);
    if (!owner)
        return NULL;
    owner->n_entry++;
    if (x->n_entry >= ENTRIES_MAX || !(en = calloc(1, sizeof *en))) {
        owner_release(x, owner);
        return NULL;
    }
    if (s->n_entry >= s->n_bucket)
        grow(s);
    en->ns = s;
    en->hash = *hash;
    en->parent = *parent;
    en->owner = owner;
    en->pos = pos;
    memcpy(en->id, id, sizeof en->id);
    en->next = s->bucket[hash->lo & (s->n_bucket - 1)];
    s->bucket[hash->lo & (s->n_bucket - 1)] = en;
    s->n_entry++;
    x->n_entry++;
    return en;
}

static void free_if_unused(struct tier_index *x, struct tier_entry *en)
{
    struct kv_namespace *s = en->ns;
    if (en->users || en->saving || en->host || en->file)
        return;
    struct tier_entry **at = &s->bucket[en->hash.lo & (s->n_bucket - 1)];
    while (*at != en)
        at = &(*at)->next;
    *at = en->next;
    s->n_entry--;
    x->n_entry--;
    owner_release(x, en->owner);
    free(en);
}

/* --- host memory ---------------------------------------------------------------------------------------- */

static void lru_push(struct tier_index *x, struct tier_entry *en)
{
    struct tier_owner *o = en->owner;
    TAILQ_INSERT_TAIL(&o->lru, en, lru);
    o->lru_bytes += en->ns->fingerprint.page_bytes;
    x->lru_bytes += en->ns->fingerprint.page_bytes;
    TAILQ_REMOVE(&x->owners, o, link);
    TAILQ_INSERT_TAIL(&x->owners, o, link);
}

static void lru_remove(struct tier_index *x, struct tier_entry *en)
{
    TAILQ_REMOVE(&en->owner->lru, en, lru);
    en->owner->lru_bytes -= en->ns->fingerprint.page_bytes;
    x->lru_bytes -= en->ns->fingerprint.page_bytes;
}

void index_acquire(struct tier_index *x, struct tier_entry *en)
{
    if (en->users++ == 0 && en->host)
        lru_remove(x, en);
}

void index_release(struct tier_index *x, struct tier_entry *en)
{
    assert(en->users > 0);
    if (--en->users)
        return;
    if (en->host && !en->ready)
        index_drop_host(x, en);
    if (en->host)
        lru_push(x, en);
    else
        free_if_unused(x, en);
}

void index_touch(struct tier_index *x, struct tier_entry *en)
{
    if (en->users || !en->host)
        return;
    lru_remove(x, en);
    lru_push(x, en);
}

void index_set_host(struct tier_index *x, struct tier_entry *en, struct host_page *page)
{
    assert(!en->host && en->users);
    en->host = page;
    en->ready = false;
    x->host_pages++;
    x->host_bytes += en->ns->fingerprint.page_bytes;
}

void index_drop_host(struct tier_index *x, struct tier_entry *en)
{
    host_give(x->host, en->host);
    en->host = NULL;
    en->ready = false;
    x->host_pages--;
    x->host_bytes -= en->ns->fingerprint.page_bytes;
}

/*
 * The uid that holds the most has at least its fair share, so no uid loses a page to another while it has less than
 * that; a single uid may have all of the memory. Of two that hold the same, the one used least recently loses a page.
 */
static struct tier_entry *lru_victim(const struct tier_index *x)
{
    const struct tier_owner *o, *most = NULL;
    TAILQ_FOREACH (o, &x->owners, link)
        if (o->lru_bytes > (most ? most->lru_bytes : 0))
            most = o;
    return most ? TAILQ_FIRST(&most->lru) : NULL;
}

bool index_evict_oldest(struct tier_index *x)
{
    struct tier_entry *en = lru_victim(x);
    if (!en)
        return false;
    lru_remove(x, en);
    index_drop_host(x, en);
    x->dropped += !index_in_file(en) && !en->saving; /* its file may still be committed: see finish() of saves */
    free_if_unused(x, en);
    return true;
}

bool index_evict_clean(struct tier_index *x, uint64_t page_bytes)
{
    const struct tier_entry *en = lru_victim(x);
    return en && index_in_file(en) && en->ns->fingerprint.page_bytes == page_bytes && index_evict_oldest(x);
}

/* --- files ---------------------------------------------------------------------------------------------- */

static struct tier_files *file_bucket(struct kv_namespace *s, const char *name)
{
    return &s->files[XXH3_64bits(name, strlen(name)) % FILE_BUCKETS];
}

static struct tier_file *find_file(struct kv_namespace *s, const char *name)
{
    struct tier_file *f;
    TAILQ_FOREACH (f, file_bucket(s, name), link)
        if (!strcmp(f->name, name))
            return f;
    return NULL;
}

static uint32_t count_pages(const struct tier_file *f)
{
    uint32_t n = 0;
    const struct tier_entry *en;
    LIST_FOREACH (en, &f->pages, in_file)
        n++;
    return n;
}

/* Sets or clears (at 0) the file's retirement, and updates the counts of existing files. */
static void set_retired(struct tier_index *x, struct tier_file *f, double at)
{
    uint32_t n = count_pages(f);
    if (!f->retired_at == !at)
        return;
    f->retired_at = at;
    if (at) {
        TAILQ_INSERT_TAIL(&x->retired, f, retired);
        x->file_pages -= n;
        x->file_bytes -= f->bytes;
    } else {
        TAILQ_REMOVE(&x->retired, f, retired);
        x->file_pages += n;
        x->file_bytes += f->bytes;
    }
}

void index_file(struct tier_index *x, struct kv_namespace *s, const char *name, uint64_t bytes,
                const struct kvfile_extent *extent)
{
    struct tier_file *f = find_file(s, name);
    struct kv_hash parent = extent->parent;
    if (!f) {
        if (!(f = calloc(1, sizeof *f)))
            return; /* the pages will be computed again, or found by the scan at the next start */
        strncpy(f->name, name, sizeof f->name - 1);
        f->ns = s;
        TAILQ_INSERT_HEAD(file_bucket(s, name), f, link);
    }
    set_retired(x, f, 0);
    x->file_bytes += bytes - f->bytes; /* a longer file may have replaced it */
    f->bytes = bytes;
    for (uint32_t i = 0; i < extent->n; i++) {
        const struct kvfile_page *p = &extent->page[i];
        struct tier_entry *en = index_add(x, s, &p->hash, &parent, extent->uid, extent->pos + i * KV_PAGE, p->id);
        if (!en)
            break; /* the pages after it could not be reached */
        if (!index_in_file(en)) {
            if (en->file)
                LIST_REMOVE(en, in_file);
            en->file = f;
            LIST_INSERT_HEAD(&f->pages, en, in_file);
            x->file_pages++;
        }
        parent = p->hash;
    }
}

void index_forget(struct tier_index *x, struct kv_namespace *s, const char *name)
{
    struct tier_file *f = find_file(s, name);
    struct tier_entry *en;
    if (!f)
        return;
    set_retired(x, f, 0);
    while ((en = LIST_FIRST(&f->pages))) {
        LIST_REMOVE(en, in_file);
        en->file = NULL;
        x->file_pages--;
        free_if_unused(x, en);
    }
    x->file_bytes -= f->bytes;
    TAILQ_REMOVE(file_bucket(s, name), f, link);
    free(f);
}

void index_retire(struct tier_index *x, struct kv_namespace *s, const char *name, double now)
{
    struct tier_file *f = find_file(s, name);
    if (f)
        set_retired(x, f, now);
}

void index_forget_retired(struct tier_index *x, double before)
{
    struct tier_file *f;
    while ((f = TAILQ_FIRST(&x->retired)) && f->retired_at < before)
        index_forget(x, f->ns, f->name);
}
