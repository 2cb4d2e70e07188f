/*
 * server.h - the listening socket, the loop, and the phases of the shutdown. server.c is the top layer of hearthd: it
 * includes every module, and none includes it. Loop thread.
 */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include "daemon/context.h"

/* Acquires the lock, the socket and the state. 0, an error, or 1 where another hearthd already answers on that
 * socket. */
int server_init(struct server *s, const struct conf *conf, const struct sd *sd, const char *engine,
                struct hearth_err *e);
void server_fini(struct server *s);

/* Runs the loop until the shutdown is complete. SIGHUP calls reload(arg); where that is NULL, the signal keeps its
 * default action. */
int server_run(struct server *s, void (*reload)(void *arg), void *arg, struct hearth_err *e);

#endif
