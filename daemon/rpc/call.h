/*
 * call.h - a request that has not been answered. Loop thread.
 *
 * Its handler answers at once or later, in any order; answering frees it. A peer that goes away takes nothing with it:
 * the call loses its connection, its handler is told (on_disconnect), and it is answered into the void when its work is
 * done.
 */
#ifndef DAEMON_CALL_H
#define DAEMON_CALL_H

#include "daemon/rpc/conn.h"
#include "daemon/stream/subscriber.h"
#include "daemon/trace.h"

struct call {
    struct server *server;
    struct conn *conn;       /* NULL once the peer has gone */
    struct account *account; /* of the peer's uid; outlives the connection */
    uint32_t id;
    bool is_notification; /* it has no id: stream.end or stream.error answer it, or nothing does */
    char *request;        /* what those events name; NULL: nothing answers it */
    const struct wire_method *method;
    void *params;                   /* unpacked; wire_free */
    void (*run)(struct call *call); /* the method's handler */
    void (*on_disconnect)(struct call *call);
    void *arg;             /* the handler's */
    struct subscriber sub; /* to a stream whose result is its answer: subscription.c */

    /* While it is on server->forwards: forward.c. */
    const char *model; /* what it is about, as the client named it */
    char *path;        /* the same as a file; NULL: it is not on the list */
    char *name;        /* the same as models.list names it; NULL without memory */
    void (*finish)(struct call *call, void *result);
    struct engine_client *engine; /* that it was forwarded to */
    char *where;                  /* its device, where the engine has another name for it */
    bool is_retry;                /* it was asked of an engine before that was lost */

    /* While it is on server->waiters: takeover.c. */
    int64_t after_stream; /* number of the stream whose end it waits for */
    /* Of a generation that waits on server->queue: queue.c. */
    size_t bytes;           /* of its frame */
    int64_t queue_position; /* that its peer was told */
    struct timer *late;     /* ends it at its deadline; NULL: it has none */
    double queued;          /* since when it waits, by server_boot() */
    int64_t wants;          /* streams that it begins; 0: one */
    bool has_waited;        /* and goes first now */
    bool cancel_requested;  /* its generation is to be cancelled as soon as it has begun */
    TAILQ_ENTRY(call) entry, forward_entry, waiter_entry;
};

/* Takes the parameters; NULL without memory. */
struct call *call_new(struct conn *c, uint32_t id, const struct wire_method *m, void *params);

/* The same of a notification; `request` is copied. */
struct call *call_new_notified(struct conn *c, const char *request, const struct wire_method *m, void *params);

/* Tells the peer why its notification is refused: by stream.error where it has a request, else by a notice. */
void notification_fail(struct conn *c, const char *request, const struct hearth_err *e);

/* The ends of a call: each frees it. */
void call_reply(struct call *call, const void *result);
void call_reply_packed(struct call *call, const struct wire_bytes *result); /* of a request, not of a notification */
void call_fail(struct call *call, const struct hearth_err *e);

/* The connection's number, by which clients take turns in the engine; 0 where the peer has gone. */
int64_t call_client(const struct call *call);

/* A line of the trace about a request, which is a call or none yet. */
void trace_request(enum trace_stage stage, const char *word, const struct conn *c, uint32_t id);

/* The peer has gone. */
void call_disconnect(struct call *call);

/* A call that was forwarded goes to its handler once more, as if it had just come. */
void call_retry(struct call *call);

#endif
