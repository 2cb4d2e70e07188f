/* tidy.c - sessions that nobody uses; see tidy.h. Loop thread. */
#include "config.h"

#include "daemon/tidy.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/age.h"
#include "daemon/journal.h"
#include "daemon/kvdir.h"
#include "daemon/log.h"
#include "daemon/session.h"

enum { EVERY_S = 3600, DAY_S = 24 * 3600, AT_ONCE = 16 /* sessions, before streams go on */ };

struct tidy {
    struct server *server;
    struct event *timer, *again, *rest, *scrub;
    struct age age;
    bool aging; /* sessions after `at` may be too old */
    struct store_place at;
    bool told; /* that the clock is not believed */
};

/* --- removing ------------------------------------------------------------------------------------------- */

static bool may_go(const struct server *s, const struct store_session *row)
{
    return !row->pinned && !row->damaged && !session_is_busy(s, row->id);
}

static bool removed(struct server *s, const struct store_session *row, const char *why)
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
static bool make_room(struct server *s, uid_t uid)
{
    struct store_place at = {0};
    int64_t limit = s->conf->session_bytes_per_uid, total = 0;
    size_t n;
    int64_t done = 0;
    struct hearth_err e;
    int rc = limit > 0 ? store_bytes(s->store, uid, &total, &e) : 0;
    bool end = rc != 0 || total <= limit;
    while (!end && done == 0) { /* what is in use is passed over */
        struct store_session **v;
        rc = store_list_unused(s->store, uid, &at, AT_ONCE, &v, &n, &e);
        for (size_t i = 0; rc == 0 && i < n; i++) {
            if (total > limit && done < AT_ONCE && may_go(s, v[i]) && removed(s, v[i], "over session_bytes_per_uid")) {
                total -= v[i]->bytes;
                done++;
            }
            store_session_free(v[i]);
        }
        if (rc == 0)
            free(v);
        end = rc != 0 || total <= limit || (at.id[0] == '\0' && done < AT_ONCE);
    }
    if (rc != 0)
        log_error("%s", e.msg);
    return !end;
}

/* From t->at on; true where there is more to do. */
static bool remove_old(struct tidy *t)
{
    struct server *s = t->server;
    struct store_session **v;
    size_t n;
    struct hearth_err e;
    double before = server_now() - (double)s->conf->session_age * DAY_S;
    if (store_list_old(s->store, before, &t->at, AT_ONCE, &v, &n, &e) != 0) {
        log_error("%s", e.msg);
        return false;
    }
    int64_t done = 0;
    for (size_t i = 0; i < n; i++) {
        if (done < AT_ONCE) {
            if (may_go(s, v[i]))
                removed(s, v[i], "not used for session_age days");
            done++;
            if (done >= AT_ONCE && i + 1 < n) { /* the others in the next step */
                t->at.used = v[i]->used;
                memcpy(t->at.id, v[i]->id, sizeof(t->at.id));
            }
        }
        store_session_free(v[i]);
    }
    free(v);
    return t->at.id[0] != '\0';
}

/* --- the hour ------------------------------------------------------------------------------------------- */

/* A piece of the work: streams go on between two. */
static void step(struct tidy *t)
{
    static const struct timeval now;
    struct server *s = t->server;
    uid_t *uids = NULL;
    size_t n = 0;
    struct hearth_err e;
    t->aging = t->aging && remove_old(t);
    bool more = t->aging;
    if (s->conf->session_bytes_per_uid > 0 && store_uids(s->store, &uids, &n, &e) != 0)
        log_warn("%s", e.msg);
    for (size_t i = 0; i < n; i++)
        more = make_room(s, uids[i]) || more;
    free(uids);
    if (more)
        event_add(t->again, &now);
}

static void turn(struct tidy *t)
{
    struct server *s = t->server;
    struct hearth_err e;
    bool believed = age_look(&t->age, server_now(), server_boot());
    if (store_set_clock(s->store, t->age.wall, t->age.doubt, &e) != 0) {
        log_warn("%s", e.msg);
        believed = false; /* a jump would not be noticed over a restart */
    }
    t->aging = s->conf->session_age > 0 && believed;
    t->at = (struct store_place){0};
    if (s->conf->session_age > 0 && !believed && !t->told)
        log_info(
            "no session is removed for its age before the clock has gone evenly for %.0f hours more: it has jumped, "
            "or was not watched for long",
            t->age.doubt / 3600);
    t->told = !believed;
    step(t);
    journal_expire(s->journal);
    kvdir_evict(s->kv);
}

