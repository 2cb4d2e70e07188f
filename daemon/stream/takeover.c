/* takeover.c - see takeover.h. */
#include "daemon/stream/takeover.h"

#include <string.h>

#include "daemon/log.h"
#include "daemon/stream/session.h"
#include "daemon/stream/stream.h"

static struct stream *find_detached(struct server *s, uid_t uid, const char *ref)
{
    for (struct stream *st = TAILQ_FIRST(&s->streams); st != NULL; st = stream_next(st)) {
        const struct store_session *row = &stream_session(st)->row;
        if (stream_is_running(st) && stream_is_detached(st) && row->uid == uid && row->name &&
            strcmp(store_is_id(ref) ? row->id : row->name, ref) == 0)
            return st;
    }
    return NULL;
}

static void on_disconnect(struct call *call)
{
    TAILQ_REMOVE(&call->server->waiters, call, waiter_entry);
    call_reply(call, NULL); /* to nobody */
}

bool takeover_wait(struct call *call, const char *session, void (*resume)(struct call *call))
{
    struct stream *st = find_detached(call->server, call->account->uid, session);
    if (!st)
        return false;
    call->after_stream = stream_number(st);
    call->resume = resume;
    call->on_disconnect = on_disconnect;
    TAILQ_INSERT_TAIL(&call->server->waiters, call, waiter_entry);
    log_info("stream %lld: nobody reads it, and its session is wanted: cancelled", (long long)call->after_stream);
    stream_cancel(st);
    return true;
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
        if (!stream_find(s, call->account->uid, call->after_stream, NULL))
            return call;
    return NULL;
}

void takeover_resume(struct server *s)
{
    struct call *call;
    while ((call = next_waiter(s)) != NULL) {
        TAILQ_REMOVE(&s->waiters, call, waiter_entry);
        call->on_disconnect = NULL;
        bool cancel_requested = call->cancel_requested;
        uid_t uid = call->account->uid;
        int64_t last = s->last_stream;
        call->resume(call);
        struct stream *st =
            cancel_requested && s->last_stream != last ? stream_find(s, uid, s->last_stream, NULL) : NULL;
        if (st)
            stream_cancel(st);
    }
}
