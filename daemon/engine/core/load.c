/* load.c - loads and unloads models: weights, workspace, KV pool. Thread: the device thread's. */
#include "config.h"

#include "daemon/engine/core/load.h"

#include <assert.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/core/events.h"
#include "daemon/engine/core/fit.h"
#include "daemon/engine/core/lead.h"
#include "daemon/engine/core/memory.h"
#include "daemon/engine/core/step.h"
#include "daemon/engine/host-memory.h"
#include "daemon/engine/kvtier/fingerprint.h"
#include "daemon/engine/sched/kv-size.h"
#include "daemon/engine/selfcheck/cache.h"
#include "daemon/log.h"

static const double progress_seconds = 0.1;

enum {
    POOL_CONTEXTS = 8, /* full contexts for which a pool is sized, if memory allows */
    POOL_BYTES_MIN = 256 << 20,
    POOL_TOKENS_MIN = 1024, /* for a GPU's pool: a smaller one would refuse most requests */
};

/*
 * Gives the other models' sequences a step, and then the load as much time as that step took. Alternating one piece
 * with one step would starve one side or the other: a piece may be a vector or a matrix of some MB, and a step a single
 * token or a second of a prompt. For the length of prompt chunks, the request that waits for the load counts as an
 * arrival.
 */
static void advance_others(struct engine *eng, double now)
{
    eng->beside_load(eng);
    if (eng->fatal.code || atomic_load(&eng->throttled) || now < eng->load_until)
        return;
    sched_note_arrival(&eng->sched, now);
    step_advance(eng);
    double end = engine_now();
    eng->load_until = end + (end - now);
}

/* Called between two pieces of the model's weights. */
static bool on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct engine *eng = arg;
    double now = engine_now();
    advance_others(eng, now);
    if (done == total || now - eng->last_progress >= progress_seconds) {
        eng->last_progress = now;
        struct event_model *ev = engine_event_new(eng, EV_PROGRESS, sizeof *ev);
        ev->model = eng->loading;
        ev->done = done;
        ev->total = total;
    }
    engine_notify(eng, true); /* the next piece may take long, so events are sent now */
    step_watchdog(eng, NULL);
    return !atomic_load(&eng->stop) && !eng->fatal.code;
}

/* Bytes of the host's memory for a model's KV. Above the limit of its control groups the engine would be killed, and a
 * pool keeps KV that nobody uses until it is full. */
static uint64_t host_share(const struct device_info *info)
{
    uint64_t granted = host_memory_granted();
    return (granted < info->mem_total ? granted : info->mem_total) / 4;
}

/* The longest context in pools for a timeline of n_page pages. */
static uint32_t tokens_of(const struct hparams *hp, uint32_t n_page)
{
    return (uint64_t)n_page * KV_PAGE < hp->n_ctx ? n_page * KV_PAGE : hp->n_ctx;
}

/* Bytes of pools for a timeline of n_page pages, and of what steps need for attention to what they hold. */
static uint64_t beside_weights(const struct engine *eng, const struct model_entry *m, uint32_t n_page)
{
    const struct hparams *hp = &m->model->hp;
    return kv_size_bytes(m->kv, m->n_group, n_page, hp->n_ctx, m->group.rows_max) +
           memory_more_sums(eng, m->model, m->group.rows_max, tokens_of(hp, n_page));
}

/*
 * The size of the pools, in pages of a timeline: as configured, otherwise several full contexts within a share of the
 * machine's memory. On the CPU a page takes memory only once it is written; on a GPU a pool that does not grow is
 * allocated as a whole, beside the weights.
 */
