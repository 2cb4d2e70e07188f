/*
 * trace.c - streams.trace: the life of a stream, while it runs, after its end, and across an engine's death; its owner,
 * and its bounds.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/daemon/harness.h"

static struct wire_trace_result *traced(struct peer *p, int64_t stream)
{
    struct wire_streams_trace t = {.stream = stream};
    return peer_call(p, WIRE_STREAMS_TRACE, &t);
}

static const char *field(const struct wire_trace_event *ev, const char *name)
{
    for (size_t i = 0; i < ev->n_fields; i++)
        if (!strcmp(ev->fields[i].name, name))
            return ev->fields[i].value;
    return NULL;
}

/* Checks the stages in order, without the states: "created submitted ...". */
static void assert_stages(const struct wire_trace_result *r, const char *want)
{
    char all[1024] = "";
    for (size_t i = 0; i < r->n_events; i++)
        if (strcmp(r->events[i].stage, "state"))
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", *all ? " " : "", r->events[i].stage);
    assert_string_equal(all, want);
}

static size_t count(const struct wire_trace_result *r, const char *stage)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_events; i++)
        n += !strcmp(r->events[i].stage, stage);
    return n;
}

static const struct wire_trace_event *first(const struct wire_trace_result *r, const char *stage)
{
    for (size_t i = 0; i < r->n_events; i++)
        if (!strcmp(r->events[i].stage, stage))
            return &r->events[i];
    fail_msg("no stage %s", stage);
    return NULL;
}

static void assert_in_time(const struct wire_trace_result *r)
{
    for (size_t i = 0; i < r->n_events; i++) {
        assert_true(r->events[i].at > 1.7e9);
        assert_true(i == 0 || r->events[i].at >= r->events[i - 1].at);
        assert_string_equal(r->events[i].where, r->events[i].engine ? "engine" : "hearthd");
    }
}

static void test_running_and_ended(void **state)
{
    struct peer *p = peer_open(*state), *q = peer_open(*state);
    struct wire_generate g = request("gate n=2", "one");
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    /* The fake engine's clock stands at 1 s after boot, so that its events come first. */
    struct wire_trace_result *r = traced(q, p->stream);
    assert_stages(r, "received created submitted");
    assert_string_equal(field(first(r, "received"), "prompt"), "8");
    assert_string_equal(field(first(r, "received"), "seq"), "1");
    wire_free(r);
    for (int i = 0; i < 3; i++)
        peer_tick(p);
    struct hearth_err e = {0};
    wire_free(peer_answer(p, id, WIRE_GENERATE, &e));
    r = traced(q, p->stream);
    assert_stages(r, "received created submitted first-token ended committed");
    assert_string_equal(field(first(r, "ended"), "reason"), "stop");
    assert_string_equal(field(first(r, "ended"), "completion"), "2");
    assert_int_equal(r->lost, 0);
    assert_true(first(r, "received")->engine > 0);
    assert_string_equal(first(r, "created")->where, "hearthd");
    wire_free(r);
    peer_close(p);
    peer_close(q);
}

static void test_unknown(void **state)
{
    struct peer *p = peer_open(*state);
    for (int64_t i = 0; i < 3; i++)
        peer_refused(p, WIRE_STREAMS_TRACE, &(struct wire_streams_trace){.stream = i}, HEARTH_ENOSTREAM, "no trace");
    wire_free(run(p, "n=1", NULL));
    wire_free(traced(p, 1));
    peer_refused(p, WIRE_STREAMS_TRACE, &(struct wire_streams_trace){.stream = 2}, HEARTH_ENOSTREAM, "no trace");
    peer_close(p);
}

/* The death of the engine and the work of the next one are recorded. */
static void test_engine_dies(void **state)
{
    struct peer *p = peer_open(*state);
    wire_free(run(p, "n=4 die=2", NULL));
    struct wire_trace_result *r = traced(p, 1);
    assert_in_time(r);
    assert_int_equal(count(r, "submitted"), 2);
    assert_int_equal(count(r, "received"), 2);
    assert_int_equal(count(r, "first-token"), 1);
    assert_string_equal(field(first(r, "engine-died"), "deaths"), "1");
    assert_string_equal(field(first(r, "engine-died"), "completion"), "2");
    int64_t engines[2], n = 0;
    for (size_t i = 0; i < r->n_events; i++)
        if (!strcmp(r->events[i].stage, "received"))
            engines[n++] = r->events[i].engine;
    assert_int_not_equal(engines[0], engines[1]);
    wire_free(r);
    peer_close(p);
}

/* An engine that sends much nonsense: only known stages of an engine are kept, and a bounded number per stream. */
static void test_bounded(void **state)
{
    struct peer *p = peer_open(*state);
    wire_free(run(p, "n=1 traces=5000", NULL));
    struct wire_trace_result *r = traced(p, 1);
    assert_int_equal(r->n_events, 128);
    assert_true(r->lost > 4800 && r->lost < 5100);
    assert_int_equal(count(r, "nonsense"), 0);
    assert_int_equal(count(r, "created"), 1);
    assert_int_equal(count(r, "ended"), 1);
    assert_string_equal(field(first(r, "finished"), "reason"), "x");
    peer_refused(p, WIRE_STREAMS_TRACE, &(struct wire_streams_trace){.stream = 1001}, HEARTH_ENOSTREAM, "no trace");
    wire_free(r);
    for (int i = 0; i < 64; i++) /* this many streams of a user are remembered */
        wire_free(run(p, "n=1", NULL));
    peer_refused(p, WIRE_STREAMS_TRACE, &(struct wire_streams_trace){.stream = 1}, HEARTH_ENOSTREAM, "no trace");
    wire_free(traced(p, 2));
    wire_free(traced(p, 65));
    peer_close(p);
}

static void other(const struct box *b)
{
    if (setgid(65534) != 0 || setuid(65534) != 0)
        _exit(1);
    struct peer *p = peer_open(b);
    peer_refused(p, WIRE_STREAMS_TRACE, &(struct wire_streams_trace){.stream = 1}, HEARTH_ENOSTREAM, "no trace");
    wire_free(run(p, "n=1", NULL));
    wire_free(traced(p, 2));
    _exit(0);
}

static void test_other_uid(void **state)
{
    struct box *b = *state;
    if (geteuid() != 0)
        skip();
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=1", "mine"));
    box_open_to_all(b);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        other(b);
    assert_int_equal(wait_exit(pid), 0);
    wire_free(traced(p, 2)); /* root sees those of all users */
    peer_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_running_and_ended, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_unknown, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_engine_dies, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_bounded, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_other_uid, box_setup, box_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
