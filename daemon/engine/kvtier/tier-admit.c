/*
 * tier-admit.c - whether a restore is worthwhile: which pages of a timeline the device lacks and the tiers have, and up
 * to which place they are restored; see tier.h. Thread: the device thread's.
 */
#include "config.h"

#include <stdlib.h>

#include "daemon/engine/kvtier/tier-internal.h"

/* The pages of a timeline that the tiers have and the device lacks. */
struct found {
    /* [full] by group; NULL: the device has the page, or the tiers do not. */
    struct tier_entry **entry[KV_GROUPS_MAX];
    uint32_t full; /* places of the timeline that may be restored */
    /* Leading places whose pages exist, on the device or in the tiers, in all groups that see everything. */
    uint32_t reach;
    /* The places at which the timeline can be resumed: with the device's pages alone, and with those of the tiers. */
    uint32_t had, end;
};

/* The first place that a token at the beginning of place `end` sees; in a group of states, the last place before it. */
static uint32_t first_seen(const struct model_entry *m, uint32_t group, uint32_t end)
{
    if (m->kv[group].d_state)
        return end ? end - 1 : 0;
    return kv_first_visible(end * KV_PAGE, m->kv[group].window) / KV_PAGE;
}

/* Whether another sequence's restore, on the same model, brings that page. */
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

/* The measured prefill rate in tokens per second; 0 where it is not known, or the policy ignores it. */
static double compute_rate(const struct tier *t, const struct model_entry *m)
{
    return t->p.policy == TIER_BY_COST ? m->ns[0]->prefill_rate : 0;
}

/* The seconds that restoring the page takes. Disk and link work at the same time; the slower one counts. */
static double page_cost(const struct tier *t, const struct tier_entry *en)
{
    double read_rate = t->io ? atomic_load(&kvio_counters(t->io)->read_rate) : 0;
    double load_rate = atomic_load(&t->p.counters->device_rate), page = tier_page_bytes(en->ns);
    double load = load_rate > 0 ? page / load_rate : 0, read = read_rate > 0 ? page / read_rate : 0;
    return en->ready || read < load ? load : read;
}

/*
 * Returns the place up to which to restore; what lies behind it is computed. Both costs add up page by page, so the
 * best split is where restoring has saved most. Where a layer has a window, the timeline can be resumed at f->end only,
 * or restoring is not worth it.
 */
static uint32_t best_split(const struct tier *t, const struct model_entry *m, const struct found *f, uint32_t first)
{
    double tokens = compute_rate(t, m), compute = tokens > 0 ? KV_PAGE / tokens : 0, won = 0, most = 0;
    uint32_t best = f->had;
    bool windows = tier_has_windows(m);
    if (compute == 0)
        return f->end;
    for (uint32_t g = 0; g < m->n_group; g++)
        for (uint32_t i = first_seen(m, g, f->end); !tier_sees_all(m, g) && i < f->end; i++)
            won -= f->entry[g][i] ? page_cost(t, f->entry[g][i]) : 0;
    uint32_t known = first < f->end ? first : f->end; /* on the device already, where only windows are missing */
    won += (known - f->had) * compute;
    for (uint32_t i = first; i < f->end; i++) {
        won += compute;
        for (uint32_t g = 0; g < m->n_group; g++)
            won -= tier_sees_all(m, g) && f->entry[g][i] ? page_cost(t, f->entry[g][i]) : 0;
        if (won > most && !windows) {
            most = won;
            best = i + 1;
        }
    }
    return windows && won > 0 ? f->end : best;
}

/* Whether to wait for the scan of the directory: no longer than a fraction of what computing would take. */
static bool waits_for_scan(const struct tier *t, const struct model_entry *m, const struct seq *q, double now)
{
    static const double least = 0.1;
    bool scans = false;
    for (uint32_t g = 0; g < m->n_group; g++)
        scans |= m->ns[g]->scan != 0;
    if (!scans)
        return false;
    double rate = compute_rate(t, m), waited = q->tier_since > 0 ? now - q->tier_since : 0;
    double most = rate > 0 ? TIER_GRACE_SHARE * q->n_tokens / rate : 0;
    return rate == 0 || waited < (most > least ? most : least);
}

/*
 * Whether to wait for a page that was evicted from the device and from host memory while its file is still being
 * synced. The wait must cost little of the time that computing would take; without a measured rate, it is bounded in
 * case the disk hangs.
 */
static bool waits_for_file(const struct tier *t, const struct model_entry *m, const struct tier_entry *en,
                           const struct seq *q, double now)
{
    static const double unmeasured = 5;
    if (!en || !en->saving || en->ready || index_in_file(en))
        return false;
    double rate = compute_rate(t, m), waited = q->tier_since > 0 ? now - q->tier_since : 0;
    double most = rate > 0 ? TIER_GRACE_SHARE * q->n_tokens / rate : unmeasured;
    return waited < (most > TIER_GRACE_LEAST ? most : TIER_GRACE_LEAST);
}

static bool is_there(const struct tier_entry *en)
{
    return en && (en->ready || index_in_file(en));
}