static uint32_t pool_pages(struct engine *eng, const struct model_entry *m, uint32_t least)
{
    const struct hparams *hp = &m->model->hp;
    struct device_info info;
    m->model->be->info(m->model->dev, &info);
    uint64_t bytes = eng->params.kv_bytes;
    if (!bytes) {
        /* half of what a GPU has left for us: the rest is for the weight cache (MEM_CACHE) and another model */
        uint64_t share = info.gpu ? memory_room(eng) / 2 : host_share(&info);
        if (m->model->place.host) /* the weights have left this room for KV */
            share = 2 * share - (fit_spare(eng) < 2 * share ? fit_spare(eng) : 2 * share);
        uint64_t pages = POOL_CONTEXTS * ((uint64_t)hp->n_ctx / KV_PAGE + 1);
        pages = pages < KV_PAGES_MAX ? pages : KV_PAGES_MAX;
        bytes = kv_size_bytes(m->kv, m->n_group, (uint32_t)pages, hp->n_ctx, m->group.rows_max);
        bytes = bytes > POOL_BYTES_MIN ? bytes : POOL_BYTES_MIN;
        bytes = bytes < share ? bytes : share;
    }
    uint32_t n = kv_size_for(m->kv, m->n_group, bytes, hp->n_ctx, m->group.rows_max);
    uint64_t room = info.gpu && !eng->params.kv_bytes ? memory_room(eng) : UINT64_MAX;
    while (n > least && beside_weights(eng, m, n) > room)
        n -= (n + 7) / 8;
    return n < 1 ? 1 : n;
}

/*
 * A model whose KV has no fingerprint is served without tiers: its KV is lost with its pool. The same applies to a
 * model that the CPU runs in place of the device, because the tiers' memory and copies belong to the device.
 */
static void attach(struct engine *eng, struct model_entry *m)
{
    struct kv_fingerprint fingerprint[KV_GROUPS_MAX];
    struct hearth_err err;
    memset(m->ns, 0, sizeof m->ns);
    if (m->model->dev != eng->dev)
        return;
    if (kv_fingerprint_make(fingerprint, m->model, m->kv, &err))
        log_warn("%s: KV is not kept: %s", m->path, err.msg);
    else
        tier_attach(eng->tier, m, fingerprint);
}

static void free_pools(struct model_entry *m, uint32_t n)
{
    while (n--)
        m->model->be->kv_free(m->model->dev, m->pool[n]);
}

/* Whether the model's pools acquire their memory as it is needed. */
static bool grows(const struct engine *eng, const struct model_entry *m)
{
    const struct device_info *info = info_of(eng, m);
    return info->kv_granule && eng->params.kv_pool != KV_POOL_WHOLE;
}

/* Allocates the pools of all groups, for a timeline of n_page pages. */
static int new_pools(struct engine *eng, struct model_entry *m, uint32_t n_page, struct hearth_err *e)
{
    int rc = 0;
    kv_size_pools(m->kv, m->n_group, n_page, m->model->hp.n_ctx, m->group.rows_max);
    if (info_of(eng, m)->gpu && !grows(eng, m)) /* the memory of a pool that grows is counted as it is mapped */
        rc =
            memory_check_yield(eng, kv_size_bytes(m->kv, m->n_group, n_page, m->model->hp.n_ctx, m->group.rows_max), e);
    if (rc)
        return rc;
    for (uint32_t g = 0; g < m->n_group; g++)
        m->kv[g].extent = grows(eng, m) ? kv_size_extent(&m->kv[g], info_of(eng, m)->kv_granule) : 0;
    for (uint32_t g = 0; g < m->n_group; g++)
        if ((rc = m->model->be->kv_new(m->model->dev, &m->kv[g], &m->pool[g], e))) {
            free_pools(m, g);
            break;
        }
    if (rc == HEARTH_EUNSUPPORTED && eng->params.kv_type != KV_TYPE_AUTO) {
        struct hearth_err why = *e;
        return err_set(e, rc, "%.160s; the configuration asks for it: kv_type = auto never does", why.msg);
    }
    return rc;
}

