/* kvdir.c - the list of valid KV files, and the engine's reports about them; see kvdir.h. */
#include "config.h"

#include "daemon/retention/kvdir.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/retention/kvdir-internal.h"
#include "daemon/log.h"
#include "daemon/loop.h"

/* --- the directory -------------------------------------------------------------------------------------- */

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

/* The current limits: the configured ones, reduced so that the filesystem keeps some free space. */
void kvdir_limits(const struct kvdir *d, int64_t *bytes, int64_t *bytes_per_uid)
{
    static const int64_t most = 64LL << 30, free_most = 8LL << 30;
    struct statvfs fs;
    *bytes = d->conf->kv_disk;
    if (fstatvfs(d->fd, &fs) == 0) {
        int64_t size = (int64_t)(fs.f_blocks * fs.f_frsize), left = (int64_t)(fs.f_bavail * fs.f_frsize);
        if (*bytes == CONF_IS_AUTO)
            *bytes = size / 10 < most ? size / 10 : most;
        left += releaser_bytes(d->releaser); /* will be free in a moment */
        left -= size / 20 < free_most ? size / 20 : free_most;
        if (*bytes > d->bytes + left)
            *bytes = d->bytes + left > 0 ? d->bytes + left : 0;
    } else if (*bytes == CONF_IS_AUTO) {
        *bytes = most;
    }
    int64_t share = d->conf->kv_disk_per_uid;
    *bytes_per_uid = share == CONF_IS_AUTO || share > *bytes ? *bytes : share;
}

/* --- the list ------------------------------------------------------------------------------------------- */

double kvdir_now(const struct kvdir *d)
{
    return floor(d->start + (server_boot() - d->start_boot));
}

/* The last digits of a name are part of a hash, and those of an id are random, so they serve as hash values
 * directly. */
static size_t bucket(const char *name)
{
    return strtoul(name + KV_MANIFEST_NAME - 3 - 8, NULL, 16) % KVDIR_BUCKETS;
}

struct kv_entry_list *kvdir_of_session(struct kvdir *d, const char *session)
{
    return &d->by_session[strlen(session) == STORE_ID_LEN ? strtoul(session + 8, NULL, 16) % KVDIR_BUCKETS : 0];
}

struct kv_entry *kvdir_find(const struct kvdir *d, const char *name)
{
    struct kv_entry *f;
    LIST_FOREACH (f, &d->by_name[bucket(name)], by_name)
        if (strcmp(f->row.name, name) == 0)
            return f;
    return NULL;
}

/* Adds to a user's sums and to the overall one; NULL if out of memory. */
static struct kvdir_usage *add_usage(struct kvdir *d, uid_t uid, int64_t files, int64_t bytes)
{
    size_t k = 0;
    while (k < d->n_users && d->users[k].uid != uid)
        k++;
    if (k == d->n_users) {
        struct kvdir_usage *grown = reallocarray(d->users, k + 1, sizeof *grown);
        if (!grown)
            return NULL;
        d->users = grown;
        d->users[d->n_users++] = (struct kvdir_usage){.uid = uid};
    }
    d->users[k].files += files;
    d->users[k].bytes += bytes;
    d->bytes += bytes;
    return &d->users[k];
}

