/*
 * start.c - starts hearthd where no daemon answers. hearthd makes this race-free: it daemonises only once its socket
 * answers, and only then does the process that was started here exit. A second hearthd that is started meanwhile finds
 * the first one, waits for it, and exits successfully too.
 */
#include "config.h"

#include "libclient/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The daemon outlives the program that starts it, and must not keep the signals that the program blocks or ignores. */
static int reset_signals(posix_spawnattr_t *attr)
{
    sigset_t none, used;
    sigemptyset(&none);
    sigemptyset(&used);
    sigaddset(&used, SIGCHLD);
    sigaddset(&used, SIGTERM);
    sigaddset(&used, SIGINT);
    int rc = posix_spawnattr_setsigmask(attr, &none);
    if (!rc)
        rc = posix_spawnattr_setsigdefault(attr, &used);
    return rc ? rc : posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static int start(const char *hearthd, struct hearth_err *e)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    pid_t pid;
    int status;
    if (!hearthd)
        hearthd = access(SBINDIR "/hearthd", X_OK) ? "hearthd" : SBINDIR "/hearthd";
    if (posix_spawn_file_actions_init(&files))
        return err_set(e, HEARTH_ENOMEM, "no memory to start hearthd");
    if (posix_spawnattr_init(&attr)) {
        posix_spawn_file_actions_destroy(&files);
        return err_set(e, HEARTH_ENOMEM, "no memory to start hearthd");
    }
    int rc = reset_signals(&attr);
    if (!rc)
        rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!rc)
        rc = posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    char *argv[] = {(char *)hearthd, NULL};
    if (!rc)
        rc = posix_spawnp(&pid, hearthd, &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    if (rc)
        return err_set(e, HEARTH_ECONNECT, "no daemon answers, and %.120s cannot be started: %s", hearthd,
                       strerror(rc));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 0; /* other code of this process reaped the child; whether a connection succeeds decides */
    return 0;
}

int hearth_open_or_start(struct hearth **out, const char *hearthd, struct hearth_err *e)
{
    int rc = hearth_open(out, NULL, e);
    if (rc != HEARTH_ECONNECT)
        return rc;
    rc = start(hearthd, e);
    return rc ? rc : hearth_open(out, NULL, e);
}
