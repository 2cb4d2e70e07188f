/* store.c - sessions and turns in SQLite. Every statement is one row of sql[], prepared when the store opens. */
#include "config.h"

#include "daemon/store.h"

#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_MOMENTS = 50 };

/* migrations[v] takes a database from version v to v + 1, inside one transaction. Never edit one that was released. */
static const char *const migrations[STORE_VERSION] = {
    "CREATE TABLE sessions("
    "  id TEXT PRIMARY KEY, uid INTEGER NOT NULL, name TEXT NOT NULL, model TEXT NOT NULL, path TEXT NOT NULL,"
    "  turn_open INTEGER NOT NULL, created REAL NOT NULL, used REAL NOT NULL, UNIQUE(uid, name)) WITHOUT ROWID;"
    /* tokens: int32, little endian, one after the other */
    "CREATE TABLE turns("
    "  session TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, seq INTEGER NOT NULL, role TEXT NOT NULL,"
    "  text BLOB NOT NULL, tokens BLOB NOT NULL, created REAL NOT NULL, UNIQUE(session, seq));",
    /* streams of the journal whose turns are in here */
    "CREATE TABLE folded(stream INTEGER PRIMARY KEY);",
};

enum sql {
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_GET_ID,
    SQL_GET_NAME,
    SQL_LIST,
    SQL_COUNT,
    SQL_TOKENS,
    SQL_TURNS,
    SQL_INSERT,
    SQL_UPDATE,
    SQL_INSERT_TURN,
    SQL_RENAME,
    SQL_REMOVE,
    SQL_FOLD,
    SQL_IS_FOLDED,
    SQL_LAST_STREAM,
    SQL_FORGET_STREAMS,
    N_SQL,
};

#define SESSION                                                                       \
    "SELECT id, name, model, path, turn_open, created, used,"                         \
    " (SELECT count(*) FROM turns WHERE session = s.id),"                             \
    " (SELECT coalesce(sum(length(tokens)), 0) FROM turns WHERE session = s.id), uid" \
    " FROM sessions s WHERE uid = ?1"

static const char *const sql[N_SQL] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_GET_ID] = SESSION " AND id = ?2",
    [SQL_GET_NAME] = SESSION " AND name = ?2",
    [SQL_LIST] = SESSION " ORDER BY used DESC, id",
    [SQL_COUNT] = "SELECT count(*) FROM sessions WHERE uid = ?1",
    [SQL_TOKENS] = "SELECT tokens FROM turns WHERE session = ?1 ORDER BY seq",
    [SQL_TURNS] = "SELECT role, text, length(tokens), created FROM turns WHERE session = ?1 ORDER BY seq",
    [SQL_INSERT] = "INSERT INTO sessions(id, uid, name, model, path, turn_open, created, used)"
                   " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [SQL_UPDATE] = "UPDATE sessions SET turn_open = ?2, used = ?3 WHERE id = ?1",
    [SQL_INSERT_TURN] = "INSERT INTO turns(session, seq, role, text, tokens, created) VALUES(?1,"
                        " (SELECT coalesce(max(seq) + 1, 0) FROM turns WHERE session = ?1), ?2, ?3, ?4, ?5)",
    [SQL_RENAME] = "UPDATE sessions SET name = ?2 WHERE id = ?1",
    [SQL_REMOVE] = "DELETE FROM sessions WHERE id = ?1",
    [SQL_FOLD] = "INSERT INTO folded(stream) VALUES(?1)",
    [SQL_IS_FOLDED] = "SELECT count(*) FROM folded WHERE stream = ?1",
    [SQL_LAST_STREAM] = "SELECT coalesce(max(stream), 0) FROM folded",
    [SQL_FORGET_STREAMS] = "DELETE FROM folded WHERE stream < ?1 AND stream < (SELECT max(stream) FROM folded)",
};

struct store {
    int dir_fd; /* locked: one hearthd at a time appends to these sessions */
    sqlite3 *db;
    sqlite3_stmt *stmt[N_SQL];
};

