/* journal-read.h - the format of a journal's file: packing a record, and parsing a file that may contain anything. It
 * writes nothing. journal.h describes the format. */
#ifndef DAEMON_JOURNAL_READ_H
#define DAEMON_JOURNAL_READ_H

#include "daemon/stream/output.h"
#include "libclient/wire.h"

/* The content of a file, up to its last valid record. */
struct journal_copy {
    struct wire_journal_head *head;  /* wire_free */
    struct wire_engine_begin *begin; /* NULL: it was not admitted yet */
    struct wire_journal_end *end;    /* NULL: it is unfinished */
    struct output output;
};
void journal_copy_fini(struct journal_copy *c);

/* Formats the name of a stream's file. */
void journal_name(int64_t number, char name[static 32]);

/* Packs a record for the file offset `at` into b, whose content it replaces; at offset 0 the file's header precedes
 * it. */
int journal_pack(struct wire_buf *b, int64_t at, const struct wire_method *m, const void *body, struct hearth_err *e);

/* Reads the file and returns its descriptor, to which records may be appended at offset *good; negative if the file is
 * not one of ours or has no head. e->code is also set if the bytes after *good are invalid. */
int journal_read(int dir_fd, const char *name, int64_t number, struct journal_copy *c, int64_t *good,
                 struct hearth_err *e);

/* Hashes what makes two requests the same: everything but the request id, how the answer is delivered, and the
 * deadline; a default that is written out is as if absent. */
int journal_hash(const struct wire_generate *g, uint64_t *hash, struct hearth_err *e);

#endif
