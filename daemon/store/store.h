/*
 * store.h - sessions on disk. This is the only interface to SQLite. Every call blocks on file I/O, so none is made per
 * token: a turn is written once, when it has ended. Loop thread.
 *
 * The token timeline is authoritative: the ids of a session's turns, concatenated in order, are what the engine
 * computes from. The texts stored beside them are for people. Rows are untrusted input (the file may be damaged or
 * foreign): an unsound row yields HEARTH_ESTORE, and the message names the session and says what is wrong with it.
 */
#ifndef DAEMON_STORE_H
#define DAEMON_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "libclient/err.h"

enum { STORE_ID_LEN = 16, STORE_VERSION = 8 };

struct store;

struct store_session {
    char id[STORE_ID_LEN + 1]; /* lower-case hex digits */
    uid_t uid;
    char *name;     /* unique per uid */
    char *model;    /* as the client named it */
    char *path;     /* of the model file */
    bool turn_open; /* the timeline ends inside an assistant turn */
    double created, used;
    int64_t n_tok, n_turns;
    int64_t bytes; /* of texts and ids; for a fork, only of its own turns */
    bool pinned;
    /* For a fork: the session that it was made from ("" for none; that session may have been removed since), and how
     * many of the fork's leading turns, and of their ids, it shares with the parent by reference. */
    char parent[STORE_ID_LEN + 1];
    bool has_parent; /* the parent exists and has not been removed */
    int64_t base, base_tok;
    bool ephemeral; /* removed after a day without use, and listed only on request */
    bool damaged;   /* the row is unsound: the session can only be removed, and strings may be NULL */
};

struct store_turn {
    const char *role;
    const char *text; /* any bytes */
    size_t len;
    const int32_t *ids;
    size_t n_ids;
    double created;
    const void *generation; /* how it was generated: an event turn.generation (generation-info.h), or NULL */
    size_t generation_len;
    bool continues;      /* in a page: this is the rest of the preceding turn */
    const char *message; /* JSON: the original message, where it was more than a role and a text; or NULL */
};

/*
 * Opens DIR/sessions.db, creating both as needed, and migrates it to STORE_VERSION: all steps in one transaction, after
 * the old file has been copied to sessions.db.vN, where N is its version. A database of a newer version, a damaged one
 * and one that cannot be written are refused and left untouched.
 */
int store_open(struct store **out, const char *dir, struct hearth_err *e);
/* Creates the directory and those above it, as store_open() does: for what goes into it before the database. */
int store_make_dirs(const char *dir, struct hearth_err *e);

/* Opens a read-only connection to the database at `path` for another thread. It sees one snapshot, whatever is written
 * meanwhile; only functions that read may be called on it. It should be closed soon: until then the write-ahead log
 * cannot be reset and grows. */
int store_open_reader(struct store **out, const char *path, struct hearth_err *e);
void store_close(struct store *st);

/* Work done by the database since it was opened: rows returned and changed, and bytes of pages read and written. */
struct store_work {
    int64_t rows, bytes;
};
void store_work(struct store *st, struct store_work *w);

/* Reads a session of that uid: by id if `ref` is 16 hex digits, otherwise by name. HEARTH_ENOSESSION; HEARTH_ESTORE if
 * it is damaged. */
int store_get(struct store *st, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e);
/* Same, but also returns a damaged session. */
int store_find(struct store *st, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e);
void store_session_free(struct store_session *s);

/* The position of a listing: it continues after this session. An empty id means the beginning of the listing when
 * passed in, and its end when returned. */
struct store_cursor {
    double used;
    char id[STORE_ID_LEN + 1];
};

/* Lists the next sessions of a uid, at most `most`, the most recently used first, and moves the cursor. Damaged
 * sessions are included, ephemeral ones only if `ephemeral` is set. The caller frees each session and the array. */
int store_list(struct store *st, uid_t uid, bool ephemeral, struct store_cursor *at, size_t most,
               struct store_session ***out, size_t *n, struct hearth_err *e);
int store_count(struct store *st, uid_t uid, int64_t *n, struct hearth_err *e);

/* For limits: the total bytes of a uid's sessions; the uids that have any sessions, malloc'd. */
int store_bytes(struct store *st, uid_t uid, int64_t *n, struct hearth_err *e);
int store_uids(struct store *st, uid_t **uids, size_t *n, struct hearth_err *e);

/* List the next sessions that retention may remove, the least recently used first; pinned and damaged ones are left
 * out. store_list_old() covers all uids: sessions not used since `before`, and ephemeral ones not used since the later
 * `ephemeral_before`. store_list_unused() covers all sessions of one uid except the most recently used one. */
