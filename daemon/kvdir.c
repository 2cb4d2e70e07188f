/* kvdir.c - the KV files that count: their list, what the engine says of them, and which have to go; see kvdir.h. */
#include "config.h"

#include "daemon/kvdir.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "daemon/kvdir-inside.h"
#include "daemon/link.h"
#include "daemon/log.h"

/* --- the folder ----------------------------------------------------------------------------------------- */

static int open_folder(struct kvdir *d, const char *state_dir, struct hearth_err *e)
{
    struct stat sb;
    int state = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state < 0)
        return err_set(e, HEARTH_ESTORE, "%.150s: %s", state_dir, strerror(errno));
    if (mkdirat(state, "kv", 0700) == 0 || errno == EEXIST)
        d->fd = openat(state, "kv", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    int why = errno;
    close(state);
    if (d->fd < 0 || fstat(d->fd, &sb) != 0)
        return err_set(e, HEARTH_ESTORE, "%.150s: %s", d->path, strerror(why));
    if (sb.st_uid != geteuid())
        return err_set(e, HEARTH_ESTORE, "%.150s belongs to user %u", d->path, (unsigned)sb.st_uid);
    if ((sb.st_mode & 077) != 0 && fchmod(d->fd, 0700) != 0)
        return err_set(e, HEARTH_ESTORE, "%.150s is open to others: %s", d->path, strerror(errno));
    return 0;
}

int kvdir_stat(const struct kvdir *d, const char *name, int64_t *bytes, struct hearth_err *e)
{
    struct stat sb;
    if (fstatat(d->fd, name, &sb, AT_SYMLINK_NOFOLLOW) != 0) {
        int why = errno;
        err_set(e, HEARTH_EDENIED, "%s", strerror(why));
        return why == ENOENT ? 1 : e->code;
    }
    if (S_ISLNK(sb.st_mode))
        return err_set(e, HEARTH_EDENIED, "a symbolic link");
    if (!S_ISREG(sb.st_mode))
        return err_set(e, HEARTH_EDENIED, "not a plain file");
    if (sb.st_uid != geteuid())
        return err_set(e, HEARTH_EDENIED, "it belongs to user %u", (unsigned)sb.st_uid);
    *bytes = sb.st_size;
    return 0;
}

/* Room for all, as things are: what was asked for, as long as the filesystem keeps its share. */
void kvdir_limits(const struct kvdir *d, int64_t *bytes, int64_t *bytes_per_uid)
{
    static const int64_t most = 64LL << 30, free_most = 8LL << 30;
    struct statvfs fs;
    *bytes = d->conf->kv_disk;
    if (fstatvfs(d->fd, &fs) == 0) {
        int64_t size = (int64_t)(fs.f_blocks * fs.f_frsize), left = (int64_t)(fs.f_bavail * fs.f_frsize), have = 0;
        if (*bytes == CONF_IS_AUTO)
            *bytes = size / 10 < most ? size / 10 : most;
        left -= size / 20 < free_most ? size / 20 : free_most;
        for (size_t i = 0; i < KVDIR_BUCKETS; i++)
            for (const struct kvfile *f = d->buckets[i]; f != NULL; f = f->next)
                have += f->row.bytes;
        if (*bytes > have + left)
            *bytes = have + left > 0 ? have + left : 0;
    } else if (*bytes == CONF_IS_AUTO) {
        *bytes = most;
    }
    int64_t share = d->conf->kv_disk_per_uid;
    *bytes_per_uid = share == CONF_IS_AUTO || share > *bytes ? *bytes : share;
}

/* --- the list ------------------------------------------------------------------------------------------- */

static double boot_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double kvdir_now(const struct kvdir *d)
{
    return floor(d->start + (boot_time() - d->start_boot));
}

/* A name's last digits are a hash's already. */
static size_t bucket(const char *name)
{
    return strtoul(name + STORE_KV_NAME - 3 - 8, NULL, 16) % KVDIR_BUCKETS;
}

