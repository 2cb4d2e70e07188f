/* msg-generate.c - generate and cancel. Loop thread. */
#include "daemon/dispatch.h"
#include "daemon/stream.h"

static int check(const struct call *call, struct hearth_err *e)
{
    struct server *s = call->server;
    const struct wire_generate *g = call->params;
    int rc = server_check_open(s, e);
    if (rc != 0)
        return rc;
    if (g->request != NULL && stream_find(s, call->account->uid, -1, g->request) != NULL)
        return err_set(e, HEARTH_ECONFLICT, "request \"%.80s\" is running already", g->request);
    if (call->account->streams >= s->conf->streams_per_uid)
        return err_set(e, HEARTH_ELIMIT, "user %u has %lld streams running, the limit", (unsigned)call->account->uid,
                       (long long)call->account->streams);
    if (s->n_streams >= s->conf->streams)
        return err_set(e, HEARTH_ELIMIT, "%lld streams are running, the limit", (long long)s->n_streams);
    return 0;
}

void msg_generate(struct call *call)
{
    struct hearth_err e;
    struct session *ss;
    int rc = check(call, &e);
    if (rc == 0)
        rc = session_open(call->server, call->account->uid, call->params, &ss, &e);
    if (rc == 0)
        rc = stream_start(call, ss, &e);
    if (rc != 0)
        call_fail(call, &e);
}

void msg_cancel(struct call *call)
{
    const struct wire_cancel *c = call->params;
    struct stream *st = stream_find(call->server, call->account->uid, c->stream, c->request);
    struct wire_cancel_result r = {.cancelled = st != NULL};
    if (st != NULL)
        stream_cancel(st);
    call_reply(call, &r);
}
