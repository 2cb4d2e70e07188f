/*
 * run.c - the run layer of blocking calls: submit, wait, return. It uses the layers below and keeps no state but the
 * deferral of hearth_defer().
 */
#include "libclient/conn.h"

#include <stdlib.h>
#include <string.h>

static int timed_out(struct hearth_err *e)
{
    return err_set(e, HEARTH_ETIMEOUT, "the daemon did not answer in time");
}

/* Waits for the end of request `id`, until `deadline` (conn_deadline()). Other requests' events are queued for
 * hearth_next(), or for the await() in whose `on_event` this one runs. Events of no request are queued only while there
 * are other requests: a program that has none may never call hearth_next(). `out` is a T ** of any T and receives the
 * result's pointer; NULL discards the result. */
static int await(struct hearth *h, uint32_t id, hearth_on_event *on_event, void *arg, int64_t deadline, void *out,
                 struct hearth_err *e)
{
    bool cancelled = false, queued = true; /* queued: events of `id` may be in the queue */

    for (bool late = false; !late; late = conn_is_late(deadline)) { /* events may keep coming after the deadline */
        struct hearth_event ev;
        queued = queued && stream_unqueue(h, id, on_event != NULL, &ev);
        int rc = queued ? 1 : stream_pull(h, &ev, e);
        if (!rc) {
            rc = conn_wait(h, -1, deadline, e);
            if (rc == HEARTH_WAIT_TIMEOUT)
                break;
            if (rc > 0)
                continue;
        }
        if (rc < 0)
            return rc;

        bool ours = ev.request == id;
        if (ours && ev.type == HEARTH_EVENT_ERROR)
            return err_set(e, ev.err.code, "%s", ev.err.msg);
        if (ours && ev.type == HEARTH_EVENT_DONE) {
            if (out)
                memcpy(out, &ev.body.any, sizeof ev.body.any);
            else
                hearth_free(ev.body.any);
            return 0;
        }
        if (!ours && (ev.request || (!on_event && stream_has_other(h, id)))) {
            rc = stream_push(h, &ev, e);
            if (rc)
                return rc;
            continue;
        }
        h->callbacks++;
        bool stop = on_event && on_event(arg, &ev) && !cancelled;
        h->callbacks--;
        if (stop) {
            cancelled = true;
            hearth_cancel(h, id, NULL);
        }
        hearth_free(ev.body.any);
        queued = true; /* a blocking call that on_event made may have queued some */
    }
    hearth_cancel(h, id, NULL); /* fails harmlessly where the request is not a generation */
    stream_abandon(h, id);
    hearth_io(h, HEARTH_WRITE,
              NULL); /* the caller may make no further call for long, and the generation would run on */
    return timed_out(e);
}

static int call(struct hearth *h, int method, const void *params, hearth_on_event *on_event, void *arg, void *out,
                const struct timespec *timeout, struct hearth_err *e)
{
    uint32_t id, *deferred = h->deferred;
    h->deferred = NULL;
    int rc = stream_submit(h, &wire_methods[method], params, NULL, &id, e);
    if (!rc && deferred)
        *deferred = id;
    return rc || deferred ? rc : await(h, id, on_event, arg, conn_deadline(timeout), out, e);
}

void hearth_defer(struct hearth *h, uint32_t *request)
{
    h->deferred = request;
}

int hearth_run(struct hearth *h, const struct hearth_generate *g, hearth_on_event *on_event, void *arg,
               const struct timespec *timeout, struct hearth_generate_result **out, struct hearth_err *e)
{
    uint32_t id;
    int rc = hearth_submit(h, g, &id, e);
    return rc ? rc : await(h, id, on_event, arg, conn_deadline(timeout), out, e);
}

int hearth_measure(struct hearth *h, const struct hearth_generate *g, struct hearth_measured **out,
                   const struct timespec *timeout, struct hearth_err *e)
{
    uint32_t id;
    int rc = stream_measure(h, g, &id, e);
    return rc ? rc : await(h, id, NULL, NULL, conn_deadline(timeout), out, e);
}

