/* connections.c - how many connections hearthd accepts, and how it refuses others. */
#include "config.h"

#include "tests/daemon/harness.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_connections, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_descriptors, box_setup_idle, box_teardown),
    };
    return cmocka_run_group_tests_name("daemon/connections", tests, NULL, NULL);
}
