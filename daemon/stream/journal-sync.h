/* journal-sync.h - a thread that brings journals to the disk, one fdatasync(2) after the other: the loop, which feeds
 * everybody's streams, cannot wait for a disk. journal.c's alone. */
#ifndef DAEMON_JOURNAL_SYNC_H
#define DAEMON_JOURNAL_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "libclient/err.h"

enum { JOURNAL_SYNC_DIR = 0 }; /* the directory, in the place of a stream's number */

struct journal_sync;

/* dir_fd is borrowed until the end. */
int journal_sync_start(struct journal_sync **out, int dir_fd, struct hearth_err *e);

/* Does what has been asked for, then ends. */
void journal_sync_stop(struct journal_sync *s);

/* Asks for a stream's file; never blocks. False where enough is waiting already: ask again later. */
bool journal_sync_request(struct journal_sync *s, int64_t number);

#endif