bool store_is_id(const char *ref)
{
    return strlen(ref) == STORE_ID_LEN && strspn(ref, "0123456789abcdef") == STORE_ID_LEN;
}

/* --- opening -------------------------------------------------------------------------------------------- */

static int make_dirs(const char *dir, struct hearth_err *e)
{
    char *path = strdup(dir);
    if (path == NULL)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    int rc = 0;
    for (char *p = path + 1; rc == 0; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char end = *p;
        *p = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            rc = err_set(e, HEARTH_ESTORE, "%s: cannot be made: %s", path, strerror(errno));
        *p = end;
        if (end == '\0')
            break;
    }
    free(path);
    return rc;
}

static int lock_dir(struct store *st, const char *dir, struct hearth_err *e)
{
    st->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (st->dir_fd < 0)
        return err_set(e, HEARTH_ESTORE, "%s: %s", dir, strerror(errno));
    /* A killed hearthd's lock may outlive it in a child that is on its way to exec: by moments. */
    static const struct timespec moment = {.tv_nsec = 10 * 1000 * 1000};
    int rc = -1;
    for (int i = 0; i < LOCK_MOMENTS && (rc = flock(st->dir_fd, LOCK_EX | LOCK_NB)) != 0 && errno == EWOULDBLOCK; i++)
        nanosleep(&moment, NULL);
    if (rc != 0)
        return err_set(e, HEARTH_ESTORE, "%s: %s", dir,
                       errno == EWOULDBLOCK ? "in use by another hearthd" : strerror(errno));
    return 0;
}

/* SQLite would create the file with the umask's mode; and it opens a file that is read-only without a word. */
static int make_file(const char *path, struct hearth_err *e)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_set(e, HEARTH_ESTORE, "%s: cannot be written: %s", path, strerror(errno));
    close(fd);
    return 0;
}

static int fail(const struct store *st, const char *what, struct hearth_err *e)
{
    return err_set(e, HEARTH_ESTORE, "%s: %s", what, sqlite3_errmsg(st->db));
}

static int exec(struct store *st, const char *text, struct hearth_err *e)
{
    if (sqlite3_exec(st->db, text, NULL, NULL, NULL) != SQLITE_OK)
        return fail(st, "the session database", e);
    return 0;
}

static int user_version(struct store *st, int64_t *v, struct hearth_err *e)
{
    sqlite3_stmt *q = NULL;
    int rc = 0;
    if (sqlite3_prepare_v2(st->db, "PRAGMA user_version", -1, &q, NULL) != SQLITE_OK || sqlite3_step(q) != SQLITE_ROW)
        rc = fail(st, "the session database", e);
    else
        *v = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return rc;
}

static int migrate(struct store *st, int64_t from, struct hearth_err *e)
{
    for (int64_t v = from; v < STORE_VERSION; v++) {
        char set[64];
        snprintf(set, sizeof(set), "PRAGMA user_version = %lld; COMMIT", (long long)v + 1);
        int rc = exec(st, "BEGIN IMMEDIATE", e);
        if (rc == 0)
            rc = exec(st, migrations[v], e);
        if (rc == 0)
            rc = exec(st, set, e);
        if (rc != 0) {
            exec(st, "ROLLBACK", NULL);
            return rc;
        }
    }
    return 0;
}

static int prepare_all(struct store *st, struct hearth_err *e)
{
    for (int i = 0; i < N_SQL; i++)
        if (sqlite3_prepare_v3(st->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &st->stmt[i], NULL) != SQLITE_OK)
            return fail(st, "the session database", e);
    return 0;
}

