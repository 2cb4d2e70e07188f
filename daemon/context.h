/*
 * context.h - what the modules of hearthd share: the configuration, the event loop, the lists, and a pointer to what
 * each room owns. Every room includes this file, so it includes none of theirs; server.c alone fills the struct and
 * wires the rooms together. Loop thread; there is no other.
 */
#ifndef DAEMON_CONTEXT_H
#define DAEMON_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/acl.h"
#include "daemon/conf.h"
#include "daemon/sd.h"
#include "libclient/wire.h"

struct backup;
struct call;
struct conn;
struct event;
struct event_base;
struct import;
struct journal;
struct kvdir;
struct model_fds;
struct pin;
struct engines;
struct games;
struct socket_watch;
struct store;
struct streams;
struct timer;
struct retention;
struct shows;

TAILQ_HEAD(conn_list, conn);
TAILQ_HEAD(call_list, call);
TAILQ_HEAD(pin_list, pin);

/* The work that the loop does in one turn: of messages the bytes that are unpacked and packed, of the database those of
 * its pages, and its rows. What is longest of it is what others wait for. */
struct turn {
    int64_t bytes, rows;
    double cpu; /* seconds of the processor */
};

/* Phases of the shutdown. Only server.c moves from one to the next, and never back. */
enum server_phase {
    SERVER_RUNNING,
    SERVER_FINISHING,  /* no new connections and requests; running streams have the grace period to end */
    SERVER_CANCELLING, /* the streams that are left are cancelled, and their ends awaited */
    SERVER_STOPPING,   /* the engine is told to exit, and the last answers are written */
    SERVER_DONE,
};

struct server {
    const struct conf *conf;
    const struct sd *sd;
    struct event_base *base;
    enum server_phase phase;
    double started; /* on the clock of server_boot() */

    int lock_fd;      /* held as long as hearthd lives */
    int listen_fd;    /* -1 once it stops accepting */
    dev_t socket_dev; /* what was bound, to tell it from what others put in its place */
    ino_t socket_ino;
    struct socket_watch *socket_watch;
    bool activated; /* the socket is systemd's, and is not removed */
    struct event *accept, *again, *sigterm, *sigint, *sighup, *watchdog, *phase_timer;

    struct acl acl;
    struct conn_list conns, dirty, dead; /* open ones; those with output; those freed at the end of the turn */
    struct conn_list waiting;            /* those whose next frame is long: one of them is handled in a turn */
    struct turn turn, most;              /* this one; of each the most that a turn has had */
    int peers_below;            /* a peer's socket has a lower number: the other descriptors are hearthd's own */
    int64_t n_conns, last_conn; /* open ones; the number of the last */

    struct streams *streams;
    struct call_list forwards; /* calls that wait for the engine to load a model */
    struct call_list queue;    /* generations that wait for others to end, in their order */
    struct call_list waiters;  /* calls that wait for the end of a stream without subscribers */

    struct store *store; /* NULL: the state directory cannot be used, for the reason in store_err */
    struct hearth_err store_err;
    struct journal *journal; /* NULL: streams do not survive hearthd, and the log says why */
    struct kvdir *kv;        /* NULL: there are no KV files, and the log says why */
    const char *engine;      /* hearth-engine's path, or NULL */
    struct engines *engines;
    struct model_fds *passed;    /* model files that peers have passed by descriptors */
    struct timer *passed_sweep;  /* set while some of them may be closed */
    struct pin_list pins;        /* models that every engine is to hold */
    struct yields *yields;       /* the yield that holds; NULL: hearthd begins or ends */
    struct games *games;         /* what is yielded to games; NULL: hearthd begins or ends */
    struct retention *retention; /* NULL: there is no database, or hearthd is starting */
    struct backup *backup;       /* NULL: none is under way */
    struct shows *shows;         /* sessions that are read for peers; NULL: none was yet */
    bool reads_aside;            /* a thread reads the database */

    /* Before something that takes long: what waits for peers is written as far as it can be, and nothing else happens.
     */
    void (*send_pending)(struct server *s);

    /* Begins the graceful end of hearthd, or with `now` the immediate one; a second call only ever hastens it. */
    void (*shutdown)(struct server *s, bool now);
};

/* 0, or HEARTH_ESHUTDOWN where no new work is accepted any more. */
int server_check_open(const struct server *s, struct hearth_err *e);

double server_now(void);  /* seconds since the epoch; this clock may jump */
double server_boot(void); /* seconds since the machine was started, suspended or not; it is monotonic */
double server_cpu(void);  /* seconds that the processor has worked for this thread */

#endif
