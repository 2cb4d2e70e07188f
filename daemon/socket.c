/* socket.c - see socket.h. Runs before the loop and on it. */
#include "config.h"

#include "daemon/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/loop.h"

enum { BACKLOG = 128, KEPT = 96 /* descriptors for hearthd; the releaser thread may hold 64 of removed files */ };

/* Cuts the last component off a path; false where its folder is the root. */
static bool cut_name(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash == path)
        return false;
    *slash = '\0';
    return true;
}

/* The directory must belong to this user or root, and others must not be able to write to it: they could replace the
 * socket. */
static int check_socket_dir(const char *dir, struct hearth_err *e)
{
    struct stat sb;
    if (lstat(dir, &sb) != 0)
        return err_set(e, HEARTH_EIO, "%.150s: %s", dir, strerror(errno));
    if (!S_ISDIR(sb.st_mode))
        return err_set(e, HEARTH_EDENIED, "%.150s is not a directory", dir);
    if (sb.st_uid != geteuid() && sb.st_uid != 0)
        return err_set(e, HEARTH_EDENIED, "%.120s belongs to user %u: a socket in it would not be safe", dir,
                       (unsigned)sb.st_uid);
    if ((sb.st_mode & S_IWOTH) != 0 || (sb.st_uid == geteuid() && (sb.st_mode & S_IWGRP) != 0))
        return err_set(e, HEARTH_EDENIED, "%.120s can be written by others: a socket in it would not be safe", dir);
    return 0;
}

/* Creates the socket's folder. Its parent exists (/run/user/UID, /tmp), so one level suffices. */
static int make_socket_dir(const char *socket_path, struct hearth_err *e)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", socket_path);
    if (!cut_name(dir))
        return 0;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return err_set(e, HEARTH_EIO, "%.150s: %s", dir, strerror(errno));
    return check_socket_dir(dir, e);
}

/* Fails if something other than a socket is at the path. */
static int check_name(const char *path, struct hearth_err *e)
{
    struct stat sb;
    if (lstat(path, &sb) == 0 && !S_ISSOCK(sb.st_mode))
        return err_set(e, HEARTH_EIO, "%s is in the way and not a socket", path);
    return 0;
}

int socket_check(const char *path, struct hearth_err *e)
{
    char dir[PATH_MAX];
    struct stat sb;
    int rc = check_name(path, e);
    snprintf(dir, sizeof dir, "%s", path);
    if (rc || !cut_name(dir))
        return rc;
    const char *made_in = dir;
    if (lstat(dir, &sb) == 0 || errno != ENOENT)
        rc = check_socket_dir(dir, e);
    else if (!cut_name(dir)) /* only one level is created */
        made_in = "/";
    if (!rc && access(made_in, W_OK | X_OK) != 0)
        rc = err_set(e, HEARTH_EIO, "%.150s: %s", path, strerror(errno));
    return rc;
}

/*
 * Whether a daemon answers there. A daemon that was killed just after a fork may leave a child for a moment that has
 * its descriptors and has not called exec yet. Connecting then succeeds although the listening daemon is dead, so the
 * listener's pid is checked as well.
 */
static int try_connect(const struct sockaddr_un *addr)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    /* EAGAIN: a daemon listens, but its backlog is full. */
    int answers = connect(fd, (const struct sockaddr *)addr, sizeof *addr) == 0 || errno == EAGAIN;
    struct ucred listener;
    socklen_t len = sizeof listener;
    if (answers && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &len) == 0 && listener.pid > 0)
        answers = kill(listener.pid, 0) == 0 || errno != ESRCH;
    close(fd);
    return answers;
}

int socket_lock_byte(int fd, int cmd, short type, off_t at)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    return fcntl(fd, cmd, &l);
}

/* The pid in the lock file; 0 where it is not known. */
static int holder_of(int fd)
{
    char text[24];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return atoi(text);
}

/*
 * Waits for a byte of the lock, and prints after a second which process holds it. 1: the holder answers by now, so
 * there is nothing to wait for. A hearthd that is ending takes as long as its streams may; a holder that keeps the lock
 * for longer without answering is not waited for.
 */
