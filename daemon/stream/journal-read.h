/* journal-read.h - the format of a journal's file: packing a record, and reading a file that may hold anything. It does
 * nothing but read. journal.h says what the format is. */
#ifndef DAEMON_JOURNAL_READ_H
#define DAEMON_JOURNAL_READ_H

#include "daemon/stream/output.h"
#include "libclient/wire.h"

/* A file's content, as far as it counts. */
struct journal_copy {
    struct wire_journal_head *head;  /* wire_free */
    struct wire_engine_begin *begin; /* NULL: was not admitted yet */
    struct wire_journal_end *end;    /* NULL: unfinished */
    struct output output;
};
void journal_copy_fini(struct journal_copy *c);

/* Makes the name of a stream's file. */
void journal_name(int64_t number, char name[static 32]);

/* A record for the offset `at`, in place of what `b` holds; at 0 the file's header comes first. */
int journal_pack(struct wire_buf *b, int64_t at, const struct wire_method *m, const void *body, struct hearth_err *e);

/* Reads the file: its descriptor, to be appended at *good; or negative where it is none of ours or has no head. e->code
 * is set, too, where bytes behind *good do not count. */
int journal_read(int dir_fd, const char *name, int64_t number, struct journal_copy *c, int64_t *good,
                 struct hearth_err *e);

/* Hashes what makes two requests the same: all of a request but its id, how its answer is delivered and by when. */
int journal_hash(const struct wire_generate *g, uint64_t *hash, struct hearth_err *e);

#endif
