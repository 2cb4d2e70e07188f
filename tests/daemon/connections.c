/* connections.c - how many connections hearthd accepts, how it refuses others, and how they share its loop. */
#include "config.h"

#include "tests/daemon/harness.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static void test_connections(void **state)
{
    struct box *b = *state;
    box_configure(b, "connections_per_uid = 64\nconnections = 70\n");
    box_start(b);
    struct peer *p[64];
    for (int i = 0; i < 64; i++)
        p[i] = peer_open(b);
    struct wire_empty none = {0};
    for (int i = 0; i < 64; i++)
        wire_free(peer_call(p[i], WIRE_STATUS, &none));
    struct peer *over = peer_open(b);
    struct hearth_err e;
    uint32_t id;
    assert_int_equal(peer_error(over, &id, &e), HEARTH_ELIMIT);
    assert_int_equal(id, 0);
    assert_non_null(strstr(e.msg, "64 connections"));
    peer_await_close(over);
    peer_close(over);
    wire_free(peer_call(p[63], WIRE_STATUS, &none)); /* the other connections are not affected */
    peer_close(p[0]);
    for (;;) { /* when one is closed there is room again */
        struct wire_status_result *st = peer_call(p[1], WIRE_STATUS, &none);
        bool room = st->connections == 63;
        wire_free(st);
        if (room)
            break;
    }
    over = peer_open(b);
    wire_free(peer_call(over, WIRE_STATUS, &none));
    peer_close(over);
    for (int i = 1; i < 64; i++)
        peer_close(p[i]);
}

/* With few descriptors, peers get only so many connections that hearthd can open what it needs for an engine, its files
 * and the database. A peer beyond that gets an error, and is accepted when there is room. */
static void test_descriptors(void **state)
{
    enum { N = 40 };
    struct box *b = *state;
    struct rlimit all, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    few = all;
    few.rlim_cur = 30;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    box_start(b);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    struct peer *p[N];
    struct wire_empty none = {0};
    struct hearth_err e;
    uint32_t id;
    for (int i = 0; i < N; i++)
        p[i] = peer_open(b); /* the kernel's backlog takes all of them */
    for (int i = N - 1; i > N / 2; i--) {
        assert_int_equal(peer_error(p[i], &id, &e), HEARTH_ELIMIT);
        assert_int_equal(id, 0);
        assert_non_null(strstr(e.msg, "RLIMIT_NOFILE"));
        peer_await_close(p[i]);
        peer_close(p[i]);
    }
    wire_free(peer_call(p[0], WIRE_STATUS, &none));
    wire_free(peer_call(p[0], WIRE_MODELS_LIST, &none));
    struct wire_generate g = request("n=3", "kept"); /* needs an engine, a journal and a session */
    for (int i = 0; i < 3; i++)
        wire_free(peer_call(p[0], WIRE_GENERATE, &g));
    assert_false(box_log_has(b, "Too many open files"));
    for (int i = 1; i <= N / 2; i++)
        peer_close(p[i]);
    for (int64_t left = 2; left > 1;) {
        struct wire_status_result *st = peer_status(p[0]);
        left = st->connections;
        wire_free(st);
    }
    box_works(b);
    peer_close(p[0]);
}

/* Short requests that take the database long are spread over the turns of the loop: a client that asks meanwhile is
 * answered after a few of them. */
static void test_slow_requests(void **state)
{
    enum { ALL = 100, N = 50, SOME = 20 };
    struct box *b = *state;
    struct peer *p = peer_open(b), *other = peer_open(b);
    struct wire_session_fork fork = {.session = "s", .count = 64};
    uint32_t id[N];
    char later[32];
    wire_free(run(p, "n=1", "s"));
    for (int i = 0; i < ALL; i++) /* names are searched among all of them */
        wire_free(peer_call(p, WIRE_SESSIONS_FORK, &fork));
    wire_free(peer_status(other));
    fork.count = 1;
    snprintf(later, sizeof later, "s.%d", ALL * 64 + SOME);
    assert_int_equal(kill(b->pid, SIGSTOP), 0);
    for (int i = 0; i < N; i++)
        id[i] = peer_ask(p, WIRE_SESSIONS_FORK, &fork);
    struct wire_session_ref ref = {.session = later};
    uint32_t asked = peer_ask(other, WIRE_SESSIONS_SHOW, &ref);
    assert_int_equal(kill(b->pid, SIGCONT), 0);
    struct hearth_err e;
    assert_null(peer_answer(other, asked, WIRE_SESSIONS_SHOW, &e));
    assert_int_equal(e.code, HEARTH_ENOSESSION);
    for (int i = 0; i < N; i++) {
        void *r = peer_answer(p, id[i], WIRE_SESSIONS_FORK, &e);
        assert_non_null(r);
        wire_free(r);
    }
    wire_free(peer_call(other, WIRE_SESSIONS_SHOW, &ref));
    peer_close(p);
    peer_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_connections, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_descriptors, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_slow_requests, box_setup, box_teardown),
    };
    return cmocka_run_group_tests_name("daemon/connections", tests, NULL, NULL);
}
