/* retention.c - see retention.h. Loop thread. */
#include "config.h"

#include "daemon/retention/retention.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/retention/clock-guard.h"
#include "daemon/retention/kvdir.h"

enum { INTERVAL_MS = 3600 * 1000, SOON_MS = 1000, LATER_MS = 60 * 1000 };
enum { DAY_S = 24 * 3600, EPHEMERAL_S = DAY_S, BATCH = 16 /* sessions removed before the loop runs again */ };

struct retention {
    struct server *server;
    const struct retention_calls *calls;
    struct timer *sweep, *step, *purge, *scrub;
    struct clock_guard clock_guard;
    double used;   /* the latest time that retention_used() returned */
    bool expiring; /* the sweep has not yet covered the sessions after `at` */
    struct store_cursor at;
    bool scrub_waits; /* until nobody reads the database's log */
    bool warned;      /* the log already says that the clock is not trusted */
};

/* --- removing ------------------------------------------------------------------------------------------- */

static bool may_evict(const struct retention *t, const struct store_session *row)
{
    return !row->pinned && !row->damaged && !t->calls->is_busy(t->server, row->id);
}

static bool evict_session(struct retention *t, const struct store_session *row, const char *why)
{
    struct hearth_err e;
    if (t->calls->remove(t->server, row, &e)) {
        log_error("session \"%s\" (%s) of user %u is to go, %s: %s", row->name, row->id, (unsigned)row->uid, why,
                  e.msg);
        return false;
    }
    log_info("session \"%s\" (%s) of user %u, %lld bytes, is removed: %s", row->name, row->id, (unsigned)row->uid,
             (long long)row->bytes, why);
    return true;
}

/* Removes the least recently used sessions until the others are within the limit. The most recently used one stays,
 * because it is the one that grew; so does the one with the id `keep`, which is being opened. True if there is more to
 * do. */
static bool trim_uid(struct retention *t, uid_t uid, const char *keep)
{
    struct server *s = t->server;
    struct store_cursor at = {0};
    int64_t limit = s->conf->session_bytes_per_uid, total = 0;
    size_t n;
    int64_t done = 0;
    struct hearth_err e;
    int rc = limit > 0 ? store_bytes(s->store, uid, &total, &e) : 0;
    bool end = rc != 0 || total <= limit;
    while (!end && done == 0) { /* sessions in use are skipped, so a batch may remove none */
        struct store_session **v;
        rc = store_list_unused(s->store, uid, &at, BATCH, &v, &n, &e);
        for (size_t i = 0; !rc && i < n; i++) {
            if (total > limit && done < BATCH && strcmp(v[i]->id, keep) != 0 && may_evict(t, v[i]) &&
                evict_session(t, v[i], "over session_bytes_per_uid")) {
                /* Turns that its forks share are not freed. */
                if (store_bytes(s->store, uid, &total, &e) != 0)
                    total = 0;
                done++;
            }
            store_session_free(v[i]);
        }
        if (!rc)
            free(v);
        end = rc != 0 || total <= limit || (at.id[0] == '\0' && done < BATCH);
    }
    if (rc)
        log_error("%s", e.msg);
    return !end;
}

/* Removes the next batch of old sessions, starting at t->at; true if there is more to do. */
static bool expire_batch(struct retention *t)
{
    struct server *s = t->server;
    struct store_session **v;
    size_t n;
    struct hearth_err e;
    double now = server_now(), before = s->conf->session_age > 0 ? now - (double)s->conf->session_age * DAY_S : -1e12;
    if (store_list_old(s->store, before, now - EPHEMERAL_S, &t->at, BATCH, &v, &n, &e) != 0) {
        log_error("%s", e.msg);
        return false;
    }
    int64_t done = 0;
    for (size_t i = 0; i < n; i++) {
        if (done < BATCH) {
            if (may_evict(t, v[i]))
                evict_session(t, v[i],
                              v[i]->ephemeral ? "ephemeral, and not used for a day" : "not used for session_age days");
            done++;
            if (done >= BATCH && i + 1 < n) { /* the next step continues here */
                t->at.used = v[i]->used;
                memcpy(t->at.id, v[i]->id, sizeof t->at.id);
            }
        }
        store_session_free(v[i]);
    }
    free(v);
    return t->at.id[0] != '\0';
}

/* --- the sweep ------------------------------------------------------------------------------------------- */

/* One step of the sweep; the loop runs between two steps. */
static void sweep_step(struct retention *t)
{
    struct server *s = t->server;
    uid_t *uids = NULL;
    size_t n = 0;
    struct hearth_err e;
    t->expiring = t->expiring && expire_batch(t);
    bool more = t->expiring;
    if (s->conf->session_bytes_per_uid > 0 && store_uids(s->store, &uids, &n, &e) != 0)
        log_warn("%s", e.msg);
    for (size_t i = 0; i < n; i++)
        more = trim_uid(t, uids[i], "") || more;
    free(uids);
    if (more)
        timer_set(t->step, 0);
}

static void sweep(struct retention *t)
{
    struct server *s = t->server;
    struct hearth_err e;
    bool trusted = clock_guard_update(&t->clock_guard, server_now(), server_boot());
    if (store_set_clock(s->store, t->clock_guard.wall, t->clock_guard.holdoff, &e) != 0) {
        log_warn("%s", e.msg);
        trusted = false; /* a jump of the clock during a restart would not be noticed */
    }
    t->expiring = trusted;
    t->at = (struct store_cursor){0};
    if (s->conf->session_age > 0 && !trusted && !t->warned)
        log_info(
            "no session is removed for its age before the clock has gone evenly for %.0f hours more: it has jumped, "
            "or was not watched for long",
            t->clock_guard.holdoff / 3600);
    t->warned = !trusted;
    sweep_step(t);
    t->calls->expire_streams(s);
    kvdir_evict(s->kv);
    store_reserve_make(s->store);
}

