/*
 * conn.h - inside of libhearth: the connection and what conn.c (io), stream.c and run.c tell each other.
 * Owner: the application; one thread at a time.
 */
#ifndef HEARTH_CONN_H
#define HEARTH_CONN_H

#include "libclient/frames.h"

/* A request that waits for its answer, and the stream that it became. */
struct pending {
    struct pending *next;
    const struct wire_method *method;
    uint32_t id;
    int64_t stream; /* of a generation: -1 until it begins */
    bool dropped;   /* nobody waits any longer: its events and its answer are thrown away */
    char request[]; /* of a generation: its request id */
};

/* An event that came while a blocking call waited for another. */
struct queued {
    struct queued *next;
    struct hearth_event ev;
};

struct hearth {
    int fd;
    struct hearth_err dead; /* the error that ended the connection; code 0 while it lives */

    struct frames frames; /* the socket is read only while there is no complete frame at the front */

    char client[64];
    bool hello_sent;             /* hello is on its way */
    struct wire_buf hello_reply; /* hello's result, packed */
    uint32_t last_id;
    uint64_t salt; /* of the request ids we make */

    struct pending *pending;
    struct queued *queue, **queue_tail;
    void *body; /* of the event that hearth_next() gave last */
};

/* --- conn.c */

/* Ends the connection with this error; returns its code. */
int conn_die(struct hearth *h, struct hearth_err *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Ends it with an error that somebody else worded. */
int conn_die_as(struct hearth *h, struct hearth_err *e, const struct hearth_err *why);

/* Steps over the frame at the front of the input, and looks whether the next one is complete. */
int conn_drop(struct hearth *h, struct hearth_err *e);

/* The moment `timeout` from now, and a wait for traffic until then (-1: for ever); returns as hearth_wait(). */
int64_t conn_deadline(const struct timespec *timeout);
int conn_wait(struct hearth *h, int fd, int64_t deadline, struct hearth_err *e);

/* --- stream.c */

/* Queues a request (after the greeting, where none was sent). `request` is a generation's request id, else NULL. */
int stream_submit(struct hearth *h, const struct wire_method *m, const void *params, const char *request, uint32_t *id,
                  struct hearth_err *e);
int stream_send_hello(struct hearth *h, struct hearth_err *e);

/* Takes the next event from the input, not from the queue: 1, 0 for none, or the connection's error. The body is the
 * caller's. The answer to any request comes as HEARTH_EVENT_DONE or _ERROR. */
int stream_pull(struct hearth *h, struct hearth_event *ev, struct hearth_err *e);

/* Keeps an event for hearth_next(); takes its body. */
int stream_push(struct hearth *h, const struct hearth_event *ev, struct hearth_err *e);

/* Lets a request's answer and events be thrown away when they come. */
void stream_abandon(struct hearth *h, uint32_t id);

#endif
