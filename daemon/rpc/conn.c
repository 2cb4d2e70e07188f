/* conn.c - one peer's socket. Loop thread; the server's lists own the connections. */
#include "config.h"

#include "daemon/rpc/conn.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/loop.h"

/* The input buffer is small because most peers send little and there may be many of them. */
static const struct frames_limits limits = {
    .frame = WIRE_FRAME_MAX, .read = 2 << 10, .high = CONN_HIGH_WATER, .low = CONN_LOW_WATER, .takes_fds = true};
/* For a peer whose user has too many descriptors being inspected or closed: it accepts no more of them. */
static const struct frames_limits limits_alone = {
    .frame = WIRE_FRAME_MAX, .read = 2 << 10, .high = CONN_HIGH_WATER, .low = CONN_LOW_WATER};

static void on_readable(evutil_socket_t fd, short what, void *arg);
static void on_writable(evutil_socket_t fd, short what, void *arg);
static void on_frame_timeout(void *arg);
static void on_unread_timeout(void *arg);

/* --- life ----------------------------------------------------------------------------------------------- */

/* Closes received descriptors that no frame has taken. */
static void leave_fds(struct conn *c)
{
    int fds[FRAMES_FDS_IN];
    size_t n = frames_leave_fds(&c->frames, fds);
    if (n)
        aside_begin(c->server, c->account, fds, n, false, NULL, NULL);
}

static void conn_free(struct conn *c)
{
    if (c->account)
        leave_fds(c);
    if (c->readable)
        event_free(c->readable);
    if (c->writable)
        event_free(c->writable);
    timer_free(c->frame_timer);
    timer_free(c->unread_timer);
    if (c->fd >= 0)
        close(c->fd);
    frames_fini(&c->frames);
    if (c->account)
        c->account->bytes -= c->bytes;
    free(c->notify_method);
    free(c->notify_code);
    acl_put(c->account);
    free(c);
}

int conn_new(struct server *s, int fd, const struct conn_ops *ops, struct conn **out, struct hearth_err *e)
{
    int rc;
    struct ucred peer;
    socklen_t len = sizeof peer;
    struct conn *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    *c = (struct conn){.server = s, .ops = ops, .fd = fd, .number = ++s->last_conn, .last_work = -1};
    frames_init(&c->frames, &limits);
    TAILQ_INIT(&c->calls);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0) {
        rc = err_set(e, HEARTH_EIO, "the peer's credentials: %s", strerror(errno));
        goto fail;
    }
    c->pid = peer.pid;
    c->account = acl_get(&s->acl, peer.uid);
    if (c->account && c->account->asides >= ASIDES_MAX)
        frames_init(&c->frames, &limits_alone);
    c->readable = event_new(s->base, fd, EV_READ | EV_PERSIST, on_readable, c);
    c->writable = event_new(s->base, fd, EV_WRITE, on_writable, c);
    c->frame_timer = timer_new(s->base, on_frame_timeout, c);
    c->unread_timer = timer_new(s->base, on_unread_timeout, c);
    if (!c->account || !c->readable || !c->writable || !c->frame_timer || !c->unread_timer ||
        event_add(c->readable, NULL) != 0) {
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
        goto fail;
    }
    if (fd >= s->peers_below) { /* new descriptors get the lowest free number, so all lower ones are in use */
        rc = err_set(e, HEARTH_ELIMIT,
                     "%lld connections are open, and the other descriptors that hearthd may have (RLIMIT_NOFILE) are "
                     "for engines, journals and files",
                     (long long)s->n_conns);
        goto fail;
    }
    if (s->n_conns >= s->conf->connections) {
        rc = err_set(e, HEARTH_ELIMIT, "%lld connections are open, the limit", (long long)s->n_conns);
        goto fail;
    }
    if (c->account->connections >= s->conf->connections_per_uid) {
        rc = err_set(e, HEARTH_ELIMIT, "user %u has %lld connections open, the limit", (unsigned)peer.uid,
                     (long long)c->account->connections);
        goto fail;
    }
    c->account->connections++;
    s->n_conns++;
    TAILQ_INSERT_TAIL(&s->conns, c, entry);
    log_debug("connection of pid %d, uid %u", (int)peer.pid, (unsigned)peer.uid);
    *out = c;
    return 0;
fail:
    if (rc == HEARTH_ELIMIT) { /* the reason is sent, if the socket accepts it at once */
        if (wire_pack_error(frames_out(&c->frames), 0, rc, e->msg, NULL) == 0)
            frames_flush(&c->frames, fd);
    }
    conn_free(c);
    return rc;
}

