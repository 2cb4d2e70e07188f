/* open.c - creates, locks and checks the database file, and migrates it to the current version. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/store/store-internal.h"

enum { LOCK_MOMENTS = 50 };

int store_make_dirs(const char *dir, struct hearth_err *e)
{
    char *path = strdup(dir);
    if (!path)
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

/* The files in the directory are readable by their owner only, but anyone who may write to the directory can remove
 * them. */
static void warn_if_open_to_others(const struct store *st, const char *dir)
{
    struct stat sb;
    if (fstat(st->dir_fd, &sb) != 0)
        return;
    if (sb.st_uid != geteuid() && sb.st_uid != 0)
        log_warn("%s belongs to user %u, who can take the sessions away", dir, (unsigned)sb.st_uid);
    else if (sb.st_mode & (S_IWGRP | S_IWOTH))
        log_warn("%s can be written by others, who can take the sessions away", dir);
}

static int lock_dir(struct store *st, const char *dir, struct hearth_err *e)
{
    st->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (st->dir_fd < 0)
        return err_set(e, HEARTH_ESTORE, "%s: %s", dir, strerror(errno));
    /* The lock of a killed hearthd may outlive it for a moment, in a child that has forked and not yet called exec. */
    static const struct timespec moment = {.tv_nsec = 10 * 1000 * 1000};
    int rc = -1;
    for (int i = 0; i < LOCK_MOMENTS && (rc = flock(st->dir_fd, LOCK_EX | LOCK_NB)) != 0 && errno == EWOULDBLOCK; i++)
        nanosleep(&moment, NULL);
    if (rc)
        return err_set(e, HEARTH_ESTORE, "%s: %s", dir,
                       errno == EWOULDBLOCK ? "in use by another hearthd" : strerror(errno));
    return 0;
}

/* The path of the directory may contain symbolic links, for instance where a home directory lies elsewhere; they are
 * resolved here. SQLite is then told to follow no link at all, so that the database file itself cannot be one. */