int hearth_hello(struct hearth *h, struct hearth_hello_result **out, const struct timespec *timeout,
                 struct hearth_err *e)
{
    int64_t deadline = conn_deadline(timeout);
    if (h->dead.code)
        return conn_die_as(h, e, &h->dead);
    int rc = stream_send_hello(h, e);
    while (!rc && !h->hello_reply.data) {
        struct hearth_event ev;
        rc = stream_pull(h, &ev, e);
        if (rc == 1) {
            rc = stream_push(h, &ev, e);
        } else if (!rc && !h->hello_reply.data) {
            rc = conn_wait(h, -1, deadline, e);
            rc = rc == HEARTH_WAIT_TIMEOUT ? timed_out(e) : rc > 0 ? 0 : rc;
        }
        if (!rc && !h->hello_reply.data && conn_is_late(deadline))
            rc = timed_out(e);
    }
    void *result = NULL;
    if (!rc)
        rc = wire_unpack(wire_methods[WIRE_HELLO].result, h->hello_reply.data, h->hello_reply.len, &result, e);
    if (!rc)
        *out = result;
    return rc;
}

static const struct wire_empty nothing;

int hearth_streams_list(struct hearth *h, bool ended, struct hearth_streams_list_result **out,
                        const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_streams_list p = {.ended = ended};
    return call(h, WIRE_STREAMS_LIST, &p, NULL, NULL, out, timeout, e);
}

/* Copies an application's params, which may be shorter or longer than this library's struct where it was compiled with
 * an older or a newer hearth.h. `full` already holds the defaults. */
static int take_params(struct hearth *h, void *full, size_t n, const void *given, size_t size, const char *method,
                       struct hearth_err *e)
{
    uint32_t *deferred = h->deferred;
    h->deferred = NULL; /* an error cancels the deferral */
    if (size < sizeof size)
        return err_set(e, HEARTH_EPARAMS, "%s: size is not set", method);
    for (size_t i = n; i < size; i++)
        if (((const char *)given)[i])
            return err_set(e, HEARTH_EUNSUPPORTED, "%s: a field newer than this libhearth is set", method);
    h->deferred = deferred;
    memcpy(full, given, size < n ? size : n);
    return 0;
}

int hearth_streams_trace(struct hearth *h, int64_t stream, struct hearth_trace_result **out,
                         const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_streams_trace p = {.stream = stream};
    return call(h, WIRE_STREAMS_TRACE, &p, NULL, NULL, out, timeout, e);
}

int hearth_sessions_list(struct hearth *h, const char *from, struct hearth_sessions_list_result **out,
                         const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_sessions_list p = {.from = from};
    return call(h, WIRE_SESSIONS_LIST, &p, NULL, NULL, out, timeout, e);
}

int hearth_sessions_list_all(struct hearth *h, const char *from, struct hearth_sessions_list_result **out,
                             const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_sessions_list p = {.from = from, .ephemeral = true};
    return call(h, WIRE_SESSIONS_LIST, &p, NULL, NULL, out, timeout, e);
}

void hearth_session_fork_init(struct hearth_session_fork *f, size_t size)
{
    struct hearth_session_fork full;
    wire_defaults(wire_methods[WIRE_SESSIONS_FORK].params, &full);
    full.size = size;
    memset(f, 0, size);
    memcpy(f, &full, size < sizeof full ? size : sizeof full);
}

int hearth_sessions_fork(struct hearth *h, const struct hearth_session_fork *f, struct hearth_forked **out,
                         const struct timespec *timeout, struct hearth_err *e)
{
    struct hearth_session_fork full;
    wire_defaults(wire_methods[WIRE_SESSIONS_FORK].params, &full);
    int rc = take_params(h, &full, sizeof full, f, f->size, "sessions.fork", e);
    return rc ? rc : call(h, WIRE_SESSIONS_FORK, &full, NULL, NULL, out, timeout, e);
}

