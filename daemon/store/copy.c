/*
 * copy.c - copies the database into one file while it is in use. Any thread: it has connections of its own.
 *
 * SQLite's backup API reads one snapshot of the database, whatever is committed meanwhile, because WAL gives every
 * reader a snapshot. The copy is written under a temporary name in the target's directory, synced, and then renamed
 * into place, so that a partial copy is never visible there. An existing file is either left alone or replaced
 * atomically.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/store/store-internal.h"

enum { STEP_PAGES = 1024, BUSY_MS = 10000 };

static int fail_at(const char *path, int why, struct hearth_err *e)
{
    int code = why == EMFILE || why == ENFILE ? HEARTH_ELIMIT : HEARTH_EIO;
    return err_set(e, code, "%.120s: %s", path, strerror(why));
}

/* SQLite's own message for a file that cannot be opened does not say why. */
static int fail_sql(const char *path, sqlite3 *db, struct hearth_err *e)
{
    int why = sqlite3_errcode(db) == SQLITE_CANTOPEN ? sqlite3_system_errno(db) : 0;
    return why ? fail_at(path, why, e) : err_set(e, HEARTH_EIO, "%.120s: %s", path, sqlite3_errmsg(db));
}

static int open_at(const char *path, const char *name, sqlite3 **db, struct hearth_err *e)
{
    if (sqlite3_open_v2(path, db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, store_vfs()) != SQLITE_OK)
        return *db ? fail_sql(name, *db, e) : fail_at(name, ENOMEM, e);
    sqlite3_busy_timeout(*db, BUSY_MS);
    return 0;
}

/* Copies all pages of the database at `from` into the empty file at `tmp`; errors name the file `to`, which it becomes.
 */
static int copy_pages(const char *from, const char *tmp, const char *to, const atomic_bool *stop, struct hearth_err *e)
{
    sqlite3 *source = NULL, *copy = NULL;
    sqlite3_backup *b = NULL;
    int rc = open_at(from, from, &source, e);
    if (!rc)
        rc = open_at(tmp, to, &copy, e);
    /* An unfinished copy is deleted, so it needs no journal; the complete one is synced once. */
    if (!rc && sqlite3_exec(copy, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", NULL, NULL, NULL) != 0)
        rc = fail_sql(to, copy, e);
    if (!rc && (b = sqlite3_backup_init(copy, "main", source, "main")) == NULL)
        rc = fail_sql(to, copy, e);
    /* One read transaction spans all steps: without it, a commit between two steps would restart the copy. */
    if (!rc && sqlite3_exec(source, "BEGIN; SELECT count(*) FROM sqlite_master", NULL, NULL, NULL) != SQLITE_OK)
        rc = fail_sql(from, source, e);
    int got = SQLITE_OK;
    while (!rc && got == SQLITE_OK) {
        if (stop && *stop)
            rc = err_set(e, HEARTH_ESHUTDOWN, "hearthd is shutting down");
        else
            got = sqlite3_backup_step(b, STEP_PAGES);
    }
    if (!rc && got != SQLITE_DONE)
        rc = err_set(e, HEARTH_EIO, "%.120s: %s", to, sqlite3_errstr(got));
    sqlite3_backup_finish(b);
    sqlite3_close(copy);
    sqlite3_close(source);
    return rc;
}

static int sync_dir(const char *path, struct hearth_err *e)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    slash[slash == dir] = '\0';
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd >= 0 && fsync(fd) == 0 ? 0 : fail_at(dir, errno, e);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Renames the copy into place. If the file system does not support RENAME_NOREPLACE, existence is checked first. */
static int put(const char *tmp, const char *to, bool replace, struct hearth_err *e)
{
    if (renameat2(AT_FDCWD, tmp, AT_FDCWD, to, replace ? 0 : RENAME_NOREPLACE) == 0)
        return 0;
    if (errno == EINVAL && !replace && access(to, F_OK) != 0 && rename(tmp, to) == 0)
        return 0;
    return fail_at(to, errno == EINVAL ? EEXIST : errno, e);
}

/* Whether `to` is one of the database's own files. If it were replaced, hearthd would go on writing to an unlinked
 * file. */
static bool is_in_use(const char *from, const char *to)
{
    static const char *const parts[] = {"", "-wal", "-shm", "-journal"};
    char part[PATH_MAX];
    struct stat a, b;
    for (size_t i = 0; lstat(to, &b) == 0 && i < sizeof parts / sizeof parts[0]; i++)
        if (snprintf(part, sizeof part, "%s%s", from, parts[i]) < (int)sizeof part && stat(part, &a) == 0 &&
            a.st_dev == b.st_dev && a.st_ino == b.st_ino)
            return true;
    return false;
}

/* Resolves the directory part of a path, without symbolic links; false if there is none. */
static bool folder_of(const char *path, char real[static PATH_MAX])
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash)
        return false;
    slash[slash == dir] = '\0';
    return realpath(dir, real) != NULL;
}

bool store_is_own_place(const struct store *st, const char *path)
{
    char own[PATH_MAX], there[PATH_MAX];
    if (!folder_of(st->path, own) || !folder_of(path, there))
        return false;
    size_t n = strlen(own);
    return strncmp(own, there, n) == 0 && (there[n] == '\0' || there[n] == '/');
}

int store_copy(const char *from, const char *to, bool replace, const atomic_bool *stop, int64_t *bytes,
               struct hearth_err *e)
{
    char tmp[PATH_MAX];
    struct stat sb;
    if (to[0] != '/' || snprintf(tmp, sizeof tmp, "%s.XXXXXX", to) >= (int)sizeof tmp)
        return err_set(e, HEARTH_EPARAMS, "backup.path: \"%.100s\" is no absolute path of a file", to);
    /* A daemon running as root would replace a device such as /dev/null with its rename, just like a file. */
    if (stat(to, &sb) == 0 && !S_ISREG(sb.st_mode))
        return err_set(e, HEARTH_EPARAMS, "backup.path: %.120s is %s; a backup needs the name of a file", to,
                       S_ISDIR(sb.st_mode) ? "a folder" : "a device, socket or pipe");
    if (!replace && lstat(to, &sb) == 0) /* an early check, before the work; put() decides */
        return fail_at(to, EEXIST, e);
    if (is_in_use(from, to))
        return err_set(e, HEARTH_EPARAMS, "backup.path: %.120s is the database itself", to);
    int fd = mkostemp(tmp, O_CLOEXEC); /* mode 0600 */
    if (fd < 0)
        return fail_at(to, errno, e);
    int rc = copy_pages(from, tmp, to, stop, e);
    if (!rc && (fsync(fd) != 0 || fstat(fd, &sb) != 0))
        rc = fail_at(to, errno, e);
    if (!rc)
        rc = put(tmp, to, replace, e);
    if (rc)
        unlink(tmp);
    else
        rc = sync_dir(to, e);
    close(fd);
    if (!rc && bytes)
        *bytes = sb.st_size;
    return rc;
}