int kvdir_insert(struct kvdir *d, const struct kv_manifest_row *row, double stored, struct hearth_err *e)
{
    struct kv_entry *f = malloc(sizeof *f);
    if (!f || !add_usage(d, row->uid, 1, row->bytes)) {
        free(f);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    *f = (struct kv_entry){.row = *row, .is_stored = row->used == stored};
    LIST_INSERT_HEAD(&d->by_name[bucket(row->name)], f, by_name);
    if (row->session[0] != '\0')
        LIST_INSERT_HEAD(kvdir_of_session(d, row->session), f, by_session);
    if (!f->is_stored)
        LIST_INSERT_HEAD(&d->touched, f, touched);
    d->n++;
    return 0;
}

/* Removes the entry from the list and frees it. */
static void unlink_entry(struct kvdir *d, struct kv_entry *f)
{
    kvdir_unmark(d, f);
    if (!f->is_stored)
        LIST_REMOVE(f, touched);
    LIST_REMOVE(f, by_name);
    if (f->row.session[0] != '\0')
        LIST_REMOVE(f, by_session);
    add_usage(d, f->row.uid, -1, -f->row.bytes);
    d->n--;
    free(f);
}

void kvdir_move(struct kvdir *d, const char *session, const char *to)
{
    struct kv_entry *f, *next;
    struct kv_entry_list moved = LIST_HEAD_INITIALIZER(moved);
    if (!d)
        return;
    for (f = LIST_FIRST(kvdir_of_session(d, session)); f; f = next) {
        next = LIST_NEXT(f, by_session);
        if (strcmp(f->row.session, session) != 0)
            continue;
        LIST_REMOVE(f, by_session);
        snprintf(f->row.session, sizeof f->row.session, "%s", to);
        LIST_INSERT_HEAD(&moved, f, by_session);
    }
    while ((f = LIST_FIRST(&moved)) != NULL) {
        LIST_REMOVE(f, by_session);
        LIST_INSERT_HEAD(kvdir_of_session(d, to), f, by_session);
    }
}

void kvdir_drop(struct kvdir *d, struct kv_entry *f)
{
    struct hearth_err e;
    if (kv_manifest_remove(d->store, f->row.name, &e) != 0)
        log_warn("KV file %s: %s", f->row.name, e.msg); /* the next start removes the row, as it has no file */
    unlink_entry(d, f);
}

/* Records that the file was used now; if it was a victim, it no longer is, unless its session was removed. */
static void touch(struct kvdir *d, struct kv_entry *f, double now)
{
    f->row.used = now;
    if (f->is_stored)
        LIST_INSERT_HEAD(&d->touched, f, touched);
    f->is_stored = false;
    if (!f->is_orphaned)
        kvdir_unmark(d, f);
}

/*
 * Touches the file, and with it those files of its session that precede it in the timeline (without which it would be
 * useless) and that the engine has recently reported as used, which it does once a minute. Files that it no longer
 * reports, such as a recurrent state or a window that a later turn has replaced, keep ageing.
 */
static void touch_with(struct kvdir *d, struct kv_entry *f, double now)
{
    struct kv_entry *g;
    touch(d, f, now);
    if (f->row.session[0] == '\0')
        return;
    LIST_FOREACH (g, kvdir_of_session(d, f->row.session), by_session)
        if (g->row.pos < f->row.pos && g->row.used < now && now - g->row.used <= KVDIR_REPORTED &&
            strcmp(g->row.session, f->row.session) == 0)
            touch(d, g, now);
}

/* --- the engine's reports ---------------------------------------------------------------------------------- */

/* Writes the file's row, and the rows of files that have been used since the last call. */
static int save_manifest(struct kvdir *d, const struct kv_manifest_row *row, struct hearth_err *e)
{
    struct kv_entry *f;
    size_t n = 0, i = 0;
    LIST_FOREACH (f, &d->touched, touched)
        n++;
    struct kv_manifest_row const **touched = calloc(n + 1, sizeof(struct kv_manifest_row *));
    LIST_FOREACH (f, &d->touched, touched)
        if (touched)
            touched[i++] = &f->row;
    int rc = kv_manifest_save(d->store, row, touched, i, kvdir_now(d), server_now(), e);
    free(touched);
    if (rc || i < n)
        return rc;
    while ((f = LIST_FIRST(&d->touched)) != NULL) {
        f->is_stored = true;
        LIST_REMOVE(f, touched);
    }
    return 0;
}

static int accept_file(struct kvdir *d, struct kv_manifest_row *row, bool lost, struct hearth_err *e)
{
    int64_t bytes;
    struct hearth_err why;
    if (!kv_manifest_is_sound(row))
        return err_set(e, HEARTH_EENGINE, "the engine announced what it cannot be");
    if (kvdir_stat(d, row->name, &bytes, &why) != 0)
        return err_set(e, HEARTH_EENGINE, "the engine announced it, and it is %s", why.msg);
    if (bytes != row->bytes)
        return err_set(e, HEARTH_EENGINE, "the engine announced %lld bytes, and it has %lld", (long long)row->bytes,
                       (long long)bytes);
    row->created = row->used = kvdir_now(d);
    return lost ? 0 : save_manifest(d, row, e);
}

void kvdir_saved(struct kvdir *d, const struct kv_manifest_row *file, int64_t until)
{
    struct kv_manifest_row row = *file;
    bool lost = until < INT64_MAX && kv_manifest_is_sound(&row) && row.pos + row.tokens > until;
    struct hearth_err e;
    struct kv_entry *f = kv_manifest_is_name(row.name) ? kvdir_find(d, row.name) : NULL;
    int rc = accept_file(d, &row, lost, &e);
    if (!rc && f)
        unlink_entry(d, f); /* the new file of that name replaces the old one, and its row */
    if (!rc)
        rc = kvdir_insert(d, &row, row.used, &e);
    else if (f)
        kvdir_drop(d, f);
    if (rc) {
        log_error("KV file \"%.80s\" is not kept: %s", file->name, e.msg);
        if (kv_manifest_is_name(file->name) && kvdir_stat(d, file->name, &row.bytes, &e) == 0)
            kvdir_remove_file(d, file->name);
        return;
    }
    if (lost) {
        kvdir_forget(d, row.session, until);
        return;
    }
    touch_with(d, kvdir_find(d, row.name), row.used);
    kvdir_make_room(d);
}

void kvdir_used(struct kvdir *d, const char *name)
{
    struct kv_entry *f = kv_manifest_is_name(name) ? kvdir_find(d, name) : NULL;
    double now = kvdir_now(d);
    if (f && f->row.used < now) /* once a second, not once for each file of a session that is restored */
        touch_with(d, f, now);
}

void kvdir_bad(struct kvdir *d, const char *name, const char *why)
{
    char bad[KV_MANIFEST_NAME + 5];
    int64_t bytes;
    struct hearth_err e;
    struct kv_entry *f = kv_manifest_is_name(name) ? kvdir_find(d, name) : NULL;
    if (!why)
        why = "it is damaged";
    int rc = kv_manifest_is_name(name) ? kvdir_stat(d, name, &bytes, &e) : HEARTH_EDENIED;
    snprintf(bad, sizeof bad, "%.*s.bad", KV_MANIFEST_NAME, name);
    if (rc == 1) { /* the engine has renamed the file */
        log_warn("KV file %s: %.200s: set aside as %s", name, why, bad);
        kvdir_add_bad(d, bad);
    } else if (!rc) {
        kvdir_set_aside(d, name, why);
    } else {
        log_warn("KV file \"%.80s\" is refused and left as it is: %.200s", name, why);
    }
    if (f)
        kvdir_drop(d, f);
}

/* --- queries -------------------------------------------------------------------------------------- */

void kvdir_describe(struct kvdir *d, struct wire_session *v, size_t n)
{
    const struct kv_entry *f;
    for (size_t i = 0; d != NULL && i < n; i++)
        LIST_FOREACH (f, kvdir_of_session(d, v[i].id), by_session)
            if (strcmp(f->row.session, v[i].id) == 0)
                v[i].kv_bytes += f->row.bytes;
}

const struct kvdir_usage *kvdir_usage(const struct kvdir *d, size_t *n)
{
    *n = d->n_users;
    return d->users;
}

/* --- life cycle ----------------------------------------------------------------------------------------- */

int kvdir_open(struct kvdir **out, struct server *s, struct hearth_err *e)
{
    struct kvdir *d = calloc(1, sizeof *d);
    if (!d || asprintf(&d->path, "%s/kv", s->conf->state_dir) < 0) {
        free(d);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    d->server = s;
    d->conf = s->conf;
    d->store = s->store;
    d->fd = -1;
    TAILQ_INIT(&d->evicting);
    d->evict_timer = timer_new(s->base, kvdir_on_evict_timer, d);
    double seen, wall;
    int rc =
        d->evict_timer != NULL ? open_folder(d, d->conf->state_dir, e) : err_set(e, HEARTH_ENOMEM, "out of memory");
    if (!rc)
        rc = releaser_start(&d->releaser, e);
    if (!rc)
        rc = kv_manifest_clock(d->store, &seen, &wall, e);
    if (!rc) {
        d->start = kv_eviction_clock(seen, wall, server_now());
        d->start_boot = server_boot();
        /* Stored at once; otherwise each of several starts in a row could advance the clock by a week. */
        rc = save_manifest(d, NULL, e);
    }
    if (!rc)
        rc = kvdir_reconcile(d, e);
    if (rc) {
        kvdir_close(d);
        return rc;
    }
    kvdir_evict(d);
    *out = d;
    return 0;
}

void kvdir_close(struct kvdir *d)
{
    if (!d)
        return;
    struct hearth_err e;
    kvdir_evict_all(d);
    if (d->n > 0 && save_manifest(d, NULL, &e) != 0)
        log_warn("%s", e.msg);
    for (size_t i = 0; i < KVDIR_BUCKETS; i++)
        while (!LIST_EMPTY(&d->by_name[i]))
            unlink_entry(d, LIST_FIRST(&d->by_name[i]));
    timer_free(d->evict_timer);
    releaser_stop(d->releaser);
    free(d->users);
    if (d->fd >= 0)
        close(d->fd);
    free(d->path);
    free(d);
}

const char *kvdir_path(const struct kvdir *d)
{
    return d->path;
}
