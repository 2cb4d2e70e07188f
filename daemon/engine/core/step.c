/* step.c - one step: a plan becomes a batch, runs, and its tokens become events. Thread: the device thread's. */
#include "config.h"

#include "daemon/engine/core/step.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/core/events.h"
#include "daemon/engine/core/lead.h"
#include "daemon/trace.h"

static const double widen_seconds = 0.25; /* between two attempts at longer steps, where memory is short */

static struct model_entry *model_of(const struct plan *p)
{
    return (struct model_entry *)((char *)p->group - offsetof(struct model_entry, group));
}

static void notify_admitted(struct engine *eng, const struct plan *p, const struct plan_seq *ps)
{
    struct seq *q = ps->seq;
    tell_continues(eng, q);
    if (q->admit_notified)
        return;
    q->admit_notified = true;
    trace(.stage = TRACE_FIRST_STEP, .stream = q->stream, .seq = q->id, .n = {ps->n_row, p->n_row});
    struct event_admit *ev = engine_event_new(eng, EV_ADMIT, sizeof *ev);
    ev->owner = q->owner;
}

/* Whether something may be left to give back for a step of the group that is refused memory (yield_relieve_step()). */
static bool may_be_relieved(const struct sched_group *g)
{
    return !g->dry && g->rows_short <= 1;
}

/* If a full device has no memory for a sequence's sampling parameters, the step is refused so that some is given back.
 * If there is nothing to give back, the sequence takes part with plain parameters, as the step is planned already, and
 * ends when the step is done; the other sequences go on. */
static int set_slots(const struct model_entry *m, const struct plan *p, struct hearth_err *e)
{
    static const struct sample_params plain = {.top_p = 1, .rep_penalty = 1};
    const struct backend *be = m->model->be;
    for (uint32_t i = 0; i < p->n_sample; i++) {
        struct seq *q = p->seq[i].seq;
        if (q->slot_set)
            continue;
        int rc = be->slot_set(m->model->dev, q->slot, &q->sampling, q->token, q->n_tokens, m->hp.n_vocab, e);
        if (rc == HEARTH_ENOMEM && may_be_relieved(p->group))
            return rc;
        if (rc == HEARTH_ENOMEM) {
            q->slot_err = *e;
            rc = be->slot_set(m->model->dev, q->slot, &plain, q->token, q->n_tokens, m->hp.n_vocab, e);
        }
        if (rc)
            return rc;
        q->slot_set = true;
    }
    return 0;
}

/* Whether the commands that have arrived cancel all sequences of the step. */
static bool is_cancelled(const struct engine *eng, const struct plan *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_seq; i++) {
        const struct post_item *o = eng->todo.first;
        while (o && (((const struct command *)o)->kind != CMD_CANCEL ||
                     ((const struct command *)o)->seq_id != p->seq[i].seq->id))
            o = o->next;
        n += o != NULL;
    }
    return n == p->n_seq;
}

/* Whether a sequence has been submitted that would have to wait long for this step. False if the step has decoding
 * rows, whose streams wait for it anyway. */
static bool is_awaited(const struct engine *eng, const struct in_flight *f)
{
    const struct post_item *o = eng->todo.first;
    if (f->plan.work.decode || f->begin + f->plan.expected - engine_now() < f->plan.group->pace.gap)
        return false;
    while (o && ((const struct command *)o)->kind != CMD_SUBMIT)
        o = o->next;
    return o;
}

/* A device that computes in step_run() calls this between two ops to ask whether it should stop. */
static bool stop_step(void *arg)
{
    struct engine *eng = arg;
    const struct in_flight *f = &eng->in_flight[(eng->first_in_flight + eng->n_in_flight - 1) % IN_FLIGHT_MAX];
    if (atomic_load(&eng->stop))
        return true;
    struct post_item **had = eng->todo.last;
    post_take(&eng->inbox, &eng->todo);
    return eng->todo.last != had && (is_cancelled(eng, &f->plan) || is_awaited(eng, f));
}

/* The invariance that the rows of a plan require of the device. */
struct ways {
    bool apart;                       /* answers' rows form a step of their own, which is the first */
    enum invariance answers, prompts; /* if they are not apart, `prompts` applies to the whole step */
};

