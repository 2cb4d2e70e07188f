/* stream.c - generations under way: asked of the engine, delivered to the peer, written to the session. Loop thread. */
#include "config.h"

#include "daemon/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "daemon/link.h"
#include "daemon/log.h"
#include "daemon/output.h"

enum { CRASHES_MAX = 16 }; /* that one stream lives through in all, progress or not */

struct stream {
    struct server *server;
    struct call *call; /* the request, its peer, its uid; answering it is the stream's end */
    struct session *session;
    int64_t number;
    bool asked;      /* an engine has it */
    bool cancelled;  /* its end is wanted */
    bool began;      /* `appended` is known */
    bool announced;  /* stream.begin was sent */
    bool ended;      /* `end` is known and the session written; what is left is delivery */
    bool suspect;    /* ran when an engine died; taken up again alone until it has shown that it is not the reason */
    int64_t retries; /* engine deaths since the last token */
    int crashes;     /* engine deaths in all */
    double started_ms;
    int32_t *appended; /* the ids of the request's input */
    size_t n_appended;
    struct output output;
    struct wire_engine_result end;
    char error[HEARTH_ERR_MSG + 32]; /* "NAME: message" where the end is an error */
    TAILQ_ENTRY(stream) entry;
};

static void on_result(void *arg, const void *result, const struct hearth_err *err);
static void probe(struct server *s);

