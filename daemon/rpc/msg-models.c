/* msg-models.c - models.list by name and stat; models.show, load, unload and pin through the engine. Loop thread. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/rpc/dispatch.h"
#include "daemon/rpc/forward.h"
#include "daemon/rpc/pins.h"
#include "daemon/rpc/subscription.h"
#include "daemon/log.h"
#include "daemon/supervisor/engines.h"
#include "daemon/supervisor/model-names.h"
#include "daemon/stream/stream.h"

/* --- list ----------------------------------------------------------------------------------------------- */

/* The state of a models.list that is being answered. */
struct listing {
    struct model_entry *v; /* the models in the folders */
    size_t n;
    struct wire_engine_file *files; /* the same for the engine, if details are requested */
};

static void listing_free(struct listing *l)
{
    model_names_free(l->v, l->n);
    free(l->files);
    free(l);
}

static bool is_loaded(const struct wire_engine_status *es, const char *path)
{
    for (size_t i = 0; es != NULL && i < es->n_models; i++)
        if (es->models[i].path && !es->models[i].vocab_only && strcmp(es->models[i].path, path) == 0)
            return true;
    return false;
}

/* Answers the call with one row for each model; `fill` adds what an engine has reported about it. */
static void reply_list(struct call *call, void (*fill)(struct wire_model *m, size_t i, const void *told),
                       const void *told)
{
    struct listing *l = call->arg;
    const struct conf *conf = call->server->conf;
    struct hearth_err e;
    struct wire_model *w = calloc(l->n + 1, sizeof *w);
    for (size_t i = 0; w != NULL && i < l->n; i++) {
        w[i] = (struct wire_model){
            .name = l->v[i].name, .path = l->v[i].path, .bytes = l->v[i].bytes, .modified = l->v[i].modified};
        if (told)
            fill(&w[i], i, told);
        w[i].loaded |= engines_has(call->server->engines, w[i].path);
    }
    struct wire_models_list_result r = {
        .models = w,
        .n_models = l->n,
        .default_model = conf->model ? conf->model : "tale",
        .folders = {.v = (const char **)conf->model_dirs, .n = conf->n_model_dirs},
    };
    if (w) {
        call_reply(call, &r);
    } else {
        err_set(&e, HEARTH_ENOMEM, "out of memory");
        call_fail(call, &e);
    }
    listing_free(l);
    free(w);
}

static void fill_loaded(struct wire_model *m, size_t i, const void *told)
{
    const struct engines_status *all = told;
    (void)i;
    for (size_t k = 0; k < all->n; k++)
        m->loaded |= is_loaded(all->of[k].told, m->path);
}

static void fill_head(struct wire_model *m, size_t i, const void *told)
{
    const struct wire_engine_heads_result *r = told;
    if (i >= r->n_heads) /* beyond what one request to the engine can ask for */
        return;
    const struct wire_model *from = &r->heads[i];
    m->loaded |= from->loaded;
    m->read = from->read;
    m->arch = from->arch;
    m->type = from->type;
    m->kind = from->kind;
    m->parameters = from->parameters;
    m->refusal = from->refusal;
}

/* `result` is NULL where the engine failed; the rows have no details then. */
static void on_list_heads(void *arg, const void *result, const struct hearth_err *err)
{
    (void)err;
    reply_list(arg, fill_head, result);
}

static int ask_heads(struct call *call, struct listing *l, struct hearth_err *e)
{
    struct wire_engine_heads ask = {.n_files = l->n < WIRE_HEADS_MAX ? l->n : WIRE_HEADS_MAX};
    ask.files = l->files = calloc(ask.n_files + 1, sizeof *ask.files);
    if (!ask.files)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    for (size_t i = 0; i < ask.n_files; i++)
        ask.files[i] =
            (struct wire_engine_file){.path = l->v[i].path, .bytes = l->v[i].bytes, .modified = l->v[i].modified};
    return engine_call(engines_near(call->server->engines, ""), &wire_methods[WIRE_ENGINE_HEADS], &ask, on_list_heads,
                       call, e);
}