static int open_db(struct store *st, const char *path, struct hearth_err *e)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
    if (sqlite3_open_v2(path, &st->db, flags, NULL) != SQLITE_OK)
        return err_set(e, HEARTH_ESTORE, "%s: %s", path, st->db != NULL ? sqlite3_errmsg(st->db) : "out of memory");
    sqlite3_busy_timeout(st->db, 250); /* for somebody's sqlite3(1); the loop waits meanwhile, so not for long */
    sqlite3_db_config(st->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);

    /* The version first: journal_mode already writes to the file. */
    int64_t version = -1;
    struct hearth_err why;
    int rc = user_version(st, &version, &why);
    if (rc != 0)
        return err_set(e, rc, "%s is damaged or not a database (%.60s): move it away to start afresh", path, why.msg);
    if (version < 0 || version > STORE_VERSION)
        return err_set(e, HEARTH_ESTORE, "%s is of version %lld, this hearthd knows versions up to %d: left as it is",
                       path, (long long)version, STORE_VERSION);

    /*
     * WAL with synchronous=NORMAL: a commit survives any crash of hearthd and its kill -9 without an fsync. FULL would
     * add one per turn, on the loop that feeds everybody's streams, to guard the last turns against power loss only.
     * The cache is small because a turn is read once, when its session goes on.
     */
    rc = exec(st,
              "PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = ON; PRAGMA cache_size = -256;"
              "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 4194304",
              e);
    if (rc == 0)
        rc = migrate(st, version, e);
    if (rc == 0)
        rc = prepare_all(st, e);
    return rc;
}

