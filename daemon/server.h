/*
 * server.h - hearthd as a whole: what its modules share, the listening socket, the loop and its end. Loop thread; there
 * is no other.
 */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/acl.h"
#include "daemon/conf.h"
#include "daemon/sd.h"
#include "libclient/wire.h"

struct backup;
struct quarantine;
struct call;
struct conn;
struct event;
struct event_base;
struct import;
struct journal;
struct kvdir;
struct engine_client;
struct store;
struct stream;
struct retention;

TAILQ_HEAD(conn_list, conn);
TAILQ_HEAD(stream_list, stream);
TAILQ_HEAD(call_list, call);
TAILQ_HEAD(quarantine_list, quarantine);

/* Only server_step() moves on, and never back. */
enum server_phase {
    SERVER_RUNNING,
    SERVER_FINISHING,  /* no new connections or requests; running streams have the grace period to end */
    SERVER_CANCELLING, /* the rest is cancelled; their ends are awaited */
    SERVER_STOPPING,   /* the engine is told to exit, the last answers go out */
    SERVER_DONE,
};

struct server {
    const struct conf *conf;
    const struct sd *sd;
    struct event_base *base;
    enum server_phase phase;
    double started; /* of server_boot() */

    int lock_fd;    /* held as long as hearthd lives */
    int listen_fd;  /* -1 once it stops accepting */
    bool activated; /* the socket is the supervisor's: it is not removed */
    struct event *accept, *again, *sigterm, *sigint, *watchdog, *phase_timer;

    struct acl acl;
    struct conn_list conns, dirty, dead; /* every live one; with something to write; to be freed after this turn */
    int64_t n_conns;

    struct stream_list streams;
    struct stream_list uncommitted; /* ended, and not in their sessions: commit.c */
    int64_t n_streams, last_stream;
    struct quarantine_list quarantined; /* models that kill engines: quarantine.c */
    int n_quarantined;
    struct call_list forwards; /* calls that wait for the engine to load a model */
    struct call_list waiters;  /* calls that wait for the end of a stream which nobody reads */

    struct store *store; /* NULL: the state directory cannot be used, and this is why: */
    struct hearth_err store_err;
    struct journal *journal; /* NULL: streams do not survive hearthd, and the log says why */
    struct kvdir *kv;        /* NULL: there are no KV files, and the log says why */
    struct engine_client *engine_client;
    struct retention *retention; /* NULL: there is no database, or hearthd is starting */
    struct backup *backup;       /* NULL: none is under way */
};

/* Takes the lock, the socket and the state. 0, an error, or 1 where another hearthd answers on that socket. */
int server_init(struct server *s, const struct conf *conf, const struct sd *sd, const char *engine,
                struct hearth_err *e);
void server_fini(struct server *s);

/* Turns the loop until the shutdown is done. */
int server_run(struct server *s, struct hearth_err *e);

/* Begins the graceful end, or with `now` the immediate one; calling it again only ever hastens it. */
void server_shutdown(struct server *s, bool now);

/* A stream or the engine has ended: an end that waited for it may go on. */
void server_step(struct server *s);

/* HEARTH_ESHUTDOWN where no new work is taken any more. */
int server_check_open(const struct server *s, struct hearth_err *e);

double server_now(void);  /* seconds since the epoch: it may jump */
double server_boot(void); /* since the machine was started, suspended or not: it only goes on */

#endif
