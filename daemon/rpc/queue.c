/* queue.c - see queue.h. Loop thread. */
#include "daemon/rpc/queue.h"

#include <stdio.h>
#include <string.h>

#include "daemon/loop.h"
#include "daemon/stream/stream.h"

static const double turn_seconds = 5;
/* Seconds without a beginning, for each class by which a call counts as of a higher one than its own. */
static const double age_seconds = 5;

static const struct wire_generate *request_of(const struct call *call)
{
    return call->params;
}

static uid_t uid_of(const struct call *call)
{
    return call->account->uid;
}

static int64_t wanted(const struct call *call)
{
    return call->wants > 0 ? call->wants : 1;
}

/* The streams that count against the user's limit, and against that of all users. */
static int64_t own_streams(const struct call *call)
{
    return call->account->streams + call->account->late;
}

static int64_t all_streams(const struct server *s)
{
    return streams_live(s->streams) + streams_late(s->streams);
}

/* Whether the user's limit allows as many streams as the call wants. */
static bool own_room(const struct server *s, const struct call *call)
{
    return own_streams(call) + wanted(call) <= s->conf->streams_per_uid;
}

bool queue_has_room(const struct call *call)
{
    const struct server *s = call->server;
    return own_room(s, call) && all_streams(s) + wanted(call) <= s->conf->streams;
}

int64_t queue_waiting(const struct server *s)
{
    const struct call *call;
    int64_t n = 0;
    TAILQ_FOREACH (call, &s->queue, waiter_entry)
        n += wanted(call);
    return n;
}

bool queue_has(const struct server *s, uid_t uid)
{
    const struct call *call;
    TAILQ_FOREACH (call, &s->queue, waiter_entry)
        if (uid_of(call) == uid)
            return true;
    return false;
}

bool queue_is_over(const struct call *call)
{
    const struct server *s = call->server;
    return wanted(call) > s->conf->streams_per_uid || wanted(call) > s->conf->streams;
}

static int class_of(const struct call *call)
{
    return stream_class_of(call->server, request_of(call));
}

/* The class that the call counts as: its own, or a higher one where no call of its own class has begun for long while
 * it waited, as there may always be calls of a higher class. */
static int class_by_age(const struct call *call, double now)
{
    int class = class_of(call);
    double begun = call->server->queue_begun[class], since = call->queued > begun ? call->queued : begun;
    double steps = (now - since) / age_seconds;
    return steps < 1 ? class : steps >= class ? 0 : class - (int)steps;
}

/* Whether `a` begins before `b`, which is another user's. */
static bool goes_before(const struct call *a, const struct call *b, double now)
{
    int of_a = class_by_age(a, now), of_b = class_by_age(b, now);
    if (of_a != of_b)
        return of_a < of_b;
    if (a->account->streams != b->account->streams)
        return a->account->streams < b->account->streams;
    return a->queued < b->queued;
}

/* The call's position among its user's calls in the queue, from 1. */
static int64_t position(const struct call *call)
{
    int64_t n = 0;
    for (const struct call *other = call; other; other = TAILQ_PREV(other, call_list, waiter_entry))
        n += uid_of(other) == uid_of(call);
    return n;
}

/* The first queued call that wants several streams and has waited for longer than turn_seconds; NULL. Only calls of a
 * higher class may begin before it, because otherwise others would take the streams one by one as they become free.
 * This applies in every second interval of turn_seconds only, as a running stream may never end. */
static const struct call *long_waiting(const struct server *s)
{
    const struct call *call;
    double now = server_boot();
    TAILQ_FOREACH (call, &s->queue, waiter_entry)
        if (wanted(call) > 1 && now - call->queued > turn_seconds && (int64_t)(now / turn_seconds) % 2 &&
            !queue_is_over(call) && own_room(s, call) && position(call) == 1)
            return call;
    return NULL;
}

static bool makes_way(const struct call *call, const struct call *long_waits)
{
    return long_waits && call != long_waits && class_of(call) >= class_by_age(long_waits, server_boot());
}

