/* rpc.c - the methods of the engine link, and the events of the device thread. Thread: the loop's. */
#include "config.h"

#include "daemon/engine/kvtier/fingerprint.h"
#include "daemon/engine/front/chat.h"
#include "daemon/engine/front/program.h"
#include "daemon/engine/front/rpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/trace.h"

void serve_error(struct rpc_server *s, uint32_t rpc_id, const struct hearth_err *err)
{
    struct hearth_err e;
    if (wire_pack_error(frame_conn_out(s->conn), rpc_id, err->code, err->msg, &e)) {
        log_error("cannot answer: %s", e.msg);
        frame_conn_stop(s->conn); /* hearthd would wait for the answer for ever */
    }
}

enum { WATCHDOG_SECONDS = 1 }; /* between two checks of the device, while requests wait for it */

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

struct request *request_new(struct rpc_server *s, uint32_t rpc_id, const struct wire_method *m,
                            struct model_entry *model)
{
    struct request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->rpc_id = rpc_id;
    r->method = m;
    r->model = model;
    TAILQ_INSERT_TAIL(&s->requests, r, link);
    frame_conn_tick_in(s->conn, WATCHDOG_SECONDS);
    return r;
}

void request_free(struct rpc_server *s, struct request *r)
{
    TAILQ_REMOVE(&s->requests, r, link);
    models_put(&s->models, r->model);
    text_fini(&r->text);
    ids_fini(&r->appended);
    wire_free(r->msg);
    free(r);
}

/* --- methods --------------------------------------------------------------------------------------------- */

/*
 * A handler returns 0 where it answered, or added a request that will be answered later; an error that it returns is
 * the answer. `msg` is freed after the call unless the handler sets *taken.
 */
typedef int handler(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                    struct hearth_err *e);

static int on_hello(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                    struct hearth_err *e)
{
    const struct wire_engine_hello *hello = msg;
    (void)taken;
    if (hello->version != WIRE_VERSION)
        return err_set(e, HEARTH_EVERSION, "the engine speaks version %d, not %lld", WIRE_VERSION,
                       (long long)hello->version);
    struct wire_engine_hello_result res = {WIRE_VERSION, getpid(), engine_backend(s->engine), engine_device(s->engine)};
    serve_result(s, id, m, &res);
    return 0;
}

static int on_generate(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                       struct hearth_err *e)
{
    (void)m;
    return generate_begin(s, id, msg, taken, e);
}

static int on_cancel(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                     struct hearth_err *e)
{
    (void)taken, (void)e;
    generate_cancel(s, ((struct wire_engine_cancel *)msg)->stream);
    serve_result(s, id, m, &(struct wire_empty){0});
    return 0;
}

static int request_load(struct rpc_server *s, uint32_t id, const struct wire_method *m, const char *path, bool load,
                        struct hearth_err *e)
{
    struct model_entry *model;
    struct hearth_err ignored;
    int rc = models_get(&s->models, path, &model, e);
    if (rc)
        return rc;
    struct request *r = request_new(s, id, m, model);
    if (!r) {
        models_put(&s->models, model);
        return err_set(e, HEARTH_ENOMEM, "no memory for a request");
    }
    (load ? engine_load : engine_unload)(s->engine, model, r);
    if (load)
        models_vocab(model, &ignored); /* while the device thread loads the weights */
    return 0;
}

static int on_load(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                   struct hearth_err *e)
{
    (void)taken;
    return request_load(s, id, m, ((struct wire_engine_path *)msg)->path, true, e);
}

static int on_unload(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                     struct hearth_err *e)
{
    (void)taken;
    return request_load(s, id, m, ((struct wire_engine_path *)msg)->path, false, e);
}

