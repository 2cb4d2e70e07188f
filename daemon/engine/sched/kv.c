/* kv.c - block tables: what a sequence finds in the cache, allocates, and leaves in the cache; see kv.h. Pure. Thread:
 * the device thread's. */
#include "daemon/engine/sched/kv-internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The first place whose page of the group a token at `pos` sees; in a group of states, the place of the token before
 * it. */
static uint32_t first_seen(const struct kv *kv, uint32_t group, uint32_t pos)
{
    if (kv->group[group].shape.state)
        return pos ? (pos - 1) / KV_PAGE : 0;
    return kv_first_visible(pos, kv->group[group].shape.window) / KV_PAGE;
}

/* The first place that is kept for sequences that resume at position `end` or a little before. */
static uint32_t first_kept(const struct kv *kv, uint32_t group, uint32_t end)
{
    uint32_t first = kv_first_visible(end, kv->group[group].shape.window);
    return first > KV_SLACK ? (first - KV_SLACK) / KV_PAGE : 0;
}

static bool is_kept(const struct kv *kv, uint32_t group, uint32_t i, uint32_t end)
{
    return i >= first_kept(kv, group, end) && i < kv_pages_for(end);
}

static bool table_reserve(const struct kv *kv, struct kv_table *t, uint32_t n)
{
    if (n <= t->cap)
        return true;
    uint32_t cap = n + n / 4 + 8;
    uint32_t *node = realloc(t->node, cap * sizeof *node);
    if (!node)
        return false;
    t->node = node;
    for (uint32_t g = 0; g < kv->n_group; g++) {
        uint32_t *page = realloc(t->page[g], cap * sizeof *page);
        if (!page)
            return false;
        t->page[g] = page;
    }
    t->cap = cap;
    return true;
}

/* Appends a place without pages; the capacity must suffice. */
static void append(const struct kv *kv, struct kv_table *t)
{
    for (uint32_t g = 0; g < kv->n_group; g++)
        t->page[g][t->n] = KV_NONE;
    t->n++;
}

static uint32_t last_node(const struct kv_table *t)
{
    return t->n_cached ? t->node[t->n_cached - 1] : KV_NONE;
}

bool kv_has(const struct kv *kv, const struct kv_table *t, uint32_t group, uint32_t i)
{
    return kv->node[t->node[i]].page[group] != KV_NONE;
}

void kv_hold(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t i)
{
    uint32_t page = kv->node[t->node[i]].page[group];
    assert(page != KV_NONE && t->page[group][i] == KV_NONE);
    kv_page_ref(kv, group, page);
    t->page[group][i] = page;
    if (i < t->from[group])
        t->from[group] = i;
}

bool kv_is_private(const struct kv *kv, const struct kv_table *t, uint32_t group, uint32_t i)
{
    return t->page[group][i] != KV_NONE && kv->group[group].page[t->page[group][i]].node == KV_NONE;
}

void kv_enter(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t i)
{
    uint32_t v = t->node[i], own = t->page[group][i], known = kv->node[v].page[group];
    if (own == KV_NONE || own == known)
        return;
    if (known == KV_NONE) {
        kv_node_attach(kv, v, group, own);
        return;
    }
    kv_page_ref(kv, group, known); /* two sequences computed the same prefix at once: one page suffices */
    t->page[group][i] = known;
    kv_page_unref(kv, group, own, true);
}

void kv_release_page(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t i, bool drop)
{
    uint32_t page = t->page[group][i];
    t->page[group][i] = KV_NONE;
    if (page != KV_NONE)
        kv_page_unref(kv, group, page, drop);
}

void kv_truncate(struct kv *kv, struct kv_table *t, uint32_t n)
{
    while (t->n > n) { /* last to first: a page outlives its children */
        uint32_t i = --t->n;
        for (uint32_t g = 0; g < kv->n_group; g++)
            kv_release_page(kv, t, g, i, kv_is_nobodys(t));
        if (i < t->n_cached) {
            t->n_cached = i;
            kv_node_unref(kv, t->node[i]);
        }
    }
    for (uint32_t g = 0; g < kv->n_group; g++)
        t->from[g] = t->from[g] < n ? t->from[g] : n;
}

/* --- what is cached ------------------------------------------------------------------------------------------- */

