/*
 * games.c - which engines games.c tells to yield, and when again: after a refusal, after another error, and before the
 * yield ends. The engines, the clock and GameMode are defined in this file; the linker prefers them to those of the
 * archives.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/gamemode.h"
#include "daemon/loop.h"
#include "daemon/rpc/games.h"
#include "daemon/rpc/pins.h"
#include "daemon/supervisor/engines.h"

enum { ENGINES = 2, SECOND = 1000, HALF_A_DAY = 43200000 };

/* --- the clock ---------------------------------------------------------------------------------------------- */

struct timer {
    struct timer *next;
    void (*fn)(void *arg);
    void *arg;
    int64_t at; /* -1: not set */
};

static struct timer *timers;
static int64_t now;

struct timer *timer_new(struct event_base *base, void (*fn)(void *arg), void *arg)
{
    struct timer *t = calloc(1, sizeof *t);
    (void)base;
    assert_non_null(t);
    *t = (struct timer){timers, fn, arg, -1};
    return timers = t;
}

void timer_free(struct timer *t)
{
    struct timer **at = &timers;
    if (!t)
        return;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    free(t);
}

int timer_set(struct timer *t, int64_t ms)
{
    t->at = now + ms;
    return 0;
}

static void pass(int64_t ms)
{
    now += ms;
    for (struct timer *t = timers; t; t = t->next)
        if (t->at >= 0 && t->at <= now) {
            t->at = -1;
            t->fn(t->arg);
        }
}

/* --- the engines -------------------------------------------------------------------------------------------- */

struct engine_client {
    int number;
    enum engine_state state;
    int64_t link;
    int refuses; /* the error that engine_call() returns; 0: none */
    engine_completion *complete;
    void *arg;
    int calls;
    struct wire_engine_yield last;
};

static struct engine_client engine[ENGINES];

size_t engines_count(const struct engines *es)
{
    (void)es;
    return ENGINES;
}

struct engine_client *engines_at(const struct engines *es, size_t i)
{
    (void)es;
    assert_in_range(i, 0, ENGINES - 1);
    return &engine[i];
}

int engine_number(const struct engine_client *ec)
{
    return ec->number;
}

int64_t engine_link_number(const struct engine_client *ec)
{
    return ec->link;
}

enum engine_state engine_state(const struct engine_client *ec)
{
    return ec->state;
}

int engine_call(struct engine_client *ec, const struct wire_method *m, const void *params, engine_completion *complete,
                void *arg, struct hearth_err *e)
{
    assert_ptr_equal(m, &wire_methods[WIRE_ENGINE_YIELD]);
    assert_null(ec->complete); /* only one call at a time */
    ec->calls++;
    ec->last = *(const struct wire_engine_yield *)params;
    if (ec->refuses)
        return err_set(e, ec->refuses, "refused");
    ec->complete = complete;
    ec->arg = arg;
    return 0;
}

/* Completes the engine's call with 0 or an error. */
static void answer(size_t i, int code)
{
    static const struct wire_engine_yield_result yielded;
    struct hearth_err e;
    engine_completion *complete = engine[i].complete;
    assert_non_null(complete);
    engine[i].complete = NULL;
    err_set(&e, code, "as the test asked");
    complete(engine[i].arg, code ? NULL : &yielded, code ? &e : NULL);
}

/* What is left of a yield on request. */
static struct wire_engine_yield rest;

static struct wire_engine_yield rest_of(const struct server *s, const struct engine_client *ec)
{
    (void)s, (void)ec;
    return rest;
}

/* Whether the engine was called that often since the last check, and told by the last call to yield to a game, or what
 * is left of a yield on request. */
static bool was_told(size_t i, int calls, bool to_yield)
{
    const struct wire_engine_yield *last = &engine[i].last;
    bool as_asked = engine[i].calls == calls && last->all == to_yield;
    as_asked &= last->seconds == (to_yield ? 86400 : rest.seconds) && last->most == (to_yield ? -1 : rest.most);
    engine[i].calls = 0;
    return as_asked;
}

