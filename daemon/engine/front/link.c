/* link.c - the event loop around the frame buffers of libclient/frames.h; see link.h. Thread: the loop's. */
#include "config.h"

#include "daemon/engine/front/link.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/frames.h"

/* Above the high watermark the engine pauses until hearthd has read down to the low one. */
static const struct frames_limits limits = {
    .frame = WIRE_LINK_FRAME_MAX, .read = 64 << 10, .high = 4 << 20, .low = 1 << 20, .takes_fds = true};

struct frame_conn {
    int fd;
    const struct frame_conn_calls *calls;
    void *arg;
    struct event_base *base;
    struct event *on_read, *on_write, *on_time;
    struct watch {
        struct frame_conn *conn;
        struct event *event;
        void (*wake)(void *arg);
    } watch[LINK_WATCHES];
    int n_watch;
    struct frames frames;
    bool full; /* the engine has been told to pause */
    struct hearth_err err;
};

struct wire_buf *frame_conn_out(struct frame_conn *l)
{
    return frames_out(&l->frames);
}

void frame_conn_stop(struct frame_conn *l)
{
    event_base_loopbreak(l->base);
}

static void set_full(struct frame_conn *l)
{
    if (frames_level(&l->frames) == (l->full ? FRAMES_LOW : FRAMES_HIGH)) {
        l->full = !l->full;
        l->calls->full(l->arg, l->full);
    }
}

/* Writes as much as the socket accepts now; the rest follows when it is writable. */
static void flush(struct frame_conn *l)
{
    int why = frames_flush(&l->frames, l->fd);
    if (why == EAGAIN)
        event_add(l->on_write, NULL);
    else if (why) /* hearthd has closed the link, which reading will detect as well */
        frame_conn_stop(l);
    set_full(l);
}

static void take_frames(struct frame_conn *l)
{
    const uint8_t *data;
    ptrdiff_t n;
    while ((n = frames_next(&l->frames, &data, &l->err)) > 0) {
        l->calls->frame(l->arg, data, (size_t)n);
        frames_drop(&l->frames);
    }
    if (n < 0)
        frame_conn_stop(l); /* l->err says why */
}

static void on_read(evutil_socket_t fd, short what, void *arg)
{
    struct frame_conn *l = arg;
    (void)what;
    ssize_t n = frames_fill(&l->frames, fd);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n < 0 && errno == ENOMEM)
        err_set(&l->err, HEARTH_ENOMEM, "no memory for a frame of more than %zu bytes", frames_unread(&l->frames));
    if (n <= 0) {
        frame_conn_stop(l);
        return;
    }
    take_frames(l);
    flush(l);
}

int frame_conn_take_fd(struct frame_conn *l)
{
    int fds[FRAMES_FDS_IN];
    size_t n = frames_take_fds(&l->frames, fds);
    while (n > 1) /* hearthd sends one at a time */
        close(fds[--n]);
    return n ? fds[0] : -1;
}

static void on_write(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    flush(arg);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    struct watch *w = arg;
    (void)fd, (void)what;
    w->wake(w->conn->arg);
    flush(w->conn);
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
    struct frame_conn *l = arg;
    (void)fd, (void)what;
    l->calls->tick(l->arg);
    flush(l);
}

void frame_conn_tick_in(struct frame_conn *l, double seconds)
{
    struct timeval tv = {.tv_sec = (time_t)seconds,
                         .tv_usec = (suseconds_t)(1e6 * (seconds - (double)(time_t)seconds))};
    if (!event_pending(l->on_time, EV_TIMEOUT, NULL))
        event_add(l->on_time, &tv);
}

int frame_conn_watch(struct frame_conn *l, int fd, void (*wake)(void *arg), struct hearth_err *e)
{
    assert(l->n_watch < LINK_WATCHES);
    struct watch *w = &l->watch[l->n_watch];
    *w = (struct watch){.conn = l, .wake = wake, .event = event_new(l->base, fd, EV_READ | EV_PERSIST, on_wake, w)};
    if (!w->event || event_add(w->event, NULL) < 0)
        return err_set(e, HEARTH_EIO, "cannot watch descriptor %d", fd);
    l->n_watch++;
    return 0;
}

int frame_conn_open(struct frame_conn **out, int fd, const struct frame_conn_calls *calls, void *arg,
                    struct hearth_err *e)
{
    struct frame_conn *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, HEARTH_ENOMEM, "no memory for the link");
    l->fd = fd;
    l->calls = calls;
    l->arg = arg;
    frames_init(&l->frames, &limits);
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        free(l);
        return err_set(e, HEARTH_EIO, "descriptor %d: %s", fd, strerror(errno));
    }
    if (!(l->base = event_base_new()) || !(l->on_read = event_new(l->base, fd, EV_READ | EV_PERSIST, on_read, l)) ||
        !(l->on_write = event_new(l->base, fd, EV_WRITE, on_write, l)) ||
        !(l->on_time = event_new(l->base, -1, 0, on_time, l)) || event_add(l->on_read, NULL) < 0) {
        frame_conn_close(l);
        return err_set(e, HEARTH_EIO, "cannot watch descriptor %d", fd);
    }
    *out = l;
    return 0;
}

void frame_conn_close(struct frame_conn *l)
{
    if (l->on_read)
        event_free(l->on_read);
    if (l->on_write)
        event_free(l->on_write);
    for (int i = 0; i < LINK_WATCHES; i++)
        if (l->watch[i].event)
            event_free(l->watch[i].event);
    if (l->on_time)
        event_free(l->on_time);
    if (l->base)
        event_base_free(l->base);
    close(l->fd);
    frames_fini(&l->frames);
    free(l);
}

/* Blocks until hearthd has taken the last answers, has closed the link, or has read nothing for a second. */
static void send_rest(struct frame_conn *l)
{
    struct pollfd pfd = {.fd = l->fd, .events = POLLOUT};
    while (frames_flush(&l->frames, l->fd) == EAGAIN && poll(&pfd, 1, 1000) == 1)
        continue;
}

int frame_conn_run(struct frame_conn *l, struct hearth_err *e)
{
    event_base_dispatch(l->base);
    send_rest(l);
    if (!l->err.code)
        return 0;
    return err_set(e, HEARTH_EPROTOCOL, "%s", l->err.msg);
}
