/* deadline.c - deadline_ms ends a generation that has no token by then, wherever it waits. */
#include "config.h"

#include <time.h>

#include "tests/daemon/harness.h"

enum { LONG = 3600000, SHORT = 50 }; /* milliseconds */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint32_t ask(struct peer *p, const char *script, const char *session, const char *id, int64_t deadline)
{
    struct wire_generate g = request(script, session);
    g.request = id;
    g.deadline_ms = deadline;
    return peer_ask(p, WIRE_GENERATE, &g);
}

static void expect_late(struct peer *p, uint32_t id, const char *names)
{
    struct hearth_err e;
    assert_null(peer_answer(p, id, WIRE_GENERATE, &e));
    assert_int_equal(e.code, HEARTH_ECANCELLED);
    assert_non_null(strstr(e.msg, "(deadline_ms)"));
    assert_non_null(strstr(e.msg, names));
}

/* Starts a generation that ends at a tick after it was cancelled, then disconnects its client. */
static void leave(struct box *b, const char *session)
{
    struct peer *p = peer_open(b);
    ask(p, "hang deaf", session, NULL, 0);
    peer_await_begin(p, 1);
    peer_close(p);
    box_works(b); /* so the connection is known to be closed */
}

/* The time in which a request waits to take over a session counts. */
static void test_takeover(void **state)
{
    struct box *b = *state;
    leave(b, "s");
    struct peer *p = peer_open(b), *q = peer_open(b), *clock = peer_open(b);
    uint32_t id = ask(p, "deadline n=1", "s", NULL, LONG);
    wire_free(peer_status(p));
    expect_late(q, ask(q, "n=1", "s", NULL, SHORT), "another generation");
    double since = now();
    while (now() - since < 0.02)
        wire_free(peer_status(clock));
    peer_tick(clock);
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_non_null(r);
    assert_in_range(atoll(r->text.data), 1, LONG - SHORT - 20);
    wire_free(r);
    peer_close(clock);
    peer_close(q);
    peer_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_takeover, box_setup, box_teardown),
    };
    return cmocka_run_group_tests_name("daemon/deadline", tests, NULL, NULL);
}