static bool was_told_nothing(size_t i)
{
    return engine[i].calls == 0;
}

static int retries;

void pins_retry(struct server *s)
{
    assert_non_null(s->games);
    retries++;
}

/* --- GameMode ----------------------------------------------------------------------------------------------- */

struct gamemode {
    uint32_t games;
    void (*changed)(void *arg);
    void *arg;
};

static struct gamemode mode;

int gamemode_open(struct gamemode **out, struct event_base *base, const char *library, const char *address,
                  void (*changed)(void *arg), void *arg, struct hearth_err *e)
{
    (void)base, (void)library, (void)address, (void)e;
    mode = (struct gamemode){0, changed, arg};
    *out = &mode;
    return 0;
}

void gamemode_close(struct gamemode *g)
{
    assert_ptr_equal(g, &mode);
}

uint32_t gamemode_games(struct gamemode *g, char why[static HEARTH_ERR_MSG])
{
    why[0] = 0;
    return g->games;
}

static void play(uint32_t games)
{
    mode.games = games;
    mode.changed(mode.arg);
}

/* --- the tests ---------------------------------------------------------------------------------------------- */

static struct conf conf;
static struct server server;

static int begin(void **state)
{
    (void)state;
    server = (struct server){.conf = &conf};
    for (int i = 0; i < ENGINES; i++)
        engine[i] = (struct engine_client){.number = i, .state = ENGINE_RUNNING};
    rest = (struct wire_engine_yield){.most = -1};
    games_open(&server, rest_of);
    assert_non_null(server.games);
    return 0;
}

static int end(void **state)
{
    (void)state;
    games_close(&server);
    assert_null(timers);
    return 0;
}

static void test_all_yield_while_a_game_runs(void **state)
{
    (void)state;
    play(1);
    for (size_t i = 0; i < ENGINES; i++) {
        assert_true(was_told(i, 1, true));
        answer(i, 0);
    }
    play(2);
    pass(HALF_A_DAY - 1);
    assert_true(was_told_nothing(0) && was_told_nothing(1));
    pass(1);
    for (size_t i = 0; i < ENGINES; i++) { /* a yield ends after a day */
        assert_true(was_told(i, 1, true));
        answer(i, 0);
    }
    retries = 0;
    play(0);
    for (size_t i = 0; i < ENGINES; i++) {
        assert_true(was_told(i, 1, false));
        assert_int_equal(retries, (int)i); /* not before it may take memory again */
        answer(i, 0);
    }
    assert_int_equal(retries, ENGINES);
    pass(2 * HALF_A_DAY);
    assert_true(was_told_nothing(0) && was_told_nothing(1));
}

static void test_a_refusal_is_one_engines_alone(void **state)
{
    (void)state;
    play(1);
    assert_true(was_told(0, 1, true) && was_told(1, 1, true));
    answer(0, HEARTH_ELIMIT);
    answer(1, 0);
    pass(SECOND);
    assert_true(was_told(0, 1, true));
    assert_true(was_told_nothing(1));
    answer(0, 0);
    pass(SECOND);
    assert_true(was_told_nothing(0) && was_told_nothing(1));
}

static void test_after_an_error_it_is_told_again(void **state)
{
    static const int errors[] = {HEARTH_ENOMEM, HEARTH_EPARAMS, HEARTH_ELIMIT};
    (void)state;
    for (size_t n = 0; n < sizeof errors / sizeof *errors; n++) {
        play(1);
        answer(1, 0);
        answer(0, errors[n]);
        pass(SECOND);
        assert_true(was_told(0, 2, true));
        answer(0, errors[n]);
        pass(SECOND);
        assert_true(was_told(0, 1, true));
        answer(0, 0);
        play(0);
        assert_true(was_told(0, 1, false));
        answer(1, 0);
        answer(0, errors[n]);
        pass(SECOND);
        assert_true(was_told(0, 1, false));
        answer(0, 0);
        pass(SECOND);
        assert_true(was_told_nothing(0));
    }
}

