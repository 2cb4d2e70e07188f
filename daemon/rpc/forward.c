/* forward.c - see forward.h. Loop thread. */
#include "daemon/rpc/forward.h"

#include <stdlib.h>

#include "daemon/supervisor/engines.h"
#include "daemon/supervisor/model-names.h"

int forward_resolve(const struct call *call, const char *model, char **path, struct hearth_err *e)
{
    const struct server *s = call->server;
    return model_names_resolve(s->conf, s->passed, call->account->uid, model, path, e);
}

/* A lost device is not the request's fault, so it is retried with a new engine; once only, as the device may be lost
 * for good. */
static bool may_retry(const struct call *call, const struct hearth_err *err)
{
    const struct server *s = call->server;
    return err->code == HEARTH_EENGINE && engine_lost_device(call->engine) && s->phase == SERVER_RUNNING &&
           !call->is_retry;
}

static void fail(struct call *call, const struct hearth_err *err)
{
    if (err->code == HEARTH_EELSEWHERE) {
        if (call->server->phase == SERVER_RUNNING) /* otherwise it is refused by the handler, and starts no engine */
            engines_move(call->server->engines, call->path, call->engine);
        call_retry(call);
    } else if (may_retry(call, err)) {
        call->is_retry = true;
        call_retry(call);
    } else {
        call_fail(call, err);
    }
}

static void on_done(void *arg, const void *result, const struct hearth_err *err)
{
    struct call *call = arg;
    if (err) {
        fail(call, err);
        return;
    }
    call->finish(call, (void *)result);
    call_reply(call, result);
}

static void on_packed(void *arg, const void *result, const struct hearth_err *err)
{
    if (err)
        fail(arg, err);
    else
        call_reply_packed(arg, result);
}

/* Nobody reads the answer any more, so the engine need not work on it; its answer still ends the call. */
static void on_disconnect(struct call *call)
{
    engine_forget(call->engine, call);
}

void forward(struct call *call, const struct wire_method *m, const void *params, const char *model, char *path,
             void (*finish)(struct call *call, void *result))
{
    struct hearth_err e;
    call->finish = finish;
    call->on_disconnect = on_disconnect;
    call->model = model;
    call->path = path;
    call->name = model_name_of(call->server->conf, path);
    TAILQ_INSERT_TAIL(&call->server->forwards, call, forward_entry);
    bool weights = m == &wire_methods[WIRE_ENGINE_LOAD] || m == &wire_methods[WIRE_ENGINE_PIN] ||
                   m == &wire_methods[WIRE_ENGINE_EVAL];
    struct engines *es = call->server->engines;
    struct engine_client *ec = call->engine = weights ? engines_for(es, path) : engines_near(es, path);
    if (finish ? engine_call(ec, m, params, on_done, call, &e) : engine_call_packed(ec, m, params, on_packed, call, &e))
        call_fail(call, &e);
}
