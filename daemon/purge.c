/* purge.c - see purge.h. */
#include "config.h"

#include "daemon/purge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files by prefix of their names: sessions.db, for example, has its WAL and copies of older versions beside it. Folders
 * are removed with all files in them. */
static const char *const files[] = {"sessions.db", "hearthd.log", "engine.lock", "checked", "reserve", NULL};
static const char *const folders[] = {"journal", "kv", NULL};

static bool is_ours(const char *name)
{
    for (const char *const *f = files; *f; f++) {
        size_t n = strlen(*f);
        if (!strncmp(name, *f, n) && (name[n] == '\0' || name[n] == '-' || name[n] == '.'))
            return true;
    }
    return false;
}

static bool is_folder(const char *name)
{
    for (const char *const *f = folders; *f; f++)
        if (!strcmp(name, *f))
            return true;
    return false;
}

/* Removes the files in the folder open as `fd`, all of them or only those that are ours by name, and closes fd. `where`
 * is the folder's path, for errors. */
static int empty(int fd, const char *where, bool all, struct purged *out, struct hearth_err *e)
{
    DIR *d = fdopendir(fd);
    if (!d) {
        int why = errno;
        close(fd);
        return err_set(e, HEARTH_EIO, "%s: %s", where, strerror(why));
    }
    int rc = 0;
    for (struct dirent *entry; !rc && (entry = readdir(d)) != NULL;) {
        const char *name = entry->d_name;
        struct stat sb;
        if (!strcmp(name, ".") || !strcmp(name, "..") || (!all && is_folder(name)))
            continue;
        if (fstatat(fd, name, &sb, AT_SYMLINK_NOFOLLOW) || S_ISDIR(sb.st_mode) || (!all && !is_ours(name))) {
            out->left++;
        } else if (unlinkat(fd, name, 0)) {
            rc = err_set(e, HEARTH_EIO, "%s/%s: %s", where, name, strerror(errno));
        } else {
            out->files++;
            out->bytes += sb.st_size;
        }
    }
    closedir(d);
    return rc;
}

static int remove_folder(int dir_fd, const char *dir, const char *name, struct purged *out, struct hearth_err *e)
{
    char where[512];
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    snprintf(where, sizeof where, "%.400s/%s", dir, name);
    if (fd < 0)
        return err_set(e, HEARTH_EIO, "%s: %s", where, strerror(errno));
    size_t left = out->left;
    int rc = empty(fd, where, true, out, e);
    if (!rc && out->left == left && unlinkat(dir_fd, name, AT_REMOVEDIR))
        rc = err_set(e, HEARTH_EIO, "%s: %s", where, strerror(errno));
    return rc;
}

int purge(const char *dir, struct purged *out, struct hearth_err *e)
{
    *out = (struct purged){0};
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), copy = -1, rc = 0;
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB)) /* the store's lock */
        rc = err_set(e, HEARTH_EIO, "%s: %s", dir,
                     fd >= 0 && errno == EWOULDBLOCK ? "in use by a hearthd; `hearth stop --daemon` ends it"
                                                     : strerror(errno));
    for (const char *const *f = folders; !rc && *f; f++)
        rc = remove_folder(fd, dir, *f, out, e);
    if (!rc && (copy = dup(fd)) < 0)
        rc = err_set(e, HEARTH_EIO, "%s: %s", dir, strerror(errno));
    if (!rc)
        rc = empty(copy, dir, false, out, e);
    if (!rc && !out->left && rmdir(dir))
        rc = err_set(e, HEARTH_EIO, "%s: %s", dir, strerror(errno));
    if (fd >= 0)
        close(fd);
    return rc;
}