static void test_what_cannot_be_called_is_told_later(void **state)
{
    (void)state;
    engine[0].refuses = HEARTH_ENOMEM;
    play(1);
    assert_true(was_told(0, 1, true));
    engine[0].refuses = 0;
    pass(SECOND);
    assert_true(was_told(0, 1, true));
    answer(0, 0);
    pass(SECOND);
    assert_true(was_told_nothing(0));
}

static void test_the_next_engine_is_told(void **state)
{
    (void)state;
    play(1);
    assert_true(was_told(0, 1, true));
    engine[0].state = ENGINE_ABSENT;
    answer(0, HEARTH_EENGINE);
    pass(SECOND);
    assert_true(was_told_nothing(0)); /* no engine is started for this */
    engine[0].link++;
    games_tell(&server, &engine[0], false);
    assert_true(was_told(0, 1, true));
    engine[0].state = ENGINE_RUNNING;
    answer(0, 0);
    games_tell(&server, &engine[0], true);
    assert_true(was_told_nothing(0));
}

static void test_what_does_not_run_is_not_called(void **state)
{
    static const enum engine_state not_running[] = {ENGINE_ABSENT, ENGINE_BACKOFF, ENGINE_LEAVING, ENGINE_STOPPING};
    (void)state;
    for (size_t n = 0; n < sizeof not_running / sizeof *not_running; n++) {
        engine[0].state = not_running[n];
        play(1);
        assert_true(was_told_nothing(0)); /* the call would wait for the next engine, and start it */
        assert_true(was_told(1, 1, true));
        answer(1, 0);
        play(0);
        assert_true(was_told_nothing(0));
        assert_true(was_told(1, 1, false));
        answer(1, 0);
    }
    engine[0].state = ENGINE_STARTING;
    play(1);
    assert_true(was_told(0, 1, true));
    answer(0, 0);
}

static void test_a_yield_on_request_neither_ends_it_nor_is_ended(void **state)
{
    (void)state;
    rest = (struct wire_engine_yield){.seconds = 10, .most = 1000};
    play(1);
    assert_true(was_told(0, 1, true) && was_told(1, 1, true));
    answer(0, 0);
    games_on_yield(&server, &engine[1], false);
    assert_true(was_told_nothing(1)); /* the call that is under way comes after the request */
    answer(1, 0);
    games_on_yield(&server, &engine[0], false);
    assert_true(was_told(0, 1, true));
    answer(0, 0);
    play(0);
    for (size_t i = 0; i < ENGINES; i++) {
        assert_true(was_told(i, 1, false));
        answer(i, 0);
    }
    games_on_yield(&server, &engine[0], false);
    assert_true(was_told_nothing(0) && was_told_nothing(1));
}

static void test_a_request_to_end_it_holds_until_another_game_begins(void **state)
{
    (void)state;
    play(1);
    assert_true(was_told(0, 1, true) && was_told(1, 1, true));
    answer(0, 0);
    answer(1, 0);
    games_on_yield(&server, &engine[0], true);
    assert_true(was_told_nothing(0) && was_told_nothing(1));
    play(2);
    assert_true(was_told(0, 1, true) && was_told_nothing(1));
    answer(0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_yield_while_a_game_runs, begin, end),
        cmocka_unit_test_setup_teardown(test_a_refusal_is_one_engines_alone, begin, end),
        cmocka_unit_test_setup_teardown(test_after_an_error_it_is_told_again, begin, end),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_called_is_told_later, begin, end),
        cmocka_unit_test_setup_teardown(test_the_next_engine_is_told, begin, end),
        cmocka_unit_test_setup_teardown(test_a_yield_on_request_neither_ends_it_nor_is_ended, begin, end),
        cmocka_unit_test_setup_teardown(test_a_request_to_end_it_holds_until_another_game_begins, begin, end),
        cmocka_unit_test_setup_teardown(test_what_does_not_run_is_not_called, begin, end),
    };
    return cmocka_run_group_tests_name("games", tests, NULL, NULL);
}
