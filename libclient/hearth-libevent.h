/*
 * hearth-libevent.h - runs a libhearth connection in a libevent loop. Header-only and optional: libhearth itself knows
 * no event loop and links none, so this is installed beside hearth.h and compiled into the programs that use it (they
 * link libevent).
 *
 *     struct hearth_libevent *le = hearth_libevent_new(base, h, on_event, on_closed, arg);
 *     hearth_submit(h, &g, &request, &err);
 *     hearth_libevent_update(le);     after every call on h outside on_event
 *
 * on_event receives every event; its body belongs to the connection and is valid until on_event returns (hearth_take()
 * transfers it to the caller). on_closed is called once, when the connection has ended, with the reason; no callback
 * follows. Either may call hearth_libevent_free(). The connection stays the caller's: free the adapter first, then call
 * hearth_close(). All calls belong to the thread that runs the event base.
 */
#ifndef HEARTH_LIBEVENT_H
#define HEARTH_LIBEVENT_H

#include <event2/event.h>
#include <hearth.h>
#include <stdlib.h>

struct hearth_libevent {
    struct hearth *h;
    struct event *io;
    struct event *again; /* activated to deliver events that may be queued already, for which no byte will arrive to
                            wake the loop */
    void (*on_event)(void *arg, const struct hearth_event *ev);
    void (*on_closed)(void *arg, const struct hearth_err *err);
    void *arg;
    int closed; /* on_closed was called */
    int *freed; /* points to a flag of the running callback, set where the callback frees the adapter */
};

static inline void hearth_libevent_free(struct hearth_libevent *le)
{
    if (le->freed)
        *le->freed = 1;
    event_free(le->io);
    event_free(le->again);
    free(le);
}

/* Makes libevent watch the socket for what the connection needs. */
static inline void hearth_libevent_watch(struct hearth_libevent *le)
{
    int want = hearth_events(le->h);
    short what = (short)(EV_PERSIST | (want & HEARTH_READ ? EV_READ : 0) | (want & HEARTH_WRITE ? EV_WRITE : 0));
    event_del(le->io);
    event_assign(le->io, event_get_base(le->io), hearth_fd(le->h), what, event_get_callback(le->io), le);
    event_add(le->io, NULL);
}

/* Call this after every call on the connection outside on_event: the loop then sends the queued output and delivers the
 * events that a blocking call has queued. */
static inline void hearth_libevent_update(struct hearth_libevent *le)
{
    if (le->closed)
        return;
    hearth_libevent_watch(le);
    event_active(le->again, 0, 0);
}

static inline void hearth_libevent_ready(evutil_socket_t fd, short what, void *arg)
{
    struct hearth_libevent *le = (struct hearth_libevent *)arg;
    struct hearth_event ev;
    struct hearth_err err;
    int freed = 0, got;

    (void)fd;
    le->freed = &freed;
    hearth_io(le->h, (what & EV_READ ? HEARTH_READ : 0) | (what & EV_WRITE ? HEARTH_WRITE : 0), &err);
    while ((got = hearth_next(le->h, &ev, &err)) == 1) {
        le->on_event(le->arg, &ev);
        if (freed)
            return;
    }
    le->freed = NULL;
    if (got == 0) {
        hearth_libevent_watch(le);
    } else {
        le->closed = 1;
        event_del(le->io);
        event_del(le->again);
        le->on_closed(le->arg, &err);
    }
}

/* Creates an adapter for the connection; `arg` is passed to both callbacks. Returns NULL without memory. Free it with
 * hearth_libevent_free(). */
static inline struct hearth_libevent *hearth_libevent_new(struct event_base *base, struct hearth *h,
                                                          void (*on_event)(void *arg, const struct hearth_event *ev),
                                                          void (*on_closed)(void *arg, const struct hearth_err *err),
                                                          void *arg)
{
    struct hearth_libevent *le = (struct hearth_libevent *)calloc(1, sizeof *le);
    if (!le)
        return NULL;
    le->h = h;
    le->on_event = on_event;
    le->on_closed = on_closed;
    le->arg = arg;
    le->io = event_new(base, hearth_fd(h), EV_READ | EV_PERSIST, hearth_libevent_ready, le);
    le->again = event_new(base, -1, 0, hearth_libevent_ready, le);
    if (!le->io || !le->again) {
        if (le->io)
            event_free(le->io);
        if (le->again)
            event_free(le->again);
        free(le);
        return NULL;
    }
    hearth_libevent_update(le);
    return le;
}

#endif