static void list_failed(struct call *call, const struct hearth_err *e)
{
    struct listing *l = call->arg;
    call_fail(call, e);
    if (l)
        listing_free(l);
}

/* The engines have reported which models are loaded; headers are read after that. After a crash nobody waits for the
 * back-off: if the engine cannot start, each further request would wait longer. Nor does anybody wait for an engine
 * that has just been silent: it may be so until it is replaced. */
static void on_list_status(void *arg, const struct engines_status *all)
{
    struct call *call = arg;
    const struct wire_models_list *p = call->params;
    struct hearth_err e;
    const struct engine_client *ec = engines_near(call->server->engines, "");
    if (!p->details || engine_state(ec) == ENGINE_BACKOFF || engine_is_overdue(ec))
        reply_list(call, fill_loaded, all);
    else if (ask_heads(call, call->arg, &e))
        list_failed(call, &e);
}

void msg_models_list(struct call *call)
{
    static const struct engines_status none;
    struct hearth_err e;
    struct listing *l = calloc(1, sizeof *l);
    int rc = l ? model_names_scan(call->server->conf, &l->v, &l->n, &e) : err_set(&e, HEARTH_ENOMEM, "out of memory");
    call->arg = l;
    if (rc)
        list_failed(call, &e);
    else if (engines_ask_status(call->server->engines, on_list_status, call) != 0)
        on_list_status(call, &none);
}

/* --- one model ------------------------------------------------------------------------------------------ */

static void finish_show(struct call *call, void *result)
{
    struct wire_model *m = result;
    struct stat sb;
    m->path = model_fds_label(call->path);
    m->name = call->name != NULL ? call->name : call->model;
    if (stat(call->path, &sb) == 0 && S_ISREG(sb.st_mode)) { /* for a folder the engine's figures cover all its files */
        m->bytes = model_names_bytes(call->path, &sb);
        m->modified = (double)sb.st_mtim.tv_sec + (double)sb.st_mtim.tv_nsec * 1e-9; /* as models.list has it */
    }
}

static void finish_load(struct call *call, void *result)
{
    struct wire_model_load_result *r = result;
    r->model = call->model;
    r->path = model_fds_label(call->path);
    free(call->where);
    if ((call->where = engines_where(call->server->engines, call->engine, r->where)))
        r->where = call->where;
}

/* The path of the model that the client names, malloc'd; NULL if the call has failed because of it. */
static char *resolve(struct call *call, const char *model)
{
    struct hearth_err e;
    char *path;
    if (server_check_open(call->server, &e) == 0 && forward_resolve(call, model, &path, &e) == 0)
        return path;
    call_fail(call, &e);
    return NULL;
}

struct called {
    const struct conf *conf;
    const char *model;
};

/* Whether `status` shows the model under that name or path. A passed file never matches: it is private to its user. */
static bool is_called(const char *path, void *arg)
{
    const struct called *c = arg;
    char *name = model_fds_label(path) == path ? model_name_of(c->conf, path) : NULL;
    bool is = name && (strcmp(path, c->model) == 0 || strcmp(name, c->model) == 0);
    free(name);
    return is;
}

/* The same for a model that may be loaded or pinned although its file no longer exists. */
static char *resolve_loaded(struct call *call, const char *model)
{
    struct called called = {call->server->conf, model};
    struct hearth_err e;
    char *path = NULL;
    int rc = server_check_open(call->server, &e);
    if (!rc)
        rc = forward_resolve(call, model, &path, &e);
    const char *has = NULL;
    if (rc == HEARTH_ENOMODEL && !(has = engines_find(call->server->engines, is_called, &called)))
        has = pins_find(call->server, is_called, &called);
    if (has && !(path = strdup(has)))
        err_set(&e, HEARTH_ENOMEM, "out of memory");
    if (!path)
        call_fail(call, &e);
    return path;
}

/* Forwards the request to the engine, with the resolved path. `path` NULL: the call has failed already. */
static void ask(struct call *call, const struct wire_method *m, char *path,
                void (*finish)(struct call *call, void *result))
{
    const struct wire_model_ref *ref = call->params;
    if (path)
        forward(call, m, &(struct wire_engine_path){.path = path, .client = call_client(call)}, ref->model, path,
                finish);
}

