/*
 * device-stops.c - what the device thread hurries and stops by the clock, here the toy's (toy.h): the saves of a model
 * that is being unloaded, and steps that nobody waits for any more or that are late. Also run under the thread
 * sanitizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "tests/unit/core/toy.h"

/* --- the saves of a model that is unloaded --------------------------------------------------------------- */

enum { SLAB_PAGES = 32 << 20, PLACES = 24 /* pages of the turn that is saved */ };

/*
 * A turn of the first model has ended and the other model decodes when the device is held in a step. A page of KV is as
 * large as a slab of pinned memory, which takes as long as three steps to pin: the slabs that were pinned ahead have
 * been used up, and the save has had no more than one or two since. Returns how many pages have been saved by then.
 */
static uint64_t open_beside(struct world *w, struct model_entry *other, struct heard *a, struct heard *b)
{
    int32_t prompt[PLACES * KV_PAGE + 1];
    for (int i = 0; i < PLACES * KV_PAGE + 1; i++)
        prompt[i] = 1 + i % 7;
    toy_layers = SLAB_PAGES / TOY_PAGE_BYTES;
    toy_pages = 100;
    toy_free = UINT64_C(1) << 40;
    world_open_with(w, &(struct engine_params){.kv_ram = UINT64_C(2) << 30, .restore = TIER_ALWAYS}, 2, true);
    w->m.vocab = NULL; /* no end tokens */
    other->hp = w->m.hp;
    toy_now = 1000;
    toy_step_s = 3e-3;
    toy_row_s = 0;
    toy_clock_on = true;
    ask(w, engine_load);
    engine_throttle(w->eng, true);
    engine_submit(w->eng, make(w, a, prompt, PLACES * KV_PAGE + 1, 5));
    struct seq *q = make(w, b, (int32_t[]){1, 2, 3}, 3, MAX_LEN - 10);
    q->model = other;
    engine_submit(w->eng, q);
    ask(w, engine_load); /* both requests have arrived, so both models are loaded */
    toy_slab_s = 10e-3;
    toy_hold_at = 60;
    engine_throttle(w->eng, false);
    while (!toy_held)
        sched_yield();
    while (!a->ended)
        hear_one(w);
    assert_int_equal(a->n_got, 5);
    return engine_tiers(w->eng)->pages_saved;
}

static void close_beside(struct world *w, struct model_entry *other)
{
    world_close(w);
    entry_fini(other);
    toy_layers = 1;
    toy_pages = 64;
    toy_free = 1 << 30;
    toy_slab_s = toy_step_s = 0;
    toy_clock_on = false;
}

/* An unload waits for the saves of its model, so memory is pinned for them as quickly as the steps of other models
 * allow: half of the time goes to pinning. */
static void an_unload_hurries_its_saves(void **state)
{
    (void)state;
    static struct heard a, b;
    struct world w;
    struct model_entry other = {.path = (char[]){"other"}};
    uint64_t had = open_beside(&w, &other, &a, &b), steps = engine_counters(w.eng)->steps;
    assert_in_range(had, 1, PLACES / 2);
    w.answered = false;
    engine_unload(w.eng, &w.m, &w);
    toy_hold_at = 0;
    while (!w.answered)
        hear_one(&w);
    double pinned = (double)(PLACES - had) * toy_slab_s;
    steps = engine_counters(w.eng)->steps - steps;
    assert_int_equal(w.answer.code, 0);
    assert_false(atomic_load(&w.m.loaded));
    assert_int_equal(engine_tiers(w.eng)->pages_saved, PLACES);
    assert_false(b.ended);
    assert_true((double)steps * toy_step_s >= 0.8 * pinned);
    hear_all(&w);
    check_heard(&b);
    close_beside(&w, &other);
}

/* A yield waits for saves for a tenth of a second, in which as much is saved as during an unload. */
static void a_yield_hurries_its_saves(void **state)
{
    (void)state;
    static struct heard a, b, again;
    struct world w;
    struct model_entry other = {.path = (char[]){"other"}};
    uint64_t had = open_beside(&w, &other, &a, &b);
    double most = 0.1 / (2 * toy_slab_s);
    w.answered = false;
    engine_yield(w.eng, 0, true, 3600, &w);
    toy_hold_at = 0;
    while (!w.answered)
        hear_one(&w);
    assert_int_equal(w.answer.code, 0);
    assert_false(atomic_load(&w.m.loaded) || atomic_load(&other.loaded));
    engine_yield(w.eng, 0, false, 0, &w);
    engine_submit(w.eng, make(&w, &again, a.prompt, a.n_prompt, 5));
    hear_all(&w);
    check_heard(&again);
    check_heard(&b);
    assert_in_range(again.end.n_restored / KV_PAGE, had + (uint64_t)most - 1, PLACES);
    close_beside(&w, &other);
}

