/* dispatch.c - the method table: one row for each request that clients may make. Loop thread. */
#include "daemon/rpc/dispatch.h"

#include "daemon/log.h"
#include "daemon/rpc/import.h"
#include "daemon/rpc/pins.h"
#include "daemon/stream/stream.h"
#include "daemon/rpc/queue.h"
#include "daemon/rpc/takeover.h"

static const struct handler {
    int method; /* index into wire_methods[] */
    enum acl_perm perm;
    void (*run)(struct call *call);
    bool notify; /* it may be sent as a notification */
} handlers[] = {
    {WIRE_HELLO, PERM_ANY, msg_hello},
    {WIRE_GENERATE, PERM_ANY, msg_generate, .notify = true},
    {WIRE_CANCEL, PERM_ANY, msg_cancel, .notify = true},
    {WIRE_STREAM_ATTACH, PERM_ANY, msg_stream_attach},
    {WIRE_STREAMS_LIST, PERM_ANY, msg_streams_list},
    {WIRE_STREAMS_TRACE, PERM_ANY, msg_streams_trace},
    {WIRE_SESSIONS_LIST, PERM_ANY, msg_sessions_list},
    {WIRE_SESSIONS_SHOW, PERM_ANY, msg_sessions_show},
    {WIRE_SESSIONS_RENAME, PERM_ANY, msg_sessions_rename},
    {WIRE_SESSIONS_REMOVE, PERM_ANY, msg_sessions_remove},
    {WIRE_SESSIONS_PIN, PERM_ANY, msg_sessions_pin},
    {WIRE_SESSIONS_EXPORT, PERM_ANY, msg_sessions_export},
    {WIRE_SESSIONS_IMPORT, PERM_ANY, msg_sessions_import},
    {WIRE_SESSIONS_FORK, PERM_ANY, msg_sessions_fork},
    {WIRE_SESSIONS_ADOPT, PERM_ANY, msg_sessions_adopt},
    {WIRE_BACKUP, PERM_ADMIN, msg_backup},
    {WIRE_MODELS_LIST, PERM_ANY, msg_models_list},
    {WIRE_MODELS_SHOW, PERM_ANY, msg_models_show},
    {WIRE_MODELS_LOAD, PERM_ANY, msg_models_load},
    {WIRE_MODELS_UNLOAD, PERM_ADMIN, msg_models_unload},
    {WIRE_MODELS_PIN, PERM_ADMIN, msg_models_pin},
    {WIRE_MODELS_PASS, PERM_ANY, msg_models_pass},
    {WIRE_STATUS, PERM_ANY, msg_status},
    {WIRE_TOKENIZE, PERM_ANY, msg_tokenize},
    {WIRE_DETOKENIZE, PERM_ANY, msg_detokenize},
    {WIRE_RENDER, PERM_ANY, msg_render},
    {WIRE_EVAL, PERM_ANY, msg_eval},
    {WIRE_YIELD, PERM_ADMIN, msg_yield},
    {WIRE_SHUTDOWN, PERM_ADMIN, msg_shutdown},
};

static const struct {
    int method;
    void (*run)(struct server *s, const void *body);
} engine_events[] = {
    {WIRE_ENGINE_BEGIN, stream_on_begin},       {WIRE_ENGINE_TOKENS, stream_on_tokens},
    {WIRE_ENGINE_PROGRESS, stream_on_progress}, {WIRE_MODEL_PROGRESS, msg_on_model_progress},
    {WIRE_ENGINE_KV_SAVED, msg_on_kv_saved},    {WIRE_ENGINE_KV_USED, msg_on_kv_used},
    {WIRE_ENGINE_KV_BAD, msg_on_kv_bad},        {WIRE_ENGINE_TRACE, stream_on_trace},
    {WIRE_ENGINE_PARKED, stream_on_parked},     {WIRE_ENGINE_RELIEVED, pins_on_relieved},
};

#define LEN(a) (sizeof a / sizeof((a)[0]))

/* --- frames --------------------------------------------------------------------------------------------- */

static const struct handler *handler_find(const struct wire_method *m)
{
    for (size_t i = 0; i < LEN(handlers); i++)
        if (m == &wire_methods[handlers[i].method])
            return &handlers[i];
    return NULL;
}

static bool is_live(const struct conn *c, uint32_t id)
{
    const struct call *call;
    TAILQ_FOREACH (call, &c->calls, entry)
        if (!call->is_notification && call->id == id)
            return true;
    return false;
}

