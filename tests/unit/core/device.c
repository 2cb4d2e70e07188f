/*
 * device.c - the device thread through engine.h, with a toy model on a toy backend (toy.h): requests and their texts.
 * Memory and models are tested by device-memory.c, device-models.c and device-yield.c. Also run under the thread
 * sanitizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/core/device.h"
#include "tests/unit/core/toy.h"

static void any_number_of_steps_in_flight(void **state)
{
    (void)state;
    for (uint32_t max_in_flight = 1; max_in_flight <= MAX_IN_FLIGHT; max_in_flight++) {
        static struct heard h[120];
        struct world w;
        uint64_t computed = 0;
        uint32_t stops = 0;
        world_open(&w, max_in_flight);
        for (int i = 0; i < 120; i++) {
            int32_t prompt[90];
            uint32_t n = 1 + rnd(90), k = 0;
            if (i && rnd(2)) /* a further turn of an earlier one */
                for (; k < n && k < h[i / 2].n_prompt; k++)
                    prompt[k] = h[i / 2].prompt[k];
            for (; k < n; k++)
                prompt[k] = (int32_t)(1 + rnd(VOCAB - 1));
            engine_submit(w.eng, make(&w, &h[i], prompt, n, rnd(8) ? rnd(60) : 0));
            if (rnd(10) == 0)
                engine_cancel(w.eng, h[rnd((uint32_t)i + 1)].id);
            while (w.live > 20)
                hear_one(&w);
        }
        hear_all(&w);
        for (int i = 0; i < 120; i++) {
            check_heard(&h[i]);
            computed += h[i].end.n_computed;
            stops += h[i].end.reason == END_STOP;
            assert_true(h[i].end.reason == END_CANCELLED || h[i].end.n_computed >= 1);
            assert_true(h[i].end.reason == END_CANCELLED || h[i].end.n_reused + h[i].end.n_computed == h[i].n_prompt);
        }
        const struct engine_counters *c = engine_counters(w.eng);
        assert_true(atomic_load(&c->tokens_computed) == computed);
        assert_true(atomic_load(&c->rows) > atomic_load(&c->steps));
        assert_true(stops > 0);
        assert_true(w.n_progress > 0);
        world_close(&w);
    }
}

static void cancelled_before_it_began(void **state)
{
    (void)state;
    static struct heard h[2];
    struct world w;
    world_open(&w, 2);
    engine_throttle(w.eng, true);
    engine_submit(w.eng, make(&w, &h[0], (int32_t[]){1, 2, 3}, 3, 50));
    engine_submit(w.eng, make(&w, &h[1], (int32_t[]){3, 2, 1}, 3, 50));
    engine_cancel(w.eng, h[0].id);
    engine_cancel(w.eng, 12345); /* no such request */
    ask(&w, engine_load);        /* everything above has arrived */
    engine_throttle(w.eng, false);
    hear_all(&w);
    assert_int_equal(h[0].end.reason, END_CANCELLED);
    assert_false(h[0].admitted);
    assert_int_equal(h[0].end.n_computed, 0);
    assert_int_not_equal(h[1].end.reason, END_CANCELLED);
    check_heard(&h[1]);
    world_close(&w);
}

/* A sequence is resumed with all its tokens, as after an engine that died between the last token and the end; its KV is
 * still in the pool. */
static void who_lost_only_its_end_has_it(void **state)
{
    (void)state;
    for (uint32_t max_in_flight = 1; max_in_flight <= MAX_IN_FLIGHT; max_in_flight++) {
        enum { PROMPT = 20, TOKENS = 30 };
        static struct heard a, b, c;
        struct world w;
        int32_t prompt[PROMPT];
        for (int i = 0; i < PROMPT; i++)
            prompt[i] = 1 + i % 5;
        world_open(&w, max_in_flight);
        w.m.vocab = NULL; /* no end tokens */
        engine_submit(w.eng, make(&w, &a, prompt, PROMPT, TOKENS));
        hear_all(&w);
        check_heard(&a);
        struct seq *q = make(&w, &b, prompt, PROMPT, TOKENS);
        for (int i = 0; i < TOKENS; i++)
            seq_push_token(q, a.got[i]);
        engine_submit(w.eng, q);
        engine_submit(w.eng, make(&w, &c, (int32_t[]){3}, 1, 20));
        while (!c.ended)
            hear_one(&w);
        assert_true(b.ended);
        assert_int_equal(b.end.reason, END_LENGTH);
        assert_int_equal(b.n_got, 0);
        assert_int_equal(b.end.n_reused + b.end.n_computed, PROMPT);
        world_close(&w);
    }
}