/*
 * On a GPU, a step with few decoding rows (device_info.decode_rows) gives each sequence the same bits whoever decodes
 * beside it; where everything is to be invariant, decoding rows take a path that does so for any number of them. While
 * a prompt is being computed, answers' rows are a step of their own, so that they keep these bits and are computed by
 * the attention for decoding rows. Generated tokens that are recomputed, many rows of a sequence, get the bits that
 * they had at first.
 */
static struct ways ways_of(const struct engine *eng, const struct plan *p, const struct device_info *info)
{
    struct ways w = {false, INVARIANT_OFF, INVARIANT_OFF};
    uint32_t answers = 0, prompts = 0, again = 0;
    if (!info->gpu || !model_of(p)->invariant_prompts)
        return w;
    for (uint32_t i = 0; i < p->n_seq; i++) {
        const struct plan_seq *ps = &p->seq[i];
        *(ps->answers ? &answers : &prompts) += ps->n_row;
        again += ps->answers && ps->n_row > 1;
    }
    if (eng->params.invariant == INVARIANT_ALL)
        w.answers = INVARIANT_BATCH;
    else if (again)
        w.answers = INVARIANT_DECODE;
    w.prompts = prompts ? INVARIANT_PROMPT : w.answers;
    w.apart = answers && prompts;
    return w;
}

static bool is_in_part(uint32_t part, uint32_t n_part, const struct plan_seq *ps)
{
    return n_part == 1 || ps->answers == (part == 0);
}

/* Submits those of the plan's sequences that belong to the part. HEARTH_ENOMEM: the device has no memory for that, and
 * nothing was done. */
static int submit_part(struct engine *eng, struct in_flight *f, uint32_t part, uint32_t n_part, enum invariance how,
                       struct hearth_err *e)
{
    const struct plan *p = &f->plan;
    struct model_entry *m = model_of(p);
    int32_t token[BATCH_ROWS_MAX];
    struct batch_seq seq[BATCH_SEQS_MAX];
    uint32_t out_row[OUT_MAX], slot[BATCH_SEQS_MAX], index[BATCH_SEQS_MAX];
    struct batch b = {
        .token = token,
        .seq = seq,
        .out_row = out_row,
        .n_group = m->n_group,
        .invariant = how,
        .sample = {.slot = slot, .index = index},
        .stop = stop_step,
        .stop_arg = eng,
    };
    for (uint32_t i = 0; i < p->n_seq; i++) {
        const struct plan_seq *ps = &p->seq[i];
        struct seq *q = ps->seq;
        if (!is_in_part(part, n_part, ps))
            continue;
        seq[b.n_seq] = (struct batch_seq){.row0 = b.n_row,
                                          .n_row = ps->n_row,
                                          .pos0 = ps->pos0,
                                          .n_within = ps->n_within,
                                          .freq_set = q->kv.freq_set};
        for (uint32_t g = 0; g < m->n_group; g++)
            seq[b.n_seq].pages[g] = m->kv[g].d_state ? q->kv.state[g].page : q->kv.page[g];
        for (uint32_t r = 0; r < ps->n_row; r++) {
            uint32_t pos = ps->pos0 + r; /* a token that the host does not know yet is the slot's last sample */
            token[b.n_row + r] = pos < q->n_tokens ? q->token[pos] : TOKEN_OF_SLOT(q->slot);
        }
        for (uint32_t r = ps->n_row - ps->n_out; r < ps->n_row; r++)
            out_row[b.n_out++] = b.n_row + r;
        slot[b.n_seq] = q->slot;
        index[b.n_seq] = ps->index;
        b.n_seq++;
        b.n_row += ps->n_row;
        b.sample.n += ps->sample; /* sequences that sample come first */
    }
    memcpy(b.kv, m->pool, sizeof b.kv);
    f->part[part].n_sample = b.sample.n;
    f->part[part].ticket = m->model->be->step_run(m->model->dev, &b, &m->model->program);
    return f->part[part].ticket ? 0 : m->model->be->step_wait(m->model->dev, 0, NULL, 0, e);
}

/* Takes out of a plan what was not submitted: everything or, where answers' rows are a step of their own that was
 * submitted, the prompts. */
