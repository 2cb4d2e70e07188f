/* sd.c - systemd's protocols: sockets that were passed to this process are taken, others are left, and the state is
 * notified. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/sd.h"

/* A socket bound in a fresh directory, which the caller removes. */
static int bound_socket(int type, char dir[static 24], char path[static 32])
{
    strcpy(dir, "/tmp/hearth-sd-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    sprintf(path, "%s/s", dir);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strcpy(to.sun_path, path);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    return fd >= 0 && bind(fd, (struct sockaddr *)&to, sizeof to) == 0 ? fd : -1;
}

static void test_notify(void **state)
{
    (void)state;
    char dir[24], path[32];
    int fd = bound_socket(SOCK_DGRAM, dir, path);
    assert_true(fd >= 0);
    setenv("NOTIFY_SOCKET", path, 1);
    setenv("WATCHDOG_USEC", "30000000", 1);
    struct sd sd;
    struct hearth_err e;
    assert_int_equal(sd_init(&sd, &e), 0);
    assert_int_equal(sd.watchdog_us, 30000000);
    assert_int_equal(sd.listen_fd, -1);
    assert_null(getenv("NOTIFY_SOCKET"));
    assert_null(getenv("WATCHDOG_USEC"));
    sd_notify(&sd, "READY=1");
    char got[32];
    assert_int_equal(recv(fd, got, sizeof got, MSG_DONTWAIT), 7);
    assert_memory_equal(got, "READY=1", 7);
    close(fd);
    unlink(path);
    rmdir(dir);
    sd_notify(&sd, "STOPPING=1"); /* nobody listens: no harm */
}

static void test_nothing(void **state)
{
    (void)state;
    struct sd sd;
    struct hearth_err e;
    setenv("LISTEN_PID", "1", 1); /* for another process */
    setenv("LISTEN_FDS", "1", 1);
    setenv("WATCHDOG_USEC", "1000", 1);
    setenv("WATCHDOG_PID", "1", 1);
    assert_int_equal(sd_init(&sd, &e), 0);
    assert_int_equal(sd.listen_fd, -1);
    assert_int_equal(sd.watchdog_us, 0);
    assert_null(getenv("LISTEN_FDS"));
    sd_notify(&sd, "READY=1");
    setenv("NOTIFY_SOCKET", "not/a/path", 1);
    assert_int_equal(sd_init(&sd, &e), HEARTH_EPARAMS);
}

enum { WITH_LISTENER, WITH_PIPE, WITH_TWO };

/* Descriptor 3 is in use in this process, so the hand-over happens in a child; its exit status is the verdict. */
static int in_child(int with)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char pid_text[16], dir[24], path[32];
        int pair[2], fd;
        if (with == WITH_PIPE) {
            fd = pipe(pair) == 0 ? pair[0] : -1;
        } else {
            fd = bound_socket(SOCK_STREAM, dir, path);
            listen(fd, 1);
            unlink(path);
            rmdir(dir);
        }
        dup2(fd, 3);
        sprintf(pid_text, "%d", (int)getpid());
        setenv("LISTEN_PID", pid_text, 1);
        setenv("LISTEN_FDS", with == WITH_TWO ? "2" : "1", 1);
        struct sd sd;
        int rc = sd_init(&sd, NULL);
        _exit(rc != 0 ? 1 : sd.listen_fd == 3 ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_listen(void **state)
{
    (void)state;
    assert_int_equal(in_child(WITH_LISTENER), 0);
    assert_int_equal(in_child(WITH_PIPE), 1);
    assert_int_equal(in_child(WITH_TWO), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_notify),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_listen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
