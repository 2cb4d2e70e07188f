/* journal-sync.h - a thread that syncs journals to the disk, one fdatasync(2) after the other, because the loop, which
 * serves all streams, cannot wait for a disk. Only journal.c uses it. */
#ifndef DAEMON_JOURNAL_SYNC_H
#define DAEMON_JOURNAL_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "libclient/err.h"

enum { JOURNAL_SYNC_DIR = 0 }; /* in place of a stream's number: the directory */

struct journal_sync;

/* Starts the thread. dir_fd is borrowed until journal_sync_stop(). */
int journal_sync_start(struct journal_sync **out, int dir_fd, struct hearth_err *e);

/* Syncs everything requested so far, then ends the thread. */
void journal_sync_stop(struct journal_sync *s);

/* Requests a sync of a stream's file; never blocks. False if the queue is full: request it again later. */
bool journal_sync_request(struct journal_sync *s, int64_t number);

#endif