struct kvfile *kvdir_find(const struct kvdir *d, const char *name)
{
    struct kvfile *f = d->buckets[bucket(name)];
    while (f != NULL && strcmp(f->row.name, name) != 0)
        f = f->next;
    return f;
}

int kvdir_insert(struct kvdir *d, const struct store_kv *row, double stored, struct hearth_err *e)
{
    struct kvfile *f = malloc(sizeof(*f)), **at = &d->buckets[bucket(row->name)];
    if (f == NULL)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *f = (struct kvfile){.row = *row, .stored = stored, .next = *at};
    *at = f;
    d->n++;
    return 0;
}

void kvdir_drop(struct kvdir *d, struct kvfile *f)
{
    struct hearth_err e;
    struct kvfile **at = &d->buckets[bucket(f->row.name)];
    if (store_kv_remove(d->store, f->row.name, &e) != 0)
        log_warn("KV file %s: %s", f->row.name, e.msg); /* the next start finds no file for it */
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    d->n--;
    free(f);
}

/* The files of a session are of use together: one without those before it is of none. */
void kvdir_touch(struct kvdir *d, struct kvfile *f, double now)
{
    f->row.used = now;
    for (size_t i = 0; f->row.session[0] != '\0' && i < KVDIR_BUCKETS; i++)
        for (struct kvfile *g = d->buckets[i]; g != NULL; g = g->next)
            if (g->row.pos < f->row.pos && g->row.used < now && strcmp(g->row.session, f->row.session) == 0)
                g->row.used = now;
}

/* Every file, in no order; malloc'd, with room for one more. */
static struct store_kv **all(const struct kvdir *d)
{
    struct store_kv **v = calloc(d->n + 1, sizeof(*v));
    size_t n = 0;
    for (size_t i = 0; v != NULL && i < KVDIR_BUCKETS; i++)
        for (struct kvfile *f = d->buckets[i]; f != NULL; f = f->next)
            v[n++] = &f->row;
    return v;
}

/* --- what has to go ------------------------------------------------------------------------------------- */

/* False where the file is still there. */
static bool remove_file(struct kvdir *d, const char *name)
{
    if (unlinkat(d->fd, name, 0) == 0 || errno == ENOENT)
        return true;
    log_error("KV file %s cannot be removed: %s", name, strerror(errno));
    return false;
}

static void on_told(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg, (void)result, (void)err; /* an engine that has died knows of no file */
}

static void tell_gone(const struct kvdir *d, const char *name)
{
    struct wire_engine_kv_gone gone = {.file = name};
    struct link *l = d->server->link;
    if (link_state(l) == LINK_STARTING || link_state(l) == LINK_RUNNING)
        link_ask(l, &wire_methods[WIRE_ENGINE_KV_GONE], &gone, on_told, NULL, NULL);
}

void kvdir_evict(struct kvdir *d)
{
    static const double day =
        86400; /* as long as a journal is kept: a request without a session leaves nothing longer */
    if (d == NULL)
        return;
    struct kvrule r = {.files = KVDIR_FILES, .age = (double)d->conf->kv_age * day, .age_alone = day};
    kvdir_limits(d, &r.bytes, &r.bytes_per_uid);
    size_t n = d->n;
    struct store_kv **files = all(d);
    bool *gone = calloc(n + 1, sizeof(*gone));
    ptrdiff_t n_gone = files != NULL && gone != NULL ? kvrule_pick(&r, files, n, kvdir_now(d), gone) : 0;
    int64_t bytes = 0, left = n_gone;
    for (size_t i = 0; n_gone > 0 && i < n; i++) {
        int64_t its = files[i]->bytes;
        if (!gone[i] || !remove_file(d, files[i]->name))
            continue;
        if (kvdir_now(d) - files[i]->created > KVDIR_FRESH)
            tell_gone(d, files[i]->name);
        kvdir_drop(d, (struct kvfile *)files[i]); /* whose first member it is */
        bytes += its;
        left--;
    }
    if (n_gone > 0)
        log_info("%lld KV files (%lld bytes) gave way: %zu are left, of %lld bytes that there may be",
                 (long long)(n_gone - left), (long long)bytes, d->n, (long long)r.bytes);
    free(files);
    free(gone);
}

