/*
 * engine-process.c - the supervision of a child, with a shell in place of the engine. A child that is to stay runs
 * `sleep`, and every case ends by killing it; the cases wait for nothing but the loop's events.
 */
#include "daemon/supervisor/engine-process.h"

#include <errno.h>
#include <event2/event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static const char stay[] = "exec sleep 600";

struct box {
    struct event_base *base;
    struct engine_process *p;
    int fd;
    bool needed;         /* the answer of is_needed */
    char said[64];       /* the text that last_words read */
    int exits, restarts; /* how often these callbacks were called */
    struct hearth_err why;
};

static bool is_needed(void *arg)
{
    return ((struct box *)arg)->needed;
}

static void last_words(void *arg)
{
    struct box *b = arg;
    assert_int_equal(b->exits, 0); /* called before the exit is counted */
    ssize_t n = read(b->fd, b->said, sizeof b->said - 1);
    b->said[n > 0 ? n : 0] = '\0';
}

static void exited(void *arg, const struct hearth_err *e)
{
    struct box *b = arg;
    b->why = *e;
    b->exits++;
    close(b->fd);
    b->fd = -1;
    event_base_loopbreak(b->base);
}

static void restart(void *arg)
{
    struct box *b = arg;
    b->restarts++;
    event_base_loopbreak(b->base);
}

static const struct engine_process_calls calls = {is_needed, last_words, exited, restart};

static int setup(void **state)
{
    struct box *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->fd = -1;
    b->base = event_base_new();
    assert_non_null(b->base);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct box *b = *state;
    engine_process_free(b->p);
    if (b->fd >= 0)
        close(b->fd);
    event_base_free(b->base);
    free(b);
    return 0;
}

static void start(struct box *b)
{
    struct hearth_err e;
    assert_int_equal(engine_process_start(b->p, &b->fd, &e), 0);
    assert_int_equal(engine_process_state(b->p), ENGINE_STARTING);
    assert_true(engine_process_pid(b->p) > 0);
    assert_false(engine_process_was_ready(b->p));
    b->exits = 0;
}

static void start_script(struct box *b, const char *script)
{
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    struct hearth_err e;
    assert_int_equal(engine_process_new(&b->p, b->base, argv, &calls, b, &e), 0);
    start(b);
}

