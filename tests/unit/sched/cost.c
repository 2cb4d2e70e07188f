/* cost.c - the cost model against machines whose true costs are known to the test: noisy, paused, changing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "daemon/engine/sched/cost.h"

static uint64_t rng_state;
static double rnd(void) /* [0, 1) */
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(rng_state >> 11) / 9007199254740992.0;
}

/* A machine: seconds by the formula, with relative noise. */
struct machine {
    double step, decode, prompt, key, noise;
};
static const struct machine cpu = {50e-3, 5e-3, 12e-3, 2e-6, 0.2}, gpu = {3e-3, 20e-6, 25e-6, 1e-9, 0.05};

static double time_of(const struct machine *m, const struct cost_work *w)
{
    return m->step + m->decode * w->decode + m->prompt * w->prompt + m->key * w->keys;
}
static double measure(const struct machine *m, const struct cost_work *w)
{
    return time_of(m, w) * (1 + m->noise * (2 * rnd() - 1));
}
static struct cost_work any(uint32_t decode, uint32_t prompt)
{
    struct cost_work w = {.decode = (uint32_t)(rnd() * (decode + 1))};
    if (rnd() < 0.5) /* half of the steps have prompt rows */
        w.prompt = (uint32_t)(rnd() * (prompt + 1));
    if (!w.decode && !w.prompt)
        w.decode = 1;
    w.keys = cost_keys((uint32_t)(rnd() * 8000), w.prompt) + w.decode * rnd() * 8000;
    return w;
}
static void train(struct cost *c, const struct machine *m, uint32_t n, uint32_t decode, uint32_t prompt)
{
    for (uint32_t i = 0; i < n; i++) {
        struct cost_work w = any(decode, prompt);
        cost_learn(c, &w, measure(m, &w));
    }
}
static void assert_within(double got, double want, double share)
{
    if (!(got > want * (1 - share) && got < want * (1 + share)))
        fail_msg("%g is not within %g of %g", got, share, want);
}
static void assert_knows(const struct cost *c, const struct machine *m, double share)
{
    static const struct cost_work of[] = {{1, 0, 500}, {16, 0, 16000}, {0, 256, 256 * 128}, {8, 64, 64 * 4000}};
    for (unsigned i = 0; i < sizeof of / sizeof *of; i++)
        assert_within(cost_of(c, &of[i]), time_of(m, &of[i]), share);
}

static void learns_from_mixed_steps(void **state)
{
    (void)state;
    const struct machine *of[] = {&cpu, &gpu};
    for (int i = 0; i < 2; i++) {
        struct cost c = {0};
        rng_state = 7 + (uint64_t)i;
        assert_false(cost_known(&c));
        train(&c, of[i], 200, 16, 256);
        assert_true(cost_known(&c));
        assert_knows(&c, of[i], 0.15);
    }
}

/* One step is enough to size the next one: its whole time is attributed to its rows, so that the next one is not too
 * long. */
static void the_first_step_is_believed(void **state)
{
    (void)state;
    struct cost c = {0};
    struct cost_work w = {.prompt = 32, .keys = cost_keys(0, 32)};
    cost_learn(&c, &w, time_of(&cpu, &w));
    uint32_t n = cost_prompt_rows(&c, 32, 0.4, 256);
    struct cost_work next = {.prompt = n, .keys = cost_keys(32, n)};
    assert_true(n >= 16);
    assert_true(time_of(&cpu, &next) <= 0.5);
}

static void hours_of_decoding_forget_no_prompt(void **state)
{
    (void)state;
    struct cost c = {0};
    rng_state = 3;
    train(&c, &cpu, 100, 8, 256);
    train(&c, &cpu, 5000, 8, 0);
    assert_knows(&c, &cpu, 0.2);
}

