/*
 * device-clock.c - what the device thread does by the clock, here the toy's (toy.h): batching tokens before they are
 * handed over, unloading idle models, measuring memory. Steps that are stopped are tested by device-stops.c. Also run
 * under the thread sanitizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "tests/unit/core/toy.h"

/* --- when tokens are handed over ------------------------------------------------------------------------- */

/* What each hand-over contained. The linker replaces the real function by this one (tests/local.mk). */
static struct {
    pthread_t loop;
    const struct heard *watched;
    uint32_t n, of[400], tokens[400]; /* tokens handed over: of the watched sequence, and of all sequences */
    bool ends[400];
    double at[400];
    bool admitted, ended; /* handed over separately: before its first token; while the other one runs */
    struct engine *eng;   /* the engine whose counters are read when an end is handed over, or NULL */
    uint32_t running, queued;
    uint64_t moving;
} told;

void __real_post_send(struct post *p, struct post_list *l);
void __wrap_post_send(struct post *p, struct post_list *l);
void __wrap_post_send(struct post *p, struct post_list *l)
{
    uint32_t of = 0, tokens = 0;
    bool ends = false, its_end = false, admits = false;
    bool events =
        toy_clock_on && !pthread_equal(pthread_self(), told.loop); /* the loop thread sends orders, not events */
    for (struct post_item *i = events ? l->first : NULL; i; i = i->next) {
        const struct event_step *st = (const struct event_step *)i;
        const void *owner = st->ev.kind == EV_ADMIT ? ((const struct event_admit *)i)->owner
                            : st->ev.kind == EV_END ? ((const struct event_end *)i)->owner
                                                    : NULL;
        admits |= st->ev.kind == EV_ADMIT && owner == told.watched;
        its_end |= st->ev.kind == EV_END && owner == told.watched;
        ends |= st->ev.kind == EV_END && owner != told.watched;
        for (uint32_t k = 0; st->ev.kind == EV_STEP && k < st->n; k++) {
            tokens++;
            of += st->token[k].owner == told.watched;
        }
    }
    if (admits && told.n == 0 && of == 0) /* the loop thread, which has no events, must not write here */
        told.admitted = true;
    if (its_end && !ends)
        told.ended = true;
    if (its_end && told.eng) {
        told.running = atomic_load(&engine_counters(told.eng)->running);
        told.queued = atomic_load(&engine_counters(told.eng)->queued);
        told.moving = atomic_load(&engine_tiers(told.eng)->moving);
    }
    if (of && told.n < 400) {
        told.of[told.n] = of;
        told.tokens[told.n] = tokens;
        told.ends[told.n] = ends || its_end;
        told.at[told.n++] = toy_now;
    }
    __real_post_send(p, l);
}

/* Generates one sequence of `max` tokens in steps of length `step`. With `beside` or `later` a second sequence of a
 * quarter of that length begins, together with the first or after it has run a while, and is the one that is
 * watched. */
static void tell(uint32_t max, double step, bool beside, bool later)
{
    static struct heard a, b;
    struct world w;
    world_open(&w, 1);
    w.m.vocab = NULL; /* no end tokens */
    ask(&w, engine_load);
    memset(&told, 0, sizeof told);
    told.loop = pthread_self();
    told.watched = beside || later ? &b : &a;
    toy_now = 1000;
    toy_step_s = step;
    toy_clock_on = true;
    engine_throttle(w.eng, beside);
    engine_submit(w.eng, make(&w, &a, (int32_t[]){1, 2, 3}, 3, max));
    if (later)
        hear_one(&w);
    if (beside || later)
        engine_submit(w.eng, make(&w, &b, (int32_t[]){4, 5, 6}, 3, max / 4));
    engine_throttle(w.eng, false);
    hear_all(&w);
    check_heard(&a);
    world_close(&w);
    toy_clock_on = false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < told.n; i++)
        n += told.of[i];
    assert_int_equal(n, told.watched == &b ? max / 4 : max);
    assert_int_equal(told.of[0],
                     1); /* the first token is handed over at once, and so are the admission before it and the end */
    assert_true(told.admitted && told.ended);
}