/* Checks everything that must hold before the handler gets the request. */
static int check(struct conn *c, const struct wire_frame *f, const struct handler **h, void **params,
                 struct hearth_err *e)
{
    const struct wire_method *m = wire_method_get(f->method, f->method_len, e);
    if (!m)
        return e->code;
    *h = handler_find(m);
    if (*h == NULL)
        return err_set(e, HEARTH_EMETHOD, "method %s is not for clients", m->name);
    if (f->kind == WIRE_FRAME_REQUEST && is_live(c, f->id))
        return err_set(e, HEARTH_EINVALID, "message id %lu belongs to a request that is not answered yet",
                       (unsigned long)f->id);
    if (c->n_calls >= c->server->conf->requests_per_connection)
        return err_set(e, HEARTH_ELIMIT, "%lld requests of this connection are not answered yet, the limit",
                       (long long)c->n_calls);
    int rc = acl_check((*h)->perm, m->name, c->account->uid, e);
    if (!rc)
        rc = wire_unpack_params(m, f->body, f->body_len, params, e);
    return rc;
}

static void ignored(struct conn *c, const char *message)
{
    struct hearth_err e;
    err_set(&e, HEARTH_EINVALID, "%s", message);
    notification_fail(c, NULL, &e);
}

static void run(struct call *call, const struct handler *h)
{
    struct conn *c = call->conn;
    trace_request(TRACE_REQUEST, call->method->name, c, call->id);
    call->run = h->run;
    call->run(call);
    c->hello_done = true;
}

/* Refuses a notification, and names its request if that can be read, whatever else is wrong with it. */
static void refuse_notification(struct conn *c, const struct wire_frame *f, const struct handler *h,
                                const struct hearth_err *e)
{
    void *id = NULL;
    trace_request(TRACE_REFUSED, err_name(e->code), c, 0);
    if (h && h->method == WIRE_GENERATE)
        wire_unpack(&wire_request_id_type, f->body, f->body_len, &id, NULL);
    notification_fail(c, id ? ((struct wire_request_id *)id)->request : NULL, e);
    wire_free(id);
}

/* Handles a notification. A generate without a message id is answered by events that name its request, a cancel by a
 * notice if it is invalid. */
static void on_notification(struct conn *c, const struct wire_frame *f)
{
    struct hearth_err e;
    const char *request = NULL;
    void *params = NULL;
    const struct wire_method *m = wire_method_find(f->method, f->method_len);
    const struct handler *h = m ? handler_find(m) : NULL;
    if (!h || !h->notify) {
        ignored(c, "only generate and cancel may be notifications: this one was ignored");
        return;
    }
    int rc = check(c, f, &h, &params, &e);
    if (!rc && h->method == WIRE_GENERATE && !(request = ((struct wire_generate *)params)->request))
        rc = err_set(&e, HEARTH_EPARAMS, "generate.request: is missing: it is what answers a notification");
    struct call *call = rc ? NULL : call_new_notified(c, request, m, params);
    if (!rc && !call)
        rc = err_set(&e, HEARTH_ENOMEM, "out of memory");
    if (!rc) {
        call->bytes = f->body_len;
        run(call, h);
        return;
    }
    wire_free(params);
    refuse_notification(c, f, h, &e);
}

static void on_frame(struct conn *c, const struct wire_frame *f)
{
    takeover_resume(c->server);
    queue_resume(c->server);
    if (f->kind == WIRE_FRAME_EVENT) {
        on_notification(c, f);
        return;
    }
    if (f->kind == WIRE_FRAME_RESPONSE) {
        ignored(c, "nothing was asked: this response was ignored");
        return;
    }
    struct hearth_err e;
    const struct handler *h = NULL;
    void *params = NULL;
    int rc = check(c, f, &h, &params, &e);
    if (rc) {
        trace_request(TRACE_REFUSED, err_name(rc), c, f->id);
        conn_error(c, f->id, rc, e.msg);
        return;
    }
    struct call *call = call_new(c, f->id, &wire_methods[h->method], params);
    if (!call) {
        wire_free(params);
        conn_error(c, f->id, HEARTH_ENOMEM, "out of memory");
        return;
    }
    call->bytes = f->body_len;
    run(call, h);
}

static void on_lost(struct conn *c)
{
    struct call *call;
    while ((call = TAILQ_FIRST(&c->calls)) != NULL)
        call_disconnect(call);
    import_free(c->import);
    c->import = NULL;
    msg_pass_lost(c);
}

static void on_room(struct conn *c)
{
    stream_unthrottle(c->server, c);
}

const struct conn_ops dispatch_conn_ops = {.frame = on_frame, .has_room = on_room, .lost = on_lost};

void dispatch_engine_event(struct server *s, const struct wire_method *m, const void *body)
{
    for (size_t i = 0; i < LEN(engine_events); i++)
        if (m == &wire_methods[engine_events[i].method]) {
            engine_events[i].run(s, body);
            return;
        }
    log_warn("the engine sent an event that is not for hearthd: %s", m->name);
}