static int new_table(const struct engine *eng, struct model_entry *m, struct hearth_err *e)
{
    struct kv_shape shape[KV_GROUPS_MAX];
    for (uint32_t g = 0; g < m->n_group; g++)
        shape[g] = (struct kv_shape){.n_page = m->kv[g].n_page,
                                     .window = m->kv[g].window,
                                     .state = m->kv[g].d_state,
                                     .extent = m->kv[g].extent,
                                     .within = info_of(eng, m)->states_within};
    int rc = kv_cache_new(&m->group.kv, shape, m->n_group, e);
    if (rc) {
        free_pools(m, m->n_group);
        return rc;
    }
    kv_set_memory(m->group.kv, &(struct kv_memory){memory_map, memory_unmap, m});
    return 0;
}

static uint32_t least_tokens(const struct hparams *hp)
{
    return hp->n_ctx < POOL_TOKENS_MIN ? hp->n_ctx : POOL_TOKENS_MIN;
}

void load_least_pools(const struct model_entry *m, struct kv_desc out[KV_GROUPS_MAX])
{
    const struct hparams *hp = &m->model->hp;
    uint32_t n_page = (least_tokens(hp) + KV_PAGE - 1) / KV_PAGE;
    memcpy(out, m->kv, sizeof m->kv);
    kv_size_pools(out, m->n_group, n_page, hp->n_ctx, m->group.rows_max);
}

enum dtype load_kv_type(const struct engine_params *p)
{
    static const enum dtype types[KV_TYPES] = {
        [KV_TYPE_AUTO] = DT_F32, [KV_TYPE_F16] = DT_F16, [KV_TYPE_Q8_0] = DT_Q8_0};
    return types[p->kv_type];
}

static int make_pools(struct engine *eng, struct model_entry *m, struct hearth_err *e)
{
    const struct device_info *info = info_of(eng, m);
    m->n_group = model_kv_descs(m->model, info->kv_type, m->kv);
    uint32_t least = least_tokens(&m->model->hp);
    least = info->gpu && !eng->params.kv_bytes ? (least + KV_PAGE - 1) / KV_PAGE : 1;
    uint32_t n_page = pool_pages(eng, m, least);
    if (n_page < least)
        return err_set(e, HEARTH_ENOMEM, "%.95s has room for the KV of %u tokens beside the model; %u are the least",
                       info->name, n_page * KV_PAGE, least * KV_PAGE);
    int rc; /* free memory may be fragmented, so smaller pools are tried */
    while ((rc = new_pools(eng, m, n_page, e))) {
        if (rc != HEARTH_ENOMEM || n_page / 2 < least || eng->params.kv_bytes)
            return rc;
        n_page /= 2;
    }
    if ((rc = new_table(eng, m, e)))
        return rc;
    if (info->gpu && !kv_ahead(m->group.kv, least)) { /* the minimum of a growing pool: later there may be no memory */
        kv_cache_free(m->group.kv);
        m->group.kv = NULL;
        free_pools(m, m->n_group);
        return err_set(e, HEARTH_ENOMEM, "%.95s has no room for the KV of %u tokens beside the model", info->name,
                       least * KV_PAGE);
    }
    uint64_t page = 0, all = 0;
    for (uint32_t g = 0; g < m->n_group; g++) {
        bool is_state = m->kv[g].d_state != 0;
        page += is_state && g ? 0 : kv_page_bytes(&m->kv[g]); /* per 16 tokens; states are counted by their bytes */
        atomic_store(&m->states_total, is_state ? m->kv[g].n_page : 0);
        atomic_store(&m->state_bytes, is_state ? kv_page_bytes(&m->kv[g]) : 0);
        all += kv_page_bytes(&m->kv[g]) * m->kv[g].n_page;
    }
    atomic_store(&m->page_bytes, page);
    atomic_store(&m->pages_total, (uint32_t)((all + page - 1) / page)); /* rounded as those in use */
    m->sums =
        m->model->dev == eng->dev ? memory_sums(eng, m->model, m->group.rows_max, tokens_of(&m->model->hp, n_page)) : 0;
    attach(eng, m);
    return 0;
}

/* The value of model_entry.invariant_prompts for a model whose weights are loaded, according to
 * engine_params.invariant. */
