/* commands.c - see commands.h. Thread: the device thread's. */
#include "config.h"

#include "daemon/engine/core/commands.h"

#include <math.h>
#include <stdlib.h>

#include "daemon/engine/core/events.h"
#include "daemon/engine/core/load.h"
#include "daemon/engine/core/memory.h"
#include "daemon/engine/core/yield.h"
#include "daemon/engine/sched/kv-size.h"
#include "daemon/log.h"

static const double again_seconds = 0.25; /* between two attempts to get memory for a model */

/* Refuses a sequence that could never have enough pages; one that may outgrow the pool is limited to its size. */
static int fit(struct seq *q, struct hearth_err *e)
{
    const struct model_entry *m = q->model;
    uint64_t room = kv_size_room(m->kv, m->n_group, m->group.rows_max);
    if (q->n_tokens > room)
        return err_set(e, HEARTH_ECONTEXT, "the prompt has %u tokens; the KV pool of %u pages holds %llu", q->n_tokens,
                       (unsigned)(room / KV_PAGE), (unsigned long long)room);
    if (q->n_limit > room)
        q->n_limit = (uint32_t)room;
    return 0;
}

/* Seconds that the sequence waited for its model; the load may have begun before the sequence arrived. */
static double waited_for_load(const struct seq *q)
{
    const struct model_entry *m = q->model;
    double from = m->load_begun > q->time.submit ? m->load_begun : q->time.submit;
    return m->load_ended > from ? m->load_ended - from : 0;
}

/* Reports how much of the sequence's prompt is in full pages on the device, and ends it. No model is loaded for
 * that. */
static void measure(struct engine *eng, struct seq *q)
{
    const struct model_entry *m = q->model;
    if (m->model && m->group.kv && q->n_tokens > 1)
        q->n_reused = sched_cached(&m->group, q);
    q->n_accounted = q->n_reused;
    end_seq(eng, q, END_LENGTH, NULL);
}

/* Queues the sequence; false if its model has to wait for memory that other models use. */
static bool submit(struct engine *eng, struct seq *q)
{
    struct hearth_err err = {0};
    if (!q->model->model) {
        eng->loading_for = q->id;
        int rc = load_model(eng, q->model, &err);
        eng->loading_for = 0;
        if (rc == HEARTH_ENOMEM && (eng->yield.on || load_may_evict_later(eng)))
            return false; /* the idle models have been unloaded by now */
        if (rc == HEARTH_ENOMEM && !device_has_no_model(eng)) {
            struct hearth_err why = err;
            err_set(&err, rc, "%.140s; the models in memory are pinned", why.msg);
        }
        if (rc) {
            end_seq(eng, q, END_ERROR, &err);
            return true;
        }
    }
    q->time.load = waited_for_load(q);
    if (fit(q, &err)) {
        end_seq(eng, q, END_ERROR, &err);
        return true;
    }
    tell_continues(eng, q);
    TAILQ_REMOVE(&eng->loaded, q->model, loaded_link); /* most recently used last */
    TAILQ_INSERT_TAIL(&eng->loaded, q->model, loaded_link);
    q->kv.freq_set = sched_freq_set(&q->model->group, q->n_tokens);
    q->kv.keep = q->n_prompt; /* kv_parts() needs it in tier_submit() */
    if (!tier_submit(eng->tier, q, engine_now()))
        sched_push(&eng->sched, &q->model->group, q, engine_now());
    engine_update_stats(eng, q->model);
    return true;
}

/* Same, and on failure sets when to try again. */
static bool try_submit(struct engine *eng, struct seq *q)
{
    double begin = engine_now();
    if (submit(eng, q))
        return true;
    eng->load_again_at = engine_now() + fmax(again_seconds, 10 * (engine_now() - begin));
    return false;
}

/* The first sequence that waits for its turn; NULL: there is none. Those whose model is refused for as long as memory
 * is yielded wait for the end of that, and nobody waits behind them. */
static struct seq *first_in_line(const struct engine *eng)
{
    struct seq *q = TAILQ_FIRST(&eng->waiting_for_memory);
    while (q && !q->model->model && load_waits_for_yield(eng, q->model))
        q = TAILQ_NEXT(q, link);
    return q;
}

/*
 * If two models are in use and there is memory for only one, they take turns: once a sequence waits for memory, all
 * later ones wait behind it, even those for the loaded model; otherwise it would wait for ever. It tries again when a
 * model is idle. If none will become idle (a yield has taken them, or they were unloaded or pinned meanwhile) it tries
 * from time to time, for at most a tenth of the time. When a yield has ended it tries at once, whatever is in use: its
 * model may have been refused only because of the yield.
 */
