/* engine.c - the device thread's loop and the door to it; see engine.h. The loop thread runs what is above the line,
 * the device thread what is below it. */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/engine/core/events.h"
#include "daemon/engine/core/load.h"
#include "daemon/engine/core/memory.h"
#include "daemon/engine/core/step.h"
#include "daemon/engine/core/yield.h"
#include "daemon/engine/host-memory.h"
#include "daemon/engine/sched/kv-size.h"
#include "daemon/log.h"

static void send_command(struct engine *eng, struct command o)
{
    struct command *copy = post_alloc(sizeof *copy);
    struct post_list l;
    *copy = o;
    post_list_init(&l);
    post_list_push(&l, &copy->item);
    post_send(&eng->inbox, &l);
}

void engine_submit(struct engine *eng, struct seq *q)
{
    send_command(eng, (struct command){.kind = CMD_SUBMIT, .seq = q});
}

void engine_cancel(struct engine *eng, uint64_t seq_id)
{
    send_command(eng, (struct command){.kind = CMD_CANCEL, .seq_id = seq_id});
}

void engine_set_class(struct engine *eng, uint64_t seq_id, enum seq_class class)
{
    send_command(eng, (struct command){.kind = CMD_CLASS, .seq_id = seq_id, .class = class});
}

void engine_load(struct engine *eng, struct model_entry *m, void *owner)
{
    send_command(eng, (struct command){.kind = CMD_LOAD, .model = m, .owner = owner});
}

void engine_unload(struct engine *eng, struct model_entry *m, void *owner)
{
    send_command(eng, (struct command){.kind = CMD_UNLOAD, .model = m, .owner = owner});
}

void engine_pin(struct engine *eng, struct model_entry *m, bool pinned, void *owner)
{
    send_command(eng, (struct command){.kind = pinned ? CMD_PIN : CMD_UNPIN, .model = m, .owner = owner});
}

void engine_yield(struct engine *eng, uint64_t bytes, bool all, double seconds, void *owner)
{
    send_command(eng,
                 (struct command){.kind = CMD_YIELD, .bytes = bytes, .all = all, .seconds = seconds, .owner = owner});
}

void engine_keep_yield(struct engine *eng, uint64_t most, double seconds, void *owner)
{
    send_command(eng,
                 (struct command){.kind = CMD_YIELD, .again = true, .bytes = most, .seconds = seconds, .owner = owner});
}

void engine_kv_evicted(struct engine *eng, const char file[static KVFILE_NAME], bool again)
{
    struct command o = {.kind = CMD_KV_EVICTED, .again = again};
    memcpy(o.file, file, sizeof o.file);
    send_command(eng, o);
}

void engine_finish(struct engine *eng, double seconds)
{
    send_command(eng, (struct command){.kind = CMD_FINISH, .seconds = seconds});
}

void engine_throttle(struct engine *eng, bool throttled)
{
    atomic_store(&eng->throttled, throttled);
    if (!throttled)
        engine_wake(eng);
}

void engine_wake(struct engine *eng)
{
    send_command(eng, (struct command){.kind = CMD_WAKE});
}

int engine_fd(const struct engine *eng)
{
    return eng->outbox.fd;
}

void engine_take(struct engine *eng)
{
    post_take(&eng->outbox, &eng->taken);
}

struct engine_event *engine_next(struct engine *eng)
{
    return (struct engine_event *)post_list_pop(&eng->taken);
}

void engine_event_free(struct engine_event *ev)
{
    if (ev && ev->kind == EV_STEP) {
        struct event_step *st = (struct event_step *)ev;
        for (uint32_t i = 0; i < st->n; i++)
            free(st->token[i].detail);
    } else if (ev && ev->kind == EV_END) {
        eval_free(((struct event_end *)ev)->eval);
    }
    free(ev);
}

const char *engine_backend(const struct engine *eng)
{
    return eng->be->name;
}

const char *engine_device(const struct engine *eng)
{
    return eng->info.name;
}

uint32_t engine_devices(const struct engine *eng)
{
    return eng->info.devices;
}

const char *engine_no_gpu(const struct engine *eng)
{
    return eng->no_gpu[0] ? eng->no_gpu : NULL;
}

