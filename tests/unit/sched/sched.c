/*
 * sched.c - the scheduler under random workloads, and the time that its steps take; sched-world.h has the model of the
 * device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/sched/sched-world.h"

static void random_workloads(void **state)
{
    (void)state;
    for (uint64_t nth = 0; nth < 200; nth++) {
        uint64_t seed = nth % 100;
        world_short = nth >= 100;
        uint32_t max_in_flight = 1 + (uint32_t)(seed % IN_FLIGHT_MAX);
        world_states = seed < 60 ? NO_STATES : seed % 3 ? STATES_WITHIN : STATES_AT_ENDS;
        world_window = seed % 2 && !world_states ? 1 + (uint32_t)(seed * 11 % 60) : 0;
        world_long_from = seed % 5 > 2 ? 1 + (uint32_t)(seed * 7 % 120) : 0;
        world_init(seed, 1 + (uint32_t)(seed / 3 % 2), 22 + rnd(seed % 5 ? 200 : 10), 64 + rnd(100), 8 + rnd(50));
        for (int t = 0; t < 4000; t++) {
            if (w.n_req < 100 && rnd(6) == 0) {
                int32_t prompt[200];
                uint32_t n = 1 + rnd(rnd(3) ? 40 : 190), max = rnd(4) ? rnd(100) : rnd(2);
                const struct request *old = w.n_req ? &w.req[rnd(w.n_req)] : NULL;
                uint32_t k = 0;
                if (old && rnd(3)) /* continues an earlier one, sometimes within its completion */
                    for (; k < n && k < old->n_prompt + old->n_got; k++)
                        prompt[k] = k < old->n_prompt ? old->prompt[k] : old->got[k - old->n_prompt];
                for (; k < n; k++)
                    prompt[k] = (int32_t)rnd(4);
                submit_as(&w.pool[rnd(w.n_pool)], (int64_t)rnd(2), (int64_t)rnd(3), (enum seq_class)rnd(3), prompt, n,
                          max);
            }
            w.now += 1e-3 * rnd(100);
            if (rnd(40) == 0 && w.n_req) { /* cancelled in any state */
                struct request *r = &w.req[rnd(w.n_req)];
                if (r->live)
                    end(r);
            }
            turn(max_in_flight);
            for (uint32_t i = 0; i < w.n_pool; i++)
                assert_true(kv_check(w.pool[i].group.kv));
        }
        while (turn(max_in_flight)) {
        }
        assert_int_equal(w.n_done, w.n_req); /* all requests end */
        for (uint32_t i = 0; i < w.n_req; i++)
            check_tokens(&w.req[i]);
        world_fini();
    }
    world_window = world_long_from = 0;
    world_states = NO_STATES;
    world_short = false;
}

/* The prompt of a model with recurrent states takes one step if that also gives the state before the prompt's end, and
 * two otherwise; continuing from there computes equally little. */
static void a_prompt_is_one_step(void **state)
{
    (void)state;
    for (world_states = STATES_AT_ENDS; world_states <= STATES_WITHIN; world_states++) {
        world_init(5, 1, 64, 256, 256);
        int32_t prompt[115] = {3};
        w.pool[0].group.pace.gap = 0;
        struct request *a = submit(&w.pool[0], 0, prompt, 115, 1);
        while (a->live)
            turn(2);
        assert_int_equal(w.steps, world_states == STATES_WITHIN ? 1 : 2);
        prompt[100] = 1;
        struct request *b = submit(&w.pool[0], 0, prompt, 115, 1);
        while (turn(2)) {
        }
        assert_int_equal(b->reused, 80);
        check_tokens(a);
        check_tokens(b);
        world_fini();
    }
    world_states = NO_STATES;
}

/* A timeline that outgrows RoPE's first set of frequencies is computed again, once. What was computed with the first
 * set stays available to others, and what came after it is found by requests that continue from the end. */
