/* events.c - see events.h. Thread: the device thread's. */
#include "config.h"

#include "daemon/engine/core/events.h"

#include "daemon/trace.h"

void *engine_event_new(struct engine *eng, enum event_kind kind, size_t bytes)
{
    struct engine_event *ev = post_alloc(bytes);
    ev->kind = kind;
    eng->out_urgent |= kind != EV_STEP;
    post_list_push(&eng->out, &ev->item);
    return ev;
}

void engine_count_seqs(struct engine *eng)
{
    atomic_store(&eng->counters.queued, eng->sched.count[SEQ_WAIT] + eng->n_waiting_for_memory);
    atomic_store(&eng->counters.running, eng->sched.count[SEQ_RUN]);
}

/*
 * Sending events wakes the loop thread, hearthd and the client in turn, and these wake-ups cost several times the work
 * for a token itself. So tokens of steps that are less than 2 ms apart are sent together. A sequence's first token, its
 * end and everything that is not a token are sent at once, and at up to 500 steps a second nothing waits.
 */
void engine_notify(struct engine *eng, bool now)
{
    static const double together = 2e-3; /* seconds */
    double t = engine_now();
    if (!now && !eng->out_urgent && t - eng->notified_at < together)
        return;
    engine_count_seqs(eng); /* a client that receives an end may query the running sequences at once */
    post_send(&eng->outbox, &eng->out);
    eng->out_urgent = false;
    eng->notified_at = t;
}

void engine_fail(struct engine *eng, const struct hearth_err *e)
{
    eng->fatal = *e;
    if (!eng->fatal.code)
        err_set(&eng->fatal, HEARTH_EDEVICE, "the device failed without a reason");
}

void engine_update_stats(const struct engine *eng, struct model_entry *m)
{
    uint64_t used = 0, page = atomic_load(&m->page_bytes);
    if (!m->group.kv)
        return;
    for (uint32_t g = 0; g < m->n_group; g++) {
        struct kv_counts c;
        kv_count(m->group.kv, g, &c);
        used += kv_page_bytes(&m->kv[g]) * (c.total - c.free);
        if (m->kv[g].d_state)
            atomic_store(&m->states_used, c.total - c.free);
    }
    atomic_store(&m->pages_used, (uint32_t)((used + page - 1) / page));
    atomic_store(&m->context_used, kv_longest(m->group.kv));
    atomic_store(&m->sequences, m->group.n_seq);
    m->used_at = engine_now();
    bool stays = m->group.n_seq || !eng->params.idle_ms || atomic_load(&m->pinned);
    atomic_store(&m->unload_at, stays ? 0 : engine_now() + 1e-3 * (double)eng->params.idle_ms);
}

bool model_is_intact(const struct engine *eng, struct model_entry *m, struct hearth_err *e)
{
    if (!info_of(eng, m)->keeps_source || !gguf_check(m->gguf, e))
        return true;
    atomic_store(&m->changed, true);
    return false;
}

/* Once the model's file has changed no KV is saved, whatever ended the sequence. */
static bool may_save(const struct engine *eng, const struct seq *q, enum end_reason reason)
{
    struct hearth_err ignored;
    return reason != END_ERROR && q->state == SEQ_RUN && model_is_intact(eng, q->model, &ignored);
}

void save_prompt(struct engine *eng, struct seq *q)
{
    enum { LEAST = 2048 }; /* tokens; with fewer there is little to lose, and there would be many files */
    if (q->n_accounted - q->n_reused >= LEAST && may_save(eng, q, END_LENGTH))
        tier_save(eng->tier, q, engine_now());
}

static void tell_parked(struct engine *eng, const struct seq *q, bool parked)
{
    struct event_parked *ev = engine_event_new(eng, EV_PARKED, sizeof *ev);
    ev->owner = q->owner;
    ev->parked = parked;
    ev->yielded = eng->yield.on;
}

void tell_waits(struct engine *eng, struct seq *q)
{
    if (q->told_waits)
        return;
    q->told_waits = true;
    tell_parked(eng, q, true);
}

void tell_continues(struct engine *eng, struct seq *q)
{
    if (q->told_waits)
        tell_parked(eng, q, false);
    q->told_waits = false;
}

void end_seq(struct engine *eng, struct seq *q, enum end_reason reason, const struct hearth_err *err)
{
    static const char *const reasons[] = {[END_STOP] = "stop",
                                          [END_LENGTH] = "length",
                                          [END_CONTEXT] = "context_full",
                                          [END_CANCELLED] = "cancelled",
                                          [END_ERROR] = "error"};
    struct event_end *ev = engine_event_new(eng, EV_END, sizeof *ev);
    ev->owner = q->owner;
    ev->reason = reason;
    if (err)
        ev->err = *err;
    ev->n_reused = q->n_reused;
    ev->n_computed = q->n_accounted - q->n_reused;
    ev->n_restored = seq_n_restored(q);
    ev->time = q->time;
    trace(.stage = TRACE_FINISHED, .stream = q->stream, .seq = q->id, .word = reasons[reason],
          .n = {ev->n_reused, ev->n_restored, ev->n_computed, q->n_tokens,
                (int64_t)(atomic_load(&eng->counters.steps) - q->steps)});
    ev->eval = q->eval;
    q->eval = NULL;
    if (q->state == SEQ_NEW) { /* refused before it was queued */
        seq_free(q);
        return;
    }
    struct model_entry *m = q->model;
    bool saves = may_save(eng, q, reason);
    if (saves)
        tier_save(eng->tier, q, engine_now());
    sched_end(&eng->sched, q, saves ? q->n_tokens : 0); /* failed KV must not be found again */
    engine_update_stats(eng, m);
}
