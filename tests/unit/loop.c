/* loop.c - timers and watched descriptors: a callback is called once, in the order of the times, and not after it was
 * freed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "daemon/loop.h"

static char order[16]; /* which functions were called */

static void note(char c)
{
    size_t n = strlen(order);
    assert_true(n + 1 < sizeof order);
    order[n] = c;
}

static void on_a(void *arg)
{
    (void)arg;
    note('a');
}

static void on_b(void *arg)
{
    (void)arg;
    note('b');
}

/* Sets the timer twice more. */
static void on_again(void *arg)
{
    struct timer **t = arg;
    note('r');
    if (strlen(order) < 3)
        assert_int_equal(timer_set(*t, 0), 0);
}

static void on_readable(void *arg)
{
    char c;
    assert_int_equal(read(*(int *)arg, &c, 1), 1);
    note(c);
}

static int setup(void **state)
{
    memset(order, 0, sizeof order);
    *state = event_base_new();
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    event_base_free(*state);
    return 0;
}

/* Sets two timers at once, the later one first: within an iteration the loop's clock stands still. */
static void on_begin(void *arg)
{
    struct timer **t = arg;
    assert_int_equal(timer_set(t[0], 20), 0);
    assert_int_equal(timer_set(t[1], 0), 0);
    assert_true(timer_is_set(t[0]));
}

static void test_order(void **state)
{
    struct timer *t[] = {timer_new(*state, on_a, NULL), timer_new(*state, on_b, NULL)};
    struct timer *begin = timer_new(*state, on_begin, t);
    assert_true(t[0] && t[1] && begin);
    assert_false(timer_is_set(t[0]));
    assert_int_equal(timer_set(begin, 0), 0);
    event_base_dispatch(*state); /* returns when nothing is left to wait for */
    assert_string_equal(order, "ba");
    assert_false(timer_is_set(t[0]));
    timer_free(t[0]);
    timer_free(t[1]);
    timer_free(begin);
}

static void test_set_anew(void **state)
{
    struct timer *a = timer_new(*state, on_a, NULL), *b = timer_new(*state, on_b, NULL);
    assert_int_equal(timer_set(a, 3600 * 1000), 0);
    assert_int_equal(timer_set(a, 0), 0); /* replaces the timer of an hour */
    assert_int_equal(timer_set(b, 0), 0);
    timer_clear(b);
    assert_false(timer_is_set(b));
    event_base_dispatch(*state);
    assert_string_equal(order, "a");
    assert_int_equal(timer_set(b, 0), 0);
    timer_free(b); /* frees a timer that is set */
    timer_free(a);
    timer_free(NULL);
    event_base_dispatch(*state);
    assert_string_equal(order, "a");
}

static void test_set_from_itself(void **state)
{
    struct timer *t = NULL;
    t = timer_new(*state, on_again, &t);
    assert_int_equal(timer_set(t, 0), 0);
    event_base_dispatch(*state);
    assert_string_equal(order, "rrr");
    timer_free(t);
}

static void test_watch(void **state)
{
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    struct watch *w = watch_new(*state, fd[0], on_readable, &fd[0]);
    assert_non_null(w);
    assert_int_equal(write(fd[1], "xy", 2), 2); /* one byte is read each time */
    event_base_loop(*state, EVLOOP_ONCE);
    event_base_loop(*state, EVLOOP_ONCE);
    assert_string_equal(order, "xy");
    assert_int_equal(write(fd[1], "z", 1), 1);
    watch_free(w);
    watch_free(NULL);
    event_base_dispatch(*state);
    assert_string_equal(order, "xy");
    close(fd[0]); /* the caller still owns it */
    close(fd[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_set_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(test_set_from_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(test_watch, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