static int on_model(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                    struct hearth_err *e)
{
    const struct wire_engine_model *ask = msg;
    struct model_entry *model;
    struct hearth_err ignored;
    struct program_rows ops = {0};
    struct gguf_str arch = {"", 0};
    char arch_name[64], weights[KV_DIGEST], tokenizer[KV_DIGEST];
    (void)taken;
    int rc = models_get(&s->models, ask->path, &model, e);
    if (rc)
        return rc;
    if ((rc = kv_fingerprint_digests(model->gguf, weights, tokenizer, e)) ||
        (ask->ops && (rc = program_rows(&ops, model, e)))) {
        models_put(&s->models, model);
        return rc;
    }
    models_vocab(model, &ignored);
    const struct hparams *hp = &model->hp;
    gguf_str(model->gguf, "general.architecture", &arch, &ignored);
    snprintf(arch_name, sizeof arch_name, "%.60s",
             gguf_label(arch).s); /* any bytes may stand there; the wire has UTF-8 */
    struct wire_model res = {
        .name = model->path,
        .path = model->path,
        .bytes = model->id.size,
        .modified = (double)model->id.mtime.tv_sec + 1e-9 * (double)model->id.mtime.tv_nsec,
        .loaded = atomic_load(&model->loaded),
        .arch = *arch_name ? arch_name : NULL,
        .digest = weights,
        .tokenizer = model->vocab ? vocab_kind(model->vocab) : NULL,
        .tokenizer_digest = tokenizer,
        .chat = tmpl_name(model->tmpl),
        .vocab = model->vocab ? vocab_size(model->vocab) : 0,
        .ops = ops.row,
        .n_ops = ops.n,
    };
    if (!model->hp_err.code) {
        res.type = *hp->type ? hp->type : NULL;
        res.parameters = (int64_t)hp->n_param;
        res.context = hp->n_ctx;
        res.layers = hp->n_layer;
        res.d_model = hp->d_model;
        res.heads = hp->n_head;
        res.kv_heads = hp->n_kv;
        res.d_head = hp->d_head;
        res.d_ff = hp->d_ff;
        res.vocab = hp->n_vocab;
    }
    serve_result(s, id, m, &res);
    program_rows_free(&ops);
    models_put(&s->models, model);
    return 0;
}

static void count_tiers(struct wire_kv_tiers *out, const struct tier_counters *c)
{
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
        .moving = (int64_t)atomic_load(&c->moving),
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

/* What a loaded model has off the fast path; borrowed. */
static struct wire_strs slow_ops(const struct model_entry *m)
{
    const struct op_table *t = atomic_load(&m->loaded) ? atomic_load(&m->ops) : NULL;
    return t ? (struct wire_strs){.v = (const char **)t->slow, .n = t->n_slow} : (struct wire_strs){0};
}

static int on_status(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                     struct hearth_err *e)
{
    const struct engine_counters *c = engine_counters(s->engine);
    const struct model_entry *model;
    size_t n = 0;
    (void)msg, (void)taken;
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
            .bytes = loaded ? (int64_t)model->hp.weight_bytes : 0,
            .context = model->hp_err.code ? 0 : model->hp.n_ctx,
            .context_used = atomic_load(&model->context_used),
            .sequences = atomic_load(&model->sequences),
            .pages_used = atomic_load(&model->pages_used),
            .pages_total = loaded ? atomic_load(&model->pages_total) : 0,
            .page_bytes = loaded ? (int64_t)atomic_load(&model->page_bytes) : 0,
            .vocab_only = !loaded,
            .expires = expires(model),
            .slow = slow_ops(model),
        };
    }
    struct wire_kv_tiers kv;
    count_tiers(&kv, engine_tiers(s->engine));
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
        .mem_total = (int64_t)atomic_load(&c->mem_total),
        .mem_free = (int64_t)atomic_load(&c->mem_free),
        .mem_cached = (int64_t)atomic_load(&c->mem_cached),
        .kv = kv,
        .models = rows,
        .n_models = n,
    };
    serve_result(s, id, m, &res);
    free(rows);
    return 0;
}

/* Takes a reference to a model of which only the vocabulary is needed. */
static int get_vocab(struct rpc_server *s, const char *path, struct model_entry **out, struct hearth_err *e)
{
    int rc = models_get(&s->models, path, out, e);
    if (!rc && (rc = models_vocab(*out, e)))
        models_put(&s->models, *out);
    return rc;
}