int hearth_sessions_adopt(struct hearth *h, const char *session, bool replace, struct hearth_adopted **out,
                          const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_session_adopt p = {.session = session, .replace = replace};
    return call(h, WIRE_SESSIONS_ADOPT, &p, NULL, NULL, out, timeout, e);
}

int hearth_sessions_show(struct hearth *h, const char *session, bool tokens, struct hearth_session_show_result **out,
                         const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_session_ref p = {.session = session, .tokens = tokens};
    return call(h, WIRE_SESSIONS_SHOW, &p, NULL, NULL, out, timeout, e);
}

int hearth_sessions_rename(struct hearth *h, const char *session, const char *name, const struct timespec *timeout,
                           struct hearth_err *e)
{
    struct wire_session_rename p = {.session = session, .name = name};
    return call(h, WIRE_SESSIONS_RENAME, &p, NULL, NULL, NULL, timeout, e);
}

int hearth_sessions_remove(struct hearth *h, const char *session, const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_session_ref p = {.session = session};
    return call(h, WIRE_SESSIONS_REMOVE, &p, NULL, NULL, NULL, timeout, e);
}

int hearth_sessions_pin(struct hearth *h, const char *session, bool pinned, const struct timespec *timeout,
                        struct hearth_err *e)
{
    struct wire_session_pin p = {.session = session, .pinned = pinned};
    return call(h, WIRE_SESSIONS_PIN, &p, NULL, NULL, NULL, timeout, e);
}

int hearth_sessions_export(struct hearth *h, const char *session, int64_t from, struct hearth_session_page **out,
                           const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_session_export p = {.session = session, .from = from};
    return call(h, WIRE_SESSIONS_EXPORT, &p, NULL, NULL, out, timeout, e);
}

int hearth_sessions_import(struct hearth *h, const struct hearth_session_import *page, struct hearth_imported **out,
                           const struct timespec *timeout, struct hearth_err *e)
{
    struct hearth_session_import full = {0};
    int rc = take_params(h, &full, sizeof full, page, page->size, "sessions.import", e);
    return rc ? rc : call(h, WIRE_SESSIONS_IMPORT, &full, NULL, NULL, out, timeout, e);
}

void hearth_session_import_init(struct hearth_session_import *page, size_t size)
{
    struct hearth_session_import full;
    wire_defaults(wire_methods[WIRE_SESSIONS_IMPORT].params, &full);
    full.size = size;
    memset(page, 0, size);
    memcpy(page, &full, size < sizeof full ? size : sizeof full);
}

void hearth_render_init(struct hearth_render *r, size_t size)
{
    struct hearth_render full;
    wire_defaults(wire_methods[WIRE_RENDER].params, &full);
    full.size = size;
    memset(r, 0, size);
    memcpy(r, &full, size < sizeof full ? size : sizeof full);
}

int hearth_render(struct hearth *h, const struct hearth_render *r, struct hearth_render_result **out,
                  const struct timespec *timeout, struct hearth_err *e)
{
    struct hearth_render full;
    wire_defaults(wire_methods[WIRE_RENDER].params, &full);
    int rc = take_params(h, &full, sizeof full, r, r->size, "render", e);
    return rc ? rc : call(h, WIRE_RENDER, &full, NULL, NULL, out, timeout, e);
}

int hearth_backup(struct hearth *h, const char *path, bool replace, struct hearth_backup_result **out,
                  const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_backup p = {.path = path, .replace = replace};
    return call(h, WIRE_BACKUP, &p, NULL, NULL, out, timeout, e);
}

int hearth_models_list(struct hearth *h, struct hearth_models_list_result **out, const struct timespec *timeout,
                       struct hearth_err *e)
{
    struct wire_models_list p = {.details = false};
    return call(h, WIRE_MODELS_LIST, &p, NULL, NULL, out, timeout, e);
}

int hearth_models_details(struct hearth *h, struct hearth_models_list_result **out, const struct timespec *timeout,
                          struct hearth_err *e)
{
    struct wire_models_list p = {.details = true};
    return call(h, WIRE_MODELS_LIST, &p, NULL, NULL, out, timeout, e);
}

