/*
 * store-internal.h - what the files of the store share: the database, its statements and how they run. No other
 * directory includes it, so SQLite is visible here only. README.md says what each file is. Loop thread.
 */
#ifndef DAEMON_STORE_INTERNAL_H
#define DAEMON_STORE_INTERNAL_H

#include <sqlite3.h>
#include <sys/queue.h>

#include "daemon/store/store.h"

enum sql {
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_GET_ID,
    SQL_GET_NAME,
    SQL_LIST,
    SQL_LIST_OLD,
    SQL_LIST_UNUSED,
    SQL_COUNT,
    SQL_BYTES,
    SQL_UIDS,
    SQL_LAST_USED,
    SQL_GET_CLOCK,
    SQL_SET_CLOCK,
    SQL_DATA_VERSION,
    SQL_TOKENS,
    SQL_TURNS,
    SQL_LAST_GENERATION,
    SQL_LENGTHS,
    SQL_LINK,
    SQL_INSERT,
    SQL_SUM,
    SQL_UPDATE,
    SQL_INSERT_TURN,
    SQL_PIN,
    SQL_RENAME,
    SQL_REMOVE,
    SQL_REMOVE_NAME,
    SQL_ASSIGN_IDS,
    SQL_SOFT_DELETE,
    SQL_HIDE,
    SQL_PUBLISH,
    SQL_DROP_PARTS,
    SQL_DELETED,
    SQL_SHARED,
    SQL_SHARES,
    SQL_MAKE_TRUNK,
    SQL_GET_TRUNK,
    SQL_TRUNK_WITH_TAIL,
    SQL_OWN_BYTES,
    SQL_MOVE_TURNS,
    SQL_MOVE_FORKS,
    SQL_ADOPT,
    SQL_COUNT_NAMES,
    SQL_KV_MOVE,
    SQL_LAST_TURNS,
    SQL_REMOVE_TURNS,
    SQL_REMOVE_ORPHANS,
    SQL_REMOVE_ORPHANS_OF,
    SQL_COMMIT_STREAM,
    SQL_IS_COMMITTED,
    SQL_LAST_STREAM,
    SQL_FORGET_STREAMS,
    SQL_KV_LOST,
    SQL_KV_LIST,
    SQL_KV_SAVE,
    SQL_KV_TOUCH,
    SQL_KV_REMOVE,
    SQL_KV_REMOVE_ROW,
    SQL_KV_CLOCK,
    SQL_KV_SET_CLOCK,
    N_SQL,
};

/* The bytes of one user's sessions. Summed up once, at 5 us a session, and cached, as no other program writes to the
 * database. */
struct store_total {
    uid_t uid;
    int64_t bytes;
};

struct store {
    int dir_fd; /* locked, so that only one hearthd at a time appends to these sessions */
    sqlite3 *db;
    char *path;
    dev_t dev; /* of the opened file, which may be deleted while hearthd runs */
    ino_t ino;
    bool full;           /* store_is_full() */
    long backup_version; /* version of the copy that migrate.c keeps; 0 if there is none */
    sqlite3_stmt *stmt[N_SQL];
    struct store_total *totals; /* of the users whose total has been requested */
    size_t n_totals;
    bool has_deleted;                                  /* store_purge_some() may have something to do */
    TAILQ_HEAD(, timeline_cache_entry) timeline_cache; /* most recently used last */
    size_t timeline_cache_ids;
    int64_t naps; /* sleeps on other programs' locks: in total; and in the current window (on_busy() in open.c) */
    int64_t window_begin, window_naps;
    struct store_work work; /* up to the last store_work(); returned rows are counted at once */
    int changes;            /* SQLite's counter of changed rows at that time */
    int64_t data_version;   /* SQLite's counter of other programs' commits, at the last timeline_cache_check() */
};

extern const char *const store_migrations[STORE_VERSION];
extern const char *const store_sql[N_SQL];

/* Fills *e with `what` and SQLite's message and returns HEARTH_ESTORE. Sets st->full if there was no room on the
 * disk. */
int store_fail(struct store *st, const char *what, struct hearth_err *e);

/* chain.c: runs SQL_TOKENS, SQL_TURNS, SQL_LENGTHS or SQL_LAST_GENERATION over a session's turns, including those that
 * it shares with the sessions it was forked from. chain_close() is required after chain_open(), even if that failed. */