static void outgrown_frequencies(void **state)
{
    (void)state;
    world_long_from = 32;
    for (uint32_t in_flight = 1; in_flight <= IN_FLIGHT_MAX; in_flight++) {
        world_init(5, 1, 64, 64, 64);
        int32_t prompt[101] = {1, 2, 3}, other[24] = {3};
        struct request *a = submit(&w.pool[0], 7, prompt, 20, 60), *b = submit(&w.pool[0], 7, other, 24, 8);
        while (turn(in_flight)) {
        }
        assert_int_equal(a->n_got, 60);
        assert_int_equal(a->computed, 20);
        assert_int_equal(w.rows, 20 + 12 + 33 + 46 + 24 + 7); /* a up to 32, 33 again, up to 79; and all of b */
        check_tokens(a);
        check_tokens(b);
        memcpy(prompt + 20, a->got, 60 * sizeof *prompt);
        struct request *again = submit(&w.pool[0], 7, prompt, 32, 1), *next = submit(&w.pool[0], 7, prompt, 101, 5);
        while (turn(in_flight)) {
        }
        assert_in_range(again->reused, 32 - in_flight,
                        31); /* tokens in flight were not known when it was computed again */
        assert_int_equal(next->reused, 79);
        check_tokens(again);
        check_tokens(next);
        world_fini();
    }
    world_long_from = 0;
}

static void clients_share_steps(void **state)
{
    (void)state;
    world_init(1, 1, 256, 256, 64);
    for (int32_t i = 0; i < 16; i++) {
        int32_t prompt[20];
        for (int32_t k = 0; k < 20; k++)
            prompt[k] = i + k;
        submit(&w.pool[0], 0, prompt, 20, 64);
    }
    while (turn(1)) {
    }
    assert_true(w.rows > 12 * w.steps);
    world_fini();
}

/* The next turn of a timeline reuses all but the last token; another user reuses none. */
static void reuse_is_capped_and_private(void **state)
{
    (void)state;
    world_init(2, 1, 64, 64, 64);
    int32_t prompt[40] = {1, 2, 3};
    struct request *a = submit(&w.pool[0], 7, prompt, 40, 5);
    while (turn(1)) {
    }
    assert_int_equal(a->reused, 0);
    assert_int_equal(a->computed, 40);
    struct request *same = submit(&w.pool[0], 7, prompt, 40, 5);
    while (turn(1)) {
    }
    assert_int_equal(same->reused, 39);
    assert_int_equal(same->computed, 1);
    int32_t more[45];
    memcpy(more, prompt, sizeof prompt);
    memcpy(more + 40, a->got, sizeof *more * 5);
    struct request *next = submit(&w.pool[0], 7, more, 45, 5);
    while (turn(1)) {
    }
    assert_int_equal(next->reused, 44); /* the last sampled token was never computed */
    struct request *stranger = submit(&w.pool[0], 8, prompt, 40, 5);
    while (turn(1)) {
    }
    assert_int_equal(stranger->reused, 0);
    world_fini();
}

/* Two sequences that fit one at a time but not together: the younger one is preempted and still ends with the right
 * tokens. */
static void youngest_gives_way(void **state)
{
    (void)state;
    world_init(3, 1, 8, 64, 64);
    int32_t pa[40] = {1}, pb[40] = {2};
    struct request *a = submit(&w.pool[0], 0, pa, 40, 80), *b = submit(&w.pool[0], 0, pb, 40, 80);
    bool gave_way = false;
    while (turn(1)) {
        if (a->live && b->live && b->n_got && b->seq->state == SEQ_WAIT)
            gave_way = true;
        assert_true(b->live || !a->live); /* the older one ends first */
    }
    assert_true(gave_way);
    assert_int_equal(a->n_got, 80);
    assert_int_equal(b->n_got, 80);
    assert_int_equal(b->computed + b->reused, 40); /* recomputation is not counted again */
    check_tokens(a);
    check_tokens(b);
    world_fini();
}

