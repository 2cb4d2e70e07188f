/*
 * tier-restore.c - restores pages to the device before a generation; see tier.h. Thread: the device thread's.
 *
 * A restore goes through its pages in order, with three marks: [0, n_found) are in host memory or were requested from
 * a file, the copies of [0, n_submitted) to the device were submitted, those of [0, n_loaded) are complete. `limit` is
 * where it ends; whatever goes wrong only lowers it.
 */
#include "config.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/kvtier/tier-internal.h"

static const uint64_t fetch_bytes = 32 << 20;      /* the most that one read job of the I/O thread reads */
static const uint64_t readahead_bytes = 128 << 20; /* the most that is found but not yet on the device */

/* A restore is judged after this share of the time that computing would take, and not before this many seconds. */
static const double grace_share = 0.1, grace_least = 0.02;

/* --- admission ------------------------------------------------------------------------------------------- */

/* Returns another sequence's restore, on the same model, that fetches page i with that hash. */
static bool restore_in_flight(const struct tier *t, const struct model_entry *m, uint32_t i, const struct kv_hash *hash)
{
    const struct restore *r;
    TAILQ_FOREACH (r, &t->restores, link)
        if (r->model == m && i >= r->first && i < r->first + r->limit && kv_hash_same(&r->from[i - r->first], hash))
            return true;
    return false;
}

/*
 * Returns how many of the pages to restore; the others are computed. Either cost grows with the page, so the best split
 * is where restoring has saved most. Disk and link work at the same time; the slower one counts.
 */
static uint32_t best_split(const struct tier *t, const struct kv_namespace *s, struct tier_entry *const *en, uint32_t n)
{
    double read_rate = t->io ? atomic_load(&kvio_counters(t->io)->read_rate) : 0;
    double load_rate = atomic_load(&t->p.counters->device_rate), tokens = s->prefill_rate, page = tier_page_bytes(s);
    double load = load_rate > 0 ? page / load_rate : 0, read = read_rate > 0 ? page / read_rate : 0;
    double compute = tokens > 0 ? KV_PAGE / tokens : 0, won = 0, most = 0;
    uint32_t best = 0;
    if (t->p.policy != TIER_BY_COST || compute == 0)
        return t->p.policy == TIER_NEVER ? 0 : n;
    for (uint32_t i = 0; i < n; i++) {
        double cost = en[i]->ready || read < load ? load : read;
        won += compute - cost;
        if (won > most) {
            most = won;
            best = i + 1;
        }
    }
    return best;
}

/* A slow scan of the folder is not waited for longer than computing would take. */
static bool waits_for_scan(const struct kv_namespace *s, const struct seq *q, double now)
{
    static const double least = 0.1;
    if (!s->scan)
        return false;
    double waited = q->tier_since > 0 ? now - q->tier_since : 0;
    double most = s->prefill_rate > 0 ? grace_share * q->n_tokens / s->prefill_rate : 0;
    return s->prefill_rate == 0 || waited < (most > least ? most : least);
}

/*
 * The page was evicted from the device and from host memory while its file is still being synced. The wait must cost
 * little of the time that computing would take; without a measured rate, a disk that hangs ends the wait.
 */
static bool waits_for_file(const struct kv_namespace *s, const struct tier_entry *en, const struct seq *q, double now)
{
    static const double unmeasured = 5;
    if (!en || !en->saving)
        return false;
    double waited = q->tier_since > 0 ? now - q->tier_since : 0;
    double most = s->prefill_rate > 0 ? grace_share * q->n_tokens / s->prefill_rate : unmeasured;
    return waited < (most > grace_least ? most : grace_least);
}

/* Allocates pages for the restore's n; fewer where the pool is too full. */
static uint32_t take_pages(struct restore *r, uint32_t n)
{
    struct kv *kv = r->model->group.kv;
    uint32_t room = kv_available(kv), running = r->model->group.n_seq; /* one for each running sequence stays free */
    room = room > running ? room - running : 0;
    n = n < room ? n : room;
    if (n == 0 || !kv_grow(kv, &r->table, r->first * KV_PAGE, (r->first + n) * KV_PAGE, 0))
        return 0;
    models_run_kv_actions(r->model); /* the pages are cleared before they are filled, not after */
    return n;
}

