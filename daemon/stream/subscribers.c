/* subscribers.c - a stream's readers: requests that it answers, and what each has been sent. Loop thread. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/stream/stream-internal.h"

static void send_begin(struct subscriber *sub)
{
    struct stream *st = sub->stream;
    struct wire_stream_begin b = {.stream = st->number, .request = st->request->request};
    if (st->session->row.name)
        b.session = st->session->row.id;
    sub->begin_sent = true;
    conn_event(sub->call->conn, &wire_methods[WIRE_STREAM_BEGIN], &b);
}

/* Answers the reader's call, which frees both. */
static void finish(struct subscriber *sub)
{
    struct stream *st = sub->stream;
    const struct output *o = &st->output;
    struct wire_generate_result result = {
        .session = st->session->row.name != NULL ? st->session->row.id : NULL,
        .request = st->request->request,
        .stream = st->number,
        .text = {.data = o->text != NULL ? o->text : "", .len = o->n_text},
        .tokens = {.v = o->ids, .n = o->n_ids},
        .finish_reason = st->end.finish_reason,
        .usage = st->end.usage,
        .timings = st->end.timings,
        .seed = st->request->sampling.seed,
        .logprobs = o->logprobs,
        .n_logprobs = o->n_logprobs,
        .error = st->error[0] != '\0' ? st->error : NULL,
    };
    TAILQ_REMOVE(&st->subscribers, sub, entry);
    call_reply(sub->call, &result);
    free(sub);
}

/* Sends what the peer has room for. */
static void flush(struct subscriber *sub)
{
    struct stream *st = sub->stream;
    struct wire_stream_tokens f = {.stream = st->number};
    while (sub->events && stream_has_begun(st)) {
        if (sub->call->conn->throttled)
            return;
        if (!sub->positioned && (st->output.n_ids >= sub->from || st->state == STREAM_DRAINING)) {
            output_seek(&st->output, sub->from, &sub->cursor);
            sub->positioned = true;
        }
        if (!sub->begin_sent)
            send_begin(sub);
        else if (sub->positioned && output_next(&st->output, &sub->cursor, &f))
            conn_event(sub->call->conn, &wire_methods[WIRE_STREAM_TOKENS], &f);
        else
            break;
    }
    if (st->state == STREAM_DRAINING)
        finish(sub);
}

/* Nobody is left to be told of the end. */
static bool all_delivered(const struct stream *st)
{
    return st->state == STREAM_DRAINING && TAILQ_EMPTY(&st->subscribers);
}

void subscribers_flush(struct stream *st)
{
    struct subscriber *sub = TAILQ_FIRST(&st->subscribers), *next;
    for (; sub != NULL; sub = next) {
        next = TAILQ_NEXT(sub, entry);
        flush(sub);
    }
    if (all_delivered(st))
        stream_delivered(st);
}

void subscribers_notify(const struct stream *st, const char *name, const char *message)
{
    struct wire_notice n = {.name = name, .message = message, .stream = st->number};
    const struct subscriber *sub;
    TAILQ_FOREACH (sub, &st->subscribers, entry)
        conn_event(sub->call->conn, &wire_methods[WIRE_NOTICE], &n);
}

void subscribers_fail(struct stream *st, const struct hearth_err *e)
{
    struct subscriber *sub;
    while ((sub = TAILQ_FIRST(&st->subscribers)) != NULL) {
        TAILQ_REMOVE(&st->subscribers, sub, entry);
        call_fail(sub->call, e);
        free(sub);
    }
}

/* --- coming and going ----------------------------------------------------------------------------------- */

static void on_grace(void *arg)
{
    struct stream *st = arg;
    log_info("stream %lld: nobody has attached for %lld s: cancelled", (long long)st->number,
             (long long)st->server->conf->attach_grace);
    stream_cancel(st);
}

/* The last reader has gone: somebody may attach for a while. */
static void wait_for_subscriber(struct stream *st)
{
    int64_t seconds = st->server->conf->attach_grace;
    if (!st->grace)
        st->grace = timer_new(st->server->base, on_grace, st);
    if (!seconds || st->server->phase != SERVER_RUNNING || !st->grace || timer_set(st->grace, seconds * 1000))
        stream_cancel(st);
}

/* The peer of the call is gone, and so is the reader; the stream goes on. */
static void on_disconnect(struct call *call)
{
    struct subscriber *sub = call->arg;
    struct stream *st = sub->stream;
    TAILQ_REMOVE(&st->subscribers, sub, entry);
    free(sub);
    call_reply(call, NULL); /* to nobody */
    if (!TAILQ_EMPTY(&st->subscribers))
        return;
    if (st->state == STREAM_DRAINING)
        stream_delivered(st);
    else
        wait_for_subscriber(st);
}

void subscribers_add(struct stream *st, struct call *call, bool events, int64_t from)
{
    struct hearth_err e;
    struct subscriber *sub;
    TAILQ_FOREACH (sub, &st->subscribers, entry)
        if (events && sub->events && sub->call->conn == call->conn) { /* events carry the stream's number alone */
            err_set(&e, HEARTH_ECONFLICT, "this connection is being sent stream %lld already", (long long)st->number);
            call_fail(call, &e);
            return;
        }
    if (st->state == STREAM_DRAINING && (uint64_t)from > st->output.n_ids)
        err_set(&e, HEARTH_EPARAMS, "stream.attach.from: %lld is over the %zu tokens of stream %lld", (long long)from,
                st->output.n_ids, (long long)st->number);
    else if ((sub = calloc(1, sizeof *sub)) == NULL)
        err_set(&e, HEARTH_ENOMEM, "out of memory");
    else {
        *sub = (struct subscriber){.stream = st, .call = call, .events = events, .from = (size_t)from};
        TAILQ_INSERT_TAIL(&st->subscribers, sub, entry);
        call->arg = sub;
        call->on_disconnect = on_disconnect;
        if (st->grace)
            timer_clear(st->grace);
        subscribers_flush(st);
        return;
    }
    call_fail(call, &e);
    if (all_delivered(st))
        stream_delivered(st);
}

static bool has_undelivered(const struct subscriber *sub)
{
    const struct stream *st = sub->stream;
    return st->state == STREAM_DRAINING || (stream_has_begun(st) && !sub->begin_sent) ||
           (sub->positioned && sub->cursor.mark < st->output.n_marks);
}

/* A stream with something for that connection; NULL. */
static struct stream *next_to_flush(const struct conn *c)
{
    struct stream *st;
    const struct subscriber *sub;
    STREAMS_FOREACH (st, c->server->streams, STREAMS_OPEN)
        TAILQ_FOREACH (sub, &st->subscribers, entry)
            if (sub->call->conn == c && sub->events && has_undelivered(sub))
                return st;
    return NULL;
}

void stream_unthrottle(struct conn *c)
{
    struct stream *st;
    while (!c->throttled && (st = next_to_flush(c)) != NULL) /* and delivering may end it */
        subscribers_flush(st);
}
