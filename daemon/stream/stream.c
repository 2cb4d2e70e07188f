/* stream.c - generations under way: asked of the engine, delivered to the peer, written to the session. Loop thread. */
#include "config.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "daemon/stream/quarantine.h"
#include "daemon/stream/commit.h"
#include "daemon/supervisor/engine-client.h"
#include "daemon/log.h"
#include "daemon/store/store.h"
#include "daemon/stream/stream-internal.h"
#include "daemon/stream/takeover.h"
#include "daemon/retention/retention.h"

enum { CRASHES_MAX = 16 }; /* that one stream lives through in all, progress or not */

static void on_result(void *arg, const void *result, const struct hearth_err *err);
static void isolate_next(struct server *s);

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* --- life ----------------------------------------------------------------------------------------------- */

struct stream *stream_new(struct server *s, uid_t uid, struct hearth_err *e)
{
    struct stream *st = calloc(1, sizeof *st);
    struct account *account = acl_get(&s->acl, uid);
    if (!st || !account) {
        acl_put(account);
        free(st);
        err_set(e, HEARTH_ENOMEM, "out of memory");
        return NULL;
    }
    *st = (struct stream){.server = s, .account = account, .started_ms = now_ms()};
    TAILQ_INIT(&st->subscribers);
    return st;
}

void stream_free(struct stream *st)
{
    if (st->grace)
        event_free(st->grace);
    session_free(st->session);
    acl_put(st->account);
    wire_free(st->block);
    free(st->appended);
    output_fini(&st->output);
    free(st);
}

void stream_insert(struct stream *st)
{
    TAILQ_INSERT_TAIL(&st->server->streams, st, entry);
    st->server->n_streams++;
    st->account->streams++;
}

void stream_remove(struct stream *st)
{
    struct server *s = st->server;
    TAILQ_REMOVE(&s->streams, st, entry);
    s->n_streams--;
    st->account->streams--;
    if (st->uncommitted)
        commit_retry_add(st);
    else
        stream_free(st);
}

/* --- the journal ---------------------------------------------------------------------------------------- */

/* Goes on without: the stream is as good as before, as long as hearthd lives. */
static void lose_journal(struct stream *st, const struct hearth_err *e)
{
    log_error("%s", e->msg);
    struct wire_notice n = {.name = "NOT_JOURNALED", .message = e->msg, .stream = st->number};
    struct subscriber *r;
    TAILQ_FOREACH (r, &st->subscribers, entry)
        conn_event(r->call->conn, &wire_methods[WIRE_NOTICE], &n);
}

static void journal_record(struct stream *st, const struct wire_method *m, const void *body)
{
    struct hearth_err e;
    if (st->journal && st->journal->fd >= 0 && journal_add(st->server->journal, st->journal, m, body, &e) != 0)
        lose_journal(st, &e);
}

static int journal_begin_stream(struct stream *st, struct hearth_err *e)
{
    struct server *s = st->server;
    const struct store_session *row = &st->session->row;
    if (!s->journal)
        return 0; /* the log has said why */
    struct wire_journal_head h = {
        .stream = st->number,
        .uid = st->account->uid,
        .hash = st->hash,
        .session = row->id,
        .name = row->name,
        .model = row->model,
        .path = row->path,
        .is_new = st->session->is_new,
        .created = row->created,
        .history = (int64_t)st->session->n_ids,
        .turn_open = row->turn_open,
        .req = *st->request,
    };
    return journal_begin(s->journal, &h, &st->journal, e);
}

/* The last record, the turn, and the journal's fate. Only then may anybody hear of the end; tokens do not wait
 * for the database. */
static void persist_end(struct stream *st)
{
    struct server *s = st->server;
    struct journal_entry *je = st->journal;
    struct wire_journal_end end = {.time = server_now(), .error = st->error[0] ? st->error : NULL, .result = st->end};
    struct hearth_err e;
    conn_send_all(s);
    st->journal = NULL;
    if (je && je->fd >= 0 && journal_end(s->journal, je, &end, &e) != 0)
        log_error("%s", e.msg);
    stream_commit(st);
    if (je && !je->ended)
        journal_remove(s->journal, je); /* it would be taken for unfinished */
}

/* --- the end -------------------------------------------------------------------------------------------- */

void stream_set_error(struct stream *st, const struct hearth_err *e)
{
    st->end.finish_reason = "error";
    snprintf(st->error, sizeof st->error, "%s: %s", err_name(e->code), e->msg);
}

/* `end` is filled: writes the turn, then delivers. Nothing is acknowledged before it is written. */
static void end(struct stream *st)
{
    bool crash_suspect = st->crash_suspect;
    struct server *s = st->server;
    st->submitted = false;
    st->ended = true;
    persist_end(st);
    subscribers_flush(st);
    if (crash_suspect)
        isolate_next(s);
    takeover_resume(s);
}