int store_list_old(struct store *st, double before, double ephemeral_before, struct store_cursor *at, size_t most,
                   struct store_session ***out, size_t *n, struct hearth_err *e);
int store_list_unused(struct store *st, uid_t uid, struct store_cursor *at, size_t most, struct store_session ***out,
                      size_t *n, struct hearth_err *e);

/* The latest time before `before` at which any session was used; 0 if there is none. */
int store_last_used(struct store *st, double before, double *used, struct hearth_err *e);

/* Read and write the state of the clock guard (retention/clock-guard.h); zeros if none has been written yet. */
int store_get_clock(struct store *st, double *wall, double *holdoff, struct hearth_err *e);
int store_set_clock(struct store *st, double wall, double holdoff, struct hearth_err *e);

/* Reads the ids of all turns, in order; malloc'd, NULL for none. */
int store_timeline(struct store *st, const struct store_session *s, int32_t **ids, size_t *n, struct hearth_err *e);

/* Same, from the cache; false if the timeline is not cached or not current, so that it has to be read. */
bool timeline_cache_get(struct store *st, const struct store_session *s, int32_t **ids, size_t *n);
/* Part of a timeline. */
struct store_ids {
    const int32_t *v;
    size_t n;
};
/* Caches the session's timeline: the concatenation of the parts, which comes from n_turns turns. */
void timeline_cache_put(struct store *st, const char *id, int64_t n_turns, const struct store_ids *part, size_t n_part);

/* Reads the turns in order, with n_ids set but without the ids themselves. */
int store_turns(struct store *st, const struct store_session *s, struct store_turn **turns, size_t *n,
                struct hearth_err *e);
void store_turns_free(struct store_turn *turns, size_t n);

/* Whether a turn's role stands for raw text: text that was appended, or what was generated after it. No message of a
 * request may have such a role. */
bool store_is_raw_role(const char *role);

/* Reads the generation metadata of the session's last generated turn, in the form of store_turn.generation; malloc'd,
 * NULL if no turn was generated. */
int store_last_generation(struct store *st, const struct store_session *s, void **made, size_t *len,
                          struct hearth_err *e);

/*
 * Reads one page of turns, ids included. `*at` is 0 for the first page and is advanced by each call; -1 marks the end.
 * A page holds about `bytes` of texts and ids and at most `most` turns; its last turn may be cut, and continues in the
 * next page.
 */
int store_page(struct store *st, const struct store_session *s, int64_t *at, size_t bytes, size_t most,
               struct store_turn **turns, size_t *n, struct hearth_err *e);

/* Appends turns and updates turn_open and used, all or nothing. `create` also inserts the session's row;
 * HEARTH_ESESSIONEXISTS if the name is taken. The same transaction records `stream` as committed. */
int store_commit(struct store *st, const struct store_session *s, bool create, const struct store_turn *turns, size_t n,
                 int64_t stream, struct hearth_err *e);

/* Whether the last transaction failed because the disk, or a quota, has no room. */
bool store_is_full(const struct store *st);

/* No stream number exceeds this; a row with a larger one was not written by hearthd, or is damaged. */
static const int64_t STORE_STREAM_MAX = 1LL << 53;

/* The committed streams: their journals need not be committed again at a start. A stream that left no turns is recorded
 * too, so that its number is not reused. store_forget_streams() deletes the numbers below `oldest`, which have no
 * journal any more. */
int store_commit_nothing(struct store *st, int64_t stream, struct hearth_err *e);
int store_is_committed(struct store *st, int64_t stream, bool *committed, struct hearth_err *e);
int store_last_stream(struct store *st, int64_t *stream, struct hearth_err *e); /* 0 if there is none */
void store_forget_streams(struct store *st, int64_t oldest);

/* Writes a whole session or nothing. `replaced` (may be NULL) is removed in the same transaction. */
int store_import(struct store *st, const struct store_session *s, const struct store_session *replaced,
                 const struct store_turn *turns, size_t n, struct hearth_err *e);

/*
 * Same in parts, because writing a large session at once would block the loop for long. Nothing of it is visible before
 * store_import_end(). store_import_drop() marks an unfinished import for removal, which store_purge_some() carries out;
 * the next start does the same. `s` has its id and model throughout, and the remaining members by the time of
 * store_import_end(); its bytes, turns and tokens are then the sums over all parts.
 */
