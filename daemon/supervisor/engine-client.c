/* engine-client.c - requests and responses over the link to the engine process. Loop thread. */
#include "config.h"

#include "daemon/supervisor/engine-client-internal.h"

#include <event2/event.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/log.h"

enum {
    BEATS = 4, /* fractions of engine_timeout: an engine that was silent for so many in a row is killed */
};

/* No watermarks are needed: hearthd's requests to the engine are bounded by those that its peers may make to hearthd,
 * and what dry runs add to theirs is bounded for each user. */
static const struct frames_limits limits = {.frame = WIRE_LINK_FRAME_MAX, .read = 64 << 10};

/* --- life cycle ----------------------------------------------------------------------------------------- */

static const struct engine_process_calls process_calls;
static void on_heartbeat(void *arg);

void engine_client_request_free(struct request *r)
{
    timer_free(r->deadline);
    free(r);
}

int engine_client_new(struct engine_client **out, struct event_base *base, const char *const argv[], int64_t timeout,
                      int number, engine_event *on_event, void *arg, struct hearth_err *e)
{
    struct engine_client *ec = calloc(1, sizeof *ec);
    if (!ec)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *ec =
        (struct engine_client){.base = base, .on_event = on_event, .arg = arg, .timeout = timeout, .fd = -1, .link = 1};
    ec->number = number;
    frames_init(&ec->frames, &limits);
    TAILQ_INIT(&ec->requests);
    ec->heartbeat = timer_new(base, on_heartbeat, ec);
    int rc = ec->heartbeat ? engine_process_new(&ec->process, base, argv, &process_calls, ec, e)
                           : err_set(e, HEARTH_ENOMEM, "out of memory");
    if (rc) {
        timer_free(ec->heartbeat);
        free(ec);
        return rc;
    }
    *out = ec;
    return 0;
}

int engine_client_set_command(struct engine_client *ec, const char *const argv[], struct hearth_err *e)
{
    return engine_process_set_command(ec->process, argv, e);
}

static void close_link(struct engine_client *ec)
{
    if (ec->readable)
        event_free(ec->readable);
    if (ec->writable)
        event_free(ec->writable);
    ec->readable = ec->writable = NULL;
    if (ec->fd >= 0)
        close(ec->fd);
    ec->fd = -1;
    ec->link++;
    frames_fini(&ec->frames);
}

void engine_client_free(struct engine_client *ec)
{
    if (!ec)
        return;
    close_link(ec);
    engine_process_free(ec->process);
    timer_free(ec->heartbeat);
    struct request *r;
    while ((r = TAILQ_FIRST(&ec->requests)) != NULL) {
        TAILQ_REMOVE(&ec->requests, r, entry);
        engine_client_request_free(r);
    }
    free(ec);
}

/* --- calls ---------------------------------------------------------------------------------------------- */

static int64_t beat_ms(const struct engine_client *ec)
{
    return ec->timeout * 1000 / BEATS;
}

/* Packs and queues a request; NULL with *e on failure. */
static struct request *request(struct engine_client *ec, const struct wire_method *m, const void *params,
                               engine_completion *complete, void *arg, struct hearth_err *e)
{
    struct request *r = calloc(1, sizeof *r);
    if (!r) {
        err_set(e, HEARTH_ENOMEM, "out of memory");
        return NULL;
    }
    *r = (struct request){.id = ++ec->last_id, .method = m, .complete = complete, .arg = arg, .client = ec};
    size_t before = frames_pending(&ec->frames);
    if (wire_pack_request(frames_out(&ec->frames), r->id, m, params, e)) {
        free(r);
        return NULL;
    }
    ec->bytes += (int64_t)(frames_pending(&ec->frames) - before);
    TAILQ_INSERT_TAIL(&ec->requests, r, entry);
    if (!timer_is_set(ec->heartbeat))
        timer_set(ec->heartbeat, beat_ms(ec));
    return r;
}

void engine_client_complete(struct request *r, const void *result, const struct hearth_err *e)
{
    engine_completion *fn = r->complete;
    r->complete = NULL;
    if (fn)
        fn(r->arg, result, result ? NULL : e);
}