/* --- steps that are stopped ------------------------------------------------------------------------------ */

static void wait_for_endless(void)
{
    while (!toy_in_endless)
        sched_yield();
}

/* Begins a prompt of `n` tokens whose first step, of 8 rows, takes 50 ms of the toy's clock, and whose second step does
 * not end by itself. */
static void open_endless(struct world *w, struct heard *a, uint32_t n)
{
    int32_t prompt[MAX_LEN];
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = 1 + (int32_t)(i % 5);
    world_open(w, 1);
    ask(w, engine_load);
    toy_now = 1000;
    toy_step_s = 0;
    toy_row_s = 0.05 / 8;
    toy_stopped = 0;
    toy_endless = 8;
    toy_clock_on = true;
    engine_submit(w->eng, make(w, a, prompt, n, 20));
    wait_for_endless();
}

static void close_endless(struct world *w)
{
    world_close(w);
    toy_endless = 0;
    toy_row_s = 0;
    toy_clock_on = false;
}

/* A cancelled prompt ends within its step. What it had computed by then is counted and can be reused. */
static void a_cancel_stops_its_step(void **state)
{
    (void)state;
    static struct heard a, b, first, again;
    struct world w;
    open_endless(&w, &first, 200);
    engine_cancel(w.eng, 999); /* not in the step: no effect */
    engine_cancel(w.eng, first.id);
    hear_all(&w);
    assert_int_equal(first.end.reason, END_CANCELLED);
    assert_int_equal(first.end.n_computed, 8);
    assert_int_equal(toy_stopped, 1);

    /* Cancelling one of two sequences in a step does not stop it; cancelling the second one does. */
    engine_throttle(w.eng, true);
    engine_submit(w.eng, make(&w, &a, first.prompt, 200, 20));
    engine_submit(w.eng, make(&w, &b, (int32_t[]){7, 7, 7}, 3, 20));
    ask(&w, engine_load); /* both have arrived: else the second may stop the first one's step */
    engine_throttle(w.eng, false);
    wait_for_endless();
    engine_cancel(w.eng, b.id);
    for (int i = 0; i < 1000; i++) {
        assert_true(toy_in_endless);
        sched_yield();
    }
    engine_cancel(w.eng, a.id);
    hear_all(&w);
    assert_int_equal(toy_stopped, 2);

    toy_endless = 0;
    engine_submit(w.eng, make(&w, &again, first.prompt, 200, 20));
    hear_all(&w);
    check_heard(&again);
    assert_int_equal(again.end.n_reused, 8);
    close_endless(&w);
}

/* A request that arrives while a long prompt runs alone does not wait for the end of the prompt's step; the prompt
 * loses that step and no more. */
static void an_arrival_stops_a_long_step(void **state)
{
    (void)state;
    static struct heard a, b;
    struct world w;
    open_endless(&w, &a, 300);
    toy_endless = 0; /* later steps end by themselves; how many there are before b's first token is not determined */
    engine_submit(w.eng, make(&w, &b, (int32_t[]){7, 8, 9}, 3, 5));
    while (!b.n_got)
        hear_one(&w);
    assert_int_equal(a.n_got, 0);
    assert_int_equal(toy_stopped, 1);
    hear_all(&w);
    check_heard(&a);
    check_heard(&b);
    assert_int_equal(a.end.n_computed, 300);
    assert_int_equal(engine_counters(w.eng)->tokens_computed, 303);
    close_endless(&w);
}

/* So does a dry run, which is never queued; the steps after it are short, too. However many arrive, the prompt goes
 * on. */
static void a_dry_run_leaves_time_for_a_step(void **state)
{
    (void)state;
    static struct heard a, dry;
    struct world w;
    open_endless(&w, &a, 300);
    toy_endless = 32; /* twice the gap */
    struct seq *q = make(&w, &dry, (int32_t[]){7, 8, 9}, 3, 5);
    q->measure = true;
    engine_submit(w.eng, q);
    while (!dry.ended)
        hear_one(&w);
    assert_int_equal(toy_stopped, 1);
    wait_for_endless();
    assert_true(engine_counters(w.eng)->tokens_computed > 8);
    close_endless(&w);
}