static void undo(struct engine *eng, struct plan *p, bool only_prompts)
{
    uint32_t n = 0;
    p->n_row = p->n_sample = p->n_accounted = 0;
    p->work = (struct cost_work){0};
    p->expected = 0; /* no longer known */
    for (uint32_t i = 0; i < p->n_seq; i++) {
        const struct plan_seq *ps = &p->seq[i];
        if (!only_prompts || !ps->answers) {
            sched_undo(&eng->sched, ps);
            continue;
        }
        p->n_row += ps->n_row;
        p->n_sample += ps->sample;
        p->n_accounted += ps->n_accounted;
        *(ps->decodes ? &p->work.decode : &p->work.prompt) += ps->n_row;
        p->work.keys += cost_keys(ps->pos0, ps->n_row);
        p->seq[n++] = *ps;
    }
    p->n_seq = n;
}

/*
 * A step that is refused memory is undone, and planned again once something was given back (yield.c). If nothing is
 * left to give back, the model's steps get half as many rows, again and again: attention to a long context needs memory
 * for each of a step's rows. Where it needs too much for a single one, and again nothing is left to give back, the
 * sequence with the longest context ends.
 */
static void refuse(struct engine *eng, struct in_flight *f, const struct hearth_err *why)
{
    struct plan *p = &f->plan;
    struct sched_group *g = p->group;
    struct seq *longest = NULL;
    uint32_t n_row = 0, most = 0;
    for (uint32_t i = 0; i < p->n_seq; i++) {
        const struct plan_seq *ps = &p->seq[i];
        if (f->n_part && ps->answers)
            continue;
        n_row += ps->n_row;
        if (ps->pos0 + ps->n_row > most)
            most = ps->pos0 + ps->n_row, longest = ps->seq;
    }
    undo(eng, p, f->n_part > 0);
    if (may_be_relieved(g))
        eng->refused.model = model_of(p);
    else if (g->rows_short != 1) {
        uint32_t had = g->rows_short && g->rows_short < n_row ? g->rows_short : n_row;
        g->rows_short = had > 2 ? had / 2 : 1;
        eng->refused.widen_at = engine_now() + widen_seconds;
    } else if (longest) {
        struct hearth_err err;
        err_set(&err, HEARTH_ENOMEM, "no memory for a step at position %u: %.180s", most - 1, why->msg);
        end_seq(eng, longest, END_ERROR, &err);
        g->rows_short = 0;
    }
}

/* After a step was submitted: steps that were made shorter for lack of memory become longer again. */
static void widen(struct engine *eng, struct sched_group *g)
{
    g->dry = false;
    eng->refused.bytes = 0;
    if (!g->rows_short || engine_now() < eng->refused.widen_at)
        return;
    g->rows_short = g->rows_short < ROWS_GPU ? 2 * g->rows_short : 0;
    eng->refused.widen_at = engine_now() + widen_seconds;
}

static int submit(struct engine *eng, struct in_flight *f, struct hearth_err *e)
{
    const struct plan *p = &f->plan;
    struct model_entry *m = model_of(p);
    struct ways w = ways_of(eng, p, info_of(eng, m));

    f->begin = engine_now();
    f->n_part = 0;
    models_run_kv_actions(m);
    int rc = set_slots(m, p, e);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < p->n_seq; i++)
        notify_admitted(eng, p, &p->seq[i]);
    engine_notify(eng, false); /* EV_ADMIT is sent before the work, not after it */
    for (uint32_t n = w.apart ? 2 : 1; f->n_part < n; f->n_part++, eng->n_steps++)
        if ((rc = submit_part(eng, f, f->n_part, n, f->n_part + 1 < n ? w.answers : w.prompts, e)))
            return rc;
    return 0;
}

/* Waits for the plan's steps and collects what they sampled, in the plan's order. */
static int wait_for(const struct in_flight *f, struct sampled *out, struct hearth_err *e)
{
    const struct model *model = model_of(&f->plan)->model;
    struct sampled some[BATCH_SEQS_MAX];
    struct hearth_err later;
    int rc = 0;
    for (uint32_t k = 0; k < f->n_part; k++) {
        uint32_t next = 0, n = f->part[k].n_sample;
        int rc_part = model->be->step_wait(model->dev, f->part[k].ticket, some, n, rc ? &later : e);
        for (uint32_t i = 0; i < f->plan.n_sample && !rc_part; i++)
            if (is_in_part(k, f->n_part, &f->plan.seq[i]))
                out[i] = some[next++];
        rc = rc ? rc : rc_part;
    }
    return rc;
}

