/*
 * server.h - the listening socket, the loop, and the order in which hearthd ends. server.c is the top of hearthd: it
 * knows every room, and none knows it. Loop thread.
 */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include "daemon/context.h"

/* Takes the lock, the socket and the state. 0, an error, or 1 where another hearthd answers on that socket. */
int server_init(struct server *s, const struct conf *conf, const struct sd *sd, const char *engine,
                struct hearth_err *e);
void server_fini(struct server *s);

/* Turns the loop until the shutdown is done. At SIGHUP reload(arg) is called; NULL: that signal is left alone. */
int server_run(struct server *s, void (*reload)(void *arg), void *arg, struct hearth_err *e);

#endif
