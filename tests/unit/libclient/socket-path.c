/*
 * socket-path.c - the path of the daemon's socket, from the environment and in /tmp, and a path on which nobody
 * listens.
 */
#include "config.h"

#include "libclient/wire.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static struct hearth_err err;

static void the_socket_path_follows_the_environment(void **state)
{
    (void)state;
    char path[108], small[8], long_dir[200];
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    setenv("HEARTH_SOCKET", "/x/y.sock", 1);
    assert_int_equal(hearth_socket_path(path, sizeof path, &err), 0);
    assert_string_equal(path, "/x/y.sock");
    assert_int_equal(hearth_socket_path(small, sizeof small, &err), HEARTH_EINVALID);
    setenv("HEARTH_SOCKET", "", 1);
    assert_int_equal(hearth_socket_path(path, sizeof path, &err), 0);
    assert_string_equal(path, "/run/user/7/hearth/hearth.sock");
    memset(long_dir, 'd', sizeof long_dir - 1);
    long_dir[0] = '/';
    long_dir[sizeof long_dir - 1] = 0;
    setenv("XDG_RUNTIME_DIR", long_dir, 1);
    assert_int_equal(hearth_socket_path(path, sizeof path, &err), HEARTH_EINVALID);
    assert_int_equal(hearth_socket_path(long_dir, sizeof long_dir, &err),
                     HEARTH_EINVALID); /* sun_path limits the length */
    unsetenv("XDG_RUNTIME_DIR");
    if (geteuid() == 0) {
        assert_int_equal(hearth_socket_path(path, sizeof path, &err), 0);
        assert_string_equal(path, "/run/hearth/hearth.sock");
    }
    unsetenv("HEARTH_SOCKET");
}

/* Without XDG_RUNTIME_DIR the socket of an ordinary user is in /tmp, where somebody else may have created the directory
 * first. Only root can become an unused uid; the child's exit status says which step was wrong. */
static int as_a_stranger(uid_t uid)
{
    char dir[64], path[108], want[108];
    if (setuid(uid))
        return 77;
    unsetenv("HEARTH_SOCKET");
    unsetenv("XDG_RUNTIME_DIR");
    umask(0);
    snprintf(dir, sizeof dir, "/tmp/hearth-%u", (unsigned)uid);
    snprintf(want, sizeof want, "%s/hearth.sock", dir);
    int bad = hearth_socket_path(path, sizeof path, &err) || strcmp(path, want) ? 1 : 0; /* it does not exist: fine */
    if (!bad && (mkdir(dir, 0755) || hearth_socket_path(path, sizeof path, &err) != HEARTH_EDENIED))
        bad = 2;
    if (!bad && (chmod(dir, 0700) || hearth_socket_path(path, sizeof path, &err)))
        bad = 3;
    rmdir(dir);
    if (!bad && (symlink("/root", dir) || hearth_socket_path(path, sizeof path, &err) != HEARTH_EDENIED))
        bad = 4;
    unlink(dir);
    return bad;
}