uint32_t kv_match_nodes(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n)
{
    assert(t->n == 0);
    if (!table_reserve(kv, t, kv_pages_for(n)))
        return 0;
    while ((t->n + 1) * KV_PAGE <= n) {
        uint32_t v = kv_node_find(kv, last_node(t), kv_key_of(t), ids + (size_t)t->n * KV_PAGE);
        if (v == KV_NONE)
            break;
        kv->node[v].refs++;
        append(kv, t);
        t->node[t->n_cached++] = v;
        for (uint32_t g = 0; g < kv->n_group; g++)
            if (kv_sees_all(kv, g))
                kv_hold(kv, t, g, t->n - 1);
    }
    for (uint32_t g = 0; g < kv->n_group; g++)
        t->from[g] = kv_sees_all(kv, g) ? 0 : t->n;
    return t->n;
}

/* Counts, for each group, the places up to i that have their pages without a gap. */
static void count_run(const struct kv *kv, const struct kv_table *t, uint32_t i, uint32_t run[KV_GROUPS_MAX])
{
    for (uint32_t g = 0; g < kv->n_group; g++)
        run[g] = kv_has(kv, t, g, i) ? run[g] + 1 : 0;
}

/* Whether the windows and states before position `end` are complete; the last run[g] places before `end` have their
 * pages. */
static bool sees_enough(const struct kv *kv, const uint32_t run[KV_GROUPS_MAX], uint32_t end)
{
    bool enough = true;
    for (uint32_t g = 0; g < kv->n_group; g++)
        enough = enough && (kv_sees_all(kv, g) || first_seen(kv, g, end) + run[g] >= end / KV_PAGE);
    return enough;
}

/* References the pages of the windows and states before position `end`, where the table ends. */
static void hold_windows(struct kv *kv, struct kv_table *t, uint32_t end)
{
    for (uint32_t g = 0; g < kv->n_group; g++)
        for (uint32_t i = t->n; !kv_sees_all(kv, g) && i-- > first_seen(kv, g, end);)
            kv_hold(kv, t, g, i);
}

/* Sets the states of the table's last place as those to continue from. */
static void take_states(struct kv *kv, struct kv_table *t, uint32_t end)
{
    t->at = end;
    for (uint32_t g = 0; g < kv->n_group && end; g++)
        if (kv->group[g].shape.state)
            kv_state_take(kv, t, g);
}

/* Whether the partial node has all that is needed to resume after `len` of its tokens; a state must cover exactly these
 * tokens. */
static bool is_usable(const struct kv *kv, uint32_t v, uint32_t len)
{
    bool usable = len > 0;
    for (uint32_t g = 0; g < kv->n_group && usable; g++)
        usable = kv->node[v].page[g] != KV_NONE && (!kv->group[g].shape.state || kv->node[v].n_tok == len);
    return usable;
}

/* Returns the last place at which the matched nodes can be resumed, as a count of places; *run is that of all matched
 * nodes. */
static uint32_t last_usable(const struct kv *kv, const struct kv_table *t, uint32_t run[KV_GROUPS_MAX])
{
    uint32_t best = 0;
    memset(run, 0, KV_GROUPS_MAX * sizeof *run);
    for (uint32_t i = 0; i < t->n; i++) {
        count_run(kv, t, i, run);
        if (sees_enough(kv, run, (i + 1) * KV_PAGE))
            best = i + 1;
    }
    return best;
}

/* Copies the pages of a node into the table's last place, for the sequence to continue in. */
static bool copy_pages(struct kv *kv, struct kv_table *t, uint32_t v)
{
    for (uint32_t g = 0; g < kv->n_group; g++) {
        uint32_t page = kv_page_alloc(kv, g, t->uid);
        t->page[g][t->n - 1] = page;
        if (page == KV_NONE)
            return false;
    }
    for (uint32_t g = 0; g < kv->n_group; g++)
        kv_action_push(kv, (struct kv_action){KV_COPY, g, t->page[g][t->n - 1], kv->node[v].page[g]});
    return true;
}

/* Takes the first `len` tokens of the node that follows all matched ones: in place, or as a copy. The table already
 * holds the windows before it. */
