/* room.c - seats and pages: admission, and the preemption of sequences to make room for it; see sched.h. Pure. */
#include "daemon/engine/sched/sched-internal.h"

#include "daemon/trace.h"

void sched_release(struct sched *s, struct seq *q, uint32_t n_keep)
{
    uint32_t n = q->n_computed < n_keep ? q->n_computed : n_keep;
    kv_advance(q->group->kv, &q->kv, q->n_computed);
    kv_release(q->group->kv, &q->kv, q->token, n < q->n_tokens ? n : q->n_tokens);
    s->slots &= ~(UINT64_C(1) << q->slot);
    q->slot_set = false;
    q->n_computed = 0;
}

static void preempt(struct sched *s, struct seq *q)
{
    if (s->parking.park)
        q->group->leaving += s->parking.park(s->parking.arg, q);
    q->parked = true;
    if (q->eval)
        q->eval->n_row = 0; /* all of its rows are computed again */
    sched_release(s, q, q->n_tokens);
    sched_set_state(s, q, SEQ_WAIT);
    trace(.stage = TRACE_PREEMPTED, .stream = q->stream, .seq = q->id, .n = {q->n_tokens});
}

bool sched_outgrew(struct sched *s, struct seq *q)
{
    uint32_t set = sched_freq_set(q->group, seq_len(q));
    if (set == q->kv.freq_set)
        return false;
    sched_release(s, q, q->n_tokens);
    q->kv.freq_set = set;
    q->n_high = 0;
    sched_set_state(s, q, SEQ_WAIT);
    trace(.stage = TRACE_OUTGREW, .stream = q->stream, .seq = q->id, .n = {q->n_tokens});
    return true;
}

void sched_hold(struct sched *s, struct sched_group *g, bool held)
{
    struct seq *q, *next;
    g->held = held;
    for (q = TAILQ_FIRST(&s->list[SEQ_RUN]); held && q; q = next) {
        next = TAILQ_NEXT(q, link);
        if (q->group == g)
            preempt(s, q);
    }
}

/* --- preemption: who makes way --------------------------------------------------------------------------- */

/* The running sequences among which victims are sought, and which of them will be preempted. */
struct room {
    struct seq *seq[BATCH_SEQS_MAX];
    bool leaves[BATCH_SEQS_MAX];
    uint32_t n;
    bool seats;                    /* counts seats, or else pages */
    uint32_t need;                 /* what the newcomer will hold */
    uint32_t lacks[KV_GROUPS_MAX]; /* what it lacks of that: seats, or pages of each pool; ... */
    uint32_t freed[KV_GROUPS_MAX]; /* ... and what is freed when the chosen victims are preempted */
    uint64_t plans;                /* sched.plans */
};

static void room_init(struct room *r, const struct sched *s, const struct sched_group *g, bool seats)
{
    struct seq *q;
    *r = (struct room){.seats = seats, .plans = s->plans};
    TAILQ_FOREACH (q, &s->list[SEQ_RUN], link)
        if (seats || q->group == g) /* all models share the seats */
            r->seq[r->n++] = q;
}

/* The sequence's part in what its user holds. A page that several sequences share counts for each of them: it is freed
 * only when they have all left (room.freed), but all of them read it. */
static uint32_t takes(const struct room *r, const struct seq *q)
{
    return r->seats ? 1 : q->kv.n;
}

/* What the user of `of` (or, with `user` false, its client) still holds once the chosen victims and `without` have been
 * preempted. */
static uint32_t holds(const struct room *r, const struct seq *of, bool user, const struct seq *without)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        const struct share *its = r->seq[i]->share;
        bool same = user ? its->user == of->share->user : its == of->share;
        n += same && !r->leaves[i] && r->seq[i] != without ? takes(r, r->seq[i]) : 0;
    }
    return n;
}

/* Whether `a` is preempted rather than `b`: the one of the lower class, else of two users' the one of the user that
 * holds more without it, else of two clients' likewise, else the younger. If of one client's the smaller left, it might
 * do so each time before it has computed again what it had, and never end. */
static bool leaves_before(const struct room *r, const struct seq *a, const struct seq *b)
{
    if (a->class != b->class)
        return a->class > b->class;
    for (int user = 1; user >= 0; user--) {
        bool same = user ? a->share->user == b->share->user : a->share == b->share;
        uint32_t of_a = holds(r, a, user, a), of_b = holds(r, b, user, b);
        if (!same && of_a != of_b)
            return of_a > of_b;
    }
    return a->arrival > b->arrival;
}

