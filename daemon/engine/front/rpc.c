/* rpc.c - the methods of the engine link, and the events of the device thread. Thread: the loop's. */
#include "config.h"

#include "daemon/engine/kvtier/fingerprint.h"
#include "daemon/engine/front/program.h"
#include "daemon/engine/front/rpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/model/passed.h"
#include "daemon/trace.h"

void serve_error(struct rpc_server *s, uint32_t rpc_id, const struct hearth_err *err)
{
    struct hearth_err e;
    if (wire_pack_error(frame_conn_out(s->conn), rpc_id, err->code, err->msg, &e)) {
        log_error("cannot answer: %s", e.msg);
        frame_conn_stop(s->conn); /* hearthd would wait for the answer for ever */
    }
}

void serve_result(struct rpc_server *s, uint32_t rpc_id, const struct wire_method *m, const void *result)
{
    struct hearth_err e;
    if (wire_pack_result(frame_conn_out(s->conn), rpc_id, m, result, &e))
        serve_error(s, rpc_id, &e);
}

void serve_event(struct rpc_server *s, const struct wire_method *m, const void *body)
{
    struct hearth_err e;
    if (wire_pack_event(frame_conn_out(s->conn), m, body, NULL, NULL, &e)) {
        log_error("cannot send %s: %s", m->name, e.msg);
        _exit(EXIT_FAILURE); /* a stream must have no hole: the next engine resumes it after the last event that was
                                sent */
    }
}

/* What streams have passed since the last time, before anything that follows from it is told. */
static void send_traces(struct rpc_server *s)
{
    struct trace_kept k;
    while (trace_take(&k)) {
        const int64_t *n = k.ev.n;
        struct wire_engine_trace t = {
            .stream = k.ev.stream,
            .seq = (int64_t)k.ev.seq,
            .pid = getpid(),
            .at = k.at,
            .stage = trace_stage_name(k.ev.stage),
            .word = k.word[0] ? k.word : NULL,
            .n1 = n[0],
            .n2 = n[1],
            .n3 = n[2],
            .n4 = n[3],
            .n5 = n[4],
        };
        serve_event(s, &wire_methods[WIRE_ENGINE_TRACE], &t);
    }
}

/* --- methods --------------------------------------------------------------------------------------------- */

/*
 * A handler returns 0 where it answered, or began a request that will be answered later; an error that it returns is
 * the answer. The parameters are freed after the call unless the handler sets *taken.
 */
typedef int handler(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e);

static int on_hello(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_engine_hello *hello = a->params;
    (void)taken;
    if (hello->version != WIRE_VERSION)
        return err_set(e, HEARTH_EVERSION, "the engine speaks version %d, not %lld", WIRE_VERSION,
                       (long long)hello->version);
    struct wire_engine_hello_result res = {WIRE_VERSION, getpid(), engine_backend(s->engine), engine_device(s->engine),
                                           engine_devices(s->engine)};
    serve_result(s, a->rpc_id, a->method, &res);
    return 0;
}

static int on_generate(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_engine_generate *g = a->params;
    int rc = generate_check(s, g, e);
    return rc ? rc : request_begin(s, a, g->path, g->client, &generate_steps, taken, e);
}

static int on_measure(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_engine_generate *g = a->params;
    return request_begin(s, a, g->path, g->client, &measure_steps, taken, e);
}

static int on_cancel(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_engine_cancel *c = a->params;
    struct request *r = generate_find(s, c->stream);
    (void)taken, (void)e;
    if (r)
        request_cancel(s, r);
    serve_result(s, a->rpc_id, a->method, &(struct wire_empty){0});
    return 0;
}

static int on_forget(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_engine_forget *f = a->params;
    struct request *r;
    (void)taken, (void)e;
    TAILQ_FOREACH (r, &s->requests, link)
        if (r->rpc_id == f->id)
            break;
    if (r)
        request_cancel(s, r);
    serve_result(s, a->rpc_id, a->method, &(struct wire_empty){0});
    return 0;
}

