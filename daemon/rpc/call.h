/*
 * call.h - a request that has not been answered yet. Loop thread.
 *
 * Its handler answers at once or later, in any order; answering frees the call. When the peer disconnects, the call
 * stays: it loses its connection, its handler is notified (on_disconnect), and the answer is discarded once the work is
 * done.
 */
#ifndef DAEMON_CALL_H
#define DAEMON_CALL_H

#include "daemon/rpc/conn.h"
#include "daemon/stream/subscriber.h"
#include "daemon/trace.h"

struct call {
    struct server *server;
    struct conn *conn;       /* NULL once the peer has disconnected */
    struct account *account; /* of the peer's uid; it outlives the connection */
    uint32_t id;
    double arrived;       /* by server_boot() */
    bool is_notification; /* it has no message id: it is answered by stream.end or stream.error, or not at all */
    char *request;        /* the request id in those events; NULL: nothing answers it */
    const struct wire_method *method;
    void *params;                   /* unpacked; wire_free */
    void (*run)(struct call *call); /* the method's handler */
    void (*on_disconnect)(struct call *call);
    void *arg;             /* for the handler's use */
    struct subscriber sub; /* subscription to the stream whose result answers the call: subscription.c */

    /* For a call in server->forwards: forward.c. */
    const char *model; /* as the client named it */
    char *path;        /* its file; NULL: the call is not in the list */
    char *name;        /* its name in models.list; NULL when out of memory */
    void (*finish)(struct call *call, void *result);
    struct engine_client *engine; /* the engine that it was forwarded to */
    char *where;                  /* its device, if that needs another name than the engine's own; NULL */
    bool is_retry;                /* it was forwarded before, to an engine that was lost */

    /* For a generation that waits. */
    struct timer *late; /* fails it at its deadline; NULL: it has none */
    uint64_t hash;      /* journal_hash() of it */

    /* For a call in server->waiters: takeover.c. */
    int64_t after_stream; /* number of the stream whose end it awaits */
    /* For a generation in server->queue: queue.c. */
    size_t bytes;           /* of its frame */
    int64_t queue_position; /* the position last reported to the peer */
    double queued;          /* when it was queued, by server_boot() */
    int64_t wants;          /* number of streams that it starts; 0: one */
    bool has_waited;        /* it has left the queue, and goes first */
    bool has_stream;        /* another call with its request id has begun: it needs no room */
    bool cancel_requested;  /* cancel its generation as soon as it has begun */
    TAILQ_ENTRY(call) entry, forward_entry, waiter_entry;
};

/* Takes ownership of the parameters; NULL when out of memory, and then they stay the caller's. */
struct call *call_new(struct conn *c, uint32_t id, const struct wire_method *m, void *params);

/* The same for a notification; `request` is copied. */
struct call *call_new_notified(struct conn *c, const char *request, const struct wire_method *m, void *params);

/* Reports to the peer why its notification is refused: by stream.error if it has a request id, else by a notice. */
void notification_fail(struct conn *c, const char *request, const struct hearth_err *e);

/* The ways to end a call; each frees it. */
void call_reply(struct call *call, const void *result);
void call_reply_packed(struct call *call, const struct wire_bytes *result); /* for a request, not a notification */
void call_fail(struct call *call, const struct hearth_err *e);

/* The connection's number, by which the engine shares its time among clients; 0 if the peer has disconnected. */
int64_t call_client(const struct call *call);

/* For a generation that waits to begin: `late` is called, with the call, when its deadline is over, unless it has none.
 * HEARTH_ENOMEM. Once it has begun, the stream counts the time that it has waited. */
int call_set_deadline(struct call *call, void (*late)(void *arg), struct hearth_err *e);
void call_clear_deadline(struct call *call);
/* Fails it with HEARTH_ECANCELLED, and with what it waited for. */
void call_fail_late(struct call *call, const char *waited_for);

/* Traces a stage of a request, for which a call need not exist yet. */
void trace_request(enum trace_stage stage, const char *word, const struct conn *c, uint32_t id);

/* Detaches the call from its connection, which is lost. */
void call_disconnect(struct call *call);

/* Runs the handler once more, as if the call had just arrived; for a call that was forwarded or has waited. */
void call_retry(struct call *call);

#endif
