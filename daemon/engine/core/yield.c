/* yield.c - see yield.h. Thread: the device thread's. */
#include "config.h"

#include "daemon/engine/core/yield.h"

#include <math.h>
#include <string.h>

#include "daemon/engine/core/events.h"
#include "daemon/engine/core/load.h"
#include "daemon/engine/core/memory.h"
#include "daemon/engine/core/step.h"
#include "daemon/log.h"

static const double retry_seconds = 0.25; /* between two attempts of a pool that was refused memory */

static uint64_t all_held(const struct engine *eng)
{
    return ledger_own(&eng->ledger) + eng->ledger.held[MEM_CACHE];
}

/* Bytes that are free without giving anything back. */
static uint64_t free_now(const struct engine *eng)
{
    uint64_t cache = eng->ledger.held[MEM_CACHE];
    return eng->ledger.free > cache ? eng->ledger.free - cache : 0;
}

static void limit_cache(struct engine *eng, uint64_t bytes)
{
    if (eng->be->cache_limit)
        eng->be->cache_limit(eng->dev, bytes);
    eng->memory_changed = true;
}

/* From now on hearth takes no more than `cap`, and copies of weights, which do not count in it, do not grow either. */
static void hold_at(struct engine *eng, uint64_t cap)
{
    eng->yield.busy = false;
    eng->yield.cap = cap;
    limit_cache(eng, eng->ledger.held[MEM_CACHE]);
}

static void may_grow(struct engine *eng)
{
    struct model_entry *m;
    TAILQ_FOREACH (m, &eng->loaded, loaded_link)
        kv_may_grow(m->group.kv);
}

/* --- giving memory back ----------------------------------------------------------------------------------- */

/* Gives back memory of pools: of free pages, or with `cached` of as many cached pages as `bytes` require. Each pool
 * keeps its minimum, because until the yield ends it cannot grow, and a model without KV serves nobody. */
static bool shrink(struct engine *eng, bool cached, uint64_t bytes)
{
    struct model_entry *m;
    uint32_t n = 0;
    TAILQ_FOREACH (m, &eng->loaded, loaded_link) {
        if (m->model->dev != eng->dev)
            continue;
        models_run_kv_actions(m);
        struct kv_desc least[KV_GROUPS_MAX];
        load_least_pools(m, least);
        for (uint32_t g = 0; g < m->n_group; g++) {
            struct kv_counts c;
            kv_count(m->group.kv, g, &c);
            uint64_t extent = m->kv[g].extent * kv_page_bytes(&m->kv[g]);
            uint64_t most = extent ? bytes / extent + 1 : 0;
            uint64_t spare = extent && c.total > least[g].n_page ? (c.total - least[g].n_page) / m->kv[g].extent : 0;
            most = most < spare ? most : spare;
            n += kv_shrink(m->group.kv, g, most < UINT32_MAX ? (uint32_t)most : UINT32_MAX, cached);
        }
        engine_update_stats(eng, m);
    }
    return n;
}

static bool unload_one(struct engine *eng)
{
    struct hearth_err ignored;
    struct model_entry *m;
    TAILQ_FOREACH (m, &eng->loaded, loaded_link)
        if (!m->group.n_seq && m->model->dev == eng->dev && !atomic_load(&m->pinned))
            return !unload_model(eng, m, &ignored);
    return false;
}

/* Gives something back at once; false if everything that is left is in use. */
static bool give_back(struct engine *eng)
{
    uint64_t lacks = eng->yield.all ? UINT64_MAX : eng->yield.bytes - free_now(eng);
    step_drain(eng); /* so that no step refers to a freed page */
    if (eng->fatal.code)
        return false;
    if (eng->ledger.held[MEM_CACHE] && eng->be->cache_limit) {
        limit_cache(eng, 0);
        return true;
    }
    return shrink(eng, false, lacks) || shrink(eng, true, lacks) || unload_one(eng);
}

/* --- parking streams -------------------------------------------------------------------------------------- */

/* The largest model among those with sequences that may be parked; NULL if there is none. */
static struct model_entry *busiest(const struct engine *eng)
{
    struct model_entry *m, *best = NULL;
    TAILQ_FOREACH (m, &eng->loaded, loaded_link)
        if (m->group.n_seq && m->model->dev == eng->dev && !atomic_load(&m->pinned) &&
            (!best || m->hp.weight_bytes > best->hp.weight_bytes))
            best = m;
    return best;
}

/* Moves all sequences of the model from the scheduler to waiting_for_memory, ahead of those that wait there already, in
 * their order; false as long as some are still in steps or in the tiers. */
