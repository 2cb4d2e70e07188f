/* conn.c - one peer's socket. Loop thread; the connection belongs to the server's list. */
#include "config.h"

#include "daemon/rpc/conn.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/rpc/dispatch.h"
#include "daemon/rpc/import.h"
#include "daemon/log.h"
#include "daemon/stream/stream.h"

enum {
    READ_LEAST = 2 << 10, /* room before a read; grows by doubling while frames need it */
    READ_MOST = 256 << 10,
    KEEP = 64 << 10, /* an empty buffer larger than this is given back */
};

static void on_readable(evutil_socket_t fd, short what, void *arg);
static void on_writable(evutil_socket_t fd, short what, void *arg);
static void on_frame_timeout(evutil_socket_t fd, short what, void *arg);

static size_t backlog(const struct conn *c)
{
    assert(c->out_pos <= c->out.len);
    return c->out.len - c->out_pos;
}

/* --- life ----------------------------------------------------------------------------------------------- */

static void conn_free(struct conn *c)
{
    if (c->readable)
        event_free(c->readable);
    if (c->writable)
        event_free(c->writable);
    if (c->frame_timer)
        event_free(c->frame_timer);
    if (c->fd >= 0)
        close(c->fd);
    wire_buf_fini(&c->in);
    wire_buf_fini(&c->out);
    free(c->notify_method);
    free(c->notify_code);
    import_free(c->import);
    acl_put(c->account);
    free(c);
}

