/*
 * stream.c - the stream layer: requests that are not answered yet, and the events that arrive for them.
 */
#include "libclient/conn.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- requests ------------------------------------------------------------------------------------------- */

static struct pending **find(struct hearth *h, uint32_t id)
{
    struct pending **p = &h->pending;
    while (*p && (*p)->id != id)
        p = &(*p)->next;
    return p;
}

static int submit(struct hearth *h, const struct wire_method *m, const void *params, const char *request, uint32_t *id,
                  struct hearth_err *e)
{
    struct wire_buf *out = frames_out(&h->frames);
    size_t n = request ? strlen(request) + 1 : 1, start = out->len;
    struct pending *p = calloc(1, sizeof *p + n);
    if (!p)
        return err_set(e, HEARTH_ENOMEM, "no memory for a request");
    p->method = m;
    p->stream = -1;
    p->id = ++h->last_id ? h->last_id : ++h->last_id; /* never 0 */
    if (request)
        memcpy(p->request, request, n);

    int rc = wire_pack_request(out, p->id, m, params, e);
    if (rc)
        goto fail;
    /* The daemon would end the connection because of a frame beyond its limits; here it is an error of this request
     * alone. */
    struct wire_scan scan = {0};
    ptrdiff_t ok = wire_scan(&scan, out->data + start, out->len - start, WIRE_FRAME_MAX, e);
    if (ok < 0) {
        rc = (int)ok;
        out->len = start;
        goto fail;
    }
    p->next = h->pending;
    h->pending = p;
    *id = p->id;
    return 0;
fail:
    free(p);
    return rc;
}

int stream_send_hello(struct hearth *h, struct hearth_err *e)
{
    struct wire_hello hello;
    uint32_t id;
    if (h->hello_sent)
        return 0;
    wire_defaults(wire_methods[WIRE_HELLO].params, &hello);
    hello.client = h->client;
    int rc = submit(h, &wire_methods[WIRE_HELLO], &hello, NULL, &id, e);
    h->hello_sent = !rc;
    return rc;
}

int stream_submit(struct hearth *h, const struct wire_method *m, const void *params, const char *request, uint32_t *id,
                  struct hearth_err *e)
{
    if (h->dead.code)
        return conn_die_as(h, e, &h->dead);
    bool by_path = false;
    int rc = stream_send_hello(h, e);
    if (!rc && pass_before(h, m, params, &by_path))
        rc = conn_die_as(h, e, &h->dead);
    if (!rc && !(rc = submit(h, m, params, request, id, e)))
        h->pending->by_path = by_path;
    return rc;
}

bool stream_has_other(const struct hearth *h, uint32_t id)
{
    for (const struct pending *p = h->pending; p; p = p->next)
        if (p->id != id && !p->dropped)
            return true;
    return false;
}

void stream_abandon(struct hearth *h, uint32_t id)
{
    struct pending *p = *find(h, id);
    struct hearth_event ev;
    if (p)
        p->dropped = true;
    while (stream_unqueue(h, id, false, &ev))
        wire_free(ev.body.any);
}

void hearth_generate_init(struct hearth_generate *g, size_t size)
{
    struct hearth_generate full;
    wire_defaults(wire_methods[WIRE_GENERATE].params, &full);
    full.size = size;
    memset(g, 0, size);
    memcpy(g, &full, size < sizeof full ? size : sizeof full);
}

/* Completes the caller's struct, which may be shorter or longer than this library's where the caller was compiled with
 * an older or a newer hearth.h. */
static int complete(const struct hearth_generate *g, struct hearth_generate *full, struct hearth_err *e)
{
    if (g->size < sizeof g->size)
        return err_set(e, HEARTH_EPARAMS, "generate: hearth_generate_init() was not called");
    for (size_t i = sizeof *full; i < g->size; i++)
        if (((const char *)g)[i])
            return err_set(e, HEARTH_EUNSUPPORTED, "generate: a field newer than this libhearth is set");
    wire_defaults(wire_methods[WIRE_GENERATE].params, full);
    memcpy(full, g, g->size < sizeof *full ? g->size : sizeof *full);
    return 0;
}

