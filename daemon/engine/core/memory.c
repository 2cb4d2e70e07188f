/* memory.c - see memory.h. Thread: the device thread's. */
#include "config.h"

#include "daemon/engine/core/memory.h"

#include <string.h>

#include "daemon/engine/sched/kv-size.h"
#include "daemon/log.h"

static const double look_seconds = 0.25; /* between two readings of the other programs' memory */

/* Runs on the watching thread. */
static void on_neighbours(void *arg)
{
    struct engine *eng = arg;
    atomic_store(&eng->neighbours_changed, true);
    atomic_store(&eng->neighbours_pressed, true);
    engine_wake(eng);
}

void memory_open(struct engine *eng)
{
    struct hearth_err err;
    memory_count(eng);
    eng->ledger.limit = eng->params.gpu_memory;
    if (eng->params.gpu_percent)
        eng->ledger.limit = ledger_share(&eng->ledger, eng->params.gpu_percent);
    if (!eng->info.gpu)
        eng->ledger.limit = 0;
    eng->pressure.headroom = eng->info.gpu ? eng->params.gpu_headroom : 0;
    const char *library = eng->params.nvml ? eng->params.nvml : "libnvidia-ml.so.1";
    if (eng->info.gpu && eng->info.id[0] &&
        neighbours_open(&eng->neighbours, library, eng->info.id, look_seconds, on_neighbours, eng, &err))
        log_warn("%s", err.msg);
}

void memory_close(struct engine *eng)
{
    neighbours_close(eng->neighbours);
    eng->neighbours = NULL;
}

/* A CPU's pool that was allocated as a whole uses memory only for the pages that have been written, which the backend
 * does not know. */
static uint64_t pages_written(const struct engine *eng)
{
    const struct model_entry *m;
    uint64_t bytes = 0;
    TAILQ_FOREACH (m, &eng->loaded, loaded_link)
        if (m->model->dev == eng->dev && !m->kv[0].extent)
            bytes += atomic_load(&m->pages_used) * atomic_load(&m->page_bytes);
    return bytes;
}

static void count_paths(struct engine_counters *c, const struct device_info *info, const struct device_info *checked)
{
    atomic_store(&c->replays, info->replays - checked->replays);
    for (uint32_t i = 0; i < info->n_path; i++) {
        atomic_store(&c->path[i].rows, info->path[i].rows - checked->path[i].rows);
        atomic_store(&c->path[i].path, info->path[i].path);
    }
}

/* A path has the same index in every report of the device. */
void memory_leave_out(struct engine *eng, const struct device_info *before)
{
    struct device_info now;
    eng->be->info(eng->dev, &now);
    eng->checked.replays += now.replays - before->replays;
    for (uint32_t i = 0; i < now.n_path; i++)
        eng->checked.path[i].rows += now.path[i].rows - (i < before->n_path ? before->path[i].rows : 0);
}

/* The steps of all models use the same memory for partial sums. */
static uint64_t most_sums(const struct engine *eng)
{
    const struct model_entry *m;
    uint64_t most = 0;
    TAILQ_FOREACH (m, &eng->loaded, loaded_link)
        if (m->model->dev == eng->dev && m->sums > most)
            most = m->sums;
    return most;
}

void memory_count(struct engine *eng)
{
    struct device_info info;
    struct neighbours_seen seen = {0};
    eng->be->info(eng->dev, &info);
    count_paths(&eng->counters, &info, &eng->checked);
    if (!info.gpu)
        info.held[MEM_KV] += pages_written(eng);
    if (eng->neighbours)
        neighbours_get(eng->neighbours, &seen);
    pthread_mutex_lock(&eng->ledger_lock);
    ledger_count(&eng->ledger, &info, &(struct ledger_seen){seen.known, seen.display, seen.used, seen.own, seen.at},
                 engine_now());
    eng->ledger.promised = most_sums(eng) > info.mem_sums ? most_sums(eng) - info.mem_sums : 0;
    pthread_mutex_unlock(&eng->ledger_lock);
    eng->memory_changed = false;
    eng->memory_counted_at = engine_now();
}

