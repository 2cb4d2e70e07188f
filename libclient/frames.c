/* frames.c - the two buffers of a framed connection; frames.h draws the layout whose invariants check() asserts. */
#include "config.h"

#include "libclient/frames.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    GROW_MAX = 256 << 10, /* bytes by which an input buffer grows at most at a time, about the size of a socket's
                             buffer */
    OUT_KEEP = 64 << 10,  /* an empty output buffer larger than this is freed */
};

static void check(const struct frames *f)
{
    assert(f->in_pos + f->front <= f->in.len && f->in.len <= f->in.cap);
    assert(f->out_pos <= f->out.len && f->out.len <= f->out.cap);
    assert(!f->in_pos || f->in_pos < f->in.len);
    assert(!f->out_pos || f->out_pos < f->out.len);
    (void)f;
}

void frames_init(struct frames *f, const struct frames_limits *limits)
{
    *f = (struct frames){.limits = limits};
}

/* --- descriptors ----------------------------------------------------------------------------------------- */

static void close_fds(struct frames_fd *v, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        close(v[i].fd);
    *n = 0;
}

/* Takes the descriptors of a message that was read. There is room for all of them, because receive() offered the kernel
 * no more than the remaining room. */
static void take_control(struct frames *f, struct msghdr *msg)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
        return;
    size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < n; i++) {
        struct frames_fd *to = &f->in_fd[f->n_in_fd++];
        memcpy(&to->fd, CMSG_DATA(c) + i * sizeof to->fd, sizeof to->fd);
        to->at = frames_unread(f) - 1;
    }
}

/* As recv(2), and takes descriptors where the connection allows them. Linux ends a read after the bytes that
 * descriptors were sent with, so the last byte that was read belongs to their frame. */
static ssize_t receive(struct frames *f, int fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(FRAMES_FDS_IN * sizeof(int))];
    } control;
    struct iovec iov = {f->in.data + f->in.len, f->in.cap - f->in.len};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.room,
                         .msg_controllen = CMSG_LEN((FRAMES_FDS_IN - f->n_in_fd) * sizeof(int))};
    if (!f->limits->takes_fds)
        return recv(fd, iov.iov_base, iov.iov_len, MSG_DONTWAIT);
    ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0)
        return n;
    f->in.len += (size_t)n;
    take_control(f, &msg);
    f->in.len -= (size_t)n;
    if (msg.msg_flags & MSG_CTRUNC)
        errno = EMFILE;
    return msg.msg_flags & MSG_CTRUNC ? -1 : n;
}

static size_t take_fds(struct frames *f, size_t before, int fds[static FRAMES_FDS_IN])
{
    size_t n = 0;
    while (n < f->n_in_fd && f->in_fd[n].at < before) {
        fds[n] = f->in_fd[n].fd;
        n++;
    }
    f->n_in_fd -= n;
    memmove(f->in_fd, f->in_fd + n, f->n_in_fd * sizeof *f->in_fd);
    return n;
}

size_t frames_take_fds(struct frames *f, int fds[static FRAMES_FDS_IN])
{
    return take_fds(f, f->front, fds);
}

size_t frames_leave_fds(struct frames *f, int fds[static FRAMES_FDS_IN])
{
    return take_fds(f, SIZE_MAX, fds);
}

int frames_attach(struct frames *f, size_t before, int fd, struct hearth_err *e)
{
    assert(before < frames_pending(f));
    struct frames_fd *v = f->n_out_fd < FRAMES_FDS_OUT ? reallocarray(f->out_fd, f->n_out_fd + 1, sizeof *v) : NULL;
    if (!v) {
        int rc = f->n_out_fd < FRAMES_FDS_OUT ? HEARTH_ENOMEM : HEARTH_ELIMIT;
        close(fd);
        return err_set(e, rc, "%zu descriptors wait to be sent", f->n_out_fd);
    }
    f->out_fd = v;
    v[f->n_out_fd++] = (struct frames_fd){.fd = fd, .at = before, .n = frames_pending(f) - before};
    return 0;
}

int frames_put_first(struct frames *f, size_t before)
{
    struct wire_buf *out = &f->out;
    size_t n = out->len - before;
    assert(!f->out_pos && before <= out->len);
    uint8_t *packed = malloc(n);
    if (!packed)
        return HEARTH_ENOMEM;
    memcpy(packed, out->data + before, n);
    memmove(out->data + n, out->data, before);
    memcpy(out->data, packed, n);
    free(packed);
    for (size_t i = 0; i < f->n_out_fd; i++) {
        assert(f->out_fd[i].at < before);
        f->out_fd[i].at += n;
    }
    return 0;
}

/* The first of the pending descriptors was sent: closes this end's copy. */
static void drop_out_fd(struct frames *f)
{
    close(f->out_fd[0].fd);
    f->n_out_fd--;
    memmove(f->out_fd, f->out_fd + 1, f->n_out_fd * sizeof *f->out_fd);
}

/* Sends the first n pending bytes with a descriptor; returns as send(2). */
static ssize_t send_with(struct frames *f, int to, size_t n, int fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}}; /* its padding is sent, too */
    struct iovec iov = {f->out.data + f->out_pos, n};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    ssize_t sent = sendmsg(to, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == ETOOMANYREFS) /* too many descriptors in flight, which passes as the receiver reads */
        errno = EAGAIN;
    return sent;
}

/* Sends the pending bytes up to the next descriptor's frame or, where that frame is first, the frame with its
 * descriptor; returns as send(2). */