static void a_failed_device_ends_everything(void **state)
{
    (void)state;
    for (uint32_t max_in_flight = 1; max_in_flight <= MAX_IN_FLIGHT; max_in_flight++) {
        static struct heard h[10];
        struct world w;
        world_open(&w, max_in_flight);
        toy_fail_at = 20;
        w.m.vocab = NULL;             /* no end tokens: no sequence ends before the failure */
        engine_throttle(w.eng, true); /* until all have been submitted */
        for (int i = 0; i < 10; i++)
            engine_submit(w.eng, make(&w, &h[i], (int32_t[]){1, 2, 1 + i}, 3, 300));
        ask(&w, engine_load);
        engine_throttle(w.eng, false);
        while (!w.fatal.code)
            hear_one(&w);
        assert_int_equal(w.live, 0); /* all have been notified */
        uint32_t failed = 0;
        for (int i = 0; i < 10; i++) {
            check_heard(&h[i]);
            if (h[i].end.reason == END_ERROR) {
                assert_string_equal(h[i].end.err.msg, "the toy broke");
                failed++;
            }
        }
        assert_true(failed > 0);
        assert_int_equal(w.fatal.code, HEARTH_EDEVICE);
        world_close(&w);
    }
}

/* A step that has no memory ends its sequences, and the others go on. But where the step before it had already entered
 * its rows into the cache, what was never computed would be found there: then the engine ends. */
static void a_step_without_memory(void **state)
{
    (void)state;
    for (uint32_t max_in_flight = 1; max_in_flight <= MAX_IN_FLIGHT; max_in_flight++) {
        static struct heard first, again;
        int32_t prompt[100] = {1};
        struct world w;
        world_open(&w, max_in_flight);
        toy_fail_pos = 99; /* the last step, and the only one in flight when its failure is seen */
        toy_fails = HEARTH_ENOMEM;
        for (int i = 1; i < 100; i++)
            prompt[i] = 1 + i % 7;
        engine_submit(w.eng, make(&w, &first, prompt, 100, 1));
        hear_all(&w);
        assert_int_equal(first.end.reason, END_ERROR);
        if (max_in_flight > 1) {
            while (!w.fatal.code)
                hear_one(&w);
            assert_int_equal(w.fatal.code, HEARTH_EDEVICE);
            assert_int_equal(first.end.err.code, HEARTH_EDEVICE);
        } else {
            assert_int_equal(first.end.err.code, HEARTH_ENOMEM);
            toy_fail_at = toy_fail_pos = 0;
            engine_submit(w.eng, make(&w, &again, prompt, 100, 20));
            hear_all(&w);
            check_heard(&again);
        }
        world_close(&w);
    }
}

/* One request is refused for an ordinary reason: the others get their tokens. */
static void a_slot_without_room(void **state)
{
    (void)state;
    for (uint32_t max_in_flight = 1; max_in_flight <= MAX_IN_FLIGHT; max_in_flight++) {
        static struct heard h[10];
        struct world w;
        memset(h, 0, sizeof h);
        world_open(&w, max_in_flight);
        toy_no_slot = 77;
        for (int i = 0; i < 10; i++) {
            struct seq *q = make(&w, &h[i], (int32_t[]){1, 2, 1 + i}, 3, 50);
            if (i == 4)
                q->sampling.seed = toy_no_slot;
            engine_submit(w.eng, q);
        }
        hear_all(&w);
        for (int i = 0; i < 10; i++) {
            check_heard(&h[i]);
            assert_int_equal(h[i].end.reason == END_ERROR, i == 4);
        }
        assert_int_equal(h[4].end.err.code, HEARTH_ENOMEM);
        assert_int_equal(h[4].n_got, 0);
        toy_mem_cached = toy_slot_room = 1000; /* now there is something to give back */
        struct seq *q = make(&w, &h[4], (int32_t[]){1, 2, 5}, 3, 50);
        q->sampling.seed = toy_no_slot;
        engine_submit(w.eng, q);
        hear_all(&w);
        check_heard(&h[4]);
        assert_int_equal(h[4].end.err.code, 0);
        assert_int_equal(toy_mem_cached, 0);
        toy_slot_room = 0;
        world_close(&w);
    }
}

