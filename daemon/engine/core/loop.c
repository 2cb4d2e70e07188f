/* loop.c - see loop.h. Thread: the device thread's. */
#include "config.h"

#include "daemon/engine/core/loop.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/core/commands.h"
#include "daemon/engine/core/events.h"
#include "daemon/engine/core/load.h"
#include "daemon/engine/core/memory.h"
#include "daemon/engine/core/step.h"
#include "daemon/engine/core/yield.h"
#include "daemon/engine/host-memory.h"
#include "daemon/log.h"

static void on_tier_event(void *arg, const struct tier_event *what)
{
    struct event_kv *ev = engine_event_new(arg, EV_KV, sizeof *ev);
    ev->what = *what;
    snprintf(ev->file, sizeof ev->file, "%s", what->file);
    snprintf(ev->label, sizeof ev->label, "%s", what->label ? what->label : "");
    snprintf(ev->why, sizeof ev->why, "%s", what->why ? what->why : "");
    ev->what.file = ev->what.label = ev->what.why = NULL; /* they are in the event itself */
}

/* If the directory for KV files is unusable the engine works without files, and logs that. */
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

/* Takes back a sequence that the tiers are done with. */
static void take_back(struct engine *eng, struct seq *q, double now)
{
    if (q->arrival) { /* it had been preempted */
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
    commands_end_all(eng, &err);
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

/* Advances the tiers between two steps. True if copies are under way, so that this must be called again soon. */
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

/* What goes on between two pieces of a load: commands that need not wait for its end, and the tiers, for which
 * sequences of other models may wait, as for the pages of one that was preempted. */
static void go_on_beside_load(struct engine *eng)
{
    commands_run_beside_load(eng);
    poll_tier(eng);
    yield_relieve_step(eng, false);
}

/* Seconds until EV_IDLE is due; < 0: it is not. */
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

/* Waits for a command, for the I/O thread, until a model has been idle long enough, or for the tiers' next poll; if
 * copies are under way, for the oldest of them. */
static void wait_for_work(struct engine *eng, bool copying)
{
    static const double most = 3600; /* so that the milliseconds fit poll's int */
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
    if (eng->todo.first) /* taken out of the inbox during a step or a load since the commands were run */
        return;
    double seconds = tier_poll_timeout(eng->tier), unload = unload_poll_timeout(eng);
    if (eng->finish_by > 0)
        seconds = 0.01;
    if (unload >= 0 && (seconds < 0 || unload < seconds))
        seconds = unload < most ? unload : most;
    double again = commands_timeout(eng);
    if (again >= 0 && (seconds < 0 || again < seconds))
        seconds = again;
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

void *loop_main(void *arg)
{
    struct engine *eng = arg;
    open_device(eng, &eng->open_err);
    bool failed = eng->be == NULL;
    if (!failed)
        eng->open_err.code = 0;
    sem_post(&eng->opened);
    if (failed)
        return NULL;
    eng->beside_load = go_on_beside_load; /* load.c is below this file and commands.c, so it calls them back */
    while (!atomic_load(&eng->stop) && !eng->fatal.code) {
        commands_run(eng);
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
        yield_tell(eng);
        engine_notify(eng, idle);
        if (!eng->fatal.code)
            memory_count_now_and_then(eng, idle);
        if (idle && !eng->look_again && !eng->fatal.code && !atomic_load(&eng->stop))
            wait_for_work(eng, copying);
    }
    if (eng->fatal.code) {
        commands_end_all(eng, &eng->fatal);
        struct event_fatal *ev = engine_event_new(eng, EV_FATAL, sizeof *ev);
        ev->err = eng->fatal;
    }
    post_send(&eng->outbox, &eng->out);
    close_device(eng);
    post_send(&eng->outbox, &eng->out);
    return NULL;
}
