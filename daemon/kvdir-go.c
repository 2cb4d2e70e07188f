/*
 * kvdir-go.c - KV files that go: for room, for their age, with their session; and damaged ones, set aside. Loop thread.
 *
 * A file of megabytes takes its filesystem a moment to remove, and there may be thousands to go at once. So what has to
 * go is marked, which is all that must not wait, and removed a few at a time, with the loop between. What a crash
 * leaves of a removed session goes at the next start, for its rows name a session that is not there.
 */
#include "config.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/kvdir-inside.h"
#include "daemon/link.h"
#include "daemon/log.h"

enum {
    AT_ONCE = 32,
    MANY = 1024, /* from here on room is made for some more at once: all have to be sorted for it */
    MORE = 32,   /* a 32nd */
};

bool kvdir_remove_file(struct kvdir *d, const char *name)
{
    char bad[STORE_KV_NAME + 5];
    if (unlinkat(d->fd, name, 0) == 0)
        return true;
    if (errno == ENOENT) { /* or set aside by an engine that died before it could say so */
        snprintf(bad, sizeof(bad), "%s.bad", name);
        if (unlinkat(d->fd, bad, 0) == 0 || errno == ENOENT)
            return true;
    }
    log_error("KV file %s cannot be removed: %s", name, strerror(errno));
    return false;
}

/* --- going ---------------------------------------------------------------------------------------------- */

static void mark(struct kvdir *d, struct kvfile *f, bool lost)
{
    if (!f->is_going)
        TAILQ_INSERT_TAIL(&d->going, f, going);
    f->is_going = true;
    f->is_lost = f->is_lost || lost;
}

void kvdir_spare(struct kvdir *d, struct kvfile *f)
{
    if (f->is_going)
        TAILQ_REMOVE(&d->going, f, going);
    f->is_going = f->is_lost = false;
}

static void on_told(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg, (void)result, (void)err; /* an engine that has died knows of no file */
}

static void tell_gone(const struct kvdir *d, const struct kvfile *f)
{
    struct wire_engine_kv_gone gone = {.file = f->row.name};
    struct link *l = d->server->link; /* NULL at hearthd's end */
    bool fresh = kvdir_now(d) - f->row.created <= KVDIR_FRESH;
    if (l != NULL && (link_state(l) == LINK_STARTING || link_state(l) == LINK_RUNNING) && (f->is_lost || !fresh))
        link_ask(l, &wire_methods[WIRE_ENGINE_KV_GONE], &gone, on_told, NULL, NULL);
}

/* Some of them, now. One that cannot be removed stays, as a file that counts. */
static void let_some_go(struct kvdir *d, size_t most)
{
    struct kvfile *f;
    for (size_t i = 0; i < most && (f = TAILQ_FIRST(&d->going)) != NULL; i++) {
        bool is_gone = kvdir_remove_file(d, f->row.name);
        if (is_gone)
            tell_gone(d, f);
        kvdir_spare(d, f);
        if (is_gone)
            kvdir_drop(d, f);
    }
}

void kvdir_let_go(struct kvdir *d)
{
    let_some_go(d, SIZE_MAX);
}

static void go_on(struct kvdir *d)
{
    static const struct timeval now;
    let_some_go(d, AT_ONCE);
    if (!TAILQ_EMPTY(&d->going))
        event_add(d->again, &now);
}

void kvdir_on_again(int fd, short what, void *arg)
{
    (void)fd, (void)what;
    go_on(arg);
}

/* --- which ---------------------------------------------------------------------------------------------- */

/* Every file that is not going yet, in no order; malloc'd, with room for one more. */
static struct store_kv **all(struct kvdir *d, size_t *n)
{
    struct store_kv **v = calloc(d->n + 1, sizeof(*v));
    struct kvfile *f;
    *n = 0;
    for (size_t i = 0; v != NULL && i < KVDIR_BUCKETS; i++)
        LIST_FOREACH (f, &d->by_name[i], by_name)
            if (!f->is_going)
                v[(*n)++] = &f->row;
    return v;
}

