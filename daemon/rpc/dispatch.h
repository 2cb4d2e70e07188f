/*
 * dispatch.h - from frames to handlers: the method table, calls, and the engine's events. Loop thread.
 *
 * A call is a request that has not been answered. Its handler answers at once or later, in any order; answering frees
 * it. A peer that goes away takes nothing with it: the call loses its connection, is told (on_disconnect) and is
 * answered into the void when its work is done.
 */
#ifndef DAEMON_DISPATCH_H
#define DAEMON_DISPATCH_H

#include "daemon/rpc/conn.h"

struct call {
    struct server *server;
    struct conn *conn;       /* NULL once the peer has gone */
    struct account *account; /* whose request it is; outlives the connection */
    uint32_t id;
    const struct wire_method *method;
    void *params; /* unpacked */
    void (*on_disconnect)(struct call *call);
    void *arg;                                       /* the handler's */
    const char *model;                               /* what a forwarded call is about, as the client named it, ... */
    char *path;                                      /* ... and its path: the call is on server->forwards (forward.c) */
    char *name;                                      /* the name that models.list gives it; NULL without memory */
    void (*finish)(struct call *call, void *result); /* of a forwarded call */
    bool is_retry;                                   /* it was forwarded before, to a device that was lost */
    int64_t after_stream;                            /* a stream whose end this waits for on server->heirs, ... */
    void (*resume)(struct call *call);               /* ... and what is done then (takeover.c) */
    bool cancel_requested;                           /* and cancelled at once: it was, while it waited */
    TAILQ_ENTRY(call) entry, forward_entry, waiter_entry;
};

/* A whole frame from a client. */
void dispatch_frame(struct conn *c, const struct wire_frame *f);

/* A call that was forwarded goes to its handler once more, as if it had just come. */
void dispatch_retry(struct call *call);

/* An event from the engine. */
void dispatch_engine_event(struct server *s, const struct wire_method *m, const void *body);

/* The two ends of a call: both free it. */
void call_reply(struct call *call, const void *result);
void call_fail(struct call *call, const struct hearth_err *e);

/* The peer has gone. */
void call_disconnect(struct call *call);

/* The handlers, one family per msg-*.c. */
void msg_hello(struct call *call);
void msg_generate(struct call *call);
void msg_cancel(struct call *call);
void msg_stream_attach(struct call *call);
void msg_sessions_list(struct call *call);
void msg_sessions_show(struct call *call);
void msg_sessions_rename(struct call *call);
void msg_sessions_remove(struct call *call);
void msg_sessions_pin(struct call *call);
void msg_sessions_export(struct call *call);
void msg_sessions_import(struct call *call);
void msg_backup(struct call *call);
void msg_models_list(struct call *call);
void msg_models_show(struct call *call);
void msg_models_load(struct call *call);
void msg_models_unload(struct call *call);
void msg_tokenize(struct call *call);
void msg_detokenize(struct call *call);
void msg_eval(struct call *call);
void msg_status(struct call *call);
void msg_shutdown(struct call *call);
void msg_on_model_progress(struct server *s, const void *body);
void msg_on_kv_saved(struct server *s, const void *body);
void msg_on_kv_used(struct server *s, const void *body);
void msg_on_kv_bad(struct server *s, const void *body);

#endif
