/* journal-read.h - the format of a journal's file: packing a record, and reading a file that may hold anything. Pure
 * but for reading; journal.c's alone. */
#ifndef DAEMON_JOURNAL_READ_H
#define DAEMON_JOURNAL_READ_H

#include "daemon/stream/journal.h"

/* The name of a stream's file. */
void journal_name(int64_t number, char name[static 32]);

/* A record for the offset `at`, in place of what `b` holds; at 0 the file's header comes first. */
int journal_pack(struct wire_buf *b, int64_t at, const struct wire_method *m, const void *body, struct hearth_err *e);

/* Reads the file: its descriptor, to be appended at *good; or negative where it is none of ours or has no head. e->code
 * is set, too, where bytes behind *good do not count. */
int journal_read(int dir_fd, const char *name, int64_t number, struct journal_copy *c, int64_t *good,
                 struct hearth_err *e);

#endif
