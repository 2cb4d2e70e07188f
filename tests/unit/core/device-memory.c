/*
 * device-memory.c - the device thread with a KV pool that is too small for all sequences: who gets its pages, who is
 * preempted, and that the texts are the same. On the toy (toy.h); also run under the thread sanitizer.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "daemon/engine/core/device.h"
#include "tests/unit/core/toy.h"

/* A pool that grows has memory only for what was needed. When there is no more memory, sequences preempt each other,
 * and all of them end with the texts that a whole pool gives. */
static void memory_comes_as_it_is_needed(void **state)
{
    (void)state;
    static struct heard h[6];
    for (int full = 0; full < 2; full++) {
        struct world w;
        toy_granule = 4 * TOY_PAGE_BYTES;
        toy_extents = full ? 8 : UINT32_MAX;
        toy_pages = 160;
        world_open_with(&w, &(struct engine_params){.kv_ram = 1 << 20, .restore = TIER_ALWAYS}, 2, false);
        w.m.vocab = NULL; /* no end tokens */
        ask(&w, engine_load);
        assert_int_equal(toy_mapped, 0);
        engine_submit(w.eng, make(&w, &h[0], (int32_t[]){1, 2, 3}, 3, 20));
        hear_all(&w);
        check_heard(&h[0]);
        assert_int_equal(toy_mapped, 1);
        engine_throttle(w.eng, true);
        for (int32_t k = 0; k < 6; k++)
            engine_submit(w.eng, make(&w, &h[k], (int32_t[]){k, 5, 7, k}, 4, 240));
        engine_throttle(w.eng, false);
        hear_all(&w);
        for (int k = 0; k < 6; k++) {
            check_heard(&h[k]);
            assert_int_equal(h[k].end.reason, END_LENGTH);
        }
        assert_true(full ? toy_mapped == 8 : toy_mapped > 20);
        world_close(&w);
    }
    toy_granule = 0;
    toy_extents = UINT32_MAX;
    toy_pages = 64;
}

/* A pool smaller than the context: a prompt that cannot fit is refused with the numbers, and a sequence that outgrows
 * the pool ends with END_CONTEXT. */
static void the_pool_is_a_limit(void **state)
{
    (void)state;
    static struct heard big, grows;
    struct world w;
    int32_t id[MAX_LEN];
    for (int i = 0; i < MAX_LEN; i++)
        id[i] = 1;
    world_open(&w, 2);
    world_close(&w);
    struct engine_params p = {.backend = "auto", .variant = "auto", .kv_bytes = 4 * 2 * KV_PAGE * 2 * 4};
    struct hearth_err e;
    assert_int_equal(engine_open(&w.eng, &p, &e), 0);
    engine_submit(w.eng, make(&w, &big, id, 65, 10));
    w.m.vocab = NULL; /* no end tokens */
    engine_submit(w.eng, make(&w, &grows, id, 10, 200));
    hear_all(&w);
    assert_int_equal(big.end.reason, END_ERROR);
    assert_int_equal(big.end.err.code, HEARTH_ECONTEXT);
    assert_int_equal(grows.end.reason, END_CONTEXT);
    assert_int_equal(grows.n_got, 54);
    check_heard(&grows);
    world_close(&w);
}

/* Of streams that do not fit together some are preempted: their KV is copied to host memory and back, however late the
 * copies are, and nothing is computed twice except tokens that do not fill a page. */
