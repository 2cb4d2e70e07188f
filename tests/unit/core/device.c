/*
 * device.c - the device thread through engine.h, with a toy model on a toy backend (toy.h). Also run under the thread
 * sanitizer.
 */
#include <dlfcn.h>
#include <unistd.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/core/device.h"
#include "tests/unit/core/toy.h"
#include "tests/unit/engine/fake-nvml.h"

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
            if (i && rnd(2)) /* another turn of an earlier one */
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
        assert_true(engine_close(w.eng, 30));
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
    engine_cancel(w.eng, 12345); /* nobody */
    ask(&w, engine_load);        /* all of this has arrived */
    engine_throttle(w.eng, false);
    hear_all(&w);
    assert_int_equal(h[0].end.reason, END_CANCELLED);
    assert_false(h[0].admitted);
    assert_int_equal(h[0].end.n_computed, 0);
    assert_int_not_equal(h[1].end.reason, END_CANCELLED);
    check_heard(&h[1]);
    assert_true(engine_close(w.eng, 30));
}

/* Resumed with all its tokens, as after an engine's death between the last one and the end, and their KV is there. */
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
        assert_true(engine_close(w.eng, 30));
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
        w.m.vocab = NULL;             /* no end tokens: nobody ends before it */
        engine_throttle(w.eng, true); /* until it has them all */
        for (int i = 0; i < 10; i++)
            engine_submit(w.eng, make(&w, &h[i], (int32_t[]){1, 2, 1 + i}, 3, 300));
        ask(&w, engine_load);
        engine_throttle(w.eng, false);
        while (!w.fatal.code)
            hear_one(&w);
        assert_int_equal(w.live, 0); /* all had been told */
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
        assert_true(engine_close(w.eng, 30));
    }
}

/* An ordinary refusal of one request: the others have their tokens. */
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
        assert_true(engine_close(w.eng, 30));
    }
}

static void a_model_that_does_not_load(void **state)
{
    (void)state;
    struct heard a, b;
    struct world w;
    world_open(&w, 1);
    toy_no_load = true;
    engine_submit(w.eng, make(&w, &a, (int32_t[]){1}, 1, 5));
    hear_all(&w);
    assert_int_equal(a.end.reason, END_ERROR);
    assert_int_equal(a.end.err.code, HEARTH_EBADMODEL);
    toy_no_load = false; /* the next request tries again */
    engine_submit(w.eng, make(&w, &b, (int32_t[]){1}, 1, 5));
    hear_all(&w);
    assert_int_not_equal(b.end.reason, END_ERROR);
    check_heard(&b);
    assert_true(engine_close(w.eng, 30));
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
    assert_true(engine_close(w.eng, 30));
}

static void a_busy_model_is_not_unloaded(void **state)
{
    (void)state;
    static struct heard h;
    struct world w;
    world_open(&w, 2);
    engine_throttle(w.eng, true); /* it cannot end before it was asked */
    engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 50));
    ask(&w, engine_unload);
    assert_int_equal(w.answer.code, HEARTH_ELIMIT);
    assert_false(h.ended);
    assert_int_equal(h.n_got, 0); /* held: no step was begun */
    engine_throttle(w.eng, false);
    hear_all(&w);
    check_heard(&h);
    ask(&w, engine_unload);
    assert_int_equal(w.answer.code, 0);
    assert_false(atomic_load(&w.m.loaded));
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, 0);
    assert_true(atomic_load(&w.m.loaded));
    assert_true(engine_close(w.eng, 30));
}

/* While a second model comes in, the first one's streams go on. */
static void a_load_does_not_stop_the_others(void **state)
{
    (void)state;
    static struct heard h;
    struct world w;
    world_open(&w, 2);
    w.m.vocab = NULL;
    struct model_entry second = {.hp = w.m.hp};
    engine_throttle(w.eng, true);
    engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 300));
    ask(&w, engine_load); /* the order before it was carried out: the stream has not begun */
    toy_load_steps = 100; /* would never end if the others had to wait for it */
    engine_load(w.eng, &second, &w);
    engine_throttle(w.eng, false);
    w.answered = false;
    while (!w.answered)
        hear_one(&w);
    assert_int_equal(w.answer.code, 0);
    hear_all(&w);
    check_heard(&h);
    assert_int_equal(h.n_got, 300);
    assert_true(engine_close(w.eng, 30));
    toy_load_steps = 0;
}