static bool has_invariant_prompts(const struct engine *eng, const struct model *m, const struct backend *be,
                                  struct device *dev)
{
    struct kv_desc kv[KV_GROUPS_MAX];
    if (eng->params.invariant != INVARIANT_AUTO)
        return eng->params.invariant != INVARIANT_NOTHING;
    uint32_t n = model_kv_descs(m, eng->info.kv_type, kv);
    return dev == eng->dev && be->prompt_is_quick && be->prompt_is_quick(dev, m, kv, n);
}

/* Reserves the workspace for steps of the model with at most rows_most rows; fewer if little memory is free. */
static int make_workspace(struct engine *eng, const struct model *m, bool invariant_prompts, const struct backend *be,
                          struct device *dev, uint32_t rows_most, struct hearth_err *e)
{
    bool gpu = dev == eng->dev && eng->info.gpu;
    struct workspace_dims *have = dev == eng->dev ? &eng->dims : &eng->cpu.dims, dims;
    memory_workspace(eng, have, m, gpu ? memory_rows(eng, m, rows_most) : ROWS_CPU, invariant_prompts, &dims);
    if (dims.n_vocab > eng->n_logits) { /* one buffer for both devices, of which each has its own largest model */
        float *logits = realloc(eng->logits, dims.n_vocab * sizeof *logits);
        if (!logits)
            return err_set(e, HEARTH_ENOMEM, "no memory for %u logits", dims.n_vocab);
        eng->logits = logits;
        eng->n_logits = dims.n_vocab;
    }
    int rc;
    while ((rc = be->reserve(dev, &dims, e)) == HEARTH_ENOMEM && dims.n_row > ROWS_GPU_LEAST)
        memory_workspace(eng, have, m, dims.n_row / 2, invariant_prompts, &dims);
    if (!rc)
        *have = dims;
    if (!rc && dev == eng->dev)
        eng->sched.rows_max = dims.n_row;
    return rc;
}

/* Loads the model's weights to a device, within the room if one is given, and reserves the workspace of its steps. */
static int place_model(struct engine *eng, struct model_entry *m, const struct backend *be, struct device *dev,
                       const struct model_room *room, struct hearth_err *e)
{
    struct hearth_err why = {0};
    int rc = model_load_within(&m->model, m->gguf, be, dev, room, on_progress, eng, &why);
    if (rc == HEARTH_EBADMODEL) { /* a person may have named a session, or no model */
        const char *slash = strrchr(m->path, '/');
        return err_set(e, rc, "%.80s: %s", slash ? slash + 1 : m->path, why.msg);
    }
    if (rc)
        return err_set(e, rc, "%s", why.msg);
    step_drain(eng); /* the workspace may be reallocated */
    if (eng->fatal.code)
        rc = err_set(e, eng->fatal.code, "%s", eng->fatal.msg);
    m->invariant_prompts = has_invariant_prompts(eng, m->model, be, dev);
    eng->parted |= m->invariant_prompts;
    rc = rc ? rc : make_workspace(eng, m->model, m->invariant_prompts, be, dev, room ? ROWS_GPU_LEAST : ROWS_GPU, e);
    m->group.rows_max = dev == eng->dev ? eng->dims.n_row : eng->cpu.dims.n_row;
    return rc;
}

static void drop_model(struct model_entry *m)
{
    model_free(m->model);
    m->model = NULL;
}

static int open_cpu(struct engine *eng, struct hearth_err *e)
{
    struct device_params p = {.threads = eng->params.threads, .variant = "auto", .kv_type = load_kv_type(&eng->params)};
    int rc = HEARTH_EDEVICE;
    for (int i = 0; backends[i] && !eng->cpu.be; i++)
        if (!strcmp(backends[i]->name, "cpu") && !(rc = backends[i]->open(&eng->cpu.dev, &p, e)))
            eng->cpu.be = backends[i];
    if (!eng->cpu.be)
        return rc;
    eng->cpu.be->info(eng->cpu.dev, &eng->cpu.info);
    return 0;
}

