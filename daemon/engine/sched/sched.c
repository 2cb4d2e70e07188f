/* sched.c - the plan of a step; see sched.h. Pure. Thread: the device thread's. */
#include "daemon/engine/sched/sched.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "daemon/trace.h"

_Static_assert(BATCH_SEQS_MAX <= 64 && BATCH_SEQS_MAX <= SLOTS_MAX, "the slots in use are one 64-bit map");

void sched_init(struct sched *s, uint32_t rows_max, uint32_t out_max)
{
    assert(rows_max >= BATCH_SEQS_MAX && out_max >= BATCH_SEQS_MAX);
    memset(s, 0, sizeof *s);
    s->rows_max = rows_max;
    s->out_max = out_max;
    for (int i = 0; i < SEQ_STATES; i++)
        TAILQ_INIT(&s->list[i]);
    TAILQ_INIT(&s->groups);
}

void sched_group_add(struct sched *s, struct sched_group *g)
{
    TAILQ_INSERT_HEAD(&s->groups, g, link);
}

void sched_group_remove(struct sched *s, struct sched_group *g)
{
    assert(g->n_seq == 0);
    TAILQ_REMOVE(&s->groups, g, link);
}

/* A state is a list, and this function alone moves sequences between lists. */
static void set_state(struct sched *s, struct seq *q, enum seq_state state)
{
    if (q->state != SEQ_NEW) {
        TAILQ_REMOVE(&s->list[q->state], q, link);
        s->count[q->state]--;
    }
    q->state = state;
    if (state == SEQ_NEW)
        return;
    /* Inserts in order of arrival, which is nearly always at the end. */
    struct seq *before = TAILQ_LAST(&s->list[state], seq_list);
    while (before && before->arrival > q->arrival)
        before = TAILQ_PREV(before, seq_list, link);
    if (before)
        TAILQ_INSERT_AFTER(&s->list[state], before, q, link);
    else
        TAILQ_INSERT_HEAD(&s->list[state], q, link);
    s->count[state]++;
}

void sched_push(struct sched *s, struct sched_group *g, struct seq *q, double now)
{
    if (s->count[SEQ_WAIT] + s->count[SEQ_RUN])
        s->last_arrival = now;
    q->group = g;
    g->n_seq++;
    q->kv.uid = q->uid;
    q->kv.keep = q->n_prompt;
    q->arrival = ++s->arrivals;
    set_state(s, q, SEQ_WAIT);
}

/* Returns the number of tokens of the timeline that have yet to go through the model before the next one can be
 * sampled. */
static uint32_t rows_due(const struct seq *q)
{
    uint32_t len = seq_len(q);
    if (q->n_computed < q->n_prompt) /* the prompt is computed whole, even where nothing may follow it */
        return len - q->n_computed;
    return len < q->n_limit ? len - q->n_computed : 0;
}

/* Releases pages and slot. Computed KV stays in the prefix cache until its pages are evicted. */
static void release_kv(struct sched *s, struct seq *q, uint32_t n_keep)
{
    uint32_t n = q->n_computed < n_keep ? q->n_computed : n_keep;
    kv_release(q->group->kv, &q->kv, q->token, n < q->n_tokens ? n : q->n_tokens);
    s->slots &= ~(UINT64_C(1) << q->slot);
    q->slot_set = false;
    q->n_computed = 0;
}

static void preempt(struct sched *s, struct seq *q)
{
    release_kv(s, q, q->n_tokens);
    set_state(s, q, SEQ_WAIT);
    trace(.stage = TRACE_PREEMPTED, .stream = q->stream, .seq = q->id, .n = {q->n_tokens});
}

static struct seq *preemption_victim(struct sched *s, const struct sched_group *g)
{
    struct seq *q;
    TAILQ_FOREACH_REVERSE(q, &s->list[SEQ_RUN], seq_list, link)
    if (q->group == g)
        return q;
    return NULL;
}

