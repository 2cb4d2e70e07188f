/* clock-guard.c - when the wall clock is trusted: after jumps, across restarts, and with damaged rows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/retention/clock-guard.h"

enum { HOUR = 3600, DAY = 24 * HOUR };
static const double T = 1.8e9; /* an arbitrary day */

/* A clock that has run evenly for a long time up to `wall` and `boot`. */
static struct clock_guard steady(double wall, double boot)
{
    struct clock_guard a;
    clock_guard_init(&a, wall, 0, wall, boot);
    assert_true(clock_guard_update(&a, wall, boot));
    return a;
}

static void test_steady(void **state)
{
    (void)state;
    struct clock_guard a = steady(T, 100);
    for (int i = 1; i < 1000; i++)
        assert_true(clock_guard_update(&a, T + i * HOUR + i % 7, 100 + i * HOUR)); /* adjusted by seconds */
    assert_true(clock_guard_update(&a, T + 2000 * HOUR, 100 + 2000 * HOUR));       /* suspended: both clocks went on */
}

static void test_jumps(void **state)
{
    (void)state;
    static const double jumps[] = {HOUR + 1, -HOUR - 1, 10 * 365 * DAY, -T, 1e15};
    for (size_t i = 0; i < sizeof jumps / sizeof jumps[0]; i++) {
        struct clock_guard a = steady(T, 100);
        double wall = T + HOUR + jumps[i], boot = 100 + HOUR;
        assert_false(clock_guard_update(&a, wall, boot));
        /* The clock is trusted again after a day of agreement, not earlier. */
        for (int h = 1; h < 24; h++)
            assert_false(clock_guard_update(&a, wall + h * HOUR, boot + h * HOUR));
        assert_true(clock_guard_update(&a, wall + 24 * HOUR, boot + 24 * HOUR));
        /* Going back again is another jump. */
        assert_false(clock_guard_update(&a, T + 26 * HOUR, boot + 25 * HOUR));
    }
}

static void test_restarts(void **state)
{
    (void)state;
    struct clock_guard a;
    clock_guard_init(&a, 0, 0, T, 100); /* nothing was stored */
    assert_false(clock_guard_update(&a, T, 100));
    clock_guard_init(&a, T, 5 * HOUR, T + HOUR, 10); /* distrust survives a restart, and ends when its time is over */
    assert_false(clock_guard_update(&a, T + HOUR, 10));
    assert_false(clock_guard_update(&a, T + 5 * HOUR, 10 + 4 * HOUR));
    assert_true(clock_guard_update(&a, T + 6 * HOUR, 10 + 5 * HOUR));
    clock_guard_init(&a, T, 0, T + 6 * DAY, 10); /* a few days without the daemon are normal */
    assert_true(clock_guard_update(&a, T + 6 * DAY, 10));
    clock_guard_init(&a, T, 0, T + 8 * DAY, 10); /* more may mean a wrong date */
    assert_false(clock_guard_update(&a, T + 8 * DAY, 10));
    clock_guard_init(&a, T, 0, T - 2 * HOUR, 10); /* and so does a step back */
    assert_false(clock_guard_update(&a, T - 2 * HOUR, 10));
}

static void test_damaged(void **state)
{
    (void)state;
    static const double odd[] = {NAN, INFINITY, -INFINITY, -1, 1e300};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct clock_guard a;
        clock_guard_init(&a, T, odd[i], T, 10);
        assert_false(clock_guard_update(&a, T, 10));
        assert_true(clock_guard_update(&a, T + DAY, 10 + DAY)); /* for a day, not for ever */
        clock_guard_init(&a, odd[i], 0, T, 10);
        assert_false(clock_guard_update(&a, T, 10));
        assert_true(clock_guard_update(&a, T + DAY, 10 + DAY));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady),
        cmocka_unit_test(test_jumps),
        cmocka_unit_test(test_restarts),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