void load_fini(struct engine *eng)
{
    if (eng->cpu.be)
        eng->cpu.be->close(eng->cpu.dev);
}

/* A reason lives as long as the model's entry, because the loop thread's `status` may be reading it. */
static const char *intern_reason(struct model_entry *m, const char *why)
{
    struct reason *r = m->reasons;
    while (r && strcmp(r->text, why))
        r = r->next;
    if (!r && (r = calloc(1, sizeof *r))) {
        snprintf(r->text, sizeof r->text, "%s", why);
        r->next = m->reasons;
        m->reasons = r;
    }
    return r ? r->text : "no memory for the reason";
}

/* Loads the model on the CPU, because the device cannot serve it. */
static int fall_back_to_cpu(struct engine *eng, struct model_entry *m, const char *why, struct hearth_err *e)
{
    struct hearth_err err = {0};
    drop_model(m);
    fit_note(m);
    int rc = eng->cpu.be ? 0 : open_cpu(eng, &err);
    if (!rc)
        rc = place_model(eng, m, eng->cpu.be, eng->cpu.dev, NULL, &err);
    if (!rc)
        rc = make_pools(eng, m, &err);
    if (rc == HEARTH_EUNSUPPORTED) /* no backend runs it, and the CPU's message says why */
        return err_set(e, rc, "%s", err.msg);
    if (rc)
        return err_set(e, rc, "%.100s; and on the CPU: %.80s", why, err.msg);
    log_warn("%s runs on the CPU, which is much slower: %s", m->path, why);
    return 0;
}

/* The idle model on the device whose eviction costs least for the memory that it frees; NULL if there is none. */
static struct model_entry *idle_to_evict(const struct engine *eng)
{
    struct model_entry *m, *best = NULL;
    double of_best = 0, now = engine_now();
    TAILQ_FOREACH (m, &eng->loaded, loaded_link) {
        if (m->group.n_seq || m->model->dev != eng->dev || atomic_load(&m->pinned))
            continue;
        uint64_t bytes = m->hp.weight_bytes + atomic_load(&m->pages_total) * atomic_load(&m->page_bytes);
        double of = ledger_evictable(bytes, m->load_ended - m->load_begun, now - m->used_at);
        if (!best || of > of_best) {
            best = m;
            of_best = of;
        }
    }
    return best;
}

bool device_has_no_model(const struct engine *eng)
{
    const struct model_entry *m;
    TAILQ_FOREACH (m, &eng->loaded, loaded_link)
        if (m->model->dev == eng->dev)
            return false;
    return true;
}

/* Unloads one idle model; false if there is none that is not pinned, or the device has failed. */
static bool evict_idle_model(struct engine *eng)
{
    struct hearth_err ignored;
    struct model_entry *old = idle_to_evict(eng);
    return old && !unload_model(eng, old, &ignored);
}

bool load_may_evict(struct engine *eng)
{
    return device_has_no_model(eng) || idle_to_evict(eng);
}

bool load_may_evict_later(const struct engine *eng)
{
    const struct model_entry *m;
    bool may = false;
    TAILQ_FOREACH (m, &eng->loaded, loaded_link)
        may |= m->model->dev == eng->dev && !atomic_load(&m->pinned);
    return may;
}

/* Loads the model on the engine's own device, entirely or within a room, if its self-check passes. */
static int load_on_device(struct engine *eng, struct model_entry *m, const struct model_room *room,
                          struct selfcheck_verdict *selfcheck_verdict, struct hearth_err *e)
{
    eng->watchdog_load = true;
    step_watchdog(eng, NULL);
    int rc = eng->info.gpu && !room ? memory_check(eng, m, least_tokens(&m->hp), e) : 0;
    if (!rc)
        rc = place_model(eng, m, eng->be, eng->dev, room, e);
    if (!rc && eng->info.gpu) { /* a CPU is the reference and needs no check */
        struct device_info before;
        eng->be->info(eng->dev, &before);
        rc = selfcheck_verify(m->model, eng->params.checked, eng->params.invariant == INVARIANT_ALL, selfcheck_verdict,
                              e);
        memory_leave_out(eng, &before);
    }
    if (!rc && selfcheck_verdict->ok)
        do { /* the weights stay loaded while idle models are unloaded to make room for the KV */
            rc = make_pools(eng, m, e);
        } while (rc == HEARTH_ENOMEM && evict_idle_model(eng));
    eng->watchdog_load = false;
    step_watchdog(eng, NULL);
    return rc;
}

