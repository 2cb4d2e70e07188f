/* sd.c - LISTEN_FDS, NOTIFY_SOCKET and WATCHDOG_USEC, as sd_listen_fds(3) and sd_notify(3) specify them. Loop thread.
 */
#include "daemon/sd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LISTEN_FDS_START = 3 };

/* Parses a string that is a decimal number as a whole; -1 where it is not. */
static int64_t number(const char *s)
{
    if (!s || *s < '0' || *s > '9')
        return -1;
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    return errno != 0 || *end != '\0' ? -1 : v;
}

static int is_listening_unix(int fd)
{
    int v;
    socklen_t len = sizeof v;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &v, &len) != 0 || v != AF_UNIX)
        return 0;
    len = sizeof v;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &v, &len) != 0 || v != SOCK_STREAM)
        return 0;
    len = sizeof v;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &v, &len) == 0 && v != 0;
}

static int init_listen(struct sd *sd, struct hearth_err *e)
{
    /* The variables are meant for the process with that pid only; a child that inherited them was passed no socket. */
    if (number(getenv("LISTEN_PID")) != getpid())
        return 0;
    int64_t n = number(getenv("LISTEN_FDS"));
    if (n != 1)
        return err_set(e, HEARTH_EPARAMS, "LISTEN_FDS: want one socket, got \"%s\"", getenv("LISTEN_FDS"));
    if (!is_listening_unix(LISTEN_FDS_START))
        return err_set(e, HEARTH_EPARAMS, "LISTEN_FDS: descriptor %d is not a listening AF_UNIX stream socket",
                       LISTEN_FDS_START);
    /* The supervisor passes it blocking and inheritable. */
    int flags = fcntl(LISTEN_FDS_START, F_GETFL);
    if (flags < 0 || fcntl(LISTEN_FDS_START, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(LISTEN_FDS_START, F_SETFD, FD_CLOEXEC) != 0)
        return err_set(e, HEARTH_EIO, "LISTEN_FDS: %s", strerror(errno));
    sd->listen_fd = LISTEN_FDS_START;
    return 0;
}

static int init_notify(struct sd *sd, struct hearth_err *e)
{
    const char *path = getenv("NOTIFY_SOCKET");
    if (!path || *path == '\0')
        return 0;
    size_t len = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || len >= sizeof sd->to.sun_path)
        return err_set(e, HEARTH_EPARAMS, "NOTIFY_SOCKET: \"%.100s\" is not a path of a socket", path);
    sd->to.sun_family = AF_UNIX;
    memcpy(sd->to.sun_path, path, len);
    if (path[0] == '@')
        sd->to.sun_path[0] = '\0'; /* the abstract namespace */
    sd->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return 0;
}

int sd_init(struct sd *sd, struct hearth_err *e)
{
    *sd = (struct sd){.listen_fd = -1};
    int rc = init_listen(sd, e);
    if (!rc)
        rc = init_notify(sd, e);
    int64_t us = number(getenv("WATCHDOG_USEC"));
    const char *pid = getenv("WATCHDOG_PID");
    if (us > 0 && (!pid || number(pid) == getpid()))
        sd->watchdog_us = (uint64_t)us;

    static const char *const vars[] = {"LISTEN_PID",    "LISTEN_FDS",    "LISTEN_FDNAMES",
                                       "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};
    for (size_t i = 0; i < sizeof vars / sizeof vars[0]; i++)
        unsetenv(vars[i]);
    return rc;
}

void sd_notify(const struct sd *sd, const char *state)
{
    if (sd->to_len == 0)
        return;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    /* An error means that the supervisor has exited, which is no reason to fail. */
    (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&sd->to, sd->to_len);
    close(fd);
}
