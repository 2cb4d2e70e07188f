/*
 * journal.h - the write-ahead journal of running streams: their tokens, in files that survive a kill -9 of hearthd.
 * Loop thread; a separate thread does fdatasync alone, which may block for long.
 *
 * One file per stream, STATE/journal/NUMBER, rather than one for all: a damaged file costs one stream, retention is
 * unlink(2), and a finished stream's output is read again from a file that holds nothing else.
 *
 *     file     "HEARTHJ\n"  version u32  0 u32  record ...                          (little endian)
 *     record   length u32   XXH3-64 of the payload, seeded with the record's offset, u64   payload
 *     payload  an event frame of wire.h:  journal.head, engine.begin, engine.tokens ..., journal.end
 *
 * So the records are packed, bounded, scanned and unpacked by the wire's codec and its tests. A record counts when it
 * is complete and valid: the bytes from the first invalid one on are dropped and the log names the file. A file without
 * a head, or that is not ours (a link, another owner, another version), is renamed to NUMBER.bad for people to look at;
 * an empty one, as a kill leaves it, is removed.
 *
 * A record is in the kernel when journal_add() returns, and on the disk 100 ms later: the first survives any crash of
 * ours, the second bounds what a loss of power takes. A stream is unfinished until its journal.end. Finished ones stay
 * for 24 hours, or until all files together are over conf.journal_bytes, the oldest first.
 */
#ifndef DAEMON_JOURNAL_H
#define DAEMON_JOURNAL_H

#include "daemon/context.h"
#include "daemon/stream/journal-read.h"

struct journal;

/* A stream's file, in the journal's list until it is removed. */
struct journal_entry {
    int64_t number, choice; /* choice: of several of the request, or -1 */
    uid_t uid;
    char *request;    /* the client's id, or NULL */
    char *name;       /* of the session, or NULL */
    char *model;      /* as it was named when the session began */
    char session[17]; /* the session's id; "" where it is unnamed */
    uint64_t hash;    /* of the request's content */
    bool ended;
    double time;    /* of the end; wall clock, for retention only */
    int64_t tokens; /* of the completion, once it has ended */
    int64_t reach;  /* tokens of its session's timeline up to its end, then */
    int64_t bytes;
    int fd; /* while it is written, else -1 */
    bool dirty;
    TAILQ_ENTRY(journal_entry) entry;
};

/* Opens STATE/journal, and creates it where it is missing. HEARTH_ESTORE names the obstacle. */
int journal_open(struct journal **out, struct server *s, const char *state_dir, struct hearth_err *e);
void journal_close(struct journal *j);

/* Reads every file, in the order of their numbers. `take` gets each and may move the copy's content to itself. Returns
 * the highest number there is. */
typedef void journal_visit(void *arg, struct journal_entry *je, struct journal_copy *c);
int64_t journal_replay(struct journal *j, journal_visit *take, void *arg);

/* Makes the file of a new stream, with its head. */
int journal_begin(struct journal *j, const struct wire_journal_head *head, struct journal_entry **out,
                  struct hearth_err *e);

/* Appends a record. Where it cannot be written the file ends before it, nothing more is ever appended (fd is -1), and
 * the caller continues without a journal. */
int journal_add(struct journal *j, struct journal_entry *je, const struct wire_method *m, const void *body,
                struct hearth_err *e);

/* Appends the last record, and removes older files that are due. */
int journal_end(struct journal *j, struct journal_entry *je, const struct wire_journal_end *end, struct hearth_err *e);

void journal_remove(struct journal *j, struct journal_entry *je);

/* Returns that uid's stream, by number or by request id and which of several of the request it is (-1: any); NULL. */
struct journal_entry *journal_find(struct journal *j, uid_t uid, int64_t number, const char *request, int64_t choice);

/* That uid's stream that has ended, with the highest number below that of `je`, or of all where it is NULL; NULL. */
struct journal_entry *journal_before(struct journal *j, uid_t uid, const struct journal_entry *je);

/* Lets finished streams go that are old or too much. */
void journal_expire(struct journal *j);

/* A session's row is about to be removed; it has been, or could not be. What comes between the two, an end of hearthd
 * too, the next start finds out: where the session is not there any more it forgets its streams, and those of `parent`,
 * which adopts it and loses what it has from that token on; NULL: nobody does. */
void journal_begin_removal(struct journal *j, uid_t uid, const char *session, const char *parent, int64_t from);
void journal_end_removal(struct journal *j, uid_t uid, const char *session);
void journal_finish_removals(struct journal *j, bool (*is_there)(void *arg, uid_t uid, const char *session), void *arg);

/* The session is removed, or loses what it has from that token on: the journals of its streams that reach beyond it are
 * removed with it, and so are all files set aside as NUMBER.bad. */
void journal_forget(struct journal *j, const char *session, int64_t from);

/* Reads a file again. */
int journal_load(struct journal *j, const struct journal_entry *je, struct journal_copy *c, struct hearth_err *e);

#endif