/* A pool has memory for what was needed, and no more; where there is no more, sequences make way for each other, and
 * all of them end with the texts that they have in a whole one. */
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
        assert_true(engine_close(w.eng, 30));
    }
    toy_granule = 0;
    toy_extents = UINT32_MAX;
    toy_pages = 64;
}

/* The device stands in a step. */
static void wait_until_held(void)
{
    while (!toy_held)
        sched_yield();
}

/* Yields; a device that stands in a step goes on once it was asked for that. */
static void yield(struct world *w, uint64_t bytes, bool all, double seconds)
{
    w->answered = false;
    engine_yield(w->eng, bytes, all, seconds, w);
    toy_hold_at = 0;
    while (!w->answered)
        hear_one(w);
}

/* Ends a yield; from then on the device stops after so many steps, 0: never. That is said first: it may have done them
 * all by the time that this thread runs again. */
static void end_yield(struct world *w, uint64_t hold_at)
{
    toy_hold_at = hold_at;
    w->answered = false;
    engine_yield(w->eng, 0, false, 0, w);
    while (!w->answered)
        hear_one(w);
}

/* All is given back under eight streams that are somewhere in their texts, again and again: they are parked, nothing is
 * held, nothing is computed, and afterwards each goes on with the token after its last. */
static void streams_outlive_a_yield(void **state)
{
    (void)state;
    static struct heard h[8], late;
    for (uint32_t in_flight = 1; in_flight <= 3; in_flight++) {
        struct world w;
        toy_granule = 4 * TOY_PAGE_BYTES;
        toy_pages = 160;
        toy_moves_late = in_flight > 1;
        world_open_with(&w, &(struct engine_params){.kv_ram = 1 << 20, .restore = TIER_ALWAYS}, in_flight, false);
        w.m.vocab = NULL; /* no end tokens */
        engine_throttle(w.eng, true);
        for (int32_t k = 0; k < 8; k++) {
            int32_t id[60] = {k, 5};
            for (int32_t i = 2; i < 60; i++)
                id[i] = 1 + (i * (k + 3)) % 9;
            engine_submit(w.eng, make(&w, &h[k], id, 20 + 5 * (uint32_t)k, 150));
        }
        const struct engine_counters *c = engine_counters(w.eng);
        toy_hold_at = 40;
        engine_throttle(w.eng, false);
        for (uint32_t turn = 1; turn <= 3; turn++) {
            w.n_parked[1] = 0;
            wait_until_held();
            yield(&w, 0, true, 3600);
            assert_int_equal(w.answer.code, 0);
            assert_int_equal(w.n_parked[1], 8);
            assert_int_equal(toy_mapped, 0);
            assert_false(atomic_load(&w.m.loaded));
            assert_true(w.freed > 0);
            uint64_t rows = c->rows;
            ask(&w, engine_load);
            assert_int_equal(w.answer.code, HEARTH_ENOMEM);
            assert_non_null(strstr(w.answer.msg, "hearth yield --end"));
            assert_int_equal(c->rows, rows); /* nobody went on */
            if (turn == 2)                   /* who comes meanwhile waits, too */
                engine_submit(w.eng, make(&w, &late, (int32_t[]){4, 4, 4}, 3, 20));
            end_yield(&w, turn < 3 ? c->steps + 40 : 0);
        }
        hear_all(&w);
        for (int k = 0; k < 8; k++) {
            check_heard(&h[k]);
            assert_int_equal(h[k].end.reason, END_LENGTH);
            assert_int_equal(h[k].n_got, 150);
            assert_int_equal(h[k].end.n_computed, h[k].n_prompt);
        }
        check_heard(&late);
        assert_int_equal(w.n_parked[0], 24);
        assert_int_equal(engine_tiers(w.eng)->pages_dropped, 0);
        assert_true(engine_close(w.eng, 30));
    }
    toy_granule = 0;
    toy_pages = 64;
    toy_moves_late = false;
}