int store_import_begin(struct store *st, const struct store_session *s, struct hearth_err *e);
int store_import_part(struct store *st, const struct store_session *s, const struct store_turn *turns, size_t n,
                      struct hearth_err *e);
int store_import_end(struct store *st, const struct store_session *s, const struct store_session *replaced,
                     struct hearth_err *e);
void store_import_drop(struct store *st, const struct store_session *s);

int store_pin(struct store *st, const struct store_session *s, bool pinned, struct hearth_err *e);
int store_rename(struct store *st, const struct store_session *s, const char *name, struct hearth_err *e);

/* Removes a session: when this returns nobody can see it, and its name is free. The turns of a large session are
 * deleted later: store_purge_some() deletes one batch of the pending turns and sets *more if others remain,
 * store_purge_all() deletes all of them. */
int store_remove(struct store *st, const struct store_session *s, struct hearth_err *e);
/* Reserves disk space for such removals, if the disk has any free and none is reserved yet. */
void store_reserve_make(struct store *st);
int store_purge_some(struct store *st, bool *more, struct hearth_err *e);
int store_purge_all(struct store *st, struct hearth_err *e);

/* What the forks of a session share of it: their number, and the most turns and ids that any one of them shares. The
 * fork `but` is not counted ("" for none). */
struct store_shared {
    int64_t forks, turns, tokens;
};
int store_shared(struct store *st, const char *id, const char *but, struct store_shared *out, struct hearth_err *e);

/* Lists the trunks (hidden remains of removed sessions, kept for their forks) that will keep fewer turns once s is
 * reduced to `left` (left->forks == 0: s is removed entirely), and how many ids each then keeps; malloc'd. */
struct store_trunk {
    char id[STORE_ID_LEN + 1];
    int64_t tokens;
};
int store_trunks(struct store *st, const struct store_session *s, const struct store_shared *left,
                 struct store_trunk **out, size_t *n, struct hearth_err *e);

/* Where a timeline is cut after `at` ids. */
struct store_cut {
    int64_t turns, tokens;   /* whole turns before the cut, and their ids */
    bool open;               /* a chat's assistant turn has begun before the cut */
    bool inside;             /* the cut is inside the turn that follows these, */
    bool generated;          /* which was generated */
    struct store_turn *turn; /* that turn, whole; or NULL. store_turns_free(, 1) */
};
/* at < s->n_tok. HEARTH_ESTORE if the session has fewer ids than it claims. */
int store_cut(struct store *st, const struct store_session *s, int64_t at, struct store_cut *out, struct hearth_err *e);

/* Creates forks, all or none: sessions that share the first s->base turns of s->parent by reference, followed by the
 * turns `own`. HEARTH_ESESSIONEXISTS; HEARTH_ELIMIT if s->parent is already at the end of too long a chain of forks. */
int store_fork(struct store *st, const struct store_session *const *s, size_t n, const struct store_turn *own,
               size_t n_own, struct hearth_err *e);
/* Counts a user's session names "BEGIN.1", "BEGIN.2", ..., up to the first that is free. */
int store_count_names(struct store *st, uid_t uid, const char *begin, int64_t *n, struct hearth_err *e);

/* Moves the fork's own turns to its parent, where they replace everything after the shared turns; the fork is
 * removed. */
int store_adopt(struct store *st, const struct store_session *fork, const struct store_session *parent, double now,
                struct hearth_err *e);

/* Clears removed text from the write-ahead log, where it remains until then. HEARTH_ESTORE while a copy is being
 * made. */
int store_scrub(struct store *st, struct hearth_err *e);

/* Copies the database file at `from`, which may be in use, to a new file at `to`, mode 0600: synced, and renamed into
 * place when it is complete. An existing file is HEARTH_EIO or, with `replace`, replaced; the database itself never is.
 * Setting `*stop` ends the copy early. Any thread. */
int store_copy(const char *from, const char *to, bool replace, const atomic_bool *stop, int64_t *bytes,
               struct hearth_err *e);
const char *store_path(const struct store *st);

/* Whether the path lies in or below the database's directory, where no copy may be put: SQLite would take a file named
 * sessions.db-journal for the rollback journal of an unfinished transaction, and other names there belong to KV files,
 * stream journals and locks. */
bool store_is_own_place(const struct store *st, const char *path);

/* How often the loop has slept (5 ms each time) waiting for a lock that another program held; for tests. */
int64_t store_naps(const struct store *st);

/* Whether `ref` is a session id, and therefore cannot be a name. */
bool store_is_id(const char *ref);

#endif