int stream_measure(struct hearth *h, const struct hearth_generate *g, uint32_t *id, struct hearth_err *e)
{
    struct hearth_generate full;
    int rc = complete(g, &full, e);
    full.dry = true;
    full.request = NULL;
    if (!rc)
        rc = stream_submit(h, &wire_methods[WIRE_GENERATE], &full, NULL, id, e);
    if (!rc) /* the answer to a dry generate is a wire_measured, and there is no generation that could be cancelled */
        (*find(h, *id))->method = &wire_methods[WIRE_ENGINE_MEASURE];
    return rc;
}

int hearth_submit(struct hearth *h, const struct hearth_generate *g, uint32_t *request, struct hearth_err *e)
{
    struct hearth_generate full;
    char name[40];
    int rc = complete(g, &full, e);
    if (rc)
        return rc;
    if (full.dry)
        return err_set(e, HEARTH_EPARAMS, "generate.dry: is for hearth_measure()");

    /* Every generation has a request id, so that its stream can be identified, and cancelled before it begins. */
    if (!full.request) {
        snprintf(name, sizeof name, "%016" PRIx64 "-%" PRIu32, h->salt, h->last_id);
        full.request = name;
    }
    return stream_submit(h, &wire_methods[WIRE_GENERATE], &full, full.request, request, e);
}

int hearth_attach(struct hearth *h, int64_t stream, const char *request, int64_t from, uint32_t *number,
                  struct hearth_err *e)
{
    struct wire_attach a = {.stream = request ? -1 : stream, .request = request, .from = from};
    if (!request && stream < 0)
        return err_set(e, HEARTH_EPARAMS, "stream.attach: neither a stream nor a request is named");
    if (from < 0)
        return err_set(e, HEARTH_EPARAMS, "stream.attach.from: %" PRId64 " is negative", from);
    int rc = stream_submit(h, &wire_methods[WIRE_STREAM_ATTACH], &a, request, number, e);
    if (!rc)
        (*find(h, *number))->stream = a.stream;
    return rc;
}

int hearth_cancel(struct hearth *h, uint32_t request, struct hearth_err *e)
{
    struct pending *p = *find(h, request);
    struct wire_cancel cancel;
    uint32_t id;

    if (h->dead.code)
        return conn_die_as(h, e, &h->dead);
    if (!p || (p->method != &wire_methods[WIRE_GENERATE] && p->method != &wire_methods[WIRE_STREAM_ATTACH]))
        return err_set(e, HEARTH_ENOSTREAM, "no generation of number %" PRIu32 " is running", request);
    wire_defaults(wire_methods[WIRE_CANCEL].params, &cancel);
    cancel.stream = p->several ? -1 : p->stream;
    cancel.request = p->several || p->stream < 0 ? p->request : NULL;
    int rc = stream_submit(h, &wire_methods[WIRE_CANCEL], &cancel, NULL, &id, e);
    if (!rc)
        stream_abandon(h, id); /* the generation's own end says whether it was cancelled */
    return rc;
}

/* --- events --------------------------------------------------------------------------------------------- */

static int on_hello(struct hearth *h, const struct wire_frame *f, struct hearth_err *e)
{
    void *result;
    struct hearth_err why;

    if (f->is_error)
        return conn_die_as(h, e, &f->err);
    if (wire_unpack(wire_methods[WIRE_HELLO].result, f->body, f->body_len, &result, &why))
        return conn_die_unread(h, e, &why);
    wire_free(result);
    h->hello_reply.data = malloc(f->body_len);
    if (!h->hello_reply.data)
        return conn_die(h, e, HEARTH_ENOMEM, "no memory for the daemon's greeting");
    memcpy(h->hello_reply.data, f->body, f->body_len);
    h->hello_reply.len = h->hello_reply.cap = f->body_len;
    return 0;
}

