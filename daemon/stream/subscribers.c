/* subscribers.c - the subscribers of a stream, and what each has been sent. Loop thread. */
#include "config.h"

#include <stdlib.h>

#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/stream/stream-internal.h"
#include "daemon/supervisor/model-names.h"

static void event(const struct subscriber *sub, int method, const void *body)
{
    sub->ops->event(sub, &wire_methods[method], body);
}

static void send_begin(struct subscriber *sub)
{
    const struct stream *st = sub->stream;
    char *model = model_name_of(st->server->conf, st->session->row.path); /* without memory it is left out */
    struct wire_stream_begin b = {
        .stream = st->number, .request = st->request->request, .model = model, .choice = st->choice};
    if (st->session->row.name)
        b.session = st->session->row.id;
    sub->begin_sent = true;
    event(sub, WIRE_STREAM_BEGIN, &b);
    free(model);
}

/* Ends the subscription with the stream's result. */
static void finish(struct subscriber *sub)
{
    struct stream *st = sub->stream;
    const struct output *o = &st->output;
    struct wire_generate_result result = {
        .session = stream_kept_session(st),
        .request = st->request->request,
        .stream = st->number,
        .text = {.data = o->text ? o->text : "", .len = o->n_text},
        .reasoning = output_reasoning(o),
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
    sub->ops->end(sub, &result, NULL);
}

/* Sends what the peer has room for. */
static void flush(struct subscriber *sub)
{
    struct stream *st = sub->stream;
    struct wire_stream_tokens f = {.stream = st->number, .choice = st->choice};
    while (sub->events && stream_has_begun(st)) {
        if (!sub->ops->has_room(sub))
            return;
        if (!sub->positioned && (st->output.n_ids >= sub->from || st->state == STREAM_DRAINING)) {
            output_seek(&st->output, sub->from, &sub->cursor);
            sub->positioned = true;
        }
        if (!sub->begin_sent)
            send_begin(sub);
        else if (sub->positioned && output_next(&st->output, &sub->cursor, &f))
            event(sub, WIRE_STREAM_TOKENS, &f);
        else
            break;
    }
    if (st->state == STREAM_DRAINING)
        finish(sub);
}

/* The stream is delivered when it has ended and no subscriber is left. */
static void check_delivered(struct stream *st)
{
    if (st->state == STREAM_DRAINING && TAILQ_EMPTY(&st->subscribers))
        stream_delivered(st);
}

void subscribers_flush(struct stream *st)
{
    struct subscriber *sub = TAILQ_FIRST(&st->subscribers), *next;
    for (; sub; sub = next) {
        next = TAILQ_NEXT(sub, entry);
        flush(sub);
    }
    check_delivered(st);
}

void subscribers_notify(const struct stream *st, const char *name, const char *message)
{
    struct wire_notice n = {.name = name, .message = message, .stream = st->number};
    const struct subscriber *sub;
    TAILQ_FOREACH (sub, &st->subscribers, entry)
        event(sub, WIRE_NOTICE, &n);
}

void subscribers_progress(const struct stream *st, const struct wire_stream_progress *p)
{
    const struct subscriber *sub;
    TAILQ_FOREACH (sub, &st->subscribers, entry)
        if (sub->events && sub->begin_sent && sub->ops->has_room(sub))
            event(sub, WIRE_STREAM_PROGRESS, p);
}

void subscribers_fail(struct stream *st, const struct hearth_err *e)
{
    struct subscriber *sub;
    while ((sub = TAILQ_FIRST(&st->subscribers)) != NULL) {
        TAILQ_REMOVE(&st->subscribers, sub, entry);
        sub->ops->end(sub, NULL, e);
    }
}

/* --- attaching and detaching ---------------------------------------------------------------------------- */

/* Events identify their stream only by its number, so a peer must not receive those of a stream twice. */
static int check_sent(const struct stream *st, const void *peer, struct hearth_err *e)
{
    const struct subscriber *sub;
    TAILQ_FOREACH (sub, &st->subscribers, entry)
        if (sub->events && sub->peer == peer)
            return err_set(e, HEARTH_ECONFLICT, "this connection is being sent stream %lld already",
                           (long long)st->number);
    return 0;
}

int stream_check_sent(struct server *s, uid_t uid, const struct stream_name *name, const void *peer,
                      struct hearth_err *e)
{
    const struct stream *st;
    int rc = 0;
    STREAMS_FOREACH (st, s->streams, STREAMS_OPEN)
        if (stream_is(st, uid, name) && (rc = check_sent(st, peer, e)))
            break;
    return rc;
}

/* Returns 0 if `sub` may subscribe. */
static int check(const struct stream *st, const struct subscriber *sub, struct hearth_err *e)
{
    int rc = sub->events ? check_sent(st, sub->peer, e) : 0;
    if (rc)
        return rc;
    if (st->state == STREAM_DRAINING && sub->from > st->output.n_ids)
        return err_set(e, HEARTH_EPARAMS, "stream.attach.from: %lld is over the %zu tokens of stream %lld",
                       (long long)sub->from, st->output.n_ids, (long long)st->number);
    return 0;
}

void stream_attach(struct stream *st, struct subscriber *sub)
{
    struct hearth_err e;
    if (check(st, sub, &e) != 0) {
        sub->ops->end(sub, NULL, &e);
        check_delivered(st);
        return;
    }
    sub->stream = st;
    TAILQ_INSERT_TAIL(&st->subscribers, sub, entry);
    if (st->grace) {
        timer_clear(st->grace);
        stream_tell_class(st);
    }
    subscribers_flush(st);
}

static void on_grace(void *arg)
{
    struct stream *st = arg;
    log_info("stream %lld: nobody has attached for %lld s: cancelled", (long long)st->number,
             (long long)st->server->conf->attach_grace);
    stream_cancel(st);
}

/* Starts the grace period, during which a client may attach; after it the stream is cancelled. */
static void begin_grace(struct stream *st)
{
    int64_t seconds = st->server->conf->attach_grace;
    if (!st->grace)
        st->grace = timer_new(st->server->base, on_grace, st);
    if (!seconds || st->server->phase != SERVER_RUNNING || !st->grace || timer_set(st->grace, seconds * 1000))
        stream_cancel(st);
    else
        stream_tell_class(st);
}

void stream_detach(struct subscriber *sub)
{
    struct stream *st = sub->stream;
    TAILQ_REMOVE(&st->subscribers, sub, entry);
    if (!TAILQ_EMPTY(&st->subscribers))
        return;
    if (st->state == STREAM_DRAINING)
        stream_delivered(st);
    else
        begin_grace(st);
}

/* --- backpressure --------------------------------------------------------------------------------------- */

static bool has_undelivered(const struct subscriber *sub)
{
    const struct stream *st = sub->stream;
    return st->state == STREAM_DRAINING || (stream_has_begun(st) && !sub->begin_sent) ||
           (sub->positioned && sub->cursor.mark < st->output.n_marks);
}

/* A subscriber of that peer for which there is undelivered output; NULL. */
static const struct subscriber *next_to_flush(const struct streams *v, const void *peer)
{
    const struct stream *st;
    const struct subscriber *sub;
    STREAMS_FOREACH (st, v, STREAMS_OPEN)
        TAILQ_FOREACH (sub, &st->subscribers, entry)
            if (sub->peer == peer && sub->events && has_undelivered(sub))
                return sub;
    return NULL;
}

/* A flush may end the stream and free the subscriber, so the search starts afresh each time. */
void stream_unthrottle(struct server *s, const void *peer)
{
    const struct subscriber *sub;
    while ((sub = next_to_flush(s->streams, peer)) != NULL && sub->ops->has_room(sub))
        subscribers_flush(sub->stream);
}
