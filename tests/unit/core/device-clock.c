/*
 * device-clock.c - what the device thread does by the clock, which is the toy's (toy.h): tokens that wait for others,
 * the unloading of idle models, the counters of memory. Also run under the thread sanitizer.
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

/* The toy's clock for the engine's, and what each hand-over had in it: the linker puts these two functions in the place
 * of the real ones (tests/local.mk). */
static _Atomic bool told_on;
static struct {
    pthread_t loop;
    const struct heard *watched;
    uint32_t n, of[400], tokens[400]; /* hand-overs of the watched one's tokens: how many, and of all sequences */
    bool ends[400];
    double at[400];
    bool admitted, ended; /* alone: before its first token; while the other one runs */
    struct engine *eng;   /* whose numbers are looked at when an end is handed over, or NULL */
    uint32_t running, queued;
    uint64_t moving;
} told;

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    if (!told_on || clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, t);
    t->tv_sec = (time_t)toy_now;
    t->tv_nsec = (long)((toy_now - (double)t->tv_sec) * 1e9);
    return 0;
}

void __real_post_send(struct post *p, struct post_list *l);
void __wrap_post_send(struct post *p, struct post_list *l);
void __wrap_post_send(struct post *p, struct post_list *l)
{
    uint32_t of = 0, tokens = 0;
    bool ends = false, its_end = false, admits = false;
    bool events = told_on && !pthread_equal(pthread_self(), told.loop); /* the loop thread sends orders */
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
    if (admits && told.n == 0 && of == 0) /* the loop thread, which has no events, touches nothing here */
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

/* One sequence of `max` tokens, in steps of that length; `beside` it, or `later`, one of a quarter of that
 * begins, and is watched. */
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
    told_on = true;
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
    told_on = false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < told.n; i++)
        n += told.of[i];
    assert_int_equal(n, told.watched == &b ? max / 4 : max);
    assert_int_equal(told.of[0], 1); /* the first token comes at once, as do the admission before it and the end */
    assert_true(told.admitted && told.ended);
}

static void tokens_are_handed_over_together(void **state)
{
    (void)state;
    const double ms = 1.0 / 1024; /* sums of it are exact */

    /* No time passes: the first token goes alone and at once, the others wait for the end. */
    tell(40, 0, false, false);
    assert_int_equal(told.n, 2);
    assert_int_equal(told.of[1], 39);
    assert_true(told.ends[1]);

    /* Steps of half a millisecond: those of two go together, no more and no fewer. */
    tell(42, ms / 2, false, false);
    for (uint32_t i = 1; i < told.n; i++) {
        double waited = told.at[i] - told.at[i - 1];
        assert_true(told.ends[i] || told.of[i] > 1);
        assert_true(told.ends[i] || (waited >= 2e-3 && waited < 2e-3 + ms));
    }
    assert_in_range(told.n, 42 / 6, 42 / 4 + 2);

    /* Steps of three: nothing waits. */
    tell(20, 3 * ms, false, false);
    assert_int_equal(told.n, 20);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(told.of[i], 1);

    /* And of one that begins while another's tokens wait. */
    tell(100, 0, true, false);
    tell(300, 0, false, true);
}

/* --- how far a device is ahead ---------------------------------------------------------------------------- */

/* A prompt is read in many steps beside somebody who decodes, on a device that takes four at once: it has a second one
 * with prompts in it, and no third, which who comes now would have to wait for. */
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
    told_on = true;
    toy_hold_at = 10;
    engine_submit(w.eng, make(&w, &a, (int32_t[]){1, 2, 3}, 3, 300));
    while (!toy_held)
        sched_yield();
    engine_submit(w.eng, make(&w, &b, prompt, 380, 4));
    toy_hold_at = 0;
    hear_all(&w);
    check_heard(&a);
    check_heard(&b);
    assert_true(engine_counters(w.eng)->rows_max <= 65); /* it was cut */
    assert_int_equal(toy_chunks, 2);
    world_close(&w);
    told_on = false;
    toy_row_s = 0;
}

/* --- models that nobody uses ----------------------------------------------------------------------------- */

