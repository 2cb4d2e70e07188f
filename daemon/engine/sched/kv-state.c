/*
 * kv-state.c - the pages of recurrent states: those of a running sequence, and which ones are kept; see kv.h. Pure.
 * Thread: the device thread's.
 */
#include "daemon/engine/sched/kv-internal.h"

#include <assert.h>

/* The position before the prompt's end where the state is kept, for sequences that resume at that end or a little
 * before it; 0: nowhere. */
static uint32_t before_end(const struct kv_table *t)
{
    return t->keep > KV_SLACK ? (t->keep - KV_SLACK) / KV_PAGE * KV_PAGE : 0;
}

/* The first position after `pos` where a state is kept. */
static uint32_t next_kept(const struct kv *kv, const struct kv_table *t, uint32_t pos)
{
    bool within = true;
    for (uint32_t g = 0; g < kv->n_group; g++)
        within &= !kv->group[g].shape.state || kv->group[g].shape.within;
    uint32_t each = within ? STATE_READ : STATE_READ_APART;
    uint32_t end = before_end(t), next = (pos / each + 1) * each, said = pos > t->keep ? pos : t->keep;
    if (pos >= end)
        next = (said / STATE_SAID + 1) * STATE_SAID;
    else if (end < next)
        next = end;
    return pos < t->part && t->part < next ? t->part : next;
}

bool kv_state_stays(const struct kv_table *t, uint32_t pos)
{
    return pos % STATE_SPARSE == 0 || pos == before_end(t) || pos == t->part;
}

uint32_t kv_cut(const struct kv *kv, struct kv_table *t, uint32_t done, uint32_t n)
{
    bool any = false, within = true;
    for (uint32_t g = 0; g < kv->n_group; g++) {
        any |= kv->group[g].shape.state;
        within &= !kv->group[g].shape.state || t->state[g].has[2];
    }
    if (!any)
        return n;
    assert(t->at == done);
    uint32_t end = next_kept(kv, t, done);
    t->within = within && done + n > end ? end : 0;
    end = t->within ? next_kept(kv, t, end) : end;
    return n < end - done ? n : end - done;
}

/* Releases one of the table's own pages. */
static void drop(struct kv *kv, struct kv_table *t, uint32_t group, int which)
{
    struct kv_state *s = &t->state[group];
    if (s->has[which])
        kv_page_unref(kv, group, s->page[which], kv_is_nobodys(t));
    s->has[which] = false;
}

/* Whether the next step, which ends at token n at most and has at most `ahead` tokens, may pass a place where a state
 * is kept. */
static bool passes(const struct kv *kv, const struct kv_table *t, uint32_t group, uint32_t n, uint32_t ahead)
{
    return kv->group[group].shape.within && next_kept(kv, t, t->at) < (n < t->at + ahead ? n : t->at + ahead);
}

void kv_state_spare(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t n, uint32_t ahead)
{
    if (!passes(kv, t, group, n, ahead))
        drop(kv, t, group, 2);
}

void kv_state_ahead(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t n, uint32_t ahead)
{
    struct kv_state *s = &t->state[group];
    if (!s->has[2] && passes(kv, t, group, n, ahead))
        s->has[2] = (s->page[2] = kv_page_alloc(kv, group, t->uid)) != KV_NONE;
}

/* Swaps the roles of the two pages after a step: the written one is read next. The page that was read is written next,
 * unless others reference it or it is cached; then it is released. */
static void turn(struct kv *kv, struct kv_table *t, uint32_t group)
{
    struct kv_state *s = &t->state[group];
    uint32_t was = s->page[0];
    bool had = s->has[0],
         own = had && kv->group[group].page[was].refs == 1 && kv->group[group].page[was].node == KV_NONE;
    assert(s->has[1]);
    if (!own)
        drop(kv, t, group, 0);
    s->page[0] = s->page[1];
    s->page[1] = was;
    s->has[0] = true;
    s->has[1] = own;
}

/* Releases the states before place `last`, except those that are to stay cached. While steps in flight sample the
 * tokens up to `last`, the timeline may still end before it, so nothing is released yet. */
static void let_go(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t last)
{
    uint32_t i = t->from[group];
    if (last >= t->n_cached && (last + 1) * KV_PAGE > t->keep)
        return;
    for (; i < last; i++) {
        if (t->page[group][i] == KV_NONE)
            continue;
        if (!kv_is_nobodys(t) && kv_state_stays(t, (i + 1) * KV_PAGE)) {
            if (i >= t->n_cached)
                break; /* until its step is done and it can stay in the cache */
            kv->group[group].page[t->page[group][i]].kept = true;
        }
        kv_release_page(kv, t, group, i, true);
    }
    t->from[group] = i;
}

/* Puts the page, which holds the state after `at` tokens and already has a reference for this, in its place of the
 * table. */
static void keep(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t at, uint32_t page)
{
    uint32_t last = at / KV_PAGE - 1;
    t->page[group][last] = page;
    if (last < t->n_cached)
        kv_enter(kv, t, group, last);
    let_go(kv, t, group, last);
}

/* Keeps the state that the step wrote to the third page from between its rows. */
static void keep_within(struct kv *kv, struct kv_table *t, uint32_t group)
{
    struct kv_state *s = &t->state[group];
    if (t->page[group][t->within / KV_PAGE - 1] != KV_NONE)
        return;
    s->has[2] = false;
    keep(kv, t, group, t->within, s->page[2]);
}

void kv_advance(struct kv *kv, struct kv_table *t, uint32_t done)
{
    if (done <= t->at)
        return;
    for (uint32_t g = 0; g < kv->n_group; g++) {
        if (!kv->group[g].shape.state)
            continue;
        turn(kv, t, g);
        if (t->within) /* after turn(): the page that was read may be the one that is replaced */
            keep_within(kv, t, g);
    }
    t->at = done;
    t->within = 0;
}

void kv_state_keep(struct kv *kv, struct kv_table *t, uint32_t group)
{
    struct kv_state *s = &t->state[group];
    uint32_t said = t->at / STATE_SAID * STATE_SAID; /* where the last state after the prompt was kept, if any was */
    if (said > t->keep && t->page[group][said / KV_PAGE - 1] != KV_NONE)
        let_go(kv, t, group, said / KV_PAGE - 1);
    if (!t->at || next_kept(kv, t, t->at - 1) != t->at || t->page[group][t->at / KV_PAGE - 1] != KV_NONE)
        return;
    kv_page_ref(kv, group, s->page[0]);
    keep(kv, t, group, t->at, s->page[0]);
}

void kv_state_take(struct kv *kv, struct kv_table *t, uint32_t group)
{
    struct kv_state *s = &t->state[group];
    uint32_t last = t->n - 1;
    s->page[0] = t->page[group][last];
    s->has[0] = true;
    if (last < t->n_cached)
        kv_page_ref(kv, group, s->page[0]);
    else /* continued in place: its node was removed */
        t->page[group][last] = KV_NONE;
}

void kv_state_leave(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t n)
{
    struct kv_state *s = &t->state[group];
    uint32_t last = n ? (n - 1) / KV_PAGE : 0;
    if (s->has[0] && n && n == t->at && t->page[group][last] == KV_NONE) {
        t->page[group][last] = s->page[0];
        s->has[0] = false;
        if (last < t->from[group])
            t->from[group] = last;
        if (last < t->n_cached)
            kv_enter(kv, t, group, last);
    }
    for (int which = 0; which < 3; which++)
        drop(kv, t, group, which);
}
