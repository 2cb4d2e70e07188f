/* sched.c - the plan of a step; see sched.h. Pure. Thread: the device thread's. */
#include "daemon/engine/sched/sched-internal.h"

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
    shares_init(&s->shares);
}

void sched_fini(struct sched *s)
{
    assert(s->slots == 0);
    shares_fini(&s->shares);
}

void sched_group_add(struct sched *s, struct sched_group *g)
{
    shares_init(&g->shares);
    TAILQ_INSERT_HEAD(&s->groups, g, link);
}

void sched_group_remove(struct sched *s, struct sched_group *g)
{
    assert(g->n_seq == 0);
    shares_fini(&g->shares);
    TAILQ_REMOVE(&s->groups, g, link);
}

void sched_set_state(struct sched *s, struct seq *q, enum seq_state state)
{
    if (q->state != SEQ_NEW) {
        TAILQ_REMOVE(&s->list[q->state], q, link);
        s->count[q->state]--;
    }
    q->state = state;
    if (state == SEQ_NEW)
        return;
    /* Insert in order of arrival, which is nearly always at the end. */
    struct seq *before = TAILQ_LAST(&s->list[state], seq_list);
    while (before && before->arrival > q->arrival)
        before = TAILQ_PREV(before, seq_list, link);
    if (before)
        TAILQ_INSERT_AFTER(&s->list[state], before, q, link);
    else
        TAILQ_INSERT_HEAD(&s->list[state], q, link);
    s->count[state]++;
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

/* Whether tokens of the prompt of a sequence, which waits or runs, are still to be read. */
static bool has_unread(const struct seq *q)
{
    return q->state == SEQ_WAIT || rows_due(q) > 1;
}

/* Whether the group has prompts of that class still to be read. */
static bool has_prompts(const struct sched *s, const struct sched_group *g, enum seq_class class)
{
    const struct seq *q;
    for (int state = SEQ_WAIT; state <= SEQ_RUN; state++)
        TAILQ_FOREACH (q, &s->list[state], link)
            if (q->group == g && q->class == class && has_unread(q))
                return true;
    return false;
}

/* Called before a prompt may join the class, so that it does not count as waiting since before it did. */
static void note_absence(const struct sched *s, struct sched_group *g, enum seq_class class, double now)
{
    if (!has_prompts(s, g, class))
        g->read_at[class] = now;
}

static struct share *account_of(const struct seq *q, bool turn, bool user)
{
    struct share *client = turn ? q->turn : q->share;
    return user ? client->user : client;
}

/* Called before q's prompt competes with others of that class: its user's or client's account catches up with theirs,
 * unless it competes with them already, as it is owed only what it has waited for. */
static void catch_up(const struct sched *s, const struct seq *q, enum seq_class class, bool turn, bool user)
{
    struct share *own = account_of(q, turn, user);
    const struct seq *other;
    double least = INFINITY;
    for (int state = SEQ_WAIT; state <= SEQ_RUN; state++)
        TAILQ_FOREACH (other, &s->list[state], link) {
            if (other == q || other->class > class || !has_unread(other) || (turn && other->group != q->group))
                continue;
            const struct share *its = account_of(other, turn, user);
            if (its == own)
                return;
            if (its->user == own->user && its->work < least)
                least = its->work;
        }
    share_catch_up(turn ? &q->group->shares : &s->shares, own, least);
}

static void catch_up_all(const struct sched *s, const struct seq *q, enum seq_class class)
{
    for (int turn = 0; turn < 2; turn++)
        for (int user = 0; user < 2; user++)
            catch_up(s, q, class, turn, user);
}

void sched_push(struct sched *s, struct sched_group *g, struct seq *q, double now)
{
    bool comes_back = q->arrival > 0;
    if (!comes_back)
        sched_note_arrival(s, now);
    q->group = g;
    if (!g->n_seq++)
        g->line_stands = false;
    q->kv.uid = q->uid;
    q->kv.keep = q->n_prompt;
    q->kv.freq_set = sched_freq_set(g, seq_len(q));
    q->arrival = comes_back ? q->arrival : ++s->arrivals;
    note_absence(s, g, q->class, now);
    q->share = share_join(&s->shares, q->uid, q->client);
    q->turn = share_join(&g->shares, q->uid, q->client);
    catch_up_all(s, q, q->class);
    q->served_at = comes_back ? q->served_at : now;
    sched_set_state(s, q, SEQ_WAIT);
}

void sched_set_class(const struct sched *s, struct seq *q, enum seq_class c, double now)
{
    static const char *const names[] = {"interactive", "normal", "background"};
    if (q->group)
        note_absence(s, q->group, c, now);
    if (q->share && c < q->class && has_unread(q))
        catch_up_all(s, q, c);
    q->class = c;
    trace(.stage = TRACE_CLASS, .stream = q->stream, .seq = q->id, .word = names[c]);
}

/* --- ordering -------------------------------------------------------------------------------------------- */

enum seq_class sched_class_by_age(const struct seq *q, double now)
{
    bool decodes = q->state == SEQ_RUN && rows_due(q) == 1;
    double steps = (now - (decodes ? q->served_at : q->group->read_at[q->class])) / AGE_SECONDS;
    return steps < 1 ? q->class : steps >= (double)q->class ? CLASS_INTERACTIVE : q->class - (enum seq_class)steps;
}

/* Whether `a` goes before `b`. */
static bool sched_before(const struct seq *a, const struct seq *b, double now)
{
    enum seq_class of_a = sched_class_by_age(a, now), of_b = sched_class_by_age(b, now);
    if (of_a != of_b)
        return of_a < of_b;
    if (share_before(a->turn, b->turn) || share_before(b->turn, a->turn))
        return share_before(a->turn, b->turn);
    if (a->deadline != b->deadline)
        return a->deadline > 0 && (b->deadline <= 0 || a->deadline < b->deadline);
    return a->arrival < b->arrival;
}

/* --- the plan -------------------------------------------------------------------------------------------- */

/* Schedules up to n rows of a running sequence in the plan. */
static void schedule_rows(const struct sched *s, struct plan *p, struct seq *q, uint32_t n, uint32_t out_max,
                          double now)
{
    uint32_t due = rows_due(q), out_left = out_max > p->n_out ? out_max - p->n_out : 0;
    struct plan_seq *ps = &p->seq[p->n_seq];
    if (n > due)
        n = due;
    if (q->n_computed < q->n_prompt && n > q->n_prompt - q->n_computed)
        n = q->n_prompt - q->n_computed; /* generated tokens are recomputed in another way: see enum invariance */
    if (q->eval && q->eval->top && n > out_left)
        n = out_left;
    n = kv_cut(q->group->kv, &q->kv, q->n_computed, n);
    bool last = n == due;
    bool continues = last && seq_len(q) < q->n_limit;
    if (n == 0 || (continues && !out_left))
        return;
    *ps = (struct plan_seq){.seq = q, .n_row = n, .pos0 = q->n_computed, .index = seq_len(q) - q->n_prompt};
    ps->n_within = q->kv.within ? q->kv.within - ps->pos0 : 0;
    ps->decodes = due == 1;
    ps->answers = q->n_computed >= q->n_prompt && !q->eval;
    ps->sample = continues && !q->eval;
    ps->n_out = q->eval && q->eval->top ? n : continues;
    p->n_seq++;
    p->n_row += n;
    *(ps->decodes ? &p->work.decode : &p->work.prompt) += n;
    p->work.keys += cost_keys(ps->pos0, n);
    p->n_out += ps->n_out;
    p->n_sample += ps->sample;
    p->eval |= q->eval != NULL;

    q->served_at = now;
    if (!ps->decodes)
        q->group->read_at[q->class] = now;
    q->planned = s->plans;
    q->n_computed += n;
    if (q->n_computed >= q->n_high) {
        q->n_high = q->n_computed;
        q->regained_at = q->regained_at < 0 ? now : q->regained_at;
    }
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

/* A group's running sequences that have rows due, in the order of sched_before(), followed by those admitted since. */
struct running {
    struct seq *seq[2 * BATCH_SEQS_MAX];
    uint32_t n;
};

/* What a step may still spend on prompts. */
struct budget {
    uint32_t rows;
    uint32_t out;   /* rows with logits */
    double seconds; /* INFINITY: no bound */
};

/* Whether another model has work, so that its sequences wait for this one's step to end. */
static bool others_wait(const struct sched *s, const struct sched_group *g)
{
    const struct sched_group *other;
    TAILQ_FOREACH (other, &s->groups, link)
        if (other != g && other->n_seq && !other->held)
            return true;
    return false;
}

/* How many rows of a prompt from position pos0 on a step has that is sized in rows: `rows_alone`, doubled as long as
 * that stays within `seconds`. */
static uint32_t rows_by_halves(const struct sched_group *g, uint32_t most, uint32_t pos0, double seconds)
{
    uint32_t n = g->pace.rows_alone;
    while (n < most && g->cost.row > 0) {
        uint32_t more = 2 * n < most ? 2 * n : most;
        if (cost_of_prompt(&g->cost, pos0, more) > seconds || more * g->cost.row > seconds)
            break;
        n = more;
    }
    return n < most ? n : most;
}

/* The position of the running prompt that is furthest ahead. */
static uint32_t furthest(const struct running *r)
{
    uint32_t pos = 0;
    for (uint32_t i = 0; i < r->n; i++)
        if (rows_due(r->seq[i]) > 1 && r->seq[i]->n_computed > pos)
            pos = r->seq[i]->n_computed;
    return pos;
}

/* The budget in time for prompts beside the given decoding work. */
static struct budget budget_by_time(const struct sched *s, const struct sched_group *g, const struct plan *p,
                                    const struct running *r, const struct cost_work *decoding, double now)
{
    const struct sched_pace *pace = &g->pace;
    uint32_t most = sched_rows_max(s, g);
    bool awaited = (decoding->decode || others_wait(s, g)) && pace->gap > 0, by_rows = !awaited && pace->rows_alone;
    if ((awaited || p->users) && pace->rows_alone && pace->rows_alone < most)
        most = pace->rows_alone;
    struct budget b = {most - decoding->decode, s->out_max - decoding->decode, INFINITY};
    if (!awaited && pace->alone <= 0)
        return b;
    if (!cost_known(&g->cost)) {
        uint32_t first = by_rows ? pace->rows_alone : pace->rows_first;
        b.rows = b.rows < first ? b.rows : first;
        return b;
    }
    double without = cost_of(&g->cost, decoding), quiet = now - s->last_arrival, whole = pace->gap;
    if (!awaited) {
        double least = pace->least > 0 ? pace->least : pace->gap;
        whole = quiet < least ? least : quiet < pace->alone ? quiet : pace->alone;
    }
    if (by_rows)
        b.rows = rows_by_halves(g, b.rows, furthest(r), whole - without);
    else
        b.seconds = whole - without > without ? whole - without : without;
    return b;
}

/* The budget for prompts beside the given decoding work. */
static struct budget prompt_budget(const struct sched *s, const struct sched_group *g, const struct plan *p,
                                   const struct running *r, const struct cost_work *decoding, double now)
{
    struct budget b = budget_by_time(s, g, p, r, decoding, now);
    uint32_t most = g->rows_short;
    if (most && decoding->decode) /* they have the other half; a single row is theirs every other time */
        most = (most + !g->has_read) / 2;
    if (g->rows_short && b.rows > most)
        b.rows = most;
    return b;
}

/* How many prompt rows from the sequence's position on fit the budget; at least one while any budget is left, so that
 * the sequence progresses. */
static uint32_t rows_within(const struct seq *q, const struct budget *b)
{
    uint32_t n = b->rows;
    if (b->seconds < INFINITY)
        n = cost_prompt_rows(&q->group->cost, q->n_computed, b->seconds, n);
    return n || !b->rows || b->seconds <= 0 ? n : 1;
}

/* Schedules as much of a running sequence's prompt as the budget allows; false: nothing. A chunk that is not all of it
 * ends on a page boundary if that costs few rows, so that others find the page in the prefix cache. */
static bool schedule_prompt(const struct sched *s, struct plan *p, struct seq *q, struct budget *b, double now)
{
    uint32_t had = p->n_row, pos0 = q->n_computed, n = rows_within(q, b), beyond = (pos0 + n) % KV_PAGE;
    if (n < rows_due(q) && beyond <= n / 8)
        n -= beyond;
    n = sched_cut_for_others(s, q, n);
    schedule_rows(s, p, q, n, b->out, now);
    b->rows -= p->n_row - had;
    b->seconds -= cost_of_prompt(&q->group->cost, pos0, p->n_row - had);
    return p->n_row > had;
}

/* Collects the group's running sequences that have rows due, in order, and gives them their pages. Left out are
 * sequences preempted to free those pages, sequences that wait for pages being saved, and those that must be read
 * again. */
static void running_in_order(struct sched *s, const struct sched_group *g, struct running *r, double now)
{
    struct seq *q, **out = r->seq;
    uint32_t n = 0;
    r->n = 0;
    TAILQ_FOREACH (q, &s->list[SEQ_RUN], link)
        if (q->group == g && rows_due(q)) {
            uint32_t at = n++;
            for (; at && sched_before(q, out[at - 1], now); at--)
                out[at] = out[at - 1];
            out[at] = q;
        }
    for (uint32_t i = 0; i < n; i++)
        if (out[i]->state == SEQ_RUN && (sched_outgrew(s, out[i]) || !sched_grow(s, out[i])))
            out[i] = NULL;
    for (uint32_t i = 0; i < n; i++)
        if (out[i] && out[i]->state == SEQ_RUN)
            out[r->n++] = out[i];
}

/* The rows of a waiting sequence's prompt that are likely to be due: the KV of what it continues is likely to be
 * cached. */
static uint32_t rows_likely(const struct seq *q)
{
    return q->n_appended && q->n_appended < q->n_tokens ? q->n_appended : q->n_tokens;
}

/* Which prompts a step is for. */
struct reading {
    bool nearly;   /* only prompts that are nearly read, the shortest first within a user; false: all, in order */
    bool brief;    /* of these only the very short ones */
    uint32_t most; /* the most rows to go */
    enum seq_class class; /* the lowest class included */
    double now;
};

static bool wants(const struct reading *of, const struct seq *q, uint32_t rows)
{
    return !of->nearly ||
           (rows <= of->most && sched_class_by_age(q, of->now) <= of->class && (of->brief || !q->turn->user->left_out));
}

static bool reads_before(const struct reading *of, const struct seq *a, const struct seq *b)
{
    if (!of->nearly)
        return sched_before(a, b, of->now);
    if (a->turn->user->work != b->turn->user->work)
        return a->turn->user->work < b->turn->user->work;
    uint32_t of_a = a->state == SEQ_RUN ? rows_due(a) : rows_likely(a);
    uint32_t of_b = b->state == SEQ_RUN ? rows_due(b) : rows_likely(b);
    return of_a < of_b;
}

/* Returns the first of the waiting sequences that may be admitted; NULL: there is none. */
static struct seq *first_waiting(const struct sched *s, const struct sched_group *g, const struct reading *of)
{
    struct seq *q, *first = NULL;
    TAILQ_FOREACH (q, &s->list[SEQ_WAIT], link)
        if (q->group == g && !q->inflight && (!g->line_stands || q->class < g->line) && wants(of, q, rows_likely(q)) &&
            (!first || reads_before(of, q, first)) && !sched_waits_for_pages(s, q))
            first = q;
    return first;
}

/* The same for the running prompts that are not in the plan yet. */
static struct seq *first_running(const struct sched *s, const struct running *r, const struct reading *of)
{
    struct seq *first = NULL;
    for (uint32_t i = 0; i < r->n; i++) {
        struct seq *q = r->seq[i];
        if (q->state == SEQ_RUN && q->planned != s->plans && rows_due(q) > 1 && wants(of, q, rows_due(q)) &&
            (!first || reads_before(of, q, first)))
            first = q;
    }
    return first;
}

/* Plans running and waiting prompts, as far as the budget goes. */
static void plan_prompts(struct sched *s, struct sched_group *g, struct plan *p, struct running *r, struct budget *b,
                         const struct reading *of)
{
    if (!of->nearly)
        g->line_stands = false;
    while (b->rows && b->seconds > 0) {
        bool may_admit = r->n < 2 * BATCH_SEQS_MAX;
        struct seq *waits = may_admit ? first_waiting(s, g, of) : NULL, *runs = first_running(s, r, of);
        bool admits = waits && (!runs || reads_before(of, waits, runs));
        struct seq *q = admits ? waits : runs;
        if (!q)
            break;
        if (admits && !sched_admit(s, q, of->now)) {
            g->line_stands = true;
            g->line = q->class;
            continue;
        }
        if (admits)
            r->seq[r->n++] = q;
        bool wanted = wants(of, q, rows_due(q)), planned = wanted && schedule_prompt(s, p, q, b, of->now);
        if (!planned && rows_due(q) == 1) { /* the rest was cached: its row is now a decoding one */
            b->rows--;
            b->out -= b->out > 0;
        }
        if (wanted && !planned)
            break;
    }
}

/* The highest class that has a prompt still to be read. */
static enum seq_class class_that_reads(const struct sched *s, const struct sched_group *g, const struct running *r,
                                       double now)
{
    enum seq_class best = CLASS_BACKGROUND;
    const struct seq *q;
    for (uint32_t i = 0; i < r->n; i++)
        if (rows_due(r->seq[i]) > 1 && sched_class_by_age(r->seq[i], now) < best)
            best = sched_class_by_age(r->seq[i], now);
    TAILQ_FOREACH (q, &s->list[SEQ_WAIT], link)
        if (q->group == g && sched_class_by_age(q, now) < best)
            best = sched_class_by_age(q, now);
    return best;
}

static bool decodes(const struct seq *q)
{
    return q->state == SEQ_RUN && rows_due(q) == 1;
}

/* Whether the i-th sequence, which decodes, is among the `most` that have waited longest for a row. */
static bool has_waited(const struct running *r, uint32_t i, uint32_t most)
{
    uint32_t before = 0;
    for (uint32_t k = 0; k < r->n; k++)
        before +=
            k != i && decodes(r->seq[k]) &&
            (r->seq[k]->served_at < r->seq[i]->served_at || (r->seq[k]->served_at == r->seq[i]->served_at && k < i));
    return before < most;
}

/* Plans the decoding sequences. Where all of them would take longer than the gap, those of a lower class than the
 * first's are left out until their age raises them. Where memory is short, they take turns. */
static void plan_decoding(struct sched *s, struct sched_group *g, struct plan *p, const struct running *r, double now)
{
    enum seq_class best = CLASS_BACKGROUND;
    bool turn[2 * BATCH_SEQS_MAX];
    for (uint32_t i = 0; i < r->n; i++) /* before served_at changes */
        turn[i] = !g->rows_short || (p->n_row < g->rows_short && has_waited(r, i, g->rows_short - p->n_row));
    for (uint32_t i = 0; i < r->n; i++) {
        struct seq *q = r->seq[i];
        if (!decodes(q) || q->planned == s->plans || !turn[i])
            continue;
        enum seq_class class = sched_class_by_age(q, now);
        best = class < best ? class : best;
        struct cost_work with = p->work;
        with.decode++;
        with.keys += cost_keys(q->n_computed, 1);
        if (class == best || g->pace.gap <= 0 || cost_of(&g->cost, &with) <= g->pace.gap)
            schedule_rows(s, p, q, 1, s->out_max, now);
    }
}

/* Whether the plan that is being made leaves out a prompt of the user. */
static bool leaves_out(const struct sched *s, const struct sched_group *g, const struct share *user)
{
    const struct seq *q;
    for (int state = SEQ_WAIT; state <= SEQ_RUN; state++)
        TAILQ_FOREACH (q, &s->list[state], link)
            if (q->group == g && q->turn->user == user && q->planned != s->plans && has_unread(q))
                return true;
    return false;
}

/* Plans prompts before decoding sequences, so that a sequence preempted to admit one is not in the plan yet. */
static void plan_group(struct sched *s, struct sched_group *g, struct plan *p, double now)
{
    enum {
        NEARLY = 4, /* chunks: a prompt with no more than that to go is nearly read */
        BRIEF = 8,  /* divides a chunk: a prompt with no more than that part to go is brief */
    };
    struct running r;
    struct cost_work decoding = {0};
    s->plans++;
    for (enum seq_class c = CLASS_INTERACTIVE; c <= CLASS_BACKGROUND; c++)
        note_absence(s, g, c, now); /* sequences that decode may be preempted */
    running_in_order(s, g, &r, now);
    for (uint32_t i = 0; i < r.n; i++)
        if (rows_due(r.seq[i]) == 1) {
            decoding.decode++;
            decoding.keys += cost_keys(r.seq[i]->n_computed, 1);
        }
    p->users = shares_among(&s->shares);
    struct budget b = prompt_budget(s, g, p, &r, &decoding, now);
    uint32_t chunk = b.rows;
    if (b.seconds < INFINITY)
        chunk = cost_prompt_rows(&g->cost, 0, b.seconds, b.rows);
    struct reading of = {true, true, chunk / BRIEF, class_that_reads(s, g, &r, now), now};
    if (!g->was_brief)
        plan_prompts(s, g, p, &r, &b, &of);
    g->was_brief = p->n_seq > 0;
    of.brief = false;
    of.most = NEARLY * (chunk ? chunk : 1);
    if (!g->was_brief) {
        if (!g->left_out)
            plan_prompts(s, g, p, &r, &b, &of);
        g->left_out = p->n_seq > 0;
    }
    of.nearly = false;
    if (!g->was_brief && !g->left_out)
        plan_prompts(s, g, p, &r, &b, &of);
    for (uint32_t i = 0; i < p->n_seq && !g->was_brief; i++)
        p->seq[i].seq->turn->user->left_out = g->left_out && leaves_out(s, g, p->seq[i].seq->turn->user);
    plan_decoding(s, g, p, &r, now);
    if (p->n_seq) {
        g->planned[1] = g->planned[0];
        g->planned[0] = s->plans;
    }
    g->has_read = p->work.prompt > 0;
}

/* Charges the plan's work to its clients, the constant part of the step in equal shares. Before anything is known, each
 * row counts the same. */
static void charge(struct plan *p)
{
    const struct cost *c = &p->group->cost;
    for (uint32_t i = 0; i < p->n_seq; i++) {
        struct plan_seq *ps = &p->seq[i];
        struct cost_work own = {.keys = cost_keys(ps->pos0, ps->n_row)};
        *(ps->decodes ? &own.decode : &own.prompt) = ps->n_row;
        double whole = cost_of(c, &own), step = c->slope[COST_STEP];
        ps->charged = whole > 0 ? whole - step + step / p->n_seq : 1e-3 * ps->n_row;
        share_charge(ps->seq->share, ps->charged);
        share_charge(ps->seq->turn, ps->charged);
    }
}

/* Sorts the entries, those that sample first and others with logits last, and assigns the rows. */
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
        if (!g->n_seq || g->held)
            continue;
        memset(p, 0, offsetof(struct plan, seq));
        p->group = g;
        plan_group(s, g, p, now);
        if (p->n_seq == 0)
            continue;
        p->expected = cost_known(&g->cost) ? cost_of(&g->cost, &p->work) : 0;
        charge(p);
        assign_rows(p);
        TAILQ_REMOVE(&s->groups, g, link); /* the group goes to the end of the list: the other models have their turn */
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
    sched_set_state(s, q, SEQ_NEW);
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
    if (q->share) {
        share_charge(q->share, -ps->charged);
        share_charge(q->turn, -ps->charged);
    }
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

static void leave_shares(struct sched *s, struct seq *q)
{
    share_leave(&s->shares, q->share);
    share_leave(&q->group->shares, q->turn);
    q->share = q->turn = NULL;
}

void sched_take_out(struct sched *s, struct seq *q)
{
    leave_shares(s, q);
    q->group->n_seq--;
    sched_set_state(s, q, SEQ_NEW);
}

void sched_end(struct sched *s, struct seq *q, uint32_t n_keep)
{
    if (q->state == SEQ_RUN)
        sched_release(s, q, n_keep);
    leave_shares(s, q);
    sched_set_state(s, q, SEQ_DRAIN);
    free_if_drained(s, q);
}
