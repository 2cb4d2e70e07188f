/*
 * conn.h - the connection inside libhearth, and the interfaces of its three layers: conn.c (io), stream.c (requests and
 * events) and run.c (blocking calls). Owner: the application, which uses it from one thread at a time.
 */
#ifndef HEARTH_CONN_H
#define HEARTH_CONN_H

#include <time.h>

#include "libclient/frames.h"

/* A request that is not answered yet, and the streams that it started. */
struct pending {
    struct pending *next;
    const struct wire_method *method;
    uint32_t id;
    int64_t stream;                       /* the number of a generation's stream, -1 until it begins */
    int64_t others[WIRE_CHOICES_MAX - 1]; /* with several choices, the streams of the other choices */
    size_t n_others;
    bool several;   /* the request has several choices, each a stream */
    bool by_path;   /* it names a model by a path, whose files are passed where necessary */
    bool dropped;   /* abandoned by its caller: its events and its answer are discarded */
    char request[]; /* the request id of a generation, else empty */
};

/* An event that arrived while a blocking call waited for another. */
struct queued {
    struct queued *next;
    bool nested; /* it arrived during a call that an on_event made */
    struct hearth_event ev;
};

/* A model that was passed, with the state of its file at that time: if the path leads to another file, or to a changed
 * one, it is passed again. */
struct passed_model {
    char *path; /* NULL: unused entry */
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
    struct wire_buf hello_reply; /* the result of hello, still packed */
    uint32_t last_id;
    uint64_t salt; /* prefix of the request ids that the library makes up */

    struct pending *pending;
    struct queued *queue, **queue_tail;
    unsigned callbacks; /* number of on_event callbacks that are running, one within the other */
    uint32_t *deferred; /* where the next call of the run layer stores its number, without waiting; NULL: it waits */
    bool passes;        /* the daemon runs as another user: models named by paths are passed to it (pass.c) */
    struct passed_model passed[PASSED_KEPT];
    size_t n_passed;
    struct hearth_err pass_err; /* why the last model could not be passed; code 0: it could */
    void *body;                 /* body of the event that hearth_next() returned last; owned here */
};

/* --- conn.c */

/* Ends the connection with this error; returns its code. */
int conn_die(struct hearth *h, struct hearth_err *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Ends the connection with an error that another function has filled in; returns its code. */
int conn_die_as(struct hearth *h, struct hearth_err *e, const struct hearth_err *why);

/* Ends the connection because of a frame that could not be read, for the reason that was given; returns its code. The
 * daemon is at fault, except where this process has no memory for the frame. */
int conn_die_unread(struct hearth *h, struct hearth_err *e, const struct hearth_err *why);

/* Drops the frame at the front of the input, and checks whether the next one is complete. */
int conn_drop(struct hearth *h, struct hearth_err *e);

/* conn_deadline() is the time `timeout` from now on the monotonic clock, in ns, or -1 for no timeout; conn_wait() waits
 * for traffic until then and returns as hearth_wait() does. It returns HEARTH_WAIT_IO for traffic after the deadline,
 * too: a loop that waits for more than that asks conn_is_late() whether the deadline has passed. */
int64_t conn_deadline(const struct timespec *timeout);
bool conn_is_late(int64_t deadline);
int conn_wait(struct hearth *h, int fd, int64_t deadline, struct hearth_err *e);

/* --- pass.c */

/* Returns whether the daemon at the other end runs as another user. */
bool pass_is_needed(int fd);

/* Passes the files of the model that the params name by a path, unless they were passed already; *by_path is set where
 * the params name one so. A model that cannot be passed is no error here, because hearthd may have it in a directory of
 * its own: the reason is kept in h->pass_err. Returns 0, or the error that ended the connection. */
int pass_before(struct hearth *h, const struct wire_method *m, const void *params, bool *by_path);
void pass_forget(struct hearth *h); /* forgets what was passed, so that models are passed again */

/* Passes all files of a model; *ids receives the *n numbers of the requests, malloc'd. An error of a file is an error
 * of this function. */
int pass_all(struct hearth *h, const char *path, uint32_t **ids, size_t *n, struct hearth_err *e);

/* --- stream.c */

/* Packs a request, and the hello ahead of the first one. `request` is the request id of a generation, else NULL. */
int stream_submit(struct hearth *h, const struct wire_method *m, const void *params, const char *request, uint32_t *id,
                  struct hearth_err *e);
int stream_send_hello(struct hearth *h, struct hearth_err *e);

/* Takes the next event from the input, not from the queue: returns 1, 0 for none, or the connection's error. The caller
 * frees the body. The answer to any request is an event too, HEARTH_EVENT_DONE or HEARTH_EVENT_ERROR. */
int stream_pull(struct hearth *h, struct hearth_event *ev, struct hearth_err *e);

/* Queues an event for hearth_next() and takes ownership of its body, also on failure. */
int stream_push(struct hearth *h, const struct hearth_event *ev, struct hearth_err *e);

/* Takes the first event of request `id` from the queue or, with `nested`, of no request that arrived during a call that
 * an on_event made; false for none. The caller frees the body. */
bool stream_unqueue(struct hearth *h, uint32_t id, bool nested, struct hearth_event *ev);

/* Submits a dry generate, which only asks what a generation would cost; the answer is a wire_measured. */
int stream_measure(struct hearth *h, const struct hearth_generate *g, uint32_t *id, struct hearth_err *e);

/* Returns whether another request than `id` is not answered yet, and not abandoned. */
bool stream_has_other(const struct hearth *h, uint32_t id);

/* Abandons a request: its answer and its events are discarded, those that are queued and those that will arrive. */
void stream_abandon(struct hearth *h, uint32_t id);

#endif