/* Allocates pages for the sequence's whole timeline, by preempting younger ones if need be. False: it was itself the
 * youngest and was preempted. */
static bool ensure_pages(struct sched *s, struct seq *q)
{
    while (!kv_grow(q->group->kv, &q->kv, q->n_computed, seq_len(q), s->rows_max)) {
        struct seq *victim = preemption_victim(s, q->group);
        preempt(s, victim);
        if (victim == q)
            return false;
    }
    return true;
}

/* Schedules up to n rows of a running sequence in the plan. */
static void schedule_rows(struct plan *p, struct seq *q, uint32_t n, uint32_t out_max)
{
    uint32_t due = rows_due(q);
    struct plan_seq *ps = &p->seq[p->n_seq];
    if (n > due)
        n = due;
    if (q->eval && q->eval->top && n > out_max - p->n_out)
        n = out_max - p->n_out;
    bool last = n == due;
    bool continues = last && seq_len(q) < q->n_limit;
    if (n == 0 || (continues && p->n_out == out_max))
        return;
    *ps = (struct plan_seq){.seq = q, .n_row = n, .pos0 = q->n_computed, .index = seq_len(q) - q->n_prompt};
    ps->sample = continues && !q->eval;
    ps->n_out = q->eval && q->eval->top ? n : continues;
    p->n_seq++;
    p->n_row += n;
    p->work.decode += due == 1 ? 1 : 0;
    p->work.prompt += due == 1 ? 0 : n;
    p->work.keys += cost_keys(ps->pos0, n);
    p->n_out += ps->n_out;
    p->n_sample += ps->sample;
    p->eval |= q->eval != NULL;
    p->invariant |= q->invariant;

    q->n_computed += n;
    q->inflight++;
    if (ps->sample)
        q->n_pending++;
    uint32_t counted = q->n_computed < q->n_prompt ? q->n_computed : q->n_prompt;
    if (counted > q->n_accounted) {
        ps->n_accounted = counted - q->n_accounted;
        p->n_accounted += q->eval ? 0 : ps->n_accounted;
        q->n_accounted = counted;
    }
}

/* What a step may still spend on prompts. */
struct budget {
    uint32_t rows;
    double seconds; /* INFINITY: any */
};

/* Whether another model has work, so that its sequences wait for the end of this one's step. */
static bool others_wait(const struct sched *s, const struct sched_group *g)
{
    const struct sched_group *other;
    TAILQ_FOREACH (other, &s->groups, link)
        if (other != g && other->n_seq)
            return true;
    return false;
}

/* The budget for prompts beside this work of decoding. */
static struct budget prompt_budget(const struct sched *s, const struct sched_group *g, const struct cost_work *decoding,
                                   double now)
{
    const struct sched_pace *pace = &g->pace;
    struct budget b = {s->rows_max - decoding->decode, INFINITY};
    bool awaited = (decoding->decode || others_wait(s, g)) && pace->gap > 0;
    if (!awaited && pace->alone <= 0)
        return b;
    if (!cost_known(&g->cost)) {
        b.rows = b.rows < pace->rows_first ? b.rows : pace->rows_first;
        return b;
    }
    double without = cost_of(&g->cost, decoding), quiet = now - s->last_arrival, whole = pace->gap;
    if (!awaited)
        whole = quiet < pace->gap ? pace->gap : quiet < pace->alone ? quiet : pace->alone;
    b.seconds = whole - without > without ? whole - without : without;
    return b;
}

/* How many prompt rows from the sequence's position on the budget has; at least one, so that it goes on. */
static uint32_t rows_within(const struct seq *q, const struct budget *b)
{
    uint32_t n = b->rows;
    if (b->seconds < INFINITY)
        n = cost_prompt_rows(&q->group->cost, q->n_computed, b->seconds, n);
    return n || !b->rows || b->seconds <= 0 ? n : 1;
}