int conn_new(struct server *s, int fd, struct conn **out, struct hearth_err *e)
{
    int rc;
    struct ucred peer;
    socklen_t len = sizeof peer;
    struct conn *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    *c = (struct conn){.server = s, .fd = fd};
    TAILQ_INIT(&c->calls);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0) {
        rc = err_set(e, HEARTH_EIO, "the peer's credentials: %s", strerror(errno));
        goto fail;
    }
    c->pid = peer.pid;
    c->account = acl_get(&s->acl, peer.uid);
    c->readable = event_new(s->base, fd, EV_READ | EV_PERSIST, on_readable, c);
    c->writable = event_new(s->base, fd, EV_WRITE, on_writable, c);
    c->frame_timer = event_new(s->base, -1, 0, on_frame_timeout, c);
    if (!c->account || !c->readable || !c->writable || !c->frame_timer || event_add(c->readable, NULL) != 0) {
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
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
    if (rc == HEARTH_ELIMIT) { /* say so before the door closes; nothing is lost where this cannot be written */
        if (wire_pack_error(&c->out, 0, rc, e->msg, NULL) == 0)
            (void)send(fd, c->out.data, c->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    conn_free(c);
    return rc;
}

void conn_drop(struct conn *c, const char *why)
{
    if (c->fd < 0)
        return;
    struct server *s = c->server;
    log_debug("connection of pid %d, uid %u: %s", (int)c->pid, (unsigned)c->account->uid, why);
    event_del(c->readable);
    event_del(c->writable);
    event_del(c->frame_timer);
    close(c->fd);
    c->fd = -1;
    c->account->connections--;
    s->n_conns--;
    if (c->is_dirty)
        TAILQ_REMOVE(&s->dirty, c, dirty_entry);
    c->is_dirty = false;
    TAILQ_REMOVE(&s->conns, c, entry);
    TAILQ_INSERT_TAIL(&s->dead, c, entry);
    struct call *call;
    while ((call = TAILQ_FIRST(&c->calls)) != NULL)
        call_disconnect(call);
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

/* --- out ------------------------------------------------------------------------------------------------ */

/* Not at once: whoever is sending has the peer's calls and streams in hand. */
static void drop_later(struct conn *c, const char *why)
{
    c->drop_reason = why;
    c->throttled = true;
    make_dirty(c);
}

/* A frame was appended to `out`, or could not be. */
static void appended(struct conn *c, size_t before, int rc)
{
    if (rc) {
        log_error("pid %d, uid %u: a frame cannot be packed (%s)", (int)c->pid, (unsigned)c->account->uid,
                  err_name(rc));
        drop_later(c, "a frame could not be packed"); /* a stream with a hole in it would be worse */
        return;
    }
    make_dirty(c);
    if (backlog(c) > CONN_HIGH_WATER)
        c->throttled = true;
    /* The frame that crosses the limit is let through: one answer alone may be larger than the limit. */
    if (before > (size_t)c->server->conf->unsent_bytes) {
        log_warn("pid %d, uid %u does not read: dropped with %zu bytes unsent", (int)c->pid, (unsigned)c->account->uid,
                 backlog(c));
        drop_later(c, "does not read");
    }
}

static bool is_dropped(const struct conn *c)
{
    return c->fd < 0 || c->drop_reason;
}

void conn_error(struct conn *c, uint32_t id, int code, const char *msg)
{
    size_t before = backlog(c);
    if (!is_dropped(c))
        appended(c, before, wire_pack_error(&c->out, id, code, msg, NULL));
}

void conn_result(struct conn *c, uint32_t id, const struct wire_method *m, const void *result)
{
    if (is_dropped(c))
        return;
    size_t before = backlog(c);
    struct hearth_err e;
    int rc = wire_pack_result(&c->out, id, m, result, &e);
    if (rc)
        conn_error(c, id, rc, e.msg); /* an answer that cannot be sent is answered with why */
    else
        appended(c, before, 0);
}

void conn_event(struct conn *c, const struct wire_method *m, const void *body)
{
    size_t before = backlog(c);
    if (!is_dropped(c))
        appended(c, before, wire_pack_event(&c->out, m, body, c->notify_method, c->notify_code, NULL));
}

int conn_notify_as(struct conn *c, const struct wire_strs *as, struct hearth_err *e)
{
    if (as->n == 0)
        return 0;
    if (as->n != 2)
        return err_set(e, HEARTH_EPARAMS, "hello.notify_as: want [method, code], got %zu strings", as->n);
    c->notify_method = strdup(as->v[0]);
    c->notify_code = strdup(as->v[1]);
    if (!c->notify_method || !c->notify_code)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    return 0;
}

/* Writes what can be written now; 0, or the errno that it ended with. */
static int send_some(struct conn *c)
{
    while (backlog(c) > 0) {
        ssize_t n = send(c->fd, c->out.data + c->out_pos, backlog(c), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR)
            return errno;
        if (n > 0)
            c->out_pos += (size_t)n;
    }
    return 0;
}

static void flush(struct conn *c)
{
    int why = send_some(c);
    if (why == EAGAIN || why == ENOBUFS) {
        event_add(c->writable, NULL);
    } else if (why != 0) {
        conn_drop(c, strerror(why));
        return;
    }
    if (backlog(c) == 0) {
        c->out.len = c->out_pos = 0;
        if (c->out.cap > KEEP)
            wire_buf_fini(&c->out);
        if (c->closing) {
            conn_drop(c, "closed after an error");
            return;
        }
    } else if (c->out_pos > c->out.len / 2) {
        memmove(c->out.data, c->out.data + c->out_pos, backlog(c));
        c->out.len -= c->out_pos;
        c->out_pos = 0;
    }
}

void conn_send_all(struct server *s)
{
    struct conn *c;
    TAILQ_FOREACH (c, &s->dirty, dirty_entry)
        if (!is_dropped(c) && !event_pending(c->writable, EV_WRITE, NULL))
            send_some(c); /* what has become of it is seen at the end of the turn */
}

bool conn_all_sent(const struct server *s)
{
    const struct conn *c;
    TAILQ_FOREACH (c, &s->conns, entry)
        if (backlog(c) > 0)
            return false;
    return true;
}

/* --- in ------------------------------------------------------------------------------------------------- */

/* Bytes that cannot be framed: say why, then close. */
static void violation(struct conn *c, int code, const char *msg)
{
    log_info("pid %d, uid %u: %s", (int)c->pid, (unsigned)c->account->uid, msg);
    conn_error(c, 0, code, msg);
    c->closing = true;
    event_del(c->readable);
    event_del(c->frame_timer);
    /* The streams end now: a peer that we no longer listen to cannot cancel them. */
    struct call *call;
    while ((call = TAILQ_FIRST(&c->calls)) != NULL)
        call_disconnect(call);
}

/* Handles the whole frames in `in`, as far as the peer takes the answers. */
static void handle_frames(struct conn *c)
{
    size_t pos = 0;
    while (!c->closing && !c->throttled && pos < c->in.len) {
        struct hearth_err e;
        ptrdiff_t len = wire_scan(&c->scan, c->in.data + pos, c->in.len - pos, WIRE_FRAME_MAX, &e);
        if (len < 0)
            violation(c, (int)len, e.msg);
        if (len <= 0)
            break;
        struct wire_frame f = {0};
        int rc = wire_frame_open(&f, c->in.data + pos, (size_t)len, &e);
        if (rc) /* well-formed msgpack, but not a message of RPC: the next frame may be */
            conn_error(c, f.id, rc, e.msg);
        else
            dispatch_frame(c, &f);
        pos += (size_t)len;
        c->scan = (struct wire_scan){0};
    }
    if (pos > 0) {
        memmove(c->in.data, c->in.data + pos, c->in.len - pos);
        c->in.len -= pos;
        event_del(c->frame_timer);
    }
    if (c->in.len == 0 && c->in.cap > READ_LEAST)
        wire_buf_fini(&c->in);
    if (c->closing)
        return;
    if (c->throttled) { /* its own slowness to read is no reason to hold the rest of a frame against it */
        event_del(c->readable);
        event_del(c->frame_timer);
    } else if (c->in.len > 0 && !event_pending(c->frame_timer, EV_TIMEOUT, NULL)) {
        struct timeval tv = {.tv_sec = c->server->conf->frame_timeout};
        event_add(c->frame_timer, &tv);
    }
}

/* Room for the next read: never more than doubles what really came. */
static int make_room(struct wire_buf *b)
{
    if (b->cap - b->len >= READ_LEAST / 2)
        return 0;
    size_t cap = b->cap < READ_LEAST ? READ_LEAST : b->cap * 2;
    if (cap - b->len > READ_MOST)
        cap = b->len + READ_MOST;
    uint8_t *data = realloc(b->data, cap);
    if (!data)
        return HEARTH_ENOMEM;
    b->data = data;
    b->cap = cap;
    return 0;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct conn *c = arg;
    (void)what;
    if (make_room(&c->in) != 0) {
        conn_drop(c, "out of memory");
        return;
    }
    ssize_t n = recv(fd, c->in.data + c->in.len, c->in.cap - c->in.len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        conn_drop(c, n == 0 ? "closed by the peer" : strerror(errno));
        return;
    }
    c->in.len += (size_t)n;
    handle_frames(c);
}

/* Writes what there is; a peer that has caught up may go on. */
static void flush_and_unthrottle(struct conn *c)
{
    flush(c);
    if (c->fd < 0 || !c->throttled || c->closing || backlog(c) >= CONN_LOW_WATER)
        return;
    c->throttled = false;
    stream_unthrottle(c);
    handle_frames(c); /* what came before it was parked */
    if (!c->throttled && !c->closing)
        event_add(c->readable, NULL);
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

static void on_frame_timeout(evutil_socket_t fd, short what, void *arg)
{
    struct conn *c = arg;
    (void)fd, (void)what;
    if (c->throttled)
        return;
    char msg[80];
    snprintf(msg, sizeof msg, "a frame was begun and not finished within %lld s",
             (long long)c->server->conf->frame_timeout);
    violation(c, HEARTH_EINVALID, msg);
}
