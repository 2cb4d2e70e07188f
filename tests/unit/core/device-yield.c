/*
 * device-yield.c - the device's memory is given back to other programs, on request or because they need it, while
 * streams run on the toy (toy.h). Also run under the thread sanitizer.
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

/* Waits until the device is held in a step. */
static void wait_until_held(void)
{
    while (!toy_held)
        sched_yield();
}

/* Yields. If the device is held in a step, that is released once the yield has been requested. */
static void yield(struct world *w, uint64_t bytes, bool all, double seconds)
{
    w->answered = false;
    engine_yield(w->eng, bytes, all, seconds, w);
    toy_hold_at = 0;
    while (!w->answered)
        hear_one(w);
}

/* Ends a yield; from then on the device is held after `hold_at` steps in all, 0: never. That is set before the yield
 * ends, because the steps may be done by the time this thread runs again. */
static void end_yield(struct world *w, uint64_t hold_at)
{
    toy_hold_at = hold_at;
    w->answered = false;
    engine_yield(w->eng, 0, false, 0, w);
    while (!w->answered)
        hear_one(w);
}

/* All memory is given back while eight streams are in the middle of their texts, several times: they are parked,
 * nothing is held or computed, and afterwards each continues with the token after its last. */
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
            assert_int_equal(c->rows, rows); /* no stream went on */
            if (turn == 2)                   /* a request that arrives meanwhile waits too */
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
        assert_int_equal(w.n_parked[0], 25); /* the late request, too, was notified of what it waited for */
        assert_int_equal(engine_tiers(w.eng)->pages_dropped, 0);
        world_close(&w);
    }
    toy_granule = 0;
    toy_pages = 64;
    toy_moves_late = false;
}

/* Cached KV is freed before the model, and no more of either than was requested. If less is free at the end, the yield
 * fails, and its time ends by itself. */
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
    yield(&w, 1000000, false, 3600); /* this much is free already */
    assert_int_equal(w.answer.code, 0);
    assert_true(w.freed == 0 && w.free == 1000000 && toy_mapped == had && atomic_load(&w.m.loaded));
    end_yield(&w, 0);
    yield(&w, 2000000, false, 0.001); /* the toy does not have so much */
    assert_int_equal(w.answer.code, HEARTH_ELIMIT);
    assert_true(toy_mapped == 0 && !atomic_load(&w.m.loaded));
    engine_submit(w.eng, make(&w, &after, (int32_t[]){1, 2, 3}, 3, 300));
    hear_all(&w); /* the yield has ended by itself */
    check_heard(&after);
    world_close(&w);
    toy_granule = 0;
    toy_pages = 64;
    toy_free = 1 << 30;
}

/* A pinned model stays with the minimum of its pool, here a full context, and requests for it are served meanwhile. */
static void a_pinned_model_serves_meanwhile(void **state)
{
    (void)state;
    static struct heard h[8], late;
    struct world w;
    toy_granule = 4 * TOY_PAGE_BYTES;
    toy_pages = 160;
    world_open(&w, 1);
    w.m.vocab = NULL;
    engine_throttle(w.eng, true);
    for (int32_t k = 0; k < 8; k++)
        engine_submit(w.eng, make(&w, &h[k], (int32_t[]){k, 5, 1}, 3, 150));
    engine_throttle(w.eng, false);
    hear_all(&w);
    atomic_store(&w.m.pinned, true);
    assert_true(toy_mapped > 8);
    yield(&w, 0, true, 3600);
    assert_int_equal(w.answer.code, 0);
    assert_int_equal(toy_mapped, (MAX_LEN / KV_PAGE + 3) / 4);
    engine_submit(w.eng, make(&w, &late, (int32_t[]){1, 2, 3}, 3, MAX_LEN - 3));
    hear_all(&w);
    check_heard(&late);
    assert_int_equal(w.n_parked[1], 0);
    world_close(&w);
    toy_granule = 0;
    toy_pages = 64;
}

/* If a loaded model's pool has no room for what is requested, and cannot grow until the yield ends, that is reported:
 * for a stream that has begun, and for one that has not. */
static void who_waits_for_pages_is_told(void **state)
{
    (void)state;
    static struct heard h, late;
    for (uint32_t in_flight = 1; in_flight <= 3; in_flight++) {
        struct world w;
        toy_granule = 4 * TOY_PAGE_BYTES;
        toy_pages = 160;
        world_open_with(&w, &(struct engine_params){.kv_ram = 1 << 20}, in_flight, false);
        w.m.vocab = NULL;
        toy_hold_at = 20;
        engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 300));
        wait_until_held();
        yield(&w, 1, false, 3600); /* this much is free already */
        while (w.n_parked[1] < 1)
            hear_one(&w);
        assert_int_equal(h.n_got, 4 * KV_PAGE - 3 + 1);
        engine_submit(w.eng, make(&w, &late, (int32_t[]){4, 5, 6}, 3, 20));
        while (w.n_parked[1] < 2)
            hear_one(&w);
        assert_int_equal(w.n_parked[0], 0);
        yield(&w, 0, false, 0);
        hear_all(&w);
        assert_int_equal(w.n_parked[0], 2);
        assert_int_equal(w.n_parked[1], 2);
        check_heard(&h);
        check_heard(&late);
        world_close(&w);
    }
    toy_granule = 0;
    toy_pages = 64;
}

