/*
 * lead.c - when the next step is planned, and what is learnt from a step's end, on a device whose times are known to
 * the test and with a clock that stands still in between. The host plans as the engine does: two steps ahead, or what
 * lead_left() allows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "daemon/engine/core/events.h"
#include "daemon/engine/core/lead.h"

static double now_s;

int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    (void)clock;
    t->tv_sec = (time_t)now_s;
    t->tv_nsec = (long)(1e9 * (now_s - floor(now_s)));
    return 0;
}

/* A GPU on which 16 streams decode, and the host that submits its steps. */
static const double submission = 4e-3, gap = 0.04;
enum { STREAMS = 16, ROWS = 496 };
static struct world {
    struct engine eng;
    struct model_entry m;
    struct model model;
    struct seq seq;
    double done[IN_FLIGHT_MAX]; /* when the device has finished the step in this place of the ring */
    double idle;                /* when it has finished all submitted steps */
} w;

static void begin_world(void)
{
    w = (struct world){.eng = {.max_in_flight = 4}};
    w.m.model = &w.model;
    w.m.group.pace = (struct sched_pace){.rows_first = 64, .gap = gap};
    w.seq.model = &w.m;
    now_s = 1000;
}

static struct cost_work work_at(uint32_t pos)
{
    return (struct cost_work){STREAMS, ROWS, cost_keys(pos, ROWS) + STREAMS * 200.0};
}

static double time_of(const struct cost_work *of)
{
    return (of->prompt ? 4e-3 : 3e-3) + 24e-6 * of->prompt + 3e-9 * of->keys;
}

static struct in_flight *place(uint32_t i)
{
    return &w.eng.in_flight[(w.eng.first_in_flight + i) % IN_FLIGHT_MAX];
}

static void submit(struct cost_work of, double takes)
{
    struct in_flight *f = place(w.eng.n_in_flight++);
    f->plan.group = &w.m.group;
    f->plan.work = of;
    f->plan.n_row = of.decode + of.prompt;
    f->plan.seq[0].seq = &w.seq;
    f->plan.expected = cost_known(&w.m.group.cost) ? cost_of(&w.m.group.cost, &of) : 0;
    f->begin = now_s;
    w.idle = w.done[f - w.eng.in_flight] = fmax(w.idle, now_s) + time_of(&of);
    now_s += takes;
    lead_submitted(&w.eng, f);
}

/* Waits for the oldest step in flight. */
static void finish(void)
{
    struct in_flight *f = place(0);
    double asked = now_s;
    now_s = fmax(now_s, w.done[f - w.eng.in_flight]);
    lead_learn(&w.eng, f, true, asked, now_s);
    w.eng.first_in_flight = (w.eng.first_in_flight + 1) % IN_FLIGHT_MAX;
    w.eng.n_in_flight--;
}

/* A long prompt of so many steps is read beside the streams. Returns the seconds for which the device was idle. */
static double read_prompt(uint32_t steps, double *longest_wait)
{
    double idle = 0;
    for (uint32_t i = 0; i < steps; i++) {
        double left = w.eng.n_in_flight ? lead_left(&w.eng) : 0;
        while (left > 0 && w.eng.n_in_flight > 1) {
            finish();
            left = lead_left(&w.eng);
        }
        *longest_wait = fmax(*longest_wait, left);
        now_s += fmax(0, left);
        if (w.eng.n_in_flight)
            idle += fmax(0, now_s - w.idle);
        submit(work_at(ROWS * i), submission);
        if (w.eng.n_in_flight == w.eng.max_in_flight)
            finish();
    }
    while (w.eng.n_in_flight)
        finish();
    return idle;
}

static void assert_knows(double share)
{
    for (uint32_t pos = 0; pos < 16000; pos += 5000) {
        struct cost_work of = work_at(pos);
        double got = cost_of(&w.m.group.cost, &of), want = time_of(&of);
        if (!(fabs(got / want - 1) <= share))
            fail_msg("at %u: %g, not %g", pos, got, want);
    }
}

/* No step is planned long before its turn, and the device never runs out of steps. */
static void a_step_is_planned_when_the_one_before_it_ends(void **state)
{
    (void)state;
    double longest = 0;
    begin_world();
    read_prompt(32, &longest);
    assert_knows(0.05);
    longest = 0;
    assert_true(read_prompt(32, &longest) == 0);
    struct cost_work last = work_at(30 * ROWS);
    assert_true(longest > time_of(&last) - submission - 8e-3);

    begin_world(); /* the cost of a step is not known yet: no wait */
    submit(work_at(0), submission);
    assert_true(lead_left(&w.eng) <= 0);
}

