/* call.c - see call.h. Loop thread. */
#include "daemon/rpc/call.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/loop.h"

struct call *call_new(struct conn *c, uint32_t id, const struct wire_method *m, void *params)
{
    struct call *call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    *call = (struct call){
        .server = c->server, .conn = c, .id = id, .arrived = server_boot(), .method = m, .params = params};
    call->account = acl_get(&c->server->acl, c->account->uid);
    TAILQ_INSERT_TAIL(&c->calls, call, entry);
    c->n_calls++;
    return call;
}

struct call *call_new_notified(struct conn *c, const char *request, const struct wire_method *m, void *params)
{
    char *copy = request ? strdup(request) : NULL;
    struct call *call = request && !copy ? NULL : call_new(c, 0, m, params);
    if (!call) {
        free(copy);
        return NULL;
    }
    call->is_notification = true;
    call->request = copy;
    return call;
}

void notification_fail(struct conn *c, const char *request, const struct hearth_err *e)
{
    char line[WIRE_LINE_MAX];
    struct wire_stream_error se = {.request = request, .error = {.is_request = err_is_request(e->code), .line = line}};
    struct wire_notice n = {.name = err_name(e->code), .message = e->msg, .stream = -1};
    wire_error_line(line, e->code, e->msg);
    if (request)
        conn_event(c, &wire_methods[WIRE_STREAM_ERROR], &se);
    else
        conn_event(c, &wire_methods[WIRE_NOTICE], &n);
}

static void leave_conn(struct call *call)
{
    if (!call->conn)
        return;
    TAILQ_REMOVE(&call->conn->calls, call, entry);
    call->conn->n_calls--;
    call->conn = NULL;
}

static void leave_forwards(struct call *call)
{
    if (call->path)
        TAILQ_REMOVE(&call->server->forwards, call, forward_entry);
    free(call->path);
    free(call->where);
    free(call->name);
    call->path = call->name = call->where = NULL;
}

static void call_free(struct call *call)
{
    leave_conn(call);
    leave_forwards(call);
    wire_free(call->params);
    free(call->request);
    acl_put(call->account);
    free(call);
}

void call_reply(struct call *call, const void *result)
{
    struct hearth_err e;
    if (call->conn && !call->is_notification)
        conn_result(call->conn, call->id, call->method, result);
    else if (call->conn && call->request && conn_try_event(call->conn, &wire_methods[WIRE_STREAM_END], result, &e))
        notification_fail(call->conn, call->request, &e); /* a result that is too large, as conn_result() does */
    call_free(call);
}

void call_reply_packed(struct call *call, const struct wire_bytes *result)
{
    if (call->conn)
        conn_result_packed(call->conn, call->id, result);
    call_free(call);
}

int64_t call_client(const struct call *call)
{
    return call->conn ? call->conn->number : 0;
}

int call_set_deadline(struct call *call, void (*late)(void *arg), struct hearth_err *e)
{
    const struct wire_generate *g = call->params;
    if (!g->deadline_ms)
        return 0;
    int64_t waited = (int64_t)(1e3 * (server_boot() - call->arrived));
    call->late = timer_new(call->server->base, late, call);
    if (call->late && !timer_set(call->late, waited < g->deadline_ms ? g->deadline_ms - waited : 0))
        return 0;
    call_clear_deadline(call);
    return err_set(e, HEARTH_ENOMEM, "no memory to wait");
}

void call_clear_deadline(struct call *call)
{
    timer_free(call->late);
    call->late = NULL;
}

void call_fail_late(struct call *call, const char *waited_for)
{
    const struct wire_generate *g = call->params;
    struct hearth_err e;
    err_set(&e, HEARTH_ECANCELLED, "there was no token within %lld ms (deadline_ms): it waited for %s",
            (long long)g->deadline_ms, waited_for);
    call_fail(call, &e);
}

void trace_request(enum trace_stage stage, const char *word, const struct conn *c, uint32_t id)
{
    trace(.stage = stage, .word = word, .n = {c->account->uid, c->pid, id});
}

void call_fail(struct call *call, const struct hearth_err *e)
{
    if (!err_is_request(e->code))
        log_often(LOG_LEVEL_ERROR, "%s: %s", call->method->name, e->msg);
    if (call->conn) {
        trace_request(TRACE_REFUSED, err_name(e->code), call->conn, call->id);
        if (call->is_notification)
            notification_fail(call->conn, call->request, e);
        else
            conn_error(call->conn, call->id, e->code, e->msg);
    }
    call_free(call);
}

void call_disconnect(struct call *call)
{
    leave_conn(call);
    if (call->on_disconnect)
        call->on_disconnect(call);
}

void call_retry(struct call *call)
{
    leave_forwards(call);
    call->run(call);
}