int engine_stuck(const struct engine *eng, struct hearth_err *e)
{
    double end = atomic_load(&eng->watchdog_deadline);
    if (end <= 0 || engine_now() < end)
        return 0;
    return err_set(e, HEARTH_EDEVICE, "%.100s has not ended a step, a copy or a piece of a load in %u s",
                   eng->info.name, (unsigned)atomic_load(&eng->watchdog_seconds));
}

const struct engine_counters *engine_counters(const struct engine *eng)
{
    return &eng->counters;
}

void engine_ledger(struct engine *eng, struct ledger *out)
{
    pthread_mutex_lock(&eng->ledger_lock);
    *out = eng->ledger;
    pthread_mutex_unlock(&eng->ledger_lock);
}

void engine_neighbours(struct engine *eng, struct neighbours_seen *out)
{
    *out = (struct neighbours_seen){.why = "the CPU's memory is everybody's"};
    if (eng->neighbours)
        neighbours_get(eng->neighbours, out);
    else if (eng->info.gpu)
        snprintf(out->why, sizeof out->why, "the device is not watched");
}

const struct tier_counters *engine_tiers(const struct engine *eng)
{
    return &eng->tiers;
}

static void *device_main(void *arg);

int engine_open(struct engine **out, const struct engine_params *p, struct hearth_err *e)
{
    struct engine *eng = calloc(1, sizeof *eng);
    if (!eng)
        return err_set(e, HEARTH_ENOMEM, "no memory for the engine");
    eng->params = *p;
    post_list_init(&eng->taken);
    post_list_init(&eng->todo);
    post_list_init(&eng->out);
    TAILQ_INIT(&eng->loaded);
    TAILQ_INIT(&eng->waiting_for_memory);
    sem_init(&eng->opened, 0, 0);
    pthread_mutex_init(&eng->ledger_lock, NULL);
    int rc = post_init(&eng->inbox, e);
    if (rc)
        goto fail_sem;
    if ((rc = post_init(&eng->outbox, e)))
        goto fail_inbox;
    if (pthread_create(&eng->thread, NULL, device_main, eng)) {
        rc = err_set(e, HEARTH_ENOMEM, "cannot start the device thread");
        goto fail_outbox;
    }
    while (sem_wait(&eng->opened) < 0) {
    }
    if (eng->open_err.code) {
        *e = eng->open_err;
        rc = e->code;
        goto fail_thread;
    }
    *out = eng;
    return 0;

fail_thread:
    pthread_join(eng->thread, NULL);
fail_outbox:
    post_fini(&eng->outbox);
fail_inbox:
    post_fini(&eng->inbox);
fail_sem:
    pthread_mutex_destroy(&eng->ledger_lock);
    sem_destroy(&eng->opened);
    free(eng);
    return rc;
}

bool engine_close(struct engine *eng, double seconds)
{
    struct command *o;
    struct engine_event *ev;
    struct timespec until;
    atomic_store(&eng->stop, true);
    engine_wake(eng);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(1e9 * (seconds - (time_t)seconds));
    until.tv_sec += (time_t)seconds + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_timedjoin_np(eng->thread, NULL, &until))
        return false;
    post_take(&eng->inbox, &eng->todo); /* commands that came too late */
    while ((o = (struct command *)post_list_pop(&eng->todo))) {
        seq_free(o->seq);
        free(o);
    }
    engine_take(eng);
    while ((ev = engine_next(eng)))
        engine_event_free(ev);
    post_fini(&eng->outbox);
    post_fini(&eng->inbox);
    sem_destroy(&eng->opened);
    pthread_mutex_destroy(&eng->ledger_lock);
    free(eng);
    return true;
}

/* --- the device thread ---------------------------------------------------------------------------------- */

/* A sequence that could never have pages enough is refused; one that may outgrow the pool ends there. */
static int fit(const struct engine *eng, struct seq *q, struct hearth_err *e)
{
    const struct model_entry *m = q->model;
    uint64_t room = kv_size_room(m->kv, m->n_group, eng->sched.rows_max);
    if (q->n_tokens > room)
        return err_set(e, HEARTH_ECONTEXT, "the prompt has %u tokens; the KV pool of %u pages holds %llu", q->n_tokens,
                       (unsigned)(room / KV_PAGE), (unsigned long long)room);
    if (q->n_limit > room)
        q->n_limit = (uint32_t)room;
    return 0;
}

