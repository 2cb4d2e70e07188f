/* socket.c - see socket.h. Before the loop, and on it. */
#include "config.h"

#include "daemon/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128 };

/* The directory must be writable by this user alone, or others could replace the socket in it. Its parent exists
 * (/run/user/UID, /tmp), so one level is created. */
static int make_socket_dir(const char *socket_path, struct hearth_err *e)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", socket_path);
    char *slash = strrchr(dir, '/');
    if (slash == dir)
        return 0;
    *slash = '\0';
    struct stat sb;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return err_set(e, HEARTH_EIO, "%.150s: %s", dir, strerror(errno));
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

/*
 * Whether a daemon answers there. A daemon that was killed just after a fork may leave a child for a moment that has
 * its descriptors and has not called exec yet: connecting then works although the daemon that listened is dead.
 */
static int try_connect(const struct sockaddr_un *addr)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    /* EAGAIN: a daemon listens, and its backlog is full. */
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

/*
 * Two clients may start a daemon at once, and one daemon may start while another ends. The lock file has two bytes: a
 * daemon holds byte 0 while it starts, so that others wait until it listens, and byte 1 as long as it lives. A daemon
 * that gets byte 0 but not byte 1 meets one that listens (and has nothing to do) or one that ends (and waits for it). A
 * socket without the lock is a dead daemon's, and is removed.
 */
static int take_lock(struct server *s, const struct sockaddr_un *addr, struct hearth_err *e)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.lock", addr->sun_path);
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->lock_fd < 0)
        return err_set(e, HEARTH_EIO, "%.150s: %s", path, strerror(errno));
    if (socket_lock_byte(s->lock_fd, F_OFD_SETLKW, F_WRLCK, 0) != 0)
        return err_set(e, HEARTH_EIO, "%.150s: %s", path, strerror(errno));
    if (socket_lock_byte(s->lock_fd, F_OFD_SETLK, F_WRLCK, 1) == 0)
        return 0;
    if (try_connect(addr))
        return 1;
    if (socket_lock_byte(s->lock_fd, F_OFD_SETLKW, F_WRLCK, 1) != 0)
        return err_set(e, HEARTH_EIO, "%.150s: %s", path, strerror(errno));
    return 0;
}

int socket_listen(struct server *s, struct hearth_err *e)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", s->conf->socket); /* conf has checked its length */
    int rc = make_socket_dir(addr.sun_path, e);
    if (!rc)
        rc = take_lock(s, &addr, e);
    if (rc)
        return rc;
    struct stat sb;
    if (lstat(addr.sun_path, &sb) == 0) {
        if (!S_ISSOCK(sb.st_mode))
            return err_set(e, HEARTH_EIO, "%s is in the way and not a socket", addr.sun_path);
        if (unlink(addr.sun_path) != 0)
            return err_set(e, HEARTH_EIO, "%s: %s", addr.sun_path, strerror(errno));
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* Nobody can connect before listen(), and by then the mode is set. */
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof addr) != 0 || chmod(addr.sun_path, 0600) != 0 ||
        listen(fd, BACKLOG) != 0) {
        rc = err_set(e, HEARTH_EIO, "%s: %s", addr.sun_path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    s->listen_fd = fd;
    return 0;
}
