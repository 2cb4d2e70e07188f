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
    SQL_GET_CLOCK,
    SQL_SET_CLOCK,
    SQL_DATA_VERSION,
    SQL_TOKENS,
    SQL_TURNS,
    SQL_INSERT,
    SQL_UPDATE,
    SQL_INSERT_TURN,
    SQL_PIN,
    SQL_RENAME,
    SQL_REMOVE,
    SQL_REMOVE_NAME,
    SQL_ASSIGN_IDS,
    SQL_SOFT_DELETE,
    SQL_DELETED,
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
int store_fail(const struct store *st, const char *what, struct hearth_err *e);

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

/* remove.c: takes the session from its owner, and removes all of it if it is small; in a transaction or not. */
int store_soft_delete(struct store *st, const struct store_session *s, struct hearth_err *e);

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