static void evict(struct kvdir *d, const struct kvrule *r)
{
    size_t n;
    struct store_kv **files = all(d, &n);
    bool *gone = calloc(n + 1, sizeof(*gone));
    ptrdiff_t n_gone = files != NULL && gone != NULL ? kvrule_pick(r, files, n, kvdir_now(d), gone) : 0;
    int64_t bytes = 0;
    for (size_t i = 0; n_gone > 0 && i < n; i++)
        if (gone[i]) {
            bytes += files[i]->bytes;
            mark(d, (struct kvfile *)files[i], false); /* whose first member it is */
        }
    if (n_gone > 0)
        log_info("%td KV files (%lld bytes) give way: %zu are left, of %lld bytes that there may be", n_gone,
                 (long long)bytes, n - (size_t)n_gone, (long long)r->bytes);
    free(files);
    free(gone);
    go_on(d);
}

static struct kvrule rule(const struct kvdir *d)
{
    static const double day =
        86400; /* as long as a journal is kept: a request without a session leaves nothing longer */
    struct kvrule r = {.files = KVDIR_FILES, .age = (double)d->conf->kv_age * day, .age_alone = day};
    kvdir_limits(d, &r.bytes, &r.bytes_per_uid);
    return r;
}

void kvdir_evict(struct kvdir *d)
{
    if (d == NULL)
        return;
    struct kvrule r = rule(d);
    evict(d, &r);
}

void kvdir_make_room(struct kvdir *d)
{
    struct kvrule r = rule(d);
    struct kvdir_usage left = {.files = (int64_t)d->n, .bytes = d->bytes};
    bool over = false;
    const struct kvfile *f;
    TAILQ_FOREACH (f, &d->going, going) {
        left.files--;
        left.bytes -= f->row.bytes;
    }
    for (size_t i = 0; i < d->n_users; i++)
        over = over || d->users[i].bytes > r.bytes_per_uid;
    if (!over && left.bytes <= r.bytes && left.files <= (int64_t)r.files)
        return;
    if (d->n >= MANY) {
        r.files -= r.files / MORE;
        r.bytes -= r.bytes / MORE;
        r.bytes_per_uid -= r.bytes_per_uid / MORE;
    }
    evict(d, &r);
}

void kvdir_forget(struct kvdir *d, const char *session)
{
    struct kvfile *f;
    if (d == NULL)
        return;
    LIST_FOREACH (f, kvdir_of_session(d, session), by_session)
        if (strcmp(f->row.session, session) == 0)
            mark(d, f, true);
    kvdir_trim_bad(d, 0);
    go_on(d);
}

/* --- set aside ------------------------------------------------------------------------------------------ */

bool kvdir_stat_bad(const struct kvdir *d, const char *name, struct stat *sb)
{
    char file[STORE_KV_NAME + 1];
    size_t n = strlen(name);
    if (n < 5 || strcmp(name + n - 4, ".bad") != 0 || fstatat(d->fd, name, sb, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    if (S_ISREG(sb->st_mode) && sb->st_uid == geteuid())
        return true;
    snprintf(file, sizeof(file), "%.*s", STORE_KV_NAME, name);
    return n == STORE_KV_NAME + 4 && store_kv_is_name(file) && !S_ISDIR(sb->st_mode);
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
        return; /* what it is now is nobody's of ours */
    new.bytes = S_ISREG(sb.st_mode) ? sb.st_size : 0;
    snprintf(new.name, sizeof(new.name), "%s", bad);
    for (size_t i = 0; i < d->n_bad; i++) /* an older one of that name was replaced */
        if (strcmp(d->bad[i].name, bad) != 0)
            n++;
    for (size_t from = d->n_bad, to = n; from-- > 0;)
        if (strcmp(d->bad[from].name, bad) != 0)
            memmove(&d->bad[--to], &d->bad[from], sizeof(*d->bad));
    d->bad[0] = new;
    d->n_bad = n;
    kvdir_trim_bad(d, KVDIR_BAD);
}

void kvdir_set_aside(struct kvdir *d, const char *name, const char *why)
{
    char bad[STORE_KV_NAME + 5];
    snprintf(bad, sizeof(bad), "%s.bad", name);
    if (renameat(d->fd, name, d->fd, bad) != 0) {
        log_error("KV file %s: %s, and cannot be set aside: %s", name, why, strerror(errno));
        return;
    }
    log_warn("KV file %s: %s: set aside as %s", name, why, bad);
    kvdir_add_bad(d, bad);
}