static void submit_waiting_for_memory(struct engine *eng)
{
    struct seq *q;
    bool again = engine_now() >= eng->load_again_at && (!eng->load_again_at || !load_may_evict_later(eng));
    while (!eng->fatal.code && (q = first_in_line(eng)) && (q->model->model || again || load_may_evict(eng))) {
        TAILQ_REMOVE(&eng->waiting_for_memory, q, link);
        if (!try_submit(eng, q)) {
            TAILQ_INSERT_HEAD(&eng->waiting_for_memory, q, link);
            break;
        }
        eng->n_waiting_for_memory--;
    }
}

double commands_timeout(const struct engine *eng)
{
    double left = eng->load_again_at - engine_now();
    if (!first_in_line(eng) || load_may_evict_later(eng))
        return -1;
    return left > 0 ? left : 0;
}

static struct seq *find(const struct seq_list *l, uint64_t id)
{
    struct seq *q;
    TAILQ_FOREACH (q, l, link)
        if (q->id == id)
            return q;
    return NULL;
}

static struct seq *find_scheduled(const struct engine *eng, uint64_t id)
{
    struct seq *q = find(&eng->sched.list[SEQ_WAIT], id);
    return q ? q : find(&eng->sched.list[SEQ_RUN], id);
}

static void stop_waiting_for_memory(struct engine *eng, struct seq *q)
{
    TAILQ_REMOVE(&eng->waiting_for_memory, q, link);
    eng->n_waiting_for_memory--;
}

/* Ends a sequence that has not ended yet, for this reason. */
static void end_one(struct engine *eng, uint64_t id, enum end_reason reason, const struct hearth_err *err)
{
    struct seq *q = tier_cancel(eng->tier, id);
    struct model_entry *restored_for = q ? q->model : NULL;
    if (!q && (q = find(&eng->waiting_for_memory, id)))
        stop_waiting_for_memory(eng, q);
    if (!q)
        q = find_scheduled(eng, id);
    if (q)
        end_seq(eng, q, reason, err);
    if (restored_for)
        engine_update_stats(eng, restored_for); /* it has one sequence less, which the scheduler never had */
}

/* Also finds a sequence whose KV is being restored. */
static void set_class(struct engine *eng, uint64_t id, enum seq_class class)
{
    struct seq *q = tier_find(eng->tier, id);
    if (!q)
        q = find(&eng->waiting_for_memory, id);
    if (!q)
        q = find_scheduled(eng, id);
    if (q)
        sched_set_class(&eng->sched, q, class, engine_now());
}

/* Ends the sequence if its deadline has passed; false: it has not. */
static bool end_if_late(struct engine *eng, struct seq *q, double now)
{
    struct hearth_err err = {0};
    if (now < q->deadline) {
        eng->next_deadline = fmin(eng->next_deadline, q->deadline);
        return false;
    }
    /* The message has no number, because hearthd's queue may have used up a part of the requested time. */
    err_set(&err, HEARTH_ECANCELLED, "there was no token by the deadline (deadline_ms)");
    end_one(eng, q->id, END_ERROR, &err);
    return true;
}

static void end_late_of(struct engine *eng, const struct seq_list *list, double now)
{
    struct seq *q, *next;
    for (q = TAILQ_FIRST(list); q; q = next) {
        next = TAILQ_NEXT(q, link);
        if (q->deadline > 0 && q->time.first == 0)
            end_if_late(eng, q, now);
    }
}

/* Ends the sequences whose deadline has passed before their first token. */
static void end_late(struct engine *eng)
{
    double now = engine_now();
    struct seq *q;
    eng->next_deadline = INFINITY;
    while ((q = tier_first_due(eng->tier)) && end_if_late(eng, q, now)) {
    }
    end_late_of(eng, &eng->waiting_for_memory, now);
    end_late_of(eng, &eng->sched.list[SEQ_WAIT], now);
    end_late_of(eng, &eng->sched.list[SEQ_RUN], now);
}

static void run_load_command(struct engine *eng, const struct command *o)
{
    struct hearth_err err = {0};
    bool unload = o->kind == CMD_UNLOAD, load = o->kind == CMD_LOAD || o->kind == CMD_PIN;
    bool was_loaded = o->model->model != NULL;
    double begin = engine_now();
    int rc = 0;
    o->model->here = o->model->here || o->here;
    if (load && !was_loaded)
        rc = load_model(eng, o->model, &err);
    else if (unload && was_loaded)
        rc = unload_model(eng, o->model, &err);
    if (!rc && o->kind != CMD_LOAD)
        atomic_store(&o->model->pinned, o->kind == CMD_PIN);
    if (!rc && !unload)
        engine_update_stats(eng, o->model); /* a load is a use: the model stays for idle_ms from now on */
    if (eng->memory_changed)
        memory_count(eng); /* a client that gets the answer may query the memory at once */
    struct event_model *ev = engine_event_new(eng, unload ? EV_UNLOADED : EV_LOADED, sizeof *ev);
    ev->model = o->model;
    ev->owner = o->owner;
    if (rc) /* on success `err` may hold the error of an earlier attempt */
        ev->err = err;
    ev->seconds = engine_now() - begin;
    ev->was_loaded = was_loaded;
}