/* Two rounds of the device thread's loop, and nothing asked of a model: what the first found due is done. */
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
    go_round(w); /* a step that names what has ended may be under way */
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
    told_on = true;
    engine_submit(w.eng, make(&w, &a, prompt, 5 * KV_PAGE, 10));
    hear_all(&w);
    assert_true(is_loaded_at(&w, 1059));
    assert_true(w.m.unload_at == 1060);
    assert_false(is_loaded_at(&w, 1060));

    /* the next request loads it, and has what was computed before */
    engine_submit(w.eng, make(&w, &b, prompt, 5 * KV_PAGE, 10));
    hear_all(&w);
    check_heard(&b);
    assert_int_equal(b.end.n_restored, 4 * KV_PAGE);
    assert_int_equal(b.n_got, a.n_got);

    /* who waits for it keeps it, however long */
    engine_throttle(w.eng, true);
    engine_submit(w.eng, make(&w, &c, prompt, 1, 10));
    assert_true(is_loaded_at(&w, 9000));
    assert_true(w.m.unload_at == 0);
    engine_throttle(w.eng, false);
    hear_all(&w);
    check_heard(&c);
    assert_true(is_loaded_at(&w, 9059));
    ask(&w, engine_load); /* a use */
    assert_true(is_loaded_at(&w, 9100));
    assert_false(is_loaded_at(&w, 9119.5));
    world_close(&w);

    world_open(&w, 1); /* without a limit */
    ask(&w, engine_load);
    assert_true(is_loaded_at(&w, 1e9));
    assert_true(w.m.unload_at == 0);
    world_close(&w);
    told_on = false;
}

static void pin(struct engine *eng, struct model_entry *m, void *owner)
{
    engine_pin(eng, m, true, owner);
}
static void unpin(struct engine *eng, struct model_entry *m, void *owner)
{
    engine_pin(eng, m, false, owner);
}

/* A pinned model is not idle, whatever the time; and where no model is held for a minute, that is told, each minute. */
static void pinned_models_and_empty_engines(void **state)
{
    (void)state;
    struct world w;
    world_open_with(&w, &(struct engine_params){.idle_ms = 60000, .empty_ms = 60000}, 1, false);
    memset(&told, 0, sizeof told);
    told.loop = pthread_self();
    toy_now = 1000;
    told_on = true;
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
    ask(&w, unpin); /* nothing is loaded for that */
    assert_false(atomic_load(&w.m.loaded) || atomic_load(&w.m.pinned));
    ask(&w, pin);
    ask(&w, engine_unload); /* which somebody wants */
    assert_false(atomic_load(&w.m.loaded) || atomic_load(&w.m.pinned));
    world_close(&w);
    told_on = false;
}

static struct ledger counted(struct world *w)
{
    struct ledger l;
    engine_ledger(w->eng, &l);
    return l;
}

/* What the device keeps is told once it has nothing to do, and else every ten seconds. */
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
    told_on = true;
    w.m.vocab = NULL; /* no end tokens */
    go_round(&w);
    assert_int_equal(counted(&w).total, 1 << 30);
    toy_mem_cached = 1234;
    go_round(&w);
    assert_int_equal(counted(&w).held[MEM_CACHE], 0); /* nothing was done, nothing is asked */
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
    while (b.n_got < 40) /* it is busy */
        hear_one(&w);
    assert_int_equal(counted(&w).held[MEM_CACHE], 5678);
    hear_all(&w);
    world_close(&w);
    told_on = false;
    toy_mem_cached = 0;
}

/* Whoever hears that a model was unloaded may ask at once who has the memory: the event waits for the count. */
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

/* Whoever hears of an end may ask at once who runs, and whether the turn is saved. */
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
    told_on = true;
    engine_submit(w.eng, make(&w, &a, (int32_t[]){1, 2, 3}, 3, 3 * KV_PAGE));
    hear_all(&w);
    world_close(&w);
    told_on = false;
    assert_int_equal(told.running, 0);
    assert_int_equal(told.queued, 0);
    assert_int_equal(told.moving, 1);
}

/* --- what is saved of a model that goes ------------------------------------------------------------------ */

enum { SLAB_PAGES = 32 << 20, PLACES = 24 /* of the turn that is saved */ };