static int on_tokenize(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                       struct hearth_err *e)
{
    const struct wire_tokenize *t = msg;
    struct model_entry *model;
    struct ids ids = {0};
    (void)taken;
    int rc = get_vocab(s, t->model, &model, e);
    if (rc)
        return rc;
    bool bos = t->bos < 0 ? vocab_add_bos(model->vocab) : t->bos > 0;
    int flags = (bos ? TOK_BOS : 0) | (t->special ? TOK_SPECIAL : 0);
    if (!(rc = tok_encode(model->vocab, t->text.data ? t->text.data : "", t->text.len, flags, &ids, e)))
        serve_result(s, id, m, &(struct wire_tokenize_result){{ids.v, ids.n}});
    ids_fini(&ids);
    models_put(&s->models, model);
    return rc;
}

static int on_render(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                     struct hearth_err *e)
{
    const struct wire_render *r = msg;
    struct model_entry *model;
    struct jinja_text text = {0};
    struct ids ids = {0};
    (void)taken;
    struct chat chat = {
        .messages = r->messages,
        .tools = r->tools,
        .documents = r->documents,
        .kwargs = r->kwargs,
        .bos_token = r->bos_token,
        .eos_token = r->eos_token,
        .source = r->chat_template,
        .template_name = r->template_name,
        .now = r->now,
        .open = r->add_generation_prompt,
    };
    int rc = get_vocab(s, r->model, &model, e);
    if (rc)
        return rc;
    if (!(rc = chat_render(model, &chat, &text, e)) && !(rc = chat_encode(model->vocab, &text, 0, true, &ids, e)))
        serve_result(s, id, m, &(struct wire_render_result){{text.data, text.n}, {ids.v, ids.n}});
    ids_fini(&ids);
    jinja_text_fini(&text);
    models_put(&s->models, model);
    return rc;
}

/* The bytes of the ids as a text of its own, without the BOS and the dummy space of SentencePiece that encoding adds.
 */
static int detokenize(const struct vocab *v, struct wire_ids ids, char **out, size_t *n, struct hearth_err *e)
{
    size_t first = ids.n && vocab_add_bos(v) && ids.v[0] == vocab_bos(v), need = 0, at = 0;
    for (size_t i = first; i < ids.n; i++)
        need += tok_piece(v, ids.v[i], true, NULL, 0);
    char *s = malloc(need + 1);
    if (!s)
        return err_set(e, HEARTH_ENOMEM, "no memory for %zu bytes of text", need);
    for (size_t i = first; i < ids.n; i++)
        at += tok_piece(v, ids.v[i], true, s + at, need - at);
    if (at && s[0] == ' ' && tok_adds_space(v))
        memmove(s, s + 1, --at);
    *out = s;
    *n = at;
    return 0;
}

static int on_detokenize(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                         struct hearth_err *e)
{
    const struct wire_detokenize *d = msg;
    struct model_entry *model;
    struct text text = {0};
    char *bytes = NULL, *all = NULL;
    const char *part;
    size_t n = 0, n_part, n_all = 0;
    (void)taken;
    int rc = get_vocab(s, d->model, &model, e);
    if (rc)
        return rc;
    if ((rc = prompt_check_ids("tokens", d->tokens.v, d->tokens.n, vocab_size(model->vocab), e)) ||
        (rc = detokenize(model->vocab, d->tokens, &bytes, &n, e)) ||
        (rc = text_push_bytes(&text, bytes, n, &part, &n_part, e)))
        goto out;
    if (!(all = malloc(n_part + 4))) { /* U+FFFD for an unfinished character at the end has room, too */
        rc = err_set(e, HEARTH_ENOMEM, "no memory for %zu bytes of text", n_part);
        goto out;
    }
    memcpy(all, part, n_all = n_part);
    if ((rc = text_end(&text, &part, &n_part, e)))
        goto out;
    memcpy(all + n_all, part, n_part);
    n_all += n_part;
    serve_result(s, id, m, &(struct wire_detokenize_result){{bytes, n}, {all, n_all}});
out:
    free(all);
    free(bytes);
    text_fini(&text);
    models_put(&s->models, model);
    return rc;
}

static int on_eval(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                   struct hearth_err *e)
{
    (void)m, (void)taken;
    return eval_begin(s, id, msg, e);
}