/* A model that was refused because of a yield is loaded when that has ended, beside another one that is in use. */
static void a_yield_that_has_ended_refuses_nothing(void **state)
{
    (void)state;
    static struct heard h, other;
    struct world w;
    world_open(&w, 1);
    w.m.vocab = NULL;
    struct model_entry second = {.hp = w.m.hp};
    toy_hold_at = 20;
    engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 300));
    wait_until_held();
    w.answered = false;
    engine_yield(w.eng, 1, false, 3600, &w); /* this much is free already */
    struct seq *q = make(&w, &other, (int32_t[]){4, 5, 6}, 3, 5);
    q->model = &second;
    engine_submit(w.eng, q);
    toy_hold_at = 40;
    while (!w.answered || !w.n_parked[1])
        hear_one(&w);
    yield(&w, 0, false, 0);
    while (!other.ended)
        hear_one(&w);
    assert_false(h.ended);
    check_heard(&other);
    assert_int_equal(w.n_parked[0], 1);
    hear_all(&w);
    check_heard(&h);
    world_close(&w);
    entry_fini(&second);
}

/* Nobody waits behind a request that is refused because of a yield: neither those for a loaded model that come after it
 * nor those that waited behind it already, because the two models were taking turns. */
static void who_is_refused_holds_nobody_up(void **state)
{
    (void)state;
    static struct heard h, other, late;
    struct world w;
    world_open(&w, 1);
    w.m.vocab = NULL;
    struct model_entry second = {.hp = w.m.hp};
    ask(&w, engine_load);
    toy_pools = 1; /* there is room for one of the models */
    for (int turns = 0; turns < 2; turns++) {
        w.n_parked[0] = w.n_parked[1] = 0;
        toy_hold_at = engine_counters(w.eng)->steps + 20;
        engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 300));
        wait_until_held();
        if (!turns)
            engine_yield(w.eng, 1, false, 3600, &w); /* this much is free already */
        struct seq *q = make(&w, &other, (int32_t[]){4, 5, 6}, 3, 5);
        q->model = &second;
        engine_submit(w.eng, q);
        if (turns) { /* its load is tried and fails, beside which there are steps */
            toy_hold_at = toy_hold_at + 100;
            while (!w.n_parked[1])
                hear_one(&w);
            wait_until_held();
        }
        engine_submit(w.eng, make(&w, &late, (int32_t[]){7, 8, 9}, 3, 5));
        if (turns)
            engine_yield(w.eng, 1, false, 3600, &w);
        toy_hold_at = 0;
        while (!late.ended)
            hear_one(&w);
        assert_false(h.ended);
        while (!h.ended)
            hear_one(&w);
        assert_int_equal(w.n_parked[1], 1 + turns);
        assert_false(other.ended);
        yield(&w, 0, false, 0);
        hear_all(&w);
        assert_int_equal(w.n_parked[0], 1 + turns);
        check_heard(&h);
        check_heard(&other);
        check_heard(&late);
        ask(&w, engine_load); /* the other model makes way */
        assert_int_equal(w.answer.code, 0);
    }
    world_close(&w);
    entry_fini(&second);
}

/* Limits what may be held until the yield ends. */
static void keep_yield(struct world *w, uint64_t most)
{
    w->answered = false;
    engine_keep_yield(w->eng, most, 3600, w);
    while (!w->answered)
        hear_one(w);
    assert_int_equal(w->answer.code, 0);
}

/* A model whose weights alone may be held during a yield, but not the least KV that it needs, is not loaded, here nor
 * on the CPU: requests for it wait, and nobody waits behind them. */
