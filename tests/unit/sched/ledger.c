/* ledger.c - what holds the device's memory, and how much may still be taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/engine/sched/ledger.h"

static const uint64_t G = UINT64_C(1000000000);

/* 80 GB, of which hearth holds 20, and 10 more in its weight cache; its context takes half a gigabyte. */
static const struct device_info info = {
    .gpu = true,
    .mem_total = 80000000000,
    .mem_free = 40000000000,
    .held =
        {[MEM_WEIGHTS] = 12000000000, [MEM_KV] = 7000000000, [MEM_WORKSPACE] = 1000000000, [MEM_CACHE] = 10000000000},
    .mem_pinned = 3000000000,
};

static struct ledger count(uint64_t limit, struct ledger_seen seen)
{
    struct ledger l = {.limit = limit, .others = 99, .headroom = 99};
    ledger_count(&l, &info, &(struct ledger_seen){0}, 1);
    seen.at = 2;
    ledger_count(&l, &info, &seen, 3);
    return l;
}

/* What is seen of hearth from outside lags behind: while memory is being freed or allocated, the difference is not the
 * context. */
static void the_context_is_told_by_a_look_at_what_is_held(void **state)
{
    (void)state;
    struct ledger l = {0};
    struct device_info d = info;
    struct ledger_seen seen = {true, false, 50 * G, 30 * G + G / 2, 1};
    ledger_count(&l, &d, &seen, 2);
    assert_true(l.context == 0); /* this amount was held only after the look */
    seen.at = 3;
    ledger_count(&l, &d, &seen, 4);
    assert_true(l.context == G / 2 && l.others == 19 * G + G / 2);
    d.held[MEM_WEIGHTS] = 0; /* a model is unloaded, which frees 12 GB */
    ledger_count(&l, &d, &seen, 5);
    assert_true(l.context == G / 2 && ledger_own(&l) == 8 * G + G / 2 && l.others == 19 * G + G / 2);
    seen.at = 4.5; /* a look from before */
    ledger_count(&l, &d, &seen, 6);
    assert_true(l.context == G / 2);
    seen = (struct ledger_seen){true, false, 38 * G + G / 4, 18 * G + G * 3 / 4, 7}; /* the context grew */
    d.held[MEM_CACHE] -= G;
    ledger_count(&l, &d, &seen, 8); /* ... or less is held */
    assert_true(l.context == G / 2);
    seen.at = 9;
    seen.own -= G;
    ledger_count(&l, &d, &seen, 10);
    assert_true(l.context == G * 3 / 4);
    d.held[MEM_WEIGHTS] = 12 * G; /* another model is loaded */
    ledger_count(&l, &d, &seen, 11);
    assert_true(l.context == G * 3 / 4);
    ledger_count(&l, &d, &(struct ledger_seen){.at = 12}, 13); /* a look that failed */
    assert_true(l.context == G * 3 / 4 && ledger_own(&l) == 20 * G + G * 3 / 4 && !l.others_known);
    seen.own = 0; /* it is no longer reported */
    ledger_count(&l, &d, &seen, 14);
    assert_true(l.context == 0);
}

static void everything_is_somebodys(void **state)
{
    (void)state;
    struct ledger l = count(0, (struct ledger_seen){true, false, 50 * G, 30 * G + G / 2});
    assert_true(l.context == G / 2 && l.others == 19 * G + G / 2 && l.others_known && l.pinned == 3 * G);
    assert_true(ledger_own(&l) == 20 * G + G / 2);
    assert_true(l.held[MEM_WEIGHTS] + l.held[MEM_KV] + l.held[MEM_WORKSPACE] + l.held[MEM_CACHE] + l.context +
                    l.others + (l.free - l.held[MEM_CACHE]) ==
                l.total);
    l = count(0, (struct ledger_seen){true, false, 50 * G,
                                      0}); /* a container: the memory of single processes is not reported */
    assert_true(l.context == 0 && l.others == 20 * G && l.others_known);
    l = count(0, (struct ledger_seen){true, false, 1, 2}); /* numbers of different moments */
    assert_true(l.context == 0 && l.others == 0);
    l = count(0, (struct ledger_seen){0});
    assert_true(l.context == 0 && l.others == 0 && !l.others_known && l.headroom == 0);
}