/* Loads the model, leaving those of its weights that do not fit on the device in host memory. */
static int load_within(struct engine *eng, struct model_entry *m, struct selfcheck_verdict *selfcheck_verdict,
                       struct hearth_err *e)
{
    struct model_room room;
    struct model *outline;
    drop_model(m);
    int rc = model_outline(&outline, m->gguf, e);
    if (rc)
        return rc;
    step_drain(eng); /* the workspace may be reallocated */
    /* Whether its prompts are invariant is known only once its weights are loaded; the room is planned as if they
     * were. */
    rc = make_workspace(eng, outline, eng->params.invariant != INVARIANT_NOTHING, eng->be, eng->dev, ROWS_GPU_LEAST, e);
    model_free(outline);
    if (!rc)
        rc = fit_plan(eng, m, &room, e);
    return rc ? rc : load_on_device(eng, m, &room, selfcheck_verdict, e);
}

/* Whether the CPU may run a model that the device refused: the device has no kernel for the model, or no room although
 * no other model is loaded. */
static bool refused(const struct engine *eng, int rc)
{
    return eng->info.gpu && (rc == HEARTH_EUNSUPPORTED || (rc == HEARTH_ENOMEM && device_has_no_model(eng)));
}

/* Whether another device of the machine should be tried before this one falls back to host memory or the CPU: other
 * programs use the memory that the model needs. A yield that somebody requested applies to all devices, so it is no
 * reason. */
static bool goes_elsewhere(const struct engine *eng, const struct model_entry *m)
{
    bool yields = eng->yield.on && !eng->yield.pressed;
    return eng->info.gpu && !m->here && !yields && memory_sharers(eng) > 1 &&
           memory_is_others(eng, m, least_tokens(&m->hp));
}

/* A table lives as long as the model's entry, because the loop thread may be reading it; an equal older one is
 * reused. */
static void note_paths(struct engine *eng, struct model_entry *m)
{
    bool gpu = info_of(eng, m)->gpu;
    enum invariance way = eng->params.invariant == INVARIANT_ALL ? INVARIANT_BATCH : INVARIANT_DECODE;
    struct op_table *t = op_table_new(m->model->be, m->model->dev, gpu, &m->model->program, way), *old = m->op_tables;
    while (t && old && !op_table_same(t, old))
        old = old->next;
    if (t && old) {
        free(t);
        t = old;
    } else if (t) {
        t->next = m->op_tables;
        m->op_tables = t;
    }
    atomic_store(&m->ops, t);
    for (size_t i = 0; t && i < t->n_slow; i++)
        log_warn("%s: off the fast path: %s", m->path, t->slow[i]);
}

/* Whether memory that is yielded is needed for what comes with the weights; idle models may be in its way. */
static int check_yield_of_all(const struct engine *eng, const struct model_entry *m, struct hearth_err *e)
{
    return eng->info.gpu && eng->yield.on ? memory_check_yield_of(eng, m, least_tokens(&m->hp), e) : 0;
}