static void who_makes_way_is_parked(void **state)
{
    (void)state;
    static struct heard h[4];
    for (uint32_t in_flight = 1; in_flight <= 3; in_flight++) {
        struct world w;
        toy_pages = 30;
        toy_moves_late = in_flight > 1;
        world_open_with(&w, &(struct engine_params){.kv_ram = 1 << 20, .restore = TIER_ALWAYS}, in_flight, false);
        w.m.vocab = NULL; /* no end tokens */
        engine_throttle(w.eng, true);
        for (int32_t k = 0; k < 4; k++) {
            int32_t id[100] = {k, 5};
            for (int32_t i = 2; i < 100; i++)
                id[i] = 1 + (i * (k + 3)) % 9;
            struct seq *q = make(&w, &h[k], id, 100, 200);
            q->client = k;
            q->class = k == 3 ? CLASS_INTERACTIVE : CLASS_BACKGROUND;
            engine_submit(w.eng, q);
        }
        engine_throttle(w.eng, false);
        hear_all(&w);
        for (int k = 0; k < 4; k++) {
            check_heard(&h[k]);
            assert_int_equal(h[k].end.reason, END_LENGTH);
            assert_int_equal(h[k].end.n_computed, 100);
            assert_int_equal(h[k].end.n_restored, 0); /* this counts only what it began with */
        }
        const struct engine_counters *c = engine_counters(w.eng);
        const struct tier_counters *t = engine_tiers(w.eng);
        assert_true(t->pages_restored > 0 && t->pages_dropped == 0);
        assert_int_equal(c->tokens_computed, 400);
        assert_true(c->rows <
                    4 * 299 + 4 * 4 * KV_PAGE); /* each is computed once; a page at most each time it came back */
        world_close(&w);
    }
    toy_pages = 64;
    toy_moves_late = false;
}

/* A stream that is preempted while its last token is in flight ends with that token; there is nothing to come back
 * for. */
static void who_makes_way_at_its_end_has_ended(void **state)
{
    (void)state;
    static struct heard a, b;
    struct world w;
    int32_t prompt[60] = {7};
    toy_pages = 5;
    world_open(&w, 2);
    w.m.vocab = NULL; /* no end tokens */
    ask(&w, engine_load);
    toy_hold_at = 39; /* the step that samples the last token */
    struct seq *q = make(&w, &a, (int32_t[]){1, 2, 3}, 3, 40);
    q->class = CLASS_BACKGROUND;
    engine_submit(w.eng, q);
    while (!toy_held)
        sched_yield();
    engine_submit(w.eng, make(&w, &b, prompt, 60, 20));
    toy_hold_at = 0;
    while (!a.ended)
        hear_one(&w);
    assert_false(b.ended);
    hear_all(&w);
    check_heard(&a);
    check_heard(&b);
    assert_int_equal(a.end.reason, END_LENGTH);
    world_close(&w);
    toy_pages = 64;
}

/* Two streams in lockstep fill their pages, and with them the pool, at the same token. Neither has a row in the next
 * step until the KV of the preempted one is saved, and no other event wakes the engine meanwhile. */
static void all_wait_for_who_makes_way(void **state)
{
    (void)state;
    static struct heard h[2];
    for (uint32_t in_flight = 1; in_flight <= 2; in_flight++) {
        struct world w;
        toy_pages = 10;
        world_open_with(&w, &(struct engine_params){.kv_ram = 1 << 20, .restore = TIER_ALWAYS}, in_flight, true);
        w.m.vocab = NULL; /* no end tokens */
        ask(&w, engine_load);
        engine_throttle(w.eng, true);
        for (int32_t k = 0; k < 2; k++) {
            int32_t id[3 * KV_PAGE] = {k};
            for (int32_t i = 1; i < 3 * KV_PAGE; i++)
                id[i] = 1 + i % 9;
            engine_submit(w.eng, make(&w, &h[k], id, 3 * KV_PAGE, 4 * KV_PAGE));
        }
        ask(&w, engine_load); /* both have arrived */
        engine_throttle(w.eng, false);
        hear_all(&w);
        for (int k = 0; k < 2; k++) {
            check_heard(&h[k]);
            assert_int_equal(h[k].end.reason, END_LENGTH);
        }
        assert_true(engine_tiers(w.eng)->pages_restored > 0); /* one was preempted */
        world_close(&w);
    }
    toy_pages = 64;
}