/* Seconds that the sequence waited for its model; the load may have begun before it came. */
static double waited_for_load(const struct seq *q)
{
    const struct model_entry *m = q->model;
    double from = m->load_begun > q->time.submit ? m->load_begun : q->time.submit;
    return m->load_ended > from ? m->load_ended - from : 0;
}

/* Says how much of it is in full pages on the device, and ends it. No model is loaded for that. */
static void measure(struct engine *eng, struct seq *q)
{
    const struct model_entry *m = q->model;
    if (m->model && m->group.kv && q->n_tokens > 1) {
        q->kv.uid = q->uid;
        q->n_reused = kv_match_nodes(m->group.kv, &q->kv, q->token, q->n_tokens - 1) * KV_PAGE;
        kv_release(m->group.kv, &q->kv, q->token, q->n_reused);
    }
    q->n_accounted = q->n_reused;
    end_seq(eng, q, END_LENGTH, NULL);
}

/* Queues the sequence; false where its model has to wait for memory that other models use. */
static bool submit(struct engine *eng, struct seq *q)
{
    struct hearth_err err = {0};
    if (!q->model->model) {
        int rc = load_model(eng, q->model, &err);
        if (rc == HEARTH_ENOMEM && (eng->yield.on || !device_has_no_model(eng)))
            return false; /* the idle models are unloaded by now */
        if (rc) {
            end_seq(eng, q, END_ERROR, &err);
            return true;
        }
    }
    q->time.load = waited_for_load(q);
    if (fit(eng, q, &err)) {
        end_seq(eng, q, END_ERROR, &err);
        return true;
    }
    yield_resumes(eng, q);
    TAILQ_REMOVE(&eng->loaded, q->model, loaded_link); /* most recently used last */
    TAILQ_INSERT_TAIL(&eng->loaded, q->model, loaded_link);
    q->kv.freq_set = sched_freq_set(&q->model->group, q->n_tokens);
    if (!tier_submit(eng->tier, q, engine_now()))
        sched_push(&eng->sched, &q->model->group, q, engine_now());
    engine_update_stats(eng, q->model);
    return true;
}

/*
 * Where two models are used and there is memory for one, they take turns: once a sequence waits for memory, all later
 * ones wait behind it, even those for the loaded model, or it would wait for ever.
 */