static int load(struct engine *eng, struct model_entry *m, struct hearth_err *e)
{
    struct selfcheck_verdict selfcheck_verdict = {.ok = true, .cached = true};
    const char *state = NULL;
    struct hearth_err err = {0};
    fit_note(m);
    memory_count(eng);
    int rc = check_yield_of_all(eng, m, &err);
    bool waits = rc; /* until memory may be taken again */
    if (!rc)
        rc = load_on_device(eng, m, NULL, &selfcheck_verdict, &err);
    if (rc == HEARTH_ENOMEM && device_has_no_model(eng) && goes_elsewhere(eng, m))
        rc = err.code = HEARTH_EELSEWHERE;
    if (rc == HEARTH_ENOMEM && !waits && fit_possible(eng) && device_has_no_model(eng))
        rc = load_within(eng, m, &selfcheck_verdict, &err);
    if (!rc && eng->info.gpu && selfcheck_verdict.ok)
        state = selfcheck_verdict.cached ? "passed before" : "passed";
    else if ((refused(eng, rc) && !waits) || (!rc && !selfcheck_verdict.ok)) {
        state = intern_reason(m, rc ? err.msg : selfcheck_verdict.why);
        rc = fall_back_to_cpu(eng, m, state, &err);
    }
    if (rc) {
        drop_model(m);
        return err_set(e, rc, "%s", err.msg);
    }
    atomic_store(&m->on_gpu, info_of(eng, m)->gpu);
    atomic_store(&m->self_check, state);
    fit_note(m);
    note_paths(eng, m);
    return 0;
}

static int check_yield(const struct engine *eng, const struct model_entry *m, struct hearth_err *e)
{
    return memory_check_yield(eng, m->hp.weight_bytes ? m->hp.weight_bytes : 1, e);
}

bool load_waits_for_yield(const struct engine *eng, const struct model_entry *m)
{
    if (!eng->yield.on || m->hp_err.code)
        return false;
    bool waits = check_yield(eng, m, NULL) || (check_yield_of_all(eng, m, NULL) && !idle_to_evict(eng));
    return waits && !goes_elsewhere(eng, m);
}

/* The bytes of the model's weights as the device keeps them: with the scales of rows, and in F16 where it has no
 * kernels for their types; 0: not known. */
static uint64_t weights_of(const struct engine *eng, const struct model_entry *m)
{
    const struct model_room endless = {UINT64_MAX, UINT64_MAX};
    struct model_place p = {0};
    struct hearth_err ignored;
    if (eng->info.gpu && eng->be->weight_bytes && model_find_places(m->gguf, eng->be, eng->dev, &endless, &p, &ignored))
        return 0;
    return p.own;
}

int load_model(struct engine *eng, struct model_entry *m, struct hearth_err *e)
{
    struct hearth_err sick;
    if (m->hp_err.code) {
        *e = m->hp_err;
        return e->code;
    }
    int rc = check_yield(eng, m, e);
    if (rc)
        return goes_elsewhere(eng, m) ? (e->code = HEARTH_EELSEWHERE) : rc;
    eng->loading = m;
    m->weights = weights_of(eng, m);
    eng->load_until = 0; /* so that a request submitted just before gets its first step at once */
    m->engine = eng;
    m->load_begun = engine_now();
    do
        rc = load(eng, m, e);
    while (rc == HEARTH_ENOMEM && evict_idle_model(eng));
    if (rc == HEARTH_EDEVICE && eng->be->sync(eng->dev, &sick) == HEARTH_EDEVICE)
        engine_fail(eng, &sick);
    if (eng->fatal.code) /* the load failed, or a step of other models' sequences between two pieces */
        rc = err_set(e, eng->fatal.code, "%s", eng->fatal.msg);
    if (rc)
        return rc;
    eng->memory_changed = true;
    m->group.pace = *lead_pace(info_of(eng, m));
    m->group.cost.many = m->group.pace.rows_alone / 2;
    m->group.long_from = m->model->hp.long_from;
    m->group.rows_short = 0;
    m->group.dry = false;
    sched_group_add(&eng->sched, &m->group);
    TAILQ_INSERT_TAIL(&eng->loaded, m, loaded_link);
    memory_count(eng); /* with what its steps are promised */
    engine_update_stats(eng, m);
    m->load_ended = engine_now();
    atomic_store(&m->loaded, true);
    return 0;
}

/* Before a pool is freed, the KV of turns that have just ended is copied out of it; other models' steps go on
 * meanwhile. */
