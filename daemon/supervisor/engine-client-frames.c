/* engine-client-frames.c - the link to the engine process: frames received and sent. Loop thread. */
#include "config.h"

#include <errno.h>
#include <event2/event.h>

#include "daemon/log.h"
#include "daemon/supervisor/engine-client-internal.h"

static struct request *find(struct engine_client *ec, uint32_t id)
{
    struct request *r;
    TAILQ_FOREACH (r, &ec->requests, entry)
        if (r->id == id)
            break;
    return r;
}

static void on_response(struct engine_client *ec, const struct wire_frame *f)
{
    struct request *r = find(ec, f->id);
    if (!r) {
        log_warn("engine %d answered what nobody asked (id %lu)", (int)engine_pid(ec), (unsigned long)f->id);
        return;
    }
    struct hearth_err e = f->err;
    void *result = NULL;
    if (f->is_error && e.code == HEARTH_EDEVICE) {
        /* All that the engine holds was on that device, and a driver may take long to release it. The engine's exit
         * also completes this request. */
        engine_process_fail(ec->process, "%s", e.msg);
        ec->lost_device = engine_was_ready(ec);
        return;
    }
    if (!f->is_error && r->packed) {
        struct wire_bytes body = {(const char *)f->body, f->body_len};
        TAILQ_REMOVE(&ec->requests, r, entry);
        engine_client_complete(r, &body, NULL);
        engine_client_request_free(r);
        return;
    }
    if (!f->is_error && wire_unpack(r->method->result, f->body, f->body_len, &result, &e))
        err_set(&e, HEARTH_EENGINE, "the engine's answer to %s: %.120s", r->method->name, e.msg);
    TAILQ_REMOVE(&ec->requests, r, entry);
    engine_client_complete(r, result, &e);
    wire_free(result);
    engine_client_request_free(r);
}

static void on_event(struct engine_client *ec, const struct wire_frame *f)
{
    const struct wire_method *m = wire_method_find(f->method, f->method_len);
    struct hearth_err e;
    void *body;
    if (!m || m->kind != WIRE_EVENT) {
        log_warn("engine %d sent an unknown event", (int)engine_pid(ec));
    } else if (wire_unpack(m->params, f->body, f->body_len, &body, &e)) {
        log_warn("engine %d: %s: %s", (int)engine_pid(ec), m->name, e.msg);
    } else {
        if (m == &wire_methods[WIRE_ENGINE_TOKENS])
            engine_process_productive(ec->process);
        ec->on_event(ec->arg, m, body);
        wire_free(body);
    }
}

static void handle_frame(struct engine_client *ec, const uint8_t *data, size_t len)
{
    struct wire_frame f;
    struct hearth_err e;
    int rc = wire_frame_open(&f, data, len, &e);
    if (!rc && f.kind == WIRE_FRAME_REQUEST)
        rc = err_set(&e, HEARTH_EPROTOCOL, "a request");
    if (rc)
        engine_process_fail(ec->process, "it sent what is not the protocol: %.70s", e.msg);
    else if (f.kind == WIRE_FRAME_RESPONSE)
        on_response(ec, &f);
    else
        on_event(ec, &f);
}

int engine_client_read(struct engine_client *ec)
{
    ssize_t n = frames_fill(&ec->frames, ec->fd);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0)
        return HEARTH_EIO;
    ec->heard = true;
    ec->overdue = false;
    const uint8_t *data;
    ptrdiff_t len;
    struct hearth_err e;
    while ((len = frames_next(&ec->frames, &data, &e)) > 0) {
        ec->bytes += len;
        handle_frame(ec, data, (size_t)len);
        frames_drop(&ec->frames);
        if (engine_process_has_failed(ec->process)) /* everything after the failure is ignored */
            return HEARTH_EPROTOCOL;
    }
    if (len < 0)
        engine_process_fail(ec->process, "it sent what is not the protocol: %.70s", e.msg);
    if (len < 0)
        return HEARTH_EPROTOCOL;
    return engine_client_let_leave(ec) ? 0 : 1;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct engine_client *ec = arg;
    (void)fd, (void)what;
    if (engine_client_read(ec) >= 0)
        return;
    /* An engine whose link is closed or broken is useless, whatever state it is in; its exit does the rest. An engine
     * that was asked to exit is left to do so, but hearthd does not wait for it for ever. */
    event_del(ec->readable);
    event_del(ec->writable);
    engine_process_kill(ec->process);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    engine_client_flush(arg);
}

int engine_client_watch(struct engine_client *ec)
{
    ec->readable = event_new(ec->base, ec->fd, EV_READ | EV_PERSIST, on_readable, ec);
    ec->writable = event_new(ec->base, ec->fd, EV_WRITE, on_writable, ec);
    return ec->readable && ec->writable && !event_add(ec->readable, NULL) ? 0 : HEARTH_ENOMEM;
}

void engine_client_flush(struct engine_client *ec)
{
    if (ec->fd < 0 || event_pending(ec->writable, EV_WRITE, NULL))
        return;
    if (frames_flush(&ec->frames, ec->fd) == EAGAIN)
        event_add(ec->writable, NULL); /* any other error means the end of the link, which reading will detect */
}