static void on_deadline(void *arg)
{
    struct request *r = arg;
    struct hearth_err e;
    r->client->overdue = true;
    err_set(&e, HEARTH_EENGINE, "the engine does not answer");
    engine_client_complete(r, NULL, &e);
}

static void on_hello(void *arg, const void *result, const struct hearth_err *err)
{
    struct engine_client *ec = arg;
    const struct wire_engine_hello_result *r = result;
    if (engine_state(ec) != ENGINE_STARTING)
        return;
    if (err) { /* it has no device, and is about to exit */
        engine_process_fail(ec->process, "%s", err->msg);
        return;
    }
    if (r->version != WIRE_VERSION) {
        engine_process_fail(ec->process, "it speaks version %lld of the link, hearthd %d", (long long)r->version,
                            WIRE_VERSION);
        engine_process_kill(ec->process);
        return;
    }
    ec->devices = r->devices;
    engine_process_ready(ec->process);
    if (ec->ready)
        ec->ready(ec->arg);
    log_info("engine %d runs on %s (%s)", (int)engine_pid(ec), r->backend ? r->backend : "?",
             r->device ? r->device : "?");
}

/* Packs the hello ahead of the requests that were queued during a back-off, none of which has been sent yet. */
static int pack_hello(struct engine_client *ec)
{
    static const struct wire_engine_hello hello = {.version = WIRE_VERSION};
    size_t waiting = frames_pending(&ec->frames);
    if (!request(ec, &wire_methods[WIRE_ENGINE_HELLO], &hello, on_hello, ec, NULL))
        return HEARTH_ENOMEM;
    return frames_put_first(&ec->frames, waiting);
}

static int start(struct engine_client *ec, struct hearth_err *e)
{
    int rc = engine_process_start(ec->process, &ec->fd, e);
    if (rc)
        return rc;
    ec->lost_device = ec->pinged = ec->may_leave = ec->overdue = false;
    ec->silent = 0;
    if (pack_hello(ec) || engine_client_watch(ec)) {
        engine_process_fail(ec->process, "out of memory");
        engine_process_kill(ec->process); /* its exit completes the calls that wait */
        close_link(ec);
    }
    return 0;
}

static int start_if_absent(struct engine_client *ec, struct hearth_err *e)
{
    if (engine_state(ec) == ENGINE_STOPPING)
        return err_set(e, HEARTH_ESHUTDOWN, "the engine is being stopped");
    return engine_state(ec) == ENGINE_ABSENT ? start(ec, e) : 0;
}

static int call(struct engine_client *ec, const struct wire_method *m, const void *params, bool packed,
                engine_completion *fn, void *arg, struct hearth_err *e)
{
    struct hearth_err err = {0};
    struct request *r = NULL;
    int rc = start_if_absent(ec, &err);
    if (!rc && ec->before)
        ec->before(ec->arg);
    if (!rc && !(r = request(ec, m, params, fn, arg, &err)))
        rc = err.code;
    if (r)
        r->packed = packed;
    if (rc && e)
        *e = err;
    return rc;
}

int engine_call(struct engine_client *ec, const struct wire_method *m, const void *params, engine_completion *fn,
                void *arg, struct hearth_err *e)
{
    return call(ec, m, params, false, fn, arg, e);
}

int engine_call_packed(struct engine_client *ec, const struct wire_method *m, const void *params, engine_completion *fn,
                       void *arg, struct hearth_err *e)
{
    return call(ec, m, params, true, fn, arg, e);
}

int engine_give(struct engine_client *ec, const struct wire_engine_pass *p, int fd, engine_completion *fn,
                struct hearth_err *e)
{
    size_t before = frames_pending(&ec->frames);
    if (request(ec, &wire_methods[WIRE_ENGINE_PASS], p, fn, ec, e))
        return fd >= 0 ? frames_attach(&ec->frames, before, fd, e) : 0;
    if (fd >= 0)
        close(fd);
    return e ? e->code : HEARTH_ENOMEM;
}

int64_t engine_link_number(const struct engine_client *ec)
{
    return ec->link;
}

void engine_client_before_calls(struct engine_client *ec, void (*before)(void *arg))
{
    ec->before = before;
}

