/* deliver.c - a stream's readers: requests that it answers, and what each has been sent. Loop thread. */
#include "config.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/stream-inside.h"

static void send_begin(struct reader *r)
{
    struct stream *st = r->stream;
    struct wire_stream_begin b = {.stream = st->number, .request = st->request->request};
    if (st->session->row.name != NULL)
        b.session = st->session->row.id;
    r->announced = true;
    conn_event(r->call->conn, &wire_methods[WIRE_STREAM_BEGIN], &b);
}

/* Answers the reader's call, which frees both. */
static void finish(struct reader *r)
{
    struct stream *st = r->stream;
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
    TAILQ_REMOVE(&st->readers, r, entry);
    call_reply(r->call, &result);
    free(r);
}

/* Sends what the peer has room for. */
static void pump(struct reader *r)
{
    struct stream *st = r->stream;
    struct wire_stream_tokens f = {.stream = st->number};
    while (r->events && st->began) {
        if (r->call->conn->parked)
            return;
        if (!r->placed && (st->output.n_ids >= r->from || st->ended)) {
            output_seek(&st->output, r->from, &r->at);
            r->placed = true;
        }
        if (!r->announced)
            send_begin(r);
        else if (r->placed && output_next(&st->output, &r->at, &f))
            conn_event(r->call->conn, &wire_methods[WIRE_STREAM_TOKENS], &f);
        else
            break;
    }
    if (st->ended)
        finish(r);
}

void deliver(struct stream *st)
{
    struct reader *r = TAILQ_FIRST(&st->readers), *next;
    for (; r != NULL; r = next) {
        next = TAILQ_NEXT(r, entry);
        pump(r);
    }
    if (st->ended && TAILQ_EMPTY(&st->readers))
        stream_remove(st);
}

void deliver_failure(struct stream *st, const struct hearth_err *e)
{
    struct reader *r;
    while ((r = TAILQ_FIRST(&st->readers)) != NULL) {
        TAILQ_REMOVE(&st->readers, r, entry);
        call_fail(r->call, e);
        free(r);
    }
    stream_remove(st);
}

/* --- coming and going ----------------------------------------------------------------------------------- */

static void on_grace(evutil_socket_t fd, short what, void *arg)
{
    struct stream *st = arg;
    (void)fd, (void)what;
    log_info("stream %lld: nobody has attached for %lld s: cancelled", (long long)st->number,
             (long long)st->server->conf->attach_grace);
    stream_cancel(st);
}

/* The last reader has gone: somebody may attach for a while. */
static void wait_for_reader(struct stream *st)
{
    struct timeval tv = {.tv_sec = st->server->conf->attach_grace};
    if (st->grace == NULL)
        st->grace = event_new(st->server->base, -1, 0, on_grace, st);
    if (tv.tv_sec == 0 || st->server->phase != SERVER_RUNNING || st->grace == NULL || event_add(st->grace, &tv) != 0)
        stream_cancel(st);
}

/* The peer of the call is gone, and so is the reader; the stream goes on. */
static void on_gone(struct call *call)
{
    struct reader *r = call->arg;
    struct stream *st = r->stream;
    TAILQ_REMOVE(&st->readers, r, entry);
    free(r);
    call_reply(call, NULL); /* to nobody */
    if (!TAILQ_EMPTY(&st->readers))
        return;
    if (st->ended)
        stream_remove(st);
    else
        wait_for_reader(st);
}

void deliver_to(struct stream *st, struct call *call, bool events, int64_t from)
{
    struct hearth_err e;
    struct reader *r;
    TAILQ_FOREACH (r, &st->readers, entry)
        if (events && r->events && r->call->conn == call->conn) { /* events carry the stream's number alone */
            err_set(&e, HEARTH_ECONFLICT, "this connection is being sent stream %lld already", (long long)st->number);
            call_fail(call, &e);
            return;
        }
    if (st->ended && (uint64_t)from > st->output.n_ids)
        err_set(&e, HEARTH_EPARAMS, "stream.attach.from: %lld is over the %zu tokens of stream %lld", (long long)from,
                st->output.n_ids, (long long)st->number);
    else if ((r = calloc(1, sizeof(*r))) == NULL)
        err_set(&e, HEARTH_ENOMEM, "out of memory");
    else {
        *r = (struct reader){.stream = st, .call = call, .events = events, .from = (size_t)from};
        TAILQ_INSERT_TAIL(&st->readers, r, entry);
        call->arg = r;
        call->on_gone = on_gone;
        if (st->grace != NULL)
            event_del(st->grace);
        deliver(st);
        return;
    }
    call_fail(call, &e);
    if (st->ended && TAILQ_EMPTY(&st->readers))
        stream_remove(st);
}

static bool has_undelivered(const struct reader *r)
{
    const struct stream *st = r->stream;
    return st->ended || (st->began && !r->announced) || (r->placed && r->at.mark < st->output.n_marks);
}

/* A stream with something for that connection; NULL. */
static struct stream *waiting_for(const struct conn *c)
{
    struct stream *st;
    const struct reader *r;
    TAILQ_FOREACH (st, &c->server->streams, entry)
        TAILQ_FOREACH (r, &st->readers, entry)
            if (r->call->conn == c && r->events && has_undelivered(r))
                return st;
    return NULL;
}

void stream_unpark(struct conn *c)
{
    struct stream *st;
    while (!c->parked && (st = waiting_for(c)) != NULL) /* and delivering may end it */
        deliver(st);
}