static void tokens_are_handed_over_together(void **state)
{
    (void)state;
    const double ms = 1.0 / 1024; /* a power of two, so that sums are exact */

    /* No time passes: the first token is handed over on its own and at once, the others wait for the end. */
    tell(40, 0, false, false);
    assert_int_equal(told.n, 2);
    assert_int_equal(told.of[1], 39);
    assert_true(told.ends[1]);

    /* Steps of half a millisecond: the tokens of at least 2 ms are handed over together, and no more. */
    tell(42, ms / 2, false, false);
    for (uint32_t i = 1; i < told.n; i++) {
        double waited = told.at[i] - told.at[i - 1];
        assert_true(told.ends[i] || told.of[i] > 1);
        assert_true(told.ends[i] || (waited >= 2e-3 && waited < 2e-3 + ms));
    }
    assert_in_range(told.n, 42 / 6, 42 / 4 + 2);

    /* Steps of 3 ms: no token waits. */
    tell(20, 3 * ms, false, false);
    assert_int_equal(told.n, 20);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(told.of[i], 1);

    /* The same for a sequence that begins while another's tokens wait. */
    tell(100, 0, true, false);
    tell(300, 0, false, true);
}

/* --- how far ahead of a device steps are queued ----------------------------------------------------------- */

/* A prompt takes many steps beside a decoding sequence, on a device that takes four steps at once. There are never more
 * than two steps with prompt rows in flight, because an arriving request would have to wait for them. */
static void prompts_do_not_queue_up(void **state)
{
    (void)state;
    static struct heard a, b;
    struct world w;
    int32_t prompt[380];
    for (int i = 0; i < 380; i++)
        prompt[i] = 1 + i % 7;
    world_open_with(&w, &(struct engine_params){0}, MAX_IN_FLIGHT, true);
    w.m.vocab = NULL; /* no end tokens */
    ask(&w, engine_load);
    memset(&told, 0, sizeof told);
    told.loop = pthread_self();
    told.watched = &b;
    toy_now = 1000;
    toy_step_s = 0;
    toy_row_s = 1e-3;
    toy_chunks = 0;
    toy_clock_on = true;
    toy_hold_at = 10;
    engine_submit(w.eng, make(&w, &a, (int32_t[]){1, 2, 3}, 3, 300));
    while (!toy_held)
        sched_yield();
    engine_submit(w.eng, make(&w, &b, prompt, 380, 4));
    toy_hold_at = 0;
    hear_all(&w);
    check_heard(&a);
    check_heard(&b);
    assert_true(engine_counters(w.eng)->rows_max <= 65); /* the prompt was split */
    assert_int_equal(toy_chunks, 2);
    world_close(&w);
    toy_clock_on = false;
    toy_row_s = 0;
}

/* --- idle models ----------------------------------------------------------------------------------------- */

/* Two iterations of the device thread's loop without a use of the model, so that whatever the first one finds due is
 * done. */
static void go_round(struct world *w)
{
    static struct model_entry nobody;
    for (int i = 0; i < 2; i++) {
        w->answered = false;
        engine_unload(w->eng, &nobody, w);
        while (!w->answered)
            hear_one(w);
    }
}

static bool is_loaded_at(struct world *w, double now)
{
    go_round(w); /* a step that names ended sequences may be in flight */
    toy_now = now;
    go_round(w);
    return atomic_load(&w->m.loaded);
}

static void an_idle_model_goes_by_itself(void **state)
{
    (void)state;
    static struct heard a, b, c;
    struct world w;
    int32_t prompt[5 * KV_PAGE];
    for (int i = 0; i < 5 * KV_PAGE; i++)
        prompt[i] = 1 + i % 3;
    world_open_with(&w, &(struct engine_params){.kv_ram = 1 << 20, .idle_ms = 60000}, 2, false);
    memset(&told, 0, sizeof told);
    told.loop = pthread_self();
    toy_now = 1000;
    toy_step_s = 0;
    toy_clock_on = true;
    engine_submit(w.eng, make(&w, &a, prompt, 5 * KV_PAGE, 10));
    hear_all(&w);
    assert_true(is_loaded_at(&w, 1059));
    assert_true(w.m.unload_at == 1060);
    assert_false(is_loaded_at(&w, 1060));

    /* the next request loads the model again, and reuses what was computed before */
    engine_submit(w.eng, make(&w, &b, prompt, 5 * KV_PAGE, 10));
    hear_all(&w);
    check_heard(&b);
    assert_int_equal(b.end.n_restored, 4 * KV_PAGE);
    assert_int_equal(b.n_got, a.n_got);

    /* a request that waits for the model keeps it loaded, however long it waits */
    engine_throttle(w.eng, true);
    engine_submit(w.eng, make(&w, &c, prompt, 1, 10));
    assert_true(is_loaded_at(&w, 9000));
    assert_true(w.m.unload_at == 0);
    engine_throttle(w.eng, false);
    hear_all(&w);
    check_heard(&c);
    assert_true(is_loaded_at(&w, 9059));
    ask(&w, engine_load); /* this is a use */
    assert_true(is_loaded_at(&w, 9100));
    assert_false(is_loaded_at(&w, 9119.5));
    world_close(&w);

    world_open(&w, 1); /* without idle_ms */
    ask(&w, engine_load);
    assert_true(is_loaded_at(&w, 1e9));
    assert_true(w.m.unload_at == 0);
    world_close(&w);
    toy_clock_on = false;
}