static void count_step(struct engine_counters *c, const struct plan *p)
{
    atomic_fetch_add(&c->steps, 1);
    atomic_fetch_add(&c->rows, p->n_row);
    atomic_fetch_add(&c->tokens_computed, p->n_accounted);
    if (p->n_row > atomic_load(&c->rows_max))
        atomic_store(&c->rows_max, p->n_row);
}

static void end_at_limit(struct engine *eng, struct seq *q)
{
    bool read = q->n_computed >= q->n_prompt || q->time.first > 0; /* a preempted sequence has nothing computed */
    if (read && q->n_tokens >= q->n_limit && q->n_pending == 0)
        end_seq(eng, q, q->n_tokens >= q->n_wanted ? END_LENGTH : END_CONTEXT, NULL);
}

static bool is_end(const struct model_entry *m, int32_t id)
{
    return m->vocab && vocab_is_end(m->vocab, id);
}

/* A model file may hold any weights, so a logit may be NaN or infinite. A NaN never wins the argmax, so if the winner
 * is not finite, no logit of the row was: the sampled token is then invalid. */
static bool is_answer(const struct seq *q, int32_t id, float logit, struct hearth_err *e)
{
    if (isfinite(logit))
        return true;
    err_set(e, HEARTH_EBADMODEL, "position %u: the logit of token %d is %g", q->n_tokens - 1, id, (double)logit);
    return false;
}

/* The backends return id 0 where every token is forbidden, or those that are not have NaN for a logit; it is then
 * itself forbidden. Only the model's file forbids tokens. */
static bool is_allowed(const struct seq *q, uint32_t id, struct hearth_err *e)
{
    const struct sample_params *p = &q->sampling;
    for (uint32_t i = 0; id == 0 && i < p->n_bias; i++)
        if (p->bias[i].id == 0 && p->bias[i].bias == -INFINITY) {
            err_set(e, HEARTH_EBADMODEL, "position %u: no token is left to sample beside those that the file excludes",
                    q->n_tokens - 1);
            return false;
        }
    return true;
}

/* Reports the progress of a prompt that takes several steps, to the client that waits for its first token. */
static void notify_prompt(struct engine *eng, const struct plan_seq *ps, double now)
{
    static const double between = 0.1; /* seconds */
    struct seq *q = ps->seq;
    uint32_t done = ps->pos0 + ps->n_row;
    if (q->eval || q->time.first > 0 || done >= q->n_prompt || (q->told > 0 && now - q->told < between))
        return;
    q->told = now;
    struct event_prompt *ev = engine_event_new(eng, EV_PROMPT, sizeof *ev);
    ev->owner = q->owner;
    ev->done = done;
    ev->total = q->n_prompt;
}

/* Takes a token that a sequence sampled; false if it ended the sequence. */
static bool take_token(struct engine *eng, const struct plan_seq *ps, const struct sampled *s, struct event_step *ev,
                       double now)
{
    struct seq *q = ps->seq;
    if (q->slot_err.code || !is_answer(q, (int32_t)s->token, s->logprob, &q->slot_err) ||
        !is_allowed(q, s->token, &q->slot_err)) {
        sched_done(&eng->sched, ps);
        end_seq(eng, q, END_ERROR, &q->slot_err);
        return false;
    }
    if (q->time.first == 0) {
        q->time.first = now;
        tier_computed(eng->tier, q->model, q->n_accounted - q->n_reused, now - q->time.admit);
        eng->out_urgent = true;
    }
    q->time.last = now;
    if (!q->ignore_eos && is_end(q->model, (int32_t)s->token)) {
        sched_done(&eng->sched, ps);
        end_seq(eng, q, END_STOP, NULL);
        return false;
    }
    struct step_token *t = &ev->token[ev->n++];
    t->owner = q->owner;
    t->id = (int32_t)s->token;
    if (q->sampling.n_logprobs) {
        t->detail = post_alloc(sizeof *t->detail); /* a token without its logprobs would leave a gap in them */
        *t->detail = *s;
    }
    seq_push_token(q, t->id);
    return true;
}