/* --- what the engine says ------------------------------------------------------------------------------- */

/* Writes the file's row, and what has been used since the last time. */
static int write_down(struct kvdir *d, const struct store_kv *row, struct hearth_err *e)
{
    struct store_kv const **touched = calloc(d->n + 1, sizeof(struct store_kv *));
    size_t n = 0;
    for (size_t i = 0; touched != NULL && i < KVDIR_BUCKETS; i++)
        for (const struct kvfile *f = d->buckets[i]; f != NULL; f = f->next)
            if (f->row.used != f->stored)
                touched[n++] = &f->row;
    int rc = store_kv_save(d->store, row, touched, n, kvdir_now(d), server_now(), e);
    for (size_t i = 0; rc == 0 && i < n; i++)
        ((struct kvfile *)touched[i])->stored = touched[i]->used;
    free(touched);
    return rc;
}

static int take(struct kvdir *d, struct store_kv *row, struct hearth_err *e)
{
    int64_t bytes;
    struct hearth_err why;
    if (!store_kv_is_sound(row))
        return err_set(e, HEARTH_EENGINE, "the engine announced what it cannot be");
    if (kvdir_stat(d, row->name, &bytes, &why) != 0)
        return err_set(e, HEARTH_EENGINE, "the engine announced it, and it is %s", why.msg);
    if (bytes != row->bytes)
        return err_set(e, HEARTH_EENGINE, "the engine announced %lld bytes, and it has %lld", (long long)row->bytes,
                       (long long)bytes);
    row->created = row->used = kvdir_now(d);
    return write_down(d, row, e);
}

void kvdir_saved(struct kvdir *d, const struct store_kv *file)
{
    struct store_kv row = *file;
    struct hearth_err e;
    struct kvfile *f = store_kv_is_name(row.name) ? kvdir_find(d, row.name) : NULL;
    int rc = take(d, &row, &e);
    if (rc == 0 && f != NULL)
        f->row = row;
    else if (rc == 0)
        rc = kvdir_insert(d, &row, row.used, &e);
    if (rc != 0) {
        log_error("KV file \"%.80s\" is not kept: %s", file->name, e.msg);
        if (f != NULL)
            kvdir_drop(d, f);
        if (store_kv_is_name(file->name) && kvdir_stat(d, file->name, &row.bytes, &e) == 0)
            remove_file(d, file->name);
        return;
    }
    f = kvdir_find(d, row.name);
    f->stored = row.used;
    kvdir_touch(d, f, row.used);
    kvdir_evict(d);
}

void kvdir_used(struct kvdir *d, const char *name)
{
    struct kvfile *f = store_kv_is_name(name) ? kvdir_find(d, name) : NULL;
    double now = kvdir_now(d);
    if (f != NULL && f->row.used < now) /* and not once for each file of a session that is restored */
        kvdir_touch(d, f, now);
}

void kvdir_bad(struct kvdir *d, const char *name, const char *why)
{
    struct kvfile *f = store_kv_is_name(name) ? kvdir_find(d, name) : NULL;
    log_warn("KV file %.80s was set aside: %.200s", name, why != NULL ? why : "it is damaged");
    if (f != NULL)
        kvdir_drop(d, f);
    kvdir_trim_bad(d, KVDIR_BAD);
}

