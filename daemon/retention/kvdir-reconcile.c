/* kvdir-reconcile.c - makes the directory and the manifest agree while no engine runs: at a start, and after a crash.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/retention/kvdir-internal.h"
#include "daemon/log.h"

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static DIR *open_dir(const struct kvdir *d)
{
    int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

/* --- damaged files ------------------------------------------------------------------------------------------ */

struct bad {
    char name[NAME_MAX + 1];
    struct timespec time; /* when it was renamed */
};

static int newest_first(const void *pa, const void *pb)
{
    const struct bad *a = pa, *b = pb;
    if (a->time.tv_sec != b->time.tv_sec)
        return a->time.tv_sec > b->time.tv_sec ? -1 : 1;
    if (a->time.tv_nsec != b->time.tv_nsec)
        return a->time.tv_nsec > b->time.tv_nsec ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Finds damaged files that were set aside in earlier runs, and keeps the newest. */
static void find_bad(struct kvdir *d)
{
    struct bad v[KVDIR_BAD + 1];
    size_t n = 0;
    struct stat sb;
    DIR *dir = open_dir(d);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (!kvdir_stat_bad(d, entry->d_name, &sb))
            continue;
        v[n].time = sb.st_ctim;
        snprintf(v[n].name, sizeof(v[n].name), "%s", entry->d_name);
        qsort(v, ++n, sizeof *v, newest_first);
        if (n > KVDIR_BAD && unlinkat(d->fd, v[--n].name, 0) == 0)
            log_info("damaged KV file %s removed: there are newer ones", v[n].name);
    }
    closedir(dir);
    d->n_bad = 0;
    while (n-- > 0)
        kvdir_add_bad(d, v[n].name);
}

/* --- reconciling ---------------------------------------------------------------------------------------- */

/* Whether the row's file exists and has the size that was written. */
static bool is_intact(struct kvdir *d, const struct kv_manifest_row *row)
{
    int64_t bytes;
    struct hearth_err e;
    int rc = kvdir_stat(d, row->name, &bytes, &e);
    if (rc == 1) {
        log_info("KV file %s is gone", row->name);
    } else if (rc) {
        log_warn("KV file %s is not followed: %s", row->name, e.msg);
    } else if (bytes != row->bytes) {
        char why[80];
        snprintf(why, sizeof why, "%lld bytes, and %lld were written", (long long)bytes, (long long)row->bytes);
        kvdir_set_aside(d, row->name, why);
    }
    return !rc && bytes == row->bytes;
}

static int load_rows(struct kvdir *d, struct hearth_err *e)
{
    struct kv_manifest_row *v;
    size_t n;
    double now = kvdir_now(d);
    int rc = kv_manifest_list(d->store, &v, &n, e);
    if (rc)
        return rc;
    for (size_t i = 0; !rc && i < n; i++) {
        if (!is_intact(d, &v[i])) {
            struct hearth_err why;
            if (kv_manifest_remove(d->store, v[i].name, &why) != 0)
                log_warn("KV file %s: %s", v[i].name, why.msg);
            continue;
        }
        double stored = v[i].used;
        if (stored > now) /* the stored clock was lost and started again from 0 */
            v[i].used = now;
        rc = kvdir_insert(d, &v[i], stored, e);
    }
    free(v);
    return rc;
}

static int remove_strays(struct kvdir *d, struct hearth_err *e)
{
    size_t n_gone = 0;
    DIR *dir = open_dir(d);
    if (!dir)
        return err_set(e, HEARTH_ESTORE, "%.150s: %s", d->path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *name = entry->d_name;
        int64_t bytes;
        struct stat sb;
        struct hearth_err why;
        bool is_ours = kv_manifest_is_name(name);
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || (is_ours && kvdir_find(d, name)) ||
            kvdir_stat_bad(d, name, &sb))
            continue;
        if (kvdir_stat(d, name, &bytes, &why) != 0)
            log_warn("%s/%s is not hearth's: %s: left as it is", d->path, name, why.msg);
        else if (is_ours || ends_with(name, ".tmp"))
            n_gone += unlinkat(d->fd, name, 0) == 0;
        else
            log_warn("%s/%s is not hearth's: left as it is", d->path, name);
    }
    closedir(dir);
    if (n_gone > 0)
        log_info("%zu KV files without a row are removed: their writing was cut short, or their session is no more",
                 n_gone);
    return 0;
}

void kvdir_sweep(struct kvdir *d)
{
    struct hearth_err e;
    if (d && remove_strays(d, &e) != 0)
        log_warn("%s", e.msg);
}

int kvdir_reconcile(struct kvdir *d, struct hearth_err *e)
{
    int rc = load_rows(d, e);
    if (!rc)
        rc = remove_strays(d, e);
    if (!rc)
        find_bad(d);
    return rc;
}