static int on_kv_gone(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                      struct hearth_err *e)
{
    const struct wire_engine_kv_gone *gone = msg;
    const char *name = gone->file;
    char file[KVFILE_NAME] = "";
    (void)taken;
    if (strlen(name) >= sizeof file)
        return err_set(e, HEARTH_EPARAMS, "file: \"%.80s\" is not the name of a KV file", name);
    strcpy(file, name);
    engine_kv_evicted(s->engine, file, gone->again);
    serve_result(s, id, m, &(struct wire_empty){0});
    return 0;
}

static int on_shutdown(struct rpc_server *s, uint32_t id, const struct wire_method *m, void *msg, bool *taken,
                       struct hearth_err *e)
{
    static const double finish_seconds = 2; /* hearthd waits a little longer */
    (void)m, (void)msg, (void)taken;
    if (s->stopping)
        return err_set(e, HEARTH_ESHUTDOWN, "the engine is shutting down already");
    /* KV that is being written to a file gets there first. */
    s->stopping = true;
    s->stop_id = id;
    engine_finish(s->engine, finish_seconds);
    return 0;
}

static handler *const handlers[WIRE_METHODS] = {
    [WIRE_ENGINE_HELLO] = on_hello,
    [WIRE_ENGINE_GENERATE] = on_generate,
    [WIRE_ENGINE_CANCEL] = on_cancel,
    [WIRE_ENGINE_LOAD] = on_load,
    [WIRE_ENGINE_UNLOAD] = on_unload,
    [WIRE_ENGINE_MODEL] = on_model,
    [WIRE_ENGINE_STATUS] = on_status,
    [WIRE_ENGINE_TOKENIZE] = on_tokenize,
    [WIRE_ENGINE_DETOKENIZE] = on_detokenize,
    [WIRE_ENGINE_RENDER] = on_render,
    [WIRE_ENGINE_EVAL] = on_eval,
    [WIRE_ENGINE_KV_GONE] = on_kv_gone,
    [WIRE_ENGINE_SHUTDOWN] = on_shutdown,
};

static int dispatch(struct rpc_server *s, const struct wire_frame *f, struct hearth_err *e)
{
    void *msg;
    bool taken = false;
    const struct wire_method *m = wire_method_get(f->method, f->method_len, e);
    if (!m)
        return e->code;
    handler *h = handlers[m - wire_methods];
    if (!h)
        return err_set(e, HEARTH_EMETHOD, "%s is not a method of the engine link", m->name);
    int rc = wire_unpack(m->params, f->body, f->body_len, &msg, e);
    if (rc)
        return rc;
    rc = h(s, f->id, m, msg, &taken, e);
    if (!taken)
        wire_free(msg);
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
        struct wire_model_progress body = {ev->model->path, (int64_t)ev->done, (int64_t)ev->total};
        serve_event(s, &wire_methods[WIRE_MODEL_PROGRESS], &body);
        return;
    }
    struct request *r = ev->owner;
    if (!r) {                           /* start_load() or on_wake() asked, not hearthd */
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
            .where = where(gpu),
            .no_gpu = gpu     ? NULL
                      : check ? check
                              : engine_no_gpu(s->engine),
            .slow = slow_ops(ev->model),
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

static void on_event(struct rpc_server *s, const struct engine_event *ev)
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
        const struct event_end *end = (const struct event_end *)ev;
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
    static const struct frame_conn_calls calls = {on_frame, on_wake, on_full, on_tick};
    memset(s, 0, sizeof *s);
    s->engine = engine;
    TAILQ_INIT(&s->requests);
    models_init(&s->models);
    return frame_conn_open(&s->conn, link_fd, engine_fd(engine), &calls, s, e);
}

void rpc_server_fini(struct rpc_server *s)
{
    struct request *r;
    while ((r = TAILQ_FIRST(&s->requests)))
        request_free(s, r);
    models_fini(&s->models);
    frame_conn_close(s->conn);
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
    if (frame_conn_open(&r.conn, link_fd, -1, &calls, &r, &err))
        return; /* there is no link where a person started the engine */
    frame_conn_run(r.conn, &err);
    frame_conn_close(r.conn);
}