static bool take_partial(struct kv *kv, struct kv_table *t, uint32_t v, uint32_t len)
{
    uint32_t page[KV_GROUPS_MAX];
    if (!kv_action_reserve(kv, 2 * kv->n_group))
        return false;
    append(kv, t);
    memcpy(page, kv->node[v].page, sizeof page);
    for (uint32_t g = 0; g < kv->n_group; g++) /* so that the allocation below cannot evict them */
        kv_page_ref(kv, g, page[g]);
    if (kv->node[v].n_tok == len) { /* nothing is lost: continue it in place, as no table leads through such a node */
        kv_node_remove(kv, v);
        for (uint32_t g = 0; g < kv->n_group; g++)
            t->page[g][t->n - 1] = page[g];
        return true;
    }
    bool done = copy_pages(kv, t, v);
    for (uint32_t g = 0; g < kv->n_group; g++)
        kv_page_unref(kv, g, page[g], false);
    if (!done)
        kv_truncate(kv, t, t->n - 1);
    return done;
}

void kv_parts(struct kv_table *t, uint32_t from, uint32_t at)
{
    if (at >= from + PART_LEAST && at + KV_SLACK <= t->keep && at > t->part)
        t->part = at;
}

uint32_t kv_usable(const struct kv *kv, const struct kv_table *t)
{
    uint32_t run[KV_GROUPS_MAX];
    return last_usable(kv, t, run) * KV_PAGE;
}

uint32_t kv_match(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n)
{
    uint32_t run[KV_GROUPS_MAX], len, full = kv_match_nodes(kv, t, ids, n), matched = full * KV_PAGE;
    if (t->cap < kv_pages_for(n))
        return 0; /* no memory for the table */
    uint32_t usable = last_usable(kv, t, run);
    kv_parts(t, usable * KV_PAGE, matched);
    uint32_t left = n - matched < KV_PAGE ? n - matched : KV_PAGE - 1;
    uint32_t v = kv_node_find_partial(kv, last_node(t), kv_key_of(t), ids + matched, left, &len);
    if (is_usable(kv, v, len) && sees_enough(kv, run, matched + len)) {
        hold_windows(kv, t, matched + len);
        if (take_partial(kv, t, v, len)) {
            take_states(kv, t, matched + len);
            return matched + len;
        }
        for (uint32_t g = 0; g < kv->n_group; g++) /* these windows precede another position */
            for (uint32_t i = t->from[g]; !kv_sees_all(kv, g) && i < t->n; i++)
                kv_release_page(kv, t, g, i, false);
    }
    kv_truncate(kv, t, usable);
    hold_windows(kv, t, usable * KV_PAGE);
    take_states(kv, t, usable * KV_PAGE);
    return usable * KV_PAGE;
}

/* --- growth --------------------------------------------------------------------------------------------------- */

/* Releases the pages that the windows before position `done` have passed, except those that are kept. */
static void slide(struct kv *kv, struct kv_table *t, uint32_t done)
{
    for (uint32_t g = 0; g < kv->n_group; g++) {
        uint32_t end = kv->group[g].shape.state ? 0 : first_kept(kv, g, done), i = t->from[g];
        for (; i < end && i < t->n; i++) {
            if (t->page[g][i] == KV_NONE)
                continue;
            if (!kv_is_nobodys(t) && (is_kept(kv, g, i, t->keep) || is_kept(kv, g, i, t->part))) {
                if (i >= t->n_cached)
                    break; /* wait until its step is done and it can enter the cache */
                kv->group[g].page[t->page[g][i]].kept = true;
            }
            kv_release_page(kv, t, g, i, true);
        }
        t->from[g] = i;
    }
}

/* The places of a group, [*first, *end), where a table of `had` places may want pages in order to cover n tokens, the
 * first `done` of which are computed. A group of states has pages in places only where the content is `given` from
 * elsewhere, not computed. */
static void wanted(const struct kv *kv, uint32_t group, uint32_t had, uint32_t done, uint32_t n, uint32_t ahead,
                   bool given, uint32_t *first, uint32_t *end)
{
    bool all = kv_sees_all(kv, group);
    *first = all ? had : first_seen(kv, group, done);
    *end = kv_pages_for(all || n <= done || n - done <= ahead ? n : done + ahead);
    if (kv->group[group].shape.state && !given)
        *end = *first;
}

/* Whether the sequence lacks the page that its next step writes its state to. */
static bool lacks_state(const struct kv *kv, const struct kv_table *t, uint32_t group, bool given)
{
    return kv->group[group].shape.state && !given && !t->state[group].has[1];
}

