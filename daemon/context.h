/*
 * context.h - what the modules of hearthd share: the configuration, the event loop, the lists, and a pointer to each
 * module's own state. Every module includes this file, so it includes no module; only server.c fills the struct and
 * wires the modules together. hearthd's shared state belongs to the loop thread alone.
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

/* The work of one turn of the loop: bytes of messages packed and unpacked and of database pages, database rows, and CPU
 * time. Everything else waits while a turn runs, so the largest turn bounds the latency of the others. */
struct turn {
    int64_t bytes, rows;
    double cpu;   /* seconds of CPU time */
    int64_t work; /* of the frames of clients, see rpc/conn.h */
};

/* Phases of the shutdown. Only server.c moves from one to the next, and never back. */
enum server_phase {
    SERVER_RUNNING,
    SERVER_FINISHING,  /* no new connections or requests; running streams have the grace period to end */
    SERVER_CANCELLING, /* the remaining streams are cancelled, and their ends awaited */
    SERVER_STOPPING,   /* the engines are asked to exit */
    SERVER_SENDING,    /* the last answers are written */
    SERVER_DONE,
};

struct server {
    const struct conf *conf;
    const struct sd *sd;
    struct event_base *base;
    enum server_phase phase;
    double started; /* by server_boot() */

    int lock_fd;      /* open as long as hearthd lives */
    int listen_fd;    /* -1 once it stops accepting */
    dev_t socket_dev; /* device and inode (below) of the bound socket, to recognise a file that replaced it */
    ino_t socket_ino;
    struct socket_watch *socket_watch;
    bool activated; /* the socket was passed by systemd, and is not removed */
    struct event *accept, *again, *sigterm, *sigint, *sighup, *watchdog, *phase_timer;

    struct acl acl;
    struct conn_list conns, dirty, dead; /* open; with output; to be freed at the end of the turn */
    struct conn_list waiting;            /* those whose next frame must wait; one long frame is handled in a turn */
    struct turn turn, most;              /* the work of this turn; the maximum of each number over all turns */
    int peers_below;            /* bound of the number of a peer's socket: hearthd itself uses the other descriptors */
    int64_t n_conns, last_conn; /* open connections; the number of the latest */

    struct streams *streams;
    struct call_list forwards; /* calls that an engine answers, which may have to load a model first */
    struct call_list queue;    /* generations that wait for other streams to end, by class and arrival */
    double queue_begun[3];     /* [class] when a generation of it last left to begin, by server_boot() */
    struct timer *queue_turn;  /* set while some of them wait for another one's turn to end; NULL until the first */
    struct call_list waiters;  /* calls that wait for the end of a stream without subscribers */

    struct store *store; /* NULL: the state directory cannot be used, for the reason in store_err */
    struct hearth_err store_err;
    struct journal *journal; /* NULL: streams do not survive hearthd, for the reason in journal_err */
    struct hearth_err journal_err;
    struct kvdir *kv; /* NULL: there are no KV files, for the reason in kv_err */
    struct hearth_err kv_err;
    double state_again; /* by server_boot(): not before then is opening what failed tried again */
    const char *engine; /* hearth-engine's path, or NULL */
    struct engines *engines;
    struct model_fds *passed;    /* model files that peers have passed by descriptors */
    struct timer *passed_sweep;  /* set while some of the passed files may have to be closed */
    struct pin_list pins;        /* pinned models, which a new engine loads again */
    struct yields *yields;       /* the yield in effect; NULL while hearthd starts or ends */
    struct games *games;         /* the yield to running games; NULL while hearthd starts or ends */
    struct retention *retention; /* NULL: there is no database, or hearthd is starting or ending */
    struct backup *backup;       /* NULL: none is under way */
    struct shows *shows;         /* sessions being read for peers; NULL until the first */
    bool reads_aside;            /* whether a thread reads the database */

    /* Called before an operation that blocks for long: writes pending output to the peers as far as their sockets
     * accept it, and does nothing else. */
    void (*send_pending)(struct server *s);

    /* Begins the graceful shutdown, or the immediate one with `now`. A second call can only hasten it. */
    void (*shutdown)(struct server *s, bool now);
};

/* 0, or HEARTH_ESHUTDOWN once no new work is accepted. */
int server_check_open(const struct server *s, struct hearth_err *e);

double server_now(void);  /* seconds since the epoch; this clock may jump */
double server_boot(void); /* seconds since boot, suspended time included; monotonic */
double server_cpu(void);  /* CPU seconds of the calling thread */

#endif