/* There is no wait for a prompt without decoding streams, nor for streams without a prompt. */
static void lone_prompts_and_streams_are_planned_ahead(void **state)
{
    (void)state;
    double longest = 0;
    struct cost_work lone = work_at(0), streams = work_at(0);
    begin_world();
    read_prompt(32, &longest);
    lone.decode = streams.prompt = 0;
    submit(lone, submission);
    submit(lone, submission);
    submit(streams, 0);
    assert_true(lead_left(&w.eng) <= 0);
    w.eng.in_flight[w.eng.first_in_flight].plan.users =
        true; /* there is one if several users' sequences are in the step */
    assert_true(lead_left(&w.eng) > 0);
    w.eng.in_flight[w.eng.first_in_flight].plan.users = false;
    submit(work_at(0), submission);
    assert_true(lead_left(&w.eng) > 0);
}

/* A long step of a prompt without streams has no second step queued behind it until an eighth of it is left, and the
 * device never runs out of steps: an arriving request waits for a step and an eighth at most. */
static void long_steps_of_lone_prompts_are_not_queued(void **state)
{
    (void)state;
    double idle = 0, most = 0;
    begin_world();
    for (uint32_t i = 0; i < 40; i++) {
        struct cost_work of = {0, 2048, cost_keys(2048 * i, 2048)};
        while (w.eng.n_in_flight > 1)
            finish();
        double left = w.eng.n_in_flight ? lead_left(&w.eng) : 0;
        now_s += fmax(0, left);
        if (i > 4) {
            idle += fmax(0, now_s - w.idle);
            most = fmax(most, (w.idle - now_s - submission) / time_of(&of));
        }
        submit(of, submission);
    }
    assert_true(idle == 0);
    assert_true(most < 0.15);
}

/* The host was delayed, and then finds three steps done at once: that does not mean that they took no time. */
static void ends_that_were_not_seen_are_no_measure(void **state)
{
    (void)state;
    double longest = 0;
    begin_world();
    read_prompt(64, &longest);
    for (int i = 0; i < 40; i++) {
        while (w.eng.n_in_flight < 3)
            submit(work_at(ROWS * (uint32_t)(i % 30)), submission);
        now_s = w.idle + 0.1;
        while (w.eng.n_in_flight)
            finish();
        assert_knows(0.05);
    }
    /* a submission that takes long, as when kernels are being tried, is not part of the step's time either */
    for (int i = 0; i < 40; i++) {
        submit(work_at(ROWS * (uint32_t)(i % 30)), 0.12);
        finish();
        assert_knows(0.05);
    }
}

/* An estimate that is far off recovers, in either direction, and meanwhile no wait is longer than the gap. */
static void estimates_recover(void **state)
{
    (void)state;
    static const double by[] = {30, 3, 1.0 / 3};
    for (int i = 0; i < 3; i++) {
        double longest = 0;
        begin_world();
        for (int k = 0; k < 10; k++) {
            struct cost_work of = work_at(ROWS * (uint32_t)k);
            cost_learn(&w.m.group.cost, &of, by[i] * time_of(&of));
        }
        for (int k = 0; k < 4; k++)
            read_prompt(32, &longest);
        assert_true(longest <= gap);
        assert_knows(0.1);
    }
}

/* Generated tokens are delivered while the next plan waits, and a command ends the wait. */
static void tokens_do_not_wait(void **state)
{
    (void)state;
    struct hearth_err err;
    begin_world();
    assert_int_equal(post_init(&w.eng.inbox, &err), 0);
    assert_int_equal(post_init(&w.eng.outbox, &err), 0);
    post_list_init(&w.eng.out);
    post_list_init(&w.eng.taken);
    w.eng.notified_at = now_s;
    engine_event_new(&w.eng, EV_STEP, sizeof(struct event_step));
    engine_notify(&w.eng, false);
    engine_take(&w.eng);
    assert_null(engine_next(&w.eng)); /* held back to be batched with others */
    assert_false(lead_wait(&w.eng, 1e-4));
    engine_take(&w.eng);
    struct engine_event *ev = engine_next(&w.eng);
    assert_non_null(ev);
    engine_event_free(ev);
    engine_wake(&w.eng);
    assert_true(lead_wait(&w.eng, 600));
    struct post_list got;
    post_list_init(&got);
    post_take(&w.eng.inbox, &got);
    free(post_list_pop(&got));
    post_fini(&w.eng.inbox);
    post_fini(&w.eng.outbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_planned_when_the_one_before_it_ends),
        cmocka_unit_test(lone_prompts_and_streams_are_planned_ahead),
        cmocka_unit_test(long_steps_of_lone_prompts_are_not_queued),
        cmocka_unit_test(ends_that_were_not_seen_are_no_measure),
        cmocka_unit_test(estimates_recover),
        cmocka_unit_test(tokens_do_not_wait),
    };
    return cmocka_run_group_tests_name("lead", tests, NULL, NULL);
}