/* A long prompt does not stall decoding sequences, which have a row in every step. */
static void prompts_come_in_pieces(void **state)
{
    (void)state;
    world_init(4, 1, 64, 128, 16);
    int32_t shrt[4] = {3, 2, 1, 0}, lng[200] = {9};
    struct request *a = submit(&w.pool[0], 0, shrt, 4, 40);
    turn(1);
    turn(1);
    submit(&w.pool[0], 0, lng, 200, 1);
    uint32_t before = a->n_got;
    for (int i = 0; i < 10; i++) {
        turn(1);
        assert_true(w.in_flight[w.first].plan.n_row <= 17);
        turn(1);
    }
    assert_int_equal(a->n_got, before + 10);
    while (turn(1)) {
    }
    world_fini();
}

/* A short prompt is read in a step of its own, whatever else is nearly done, and longer prompts wait for no more than
 * that: the next step is theirs. */
static void a_moment_is_a_step(void **state)
{
    (void)state;
    world_init(11, 1, 200, 64, 64);
    int32_t other[90] = {9}, shrt[8] = {3};
    struct request *a[4], *b[2];
    for (int i = 0; i < 4; i++) {
        other[1] = i;
        a[i] = submit(&w.pool[0], i, other, 90, 1);
    }
    turn(1);
    assert_int_equal(w.in_flight[w.first].plan.n_row, 64);
    for (int i = 0; i < 2; i++) { /* they arrive while the others are read */
        shrt[1] = i;
        b[i] = submit(&w.pool[0], 9, shrt, 8, 1);
    }
    turn(1);
    turn(1);
    assert_int_equal(w.in_flight[w.first].plan.n_row, 16);
    shrt[0] = 7; /* the next short prompt arrives at once */
    struct request *c = submit(&w.pool[0], 9, shrt, 8, 1);
    turn(1);
    assert_false(b[0]->live || b[1]->live);
    turn(1);
    assert_int_equal(w.in_flight[w.first].plan.n_row, 64);
    turn(1);
    turn(1);
    assert_int_equal(w.in_flight[w.first].plan.n_row, 8);
    turn(1);
    assert_false(c->live);
    assert_true(a[3]->live);
    while (turn(1)) {
    }
    world_fini();
}

/* Short prompts do not wait for a long one before them, and get every other step at most. */
static void short_prompts_pass_long_ones(void **state)
{
    (void)state;
    world_init(6, 1, 64, 64, 64);
    int32_t lng[290] = {9}, shrt[16] = {3};
    struct request *a = submit(&w.pool[0], 0, lng, 290, 1), *b[8];
    for (int i = 0; i < 8; i++) {
        shrt[1] = i;
        b[i] = submit(&w.pool[0], 0, shrt, 16, 1);
    }
    turn(1);
    turn(1);
    assert_int_equal(a->seq->n_computed, 0);
    for (int i = 0; i < 4; i++)
        assert_false(b[i]->live); /* what fits in 64 rows is done in the first step */
    turn(1);
    turn(1);
    assert_int_equal(a->seq->n_computed, 64);
    turn(1);
    turn(1);
    for (int i = 4; i < 8; i++)
        assert_false(b[i]->live);
    while (turn(1)) {
    }
    world_fini();
}

/* With any length of context, steps beside a decoding sequence stay within the gap, and are nearly as long as that
 * allows. Without one, a prompt's steps are as long as allowed. */