static void submit_waiting_for_memory(struct engine *eng)
{
    struct seq *q;
    while (!eng->fatal.code && (q = TAILQ_FIRST(&eng->waiting_for_memory)) &&
           (q->model->model || load_may_evict(eng))) {
        TAILQ_REMOVE(&eng->waiting_for_memory, q, link);
        if (!submit(eng, q)) {
            TAILQ_INSERT_HEAD(&eng->waiting_for_memory, q, link);
            break;
        }
        eng->n_waiting_for_memory--;
    }
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

/* Ends a sequence that has not ended, for that reason. */
static void end_one(struct engine *eng, uint64_t id, enum end_reason reason, const struct hearth_err *err)
{
    struct seq *q = tier_cancel(eng->tier, id);
    if (!q && (q = find(&eng->waiting_for_memory, id)))
        stop_waiting_for_memory(eng, q);
    if (!q)
        q = find_scheduled(eng, id);
    if (q)
        end_seq(eng, q, reason, err);
}

/* Of one whose KV is being restored, too. */
static void set_class(struct engine *eng, uint64_t id, enum seq_class class)
{
    struct seq *q = tier_find(eng->tier, id);
    if (!q)
        q = find(&eng->waiting_for_memory, id);
    if (!q)
        q = find_scheduled(eng, id);
    if (q)
        sched_set_class(q, class);
}

static void end_late_of(struct engine *eng, struct seq_list *list, double now)
{
    struct hearth_err err = {0};
    struct seq *q, *next;
    for (q = TAILQ_FIRST(list); q; q = next) {
        next = TAILQ_NEXT(q, link);
        if (q->deadline <= 0 || q->time.first > 0)
            continue;
        if (now < q->deadline) {
            eng->next_deadline = fmin(eng->next_deadline, q->deadline);
            continue;
        }
        if (list == &eng->waiting_for_memory)
            stop_waiting_for_memory(eng, q);
        /* Without a number: of the one that was asked for, hearthd's line may have taken a part. */
        err_set(&err, HEARTH_ECANCELLED, "there was no token by the deadline (deadline_ms)");
        end_seq(eng, q, END_ERROR, &err);
    }
}

/* Ends those of which a token was worth something until now. */
static void end_late(struct engine *eng)
{
    double now = engine_now();
    eng->next_deadline = INFINITY;
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
    if (load && !was_loaded)
        rc = load_model(eng, o->model, &err);
    else if (unload && was_loaded)
        rc = unload_model(eng, o->model, &err);
    if (!rc && o->kind != CMD_LOAD)
        atomic_store(&o->model->pinned, o->kind == CMD_PIN);
    if (!rc && !unload)
        engine_update_stats(eng, o->model); /* a load is a use: the model stays for idle_ms from now on */
    if (eng->memory_changed)
        memory_count(eng); /* whoever has the answer may ask who has the memory */
    struct event_model *ev = engine_event_new(eng, unload ? EV_UNLOADED : EV_LOADED, sizeof *ev);
    ev->model = o->model;
    ev->owner = o->owner;
    if (rc) /* on success `err` may hold the error of an earlier try */
        ev->err = err;
    ev->seconds = engine_now() - begin;
    ev->was_loaded = was_loaded;
}

static void run_commands(struct engine *eng)
{
    struct command *o;
    post_take(&eng->inbox, &eng->todo);
    while (!eng->fatal.code && (o = (struct command *)post_list_pop(&eng->todo))) {
        switch (o->kind) {
        case CMD_SUBMIT:
            o->seq->steps = atomic_load(&eng->counters.steps);
            if (o->seq->measure)
                measure(eng, o->seq);
            else if (eng->n_waiting_for_memory || !submit(eng, o->seq)) {
                TAILQ_INSERT_TAIL(&eng->waiting_for_memory, o->seq, link);
                eng->n_waiting_for_memory++;
                yield_parks(eng, o->seq);
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
        case CMD_KV_EVICTED:
            tier_file_evicted(eng->tier, o->file, o->again, engine_now());
            break;
        case CMD_FINISH:
            eng->finish_by = engine_now() + o->seconds;
            break;
        case CMD_WAKE:
            break;
        }
        free(o);
    }
    submit_waiting_for_memory(eng);
    end_late(eng);
    engine_count_seqs(eng);
}

/* Ends every sequence. Tokens of steps in flight are dropped. */
static void end_all(struct engine *eng, const struct hearth_err *err)
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

static void on_tier_event(void *arg, const struct tier_event *what)
{
    struct event_kv *ev = engine_event_new(arg, EV_KV, sizeof *ev);
    ev->what = *what;
    snprintf(ev->file, sizeof ev->file, "%s", what->file);
    snprintf(ev->label, sizeof ev->label, "%s", what->label ? what->label : "");
    snprintf(ev->why, sizeof ev->why, "%s", what->why ? what->why : "");
    ev->what.file = ev->what.label = ev->what.why = NULL; /* they are in the event itself */
}

/* Without a usable folder for files the engine works without them, and logs that. */
static int open_tier(struct engine *eng, struct hearth_err *e)
{
    struct tier_params p = {
        .be = eng->be,
        .dev = eng->dev,
        .gpu = eng->info.gpu,
        .dir = eng->params.kv_dir,
        .ram = eng->params.kv_ram,
        .sharers = memory_sharers(eng),
        .ram_left = host_memory_room,
        .policy = eng->params.restore,
        .counters = &eng->tiers,
        .notify = on_tier_event,
        .arg = eng,
    };
    int rc = tier_open(&eng->tier, &p, e);
    if (rc && eng->tier) {
        log_warn("no KV files: %s", e->msg);
        rc = 0;
    }
    return rc;
}

static uint32_t on_park(void *arg, struct seq *q)
{
    struct engine *eng = arg;
    struct hearth_err ignored;
    uint32_t before = tier_pages_leaving(eng->tier, q->model);
    eng->look_again = true;
    if (model_is_intact(eng, q->model, &ignored))
        tier_save(eng->tier, q, engine_now());
    return tier_pages_leaving(eng->tier, q->model) - before;
}

static bool on_fetch(void *arg, struct seq *q)
{
    struct engine *eng = arg;
    double now = engine_now();
    eng->look_again = true;
    sched_take_out(&eng->sched, q);
    seq_remember_restored(q);
    if (tier_submit(eng->tier, q, now))
        return true;
    sched_push(&eng->sched, &q->model->group, q, now);
    return false;
}

/* Takes a sequence that the tiers have done with. */
static void take_back(struct engine *eng, struct seq *q, double now)
{
    if (q->arrival) { /* it had made way */
        q->time.restore = q->restored_before.time;
        q->restored_from = q->restored_before.from;
        q->restored_to = q->restored_before.to;
    }
    sched_push(&eng->sched, &q->model->group, q, now);
}

static int open_device(struct engine *eng, struct hearth_err *e)
{
    struct device_params p = {
        .threads = eng->params.threads, .variant = eng->params.variant, .kv_type = load_kv_type(&eng->params)};
    bool any = !strcmp(eng->params.backend, "auto");
    int rc = err_set(e, HEARTH_EDEVICE, "this build has no backend \"%.40s\"", eng->params.backend);
    for (int i = 0; backends[i] && !eng->be; i++) {
        if (!any && strcmp(backends[i]->name, eng->params.backend))
            continue;
        if (!(rc = backends[i]->open(&eng->dev, &p, e)))
            eng->be = backends[i];
        else if (any) {
            log_warn("no %s: %s", backends[i]->name, e->msg);
            snprintf(eng->no_gpu, sizeof eng->no_gpu, "%s", e->msg);
        }
    }
    if (rc)
        return rc;
    if (eng->params.wrap) {
        const struct backend *wrapped = eng->params.wrap(eng->be, eng->dev, e);
        if (!wrapped) {
            rc = e->code;
            goto fail;
        }
        eng->be = wrapped;
    }
    eng->be->info(eng->dev, &eng->info);
    eng->max_in_flight = eng->info.max_in_flight < 1               ? 1
                         : eng->info.max_in_flight > IN_FLIGHT_MAX ? IN_FLIGHT_MAX
                                                                   : eng->info.max_in_flight;
    if (eng->params.max_in_flight && eng->params.max_in_flight < eng->max_in_flight)
        eng->max_in_flight = eng->params.max_in_flight;
    eng->memory_changed = true;
    eng->empty_since = engine_now();
    sched_init(&eng->sched, eng->info.gpu ? ROWS_GPU : ROWS_CPU, OUT_MAX);
    eng->sched.parking = (struct sched_parking){on_park, on_fetch, eng};
    if ((rc = open_tier(eng, e)))
        goto fail;
    memory_open(eng);
    return 0;

fail:
    eng->be->close(eng->dev);
    eng->be = NULL;
    return rc;
}

static void close_device(struct engine *eng)
{
    struct hearth_err err = {.code = HEARTH_ESHUTDOWN, .msg = "the engine is shutting down"};
    struct model_entry *m;
    if (!eng->fatal.code)
        step_drain(eng);
    end_all(eng, &err);
    memory_close(eng);
    tier_close(eng->tier);
    eng->tier = NULL;
    while ((m = TAILQ_FIRST(&eng->loaded)))
        unload_model(eng, m, &err);
    load_fini(eng);
    sched_fini(&eng->sched);
    eng->be->close(eng->dev);
    free(eng->logits);
}

static enum tier_foreground foreground_load(const struct engine *eng)
{
    const struct seq *q;
    bool prompts = eng->sched.count[SEQ_WAIT];
    if (eng->finish_by > 0 || eng->waiting_for_pages)
        return TIER_FG_BLOCKED;
    TAILQ_FOREACH (q, &eng->sched.list[SEQ_RUN], link)
        prompts |= q->time.first == 0;
    if (eng->n_in_flight)
        return prompts ? TIER_FG_PREFILL : TIER_FG_DECODE;
    return prompts && !atomic_load(&eng->throttled) ? TIER_FG_SUBMIT : TIER_FG_IDLE;
}

/* Moves KV on between two steps. True where copies are under way, so that it has to be called again soon. */
static bool poll_tier(struct engine *eng)
{
    struct hearth_err err;
    struct seq *q;
    double now = engine_now();
    tier_foreground(eng->tier, foreground_load(eng));
    int rc = tier_poll(eng->tier, now, &err);
    if (rc < 0)
        engine_fail(eng, &err);
    while ((q = tier_ready(eng->tier)))
        take_back(eng, q, now);
    struct model_entry *m;
    TAILQ_FOREACH (m, &eng->loaded, loaded_link)
        m->group.leaving = tier_pages_leaving(eng->tier, m);
    if (eng->finish_by > 0 && (!tier_saving(eng->tier) || now >= eng->finish_by)) {
        engine_event_new(eng, EV_FINISHED, sizeof(struct engine_event));
        eng->finish_by = 0;
    }
    return rc > 0;
}

/* How long until EV_IDLE is due; < 0: it is not. */
static double seconds_to_idle(const struct engine *eng)
{
    if (!eng->params.empty_ms || !TAILQ_EMPTY(&eng->loaded) || eng->n_waiting_for_memory)
        return -1;
    double left = eng->empty_since + 1e-3 * (double)eng->params.empty_ms - engine_now();
    return left > 0 ? left : 0;
}

static void tell_idle(struct engine *eng)
{
    if (seconds_to_idle(eng) != 0 || tier_saving(eng->tier))
        return;
    engine_event_new(eng, EV_IDLE, sizeof(struct engine_event));
    eng->empty_since = engine_now();
}

/* Waits for a command, for the I/O thread, for a model's idle time to end, or for the tiers' next poll; where copies
 * are under way, for the oldest of them. */
static void wait_for_work(struct engine *eng, bool copying)
{
    static const double most = 3600; /* so that the ms fit poll's int */
    struct hearth_err err;
    struct pollfd pfd[2] = {{eng->inbox.fd, POLLIN, 0}, {tier_fd(eng->tier), POLLIN, 0}};
    if (copying) {
        step_watchdog(eng, eng->dev);
        int rc = tier_wait(eng->tier, &err);
        step_watchdog(eng, NULL);
        if (rc)
            engine_fail(eng, &err);
        return;
    }
    if (tier_idle(eng->tier))
        return;
    double seconds = tier_poll_timeout(eng->tier), unload = unload_poll_timeout(eng);
    if (eng->finish_by > 0)
        seconds = 0.01;
    if (unload >= 0 && (seconds < 0 || unload < seconds))
        seconds = unload < most ? unload : most;
    double yield = yield_timeout(eng);
    if (yield >= 0 && (seconds < 0 || yield < seconds))
        seconds = yield < most ? yield : most;
    double empty = seconds_to_idle(eng);
    if (empty >= 0 && (seconds < 0 || empty < seconds))
        seconds = empty < most ? empty : most;
    double late = eng->next_deadline - engine_now();
    if (late < most && (seconds < 0 || late < seconds))
        seconds = late > 0 ? late : 0;
    poll(pfd, 2, seconds < 0 ? -1 : (int)ceil(1e3 * seconds)); /* an early return does no harm */
}

static void *device_main(void *arg)
{
    struct engine *eng = arg;
    open_device(eng, &eng->open_err);
    bool failed = eng->be == NULL;
    if (!failed)
        eng->open_err.code = 0;
    sem_post(&eng->opened);
    if (failed)
        return NULL;
    while (!atomic_load(&eng->stop) && !eng->fatal.code) {
        run_commands(eng);
        unload_idle(eng);
        tell_idle(eng);
        bool throttled = atomic_load(&eng->throttled);
        if (throttled)
            step_drain(eng);
        bool copying = poll_tier(eng);
        eng->look_again = false;
        yield_advance(eng);
        bool idle = eng->fatal.code || throttled || !step_advance(eng);
        eng->waiting_for_pages = idle && eng->sched.count[SEQ_WAIT];
        engine_notify(eng, idle);
        if (!eng->fatal.code)
            memory_count_now_and_then(eng, idle);
        if (idle && !eng->look_again && !eng->fatal.code && !atomic_load(&eng->stop))
            wait_for_work(eng, copying);
    }
    if (eng->fatal.code) {
        end_all(eng, &eng->fatal);
        struct event_fatal *ev = engine_event_new(eng, EV_FATAL, sizeof *ev);
        ev->err = eng->fatal;
    }
    post_send(&eng->outbox, &eng->out);
    close_device(eng);
    post_send(&eng->outbox, &eng->out);
    return NULL;
}