/* Takes the logits of an eval sequence's rows, and its greedy choice; false if that ended the sequence. */
static bool take_logits(struct engine *eng, const struct plan_seq *ps, uint32_t out0, int *rc, struct hearth_err *e)
{
    struct seq *q = ps->seq;
    struct eval *ev = q->eval;
    const struct model *model = q->model->model;
    uint32_t n_vocab = q->model->hp.n_vocab;
    for (uint32_t i = 0; i < ps->n_out; i++) {
        if ((*rc = model->be->act_read(model->dev, ACT_LOGITS, out0 + i, 1, eng->logits, e)))
            return false;
        if (ev->top)
            eval_row(ev, eng->logits, n_vocab);
    }
    if (q->n_computed < q->n_tokens || q->n_tokens >= q->n_limit)
        return true;
    int32_t id = eval_best(eng->logits, n_vocab);
    struct hearth_err err;
    if (!is_answer(q, id, eng->logits[id], &err)) {
        sched_done(&eng->sched, ps);
        end_seq(eng, q, END_ERROR, &err);
        return false;
    }
    ev->greedy[ev->n_greedy++] = id;
    if (is_end(q->model, id)) {
        sched_done(&eng->sched, ps);
        end_seq(eng, q, END_STOP, NULL);
        return false;
    }
    seq_push_token(q, id);
    return true;
}

/* While the model runs, weights are read from the mapped file: if that was truncated or written to, the results are
 * invalid, and none of its KV is cached. */
static void end_if_changed(struct engine *eng, struct model_entry *m)
{
    struct hearth_err err;
    struct seq *q, *next;
    if (model_is_intact(eng, m, &err))
        return;
    for (int state = SEQ_WAIT; state <= SEQ_RUN; state++)
        for (q = TAILQ_FIRST(&eng->sched.list[state]); q; q = next) {
            next = TAILQ_NEXT(q, link);
            if (q->model == m)
                end_seq(eng, q, END_ERROR, &err);
        }
}

/* Ends all sequences that took part in a step that failed. */
static void end_step(struct engine *eng, const struct plan *p, const struct hearth_err *err)
{
    for (uint32_t i = 0; i < p->n_seq; i++)
        if (p->seq[i].seq->state != SEQ_DRAIN)
            end_seq(eng, p->seq[i].seq, END_ERROR, err);
}

void step_watchdog(struct engine *eng, const struct device *dev)
{
    static const uint32_t gpu_seconds = 60, load_times = 10; /* a CPU may well take longer */
    uint32_t most = eng->params.step_seconds ? eng->params.step_seconds : eng->info.gpu ? gpu_seconds : 0;
    if (!dev)
        most = eng->watchdog_load ? load_times * most : 0;
    else if (dev != eng->dev)
        most = 0;
    atomic_store(&eng->watchdog_seconds, most);
    atomic_store(&eng->watchdog_deadline, most ? engine_now() + most : 0);
}

/* Whether a step that turns out to have had no memory is an ordinary refusal; on a GPU, lack of memory is found when
 * the step is submitted (refuse()). Where the device takes several steps at a time, KV of its rows may be in the cache
 * since the step before it ended, or was saved when a sequence ended or was preempted; nobody may ever find that, so
 * there the device has failed. */
static bool is_refusal(const struct engine *eng, const struct device *dev)
{
    return eng->n_in_flight == 1 && (eng->max_in_flight == 1 || dev != eng->dev);
}

