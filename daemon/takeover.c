/* takeover.c - see takeover.h. */
#include "daemon/takeover.h"

#include <string.h>

#include "daemon/log.h"
#include "daemon/session.h"
#include "daemon/stream.h"

static struct stream *left_alone(struct server *s, uid_t uid, const char *ref)
{
    for (struct stream *st = TAILQ_FIRST(&s->streams); st != NULL; st = stream_next(st)) {
        const struct store_session *row = &stream_session(st)->row;
        if (stream_is_running(st) && stream_is_left(st) && row->uid == uid && row->name != NULL &&
            strcmp(store_is_id(ref) ? row->id : row->name, ref) == 0)
            return st;
    }
    return NULL;
}

static void on_gone(struct call *call)
{
    TAILQ_REMOVE(&call->server->heirs, call, heir_entry);
    call_reply(call, NULL); /* to nobody */
}

bool takeover_wait(struct call *call, const char *session, void (*again)(struct call *call))
{
    struct stream *st = left_alone(call->server, call->account->uid, session);
    if (st == NULL)
        return false;
    call->after = stream_number(st);
    call->again = again;
    call->on_gone = on_gone;
    TAILQ_INSERT_TAIL(&call->server->heirs, call, heir_entry);
    log_info("stream %lld: nobody reads it, and its session is wanted: cancelled", (long long)call->after);
    stream_cancel(st);
    return true;
}

bool takeover_cancel(struct server *s, uid_t uid, const char *request)
{
    struct call *call;
    TAILQ_FOREACH (call, &s->heirs, heir_entry) {
        const struct wire_generate *g = call->params;
        if (call->method == &wire_methods[WIRE_GENERATE] && call->account->uid == uid && g->request != NULL &&
            strcmp(g->request, request) == 0) {
            call->unwanted = true;
            return true;
        }
    }
    return false;
}

static struct call *next_heir(struct server *s)
{
    struct call *call;
    TAILQ_FOREACH (call, &s->heirs, heir_entry)
        if (stream_find(s, call->account->uid, call->after, NULL) == NULL)
            return call;
    return NULL;
}

void takeover_step(struct server *s)
{
    struct call *call;
    while ((call = next_heir(s)) != NULL) {
        TAILQ_REMOVE(&s->heirs, call, heir_entry);
        call->on_gone = NULL;
        bool unwanted = call->unwanted;
        uid_t uid = call->account->uid;
        int64_t last = s->last_stream;
        call->again(call);
        struct stream *st = unwanted && s->last_stream != last ? stream_find(s, uid, s->last_stream, NULL) : NULL;
        if (st != NULL)
            stream_cancel(st);
    }
}