int store_open(struct store **out, const char *dir, struct hearth_err *e)
{
    struct store *st = calloc(1, sizeof(*st));
    char *path = NULL;
    if (st == NULL || asprintf(&path, "%s/sessions.db", dir) < 0) {
        free(st);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    st->dir_fd = -1;
    int rc = make_dirs(dir, e);
    if (rc == 0)
        rc = lock_dir(st, dir, e);
    if (rc == 0)
        rc = make_file(path, e);
    if (rc == 0)
        rc = open_db(st, path, e);
    free(path);
    if (rc != 0) {
        store_close(st);
        return rc;
    }
    *out = st;
    return 0;
}

void store_close(struct store *st)
{
    if (st == NULL)
        return;
    for (int i = 0; i < N_SQL; i++)
        sqlite3_finalize(st->stmt[i]);
    sqlite3_close(st->db);
    if (st->dir_fd >= 0)
        close(st->dir_fd);
    free(st);
}

/* --- statements ----------------------------------------------------------------------------------------- */

static sqlite3_stmt *use(struct store *st, enum sql which)
{
    sqlite3_stmt *q = st->stmt[which];
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return q;
}

/* Runs a statement that gives no rows. */
static int run(struct store *st, sqlite3_stmt *q, const char *what, struct hearth_err *e)
{
    int got = sqlite3_step(q);
    int rc = got == SQLITE_DONE ? 0 : fail(st, what, e);
    sqlite3_reset(q);
    return rc;
}

/* A text column without NULs, copied; NULL where it is anything else. */
static char *column_text(sqlite3_stmt *q, int i)
{
    if (sqlite3_column_type(q, i) != SQLITE_TEXT)
        return NULL;
    const char *s = (const char *)sqlite3_column_text(q, i);
    if (s == NULL || strlen(s) != (size_t)sqlite3_column_bytes(q, i))
        return NULL;
    return strdup(s);
}

static int session_from_row(sqlite3_stmt *q, struct store_session **out, struct hearth_err *e)
{
    struct store_session *s = calloc(1, sizeof(*s));
    char *id = column_text(q, 0);
    int rc = 0;
    if (s == NULL) {
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
        goto out;
    }
    if (id == NULL || !store_is_id(id)) {
        rc = err_set(e, HEARTH_ESTORE, "the session database is damaged: \"%.40s\" is no session id", id ? id : "");
        goto out;
    }
    memcpy(s->id, id, sizeof(s->id));
    s->name = column_text(q, 1);
    s->model = column_text(q, 2);
    s->path = column_text(q, 3);
    s->turn_open = sqlite3_column_int(q, 4) != 0;
    s->created = sqlite3_column_double(q, 5);
    s->used = sqlite3_column_double(q, 6);
    s->n_turns = sqlite3_column_int64(q, 7);
    s->n_tok = sqlite3_column_int64(q, 8) / (int64_t)sizeof(int32_t);
    s->uid = (uid_t)sqlite3_column_int64(q, 9);
    if (s->name == NULL || s->model == NULL || s->path == NULL || s->path[0] != '/')
        rc = err_set(e, HEARTH_ESTORE, "session %s is damaged: its name, model or path is not text", id);
out:
    free(id);
    if (rc != 0)
        store_session_free(s);
    else
        *out = s;
    return rc;
}

void store_session_free(struct store_session *s)
{
    if (s == NULL)
        return;
    free(s->name);
    free(s->model);
    free(s->path);
    free(s);
}

/* --- reading -------------------------------------------------------------------------------------------- */

int store_get(struct store *st, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e)
{
    sqlite3_stmt *q = use(st, store_is_id(ref) ? SQL_GET_ID : SQL_GET_NAME);
    sqlite3_bind_int64(q, 1, uid);
    sqlite3_bind_text(q, 2, ref, -1, SQLITE_STATIC);
    int rc;
    switch (sqlite3_step(q)) {
    case SQLITE_ROW:
        rc = session_from_row(q, out, e);
        break;
    case SQLITE_DONE:
        rc = err_set(e, HEARTH_ENOSESSION, "there is no session \"%.80s\"", ref);
        break;
    default:
        rc = fail(st, "reading a session", e);
    }
    sqlite3_reset(q);
    return rc;
}

int store_count(struct store *st, uid_t uid, int64_t *n, struct hearth_err *e)
{
    sqlite3_stmt *q = use(st, SQL_COUNT);
    sqlite3_bind_int64(q, 1, uid);
    int rc = 0;
    if (sqlite3_step(q) == SQLITE_ROW)
        *n = sqlite3_column_int64(q, 0);
    else
        rc = fail(st, "counting sessions", e);
    sqlite3_reset(q);
    return rc;
}

int store_list(struct store *st, uid_t uid, struct store_session ***out, size_t *n, struct hearth_err *e)
{
    struct store_session **v = NULL;
    size_t len = 0, cap = 0;
    sqlite3_stmt *q = use(st, SQL_LIST);
    sqlite3_bind_int64(q, 1, uid);
    int rc = 0, got;
    while ((got = sqlite3_step(q)) == SQLITE_ROW) {
        if (len == cap) {
            cap = cap != 0 ? cap * 2 : 16;
            struct store_session **grown = reallocarray(v, cap, sizeof(*v));
            if (grown == NULL) {
                rc = err_set(e, HEARTH_ENOMEM, "out of memory");
                break;
            }
            v = grown;
        }
        struct hearth_err why;
        rc = session_from_row(q, &v[len], &why);
        if (rc == HEARTH_ESTORE) {
            log_warn("%s", why.msg); /* one damaged row does not hide the others */
            rc = 0;
            continue;
        }
        if (rc != 0) {
            err_set(e, rc, "%s", why.msg);
            break;
        }
        len++;
    }
    if (rc == 0 && got != SQLITE_DONE)
        rc = fail(st, "listing sessions", e);
    sqlite3_reset(q);
    if (rc != 0) {
        while (len > 0)
            store_session_free(v[--len]);
        free(v);
        return rc;
    }
    *out = v;
    *n = len;
    return 0;
}

/* Appends a row's little-endian ids to *v. */
static int append_ids(sqlite3_stmt *q, int column, const char *id, int32_t **v, size_t *n, struct hearth_err *e)
{
    size_t bytes = (size_t)sqlite3_column_bytes(q, column);
    const uint8_t *p = sqlite3_column_blob(q, column);
    if (sqlite3_column_type(q, column) != SQLITE_BLOB || bytes % 4 != 0)
        return err_set(e, HEARTH_ESTORE, "session %s is damaged: a turn's tokens are %zu bytes", id, bytes);
    if (bytes == 0)
        return 0;
    if (p == NULL)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    int32_t *grown = reallocarray(*v, *n + bytes / 4, sizeof(**v));
    if (grown == NULL)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *v = grown;
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t t = (uint32_t)p[i] | (uint32_t)p[i + 1] << 8 | (uint32_t)p[i + 2] << 16 | (uint32_t)p[i + 3] << 24;
        if (t > INT32_MAX)
            return err_set(e, HEARTH_ESTORE, "session %s is damaged: token %zu is negative", id, *n);
        grown[(*n)++] = (int32_t)t;
    }
    return 0;
}

