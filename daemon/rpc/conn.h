/*
 * conn.h - one peer: its credentials, and its frames in both directions. Loop thread. There is one path to disconnect,
 * conn_drop(). The memory is freed at the end of the loop's turn (conn_reap), so that functions on the stack may still
 * use it.
 *
 * Backpressure: when more than CONN_HIGH_WATER bytes are pending, the peer is throttled: its streams pause and its
 * requests are not read until fewer than CONN_LOW_WATER bytes are pending. A peer with more than conf.unsent_bytes
 * pending is dropped; the margin between the two limits is for answers that were being made when it stopped reading.
 * The minimum of conf.unsent_bytes in conf.c is high enough that a peer which reads continuously is not dropped because
 * of its streams: it covers CONN_HIGH_WATER, one piece of a stream that crosses it (stream/output.c; 0.75 MB for 1,024
 * tokens with 20 log-probabilities each), and as much again for answers.
 */
#ifndef DAEMON_RPC_CONN_H
#define DAEMON_RPC_CONN_H

#include "daemon/context.h"
#include "daemon/rpc/aside.h"
#include "daemon/supervisor/model-fds.h"
#include "libclient/frames.h"

/*
 * Scheduling of long work, which is counted in bytes: those of messages, and CONN_CPU for each second of CPU time that
 * a frame takes, because a short request may be answered from a scan of the database. A frame is expected to be long if
 * it has more than CONN_LONG bytes, or if the peer's previous one was more work than that (because its answer was a
 * session of megabytes, for example). Long frames are handled only at the beginning of a turn, one in each, that of the
 * peer that has waited longest. The work of a peer's first frame is unknown: it waits for the next turn if this one has
 * done more than CONN_LONG. Any other frame waits for the next turn if this one has done more than CONN_FULL, and goes
 * first in that.
 */
enum {
    CONN_HIGH_WATER = 256 << 10,
    CONN_LOW_WATER = 64 << 10,
    CONN_LONG = 256 << 10,
    CONN_FULL = 16 << 20,
    CONN_CPU = 128 << 20
};

struct conn;

/* Callbacks from a connection to the layer above it. */
struct conn_ops {
    void (*frame)(struct conn *c, const struct wire_frame *f); /* a complete message has arrived; it is borrowed */
    void (*has_room)(struct conn *c);                          /* the peer is no longer throttled */
    void (*lost)(struct conn *c); /* nothing more will be read from the peer; may be called twice */
};

struct conn {
    struct server *server;
    const struct conn_ops *ops;
    struct account *account;
    int64_t number;          /* from 1 on, unique in the lifetime of this hearthd */
    pid_t pid;               /* of the connected process, for the log */
    int fd;                  /* -1: the connection was dropped */
    bool hello_done;         /* the hello was answered, or another request came first */
    bool closing;            /* after an error: its input is discarded, and it is dropped at the end of that */
    int64_t n_ignored;       /* bytes of discarded input */
    const char *drop_reason; /* why it is dropped at the end of the turn, and sent nothing more; or NULL */
    bool throttled;          /* between the high watermark and the low one, see above */
    bool is_dirty;           /* on server->dirty */
    bool is_waiting;         /* on server->waiting, and not read until its turn */
    int64_t last_work;       /* the work of its last frame; -1: there was none */
    uint64_t progress_mark;  /* mark of the last model.progress event sent to it */
    char *notify_method, *notify_code; /* hello's notify_as, or NULL */

    struct frames frames;
    struct event *readable, *writable;
    struct timer *frame_timer;  /* runs while the input ends in an incomplete frame */
    struct timer *unread_timer; /* runs while output is pending and the peer reads none of it */
    int64_t bytes;              /* of both buffers, as counted in the account */

    struct call_list calls; /* unanswered ones */
    int64_t n_calls;
    struct import *import; /* the session that the peer is importing, or NULL */

    int fds[FRAMES_FDS_IN]; /* descriptors that came with the frame being handled */
    size_t n_fds;
    struct aside *aside; /* inspects such descriptors, and the peer is not read meanwhile; or NULL */
    void (*looked)(void *arg, const struct looked *l); /* receives the result; or NULL */
    void *looked_arg;
    struct model_hold hold; /* model files that the peer has passed */
    TAILQ_ENTRY(conn) entry, dirty_entry, waiting_entry;
};

/* Takes over an accepted descriptor, which is closed on failure as well. */
int conn_new(struct server *s, int fd, const struct conn_ops *ops, struct conn **out, struct hearth_err *e);

/* Disconnects the peer; its calls continue without it. `why` is logged. */
void conn_drop(struct conn *c, const char *why);

/* Pack a frame for the peer, or do nothing if it is disconnected. Frames are written at the end of the turn. */
void conn_result(struct conn *c, uint32_t id, const struct wire_method *m, const void *result);
void conn_result_packed(struct conn *c, uint32_t id, const struct wire_bytes *result);
void conn_error(struct conn *c, uint32_t id, int code, const char *msg);
/* An event that cannot be packed is the caller's with `e`; without, it ends the connection: what a client has of a
 * stream has no gaps. */
int conn_try_event(struct conn *c, const struct wire_method *m, const void *body, struct hearth_err *e);
static inline void conn_event(struct conn *c, const struct wire_method *m, const void *body)
{
    conn_try_event(c, m, body, NULL);
}

/* Has a thread (aside.h) inspect the descriptor that came with the frame being handled. `done` receives the result,
 * unless the connection is lost before; the next frame is handled after that. HEARTH_EPARAMS: no descriptor came;
 * HEARTH_ELIMIT: too many of the user's are being inspected already. */
int conn_look(struct conn *c, void (*done)(void *arg, const struct looked *l), void *arg, struct hearth_err *e);

/* Sets the form of events from here on, as requested by hello.notify_as, of which the codec has checked that it has two
 * strings or none. Returns 0 or HEARTH_ENOMEM. */
int conn_notify_as(struct conn *c, const struct wire_strs *as, struct hearth_err *e);

/* Writes to every peer what its socket accepts, before an operation that blocks the loop. Does nothing else: an error
 * is handled at the end of the turn. */
void conn_send_all(struct server *s);

/* End the loop's turn: conn_flush_all() writes once to each connection with pending output, conn_reap() frees those
 * that were dropped. */
void conn_flush_all(struct server *s);
void conn_reap(struct server *s);

/* Begins a turn with the frames that have waited, of which one may be long. conn_is_waiting() returns whether more are
 * waiting. */
void conn_handle_waiting(struct server *s);
bool conn_is_waiting(const struct server *s);

/* Whether nothing is pending for any peer. */
bool conn_all_sent(const struct server *s);

#endif
