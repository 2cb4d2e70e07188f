/*
 * socket.h - the socket that hearthd listens on: its folder, the lock beside it, and its place. Loop thread.
 */
#ifndef DAEMON_SOCKET_H
#define DAEMON_SOCKET_H

#include "daemon/context.h"

/* Takes the lock and binds conf.socket: fills in lock_fd and listen_fd. 0, an error, or 1 where another hearthd answers
 * there. */
int socket_listen(struct server *s, struct hearth_err *e);

/* Whether socket_listen() could bind there, as far as can be seen without making anything. */
int socket_check(const char *path, struct hearth_err *e);

/* Removes the socket from its place, where it is this hearthd's still. */
void socket_remove(const struct server *s);

/*
 * Watches the place, fills in socket_watch: where the socket was deleted, or its folder, it is bound again, and
 * `rebound` gets the descriptor that listens from now on. Who holds the lock of a folder that is made anew by then
 * stays.
 */
int socket_watch_new(struct server *s, void (*rebound)(struct server *s, int fd), struct hearth_err *e);
void socket_watch_free(struct socket_watch *w);

/*
 * The number below which the descriptor of a peer's socket must be, so that those that hearthd may open suffice for its
 * own: `kept` for journals and passed files, and some for engines, the database and KV files. Where they are so few
 * that nothing would be left, peers get a quarter of those that are free now.
 */
int socket_peers_below(size_t kept);

/* fcntl(2) of one byte of the lock file: 0 is held while a hearthd starts, 1 as long as it lives. */
int socket_lock_byte(int fd, int cmd, short type, off_t at);

#endif
