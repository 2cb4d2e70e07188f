/* msg-generate.c - generate, stream.attach, cancel and streams.list. Loop thread. */
#include <stdlib.h>
#include <string.h>

#include "daemon/rpc/dispatch.h"
#include "daemon/rpc/group.h"
#include "daemon/rpc/queue.h"
#include "daemon/rpc/subscription.h"
#include "daemon/stream/journal.h"
#include "daemon/stream/sessions.h"
#include "daemon/stream/stream.h"
#include "daemon/rpc/takeover.h"

static int check(const struct call *call, struct hearth_err *e)
{
    struct server *s = call->server;
    int rc = server_check_open(s, e);
    if (rc)
        return rc;
    return queue_check(call, e);
}

/* Makes a call wait that cannot begin now: if there is no room, for a stream of its user that nobody reads, which is
 * cancelled for it; else in the queue, as where other calls keep it waiting. */
static int wait_for_room(struct call *call, struct hearth_err *e)
{
    int rc = server_check_open(call->server, e); /* else the queue would give it back at once, again and again */
    if (rc)
        return rc;
    bool is_next = !queue_has_room(call) && !queue_has(call->server, call->account->uid);
    return is_next && takeover_wait_for_room(call) ? 0 : queue_wait(call, e);
}

/* A waiting call of that user with that request id and other content, in one of the lists of those that wait. */
static bool differs(const struct call_list *waiting, const struct call *call)
{
    const struct wire_generate *g = call->params;
    const struct call *other;
    TAILQ_FOREACH (other, waiting, waiter_entry) {
        const struct wire_generate *its = other->params;
        if (other->method == call->method && other->account == call->account && other->hash != call->hash &&
            its->request && strcmp(its->request, g->request) == 0)
            return true;
    }
    return false;
}

/* A request that waits has its id already, or a later one of a higher class, or in a session that is free, would take
 * it away. */
static int check_waiting(const struct call *call, struct hearth_err *e)
{
    const struct wire_generate *g = call->params;
    const struct server *s = call->server;
    if (!g->request || (!differs(&s->queue, call) && !differs(&s->waiters, call)))
        return 0;
    return err_set(e, HEARTH_ECONFLICT, "request \"%.80s\" waits already, and with other content", g->request);
}

/* A request whose id was used before is attached to the stream of that earlier request, so a retry never generates
 * twice. */
static int retry(struct call *call, const uint64_t *hash, struct hearth_err *e)
{
    const struct wire_generate *g = call->params;
    struct stream *st;
    if (!g->request)
        return HEARTH_ENOSTREAM;
    struct stream_name name = {.number = -1, .request = g->request, .choice = -1};
    int rc = stream_get(call->server, call->account->uid, &name, hash, &st, e);
    if (!rc)
        stream_attach(st, subscription(call, g->stream, 0));
    return rc;
}

static int start(struct call *call, struct session *ss, uint64_t hash, struct hearth_err *e)
{
    struct wire_generate *g = call->params;
    struct stream_spec spec = {
        .uid = call->account->uid,
        .call = call->id,
        .waited_ms = 1e3 * (server_boot() - call->arrived),
        .client = call_client(call),
        .request = g,
        .hash = hash,
        .choice = -1,
        .session = ss,
        .subscriber = subscription(call, g->stream, 0),
    };
    struct stream *st;
    int rc = stream_start(call->server, &spec, &st, e);
    if (rc)
        return rc;
    call->params = NULL;
    queue_join(call->server, call->account->uid, g->request);
    if (call->cancel_requested) /* cancelled while it waited for the session */
        stream_cancel(st);
    return 0;
}

static void on_measured(void *arg, const void *result, const struct hearth_err *err)
{
    struct call *call = arg;
    call->account->measuring -= (int64_t)call->bytes;
    call->method = &wire_methods[WIRE_ENGINE_MEASURE]; /* selects its result type instead of generate's */
    if (err)
        call_fail(call, err);
    else
        call_reply(call, result);
}

/* A dry run of a few bytes sends the engine a whole session. What a user's dry runs send is bounded, or a thousand of
 * them would fill hearthd's memory, and the requests of others would wait behind them. */
static int check_measuring(struct call *call, const struct session *ss, struct hearth_err *e)
{
    enum { ID_BYTES = 5 }; /* the most that MessagePack takes for an id */
    const struct account *a = call->account;
    int64_t most = call->server->conf->memory_per_uid;
    call->bytes += (size_t)ss->row.bytes + ss->n_ids * ID_BYTES;
    if (a->measuring == 0 || a->measuring + (int64_t)call->bytes <= most)
        return 0;
    return err_set(e, HEARTH_ELIMIT,
                   "generate.dry: unanswered dry runs of user %u would have sent %lld bytes to the engine, and %lld is "
                   "the limit (memory_per_uid): ask again when some are answered",
                   (unsigned)a->uid, (long long)(a->measuring + (int64_t)call->bytes), (long long)most);
}

