/*
 * conn.c - the io layer: it finds the daemon, connects, and moves bytes between the socket and the frame buffers. Only
 * conn_wait() blocks.
 */
#include "config.h"

#include "libclient/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "libclient/utf8.h"

/* No watermarks are set: the application decides how much it submits before it is sent. */
static const struct frames_limits limits = {.frame = WIRE_LINK_FRAME_MAX, .read = 64 << 10};

/* the machine-wide daemon's socket, which contrib/systemd/system creates */
#define SYSTEM_SOCKET "/run/hearth/hearth.sock"

/* --- address -------------------------------------------------------------------------------------------- */

/* Any user may create a directory in /tmp, so ours is trusted only if it is a directory, is owned by us and has mode
 * 0700. A directory that does not exist is fine. */
static int check_private(const char *dir, struct hearth_err *e)
{
    struct stat st;
    if (lstat(dir, &st))
        return errno == ENOENT ? 0 : err_set(e, HEARTH_EDENIED, "%s: %s", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(e, HEARTH_EDENIED, "%s is not a directory", dir);
    if (st.st_uid != geteuid())
        return err_set(e, HEARTH_EDENIED, "%s belongs to uid %u, not to you", dir, (unsigned)st.st_uid);
    if (st.st_mode & 077)
        return err_set(e, HEARTH_EDENIED, "%s has mode %04o, it must be 0700", dir, (unsigned)st.st_mode & 07777);
    return 0;
}

int hearth_socket_path(char *buf, size_t size, struct hearth_err *e)
{
    const char *path = getenv("HEARTH_SOCKET"), *run = getenv("XDG_RUNTIME_DIR");
    char dir[64];
    int n;

    if (path && *path) {
        n = snprintf(buf, size, "%s", path);
    } else if (run && *run == '/') {
        n = snprintf(buf, size, "%s/hearth/hearth.sock", run);
    } else if (geteuid() == 0) {
        n = snprintf(buf, size, SYSTEM_SOCKET);
    } else {
        snprintf(dir, sizeof dir, "/tmp/hearth-%u", (unsigned)geteuid());
        if (check_private(dir, e))
            return HEARTH_EDENIED;
        n = snprintf(buf, size, "%s/hearth.sock", dir);
    }
    size_t max = sizeof((struct sockaddr_un *)0)->sun_path;
    if (n < 0 || (size_t)n >= size || (size_t)n >= max)
        return err_set(e, HEARTH_EINVALID, "the socket path has %d bytes, a socket's name has room for %zu", n,
                       (size < max ? size : max) - (size > 0));
    return 0;
}

/* --- open and close ------------------------------------------------------------------------------------- */

int hearth_adopt(struct hearth **out, int fd, struct hearth_err *e)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return err_set(e, HEARTH_ECONNECT, "descriptor %d: %s", fd, strerror(errno));

    struct hearth *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(e, HEARTH_ENOMEM, "no memory for a connection");
    h->fd = fd;
    h->queue_tail = &h->queue;
    h->passes = pass_is_needed(fd);
    frames_init(&h->frames, &limits);
    /* Request ids must differ from those of this uid's other programs. Early in boot there are no random bytes; the
     * clock and the process id take their place. */
    if (getrandom(&h->salt, sizeof h->salt, GRND_NONBLOCK) != sizeof h->salt) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        h->salt = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + ((uint64_t)getpid() << 40);
    }
    hearth_set_client(h, "libhearth " PACKAGE_VERSION);
    *out = h;
    return 0;
}

/* A Unix socket connects at once or not at all. EAGAIN means that the listener's backlog is full, which passes where
 * the daemon is only busy, so this retries for a second. */
static int connect_patiently(int fd, const struct sockaddr_un *to)
{
    enum { NAP_MS = 10, NAPS = 100 };
    int rc, naps = 0;
    while ((rc = connect(fd, (const struct sockaddr *)to, sizeof *to)) && errno == EAGAIN && naps++ < NAPS) {
        poll(NULL, 0, NAP_MS);
        errno = EAGAIN;
    }
    return rc;
}

/*
 * The process that listens sees every prompt, so it must belong to this user or to root. A machine-wide daemon runs as
 * a user of its own: it is accepted where that user owns the socket file, and the socket was named explicitly (`named`)
 * or lies in /run/hearth, where only root lets anyone create one.
 */
