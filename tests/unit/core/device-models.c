/*
 * device-models.c - the device thread loads and unloads models: which ones fit, on which device, where their weights
 * are placed, and the reasons that are reported. On the toy (toy.h); also run under the thread sanitizer.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/core/device.h"
#include "tests/unit/core/toy.h"

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
    world_close(&w);
}

static void a_busy_model_is_not_unloaded(void **state)
{
    (void)state;
    static struct heard h;
    struct world w;
    world_open(&w, 2);
    engine_throttle(w.eng, true); /* the sequence cannot end before the unload is requested */
    engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 50));
    ask(&w, engine_unload);
    assert_int_equal(w.answer.code, HEARTH_ELIMIT);
    assert_false(h.ended);
    assert_int_equal(h.n_got, 0); /* throttled: no step was begun */
    engine_throttle(w.eng, false);
    hear_all(&w);
    check_heard(&h);
    ask(&w, engine_unload);
    assert_int_equal(w.answer.code, 0);
    assert_false(atomic_load(&w.m.loaded));
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, 0);
    assert_true(atomic_load(&w.m.loaded));
    world_close(&w);
}

/* While a second model is being loaded, the streams of the first one go on, and another request arrives and is served,
 * or is cancelled. */
static void a_load_does_not_stop_the_others(void **state)
{
    (void)state;
    static struct heard h, late, gone;
    struct world w;
    world_open(&w, 2);
    w.m.vocab = NULL;
    struct model_entry second = {.hp = w.m.hp};
    engine_throttle(w.eng, true);
    engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 300));
    ask(&w, engine_load); /* the previous order was carried out: the stream has not begun */
    toy_load_steps = 100; /* the load would never end if the other streams had to wait for it */
    engine_load(w.eng, &second, &w);
    engine_submit(w.eng, make(&w, &late, (int32_t[]){4, 5, 6}, 3, 5));
    engine_submit(w.eng, make(&w, &gone, (int32_t[]){7, 8, 9}, 3, 300));
    engine_cancel(w.eng, gone.id);
    engine_throttle(w.eng, false);
    w.answered = false;
    while (!w.answered)
        hear_one(&w);
    assert_int_equal(w.answer.code, 0);
    assert_true(late.ended && late.n_got == 5 && gone.ended && !h.ended);
    assert_int_equal(gone.end.reason, END_CANCELLED);
    check_heard(&late);
    hear_all(&w);
    check_heard(&h);
    assert_int_equal(h.n_got, 300);
    world_close(&w);
    entry_fini(&second);
    toy_load_steps = 0;
}

/* A command that arrives during the load of a model for which a request has waited, and that has to wait for that
 * load's end, is carried out even if the load fails and nothing else is to be done. */
static void a_command_outlasts_a_failed_load(void **state)
{
    (void)state;
    static struct heard h, waits;
    struct world w;
    world_open(&w, 1);
    toy_pools = 1;
    struct model_entry second = {.path = (char[]){"second"}, .hp = w.m.hp};
    engine_throttle(w.eng, true);
    engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 5));
    struct seq *q = make(&w, &waits, (int32_t[]){1, 2, 3}, 3, 5);
    q->model = &second;
    engine_submit(w.eng, q);
    while (!w.n_parked[1])
        hear_one(&w);
    toy_load = LOAD_BREAKS;
    engine_throttle(w.eng, false);
    while (toy_load != LOAD_HELD)
        sched_yield();
    w.answered = false;
    engine_load(w.eng, &w.m, &w);
    toy_load = LOAD_FAILS;
    while (!w.answered)
        hear_one(&w);
    toy_load = LOAD_WORKS;
    assert_int_equal(w.answer.code, 0);
    assert_int_equal(waits.end.err.code, HEARTH_EBADMODEL);
    check_heard(&h);
    world_close(&w);
    entry_fini(&second);
    toy_pools = 0;
}

/* The limit on GPU memory is checked before anything is loaded: a model that can never fit runs on the CPU, with the
 * reason. */
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
        assert_int_equal(toy_loads, 1); /* the load of a model that does not fit was not begun */
        if (!fits)
            assert_non_null(strstr(atomic_load(&w.m.self_check), "it needs 0.6 GB on the GPU (weights 0.6 GB"));
        world_close(&w);
        w.m.hp.weight_bytes = 0;
    }
}

/* Weights for which the GPU has no room stay in host memory, as far as the configuration allows it; their size and the
 * speed to expect are reported while the model loads. */
static void what_does_not_fit_stays_outside(void **state)
{
    (void)state;
    static const struct {
        uint64_t host_weights;
        uint32_t outside; /* matrices in host memory; 0: the CPU runs the model */
        const char *why;
        uint32_t sharers; /* engines among which free host memory is shared; applies only if no size is configured */
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
        world_close(&w);
    }
    toy_matrices = 0;
}

/* Idle models that hold GPU memory are unloaded first: a model is loaded with weights in host memory only if nothing
 * else is on the GPU. */
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
    assert_int_equal(atomic_load(&other.host_bytes),
                     0); /* with the GPU to itself it fits after all, because its matrices are smaller */
    assert_int_equal(toy_loads, 2);
    world_close(&w);
    entry_fini(&other);
    toy_matrices = 0;
}