/* Cached KV goes before the model does, and no more of either than is wanted; what cannot be had is an error, and the
 * time of a yield ends by itself. */
static void a_yield_takes_what_it_must(void **state)
{
    (void)state;
    static struct heard h, after;
    struct world w;
    toy_granule = 4 * TOY_PAGE_BYTES;
    toy_pages = 160;
    toy_free = 1000000;
    world_open_with(&w, &(struct engine_params){.kv_ram = 1 << 20}, 1, false);
    w.m.vocab = NULL;
    engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 300));
    hear_all(&w);
    uint32_t had = toy_mapped;
    assert_true(had >= 4);
    yield(&w, 1000000, false, 3600); /* they are free */
    assert_int_equal(w.answer.code, 0);
    assert_true(w.freed == 0 && w.free == 1000000 && toy_mapped == had && atomic_load(&w.m.loaded));
    end_yield(&w, 0);
    yield(&w, 2000000, false, 0.001); /* the toy has not so much */
    assert_int_equal(w.answer.code, HEARTH_ELIMIT);
    assert_true(toy_mapped == 0 && !atomic_load(&w.m.loaded));
    engine_submit(w.eng, make(&w, &after, (int32_t[]){1, 2, 3}, 3, 300));
    hear_all(&w); /* it is over by itself */
    check_heard(&after);
    assert_true(engine_close(w.eng, 30));
    toy_granule = 0;
    toy_pages = 64;
    toy_free = 1 << 30;
}

static void wait_until(const _Atomic bool *flag, bool is)
{
    while (atomic_load(flag) != is)
        sched_yield();
}

/* Another program takes the card while eight streams run: they are parked, unasked, and go on when it has gone. What
 * hearth has itself is no reason. */
static void others_get_what_they_take(void **state)
{
    (void)state;
    static struct heard h[8];
    char library[4096];
    struct world w;
    snprintf(library, sizeof library, "%s/tests/unit/engine/.libs/fake-nvml.so", getenv("top_builddir"));
    void *lib = dlopen(library, RTLD_NOW);
    struct fake_nvml *fake = lib ? dlsym(lib, "fake_nvml") : NULL;
    assert_non_null(fake);
    *fake = (struct fake_nvml){.total = 1 << 30, .used = 600 << 20};
    fake->compute = (struct fake_list){.n = 1, .v = {{(unsigned)getpid(), 500 << 20}}};
    toy_id = "0123456789abcdef0123456789abcdef sm_90 13000 580";
    toy_granule = 4 * TOY_PAGE_BYTES;
    toy_pages = 160;
    const struct engine_params p = {.kv_ram = 1 << 20,
                                    .restore = TIER_ALWAYS,
                                    .gpu_headroom = 100 << 20,
                                    .nvml = library,
                                    .kv_pool = KV_POOL_GROWING};
    world_open_with(&w, &p, 2, true);
    w.m.vocab = NULL; /* no end tokens */
    /* What others have at first was told before the second look, and the device thread has heard of it. */
    while (fake->looks < 2 || atomic_load(&w.eng->neighbours_pressed))
        sched_yield();
    engine_throttle(w.eng, true);
    for (int32_t k = 0; k < 8; k++)
        engine_submit(w.eng,
                      make(&w, &h[k], (int32_t[]){k, 5, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}, 18, 150));
    toy_hold_at = 40;
    engine_throttle(w.eng, false);
    wait_until_held();
    assert_true(atomic_load(&w.m.loaded) && atomic_load(&w.m.on_gpu));
    assert_int_equal(w.n_parked[1], 0);
    toy_free = 1 << 20;
    fake->used += 200 << 20;
    while (!atomic_load(&w.eng->neighbours_pressed))
        sched_yield();
    toy_hold_at = 0;
    while (w.n_parked[1] < 8)
        hear_one(&w);
    wait_until(&w.m.loaded, false);
    uint64_t rows = engine_counters(w.eng)->rows;
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, HEARTH_ENOMEM);
    assert_non_null(strstr(w.answer.msg, "gpu_headroom"));
    assert_int_equal(engine_counters(w.eng)->rows, rows);
    toy_free = 500 << 20;
    fake->used -= 190 << 20;
    hear_all(&w);
    for (int k = 0; k < 8; k++) {
        check_heard(&h[k]);
        assert_int_equal(h[k].end.reason, END_LENGTH);
        assert_int_equal(h[k].n_got, 150);
    }
    assert_int_equal(w.n_parked[0], 8);
    assert_true(engine_close(w.eng, 30));
    dlclose(lib);
    toy_id = "";
    toy_granule = 0;
    toy_pages = 64;
    toy_free = 1 << 30;
}