static void use_kv_dir(struct engine *eng, const char *path)
{
    struct hearth_err e;
    if (tier_use_dir(eng->tier, path, &e))
        log_warn("no KV files: %s", e.msg);
}

static void run_command(struct engine *eng, struct command *o)
{
    switch (o->kind) {
    case CMD_SUBMIT:
        o->seq->steps = atomic_load(&eng->counters.steps);
        sched_note_arrival(&eng->sched, engine_now());
        if (o->seq->measure)
            measure(eng, o->seq);
        else if (first_in_line(eng) || !try_submit(eng, o->seq)) {
            TAILQ_INSERT_TAIL(&eng->waiting_for_memory, o->seq, link);
            eng->n_waiting_for_memory++;
            tell_waits(eng, o->seq);
        }
        break;
    case CMD_CANCEL:
        end_one(eng, o->seq_id, END_CANCELLED, NULL);
        break;
    case CMD_CLASS:
        set_class(eng, o->seq_id, o->class);
        break;
    case CMD_LOAD:
    case CMD_UNLOAD:
    case CMD_PIN:
    case CMD_UNPIN:
        run_load_command(eng, o);
        break;
    case CMD_YIELD:
        yield_begin(eng, o);
        break;
    case CMD_KV_DIR:
        use_kv_dir(eng, o->path);
        break;
    case CMD_KV_EVICTED:
        tier_file_evicted(eng->tier, o->file, o->again, engine_now());
        break;
    case CMD_FINISH:
        eng->finish_by = engine_now() + o->seconds;
        break;
    case CMD_WAKE:
        break;
    }
    free(o->path);
    free(o);
}

void commands_run(struct engine *eng)
{
    struct command *o;
    post_take(&eng->inbox, &eng->todo);
    while (!eng->fatal.code && (o = (struct command *)post_list_pop(&eng->todo)))
        run_command(eng, o);
    submit_waiting_for_memory(eng);
    end_late(eng);
    engine_count_seqs(eng);
}

/* Whether the command can be carried out during a load: it concerns neither the model that is being loaded nor another
 * load. A request for an idle model waits, because that model may have to be evicted for the load, which was requested
 * first. */
static bool is_beside_load(const struct engine *eng, const struct command *o)
{
    switch (o->kind) {
    case CMD_SUBMIT:
        return o->seq->model->group.n_seq && !o->seq->measure && !eng->n_waiting_for_memory && !eng->yield.on;
    case CMD_CANCEL:
    case CMD_CLASS:
        return o->seq_id != eng->loading_for;
    case CMD_WAKE:
        return true;
    default:
        return false;
    }
}

void commands_run_beside_load(struct engine *eng)
{
    struct command *o;
    post_take(&eng->inbox, &eng->todo);
    while (!eng->fatal.code && (o = (struct command *)eng->todo.first) && is_beside_load(eng, o)) {
        post_list_pop(&eng->todo);
        run_command(eng, o);
    }
    end_late(eng); /* `status` is updated only after the other models' step, once new sequences are in it */
}

void commands_end_all(struct engine *eng, const struct hearth_err *err)
{
    for (uint32_t i = 0; i < eng->n_in_flight; i++) {
        const struct plan *p = &eng->in_flight[(eng->first_in_flight + i) % IN_FLIGHT_MAX].plan;
        for (uint32_t k = 0; k < p->n_seq; k++)
            sched_done(&eng->sched, &p->seq[k]);
    }
    eng->n_in_flight = eng->n_steps = 0;
    struct seq *waiting;
    while ((waiting = tier_cancel_any(eng->tier)))
        end_seq(eng, waiting, END_ERROR, err);
    for (; (waiting = TAILQ_FIRST(&eng->waiting_for_memory)); eng->n_waiting_for_memory--) {
        TAILQ_REMOVE(&eng->waiting_for_memory, waiting, link);
        end_seq(eng, waiting, END_ERROR, err);
    }
    for (int state = SEQ_WAIT; state <= SEQ_RUN; state++) {
        struct seq *q;
        while ((q = TAILQ_FIRST(&eng->sched.list[state])))
            end_seq(eng, q, END_ERROR, err);
    }
}
