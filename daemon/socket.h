/*
 * socket.h - the socket that hearthd listens on: its folder, the lock file beside it, and rebinding it when it is
 * deleted. Loop thread.
 */
#ifndef DAEMON_SOCKET_H
#define DAEMON_SOCKET_H

#include "daemon/context.h"

/* Acquires the lock, binds conf.socket, and sets lock_fd and listen_fd. 0, an error, or 1 where another hearthd answers
 * there. */
int socket_listen(struct server *s, struct hearth_err *e);

/* Whether socket_listen() could bind there, as far as that can be checked without creating anything. */
int socket_check(const char *path, struct hearth_err *e);

/* Unlinks the socket if its path still refers to the one that this hearthd bound. */
void socket_remove(const struct server *s);

/*
 * Watches the path of the socket and sets socket_watch. If the socket or its folder is deleted, the socket is bound
 * again, and `rebound` receives the new listening descriptor. If the folder was recreated and another hearthd holds the
 * lock in it by then, that one keeps the path.
 */
int socket_watch_new(struct server *s, void (*rebound)(struct server *s, int fd), struct hearth_err *e);
void socket_watch_free(struct socket_watch *w);

/*
 * Returns the bound that a peer's descriptor number must be below, so that the process's descriptor limit leaves enough
 * for hearthd itself: `kept` for journals and passed files, and a fixed number for engines, the database and KV files.
 * If the limit is so low that nothing would be left for peers, they get a quarter of the descriptors that are free now.
 */
int socket_peers_below(size_t kept);

/* Calls fcntl(2) on one byte of the lock file: byte 0 is held while a hearthd starts, byte 1 as long as it lives. */
int socket_lock_byte(int fd, int cmd, short type, off_t at);

#endif