static void on_forgotten(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg, (void)result, (void)err; /* what counts is the answer to the cancelled request */
}

void engine_forget(struct engine_client *ec, const void *arg)
{
    const struct request *r;
    TAILQ_FOREACH (r, &ec->requests, entry)
        if (r->arg == arg)
            break;
    if (r)
        request(ec, &wire_methods[WIRE_ENGINE_FORGET], &(struct wire_engine_forget){.id = r->id}, on_forgotten, NULL,
                NULL);
}

void engine_hand_over(struct engine_client *ec, const void *from, engine_completion *complete, void *arg)
{
    struct request *r;
    TAILQ_FOREACH (r, &ec->requests, entry)
        if (r->arg == from) {
            r->complete = complete;
            r->arg = arg;
            return;
        }
}

int engine_ask_status(struct engine_client *ec, engine_completion *fn, void *arg)
{
    /* PARTS of engine_timeout: patience with an engine applies here, too, but somebody waits for the answer */
    enum { LEAST_MS = 500, MOST_MS = 5000, PARTS = 60 };
    static const struct wire_empty nothing;
    struct request *r;
    int64_t patience = ec->timeout * 1000 / PARTS;
    patience = patience < LEAST_MS ? LEAST_MS : patience < MOST_MS ? patience : MOST_MS;
    if (engine_state(ec) != ENGINE_RUNNING || ec->overdue ||
        !(r = request(ec, &wire_methods[WIRE_ENGINE_STATUS], &nothing, NULL, arg, NULL)))
        return HEARTH_EENGINE;
    r->deadline = timer_new(ec->base, on_deadline, r);
    if (!r->deadline || timer_set(r->deadline, patience))
        return HEARTH_ENOMEM; /* its answer will be read and ignored */
    r->complete = fn;
    r->packed = true;
    return 0;
}

/* Completes every open call. A completion may make a new call: that one is not failed here, but waits for a restart. */
static void fail_all(struct engine_client *ec, const struct hearth_err *e)
{
    struct request_list requests = TAILQ_HEAD_INITIALIZER(requests);
    TAILQ_CONCAT(&requests, &ec->requests, entry);
    struct request *r;
    while ((r = TAILQ_FIRST(&requests)) != NULL) {
        TAILQ_REMOVE(&requests, r, entry);
        engine_client_complete(r, NULL, e);
        engine_client_request_free(r);
    }
}

static void on_stopped(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg, (void)result, (void)err; /* what counts is the exit of the process */
}

void engine_client_stop(struct engine_client *ec)
{
    static const struct wire_empty nothing;
    bool is_live = engine_pid(ec) != 0;
    bool exit_requested = is_live && engine_state(ec) != ENGINE_STOPPING &&
                          request(ec, &wire_methods[WIRE_ENGINE_SHUTDOWN], &nothing, on_stopped, NULL, NULL);
    engine_process_stop(ec->process, exit_requested);
    if (!is_live) {
        struct hearth_err e;
        err_set(&e, HEARTH_ESHUTDOWN, "the engine is being stopped");
        fail_all(ec, &e);
    }
}

void engine_client_on_ready(struct engine_client *ec, void (*ready)(void *arg))
{
    ec->ready = ready;
}

void engine_client_on_end(struct engine_client *ec, void (*end)(void *arg))
{
    ec->end = end;
}

void engine_client_may_leave(struct engine_client *ec)
{
    ec->may_leave = TAILQ_EMPTY(&ec->requests); /* by a request that crossed the report, it may hold something again */
}

void engine_client_on_leave(struct engine_client *ec, void (*leave)(void *arg))
{
    ec->leave = leave;
}

bool engine_client_let_leave(struct engine_client *ec)
{
    bool leaves = ec->may_leave && TAILQ_EMPTY(&ec->requests) && engine_state(ec) == ENGINE_RUNNING;
    ec->may_leave = false;
    if (!leaves)
        return false;
    close_link(ec);
    engine_process_leave(ec->process);
    if (ec->leave)
        ec->leave(ec->arg);
    return true;
}

/* --- the heartbeat --------------------------------------------------------------------------------------- */