/* The vocabulary is read while the device thread loads the weights. */
static int begin_load(struct rpc_server *s, struct request *r, struct hearth_err *e)
{
    (void)e;
    engine_load(s->engine, r->model, r);
    request_want_vocab(s, r->model);
    return 0;
}

static int begin_unload(struct rpc_server *s, struct request *r, struct hearth_err *e)
{
    (void)e;
    engine_unload(s->engine, r->model, r);
    return 0;
}

static int on_load(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    static const struct request_steps steps = {.begin = begin_load};
    const struct wire_engine_path *p = a->params;
    return request_begin(s, a, p->path, p->client, &steps, taken, e);
}

static int on_unload(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    static const struct request_steps steps = {.begin = begin_unload};
    const struct wire_engine_path *p = a->params;
    return request_begin(s, a, p->path, p->client, &steps, taken, e);
}

static int begin_pin(struct rpc_server *s, struct request *r, struct hearth_err *e)
{
    const struct wire_engine_pin *p = r->params;
    (void)e;
    engine_pin(s->engine, r->model, p->pinned, r);
    if (p->pinned)
        request_want_vocab(s, r->model);
    return 0;
}

static int on_pin(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    static const struct request_steps steps = {.begin = begin_pin};
    const struct wire_engine_pin *p = a->params;
    return request_begin(s, a, p->path, p->client, &steps, taken, e);
}

static int on_pass(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_engine_pass *p = a->params;
    int fd = frame_conn_take_fd(s->conn);
    (void)taken;
    if (fd < 0 && !p->gone)
        return err_set(e, HEARTH_EPARAMS, "engine.pass: no descriptor came with it");
    int rc = fd >= 0 ? passed_put(p->path, fd, e) : 0;
    if (rc)
        return rc;
    if (p->gone)
        passed_drop(p->path);
    serve_result(s, a->rpc_id, a->method, &(struct wire_empty){0});
    return 0;
}

static int on_yield(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_engine_yield *p = a->params;
    void *owner = (void *)(uintptr_t)a->rpc_id;
    (void)taken, (void)e;
    if (p->most >= 0 && p->seconds > 0)
        engine_keep_yield(s->engine, (uint64_t)p->most, p->seconds, owner);
    else
        engine_yield(s->engine, (uint64_t)p->bytes, p->all, p->seconds, owner);
    return 0;
}

static int on_heads(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    struct wire_engine_heads_result res;
    (void)taken;
    int rc = heads_get(s->heads, s->work, &s->models, a->params, &res, e);
    if (rc)
        return rc;
    serve_result(s, a->rpc_id, a->method, &res);
    free(res.heads);
    return 0;
}

static int on_model(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_engine_model *p = a->params;
    return request_begin(s, a, p->path, p->client, &model_steps, taken, e);
}

