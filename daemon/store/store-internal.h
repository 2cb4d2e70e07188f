/*
 * store-internal.h - what the parts of the store share: the database, the statements, how they run. No other room
 * includes it, so SQLite is seen here alone. README.md says what each part is. Loop thread.
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

/* The bytes of one user's sessions: added up once, at 5 us a session, and kept. No other program writes to the
 * database. */
struct store_total {
    uid_t uid;
    int64_t bytes;
};

struct store {
    int dir_fd; /* is locked, so that one hearthd at a time appends to these sessions */
    sqlite3 *db;
    char *path;
    dev_t dev; /* of the file that is open, which may be deleted under hearthd */
    ino_t ino;
    bool full;           /* store_is_full() */
    long backup_version; /* version of the copy that migrate.c keeps; 0: there is none */
    sqlite3_stmt *stmt[N_SQL];
    struct store_total *totals; /* of the users whose total was asked for */
    size_t n_totals;
    bool has_deleted;                                  /* store_purge_some() may have something to do */
    TAILQ_HEAD(, timeline_cache_entry) timeline_cache; /* last used last */
    size_t timeline_cache_ids;
    int64_t naps; /* taken for other programs' locks in all; and of the window that began then, open.c says which */
    int64_t window_begin, window_naps;
    struct store_work work; /* as of the last store_work(); rows that were given are counted at once */
    int changes;            /* SQLite's counter of changed rows by then */
    int64_t data_version;   /* SQLite's counter of other programs' commits; 0: not read yet */
};

extern const char *const store_migrations[STORE_VERSION];
extern const char *const store_sql[N_SQL];

/* Fills *e with `what` and SQLite's message, and returns HEARTH_ESTORE. */
int store_fail(struct store *st, const char *what, struct hearth_err *e);

/* chain.c: runs SQL_TOKENS, SQL_TURNS, SQL_LENGTHS or SQL_LAST_GENERATION over a session's turns, those of the sessions
 * that it is a fork of among them. chain_close() after chain_open() in any case. */
enum {
    CHAIN_MAX = 4096,
    FORK_DEPTH_MAX = 1024, /* of new forks; each session of a chain is looked up whenever the last one is read */
};
struct segment {
    char id[STORE_ID_LEN + 1];
    int64_t from, end; /* numbers of turns */
};
struct chain {
    struct store *st;
    sqlite3_stmt *q;
    struct segment *segment; /* [n], the session's own first */
    size_t n, left;
    bool bound;
};
int chain_open(struct store *st, struct chain *c, enum sql which, const struct store_session *s, struct hearth_err *e);
/* As sqlite3_step(): a row, or the end of all. */
int chain_step(struct chain *c);
/* The row of the newest session of the chain that gives one, of a statement that gives one of a session at most. */
int chain_last(struct chain *c);
/* Whether the row is the session's own. */
bool chain_is_own(const struct chain *c);
void chain_close(struct chain *c);

/* vfs.c: returns the name of the file layer (SQLite's VFS) that every connection uses. */
const char *store_vfs(void);

/* migrate.c: keeps a copy of the database before it is migrated from that version; finds such a copy at a start;
 * removes a session from it. */
int migrate_backup(struct store *st, int64_t version, struct hearth_err *e);
void migrate_find_backup(struct store *st);
int migrate_remove_session(struct store *st, const struct store_session *s, struct hearth_err *e);

/* checksum.c: defines the SQL function row_sum(). */
int store_define_checksum(struct store *st, struct hearth_err *e);

/* Returns a statement that is ready for its values. */
sqlite3_stmt *store_stmt(struct store *st, enum sql which);

/* Runs a statement that gives no rows; and one that gives a number. */
int store_run(struct store *st, sqlite3_stmt *q, const char *what, struct hearth_err *e);
int store_get_int(struct store *st, sqlite3_stmt *q, const char *what, int64_t *v, struct hearth_err *e);

int store_begin(struct store *st, struct hearth_err *e);
int store_end(struct store *st, int rc, const char *what, struct hearth_err *e); /* commits, or undoes where rc < 0 */

/* Inserts one more turn of a session. */
int store_insert_turn(struct store *st, const struct store_session *s, const struct store_turn *t,
                      struct hearth_err *e);

/* reserve.c: gives up the room that is kept for a removal on a full disk; false where there is none. */
bool store_reserve_give(struct store *st);

/* turns.c: reads a turn by its number, with all of its text and the first n of its ids; store_turns_free(, 1). */
int store_read_turn(struct store *st, const struct store_session *s, int64_t number, size_t n, struct store_turn **out,
                    struct hearth_err *e);

/* remove.c: takes the session from its owner, in a transaction, but for what its forks have of it; *freed is by how
 * many bytes the owner has less. */
int store_take_away(struct store *st, const struct store_session *s, int64_t *freed, struct hearth_err *e);
/* ... and what nobody has any more of removed sessions from the trunk at `id` on. */
int store_trim_trunks(struct store *st, const char *id, int64_t *freed, struct hearth_err *e);

/* store.c */
int session_from_row(sqlite3_stmt *q, struct store_session **out, struct hearth_err *e);
/* The sums that turns add to their session's row. */
struct amount {
    int64_t bytes, n_turns, n_tok;
};
struct amount amount_of(const struct store_turn *turns, size_t n);
int store_set_sum(struct store *st, const char *id, struct hearth_err *e); /* that of the row as it is */
int store_insert_session(struct store *st, const struct store_session *s, const struct amount *more,
                         struct hearth_err *e);

/* timeline-cache.c */
void timeline_cache_forget(struct store *st, const char *id);
void timeline_cache_clear(struct store *st);

/* Adds committed bytes to a user's total where that is known; and drops the total, so that it is added up again. */
void store_total_add(struct store *st, uid_t uid, int64_t bytes);
void store_total_forget(struct store *st, uid_t uid);

/* Whether t can be seconds since the epoch: it is finite and at most 1e12 from it. */
bool store_is_time(double t);

/* Copies a text column, malloc'd; NULL where it is another type or has a NUL in it. */
char *store_text(sqlite3_stmt *q, int i);

#endif
