/* takeover.c - see takeover.h. Loop thread. */
#include "daemon/rpc/takeover.h"

#include <string.h>

#include "daemon/stream/stream.h"

static void leave(struct call *call)
{
    TAILQ_REMOVE(&call->server->waiters, call, waiter_entry);
    call->on_disconnect = NULL;
    call_clear_deadline(call);
}

static void on_disconnect(struct call *call)
{
    leave(call);
    call_reply(call, NULL); /* the call has lost its connection: this only frees it */
}

static void on_late(void *arg)
{
    struct call *call = arg;
    leave(call);
    call_fail_late(call, "another generation to end");
}

static bool is_generate(const struct call *call)
{
    return call->method == &wire_methods[WIRE_GENERATE];
}

static bool wait_for(struct call *call, int64_t stream)
{
    struct hearth_err e;
    if (stream == 0 || (is_generate(call) && call_set_deadline(call, on_late, &e)))
        return false;
    call->after_stream = stream;
    call->on_disconnect = on_disconnect;
    TAILQ_INSERT_TAIL(&call->server->waiters, call, waiter_entry);
    return true;
}

bool takeover_wait(struct call *call, const char *session)
{
    return wait_for(call, stream_take_over(call->server, call->account->uid, session));
}

bool takeover_wait_for_room(struct call *call)
{
    return wait_for(call, stream_make_way(call->server, call->account->uid));
}

bool takeover_cancel(struct server *s, uid_t uid, const char *request)
{
    struct call *call;
    TAILQ_FOREACH (call, &s->waiters, waiter_entry) {
        const struct wire_generate *g = call->params;
        if (is_generate(call) && call->account->uid == uid && g->request && strcmp(g->request, request) == 0) {
            call->cancel_requested = true;
            return true;
        }
    }
    return false;
}

static struct call *next_waiter(struct server *s)
{
    struct call *call;
    TAILQ_FOREACH (call, &s->waiters, waiter_entry)
        if (!stream_find(s, call->account->uid, call->after_stream))
            return call;
    return NULL;
}

bool takeover_resume(struct server *s)
{
    struct call *call;
    bool any = false;
    while ((call = next_waiter(s)) != NULL) {
        leave(call);
        call_retry(call);
        any = true;
    }
    return any;
}
