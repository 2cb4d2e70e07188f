/*
 * ahead.c - clients that send the same tokens at the same time: the tokens are computed once, and no request waits for
 * a computation that will not happen. sched-world.h has the model of the device, which shows every page that was used
 * too early.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/sched/sched-world.h"

enum { COMMON = 600, WHOLE = 640 };

static int32_t prompt[MAX_LEN];

/* A prompt: the common beginning, then ids that depend on n. */
static struct request *ask(int64_t uid, int64_t client, enum seq_class class, uint32_t n, uint32_t common,
                           int32_t number)
{
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = i < common ? (int32_t)(i * 7 % 3) : number;
    return submit_as(&w.pool[0], uid, client, class, prompt, n, 8);
}

static void run_all(uint32_t in_flight)
{
    while (turn(in_flight))
        w.now += 1e-3;
    assert_int_equal(w.n_done, w.n_req);
    for (uint32_t i = 0; i < w.n_req; i++)
        check_tokens(&w.req[i]);
}

/* With steps of any size, and with several in flight. */
static void is_computed_once(void **state)
{
    (void)state;
    for (uint32_t rows = 64; rows <= 1024; rows *= 2)
        for (uint32_t in_flight = 1; in_flight <= IN_FLIGHT_MAX; in_flight++) {
            world_init(1, 1, 256, rows, rows);
            for (int32_t i = 0; i < 4; i++)
                ask(7, i, CLASS_NORMAL, WHOLE, COMMON, i + 1);
            run_all(in_flight);
            /* The beginning of a page may be computed again. */
            assert_in_range(w.computed, WHOLE + 3 * (WHOLE - COMMON), WHOLE + 3 * (WHOLE - COMMON / KV_PAGE * KV_PAGE));
            world_fini();
        }
}

/* ... also if a timeline can be continued only from a few places: the place that others wait for is kept. */
static void is_computed_once_of_states(void **state)
{
    (void)state;
    world_state_pages = 64;
    for (world_states = STATES_AT_ENDS; world_states <= STATES_WITHIN; world_states++)
        for (uint32_t rows = 64; rows <= 512; rows *= 2)
            for (uint32_t in_flight = 1; in_flight <= IN_FLIGHT_MAX; in_flight++) {
                world_init(1, 1, 256, rows, rows);
                for (int32_t i = 0; i < 4; i++)
                    ask(7, i, CLASS_NORMAL, WHOLE, COMMON, i + 1);
                run_all(in_flight);
                assert_int_equal(w.computed, WHOLE + 3 * (WHOLE - COMMON / KV_PAGE * KV_PAGE));
                world_fini();
            }
    world_states = NO_STATES;
    world_state_pages = 0;
}

static void is_of_one_user(void **state)
{
    (void)state;
    world_init(2, 1, 256, 256, 256);
    ask(7, 0, CLASS_NORMAL, WHOLE, COMMON, 1);
    ask(8, 0, CLASS_NORMAL, WHOLE, COMMON, 2);
    run_all(1);
    assert_int_equal(w.computed, 2 * WHOLE);
    world_fini();
}

/* If the first request is cancelled, the next one computes the tokens, and the others wait for that one. */
static void the_first_goes(void **state)
{
    (void)state;
    for (uint32_t turns = 1; turns < 12; turns++) {
        world_init(3, 1, 256, 64, 64);
        struct request *first = ask(7, 0, CLASS_NORMAL, WHOLE, COMMON, 1);
        for (int32_t i = 1; i < 4; i++)
            ask(7, i, CLASS_NORMAL, WHOLE, COMMON, i + 1);
        for (uint32_t t = 0; t < turns; t++)
            turn(1);
        if (first->live)
            end(first);
        run_all(1);
        uint32_t had = first->computed / KV_PAGE * KV_PAGE;
        assert_true(w.computed <=
                    first->computed + (WHOLE - (had < COMMON ? had : COMMON)) + 3 * (WHOLE - COMMON + KV_PAGE));
        world_fini();
    }
}