static void stop_waiting(struct conn *c)
{
    if (c->is_waiting)
        TAILQ_REMOVE(&c->server->waiting, c, waiting_entry);
    c->is_waiting = false;
}

void conn_drop(struct conn *c, const char *why)
{
    if (c->fd < 0)
        return;
    struct server *s = c->server;
    log_debug("connection of pid %d, uid %u: %s", (int)c->pid, (unsigned)c->account->uid, why);
    event_del(c->readable);
    event_del(c->writable);
    timer_clear(c->frame_timer);
    timer_clear(c->unread_timer);
    close(c->fd);
    c->fd = -1;
    c->account->connections--;
    s->n_conns--;
    if (c->is_dirty)
        TAILQ_REMOVE(&s->dirty, c, dirty_entry);
    c->is_dirty = false;
    stop_waiting(c);
    if (c->aside)
        aside_forget(c->aside);
    c->aside = NULL;
    TAILQ_REMOVE(&s->conns, c, entry);
    TAILQ_INSERT_TAIL(&s->dead, c, entry);
    c->ops->lost(c);
}

void conn_reap(struct server *s)
{
    struct conn *c;
    while ((c = TAILQ_FIRST(&s->dead)) != NULL) {
        TAILQ_REMOVE(&s->dead, c, entry);
        conn_free(c);
    }
}

static void make_dirty(struct conn *c)
{
    if (c->is_dirty)
        return;
    c->is_dirty = true;
    TAILQ_INSERT_TAIL(&c->server->dirty, c, dirty_entry);
}

/* --- memory --------------------------------------------------------------------------------------------- */

/* Updates the accounted size of the connection's buffers. True if its user is over the limit and this connection
 * contributes to that. */
static bool takes_too_much(struct conn *c)
{
    int64_t bytes = (int64_t)(c->frames.in.cap + c->frames.out.cap);
    c->account->bytes += bytes - c->bytes;
    c->bytes = bytes;
    return c->account->bytes > c->server->conf->memory_per_uid && bytes > CONN_HIGH_WATER;
}

static void say_too_much(const struct conn *c, char *msg, size_t size)
{
    snprintf(msg, size, "the connections of user %u have %lld bytes in memory, the limit is %lld",
             (unsigned)c->account->uid, (long long)c->account->bytes, (long long)c->server->conf->memory_per_uid);
}

/* --- out ------------------------------------------------------------------------------------------------ */

/* Drops the peer at the end of the turn rather than immediately, because callers further up the stack use its calls and
 * streams. */
static void drop_later(struct conn *c, const char *why)
{
    c->drop_reason = why;
    c->throttled = true;
    make_dirty(c);
}

static void count_bytes(struct server *s, int64_t bytes)
{
    s->turn.bytes += bytes;
    s->turn.work += bytes;
}

/* Called after every attempt to pack a frame: `rc` is its result, `before` the pending bytes before it. */
static void appended(struct conn *c, size_t before, int rc)
{
    if (rc) {
        log_error("pid %d, uid %u: a frame cannot be packed (%s)", (int)c->pid, (unsigned)c->account->uid,
                  err_name(rc));
        drop_later(c, "a frame could not be packed"); /* a stream with a gap would be worse */
        return;
    }
    make_dirty(c);
    count_bytes(c->server, (int64_t)(frames_pending(&c->frames) - before));
    if (frames_level(&c->frames) == FRAMES_HIGH)
        c->throttled = true;
    /* The frame that crosses the limit is allowed, because a single answer may be larger than the limit. */
    if (before > (size_t)c->server->conf->unsent_bytes) {
        log_often(LOG_LEVEL_WARN, "pid %d, uid %u does not read: dropped with %zu bytes unsent", (int)c->pid,
                  (unsigned)c->account->uid, frames_pending(&c->frames));
        drop_later(c, "does not read");
    } else if (takes_too_much(c) && frames_level(&c->frames) == FRAMES_HIGH) {
        char msg[120];
        say_too_much(c, msg, sizeof msg);
        log_often(LOG_LEVEL_WARN, "pid %d: %s: dropped with %zu bytes unsent", (int)c->pid, msg,
                  frames_pending(&c->frames));
        drop_later(c, "its user takes too much memory");
    }
}

static bool is_dropped(const struct conn *c)
{
    return c->fd < 0 || c->drop_reason;
}