void memory_count_now_and_then(struct engine *eng, bool idle)
{
    static const double now_and_then = 10; /* seconds */
    bool changed = atomic_exchange(&eng->neighbours_changed, false) || eng->memory_changed;
    eng->memory_changed = changed;
    if (changed && (idle || engine_now() - eng->memory_counted_at >= now_and_then))
        memory_count(eng);
}

uint64_t memory_room(struct engine *eng)
{
    memory_count(eng);
    return ledger_room(&eng->ledger);
}

static uint64_t extent_bytes(const struct model_entry *m, uint32_t group)
{
    return m->kv[group].extent * kv_page_bytes(&m->kv[group]);
}

uint32_t memory_sharers(const struct engine *eng)
{
    uint32_t n = eng->params.sharers ? eng->params.sharers : eng->info.devices;
    return n ? n : 1;
}

/* How many more bytes may be held while memory is yielded. */
static uint64_t yield_room(const struct engine *eng)
{
    uint64_t own = ledger_own(&eng->ledger);
    if (!eng->yield.on)
        return UINT64_MAX;
    return eng->yield.cap > own ? eng->yield.cap - own : 0;
}

int memory_check_yield(const struct engine *eng, uint64_t bytes, struct hearth_err *e)
{
    if (bytes <= yield_room(eng))
        return 0;
    if (eng->yield.pressed)
        return err_set(e, HEARTH_ENOMEM,
                       "other programs take the GPU's memory (gpu_headroom); `hearth yield --end` has hearth take it");
    double left = eng->yield.until - engine_now();
    return err_set(e, HEARTH_ENOMEM,
                   "memory is yielded to other programs for %.0f s more; `hearth yield --end` ends that",
                   left < 1 ? 1 : left);
}

bool memory_map(void *arg, uint32_t group, uint32_t extent)
{
    struct model_entry *m = arg;
    struct engine *eng = m->engine;
    struct hearth_err err;
    uint64_t bytes = extent_bytes(m, group);
    bool ours = m->model->dev == eng->dev;
    if (ours && (memory_check_yield(eng, bytes, NULL) || (eng->info.gpu && bytes > ledger_room_for_kv(&eng->ledger))))
        return false;
    int rc = m->model->be->kv_map(m->model->dev, m->pool[group], extent, &err);
    if (rc) {
        log_debug("%s: no memory for more KV: %s", m->path, err.msg);
        return false;
    }
    if (ours) { /* until the next count */
        pthread_mutex_lock(&eng->ledger_lock);
        eng->ledger.held[MEM_KV] += bytes;
        eng->ledger.free -= bytes < eng->ledger.free ? bytes : eng->ledger.free;
        pthread_mutex_unlock(&eng->ledger_lock);
    }
    eng->memory_changed = true;
    return true;
}

void memory_unmap(void *arg, uint32_t group, uint32_t extent)
{
    struct model_entry *m = arg;
    m->model->be->kv_unmap(m->model->dev, m->pool[group], extent);
    m->engine->memory_changed = true;
}

void memory_workspace(const struct engine *eng, const struct workspace_dims *have, const struct model *m,
                      uint32_t n_row, bool invariant_prompts, struct workspace_dims *out)
{
    *out = *have;
    out->n_row = n_row;
    out->n_out = eng->sched.out_max;
    out->n_prompt = invariant_prompts ? n_row : 0;
    model_workspace(m, out);
}

