/*
 * tier-restore.c - restores pages to the device before a generation; see tier.h. Thread: the device thread's.
 *
 * A restore goes through its items in order, pages of windows first, with three marks: [0, n_found) are in host memory
 * or were requested from a file, the copies of [0, n_submitted) to the device were submitted, those of [0, n_loaded)
 * are complete. `limit` is where it ends; whatever goes wrong only lowers it.
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

/* What the tiers have of a timeline that the device lacks. */
struct found {
    struct tier_entry **entry[KV_GROUPS_MAX]; /* [full] by group; NULL: the device has it, or nobody can */
    uint32_t full;                            /* places of the timeline that may be restored */
    uint32_t reach;    /* places that are there in groups that see everything, on the device or below */
    uint32_t had, end; /* places that can be gone on from: on the device alone, and with the tiers */
};

static bool sees_all(const struct model_entry *m, uint32_t group)
{
    return !m->kv[group].window;
}

static bool has_windows(const struct model_entry *m)
{
    return m->kv[m->n_group - 1].window; /* such groups come last */
}

/* The first place that a token at the beginning of place `end` sees. */
static uint32_t first_seen(const struct model_entry *m, uint32_t group, uint32_t end)
{
    return kv_first_visible(end * KV_PAGE, m->kv[group].window) / KV_PAGE;
}

/* Returns whether another sequence's restore, on the same model, brings that page. */
static bool restore_in_flight(const struct tier *t, const struct model_entry *m, uint32_t group, uint32_t place,
                              const struct kv_hash *hash)
{
    const struct restore *r;
    TAILQ_FOREACH (r, &t->restores, link)
        for (uint32_t k = 0; r->model == m && k < r->limit; k++)
            if (r->item[k].group == group && r->item[k].place == place && kv_hash_same(&r->hash[place], hash))
                return true;
    return false;
}

/* Seconds that the page's restore takes. Disk and link work at the same time; the slower one counts. */
static double page_cost(const struct tier *t, const struct tier_entry *en)
{
    double read_rate = t->io ? atomic_load(&kvio_counters(t->io)->read_rate) : 0;
    double load_rate = atomic_load(&t->p.counters->device_rate), page = tier_page_bytes(en->ns);
    double load = load_rate > 0 ? page / load_rate : 0, read = read_rate > 0 ? page / read_rate : 0;
    return en->ready || read < load ? load : read;
}

/*
 * Returns how many places to go on from; what lies behind them is computed. Either cost grows with the page, so the
 * best split is where restoring has saved most. Where a layer has a window there is one place to go on from, or none.
 */
static uint32_t best_split(const struct tier *t, const struct model_entry *m, const struct found *f, uint32_t first)
{
    double tokens = m->ns[0]->prefill_rate, compute = tokens > 0 ? KV_PAGE / tokens : 0, won = 0, most = 0;
    uint32_t best = f->had;
    bool windows = has_windows(m);
    if (t->p.policy != TIER_BY_COST || compute == 0)
        return t->p.policy == TIER_NEVER ? f->had : f->end;
    for (uint32_t g = 0; g < m->n_group; g++)
        for (uint32_t i = first_seen(m, g, f->end); !sees_all(m, g) && i < f->end; i++)
            won -= f->entry[g][i] ? page_cost(t, f->entry[g][i]) : 0;
    uint32_t known = first < f->end ? first : f->end; /* on the device, where windows alone are missing */
    won += (known - f->had) * compute;
    for (uint32_t i = first; i < f->end; i++) {
        won += compute;
        for (uint32_t g = 0; g < m->n_group; g++)
            won -= sees_all(m, g) && f->entry[g][i] ? page_cost(t, f->entry[g][i]) : 0;
        if (won > most && !windows) {
            most = won;
            best = i + 1;
        }
    }
    return windows && won > 0 ? f->end : best;
}

/* A slow scan of the folder is not waited for longer than computing would take. */
static bool waits_for_scan(const struct model_entry *m, const struct seq *q, double now)
{
    static const double least = 0.1;
    bool scans = false;
    for (uint32_t g = 0; g < m->n_group; g++)
        scans |= m->ns[g]->scan != 0;
    if (!scans)
        return false;
    double rate = m->ns[0]->prefill_rate, waited = q->tier_since > 0 ? now - q->tier_since : 0;
    double most = rate > 0 ? grace_share * q->n_tokens / rate : 0;
    return rate == 0 || waited < (most > least ? most : least);
}

/*
 * The page was evicted from the device and from host memory while its file is still being synced. The wait must cost
 * little of the time that computing would take; without a measured rate, a disk that hangs ends the wait.
 */