void conn_error(struct conn *c, uint32_t id, int code, const char *msg)
{
    size_t before = frames_pending(&c->frames);
    if (!is_dropped(c))
        appended(c, before, wire_pack_error(frames_out(&c->frames), id, code, msg, NULL));
}

void conn_result(struct conn *c, uint32_t id, const struct wire_method *m, const void *result)
{
    if (is_dropped(c))
        return;
    size_t before = frames_pending(&c->frames);
    struct hearth_err e;
    int rc = wire_pack_result(frames_out(&c->frames), id, m, result, &e);
    if (rc)
        conn_error(c, id, rc, e.msg); /* the reason is sent as the answer instead */
    else
        appended(c, before, 0);
}

void conn_result_packed(struct conn *c, uint32_t id, const struct wire_bytes *result)
{
    if (is_dropped(c))
        return;
    size_t before = frames_pending(&c->frames);
    appended(c, before, wire_pack_result_packed(frames_out(&c->frames), id, result, NULL));
}

int conn_try_event(struct conn *c, const struct wire_method *m, const void *body, struct hearth_err *e)
{
    size_t before = frames_pending(&c->frames);
    if (is_dropped(c))
        return 0;
    int rc = wire_pack_event(frames_out(&c->frames), m, body, c->notify_method, c->notify_code, e);
    if (!rc || !e)
        appended(c, before, rc);
    return rc;
}

int conn_notify_as(struct conn *c, const struct wire_strs *as, struct hearth_err *e)
{
    if (as->n == 0)
        return 0;
    c->notify_method = strdup(as->v[0]);
    c->notify_code = strdup(as->v[1]);
    if (!c->notify_method || !c->notify_code)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    return 0;
}

static void flush(struct conn *c)
{
    size_t before = frames_pending(&c->frames);
    int why = frames_flush(&c->frames, c->fd);
    size_t left = frames_pending(&c->frames);
    takes_too_much(c); /* the buffers may have shrunk */
    if (!left)
        timer_clear(c->unread_timer);
    else if (left < before || !timer_is_set(c->unread_timer))
        timer_set(c->unread_timer, c->server->conf->unread_timeout * 1000);
    if (why == EAGAIN || why == ENOBUFS)
        event_add(c->writable, NULL);
    else if (why)
        conn_drop(c, strerror(why));
    else if (c->closing)
        shutdown(c->fd, SHUT_WR);
}

void conn_send_all(struct server *s)
{
    struct conn *c;
    TAILQ_FOREACH (c, &s->dirty, dirty_entry)
        if (!is_dropped(c) && !event_pending(c->writable, EV_WRITE, NULL))
            frames_flush(&c->frames, c->fd); /* an error occurs again at the end of the turn and is handled there */
}

bool conn_all_sent(const struct server *s)
{
    const struct conn *c;
    TAILQ_FOREACH (c, &s->conns, entry)
        if (frames_pending(&c->frames) > 0)
            return false;
    return true;
}

/* --- in ------------------------------------------------------------------------------------------------- */

/* The input cannot be split into frames any further: sends the reason to the peer. If the socket were closed at once, a
 * peer that is still writing would get an error and never read the reason, so its remaining input is discarded until it
 * ends. */
static void violation(struct conn *c, int code, const char *msg)
{
    log_often(LOG_LEVEL_INFO, "pid %d, uid %u: %s", (int)c->pid, (unsigned)c->account->uid, msg);
    conn_error(c, 0, code, msg);
    leave_fds(c);
    c->closing = true;
    event_add(c->readable, NULL);
    timer_set(c->frame_timer, c->server->conf->frame_timeout * 1000);
    /* Its calls are detached now rather than at the close: a peer that is no longer read could not cancel them. */
    c->looked = NULL;
    c->ops->lost(c);
}

static void handle_frames(struct conn *c, bool has_waited);

/* Whether the peer is read currently. */
static bool may_read(const struct conn *c)
{
    return c->fd >= 0 && !c->throttled && !c->closing && !c->is_waiting && !c->aside;
}

static void on_looked(void *arg, const struct looked *l)
{
    struct conn *c = arg;
    void (*fn)(void *arg, const struct looked *l) = c->looked;
    c->aside = NULL;
    c->looked = NULL;
    if (fn)
        fn(c->looked_arg, l);
    else if (l->fd >= 0) /* what it was passed for has been given up: violation() */
        close(l->fd);
    if (c->server->phase == SERVER_DONE || !may_read(c))
        return;
    handle_frames(c, false);
    if (may_read(c))
        event_add(c->readable, NULL);
}