static bool take_out(struct engine *eng, struct model_entry *m)
{
    struct seq *q, *next, *last = NULL;
    uint32_t n = 0;
    TAILQ_FOREACH (q, &eng->sched.list[SEQ_WAIT], link)
        n += q->group == &m->group && !q->inflight;
    if (n != m->group.n_seq)
        return false;
    for (q = TAILQ_FIRST(&eng->sched.list[SEQ_WAIT]); q; q = next) {
        next = TAILQ_NEXT(q, link);
        if (q->group != &m->group)
            continue;
        sched_take_out(&eng->sched, q);
        seq_remember_restored(q);
        if (last)
            TAILQ_INSERT_AFTER(&eng->waiting_for_memory, last, q, link);
        else
            TAILQ_INSERT_HEAD(&eng->waiting_for_memory, q, link);
        last = q;
        eng->n_waiting_for_memory++;
        tell_waits(eng, q);
    }
    return true;
}

/* Parks the streams of a model; false if there is no model whose streams can be parked. */
static bool park(struct engine *eng)
{
    struct model_entry *m = eng->yield.parking ? eng->yield.parking : busiest(eng);
    if (!m)
        return false;
    if (!eng->yield.parking) {
        step_drain(eng);
        sched_hold(&eng->sched, &m->group, true);
        eng->yield.parking = m;
    }
    if (take_out(eng, m)) {
        sched_hold(&eng->sched, &m->group, false);
        eng->yield.parking = NULL;
    }
    return true;
}

/* --- the course of a yield --------------------------------------------------------------------------------- */

static void answer(struct engine *eng, void *owner, uint64_t before, const struct hearth_err *err)
{
    struct event_yield *ev = engine_event_new(eng, EV_YIELDED, sizeof *ev);
    uint64_t held = all_held(eng);
    ev->owner = owner;
    ev->freed = before > held ? before - held : 0;
    ev->free = free_now(eng);
    ev->holds = eng->yield.on && !eng->yield.busy;
    ev->held = eng->yield.on ? eng->yield.cap : held;
    if (err)
        ev->err = *err;
}

static void end(struct engine *eng)
{
    struct model_entry *m;
    if (!eng->yield.on)
        return;
    log_info("yielded memory may be taken again");
    if (eng->yield.pressed) /* of the end of other yields hearthd knows */
        engine_event_new(eng, EV_RELIEVED, sizeof(struct engine_event));
    eng->yield.on = eng->yield.busy = eng->yield.pressed = false;
    eng->yield.parking = NULL;
    pressure_accept(&eng->pressure, &eng->ledger);
    limit_cache(eng, UINT64_MAX);
    TAILQ_FOREACH (m, &eng->loaded, loaded_link)
        sched_hold(&eng->sched, &m->group, false);
    may_grow(eng);
    eng->load_again_at = 0;
    engine_wake(eng); /* sequences that wait for memory are handled with the commands */
}

void yield_begin(struct engine *eng, const struct command *o)
{
    struct hearth_err err = {0};
    memory_count(eng);
    if (eng->yield.busy && !eng->yield.pressed)
        err_set(&err, HEARTH_ELIMIT, "memory is being yielded already: try again in a moment");
    if (err.code || o->seconds <= 0) {
        if (!err.code)
            end(eng);
        answer(eng, o->owner, all_held(eng), err.code ? &err : NULL);
        return;
    }
    eng->yield.on = eng->yield.busy = true;
    eng->yield.pressed = false;
    eng->yield.begun = engine_now();
    eng->yield.all = o->all || o->again;
    eng->yield.bytes = o->bytes;
    eng->yield.until = eng->yield.begun + o->seconds;
    eng->yield.owner = o->owner;
    eng->yield.before = all_held(eng);
    eng->yield.cap = ledger_own(&eng->ledger);
    if (o->again && eng->yield.cap <= o->bytes) { /* nothing has to be given back */
        hold_at(eng, o->bytes);
        answer(eng, o->owner, eng->yield.before, NULL);
    }
}

static void done(struct engine *eng, bool enough)
{
    struct hearth_err err = {0};
    if (!enough)
        err_set(&err, HEARTH_ELIMIT,
                "hearth has given back what it may, and %.1f GB of the %.1f GB are free; it takes no more for %.0f s "
                "(`hearth yield --end` ends that)",
                1e-9 * (double)free_now(eng), 1e-9 * (double)eng->yield.bytes, eng->yield.until - engine_now());
    hold_at(eng, ledger_own(&eng->ledger));
    engine_wake(eng); /* a change of what other programs use may not have been evaluated meanwhile */
    if (eng->yield.pressed)
        log_info("other programs take the GPU's memory, %.1f GB by now: %.1f GB were given back in %.0f ms, %.1f GB "
                 "are free",
                 1e-9 * (double)eng->ledger.others, 1e-9 * (double)(eng->yield.before - all_held(eng)),
                 1e3 * (engine_now() - eng->yield.begun), 1e-9 * (double)free_now(eng));
    else
        answer(eng, eng->yield.owner, eng->yield.before, enough ? NULL : &err);
}