/* A request that finds no memory while nothing else runs is served once there is memory. */
static void who_finds_no_memory_asks_again(void **state)
{
    (void)state;
    static struct heard h;
    struct world w;
    toy_granule = 4 * TOY_PAGE_BYTES;
    toy_extents = 0;
    world_open(&w, 1);
    ask(&w, engine_load);
    toy_refusals = 0;
    engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 20));
    while (!toy_refusals)
        sched_yield();
    toy_extents = UINT32_MAX;
    hear_all(&w);
    check_heard(&h);
    world_close(&w);
    toy_granule = 0;
}

/* Runs streams with prompts of different lengths; checks that all of them get their tokens. */
static void run_streams(struct world *w, struct heard h[6])
{
    engine_throttle(w->eng, true);
    for (int32_t k = 0; k < 6; k++) {
        int32_t id[100] = {k, 5};
        for (int32_t i = 2; i < 100; i++)
            id[i] = 1 + (i * (k + 3)) % 9;
        engine_submit(w->eng, make(w, &h[k], id, 50 + 10 * (uint32_t)k, 40));
    }
    engine_throttle(w->eng, false);
    hear_all(w);
    for (int k = 0; k < 6; k++) {
        check_heard(&h[k]);
        assert_int_equal(h[k].end.reason, END_LENGTH);
    }
    assert_int_equal(w->fatal.code, 0);
}

/* A step that has no memory is planned again when copies of weights, free KV, cached KV or an idle model were given
 * back; nothing is lost, and nothing is computed twice. */
static void a_refused_step_gets_what_is_spare(void **state)
{
    (void)state;
    static struct heard h[6], other;
    for (uint32_t in_flight = 1; in_flight <= MAX_IN_FLIGHT; in_flight++)
        for (int spare = 0; spare < 3; spare++) {
            static char idle[] = "idle.gguf";
            struct model_entry m = {.hp = {.n_vocab = VOCAB, .n_ctx = MAX_LEN}, .path = idle};
            struct world w;
            toy_granule = 4 * TOY_PAGE_BYTES;
            toy_pages = 160;
            world_open_on(&w, in_flight, true);
            w.m.vocab = NULL; /* no end tokens */
            ask(&w, engine_load);
            if (spare == 0)
                toy_mem_cached = 1000000;
            if (spare == 1) { /* of another user, whose pages nobody else may have */
                int32_t id[300] = {7};
                engine_submit(w.eng, make(&w, &other, id, 300, 1));
                hear_all(&w);
            }
            if (spare == 2) {
                w.answered = false;
                engine_load(w.eng, &m, &w);
                while (!w.answered)
                    hear_one(&w);
            }
            toy_sums = spare == 0 ? 1000000 : 8000 * 4;
            toy_refused_steps = 0;
            run_streams(&w, h);
            assert_true(toy_refused_steps > 0);
            world_close(&w);
            entry_fini(&m);
            toy_sums = UINT64_MAX;
            toy_mem_cached = 0;
        }
    toy_granule = 0;
    toy_pages = 64;
}

/* Where nothing is left to give back, steps become as short as memory allows. */
static void a_refused_step_becomes_shorter(void **state)
{
    (void)state;
    static struct heard h[6];
    for (uint32_t in_flight = 1; in_flight <= MAX_IN_FLIGHT; in_flight++)
        for (int parted = 0; parted < 2 && parted < (int)in_flight; parted++) {
            struct world w;
            world_open_with(&w, &(struct engine_params){.invariant = parted ? INVARIANT_PROMPTS : INVARIANT_NOTHING},
                            in_flight, true);
            w.m.vocab = NULL; /* no end tokens */
            ask(&w, engine_load);
            toy_sums = 300; /* two rows of the longest */
            toy_refused_steps = 0;
            run_streams(&w, h);
            assert_true(toy_refused_steps > 0);
            toy_sums = UINT64_MAX;
            world_close(&w);
        }
}

/* A request that needs too much memory even for a single row ends with ENOMEM, once its context is so long; the others
 * do not notice, and the engine goes on. */