/* Whether the sequence has made progress for a quantum since it was admitted, and for four times as long as recomputing
 * its earlier tokens took: so turns end, and recomputation takes a fifth of the time at most. */
static bool has_had(const struct seq *q, double least, double now)
{
    double regained = q->regained_at - q->seated_at, quantum = 4 * regained;
    quantum = quantum > least ? quantum : least;
    return regained >= 0 && now - q->regained_at >= quantum;
}

/* Whether q's user has consumed less than v's, of their model's steps or, where they have different ones, in all. */
static bool has_had_less(const struct seq *q, const struct seq *v)
{
    return q->group == v->group ? share_before(q->turn, v->turn) : share_before(q->share, v->share);
}

/* Whether v makes way for the waiting q. */
static bool makes_way(const struct room *r, const struct seq *v, const struct seq *q, double now)
{
    if (v->planned == r->plans)
        return false; /* it is in the plan that is being made */
    if (v->class > q->class)
        return !v->aged || has_had(v, AGED_SECONDS, now);
    if (v->class < q->class && v->class < sched_class_by_age(q, now))
        return false;
    if (v->share == q->share)
        return false; /* within a client the older sequence goes first */
    bool user = v->share->user != q->share->user;
    if (v->class == q->class && holds(r, v, user, v) >= holds(r, q, user, NULL) + r->need)
        return true;
    return user && now - q->served_at >= QUANTUM_SECONDS && has_had(v, QUANTUM_SECONDS, now) && has_had_less(q, v);
}

/* Counts what is freed with the victim, or takes that back: its seat, or its pages and the one that it would need
 * before long (try_pages). */
static void count_freed(struct room *r, uint32_t i, bool leaves)
{
    for (int g = 0; g < KV_GROUPS_MAX; g++)
        r->freed[g] = leaves ? r->freed[g] + 1 : r->freed[g] - 1;
    if (!r->seats)
        kv_count_leaving(r->seq[i]->group->kv, &r->seq[i]->kv, leaves, r->freed);
}

static void choose(struct room *r, uint32_t i, bool leaves)
{
    r->leaves[i] = leaves;
    count_freed(r, i, leaves);
}

static bool is_enough(const struct room *r)
{
    for (int g = 0; g < KV_GROUPS_MAX; g++)
        if (r->freed[g] < r->lacks[g])
            return false;
    return true;
}

/* Chooses victims until q has what it lacks; false: those who may be preempted do not free enough. */
static bool find_victims(struct room *r, const struct seq *q, double now)
{
    uint32_t chosen[BATCH_SEQS_MAX], n = 0;
    while (!is_enough(r)) {
        uint32_t best = r->n;
        for (uint32_t i = 0; i < r->n; i++)
            if (!r->leaves[i] && makes_way(r, r->seq[i], q, now) &&
                (best == r->n || leaves_before(r, r->seq[i], r->seq[best])))
                best = i;
        if (best == r->n)
            break;
        choose(r, best, true);
        chosen[n++] = best;
    }
    bool enough = is_enough(r);
    /* One whose pages are shared may have freed few, so that the others suffice without it. */
    for (uint32_t k = n; enough && k-- > 0;) {
        choose(r, chosen[k], false);
        if (!is_enough(r))
            choose(r, chosen[k], true);
    }
    for (uint32_t i = 0; i < r->n; i++)
        if (r->leaves[i])
            count_freed(r, i, false);
    return enough;
}

static void preempt_victims(struct sched *s, const struct room *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (r->leaves[i])
            preempt(s, r->seq[i]);
}

bool sched_grow(struct sched *s, struct seq *q)
{
    while (!kv_grow(q->group->kv, &q->kv, q->n_computed, seq_len(q), sched_rows_max(s, q->group))) {
        struct room r;
        if (q->group->leaving)
            return false;
        room_init(&r, s, q->group, false);
        struct seq *v = r.seq[0];
        for (uint32_t i = 1; i < r.n; i++)
            v = leaves_before(&r, r.seq[i], v) ? r.seq[i] : v;
        if (v == q && q->inflight) /* kept windows are released once its steps are done: see slide() in kv.c */
            return false;
        preempt(s, v);
        if (v == q)
            return false;
    }
    return true;
}

/* --- admission ------------------------------------------------------------------------------------------- */