static void room_is_bounded_twice(void **state)
{
    (void)state;
    struct ledger l = count(0, (struct ledger_seen){0});
    assert_true(ledger_room(&l) == 40 * G);
    l = count(24 * G, (struct ledger_seen){0}); /* the weight cache does not count */
    assert_true(ledger_room(&l) == 4 * G);
    l = count(24 * G, (struct ledger_seen){true, false, 50 * G, 30 * G + G / 2}); /* the context does */
    assert_true(ledger_room(&l) == 3 * G + G / 2);
    l = count(19 * G, (struct ledger_seen){0});
    assert_true(ledger_room(&l) == 0);
    l = count(79 * G, (struct ledger_seen){0});
    assert_true(ledger_room(&l) == 40 * G);
    l.promised = 3 * G; /* to steps */
    assert_true(ledger_room(&l) == 37 * G);
    assert_true(ledger_room_for_kv(&l) == 37 * G);
    l.limit = 24 * G;
    assert_true(ledger_room(&l) == G && ledger_room_for_kv(&l) == 2 * G);
    l.limit = 0, l.free = 4 * G;
    assert_true(ledger_room(&l) == G && ledger_room_for_kv(&l) == 2 * G);
    l = count(0, (struct ledger_seen){true, true, 50 * G, 0}); /* a GPU with a display */
    assert_true(ledger_room(&l) == 40 * G - (UINT64_C(1) << 30));
    l.free = 5;
    assert_true(ledger_room(&l) == 0);
    assert_true(ledger_share(&l, 80) == 64 * G && ledger_share(&l, 100) == 80 * G);
}

static void a_refusal_is_a_sentence(void **state)
{
    (void)state;
    struct hearth_err e;
    struct ledger_need need = {.weights = 4600000000, .kv = 134217728, .workspace = 300000000, .kv_tokens = 1024};
    struct ledger l = count(30 * G, (struct ledger_seen){0});
    assert_int_equal(ledger_check(&l, &need, &e), 0);
    l = count(24 * G, (struct ledger_seen){0});
    assert_int_equal(ledger_check(&l, &need, &e), HEARTH_ENOMEM);
    assert_string_equal(e.msg,
                        "it needs 5.0 GB on the GPU (weights 4.6 GB, KV of 1024 tokens 0.1 GB); gpu_memory = 24.0 "
                        "GB has 4.0 GB left: raise it");
    l = count(0, (struct ledger_seen){true, false, 50 * G, 30 * G});
    l.free = 5034217728 - 1;
    assert_int_equal(ledger_check(&l, &need, &e), HEARTH_ENOMEM);
    assert_string_equal(e.msg,
                        "it needs 5.0 GB on the GPU (weights 4.6 GB, KV of 1024 tokens 0.1 GB); 5.0 GB are free, "
                        "other programs have 20.0 GB: end what uses it");
    l.free++;
    assert_int_equal(ledger_check(&l, &need, &e), 0);
}

/* Which model is unloaded first depends on its size, how soon it will be used again and how long it has been idle; none
 * of these decides alone. */
static void idle_models_are_compared(void **state)
{
    (void)state;
    assert_true(ledger_evictable(8 * G, 1, 60) > ledger_evictable(4 * G, 1, 60));
    assert_true(ledger_evictable(8 * G, 1, 60) > ledger_evictable(8 * G, 2, 60));
    assert_true(ledger_evictable(8 * G, 1, 60) > ledger_evictable(8 * G, 1, 30));
    assert_true(ledger_evictable(8 * G, 1, 60) < ledger_evictable(8 * G, 10, 3600));
    assert_true(ledger_evictable(8 * G, 0, 0) > 0 && ledger_evictable(8 * G, 0, 0) < 1e15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_context_is_told_by_a_look_at_what_is_held),
        cmocka_unit_test(everything_is_somebodys),
        cmocka_unit_test(room_is_bounded_twice),
        cmocka_unit_test(a_refusal_is_a_sentence),
        cmocka_unit_test(idle_models_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