/* Waits for the oldest step and processes its results. */
static int finish(struct engine *eng, struct hearth_err *e)
{
    struct in_flight *f = &eng->in_flight[eng->first_in_flight];
    const struct plan *p = &f->plan;
    const struct model *model = model_of(p)->model;
    struct sampled sampled[BATCH_SEQS_MAX];
    step_watchdog(eng, model->dev);
    double asked = engine_now();
    int rc = wait_for(f, sampled, e);
    double now = engine_now();
    step_watchdog(eng, NULL);
    if (rc == HEARTH_ENOMEM && is_refusal(eng, model->dev))
        end_step(eng, p, e);
    else if (rc == HEARTH_ENOMEM)
        return e->code = HEARTH_EDEVICE; /* the next engine continues the streams */
    else if (rc && rc != HEARTH_ECANCELLED)
        return rc;
    eng->first_in_flight = (eng->first_in_flight + 1) % IN_FLIGHT_MAX;
    eng->n_in_flight--;
    eng->n_steps -= f->n_part;
    eng->memory_changed = true;
    if (rc == HEARTH_ECANCELLED) { /* by stop_step() */
        for (uint32_t i = 0; i < p->n_seq; i++)
            sched_undo(&eng->sched, &p->seq[i]);
        return 0;
    }
    count_step(&eng->counters, p);

    end_if_changed(eng, model_of(p));
    lead_learn(eng, f, rc == 0, asked, now);
    struct event_step *ev = NULL;
    if (p->n_sample)
        ev = engine_event_new(eng, EV_STEP, sizeof *ev + p->n_sample * sizeof ev->token[0]);
    uint32_t out[2]; /* sampled rows come first among a step's logits */
    for (uint32_t k = 0; k < f->n_part; k++)
        out[k] = f->part[k].n_sample;
    for (uint32_t i = 0; i < p->n_seq; i++) {
        const struct plan_seq *ps = &p->seq[i];
        struct seq *q = ps->seq;
        bool live = q->state != SEQ_DRAIN; /* a token sampled after the sequence ended is dropped */
        uint32_t *at = &out[f->n_part == 2 && !ps->answers], out0 = *at;
        *at += ps->sample ? 0 : ps->n_out;
        if (live && ps->sample && !take_token(eng, ps, &sampled[i], ev, now))
            continue;
        if (live && ps->n_out && q->eval && !take_logits(eng, ps, out0, &rc, e)) {
            if (!rc)
                continue;
            for (; i < p->n_seq; i++) /* no step refers to them any more: they end with the engine */
                sched_done(&eng->sched, &p->seq[i]);
            return rc;
        }
        if (live)
            notify_prompt(eng, ps, now);
        sched_done(&eng->sched, ps);
        if (live && ps->sample && q->time.first == now)
            save_prompt(eng, q);
        if (live)
            end_at_limit(eng, q);
        else
            engine_update_stats(eng, model_of(p)); /* the model has one sequence less */
    }
    return 0;
}

void step_drain(struct engine *eng)
{
    struct hearth_err err = {0};
    while (eng->n_in_flight && !eng->fatal.code)
        if (finish(eng, &err))
            engine_fail(eng, &err);
}

/* Whether the device can take another plan, which may be two steps. */
static bool has_room(const struct engine *eng)
{
    uint32_t most = eng->info.gpu && eng->parted ? 2 : 1;
    return eng->n_steps == 0 || eng->n_steps + most <= eng->max_in_flight;
}

bool step_advance(struct engine *eng)
{
    struct hearth_err err = {0};
    struct in_flight *f = &eng->in_flight[(eng->first_in_flight + eng->n_in_flight) % IN_FLIGHT_MAX];
    double early = eng->n_in_flight && has_room(eng) ? lead_left(eng) : 0;
    if (early > 0 && eng->n_in_flight == 1 && lead_wait(eng, early))
        return true;
    if ((early <= 0 || eng->n_in_flight == 1) && has_room(eng) && !eng->refused.model &&
        sched_next(&eng->sched, &f->plan, engine_now())) {
        eng->n_in_flight++;
        /* Logits for eval exist only until the next step, and the CPU beside a GPU takes one step at a time. */
        bool alone = f->plan.eval || model_of(&f->plan)->model->dev != eng->dev;
        step_watchdog(eng, model_of(&f->plan)->model->dev);
        int rc = submit(eng, f, &err);
        if (rc == HEARTH_ENOMEM)
            refuse(eng, f, &err);
        else if (!rc)
            widen(eng, f->plan.group);
        if (rc == HEARTH_ENOMEM && !f->n_part)
            eng->n_in_flight--;
        else
            lead_submitted(eng, f);
        step_watchdog(eng, NULL);
        if (rc && rc != HEARTH_ENOMEM)
            engine_fail(eng, &err);
        else if (rc && !f->n_part)
            return true;
        else if (alone)
            step_drain(eng);
        if (eng->fatal.code || alone || has_room(eng))
            return true;
    }
    if (eng->n_in_flight == 0)
        return false;
    if (finish(eng, &err))
        engine_fail(eng, &err);
    return true;
}