void msg_models_show(struct call *call)
{
    const struct wire_model_show *show = call->params;
    char *path = resolve(call, show->model);
    if (!path)
        return; /* the call has been answered */
    struct wire_engine_model p = {.path = path, .ops = show->ops, .client = call_client(call)};
    forward(call, &wire_methods[WIRE_ENGINE_MODEL], &p, show->model, path, finish_show);
}

void msg_models_load(struct call *call)
{
    const struct wire_model_ref *ref = call->params;
    ask(call, &wire_methods[WIRE_ENGINE_LOAD], resolve(call, ref->model), finish_load);
}

/* Whether an engine runs; without one no model is loaded. */
static bool runs(const struct server *s)
{
    return !engines_absent(s->engines);
}

static void finish_unload(struct call *call, void *result)
{
    (void)result;
    pins_set(call->server, call->path, false, NULL);
}

void msg_models_unload(struct call *call)
{
    static const struct wire_empty nothing;
    const struct wire_model_ref *ref = call->params;
    char *path = resolve_loaded(call, ref->model);
    if (!path)
        return;                                    /* the call has been answered */
    if (!engines_has(call->server->engines, path)) /* else the next engine would load the pinned model again */
        pins_set(call->server, path, false, NULL);
    if (!runs(call->server)) { /* no model is loaded, and no engine is started for this */
        call_reply(call, &nothing);
        free(path);
        return;
    }
    ask(call, &wire_methods[WIRE_ENGINE_UNLOAD], path, finish_unload);
}

static void finish_pin(struct call *call, void *result)
{
    struct hearth_err e;
    finish_load(call, result);
    if (pins_set(call->server, call->path, true, &e))
        log_warn("%s is pinned in this engine alone: %s", call->path, e.msg);
}

/* Another call may have pinned the model since this one began. The engine has done both in the order of its answers. */
static void finish_unpin(struct call *call, void *result)
{
    finish_load(call, result);
    pins_set(call->server, call->path, false, NULL);
}

void msg_models_pin(struct call *call)
{
    const struct wire_model_pin *p = call->params;
    char *path = p->pinned ? resolve(call, p->model) : resolve_loaded(call, p->model);
    if (!path)
        return; /* the call has been answered */
    if (!p->pinned)
        pins_set(call->server, path, false, NULL);
    if (!p->pinned && !runs(call->server)) { /* no engine is started for this */
        call_reply(call, &(struct wire_model_load_result){.model = p->model, .path = model_fds_label(path)});
        free(path);
        return;
    }
    struct wire_engine_pin ask = {.path = path, .client = call_client(call), .pinned = p->pinned};
    forward(call, &wire_methods[WIRE_ENGINE_PIN], &ask, p->model, path, p->pinned ? finish_pin : finish_unpin);
}

/* --- loading -------------------------------------------------------------------------------------------- */

struct progress {
    const struct wire_model_progress *body;
    uint64_t mark; /* identifies this event: a connection with this mark has been sent it */
};

/* Sends the event to a connection once, with the client's own name for the model. */
static void tell(struct conn *c, const char *model, const struct progress *p)
{
    if (!c || c->progress_mark == p->mark)
        return;
    c->progress_mark = p->mark;
    struct wire_model_progress named = *p->body;
    named.model = model;
    conn_event(c, &wire_methods[WIRE_MODEL_PROGRESS], &named);
}

static void tell_subscriber(const struct subscriber *sub, const char *model, void *arg)
{
    tell(subscription_conn(sub), model, arg);
}

/* Sends the progress once to every connection that waits for that model. */
void msg_on_model_progress(struct server *s, const void *body)
{
    static uint64_t mark;
    struct progress p = {.body = body, .mark = ++mark};
    const struct call *call;
    stream_each_loading(s, p.body->model, tell_subscriber, &p);
    TAILQ_FOREACH (call, &s->forwards, forward_entry)
        if (strcmp(call->path, p.body->model) == 0)
            tell(call->conn, call->model, &p);
}
