/* retention.c - sessions that nobody uses; see retention.h. Loop thread. */
#include "config.h"

#include "daemon/retention/retention.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/retention/clock-guard.h"
#include "daemon/stream/journal.h"
#include "daemon/retention/kvdir.h"
#include "daemon/log.h"
#include "daemon/stream/session.h"

enum { INTERVAL_S = 3600, DAY_S = 24 * 3600, BATCH = 16 /* sessions, before streams go on */ };

struct retention {
    struct server *server;
    struct event *timer, *step_timer, *purge, *scrub;
    struct clock_guard clock_guard;
    bool expiring; /* sessions after `at` may be too old */
    struct store_cursor at;
    bool warned; /* that the clock is not believed */
};

/* --- removing ------------------------------------------------------------------------------------------- */

static bool may_evict(const struct server *s, const struct store_session *row)
{
    return !row->pinned && !row->damaged && !session_is_busy(s, row->id);
}

static bool evict_session(struct server *s, const struct store_session *row, const char *why)
{
    struct hearth_err e;
    if (session_remove(s, row, &e) != 0) {
        log_error("session \"%s\" (%s) of user %u is to go, %s: %s", row->name, row->id, (unsigned)row->uid, why,
                  e.msg);
        return false;
    }
    log_info("session \"%s\" (%s) of user %u, %lld bytes, is removed: %s", row->name, row->id, (unsigned)row->uid,
             (long long)row->bytes, why);
    return true;
}

/* The least recently used go until the others fit in, but the one that was used last stays: it is what grew. True where
 * there is more to do. */