static ssize_t send_some(struct frames *f, int to)
{
    const struct frames_fd *next = f->n_out_fd ? f->out_fd : NULL;
    size_t n = next && next->at ? next->at : frames_pending(f);
    ssize_t sent = next && !next->at ? send_with(f, to, next->n, next->fd)
                                     : send(to, f->out.data + f->out_pos, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0)
        return sent;
    if (next && !next->at)
        drop_out_fd(f);
    for (size_t i = 0; i < f->n_out_fd; i++)
        f->out_fd[i].at -= (size_t)sent;
    return sent;
}

void frames_fini(struct frames *f)
{
    close_fds(f->in_fd, &f->n_in_fd);
    close_fds(f->out_fd, &f->n_out_fd);
    free(f->out_fd);
    wire_buf_fini(&f->in);
    wire_buf_fini(&f->out);
    frames_init(f, f->limits);
}

/* Moves a buffer's remaining bytes to its front. */
static void compact(struct wire_buf *b, size_t *pos)
{
    if (*pos)
        memmove(b->data, b->data + *pos, b->len - *pos);
    b->len -= *pos;
    *pos = 0;
}

/* --- in ------------------------------------------------------------------------------------------------- */

static int make_room(struct frames *f)
{
    struct wire_buf *b = &f->in;
    size_t read = f->limits->read, enough = read / 2;
    if (b->cap - b->len >= enough)
        return 0;
    compact(b, &f->in_pos);
    if (b->cap - b->len >= enough)
        return 0;
    size_t cap = b->cap < read ? read : b->cap * 2;
    if (cap - b->len > GROW_MAX)
        cap = b->len + GROW_MAX;
    uint8_t *data = realloc(b->data, cap);
    if (!data)
        return -1;
    b->data = data;
    b->cap = cap;
    return 0;
}

ssize_t frames_fill(struct frames *f, int fd)
{
    check(f);
    if (make_room(f)) {
        errno = ENOMEM;
        return -1;
    }
    ssize_t n = receive(f, fd);
    if (n > 0)
        f->in.len += (size_t)n;
    else if (n < 0 && errno == EINTR)
        errno = EAGAIN;
    check(f);
    return n;
}

ssize_t frames_skip(struct frames *f, int fd)
{
    char dropped[64 << 10];
    wire_buf_fini(&f->in);
    f->in_pos = f->front = 0;
    close_fds(f->in_fd, &f->n_in_fd);
    ssize_t n = recv(fd, dropped, sizeof dropped, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR)
        errno = EAGAIN;
    return n;
}

ptrdiff_t frames_next(struct frames *f, const uint8_t **frame, struct hearth_err *e)
{
    check(f);
    if (!frames_unread(f)) { /* do not keep a large frame's buffer for an idle peer */
        if (f->in.cap > f->limits->read)
            wire_buf_fini(&f->in);
        return 0;
    }
    if (!f->front) {
        ptrdiff_t n = wire_scan(&f->scan, f->in.data + f->in_pos, frames_unread(f), f->limits->frame, e);
        if (n <= 0)
            return n;
        f->front = (size_t)n;
        f->scan = (struct wire_scan){0};
    }
    return (ptrdiff_t)frames_front(f, frame);
}

size_t frames_front(const struct frames *f, const uint8_t **frame)
{
    *frame = f->front ? f->in.data + f->in_pos : NULL;
    return f->front;
}

void frames_drop(struct frames *f)
{
    int left[FRAMES_FDS_IN];
    assert(f->front);
    for (size_t i = frames_take_fds(f, left); i; i--)
        close(left[i - 1]);
    for (size_t i = 0; i < f->n_in_fd; i++)
        f->in_fd[i].at -= f->front;
    f->in_pos += f->front;
    f->front = 0;
    if (f->in_pos == f->in.len)
        f->in_pos = f->in.len = 0;
    check(f);
}

size_t frames_unread(const struct frames *f)
{
    return f->in.len - f->in_pos;
}

/* --- out ------------------------------------------------------------------------------------------------ */

struct wire_buf *frames_out(struct frames *f)
{
    return &f->out;
}

size_t frames_pending(const struct frames *f)
{
    return f->out.len - f->out_pos;
}

/* Returns 0 once everything is sent, else the errno of the last send. */
static int send_pending(struct frames *f, int fd)
{
    while (frames_pending(f)) {
        ssize_t n = send_some(f, fd);
        if (n < 0 && errno != EINTR)
            return errno;
        if (n > 0)
            f->out_pos += (size_t)n;
    }
    return 0;
}

void frames_discard(struct frames *f)
{
    f->out_pos = f->out.len = 0;
    close_fds(f->out_fd, &f->n_out_fd);
    if (f->out.cap > OUT_KEEP)
        wire_buf_fini(&f->out);
}

int frames_flush(struct frames *f, int fd)
{
    check(f);
    int rc = send_pending(f, fd);
    if (!frames_pending(f)) {
        frames_discard(f);
    } else if (f->out_pos > f->out.len / 2) { /* amortised, so each byte is moved at most once on average */
        compact(&f->out, &f->out_pos);
    }
    check(f);
    return rc;
}

enum frames_level frames_level(const struct frames *f)
{
    size_t n = frames_pending(f);
    return n < f->limits->low ? FRAMES_LOW : n > f->limits->high ? FRAMES_HIGH : FRAMES_BETWEEN;
}