static bool waits_for_file(const struct model_entry *m, const struct tier_entry *en, const struct seq *q, double now)
{
    static const double unmeasured = 5;
    if (!en || !en->saving || en->ready || index_in_file(en))
        return false;
    double rate = m->ns[0]->prefill_rate, waited = q->tier_since > 0 ? now - q->tier_since : 0;
    double most = rate > 0 ? grace_share * q->n_tokens / rate : unmeasured;
    return waited < (most > grace_least ? most : grace_least);
}

static bool is_there(const struct tier_entry *en)
{
    return en && (en->ready || index_in_file(en));
}

static bool on_device(const struct restore *r, uint32_t group, uint32_t place)
{
    return place < r->table.n_cached && kv_has(r->model->group.kv, &r->table, group, place);
}

/* Finds the places that can be gone on from: all of them in groups that see everything, and the windows before. */
static void find_ends(const struct restore *r, struct found *f)
{
    const struct model_entry *m = r->model;
    uint32_t run[KV_GROUPS_MAX] = {0}, run_device[KV_GROUPS_MAX] = {0};
    for (uint32_t i = 0; i < f->reach; i++) {
        bool usable = true, usable_device = i < r->first;
        for (uint32_t g = 0; g < m->n_group; g++) {
            if (sees_all(m, g))
                continue;
            run_device[g] = on_device(r, g, i) ? run_device[g] + 1 : 0;
            run[g] = on_device(r, g, i) || is_there(f->entry[g][i]) ? run[g] + 1 : 0;
            usable = usable && first_seen(m, g, i + 1) + run[g] >= i + 1;
            usable_device = usable_device && first_seen(m, g, i + 1) + run_device[g] >= i + 1;
        }
        f->end = usable ? i + 1 : f->end;
        f->had = usable_device ? i + 1 : f->had;
    }
}

/* Looks for the pages that the device lacks; RESTORE_LATER where one is on its way. The entries are the caller's to
 * free. */
static enum restore_begun find_pages(const struct restore *r, const struct seq *q, struct found *f, double now)
{
    static const struct kv_hash root = {0, 0};
    const struct model_entry *m = r->model;
    f->reach = f->full;
    for (uint32_t g = 0; g < m->n_group; g++) {
        if (!(f->entry[g] = calloc(f->full, sizeof *f->entry[g])))
            return RESTORE_NOT;
        for (uint32_t i = sees_all(m, g) ? r->first : 0; i < f->reach; i++) {
            if (on_device(r, g, i))
                continue;
            f->entry[g][i] =
                index_find(m->ns[g], &r->hash[i], i ? &r->hash[i - 1] : &root, q->uid, q->token + (size_t)i * KV_PAGE);
            if (sees_all(m, g) && !is_there(f->entry[g][i])) {
                if (waits_for_file(m, f->entry[g][i], q, now))
                    return RESTORE_LATER;
                f->reach = i;
            }
        }
    }
    find_ends(r, f);
    for (uint32_t g = 0; g < m->n_group; g++) /* a window that will be there soon */
        for (uint32_t i = first_seen(m, g, f->reach); !sees_all(m, g) && f->end < f->reach && i < f->reach; i++)
            if (waits_for_file(m, f->entry[g][i], q, now))
                return RESTORE_LATER;
    return f->end > f->had ? RESTORE_BEGUN : RESTORE_NOT;
}

/* Makes items of the table's private pages: windows first. */
static bool make_items(struct restore *r)
{
    const struct model_entry *m = r->model;
    for (int pass = 0; pass < 2; pass++) {
        uint32_t n = 0;
        for (int window = 1; window >= 0; window--)
            for (uint32_t g = 0; g < m->n_group; g++)
                for (uint32_t i = 0; i < r->end && sees_all(m, g) != window; i++) {
                    if (!kv_is_private(m->group.kv, &r->table, g, i))
                        continue;
                    r->n_window += pass && window;
                    if (pass)
                        r->item[n] = (struct restore_item){.group = g, .place = i};
                    n++;
                }
        if (!pass && !(r->item = calloc(n ? n : 1, sizeof *r->item)))
            return false;
        r->n = r->limit = n;
    }
    return true;
}

/* Allocates pages for all that is to be restored, up to place `end`; where nothing has a window, fewer if the pool is
 * too full. False: there is no room. */
static bool take_pages(struct restore *r, const struct found *f, uint32_t end)
{
    struct kv *kv = r->model->group.kv;
    uint32_t room = kv_available(kv), running = r->model->group.n_seq; /* one for each running sequence stays free */
    bool windows = has_windows(r->model);
    room = room > running ? room - running : 0;
    if (!windows && end - r->first > room)
        end = r->first + room;
    if (end <= f->had)
        return false;
    if (end < r->first) {
        kv_truncate(kv, &r->table, end);
        r->first = end;
    }
    if (!kv_grow(kv, &r->table, end * KV_PAGE, end * KV_PAGE, 0) || (windows && kv_available(kv) < running))
        return false;
    r->had = f->had;
    r->end = end;
    models_run_kv_actions(r->model); /* the pages are cleared before they are filled, not after */
    return make_items(r) && r->n > 0;
}