/* A dry run. It creates no stream that a request id could find again, and makes no session busy. */
static int measure(struct call *call, struct hearth_err *e)
{
    struct wire_generate *g = call->params;
    struct stream_spec spec = {.uid = call->account->uid, .client = call_client(call), .request = g};
    if (call->is_notification)
        return err_set(e, HEARTH_EPARAMS, "generate.dry: needs an answer, so it is no notification");
    int rc = server_check_open(call->server, e);
    if (!rc)
        rc = session_open(call->server, spec.uid, g, &spec.session, e);
    if (rc)
        return rc;
    if (!(rc = check_measuring(call, spec.session, e))) {
        call->account->measuring += (int64_t)call->bytes; /* the answer may come at once */
        if ((rc = stream_measure(call->server, &spec, on_measured, call, e)))
            call->account->measuring -= (int64_t)call->bytes;
    }
    session_free(spec.session);
    return rc;
}

/* Limit in bytes on what a request's choices write to their journals in total: each journal has a copy of the request,
 * and all are written at once while other clients wait. */
enum { CHOICES_BYTES_MAX = 32 << 20 };

/* Choices are attached to together or not at all, so whether one of them is being sent already is checked before. */
static int check_sent(const struct call *call, const char *request, struct hearth_err *e)
{
    struct stream_name name = {.number = -1, .request = request, .choice = -1};
    return request ? stream_check_sent(call->server, call->account->uid, &name, call->conn, e) : 0;
}

/* Several choices: attaches to those that an earlier request with the same id has started, and starts the others. */
static int several(struct call *call, uint64_t hash, struct hearth_err *e)
{
    const struct wire_generate *g = call->params;
    int rc = g->request ? stream_check_request(call->server, call->account->uid, g->request, hash, e) : 0;
    if (!rc && g->stream)
        rc = check_sent(call, g->request, e);
    if (rc)
        return rc;
    call->wants = group_missing(call);
    if (call->wants > 1 && call->bytes > (size_t)CHOICES_BYTES_MAX / (size_t)call->wants)
        return err_set(e, HEARTH_ELIMIT,
                       "generate.n: %lld choices each keep the request, of %zu bytes, and %d is the limit for all",
                       (long long)call->wants, call->bytes, CHOICES_BYTES_MAX);
    rc = call->wants > 0 ? check(call, e) : group_check_replay(call, g->request, e);
    if (rc == HEARTH_ELIMIT && queue_is_over(call))
        return rc;
    if (rc == HEARTH_ELIMIT)
        return wait_for_room(call, e);
    if (!rc && call->wants > 0 && g->session && takeover_wait(call, g->session))
        return 0;
    return rc ? rc : group_generate(call, hash, e);
}

void msg_generate(struct call *call)
{
    const struct wire_generate *g = call->params;
    struct hearth_err e;
    struct session *ss;
    uint64_t hash;
    if (g->dry) {
        if (measure(call, &e) != 0)
            call_fail(call, &e);
        return;
    }
    int rc = journal_hash(g, &hash, &e);
    call->hash = rc ? 0 : hash;
    if (!rc)
        rc = check_waiting(call, &e);
    if (!rc && g->n > 0) {
        if ((rc = several(call, hash, &e)) != 0)
            call_fail(call, &e);
        return;
    }
    if (!rc)
        rc = retry(call, &hash, &e);
    if (!rc)
        return;
    if (rc == HEARTH_ENOSTREAM)
        rc = check(call, &e);
    if (rc == HEARTH_ELIMIT && (rc = wait_for_room(call, &e)) == 0)
        return;
    if (!rc)
        rc = session_open(call->server, call->account->uid, g, &ss, &e);
    if (rc == HEARTH_ESESSIONBUSY && takeover_wait(call, g->session))
        return;
    if (!rc)
        rc = start(call, ss, hash, &e);
    if (rc)
        call_fail(call, &e);
}

void msg_stream_attach(struct call *call)
{
    const struct wire_attach *a = call->params;
    struct stream_name name = {.number = a->stream, .request = a->request, .choice = -1};
    struct stream *st;
    struct hearth_err e;
    size_t choice, n;
    uint64_t seed;
    int rc = check_sent(call, a->request, &e);
    if (!rc && a->request)
        rc = group_check_replay(call, a->request, &e);
    if (!rc)
        rc = stream_get(call->server, call->account->uid, &name, NULL, &st, &e);
    if (!rc && a->request && stream_choices(st, &choice, &n, &seed))
        rc = group_attach(call, st, a->request, a->from, &e);
    else if (!rc)
        stream_attach(st, subscription(call, true, a->from));
    if (rc)
        call_fail(call, &e);
}

void msg_cancel(struct call *call)
{
    const struct wire_cancel *c = call->params;
    struct stream_name name = {.number = c->stream, .request = c->request, .choice = -1};
    struct wire_cancel_result r = {.cancelled = stream_cancel_named(call->server, call->account->uid, &name)};
    if (c->request && takeover_cancel(call->server, call->account->uid, c->request))
        r.cancelled = true;
    if (c->request && queue_cancel(call->server, call->account->uid, c->request))
        r.cancelled = true;
    call_reply(call, &r);
}

void msg_streams_list(struct call *call)
{
    const struct wire_streams_list *p = call->params;
    struct wire_streams_list_result r = {0};
    struct hearth_err e;
    if (stream_list(call->server, call->account->uid, p->ended, &r.streams, &r.n_streams, &e) != 0) {
        call_fail(call, &e);
        return;
    }
    struct wire_stream_info *v = r.streams;
    call_reply(call, &r);
    free(v);
}