static void look(struct conn *c, bool keep)
{
    bool gone = c->fd < 0;
    struct aside *a =
        aside_begin(c->server, c->account, c->fds, c->n_fds, keep, gone ? NULL : on_looked, gone ? NULL : c);
    c->aside = gone ? NULL : a;
    c->n_fds = 0;
}

int conn_look(struct conn *c, void (*done)(void *arg, const struct looked *l), void *arg, struct hearth_err *e)
{
    if (!c->n_fds && !c->frames.limits->takes_fds)
        return err_set(e, HEARTH_ELIMIT, "descriptors that user %u has sent are still being looked at",
                       (unsigned)c->account->uid);
    if (!c->n_fds)
        return err_set(e, HEARTH_EPARAMS, "models.pass: no descriptor came with it (SCM_RIGHTS)");
    look(c, true);
    if (!c->aside)
        return err_set(e, HEARTH_EINTERNAL, "no thread to look at a descriptor");
    c->looked = done;
    c->looked_arg = arg;
    return 0;
}

static bool takes_fd(const struct wire_frame *f)
{
    return f->kind == WIRE_FRAME_REQUEST &&
           wire_method_find(f->method, f->method_len) == &wire_methods[WIRE_MODELS_PASS];
}

/* Dispatches a protocol message. Other valid msgpack is refused without closing the connection, because the next frame
 * may be a message. */
static void handle_frame(struct conn *c, const uint8_t *data, size_t len)
{
    struct hearth_err e;
    struct wire_frame f = {0};
    c->n_fds = frames_take_fds(&c->frames, c->fds);
    int rc = wire_frame_open(&f, data, len, &e);
    if (!rc && c->n_fds && (c->n_fds > 1 || !takes_fd(&f)))
        rc = err_set(&e, HEARTH_EINVALID, "%zu descriptors came with this message; models.pass alone takes one",
                     c->n_fds);
    if (rc)
        conn_error(c, f.id, rc, e.msg);
    else
        c->ops->frame(c, &f);
    if (c->n_fds)
        look(c, false);
}

enum work { WORK_SHORT, WORK_UNKNOWN, WORK_LONG };

static enum work expected(const struct conn *c, size_t frame)
{
    return frame > CONN_LONG || c->last_work > CONN_LONG ? WORK_LONG : c->last_work < 0 ? WORK_UNKNOWN : WORK_SHORT;
}

static bool must_wait(const struct conn *c, size_t frame)
{
    enum work work = expected(c, frame);
    return work == WORK_LONG || c->server->turn.work > (work == WORK_UNKNOWN ? CONN_LONG : CONN_FULL);
}

static void wait_for_turn(struct conn *c)
{
    c->is_waiting = true;
    TAILQ_INSERT_TAIL(&c->server->waiting, c, waiting_entry);
    event_del(c->readable);
    timer_clear(c->frame_timer);
}

/* Handles the complete frames of the input as long as the peer reads its answers. With `has_waited` the first one is
 * handled however much work it is. */
static void handle_frames(struct conn *c, bool has_waited)
{
    const uint8_t *data;
    struct hearth_err e;
    ptrdiff_t len = 0;
    while (!c->closing && !c->throttled && !c->aside && (len = frames_next(&c->frames, &data, &e)) > 0) {
        if (!has_waited && must_wait(c, (size_t)len)) {
            wait_for_turn(c);
            return;
        }
        has_waited = false;
        int64_t before = c->server->turn.work;
        double cpu = server_cpu();
        count_bytes(c->server, len);
        handle_frame(c, data, (size_t)len);
        c->server->turn.work += (int64_t)((server_cpu() - cpu) * CONN_CPU);
        c->last_work = c->server->turn.work - before;
        frames_drop(&c->frames);
        timer_clear(c->frame_timer);
    }
    if (len < 0)
        violation(c, (int)len, e.msg);
    if (c->closing)
        return;
    if (c->throttled || c->aside) { /* the peer is not read meanwhile, so the rest of a frame may come late */
        event_del(c->readable);
        timer_clear(c->frame_timer);
    } else if (frames_unread(&c->frames) && !timer_is_set(c->frame_timer)) {
        timer_set(c->frame_timer, c->server->conf->frame_timeout * 1000);
    }
}