static void steps_keep_their_time(void **state)
{
    (void)state;
    world_init(7, 1, 256, 512, 32);
    w.pool[0].group.pace.gap = 0.4;
    w.pool[0].group.pace.alone = 1;
    int32_t shrt[4] = {3, 2, 1, 0}, lng[290] = {9};
    submit(&w.pool[0], 0, lng, 290, 1);
    double longest = 0;
    for (int i = 0; i < 3; i++) { /* no decoding sequence: the first step is sized by a guess, the others by time */
        double t = timed_turn();
        longest = t > longest ? t : longest;
    }
    assert_true(longest > 0.8 && longest < 1.1);
    while (timed_turn() > 0) {
    }
    struct request *a = submit(&w.pool[0], 0, shrt, 4, 200);
    timed_turn();
    timed_turn();
    lng[0] = 8;
    struct request *b = submit(&w.pool[0], 0, lng, 290, 1);
    uint32_t before = a->n_got, steps = 0;
    while (b->live) {
        double t = timed_turn();
        steps++;
        assert_true(t < 0.44);
        assert_true(!b->live || t > 0.3);
    }
    assert_int_equal(a->n_got, before + steps); /* it had a token in each of them */
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* If decoding alone takes the whole gap, prompts still progress, and a step takes twice that time at most. */
static void a_slow_machine_still_reads_prompts(void **state)
{
    (void)state;
    world_init(8, 1, 256, 512, 8);
    w.pool[0].group.pace.gap = 0.01;
    int32_t shrt[4] = {3, 2, 1, 0}, lng[200] = {9};
    struct request *a = submit(&w.pool[0], 0, shrt, 4, 200);
    for (int i = 0; i < 20; i++)
        timed_turn();
    struct request *b = submit(&w.pool[0], 0, lng, 100, 1);
    timed_turn();
    timed_turn();
    while (b->live) {
        uint32_t at = b->seq->n_computed;
        double t = timed_turn();
        assert_true(t < 2.6 * (c_step + c_decode));
        assert_true(!b->live || b->seq->n_computed > at);
    }
    assert_true(a->live);
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* After an arrival, the chunks of a prompt that is the only one again grow with the time without arrivals. */
static void quiet_makes_chunks_longer(void **state)
{
    (void)state;
    world_init(9, 1, 256, 512, 32);
    w.pool[0].group.pace.gap = 0.1;
    w.pool[0].group.pace.alone = 1;
    int32_t shrt[4] = {3, 2, 1, 0}, lng[290] = {9};
    submit(&w.pool[0], 0, lng, 290, 1);
    timed_turn();
    struct request *b = submit(&w.pool[0], 0, shrt, 4, 2);
    double arrived = w.now;
    while (b->live)
        timed_turn();
    for (double t, quiet = w.now - arrived; (t = timed_turn()) > 0; quiet = w.now - arrived)
        assert_true(t < 1.1 * (quiet > 0.1 ? quiet : 0.1));
    world_fini();
}

/* If bits depend on how a prompt is split, a prompt without decoding sequences beside it is split by rows: as many as
 * allowed, halved as rows grow dearer, but never fewer than rows_alone, whatever those take. Beside decoding sequences
 * it is split by time. */
static void alone_prompts_are_cut_by_rows(void **state)
{
    (void)state;
    static const double alone[] = {0.5, 1.1, 2, 9};
    for (int i = 0; i < 4; i++) {
        world_init(11, 1, 256, 256, 8);
        struct sched_pace *pace = &w.pool[0].group.pace;
        *pace = (struct sched_pace){.rows_first = 8, .gap = 0.4, .alone = alone[i], .rows_alone = 64};
        w.pool[0].group.cost.many = 32;
        w.now = 100; /* no request has arrived for a long time */
        int32_t lng[690] = {i};
        struct request *r = submit(&w.pool[0], 0, lng, 690, 1);
        for (uint32_t n = 0;; n++) {
            uint32_t at = r->seq->n_computed, most = 64;
            double t = timed_turn();
            if (!r->live)
                break;
            uint32_t rows = r->seq->n_computed - at;
            if (n == 0)
                assert_int_equal(rows, 64); /* their cost is not known yet */
            if (n < 3)
                continue;
            while (most < 256 && c_prompt * 2 * most + c_key * cost_keys(at, 2 * most) + c_step <= alone[i])
                most *= 2;
            assert_int_equal(rows, most);
            assert_true(rows == 64 || t <= alone[i] * 1.01);
        }
        while (timed_turn() > 0) {
        }
        world_fini();
    }
    world_init(12, 1, 256, 512, 8); /* the group's own limit counts too */
    w.pool[0].group.rows_max = 128;
    w.pool[0].group.pace = (struct sched_pace){.rows_first = 8, .gap = 0.4, .alone = 9, .rows_alone = 64};
    w.pool[0].group.cost.many = 32;
    w.now = 100;
    int32_t shrt[4] = {3, 2, 1, 0}, lng[500] = {9};
    struct request *r = submit(&w.pool[0], 0, lng, 500, 1);
    timed_turn();
    timed_turn();
    assert_int_equal(r->seq->n_computed, 64 + 128);
    struct request *a = submit(&w.pool[0], 0, shrt, 4, 100); /* the new request is in the next step, ... */
    assert_true(timed_turn() <= 0.4 + 0.01);                 /* ... which is short after an arrival */
    while (r->live) {
        double t = timed_turn();
        assert_true(t < 0.44);
    }
    assert_true(a->n_got > 0);
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* If two users have prompts, steps are short, and the plan is marked: each user has every other step. */
static void users_share_short_steps(void **state)
{
    (void)state;
    world_init(13, 1, 256, 256, 8);
    w.pool[0].group.pace = (struct sched_pace){.rows_first = 8, .gap = 0.4, .alone = 9, .rows_alone = 64};
    w.pool[0].group.cost.many = 32;
    w.now = 100;
    int32_t of_one[690] = {1}, of_another[690] = {2};
    struct request *r = submit(&w.pool[0], 0, of_one, 690, 1);
    timed_turn();
    assert_true(w.in_flight[0].plan.n_row == 64 && !w.in_flight[0].plan.users);
    timed_turn();
    assert_true(w.in_flight[1].plan.n_row > 64 && !w.in_flight[1].plan.users);
    struct request *b = submit(&w.pool[0], 1, of_another, 690, 1);
    while (r->live && b->live) {
        uint32_t at = w.first;
        timed_turn();
        assert_true(w.in_flight[at].plan.n_row <= 64 && w.in_flight[at].plan.users);
    }
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* A step beside another model's sequences is as short as one beside its own. */
static void models_wait_no_longer_than_the_gap(void **state)
{
    (void)state;
    world_init(10, 2, 256, 512, 16);
    w.pool[0].group.pace.gap = 0.4;
    int32_t shrt[4] = {3, 2, 1, 0}, lng[290] = {9};
    struct request *a = submit(&w.pool[0], 0, lng, 290, 1), *b = submit(&w.pool[1], 0, shrt, 4, 40);
    while (a->live)
        assert_true(timed_turn() < 0.44);
    assert_true(b->live);
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* A pool of windows with room for just one sequence is short of pages while steps in flight pass the prompt's end,
 * whose window stays until it is cached. The sequence waits for these steps; it does not give up what it has computed,
 * which would be evicted before it comes back. */
static void a_window_waits_for_its_steps(void **state)
{
    enum { PROMPT = 300, SAID = 250, SEED = 9 /* by which the pool is as small as it can be */ };
    (void)state;
    world_window = 160;
    for (uint32_t in_flight = 1; in_flight <= IN_FLIGHT_MAX; in_flight++) {
        world_init(SEED, 1, 40, 160, 160);
        w.pool[0].group.pace.gap = 0;
        int32_t prompt[PROMPT] = {1}, other[600] = {2};
        struct request *r = submit_as(&w.pool[0], 0, 0, CLASS_BACKGROUND, prompt, PROMPT, SAID);
        while (r->n_got < SAID - 10)
            assert_true(turn(in_flight));
        submit(&w.pool[0], 0, other, 600, 1); /* takes all pages */
        while (w.n_done == 0)
            assert_true(turn(in_flight));
        assert_true(r->live);
        uint64_t admitted = w.s.admissions;
        while (turn(in_flight)) {
        }
        assert_int_equal(w.s.admissions, admitted + 1);
        check_tokens(r);
        world_fini();
    }
    world_window = 0;
}

/* eval has logits for all its rows, within the budget, and samples nothing. */
static void eval_wants_every_row(void **state)
{
    (void)state;
    world_init(5, 1, 64, 128, 128);
    int32_t p1[100] = {1}, p2[10] = {2};
    struct request *ev = submit(&w.pool[0], -2, p1, 100, 0), *gen = submit(&w.pool[0], 0, p2, 10, 30);
    ev->seq->eval = eval_new(100, 3, 4, 0);
    uint32_t rows = 0;
    struct plan p;
    while (ev->live) {
        if (!w.n_in_flight && sched_next(&w.s, &p, w.now)) {
            w.in_flight[w.first].plan = p;
            w.n_in_flight = 1;
            run_plan(&p, w.in_flight[w.first].token);
            for (uint32_t i = 0; i < p.n_seq; i++)
                if (p.seq[i].seq->eval) {
                    assert_int_equal(p.seq[i].n_out, p.seq[i].n_row);
                    rows += p.seq[i].n_row;
                }
        }
        w.computed += p.n_accounted;
        finish_step();
    }
    assert_int_equal(rows, 100);
    w.computed_of_ended -= ev->computed; /* eval has no usage */
    while (turn(1)) {
    }
    assert_int_equal(gen->n_got, 30);
    world_fini();
}

/* The logits of an eval take all rows that those of decoding sequences leave, and then a prompt is admitted that turns
 * out to be cached, so that it decodes: a step still has no more rows with logits than it may. */
static void logits_are_bounded(void **state)
{
    (void)state;
    world_init(14, 1, 256, 256, 256);
    int32_t cached[100] = {1}, lng[600] = {2}, logits[90] = {3}, others[100] = {4};
    struct request *r = submit(&w.pool[0], 0, cached, 100, 1);
    while (turn(1)) {
    }
    check_tokens(r);
    /* An old prompt raises its class, so that the class's prompts take part in the step for short ones; what decodes
     * has not waited itself. */
    submit_as(&w.pool[0], 0, 0, CLASS_BACKGROUND, lng, 600, 1);
    w.now += 2.5;
    w.pool[0].group.was_brief = w.pool[0].group.left_out = false;
    struct request *ev = submit_as(&w.pool[0], -2, 0, CLASS_NORMAL, logits, 90, 0);
    ev->seq->eval = eval_new(90, 1, 4, 0);
    submit_as(&w.pool[0], 0, 1, CLASS_BACKGROUND, cached, 100, 20);
    for (int i = 0; i < 4; i++) {
        others[1] = i;
        submit_as(&w.pool[0], 0, 2 + i, CLASS_NORMAL, others, 100, 20);
    }
    assert_true(turn(1)); /* run_plan() checks the bound */
    assert_int_equal(w.in_flight[w.first].plan.n_out, 64);
    while (turn(1)) {
    }
    assert_int_equal(w.n_done, w.n_req);
    w.computed_of_ended -= ev->computed; /* eval has no usage */
    world_fini();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_workloads),
        cmocka_unit_test(outgrown_frequencies),
        cmocka_unit_test(clients_share_steps),
        cmocka_unit_test(reuse_is_capped_and_private),
        cmocka_unit_test(youngest_gives_way),
        cmocka_unit_test(prompts_come_in_pieces),
        cmocka_unit_test(steps_keep_their_time),
        cmocka_unit_test(a_slow_machine_still_reads_prompts),
        cmocka_unit_test(quiet_makes_chunks_longer),
        cmocka_unit_test(users_share_short_steps),
        cmocka_unit_test(models_wait_no_longer_than_the_gap),
        cmocka_unit_test(eval_wants_every_row),
        cmocka_unit_test(logits_are_bounded),
        cmocka_unit_test(a_window_waits_for_its_steps),
        cmocka_unit_test(short_prompts_pass_long_ones),
        cmocka_unit_test(a_moment_is_a_step),
        cmocka_unit_test(a_prompt_is_one_step),
        cmocka_unit_test(alone_prompts_are_cut_by_rows),
    };
    return cmocka_run_group_tests_name("sched", tests, NULL, NULL);
}