/*
 * Returns how many of the `n` prompt rows that q could have it reserves for newer prompts: a first chunk each, half of
 * all at most. So a long prompt is not slowed by more than half, and a short one behind it is answered in its first
 * step.
 */
static uint32_t reserve_for_newer(const struct sched *s, const struct seq *q, uint32_t n)
{
    enum { PIECE = 32 };
    uint32_t reserved = 0;
    const struct seq *o = TAILQ_NEXT(q, link); /* running */
    for (; o && reserved < n / 2; o = TAILQ_NEXT(o, link)) {
        uint32_t due = o->group == q->group ? rows_due(o) : 0;
        reserved += due < 2 ? 0 : due < PIECE ? due : PIECE;
    }
    o = TAILQ_FIRST(&s->list[SEQ_WAIT]);
    for (; o && reserved < n / 2; o = TAILQ_NEXT(o, link))
        if (o->group == q->group)
            reserved += o->n_tokens < PIECE ? o->n_tokens : PIECE;
    return reserved < n / 2 ? reserved : n / 2;
}

/* Schedules what the budget has for the prompt of a running sequence. Where that is not all of it the chunk ends with a
 * page, if little of it is lost, so that others find it in the prefix cache. */
static void schedule_prompt(const struct sched *s, struct plan *p, struct seq *q, struct budget *b)
{
    uint32_t had = p->n_row, pos0 = q->n_computed, n = rows_within(q, b);
    n -= reserve_for_newer(s, q, n);
    uint32_t beyond = (pos0 + n) % KV_PAGE;
    if (n < rows_due(q) && beyond <= n / 8)
        n -= beyond;
    schedule_rows(p, q, n, s->out_max);
    b->rows -= p->n_row - had;
    b->seconds -= cost_of_prompt(&q->group->cost, pos0, p->n_row - had);
}

/* Walks the running sequences, oldest first: a preemption victim is always younger, so not in the plan yet. */
static struct budget plan_running(struct sched *s, struct sched_group *g, struct plan *p, double now)
{
    struct seq *q, *next;
    struct cost_work decoding = {0};
    TAILQ_FOREACH (q, &s->list[SEQ_RUN], link)
        if (q->group == g && rows_due(q) == 1) {
            decoding.decode++;
            decoding.keys += cost_keys(q->n_computed, 1);
        }
    struct budget b = prompt_budget(s, g, &decoding, now);
    for (q = TAILQ_FIRST(&s->list[SEQ_RUN]); q; q = next) {
        uint32_t due = rows_due(q);
        if (q->group == g && due && !ensure_pages(s, q))
            break; /* q was the youngest, so no sequence is left */
        next = TAILQ_NEXT(q, link);
        if (q->group != g || !due)
            continue;
        if (due == 1)
            schedule_rows(p, q, 1, s->out_max);
        else
            schedule_prompt(s, p, q, &b);
    }
    return b;
}

static bool admit(struct sched *s, struct seq *q, double now)
{
    struct kv *kv = q->group->kv;
    uint32_t running = 0;
    struct seq *other;
    TAILQ_FOREACH (other, &s->list[SEQ_RUN], link)
        running += other->group == q->group;
    /* One token is always computed. Where the limit allows no completion that is the prompt's last one (rows_due); all
     * tokens after it are computed as well. */
    uint32_t whole = q->n_tokens < q->n_limit ? q->n_tokens : q->n_prompt, n_match = whole ? whole - 1 : 0;
    uint32_t reused = q->eval ? 0 : kv_match(kv, &q->kv, q->token, n_match);
    /* Each running sequence will need a page before long; admission into those pages would cause a preemption at
     * once. */
    if (!kv_grow(kv, &q->kv, reused, q->n_tokens, s->rows_max) || kv_available(kv) < running) {
        kv_release(kv, &q->kv, q->token, reused);
        return false;
    }
    q->n_computed = reused;
    if (q->time.admit == 0) {
        q->time.admit = now;
        q->n_reused = q->n_accounted = reused < q->n_prompt ? reused : q->n_prompt;
    }
    q->slot = (uint32_t)__builtin_ctzll(~s->slots);
    s->slots |= UINT64_C(1) << q->slot;
    set_state(s, q, SEQ_RUN);
    trace(.stage = TRACE_ADMITTED, .stream = q->stream, .seq = q->id,
          .n = {reused, seq_n_restored(q), q->n_tokens - reused});
    return true;
}