/* A request that is cancelled while its KV is restored is no longer a use of the model. */
static void a_cancelled_restore_lets_the_model_go(void **state)
{
    (void)state;
    static struct heard a, b;
    struct world w;
    int32_t prompt[5 * KV_PAGE];
    for (int i = 0; i < 5 * KV_PAGE; i++)
        prompt[i] = 1 + i % 3;
    toy_moves_late = true;
    world_open_with(&w, &(struct engine_params){.kv_ram = 1 << 20, .restore = TIER_ALWAYS, .idle_ms = 60000}, 2, false);
    memset(&told, 0, sizeof told);
    told.loop = pthread_self();
    toy_now = 1000;
    toy_clock_on = true;
    engine_submit(w.eng, make(&w, &a, prompt, 5 * KV_PAGE, 10));
    hear_all(&w);
    ask(&w, engine_unload);
    toy_moves_never = true;
    ask(&w, engine_load);
    engine_submit(w.eng, make(&w, &b, prompt, 5 * KV_PAGE, 10));
    while (atomic_load(&w.m.sequences) == 0)
        sched_yield();
    engine_cancel(w.eng, b.id);
    hear_all(&w);
    assert_int_equal(b.end.reason, END_CANCELLED);
    assert_int_equal(atomic_load(&w.m.sequences), 0);
    toy_moves_never = false;
    assert_true(is_loaded_at(&w, 1059));
    assert_false(is_loaded_at(&w, 1060));
    world_close(&w);
    toy_clock_on = false;
    toy_moves_late = false;
}

static void pin(struct engine *eng, struct model_entry *m, void *owner)
{
    engine_pin(eng, m, true, owner);
}
static void unpin(struct engine *eng, struct model_entry *m, void *owner)
{
    engine_pin(eng, m, false, owner);
}

/* A pinned model is never idle. If no model is loaded for a minute, EV_IDLE reports it, and again after each minute. */
static void pinned_models_and_empty_engines(void **state)
{
    (void)state;
    struct world w;
    world_open_with(&w, &(struct engine_params){.idle_ms = 60000, .empty_ms = 60000}, 1, false);
    memset(&told, 0, sizeof told);
    told.loop = pthread_self();
    toy_now = 1000;
    toy_clock_on = true;
    ask(&w, pin);
    assert_true(atomic_load(&w.m.loaded) && atomic_load(&w.m.pinned));
    assert_true(is_loaded_at(&w, 9000));
    assert_true(w.m.unload_at == 0);
    assert_int_equal(w.n_idle, 0);
    ask(&w, unpin);
    assert_true(is_loaded_at(&w, 9059));
    assert_false(is_loaded_at(&w, 9060));
    assert_int_equal(w.n_idle, 0);
    toy_now = 9119;
    go_round(&w);
    assert_int_equal(w.n_idle, 0);
    toy_now = 9121;
    go_round(&w);
    assert_int_equal(w.n_idle, 1);
    toy_now = 9180;
    go_round(&w);
    assert_int_equal(w.n_idle, 1);
    toy_now = 9182;
    go_round(&w);
    assert_int_equal(w.n_idle, 2);
    ask(&w, unpin); /* this loads nothing */
    assert_false(atomic_load(&w.m.loaded) || atomic_load(&w.m.pinned));
    ask(&w, pin);
    ask(&w, engine_unload); /* an explicit unload also unloads a pinned model */
    assert_false(atomic_load(&w.m.loaded) || atomic_load(&w.m.pinned));
    world_close(&w);
    toy_clock_on = false;
}