/* A sequence without a token by its deadline ends; one with a token goes on. No further request is needed for that. */
static void a_deadline_ends_what_is_late(void **state)
{
    (void)state;
    static struct heard a, b;
    struct world w;
    world_open(&w, 1);
    ask(&w, engine_load);
    w.m.vocab = NULL; /* no end tokens */
    struct timespec t;
    __real_clock_gettime(CLOCK_MONOTONIC, &t);
    double now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    struct seq *early = make(&w, &a, (int32_t[]){1, 2, 3}, 3, 100), *late;
    early->deadline = now + 3600;
    engine_submit(w.eng, early);
    while (!a.n_got)
        hear_one(&w);
    engine_throttle(w.eng, true); /* only time passes */
    late = make(&w, &b, (int32_t[]){4, 5, 6}, 3, 100);
    late->time.submit = now;
    late->deadline = now + 0.05;
    engine_submit(w.eng, late);
    while (!b.ended)
        hear_one(&w);
    assert_int_equal(b.end.reason, END_ERROR);
    assert_int_equal(b.end.err.code, HEARTH_ECANCELLED);
    assert_non_null(strstr(b.end.err.msg, "by the deadline (deadline_ms)"));
    engine_throttle(w.eng, false);
    hear_all(&w);
    check_heard(&a);
    assert_int_equal(a.end.reason, END_LENGTH);
    world_close(&w);
}

/* A deadline also ends a sequence that waits for memory. */
static void a_deadline_holds_without_memory(void **state)
{
    (void)state;
    static struct heard late, after;
    struct world w;
    world_open(&w, 1);
    engine_yield(w.eng, 0, true, 3600, &w);
    while (!w.answered)
        hear_one(&w);
    assert_int_equal(w.answer.code, 0);
    struct seq *q = make(&w, &late, (int32_t[]){1, 2, 3}, 3, 5);
    struct timespec t;
    __real_clock_gettime(CLOCK_MONOTONIC, &t);
    q->time.submit = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    q->deadline = q->time.submit + 0.05;
    engine_submit(w.eng, q);
    engine_submit(w.eng, make(&w, &after, (int32_t[]){1, 2, 4}, 3, 5));
    while (!late.ended)
        hear_one(&w);
    assert_int_equal(late.end.err.code, HEARTH_ECANCELLED);
    assert_false(after.ended);
    engine_yield(w.eng, 0, false, 0, &w);
    hear_all(&w);
    check_heard(&after);
    world_close(&w);
}

/* ... and one whose KV is being restored. */
static void a_deadline_holds_during_a_restore(void **state)
{
    (void)state;
    static struct heard a, late;
    struct world w;
    int32_t prompt[5 * KV_PAGE];
    for (int i = 0; i < 5 * KV_PAGE; i++)
        prompt[i] = 1 + i % 3;
    toy_moves_late = true;
    world_open_with(&w, &(struct engine_params){.kv_ram = 1 << 20, .restore = TIER_ALWAYS}, 1, false);
    engine_submit(w.eng, make(&w, &a, prompt, 5 * KV_PAGE, 5));
    hear_all(&w);
    ask(&w, engine_unload);
    toy_moves_never = true;
    ask(&w, engine_load);
    struct seq *q = make(&w, &late, prompt, 5 * KV_PAGE, 5);
    struct timespec t;
    __real_clock_gettime(CLOCK_MONOTONIC, &t);
    q->time.submit = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    q->deadline = q->time.submit + 0.05;
    engine_submit(w.eng, q);
    hear_all(&w);
    assert_int_equal(late.end.err.code, HEARTH_ECANCELLED);
    assert_int_equal(late.end.n_reused, 0); /* it was never admitted */
    assert_int_equal(atomic_load(&w.m.sequences), 0);
    toy_moves_never = false;
    world_close(&w);
    toy_moves_late = false;
}

static void closing_stops_a_step(void **state)
{
    (void)state;
    static struct heard a;
    struct world w;
    open_endless(&w, &a, 200);
    close_endless(&w);
    assert_int_equal(toy_stopped, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unload_hurries_its_saves),       cmocka_unit_test(a_yield_hurries_its_saves),
        cmocka_unit_test(a_cancel_stops_its_step),           cmocka_unit_test(an_arrival_stops_a_long_step),
        cmocka_unit_test(a_dry_run_leaves_time_for_a_step),  cmocka_unit_test(closing_stops_a_step),
        cmocka_unit_test(a_deadline_ends_what_is_late),      cmocka_unit_test(a_deadline_holds_without_memory),
        cmocka_unit_test(a_deadline_holds_during_a_restore),
    };
    return cmocka_run_group_tests_name("device-stops", tests, NULL, NULL);
}