/* A pool smaller than the context: what cannot fit is refused with the numbers, what may outgrow it ends there. */
static void the_pool_is_a_limit(void **state)
{
    (void)state;
    static struct heard big, grows;
    struct world w;
    int32_t id[MAX_LEN];
    for (int i = 0; i < MAX_LEN; i++)
        id[i] = 1;
    world_open(&w, 2);
    assert_true(engine_close(w.eng, 30));
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
    assert_true(engine_close(w.eng, 30));
}

/* What hearth may have of the GPU is checked before anything is loaded: the CPU runs what never fits, and says why. */
static void gpu_memory_is_a_limit(void **state)
{
    (void)state;
    static struct heard h;
    struct world w;
    for (int fits = 0; fits < 2; fits++) {
        world_open_with(&w, &(struct engine_params){.gpu_percent = 50}, 1, true); /* of 1 GiB */
        w.m.hp.weight_bytes = fits ? 400 << 20 : 600 << 20;
        engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 20));
        hear_all(&w);
        check_heard(&h);
        struct ledger l;
        engine_ledger(w.eng, &l);
        assert_int_equal(l.limit, 50 * ((1u << 30) / 100));
        assert_int_equal(atomic_load(&w.m.on_gpu), fits);
        assert_int_equal(toy_loads, 1); /* that which did not fit was not begun */
        if (!fits)
            assert_non_null(strstr(atomic_load(&w.m.self_check), "it needs 0.6 GB on the GPU (weights 0.6 GB"));
        assert_true(engine_close(w.eng, 30));
        w.m.hp.weight_bytes = 0;
    }
}

static void forget_reasons(struct model_entry *m)
{
    for (struct reason *r; (r = m->reasons); free(r))
        m->reasons = r->next;
}

/* What of a model has no room on the GPU stays in the host's memory, as far as the configuration lets it; how much that
 * is, and how quick it will be, is told while it loads. */
static void what_does_not_fit_stays_outside(void **state)
{
    (void)state;
    static const struct {
        uint64_t host_weights;
        uint32_t outside; /* matrices; 0: the CPU runs it */
        const char *why;
        uint32_t sharers; /* of what is free: only where no size is given */
    } rows[] = {
        {UINT64_MAX, 6, "passed"},
        {UINT64_C(6) * TOY_MATRIX, 6, "passed"},
        {UINT64_C(6) * TOY_MATRIX, 6, "passed", .sharers = UINT32_MAX},
        {UINT64_MAX, 0, "GPU's memory has 0.5 GB for them, and the host's 0.0 GB of the 0.6 GB", .sharers = UINT32_MAX},
        {UINT64_C(6) * TOY_MATRIX - 1, 0, "GPU's memory has 0.5 GB for them, and the host's 0.6 GB of the 0.6 GB"},
        {0, 0, "it needs 1.0 GB on the GPU (weights 1.0 GB"},
    };
    static struct heard h;
    struct world w;
    toy_matrices = 10;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t outside = rows[i].outside;
        const struct engine_params p = {
            .gpu_percent = 50, .host_weights = rows[i].host_weights, .sharers = rows[i].sharers};
        world_open_with(&w, &p, 1, true);
        w.m.hp.weight_bytes = UINT64_C(10) * TOY_MATRIX;
        engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 20));
        hear_all(&w);
        check_heard(&h);
        assert_int_equal(toy_loads, 1);
        assert_int_equal(atomic_load(&w.m.on_gpu), outside > 0);
        assert_int_equal(atomic_load(&w.m.host_bytes), (uint64_t)outside * TOY_MATRIX);
        assert_int_equal(w.told_host, (uint64_t)outside * TOY_MATRIX);
        double seconds = outside * TOY_MATRIX / TOY_HOST_RATE + (10 - outside) * TOY_MATRIX / TOY_RATE;
        assert_float_equal(atomic_load(&w.m.speed), outside ? 1 / seconds : 0, 1e-6);
        if (!strstr(atomic_load(&w.m.self_check), rows[i].why))
            fail_msg("%s", atomic_load(&w.m.self_check));
        assert_true(engine_close(w.eng, 30));
        forget_reasons(&w.m);
    }
    toy_matrices = 0;
}