static void on_pong(void *arg, const void *result, const struct hearth_err *err)
{
    (void)result, (void)err; /* what counts is that bytes were received */
    ((struct engine_client *)arg)->pinged = false;
}

/* Requests something that the engine's loop answers at once, so that silence is meaningful. */
static void ping(struct engine_client *ec)
{
    static const struct wire_empty nothing;
    if (!ec->pinged && request(ec, &wire_methods[WIRE_ENGINE_STATUS], &nothing, on_pong, ec, NULL))
        ec->pinged = true;
    engine_client_flush(ec);
}

/*
 * While an answer is due the engine must send something, be it a token or the answer to a ping. One that hangs in the
 * kernel or was stopped (SIGSTOP) sends nothing and does not exit either: it is killed, and the next engine starts its
 * work over. Beats are counted rather than seconds, because time during which hearthd itself was stopped proves
 * nothing.
 */
static void on_heartbeat(void *arg)
{
    struct engine_client *ec = arg;
    if (TAILQ_EMPTY(&ec->requests) || engine_state(ec) == ENGINE_STOPPING)
        return;
    timer_set(ec->heartbeat, beat_ms(ec));
    if (engine_state(ec) != ENGINE_RUNNING)
        return; /* the hello has a deadline of its own */
    ec->silent = ec->heard ? 0 : ec->silent + 1;
    ec->heard = false;
    if (ec->silent == BEATS / 2)
        log_warn("engine %d has not answered for %lld s", (int)engine_pid(ec), (long long)ec->timeout / 2);
    if (ec->silent >= BEATS && !engine_process_has_failed(ec->process)) {
        engine_process_fail(ec->process, "it has not answered for %lld s", (long long)ec->timeout);
        engine_process_kill(ec->process);
    } else {
        ping(ec);
    }
}

/* --- callbacks of the process ----------------------------------------------------------------------------- */

static bool on_is_needed(void *arg)
{
    const struct engine_client *ec = arg;
    return !TAILQ_EMPTY(&ec->requests);
}

/* Tokens that an engine made before it died are valid. */
static void on_last_words(void *arg)
{
    struct engine_client *ec = arg;
    while (ec->readable && event_pending(ec->readable, EV_READ, NULL) && engine_client_read(ec) > 0)
        continue;
}

static void on_exited(void *arg, const struct hearth_err *e)
{
    struct engine_client *ec = arg;
    close_link(ec);
    if (ec->end)
        ec->end(ec->arg);
    fail_all(ec, e);
}

static void on_restart(void *arg)
{
    struct engine_client *ec = arg;
    struct hearth_err e;
    if (!TAILQ_EMPTY(&ec->requests) && start(ec, &e)) {
        log_error("%s", e.msg);
        fail_all(ec, &e);
    }
}

static const struct engine_process_calls process_calls = {on_is_needed, on_last_words, on_exited, on_restart};

/* --- queries ---------------------------------------------------------------------------------------------- */

int engine_number(const struct engine_client *ec)
{
    return ec->number;
}

int64_t engine_devices(const struct engine_client *ec)
{
    return ec->devices;
}

enum engine_state engine_state(const struct engine_client *ec)
{
    return engine_process_state(ec->process);
}

const char *engine_state_name(const struct engine_client *ec)
{
    static const char *const names[] = {"absent", "restarting", "starting", "running", "leaving", "stopping"};
    return names[engine_state(ec)];
}

bool engine_is_overdue(const struct engine_client *ec)
{
    return ec->overdue && engine_state(ec) == ENGINE_RUNNING;
}

bool engine_was_ready(const struct engine_client *ec)
{
    return engine_process_was_ready(ec->process);
}

const char *engine_failure(const struct engine_client *ec)
{
    return engine_process_failure(ec->process);
}

bool engine_lost_device(const struct engine_client *ec)
{
    return ec->lost_device;
}

int64_t engine_restarts(const struct engine_client *ec)
{
    return engine_process_restarts(ec->process);
}

int64_t engine_link_bytes(const struct engine_client *ec)
{
    return ec->bytes;
}

pid_t engine_pid(const struct engine_client *ec)
{
    return engine_process_pid(ec->process);
}