/* An end that the engine did not give: what is known here stands for its figures. */
void stream_end_here(struct stream *st, const struct hearth_err *e)
{
    int64_t prompt = (int64_t)(st->session->n_ids + st->n_appended);
    st->end = (struct wire_engine_result){.finish_reason = "cancelled", .turn_open = st->session->row.turn_open};
    if (st->began && st->request->n_messages > 0)
        st->end.turn_open = true;
    st->end.usage.prompt_tokens = st->end.usage.computed_tokens = prompt;
    st->end.usage.completion_tokens = (int64_t)st->output.n_ids;
    st->end.timings.total_ms = now_ms() - st->started_ms;
    if (e)
        stream_set_error(st, e);
    if (!e || st->output.n_ids > 0) {
        end(st);
        return;
    }
    /* Nothing was made: the request failed, that is its answer, and the same id may try again. */
    struct server *s = st->server;
    bool crash_suspect = st->crash_suspect;
    if (st->journal)
        journal_remove(s->journal, st->journal);
    subscribers_fail(st, e);
    if (crash_suspect)
        isolate_next(s);
    takeover_resume(s);
}

const char *stream_reason(const char *finish_reason)
{
    static const char *const reasons[] = {"stop", "length", "context_full", "cancelled", "error"};
    size_t i = 0;
    while (i < 4 && strcmp(reasons[i], finish_reason) != 0)
        i++;
    return reasons[i];
}

static void end_by_engine(struct stream *st, const struct wire_engine_result *r)
{
    st->end = *r;
    st->end.finish_reason = stream_reason(r->finish_reason);
    struct wire_engine_tokens tail = {.stream = st->number, .index = (int64_t)st->output.n_ids, .text = r->tail};
    struct hearth_err e;
    if (r->tail.len > 0 && output_append(&st->output, &tail.tokens, &r->tail, NULL, 0, &e) != 0)
        stream_set_error(st, &e);
    else if (r->tail.len > 0)
        journal_record(st, &wire_methods[WIRE_ENGINE_TOKENS], &tail);
    st->end.tail = (struct wire_bytes){0};
    if (r->usage.completion_tokens != (int64_t)st->output.n_ids && st->error[0] == '\0') { /* one with a hole is none */
        err_set(&e, HEARTH_EENGINE, "the engine made %lld tokens, and %zu have come",
                (long long)r->usage.completion_tokens, st->output.n_ids);
        stream_set_error(st, &e);
    }
    if (strcmp(st->end.finish_reason, "error") == 0 && st->error[0] == '\0') {
        err_set(&e, HEARTH_EENGINE, "the engine gave up on it");
        stream_set_error(st, &e);
    }
    if (st->resubmitted) { /* the engine saw only the last part of it */
        struct wire_usage *u = &st->end.usage;
        u->prompt_tokens = (int64_t)(st->session->n_ids + st->n_appended);
        u->completion_tokens = (int64_t)st->output.n_ids;
        if (u->computed_tokens < 1)
            u->computed_tokens = 1;
        if (u->computed_tokens > u->prompt_tokens)
            u->computed_tokens = u->prompt_tokens;
        u->reused_tokens = u->prompt_tokens - u->computed_tokens;
        if (u->restored_tokens > u->reused_tokens) /* tokens of its own came back, too */
            u->restored_tokens = u->reused_tokens;
        st->end.timings.total_ms = now_ms() - st->started_ms;
    }
    end(st);
}

/* --- the engine ----------------------------------------------------------------------------------------- */

static void copy_ids(int32_t *to, const int32_t *from, size_t n)
{
    if (n > 0)
        memcpy(to, from, n * sizeof *to);
}

/* Asks for the rest: after a crash the history is all there is so far, and `resumed` says how much of it is ours. */
int stream_submit(struct stream *st, struct hearth_err *e)
{
    struct wire_engine_generate g = {
        .stream = st->number,
        .uid = st->account->uid,
        .path = st->session->row.path,
        .history = {.v = st->session->ids, .n = st->session->n_ids},
        .turn_open = st->session->row.turn_open,
        .label = st->session->row.name != NULL ? st->session->row.id : NULL,
        .req = *st->request,
    };
    int32_t *all = NULL;
    g.req.session = g.req.request = NULL;
    if (st->began) {
        size_t n = st->session->n_ids, total = n + st->n_appended + st->output.n_ids;
        all = malloc((total + 1) * sizeof *all);
        if (!all)
            return err_set(e, HEARTH_ENOMEM, "out of memory");
        copy_ids(all, st->session->ids, n);
        copy_ids(all + n, st->appended, st->n_appended);
        copy_ids(all + n + st->n_appended, st->output.ids, st->output.n_ids);
        g.history = (struct wire_ids){.v = all, .n = total};
        g.resumed = (int64_t)st->output.n_ids;
        g.turn_open = g.turn_open || g.req.n_messages > 0;
        g.req.messages = NULL;
        g.req.n_messages = 0;
        g.req.text = (struct wire_bytes){0};
        g.req.tokens = (struct wire_ids){0};
    }
    int rc = engine_call(st->server->engine_client, &wire_methods[WIRE_ENGINE_GENERATE], &g, on_result, st, e);
    free(all);
    st->submitted = rc == 0;
    return rc;
}

