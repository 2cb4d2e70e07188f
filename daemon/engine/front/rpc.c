/* rpc.c - the methods of the engine link, and the server that they belong to. Thread: the loop's. */
#include "config.h"

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
        frame_conn_stop(s->conn); /* otherwise hearthd would wait for the answer for ever */
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
        _exit(EXIT_FAILURE); /* a stream must have no gap: the next engine resumes it after the last event sent */
    }
}

/* Sends the traces recorded since the last call, before anything that follows from them is sent. */
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
 * A handler returns 0 if it has answered, or has begun a request that will be answered later; an error that it returns
 * becomes the answer. The parameters are freed after the call unless the handler sets *taken.
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
    const struct wire_engine_path *p = r->params;
    (void)e;
    if (p->here)
        engine_load_here(s->engine, r->model, r);
    else
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
    static const struct request_steps steps = {.weights = true, .begin = begin_load};
    const struct wire_engine_path *p = a->params;
    return request_begin(s, a, p->path, p->client, &steps, taken, e);
}

/* Begins a request that does not need a loaded model's file to be read: the file may be damaged or deleted. If the
 * model is neither loaded nor being loaded, the answer is `result`. */
static int begin_on_loaded(struct rpc_server *s, const struct asked *a, const char *path, int64_t client,
                           const struct request_steps *steps, const void *result, bool *taken, struct hearth_err *e)
{
    struct model_entry *m = models_find(&s->models, path);
    int rc = m ? request_begin_on(s, a, m, client, steps, taken, e) : 0;
    if (!m)
        serve_result(s, a->rpc_id, a->method, result);
    else if (rc)
        models_put(&s->models, m);
    return rc;
}

static int on_unload(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    static const struct request_steps steps = {.anyway = true, .begin = begin_unload};
    const struct wire_engine_path *p = a->params;
    return begin_on_loaded(s, a, p->path, p->client, &steps, &(struct wire_empty){0}, taken, e);
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
    static const struct request_steps pin = {.weights = true, .begin = begin_pin},
                                      unpin = {.anyway = true, .begin = begin_pin};
    const struct wire_engine_pin *p = a->params;
    if (p->pinned)
        return request_begin(s, a, p->path, p->client, &pin, taken, e);
    struct wire_model_load_result none = {.model = p->path, .path = p->path};
    return begin_on_loaded(s, a, p->path, p->client, &unpin, &none, taken, e);
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
    models_drop_gone(&s->models);
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

static int on_kv_dir(struct rpc_server *s, const struct asked *a, bool *taken, struct hearth_err *e)
{
    const struct wire_engine_kv_dir *dir = a->params;
    char *path = strdup(dir->path);
    (void)taken;
    if (!path)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    engine_kv_dir(s->engine, path);
    serve_result(s, a->rpc_id, a->method, &(struct wire_empty){0});
    return 0;
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
    /* Time for a slow disk; hearthd waits a little longer. KV that is not in its file by then is lost, and
     * recomputed. */
    static const double finish_seconds = 10;
    (void)taken;
    if (s->stopping)
        return err_set(e, HEARTH_ESHUTDOWN, "the engine is shutting down already");
    /* KV that is being written to a file is completed first. */
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
                                                [WIRE_ENGINE_STATUS] = status_answer,
                                                [WIRE_ENGINE_TOKENIZE] = on_tokenize,
                                                [WIRE_ENGINE_DETOKENIZE] = on_detokenize,
                                                [WIRE_ENGINE_RENDER] = on_render,
                                                [WIRE_ENGINE_EVAL] = on_eval,
                                                [WIRE_ENGINE_FORGET] = on_forget,
                                                [WIRE_ENGINE_KV_DIR] = on_kv_dir,
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
        return; /* hearthd sends only requests, and nothing else could be answered */
    send_traces(s);
    if (rc || (rc = dispatch(s, &f, &err)))
        serve_error(s, f.id, &err);
    send_traces(s);
}

/* --- wake-ups --------------------------------------------------------------------------------------------- */

static void on_wake(void *arg)
{
    struct rpc_server *s = arg;
    struct engine_event *ev;
    engine_take(s->engine);
    send_traces(s);
    while ((ev = engine_next(s->engine))) {
        events_serve(s, ev);
        engine_event_free(ev);
    }
    struct model_entry *m = models_idle_replaced(&s->models);
    if (m) { /* its file was replaced, and no request uses it any more */
        m->users++;
        m->replaced = false; /* until it is unloaded, so that this is requested only once */
        engine_unload(s->engine, m, NULL);
    }
}

/* The watchdog. A device that hangs reports nothing and cannot be stopped: the requests that wait for it fail, and
 * hearthd resumes their streams in the next engine. A single tick is no proof, because a process that was itself
 * stopped (SIGSTOP, suspend) finds the deadline passed. */
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
    if (!(s->heads = heads_new()))
        rc = err_set(e, HEARTH_ENOMEM, "no memory for a list of models");
    if (rc || (rc = frame_conn_open(&s->conn, link_fd, &calls, s, e)) ||
        (rc = frame_conn_watch(s->conn, engine_fd(engine), on_wake, e)) ||
        (rc = frame_conn_watch(s->conn, work_fd(s->work), request_on_work, e))) {
        if (s->conn)
            frame_conn_close(s->conn);
        heads_free(s->heads);
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
        .frame = refuse_frame}; /* it watches no other descriptor, and one answer exceeds no watermark */
    struct refusal r = {.why = why};
    struct hearth_err err;
    if (frame_conn_open(&r.conn, link_fd, &calls, &r, &err))
        return; /* if a person started the engine there is no link */
    frame_conn_run(r.conn, &err);
    frame_conn_close(r.conn);
}
