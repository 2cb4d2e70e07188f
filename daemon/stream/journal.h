/*
 * journal.h - the write-ahead journal of running streams: their tokens, in files that survive a kill -9 of hearthd.
 * Loop thread; a separate thread only does fdatasync, which may block for long.
 *
 * There is one file per stream, STATE/journal/NUMBER, rather than one for all: a damaged file affects one stream only,
 * retention is an unlink(2), and a finished stream's output is read back from a file that holds nothing else.
 *
 *     file     "HEARTHJ\n"  version u32  0 u32  record ...                          (little endian)
 *     record   length u32   XXH3-64 of the payload, seeded with the record's offset, u64   payload
 *     payload  an event frame of wire.h:  journal.head, engine.begin, engine.tokens ..., journal.end
 *
 * So records are packed, bounded, scanned and unpacked by the wire's codec, and covered by its tests. A record counts
 * if it is complete and valid: the bytes from the first invalid record on are dropped, and the log names the file. A
 * file without a head, or one that is not ours (a link, another owner, another version), is renamed to NUMBER.bad for
 * inspection; an empty one, as a kill can leave behind, is removed.
 *
 * A record is in the kernel when journal_add() returns, and on the disk 100 ms later. The former survives any crash of
 * hearthd; the latter bounds what a loss of power costs. A stream is unfinished until its journal.end. The files of
 * finished streams are kept for 24 hours, or until all files together exceed conf.journal_bytes or JOURNAL_FILES_MAX,
 * when the oldest one of the user who has most goes first: nobody's requests make hearthd forget those of others who
 * have less.
 */
#ifndef DAEMON_JOURNAL_H
#define DAEMON_JOURNAL_H

#include "daemon/context.h"
#include "daemon/store/store.h"
#include "daemon/stream/journal-read.h"

enum { JOURNAL_FILES_MAX = 8192 };

struct journal;

/* A stream's file. The journal has it in its list until it is removed. */
struct journal_entry {
    int64_t number, choice; /* choice: its index among several of the request, or -1 */
    uid_t uid;
    struct account *account;        /* of that uid: it counts the file */
    char *request;                  /* the client's id, or NULL */
    char *name;                     /* the session's name, or NULL */
    char *model;                    /* the model's name when the session began */
    char session[STORE_ID_LEN + 1]; /* the session's id; "" if it is unnamed */
    uint64_t hash;                  /* of the request's content */
    bool ended;
    bool left;      /* it has not ended, and could not be taken up: the next start tries again */
    double time;    /* wall-clock time of the end, used for retention only */
    int64_t tokens; /* tokens of the completion, once it has ended */
    int64_t reach;  /* once it has ended: length of the session's timeline up to its end */
    int64_t bytes;
    int fd; /* open while the stream is running, else -1 */
    bool dirty;
    TAILQ_ENTRY(journal_entry) entry;
};

/* Opens STATE/journal, and creates it if it is missing. HEARTH_ESTORE with the obstacle. */
int journal_open(struct journal **out, struct server *s, const char *state_dir, struct hearth_err *e);
void journal_close(struct journal *j);

/* Reads every file, in the order of their numbers, and calls `take` with each, which may take over the content of the
 * copy. Returns the highest number that exists. Files that are too old are kept until journal_expire(), since turns may
 * have to be written from them. */
typedef void journal_visit(void *arg, struct journal_entry *je, struct journal_copy *c);
int64_t journal_replay(struct journal *j, journal_visit *take, void *arg);

/* Creates the file of a new stream, with its head. */
int journal_begin(struct journal *j, const struct wire_journal_head *head, struct journal_entry **out,
                  struct hearth_err *e);

/* Appends a record. If it cannot be written, the file ends before it, nothing more is ever appended (fd is -1), and the
 * caller continues without a journal. */
int journal_add(struct journal *j, struct journal_entry *je, const struct wire_method *m, const void *body,
                struct hearth_err *e);

/* Appends the last record, and removes older files that are due for removal. */
int journal_end(struct journal *j, struct journal_entry *je, const struct wire_journal_end *end, struct hearth_err *e);

/* Appends another last record to an ended stream's file: its turn could not be written and never will be, so whoever
 * sends the request again must not be told otherwise. If it cannot be written, the file stays as it is. */
void journal_end_again(struct journal *j, uid_t uid, int64_t number, const char *why,
                       const struct wire_engine_result *result);

void journal_remove(struct journal *j, struct journal_entry *je);

/* Returns that uid's stream, by number, or by request id and its index among several of the request (-1: any); NULL. */
struct journal_entry *journal_find(struct journal *j, uid_t uid, int64_t number, const char *request, int64_t choice);

/* Returns that uid's ended stream with the highest number below that of `je`, or of all if `je` is NULL; NULL. */
struct journal_entry *journal_before(struct journal *j, uid_t uid, const struct journal_entry *je);

/* Removes finished streams that are too old or that exceed the limit. */
void journal_expire(struct journal *j);

/* journal_begin_removal() is called before a session's row is removed, journal_end_removal() after that succeeded or
 * failed. If hearthd dies between the two, journal_finish_removals() completes the removal at the next start: if the
 * session no longer exists, it forgets the session's streams and, if a `parent` was adopting the session, those streams
 * of the parent that reach beyond token `from`, where the parent's old timeline is cut off. `parent` NULL: none was. */
void journal_begin_removal(struct journal *j, uid_t uid, const char *session, const char *parent, int64_t from);
void journal_end_removal(struct journal *j, uid_t uid, const char *session);
void journal_finish_removals(struct journal *j, bool (*is_there)(void *arg, uid_t uid, const char *session), void *arg);

/* Removes the journals of the session's ended streams that reach beyond token `from` (0: all of them), because the
 * session is removed or loses its timeline from there on. Also removes all files set aside as NUMBER.bad. */
void journal_forget(struct journal *j, const char *session, int64_t from);

/* Reads the file of an ended stream again. */
int journal_load(struct journal *j, const struct journal_entry *je, struct journal_copy *c, struct hearth_err *e);

#endif