/* The daemon refuses a path that it may not open; where passing the model failed before, that is the reason to report.
 * After HEARTH_ENOTPASSED the next request passes the model's files again. */
static void explain(struct hearth *h, const struct pending *p, struct hearth_err *err)
{
    if (err->code == HEARTH_ENOTPASSED)
        pass_forget(h);
    if (err->code == HEARTH_EDENIED && p->by_path && h->pass_err.code)
        *err = h->pass_err;
}

static int on_response(struct hearth *h, const struct wire_frame *f, struct hearth_event *ev, struct hearth_err *e)
{
    struct pending **at = find(h, f->id), *p = *at;
    struct hearth_err why;
    int rc = 1;

    if (!p) /* no request has id 0: an error with that id is the reason for which the daemon is about to hang up */
        return f->id == 0 && f->is_error ? conn_die_as(h, e, &f->err) : 0;
    *at = p->next;
    if (p->method == &wire_methods[WIRE_HELLO]) {
        rc = on_hello(h, f, e);
    } else if (p->dropped) {
        if (f->is_error && p->method == &wire_methods[WIRE_MODELS_PASS] && f->err.code != HEARTH_EMETHOD)
            h->pass_err = f->err;
        rc = 0;
    } else if (f->is_error) {
        *ev = (struct hearth_event){.type = HEARTH_EVENT_ERROR, .request = p->id, .err = f->err};
        explain(h, p, &ev->err);
    } else {
        *ev = (struct hearth_event){.type = HEARTH_EVENT_DONE, .request = p->id};
        if (wire_unpack(p->method->result, f->body, f->body_len, &ev->body.any, &why))
            rc = conn_die_unread(h, e, &why);
    }
    free(p);
    return rc;
}

static bool has_stream(const struct pending *p, int64_t stream)
{
    for (size_t i = 0; i < p->n_others; i++)
        if (p->others[i] == stream)
            return true;
    return p->stream >= 0 && p->stream == stream;
}

/* Returns the pending generation that has the stream, or NULL where it is not of this connection or has ended. Of
 * several it is the oldest, which has had the events so far, but not one that was abandoned. */
static struct pending *of_stream(struct hearth *h, int64_t stream)
{
    struct pending *oldest = NULL;
    for (struct pending *p = h->pending; p; p = p->next)
        if (has_stream(p, stream) && (!oldest || !p->dropped))
            oldest = p;
    return oldest;
}

static struct pending *of_begin(struct hearth *h, const struct hearth_stream_begin *begin)
{
    struct pending *p = of_stream(h, begin->stream);
    if (p)
        return p;
    for (p = h->pending; p; p = p->next) {
        if (!*p->request || !begin->request || strcmp(p->request, begin->request) != 0)
            continue;
        p->several = begin->choice >= 0;
        if (p->stream < 0)
            p->stream = begin->stream;
        else if (begin->choice >= 0 && p->n_others < WIRE_CHOICES_MAX - 1)
            p->others[p->n_others++] = begin->stream;
        else
            continue;
        return p;
    }
    return NULL;
}

static struct pending *of_request(struct hearth *h, const char *request)
{
    for (struct pending *p = h->pending; p && request; p = p->next)
        if (p->stream < 0 && !strcmp(p->request, request))
            return p;
    return NULL;
}

