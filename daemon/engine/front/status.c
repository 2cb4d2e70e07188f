/* status.c - engine.status: loaded models, use of the memory, counters. Thread: the loop's. */
#include "config.h"

#include "daemon/engine/front/rpc.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void count_tiers(struct wire_kv_tiers *out, const struct tier_counters *c)
{
    int64_t moving = (int64_t)atomic_load(&c->moving); /* read first, because it is updated last */
    *out = (struct wire_kv_tiers){
        .host_pages = (int64_t)atomic_load(&c->host_pages),
        .host_bytes = (int64_t)atomic_load(&c->host_bytes),
        .host_limit = (int64_t)atomic_load(&c->host_limit),
        .disk_pages = (int64_t)atomic_load(&c->file_pages),
        .disk_bytes = (int64_t)atomic_load(&c->file_bytes),
        .pages_saved = (int64_t)atomic_load(&c->pages_saved),
        .pages_restored = (int64_t)atomic_load(&c->pages_restored),
        .pages_dropped = (int64_t)atomic_load(&c->pages_dropped),
        .bytes_saved = (int64_t)atomic_load(&c->bytes_saved),
        .bytes_restored = (int64_t)atomic_load(&c->bytes_restored),
        .bytes_written = (int64_t)atomic_load(&c->bytes_written),
        .bytes_read = (int64_t)atomic_load(&c->bytes_read),
        .files_written = (int64_t)atomic_load(&c->files_written),
        .files_bad = (int64_t)atomic_load(&c->files_bad),
        .moving = moving,
        .prefill_rate = atomic_load(&c->prefill_rate),
        .device_rate = atomic_load(&c->device_rate),
        .read_rate = atomic_load(&c->read_rate),
        .write_rate = atomic_load(&c->write_rate),
    };
}

/* An engine sees one GPU, whose number is 0 to it; hearthd puts the machine's in its place (engines_where()). */
const char *status_where(bool gpu)
{
    return gpu ? "cuda:0" : "cpu";
}

/* The wall-clock time at which an idle model will be unloaded; 0 if it is in use, or stays loaded. */
static double expires(const struct model_entry *m)
{
    double at = atomic_load(&m->unload_at);
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return at > 0 ? (double)wall.tv_sec + 1e-9 * (double)wall.tv_nsec + at - engine_now() : 0;
}

/* Fills in the rows by path; returns the number of paths. */
static size_t count_paths(const struct engine_counters *c, struct wire_path_rows out[DEVICE_PATHS])
{
    size_t n = 0;
    for (const char *path; n < DEVICE_PATHS && (path = atomic_load(&c->path[n].path)); n++)
        out[n] = (struct wire_path_rows){path, (int64_t)atomic_load(&c->path[n].rows)};
    return n;
}

struct wire_strs status_slow_ops(const struct model_entry *m)
{
    const struct op_table *t = atomic_load(&m->loaded) ? atomic_load(&m->ops) : NULL;
    return t ? (struct wire_strs){.v = (const char **)t->slow, .n = t->n_slow} : (struct wire_strs){0};
}

/* How the device's memory is used; programs[i] points into `seen`. */
static struct wire_memory count_memory(const struct ledger *l, const struct neighbours_seen *seen,
                                       struct wire_program programs[static NEIGHBOURS_MAX])
{
    for (uint32_t i = 0; i < seen->n; i++)
        programs[i] = (struct wire_program){.pid = seen->v[i].pid,
                                            .bytes = (int64_t)seen->v[i].bytes,
                                            .name = seen->v[i].name[0] ? seen->v[i].name : NULL};
    return (struct wire_memory){
        .limit = (int64_t)l->limit,
        .weights = (int64_t)l->held[MEM_WEIGHTS],
        .kv = (int64_t)l->held[MEM_KV],
        .workspace = (int64_t)l->held[MEM_WORKSPACE],
        .cache = (int64_t)l->held[MEM_CACHE],
        .context = (int64_t)l->context,
        .pinned = (int64_t)l->pinned,
        .others = (int64_t)l->others,
        .others_unknown = l->others_known ? NULL
                          : seen->why[0]  ? seen->why
                                          : "it was not looked at yet",
        .programs = programs,
        .n_programs = seen->n,
    };
}