void retention_trim_uid(struct server *s, uid_t uid)
{
    if (s->retention && trim_uid(s->retention, uid, ""))
        timer_set(s->retention->step, 0);
}

static void on_step(void *arg)
{
    sweep_step(arg);
}

static void on_sweep(void *arg)
{
    struct retention *t = arg;
    timer_set(t->sweep, INTERVAL_MS);
    sweep(t);
}

double retention_used(struct server *s)
{
    static const double least = 1e-6; /* seconds between two returned times */
    struct retention *t = s->retention;
    double now = server_now();
    if (t)
        now = t->used = now > t->used + least ? now : t->used + least;
    return now;
}

void retention_purge_later(struct server *s)
{
    if (s->retention)
        timer_set(s->retention->purge, 0);
}

/* Deletes the turns of removed sessions, a batch in each call, and then clears them from the database's log. */
static void on_purge(void *arg)
{
    struct retention *t = arg;
    struct hearth_err e;
    bool more;
    int rc = store_purge_some(t->server->store, &more, &e);
    if (rc)
        log_warn("%s; it is tried again", e.msg);
    if (rc || more)
        timer_set(t->purge, rc ? LATER_MS : 0);
    if ((rc || !more) && !timer_is_set(t->scrub))
        timer_set(t->scrub, SOON_MS);
}

static void on_scrub(void *arg)
{
    struct retention *t = arg;
    struct hearth_err e;
    /* While a reader uses the log, clearing it would block the loop until the reader is done. */
    t->scrub_waits = t->server->backup || t->server->reads_aside;
    if (t->scrub_waits) {
        timer_set(t->scrub, SOON_MS);
    } else if (store_scrub(t->server->store, &e) != 0) {
        log_warn("%s; what was removed is still in it", e.msg);
        timer_set(t->scrub, LATER_MS);
    }
}

void retention_read_ended(struct server *s)
{
    struct retention *t = s->retention;
    if (!t || !t->scrub_waits)
        return;
    timer_clear(t->scrub);
    on_scrub(t);
}

int retention_new(struct retention **out, struct server *s, const struct retention_calls *calls, struct hearth_err *e)
{
    struct retention *t = calloc(1, sizeof *t);
    double wall = 0, holdoff = 0;
    if (!t)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    t->server = s;
    t->calls = calls;
    t->sweep = timer_new(s->base, on_sweep, t);
    t->step = timer_new(s->base, on_step, t);
    t->purge = timer_new(s->base, on_purge, t);
    t->scrub = timer_new(s->base, on_scrub, t);
    int rc = 0;
    if (!t->sweep || !t->step || !t->purge || !t->scrub || timer_set(t->sweep, INTERVAL_MS))
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
    if (!rc)
        rc = store_get_clock(s->store, &wall, &holdoff, e);
    if (!rc)
        rc = store_last_used(s->store, wall + 2e-3 * INTERVAL_MS, &t->used, e); /* a later time can only be damage */
    if (rc) {
        retention_free(t);
        return rc;
    }
    clock_guard_init(&t->clock_guard, wall, holdoff, server_now(), server_boot());
    *out = t; /* sweep() asks it about the clock, through journal_expire() */
    sweep(t);
    return 0;
}

void retention_free(struct retention *t)
{
    if (!t)
        return;
    timer_free(t->sweep);
    timer_free(t->step);
    timer_free(t->purge);
    timer_free(t->scrub);
    free(t);
}

bool retention_trusts_clock(struct server *s)
{
    return s->retention != NULL && clock_guard_update(&s->retention->clock_guard, server_now(), server_boot());
}

/* --- queries --------------------------------------------------------------------------------------------- */

int retention_check_quota(struct server *s, uid_t uid, const struct store_session *row, const char *keep, int64_t more,
                          struct hearth_err *e)
{
    const struct conf *c = s->conf;
    int64_t total;
    if (row && c->session_bytes > 0 && row->bytes >= c->session_bytes)
        return err_set(e, HEARTH_ELIMIT, "session \"%.80s\" holds %lld bytes, the limit (session_bytes) is %lld",
                       row->name, (long long)row->bytes, (long long)c->session_bytes);
    if (c->session_bytes_per_uid == 0)
        return 0;
    if (s->retention && trim_uid(s->retention, uid, row ? row->id : keep ? keep : "")) {
        timer_set(s->retention->step, 0);
        if (!more)
            return 0; /* the rest is removed shortly */
    }
    int rc = store_bytes(s->store, uid, &total, e);
    if (!rc && total > c->session_bytes_per_uid - more)
        rc = err_set(e, HEARTH_ELIMIT,
                     "the sessions of user %u hold %lld bytes%s, the limit (session_bytes_per_uid) is %lld, and no "
                     "more may be removed now",
                     (unsigned)uid, (long long)(total + more), more ? " with this" : "",
                     (long long)c->session_bytes_per_uid);
    return rc;
}

double retention_expires(const struct server *s, const struct store_session *row)
{
    double age = (double)s->conf->session_age * DAY_S;
    if (row->ephemeral && (age <= 0 || age > EPHEMERAL_S))
        age = EPHEMERAL_S;
    return age <= 0 || row->pinned ? 0 : row->used + age;
}