/* Where others hold memory of the GPU they make way first: a model is loaded in part only where it is alone. */
static void who_is_idle_makes_way_first(void **state)
{
    (void)state;
    struct world w;
    struct model_entry other = {.path = (char[]){"other"}};
    toy_matrices = 4;
    world_open_with(&w, &(struct engine_params){.host_weights = UINT64_MAX}, 1, true);
    ask(&w, engine_load);
    other.hp = w.m.hp;
    other.hp.weight_bytes = UINT64_C(11) * TOY_MATRIX;
    w.answered = false;
    engine_load(w.eng, &other, &w);
    while (!w.answered)
        hear_one(&w);
    assert_int_equal(w.answer.code, 0);
    assert_false(atomic_load(&w.m.loaded));
    assert_true(atomic_load(&other.on_gpu));
    assert_int_equal(atomic_load(&other.host_bytes), 0); /* alone it fits after all: its matrices are smaller */
    assert_int_equal(toy_loads, 2);
    assert_true(engine_close(w.eng, 30));
    toy_matrices = 0;
}

/* Of streams that do not fit together some make way: their KV goes to host memory and comes back, however late the
 * copies are, and none of it is computed twice but for what fills no page. */
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
            assert_int_equal(h[k].end.n_restored, 0); /* of what it began with */
        }
        const struct engine_counters *c = engine_counters(w.eng);
        const struct tier_counters *t = engine_tiers(w.eng);
        assert_true(t->pages_restored > 0 && t->pages_dropped == 0);
        assert_int_equal(c->tokens_computed, 400);
        assert_true(c->rows <
                    4 * 299 + 4 * 4 * KV_PAGE); /* each is computed once; a page at most each time it came back */
        assert_true(engine_close(w.eng, 30));
    }
    toy_pages = 64;
    toy_moves_late = false;
}

/* Two streams in step fill their pages, and the pool, with the same token: neither has a row in the next step until the
 * KV of the one that makes way was saved, and nothing else happens meanwhile that would have the engine look. */
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
        assert_true(engine_tiers(w.eng)->pages_restored > 0); /* one made way */
        assert_true(engine_close(w.eng, 30));
    }
    toy_pages = 64;
}

/* Whoever finds no memory when nothing else goes on is served once there is some. */
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
    assert_true(engine_close(w.eng, 30));
    toy_granule = 0;
}

/* Whether the text is what its prompt gives alone, on a device that computes prompts in a way of their own. */
static bool is_its_own(const struct heard *h)
{
    uint64_t p = prefix_of(NULL, 0);
    for (uint32_t i = 0; i < h->n_prompt; i++)
        p = extend(p, h->prompt[i] + TOY_PROMPT);
    for (uint32_t i = 0; i < h->n_got; p = extend(p, h->got[i++]))
        if (h->got[i] != (int32_t)toy_next(p))
            return false;
    return true;
}

/* Prompts that share no page, `most` at a time, each once more as it is after an engine's death; how many have texts
 * that are not their own. */
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
        others += !is_its_own(&h[i]);
    }
    assert_true(engine_close(w.eng, 30));
    toy_decode_rows = 0;
    return others;
}