static void who_needs_too_much_ends(void **state)
{
    (void)state;
    static struct heard h[6], big;
    for (uint32_t in_flight = 1; in_flight <= MAX_IN_FLIGHT; in_flight++)
        for (int32_t n = 10; n <= 250; n += 240) {
            struct world w;
            int32_t id[250] = {11};
            world_open_on(&w, in_flight, true);
            w.m.vocab = NULL; /* no end tokens */
            ask(&w, engine_load);
            toy_sums = 200;
            engine_submit(w.eng, make(&w, &big, id, (uint32_t)n, 300 - (uint32_t)n));
            run_streams(&w, h);
            assert_int_equal(big.end.reason, END_ERROR);
            assert_int_equal(big.end.err.code, HEARTH_ENOMEM);
            assert_int_equal(big.n_got, n < 200 ? 200 - n + 1 : 0);
            check_heard(&big);
            toy_sums = UINT64_MAX;
            engine_submit(w.eng, make(&w, &big, id, (uint32_t)n, 300 - (uint32_t)n));
            hear_all(&w);
            assert_int_equal(big.end.reason, END_LENGTH);
            check_heard(&big);
            world_close(&w);
        }
}

/* Where the engine chooses how large a GPU's pool is, steps keep room for attention to what it holds; and a model for
 * whose weights, as the device keeps them, or for whose steps there is no room is refused before it is loaded. */
static void a_plan_counts_what_steps_need(void **state)
{
    (void)state;
    static const struct {
        uint32_t sums_each, matrices, pages; /* 0: the CPU runs the model */
    } cases[] = {{0, 0, 100}, {80, 0, 66}, {200, 0, 0}, {0, 1, 0}};
    uint64_t was = toy_free;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        toy_pages = 0; /* the engine chooses */
        toy_free = 200 * TOY_PAGE_BYTES;
        toy_sums_each = cases[i].sums_each;
        toy_matrices = cases[i].matrices;
        world_open_on(&w, 1, true);
        ask(&w, engine_load);
        assert_int_equal(w.answer.code, 0);
        assert_int_equal(w.m.on_gpu, cases[i].pages > 0);
        assert_int_equal(toy_loads, 1);
        if (cases[i].pages)
            assert_int_equal(w.m.pages_total, cases[i].pages);
        world_close(&w);
    }
    toy_pages = 64;
    toy_free = was;
    toy_sums_each = toy_matrices = 0;
}

static uint64_t granted = UINT64_MAX; /* what the control groups allow */

uint64_t __wrap_host_memory_granted(void);
uint64_t __wrap_host_memory_granted(void)
{
    return granted;
}

/* Where the engine chooses how large a pool in the host's memory is, it heeds the limit of its control group. */
static void a_groups_limit_is_a_limit(void **state)
{
    (void)state;
    struct world w;
    toy_pages = 0; /* the engine chooses */
    granted = 4 * 20 * TOY_PAGE_BYTES;
    world_open(&w, 1);
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, 0);
    assert_int_equal(w.m.pages_total, 20);
    world_close(&w);
    toy_pages = 64;
    granted = UINT64_MAX;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_comes_as_it_is_needed),       cmocka_unit_test(who_makes_way_is_parked),
        cmocka_unit_test(who_makes_way_at_its_end_has_ended), cmocka_unit_test(all_wait_for_who_makes_way),
        cmocka_unit_test(who_finds_no_memory_asks_again),     cmocka_unit_test(the_pool_is_a_limit),
        cmocka_unit_test(a_groups_limit_is_a_limit),          cmocka_unit_test(a_refused_step_gets_what_is_spare),
        cmocka_unit_test(a_refused_step_becomes_shorter),     cmocka_unit_test(who_needs_too_much_ends),
        cmocka_unit_test(a_plan_counts_what_steps_need),
    };
    return cmocka_run_group_tests_name("device-memory", tests, NULL, NULL);
}
