/* trace-log.c - see trace-log.h. Loop thread. */
#include "daemon/stream/trace-log.h"

#include <stdlib.h>
#include <string.h>

void trace_log_init(struct trace_log *log)
{
    TAILQ_INIT(&log->streams);
    log->n = 0;
}

static void forget(struct trace_log *log, struct traced_stream *t)
{
    TAILQ_REMOVE(&log->streams, t, link);
    log->n--;
    free(t->event);
    free(t);
}

void trace_log_fini(struct trace_log *log)
{
    struct traced_stream *t;
    while ((t = TAILQ_FIRST(&log->streams)) != NULL)
        forget(log, t);
}

/* Searches from the newest, which is looked up most often. */
static struct traced_stream *find(const struct trace_log *log, int64_t number)
{
    struct traced_stream *t;
    TAILQ_FOREACH_REVERSE(t, &log->streams, traced_list, link)
    if (t->number == number)
        return t;
    return NULL;
}

const struct traced_stream *trace_log_find(const struct trace_log *log, int64_t number)
{
    return find(log, number);
}

/* Makes room for one more stream. A user with many streams loses the oldest of their own. */
static void make_room(struct trace_log *log, uid_t uid)
{
    struct traced_stream *t, *oldest = NULL;
    size_t own = 0;
    TAILQ_FOREACH (t, &log->streams, link)
        if (t->uid == uid && own++ == 0)
            oldest = t;
    if (own >= TRACED_STREAMS_OF_UID)
        forget(log, oldest);
    else if (log->n >= TRACED_STREAMS)
        forget(log, TAILQ_FIRST(&log->streams));
}

static struct traced_stream *begin(struct trace_log *log, uid_t uid, int64_t number)
{
    make_room(log, uid);
    struct traced_stream *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->number = number;
    t->uid = uid;
    TAILQ_INSERT_TAIL(&log->streams, t, link);
    log->n++;
    return t;
}

/* The index at which the nth event is stored. */
static size_t place(size_t n)
{
    return n < TRACED_EVENTS ? n : TRACED_FIRST + (n - TRACED_FIRST) % (TRACED_EVENTS - TRACED_FIRST);
}

static void add(struct traced_stream *t, pid_t engine, const struct trace_kept *k)
{
    size_t at = place(t->n);
    if (at == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 16;
        struct traced_event *more = realloc(t->event, cap * sizeof *more);
        if (!more)
            return;
        t->event = more;
        t->cap = cap;
    }
    t->event[at] = (struct traced_event){.kept = *k, .engine = engine};
    t->n++;
}

void trace_log_add(struct trace_log *log, uid_t uid, const struct trace_kept *k)
{
    struct traced_stream *t = find(log, k->ev.stream);
    if (t && k->ev.stage == TRACE_CREATED) {
        forget(log, t);
        t = NULL;
    }
    if (!t)
        t = begin(log, uid, k->ev.stream);
    if (t)
        add(t, 0, k);
}

void trace_log_add_engine(struct trace_log *log, pid_t engine, const struct trace_kept *k)
{
    struct traced_stream *t = find(log, k->ev.stream);
    if (t)
        add(t, engine, k);
}

/* Sorts by time, since an engine's events arrive later than events that hearthd adds meanwhile. Equal times stay in the
 * order of arrival. */
static void sort(struct traced_event *v, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct traced_event e = v[i];
        size_t at = i;
        for (; at > 0 && v[at - 1].kept.at > e.kept.at; at--)
            v[at] = v[at - 1];
        v[at] = e;
    }
}

size_t traced_events(const struct traced_stream *t, struct traced_event out[TRACED_EVENTS], size_t *n_lost)
{
    size_t n = t->n < TRACED_EVENTS ? t->n : TRACED_EVENTS;
    *n_lost = t->n - n;
    for (size_t i = t->n - n; i < t->n; i++) /* in order of arrival: the first events, then the ring from its oldest */
        out[i - (t->n - n)] = t->event[i - (t->n - n) < TRACED_FIRST ? i - (t->n - n) : place(i)];
    sort(out, n);
    return n;
}