int hearth_models_show(struct hearth *h, const char *model, struct hearth_model **out, const struct timespec *timeout,
                       struct hearth_err *e)
{
    struct wire_model_show p = {.model = model};
    return call(h, WIRE_MODELS_SHOW, &p, NULL, NULL, out, timeout, e);
}

int hearth_models_ops(struct hearth *h, const char *model, struct hearth_model **out, const struct timespec *timeout,
                      struct hearth_err *e)
{
    struct wire_model_show p = {.model = model, .ops = true};
    return call(h, WIRE_MODELS_SHOW, &p, NULL, NULL, out, timeout, e);
}

int hearth_models_load(struct hearth *h, const char *model, hearth_on_event *on_event, void *arg,
                       const struct timespec *timeout, struct hearth_model_load_result **out, struct hearth_err *e)
{
    struct wire_model_ref p = {.model = model};
    return call(h, WIRE_MODELS_LOAD, &p, on_event, arg, out, timeout, e);
}

int hearth_models_unload(struct hearth *h, const char *model, const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_model_ref p = {.model = model};
    return call(h, WIRE_MODELS_UNLOAD, &p, NULL, NULL, NULL, timeout, e);
}

int hearth_models_pin(struct hearth *h, const char *model, bool pinned, hearth_on_event *on_event, void *arg,
                      const struct timespec *timeout, struct hearth_model_load_result **out, struct hearth_err *e)
{
    struct wire_model_pin p = {.model = model, .pinned = pinned};
    return call(h, WIRE_MODELS_PIN, &p, on_event, arg, out, timeout, e);
}

int hearth_models_pass(struct hearth *h, const char *path, const struct timespec *timeout, struct hearth_err *e)
{
    int64_t deadline = conn_deadline(timeout); /* of the whole call, however many files there are */
    uint32_t *ids;
    size_t n;
    int rc = pass_all(h, path, &ids, &n, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        if (rc)
            stream_abandon(h, ids[i]);
        else
            rc = await(h, ids[i], NULL, NULL, deadline, NULL, e);
    free(ids);
    return rc;
}

int hearth_status(struct hearth *h, struct hearth_status_result **out, const struct timespec *timeout,
                  struct hearth_err *e)
{
    return call(h, WIRE_STATUS, &nothing, NULL, NULL, out, timeout, e);
}

int hearth_yield(struct hearth *h, int64_t bytes, bool all, double seconds, const struct timespec *timeout,
                 struct hearth_yield_result **out, struct hearth_err *e)
{
    struct wire_yield p = {.bytes = bytes, .all = all, .seconds = seconds};
    return call(h, WIRE_YIELD, &p, NULL, NULL, out, timeout, e);
}

int hearth_shutdown(struct hearth *h, bool now, const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_shutdown p = {.now = now};
    return call(h, WIRE_SHUTDOWN, &p, NULL, NULL, NULL, timeout, e);
}

int hearth_tokenize(struct hearth *h, const char *model, struct hearth_bytes text, bool special, int bos,
                    struct hearth_tokenize_result **out, const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_tokenize p = {.model = model, .text = text, .special = special, .bos = bos};
    return call(h, WIRE_TOKENIZE, &p, NULL, NULL, out, timeout, e);
}

int hearth_detokenize(struct hearth *h, const char *model, struct hearth_ids tokens,
                      struct hearth_detokenize_result **out, const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_detokenize p = {.model = model, .tokens = tokens};
    return call(h, WIRE_DETOKENIZE, &p, NULL, NULL, out, timeout, e);
}

int hearth_eval(struct hearth *h, const char *model, struct hearth_ids tokens, int64_t top, int64_t greedy,
                struct hearth_eval_result **out, const struct timespec *timeout, struct hearth_err *e)
{
    struct wire_eval p = {.model = model, .tokens = tokens, .top = top, .greedy = greedy};
    return call(h, WIRE_EVAL, &p, NULL, NULL, out, timeout, e);
}
