/* deadline.c - deadline_ms ends a generation that has no token by then, wherever it waits. */
#include "config.h"

#include <signal.h>
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

/* An engine that is stopped and goes on later, which is not replaced meanwhile: what has a token goes on then, what has
 * none is answered, and nothing of it is left but its place among its user's streams. */
static void test_silent_engine(void **state)
{
    struct box *b = *state;
    box_configure(b, "streams_per_uid = 2\n");
    box_start(b);
    struct peer *p = peer_open(b), *begun = peer_open(b), *q = peer_open(b);
    struct wire_generate_result *r = run(p, "n=1", "s"); /* 3 + 1 */
    wire_free(r);
    struct wire_status_result *st = peer_status(p);
    pid_t engine = (pid_t)st->engine.pid;
    wire_free(st);
    uint32_t id = ask(begun, "gate n=2", NULL, "begun", 2000), late, next;
    peer_await_begin(begun, 1);
    peer_tick(p);
    peer_await_tokens(begun, 1);
    assert_int_equal(kill(engine, SIGSTOP), 0);
    late = ask(p, "n=2", "s", "late", 2000);
    expect_late(p, late, "2000 ms");
    struct wire_session_show_result *show = peer_show(q, "s");
    assert_false(show->session.busy);
    wire_free(show);
    expect_late(q, ask(q, "n=1", "s", NULL, SHORT), "other streams"); /* or there would be no limit on what waits */
    next = ask(q, "n=1", "s", "late", 0);                             /* what has failed may be sent again */
    assert_int_equal(peer_sessions(q), 1);
    assert_string_equal(q->queued, ":1 late:1");
    assert_int_equal(kill(engine, SIGCONT), 0);
    peer_expect_text(q, next, "t0 ");
    show = peer_show(q, "s");
    assert_int_equal(show->session.tokens, 4 + 4);
    wire_free(show);
    peer_tick(p);
    peer_tick(p);
    peer_expect_text(begun, id, "t0 t1 ");
    st = peer_status(p);
    assert_int_equal(st->streams, 0);
    wire_free(st);
    peer_close(q);
    peer_close(begun);
    peer_close(p);
}

/* One that was cancelled has its result at its deadline, too. */
static void test_cancelled(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *q = peer_open(b);
    uint32_t id = ask(p, "hang deaf", "s", "deaf", 300);
    peer_await_begin(p, 1);
    struct wire_cancel cancel = {.stream = -1, .request = "deaf"};
    wire_free(peer_call(q, WIRE_CANCEL, &cancel));
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_non_null(r);
    assert_string_equal(r->finish_reason, "cancelled");
    wire_free(r);
    wire_free(run(q, "n=1", "s"));
    peer_close(q);
    peer_close(p);
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
        cmocka_unit_test_setup_teardown(test_silent_engine, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_cancelled, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_takeover, box_setup, box_teardown),
    };
    return cmocka_run_group_tests_name("daemon/deadline", tests, NULL, NULL);
}