enum restore_begun restore_begin(struct tier *t, struct seq *q, double now)
{
    static const struct kv_hash root = {0, 0};
    struct model_entry *m = q->model;
    uint32_t full = (q->n_tokens ? q->n_tokens - 1 : 0) / KV_PAGE, n = 0; /* one token is always computed */
    enum restore_begun result = RESTORE_NOT;
    if (!m->ns || q->eval || full == 0 || t->p.policy == TIER_NEVER)
        return RESTORE_NOT;
    if (waits_for_scan(m->ns, q, now))
        return RESTORE_LATER;
    struct restore *r = calloc(1, sizeof *r);
    struct kv_hash *hash = tier_chain(q->uid, q->token, full);
    struct tier_entry **entry = calloc(full, sizeof *entry);
    if (!r || !hash || !entry)
        goto out;
    r->model = m;
    r->table.uid = q->uid;
    r->first = kv_match_nodes(m->group.kv, &r->table, q->token, full * KV_PAGE);
    if (r->first < full && restore_in_flight(t, m, r->first, &hash[r->first])) {
        result = RESTORE_LATER;
        goto out_table;
    }
    for (; r->first + n < full; n++) {
        uint32_t i = r->first + n;
        entry[n] = index_find(m->ns, &hash[i], i ? &hash[i - 1] : &root, q->uid, q->token + (size_t)i * KV_PAGE);
        if (!entry[n] || !(entry[n]->ready || index_in_file(entry[n])))
            break;
    }
    if (r->first + n < full && waits_for_file(m->ns, entry[n], q, now)) {
        result = RESTORE_LATER;
        goto out_table;
    }
    n = best_split(t, m->ns, entry, n);
    if (n == 0 || !(n = take_pages(r, n)))
        goto out_table;
    r->seq = q;
    r->n = r->limit = n;
    r->hash = hash;
    r->from = hash + r->first;
    r->entry = entry;
    r->begin = now;
    r->compute = m->ns->prefill_rate > 0 && t->p.policy == TIER_BY_COST ? n * KV_PAGE / m->ns->prefill_rate : 0;
    TAILQ_INSERT_TAIL(&t->restores, r, link);
    return RESTORE_BEGUN;

out_table:
    kv_release(m->group.kv, &r->table, NULL, 0);
out:
    free(entry);
    free(hash);
    free(r);
    return result;
}

/* --- from files to host memory --------------------------------------------------------------------------- */

/* Submits a read of the next pages of one file; false where none can be requested now. */
static bool fetch_run(struct tier *t, struct restore *r, struct tier_entry *en)
{
    struct kv_namespace *s = r->model->ns;
    const struct tier_file *file = en->file;
    uint64_t most = fetch_bytes / tier_page_bytes(s);
    uint32_t left = r->limit - r->n_found;
    most = most < 1 ? 1 : most > left ? left : most;
    struct fetch *f = calloc(1, sizeof *f + most * sizeof f->entry[0]);
    struct kvio_page *page = calloc(most, sizeof *page);
    if (!f || !page)
        goto fail;
    f->ns = s;
    f->restore = r;
    f->first = r->n_found;
    while (f->n < most && en && !en->host && en->file == file) {
        struct host_page *host;
        index_acquire(&t->index, en); /* so that making room for it cannot evict it */
        if (!(host = tier_host_page(t, TO_DEVICE, r->model))) {
            index_release(&t->index, en);
            break;
        }
        index_set_host(&t->index, en, host);
        index_acquire(&t->index, en); /* a second reference: one is the fetch's, one the restore's */
        page[f->n] = (struct kvio_page){.pos = en->pos, .buf = host->mem};
        page[f->n].expect.hash = en->hash;
        memcpy(page[f->n].expect.id, en->id, sizeof en->id);
        f->entry[f->n++] = r->entry[r->n_found++] = en;
        en = r->n_found < r->limit ? index_lookup(s, &r->from[r->n_found]) : NULL;
    }
    if (f->n == 0)
        goto fail;
    f->job = kvio_read(t->io, &(struct kvio_read){.fingerprint = &s->fingerprint,
                                                  .uid = f->entry[0]->owner->uid,
                                                  .file = file->name,
                                                  .n = f->n,
                                                  .page = page});
    t->io_jobs++;
    r->n_fetch++;
    TAILQ_INSERT_TAIL(&t->fetches, f, link);
    free(page);
    return true;

fail:
    free(page);
    free(f);
    return false;
}

static void find_some(struct tier *t, struct restore *r)
{
    struct kv_namespace *s = r->model->ns;
    uint64_t readahead = readahead_bytes / tier_page_bytes(s);
    while (r->n_found < r->limit && r->n_found - r->n_loaded < (readahead < 2 ? 2 : readahead)) {
        struct tier_entry *en = index_lookup(s, &r->from[r->n_found]);
        if (en && en->ready) {
            index_acquire(&t->index, en);
            r->entry[r->n_found++] = en;
        } else if (en && en->host) {
            return; /* somebody is filling it */
        } else if (!en || !index_in_file(en)) {
            r->limit = r->n_found; /* dropped or evicted meanwhile */
        } else if (r->n_fetch == READS_MAX || !fetch_run(t, r, en)) {
            if (host_is_none(&t->host))
                r->limit = r->n_found;
            return;
        }
    }
}