void tidy_uid(struct server *s, uid_t uid)
{
    static const struct timeval now;
    if (s->store != NULL && make_room(s, uid) && s->tidy != NULL)
        event_add(s->tidy->again, &now);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    step(arg);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    turn(arg);
}

void tidy_removed(struct server *s)
{
    static const struct timeval now;
    if (s->tidy != NULL)
        event_add(s->tidy->rest, &now);
}

/* The turns of what was removed go a few at a time, and then the log is cleared of them, of all together. */
static void on_rest(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval now, soon = {.tv_sec = 1}, later = {.tv_sec = 60};
    struct tidy *t = arg;
    struct hearth_err e;
    bool more;
    (void)fd, (void)what;
    int rc = store_remove_more(t->server->store, &more, &e);
    if (rc != 0)
        log_warn("%s; it is tried again", e.msg);
    if (rc != 0 || more)
        event_add(t->rest, rc != 0 ? &later : &now);
    if ((rc != 0 || !more) && !event_pending(t->scrub, EV_TIMEOUT, NULL))
        event_add(t->scrub, &soon);
}

static void on_scrub(evutil_socket_t fd, short what, void *arg)
{
    static const struct timeval soon = {.tv_sec = 1}, later = {.tv_sec = 60};
    struct tidy *t = arg;
    struct hearth_err e;
    (void)fd, (void)what;
    if (t->server->backup != NULL) { /* it reads the log, and the loop would wait for it */
        event_add(t->scrub, &soon);
    } else if (store_scrub(t->server->store, &e) != 0) {
        log_warn("%s; what was removed is still in it", e.msg);
        event_add(t->scrub, &later);
    }
}

int tidy_new(struct tidy **out, struct server *s, struct hearth_err *e)
{
    struct tidy *t = calloc(1, sizeof(*t));
    struct timeval hour = {.tv_sec = EVERY_S};
    double wall = 0, doubt = 0;
    if (t == NULL)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    t->server = s;
    t->timer = event_new(s->base, -1, EV_PERSIST, on_timer, t);
    t->again = evtimer_new(s->base, on_again, t);
    t->rest = evtimer_new(s->base, on_rest, t);
    t->scrub = evtimer_new(s->base, on_scrub, t);
    int rc = 0;
    if (t->timer == NULL || t->again == NULL || t->rest == NULL || t->scrub == NULL || event_add(t->timer, &hour) != 0)
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
    if (rc == 0)
        rc = store_get_clock(s->store, &wall, &doubt, e);
    if (rc != 0) {
        tidy_free(t);
        return rc;
    }
    age_start(&t->age, wall, doubt, server_now(), server_boot());
    *out = t; /* the first turn asks it about the clock */
    turn(t);
    return 0;
}

void tidy_free(struct tidy *t)
{
    if (t == NULL)
        return;
    if (t->timer != NULL)
        event_free(t->timer);
    if (t->again != NULL)
        event_free(t->again);
    if (t->rest != NULL)
        event_free(t->rest);
    if (t->scrub != NULL)
        event_free(t->scrub);
    free(t);
}

bool tidy_believes(struct server *s)
{
    return s->tidy != NULL && age_look(&s->tidy->age, server_now(), server_boot());
}

/* --- asking --------------------------------------------------------------------------------------------- */

int tidy_check_room(struct server *s, uid_t uid, const struct store_session *row, struct hearth_err *e)
{
    const struct conf *c = s->conf;
    int64_t total;
    if (row != NULL && c->session_bytes > 0 && row->bytes >= c->session_bytes)
        return err_set(e, HEARTH_ELIMIT, "session \"%.80s\" holds %lld bytes, the limit (session_bytes) is %lld",
                       row->name, (long long)row->bytes, (long long)c->session_bytes);
    if (c->session_bytes_per_uid == 0)
        return 0;
    tidy_uid(s, uid);
    int rc = store_bytes(s->store, uid, &total, e);
    if (rc == 0 && total > c->session_bytes_per_uid)
        rc = err_set(e, HEARTH_ELIMIT,
                     "the sessions of user %u hold %lld bytes, the limit (session_bytes_per_uid) is %lld, and no "
                     "more may be removed now",
                     (unsigned)uid, (long long)total, (long long)c->session_bytes_per_uid);
    return rc;
}

double tidy_expires(const struct server *s, const struct store_session *row)
{
    return s->conf->session_age == 0 || row->pinned ? 0 : row->used + (double)s->conf->session_age * DAY_S;
}
