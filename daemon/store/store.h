/*
 * store.h - sessions on disk. This is the one door to SQLite. Every call blocks on the file, so none is made per token:
 * a turn is written once, when it has ended. Loop thread.
 *
 * The token timeline is the truth: the ids of a session's turns, one after the other, are what the engine computes
 * from. The texts beside them are for people. Rows are outside input (a damaged or foreign file): a row that is not
 * sound is HEARTH_ESTORE, and the message names the session and what is wrong with it.
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
    int64_t bytes; /* of texts and ids; of a fork, its own */
    bool pinned;
    /* Of a fork: the session that it was made of ("" for none), which may have been removed since; how many of its
     * leading turns, and of their ids, are that one's by reference. */
    char parent[STORE_ID_LEN + 1];
    bool has_parent; /* it is there, and not removed */
    int64_t base, base_tok;
    bool ephemeral; /* removed when it has not been used for a day, and listed only for who asks */
    bool damaged;   /* the row is not sound: the session can only be removed, and strings may be NULL */
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
    bool continues;      /* in a page: this is the rest of the turn before */
    const char *message; /* JSON: the message as it was given, where it was more than a role and a text; or NULL */
};

/*
 * Opens DIR/sessions.db, creating both as needed, and migrates it to STORE_VERSION: all steps in one transaction, after
 * a copy of the old file was kept as sessions.db.vN, where N is its version. A database of a newer version, a damaged
 * one and one that cannot be written are refused and left untouched.
 */
int store_open(struct store **out, const char *dir, struct hearth_err *e);

/* Opens the database at `path` once more, to read it as it is at one moment, whatever is written meanwhile; for another
 * thread, which closes it soon: the log grows until then. What only reads may be called. */
int store_open_reader(struct store **out, const char *path, struct hearth_err *e);
void store_close(struct store *st);

/* What the database has done since it was opened: rows given and changed, and bytes of the pages read and written. */
struct store_work {
    int64_t rows, bytes;
};
void store_work(struct store *st, struct store_work *w);

/* Reads a session of that uid, by id where `ref` is 16 hex digits, else by name. HEARTH_ENOSESSION; HEARTH_ESTORE for a
 * damaged one. */
int store_get(struct store *st, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e);
/* The same, but a damaged one is found too. */
int store_find(struct store *st, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e);
void store_session_free(struct store_session *s);

/* A listing continues after that session. An id "" is the beginning of a listing, and also its end. */
struct store_cursor {
    double used;
    char id[STORE_ID_LEN + 1];
};

/* Lists a uid's next sessions, damaged ones too, ephemeral ones where they are asked for, `most` at most, the last used
 * first, and moves the cursor. The caller frees each session and the array. */
int store_list(struct store *st, uid_t uid, bool ephemeral, struct store_cursor *at, size_t most,
               struct store_session ***out, size_t *n, struct hearth_err *e);
int store_count(struct store *st, uid_t uid, int64_t *n, struct hearth_err *e);

/* For limits: the bytes of all of a uid's sessions; the uids that have any, malloc'd. */
int store_bytes(struct store *st, uid_t uid, int64_t *n, struct hearth_err *e);
int store_uids(struct store *st, uid_t **uids, size_t *n, struct hearth_err *e);

/* Lists the next sessions that retention may remove, the oldest first; none is pinned or damaged. Of all uids those
 * that were not used since `before`, and ephemeral ones since the later `ephemeral_before`; or of one uid all but the
 * one that was used last. */
int store_list_old(struct store *st, double before, double ephemeral_before, struct store_cursor *at, size_t most,
                   struct store_session ***out, size_t *n, struct hearth_err *e);
int store_list_unused(struct store *st, uid_t uid, struct store_cursor *at, size_t most, struct store_session ***out,
                      size_t *n, struct hearth_err *e);

/* The latest time before that one at which a session was used; 0: there is none. */
int store_last_used(struct store *st, double before, double *used, struct hearth_err *e);

