/* load.c - models come to the device and go: weights, workspace, KV pool. Thread: the device thread's. */
#include "config.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/device.h"

static const double progress_seconds = 0.1;

enum {
    POOL_CONTEXTS = 8, /* full contexts that a pool is made for, where memory allows */
    POOL_BYTES_MIN = 256 << 20,
    POOL_PAGES_MAX = 1 << 22,
};

/* Between two pieces of a model the others take a step: a load delays nobody's tokens by more than a piece. */
static bool on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct engine *eng = arg;
    double now = engine_now();
    if (!atomic_load(&eng->hold))
        step_turn(eng);
    if (done == total || now - eng->last_progress >= progress_seconds) {
        eng->last_progress = now;
        struct event_model *ev = engine_event_new(eng, EV_PROGRESS, sizeof *ev);
        ev->model = eng->loading;
        ev->done = done;
        ev->total = total;
    }
    engine_tell(eng, true); /* a piece may take long: nothing waits for the next */
    return !atomic_load(&eng->stop) && !eng->fatal.code;
}

/*
 * How many pages: as asked, else for several full contexts within a share of the machine. On the CPU a page costs
 * memory only once it is written; on a GPU the pool is taken whole, beside the weights that are there already.
 */
static uint32_t pool_pages(const struct engine *eng, const struct hparams *hp, const struct kv_desc *desc)
{
    struct device_info info;
    eng->be->info(eng->dev, &info);
    uint64_t page = kv_page_bytes(desc), bytes = eng->params.kv_bytes;
    uint64_t context = (hp->n_ctx / KV_PAGE + 1) * page;
    if (!bytes) {
        uint64_t share = info.gpu ? info.mem_free / 4 * 3 : info.mem_total / 4;
        bytes = POOL_CONTEXTS * context > POOL_BYTES_MIN ? POOL_CONTEXTS * context : POOL_BYTES_MIN;
        bytes = bytes < share ? bytes : share;
    }
    uint64_t n = bytes / page;
    return n < 1 ? 1 : n > POOL_PAGES_MAX ? POOL_PAGES_MAX : (uint32_t)n;
}

static int make_pool(struct engine *eng, struct resident *m, struct hearth_err *e)
{
    struct kv_desc desc;
    model_kv_desc(m->model, eng->info.kv_type, &desc);
    m->n_page = pool_pages(eng, &m->hp, &desc);
    for (;;) { /* what the device says is free need not be there in one piece */
        desc.n_page = m->n_page;
        int rc = eng->be->kv_new(eng->dev, &desc, &m->pool, e);
        if (!rc)
            break;
        if (rc != HEARTH_ENOMEM || m->n_page < 2 || eng->params.kv_bytes)
            return rc;
        m->n_page /= 2;
    }
    int rc = kv_new(&m->group.kv, m->n_page, e);
    if (rc) {
        eng->be->kv_free(eng->dev, m->pool);
        return rc;
    }
    atomic_store(&m->page_bytes, kv_page_bytes(&desc));
    atomic_store(&m->pages_total, m->n_page);
    return 0;
}

static int make_workspace(struct engine *eng, const struct resident *m, struct hearth_err *e)
{
    struct workspace_dims dims = eng->dims;
    dims.n_row = eng->sched.rows_max;
    dims.n_out = eng->sched.out_max;
    model_workspace(m->model, &dims);
    float *logits = realloc(eng->logits, dims.n_vocab * sizeof *logits);
    if (!logits)
        return err_set(e, HEARTH_ENOMEM, "no memory for %u logits", dims.n_vocab);
    eng->logits = logits;
    int rc = eng->be->reserve(eng->dev, &dims, e);
    if (!rc)
        eng->dims = dims;
    return rc;
}

static int load(struct engine *eng, struct resident *m, struct hearth_err *e)
{
    int rc = model_load(&m->model, m->gguf, eng->be, eng->dev, on_progress, eng, e);
    if (rc)
        return rc;
    step_drain(eng); /* the workspace may move */
    if (eng->fatal.code)
        rc = err_set(e, eng->fatal.code, "%s", eng->fatal.msg);
    if (rc || (rc = make_workspace(eng, m, e)) || (rc = make_pool(eng, m, e))) {
        model_free(m->model);
        m->model = NULL;
        return rc;
    }
    return 0;
}

static struct resident *oldest_idle(struct engine *eng)
{
    struct resident *m;
    TAILQ_FOREACH (m, &eng->loaded, loaded_link)
        if (m->group.n_seq == 0)
            return m;
    return NULL;
}

int load_model(struct engine *eng, struct resident *m, struct hearth_err *e)
{
    struct hearth_err ignored;
    struct resident *old;
    if (m->hp_err.code) {
        *e = m->hp_err;
        return e->code;
    }
    eng->loading = m;
    int rc;
    while ((rc = load(eng, m, e)) == HEARTH_ENOMEM && (old = oldest_idle(eng)))
        unload_model(eng, old, &ignored);
    if (rc)
        return rc;
    m->serial = ++eng->serial;
    sched_group_add(&eng->sched, &m->group);
    TAILQ_INSERT_TAIL(&eng->loaded, m, loaded_link);
    load_count(m);
    atomic_store(&m->loaded, true);
    return 0;
}

int unload_model(struct engine *eng, struct resident *m, struct hearth_err *e)
{
    step_drain(eng); /* a step under way may name what has ended */
    if (m->group.n_seq)
        return err_set(e, HEARTH_ELIMIT, "the model is busy with %u requests", m->group.n_seq);
    sched_group_remove(&eng->sched, &m->group);
    TAILQ_REMOVE(&eng->loaded, m, loaded_link);
    kv_free(m->group.kv);
    m->group.kv = NULL;
    eng->be->kv_free(eng->dev, m->pool);
    model_free(m->model);
    m->model = NULL;
    atomic_store(&m->pages_used, 0);
    atomic_store(&m->context_used, 0);
    atomic_store(&m->loaded, false); /* last: from here on the loop thread may free it */
    return 0;
}

void load_count(struct resident *m)
{
    struct kv_counts c;
    if (!m->group.kv)
        return;
    kv_count(m->group.kv, &c);
    atomic_store(&m->pages_used, c.total - c.free);
    atomic_store(&m->context_used, c.longest);
    atomic_store(&m->sequences, m->group.n_seq);
}
