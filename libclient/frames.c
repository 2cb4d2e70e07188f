/* frames.c - the two buffers of a framed connection; frames.h draws the invariants that are asserted here. */
#include "config.h"

#include "libclient/frames.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    GROW_MAX = 256 << 10, /* an input buffer grows by this at once, about the size of a socket's buffer */
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

void frames_fini(struct frames *f)
{
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
    ssize_t n = recv(fd, f->in.data + f->in.len, f->in.cap - f->in.len, MSG_DONTWAIT);
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
    ssize_t n = recv(fd, dropped, sizeof dropped, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR)
        errno = EAGAIN;
    return n;
}

ptrdiff_t frames_next(struct frames *f, const uint8_t **frame, struct hearth_err *e)
{
    check(f);
    if (!frames_unread(f)) { /* a large frame's buffer is shrunk for an idle peer */
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
    assert(f->front);
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

/* Returns 0 where everything is sent, else the errno of the last send. */
static int send_pending(struct frames *f, int fd)
{
    while (frames_pending(f)) {
        ssize_t n = send(fd, f->out.data + f->out_pos, frames_pending(f), MSG_NOSIGNAL | MSG_DONTWAIT);
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
    if (f->out.cap > OUT_KEEP)
        wire_buf_fini(&f->out);
}

int frames_flush(struct frames *f, int fd)
{
    check(f);
    int rc = send_pending(f, fd);
    if (!frames_pending(f)) {
        frames_discard(f);
    } else if (f->out_pos > f->out.len / 2) { /* so a byte is moved once at most, on average */
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