static void texts_are_their_own_in_any_company(void **state)
{
    (void)state;
    assert_int_equal(in_company(INVARIANT_PROMPTS, 4, 4), 0);
    assert_int_equal(in_company(INVARIANT_ALL, 4, 20), 0);
    assert_true(in_company(INVARIANT_PROMPTS, 4, 20) > 0); /* more than four decode */
    assert_true(in_company(INVARIANT_NOTHING, 4, 4) > 0);
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
        assert_true(engine_close(w.eng, 30)); /* leaks would be told by the sanitizer */
    }
}

/* There is memory for one of two models, and both are asked for: in order of arrival, each loaded once for its turn. */
static void two_models_take_turns(void **state)
{
    (void)state;
    enum { N = 12, GIVEN_UP = 7 };
    static struct heard h[N];
    struct world w;
    struct model_entry other = {.path = (char[]){"other"}};
    world_open(&w, 2);
    toy_pools = 1;
    other.hp = w.m.hp;
    other.vocab = w.m.vocab;
    engine_throttle(w.eng, true);
    for (int i = 0; i < N; i++) {
        struct seq *q = make(&w, &h[i], (int32_t[]){1, 2, 1 + i % 3}, 3, 20);
        if (i % 2)
            q->model = &other;
        engine_submit(w.eng, q);
    }
    ask(&w, engine_load); /* all of this has arrived */
    assert_int_equal(w.answer.code, 0);
    assert_int_equal(toy_loads, 2); /* the second time there was no room */
    assert_int_equal(engine_counters(w.eng)->queued, N);
    engine_cancel(w.eng, h[GIVEN_UP].id);
    engine_throttle(w.eng, false);
    hear_all(&w);
    for (int i = 0; i < N; i++) {
        assert_int_equal(h[i].admitted, i != GIVEN_UP);
        if (i != GIVEN_UP)
            check_heard(&h[i]);
    }
    assert_int_equal(h[GIVEN_UP].end.reason, END_CANCELLED);
    assert_int_equal(toy_loads, 2 + N - 1 - 2); /* two of one model meet where one between them has gone */
    assert_true(engine_close(w.eng, 30));
}

/* A GPU that does not serve one model keeps the others; that one runs on the CPU, beside them, with the same results,
 * and says why. */
static void runs_on_the_cpu(struct world *w, struct model_entry *other, const char *why)
{
    static struct heard h[40];
    other->hp = w->m.hp;
    other->vocab = w->m.vocab;
    w->answered = false;
    engine_load(w->eng, other, w);
    while (!w->answered)
        hear_one(w);
    assert_int_equal(w->answer.code, 0);
    assert_false(other->on_gpu);
    assert_string_equal(other->self_check, why);
    toy_refuses = 0;
    memset(h, 0, sizeof h);
    for (int i = 0; i < 40; i++) {
        int32_t prompt[30];
        uint32_t n = 1 + rnd(30);
        for (uint32_t k = 0; k < n; k++)
            prompt[k] = (int32_t)(1 + rnd(VOCAB - 1));
        struct seq *q = make(w, &h[i], prompt, n, rnd(60));
        if (i % 2)
            q->model = other;
        engine_submit(w->eng, q);
    }
    hear_all(w);
    for (int i = 0; i < 40; i++)
        check_heard(&h[i]);
}

static void a_distrusted_device(void **state)
{
    (void)state;
    struct world w;
    struct model_entry other = {.path = (char[]){"other"}};
    world_open_on(&w, MAX_IN_FLIGHT, true);
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, 0);
    assert_true(w.m.on_gpu);
    assert_string_equal(w.m.self_check, "passed");
    assert_int_equal(toy_checks, 1);
    toy_distrusted = true;
    runs_on_the_cpu(&w, &other, "the toy cannot count");
    assert_int_equal(toy_checks, 2);
    assert_true(engine_close(w.eng, 30));
    forget_reasons(&other);
}

