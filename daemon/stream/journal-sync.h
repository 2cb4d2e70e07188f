/* journal-sync.h - a thread that brings journals to the disk, one fdatasync(2) after the other, because the loop, which
 * feeds all streams, cannot wait for a disk. Only journal.c uses it. */
#ifndef DAEMON_JOURNAL_SYNC_H
#define DAEMON_JOURNAL_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "libclient/err.h"

enum { JOURNAL_SYNC_DIR = 0 }; /* stands for the directory where a stream's number is expected */

struct journal_sync;

/* Starts the thread. dir_fd is borrowed until journal_sync_stop(). */
int journal_sync_start(struct journal_sync **out, int dir_fd, struct hearth_err *e);

/* Syncs what has been asked for, then ends the thread. */
void journal_sync_stop(struct journal_sync *s);

/* Asks the thread to sync a stream's file; never blocks. False where the queue is full: ask again later. */
bool journal_sync_request(struct journal_sync *s, int64_t number);

#endif