/*
 * Any of the streams that ran when an engine died may be the reason, and a request that kills engines must not take the
 * others with it. So they are taken up one by one: the next when the one before has made a token or has ended.
 */
static void isolate_next(struct server *s)
{
    struct stream *st, *next = NULL;
    if (!s->engine_client)
        return;
    TAILQ_FOREACH (st, &s->streams, entry) {
        if (st->crash_suspect && st->submitted)
            return;
        if (st->crash_suspect && !st->ended && !next)
            next = st;
    }
    struct hearth_err e;
    if (next && stream_submit(next, &e) != 0)
        stream_end_here(next, &e);
}

static void on_engine_death(struct stream *st, const struct hearth_err *err)
{
    /* An engine that does not even start will not do so for a new request; what was under way may wait for better. */
    if (!engine_was_ready(st->server->engine_client) && !st->crash_suspect && !st->resubmitted) {
        stream_end_here(st, err);
        return;
    }
    st->crash_suspect = st->resubmitted = true;
    st->crashes++;
    st->retries++;
    if (st->retries > st->server->conf->stream_retries || st->crashes > CRASHES_MAX ||
        st->server->phase != SERVER_RUNNING) {
        if (st->server->phase == SERVER_RUNNING && st->retries == st->crashes)
            quarantine_add(st->server, st->account->uid, st->session->row.path, err->msg);
        stream_end_here(st, err);
        return;
    }
    log_warn("stream %lld: taken up again at token %zu", (long long)st->number, st->output.n_ids);
    struct wire_notice n = {.name = "RECOVERING", .message = err->msg, .stream = st->number};
    struct subscriber *r;
    TAILQ_FOREACH (r, &st->subscribers, entry)
        conn_event(r->call->conn, &wire_methods[WIRE_NOTICE], &n);
    isolate_next(st->server);
}

static void on_result(void *arg, const void *result, const struct hearth_err *err)
{
    struct stream *st = arg;
    st->submitted = false;
    if (!err)
        end_by_engine(st, result);
    else if (st->cancelled)
        stream_end_here(st, NULL);
    else if (err->code == HEARTH_EENGINE)
        on_engine_death(st, err);
    else
        stream_end_here(st, err);
}

static struct stream *by_number(struct server *s, int64_t number)
{
    struct stream *st;
    TAILQ_FOREACH (st, &s->streams, entry)
        if (st->number == number)
            return st;
    return NULL;
}

int stream_set_appended(struct stream *st, const struct wire_ids *ids)
{
    st->appended = calloc(ids->n + 1, sizeof *st->appended);
    if (!st->appended)
        return HEARTH_ENOMEM;
    copy_ids(st->appended, ids->v, ids->n);
    st->n_appended = ids->n;
    st->began = true;
    return 0;
}

void stream_on_begin(struct server *s, const void *body)
{
    const struct wire_engine_begin *b = body;
    struct stream *st = by_number(s, b->stream);
    if (!st || st->began || st->ended)
        return; /* over already; or taken up again, and begun before */
    if (stream_set_appended(st, &b->appended) != 0) {
        stream_cancel(st);
        return;
    }
    journal_record(st, &wire_methods[WIRE_ENGINE_BEGIN], b);
    subscribers_flush(st);
}

void stream_on_tokens(struct server *s, const void *body)
{
    const struct wire_engine_tokens *t = body;
    struct stream *st = by_number(s, t->stream);
    if (!st || st->ended)
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
    journal_record(st, &wire_methods[WIRE_ENGINE_TOKENS], t);
    bool crash_suspect = st->crash_suspect;
    if (t->tokens.n > 0) {
        st->retries = 0;
        st->crash_suspect = false;
        quarantine_clear(st->server, st->account->uid, st->session->row.path);
    }
    subscribers_flush(st);
    if (crash_suspect)
        isolate_next(s);
}

void stream_on_progress(struct server *s, const struct wire_model_progress *body, uint64_t mark)
{
    struct stream *st;
    TAILQ_FOREACH (st, &s->streams, entry) {
        if (st->began || strcmp(st->session->row.path, body->model) != 0)
            continue;
        struct wire_model_progress p = {.model = st->session->row.model, .done = body->done, .total = body->total};
        struct subscriber *r;
        TAILQ_FOREACH (r, &st->subscribers, entry) {
            if (r->call->conn->progress_mark == mark)
                continue;
            r->call->conn->progress_mark = mark;
            conn_event(r->call->conn, &wire_methods[WIRE_MODEL_PROGRESS], &p);
        }
    }
}