int store_timeline(struct store *st, const struct store_session *s, int32_t **ids, size_t *n, struct hearth_err *e)
{
    int32_t *v = NULL;
    size_t len = 0;
    sqlite3_stmt *q = use(st, SQL_TOKENS);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    int rc = 0, got;
    while (rc == 0 && (got = sqlite3_step(q)) == SQLITE_ROW)
        rc = append_ids(q, 0, s->id, &v, &len, e);
    if (rc == 0 && got != SQLITE_DONE)
        rc = fail(st, "reading a session's tokens", e);
    sqlite3_reset(q);
    if (rc != 0) {
        free(v);
        return rc;
    }
    *ids = v;
    *n = len;
    return 0;
}

/* Two passes over the rows: the sizes, then one block of turns followed by their strings. */
int store_turns(struct store *st, const struct store_session *s, struct store_turn **turns, size_t *n,
                struct hearth_err *e)
{
    sqlite3_stmt *q = use(st, SQL_TURNS);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    size_t rows = 0, bytes = 0;
    int got;
    while ((got = sqlite3_step(q)) == SQLITE_ROW) {
        rows++;
        bytes += (size_t)sqlite3_column_bytes(q, 0) + (size_t)sqlite3_column_bytes(q, 1) + 2;
    }
    struct store_turn *v = NULL;
    int rc = got == SQLITE_DONE ? 0 : fail(st, "reading a session's turns", e);
    if (rc == 0 && (v = calloc(1, rows * sizeof(*v) + bytes + 1)) == NULL)
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
    char *p = (char *)(v + rows);
    sqlite3_reset(q);
    for (size_t i = 0; rc == 0 && i < rows; i++) {
        if (sqlite3_step(q) != SQLITE_ROW) {
            rc = fail(st, "reading a session's turns", e);
            break;
        }
        struct store_turn *t = &v[i];
        const void *role = sqlite3_column_text(q, 0);
        size_t role_len = (size_t)sqlite3_column_bytes(q, 0);
        const void *text = sqlite3_column_blob(q, 1);
        t->len = (size_t)sqlite3_column_bytes(q, 1);
        t->n_ids = (size_t)sqlite3_column_int64(q, 2) / 4;
        t->created = sqlite3_column_double(q, 3);
        if (role != NULL)
            memcpy(p, role, role_len);
        t->role = p;
        p += role_len + 1;
        if (text != NULL)
            memcpy(p, text, t->len);
        t->text = p;
        p += t->len + 1;
    }
    sqlite3_reset(q);
    if (rc != 0) {
        free(v);
        return rc;
    }
    *turns = v;
    *n = rows;
    return 0;
}

/* --- writing -------------------------------------------------------------------------------------------- */

static int insert_session(struct store *st, const struct store_session *s, struct hearth_err *e)
{
    sqlite3_stmt *q = use(st, SQL_INSERT);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 2, s->uid);
    sqlite3_bind_text(q, 3, s->name, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 4, s->model, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 5, s->path, -1, SQLITE_STATIC);
    sqlite3_bind_int(q, 6, s->turn_open);
    sqlite3_bind_double(q, 7, s->created);
    sqlite3_bind_double(q, 8, s->used);
    int rc = run(st, q, "creating a session", e);
    if (rc != 0 && sqlite3_extended_errcode(st->db) == SQLITE_CONSTRAINT_UNIQUE)
        rc = err_set(e, HEARTH_ESESSIONEXISTS, "there is a session \"%.80s\" already", s->name);
    return rc;
}

static int update_session(struct store *st, const struct store_session *s, struct hearth_err *e)
{
    sqlite3_stmt *q = use(st, SQL_UPDATE);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    sqlite3_bind_int(q, 2, s->turn_open);
    sqlite3_bind_double(q, 3, s->used);
    int rc = run(st, q, "updating a session", e);
    if (rc == 0 && sqlite3_changes(st->db) != 1)
        rc = err_set(e, HEARTH_ENOSESSION, "session %s has been removed", s->id);
    return rc;
}