static int await_lock(struct server *s, const struct sockaddr_un *addr, off_t byte, struct hearth_err *e)
{
    enum { EACH_MS = 20, ENDS_MS = 5000 };
    int64_t most = s->conf->shutdown_grace * 1000 + ENDS_MS;
    for (int64_t waited = 0; waited <= most; waited += EACH_MS) {
        if (socket_lock_byte(s->lock_fd, F_OFD_SETLK, F_WRLCK, byte) == 0)
            return 0;
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return err_set(e, HEARTH_EIO, "%.150s.lock: %s", addr->sun_path, strerror(errno));
        if (byte == 1 && try_connect(addr))
            return 1;
        if (waited == 1000)
            fprintf(stderr, "hearthd: waiting for process %d, which holds %s.lock and does not answer\n",
                    holder_of(s->lock_fd), addr->sun_path);
        poll(NULL, 0, EACH_MS);
    }
    return err_set(e, HEARTH_EIO, "process %d holds %.120s.lock and does not answer: not waited for any longer",
                   holder_of(s->lock_fd), addr->sun_path);
}

/* Opens the lock file beside the socket; the descriptor, or an error. */
static int open_lock(const struct sockaddr_un *addr, struct hearth_err *e)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.lock", addr->sun_path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? err_set(e, HEARTH_EIO, "%.150s: %s", path, strerror(errno)) : fd;
}

/* Writes this process's pid into the lock file, for others that wait for it. */
static void sign_lock(int fd)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(fd, 0) == 0)
        (void)!pwrite(fd, text, (size_t)n, 0);
}

/*
 * Two clients may start a daemon at once, and one daemon may start while another ends. The lock file has two bytes: a
 * daemon holds byte 0 while it starts, so that others wait until it listens, and byte 1 as long as it lives. A daemon
 * that gets byte 0 but not byte 1 has met one that listens, in which case it has nothing to do, or one that is ending,
 * for which it waits. A socket without a held lock is left over from a dead daemon and is removed.
 */
static int take_lock(struct server *s, const struct sockaddr_un *addr, struct hearth_err *e)
{
    int rc = s->lock_fd = open_lock(addr, e);
    if (rc >= 0)
        rc = await_lock(s, addr, 0, e);
    return rc ? rc : await_lock(s, addr, 1, e);
}

/* Binds and listens at a path where nobody listens, and returns the descriptor or an error. */
static int bind_at(struct server *s, const struct sockaddr_un *addr, struct hearth_err *e)
{
    struct stat sb;
    int bad = check_name(addr->sun_path, e);
    if (bad)
        return bad;
    if (unlink(addr->sun_path) != 0 && errno != ENOENT)
        return err_set(e, HEARTH_EIO, "%s: %s", addr->sun_path, strerror(errno));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* Nobody can connect before listen(), and the mode is set by then. */
    if (fd < 0 || bind(fd, (const struct sockaddr *)addr, sizeof *addr) != 0 || chmod(addr->sun_path, 0600) != 0 ||
        listen(fd, BACKLOG) != 0 || lstat(addr->sun_path, &sb) != 0) {
        int rc = err_set(e, HEARTH_EIO, "%s: %s", addr->sun_path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    s->socket_dev = sb.st_dev;
    s->socket_ino = sb.st_ino;
    return fd;
}

static struct sockaddr_un address_of(const struct server *s)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", s->conf->socket); /* conf has checked its length */
    return addr;
}

int socket_listen(struct server *s, struct hearth_err *e)
{
    struct sockaddr_un addr = address_of(s);
    int rc = make_socket_dir(addr.sun_path, e);
    if (!rc)
        rc = take_lock(s, &addr, e);
    if (rc)
        return rc;
    int fd = bind_at(s, &addr, e);
    if (fd < 0)
        return fd;
    sign_lock(s->lock_fd);
    s->listen_fd = fd;
    return 0;
}

static bool is_ours(const struct server *s)
{
    struct stat sb;
    return lstat(s->conf->socket, &sb) == 0 && sb.st_dev == s->socket_dev && sb.st_ino == s->socket_ino;
}

void socket_remove(const struct server *s)
{
    if (is_ours(s))
        unlink(s->conf->socket);
}

/* --- rebinding a deleted socket --------------------------------------------------------------------------------- */

struct socket_watch {
    struct server *server;
    void (*rebound)(struct server *s, int fd);
    int fd; /* inotify */
    struct watch *changes;
    struct timer *again; /* set after a failed attempt */
    bool failed;
};

/* Makes sure that this hearthd holds the lock of the folder that exists now: the old lock file may have been deleted
 * with the old folder. */
static int keep_lock(struct server *s, const struct sockaddr_un *addr, struct hearth_err *e)
{
    struct stat have, there;
    int fd = open_lock(addr, e);
    if (fd < 0)
        return fd;
    if (fstat(s->lock_fd, &have) == 0 && fstat(fd, &there) == 0 && have.st_dev == there.st_dev &&
        have.st_ino == there.st_ino) {
        close(fd);
        return 0;
    }
    if (socket_lock_byte(fd, F_OFD_SETLK, F_WRLCK, 1) != 0) {
        int rc = err_set(e, HEARTH_EIO, "process %d serves %.120s now", holder_of(fd), addr->sun_path);
        close(fd);
        return rc;
    }
    close(s->lock_fd);
    s->lock_fd = fd;
    sign_lock(fd);
    return 0;
}

/* Watches the folder, also where it was recreated. */
static void watch_folder(const struct socket_watch *w)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", w->server->conf->socket);
    char *slash = strrchr(dir, '/');
    slash[slash == dir] = '\0';
    inotify_add_watch(w->fd, dir, IN_DELETE | IN_MOVE | IN_CREATE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR);
}