static void eval_is_what_generate_does(void **state)
{
    (void)state;
    static struct heard ev, gen[8];
    struct world w;
    int32_t id[150];
    world_open(&w, MAX_IN_FLIGHT);
    for (int i = 0; i < 150; i++)
        id[i] = (int32_t)(1 + rnd(VOCAB - 1));
    for (int i = 0; i < 8; i++)
        engine_submit(w.eng, make(&w, &gen[i], (int32_t[]){3, i}, 2, 100));
    struct seq *q = make(&w, &ev, id, 150, 8);
    q->uid = -2;
    q->eval = eval_new(150, 3, VOCAB, 8);
    engine_submit(w.eng, q);
    hear_all(&w);
    assert_int_equal(ev.n_best, 150);
    for (uint32_t i = 0; i < 150; i++)
        assert_int_equal(ev.best[i], toy_next(prefix_of(id, i + 1)));
    uint64_t p = prefix_of(id, 150);
    for (uint32_t i = 0; i < ev.n_greedy; i++) {
        assert_int_equal(ev.greedy[i], toy_next(p));
        p = extend(p, ev.greedy[i]);
    }
    assert_true(ev.n_greedy == 8 || ev.greedy[ev.n_greedy - 1] == END_TOKEN);
    for (int i = 0; i < 8; i++)
        check_heard(&gen[i]);
    world_close(&w);
}

/* A device that fails while the logits of an eval are read ends everything, too, and nothing keeps the engine from
 * closing. */
static void a_failed_read_ends_everything(void **state)
{
    (void)state;
    static struct heard ev, gen[4];
    struct world w;
    int32_t id[20] = {1};
    world_open(&w, 1);
    w.m.vocab = NULL;
    engine_throttle(w.eng, true); /* until all have been submitted */
    for (int i = 0; i < 4; i++)
        engine_submit(w.eng, make(&w, &gen[i], (int32_t[]){3, i}, 2, 100));
    struct seq *q = make(&w, &ev, id, 20, 8);
    q->uid = -2;
    q->eval = eval_new(20, 3, VOCAB, 8);
    toy_fail_read = 5;
    engine_submit(w.eng, q);
    engine_throttle(w.eng, false);
    while (!w.fatal.code)
        hear_one(&w);
    assert_int_equal(w.fatal.code, HEARTH_EDEVICE);
    assert_int_equal(w.live, 0);
    assert_int_equal(ev.end.reason, END_ERROR);
    world_close(&w);
}

/* Whether the text is the one that its prompt gives when it is computed with the prompts' own kernels (TOY_PROMPT) and
 * decoded in a batch of its own, or, if everything is invariant, by the kernels for batches (TOY_BATCH). */
static bool is_its_own(const struct heard *h, enum engine_invariant invariant)
{
    int32_t bits = invariant == INVARIANT_ALL ? TOY_BATCH : 0;
    uint64_t p = prefix_of(NULL, 0);
    for (uint32_t i = 0; i < h->n_prompt; i++)
        p = extend(p, h->prompt[i] + TOY_PROMPT);
    for (uint32_t i = 0; i < h->n_got; p = extend(p, h->got[i++] + bits))
        if (h->got[i] != (int32_t)toy_next(p))
            return false;
    return true;
}

/* Runs prompts that share no page, `most` at a time, and then each once more, resumed as after an engine's death.
 * Returns how many tokens and texts differ from the invariant ones. */