static void lower_limit(struct restore *r, uint32_t limit)
{
    if (limit < r->n_submitted)
        limit = r->n_submitted;
    if (limit < r->limit)
        r->limit = limit;
}

void fetch_event(struct tier *t, struct fetch *f, const struct kvio_event *ev, double now)
{
    if (ev->kind == KVIO_PIECE) {
        for (uint32_t i = 0; i < ev->n; i++)
            f->entry[ev->first + i]->ready = true;
        return;
    }
    if (index_in_file(f->entry[0]) && ev->n)
        tier_used(t, f->entry[0]->file, now);
    if (ev->missing)
        index_forget(&t->index, f->ns, ev->file);
    if (f->restore && ev->n < f->n)
        lower_limit(f->restore, f->first + ev->n);
    fetch_free(t, f);
}

void fetch_free(struct tier *t, struct fetch *f)
{
    if (f->restore)
        f->restore->n_fetch--;
    for (uint32_t i = 0; i < f->n; i++)
        index_release(&t->index, f->entry[i]);
    TAILQ_REMOVE(&t->fetches, f, link);
    free(f);
}

/* --- from host memory to the device ---------------------------------------------------------------------- */

static int load_some(struct tier *t, struct restore *r, struct hearth_err *e)
{
    uint32_t most = tier_piece(t, r->model->ns);
    uint32_t end = r->n_found < r->limit ? r->n_found : r->limit;
    void *host[PIECE_MAX];
    int rc = 0;
    while (!rc && tier_may_transfer(t, TO_DEVICE)) {
        uint32_t n = 0;
        while (n < most && r->n_submitted + n < end && r->entry[r->n_submitted + n]->ready) {
            host[n] = r->entry[r->n_submitted + n]->host->mem;
            n++;
        }
        if (n == 0)
            break;
        struct transfer m = {.restore = r, .n = n, .bytes = n * tier_page_bytes(r->model->ns)};
        const uint32_t *pages = r->table.page[0] + r->first + r->n_submitted;
        r->n_submitted += n;
        rc = tier_transfer(t, TO_DEVICE, m, r->model->pool[0], pages, host, e);
    }
    return rc;
}

void restore_loaded(struct tier *t, struct restore *r, uint32_t n)
{
    for (; n; n--)
        index_release(&t->index, r->entry[r->n_loaded++]);
}

/* --- the end --------------------------------------------------------------------------------------------- */

void restore_stop(struct restore *r)
{
    lower_limit(r, 0);
}

/* Stops the restore: computing would be further by now. */
static bool falls_behind(const struct restore *r, double now)
{
    double elapsed = now - r->begin, grace = grace_share * r->compute;
    if (r->compute == 0 || elapsed < (grace > grace_least ? grace : grace_least))
        return false;
    return elapsed * r->n > r->compute * r->n_loaded;
}

void restore_free(struct tier *t, struct restore *r)
{
    struct fetch *f;
    for (uint32_t i = r->n_loaded; i < r->n_found; i++)
        index_release(&t->index, r->entry[i]);
    TAILQ_FOREACH (f, &t->fetches, link)
        if (f->restore == r)
            f->restore = NULL;
    const struct seq *q = r->seq;
    kv_release(r->model->group.kv, &r->table, q ? q->token : NULL, q ? (r->first + r->n_loaded) * KV_PAGE : 0);
    TAILQ_REMOVE(&t->restores, r, link);
    free(r->hash);
    free(r->entry);
    free(r);
}

static void finish(struct tier *t, struct restore *r)
{
    struct fetch *f;
    TAILQ_FOREACH (f, &t->fetches, link)
        if (f->restore == r)
            kvio_cancel(t->io, f->job);
    for (uint32_t i = r->n_loaded; i-- > 0;) { /* from the end on: the first pages are dropped last */
        struct tier_entry *en = index_lookup(r->model->ns, &r->from[i]);
        if (en)
            index_touch(&t->index, en);
    }
    struct seq *q = r->seq;
    if (q) {
        q->restored_from = r->first * KV_PAGE;
        q->restored_to = (r->first + r->n_loaded) * KV_PAGE;
        TAILQ_INSERT_TAIL(&t->ready, q, link);
    }
    restore_free(t, r);
    t->retry_waiting = true;
}

int restore_poll(struct tier *t, double now, struct hearth_err *e)
{
    struct restore *r, *next;
    int rc = 0;
    for (r = TAILQ_FIRST(&t->restores); r && !rc; r = next) {
        next = TAILQ_NEXT(r, link);
        find_some(t, r);
        rc = load_some(t, r, e);
        if (falls_behind(r, now))
            restore_stop(r);
        if (!rc && r->n_loaded == r->n_submitted && r->n_submitted >= r->limit)
            finish(t, r);
    }
    return rc;
}