static int find_path(struct store *st, const char *dir, struct hearth_err *e)
{
    char *real = realpath(dir, NULL);
    int rc = real != NULL ? 0 : err_set(e, HEARTH_ESTORE, "%s: %s", dir, strerror(errno));
    if (!rc && asprintf(&st->path, "%s/sessions.db", real) < 0) {
        st->path = NULL;
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    free(real);
    return rc;
}

/* SQLite would create the file with the mode that the umask leaves, and it opens a read-only file or another user's
 * without an error. */
static int make_file(struct store *st, struct hearth_err *e)
{
    const char *path = st->path;
    struct stat sb;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600), rc = 0;
    if (fd < 0 && errno == ELOOP)
        return err_set(e, HEARTH_ESTORE, "%s is a symbolic link: it is not followed", path);
    if (fd < 0 || fstat(fd, &sb) != 0)
        rc = err_set(e, HEARTH_ESTORE, "%s: cannot be written: %s", path, strerror(errno));
    else if (!S_ISREG(sb.st_mode))
        rc = err_set(e, HEARTH_ESTORE, "%s is not a plain file", path);
    else if (sb.st_uid != geteuid())
        rc = err_set(e, HEARTH_ESTORE, "%s belongs to user %u", path, (unsigned)sb.st_uid);
    else if ((sb.st_mode & 077) != 0 && fchmod(fd, 0600) != 0)
        rc = err_set(e, HEARTH_ESTORE, "%s is open to others: %s", path, strerror(errno));
    if (!rc) {
        st->dev = sb.st_dev;
        st->ino = sb.st_ino;
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

/* The files that SQLite keeps beside the database must be plain ones of this user, too. It would wait for whoever opens
 * the other end of a FIFO, and it does not say which of them is at fault. */
static int check_beside(const struct store *st, struct hearth_err *e)
{
    static const char *const parts[] = {"-journal", "-wal", "-shm"};
    char path[PATH_MAX];
    struct stat sb;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (snprintf(path, sizeof path, "%s%s", st->path, parts[i]) >= (int)sizeof path || lstat(path, &sb) != 0)
            continue;
        if (!S_ISREG(sb.st_mode))
            return err_set(e, HEARTH_ESTORE, "%s is not a plain file: move it away", path);
        if (sb.st_uid != geteuid())
            return err_set(e, HEARTH_ESTORE, "%s belongs to user %u", path, (unsigned)sb.st_uid);
    }
    return 0;
}

int store_fail(struct store *st, const char *what, struct hearth_err *e)
{
    int code = sqlite3_errcode(st->db) & 0xff, why = sqlite3_system_errno(st->db);
    st->full = st->full || code == SQLITE_FULL || (code == SQLITE_IOERR && (why == ENOSPC || why == EDQUOT));
    if (code == SQLITE_FULL || code == SQLITE_IOERR) /* the path shows which disk is full */
        return err_set(e, HEARTH_ESTORE, "%s: %s: %.120s", what, sqlite3_errmsg(st->db), st->path);
    return err_set(e, HEARTH_ESTORE, "%s: %s", what, sqlite3_errmsg(st->db));
}

static int exec(struct store *st, const char *text, struct hearth_err *e)
{
    if (sqlite3_exec(st->db, text, NULL, NULL, NULL) != SQLITE_OK)
        return store_fail(st, "the session database", e);
    return 0;
}

/* Reports why the database cannot be used. Only where its content is at fault does it help to move it away: a lock or a
 * full disk may be gone the next time. */
static int refuse(struct store *st, struct hearth_err *e)
{
    int code = sqlite3_errcode(st->db) & 0xff, why = sqlite3_system_errno(st->db);
    store_fail(st, "the session database", NULL); /* notices a full disk */
    switch (code) {
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
        return err_set(e, HEARTH_ESTORE, "%s, or its -wal or -shm, cannot be opened: %.80s", st->path,
                       why ? strerror(why) : sqlite3_errmsg(st->db));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_PERM:
    case SQLITE_READONLY:
        return err_set(e, HEARTH_ESTORE, "%s cannot be opened: %.80s", st->path, sqlite3_errmsg(st->db));
    }
    return err_set(e, HEARTH_ESTORE, "%s is damaged or not a database (%.80s): move it away to start afresh", st->path,
                   sqlite3_errmsg(st->db));
}

static int user_version(struct store *st, int64_t *v, struct hearth_err *e)
{
    sqlite3_stmt *q = NULL;
    int rc = 0;
    if (sqlite3_prepare_v2(st->db, "PRAGMA user_version", -1, &q, NULL) != SQLITE_OK || sqlite3_step(q) != SQLITE_ROW)
        rc = refuse(st, e);
    else
        *v = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return rc;
}

/* A database of no version has no tables yet, as they come with the version, in one transaction; one that has some
 * belongs to another program. */
static int check_empty(struct store *st, struct hearth_err *e)
{
    sqlite3_stmt *q = NULL;
    int rc = 0, got = SQLITE_ERROR;
    if (sqlite3_prepare_v2(st->db, "SELECT 1 FROM sqlite_master LIMIT 1", -1, &q, NULL) != SQLITE_OK ||
        ((got = sqlite3_step(q)) != SQLITE_DONE && got != SQLITE_ROW))
        rc = refuse(st, e);
    else if (got == SQLITE_ROW)
        rc = err_set(e, HEARTH_ESTORE, "%s is a database of another program: left as it is; move it away", st->path);
    sqlite3_finalize(q);
    return rc;
}

/* Clears copies of rows in the gaps of pages, left by versions that had no vfs.c. It is done once, with the migration,
 * which copies the file anyway; a failure does no harm. */
static void blank(struct store *st, int64_t version)
{
    struct hearth_err e;
    if (version > 0 && version < 6 && exec(st, "VACUUM", &e) != 0)
        log_warn("what sessions that were removed have left in the database stays there: %s", e.msg);
}

/* Runs all steps in one transaction. */
static int migrate(struct store *st, int64_t from, struct hearth_err *e)
{
    if (from == STORE_VERSION)
        return 0;
    int rc = from > 0 ? migrate_backup(st, from, e) : 0;
    if (!rc)
        blank(st, from);
    if (!rc && exec(st, "BEGIN IMMEDIATE", e) != 0)
        rc = refuse(st, e);
    for (int64_t v = from; !rc && v < STORE_VERSION; v++)
        if (exec(st, store_migrations[v], e) != 0)
            rc = refuse(st, e);
    char set[64];
    snprintf(set, sizeof set, "PRAGMA user_version = %d; COMMIT", STORE_VERSION);
    if (!rc && exec(st, set, e) != 0)
        rc = refuse(st, e);
    if (rc && !sqlite3_get_autocommit(st->db))
        exec(st, "ROLLBACK", NULL);
    return rc;
}

static int prepare_all(struct store *st, struct hearth_err *e)
{
    for (int i = 0; i < N_SQL; i++)
        if (sqlite3_prepare_v3(st->db, store_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &st->stmt[i], NULL) != SQLITE_OK)
            return refuse(st, e);
    return 0;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/*
 * SQLite's busy handler: another program, for instance a user's sqlite3(1), holds the lock. Waiting blocks the loop and
 * thereby everybody, so it is bounded: at most NAPS_MAX naps per WINDOW_MS over all statements. Beyond that a statement
 * fails at once.
 */
static int on_busy(void *arg, int n)
{
    enum { NAP_MS = 5, NAPS_MAX = 250 / NAP_MS, WINDOW_MS = 5000 };
    static const struct timespec nap = {.tv_nsec = NAP_MS * 1000 * 1000};
    struct store *st = arg;
    int64_t now = now_ms();
    (void)n;
    if (st->window_naps == 0 || now - st->window_begin >= WINDOW_MS) {
        st->window_begin = now;
        st->window_naps = 0;
    }
    if (st->window_naps >= NAPS_MAX)
        return 0;
    st->window_naps++;
    st->naps++;
    nanosleep(&nap, NULL);
    return 1;
}

int64_t store_naps(const struct store *st)
{
    return st->naps;
}

/* A listing needs a session's id. A session whose id is damaged gets a new one; its checksum still marks it as
 * damaged. */
static void assign_ids(struct store *st)
{
    struct hearth_err e;
    if (store_run(st, store_stmt(st, SQL_ASSIGN_IDS), "sessions without ids", &e) != 0)
        log_warn("%s", e.msg);
    else if (sqlite3_changes(st->db) > 0)
        log_warn("%d sessions have lost their ids: they are damaged, and listed under others", sqlite3_changes(st->db));
}

/* Sessions that were being written in parts when hearthd was killed belong to nobody, and are removed. */
static void drop_parts(struct store *st)
{
    struct hearth_err e;
    if (store_run(st, store_stmt(st, SQL_DROP_PARTS), "sessions that were being written", &e) != 0)
        log_warn("%s", e.msg);
}

/* Called by SQLite for each row that a statement returns. */
static int on_row(unsigned what, void *store, void *statement, void *unused)
{
    (void)what, (void)statement, (void)unused;
    ((struct store *)store)->work.rows++;
    return 0;
}

static int open_db(struct store *st, struct hearth_err *e)
{
    const char *path = st->path;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
    if (sqlite3_open_v2(path, &st->db, flags, store_vfs()) != SQLITE_OK)
        return err_set(e, HEARTH_ESTORE, "%s: %s", path, st->db != NULL ? sqlite3_errmsg(st->db) : "out of memory");
    sqlite3_busy_handler(st->db, on_busy, st);
    sqlite3_trace_v2(st->db, SQLITE_TRACE_ROW, on_row, st);
    sqlite3_db_config(st->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(st->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL); /* the schema has no triggers */
    sqlite3_db_config(st->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);

    /* The version is checked first, because setting journal_mode writes to the file. */
    int64_t version = -1;
    struct hearth_err why;
    int rc = user_version(st, &version, e);
    if (rc)
        return rc;
    if (version < 0 || version > STORE_VERSION)
        return err_set(e, HEARTH_ESTORE, "%s is of version %lld, this hearthd knows versions up to %d: left as it is",
                       path, (long long)version, STORE_VERSION);

    if (version == 0 && (rc = check_empty(st, e)) != 0)
        return rc;

    /*
     * WAL with synchronous=NORMAL: a commit survives any crash or kill -9 of hearthd without an fsync. FULL would add
     * an fsync per turn, on the loop that feeds everybody's streams, only to protect the last turns against power loss.
     * The cache is small because a turn is read only once, when its session continues.
     */
    if (exec(st,
             "PRAGMA auto_vacuum = NONE; PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON; PRAGMA foreign_keys "
             "= ON; PRAGMA cache_size = -256;"
             "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 4194304",
             e) != 0)
        rc = refuse(st, e);
    if (!rc)
        rc = store_define_checksum(st, e);
    if (!rc)
        rc = migrate(st, version, e);
    if (!rc)
        rc = prepare_all(st, e);
    if (!rc)
        migrate_find_backup(st);
    if (!rc)
        assign_ids(st);
    if (!rc)
        drop_parts(st);
    st->has_deleted = rc == 0;
    if (!rc && store_purge_all(st, &why) != 0)
        log_warn("%s", why.msg);
    if (!rc)
        store_scrub(st, &why); /* a killed hearthd may have left removed text in the log */
    return rc;
}

static void close_db(struct store *st)
{
    for (int i = 0; i < N_SQL; i++) {
        sqlite3_finalize(st->stmt[i]);
        st->stmt[i] = NULL;
    }
    sqlite3_close(st->db);
    st->db = NULL;
}

void store_work(struct store *st, struct store_work *w)
{
    enum { PAGE = 4096 }; /* SQLite's default, which a database keeps from its creation */
    int read = 0, written = 0, high, changes = sqlite3_total_changes(st->db);
    sqlite3_db_status(st->db, SQLITE_DBSTATUS_CACHE_MISS, &read, &high, 1);
    sqlite3_db_status(st->db, SQLITE_DBSTATUS_CACHE_WRITE, &written, &high, 1);
    st->work.bytes += PAGE * ((int64_t)read + written);
    st->work.rows += changes - st->changes;
    st->changes = changes;
    *w = st->work;
}

int store_open(struct store **out, const char *dir, struct hearth_err *e)
{
    struct store *st = calloc(1, sizeof *st);
    if (!st)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    st->dir_fd = -1;
    TAILQ_INIT(&st->timeline_cache);
    int rc = store_make_dirs(dir, e);
    if (!rc)
        rc = lock_dir(st, dir, e);
    if (!rc)
        rc = find_path(st, dir, e);
    if (!rc)
        rc = make_file(st, e);
    if (!rc)
        rc = check_beside(st, e);
    if (!rc)
        rc = open_db(st, e);
    if (rc && st->full && store_reserve_give(st)) { /* opening rebuilds the WAL index, which takes disk space */
        close_db(st);
        rc = open_db(st, e);
    }
    if (rc) {
        store_close(st);
        return rc;
    }
    warn_if_open_to_others(st, dir); /* not for each attempt, of which there may be one a second */
    store_reserve_make(st);
    timeline_cache_check(st); /* what is cached from now on stays until another program commits something */
    *out = st;
    return 0;
}

int store_open_reader(struct store **out, const char *path, struct hearth_err *e)
{
    enum { BUSY_MS = 1000 }; /* the log may be being rebuilt; only this reader's thread waits */
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
    struct store *st = calloc(1, sizeof *st);
    if (!st || !(st->path = strdup(path))) {
        free(st);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    st->dir_fd = -1;
    TAILQ_INIT(&st->timeline_cache);
    int rc = sqlite3_open_v2(path, &st->db, flags, store_vfs()) == SQLITE_OK
                 ? 0
                 : err_set(e, HEARTH_ESTORE, "%s: %s", path, st->db ? sqlite3_errmsg(st->db) : "out of memory");
    if (!rc) {
        sqlite3_busy_timeout(st->db, BUSY_MS);
        rc = store_define_checksum(st, e);
    }
    if (!rc)
        rc = exec(st, "PRAGMA trusted_schema = OFF; PRAGMA query_only = ON; PRAGMA cache_size = -256", e);
    if (!rc)
        rc = prepare_all(st, e);
    if (!rc)
        rc = exec(st, "BEGIN", e);
    if (rc) {
        store_close(st);
        return rc;
    }
    *out = st;
    return 0;
}

/* A checkpoint writes the log's pages to the file, with their unused bytes zeroed, and truncates the log. SQLite's page
 * cache is dropped too: its pages still have the old bytes in their gaps and would be written to the next log. */
int store_scrub(struct store *st, struct hearth_err *e)
{
    int rc = sqlite3_wal_checkpoint_v2(st->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    sqlite3_db_release_memory(st->db);
    return rc == SQLITE_OK ? 0 : store_fail(st, "clearing the database's log", e);
}

const char *store_path(const struct store *st)
{
    return st->path;
}

void store_close(struct store *st)
{
    if (!st)
        return;
    store_purge_all(st, NULL);
    timeline_cache_clear(st);
    close_db(st);
    if (st->dir_fd >= 0)
        close(st->dir_fd);
    free(st->totals);
    free(st->path);
    free(st);
}