static void a_load_keeps_to_the_yield(void **state)
{
    (void)state;
    static struct heard h, other;
    toy_pages = 0; /* as many as memory allows */
    toy_free = 2 * 150 * TOY_PAGE_BYTES;
    for (int growing = 0; growing < 2; growing++) {
        struct world w;
        toy_granule = growing ? 4 * TOY_PAGE_BYTES : 0;
        world_open_on(&w, 1, true);
        w.m.vocab = NULL;
        struct model_entry small = {.hp = w.m.hp};
        w.m.hp.weight_bytes = 30 * TOY_PAGE_BYTES;
        keep_yield(&w, 50 * TOY_PAGE_BYTES);
        uint32_t loads = toy_loads;
        ask(&w, engine_load);
        assert_int_equal(w.answer.code, HEARTH_ENOMEM);
        assert_non_null(strstr(w.answer.msg, "hearth yield --end"));
        engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 20));
        while (!w.n_parked[1])
            hear_one(&w);
        assert_int_equal(toy_loads, loads);
        struct seq *q = make(&w, &other, (int32_t[]){4, 5, 6}, 3, 5);
        q->model = &small;
        engine_submit(w.eng, q);
        while (!other.ended)
            hear_one(&w);
        check_heard(&other);
        assert_true(atomic_load(&small.on_gpu));
        assert_false(h.admitted);
        end_yield(&w, 0);
        hear_all(&w);
        check_heard(&h);
        assert_true(atomic_load(&w.m.on_gpu));
        world_close(&w);
        entry_fini(&small);
    }
    toy_granule = 0;
    toy_pages = 64;
    toy_free = 1 << 30;
}

/* A pool that is allocated as a whole is no larger than what may be held. */
static void a_pool_keeps_to_the_yield(void **state)
{
    (void)state;
    struct world w;
    toy_pages = 0;
    toy_free = 2 * 150 * TOY_PAGE_BYTES;
    world_open_on(&w, 1, true);
    keep_yield(&w, 60 * TOY_PAGE_BYTES);
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, 0);
    assert_true(atomic_load(&w.m.on_gpu));
    assert_in_range(atomic_load(&w.m.pages_total), (MAX_LEN + KV_PAGE - 1) / KV_PAGE, 60);
    world_close(&w);
    toy_pages = 64;
    toy_free = 1 << 30;
}

/* Until the yield ends, copies of weights take no more memory than when it was answered, whatever was given back. */
static void copies_do_not_grow(void **state)
{
    (void)state;
    static const struct {
        uint64_t had, bytes; /* of copies; to be free, 0: all */
        uint64_t most;
    } rows[] = {{1000, 0, 0}, {0, 0, 0}, {0, 5000, 0}, {1000, 5000, 1000}, {1000, 9500, 0}};
    struct world w;
    toy_free = 10000;
    world_open(&w, 1);
    ask(&w, engine_load);
    atomic_store(&w.m.pinned, true);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int again = 0; again < 2; again++) {
            toy_mem_cached = rows[i].had;
            if (again) {
                w.answered = false;
                engine_keep_yield(w.eng, 1 << 20, 3600, &w);
                while (!w.answered)
                    hear_one(&w);
            } else
                yield(&w, rows[i].bytes, !rows[i].bytes, 3600);
            assert_int_equal(w.answer.code, 0);
            assert_int_equal(toy_cache_most, again ? rows[i].had : rows[i].most);
            end_yield(&w, 0);
            assert_true(toy_cache_most == UINT64_MAX);
        }
    world_close(&w);
    toy_mem_cached = 0;
    toy_free = 1 << 30;
}

static void wait_until(const _Atomic bool *flag, bool is)
{
    while (atomic_load(flag) != is)
        sched_yield();
}

/* Opens the engine on a GPU, of whose memory other programs are said to use 100 MB, and lets eight streams run until
 * the device is held in a step. */
static struct fake_nvml *open_beside_others(struct world *w, struct heard h[8], void **lib)
{
    static char library[4096];
    snprintf(library, sizeof library, "%s/tests/unit/engine/.libs/fake-nvml.so", getenv("top_builddir"));
    *lib = dlopen(library, RTLD_NOW);
    struct fake_nvml *fake = *lib ? dlsym(*lib, "fake_nvml") : NULL;
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
    world_open_with(w, &p, 2, true);
    w->m.vocab = NULL; /* no end tokens */
    /* The first look at other programs' memory was reported before the second look, and the device thread has processed
     * it. */
    while (fake->looks < 2 || atomic_load(&w->eng->neighbours_pressed))
        sched_yield();
    engine_throttle(w->eng, true);
    for (int32_t k = 0; k < 8; k++)
        engine_submit(w->eng,
                      make(w, &h[k], (int32_t[]){k, 5, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}, 18, 150));
    toy_hold_at = 40;
    engine_throttle(w->eng, false);
    wait_until_held();
    return fake;
}

/* Another program takes 200 MB, which the engine learns while the device is held. */
static void others_take(struct world *w, struct fake_nvml *fake)
{
    toy_free = 1 << 20;
    fake->used += 200 << 20;
    while (!atomic_load(&w->eng->neighbours_pressed))
        sched_yield();
}

static void others_leave(struct fake_nvml *fake)
{
    toy_free = 500 << 20;
    fake->used -= 190 << 20;
}