static void drop_input(struct conn *c)
{
    enum { DROP_MAX = 64 << 20 };
    ssize_t n = frames_skip(&c->frames, c->fd);
    c->n_ignored += n > 0 ? n : 0;
    if (n == 0 || (n < 0 && errno != EAGAIN) || c->n_ignored > DROP_MAX)
        conn_drop(c, "closed after an error");
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct conn *c = arg;
    (void)what;
    if (c->closing) {
        drop_input(c);
        return;
    }
    ssize_t n = frames_fill(&c->frames, fd);
    if (n > 0) {
        handle_frames(c, false);
        if (c->fd >= 0 && !c->closing && takes_too_much(c) && frames_unread(&c->frames)) {
            char msg[120];
            say_too_much(c, msg, sizeof msg);
            violation(c, HEARTH_ELIMIT, msg);
        }
    } else if (!n)
        conn_drop(c, "closed by the peer");
    else if (errno == EMFILE)
        violation(c, HEARTH_ELIMIT, "more descriptors than there is room for; models.pass takes one");
    else if (errno != EAGAIN)
        conn_drop(c, errno == ENOMEM ? "out of memory" : strerror(errno));
}

/* Writes pending output. A throttled peer that has read down to the low watermark is read again. */
static void flush_and_unthrottle(struct conn *c)
{
    flush(c);
    if (c->server->phase == SERVER_DONE) /* no new work is started */
        return;
    if (c->fd < 0 || !c->throttled || c->closing || frames_level(&c->frames) != FRAMES_LOW)
        return;
    c->throttled = false;
    c->ops->has_room(c);
    handle_frames(c, false); /* frames that arrived before it was throttled */
    if (may_read(c))
        event_add(c->readable, NULL);
}

static void go_on(struct conn *c)
{
    stop_waiting(c);
    handle_frames(c, true);
    if (may_read(c))
        event_add(c->readable, NULL);
}

/* Handles the waiting frames of that expected amount of work, until the turn has done more than `most` of it. */
static void handle_expected(struct server *s, enum work work, int64_t most)
{
    const uint8_t *front;
    for (struct conn *c = TAILQ_FIRST(&s->waiting), *next; c && c->is_waiting && s->turn.work <= most; c = next) {
        next = TAILQ_NEXT(c, waiting_entry);
        if (expected(c, frames_front(&c->frames, &front)) == work)
            go_on(c);
    }
}

void conn_handle_waiting(struct server *s)
{
    if (s->phase == SERVER_DONE)
        return;
    handle_expected(s, WORK_SHORT, CONN_FULL);
    int64_t most = s->turn.work + CONN_LONG; /* however much the short ones were, some of the others get their share */
    handle_expected(s, WORK_UNKNOWN, most);
    handle_expected(s, WORK_LONG, most);
}

bool conn_is_waiting(const struct server *s)
{
    return !TAILQ_EMPTY(&s->waiting);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    flush_and_unthrottle(arg);
}

void conn_flush_all(struct server *s)
{
    struct conn *c;
    while ((c = TAILQ_FIRST(&s->dirty)) != NULL) {
        TAILQ_REMOVE(&s->dirty, c, dirty_entry);
        c->is_dirty = false;
        if (c->drop_reason)
            conn_drop(c, c->drop_reason);
        else if (!event_pending(c->writable, EV_WRITE, NULL))
            flush_and_unthrottle(c);
    }
}

static void on_frame_timeout(void *arg)
{
    struct conn *c = arg;
    if (c->closing)
        conn_drop(c, "closed after an error");
    if (c->throttled || c->closing)
        return;
    char msg[80];
    snprintf(msg, sizeof msg, "a frame was begun and not finished within %lld s",
             (long long)c->server->conf->frame_timeout);
    violation(c, HEARTH_EINVALID, msg);
}

/* A client such as a pager that waits for its user has little pending and is not dropped; neither is one that reads now
 * and then. */
static void on_unread_timeout(void *arg)
{
    struct conn *c = arg;
    if (frames_level(&c->frames) != FRAMES_HIGH) {
        timer_set(c->unread_timer, c->server->conf->unread_timeout * 1000);
        return;
    }
    log_often(LOG_LEVEL_INFO, "pid %d, uid %u has read nothing for %lld s: dropped with %zu bytes unsent", (int)c->pid,
              (unsigned)c->account->uid, (long long)c->server->conf->unread_timeout, frames_pending(&c->frames));
    conn_drop(c, "has read nothing for long");
}
