/* group.c - see group.h. Loop thread. */
#include "daemon/rpc/group.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/rpc/queue.h"
#include "daemon/rpc/subscription.h"
#include "daemon/stream/sessions.h"
#include "daemon/stream/stream.h"

struct group;

struct member {
    struct subscriber sub;
    struct group *group;
    bool attached;                       /* attached to a stream that has not ended */
    struct wire_generate_result *result; /* wire_free; NULL: it has failed, or has not ended yet */
    struct hearth_err err;
};

struct group {
    struct call *call;
    size_t n, left; /* left: members that have not ended, plus one while they are being attached */
    struct member v[WIRE_CHOICES_MAX];
};

/* --- the answer --------------------------------------------------------------------------------------------------- */

/* Deep-copies a message by packing and unpacking it: a request's parameters, or (`result`) an answer. */
static void *clone(const struct wire_method *m, const void *msg, bool result, struct hearth_err *e)
{
    struct wire_buf b = {0};
    struct wire_frame f;
    void *out = NULL;
    int rc = result ? wire_pack_result(&b, 1, m, msg, e) : wire_pack_request(&b, 1, m, msg, e);
    if (!rc)
        rc = wire_frame_open(&f, b.data, b.len, e);
    if (!rc && wire_unpack(result ? m->result : m->params, f.body, f.body_len, &out, e) != 0)
        out = NULL;
    wire_buf_fini(&b);
    return out;
}

static struct wire_choice choice_of(const struct member *m, size_t i, char line[static WIRE_LINE_MAX])
{
    const struct wire_generate_result *r = m->result;
    if (!r) {
        wire_error_line(line, m->err.code, m->err.msg);
        return (struct wire_choice){.index = (int64_t)i, .text = {"", 0}, .finish_reason = "error", .error = line};
    }
    return (struct wire_choice){
        .index = (int64_t)i,
        .stream = r->stream,
        .text = r->text,
        .reasoning = r->reasoning,
        .tokens = r->tokens,
        .finish_reason = r->finish_reason,
        .seed = r->seed,
        .logprobs = r->logprobs,
        .n_logprobs = r->n_logprobs,
        .error = r->error,
    };
}

static void group_free(struct group *g)
{
    for (size_t i = 0; i < g->n; i++)
        wire_free(g->v[i].result);
    free(g);
}

/* Answers the call. The fields of the result are those of the first successful choice, except that completion tokens
 * are summed over all. */
static void reply(struct group *g, const struct member *first)
{
    struct wire_choice choices[WIRE_CHOICES_MAX];
    char line[WIRE_CHOICES_MAX][WIRE_LINE_MAX];
    struct wire_generate_result all = *first->result;
    all.choices = choices;
    all.n_choices = g->n;
    all.usage.completion_tokens = all.usage.reasoning_tokens = 0;
    for (size_t i = 0; i < g->n; i++) {
        choices[i] = choice_of(&g->v[i], i, line[i]);
        if (g->v[i].result) {
            all.usage.completion_tokens += g->v[i].result->usage.completion_tokens;
            all.usage.reasoning_tokens += g->v[i].result->usage.reasoning_tokens;
        }
    }
    call_reply(g->call, &all);
}

static void end_one(struct group *g)
{
    const struct member *first = NULL, *refused = NULL;
    if (--g->left > 0)
        return;
    for (size_t i = 0; i < g->n; i++) {
        if (g->v[i].result && !first)
            first = &g->v[i];
        /* A `from` over the tokens of a choice is an error of the request: that choice has not failed. */
        if (!g->v[i].result && g->v[i].sub.from > 0 && g->v[i].err.code == HEARTH_EPARAMS)
            refused = &g->v[i];
    }
    g->call->on_disconnect = NULL;
    if (first && !refused)
        reply(g, first);
    else
        call_fail(g->call, refused ? &refused->err : &g->v[0].err);
    group_free(g);
}

/* --- subscribers -------------------------------------------------------------------------------------------------- */

static void on_end(struct subscriber *sub, const struct wire_generate_result *result, const struct hearth_err *e)
{
    struct member *m = (struct member *)((char *)sub - offsetof(struct member, sub));
    m->attached = false;
    if (result)
        m->result = clone(&wire_methods[WIRE_GENERATE], result, true, &m->err);
    else
        m->err = *e;
    end_one(m->group);
}

/* The streams continue without this call. */
static void on_disconnect(struct call *call)
{
    struct group *g = call->arg;
    for (size_t i = 0; i < g->n; i++)
        if (g->v[i].attached)
            stream_detach(&g->v[i].sub);
    group_free(g);
    call_reply(call, NULL);
}

static struct group *group_new(struct call *call, size_t n, bool events, int64_t from, struct hearth_err *e)
{
    static const struct subscriber_ops ops = {
        .has_room = subscription_has_room, .event = subscription_event, .end = on_end};
    struct group *g = calloc(1, sizeof *g);
    if (!g) {
        err_set(e, HEARTH_ENOMEM, "out of memory");
        return NULL;
    }
    *g = (struct group){.call = call, .n = n, .left = n + 1};
    for (size_t i = 0; i < n; i++) {
        g->v[i].group = g;
        g->v[i].sub = (struct subscriber){.ops = &ops, .peer = call->conn, .events = events, .from = (size_t)from};
    }
    call->arg = g;
    call->on_disconnect = on_disconnect;
    return g;
}