static void plan_waiting(struct sched *s, struct sched_group *g, struct plan *p, struct budget *b, double now)
{
    struct seq *q, *next;
    for (q = TAILQ_FIRST(&s->list[SEQ_WAIT]); q; q = next) {
        next = TAILQ_NEXT(q, link);
        if (q->group != g)
            continue;
        if (!b->rows || b->seconds <= 0 || s->count[SEQ_RUN] == BATCH_SEQS_MAX || q->inflight || !admit(s, q, now))
            break; /* in order of arrival: no sequence overtakes another */
        schedule_prompt(s, p, q, b);
    }
}

/* Sorts the entries, those that sample first and those with other logits last, and assigns the rows. */
static void assign_rows(struct plan *p)
{
    struct plan_seq sorted[BATCH_SEQS_MAX];
    uint32_t n = 0, row = 0;
    for (int pass = 0; pass < 3; pass++)
        for (uint32_t i = 0; i < p->n_seq; i++) {
            const struct plan_seq *ps = &p->seq[i];
            int rank = ps->sample ? 0 : ps->n_out ? 2 : 1;
            if (rank == pass)
                sorted[n++] = *ps;
        }
    for (uint32_t i = 0; i < n; i++) {
        sorted[i].row0 = row;
        row += sorted[i].n_row;
        p->seq[i] = sorted[i];
    }
}

bool sched_next(struct sched *s, struct plan *p, double now)
{
    struct sched_group *g;
    TAILQ_FOREACH (g, &s->groups, link) {
        if (!g->n_seq)
            continue;
        memset(p, 0, offsetof(struct plan, seq));
        p->group = g;
        struct budget b = plan_running(s, g, p, now);
        plan_waiting(s, g, p, &b, now);
        if (p->n_seq == 0)
            continue;
        p->expected = cost_known(&g->cost) ? cost_of(&g->cost, &p->work) : 0;
        assign_rows(p);
        TAILQ_REMOVE(&s->groups, g, link); /* the group goes to the end: the other models have their turn */
        TAILQ_INSERT_TAIL(&s->groups, g, link);
        return true;
    }
    return false;
}

static void free_if_drained(struct sched *s, struct seq *q)
{
    if (q->inflight)
        return;
    q->group->n_seq--;
    set_state(s, q, SEQ_NEW);
    seq_free(q);
}

static void leave_step(struct seq *q, const struct plan_seq *ps)
{
    q->inflight--;
    if (ps->sample)
        q->n_pending--;
}

void sched_undo(struct sched *s, const struct plan_seq *ps)
{
    struct seq *q = ps->seq;
    leave_step(q, ps);
    q->n_accounted -= ps->n_accounted;
    if (q->state == SEQ_RUN)
        q->n_computed = ps->pos0;
    else if (q->state == SEQ_DRAIN)
        free_if_drained(s, q);
}

void sched_done(struct sched *s, const struct plan_seq *ps)
{
    struct seq *q = ps->seq;
    leave_step(q, ps);
    if (q->state == SEQ_RUN)
        kv_publish(q->group->kv, &q->kv, q->token, q->n_computed < q->n_tokens ? q->n_computed : q->n_tokens);
    else if (q->state == SEQ_DRAIN)
        free_if_drained(s, q);
}

void sched_end(struct sched *s, struct seq *q, uint32_t n_keep)
{
    if (q->state == SEQ_RUN)
        release_kv(s, q, n_keep);
    set_state(s, q, SEQ_DRAIN);
    free_if_drained(s, q);
}