static bool trim_uid(struct server *s, uid_t uid)
{
    struct store_cursor at = {0};
    int64_t limit = s->conf->session_bytes_per_uid, total = 0;
    size_t n;
    int64_t done = 0;
    struct hearth_err e;
    int rc = limit > 0 ? store_bytes(s->store, uid, &total, &e) : 0;
    bool end = rc != 0 || total <= limit;
    while (!end && done == 0) { /* what is in use is passed over */
        struct store_session **v;
        rc = store_list_unused(s->store, uid, &at, BATCH, &v, &n, &e);
        for (size_t i = 0; !rc && i < n; i++) {
            if (total > limit && done < BATCH && may_evict(s, v[i]) &&
                evict_session(s, v[i], "over session_bytes_per_uid")) {
                total -= v[i]->bytes;
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

/* From t->at on; true where there is more to do. */
static bool expire_batch(struct retention *t)
{
    struct server *s = t->server;
    struct store_session **v;
    size_t n;
    struct hearth_err e;
    double before = server_now() - (double)s->conf->session_age * DAY_S;
    if (store_list_old(s->store, before, &t->at, BATCH, &v, &n, &e) != 0) {
        log_error("%s", e.msg);
        return false;
    }
    int64_t done = 0;
    for (size_t i = 0; i < n; i++) {
        if (done < BATCH) {
            if (may_evict(s, v[i]))
                evict_session(s, v[i], "not used for session_age days");
            done++;
            if (done >= BATCH && i + 1 < n) { /* the others in the next step */
                t->at.used = v[i]->used;
                memcpy(t->at.id, v[i]->id, sizeof t->at.id);
            }
        }
        store_session_free(v[i]);
    }
    free(v);
    return t->at.id[0] != '\0';
}

/* --- the hour ------------------------------------------------------------------------------------------- */

/* A piece of the work: streams go on between two. */
static void sweep_step(struct retention *t)
{
    static const struct timeval now;
    struct server *s = t->server;
    uid_t *uids = NULL;
    size_t n = 0;
    struct hearth_err e;
    t->expiring = t->expiring && expire_batch(t);
    bool more = t->expiring;
    if (s->conf->session_bytes_per_uid > 0 && store_uids(s->store, &uids, &n, &e) != 0)
        log_warn("%s", e.msg);
    for (size_t i = 0; i < n; i++)
        more = trim_uid(s, uids[i]) || more;
    free(uids);
    if (more)
        event_add(t->step_timer, &now);
}

static void sweep(struct retention *t)
{
    struct server *s = t->server;
    struct hearth_err e;
    bool trusted = clock_guard_update(&t->clock_guard, server_now(), server_boot());
    if (store_set_clock(s->store, t->clock_guard.wall, t->clock_guard.holdoff, &e) != 0) {
        log_warn("%s", e.msg);
        trusted = false; /* a jump would not be noticed over a restart */
    }
    t->expiring = s->conf->session_age > 0 && trusted;
    t->at = (struct store_cursor){0};
    if (s->conf->session_age > 0 && !trusted && !t->warned)
        log_info(
            "no session is removed for its age before the clock has gone evenly for %.0f hours more: it has jumped, "
            "or was not watched for long",
            t->clock_guard.holdoff / 3600);
    t->warned = !trusted;
    sweep_step(t);
    journal_expire(s->journal);
    kvdir_evict(s->kv);
}

void retention_trim_uid(struct server *s, uid_t uid)
{
    static const struct timeval now;
    if (s->store && trim_uid(s, uid) && s->retention)
        event_add(s->retention->step_timer, &now);
}

static void on_step(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    sweep_step(arg);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    sweep(arg);
}

void retention_purge_later(struct server *s)
{
    static const struct timeval now;
    if (s->retention)
        event_add(s->retention->purge, &now);
}

/* The turns of what was removed go a few at a time, and then the log is cleared of them, of all together. */
static void on_purge(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval now, soon = {.tv_sec = 1}, later = {.tv_sec = 60};
    struct retention *t = arg;
    struct hearth_err e;
    bool more;
    (void)fd, (void)what;
    int rc = store_purge_some(t->server->store, &more, &e);
    if (rc)
        log_warn("%s; it is tried again", e.msg);
    if (rc || more)
        event_add(t->purge, rc != 0 ? &later : &now);
    if ((rc != 0 || !more) && !event_pending(t->scrub, EV_TIMEOUT, NULL))
        event_add(t->scrub, &soon);
}

static void on_scrub(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval soon = {.tv_sec = 1}, later = {.tv_sec = 60};
    struct retention *t = arg;
    struct hearth_err e;
    (void)fd, (void)what;
    if (t->server->backup) { /* it reads the log, and the loop would wait for it */
        event_add(t->scrub, &soon);
    } else if (store_scrub(t->server->store, &e) != 0) {
        log_warn("%s; what was removed is still in it", e.msg);
        event_add(t->scrub, &later);
    }
}

int retention_new(struct retention **out, struct server *s, struct hearth_err *e)
{
    struct retention *t = calloc(1, sizeof *t);
    struct timeval hour = {.tv_sec = INTERVAL_S};
    double wall = 0, holdoff = 0;
    if (!t)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    t->server = s;
    t->timer = event_new(s->base, -1, EV_PERSIST, on_timer, t);
    t->step_timer = evtimer_new(s->base, on_step, t);
    t->purge = evtimer_new(s->base, on_purge, t);
    t->scrub = evtimer_new(s->base, on_scrub, t);
    int rc = 0;
    if (!t->timer || !t->step_timer || !t->purge || !t->scrub || event_add(t->timer, &hour) != 0)
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
    if (!rc)
        rc = store_get_clock(s->store, &wall, &holdoff, e);
    if (rc) {
        retention_free(t);
        return rc;
    }
    clock_guard_init(&t->clock_guard, wall, holdoff, server_now(), server_boot());
    *out = t; /* the first turn asks it about the clock */
    sweep(t);
    return 0;
}

void retention_free(struct retention *t)
{
    if (!t)
        return;
    if (t->timer)
        event_free(t->timer);
    if (t->step_timer)
        event_free(t->step_timer);
    if (t->purge)
        event_free(t->purge);
    if (t->scrub)
        event_free(t->scrub);
    free(t);
}

bool retention_trusts_clock(struct server *s)
{
    return s->retention != NULL && clock_guard_update(&s->retention->clock_guard, server_now(), server_boot());
}

/* --- asking --------------------------------------------------------------------------------------------- */

int retention_check_quota(struct server *s, uid_t uid, const struct store_session *row, struct hearth_err *e)
{
    const struct conf *c = s->conf;
    int64_t total;
    if (row && c->session_bytes > 0 && row->bytes >= c->session_bytes)
        return err_set(e, HEARTH_ELIMIT, "session \"%.80s\" holds %lld bytes, the limit (session_bytes) is %lld",
                       row->name, (long long)row->bytes, (long long)c->session_bytes);
    if (c->session_bytes_per_uid == 0)
        return 0;
    retention_trim_uid(s, uid);
    int rc = store_bytes(s->store, uid, &total, e);
    if (!rc && total > c->session_bytes_per_uid)
        rc = err_set(e, HEARTH_ELIMIT,
                     "the sessions of user %u hold %lld bytes, the limit (session_bytes_per_uid) is %lld, and no "
                     "more may be removed now",
                     (unsigned)uid, (long long)total, (long long)c->session_bytes_per_uid);
    return rc;
}

double retention_expires(const struct server *s, const struct store_session *row)
{
    return s->conf->session_age == 0 || row->pinned ? 0 : row->used + (double)s->conf->session_age * DAY_S;
}
