/* refuse.c - an engine for which the system does not start all threads: it says so over its link, then exits. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/engine/serve.h"
#include "libclient/wire.h"

static int more; /* threads that may still be started */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    return more-- > 0 ? __real_pthread_create(thread, attr, fn, arg) : EAGAIN;
}

/* Runs an engine that may start `threads` threads, and says hello. Returns its exit status; `reply` is what it sent. */
static int run_engine(int threads, char *reply, size_t size)
{
    struct wire_buf b = {0};
    struct hearth_err e;
    int link[2], status;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        char fd[16];
        char *argv[] = {(char[]){"hearth-engine"},
                        (char[]){"--backend"},
                        (char[]){"cpu"},
                        (char[]){"--threads"},
                        (char[]){"1"},
                        (char[]){"--link"},
                        fd,
                        NULL};
        snprintf(fd, sizeof fd, "%d", link[1]);
        close(link[0]);
        more = threads;
        _exit(serve_main(7, argv, NULL));
    }
    close(link[1]);
    assert_int_equal(
        wire_pack_request(&b, 1, &wire_methods[WIRE_ENGINE_HELLO], &(struct wire_engine_hello){WIRE_VERSION}, &e), 0);
    assert_int_equal(send(link[0], b.data, b.len, MSG_NOSIGNAL), b.len);
    ssize_t n = recv(link[0], reply, size - 1, 0);
    reply[n > 0 ? n : 0] = '\0';
    for (ssize_t i = 0; i < n; i++)
        reply[i] = reply[i] ? reply[i] : ' '; /* so that it can be searched */
    close(link[0]);                           /* the end of an engine that serves */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    wire_buf_fini(&b);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_no_thread(void **state)
{
    (void)state;
    char reply[1024];
    int threads = 0;
    while (run_engine(threads, reply, sizeof reply) != 0) {
        assert_non_null(strstr(reply, "cannot start"));
        threads++;
    }
    assert_true(threads > 2); /* the device's thread, and the workers */
    assert_null(strstr(reply, "cannot start"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_thread)};
    return cmocka_run_group_tests_name("refuse", tests, NULL, NULL);
}