/* --- from outside --------------------------------------------------------------------------------------- */

int stream_start(struct call *call, struct session *ss, const uint64_t *hash, struct hearth_err *e)
{
    struct server *s = call->server;
    struct wire_generate *g = call->params;
    struct stream *st = stream_new(s, call->account->uid, e);
    if (!st) {
        session_free(ss);
        return HEARTH_ENOMEM;
    }
    st->session = ss;
    st->number = s->last_stream + 1;
    st->hash = *hash;
    st->request = st->block = g;
    call->params = NULL;
    int rc = quarantine_check(s, st->account->uid, ss->row.path, e);
    if (!rc && !g->sampling.has_seed) {
        /* Drawn here, so that a stream which is taken up again goes on with the same numbers; 53 bits, which every
         * client's number type can hold. */
        if (getrandom(&g->sampling.seed, sizeof g->sampling.seed, 0) != sizeof g->sampling.seed)
            rc = err_set(e, HEARTH_EINTERNAL, "no random numbers");
        g->sampling.seed >>= 11;
        g->sampling.has_seed = true;
    }
    if (!rc)
        rc = stream_submit(st, e);
    if (rc) {
        stream_free(st);
        return rc;
    }
    engine_client_flush(
        s->engine_client); /* the engine begins while the journal is: no event of it is looked at before */
    struct hearth_err lost = {0};
    journal_begin_stream(st, &lost);
    s->last_stream = st->number;
    stream_insert(st);
    subscribers_add(st, call, g->stream, 0);
    if (lost.code != 0)
        lose_journal(st, &lost);
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
    if (!st->submitted)
        stream_end_here(st, NULL);
    else
        engine_call(st->server->engine_client, &wire_methods[WIRE_ENGINE_CANCEL], &c, on_cancelled, NULL, NULL);
}

void stream_cancel_all(struct server *s)
{
    struct stream *st = TAILQ_FIRST(&s->streams);
    while (st) {
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
        if (!st->ended)
            stream_end_here(st, NULL);
        else /* it waits for a peer that does not read */
            call_disconnect(TAILQ_FIRST(&st->subscribers)->call);
    }
}

bool stream_is(const struct stream *st, uid_t uid, int64_t number, const char *request)
{
    const char *its = st->request->request;
    return st->account->uid == uid &&
           (request != NULL ? its != NULL && strcmp(its, request) == 0 : st->number == number);
}

static struct stream *find(struct server *s, uid_t uid, int64_t number, const char *id, bool ended)
{
    struct stream *st;
    TAILQ_FOREACH (st, &s->streams, entry)
        if ((!st->ended || ended) && stream_is(st, uid, number, id))
            return st;
    return NULL;
}

struct stream *stream_find(struct server *s, uid_t uid, int64_t number, const char *id)
{
    return find(s, uid, number, id, false);
}

int stream_get(struct server *s, uid_t uid, int64_t number, const char *id, const uint64_t *hash, struct stream **out,
               struct hearth_err *e)
{
    struct stream *st = find(s, uid, number, id, true), *uncommitted = NULL;
    struct journal_entry *je = NULL;
    if (!st)
        st = uncommitted = commit_retry_find(s, uid, number, id);
    if (!st && s->journal)
        je = journal_find(s->journal, uid, number, id);
    if (!st && (!je || !je->ended)) {
        if (id)
            return err_set(e, HEARTH_ENOSTREAM, "there is no stream of the request \"%.80s\"", id);
        return err_set(e, HEARTH_ENOSTREAM, "there is no stream %lld", (long long)number);
    }
    if (hash && *hash != (st != NULL ? st->hash : je->hash))
        return err_set(e, HEARTH_ECONFLICT, "request \"%.80s\" was made before, and with other content", id);
    if (!st)
        return recover_finished(s, je, out, e);
    if (uncommitted)
        commit_retry_take(uncommitted);
    *out = st;
    return 0;
}

void stream_attach(struct stream *st, struct call *call, bool events, int64_t from)
{
    subscribers_add(st, call, events, from);
}

const struct session *stream_session(const struct stream *st)
{
    return st->session;
}

bool stream_is_running(const struct stream *st)
{
    return !st->ended;
}

bool stream_is_detached(const struct stream *st)
{
    return st->grace != NULL && TAILQ_EMPTY(&st->subscribers);
}

int64_t stream_number(const struct stream *st)
{
    return st->number;
}

struct stream *stream_next(const struct stream *st)
{
    return TAILQ_NEXT(st, entry);
}
