/*
 * tier-restore.c - restores pages to the device before a generation; see tier.h. Thread: the device thread's.
 *
 * A restore processes its items in order, pages of windows first, with three marks: [0, n_found) are in host memory or
 * were requested from a file, the copies of [0, n_submitted) to the device were submitted, those of [0, n_loaded) are
 * complete. `limit` is where it ends; any failure only lowers it.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/engine/kvtier/tier-internal.h"

static const uint64_t fetch_bytes = 32 << 20;      /* the most that one read job of the I/O thread reads */
static const uint64_t readahead_bytes = 128 << 20; /* the most bytes found but not yet on the device */

static struct kv_namespace *ns_of(const struct restore *r, uint32_t item)
{
    return r->model->ns[r->item[item].group];
}

static struct tier_entry *look_up(const struct restore *r, uint32_t item)
{
    return index_lookup(ns_of(r, item), &r->hash[r->item[item].place]);
}

/* --- from files to host memory --------------------------------------------------------------------------- */

/* Submits a read of the next pages of one file; false where none can be requested at present. */
static bool fetch_run(struct tier *t, struct restore *r, struct tier_entry *en)
{
    struct kv_namespace *s = ns_of(r, r->n_found);
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
        index_acquire(&t->index, en); /* so that making room for the page cannot evict the entry */
        if (!(host = tier_host_page(t, TO_DEVICE, r->model, tier_page_bytes(s)))) {
            index_release(&t->index, en);
            break;
        }
        index_set_host(&t->index, en, host);
        index_acquire(&t->index, en); /* a second reference: one is the fetch's, one the restore's */
        page[f->n] = (struct kvio_page){.pos = en->pos, .buf = host->mem};
        page[f->n].expect.hash = en->hash;
        memcpy(page[f->n].expect.id, en->id, sizeof en->id);
        f->entry[f->n++] = r->item[r->n_found++].entry = en;
        en = r->n_found < r->limit ? look_up(r, r->n_found) : NULL;
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
    while (r->n_found < r->limit) {
        uint64_t readahead = readahead_bytes / tier_page_bytes(ns_of(r, r->n_found));
        struct tier_entry *en = look_up(r, r->n_found);
        if (r->n_found - r->n_loaded >= (readahead < 2 ? 2 : readahead))
            return;
        if (en && en->ready) {
            index_acquire(&t->index, en);
            r->item[r->n_found++].entry = en;
        } else if (en && en->host) {
            return; /* a save or another fetch is filling it */
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
    uint32_t end = r->n_found < r->limit ? r->n_found : r->limit, page[PIECE_MAX];
    void *host[PIECE_MAX];
    int rc = 0;
    while (!rc && r->n_submitted < end && tier_may_transfer(t, TO_DEVICE)) {
        uint32_t n = 0, group = r->item[r->n_submitted].group, most = tier_piece(t, r->model->ns[group]);
        for (; n < most && r->n_submitted + n < end; n++) {
            const struct restore_item *it = &r->item[r->n_submitted + n];
            if (it->group != group || !it->entry->ready)
                break;
            host[n] = it->entry->host->mem;
            page[n] = r->table.page[group][it->place];
        }
        if (n == 0)
            break;
        struct transfer m = {.restore = r, .n = n, .bytes = n * tier_page_bytes(r->model->ns[group])};
        r->n_submitted += n;
        rc = tier_transfer(t, TO_DEVICE, m, r->model->pool[group], page, host, e);
    }
    return rc;
}

void restore_loaded(struct tier *t, struct restore *r, uint32_t n)
{
    for (; n; n--)
        index_release(&t->index, r->item[r->n_loaded++].entry);
}

/* --- the end --------------------------------------------------------------------------------------------- */

void restore_stop(struct restore *r)
{
    lower_limit(r, 0);
}

/* Whether computing would be further by now than the restore. */
static bool falls_behind(const struct restore *r, double now)
{
    double elapsed = now - r->begin, grace = TIER_GRACE_SHARE * r->compute;
    if (r->compute == 0 || elapsed < (grace > TIER_GRACE_LEAST ? grace : TIER_GRACE_LEAST))
        return false;
    return elapsed * r->n > r->compute * r->n_loaded;
}

/* Enters the restored pages of windows into the device's cache. Returns the place at which the timeline can be resumed
 * on the device. */
static uint32_t enter_loaded(struct restore *r)
{
    uint32_t end = r->end, had = r->had, n[KV_GROUPS_MAX] = {0};
    const struct model_entry *m = r->model;
    for (uint32_t k = 0; k < r->n_loaded; k++) {
        const struct restore_item *it = &r->item[k];
        n[it->group]++;
        if (it->place < r->table.n_cached) /* of a window; nodes of other pages are made at the table's release */
            kv_enter(m->group.kv, &r->table, it->group, it->place);
    }
    if (r->n_loaded < r->n_window)
        return had;
    for (uint32_t g = 0; g < m->n_group; g++)
        if (tier_sees_all(m, g) && r->first + n[g] < end)
            end = r->first + n[g];
    return end;
}

void restore_free(struct tier *t, struct restore *r)
{
    struct fetch *f;
    for (uint32_t i = r->n_loaded; i < r->n_found; i++)
        index_release(&t->index, r->item[i].entry);
    TAILQ_FOREACH (f, &t->fetches, link)
        if (f->restore == r)
            f->restore = NULL;
    const struct seq *q = r->seq;
    uint32_t end = q ? enter_loaded(r) : 0;
    kv_release(r->model->group.kv, &r->table, q ? q->token : NULL, end * KV_PAGE);
    TAILQ_REMOVE(&t->restores, r, link);
    free(r->hash);
    free(r->item);
    free(r);
}

static void finish(struct tier *t, struct restore *r)
{
    struct fetch *f;
    TAILQ_FOREACH (f, &t->fetches, link)
        if (f->restore == r)
            kvio_cancel(t->io, f->job);
    for (uint32_t i = r->n_loaded; i-- > 0;) { /* backwards: the first pages are dropped last */
        struct tier_entry *en = look_up(r, i);
        if (en)
            index_touch(&t->index, en);
    }
    struct seq *q = r->seq;
    if (q) {
        q->restored_from = r->had * KV_PAGE;
        uint32_t end = enter_loaded(r);
        bool in_vain = end < r->end && tier_has_windows(r->model); /* it can then be resumed at the end only */
        q->restored_to = (in_vain ? r->had : end) * KV_PAGE;
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