void kvdir_forget(struct kvdir *d, const char *session)
{
    for (size_t i = 0; d != NULL && i < KVDIR_BUCKETS; i++)
        for (struct kvfile *f = d->buckets[i], *next; f != NULL; f = next) {
            next = f->next;
            if (strcmp(f->row.session, session) != 0 || !remove_file(d, f->row.name))
                continue;
            tell_gone(d, f->row.name);
            kvdir_drop(d, f);
        }
    if (d != NULL)
        kvdir_trim_bad(d, 0);
}

static int by_id(const void *a, const void *b)
{
    const struct wire_session *const *x = a, *const *y = b;
    return strcmp((*x)->id, (*y)->id);
}

void kvdir_describe(const struct kvdir *d, struct wire_session *v, size_t n)
{
    struct wire_session **sorted = d != NULL && n > 0 ? calloc(n, sizeof(struct wire_session *)) : NULL;
    for (size_t i = 0; sorted != NULL && i < n; i++)
        sorted[i] = &v[i];
    if (sorted != NULL)
        qsort(sorted, n, sizeof(struct wire_session *), by_id);
    for (size_t i = 0; sorted != NULL && i < KVDIR_BUCKETS; i++)
        for (const struct kvfile *f = d->buckets[i]; f != NULL; f = f->next) {
            struct wire_session key = {.id = f->row.session}, *k = &key;
            struct wire_session **found = bsearch(&k, sorted, n, sizeof(struct wire_session *), by_id);
            if (found != NULL)
                (*found)->kv_bytes += f->row.bytes;
        }
    free(sorted);
}

size_t kvdir_usage(const struct kvdir *d, struct kvdir_usage **out)
{
    size_t n = 0;
    struct kvdir_usage *v = NULL;
    for (size_t i = 0; i < KVDIR_BUCKETS; i++)
        for (const struct kvfile *f = d->buckets[i]; f != NULL; f = f->next) {
            size_t k = 0;
            while (k < n && v[k].uid != f->row.uid)
                k++;
            if (k == n) {
                struct kvdir_usage *grown = reallocarray(v, n + 1, sizeof(*v));
                if (grown == NULL)
                    continue;
                v = grown;
                v[n++] = (struct kvdir_usage){.uid = f->row.uid};
            }
            v[k].files++;
            v[k].bytes += f->row.bytes;
        }
    *out = v;
    return n;
}

/* --- life ----------------------------------------------------------------------------------------------- */

int kvdir_open(struct kvdir **out, struct server *s, struct hearth_err *e)
{
    struct kvdir *d = calloc(1, sizeof(*d));
    if (d == NULL || asprintf(&d->path, "%s/kv", s->conf->state_dir) < 0) {
        free(d);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    d->server = s;
    d->conf = s->conf;
    d->store = s->store;
    d->fd = -1;
    double seen, wall;
    int rc = open_folder(d, d->conf->state_dir, e);
    if (rc == 0)
        rc = store_kv_clock(d->store, &seen, &wall, e);
    if (rc == 0) {
        d->start = kvrule_clock(seen, wall, server_now());
        d->start_boot = boot_time();
        /* At once: a week may pass between two starts, but not in each of a row of starts. */
        rc = write_down(d, NULL, e);
    }
    if (rc == 0)
        rc = kvdir_reconcile(d, e);
    if (rc != 0) {
        kvdir_close(d);
        return rc;
    }
    kvdir_evict(d);
    *out = d;
    return 0;
}

void kvdir_close(struct kvdir *d)
{
    if (d == NULL)
        return;
    struct hearth_err e;
    if (d->n > 0 && write_down(d, NULL, &e) != 0)
        log_warn("%s", e.msg);
    for (size_t i = 0; i < KVDIR_BUCKETS; i++)
        while (d->buckets[i] != NULL) {
            struct kvfile *f = d->buckets[i];
            d->buckets[i] = f->next;
            free(f);
        }
    if (d->fd >= 0)
        close(d->fd);
    free(d->path);
    free(d);
}

const char *kvdir_path(const struct kvdir *d)
{
    return d->path;
}
