/*
 * conn.h - one peer: its credentials, its frames in and out. Loop thread. Disconnect is one path, conn_drop(); the
 * memory is freed at the end of the loop's turn (conn_reap), so that functions on the stack may still look at it.
 *
 * Back-pressure: when more than CONN_HIGH_WATER bytes are pending, the peer is throttled, which means that its streams
 * pause and its requests are not read, until fewer than CONN_LOW_WATER are. A peer with more than conf.unsent_bytes
 * pending is dropped; between the two limits is room for answers that were under way when it stopped reading. Its least
 * value in conf.c is so high that a peer which reads all the time is not dropped for its streams: CONN_HIGH_WATER, one
 * piece of a stream that crosses it (stream/output.c; 0.75 MB for 1,024 tokens with 20 log-probabilities each), and as
 * much again for answers.
 */
#ifndef DAEMON_RPC_CONN_H
#define DAEMON_RPC_CONN_H

#include "daemon/context.h"
#include "daemon/rpc/aside.h"
#include "daemon/supervisor/model-fds.h"
#include "libclient/frames.h"

/*
 * Long work: one frame of more than CONN_LONG bytes, or of a peer whose last one had the loop work at that much (its
 * answer was a session of megabytes, say), is handled in a turn of the loop, at its beginning, and of the peer that has
 * waited longest. A peer's first frame may be such a one: it waits for the next turn where this one has had any. What
 * else comes waits for the next turn once this one has worked at CONN_FULL bytes, and goes first then.
 */
enum { CONN_HIGH_WATER = 256 << 10, CONN_LOW_WATER = 64 << 10, CONN_LONG = 256 << 10, CONN_FULL = 16 << 20 };

struct conn;

/* What a connection tells the layer above it. */
struct conn_ops {
    void (*frame)(struct conn *c, const struct wire_frame *f); /* takes a complete message; it is borrowed */
    void (*has_room)(struct conn *c);                          /* the peer is not throttled any more */
    void (*lost)(struct conn *c); /* the peer will not be heard any more; this may be called twice */
};

struct conn {
    struct server *server;
    const struct conn_ops *ops;
    struct account *account;
    int64_t number;                    /* from 1 on: no other connection of this hearthd has it */
    pid_t pid;                         /* of the process that connected, for the log */
    int fd;                            /* -1: dropped */
    bool hello_done;                   /* the hello was answered, or another request came first */
    bool closing;                      /* what it writes is dropped, and so is it when it has ended */
    int64_t n_ignored;                 /* bytes of that */
    const char *drop_reason;           /* why it is dropped at the end of the turn, or NULL; it is sent nothing more */
    bool throttled;                    /* between the high watermark and the low one, see above */
    bool is_dirty;                     /* on server->dirty */
    bool is_waiting;                   /* on server->waiting, and not read meanwhile */
    int64_t last_work;                 /* bytes that its last frame had the loop work at; -1: there was none */
    uint64_t progress_mark;            /* the last model.progress event that it was sent */
    char *notify_method, *notify_code; /* hello's notify_as, or NULL */

    struct frames frames;
    struct event *readable, *writable;
    struct timer *frame_timer;  /* runs while a frame has begun and is incomplete */
    struct timer *unread_timer; /* runs while something is pending of which nothing is read */
    int64_t bytes;              /* of both buffers, as they count in the account */

    struct call_list calls; /* not answered yet */
    int64_t n_calls;
    struct import *import; /* a session that the peer imports, or NULL */

    int fds[FRAMES_FDS_IN]; /* that came with the frame which is being handled */
    size_t n_fds;
    struct aside *aside; /* looks at such ones, and the peer is not read meanwhile; or NULL */
    void (*looked)(void *arg, const struct looked *l); /* is told of it, or NULL */
    void *looked_arg;
    struct model_hold hold; /* what the peer has passed */
    TAILQ_ENTRY(conn) entry, dirty_entry, waiting_entry;
};

/* Takes over an accepted descriptor, which is closed on failure too. */
int conn_new(struct server *s, int fd, const struct conn_ops *ops, struct conn **out, struct hearth_err *e);

/* Disconnects the peer; its calls go on without it. `why` is logged. */
void conn_drop(struct conn *c, const char *why);

/* Pack a frame for the peer, or nothing where it is gone. Frames are written at the end of the turn. */
void conn_event(struct conn *c, const struct wire_method *m, const void *body);
void conn_result(struct conn *c, uint32_t id, const struct wire_method *m, const void *result);
void conn_result_packed(struct conn *c, uint32_t id, const struct wire_bytes *result);
void conn_error(struct conn *c, uint32_t id, int code, const char *msg);

/* Looks aside at the descriptor that came with the frame which is being handled; `done` is told, unless the connection
 * is lost before, and the next frame is handled after that. HEARTH_EPARAMS: none came. */
int conn_look(struct conn *c, void (*done)(void *arg, const struct looked *l), void *arg, struct hearth_err *e);

/* Sets how events are named from here on, as hello.notify_as asks: 0, or why it cannot. */
int conn_notify_as(struct conn *c, const struct wire_strs *as, struct hearth_err *e);

/* Writes to every peer what its socket takes, before the loop is blocked by something long. Nothing else happens here:
 * an error is handled at the end of the turn. */
void conn_send_all(struct server *s);

/* End the loop's turn: conn_flush_all() writes once to each connection with something pending, conn_reap() frees those
 * that were dropped. */
void conn_flush_all(struct server *s);
void conn_reap(struct server *s);

/* Begins a turn with the frames that have waited, of which one may be long. conn_is_waiting() says whether there are
 * others. */
void conn_handle_waiting(struct server *s);
bool conn_is_waiting(const struct server *s);

/* Whether nothing is pending for any peer. */
bool conn_all_sent(const struct server *s);

#endif