static int on_event(struct hearth *h, const struct wire_frame *f, struct hearth_event *ev, struct hearth_err *e)
{
    const struct wire_method *m = wire_method_find(f->method, f->method_len);
    struct pending *p = NULL;
    bool everybodys = false;
    struct hearth_err why;

    if (!m || m->kind != WIRE_EVENT)
        return 0; /* a newer daemon may send events that this library does not know */
    *ev = (struct hearth_event){0};
    if (wire_unpack(m->params, f->body, f->body_len, &ev->body.any, &why))
        return conn_die_unread(h, e, &why);
    switch (m - wire_methods) {
    case WIRE_STREAM_BEGIN:
        ev->type = HEARTH_EVENT_BEGIN;
        p = of_begin(h, ev->body.begin);
        break;
    case WIRE_STREAM_TOKENS:
        ev->type = HEARTH_EVENT_TOKENS;
        p = of_stream(h, ev->body.tokens->stream);
        break;
    case WIRE_STREAM_PROGRESS:
        ev->type = HEARTH_EVENT_PROMPT;
        p = of_stream(h, ev->body.prompt->stream);
        break;
    case WIRE_STREAM_QUEUED:
        ev->type = HEARTH_EVENT_QUEUED;
        p = of_request(h, ev->body.queued->request);
        break;
    case WIRE_MODEL_PROGRESS:
        ev->type = HEARTH_EVENT_PROGRESS;
        everybodys = true;
        break;
    case WIRE_NOTICE:
        ev->type = HEARTH_EVENT_NOTICE;
        p = of_stream(h, ev->body.notice->stream);
        everybodys = !p;
        break;
    }
    if (!everybodys && (!p || p->dropped)) {
        wire_free(ev->body.any);
        return 0;
    }
    ev->request = p ? p->id : 0;
    return 1;
}

int stream_pull(struct hearth *h, struct hearth_event *ev, struct hearth_err *e)
{
    const uint8_t *data;
    size_t n;

    while (!h->dead.code && (n = frames_front(&h->frames, &data))) {
        struct wire_frame f;
        struct hearth_err why;
        int got;
        if (wire_frame_open(&f, data, n, &why))
            return conn_die_unread(h, e, &why);
        if (f.kind == WIRE_FRAME_REQUEST)
            return conn_die(h, e, HEARTH_EPROTOCOL, "from the daemon: a request, but only clients ask");
        got = f.kind == WIRE_FRAME_RESPONSE ? on_response(h, &f, ev, e) : on_event(h, &f, ev, e);
        if (got < 0)
            return got;
        conn_drop(h, NULL); /* an error of the next frame is returned by the next call */
        if (got)
            return 1;
    }
    return h->dead.code ? conn_die_as(h, e, &h->dead) : 0;
}

int stream_push(struct hearth *h, const struct hearth_event *ev, struct hearth_err *e)
{
    struct queued *q = malloc(sizeof *q);
    if (!q) {
        wire_free(ev->body.any);
        return conn_die(h, e, HEARTH_ENOMEM, "no memory for an event");
    }
    *q = (struct queued){.nested = h->callbacks > 0, .ev = *ev};
    *h->queue_tail = q;
    h->queue_tail = &q->next;
    return 0;
}

/* Takes the queued event that *at points to. */
static void unqueue(struct hearth *h, struct queued **at, struct hearth_event *ev)
{
    struct queued *q = *at;
    *ev = q->ev;
    *at = q->next;
    if (!q->next)
        h->queue_tail = at;
    free(q);
}

bool stream_unqueue(struct hearth *h, uint32_t id, bool nested, struct hearth_event *ev)
{
    struct queued **at = &h->queue;
    while (*at && (*at)->ev.request != id && !(nested && (*at)->nested && !(*at)->ev.request))
        at = &(*at)->next;
    if (!*at)
        return false;
    unqueue(h, at, ev);
    return true;
}

int hearth_next(struct hearth *h, struct hearth_event *ev, struct hearth_err *e)
{
    int got = 1;
    wire_free(h->body);
    h->body = NULL;
    if (h->queue)
        unqueue(h, &h->queue, ev);
    else
        got = stream_pull(h, ev, e);
    if (got == 1)
        h->body = ev->body.any;
    return got;
}

void *hearth_take(struct hearth *h)
{
    void *body = h->body;
    h->body = NULL;
    return body;
}

void hearth_free(void *result)
{
    wire_free(result);
}
