/* takeover.c - see takeover.h. Loop thread. */
#include "daemon/rpc/takeover.h"

#include <string.h>

#include "daemon/stream/stream.h"

static void on_disconnect(struct call *call)
{
    TAILQ_REMOVE(&call->server->waiters, call, waiter_entry);
    call_reply(call, NULL); /* the call has lost its connection: this only frees it */
}

static bool wait_for(struct call *call, int64_t stream)
{
    if (stream == 0)
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
        if (call->method == &wire_methods[WIRE_GENERATE] && call->account->uid == uid && g->request &&
            strcmp(g->request, request) == 0) {
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
        TAILQ_REMOVE(&s->waiters, call, waiter_entry);
        call->on_disconnect = NULL;
        call_retry(call);
        any = true;
    }
    return any;
}