/* Approximately what a step's activations take beyond what is reserved already. */
static uint64_t workspace_need(const struct engine *eng, const struct model *outline, uint32_t n_row)
{
    struct workspace_dims d;
    memory_workspace(eng, &eng->dims, outline, n_row, eng->params.invariant != INVARIANT_NOTHING, &d);
    uint64_t row = 2ull * d.d_model + 2ull * d.d_q + 2ull * d.d_kv + 2ull * d.d_ff + d.d_route + d.d_experts;
    row += (uint64_t)d.d_route / 2 * d.d_model + 2ull * d.d_mix; /* products of experts; inputs of recurrent states */
    row += d.n_prompt ? 3ull * d.d_ff + 2ull * d.d_q : 0;        /* inputs and products of invariant prompts */
    uint64_t bytes = sizeof(float) * (d.n_row * row + (uint64_t)d.n_out * d.n_vocab);
    return bytes > eng->ledger.held[MEM_WORKSPACE] ? bytes - eng->ledger.held[MEM_WORKSPACE] : 0;
}

uint64_t memory_sums(const struct engine *eng, const struct model *m, uint32_t n_row, uint32_t tokens)
{
    struct kv_desc kv[KV_GROUPS_MAX];
    struct workspace_dims d;
    if (!eng->be->step_bytes)
        return 0;
    uint32_t n_group = model_kv_descs(m, eng->info.kv_type, kv);
    memory_workspace(eng, &eng->dims, m, n_row, eng->params.invariant != INVARIANT_NOTHING, &d);
    return eng->be->step_bytes(eng->dev, &d, kv, n_group, tokens);
}

uint64_t memory_more_sums(const struct engine *eng, const struct model *m, uint32_t n_row, uint32_t tokens)
{
    uint64_t all = memory_sums(eng, m, n_row, tokens), counted = eng->ledger.sums + eng->ledger.promised;
    return all > counted ? all - counted : 0;
}

uint32_t memory_rows(struct engine *eng, const struct model *m, uint32_t most)
{
    enum { PART = 8 }; /* fraction of the free memory */
    uint64_t room = memory_room(eng), allowed = yield_room(eng);
    room = room < allowed ? room : allowed;
    while (most > ROWS_GPU_LEAST && workspace_need(eng, m, most) > room / PART)
        most /= 2;
    return most;
}

static struct ledger_need need_of(const struct engine *eng, const struct model_entry *m, uint32_t tokens)
{
    struct kv_desc kv[KV_GROUPS_MAX];
    const struct model outline = {.hp = m->hp}; /* only its shape is used */
    enum dtype type = eng->info.kv_type;
    uint32_t n_group = model_kv_descs(&outline, type, kv), pages = (tokens + KV_PAGE - 1) / KV_PAGE;
    struct ledger_need need = {.weights = m->hp.weight_bytes, .kv_tokens = tokens};
    if (m->weights > need.weights)
        need.weights = m->weights;
    uint32_t rows = eng->info.gpu ? ROWS_GPU_LEAST : ROWS_CPU;
    need.kv = kv_size_bytes(kv, n_group, pages, m->hp.n_ctx, rows);
    need.workspace = workspace_need(eng, &outline, rows) + memory_more_sums(eng, &outline, rows, tokens);
    return need;
}

int memory_check(struct engine *eng, const struct model_entry *m, uint32_t tokens, struct hearth_err *e)
{
    memory_count(eng);
    struct ledger_need need = need_of(eng, m, tokens);
    return ledger_check(&eng->ledger, &need, e);
}

int memory_check_yield_of(const struct engine *eng, const struct model_entry *m, uint32_t tokens, struct hearth_err *e)
{
    struct ledger_need need = need_of(eng, m, tokens);
    bool grows = eng->info.kv_granule && eng->params.kv_pool != KV_POOL_WHOLE;
    uint64_t pool = eng->params.kv_bytes;
    if (pool && (!grows || pool < need.kv))
        need.kv = pool;
    return memory_check_yield(eng, need.weights + need.kv + need.workspace, e);
}

bool memory_is_others(const struct engine *eng, const struct model_entry *m, uint32_t tokens)
{
    struct ledger alone = eng->ledger;
    uint64_t own = ledger_own(&alone);
    struct ledger_need need = need_of(eng, m, tokens);
    alone.free = alone.total > own ? alone.total - own : 0;
    alone.promised = 0;
    return ledger_check(&alone, &need, NULL) == 0;
}