static void a_directory_in_tmp_is_checked(void **state)
{
    (void)state;
    int status;
    if (geteuid() != 0)
        skip();
    uid_t uid = 1000000 + (uid_t)getpid();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(as_a_stranger(uid));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);

    /* and a directory that belongs to somebody else, although it is closed */
    char dir[64];
    snprintf(dir, sizeof dir, "/tmp/hearth-%u", (unsigned)uid);
    assert_int_equal(mkdir(dir, 0700), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char path[108];
        unsetenv("HEARTH_SOCKET");
        unsetenv("XDG_RUNTIME_DIR");
        _exit(setuid(uid) || hearth_socket_path(path, sizeof path, &err) != HEARTH_EDENIED);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    rmdir(dir);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void no_daemon_is_told_so(void **state)
{
    (void)state;
    struct hearth *h;
    char dir[] = "/tmp/hearth-test-XXXXXX", path[64], long_path[200];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/none.sock", dir);
    assert_int_equal(hearth_open(&h, path, &err), HEARTH_ECONNECT);
    assert_non_null(strstr(err.msg, path));
    memset(long_path, 'p', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = 0;
    assert_int_equal(hearth_open(&h, long_path, &err), HEARTH_EINVALID);
    assert_int_equal(hearth_adopt(&h, -1, &err), HEARTH_ECONNECT);
    rmdir(dir);
}

/* --- the system-wide daemon --------------------------------------------------------------------------------------- */

int __real_connect(int fd, const struct sockaddr *to, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len);

static const char *machine; /* what is found at /run/hearth/hearth.sock; NULL: nothing */
static int tried;           /* how often that was tried */

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (strcmp(((const struct sockaddr_un *)to)->sun_path, "/run/hearth/hearth.sock"))
        return __real_connect(fd, to, len);
    tried++;
    if (!machine) {
        errno = ENOENT;
        return -1;
    }
    snprintf(un.sun_path, sizeof un.sun_path, "%s", machine);
    return __real_connect(fd, (struct sockaddr *)&un, sizeof un);
}

static int listen_at(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

/* The user's own daemon is tried first, then the system-wide one; a socket that was named explicitly is the only
 * one. */
static void the_machine_has_a_daemon(void **state)
{
    (void)state;
    struct hearth *h;
    char dir[] = "/tmp/hearth-machine-XXXXXX", theirs[64], sub[64], own[80];
    assert_non_null(mkdtemp(dir));
    snprintf(theirs, sizeof theirs, "%s/theirs", dir);
    snprintf(sub, sizeof sub, "%s/hearth", dir);
    snprintf(own, sizeof own, "%s/hearth.sock", sub);
    unsetenv("HEARTH_SOCKET");
    setenv("XDG_RUNTIME_DIR", dir, 1);
    assert_int_equal(hearth_open(&h, NULL, &err), HEARTH_ECONNECT);
    assert_non_null(strstr(err.msg, own)); /* the path of the user's own daemon */
    assert_int_equal(tried, 1);
    int fd = listen_at(theirs);
    machine = theirs;
    assert_int_equal(hearth_open(&h, NULL, &err), 0);
    hearth_close(h);
    assert_int_equal(tried, 2);
    assert_int_equal(hearth_open(&h, own, &err), HEARTH_ECONNECT);
    setenv("HEARTH_SOCKET", own, 1);
    assert_int_equal(hearth_open(&h, NULL, &err), HEARTH_ECONNECT);
    unsetenv("HEARTH_SOCKET");
    assert_int_equal(mkdir(sub, 0700), 0);
    int own_fd = listen_at(own);
    assert_int_equal(hearth_open(&h, NULL, &err), 0);
    hearth_close(h);
    assert_int_equal(tried, 2);
    unsetenv("XDG_RUNTIME_DIR");
    close(fd);
    close(own_fd);
    unlink(theirs);
    unlink(own);
    rmdir(sub);
    rmdir(dir);
}

static int listener;

static void accept_one(int signal)
{
    (void)signal;
    int saved = errno, fd = accept(listener, NULL, NULL);
    if (fd >= 0)
        close(fd);
    errno = saved;
}

/* A daemon whose listen backlog is full is busy: the connection waits, and succeeds when the daemon has accepted
 * one. */
static void a_full_backlog_is_waited_for(void **state)
{
    (void)state;
    char dir[] = "/tmp/hearth-busy-XXXXXX";
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    struct itimerval soon = {.it_value = {.tv_usec = 20000}}, never = {0};
    struct sigaction act = {.sa_handler = accept_one}, before;
    struct hearth *h;
    int waiting[64], n = 0;
    assert_non_null(mkdtemp(dir));
    snprintf(sun.sun_path, sizeof sun.sun_path, "%s/s", dir);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&sun, sizeof sun), 0);
    assert_int_equal(listen(listener, 0), 0);
    do
        waiting[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    while (connect(waiting[n++], (struct sockaddr *)&sun, sizeof sun) == 0 && n < 64);
    assert_int_equal(errno, EAGAIN);
    sigaction(SIGALRM, &act, &before);
    setitimer(ITIMER_REAL, &soon, NULL);
    int rc = hearth_open(&h, sun.sun_path, &err);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    assert_int_equal(rc, 0);
    hearth_close(h);
    while (n > 0)
        close(waiting[--n]);
    close(listener);
    unlink(sun.sun_path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_backlog_is_waited_for),  cmocka_unit_test(the_socket_path_follows_the_environment),
        cmocka_unit_test(a_directory_in_tmp_is_checked), cmocka_unit_test(no_daemon_is_told_so),
        cmocka_unit_test(the_machine_has_a_daemon),
    };
    return cmocka_run_group_tests_name("socket-path", tests, NULL, NULL);
}