int64_t status_weights_held(const struct model_entry *m)
{
    uint64_t host = atomic_load(&m->host_bytes);
    return (int64_t)(host ? host + atomic_load(&m->own_bytes) : m->hp.weight_bytes);
}

int status_answer(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct engine_counters *c = engine_counters(s->engine);
    const struct model_entry *model;
    size_t n = 0;
    (void)taken;
    models_drop_gone(&s->models);
    struct wire_loaded_model *rows = calloc(s->models.n + 1, sizeof *rows);
    if (!rows)
        return err_set(e, HEARTH_ENOMEM, "no memory for %u models", s->models.n);
    TAILQ_FOREACH (model, &s->models.list, link) {
        bool loaded = atomic_load(&model->loaded);
        if (!loaded && !model->vocab)
            continue;
        rows[n++] = (struct wire_loaded_model){
            .path = model->path,
            .where = loaded ? status_where(atomic_load(&model->on_gpu)) : NULL,
            .self_check = loaded ? atomic_load(&model->self_check) : NULL,
            .bytes = loaded ? status_weights_held(model) : 0,
            .host_bytes = loaded ? (int64_t)atomic_load(&model->host_bytes) : 0,
            .speed = loaded ? atomic_load(&model->speed) : 0,
            .context = model->hp_err.code ? 0 : model->hp.n_ctx,
            .context_used = atomic_load(&model->context_used),
            .sequences = atomic_load(&model->sequences),
            .pages_used = atomic_load(&model->pages_used),
            .pages_total = loaded ? atomic_load(&model->pages_total) : 0,
            .page_bytes = loaded ? (int64_t)atomic_load(&model->page_bytes) : 0,
            .states_used = loaded ? atomic_load(&model->states_used) : 0,
            .states_total = loaded ? atomic_load(&model->states_total) : 0,
            .state_bytes = loaded ? (int64_t)atomic_load(&model->state_bytes) : 0,
            .vocab_only = !loaded,
            .expires = loaded ? expires(model) : 0,
            .pinned = atomic_load(&model->pinned),
            .slow = status_slow_ops(model),
        };
    }
    struct wire_path_rows paths[DEVICE_PATHS];
    struct wire_kv_tiers kv;
    count_tiers(&kv, engine_tiers(s->engine));
    struct ledger ledger;
    struct neighbours_seen seen;
    struct wire_program programs[NEIGHBOURS_MAX];
    engine_ledger(s->engine, &ledger);
    engine_neighbours(s->engine, &seen);
    struct wire_engine_status res = {
        .pid = getpid(),
        .state = "running",
        .backend = engine_backend(s->engine),
        .device = engine_device(s->engine),
        .no_gpu = engine_no_gpu(s->engine),
        .steps = (int64_t)atomic_load(&c->steps),
        .rows = (int64_t)atomic_load(&c->rows),
        .rows_max = (int64_t)atomic_load(&c->rows_max),
        .tokens_computed = (int64_t)atomic_load(&c->tokens_computed),
        .queued = atomic_load(&c->queued),
        .running = atomic_load(&c->running),
        .mem_total = (int64_t)ledger.total,
        .mem_free = (int64_t)ledger.free,
        .mem_cached = (int64_t)ledger.held[MEM_CACHE],
        .memory = count_memory(&ledger, &seen, programs),
        .replays = (int64_t)atomic_load(&c->replays),
        .paths = paths,
        .n_paths = count_paths(c, paths),
        .kv = kv,
        .models = rows,
        .n_models = n,
    };
    serve_result(s, a->rpc_id, a->method, &res);
    free(rows);
    return 0;
}
