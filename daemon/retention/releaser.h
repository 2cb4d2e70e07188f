/*
 * releaser.h - a thread that closes descriptors of removed files. With the last of them the filesystem gives the file's
 * blocks back, which took ext4 a quarter of a second for 512 MB, and the loop, which feeds all streams, cannot wait for
 * that. Loop thread.
 */
#ifndef DAEMON_RELEASER_H
#define DAEMON_RELEASER_H

#include <stdint.h>

#include "libclient/err.h"

struct releaser;

/* Starts the thread. HEARTH_ENOMEM or HEARTH_ESTORE where there is none. */
int releaser_start(struct releaser **out, struct hearth_err *e);
/* Closes what it has been given, then ends the thread. May be NULL. */
void releaser_stop(struct releaser *r);

/* Takes the descriptor of a removed file of so many bytes, and has it closed: by the caller itself where r is NULL or
 * many wait already. */
void releaser_close(struct releaser *r, int fd, int64_t bytes);
/* Returns the bytes that are not given back yet; 0 where r is NULL. */
int64_t releaser_bytes(struct releaser *r);
/* Returns when there are none. May be NULL. */
void releaser_wait(struct releaser *r);

#endif