static bool on_device(const struct restore *r, uint32_t group, uint32_t place)
{
    return place < r->table.n_cached && kv_has(r->model->group.kv, &r->table, group, place);
}

/* Finds the last places at which the timeline can be resumed: where groups that see everything have all pages, and the
 * others the windows or the state before it. */
static void find_ends(const struct restore *r, struct found *f)
{
    const struct model_entry *m = r->model;
    uint32_t run[KV_GROUPS_MAX] = {0}, run_device[KV_GROUPS_MAX] = {0};
    for (uint32_t i = 0; i < f->reach; i++) {
        bool usable = true, usable_device = i < r->first;
        for (uint32_t g = 0; g < m->n_group; g++) {
            if (tier_sees_all(m, g))
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

/* Looks for the pages that the device lacks; RESTORE_LATER where one will be available soon. The caller frees the entry
 * arrays. */
static enum restore_begun find_pages(const struct tier *t, const struct restore *r, const struct seq *q,
                                     struct found *f, double now)
{
    const struct kv_hash root = tier_root(q);
    const struct model_entry *m = r->model;
    f->reach = f->full;
    for (uint32_t g = 0; g < m->n_group; g++) {
        if (!(f->entry[g] = calloc(f->full, sizeof *f->entry[g])))
            return RESTORE_NOT;
        for (uint32_t i = tier_sees_all(m, g) ? r->first : 0; i < f->reach; i++) {
            if (on_device(r, g, i))
                continue;
            f->entry[g][i] =
                index_find(m->ns[g], &r->hash[i], i ? &r->hash[i - 1] : &root, q->uid, q->token + (size_t)i * KV_PAGE);
            if (tier_sees_all(m, g) && !is_there(f->entry[g][i])) {
                if (waits_for_file(t, m, f->entry[g][i], q, now))
                    return RESTORE_LATER;
                f->reach = i;
            }
        }
    }
    find_ends(r, f);
    for (uint32_t g = 0; g < m->n_group; g++) /* a window that will be available soon */
        for (uint32_t i = first_seen(m, g, f->reach); !tier_sees_all(m, g) && f->end < f->reach && i < f->reach; i++)
            if (waits_for_file(t, m, f->entry[g][i], q, now))
                return RESTORE_LATER;
    return f->end > f->had ? RESTORE_BEGUN : RESTORE_NOT;
}

/* Makes items for the table's private pages, windows first. */
static bool make_items(struct restore *r)
{
    const struct model_entry *m = r->model;
    for (int pass = 0; pass < 2; pass++) {
        uint32_t n = 0;
        for (int window = 1; window >= 0; window--)
            for (uint32_t g = 0; g < m->n_group; g++)
                for (uint32_t i = 0; i < r->end && tier_sees_all(m, g) != window; i++) {
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

/* Allocates pages for all that is to be restored, up to place `end`; where no group has a window, fewer if the pool is
 * too full. False: there is no room. */
static bool take_pages(struct restore *r, const struct found *f, uint32_t end)
{
    struct kv *kv = r->model->group.kv;
    uint32_t room = kv_available(kv), running = r->model->group.n_seq; /* one page for each sequence stays free */
    bool windows = tier_has_windows(r->model);
    room = room > running ? room - running : 0;
    if (!windows && end - r->first > room)
        end = r->first + room;
    if (end <= f->had)
        return false;
    if (end < r->first) {
        kv_truncate(kv, &r->table, end);
        r->first = end;
    }
    if (!kv_reserve(kv, &r->table, end * KV_PAGE) || (windows && kv_available(kv) < running))
        return false;
    r->had = f->had;
    r->end = end;
    models_run_kv_actions(r->model); /* clear the pages before they are filled, not after */
    return make_items(r) && r->n > 0;
}

static bool others_bring_it(const struct tier *t, const struct restore *r, const struct found *f)
{
    const struct model_entry *m = r->model;
    for (uint32_t g = 0; g < m->n_group; g++)
        for (uint32_t i = tier_sees_all(m, g) ? r->first : first_seen(m, g, f->end); i < f->end; i++)
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
    if (waits_for_scan(t, m, q, now))
        return RESTORE_LATER;
    struct restore *r = calloc(1, sizeof *r);
    if (!r || !(r->hash = tier_chain(q, f.full)))
        goto out;
    r->model = m;
    r->table.uid = q->uid;
    r->table.freq_set = q->kv.freq_set;
    r->first = kv_match_nodes(m->group.kv, &r->table, q->token, f.full * KV_PAGE);
    result = find_pages(t, r, q, &f, now);
    kv_parts(&q->kv, f.end * KV_PAGE, f.reach * KV_PAGE);
    if (result == RESTORE_BEGUN && others_bring_it(t, r, &f))
        result = RESTORE_LATER;
    if (result == RESTORE_BEGUN && !take_pages(r, &f, best_split(t, m, &f, r->first)))
        result = RESTORE_NOT;
    if (result != RESTORE_BEGUN) {
        kv_release(m->group.kv, &r->table, NULL, 0);
        goto out;
    }
    double rate = compute_rate(t, m);
    r->seq = q;
    r->begin = now;
    r->compute = rate > 0 ? (r->end - r->had) * KV_PAGE / rate : 0;
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