static void count_tiers(struct wire_kv_tiers *out, const struct tier_counters *c)
{
    int64_t moving = (int64_t)atomic_load(&c->moving); /* first, as it is counted last */
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

static const char *where(bool gpu)
{
    return gpu ? "cuda:0" : "cpu";
}

/* The wall-clock time at which an idle model is unloaded; 0 where it is in use, or stays. */
static double expires(const struct model_entry *m)
{
    double at = atomic_load(&m->unload_at);
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return at > 0 ? (double)wall.tv_sec + 1e-9 * (double)wall.tv_nsec + at - engine_now() : 0;
}

/* The paths that rows took; returns their number. */
static size_t count_paths(const struct engine_counters *c, struct wire_path_rows out[DEVICE_PATHS])
{
    size_t n = 0;
    for (const char *path; n < DEVICE_PATHS && (path = atomic_load(&c->path[n].path)); n++)
        out[n] = (struct wire_path_rows){path, (int64_t)atomic_load(&c->path[n].rows)};
    return n;
}

/* What a loaded model has off the fast path; borrowed. */
static struct wire_strs slow_ops(const struct model_entry *m)
{
    const struct op_table *t = atomic_load(&m->loaded) ? atomic_load(&m->ops) : NULL;
    return t ? (struct wire_strs){.v = (const char **)t->slow, .n = t->n_slow} : (struct wire_strs){0};
}

/* Who has the device's memory; programs[i] points into `seen`. */
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

/* Bytes of its weights, wherever they are. */
static int64_t weights_held(const struct model_entry *m)
{
    uint64_t host = atomic_load(&m->host_bytes);
    return (int64_t)(host ? host + atomic_load(&m->own_bytes) : m->hp.weight_bytes);
}

static int on_status(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct engine_counters *c = engine_counters(s->engine);
    const struct model_entry *model;
    size_t n = 0;
    (void)taken, (void)e;
    struct wire_loaded_model *rows = calloc(s->models.n + 1, sizeof *rows);
    if (!rows)
        return err_set(e, HEARTH_ENOMEM, "no memory for %u models", s->models.n);
    TAILQ_FOREACH (model, &s->models.list, link) {
        bool loaded = atomic_load(&model->loaded);
        if (!loaded && !model->vocab)
            continue;
        rows[n++] = (struct wire_loaded_model){
            .path = model->path,
            .where = loaded ? where(atomic_load(&model->on_gpu)) : NULL,
            .self_check = loaded ? atomic_load(&model->self_check) : NULL,
            .bytes = loaded ? weights_held(model) : 0,
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
            .slow = slow_ops(model),
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

static int on_tokenize(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_tokenize *p = a->params;
    return request_begin(s, a, p->model, p->client, &tokenize_steps, taken, e);
}

static int on_detokenize(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_detokenize *p = a->params;
    return request_begin(s, a, p->model, p->client, &detokenize_steps, taken, e);
}

static int on_render(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_engine_render *p = a->params;
    return request_begin(s, a, p->req.model, p->client, &render_steps, taken, e);
}

static int on_eval(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_eval *p = a->params;
    return request_begin(s, a, p->model, p->client, &eval_steps, taken, e);
}

static int on_kv_gone(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_engine_kv_gone *gone = a->params;
    const char *name = gone->file;
    char file[KVFILE_NAME] = "";
    (void)taken;
    if (strlen(name) >= sizeof file)
        return err_set(e, HEARTH_EPARAMS, "file: \"%.80s\" is not the name of a KV file", name);
    strcpy(file, name);
    engine_kv_evicted(s->engine, file, gone->again);
    serve_result(s, a->rpc_id, a->method, &(struct wire_empty){0});
    return 0;
}

static int on_shutdown(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    static const double finish_seconds = 2; /* hearthd waits a little longer */
    (void)taken;
    if (s->stopping)
        return err_set(e, HEARTH_ESHUTDOWN, "the engine is shutting down already");
    /* KV that is being written to a file gets there first. */
    s->stopping = true;
    s->stop_id = a->rpc_id;
    engine_finish(s->engine, finish_seconds);
    return 0;
}

static int on_class(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_engine_class *c = a->params;
    struct request *r = generate_find(s, c->stream);
    (void)taken, (void)e;
    if (r)
        generate_set_class(s, r, c->class);
    serve_result(s, a->rpc_id, a->method, &(struct wire_empty){0});
    return 0;
}

static handler *const handlers[WIRE_METHODS] = {[WIRE_ENGINE_HELLO] = on_hello,
                                                [WIRE_ENGINE_GENERATE] = on_generate,
                                                [WIRE_ENGINE_CANCEL] = on_cancel,
                                                [WIRE_ENGINE_LOAD] = on_load,
                                                [WIRE_ENGINE_UNLOAD] = on_unload,
                                                [WIRE_ENGINE_MODEL] = on_model,
                                                [WIRE_ENGINE_MEASURE] = on_measure,
                                                [WIRE_ENGINE_HEADS] = on_heads,
                                                [WIRE_ENGINE_STATUS] = on_status,
                                                [WIRE_ENGINE_TOKENIZE] = on_tokenize,
                                                [WIRE_ENGINE_DETOKENIZE] = on_detokenize,
                                                [WIRE_ENGINE_RENDER] = on_render,
                                                [WIRE_ENGINE_EVAL] = on_eval,
                                                [WIRE_ENGINE_FORGET] = on_forget,
                                                [WIRE_ENGINE_KV_GONE] = on_kv_gone,
                                                [WIRE_ENGINE_SHUTDOWN] = on_shutdown,
                                                [WIRE_ENGINE_CLASS] = on_class,
                                                [WIRE_ENGINE_PIN] = on_pin,
                                                [WIRE_ENGINE_YIELD] = on_yield,
                                                [WIRE_ENGINE_PASS] = on_pass};

static int dispatch(struct rpc_server *s, const struct wire_frame *f, struct hearth_err *e)
{
    bool taken = false;
    struct asked a = {.rpc_id = f->id, .bytes = f->body_len, .method = wire_method_get(f->method, f->method_len, e)};
    if (!a.method)
        return e->code;
    handler *h = handlers[a.method - wire_methods];
    if (!h)
        return err_set(e, HEARTH_EMETHOD, "%s is not a method of the engine link", a.method->name);
    int rc = wire_unpack(a.method->params, f->body, f->body_len, &a.params, e);
    if (rc)
        return rc;
    rc = h(s, &a, &taken, e);
    if (!taken)
        wire_free(a.params);
    return rc;
}

static void on_frame(void *arg, const uint8_t *data, size_t len)
{
    struct rpc_server *s = arg;
    struct wire_frame f = {0};
    struct hearth_err err;
    int rc = wire_frame_open(&f, data, len, &err);
    if (f.kind != WIRE_FRAME_REQUEST)
        return; /* hearthd sends requests only, and nothing else could be answered */
    send_traces(s);
    if (rc || (rc = dispatch(s, &f, &err)))
        serve_error(s, f.id, &err);
    send_traces(s);
}

/* --- events of the device thread ------------------------------------------------------------------------- */

static void on_model_event(struct rpc_server *s, const struct event_model *ev)
{
    if (ev->ev.kind == EV_PROGRESS) {
        struct wire_model_progress body = {.model = ev->model->path,
                                           .done = (int64_t)ev->done,
                                           .total = (int64_t)ev->total,
                                           .host_bytes = (int64_t)atomic_load(&ev->model->host_bytes),
                                           .speed = atomic_load(&ev->model->speed)};
        serve_event(s, &wire_methods[WIRE_MODEL_PROGRESS], &body);
        return;
    }
    struct request *r = ev->owner;
    if (!r) {                           /* generate_opened() or on_wake() asked, not hearthd */
        if (ev->ev.kind == EV_UNLOADED) /* by on_wake(): the model may go with its last reference */
            ev->model->replaced = true;
        models_put(&s->models, ev->model);
        return;
    }
    if (ev->err.code) {
        serve_error(s, r->rpc_id, &ev->err);
    } else {
        bool gpu = atomic_load(&ev->model->on_gpu);
        const char *check = atomic_load(&ev->model->self_check);
        struct wire_model_load_result res = {
            .model = ev->model->path,
            .path = ev->model->path,
            .load_ms = 1e3 * ev->seconds,
            .was_loaded = ev->was_loaded,
            .where = atomic_load(&ev->model->loaded) ? where(gpu) : NULL,
            .no_gpu = gpu     ? NULL
                      : check ? check
                              : engine_no_gpu(s->engine),
            .slow = slow_ops(ev->model),
            .bytes = weights_held(ev->model),
            .host_bytes = (int64_t)atomic_load(&ev->model->host_bytes),
            .speed = atomic_load(&ev->model->speed),
        };
        struct wire_empty empty = {0};
        serve_result(s, r->rpc_id, r->method, ev->ev.kind == EV_LOADED ? (const void *)&res : &empty);
    }
    request_free(s, r);
}

static void on_kv(struct rpc_server *s, const struct event_kv *ev)
{
    const struct tier_event *what = &ev->what;
    char fingerprint[17];
    snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)what->fingerprint);
    struct wire_engine_kv_saved saved = {
        ev->file,
        fingerprint,
        what->uid,
        (int64_t)what->bytes,
        what->tokens,
        what->pos,
        ev->label[0] ? ev->label : NULL,
    };
    switch (what->kind) {
    case TIER_SAVED:
        serve_event(s, &wire_methods[WIRE_ENGINE_KV_SAVED], &saved);
        break;
    case TIER_USED:
        serve_event(s, &wire_methods[WIRE_ENGINE_KV_USED], &(struct wire_engine_kv_used){ev->file});
        break;
    case TIER_BAD:
        serve_event(s, &wire_methods[WIRE_ENGINE_KV_BAD], &(struct wire_engine_kv_bad){ev->file, ev->why});
        break;
    }
}

static void on_yielded(struct rpc_server *s, const struct event_yield *ev)
{
    uint32_t rpc_id = (uint32_t)(uintptr_t)ev->owner;
    struct wire_engine_yield_result res = {
        .freed = (int64_t)ev->freed, .free = (int64_t)ev->free, .held = (int64_t)ev->held};
    if (ev->holds)
        res.why = ev->err.code ? ev->err.msg : NULL;
    if (ev->err.code && !ev->holds)
        serve_error(s, rpc_id, &ev->err);
    else
        serve_result(s, rpc_id, &wire_methods[WIRE_ENGINE_YIELD], &res);
}

static void on_parked(struct rpc_server *s, const struct event_parked *ev)
{
    const struct request *r = ev->owner;
    if (r->msg) /* a stream's */
        serve_event(s, &wire_methods[WIRE_ENGINE_PARKED],
                    &(struct wire_engine_parked){.stream = r->msg->stream, .parked = ev->parked});
}

static void on_event(struct rpc_server *s, struct engine_event *ev)
{
    switch (ev->kind) {
    case EV_ADMIT:
        generate_admitted(s, ((const struct event_admit *)ev)->owner);
        break;
    case EV_PROMPT:
        generate_progress(s, (const struct event_prompt *)ev);
        break;
    case EV_STEP: {
        const struct event_step *st = (const struct event_step *)ev;
        for (uint32_t i = 0; i < st->n; i++)
            generate_token(s, st->token[i].owner, &st->token[i]);
        break;
    }
    case EV_END: {
        struct event_end *end = (struct event_end *)ev;
        generate_end(s, end->owner, end);
        break;
    }
    case EV_PROGRESS:
    case EV_LOADED:
    case EV_UNLOADED:
        on_model_event(s, (const struct event_model *)ev);
        break;
    case EV_KV:
        on_kv(s, (const struct event_kv *)ev);
        break;
    case EV_FINISHED:
        serve_result(s, s->stop_id, &wire_methods[WIRE_ENGINE_SHUTDOWN], &(struct wire_empty){0});
        frame_conn_stop(s->conn);
        break;
    case EV_YIELDED:
        on_yielded(s, (const struct event_yield *)ev);
        break;
    case EV_PARKED:
        on_parked(s, (const struct event_parked *)ev);
        break;
    case EV_IDLE:
        if (TAILQ_EMPTY(&s->requests))
            serve_event(s, &wire_methods[WIRE_ENGINE_IDLE], &(struct wire_empty){0});
        break;
    case EV_FATAL:
        s->fatal = ((const struct event_fatal *)ev)->err;
        frame_conn_stop(s->conn);
        break;
    }
}

static void on_wake(void *arg)
{
    struct rpc_server *s = arg;
    struct engine_event *ev;
    engine_take(s->engine);
    send_traces(s);
    while ((ev = engine_next(s->engine))) {
        on_event(s, ev);
        engine_event_free(ev);
    }
    struct model_entry *m = models_idle_replaced(&s->models);
    if (m) { /* its file was replaced, and no request uses it any more */
        m->users++;
        m->replaced = false; /* until it is unloaded, so that this is asked once */
        engine_unload(s->engine, m, NULL);
    }
}

/* The watchdog. A device that hangs reports nothing and cannot be stopped: the requests that wait for it fail, and
 * hearthd resumes their streams in the next engine. One tick is not enough to tell, because a process that was stopped
 * itself (SIGSTOP, suspend) finds the time gone by. */
static void on_tick(void *arg)
{
    struct rpc_server *s = arg;
    struct request *r;
    struct hearth_err err;
    s->stuck = engine_stuck(s->engine, &err) ? s->stuck + 1 : 0;
    if (s->stuck > 1) {
        s->fatal = err;
        TAILQ_FOREACH (r, &s->requests, link)
            serve_error(s, r->rpc_id, &err);
        frame_conn_stop(s->conn);
    } else if (!TAILQ_EMPTY(&s->requests)) {
        frame_conn_tick_in(s->conn, WATCHDOG_SECONDS);
    }
}

static void on_full(void *arg, bool full)
{
    struct rpc_server *s = arg;
    engine_throttle(s->engine, full);
}

int rpc_server_init(struct rpc_server *s, struct engine *engine, int link_fd, struct hearth_err *e)
{
    static const struct frame_conn_calls calls = {on_frame, on_full, on_tick};
    memset(s, 0, sizeof *s);
    s->engine = engine;
    TAILQ_INIT(&s->requests);
    models_init(&s->models);
    int rc = work_open(&s->work, e);
    if (rc)
        return rc;
    if (!(s->heads = heads_new())) {
        work_close(s->work, 1);
        return err_set(e, HEARTH_ENOMEM, "no memory for a list of models");
    }
    if ((rc = frame_conn_open(&s->conn, link_fd, &calls, s, e))) {
        work_close(s->work, 1);
        return rc;
    }
    if ((rc = frame_conn_watch(s->conn, engine_fd(engine), on_wake, e)) ||
        (rc = frame_conn_watch(s->conn, work_fd(s->work), request_on_work, e))) {
        frame_conn_close(s->conn);
        work_close(s->work, 1);
    }
    return rc;
}

bool rpc_server_fini(struct rpc_server *s)
{
    static const double patience = 0.5; /* seconds */
    struct request *r;
    if (!work_close(s->work, patience))
        return false;
    while ((r = TAILQ_FIRST(&s->requests)))
        request_free(s, r);
    heads_free(s->heads);
    models_fini(&s->models);
    frame_conn_close(s->conn);
    return true;
}

int rpc_server_run(struct rpc_server *s, struct hearth_err *e)
{
    int rc = frame_conn_run(s->conn, e);
    if (rc || !s->fatal.code)
        return rc;
    *e = s->fatal;
    return e->code;
}

/* --- refusing ------------------------------------------------------------------------------------------- */

struct refusal {
    struct frame_conn *conn;
    const struct hearth_err *why;
};

static void refuse_frame(void *arg, const uint8_t *data, size_t len)
{
    const struct refusal *r = arg;
    struct wire_frame f = {0};
    struct hearth_err err;
    if (!wire_frame_open(&f, data, len, &err) && f.kind == WIRE_FRAME_REQUEST)
        wire_pack_error(frame_conn_out(r->conn), f.id, r->why->code, r->why->msg, NULL);
    frame_conn_stop(r->conn);
}

void rpc_server_refuse(int link_fd, const struct hearth_err *why)
{
    static const struct frame_conn_calls calls = {
        .frame = refuse_frame}; /* there is nothing to wake it, and one answer passes no watermark */
    struct refusal r = {.why = why};
    struct hearth_err err;
    if (frame_conn_open(&r.conn, link_fd, &calls, &r, &err))
        return; /* there is no link where a person started the engine */
    frame_conn_run(r.conn, &err);
    frame_conn_close(r.conn);
}
