/*
 * conn.h - one peer: its credentials, frames in, frames out. Loop thread. Disconnect is one path, conn_drop(); the
 * memory goes at the end of the loop's turn (conn_reap), so that whoever is on the stack may still look at it.
 *
 * Bytes wait in two buffers that grow with what really came or has to go. Out has two marks: above CONN_HIGH_WATER the
 * peer's streams are parked and its requests are left unread until it falls below CONN_LOW_WATER; above
 * conf.unsent_bytes, which takes answers that were under way when the peer stopped reading, it is dropped.
 */
#ifndef DAEMON_CONN_H
#define DAEMON_CONN_H

#include "daemon/context.h"
#include "libclient/frames.h"

enum { CONN_HIGH_WATER = 256 << 10, CONN_LOW_WATER = 64 << 10 };

struct conn;

/* What a connection tells the layer above it. */
struct conn_ops {
    void (*frame)(struct conn *c, const struct wire_frame *f); /* a whole message; borrowed */
    void (*has_room)(struct conn *c);                          /* the peer takes frames again */
    void (*lost)(struct conn *c);                              /* nothing more is heard from the peer; may come twice */
};

struct conn {
    struct server *server;
    const struct conn_ops *ops;
    struct account *account;
    pid_t pid;                         /* of the process that connected, for the log */
    int fd;                            /* -1: dropped */
    bool hello_done;                   /* hello is behind it, or was left out */
    bool closing;                      /* nothing more is read; closes when `out` is written */
    const char *drop_reason;           /* why it is dropped at the end of the turn; nothing more is sent */
    bool throttled;                    /* backlog went above CONN_HIGH_WATER and not yet below CONN_LOW_WATER */
    bool is_dirty;                     /* on server->dirty */
    uint64_t progress_mark;            /* the last model.progress event that it was sent */
    char *notify_method, *notify_code; /* hello's notify_as, or NULL */

    struct frames frames;
    struct event *readable, *writable, *frame_timer;

    struct call_list calls; /* not answered yet */
    int64_t n_calls;
    struct import *import; /* a session that is coming in, or NULL */
    TAILQ_ENTRY(conn) entry, dirty_entry;
};

/* Takes an accepted descriptor; it is closed on failure too. */
int conn_new(struct server *s, int fd, const struct conn_ops *ops, struct conn **out, struct hearth_err *e);

/* Closes and forgets the peer: its calls go on without it. `why` is logged. */
void conn_drop(struct conn *c, const char *why);

/* Frames to the peer; nothing where it is gone. They are written at the end of the turn. */
void conn_event(struct conn *c, const struct wire_method *m, const void *body);
void conn_result(struct conn *c, uint32_t id, const struct wire_method *m, const void *result);
void conn_error(struct conn *c, uint32_t id, int code, const char *msg);

/* After hello: 0, or why notify_as cannot be taken. */
int conn_notify_as(struct conn *c, const struct wire_strs *as, struct hearth_err *e);

/* Before something that takes long: what waits is written now, as far as it can be, and nothing else happens. */
void conn_send_all(struct server *s);

/* End of the loop's turn: one write per connection that has something; then the dead are freed. */
void conn_flush_all(struct server *s);
void conn_reap(struct server *s);

/* True where no peer has anything left to read. */
bool conn_all_sent(const struct server *s);

#endif