/* The machine is suspended during one step; later it becomes half as fast. */
static void pauses_pass_and_changes_are_seen(void **state)
{
    (void)state;
    struct cost c = {0};
    struct machine slow = {2 * cpu.step, 2 * cpu.decode, 2 * cpu.prompt, 2 * cpu.key, cpu.noise};
    rng_state = 11;
    train(&c, &cpu, 100, 8, 256);
    struct cost_work w = any(8, 256);
    cost_learn(&c, &w, 1000 * time_of(&cpu, &w));
    assert_knows(&c, &cpu, 0.25);
    train(&c, &slow, 150, 8, 256);
    assert_knows(&c, &slow, 0.25);
}

/* The number of rows that fit is the largest possible at any position, and falls with the number of keys. */
static void rows_fit_their_time(void **state)
{
    (void)state;
    struct cost c = {.slope = {[COST_STEP] = 50e-3, [COST_PROMPT] = 1e-3, [COST_KEY] = 1e-7}};
    uint32_t before = UINT32_MAX;
    for (uint32_t pos = 0; pos < 100000; pos += 9999) {
        uint32_t n = cost_prompt_rows(&c, pos, 0.1, 512);
        assert_true(n > 0 && n <= before);
        assert_true(cost_of_prompt(&c, pos, n) <= 0.1 && cost_of_prompt(&c, pos, n + 1) > 0.1);
        before = n;
    }
    assert_int_equal(cost_prompt_rows(&c, 0, 1e-4, 512), 0);
    assert_int_equal(cost_prompt_rows(&c, 0, 1e9, 512), 512);
    assert_int_equal(cost_prompt_rows(&c, 0, 1, 0), 0);
}

/* For steps whose beginning or end was not observed there are only bounds. Bounds that the estimate satisfies teach
 * nothing; others bring an estimate down, or up; and where nothing is known the upper bound is taken. */
static void bounds_correct_and_do_not_measure(void **state)
{
    (void)state;
    struct cost c = {0};
    struct cost_work w = {.decode = 16, .prompt = 496, .keys = cost_keys(4000, 496)};
    double takes = time_of(&gpu, &w);
    cost_learn_between(&c, &w, 0, takes);
    assert_within(cost_of(&c, &w), takes, 0.01);
    struct cost before = c;
    for (int i = 0; i < 1000; i++)
        cost_learn_between(&c, &w, i % 2 ? 0 : takes / 2, takes * (1 + i % 7));
    assert_memory_equal(&c, &before, sizeof c);
    for (int i = 0; i < 60; i++)
        cost_learn_between(&c, &w, 0, takes / 2);
    assert_within(cost_of(&c, &w), takes / 2, 0.1);
    for (int i = 0; i < 200; i++)
        cost_learn_between(&c, &w, 2 * takes, 3 * takes);
    assert_within(cost_of(&c, &w), 2 * takes, 0.1);
    cost_learn_between(&c, &w, takes, takes); /* an exact measurement */
    assert_true(cost_of(&c, &w) < 1.9 * takes);
}

/* Impossible times teach nothing. */
static void nonsense_is_ignored(void **state)
{
    (void)state;
    struct cost c = {0};
    static const double seconds[] = {0, -1, 1.0 / 0.0, 0.0 / 0.0};
    struct cost_work w = {.prompt = 4, .keys = 10}, none = {0};
    for (int i = 0; i < 4; i++)
        cost_learn(&c, &w, seconds[i]);
    cost_learn(&c, &none, 1);
    assert_false(cost_known(&c));
    assert_true(cost_of(&c, &w) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_from_mixed_steps),
        cmocka_unit_test(the_first_step_is_believed),
        cmocka_unit_test(hours_of_decoding_forget_no_prompt),
        cmocka_unit_test(pauses_pass_and_changes_are_seen),
        cmocka_unit_test(rows_fit_their_time),
        cmocka_unit_test(bounds_correct_and_do_not_measure),
        cmocka_unit_test(nonsense_is_ignored),
    };
    return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}