static void finish_saves(struct engine *eng, struct model_entry *m)
{
    /* Seconds: a slower disk is not waited for, and a program that needs the device's memory does not wait until host
     * memory has been pinned for the copies. The time of a yield is that of all models it takes, and of what it gave
     * back before them; what a stream has added since its last save is copied in the least time. */
    const double most = 5, most_in_yield = 0.1, least_in_yield = 0.02;
    struct hearth_err err;
    double now = engine_now();
    double until = eng->yield.busy ? fmax(eng->yield.begun + most_in_yield, now + least_in_yield) : now + most;
    int rc = 0;
    if (!eng->tier)
        return;
    tier_hurry(eng->tier, m);
    while (!eng->fatal.code && tier_busy(eng->tier, m) && rc >= 0) {
        if (engine_now() > until)
            tier_detach(eng->tier, m);
        tier_foreground(eng->tier, eng->n_in_flight ? TIER_FG_DECODE : TIER_FG_BLOCKED);
        if ((rc = tier_poll(eng->tier, engine_now(), &err)) < 0)
            engine_fail(eng, &err);
        if (!atomic_load(&eng->throttled) && step_advance(eng))
            engine_notify(eng, false);
        else if (rc == 0)
            poll(&(struct pollfd){tier_fd(eng->tier), POLLIN, 0}, 1, 10);
        else if (rc > 0) {
            step_watchdog(eng, eng->dev);
            rc = tier_wait(eng->tier, &err);
            step_watchdog(eng, NULL);
        }
    }
    tier_hurry(eng->tier, NULL);
}

int unload_model(struct engine *eng, struct model_entry *m, struct hearth_err *e)
{
    step_drain(eng); /* a step in flight may still refer to ended sequences */
    if (m->group.n_seq)
        return err_set(e, HEARTH_ELIMIT, "the model is busy with %u requests", m->group.n_seq);
    finish_saves(eng, m);
    step_drain(eng);
    if (eng->tier && eng->fatal.code) {
        *e = eng->fatal; /* copies may hang: the model is freed at the end, after the tiers */
        return e->code;
    }
    memset(m->ns, 0, sizeof m->ns);
    if (eng->refused.model == m) /* its sequences have ended meanwhile */
        eng->refused.model = NULL;
    sched_group_remove(&eng->sched, &m->group);
    TAILQ_REMOVE(&eng->loaded, m, loaded_link);
    kv_cache_free(m->group.kv);
    m->group.kv = NULL;
    free_pools(m, m->n_group);
    drop_model(m);
    eng->memory_changed = true;
    eng->empty_since = engine_now();
    atomic_store(&m->pages_used, 0);
    atomic_store(&m->context_used, 0);
    m->here = false;
    atomic_store(&m->pinned, false);
    atomic_store(&m->loaded, false); /* last, because from here on the loop thread may free the entry */
    if (!eng->fatal.code)            /* EV_FATAL is the last event */
        engine_event_new(eng, EV_FREED, sizeof(struct engine_event));
    return 0;
}

/* --- idle models ----------------------------------------------------------------------------- */

static struct model_entry *next_to_unload(const struct engine *eng)
{
    struct model_entry *m, *first = NULL;
    TAILQ_FOREACH (m, &eng->loaded, loaded_link)
        if (m->unload_at > 0 && (!first || m->unload_at < first->unload_at))
            first = m;
    return first;
}

void unload_idle(struct engine *eng)
{
    struct hearth_err ignored;
    struct model_entry *m;
    while (!eng->fatal.code && (m = next_to_unload(eng)) && m->unload_at <= engine_now()) {
        log_info("%s is unloaded: nobody has used it for %g minutes", m->path, (double)eng->params.idle_ms / 60000);
        if (unload_model(eng, m, &ignored)) /* the device failed */
            return;
    }
}

double unload_poll_timeout(const struct engine *eng)
{
    const struct model_entry *m = next_to_unload(eng);
    double left = m ? m->unload_at - engine_now() : -1;
    return m && left < 0 ? 0 : left;
}