static int bind_again(struct server *s, struct hearth_err *e)
{
    struct sockaddr_un addr = address_of(s);
    int rc = make_socket_dir(addr.sun_path, e);
    if (!rc)
        rc = keep_lock(s, &addr, e);
    return rc ? rc : bind_at(s, &addr, e);
}

static void look(void *arg)
{
    enum { AGAIN_MS = 1000 };
    struct socket_watch *w = arg;
    struct server *s = w->server;
    struct hearth_err e;
    if (s->listen_fd < 0 || is_ours(s))
        return;
    int fd = bind_again(s, &e);
    if (fd < 0) {
        if (!w->failed)
            log_error("the socket has gone, and cannot be bound again: %s", e.msg);
        w->failed = true;
        timer_set(w->again, AGAIN_MS);
        return;
    }
    w->failed = false;
    log_warn("%s had gone: bound again", s->conf->socket);
    watch_folder(w);
    w->rebound(s, fd);
}

static void on_changes(void *arg)
{
    const struct socket_watch *w = arg;
    char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    while (read(w->fd, events, sizeof events) > 0)
        continue;
    look(arg);
}

int socket_watch_new(struct server *s, void (*rebound)(struct server *s, int fd), struct hearth_err *e)
{
    struct socket_watch *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *w = (struct socket_watch){.server = s, .rebound = rebound, .fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
    s->socket_watch = w;
    if (w->fd < 0) { /* the user's inotify limit is reached: hearthd serves without a watch */
        log_warn("%s is not watched: %s", s->conf->socket, strerror(errno));
        return 0;
    }
    w->changes = watch_new(s->base, w->fd, on_changes, w);
    w->again = timer_new(s->base, look, w);
    if (!w->changes || !w->again)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    watch_folder(w);
    return 0;
}

void socket_watch_free(struct socket_watch *w)
{
    if (!w)
        return;
    watch_free(w->changes);
    timer_free(w->again);
    if (w->fd >= 0)
        close(w->fd);
    free(w);
}

int socket_peers_below(size_t kept)
{
    struct rlimit most = {.rlim_cur = 1024};
    getrlimit(RLIMIT_NOFILE, &most);
    int all = most.rlim_cur < INT_MAX ? (int)most.rlim_cur : INT_MAX, lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (lowest >= 0)
        close(lowest);
    else
        lowest = all - 1;
    int few = lowest + (all - lowest + 3) / 4;
    kept += KEPT;
    return kept < (size_t)all && all - (int)kept > few ? all - (int)kept : few;
}
