/* loop.c - see loop.h. */
#include "daemon/loop.h"

#include <event2/event.h>
#include <stdlib.h>

#include "libclient/err.h"

struct timer {
    struct event *event;
    void (*fn)(void *arg);
    void *arg;
};

struct watch {
    struct timer call; /* a timer whose event is bound to a descriptor */
};

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    const struct timer *t = arg;
    (void)fd, (void)what;
    t->fn(t->arg);
}

static int init(struct timer *t, struct event_base *base, int fd, short what, void (*fn)(void *arg), void *arg)
{
    *t = (struct timer){event_new(base, fd, what, on_event, t), fn, arg};
    return t->event ? 0 : HEARTH_ENOMEM;
}

struct timer *timer_new(struct event_base *base, void (*fn)(void *arg), void *arg)
{
    struct timer *t = malloc(sizeof *t);
    if (t && !init(t, base, -1, 0, fn, arg))
        return t;
    free(t);
    return NULL;
}

void timer_free(struct timer *t)
{
    if (!t)
        return;
    event_free(t->event);
    free(t);
}

int timer_set(struct timer *t, int64_t ms)
{
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    return event_add(t->event, &tv) ? HEARTH_ENOMEM : 0;
}

void timer_clear(struct timer *t)
{
    event_del(t->event);
}

bool timer_is_set(const struct timer *t)
{
    return event_pending(t->event, EV_TIMEOUT, NULL);
}

struct watch *watch_new(struct event_base *base, int fd, void (*fn)(void *arg), void *arg)
{
    struct watch *w = malloc(sizeof *w);
    if (w && !init(&w->call, base, fd, EV_READ | EV_PERSIST, fn, arg)) {
        if (!event_add(w->call.event, NULL))
            return w;
        event_free(w->call.event);
    }
    free(w);
    return NULL;
}

void watch_free(struct watch *w)
{
    if (!w)
        return;
    event_free(w->call.event);
    free(w);
}