/* Tries to give q its pages; if there are too few, it has only those that it found in the cache. */
static bool try_pages(const struct sched *s, struct seq *q, const struct room *r, uint32_t *reused)
{
    struct kv *kv = q->group->kv;
    /* One token is always computed. Where the limit allows no completion it is the prompt's last one (rows_due); all
     * tokens after it are computed as well. */
    uint32_t whole = q->n_tokens < q->n_limit ? q->n_tokens : q->n_prompt, n_match = whole ? whole - 1 : 0;
    *reused = q->eval ? 0 : kv_match(kv, &q->kv, q->token, n_match);
    /* Each running sequence will need a page before long; admission into those pages would cause a preemption at
     * once. */
    return kv_grow(kv, &q->kv, *reused, q->n_tokens, sched_rows_max(s, q->group)) && kv_available(kv) >= r->n;
}

static bool take_pages(const struct sched *s, struct seq *q, uint32_t *reused)
{
    struct room r;
    room_init(&r, s, q->group, false);
    if (try_pages(s, q, &r, reused))
        return true;
    kv_release(q->group->kv, &q->kv, q->token, *reused);
    return false;
}

/* Whether there is a seat for q, or one was made by preemption. */
static bool find_seat(struct sched *s, const struct seq *q, double now)
{
    struct room r;
    if (s->count[SEQ_RUN] < BATCH_SEQS_MAX)
        return true;
    room_init(&r, s, q->group, true);
    r.need = r.lacks[0] = 1;
    if (!find_victims(&r, q, now))
        return false;
    preempt_victims(s, &r);
    return true;
}

static bool find_pages(struct sched *s, struct seq *q, uint32_t *reused, double now)
{
    const struct sched_group *group = q->group;
    struct room r;
    room_init(&r, s, group, false);
    if (try_pages(s, q, &r, reused))
        return true;
    r.need = (q->n_tokens + KV_PAGE - 1) / KV_PAGE;
    kv_lacks(group->kv, &q->kv, *reused, q->n_tokens, sched_rows_max(s, group), r.n, r.lacks);
    for (int g = 0; g < KV_GROUPS_MAX; g++)
        r.lacks[g] -= r.lacks[g] < group->leaving ? r.lacks[g] : group->leaving;
    bool soon = group->leaving && is_enough(&r);
    /* While q has the pages that it found, those do not count as freed by the victims that share them. */
    bool found = !soon && find_victims(&r, q, now);
    kv_release(group->kv, &q->kv, q->token, *reused);
    if (!found)
        return false;
    preempt_victims(s, &r);
    return take_pages(s, q, reused);
}

/* Whether the KV of a preempted sequence is fetched from other tiers, as there are pages for it again. */
static bool fetch(struct sched *s, struct seq *q, uint32_t reused)
{
    bool parked = q->parked;
    q->parked = false;
    if (!parked || !s->parking.fetch || reused + KV_PAGE >= q->n_tokens)
        return false;
    kv_release(q->group->kv, &q->kv, q->token, reused);
    return s->parking.fetch(s->parking.arg, q);
}

bool sched_admit(struct sched *s, struct seq *q, double now)
{
    uint32_t reused;
    bool aged = sched_class_by_age(q, now) < q->class;
    uint32_t set = sched_freq_set(q->group, seq_len(q));
    if (set != q->kv.freq_set) { /* tokens in flight when it was preempted have been added since */
        q->kv.freq_set = set;
        q->n_high = 0;
    }
    if (q->inflight || !find_seat(s, q, now) || !find_pages(s, q, &reused, now) || fetch(s, q, reused) ||
        (!q->kv.n && !take_pages(s, q, &reused)))
        return false;
    q->n_computed = reused;
    if (q->time.admit == 0) {
        q->time.admit = now;
        q->n_reused = q->n_accounted = reused < q->n_prompt ? reused : q->n_prompt;
    }
    s->admissions++;
    q->slot = (uint32_t)__builtin_ctzll(~s->slots);
    s->slots |= UINT64_C(1) << q->slot;
    q->seated_at = now;
    q->regained_at = reused >= q->n_high ? now : -1;
    q->aged = aged;
    sched_set_state(s, q, SEQ_RUN);
    trace(.stage = TRACE_ADMITTED, .stream = q->stream, .seq = q->id,
          .n = {reused, seq_n_restored(q), q->n_tokens - reused});
    return true;
}
