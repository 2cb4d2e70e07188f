/* end.c - how a stream ends: its last record, its turn, then its delivery. Loop thread. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/stream/stream-internal.h"
#include "daemon/trace.h"

void stream_set_error(struct stream *st, const struct hearth_err *e)
{
    st->end.finish_reason = "error";
    snprintf(st->error, sizeof st->error, "%s: %s", err_name(e->code), e->msg);
}

const char *stream_reason(const char *finish_reason)
{
    static const char *const reasons[] = {"stop", "length", "context_full", "cancelled", "error"};
    size_t i = 0;
    while (i < 4 && strcmp(reasons[i], finish_reason) != 0)
        i++;
    return reasons[i];
}

/* Writes the last record and the turn, and decides whether the journal is kept. Subscribers hear of the end only after
 * that. The output so far is sent before, so that it does not wait for the database. */
static void persist(struct stream *st)
{
    struct server *s = st->server;
    struct journal_entry *je = st->journal;
    struct wire_journal_end end = {.time = server_now(), .error = st->error[0] ? st->error : NULL, .result = st->end};
    struct hearth_err e;
    s->send_pending(s);
    st->journal = NULL;
    if (je && je->fd >= 0 && journal_end(s->journal, je, &end, &e) != 0)
        log_error("%s", e.msg);
    stream_commit(st);
    if (je && !je->ended)
        journal_remove(s->journal, je); /* otherwise the next start would take it for unfinished */
}

static void trace_end(struct stream *st)
{
    const struct wire_usage *u = &st->end.usage;
    served_add(&st->server->streams->served, &st->end);
    stream_trace(
        st, .stage = TRACE_ENDED, .word = st->end.finish_reason,
        .n = {u->prompt_tokens, u->reused_tokens, u->restored_tokens, u->computed_tokens, u->completion_tokens});
}

/* Appends the rest of the text, which was held back while it could have become part of a character, a stop string or a
 * marker. */
static void append_held(struct stream *st)
{
    struct wire_engine_tokens rest = {.stream = st->number,
                                      .index = (int64_t)st->output.n_ids,
                                      .text = output_held(&st->output),
                                      .reasoning = output_held_reasoning(&st->output)};
    struct hearth_err e;
    if (rest.text.len + rest.reasoning.len == 0)
        return;
    if (output_append(&st->output, &rest, &e) != 0)
        stream_set_error(st, &e);
    else
        stream_record(st, &wire_methods[WIRE_ENGINE_TOKENS], &rest);
}

/* Ends a stream whose st->end is set. Nothing is acknowledged before it is written. */
static void end(struct stream *st)
{
    append_held(st);
    trace_end(st);
    stream_move(st, STREAM_DRAINING);
    persist(st);
    subscribers_flush(st);
}

/* Timings by hearthd's clock, for a stream of which no engine has seen both its first token and its end. How long it
 * waited in an engine is then part of prefill_ms. */
static struct wire_timings own_timings(const struct stream *st)
{
    struct wire_timings t = {.queue_ms = st->started_ms - st->asked_ms};
    if (st->first_ms > 0) {
        t.prefill_ms = st->first_ms - st->started_ms;
        t.decode_ms = st->last_ms - st->first_ms;
    }
    if (t.decode_ms > 0)
        t.tokens_per_second = 1e3 * (double)(st->output.n_ids - 1) / t.decode_ms;
    t.total_ms = stream_now_ms() - st->asked_ms;
    return t;
}

/* Adds to the engine's timings what it has not seen: the wait for room, for the engine's start, and for engines that
 * died before the first token. */
static void complete_timings(const struct stream *st, struct wire_timings *t)
{
    struct wire_timings own = own_timings(st);
    if (st->resumed && st->first_ms > 0) {
        *t = own;
    } else if (st->resumed) { /* an earlier hearthd had the first token: nobody knows when it came */
        t->queue_ms = t->load_ms = t->restore_ms = t->prefill_ms = 0;
        t->total_ms = own.total_ms;
    } else {
        t->queue_ms += own.total_ms > t->total_ms ? own.total_ms - t->total_ms : 0;
        t->total_ms = own.total_ms;
    }
}

/* A result made from hearthd's own figures, for an end without the engine's. */
static struct wire_engine_result own_result(const struct stream *st)
{
    int64_t prompt = (int64_t)(st->session->n_ids + st->n_appended);
    struct wire_engine_result r = {.finish_reason = "cancelled", .turn_open = st->session->row.turn_open};
    if (stream_has_begun(st) && st->request->n_messages > 0)
        r.turn_open = true;
    r.usage.prompt_tokens = r.usage.computed_tokens = prompt;
    r.usage.completion_tokens = (int64_t)st->output.n_ids;
    r.usage.reasoning_tokens = st->output.reasoning_tokens;
    r.timings = own_timings(st);
    return r;
}

void stream_end_here(struct stream *st, const struct hearth_err *e)
{
    st->end = own_result(st);
    if (e)
        stream_set_error(st, e);
    if (!e || st->output.n_ids > 0) {
        end(st);
        return;
    }
    /* Nothing was generated: the error is the request's answer, without usage, and the same request id may be used
     * again. */
    st->end.usage = (struct wire_usage){0};
    trace_end(st);
    if (st->journal)
        journal_remove(st->server->journal, st->journal);
    subscribers_fail(st, e);
    stream_delivered(st);
}

/* Corrects the figures of a stream that was submitted more than once: the last engine counted the stream's earlier
 * tokens as input, and the figures must be those of the whole stream. */
static void complete_figures(struct stream *st)
{
    struct wire_usage *u = &st->end.usage;
    u->prompt_tokens = (int64_t)(st->session->n_ids + st->n_appended);
    u->completion_tokens = (int64_t)st->output.n_ids;
    if (u->reasoning_tokens < st->output.reasoning_tokens)
        u->reasoning_tokens = st->output.reasoning_tokens;
    if (u->computed_tokens < 1)
        u->computed_tokens = 1;
    if (u->computed_tokens > u->prompt_tokens)
        u->computed_tokens = u->prompt_tokens;
    u->reused_tokens = u->prompt_tokens - u->computed_tokens;
    if (u->restored_tokens > u->reused_tokens) /* KV of the stream's own tokens was restored as well */
        u->restored_tokens = u->reused_tokens;
}

void stream_end_by_engine(struct stream *st, const struct wire_engine_result *r)
{
    struct hearth_err e;
    st->end = *r;
    st->end.finish_reason = stream_reason(r->finish_reason);
    if (r->usage.completion_tokens != (int64_t)st->output.n_ids && st->error[0] == '\0') {
        err_set(&e, HEARTH_EENGINE, "the engine made %lld tokens, and %zu have come",
                (long long)r->usage.completion_tokens, st->output.n_ids);
        stream_set_error(st, &e); /* an output with a gap is not usable */
    }
    if (strcmp(st->end.finish_reason, "error") == 0 && st->error[0] == '\0') {
        err_set(&e, HEARTH_EENGINE, "the engine gave up on it");
        stream_set_error(st, &e);
    }
    complete_timings(st, &st->end.timings);
    if (st->attempts > 1)
        complete_figures(st);
    end(st);
}

void stream_delivered(struct stream *st)
{
    if (st->rest != STREAM_GONE) {
        commit_enqueue(st);
    } else {
        stream_move(st, STREAM_GONE);
        stream_free(st);
    }
}