static bool grow(struct kv *kv, struct kv_table *t, uint32_t done, uint32_t n, uint32_t ahead, bool given)
{
    uint32_t want = kv_pages_for(n), had = t->n, first, end;
    want = want > had ? want : had;
    slide(kv, t, done);
    if (!table_reserve(kv, t, want))
        return false;
    for (uint32_t g = 0; g < kv->n_group; g++) {
        uint32_t n_new = lacks_state(kv, t, g, given);
        wanted(kv, g, had, done, n, ahead, given, &first, &end);
        for (uint32_t i = first; i < end; i++) {
            if (i < t->n_cached && t->page[g][i] == KV_NONE && kv_has(kv, t, g, i))
                kv_hold(kv, t, g, i);
            n_new += i >= had || t->page[g][i] == KV_NONE;
        }
        kv_pages_ahead(kv, g, n_new);
        if (n_new > kv->group[g].n_free + kv->group[g].n_lru)
            return false;
    }
    while (t->n < want)
        append(kv, t);
    for (uint32_t g = 0; g < kv->n_group; g++) {
        wanted(kv, g, had, done, n, ahead, given, &first, &end);
        for (uint32_t i = first; i < end; i++)
            if (t->page[g][i] == KV_NONE && (t->page[g][i] = kv_page_alloc(kv, g, t->uid)) == KV_NONE) {
                kv_truncate(kv, t, had);
                return false;
            }
        if (first < end && first < t->from[g])
            t->from[g] = first;
        if (lacks_state(kv, t, g, given)) {
            t->state[g].page[1] = kv_page_alloc(kv, g, t->uid);
            t->state[g].has[1] = t->state[g].page[1] != KV_NONE;
            if (!t->state[g].has[1]) {
                kv_truncate(kv, t, had);
                return false;
            }
        }
    }
    return true;
}

bool kv_grow(struct kv *kv, struct kv_table *t, uint32_t done, uint32_t n, uint32_t ahead)
{
    kv_advance(kv, t, done);
    for (uint32_t g = 0; g < kv->n_group; g++)
        if (kv->group[g].shape.state) {
            kv_state_keep(kv, t, g);
            kv_state_spare(kv, t, g, n, ahead);
        }
    if (!grow(kv, t, done, n, ahead, false))
        return false;
    for (uint32_t g = 0; g < kv->n_group; g++)
        if (kv->group[g].shape.state)
            kv_state_ahead(kv, t, g, n, ahead);
    return true;
}

bool kv_reserve(struct kv *kv, struct kv_table *t, uint32_t n)
{
    return grow(kv, t, n, n, 0, true);
}

bool kv_joins_anywhere(const struct kv *kv)
{
    for (uint32_t g = 0; g < kv->n_group; g++)
        if (kv->group[g].shape.window || kv->group[g].shape.state)
            return false;
    return true;
}

static uint32_t available(const struct kv *kv, uint32_t group)
{
    const struct group *g = &kv->group[group];
    return g->n_free + g->n_lru + (kv->refused ? 0 : g->n_absent);
}

uint32_t kv_available(const struct kv *kv)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t g = 0; g < kv->n_group; g++)
        least = available(kv, g) < least ? available(kv, g) : least;
    return least;
}

void kv_lacks(const struct kv *kv, const struct kv_table *t, uint32_t done, uint32_t n, uint32_t ahead, uint32_t spare,
              uint32_t lacks[KV_GROUPS_MAX])
{
    uint32_t first, end;
    for (uint32_t g = 0; g < kv->n_group; g++) {
        uint32_t want = spare + lacks_state(kv, t, g, false), there = available(kv, g);
        wanted(kv, g, t->n, done, n, ahead, false, &first, &end);
        for (uint32_t i = first; i < end; i++)
            want += i >= t->n || t->page[g][i] == KV_NONE;
        lacks[g] = want > there ? want - there : 0;
    }
}

static void count_page(struct page *pg, bool leaves, uint32_t *freed)
{
    *freed -= pg->leaving == pg->refs;
    pg->leaving = leaves ? pg->leaving + 1 : pg->leaving - 1;
    *freed += pg->leaving == pg->refs;
}

void kv_count_leaving(struct kv *kv, const struct kv_table *t, bool leaves, uint32_t freed[KV_GROUPS_MAX])
{
    for (uint32_t g = 0; g < kv->n_group; g++) {
        struct page *page = kv->group[g].page;
        for (uint32_t i = t->from[g]; i < t->n; i++)
            if (t->page[g][i] != KV_NONE)
                count_page(&page[t->page[g][i]], leaves, &freed[g]);
        for (int which = 0; which < 3; which++)
            if (t->state[g].has[which])
                count_page(&page[t->state[g].page[which]], leaves, &freed[g]);
    }
}

