/*
 * pass.c - hearth_models_pass(): its timeout limits the whole call, however many files a model has. The clock stands
 * still but for what the scripted daemon adds to it, and the daemon acts when the library waits: the program is linked
 * with --wrap=clock_gettime,--wrap=poll (tests/local.mk).
 */
#include "config.h"

#include "tests/unit/libclient/script.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT_MS = 50, FIRST_MS = 30 }; /* the whole call; until the first file's answer */

static struct peer *daemon_end; /* NULL: the real clock and poll() */
static int64_t now_ms = 1000;
static bool answered;
static int left_ms; /* the library's last wait, in which nothing came */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    if (!daemon_end || clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, t);
    *t = (struct timespec){.tv_sec = now_ms / 1000, .tv_nsec = now_ms % 1000 * 1000000};
    return 0;
}

int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    struct peer *p = daemon_end;
    if (p && !answered && !(fds[0].events & POLLOUT)) { /* all is sent */
        answered = true;
        peer_expect(p, WIRE_HELLO);
        peer_greet(p, p->frame.id);
        peer_expect(p, WIRE_MODELS_PASS);
        uint32_t first = p->frame.id;
        peer_expect(p, WIRE_MODELS_PASS); /* never answered */
        now_ms += FIRST_MS;
        peer_answer(p, first, WIRE_MODELS_PASS, &(struct wire_empty){0});
    }
    int ready = __real_poll(fds, n, p ? 0 : timeout);
    if (p && !ready)
        left_ms = timeout, now_ms += timeout;
    return ready;
}

static void a_timeout_is_of_all_files(void **state)
{
    const struct timespec timeout = {.tv_nsec = TIMEOUT_MS * 1000000};
    char folder[] = "/tmp/hearth-pass-XXXXXX", path[2][64];
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/m-%05d-of-00002.gguf", folder, i + 1);
        int fd = open(path[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    daemon_end = *state;
    int rc = hearth_models_pass(daemon_end->h, path[0], &timeout, &err);
    daemon_end = NULL;
    for (int i = 0; i < 2; i++)
        unlink(path[i]);
    rmdir(folder);
    assert_int_equal(rc, HEARTH_ETIMEOUT);
    assert_true(answered);
    assert_int_equal(left_ms, TIMEOUT_MS - FIRST_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_timeout_is_of_all_files, peer_setup, peer_teardown),
    };
    return cmocka_run_group_tests_name("pass", tests, NULL, NULL);
}