/* Reads and writes the state of the clock guard (retention/clock-guard.h); zeros where nothing was written. */
int store_get_clock(struct store *st, double *wall, double *holdoff, struct hearth_err *e);
int store_set_clock(struct store *st, double wall, double holdoff, struct hearth_err *e);

/* Reads the ids of all turns, in order; malloc'd, NULL for none. */
int store_timeline(struct store *st, const struct store_session *s, int32_t **ids, size_t *n, struct hearth_err *e);

/* The same from memory; false where the timeline is not in the cache or not current, and has to be read. */
bool timeline_cache_get(struct store *st, const struct store_session *s, int32_t **ids, size_t *n);
/* Part of a timeline. */
struct store_ids {
    const int32_t *v;
    size_t n;
};
/* Caches the session's timeline, which is the parts one after the other and has that many turns. */
void timeline_cache_put(struct store *st, const char *id, int64_t n_turns, const struct store_ids *part, size_t n_part);

/* Reads the turns in order, without their ids but with n_ids. */
int store_turns(struct store *st, const struct store_session *s, struct store_turn **turns, size_t *n,
                struct hearth_err *e);
void store_turns_free(struct store_turn *turns, size_t n);

/* Reads how the last turn that a model made was generated, as store_turn has it; malloc'd, NULL where none was. */
int store_last_generation(struct store *st, const struct store_session *s, void **made, size_t *len,
                          struct hearth_err *e);

/*
 * Reads a page of the turns, ids included. `*at` is 0 for the first page and is moved by each call; -1 is the end. A
 * page holds about `bytes` of texts and ids and at most `most` turns; its last turn may be cut, and continues in the
 * next page.
 */
int store_page(struct store *st, const struct store_session *s, int64_t *at, size_t bytes, size_t most,
               struct store_turn **turns, size_t *n, struct hearth_err *e);

/* Appends turns and writes turn_open and used, all or nothing. `create` inserts the session's row as well;
 * HEARTH_ESESSIONEXISTS where the name is taken. The same transaction records that `stream` is committed. */
int store_commit(struct store *st, const struct store_session *s, bool create, const struct store_turn *turns, size_t n,
                 int64_t stream, struct hearth_err *e);

/* Whether the last transaction failed because the disk, or a quota, has no room. */
bool store_is_full(const struct store *st);

/* A stream's number is never above this; a row in which one is was not written by hearthd, or is damaged. */
static const int64_t STORE_STREAM_MAX = 1LL << 53;

/* The streams that are committed, whose journals a start has not to commit again. A stream that left nothing is
 * recorded too, so that its number is not given twice. Numbers below `oldest` have no journal and are forgotten. */
int store_commit_nothing(struct store *st, int64_t stream, struct hearth_err *e);
int store_is_committed(struct store *st, int64_t stream, bool *committed, struct hearth_err *e);
int store_last_stream(struct store *st, int64_t *stream, struct hearth_err *e); /* 0: none */
void store_forget_streams(struct store *st, int64_t oldest);

/* Writes a whole session, or nothing. `replaced` (or NULL) is removed in the same transaction. */
int store_import(struct store *st, const struct store_session *s, const struct store_session *replaced,
                 const struct store_turn *turns, size_t n, struct hearth_err *e);

/*
 * The same in parts, as a large session blocks the loop for long: nobody sees anything of it before store_import_end(),
 * and store_import_drop() removes what there is of it (store_purge_some()); so does the next start. `s` has its id and
 * its model all along, and what else it is at the end; its bytes, turns and tokens are those of all parts.
 */
int store_import_begin(struct store *st, const struct store_session *s, struct hearth_err *e);
int store_import_part(struct store *st, const struct store_session *s, const struct store_turn *turns, size_t n,
                      struct hearth_err *e);
int store_import_end(struct store *st, const struct store_session *s, const struct store_session *replaced,
                     struct hearth_err *e);
void store_import_drop(struct store *st, const struct store_session *s);