static void a_device_without_the_kernels(void **state)
{
    (void)state;
    struct world w;
    struct model_entry other = {.path = (char[]){"other"}};
    world_open_on(&w, MAX_IN_FLIGHT, true);
    ask(&w, engine_load);
    toy_refuses = HEARTH_EUNSUPPORTED;
    runs_on_the_cpu(&w, &other, "the toy is too small");
    assert_true(w.m.loaded && w.m.on_gpu);
    assert_int_equal(toy_checks, 1);
    assert_true(engine_close(w.eng, 30));
    forget_reasons(&other);
}

/* Only where nobody else holds its memory: who is idle goes first, and comes back once it is asked for. */
static void a_device_without_room(void **state)
{
    (void)state;
    struct world w;
    struct model_entry other = {.path = (char[]){"other"}};
    world_open_on(&w, MAX_IN_FLIGHT, true);
    ask(&w, engine_load);
    toy_refuses = HEARTH_ENOMEM;
    runs_on_the_cpu(&w, &other, "the toy is too small");
    assert_int_equal(toy_loads, 1 + 3 + 1); /* the other: beside the first, alone, on the CPU */
    assert_true(w.m.loaded && w.m.on_gpu);
    assert_true(engine_close(w.eng, 30));
    forget_reasons(&other);
}

/* A pool for a few tokens is of no use to anybody. */
static void a_device_without_room_for_kv(void **state)
{
    (void)state;
    struct world w;
    toy_pages = 0; /* as it likes */
    toy_free = 2 * 10 * TOY_PAGE_BYTES;
    world_open_on(&w, MAX_IN_FLIGHT, true);
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, 0);
    assert_false(w.m.on_gpu);
    assert_non_null(strstr(w.m.self_check, "KV of 400 tokens"));
    assert_int_equal(toy_loads, 1); /* the CPU's */
    toy_free = 2 * 20 * TOY_PAGE_BYTES;
    ask(&w, engine_unload);
    ask(&w, engine_load);
    assert_false(w.m.on_gpu);
    assert_non_null(strstr(w.m.self_check, "room for the KV of 320 tokens"));
    toy_free = 2 * 25 * TOY_PAGE_BYTES;
    ask(&w, engine_unload);
    ask(&w, engine_load);
    assert_true(w.m.on_gpu);
    assert_int_equal(w.m.pages_total, 25);
    assert_true(engine_close(w.eng, 30));
    forget_reasons(&w.m);
    toy_pages = 64;
    toy_free = 1 << 30;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_steps_in_flight),
        cmocka_unit_test(cancelled_before_it_began),
        cmocka_unit_test(who_lost_only_its_end_has_it),
        cmocka_unit_test(a_failed_device_ends_everything),
        cmocka_unit_test(two_models_take_turns),
        cmocka_unit_test(a_distrusted_device),
        cmocka_unit_test(a_device_without_the_kernels),
        cmocka_unit_test(a_device_without_room),
        cmocka_unit_test(a_device_without_room_for_kv),
        cmocka_unit_test(a_model_that_does_not_load),
        cmocka_unit_test(a_slot_without_room),
        cmocka_unit_test(eval_is_what_generate_does),
        cmocka_unit_test(a_busy_model_is_not_unloaded),
        cmocka_unit_test(a_load_does_not_stop_the_others),
        cmocka_unit_test(gpu_memory_is_a_limit),
        cmocka_unit_test(what_does_not_fit_stays_outside),
        cmocka_unit_test(who_is_idle_makes_way_first),
        cmocka_unit_test(memory_comes_as_it_is_needed),
        cmocka_unit_test(streams_outlive_a_yield),
        cmocka_unit_test(a_yield_takes_what_it_must),
        cmocka_unit_test(others_get_what_they_take),
        cmocka_unit_test(who_makes_way_is_parked),
        cmocka_unit_test(all_wait_for_who_makes_way),
        cmocka_unit_test(who_finds_no_memory_asks_again),
        cmocka_unit_test(the_pool_is_a_limit),
        cmocka_unit_test(closing_with_work_under_way),
        cmocka_unit_test(texts_are_their_own_in_any_company),
    };
    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
