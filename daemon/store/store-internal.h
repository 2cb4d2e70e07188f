/*
 * store-internal.h - what the parts of the store share: the database, the statements, how they run. Nobody else
 * includes it: SQLite is the store's affair alone.
 *
 * sql.c has the texts, open.c the opening and the versions, migrate.c what was there before, copy.c
 * copies of the file, vfs.c how it is written, store.c sessions, turns.c what they hold, timeline-cache.c
 * what of it is in memory, remove.c how they go, kv-manifest.c the manifest of the KV files, checksum.c the rows'
 * checksums.
 */
#ifndef DAEMON_STORE_INSIDE_H
#define DAEMON_STORE_INSIDE_H

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

/* What the sessions of one user hold: added up once, 5 us for each, and kept. Nobody else writes to the database. */
struct store_total {
    uid_t uid;
    int64_t bytes;
};

struct store {
    int dir_fd; /* locked: one hearthd at a time appends to these sessions */
    sqlite3 *db;
    char *path;
    long backup_version; /* there is a copy of the database as it was at that version; 0: none */
    sqlite3_stmt *stmt[N_SQL];
    struct store_total *totals; /* of those users whose was asked for */
    size_t n_totals;
    bool has_deleted;                                  /* store_purge_some() has something to do, or may have */
    TAILQ_HEAD(, timeline_cache_entry) timeline_cache; /* last used last */
    size_t timeline_cache_ids;
    int64_t data_version; /* as SQLite counts other programs' commits; 0: not looked at yet */
};

extern const char *const store_migrations[STORE_VERSION];
extern const char *const store_sql[N_SQL];

/* Fills *e with what SQLite says of `what`; HEARTH_ESTORE. */
int store_fail(const struct store *st, const char *what, struct hearth_err *e);

/* vfs.c: the name of the file layer that every connection uses. */
const char *store_vfs(void);

/* migrate.c: keeps a copy before the database leaves that version; looks whether there is one; takes a session from
 * it. */
int migrate_backup(struct store *st, int64_t version, struct hearth_err *e);
void migrate_find_backup(struct store *st);
int migrate_remove_session(struct store *st, const struct store_session *s, struct hearth_err *e);

/* checksum.c: the function row_sum() of the texts. */
int store_define_checksum(struct store *st, struct hearth_err *e);

/* A statement, ready for its values. */
sqlite3_stmt *store_stmt(struct store *st, enum sql which);

/* Runs one that gives no rows; and one that gives a number. */
int store_run(struct store *st, sqlite3_stmt *q, const char *what, struct hearth_err *e);
int store_get_int(struct store *st, sqlite3_stmt *q, const char *what, int64_t *v, struct hearth_err *e);

int store_begin(struct store *st, struct hearth_err *e);
int store_end(struct store *st, int rc, const char *what, struct hearth_err *e); /* commits, or undoes where rc < 0 */

/* One more turn of a session. */
int store_insert_turn(struct store *st, const struct store_session *s, const struct store_turn *t,
                      struct hearth_err *e);

/* remove.c: the session is nobody's any more, and gone if it is small; in a transaction or not. */
int store_soft_delete(struct store *st, const struct store_session *s, struct hearth_err *e);

/* timeline-cache.c */
void timeline_cache_forget(struct store *st, const char *id);
void timeline_cache_clear(struct store *st);

/* What a user's sessions hold, where it is known: something was committed; it is to be added up again. */
void store_total_add(struct store *st, uid_t uid, int64_t bytes);
void store_total_forget(struct store *st, uid_t uid);

/* True for what can be seconds since the epoch: neither infinite nor far from all times. */
bool store_is_time(double t);

/* A text column without NULs, copied; NULL where it is anything else. */
char *store_text(sqlite3_stmt *q, int i);

#endif
