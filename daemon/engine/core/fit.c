/* fit.c - see fit.h. Thread: the device thread's. */
#include "config.h"

#include "daemon/engine/core/fit.h"

#include "daemon/engine/core/memory.h"
#include "daemon/engine/host-memory.h"
#include "daemon/engine/sched/kv-size.h"
#include "daemon/log.h"

uint64_t fit_spare(const struct engine *eng)
{
    static const uint64_t least = 64 << 20;
    return eng->info.mem_total / 400 > least ? eng->info.mem_total / 400 : least;
}

bool fit_possible(const struct engine *eng)
{
    return eng->info.gpu && eng->be->weight_bytes && eng->params.host_weights;
}

/* Bytes of the KV pools for which the weights leave room. */
static uint64_t kv_bytes(const struct engine *eng, const struct model_entry *m)
{
    struct kv_desc kv[KV_GROUPS_MAX];
    const struct model outline = {.hp = m->hp}; /* only its shape is used */
    if (eng->params.kv_bytes)
        return eng->params.kv_bytes;
    uint32_t n_group = model_kv_descs(&outline, eng->info.kv_type, kv);
    uint32_t tokens = m->hp.n_ctx < FIT_TOKENS ? m->hp.n_ctx : FIT_TOKENS;
    return kv_size_bytes(kv, n_group, (tokens + KV_PAGE - 1) / KV_PAGE, m->hp.n_ctx, ROWS_GPU_LEAST);
}

/* Measures once how fast the device reads its own memory and the host's. A rate is 0 if there is no room to measure
 * it. */
static void measure(struct engine *eng)
{
    static const uint64_t own_bytes = UINT64_C(512) << 20; /* ten times the size of an L2 cache */
    struct hearth_err ignored;
    if (eng->rate.known || !eng->be->read_rate)
        return;
    uint64_t room = memory_room(eng), bytes = room < own_bytes ? room / 2 : own_bytes;
    if (bytes && eng->be->read_rate(eng->dev, false, bytes, &eng->rate.own, &ignored))
        eng->rate.own = 0;
    if (eng->be->read_rate(eng->dev, true, 0, &eng->rate.host, &ignored))
        eng->rate.host = 0;
    eng->rate.known = true;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Bytes of host memory that weights may still use. */
static uint64_t host_room(const struct engine *eng)
{
    uint64_t room = host_memory_room(), wanted = eng->params.host_weights;
    if (wanted == UINT64_MAX)
        wanted = host_memory_part(room, eng->ledger.pinned, memory_sharers(eng));
    return wanted < room ? wanted : room;
}

int fit_plan(struct engine *eng, struct model_entry *m, struct model_room *out, struct hearth_err *e)
{
    struct model_place p;
    uint64_t kv = kv_bytes(eng, m), room = memory_room(eng);
    measure(eng);
    const struct model outline = {.hp = m->hp}; /* only its shape is used */
    uint64_t sums =
        memory_more_sums(eng, &outline, ROWS_GPU_LEAST, m->hp.n_ctx < FIT_TOKENS ? m->hp.n_ctx : FIT_TOKENS);
    out->own = less(less(less(room, kv), sums), fit_spare(eng));
    out->host = host_room(eng);
    int rc = model_find_places(m->gguf, eng->be, eng->dev, out, &p, e);
    if (rc)
        return rc;
    double speed = place_speed(&p, eng->rate.own, eng->rate.host);
    atomic_store(&m->own_bytes, p.own);
    atomic_store(&m->host_bytes, p.host);
    atomic_store(&m->speed, speed);
    if (p.host)
        log_info(
            "%s: %.1f of %.1f GB of its weights stay in the host's memory, which the GPU reads at %.1f GB/s: at most "
            "%.1f tokens/s",
            m->path, 1e-9 * (double)p.host, 1e-9 * (double)(p.host + p.own), 1e-9 * eng->rate.host, speed);
    return 0;
}

void fit_note(struct model_entry *m)
{
    const struct model_place none = {0}, *p = m->model ? &m->model->place : &none;
    atomic_store(&m->own_bytes, p->own);
    atomic_store(&m->host_bytes, p->host);
    if (!p->host)
        atomic_store(&m->speed, 0);
}
