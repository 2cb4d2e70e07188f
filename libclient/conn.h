/*
 * conn.h - the connection inside libhearth, and the interfaces of its three layers: conn.c (io), stream.c (requests and
 * events) and run.c (blocking calls). Owner: the application, which uses it from one thread at a time.
 */
#ifndef HEARTH_CONN_H
#define HEARTH_CONN_H

#include <time.h>

#include "libclient/frames.h"

/* A pending request, and the stream that it began. */
struct pending {
    struct pending *next;
    const struct wire_method *method;
    uint32_t id;
    int64_t stream;                       /* the number of a generation's stream, -1 until it begins */
    int64_t others[WIRE_CHOICES_MAX - 1]; /* of a generation of several choices, those of the other ones */
    size_t n_others;
    bool several;   /* its request has several streams */
    bool by_path;   /* it names a model by a path, which is passed where it has to be */
    bool dropped;   /* abandoned by its caller: its events and its answer are thrown away */
    char request[]; /* the request id of a generation, else empty */
};

/* An event that arrived while a blocking call waited for another. */
struct queued {
    struct queued *next;
    struct hearth_event ev;
};

/* A model that was passed, as its file was then: another one of that path is passed anew. */
struct passed_model {
    char *path; /* NULL: none */
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
};
enum { PASSED_KEPT = 16 };

struct hearth {
    int fd;
    struct hearth_err dead; /* the error that ended the connection; code 0 while it lives */

    struct frames frames; /* the socket is read only while there is no complete frame at the front */

    char client[64];
    bool hello_sent;             /* the hello was packed, ahead of the first request */
    struct wire_buf hello_reply; /* hello's result, still packed */
    uint32_t last_id;
    uint64_t salt; /* begins the request ids that the library makes up */

    struct pending *pending;
    struct queued *queue, **queue_tail;
    uint32_t *deferred; /* where the next call of the run layer leaves its number, and does not wait; NULL: it waits */
    bool passes;        /* the daemon is another user's: models named by paths are passed to it, pass.c */
    struct passed_model passed[PASSED_KEPT];
    size_t n_passed;
    struct hearth_err pass_err; /* why the last model could not be passed; code 0: it was */
    void *body;                 /* body of the event that hearth_next() returned last */
};

/* --- conn.c */

/* Ends the connection with this error; returns its code. */
int conn_die(struct hearth *h, struct hearth_err *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Ends the connection with an error that another function worded; returns its code. */
int conn_die_as(struct hearth *h, struct hearth_err *e, const struct hearth_err *why);

/* Drops the frame at the front of the input, and checks whether the next one is complete. */
int conn_drop(struct hearth *h, struct hearth_err *e);

/* conn_deadline() is the time `timeout` from now on the monotonic clock, in ns, or -1 for no timeout; conn_wait() waits
 * for traffic until then and returns as hearth_wait() does. */
int64_t conn_deadline(const struct timespec *timeout);
int conn_wait(struct hearth *h, int fd, int64_t deadline, struct hearth_err *e);

/* --- pass.c */

/* Whether the daemon at the other end is another user's. */
bool pass_is_needed(int fd);

/* Passes the model that the params name by a path, where it was not passed yet. What cannot be passed is no error, but
 * in h->pass_err: hearthd may have the model in a folder of its own. */
int pass_before(struct hearth *h, const struct wire_method *m, const void *params, bool *by_path);
void pass_forget(struct hearth *h); /* models are passed again */

/* Passes all files of a model; *ids are the requests, malloc'd. */
int pass_all(struct hearth *h, const char *path, uint32_t **ids, size_t *n, struct hearth_err *e);

/* --- stream.c */

/* Packs a request, and the hello ahead of the first one. `request` is the request id of a generation, else NULL. */
int stream_submit(struct hearth *h, const struct wire_method *m, const void *params, const char *request, uint32_t *id,
                  struct hearth_err *e);
int stream_send_hello(struct hearth *h, struct hearth_err *e);

/* Takes the next event from the input, not from the queue: 1, 0 for none, or the connection's error. The body is the
 * caller's to free. The answer to any request is an event too, HEARTH_EVENT_DONE or HEARTH_EVENT_ERROR. */
int stream_pull(struct hearth *h, struct hearth_event *ev, struct hearth_err *e);

/* Queues an event for hearth_next() and takes its body. */
int stream_push(struct hearth *h, const struct hearth_event *ev, struct hearth_err *e);

/* Abandons a request: its answer and its events are thrown away when they arrive. */
/* Asks what a generation would cost; the answer is a wire_measured. */
int stream_measure(struct hearth *h, const struct hearth_generate *g, uint32_t *id, struct hearth_err *e);

void stream_abandon(struct hearth *h, uint32_t id);

#endif