static uint32_t in_company(enum engine_invariant invariant, uint32_t decode_rows, uint32_t most)
{
    enum { TEXTS = 60 };
    static struct heard h[2 * TEXTS];
    struct world w;
    uint32_t others = 0;
    toy_decode_rows = decode_rows;
    world_open_with(&w, &(struct engine_params){.invariant = invariant}, MAX_IN_FLIGHT, true);
    w.m.vocab = NULL; /* no end tokens */
    for (uint32_t i = 0; i < 2 * TEXTS; i++) {
        int32_t prompt[90];
        const struct heard *first = i < TEXTS ? NULL : &h[i - TEXTS];
        uint32_t n = first ? first->n_prompt : 4 + rnd(86), had = first ? rnd(first->n_got + 1) : 0;
        for (uint32_t k = 0; k < n; k++)
            prompt[k] = first   ? first->prompt[k]
                        : k < 4 ? (int32_t)(1 + i /
                                                    (k == 0   ? 1
                                                     : k == 1 ? 6
                                                              : 36) %
                                                    6)
                                : (int32_t)(1 + rnd(VOCAB - 1));
        struct seq *q = make(&w, &h[i], prompt, n, first ? first->max : 40 + rnd(40));
        for (uint32_t k = 0; k < had; k++)
            seq_push_token(q, first->got[k]);
        engine_submit(w.eng, q);
        while (w.live >= (first ? 1 : most))
            hear_one(&w);
        if (!first)
            continue;
        for (uint32_t k = 0; k < h[i].n_got; k++)
            others += h[i].got[k] != first->got[had + k];
    }
    hear_all(&w);
    for (uint32_t i = 0; i < TEXTS; i++) {
        assert_int_equal(h[i].n_got, h[i].max);
        others += !is_its_own(&h[i], invariant);
    }
    world_close(&w);
    toy_decode_rows = 0;
    return others;
}

static void texts_are_their_own_in_any_company(void **state)
{
    (void)state;
    assert_int_equal(in_company(INVARIANT_PROMPTS, 4, 4), 0);
    assert_int_equal(in_company(INVARIANT_ALL, 4, 20), 0);
    assert_true(in_company(INVARIANT_PROMPTS, 4, 20) > 0); /* more than four decode at once */
    assert_true(in_company(INVARIANT_NOTHING, 4, 4) > 0);
}

/* With INVARIANT_AUTO, texts are invariant for models whose prompts are quick in invariant mode. */
static void texts_are_their_own_where_that_is_quick(void **state)
{
    (void)state;
    assert_true(in_company(INVARIANT_AUTO, 4, 4) > 0);
    toy_prompt_quick = true;
    assert_int_equal(in_company(INVARIANT_AUTO, 4, 4), 0);
    assert_true(in_company(INVARIANT_AUTO, 4, 20) > 0); /* more than four decode at once */
    assert_true(in_company(INVARIANT_NOTHING, 4, 4) > 0);
    toy_prompt_quick = false;
}

static void closing_with_work_under_way(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        static struct heard h[6];
        struct world w;
        world_open(&w, 1 + rnd(MAX_IN_FLIGHT));
        w.m.vocab = NULL;
        for (int k = 0; k < 6; k++)
            engine_submit(w.eng, make(&w, &h[k], (int32_t[]){1, 2, k}, 3, 300));
        for (uint32_t k = rnd(30); k; k--)
            hear_one(&w);
        world_close(&w); /* the sanitizer would report leaks */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_steps_in_flight),
        cmocka_unit_test(cancelled_before_it_began),
        cmocka_unit_test(who_lost_only_its_end_has_it),
        cmocka_unit_test(a_failed_device_ends_everything),
        cmocka_unit_test(a_step_without_memory),
        cmocka_unit_test(a_slot_without_room),
        cmocka_unit_test(eval_is_what_generate_does),
        cmocka_unit_test(a_failed_read_ends_everything),
        cmocka_unit_test(closing_with_work_under_way),
        cmocka_unit_test(texts_are_their_own_in_any_company),
        cmocka_unit_test(texts_are_their_own_where_that_is_quick),
    };
    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
