/*
 * kvdir-evict.c - evicts KV files, to free space, for their age or with their session; and sets damaged ones aside.
 * Loop thread.
 *
 * Removing a file of megabytes takes the filesystem a moment, and thousands may be evicted at once. So all victims are
 * marked at once but removed in batches, between which the loop runs; and the blocks of large files are freed by a
 * thread (releaser.h). Files of a removed session that a crash leaves behind are removed at the next start, because
 * their rows name a session that does not exist.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/retention/kvdir-internal.h"
#include "daemon/supervisor/engines.h"
#include "daemon/log.h"
#include "daemon/loop.h"

enum {
    BATCH = 32,
    HEADROOM_MIN_FILES = 1024, /* with so many, extra room is made each time, as all files have to be sorted */
    HEADROOM_DIV = 32,         /* how much extra: a 32nd of the limit */
};

/* Opens a file if it is so large that freeing its blocks takes a while; -1 for others. */
static int open_large(const struct kvdir *d, const char *name, int64_t *bytes)
{
    static const int64_t large = 16 << 20;
    struct hearth_err ignored;
    if (!d->releaser || kvdir_stat(d, name, bytes, &ignored) != 0 || *bytes < large)
        return -1;
    return openat(d->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

bool kvdir_remove_file(struct kvdir *d, const char *name)
{
    char bad[KV_MANIFEST_NAME + 5];
    int64_t bytes = 0;
    int fd = open_large(d, name, &bytes), rc = unlinkat(d->fd, name, 0), why = errno;
    if (fd >= 0)
        releaser_close(d->releaser, fd, rc == 0 ? bytes : 0);
    if (rc == 0)
        return true;
    errno = why;
    if (errno == ENOENT) { /* an engine may have renamed it and died before it could report that */
        snprintf(bad, sizeof bad, "%s.bad", name);
        if (unlinkat(d->fd, bad, 0) == 0 || errno == ENOENT)
            return true;
    }
    log_error("KV file %s cannot be removed: %s", name, strerror(errno));
    return false;
}

/* --- removing ---------------------------------------------------------------------------------------------- */

static void mark_evicting(struct kvdir *d, struct kv_entry *f, bool lost)
{
    if (!f->is_evicting)
        TAILQ_INSERT_TAIL(&d->evicting, f, evicting);
    f->is_evicting = true;
    f->is_orphaned = f->is_orphaned || lost;
}

void kvdir_unmark(struct kvdir *d, struct kv_entry *f)
{
    if (f->is_evicting)
        TAILQ_REMOVE(&d->evicting, f, evicting);
    f->is_evicting = f->is_orphaned = false;
}

static void on_notified(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg, (void)result, (void)err; /* an exited engine has no list of files to correct */
}

/* A file that was evicted soon after it was written would be evicted again: there is no room for it, so the engine is
 * told not to write it again for a while. */
static void notify_evicted(const struct kvdir *d, const struct kv_entry *f)
{
    const struct engines *es = d->server->engines; /* NULL while hearthd exits */
    bool fresh = kvdir_now(d) - f->row.created <= KVDIR_FRESH;
    struct wire_engine_kv_gone gone = {.file = f->row.name, .again = f->is_orphaned || !fresh};
    for (size_t i = 0; es && i < engines_count(es); i++) {
        struct engine_client *ec = engines_at(es, i);
        if (engine_state(ec) == ENGINE_STARTING || engine_state(ec) == ENGINE_RUNNING)
            engine_call(ec, &wire_methods[WIRE_ENGINE_KV_GONE], &gone, on_notified, NULL, NULL);
    }
}

/* Removes a batch of victims. A file that cannot be removed stays in the list. */
static void evict_batch(struct kvdir *d, size_t most)
{
    struct kv_entry *f;
    for (size_t i = 0; i < most && (f = TAILQ_FIRST(&d->evicting)) != NULL; i++) {
        bool is_gone = kvdir_remove_file(d, f->row.name);
        if (is_gone)
            notify_evicted(d, f);
        kvdir_unmark(d, f);
        if (is_gone)
            kvdir_drop(d, f);
    }
}

void kvdir_evict_all(struct kvdir *d)
{
    evict_batch(d, SIZE_MAX);
}

static void evict_some(struct kvdir *d)
{
    evict_batch(d, BATCH);
    if (!TAILQ_EMPTY(&d->evicting))
        timer_set(d->evict_timer, 0);
}

void kvdir_on_evict_timer(void *arg)
{
    evict_some(arg);
}

/* --- choosing victims -------------------------------------------------------------------------------------- */

/* Lists every file that is not a victim yet, in no order; malloc'd, with room for one more. */
static struct kv_manifest_row **list_candidates(struct kvdir *d, size_t *n)
{
    struct kv_manifest_row **v = calloc(d->n + 1, sizeof *v);
    struct kv_entry *f;
    *n = 0;
    for (size_t i = 0; v != NULL && i < KVDIR_BUCKETS; i++)
        LIST_FOREACH (f, &d->by_name[i], by_name)
            if (!f->is_evicting)
                v[(*n)++] = &f->row;
    return v;
}

/* When the directory is full, each new file evicts others; the log gets one summary line a minute. */
static void tell(struct kvdir *d, int64_t files, int64_t bytes, size_t left, int64_t most)
{
    enum { TELL_S = 60 };
    double now = kvdir_now(d);
    log_debug("%lld KV files (%lld bytes) give way", (long long)files, (long long)bytes);
    d->gave.files += files;
    d->gave.bytes += bytes;
    if (now < d->tell_at)
        return;
    log_info("%lld KV files (%lld bytes) give way: %zu are left, of %lld bytes that there may be",
             (long long)d->gave.files, (long long)d->gave.bytes, left, (long long)most);
    d->gave = (struct kvdir_usage){0};
    d->tell_at = now + TELL_S;
}

static void evict(struct kvdir *d, const struct kv_eviction_policy *r)
{
    size_t n;
    struct kv_manifest_row **files = list_candidates(d, &n);
    bool *picked = calloc(n + 1, sizeof *picked);
    ptrdiff_t n_picked = files != NULL && picked ? kv_eviction_pick(r, files, n, kvdir_now(d), picked) : 0;
    int64_t bytes = 0;
    for (size_t i = 0; n_picked > 0 && i < n; i++)
        if (picked[i]) {
            bytes += files[i]->bytes;
            mark_evicting(d, (struct kv_entry *)files[i], false); /* row is the first member of struct kv_entry */
        }
    if (n_picked > 0)
        tell(d, n_picked, bytes, n - (size_t)n_picked, r->bytes);
    free(files);
    free(picked);
    evict_some(d);
}

static struct kv_eviction_policy policy(const struct kvdir *d)
{
    static const double day =
        86400; /* as long as a journal is kept: a request without a session leaves nothing on the disk for longer */
    struct kv_eviction_policy r = {.files = KVDIR_FILES, .age = (double)d->conf->kv_age * day, .age_unowned = day};
    kvdir_limits(d, &r.bytes, &r.bytes_per_uid);
    return r;
}

void kvdir_evict(struct kvdir *d)
{
    if (!d)
        return;
    struct kv_eviction_policy r = policy(d);
    evict(d, &r);
}

/* Whether a user exceeds the limit even without the victims that are still being removed. */
static bool is_over(const struct kvdir *d, const struct kvdir_usage *u, int64_t most)
{
    int64_t left = u->bytes;
    const struct kv_entry *f;
    if (left <= most)
        return false;
    TAILQ_FOREACH (f, &d->evicting, evicting)
        left -= f->row.uid == u->uid ? f->row.bytes : 0;
    return left > most;
}

void kvdir_make_room(struct kvdir *d)
{
    struct kv_eviction_policy r = policy(d);
    struct kvdir_usage left = {.files = (int64_t)d->n, .bytes = d->bytes};
    bool over = false;
    const struct kv_entry *f;
    TAILQ_FOREACH (f, &d->evicting, evicting) {
        left.files--;
        left.bytes -= f->row.bytes;
    }
    for (size_t i = 0; i < d->n_users; i++)
        over = over || is_over(d, &d->users[i], r.bytes_per_uid);
    if (!over && left.bytes <= r.bytes && left.files <= (int64_t)r.files)
        return;
    if (d->n >= HEADROOM_MIN_FILES) {
        r.files -= r.files / HEADROOM_DIV;
        r.bytes -= r.bytes / HEADROOM_DIV;
        r.bytes_per_uid -= r.bytes_per_uid / HEADROOM_DIV;
    }
    evict(d, &r);
}

bool kvdir_give_way(struct kvdir *d, int64_t bytes)
{
    size_t n = d ? d->n : 0;
    if (!n)
        return false;
    struct kv_eviction_policy r = policy(d);
    int64_t left = d->bytes > bytes ? d->bytes - bytes : 0;
    r.bytes = left < r.bytes ? left : r.bytes;
    log_warn("the disk is full: %s of %lld bytes of cached KV give way", left ? "some" : "all", (long long)d->bytes);
    evict(d, &r);
    kvdir_evict_all(d);
    releaser_wait(d->releaser); /* the caller needs the space now */
    return d->n < n;
}

void kvdir_forget(struct kvdir *d, const char *session, int64_t from)
{
    struct kv_entry *f;
    if (!d)
        return;
    LIST_FOREACH (f, kvdir_of_session(d, session), by_session)
        if (strcmp(f->row.session, session) == 0 && f->row.pos + f->row.tokens > from)
            mark_evicting(d, f, true);
    kvdir_trim_bad(d, 0);
    evict_some(d);
}

/* --- damaged files ------------------------------------------------------------------------------------------ */

bool kvdir_stat_bad(const struct kvdir *d, const char *name, struct stat *sb)
{
    char file[KV_MANIFEST_NAME + 1];
    size_t n = strlen(name);
    if (n < 5 || strcmp(name + n - 4, ".bad") != 0 || fstatat(d->fd, name, sb, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    if (S_ISREG(sb->st_mode) && sb->st_uid == geteuid())
        return true;
    snprintf(file, sizeof file, "%.*s", KV_MANIFEST_NAME, name);
    return n == KV_MANIFEST_NAME + 4 && kv_manifest_is_name(file) && !S_ISDIR(sb->st_mode);
}

void kvdir_trim_bad(struct kvdir *d, size_t keep)
{
    int64_t bytes = 0, most, per_uid;
    size_t n = 0;
    if (d->n_bad == 0)
        return;
    kvdir_limits(d, &most, &per_uid);
    for (size_t i = 0; i < d->n_bad; i++) {
        const struct kvbad *b = &d->bad[i];
        const char *why = i >= keep ? "there are newer ones, or a session was removed" : "too large to keep";
        bytes += b->bytes;
        if (i < keep && bytes <= most / 16)
            d->bad[n++] = *b;
        else if (unlinkat(d->fd, b->name, 0) == 0 || errno == ENOENT)
            log_info("damaged KV file %s (%lld bytes) removed: %s", b->name, (long long)b->bytes, why);
        else
            log_error("damaged KV file %s cannot be removed: %s", b->name, strerror(errno));
    }
    d->n_bad = n;
}

void kvdir_add_bad(struct kvdir *d, const char *bad)
{
    struct kvbad new;
    struct stat sb;
    size_t n = 1;
    if (!kvdir_stat_bad(d, bad, &sb))
        return; /* by now the name belongs to something else, which is left alone */
    new.bytes = S_ISREG(sb.st_mode) ? sb.st_size : 0;
    snprintf(new.name, sizeof new.name, "%s", bad);
    for (size_t i = 0; i < d->n_bad; i++) /* the rename replaced any older file of that name */
        if (strcmp(d->bad[i].name, bad) != 0)
            n++;
    for (size_t from = d->n_bad, to = n; from-- > 0;)
        if (strcmp(d->bad[from].name, bad) != 0)
            memmove(&d->bad[--to], &d->bad[from], sizeof *d->bad);
    d->bad[0] = new;
    d->n_bad = n;
    kvdir_trim_bad(d, KVDIR_BAD);
}

void kvdir_set_aside(struct kvdir *d, const char *name, const char *why)
{
    char bad[KV_MANIFEST_NAME + 5];
    snprintf(bad, sizeof bad, "%s.bad", name);
    if (renameat(d->fd, name, d->fd, bad) != 0) {
        log_error("KV file %s: %s, and cannot be set aside: %s", name, why, strerror(errno));
        return;
    }
    log_warn("KV file %s: %s: set aside as %s", name, why, bad);
    kvdir_add_bad(d, bad);
}