static int check_peer(int fd, const char *path, bool named, struct hearth_err *e)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    struct stat sb;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
        return err_set(e, HEARTH_ECONNECT, "%.100s: %s", path, strerror(errno));
    if (peer.uid == geteuid() || peer.uid == 0)
        return 0;
    named = named || !strncmp(path, "/run/hearth/", strlen("/run/hearth/"));
    if (named && !stat(path, &sb) && sb.st_uid == peer.uid)
        return 0;
    return err_set(e, HEARTH_EDENIED, "%.100s is served by uid %u, who is neither you nor root", path,
                   (unsigned)peer.uid);
}

static int open_at(struct hearth **out, const char *path, bool named, struct hearth_err *e)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    int rc;
    if (strlen(path) >= sizeof sun.sun_path)
        return err_set(e, HEARTH_EINVALID, "the socket path has %zu bytes, a socket's name has room for %zu",
                       strlen(path), sizeof sun.sun_path - 1);
    strcpy(sun.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(e, HEARTH_ECONNECT, "socket: %s", strerror(errno));
    if (connect_patiently(fd, &sun))
        rc = err_set(e, HEARTH_ECONNECT, "no daemon answers at %s: %s", sun.sun_path, strerror(errno));
    else if (!(rc = check_peer(fd, sun.sun_path, named, e)) && !(rc = hearth_adopt(out, fd, e)))
        return 0;
    close(fd);
    return rc;
}

int hearth_open(struct hearth **out, const char *path, struct hearth_err *e)
{
    char own[sizeof((struct sockaddr_un *)0)->sun_path];
    const char *env = getenv("HEARTH_SOCKET");
    bool named = path || (env && *env);
    int rc = path ? 0 : hearth_socket_path(own, sizeof own, e);
    if (!rc)
        rc = open_at(out, path ? path : own, named, e);
    /* Without a daemon of the user's own, use the machine-wide one. Where that one refuses the connection, the user has
     * none, and the first error stands. */
    if (rc == HEARTH_ECONNECT && !named && !open_at(out, SYSTEM_SOCKET, false, NULL))
        rc = 0;
    return rc;
}

void hearth_close(struct hearth *h)
{
    if (!h)
        return;
    if (!h->dead.code)
        hearth_io(h, HEARTH_WRITE, NULL); /* tries to send what is packed, a cancel for instance */
    close(h->fd);
    while (h->queue) {
        struct queued *q = h->queue;
        h->queue = q->next;
        wire_free(q->ev.body.any);
        free(q);
    }
    while (h->pending) {
        struct pending *p = h->pending;
        h->pending = p->next;
        free(p);
    }
    wire_free(h->body);
    pass_forget(h);
    frames_fini(&h->frames);
    wire_buf_fini(&h->hello_reply);
    free(h);
}

const char *hearth_version(void)
{
    return PACKAGE_VERSION;
}

void hearth_set_client(struct hearth *h, const char *name)
{
    if (!name)
        name = "";
    size_t n = utf8_prefix(name, strnlen(name, sizeof h->client - 1)); /* no part of a character, no other bytes */
    memcpy(h->client, name, n);
    h->client[n] = 0;
}

int conn_die_as(struct hearth *h, struct hearth_err *e, const struct hearth_err *why)
{
    if (!h->dead.code)
        h->dead = *why;
    if (e)
        *e = h->dead;
    return h->dead.code;
}

int conn_die(struct hearth *h, struct hearth_err *e, int code, const char *fmt, ...)
{
    struct hearth_err why = {.code = code};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why.msg, sizeof why.msg, fmt, ap);
    va_end(ap);
    return conn_die_as(h, e, &why);
}

int conn_die_unread(struct hearth *h, struct hearth_err *e, const struct hearth_err *why)
{
    if (why->code == HEARTH_ENOMEM)
        return conn_die_as(h, e, why);
    return conn_die(h, e, HEARTH_EPROTOCOL, "from the daemon: %.150s", why->msg);
}

/* --- bytes ---------------------------------------------------------------------------------------------- */

int hearth_fd(const struct hearth *h)
{
    return h->fd;
}

static bool has_frame(const struct hearth *h)
{
    const uint8_t *frame;
    return frames_front(&h->frames, &frame) > 0;
}

int hearth_events(const struct hearth *h)
{
    return (has_frame(h) ? 0 : HEARTH_READ) | (frames_pending(&h->frames) ? HEARTH_WRITE : 0);
}