int queue_check(const struct call *call, struct hearth_err *e)
{
    const struct server *s = call->server;
    const struct conf *c = s->conf;
    bool waits = !call->has_waited && queue_has(s, uid_of(call));
    if (queue_is_over(call)) { /* however few streams are running */
        bool own = c->streams_per_uid < c->streams;
        return err_set(e, HEARTH_ELIMIT,
                       "generate.n: %lld streams are wanted, and %lld is the limit: %s in hearth.conf",
                       (long long)wanted(call), (long long)(own ? c->streams_per_uid : c->streams),
                       own ? "streams_per_uid" : "streams");
    }
    if (!queue_has_room(call)) {
        bool own = own_streams(call) + wanted(call) > c->streams_per_uid;
        char more[80] = "the limit";
        if (wanted(call) > 1) /* when fewer than wanted may be free */
            snprintf(more, sizeof more, "%lld more are wanted, and %lld is the limit", (long long)wanted(call),
                     (long long)(own ? c->streams_per_uid : c->streams));
        return own ? err_set(e, HEARTH_ELIMIT, "user %u has %lld streams running, %s", (unsigned)uid_of(call),
                             (long long)own_streams(call), more)
                   : err_set(e, HEARTH_ELIMIT, "%lld streams are running, %s", (long long)all_streams(s), more);
    }
    if (!call->has_waited && makes_way(call, long_waiting(s)))
        return err_set(e, HEARTH_ELIMIT, "a request for several streams is waiting for others to end");
    return waits ? err_set(e, HEARTH_ELIMIT, "other requests of user %u are waiting", (unsigned)uid_of(call)) : 0;
}

/* --- stream.queued ------------------------------------------------------------------------------------------------ */

static void tell(struct call *call)
{
    int64_t at = position(call);
    if (at == call->queue_position || !call->conn || !request_of(call)->stream)
        return;
    call->queue_position = at;
    struct wire_stream_queued q = {.request = request_of(call)->request,
                                   .position = at,
                                   .seconds = (double)at * call->account->seconds_per_stream};
    conn_event(call->conn, &wire_methods[WIRE_STREAM_QUEUED], &q);
}

/* Called when calls have left the queue: those behind them have other positions. */
static void tell_all(const struct server *s)
{
    struct call *call;
    TAILQ_FOREACH (call, &s->queue, waiter_entry)
        tell(call);
}

/* Updates the running mean of the time between two of the user's calls leaving the queue. */
static void measure(struct account *a)
{
    static const double newest = 0.2;
    double now = server_boot(), since = now - a->left_queue;
    if (a->left_queue > 0)
        a->seconds_per_stream =
            a->seconds_per_stream > 0 ? (1 - newest) * a->seconds_per_stream + newest * since : since;
    a->left_queue = now;
}

/* --- coming and going -------------------------------------------------------------------------------------------- */

static void leave(struct call *call)
{
    TAILQ_REMOVE(&call->server->queue, call, waiter_entry);
    call->on_disconnect = NULL;
    call_clear_deadline(call);
    if (!queue_has(call->server, uid_of(call)))
        call->account->left_queue = 0;
}

static void on_disconnect(struct call *call)
{
    struct server *s = call->server;
    leave(call);
    tell_all(s);
    call_reply(call, NULL); /* the call has lost its connection: this only frees it */
}

static void on_late(void *arg)
{
    struct call *call = arg;
    struct server *s = call->server;
    leave(call);
    call_fail_late(call, "other streams to end");
    tell_all(s);
}

/* The first waiting call of a lower class, before which `call` is inserted; NULL: none. */
static struct call *first_below(const struct server *s, const struct call *call)
{
    struct call *other;
    TAILQ_FOREACH (other, &s->queue, waiter_entry)
        if (class_of(other) > class_of(call))
            return other;
    return NULL;
}

int queue_wait(struct call *call, struct hearth_err *e)
{
    struct server *s = call->server;
    const struct call *other;
    char why[HEARTH_ERR_MSG];
    int64_t all = 0, own = 0;
    size_t bytes = call->bytes;
    TAILQ_FOREACH (other, &s->queue, waiter_entry) {
        bool same = uid_of(other) == uid_of(call);
        all += wanted(other);
        own += same ? wanted(other) : 0;
        bytes += same ? other->bytes : 0;
    }
    int64_t most = s->conf->queue < s->conf->queue_per_uid ? s->conf->queue : s->conf->queue_per_uid;
    bool full = all + wanted(call) > s->conf->queue || own + wanted(call) > s->conf->queue_per_uid;
    memcpy(why, e->msg, sizeof why);
    if (wanted(call) > most)
        return err_set(e, HEARTH_ELIMIT, "%.150s, and %lld may wait for their turn (queue and queue_per_uid)", why,
                       (long long)most);
    if (full)
        return err_set(e, HEARTH_ELIMIT, "%.150s, and %lld request%s waiting%s", why, (long long)(own ? own : all),
                       (own ? own : all) == 1 ? " is" : "s are", own ? " already" : " of others");
    if (bytes > (size_t)s->conf->memory_per_uid)
        return err_set(e, HEARTH_ELIMIT,
                       "%.150s, and waiting requests of its user would have %zu bytes, more than %lld", why, bytes,
                       (long long)s->conf->memory_per_uid);
    if (call_set_deadline(call, on_late, e))
        return e->code;
    call->queued = server_boot();
    call->has_stream = false;
    struct call *below = first_below(s, call);
    if (below)
        TAILQ_INSERT_BEFORE(below, call, waiter_entry);
    else
        TAILQ_INSERT_TAIL(&s->queue, call, waiter_entry);
    if (!call->account->left_queue)
        call->account->left_queue = server_boot();
    call->on_disconnect = on_disconnect;
    call->queue_position = 0;
    for (struct call *c = call; c; c = TAILQ_NEXT(c, waiter_entry))
        tell(c);
    return 0;
}