static struct ledger counted(struct world *w)
{
    struct ledger l;
    engine_ledger(w->eng, &l);
    return l;
}

/* The memory that the device holds is measured when it has become idle, and otherwise every ten seconds. */
static void memory_is_counted(void **state)
{
    (void)state;
    static struct heard a, b;
    struct world w;
    world_open(&w, 1);
    memset(&told, 0, sizeof told);
    told.loop = pthread_self();
    toy_now = 1000;
    toy_step_s = 0;
    toy_clock_on = true;
    w.m.vocab = NULL; /* no end tokens */
    go_round(&w);
    assert_int_equal(counted(&w).total, 1 << 30);
    toy_mem_cached = 1234;
    go_round(&w);
    assert_int_equal(counted(&w).held[MEM_CACHE], 0); /* no step has run, so nothing is measured */
    engine_submit(w.eng, make(&w, &a, (int32_t[]){1, 2, 3}, 3, 10));
    hear_all(&w);
    go_round(&w);
    assert_int_equal(counted(&w).held[MEM_CACHE], 1234);
    const struct engine_counters *c = engine_counters(w.eng);
    assert_string_equal(c->path[0].path, "gemv");
    assert_int_equal(c->path[0].rows, 1234);
    assert_null(c->path[1].path);

    toy_mem_cached = 5678;
    toy_step_s = 0.5;
    engine_submit(w.eng, make(&w, &b, (int32_t[]){3, 2, 1}, 3, 60));
    while (b.n_got < 40) /* the device is busy */
        hear_one(&w);
    assert_int_equal(counted(&w).held[MEM_CACHE], 5678);
    hear_all(&w);
    world_close(&w);
    toy_clock_on = false;
    toy_mem_cached = 0;
}

/* A client that is notified that a model was unloaded may query the memory at once, so the event is sent after the
 * measurement. */
static void an_unload_is_counted_before_it_is_told(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 1);
    ask(&w, engine_load);
    go_round(&w);
    toy_info_waits = true;
    toy_mem_cached = 1234;
    w.answered = false;
    engine_unload(w.eng, &w.m, &w);
    while (!toy_in_info)
        sched_yield();
    engine_take(w.eng);
    assert_null(engine_next(w.eng));
    toy_info_waits = false;
    while (!w.answered)
        hear_one(&w);
    assert_int_equal(counted(&w).held[MEM_CACHE], 1234);
    world_close(&w);
    toy_mem_cached = 0;
}

/* A client that is notified of an end may query at once how many sequences run and whether the turn's KV is being
 * saved. */
static void an_end_is_counted_before_it_is_told(void **state)
{
    (void)state;
    static struct heard a;
    struct world w;
    world_open_with(&w, &(struct engine_params){.kv_ram = 1 << 20}, 1, false);
    w.m.vocab = NULL; /* no end tokens */
    ask(&w, engine_load);
    memset(&told, 0, sizeof told);
    told.loop = pthread_self();
    told.watched = &a;
    told.eng = w.eng;
    told.running = told.queued = 99;
    toy_clock_on = true;
    engine_submit(w.eng, make(&w, &a, (int32_t[]){1, 2, 3}, 3, 3 * KV_PAGE));
    hear_all(&w);
    world_close(&w);
    toy_clock_on = false;
    assert_int_equal(told.running, 0);
    assert_int_equal(told.queued, 0);
    assert_int_equal(told.moving, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_handed_over_together),
        cmocka_unit_test(prompts_do_not_queue_up),
        cmocka_unit_test(an_idle_model_goes_by_itself),
        cmocka_unit_test(a_cancelled_restore_lets_the_model_go),
        cmocka_unit_test(pinned_models_and_empty_engines),
        cmocka_unit_test(memory_is_counted),
        cmocka_unit_test(an_unload_is_counted_before_it_is_told),
        cmocka_unit_test(an_end_is_counted_before_it_is_told),
    };
    return cmocka_run_group_tests_name("device-clock", tests, NULL, NULL);
}