static const struct wire_generate *request(const struct stream *st)
{
    return st->call->params;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* --- life ----------------------------------------------------------------------------------------------- */

static void stream_free(struct stream *st)
{
    session_free(st->session);
    free(st->appended);
    output_fini(&st->output);
    free(st);
}

/* Out of the lists; the call has been answered. */
static void stream_remove(struct stream *st, struct account *account)
{
    struct server *s = st->server;
    TAILQ_REMOVE(&s->streams, st, entry);
    s->n_streams--;
    account->streams--;
    acl_put(account);
    stream_free(st);
    server_step(s);
}

/* --- delivery ------------------------------------------------------------------------------------------- */

static void send_begin(struct stream *st)
{
    struct wire_stream_begin b = {.stream = st->number, .request = request(st)->request};
    if (st->session->row.name != NULL)
        b.session = st->session->row.id;
    st->announced = true;
    conn_event(st->call->conn, &wire_methods[WIRE_STREAM_BEGIN], &b);
}

static void send_result(struct stream *st)
{
    struct output *o = &st->output;
    struct wire_generate_result r = {
        .session = st->session->row.name != NULL ? st->session->row.id : NULL,
        .request = request(st)->request,
        .stream = st->number,
        .text = {.data = o->text != NULL ? o->text : "", .len = o->n_text},
        .tokens = {.v = o->ids, .n = o->n_ids},
        .finish_reason = st->end.finish_reason,
        .usage = st->end.usage,
        .timings = st->end.timings,
        .seed = request(st)->sampling.seed,
        .logprobs = o->logprobs,
        .n_logprobs = o->n_logprobs,
        .error = st->error[0] != '\0' ? st->error : NULL,
    };
    call_reply(st->call, &r);
}

/* Sends what the peer has room for; the answer when all is sent, and that is the end of the stream. */
static void deliver(struct stream *st)
{
    struct wire_stream_tokens f;
    while (st->call->conn != NULL && request(st)->stream && st->began) {
        if (st->call->conn->parked)
            return;
        f.stream = st->number;
        if (!st->announced)
            send_begin(st);
        else if (output_next(&st->output, &f))
            conn_event(st->call->conn, &wire_methods[WIRE_STREAM_TOKENS], &f);
        else
            break;
    }
    if (!st->ended)
        return;
    struct account *account = acl_get(&st->server->acl, st->call->account->uid);
    send_result(st);
    stream_remove(st, account);
    acl_put(account);
}

static bool has_undelivered(const struct stream *st)
{
    return st->ended || (st->began && !st->announced) || st->output.n_marks > 0;
}

void stream_unpark(struct conn *c)
{
    struct stream *st = TAILQ_FIRST(&c->server->streams);
    while (st != NULL && !c->parked) {
        if (st->call->conn == c && request(st)->stream && has_undelivered(st)) {
            deliver(st);
            st = TAILQ_FIRST(&c->server->streams); /* that may have been the end of it */
        } else {
            st = TAILQ_NEXT(st, entry);
        }
    }
}

/* --- the end -------------------------------------------------------------------------------------------- */

static void set_error(struct stream *st, const struct hearth_err *e)
{
    st->end.finish_reason = "error";
    snprintf(st->error, sizeof(st->error), "%s: %s", err_name(e->code), e->msg);
}

/* The turn is kept where it has tokens, or where having none was the model's own answer. */
static bool is_kept(const struct stream *st)
{
    if (!st->began)
        return false;
    if (st->output.n_ids > 0)
        return true;
    const char *why = st->end.finish_reason;
    return strcmp(why, "error") != 0 && strcmp(why, "cancelled") != 0;
}

/* `end` is filled: writes the turn, then delivers. Nothing is acknowledged before it is written. */
static void end(struct stream *st)
{
    st->asked = false;
    st->ended = true;
    struct wire_ids appended = {.v = st->appended, .n = st->n_appended};
    struct wire_ids made = {.v = st->output.ids, .n = st->output.n_ids};
    struct wire_bytes text = {.data = st->output.text, .len = st->output.n_text};
    struct hearth_err e;
    if (is_kept(st) &&
        session_commit(st->server, st->session, request(st), &appended, &made, &text, st->end.turn_open, &e) != 0) {
        log_error("session %s: %s", st->session->row.id, e.msg);
        set_error(st, &e);
    }
    bool suspect = st->suspect;
    struct server *s = st->server;
    deliver(st);
    if (suspect)
        probe(s);
}

/* An end that the engine did not give: what is known here stands for its figures. */
static void end_here(struct stream *st, const struct hearth_err *e)
{
    int64_t prompt = (int64_t)(st->session->n_ids + st->n_appended);
    st->end = (struct wire_engine_result){.finish_reason = "cancelled", .turn_open = st->session->row.turn_open};
    if (st->began && request(st)->n_messages > 0)
        st->end.turn_open = true;
    st->end.usage.prompt_tokens = st->end.usage.computed_tokens = prompt;
    st->end.usage.completion_tokens = (int64_t)st->output.n_ids;
    st->end.timings.total_ms = now_ms() - st->started_ms;
    if (e != NULL)
        set_error(st, e);
    if (e == NULL || st->output.n_ids > 0) {
        end(st);
        return;
    }
    /* Nothing was made: the request failed, and that is its answer. */
    struct account *account = acl_get(&st->server->acl, st->call->account->uid);
    struct server *s = st->server;
    bool suspect = st->suspect;
    call_fail(st->call, e);
    stream_remove(st, account);
    acl_put(account);
    if (suspect)
        probe(s);
}

static void end_by_engine(struct stream *st, const struct wire_engine_result *r)
{
    static const char *const reasons[] = {"stop", "length", "context_full", "cancelled", "error"};
    size_t i = 0;
    while (i < 4 && strcmp(reasons[i], r->finish_reason) != 0)
        i++;
    st->end = *r;
    st->end.finish_reason = reasons[i];
    struct wire_ids none = {0};
    struct hearth_err e;
    if (r->tail.len > 0 && output_append(&st->output, &none, &r->tail, NULL, 0, &e) != 0)
        set_error(st, &e);
    st->end.tail = (struct wire_bytes){0};
    if (strcmp(st->end.finish_reason, "error") == 0 && st->error[0] == '\0') {
        err_set(&e, HEARTH_EENGINE, "the engine gave up on it");
        set_error(st, &e);
    }
    if (st->crashes > 0) { /* the engine saw only the last part of it */
        struct wire_usage *u = &st->end.usage;
        u->prompt_tokens = (int64_t)(st->session->n_ids + st->n_appended);
        u->completion_tokens = (int64_t)st->output.n_ids;
        if (u->computed_tokens > u->prompt_tokens)
            u->computed_tokens = u->prompt_tokens;
        u->reused_tokens = u->prompt_tokens - u->computed_tokens;
        st->end.timings.total_ms = now_ms() - st->started_ms;
    }
    end(st);
}

/* --- the engine ----------------------------------------------------------------------------------------- */

static void put(int32_t *to, const int32_t *from, size_t n)
{
    if (n > 0)
        memcpy(to, from, n * sizeof(*to));
}

/* Asks for the rest: after a crash the history is all there is so far, and `resumed` says how much of it is ours. */
static int submit(struct stream *st, struct hearth_err *e)
{
    struct wire_engine_generate g = {
        .stream = st->number,
        .uid = st->call->account->uid,
        .path = st->session->row.path,
        .history = {.v = st->session->ids, .n = st->session->n_ids},
        .turn_open = st->session->row.turn_open,
        .req = *request(st),
    };
    int32_t *all = NULL;
    g.req.session = g.req.request = NULL;
    if (st->began) {
        size_t n = st->session->n_ids, total = n + st->n_appended + st->output.n_ids;
        all = malloc((total + 1) * sizeof(*all));
        if (all == NULL)
            return err_set(e, HEARTH_ENOMEM, "out of memory");
        put(all, st->session->ids, n);
        put(all + n, st->appended, st->n_appended);
        put(all + n + st->n_appended, st->output.ids, st->output.n_ids);
        g.history = (struct wire_ids){.v = all, .n = total};
        g.resumed = (int64_t)st->output.n_ids;
        g.turn_open = g.turn_open || g.req.n_messages > 0;
        g.req.messages = NULL;
        g.req.n_messages = 0;
        g.req.text = (struct wire_bytes){0};
        g.req.tokens = (struct wire_ids){0};
    }
    int rc = link_ask(st->server->link, &wire_methods[WIRE_ENGINE_GENERATE], &g, on_result, st, e);
    free(all);
    st->asked = rc == 0;
    return rc;
}

/*
 * Any of the streams that ran when an engine died may be the reason, and a request that kills engines must not take the
 * others with it. So they are taken up one by one: the next when the one before has made a token or has ended.
 */
static void probe(struct server *s)
{
    struct stream *st, *next = NULL;
    if (s->link == NULL)
        return;
    TAILQ_FOREACH (st, &s->streams, entry) {
        if (st->suspect && st->asked)
            return;
        if (st->suspect && !st->ended && next == NULL)
            next = st;
    }
    struct hearth_err e;
    if (next != NULL && submit(next, &e) != 0)
        end_here(next, &e);
}

static void on_engine_death(struct stream *st, const struct hearth_err *err)
{
    /* An engine that does not even start will not do so for a new request; what was under way may wait for better. */
    if (!link_was_ready(st->server->link) && !st->suspect) {
        end_here(st, err);
        return;
    }
    st->suspect = true;
    st->retries++;
    st->crashes++;
    if (st->retries > st->server->conf->stream_retries || st->crashes > CRASHES_MAX ||
        st->server->phase != SERVER_RUNNING) {
        end_here(st, err);
        return;
    }
    log_warn("stream %lld: taken up again at token %zu", (long long)st->number, st->output.n_ids);
    if (st->call->conn != NULL) {
        struct wire_notice n = {.name = "RECOVERING", .message = err->msg, .stream = st->number};
        conn_event(st->call->conn, &wire_methods[WIRE_NOTICE], &n);
    }
    probe(st->server);
}

static void on_result(void *arg, const void *result, const struct hearth_err *err)
{
    struct stream *st = arg;
    st->asked = false;
    if (err == NULL)
        end_by_engine(st, result);
    else if (st->cancelled)
        end_here(st, NULL);
    else if (err->code == HEARTH_EENGINE || err->code == HEARTH_EDEVICE)
        on_engine_death(st, err);
    else
        end_here(st, err);
}

static struct stream *by_number(struct server *s, int64_t number)
{
    struct stream *st;
    TAILQ_FOREACH (st, &s->streams, entry)
        if (st->number == number)
            return st;
    return NULL;
}

void stream_on_begin(struct server *s, const void *body)
{
    const struct wire_engine_begin *b = body;
    struct stream *st = by_number(s, b->stream);
    if (st == NULL || st->began || st->ended)
        return; /* over already; or taken up again, and begun before */
    if (b->appended.n > 0) {
        st->appended = malloc(b->appended.n * sizeof(*st->appended));
        if (st->appended == NULL) {
            stream_cancel(st);
            return;
        }
        memcpy(st->appended, b->appended.v, b->appended.n * sizeof(*st->appended));
        st->n_appended = b->appended.n;
    }
    st->began = true;
    deliver(st);
}

void stream_on_tokens(struct server *s, const void *body)
{
    const struct wire_engine_tokens *t = body;
    struct stream *st = by_number(s, t->stream);
    if (st == NULL || st->ended)
        return;
    struct hearth_err e;
    if (!st->began || (size_t)t->index != st->output.n_ids) {
        log_error("stream %lld: the engine sent token %lld, want %zu", (long long)st->number, (long long)t->index,
                  st->output.n_ids);
        stream_cancel(st);
        return;
    }
    if (output_append(&st->output, &t->tokens, &t->text, t->logprobs, t->n_logprobs, &e) != 0) {
        stream_cancel(st);
        return;
    }
    bool suspect = st->suspect;
    if (t->tokens.n > 0) {
        st->retries = 0;
        st->suspect = false;
    }
    deliver(st);
    if (suspect)
        probe(s);
}

void stream_on_progress(struct server *s, const struct wire_model_progress *body, uint64_t mark)
{
    struct stream *st;
    TAILQ_FOREACH (st, &s->streams, entry) {
        struct conn *c = st->call->conn;
        if (c == NULL || st->began || c->progress_mark == mark || strcmp(st->session->row.path, body->model) != 0)
            continue;
        c->progress_mark = mark;
        struct wire_model_progress p = {.model = st->session->row.model, .done = body->done, .total = body->total};
        conn_event(c, &wire_methods[WIRE_MODEL_PROGRESS], &p);
    }
}

/* --- from outside --------------------------------------------------------------------------------------- */

static void on_gone(struct call *call)
{
    struct stream *st = call->arg;
    if (!st->ended)
        stream_cancel(st);
}

int stream_start(struct call *call, struct session *ss, struct hearth_err *e)
{
    struct server *s = call->server;
    struct wire_generate *g = call->params;
    struct stream *st = calloc(1, sizeof(*st));
    if (st == NULL) {
        session_free(ss);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    *st = (struct stream){.server = s, .call = call, .session = ss, .number = s->last_stream + 1};
    st->started_ms = now_ms();
    int rc = 0;
    if (!g->sampling.has_seed) {
        /* Drawn here, so that a stream which is taken up again goes on with the same numbers; 53 bits, which every
         * client's number type can hold. */
        if (getrandom(&g->sampling.seed, sizeof(g->sampling.seed), 0) != sizeof(g->sampling.seed))
            rc = err_set(e, HEARTH_EINTERNAL, "no random numbers");
        g->sampling.seed >>= 11;
        g->sampling.has_seed = true;
    }
    if (rc == 0)
        rc = submit(st, e);
    if (rc != 0) {
        stream_free(st);
        return rc;
    }
    s->last_stream = st->number;
    TAILQ_INSERT_TAIL(&s->streams, st, entry);
    s->n_streams++;
    acl_get(&s->acl, call->account->uid)->streams++;
    call->arg = st;
    call->on_gone = on_gone;
    return 0;
}

static void on_cancelled(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg, (void)result, (void)err; /* the answer to engine.generate is what counts */
}

void stream_cancel(struct stream *st)
{
    if (st->ended || st->cancelled)
        return;
    st->cancelled = true;
    struct wire_engine_cancel c = {.stream = st->number};
    if (!st->asked)
        end_here(st, NULL);
    else
        link_ask(st->server->link, &wire_methods[WIRE_ENGINE_CANCEL], &c, on_cancelled, NULL, NULL);
}

void stream_cancel_all(struct server *s)
{
    struct stream *st = TAILQ_FIRST(&s->streams);
    while (st != NULL) {
        bool todo = !st->ended && !st->cancelled;
        if (todo)
            stream_cancel(st);
        st = todo ? TAILQ_FIRST(&s->streams) : TAILQ_NEXT(st, entry); /* cancelling may have ended several */
    }
}

void stream_end_all(struct server *s)
{
    struct stream *st;
    while ((st = TAILQ_FIRST(&s->streams)) != NULL) {
        if (!st->ended) {
            end_here(st, NULL);
        } else { /* it waits for a peer that does not read */
            call_orphan(st->call);
            deliver(st);
        }
    }
}

struct stream *stream_find(struct server *s, uid_t uid, int64_t number, const char *id)
{
    struct stream *st;
    TAILQ_FOREACH (st, &s->streams, entry) {
        if (st->ended || st->call->account->uid != uid)
            continue;
        const char *its = request(st)->request;
        if (id != NULL ? its != NULL && strcmp(its, id) == 0 : st->number == number)
            return st;
    }
    return NULL;
}

const struct session *stream_session(const struct stream *st)
{
    return st->session;
}

bool stream_is_running(const struct stream *st)
{
    return !st->ended;
}

struct stream *stream_next(const struct stream *st)
{
    return TAILQ_NEXT(st, entry);
}