int store_pin(struct store *st, const struct store_session *s, bool pinned, struct hearth_err *e);
int store_rename(struct store *st, const struct store_session *s, const char *name, struct hearth_err *e);

/* Removes a session: nobody can see it when this returns, and its name is free. The turns of a large one are removed
 * later: store_purge_some() removes a few of all that are left and says in *more whether there are others,
 * store_purge_all() removes all. */
int store_remove(struct store *st, const struct store_session *s, struct hearth_err *e);
/* Keeps room on the disk for that, where there is any and none is kept yet. */
void store_reserve_make(struct store *st);
int store_purge_some(struct store *st, bool *more, struct hearth_err *e);
int store_purge_all(struct store *st, struct hearth_err *e);

/* What the forks of a session have of it: how many there are, and the most turns and ids that one of them has. `but` is
 * left out ("" for none). */
struct store_shared {
    int64_t forks, turns, tokens;
};
int store_shared(struct store *st, const char *id, const char *but, struct store_shared *out, struct hearth_err *e);

/* Which hidden remains of removed sessions will have less to keep when s is left with `left` (`forks` 0: with nothing,
 * it goes), and how many ids that is; malloc'd. */
struct store_trunk {
    char id[STORE_ID_LEN + 1];
    int64_t tokens;
};
int store_trunks(struct store *st, const struct store_session *s, const struct store_shared *left,
                 struct store_trunk **out, size_t *n, struct hearth_err *e);

/* Where a timeline is cut after `at` ids. */
struct store_cut {
    int64_t turns, tokens;   /* whole turns before it, and their ids */
    bool open;               /* a chat's assistant turn has begun before it */
    bool inside;             /* it is inside of the turn after those: */
    bool generated;          /* which was generated */
    struct store_turn *turn; /* with the ids before the cut and all of its text; store_turns_free(, 1), NULL: none */
};
/* at < s->n_tok. HEARTH_ESTORE where the session has fewer ids. */
int store_cut(struct store *st, const struct store_session *s, int64_t at, struct store_cut *out, struct hearth_err *e);

/* Makes forks, all or none: sessions that have s->base turns of s->parent by reference, and these turns for their own.
 * HEARTH_ESESSIONEXISTS; HEARTH_ELIMIT where s->parent is a fork of too many forks already. */
int store_fork(struct store *st, const struct store_session *const *s, size_t n, const struct store_turn *own,
               size_t n_own, struct hearth_err *e);
/* How many names of a user begin so, and go on with a dot. */
int store_count_names(struct store *st, uid_t uid, const char *begin, int64_t *n, struct hearth_err *e);

/* The fork's own turns become its parent's, in place of what that has from there on; the fork is gone. */
int store_adopt(struct store *st, const struct store_session *fork, const struct store_session *parent, double now,
                struct hearth_err *e);

/* Clears removed text out of the database's log, where it lies until then. HEARTH_ESTORE while a copy is being made. */
int store_scrub(struct store *st, struct hearth_err *e);

/* Copies the database file at `from`, which may be in use, to a new file at `to`, mode 0600: synced and renamed to its
 * place when it is whole. An existing file is HEARTH_EIO or, with `replace`, replaced; the database itself never is.
 * Setting `*stop` ends the copy early. Any thread. */
int store_copy(const char *from, const char *to, bool replace, const atomic_bool *stop, int64_t *bytes,
               struct hearth_err *e);
const char *store_path(const struct store *st);

/* Whether the path lies in the database's folder or below, where no copy may be put: a file that is called
 * sessions.db-journal would be taken by SQLite for the journal of a transaction to undo, and other names there are
 * those of KV files, streams' journals and locks. */
bool store_is_own_place(const struct store *st, const char *path);

/* How often the loop has waited (5 ms each time) for a lock that another program held. */
int64_t store_naps(const struct store *st);

/* Whether `ref` is an id, and so can be no name. */
bool store_is_id(const char *ref);

#endif