uint32_t kv_most(uint32_t window, uint32_t ahead)
{
    return (window + ahead + 2 * KV_SLACK) / KV_PAGE + 2;
}

/* --- release -------------------------------------------------------------------------------------------------- */

void kv_publish(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n)
{
    while (t->n_cached < t->n && (t->n_cached + 1) * KV_PAGE <= n) {
        uint32_t i = t->n_cached, parent = last_node(t);
        const int32_t *id = ids + (size_t)i * KV_PAGE;
        uint32_t v = kv_node_find(kv, parent, kv_key_of(t), id);
        if (v == KV_NONE && (v = kv_node_add(kv, parent, i, kv_key_of(t), id, KV_PAGE)) == KV_NONE)
            return; /* no memory: a later call tries again */
        kv->node[v].refs++;
        t->node[t->n_cached++] = v;
        for (uint32_t g = 0; g < kv->n_group; g++)
            kv_enter(kv, t, g, i);
    }
}

/* Enters the unfinished place i, with n ids, into the cache, unless its content is there already. A cached node that is
 * a prefix of it becomes redundant and is removed. */
static void publish_tail(struct kv *kv, struct kv_table *t, uint32_t i, const int32_t *id, uint32_t n)
{
    uint32_t len, parent = last_node(t), match = kv_node_find_partial(kv, parent, kv_key_of(t), id, n, &len);
    bool whole = match != KV_NONE;
    for (uint32_t g = 0; g < kv->n_group && whole; g++)
        whole = kv->node[match].page[g] != KV_NONE;
    if (whole && len == n)
        return;
    if (match != KV_NONE && kv->node[match].n_tok == len) /* it is unfinished: no table leads through it */
        kv_node_remove(kv, match);
    bool any = false;
    for (uint32_t g = 0; g < kv->n_group; g++)
        any |= t->page[g][i] != KV_NONE;
    uint32_t v = any ? kv_node_add(kv, parent, i, kv_key_of(t), id, n) : KV_NONE;
    for (uint32_t g = 0; g < kv->n_group && v != KV_NONE; g++)
        if (t->page[g][i] != KV_NONE)
            kv_node_attach(kv, v, g, t->page[g][i]);
}

/* Whether the page at place i of a table that ends at token n stays cached after a sequence that resumed there has gone
 * on. While a sequence runs, a state is marked so only when the next one is kept, and only if its place is in the cache
 * by then; here the rest are. */
static bool outlasts(const struct kv *kv, const struct kv_table *t, uint32_t group, uint32_t i, uint32_t n)
{
    if (kv->group[group].shape.state)
        return i < t->n_cached && kv_state_stays(t, (i + 1) * KV_PAGE);
    return is_kept(kv, group, i, n);
}

void kv_release(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n)
{
    n = kv_is_nobodys(t) ? 0 : n;
    for (uint32_t g = 0; g < kv->n_group; g++) {
        if (!kv->group[g].shape.state)
            continue;
        for (uint32_t i = n / KV_PAGE; i < t->n; i++) /* steps in flight had gone on: states of more than n tokens */
            kv_release_page(kv, t, g, i, kv_is_nobodys(t));
        kv_state_leave(kv, t, g, n);
    }
    kv_publish(kv, t, ids, n);
    uint32_t full = n / KV_PAGE, rest = n % KV_PAGE;
    if (rest && full < t->n && full == t->n_cached)
        publish_tail(kv, t, full, ids + (size_t)full * KV_PAGE, rest);
    if (n)
        slide(kv, t, n);
    for (uint32_t g = 0; g < kv->n_group && n; g++)
        for (uint32_t i = t->from[g]; i < t->n; i++)
            if (t->page[g][i] != KV_NONE && outlasts(kv, t, g, i, n))
                kv->group[g].page[t->page[g][i]].kept = true;
    kv_truncate(kv, t, 0);
    free(t->node);
    for (uint32_t g = 0; g < kv->n_group; g++)
        free(t->page[g]);
    *t = (struct kv_table){.uid = t->uid, .freq_set = t->freq_set, .keep = t->keep, .part = t->part};
}
