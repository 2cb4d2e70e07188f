/*
 * migrate.c - keeps a copy of the database from before its migration: sessions.db.vN, where N is its version.
 *
 * An older hearthd can use the copy, and so can a user whose migration went wrong; therefore the most recent one is
 * kept. A session that a user removes is also removed from the copy, and from there first, so that no crash can leave
 * it in the copy alone. If a session cannot be removed from the copy, the whole copy is deleted.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/store/store-internal.h"

/* Calls `f` for each file beside the database that is a copy of an older version or belongs to one. `rest` is what
 * follows the number in its name. */
static void each_backup(struct store *st, void (*f)(struct store *st, const char *name, long version, const char *rest))
{
    int fd = openat(st->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    static const char begin[] = "sessions.db.v";
    for (struct dirent *d; dir != NULL && (d = readdir(dir)) != NULL;) {
        char *rest;
        if (strncmp(d->d_name, begin, sizeof begin - 1) != 0)
            continue;
        long version = strtol(d->d_name + sizeof begin - 1, &rest, 10);
        if (version > 0 && version < STORE_VERSION)
            f(st, d->d_name, version, rest);
    }
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
}

/* --- keeping a copy ------------------------------------------------------------------------------------- */

/* Removes the temporary file of a copy that a crash interrupted: sessions.db.vN.XXXXXX. */
static void remove_leftover(struct store *st, const char *name, long version, const char *rest)
{
    (void)version;
    if (rest[0] == '.' && strlen(rest) == 7)
        unlinkat(st->dir_fd, name, 0);
}

static const char *const parts[] = {"", "-wal", "-shm", "-journal"}; /* suffixes of a database's files */
enum { N_PARTS = sizeof parts / sizeof parts[0] };

static void remove_older(struct store *st, const char *name, long version, const char *rest)
{
    size_t i = 0;
    while (i < N_PARTS && strcmp(rest, parts[i]) != 0)
        i++;
    if (version != st->backup_version && i < N_PARTS && unlinkat(st->dir_fd, name, 0) == 0)
        log_info("%s is removed: there is a newer copy", name);
}

int migrate_backup(struct store *st, int64_t version, struct hearth_err *e)
{
    char *to;
    if (asprintf(&to, "%s.v%lld", st->path, (long long)version) < 0)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    each_backup(st, remove_leftover);
    struct hearth_err why;
    int rc = store_copy(st->path, to, true, NULL, NULL, &why);
    if (!rc) {
        log_info("the session database goes from version %lld to %d; %s is as it was", (long long)version,
                 STORE_VERSION, to);
        st->backup_version = (long)version;
        each_backup(st, remove_older);
    } else {
        err_set(e, HEARTH_ESTORE, "no copy of the old session database can be kept, so it stays as it is: %s", why.msg);
    }
    free(to);
    return rc != 0 ? HEARTH_ESTORE : 0;
}

static void find(struct store *st, const char *name, long version, const char *rest)
{
    (void)name;
    if (rest[0] == '\0' && version > st->backup_version)
        st->backup_version = version;
}

void migrate_find_backup(struct store *st)
{
    each_backup(st, find);
    if (st->backup_version > 0)
        each_backup(st, remove_older);
}

/* --- removing a session from the copy ------------------------------------------------------------------- */

static int run(sqlite3 *db, const char *text, const struct store_session *s)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(db, text, -1, &q, NULL);
    if (rc == SQLITE_OK && s) {
        sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
        sqlite3_bind_int64(q, 2, s->uid);
        sqlite3_bind_text(q, 3, s->name, -1, SQLITE_STATIC);
    }
    while (rc == SQLITE_OK && sqlite3_step(q) == SQLITE_ROW)
        continue;
    int end = sqlite3_finalize(q);
    return rc != SQLITE_OK ? rc : end;
}

/* Nothing is synced: if a power failure damages the copy, whoever opens it is told that it is damaged. */
static int delete_session(const char *path, const struct store_session *s)
{
    static const char *const before[] = {
        "PRAGMA trusted_schema = OFF", "PRAGMA secure_delete = ON",    "PRAGMA foreign_keys = ON",
        "PRAGMA synchronous = OFF",    "PRAGMA journal_mode = DELETE",
    };
    sqlite3 *db = NULL;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
    int rc = sqlite3_open_v2(path, &db, flags, store_vfs());
    if (rc == SQLITE_OK)
        rc = sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof before / sizeof before[0]; i++)
        rc = run(db, before[i], NULL);
    if (rc == SQLITE_OK)
        rc = run(db, "DELETE FROM sessions WHERE id = ?1 OR (uid = ?2 AND name = ?3)", s);
    sqlite3_close(db);
    return rc;
}

int migrate_remove_session(struct store *st, const struct store_session *s, struct hearth_err *e)
{
    char *path, *part;
    int rc = 0;
    if (st->backup_version == 0)
        return 0;
    if (asprintf(&path, "%s.v%ld", st->path, st->backup_version) < 0)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    int got = access(path, F_OK) == 0 || errno != ENOENT ? delete_session(path, s) : SQLITE_OK;
    for (size_t i = 0; got != SQLITE_OK && !rc && i < N_PARTS; i++) {
        if (asprintf(&part, "%s%s", path, parts[i]) < 0) {
            rc = err_set(e, HEARTH_ENOMEM, "out of memory");
            break;
        }
        if (unlink(part) != 0 && errno != ENOENT)
            rc = err_set(e, HEARTH_ESTORE, "%.120s: the session cannot be removed from it: %s", part, strerror(errno));
        free(part);
    }
    if (got != SQLITE_OK && !rc) {
        log_warn("%s is removed: a session that is removed cannot be taken from it (%s)", path, sqlite3_errstr(got));
        st->backup_version = 0;
    }
    free(path);
    return rc;
}