/* No request waits for one that is served after it. */
static void a_lower_class_is_not_waited_for(void **state)
{
    (void)state;
    world_init(4, 1, 256, 64, 64);
    struct request *slow = ask(7, 0, CLASS_BACKGROUND, WHOLE, COMMON, 1);
    turn(1);
    turn(1);
    struct request *fast = ask(7, 1, CLASS_INTERACTIVE, WHOLE, COMMON, 2);
    while (fast->n_got == 0 && turn(1))
        w.now += 1e-3;
    assert_int_equal(fast->n_got, 1);
    assert_int_equal(slow->n_got, 0);
    assert_true(slow->seq->n_computed < COMMON);
    run_all(1);
    world_fini();
}

/* A request that waits for a part of a longer prompt goes on when that part is computed. */
static void the_rest_is_not_waited_for(void **state)
{
    (void)state;
    world_init(5, 1, 256, 256, 256);
    struct request *first = ask(7, 0, CLASS_NORMAL, 690, 690, 1);
    turn(1); /* its first chunk is in flight */
    struct request *second = ask(7, 1, CLASS_NORMAL, 560, 544, 2);
    while (second->n_got == 0 && turn(1))
        w.now += 1e-3;
    assert_int_equal(second->seq->n_reused, 544);
    assert_true(first->seq->n_computed >= 544);
    run_all(1);
    assert_int_equal(w.computed, 690 + 16);
    world_fini();
}

/* If the common part is less than a step, it is computed twice. */
static void little_is_not_waited_for(void **state)
{
    (void)state;
    world_init(6, 1, 256, 64, 64);
    ask(7, 0, CLASS_NORMAL, WHOLE, 48, 1);
    struct request *second = ask(7, 1, CLASS_NORMAL, 60, 48, 2);
    while (second->n_got == 0 && turn(1))
        w.now += 1e-3;
    assert_int_equal(second->seq->n_reused, 0);
    run_all(1);
    world_fini();
}

/* Requests behind a waiting one pass it. */
static void others_pass(void **state)
{
    (void)state;
    world_init(7, 1, 256, 64, 64);
    ask(7, 0, CLASS_NORMAL, WHOLE, COMMON, 1);
    struct request *waits = ask(7, 1, CLASS_NORMAL, WHOLE, COMMON, 2);
    struct request *other = ask(7, 2, CLASS_NORMAL, 40, 0, 3);
    while (other->n_got == 0 && turn(1))
        w.now += 1e-3;
    assert_false(waits->seq->n_computed);
    run_all(1);
    world_fini();
}

/* Many documents, many clients, cancellations and little room: all requests end, with their own tokens. */
static void random_crowds(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) { /* from the 40th on there are few places to continue from */
        bool few = seed >= 40;
        world_states = few && seed % 4 ? 1 + seed % 2 : NO_STATES;
        world_window = few && !world_states ? 1 + (uint32_t)(seed * 11 % 60) : 0;
        world_init(seed, 1, seed % 3 ? 256 : 60, 64 + rnd(400), 16 + rnd(64));
        for (int t = 0; t < 1500; t++) {
            if (w.n_req < 120 && rnd(4) == 0) {
                uint32_t n = 17 + rnd(few ? 660 : 400), common = few && rnd(2) ? n - rnd(n < 60 ? n : 60) : rnd(n);
                for (uint32_t i = 0; i < n; i++)
                    prompt[i] = i < common ? (int32_t)((i + 1) * (1 + t % 3) % 5) : (int32_t)rnd(4);
                submit_as(&w.pool[0], (int64_t)rnd(2), (int64_t)rnd(5), (enum seq_class)rnd(3), prompt, n, rnd(20));
            }
            w.now += 1e-3 * rnd(60);
            struct request *r = w.n_req ? &w.req[rnd(w.n_req)] : NULL;
            if (r && r->live && rnd(30) == 0)
                end(r);
            turn(1 + (uint32_t)(seed % IN_FLIGHT_MAX));
        }
        run_all(1 + (uint32_t)(seed % IN_FLIGHT_MAX));
        world_fini();
    }
    world_states = NO_STATES;
    world_window = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_computed_once),
        cmocka_unit_test(is_computed_once_of_states),
        cmocka_unit_test(is_of_one_user),
        cmocka_unit_test(the_first_goes),
        cmocka_unit_test(a_lower_class_is_not_waited_for),
        cmocka_unit_test(the_rest_is_not_waited_for),
        cmocka_unit_test(little_is_not_waited_for),
        cmocka_unit_test(others_pass),
        cmocka_unit_test(random_crowds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