enum {
    CHAIN_MAX = 4096,
    FORK_DEPTH_MAX = 1024, /* for new forks: every session of a chain is looked up whenever the last one is read */
};
struct segment {
    char id[STORE_ID_LEN + 1];
    int64_t from, end; /* turn numbers: [from, end) */
};
struct chain {
    struct store *st;
    sqlite3_stmt *q;
    struct segment *segment; /* [n], the session's own first */
    size_t n, left;
    bool bound;
};
int chain_open(struct store *st, struct chain *c, enum sql which, const struct store_session *s, struct hearth_err *e);
/* Like sqlite3_step(): returns SQLITE_ROW, or SQLITE_DONE after the last row of the whole chain. */
int chain_step(struct chain *c);
/* For a statement that yields at most one row per session: steps to the row of the newest session in the chain that has
 * one. */
int chain_last(struct chain *c);
/* Whether the current row belongs to the session itself rather than to one of its ancestors. */
bool chain_is_own(const struct chain *c);
void chain_close(struct chain *c);

/* vfs.c: returns the name of the file layer (SQLite's VFS) that every connection uses. */
const char *store_vfs(void);

/* migrate.c: keep a copy of the database before it is migrated from that version; find such a copy at a start; remove a
 * session from it. */
int migrate_backup(struct store *st, int64_t version, struct hearth_err *e);
void migrate_find_backup(struct store *st);
int migrate_remove_session(struct store *st, const struct store_session *s, struct hearth_err *e);

/* checksum.c: defines the SQL function row_sum(). */
int store_define_checksum(struct store *st, struct hearth_err *e);

/* Returns the statement, reset and ready for its values. */
sqlite3_stmt *store_stmt(struct store *st, enum sql which);

/* Run a statement that returns no rows; and one that returns a number. */
int store_run(struct store *st, sqlite3_stmt *q, const char *what, struct hearth_err *e);
int store_get_int(struct store *st, sqlite3_stmt *q, const char *what, int64_t *v, struct hearth_err *e);

int store_begin(struct store *st, struct hearth_err *e);
int store_end(struct store *st, int rc, const char *what, struct hearth_err *e); /* commits, or rolls back if rc < 0 */

/* Inserts a turn after the session's last one. */
int store_insert_turn(struct store *st, const struct store_session *s, const struct store_turn *t,
                      struct hearth_err *e);

/* reserve.c: frees the disk space reserved for a removal on a full disk; false if there is none. */
bool store_reserve_give(struct store *st);

/* turns.c: reads a turn by its number; free with store_turns_free(, 1). */
int store_read_turn(struct store *st, const struct store_session *s, int64_t number, struct store_turn **out,
                    struct hearth_err *e);

/* remove.c: removes the session, except for the turns that its forks share; to be called within a transaction. *freed
 * is the number of bytes by which its owner's total shrinks. */
int store_take_away(struct store *st, const struct store_session *s, int64_t *freed, struct hearth_err *e);
/* Reduces the trunk at `id`, and those before it, to what their forks still share; adds the bytes to *freed. */
int store_trim_trunks(struct store *st, const char *id, int64_t *freed, struct hearth_err *e);

/* store.c */
int session_from_row(sqlite3_stmt *q, struct store_session **out, struct hearth_err *e);
/* The amounts that turns add to their session's row. */
struct amount {
    int64_t bytes, n_turns, n_tok;
};
struct amount amount_of(const struct store_turn *turns, size_t n);
int store_set_sum(struct store *st, const char *id, struct hearth_err *e); /* sets the checksum of the row as it is */
int store_insert_session(struct store *st, const struct store_session *s, const struct amount *more,
                         struct hearth_err *e);

/* timeline-cache.c */
void timeline_cache_forget(struct store *st, const char *id);
void timeline_cache_clear(struct store *st);
/* Clears the cache if another program has committed anything since the last call. */
void timeline_cache_check(struct store *st);

/* Add committed bytes to a user's total if it is cached; and drop the cached total, so that it is summed up again. */
void store_total_add(struct store *st, uid_t uid, int64_t bytes);
void store_total_forget(struct store *st, uid_t uid);

/* No session has more bytes, turns or ids; a row that says so is damaged, whatever its checksum, and no sum of them
 * overflows. SQL has it, too, so it is a plain number. */
#define STORE_SIZE_MAX 9007199254740992 /* 2^53 */

/* Whether t is plausible as seconds since the epoch: finite and at most 1e12 from it. */
bool store_is_time(double t);

/* Copies a text column, malloc'd; NULL if it has another type or contains a NUL byte. */
char *store_text(sqlite3_stmt *q, int i);

#endif