static void attach(struct group *g, size_t i, struct stream *st)
{
    g->v[i].attached = true;
    stream_attach(st, &g->v[i].sub); /* it may end before this returns */
}

static void fail(struct group *g, size_t i, const struct hearth_err *e)
{
    g->v[i].attached = false;
    g->v[i].err = *e;
    end_one(g);
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

static struct stream_name name_of(const char *request, size_t i)
{
    return (struct stream_name){.number = -1, .request = request, .choice = (int64_t)i};
}

int64_t group_missing(const struct call *call)
{
    const struct wire_generate *req = call->params;
    int64_t n = req->n;
    bool replayed;
    for (int64_t i = 0; i < req->n && req->request; i++) {
        struct stream_name name = name_of(req->request, (size_t)i);
        n -= stream_is_known(call->server, call->account->uid, &name, &replayed);
    }
    return n;
}

int group_check_replay(const struct call *call, const char *request, struct hearth_err *e)
{
    bool replayed, any = false;
    int rc = stream_check_replay(call->server, call->account->uid, e);
    for (size_t i = 0; i < WIRE_CHOICES_MAX && rc; i++) {
        struct stream_name name = name_of(request, i);
        if (!stream_is_known(call->server, call->account->uid, &name, &replayed))
            continue;
        if (!replayed)
            return 0; /* it is running, and would be cancelled for the others if nobody read it meanwhile */
        any = true;
    }
    return any ? rc : 0;
}

static int begin(struct group *g, size_t i, uint64_t hash, uint64_t seed, struct hearth_err *e)
{
    struct call *call = g->call;
    struct server *s = call->server;
    struct wire_generate *req = clone(&wire_methods[WIRE_GENERATE], call->params, false, e);
    struct stream *st;
    if (!req)
        return e->code;
    req->sampling.has_seed = true;
    req->sampling.seed = seed + i;
    struct stream_spec spec = {
        .uid = call->account->uid,
        .call = call->id,
        .waited_ms = 1e3 * (server_boot() - call->arrived),
        .client = call_client(call),
        .request = req,
        .hash = hash,
        .choice = (int64_t)i,
        .subscriber = &g->v[i].sub,
    };
    int rc = session_open(s, spec.uid, req, &spec.session, e);
    if (!rc) {
        g->v[i].attached = true;
        rc = stream_start(s, &spec, &st, e);
    }
    if (rc) {
        wire_free(req);
        return rc;
    }
    queue_join(s, spec.uid, req->request);
    if (call->cancel_requested)
        stream_cancel(st);
    return 0;
}

/* Attaches to the choices that an earlier request with this id has started, running or ended. Sets known[i] for each,
 * and *seed to the first choice's seed if any is known. */
static int attach_known(struct group *g, uint64_t hash, bool known[], uint64_t *seed, bool *has_seed,
                        struct hearth_err *e)
{
    const struct wire_generate *req = g->call->params;
    for (size_t i = 0; i < g->n && req->request; i++) {
        struct stream_name name = name_of(req->request, i);
        struct stream *st;
        size_t choice, n;
        int rc = stream_get(g->call->server, g->call->account->uid, &name, &hash, &st, e);
        if (rc == HEARTH_ENOSTREAM)
            continue;
        if (rc)
            return rc;
        *has_seed = stream_choices(st, &choice, &n, seed) || *has_seed;
        known[i] = true;
        attach(g, i, st);
    }
    return 0;
}

int group_generate(struct call *call, uint64_t hash, struct hearth_err *e)
{
    const struct wire_generate *req = call->params;
    struct wire_sampling first = req->sampling;
    struct hearth_err why;
    bool known[WIRE_CHOICES_MAX] = {false};
    struct group *g = group_new(call, (size_t)req->n, req->stream, 0, e);
    if (!g)
        return e->code;
    int rc = attach_known(g, hash, known, &first.seed, &first.has_seed, &why);
    if (!rc)
        rc = stream_draw_seed(&first, &why);
    for (size_t i = 0; i < g->n; i++)
        if (!known[i] && (rc || (rc = begin(g, i, hash, first.seed, &why)) != 0))
            fail(g, i, &why);
    end_one(g);
    return 0;
}

int group_attach(struct call *call, struct stream *first, const char *request, int64_t from, struct hearth_err *e)
{
    size_t at = 0, n = 1;
    uint64_t seed;
    struct hearth_err why;
    stream_choices(first, &at, &n, &seed);
    struct group *g = group_new(call, n, true, from, e);
    if (!g)
        return e->code;
    attach(g, at, first); /* before the others are looked up: if it has ended, it was read from its journal for this */
    for (size_t i = 0; i < n; i++) {
        struct stream_name name = name_of(request, i);
        struct stream *st;
        if (i == at)
            continue;
        if (stream_get(call->server, call->account->uid, &name, NULL, &st, &why) == 0)
            attach(g, i, st);
        else
            fail(g, i, &why);
    }
    end_one(g);
    return 0;
}
