/*
 * releaser.h - a thread that closes descriptors of removed files. When the last descriptor is closed the filesystem
 * frees the file's blocks, which took ext4 a quarter of a second for 512 MB, and the loop, which feeds all streams,
 * cannot wait for that. Loop thread.
 */
#ifndef DAEMON_RELEASER_H
#define DAEMON_RELEASER_H

#include <stdint.h>

#include "libclient/err.h"

struct releaser;

/* Starts the thread. HEARTH_ENOMEM or HEARTH_ESTORE if it cannot. */
int releaser_start(struct releaser **out, struct hearth_err *e);
/* Closes the descriptors that it has been given, then ends the thread. May be NULL. */
void releaser_stop(struct releaser *r);

/* Takes the descriptor of a removed file of `bytes` bytes and has it closed by the thread, or closes it itself if r is
 * NULL or the queue is full. */
void releaser_close(struct releaser *r, int fd, int64_t bytes);
/* Returns the bytes that have not been freed yet; 0 if r is NULL. */
int64_t releaser_bytes(struct releaser *r);
/* Returns once all bytes have been freed. May be NULL. */
void releaser_wait(struct releaser *r);

#endif