/* Gives memory back until enough is free. True while streams are being parked. */
static bool go_on(struct engine *eng)
{
    while (!eng->fatal.code) {
        memory_count(eng);
        bool enough = !eng->yield.all && free_now(eng) >= eng->yield.bytes;
        if (!enough && !eng->yield.parking && give_back(eng))
            continue;
        if (!enough && park(eng)) {
            if (eng->yield.parking)
                return true;
            continue;
        }
        if (eng->yield.parking) {
            sched_hold(&eng->sched, &eng->yield.parking->group, false);
            eng->yield.parking = NULL;
        }
        done(eng, enough || eng->yield.all);
        return false;
    }
    return false;
}

static bool was_refused(const struct engine *eng)
{
    const struct model_entry *m;
    bool refused = false;
    TAILQ_FOREACH (m, &eng->loaded, loaded_link)
        refused |= kv_was_refused(m->group.kv);
    return refused;
}

/* If a pool was refused memory, for which sequences may be waiting: frees what nobody needs, and lets the pool ask
 * again. */
static void relieve(struct engine *eng)
{
    if (!was_refused(eng) || engine_now() < eng->relieve_at)
        return;
    eng->relieve_at = engine_now() + retry_seconds;
    step_drain(eng);
    limit_cache(eng, 0);
    if (!eng->yield.on)
        limit_cache(eng, UINT64_MAX);
    if (!eng->fatal.code)
        unload_one(eng);
    may_grow(eng);
}

void yield_relieve_step(struct engine *eng, bool unload)
{
    static const uint64_t first = 64 << 20; /* bytes of KV; attention's first buffer is as large */
    struct model_entry *m = eng->refused.model;
    if (!m)
        return;
    step_drain(eng); /* so that no step refers to a freed page */
    if (eng->fatal.code)
        return;
    eng->refused.model = NULL;
    if (!m->group.n_seq) /* its sequences have ended meanwhile, and it may itself be the idle model */
        return;
    memory_count(eng);
    uint64_t cached = eng->ledger.held[MEM_CACHE];
    eng->refused.bytes = eng->refused.bytes ? 2 * eng->refused.bytes : first;
    if (cached)
        limit_cache(eng, 0);
    if (cached && !eng->yield.on)
        limit_cache(eng, UINT64_MAX);
    m->group.dry = !cached && !shrink(eng, false, eng->refused.bytes) && !(unload && unload_one(eng)) &&
                   !shrink(eng, true, eng->refused.bytes);
}

/* Called when other programs use more or less than before. A yield that somebody requested is theirs to end. */
static void look_for_pressure(struct engine *eng)
{
    if (eng->yield.busy) /* the change is evaluated afterwards */
        return;
    if (!atomic_exchange(&eng->neighbours_pressed, false) || (eng->yield.on && !eng->yield.pressed))
        return;
    memory_count(eng);
    enum pressure_act act = pressure_look(&eng->pressure, &eng->ledger, free_now(eng));
    if (act == PRESSURE_TAKE)
        end(eng);
    if (act != PRESSURE_GIVE)
        return;
    eng->yield.on = eng->yield.busy = eng->yield.pressed = true;
    eng->yield.all = false;
    eng->yield.bytes = eng->pressure.want;
    eng->yield.until = INFINITY;
    eng->yield.owner = NULL;
    eng->yield.before = all_held(eng);
    eng->yield.begun = engine_now();
    eng->yield.cap = ledger_own(&eng->ledger);
}

/* Whether none of the model's sequences goes on until the yield ends: its pool was refused the pages that they need. */
static bool waits_for_pages(const struct engine *eng, const struct model_entry *m)
{
    const struct seq *q;
    if (!m->group.line_stands || m->group.leaving || !kv_was_refused(m->group.kv))
        return false;
    TAILQ_FOREACH (q, &eng->sched.list[SEQ_RUN], link)
        if (q->group == &m->group)
            return false;
    return true;
}

void yield_tell(struct engine *eng)
{
    const struct model_entry *m;
    struct seq *q;
    TAILQ_FOREACH (m, &eng->loaded, loaded_link) {
        if (!eng->yield.on || !waits_for_pages(eng, m))
            continue;
        TAILQ_FOREACH (q, &eng->sched.list[SEQ_WAIT], link)
            if (q->group == &m->group)
                tell_waits(eng, q);
    }
}

bool yield_advance(struct engine *eng)
{
    yield_relieve_step(eng, true);
    look_for_pressure(eng);
    if (eng->yield.busy)
        return go_on(eng);
    if (eng->yield.on && engine_now() >= eng->yield.until)
        end(eng);
    relieve(eng);
    return false;
}

double yield_timeout(const struct engine *eng)
{
    static const double soon = 0.01;
    double left = eng->yield.until - engine_now();
    if (eng->yield.busy)
        return soon;
    if (!eng->yield.on && !was_refused(eng)) /* possibly by the last step, after relieve() was called */
        return -1;
    if (was_refused(eng))
        left = eng->yield.on ? fmin(left, eng->relieve_at - engine_now()) : eng->relieve_at - engine_now();
    return left > 0 ? left : 0;
}