/* Looks for a complete frame at the front of the input, which frames_front() returns from then on. */
static int find_frame(struct hearth *h, struct hearth_err *e)
{
    const uint8_t *frame;
    struct hearth_err why;
    if (frames_next(&h->frames, &frame, &why) < 0)
        return conn_die_unread(h, e, &why);
    return 0;
}

int conn_drop(struct hearth *h, struct hearth_err *e)
{
    frames_drop(&h->frames);
    return find_frame(h, e);
}

static int io_read(struct hearth *h, struct hearth_err *e)
{
    ssize_t n = frames_fill(&h->frames, h->fd);
    if (n > 0)
        return find_frame(h, e);
    if (n == 0)
        return conn_die(h, e, HEARTH_ECONNECT, "the daemon closed the connection");
    if (errno == EAGAIN)
        return 0;
    if (errno == ECONNRESET) /* what was sent was still unread in the daemon's socket buffer */
        return conn_die(h, e, HEARTH_ECONNECT,
                        "the daemon ended before it read this request; a new one may be sent to "
                        "the daemon that takes its place");
    if (errno == ENOMEM)
        return conn_die(h, e, HEARTH_ENOMEM, "no memory for more than %zu bytes of input", frames_unread(&h->frames));
    return conn_die(h, e, HEARTH_ECONNECT, "reading from the daemon: %s", strerror(errno));
}

static int io_write(struct hearth *h, struct hearth_err *e)
{
    int why = frames_flush(&h->frames, h->fd);
    if (!why || why == EAGAIN)
        return 0;
    if (why != EPIPE && why != ECONNRESET)
        return conn_die(h, e, HEARTH_ECONNECT, "writing to the daemon: %s", strerror(why));
    /* A failed send only discards the pending output: a daemon that hung up may have sent the reason first, and the
     * next read finds it. */
    frames_discard(&h->frames);
    return 0;
}

int hearth_io(struct hearth *h, int ready, struct hearth_err *e)
{
    int rc = 0;
    if (h->dead.code)
        return conn_die_as(h, e, &h->dead);
    if (ready & HEARTH_WRITE && frames_pending(&h->frames))
        rc = io_write(h, e);
    if (!rc && ready & HEARTH_READ && !has_frame(h))
        rc = io_read(h, e);
    return rc;
}

/* --- waiting -------------------------------------------------------------------------------------------- */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t conn_deadline(const struct timespec *timeout)
{
    if (!timeout)
        return -1;
    int64_t sec = timeout->tv_sec < 0 ? 0 : timeout->tv_sec < 1000000000 ? timeout->tv_sec : 1000000000;
    return now_ns() + sec * 1000000000 + timeout->tv_nsec;
}

bool conn_is_late(int64_t deadline)
{
    return deadline >= 0 && now_ns() >= deadline;
}

/* The timeout for poll(), rounded up to whole milliseconds so that a wait is never shorter than requested; -1 for no
 * deadline. */
static int ms_until(int64_t deadline)
{
    if (deadline < 0)
        return -1;
    int64_t left = (deadline - now_ns() + 999999) / 1000000;
    return left < 0 ? 0 : left > 1000000000 ? 1000000000 : (int)left;
}

int conn_wait(struct hearth *h, int fd, int64_t deadline, struct hearth_err *e)
{
    if (h->dead.code)
        return conn_die_as(h, e, &h->dead);
    int want = hearth_events(h), n;
    struct pollfd p[2] = {
        {.fd = h->fd, .events = (short)((want & HEARTH_READ ? POLLIN : 0) | (want & HEARTH_WRITE ? POLLOUT : 0))},
        {.fd = fd, .events = POLLIN},
    };
    do
        n = poll(p, 2, ms_until(deadline));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return conn_die(h, e, HEARTH_ECONNECT, "poll: %s", strerror(errno));
    if (n == 0)
        return HEARTH_WAIT_TIMEOUT;
    if (p[1].revents)
        return HEARTH_WAIT_FD;
    int ready = (p[0].revents & POLLOUT ? HEARTH_WRITE : 0) | (p[0].revents & ~POLLOUT ? HEARTH_READ : 0);
    int rc = hearth_io(h, ready, e);
    return rc ? rc : HEARTH_WAIT_IO;
}

int hearth_wait(struct hearth *h, int fd, const struct timespec *timeout, struct hearth_err *e)
{
    if (h->queue || (!h->dead.code && has_frame(h))) /* the frame that ended a connection stays at its front */
        return HEARTH_WAIT_IO;
    return conn_wait(h, fd, conn_deadline(timeout), e);
}