/*
 * A turn of the first model has ended and the other one decodes, when the device stands in a step. A page of KV is as
 * large as a slab of pinned memory, which takes as long as three steps: so what was pinned ahead has been used up, and
 * the save has had no more than a slab or two since. Returns how many pages were saved by then.
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
    memset(&told, 0, sizeof told);
    told.loop = pthread_self();
    toy_now = 1000;
    toy_step_s = 3e-3;
    toy_row_s = 0;
    told_on = true;
    ask(w, engine_load);
    engine_throttle(w->eng, true);
    engine_submit(w->eng, make(w, a, prompt, PLACES * KV_PAGE + 1, 5));
    struct seq *q = make(w, b, (int32_t[]){1, 2, 3}, 3, MAX_LEN - 10);
    q->model = other;
    engine_submit(w->eng, q);
    ask(w, engine_load); /* both have come, so both are loaded */
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
    told_on = false;
}

/* An unload waits for the saves of its model, so memory is pinned for these as quickly as the others' steps allow: half
 * of the time is theirs. */
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

/* Who wants the memory waits for a tenth of a second: in it as much is saved as would be of an unload. */
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

/* A prompt of `n` tokens whose first step, of 8 rows, takes 50 ms by the toy's clock; its second does not end. */
static void open_endless(struct world *w, struct heard *a, uint32_t n)
{
    int32_t prompt[MAX_LEN];
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = 1 + (int32_t)(i % 5);
    world_open(w, 1);
    ask(w, engine_load);
    memset(&told, 0, sizeof told);
    told.loop = pthread_self();
    toy_now = 1000;
    toy_step_s = 0;
    toy_row_s = 0.05 / 8;
    toy_stopped = 0;
    toy_endless = 8;
    told_on = true;
    engine_submit(w->eng, make(w, a, prompt, n, 20));
    wait_for_endless();
}

static void close_endless(struct world *w)
{
    world_close(w);
    toy_endless = 0;
    toy_row_s = 0;
    told_on = false;
}

/* A cancelled prompt ends within its step, and what it had by then is counted and can be reused. */
static void a_cancel_stops_its_step(void **state)
{
    (void)state;
    static struct heard a, b, first, again;
    struct world w;
    open_endless(&w, &first, 200);
    engine_cancel(w.eng, 999); /* of nobody in it */
    engine_cancel(w.eng, first.id);
    hear_all(&w);
    assert_int_equal(first.end.reason, END_CANCELLED);
    assert_int_equal(first.end.n_computed, 8);
    assert_int_equal(toy_stopped, 1);

    /* Of two in a step one alone does not stop it, the second does. */
    engine_throttle(w.eng, true);
    engine_submit(w.eng, make(&w, &a, first.prompt, 200, 20));
    engine_submit(w.eng, make(&w, &b, (int32_t[]){7, 7, 7}, 3, 20));
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

/* Who comes while a long prompt is alone does not wait for its step's end; the prompt loses that step and no more. */
static void an_arrival_stops_a_long_step(void **state)
{
    (void)state;
    static struct heard a, b;
    struct world w;
    open_endless(&w, &a, 300);
    toy_endless = 0; /* those that follow end: how many there are before b's token is heard is not for us to say */
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

/* What has no token by its deadline ends, what has one goes on, and nobody need come for it. */
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
    engine_throttle(w.eng, true); /* nothing goes on, but time */
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

/* Nor does it wait for memory any longer than that. */
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
        cmocka_unit_test(tokens_are_handed_over_together),
        cmocka_unit_test(prompts_do_not_queue_up),
        cmocka_unit_test(an_idle_model_goes_by_itself),
        cmocka_unit_test(pinned_models_and_empty_engines),
        cmocka_unit_test(memory_is_counted),
        cmocka_unit_test(an_unload_is_counted_before_it_is_told),
        cmocka_unit_test(an_end_is_counted_before_it_is_told),
        cmocka_unit_test(an_unload_hurries_its_saves),
        cmocka_unit_test(a_yield_hurries_its_saves),
        cmocka_unit_test(a_cancel_stops_its_step),
        cmocka_unit_test(an_arrival_stops_a_long_step),
        cmocka_unit_test(closing_stops_a_step),
        cmocka_unit_test(a_deadline_ends_what_is_late),
        cmocka_unit_test(a_deadline_holds_without_memory),
    };
    return cmocka_run_group_tests_name("device-clock", tests, NULL, NULL);
}