static int insert_turn(struct store *st, const struct store_session *s, const struct store_turn *t,
                       struct hearth_err *e)
{
    uint8_t *le = malloc(t->n_ids * 4 + 1);
    if (le == NULL)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    for (size_t i = 0; i < t->n_ids; i++)
        for (int b = 0; b < 4; b++)
            le[i * 4 + (size_t)b] = (uint8_t)((uint32_t)t->ids[i] >> (8 * b));
    sqlite3_stmt *q = use(st, SQL_INSERT_TURN);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 2, t->role, -1, SQLITE_STATIC);
    sqlite3_bind_blob64(q, 3, t->len > 0 ? t->text : "", t->len, SQLITE_STATIC);
    sqlite3_bind_blob64(q, 4, le, t->n_ids * 4, SQLITE_STATIC);
    sqlite3_bind_double(q, 5, t->created);
    int rc = run(st, q, "storing a turn", e);
    sqlite3_clear_bindings(q);
    free(le);
    return rc;
}

int store_commit(struct store *st, const struct store_session *s, bool create, const struct store_turn *turns, size_t n,
                 int64_t stream, struct hearth_err *e)
{
    int rc = run(st, use(st, SQL_BEGIN), "the session database", e);
    if (rc != 0)
        return rc;
    rc = create ? insert_session(st, s, e) : update_session(st, s, e);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = insert_turn(st, s, &turns[i], e);
    if (rc == 0)
        rc = store_fold_nothing(st, stream, e);
    if (rc == 0)
        rc = run(st, use(st, SQL_COMMIT), "storing a turn", e);
    if (rc != 0 && !sqlite3_get_autocommit(st->db))
        run(st, use(st, SQL_ROLLBACK), "undoing a turn", NULL);
    return rc;
}

int store_rename(struct store *st, const struct store_session *s, const char *name, struct hearth_err *e)
{
    sqlite3_stmt *q = use(st, SQL_RENAME);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 2, name, -1, SQLITE_STATIC);
    int rc = run(st, q, "renaming a session", e);
    if (rc != 0 && sqlite3_extended_errcode(st->db) == SQLITE_CONSTRAINT_UNIQUE)
        rc = err_set(e, HEARTH_ESESSIONEXISTS, "there is a session \"%.80s\" already", name);
    return rc;
}

int store_remove(struct store *st, const struct store_session *s, struct hearth_err *e)
{
    sqlite3_stmt *q = use(st, SQL_REMOVE);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    return run(st, q, "removing a session", e);
}

/* --- streams -------------------------------------------------------------------------------------------- */

int store_fold_nothing(struct store *st, int64_t stream, struct hearth_err *e)
{
    sqlite3_stmt *q = use(st, SQL_FOLD);
    sqlite3_bind_int64(q, 1, stream);
    return run(st, q, "remembering a stream", e);
}

/* A statement that gives one number. */
static int get_number(struct store *st, sqlite3_stmt *q, int64_t *v, struct hearth_err *e)
{
    int rc = 0;
    if (sqlite3_step(q) == SQLITE_ROW)
        *v = sqlite3_column_int64(q, 0);
    else
        rc = fail(st, "looking for streams", e);
    sqlite3_reset(q);
    return rc;
}

int store_is_folded(struct store *st, int64_t stream, bool *folded, struct hearth_err *e)
{
    int64_t n = 0;
    sqlite3_stmt *q = use(st, SQL_IS_FOLDED);
    sqlite3_bind_int64(q, 1, stream);
    int rc = get_number(st, q, &n, e);
    *folded = n > 0;
    return rc;
}

int store_last_stream(struct store *st, int64_t *stream, struct hearth_err *e)
{
    return get_number(st, use(st, SQL_LAST_STREAM), stream, e);
}

void store_forget_streams(struct store *st, int64_t oldest)
{
    struct hearth_err e;
    sqlite3_stmt *q = use(st, SQL_FORGET_STREAMS);
    sqlite3_bind_int64(q, 1, oldest);
    if (run(st, q, "forgetting streams", &e) != 0)
        log_warn("%s", e.msg);
}