static bool others_bring_it(const struct tier *t, const struct restore *r, const struct found *f)
{
    const struct model_entry *m = r->model;
    for (uint32_t g = 0; g < m->n_group; g++)
        for (uint32_t i = sees_all(m, g) ? r->first : first_seen(m, g, f->end); i < f->end; i++)
            if (f->entry[g][i])
                return restore_in_flight(t, m, g, i, &r->hash[i]);
    return false;
}

enum restore_begun restore_begin(struct tier *t, struct seq *q, double now)
{
    struct model_entry *m = q->model;
    struct found f = {.full = (q->n_tokens ? q->n_tokens - 1 : 0) / KV_PAGE}; /* one token is always computed */
    enum restore_begun result = RESTORE_NOT;
    if (!m->ns[0] || q->eval || f.full == 0 || t->p.policy == TIER_NEVER)
        return RESTORE_NOT;
    if (waits_for_scan(m, q, now))
        return RESTORE_LATER;
    struct restore *r = calloc(1, sizeof *r);
    if (!r || !(r->hash = tier_chain(q->uid, q->token, f.full)))
        goto out;
    r->model = m;
    r->table.uid = q->uid;
    r->first = kv_match_nodes(m->group.kv, &r->table, q->token, f.full * KV_PAGE);
    result = find_pages(r, q, &f, now);
    if (result == RESTORE_BEGUN && others_bring_it(t, r, &f))
        result = RESTORE_LATER;
    if (result == RESTORE_BEGUN && !take_pages(r, &f, best_split(t, m, &f, r->first)))
        result = RESTORE_NOT;
    if (result != RESTORE_BEGUN) {
        kv_release(m->group.kv, &r->table, NULL, 0);
        goto out;
    }
    double rate = m->ns[0]->prefill_rate;
    r->seq = q;
    r->begin = now;
    r->compute = rate > 0 && t->p.policy == TIER_BY_COST ? (r->end - r->had) * KV_PAGE / rate : 0;
    TAILQ_INSERT_TAIL(&t->restores, r, link);
    r = NULL;
out:
    for (uint32_t g = 0; g < m->n_group; g++)
        free(f.entry[g]);
    if (r) {
        free(r->hash);
        free(r->item);
    }
    free(r);
    return result;
}

static struct kv_namespace *ns_of(const struct restore *r, uint32_t item)
{
    return r->model->ns[r->item[item].group];
}

static struct tier_entry *look_up(const struct restore *r, uint32_t item)
{
    return index_lookup(ns_of(r, item), &r->hash[r->item[item].place]);
}

/* --- from files to host memory --------------------------------------------------------------------------- */

/* Submits a read of the next pages of one file; false where none can be requested now. */
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
        index_acquire(&t->index, en); /* so that making room for it cannot evict it */
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

/* Stops the restore: computing would be further by now. */
static bool falls_behind(const struct restore *r, double now)
{
    double elapsed = now - r->begin, grace = grace_share * r->compute;
    if (r->compute == 0 || elapsed < (grace > grace_least ? grace : grace_least))
        return false;
    return elapsed * r->n > r->compute * r->n_loaded;
}

/* Enters the pages of windows that came back into the device's cache. Returns the places whose pages are there. */
static uint32_t enter_loaded(struct restore *r)
{
    uint32_t end = r->end, had = r->had, n[KV_GROUPS_MAX] = {0};
    const struct model_entry *m = r->model;
    for (uint32_t k = 0; k < r->n_loaded; k++) {
        const struct restore_item *it = &r->item[k];
        n[it->group]++;
        if (it->place < r->table.n_cached) /* of a window; the others' nodes are made when the table is released */
            kv_enter(m->group.kv, &r->table, it->group, it->place);
    }
    if (r->n_loaded < r->n_window)
        return had;
    for (uint32_t g = 0; g < m->n_group; g++)
        if (sees_all(m, g) && r->first + n[g] < end)
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
    for (uint32_t i = r->n_loaded; i-- > 0;) { /* from the end on: the first pages are dropped last */
        struct tier_entry *en = look_up(r, i);
        if (en)
            index_touch(&t->index, en);
    }
    struct seq *q = r->seq;
    if (q) {
        q->restored_from = r->had * KV_PAGE;
        uint32_t end = enter_loaded(r);
        bool in_vain = end < r->end && has_windows(r->model); /* one goes on from the end there, or from nowhere */
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