/* There is memory for one of two models, and both are requested: they take turns in order of arrival, and each turn
 * loads its model once. A request for the model in use that arrives before the other model was found to have no room is
 * served in the current turn. */
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
    toy_info_waits = true; /* the first load, until all requests have arrived */
    for (int i = 0; i < N; i++) {
        struct seq *q = make(&w, &h[i], (int32_t[]){1, 2, 1 + i % 3}, 3, 20);
        if (i % 2)
            q->model = &other;
        engine_submit(w.eng, q);
    }
    toy_info_waits = false;
    ask(&w, engine_load); /* they have been looked at */
    assert_int_equal(w.answer.code, 0);
    assert_int_equal(toy_loads, 2); /* the second load found no room */
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
    /* The first two requests of a model share a turn, and so do two requests whose intermediate one was cancelled: each
     * saves two turns. */
    assert_int_equal(toy_loads, 2 + N - 1 - 2 - 2);
    world_close(&w);
    entry_fini(&other);
}

/* A GPU that cannot serve one model keeps serving the others; that model runs on the CPU beside them, with the same
 * results, and the reason is reported. */
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
    world_close(&w);
    entry_fini(&other);
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
    world_close(&w);
    entry_fini(&other);
}

/* The GPU counts as too small only when nothing else holds its memory: an idle model is unloaded first, and loaded
 * again when it is requested. */
static void a_device_without_room(void **state)
{
    (void)state;
    struct world w;
    struct model_entry other = {.path = (char[]){"other"}};
    world_open_on(&w, MAX_IN_FLIGHT, true);
    ask(&w, engine_load);
    toy_refuses = HEARTH_ENOMEM;
    runs_on_the_cpu(&w, &other, "the toy is too small");
    assert_int_equal(toy_loads,
                     1 + 3 + 1); /* loads of the other model: beside the first, with the GPU to itself, on the CPU */
    assert_true(w.m.loaded && w.m.on_gpu);
    world_close(&w);
    entry_fini(&other);
}

/* A pool for only a few tokens is refused. */
static void a_device_without_room_for_kv(void **state)
{
    (void)state;
    struct world w;
    toy_pages = 0; /* the engine chooses */
    toy_free = 2 * 10 * TOY_PAGE_BYTES;
    world_open_on(&w, MAX_IN_FLIGHT, true);
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, 0);
    assert_false(w.m.on_gpu);
    assert_non_null(strstr(w.m.self_check, "KV of 400 tokens"));
    assert_int_equal(toy_loads, 1); /* the load on the CPU */
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
    world_close(&w);
    toy_pages = 64;
    toy_free = 1 << 30;
}

/* If the machine has other devices, a device whose memory is held by other programs refuses the model with EELSEWHERE,
 * whether it is loaded explicitly or for a sequence, until it is ordered to keep it because no device has room. */
static void a_full_device_among_others(void **state)
{
    (void)state;
    static struct heard h[2];
    struct world w;
    toy_free = 2 * 10 * TOY_PAGE_BYTES;
    world_open_with(&w, &(struct engine_params){.sharers = 2}, MAX_IN_FLIGHT, true);
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, HEARTH_EELSEWHERE);
    assert_non_null(strstr(w.answer.msg, "KV of 400 tokens"));
    engine_submit(w.eng, make(&w, &h[0], (int32_t[]){1, 2, 3}, 3, 5));
    hear_all(&w);
    assert_int_equal(h[0].end.reason, END_ERROR);
    assert_int_equal(h[0].end.err.code, HEARTH_EELSEWHERE);
    assert_int_equal(toy_loads, 0);
    ask(&w, engine_load_here);
    assert_int_equal(w.answer.code, 0);
    assert_false(w.m.on_gpu);
    engine_submit(w.eng, make(&w, &h[1], (int32_t[]){1, 2, 3}, 3, 5));
    hear_all(&w);
    check_heard(&h[1]);
    ask(&w, engine_unload);
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, HEARTH_EELSEWHERE); /* meanwhile another device may have room */
    toy_free = 1 << 30;
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, 0);
    assert_true(w.m.on_gpu);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_models_take_turns),
        cmocka_unit_test(a_distrusted_device),
        cmocka_unit_test(a_device_without_the_kernels),
        cmocka_unit_test(a_device_without_room),
        cmocka_unit_test(a_device_without_room_for_kv),
        cmocka_unit_test(a_model_that_does_not_load),
        cmocka_unit_test(a_busy_model_is_not_unloaded),
        cmocka_unit_test(a_load_does_not_stop_the_others),
        cmocka_unit_test(gpu_memory_is_a_limit),
        cmocka_unit_test(what_does_not_fit_stays_outside),
        cmocka_unit_test(who_is_idle_makes_way_first),
        cmocka_unit_test(a_full_device_among_others),
        cmocka_unit_test(a_command_outlasts_a_failed_load),
    };
    return cmocka_run_group_tests_name("device-models", tests, NULL, NULL);
}