/* Runs the loop until the child's exit is reported, with that state and that error. */
static void expect_exit(struct box *b, enum engine_state state, const char *why)
{
    event_base_dispatch(b->base);
    assert_int_equal(b->exits, 1);
    assert_int_equal(b->why.code, HEARTH_EENGINE);
    assert_string_equal(b->why.msg, why);
    assert_int_equal(engine_process_state(b->p), state);
    assert_int_equal(engine_process_pid(b->p), 0);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void no_program_is_an_error_of_the_start(void **state)
{
    struct box *b = *state;
    const char *const argv[] = {NULL};
    struct hearth_err e;
    assert_int_equal(engine_process_new(&b->p, b->base, argv, &calls, b, &e), 0);
    assert_int_equal(engine_process_start(b->p, &b->fd, &e), HEARTH_EENGINE);
    assert_non_null(strstr(e.msg, "hearth-engine was not found"));
    assert_int_equal(engine_process_state(b->p), ENGINE_ABSENT);
    assert_int_equal(engine_process_restarts(b->p), 0);
}

static void a_program_that_cannot_be_executed_crashes(void **state)
{
    struct box *b = *state;
    const char *const argv[] = {"/nonexistent/hearth-engine", NULL};
    struct hearth_err e;
    assert_int_equal(engine_process_new(&b->p, b->base, argv, &calls, b, &e), 0);
    start(b);
    expect_exit(b, ENGINE_BACKOFF,
                "the engine cannot be started: /nonexistent/hearth-engine: No such file or directory; "
                "see \"engine\" in hearth.conf(5)");
}

static void last_words_are_read_before_the_exit_counts(void **state)
{
    struct box *b = *state;
    start_script(b, "echo a token >&3; exit 1");
    expect_exit(b, ENGINE_BACKOFF, "the engine exited with status 1 before it was ready");
    assert_string_equal(b->said, "a token\n");
}

static void a_clean_exit_is_a_crash_only_where_calls_wait(void **state)
{
    struct box *b = *state;
    start_script(b, "exit 0");
    engine_process_ready(b->p);
    assert_int_equal(engine_process_state(b->p), ENGINE_RUNNING);
    expect_exit(b, ENGINE_ABSENT, "the engine exited with status 0");
    start(b);
    engine_process_ready(b->p);
    b->needed = true;
    expect_exit(b, ENGINE_BACKOFF, "the engine exited with status 0");
    assert_true(engine_process_was_ready(b->p)); /* the last engine was */
    assert_int_equal(b->restarts, 0);
}

/* An engine that has nothing to hold leaves by itself after its link is closed; its exit is not reported, however it
 * ends. */
static void one_that_leaves_is_not_missed(void **state)
{
    struct box *b = *state;
    start_script(b, "read x <&3; exit 1");
    for (int i = 0; i < 2; i++) {
        engine_process_ready(b->p);
        b->needed = true; /* calls that arrived since then wait for the next engine */
        close(b->fd);
        b->fd = -1;
        engine_process_leave(b->p);
        assert_int_equal(engine_process_state(b->p), ENGINE_LEAVING);
        event_base_dispatch(b->base);
        assert_int_equal(b->exits, 0);
        assert_int_equal(b->restarts, i + 1);
        assert_int_equal(engine_process_state(b->p), ENGINE_ABSENT);
        start(b);
        assert_int_equal(engine_process_restarts(b->p), 0);
    }
    expect_exit(b, ENGINE_BACKOFF,
                "the engine exited with status 1 before it was ready"); /* there is nothing to read */
}

static void every_crash_doubles_the_back_off(void **state)
{
    struct box *b = *state;
    start_script(b, "exit 1");
    for (int i = 0; i < 3; i++) {
        int64_t from = now_ms(); /* before the wait begins, in the next iterations of the loop */
        expect_exit(b, ENGINE_BACKOFF, "the engine exited with status 1 before it was ready");
        event_base_dispatch(b->base);
        assert_true(now_ms() - from >= (100 << i) - 5); /* the loop's clock is coarse */
        assert_int_equal(b->restarts, i + 1);
        assert_int_equal(engine_process_state(b->p), ENGINE_ABSENT);
        assert_int_equal(engine_process_restarts(b->p), i);
        start(b);
    }
}

static void what_it_is_killed_for_is_its_error(void **state)
{
    struct box *b = *state;
    start_script(b, stay);
    assert_false(engine_process_has_failed(b->p));
    engine_process_fail(b->p, "it speaks version %d", 9);
    assert_true(engine_process_has_failed(b->p));
    engine_process_kill(b->p);
    expect_exit(b, ENGINE_BACKOFF, "the engine failed before it was ready: it speaks version 9");
    start(b);
    assert_false(engine_process_has_failed(b->p)); /* it was the previous engine that failed */
    engine_process_ready(b->p);
    kill(engine_process_pid(b->p), SIGKILL);
    expect_exit(b, ENGINE_BACKOFF, "the engine was killed by signal 9");
}

static void one_that_is_stopped_is_not_missed(void **state)
{
    struct box *b = *state;
    start_script(b, stay);
    b->needed = true;
    engine_process_stop(b->p, false);
    assert_int_equal(engine_process_state(b->p), ENGINE_STOPPING);
    expect_exit(b, ENGINE_ABSENT, "the engine was killed by signal 9 before it was ready");
}

/* The child's end of the link is non-blocking, so it polls until it is answered. */
static void one_that_was_told_to_exit_is_left_to_do_so(void **state)
{
    struct box *b = *state;
    start_script(b, "until read word <&3; do :; done 2>/dev/null; exit 0");
    engine_process_stop(b->p, true);
    engine_process_kill(b->p);
    assert_int_equal(write(b->fd, "exit\n", 5), 5);
    expect_exit(b, ENGINE_ABSENT, "the engine exited with status 0 before it was ready");
}

static void a_stop_during_the_back_off_ends_it(void **state)
{
    struct box *b = *state;
    start_script(b, "exit 1");
    expect_exit(b, ENGINE_BACKOFF, "the engine exited with status 1 before it was ready");
    int events = event_base_get_num_events(b->base, EVENT_BASE_COUNT_ADDED);
    engine_process_stop(b->p, false);
    assert_int_equal(engine_process_state(b->p), ENGINE_ABSENT);
    assert_int_equal(event_base_get_num_events(b->base, EVENT_BASE_COUNT_ADDED), events - 1); /* the timer is off */
}

static void freeing_it_leaves_no_child(void **state)
{
    struct box *b = *state;
    start_script(b, stay);
    pid_t pid = engine_process_pid(b->p);
    engine_process_free(b->p);
    b->p = NULL;
    assert_int_equal(waitpid(pid, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

int main(void)
{
#define CASE(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(no_program_is_an_error_of_the_start),
        CASE(a_program_that_cannot_be_executed_crashes),
        CASE(last_words_are_read_before_the_exit_counts),
        CASE(a_clean_exit_is_a_crash_only_where_calls_wait),
        CASE(one_that_leaves_is_not_missed),
        CASE(every_crash_doubles_the_back_off),
        CASE(what_it_is_killed_for_is_its_error),
        CASE(one_that_is_stopped_is_not_missed),
        CASE(one_that_was_told_to_exit_is_left_to_do_so),
        CASE(a_stop_during_the_back_off_ends_it),
        CASE(freeing_it_leaves_no_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
