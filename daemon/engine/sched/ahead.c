/*
 * ahead.c - waiting for pages that another sequence's prompt is about to fill; see sched.h. Pure.
 *
 * Several clients may send the same document at once. The first sequence computes it; the others, which would compute
 * the same beside it, wait and find it in the cache. That is quicker for all of them, as they share the device,
 * provided that it saves more than a step's fixed cost, the first is at least as far and is being served. The wait ends
 * when the first is preempted, ends, or is left out of two plans, so no sequence waits for one that waits itself.
 */
#include "daemon/engine/sched/sched-internal.h"

#include <string.h>

enum { ROWS_WORTH_A_STEP = 64 /* before the cost of rows is known */ };

/* The number of its tokens whose pages others can find. */
static uint32_t published(const struct seq *r)
{
    return r->kv.n_cached * KV_PAGE;
}

/* Whether r is likely to fill the pages up to `to` soon, and before q would. */
static bool fills(const struct sched *s, const struct seq *r, const struct seq *q, uint32_t to)
{
    const struct sched_group *g = q->group;
    if (r->state != SEQ_RUN || r->group != g || published(r) >= to)
        return false;
    return r->n_computed >= to || (r->class <= q->class && (r->planned == s->plans || r->planned >= g->planned[1]));
}

/* The length in tokens of the full pages that both begin with, limited to r's prompt and to what q may reuse. */
static uint32_t common(const struct seq *r, const struct seq *q)
{
    uint32_t n = 0, most = r->n_prompt < q->n_tokens - 1 ? r->n_prompt : q->n_tokens - 1;
    while ((n + 1) * KV_PAGE <= most &&
           !memcmp(r->token + n * KV_PAGE, q->token + n * KV_PAGE, KV_PAGE * sizeof *q->token))
        n++;
    return n * KV_PAGE;
}

uint32_t sched_cached(const struct sched_group *g, const struct seq *q)
{
    struct kv_table t = {.uid = q->uid, .freq_set = sched_freq_set(g, seq_len(q))};
    kv_match_nodes(g->kv, &t, q->token, q->n_tokens - 1);
    uint32_t n = kv_usable(g->kv, &t);
    kv_release(g->kv, &t, q->token, 0);
    return n;
}

/* Whether q, by waiting for pages up to `to`, saves more than waiting for a step may cost. */
static bool is_worth_it(const struct seq *r, const struct seq *q, uint32_t to)
{
    const struct cost *c = &q->group->cost;
    uint32_t has = sched_cached(q->group, q);
    if (has >= to || r->n_computed < has)
        return false;
    if (!cost_known(c))
        return to - has >= ROWS_WORTH_A_STEP;
    return cost_of_prompt(c, has, to - has) >= c->slope[COST_STEP];
}

static const struct seq *find(const struct sched *s, const struct seq *q)
{
    const struct seq *r;
    TAILQ_FOREACH (r, &s->list[SEQ_RUN], link)
        if (r == q->ahead.of && r->id == q->ahead.id)
            return r;
    return NULL;
}

/* Up to which position, at most the `to` tokens in common, a sequence that waits for r's pages may resume: in models
 * with windows or states, r must keep what precedes that position, and it has one such position at a time. */
static uint32_t joint(const struct seq *r, uint32_t to)
{
    const struct kv_table *t = &r->kv;
    if (kv_joins_anywhere(r->group->kv) || to + KV_SLACK > t->keep)
        return to; /* or from a little earlier, where r's prompt ends */
    if (t->part > r->n_computed)
        return t->part <= to ? t->part : 0;
    return to >= PART_LEAST && r->n_computed < to ? to : 0;
}

static void look(const struct sched *s, struct seq *q)
{
    struct seq *r;
    TAILQ_FOREACH (r, &s->list[SEQ_RUN], link) {
        if (r->group != q->group || r->uid != q->uid || r->kv.freq_set != q->kv.freq_set || r->eval ||
            published(r) + KV_PAGE > r->n_prompt)
            continue;
        uint32_t to = joint(r, common(r, q));
        if (to > q->ahead.to && fills(s, r, q, to) && is_worth_it(r, q, to)) {
            q->ahead.of = r;
            q->ahead.id = r->id;
            q->ahead.to = to;
        }
    }
    if (q->ahead.to && !kv_joins_anywhere(q->group->kv))
        kv_parts(&q->ahead.of->kv, 0, q->ahead.to);
}

bool sched_waits_for_pages(const struct sched *s, struct seq *q)
{
    const struct seq *r = q->ahead.to ? find(s, q) : NULL;
    if (r && fills(s, r, q, q->ahead.to))
        return true;
    q->ahead.to = 0;
    if (q->ahead.looked == s->admissions || q->eval || q->n_tokens < 2)
        return false; /* no sequence was admitted since that could fill them */
    q->ahead.looked = s->admissions;
    look(s, q);
    return q->ahead.to > 0;
}

uint32_t sched_cut_for_others(const struct sched *s, const struct seq *r, uint32_t n)
{
    const struct seq *q;
    uint32_t end = r->n_computed + n;
    TAILQ_FOREACH (q, &s->list[SEQ_WAIT], link)
        if (q->ahead.to > r->n_computed && q->ahead.to < end && q->ahead.of == r && q->ahead.id == r->id &&
            end - q->ahead.to > n / 8)
            end = q->ahead.to;
    return end - r->n_computed;
}
