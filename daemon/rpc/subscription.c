/* subscription.c - streams from the view of requests: events go to the connection, the end is the answer. Loop
 * thread. */
#include "daemon/rpc/subscription.h"

#include <stddef.h>

#include "daemon/stream/stream.h"

static struct call *call_of(const struct subscriber *sub)
{
    return (struct call *)((char *)sub - offsetof(struct call, sub));
}

struct conn *subscription_conn(const struct subscriber *sub)
{
    return (struct conn *)sub->peer; /* valid, because a subscriber that loses its connection is detached */
}

bool subscription_has_room(const struct subscriber *sub)
{
    return !subscription_conn(sub)->throttled;
}

void subscription_event(const struct subscriber *sub, const struct wire_method *m, const void *body)
{
    conn_event(subscription_conn(sub), m, body);
}

static void end(struct subscriber *sub, const struct wire_generate_result *result, const struct hearth_err *e)
{
    if (e)
        call_fail(call_of(sub), e);
    else
        call_reply(call_of(sub), result);
}

/* The stream continues without this call, which is freed without an answer. */
static void on_disconnect(struct call *call)
{
    stream_detach(&call->sub);
    call_reply(call, NULL);
}

struct subscriber *subscription(struct call *call, bool events, int64_t from)
{
    static const struct subscriber_ops ops = {
        .has_room = subscription_has_room, .event = subscription_event, .end = end};
    call->sub = (struct subscriber){.ops = &ops, .peer = call->conn, .events = events, .from = (size_t)from};
    call->on_disconnect = on_disconnect;
    return &call->sub;
}