/* The first waiting call of that user with that request id; NULL. */
static struct call *find(const struct server *s, uid_t uid, const char *request)
{
    struct call *call;
    TAILQ_FOREACH (call, &s->queue, waiter_entry)
        if (uid_of(call) == uid && request_of(call)->request && !strcmp(request_of(call)->request, request))
            return call;
    return NULL;
}

void queue_join(struct server *s, uid_t uid, const char *request)
{
    struct call *call;
    TAILQ_FOREACH (call, &s->queue, waiter_entry)
        if (request && uid_of(call) == uid && request_of(call)->request && !strcmp(request_of(call)->request, request))
            call->has_stream = true;
}

bool queue_cancel(struct server *s, uid_t uid, const char *request)
{
    struct call *call;
    struct hearth_err e;
    bool any = false;
    while ((call = find(s, uid, request)) != NULL) {
        leave(call);
        err_set(&e, HEARTH_ECANCELLED, "it was cancelled while it waited for other streams to end");
        call_fail(call, &e);
        any = true;
    }
    if (any)
        tell_all(s);
    return any;
}

/* The call to run next: one whose stream has begun for another call, or else, among those with room, one of the highest
 * class, by age, whose user has the fewest streams; NULL.
 * Also any call once no new work is accepted, and one that can never have room because the limits were lowered: its
 * handler will refuse it. */
static struct call *next(const struct server *s)
{
    struct call *call, *best = NULL;
    const struct call *waits = long_waiting(s);
    bool open = server_check_open(s, NULL) == 0;
    double now = server_boot();
    TAILQ_FOREACH (call, &s->queue, waiter_entry)
        if (call->has_stream)
            return call;
    TAILQ_FOREACH (call, &s->queue, waiter_entry)
        if ((!open || queue_is_over(call) || (queue_has_room(call) && !makes_way(call, waits))) &&
            (!best || goes_before(call, best, now)) &&
            (!open || position(call) == 1)) /* a user's later calls do not overtake one that wants several streams */
            best = call;
    return best;
}

/* The loop's iteration that the timer causes runs the calls for which there is room. */
static void on_turn_end(void *arg)
{
    (void)arg;
}

/* Whether a call waits only because it is another one's turn. */
static bool is_held_back(const struct server *s)
{
    const struct call *call, *waits = long_waiting(s);
    TAILQ_FOREACH (call, &s->queue, waiter_entry)
        if (makes_way(call, waits) && queue_has_room(call))
            return true;
    return false;
}

/* Sets the timer for the end of that turn, since nothing else may happen then. */
static void await_turn_end(struct server *s)
{
    double now = server_boot(), end = ((double)(int64_t)(now / turn_seconds) + 1) * turn_seconds;
    if (!is_held_back(s))
        return;
    if (!s->queue_turn)
        s->queue_turn = timer_new(s->base, on_turn_end, s);
    if (s->queue_turn && !timer_is_set(s->queue_turn))
        timer_set(s->queue_turn, (int64_t)(1e3 * (end - now)) + 1);
}

/* Lets streams that nobody reads make way for the first waiting call of each user, whether their clients left before
 * the call came or after. One at a time for each user, as its place may be enough. Returns whether any does. */
static bool make_way(struct server *s)
{
    const struct call *call;
    bool any = false;
    TAILQ_FOREACH (call, &s->queue, waiter_entry)
        call->account->looked_at = false;
    TAILQ_FOREACH (call, &s->queue, waiter_entry) {
        if (call->account->looked_at)
            continue;
        call->account->looked_at = true;
        if (!queue_has_room(call) && !stream_is_leaving(s, uid_of(call)))
            any |= stream_make_way(s, uid_of(call)) != 0;
    }
    return any;
}

bool queue_resume(struct server *s)
{
    struct call *call;
    bool any = false;
    while ((call = next(s)) != NULL) {
        if (!call->has_stream) {
            measure(call->account);
            s->queue_begun[class_of(call)] = server_boot();
        }
        leave(call);
        call->has_waited = true;
        call_retry(call);
        any = true;
    }
    if (any)
        tell_all(s);
    await_turn_end(s);
    return make_way(s) || any; /* an engine has to be told of what is cancelled */
}
