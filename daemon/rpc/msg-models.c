/* msg-models.c - models.list by name and stat; models.show, load and unload through the engine. Loop thread. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/rpc/dispatch.h"
#include "daemon/rpc/forward.h"
#include "daemon/rpc/subscription.h"
#include "daemon/supervisor/engine-client.h"
#include "daemon/supervisor/model-names.h"
#include "daemon/stream/stream.h"

/* --- list ----------------------------------------------------------------------------------------------- */

static bool is_loaded(const struct wire_engine_status *es, const char *path)
{
    for (size_t i = 0; es != NULL && i < es->n_models; i++)
        if (es->models[i].path && !es->models[i].vocab_only && strcmp(es->models[i].path, path) == 0)
            return true;
    return false;
}

/* `result` is the engine's status, or NULL where no engine runs and so no model is loaded, or none that
 * answers. */
static void list(void *arg, const void *result, const struct hearth_err *err)
{
    struct call *call = arg;
    struct model_entry *v = NULL;
    struct wire_model *w = NULL;
    size_t n = 0;
    struct hearth_err e;
    (void)err;
    int rc = model_names_scan(call->server->conf, &v, &n, &e);
    if (!rc && (w = calloc(n + 1, sizeof *w)) == NULL)
        rc = err_set(&e, HEARTH_ENOMEM, "out of memory");
    if (!rc) {
        for (size_t i = 0; i < n; i++)
            w[i] = (struct wire_model){.name = v[i].name,
                                       .path = v[i].path,
                                       .bytes = v[i].bytes,
                                       .modified = v[i].modified,
                                       .loaded = is_loaded(result, v[i].path)};
        const struct conf *conf = call->server->conf;
        struct wire_models_list_result r = {
            .models = w,
            .n_models = n,
            .default_model = conf->model ? conf->model : "tale",
            .folders = {.v = (const char **)conf->model_dirs, .n = conf->n_model_dirs},
        };
        call_reply(call, &r);
    } else {
        call_fail(call, &e);
    }
    model_names_free(v, n);
    free(w);
}

void msg_models_list(struct call *call)
{
    if (engine_ask_status(call->server->engine_client, list, call) != 0)
        list(call, NULL, NULL);
}

/* --- one model ------------------------------------------------------------------------------------------ */

static void finish_show(struct call *call, void *result)
{
    struct wire_model *m = result;
    struct stat sb;
    m->path = call->path;
    m->name = call->name != NULL ? call->name : call->model;
    if (stat(call->path, &sb) == 0 && S_ISREG(sb.st_mode)) { /* what the engine says of a folder is all of it */
        m->bytes = sb.st_size;
        m->modified = (double)sb.st_mtim.tv_sec;
    }
}

static void finish_load(struct call *call, void *result)
{
    struct wire_model_load_result *r = result;
    r->model = call->model;
    r->path = call->path;
}

/* The path of the model that the client names, malloc'd; NULL where the call has failed over it. */
static char *resolve(struct call *call, const char *model)
{
    struct hearth_err e;
    char *path;
    if (server_check_open(call->server, &e) == 0 && forward_resolve(call, model, &path, &e) == 0)
        return path;
    call_fail(call, &e);
    return NULL;
}

static void ask(struct call *call, const struct wire_method *m, void (*finish)(struct call *call, void *result))
{
    const struct wire_model_ref *ref = call->params;
    char *path = resolve(call, ref->model);
    if (path)
        forward(call, m, &(struct wire_engine_path){.path = path, .client = call_client(call)}, ref->model, path,
                finish);
}

void msg_models_show(struct call *call)
{
    const struct wire_model_show *show = call->params;
    char *path = resolve(call, show->model);
    if (!path)
        return; /* the call is gone */
    struct wire_engine_model p = {.path = path, .ops = show->ops, .client = call_client(call)};
    forward(call, &wire_methods[WIRE_ENGINE_MODEL], &p, show->model, path, finish_show);
}

void msg_models_load(struct call *call)
{
    ask(call, &wire_methods[WIRE_ENGINE_LOAD], finish_load);
}

void msg_models_unload(struct call *call)
{
    static const struct wire_empty nothing;
    if (engine_pid(call->server->engine_client) == 0)
        call_reply(call, &nothing); /* without an engine no model is loaded, and none is started for this */
    else
        ask(call, &wire_methods[WIRE_ENGINE_UNLOAD], NULL);
}

/* --- loading -------------------------------------------------------------------------------------------- */

struct progress {
    const struct wire_model_progress *body;
    uint64_t mark; /* of this event: a connection that bears it has been told */
};

/* Under the client's name for the model. */
static void tell(struct conn *c, const char *model, const struct progress *p)
{
    if (!c || c->progress_mark == p->mark)
        return;
    c->progress_mark = p->mark;
    struct wire_model_progress named = {.model = model, .done = p->body->done, .total = p->body->total};
    conn_event(c, &wire_methods[WIRE_MODEL_PROGRESS], &named);
}

static void tell_subscriber(const struct subscriber *sub, const char *model, void *arg)
{
    tell(subscription_conn(sub), model, arg);
}

/* Every connection that waits for that model is told once. */
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
