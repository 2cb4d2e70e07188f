/* events.c - handles each event of the device thread, for its request or as an event of the link. Thread: the
 * loop's. */
#include "config.h"

#include "daemon/engine/front/rpc.h"

#include <stdio.h>

static void on_model_event(struct rpc_server *s, const struct event_model *ev)
{
    if (ev->ev.kind == EV_PROGRESS) {
        struct wire_model_progress body = {.model = ev->model->path,
                                           .done = (int64_t)ev->done,
                                           .total = (int64_t)ev->total,
                                           .host_bytes = (int64_t)atomic_load(&ev->model->host_bytes),
                                           .speed = atomic_load(&ev->model->speed)};
        serve_event(s, &wire_methods[WIRE_MODEL_PROGRESS], &body);
        return;
    }
    struct request *r = ev->owner;
    if (!r) {                           /* requested by generate_opened() or on_wake(), not by hearthd */
        if (ev->ev.kind == EV_UNLOADED) /* by on_wake(): the entry may be freed with its last reference */
            ev->model->replaced = true;
        models_put(&s->models, ev->model);
        return;
    }
    if (ev->err.code) {
        serve_error(s, r->rpc_id, &ev->err);
    } else {
        bool gpu = atomic_load(&ev->model->on_gpu), loaded = atomic_load(&ev->model->loaded); /* unpinned: maybe not */
        const char *check = atomic_load(&ev->model->self_check);
        struct wire_model_load_result res = {
            .model = ev->model->path,
            .path = ev->model->path,
            .load_ms = 1e3 * ev->seconds,
            .was_loaded = ev->was_loaded,
            .where = loaded ? status_where(gpu) : NULL,
            .no_gpu = gpu     ? NULL
                      : check ? check
                              : engine_no_gpu(s->engine),
            .slow = status_slow_ops(ev->model),
            .bytes = loaded ? status_weights_held(ev->model) : 0,
            .host_bytes = loaded ? (int64_t)atomic_load(&ev->model->host_bytes) : 0,
            .speed = loaded ? atomic_load(&ev->model->speed) : 0,
        };
        struct wire_empty empty = {0};
        serve_result(s, r->rpc_id, r->method, ev->ev.kind == EV_LOADED ? (const void *)&res : &empty);
    }
    request_free(s, r);
}

static void on_kv(struct rpc_server *s, const struct event_kv *ev)
{
    const struct tier_event *what = &ev->what;
    char fingerprint[17];
    snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)what->fingerprint);
    struct wire_engine_kv_saved saved = {
        ev->file,
        fingerprint,
        what->uid,
        (int64_t)what->bytes,
        what->tokens,
        what->pos,
        ev->label[0] ? ev->label : NULL,
        what->stream,
    };
    switch (what->kind) {
    case TIER_SAVED:
        serve_event(s, &wire_methods[WIRE_ENGINE_KV_SAVED], &saved);
        break;
    case TIER_USED:
        serve_event(s, &wire_methods[WIRE_ENGINE_KV_USED], &(struct wire_engine_kv_used){ev->file});
        break;
    case TIER_BAD:
        serve_event(s, &wire_methods[WIRE_ENGINE_KV_BAD], &(struct wire_engine_kv_bad){ev->file, ev->why});
        break;
    }
}

static void on_yielded(struct rpc_server *s, const struct event_yield *ev)
{
    uint32_t rpc_id = (uint32_t)(uintptr_t)ev->owner;
    struct wire_engine_yield_result res = {
        .freed = (int64_t)ev->freed, .free = (int64_t)ev->free, .held = (int64_t)ev->held};
    if (ev->holds)
        res.why = ev->err.code ? ev->err.msg : NULL;
    if (ev->err.code && !ev->holds)
        serve_error(s, rpc_id, &ev->err);
    else
        serve_result(s, rpc_id, &wire_methods[WIRE_ENGINE_YIELD], &res);
}

static void on_parked(struct rpc_server *s, const struct event_parked *ev)
{
    const struct request *r = ev->owner;
    if (r->msg) /* it belongs to a stream */
        serve_event(
            s, &wire_methods[WIRE_ENGINE_PARKED],
            &(struct wire_engine_parked){.stream = r->msg->stream, .parked = ev->parked, .yielded = ev->yielded});
}

void events_serve(struct rpc_server *s, struct engine_event *ev)
{
    switch (ev->kind) {
    case EV_ADMIT:
        generate_admitted(s, ((const struct event_admit *)ev)->owner);
        break;
    case EV_PROMPT:
        generate_progress(s, (const struct event_prompt *)ev);
        break;
    case EV_STEP: {
        const struct event_step *st = (const struct event_step *)ev;
        for (uint32_t i = 0; i < st->n; i++)
            generate_token(s, st->token[i].owner, &st->token[i]);
        break;
    }
    case EV_END: {
        struct event_end *end = (struct event_end *)ev;
        generate_end(s, end->owner, end);
        break;
    }
    case EV_PROGRESS:
    case EV_LOADED:
    case EV_UNLOADED:
        on_model_event(s, (const struct event_model *)ev);
        break;
    case EV_FREED:
        models_drop_gone(&s->models); /* its file may have been deleted or replaced meanwhile */
        break;
    case EV_KV:
        on_kv(s, (const struct event_kv *)ev);
        break;
    case EV_FINISHED:
        serve_result(s, s->stop_id, &wire_methods[WIRE_ENGINE_SHUTDOWN], &(struct wire_empty){0});
        frame_conn_stop(s->conn);
        break;
    case EV_YIELDED:
        on_yielded(s, (const struct event_yield *)ev);
        break;
    case EV_PARKED:
        on_parked(s, (const struct event_parked *)ev);
        break;
    case EV_IDLE:
        if (TAILQ_EMPTY(&s->requests))
            serve_event(s, &wire_methods[WIRE_ENGINE_IDLE], &(struct wire_empty){0});
        break;
    case EV_RELIEVED:
        serve_event(s, &wire_methods[WIRE_ENGINE_RELIEVED], &(struct wire_empty){0});
        break;
    case EV_FATAL:
        s->fatal = ((const struct event_fatal *)ev)->err;
        frame_conn_stop(s->conn);
        break;
    }
}