/* When the other program has exited, all streams end as if nothing had happened. */
static void close_beside_others(struct world *w, struct heard h[8], void *lib)
{
    hear_all(w);
    for (int k = 0; k < 8; k++) {
        check_heard(&h[k]);
        assert_int_equal(h[k].end.reason, END_LENGTH);
        assert_int_equal(h[k].n_got, 150);
    }
    assert_int_equal(w->n_parked[0], w->n_parked[1]);
    world_close(w);
    dlclose(lib);
    toy_id = "";
    toy_granule = 0;
    toy_pages = 64;
    toy_free = 1 << 30;
}

/* Another program takes GPU memory while eight streams run: they are parked without a request, and go on when it has
 * exited. Memory that hearth itself holds does not count as pressure. */
static void others_get_what_they_take(void **state)
{
    (void)state;
    static struct heard h[8];
    struct world w;
    void *lib;
    struct fake_nvml *fake = open_beside_others(&w, h, &lib);
    assert_true(atomic_load(&w.m.loaded) && atomic_load(&w.m.on_gpu));
    assert_int_equal(w.n_parked[1], 0);
    others_take(&w, fake);
    toy_hold_at = 0;
    while (w.n_parked[1] < 8)
        hear_one(&w);
    wait_until(&w.m.loaded, false);
    uint64_t rows = engine_counters(w.eng)->rows;
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, HEARTH_ENOMEM);
    assert_non_null(strstr(w.answer.msg, "gpu_headroom"));
    assert_int_equal(engine_counters(w.eng)->rows, rows);
    assert_int_equal(w.n_relieved, 0);
    others_leave(fake);
    close_beside_others(&w, h, lib);
    assert_int_equal(w.n_relieved, 1);
}

/* Waits until the other programs' memory has been read again. */
static void wait_for_looks(const struct fake_nvml *fake)
{
    for (unsigned looks = fake->looks; fake->looks < looks + 3;)
        sched_yield();
}

/* Another program takes memory, gives it back, and takes it again while the KV of the streams, which were parked the
 * first time, is being restored. So they are being parked until toy_moves_never is false. */
static struct fake_nvml *open_while_parking(struct world *w, struct heard h[8], void **lib)
{
    toy_moves_late = true;
    struct fake_nvml *fake = open_beside_others(w, h, lib);
    others_take(w, fake);
    toy_hold_at = 0;
    while (w->n_parked[1] < 8)
        hear_one(w);
    wait_until(&w->m.loaded, false);
    toy_moves_never = true;
    others_leave(fake);
    while (w->n_parked[0] < 8)
        hear_one(w);
    toy_free = 1 << 20;
    fake->used += 200 << 20;
    wait_for_looks(fake);
    wait_until(&w->eng->neighbours_pressed, false);
    return fake;
}

/* Such a yield can be ended by a request also while streams are being parked for it, which cannot be done until their
 * KV has been restored. The request gets one answer, nobody else gets one, and no stream is parked. */
static void what_others_take_can_be_ended(void **state)
{
    (void)state;
    static struct heard h[8];
    struct world w;
    void *lib;
    struct fake_nvml *fake = open_while_parking(&w, h, &lib);
    w.n_yielded = 0;
    engine_yield(w.eng, 0, false, 0, &w);
    while (!w.n_yielded)
        hear_one(&w);
    assert_int_equal(w.answer.code, 0);
    toy_moves_never = false;
    others_leave(fake);
    close_beside_others(&w, h, lib);
    assert_int_equal(w.n_yielded, 1);
    assert_int_equal(w.n_parked[1], 8);
    toy_moves_late = false;
}

/* That the other program exits while streams are being parked for it is noticed once they are. */
static void others_leave_while_streams_are_parked(void **state)
{
    (void)state;
    static struct heard h[8];
    struct world w;
    void *lib;
    struct fake_nvml *fake = open_while_parking(&w, h, &lib);
    fake->used -= 200 << 20;
    wait_for_looks(fake);
    toy_moves_never = false;
    close_beside_others(&w, h, lib);
    assert_int_equal(w.n_parked[1], 16);
    toy_moves_late = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_outlive_a_yield),
        cmocka_unit_test(a_yield_takes_what_it_must),
        cmocka_unit_test(a_pinned_model_serves_meanwhile),
        cmocka_unit_test(who_waits_for_pages_is_told),
        cmocka_unit_test(a_yield_that_has_ended_refuses_nothing),
        cmocka_unit_test(who_is_refused_holds_nobody_up),
        cmocka_unit_test(a_load_keeps_to_the_yield),
        cmocka_unit_test(a_pool_keeps_to_the_yield),
        cmocka_unit_test(copies_do_not_grow),
        cmocka_unit_test(others_get_what_they_take),
        cmocka_unit_test(what_others_take_can_be_ended),
        cmocka_unit_test(others_leave_while_streams_are_parked),
    };
    return cmocka_run_group_tests_name("device-yield", tests, NULL, NULL);
}
