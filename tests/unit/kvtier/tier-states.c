/*
 * tier-states.c - the tiers of a model whose second layer group has recurrent states. States go to host memory and into
 * files as pages of KV do, and a timeline continues from where a state was restored, or starts from its beginning.
 */
#include "config.h"

#include "tests/unit/kvtier/tier-world.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The pages after which states are kept in a turn of N pages whose prompt ends after five. */
enum { KEEP = 5 * KV_PAGE, PROMPT = KEEP / KV_PAGE - KV_SLACK / KV_PAGE, TURN = STATE_SAID / KV_PAGE };

static void turn(struct world *w, int32_t seed)
{
    struct seq *q = world_seq(w, UID, N, seed ? 0 : N, seed);
    q->kv.keep = KEEP;
    world_take_turn(w, q);
    world_settle(w);
}

static void a_state_comes_back_with_the_rest(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    turn(w, 0);
    assert_int_equal(w->counters.pages_saved, N + 2);
    uint64_t saved = w->counters.pages_saved;
    turn(w, 0);
    assert_int_equal(w->counters.pages_saved, saved + 1); /* the state at the very end, which the next turn names */

    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID + 1, N, N, 0), 0); /* KV of another user is not used */
    assert_int_equal(world_back(w, UID, N - 1, N, 0), TURN);
    uint64_t restored = w->counters.pages_restored;
    assert_int_equal(restored, TURN + 1); /* one state, and the KV before it */
    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID, KEEP / KV_PAGE, N, 0), PROMPT); /* from just before the end of the prompt */
    world_fresh_pool(w);
    assert_int_equal(world_back(w, UID, N, TURN - 1, 3), PROMPT); /* and a different continuation from there */
}

/* The device has the timeline's KV, but its small pool of states was needed for other sequences. */
static void states_alone_come_back(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    turn(w, 0);
    for (int32_t i = 1; i < WINDOW_POOL; i++)
        turn(w, i);
    struct seq *q = world_seq(w, UID, N, N, 0);
    assert_int_equal(kv_match(w->m.group.kv, &q->kv, q->token, N * KV_PAGE), 0);
    kv_release(w->m.group.kv, &q->kv, NULL, 0);
    assert_int_equal(world_pages_back(w, q), TURN);
    assert_int_equal(q->restored_to, TURN * KV_PAGE);
    seq_free(q);
}

static void a_lost_state_is_computed_again(void **state)
{
    struct world *w = *state;
    for (int cut = 0; cut < 2; cut++) {
        world_open(w, true, 0);
        turn(w, 0);
        world_damage(w, &w->window_fingerprint, cut);
        world_restart(w, true, 0);
        assert_int_equal(world_back(w, UID, N, N, 0), 0);
        assert_true(w->bad > cut);
        turn(w, 0); /* computed again, and saved again */
        world_restart(w, true, 0);
        assert_int_equal(world_back(w, UID, N - 1, N, 0), TURN);
        tier_close(w->tier);
        world_fresh_pool(w);
        world_empty_folder(w);
    }
    world_open(w, true, 0);
}

/* A file of states of another model, or of another layout of states, is not used for this one. */
static void another_models_states_stay_where_they_are(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    turn(w, 0);
    w->window_fingerprint.d_head++;
    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID, N, N, 0), 0);
    assert_int_equal(w->bad, 0);
    w->window_fingerprint.d_head--;
    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID, N - 1, N, 0), TURN);
}

static void from_host_memory(void **state)
{
    struct world *w = *state;
    world_open(w, false, 64 << 20);
    turn(w, 0);
    world_fresh_pool(w);
    assert_int_equal(world_back(w, UID, N, N, 0), TURN);
    world_fresh_pool(w);
    assert_int_equal(world_back(w, UID, 4, N, 0), PROMPT);
    assert_int_equal(world_back(w, UID, N, N, 0), TURN);
}

/* If a turn ends with the step that gave the state before the prompt's end, that state is saved too. */
static void from_within_the_last_step(void **state)
{
    struct world *w = *state;
    w->step = N;
    world_fresh_pool(w);
    world_open(w, true, 0);
    struct seq *q = world_seq(w, UID, N, N, 0);
    q->kv.keep = N * KV_PAGE;
    world_take_turn(w, q);
    world_settle(w);
    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID, N, N, 0), N - KV_SLACK / KV_PAGE);
}

/* A timeline in files cannot be continued from a place where no state was kept. The first request to continue from
 * there finds the place (kv.part) and keeps a state, so the next one can. */
static void where_timelines_part_is_told(void **state)
{
    struct world *w = *state;
    enum { PLACES = 50, PART = 40 };
    world_open(w, true, 0);
    world_take_turn(w, world_seq(w, UID, PLACES, PLACES, 0));
    world_settle(w);
    world_restart(w, true, 0);
    world_settle(w); /* the folder has been scanned */
    struct seq *q = world_seq(w, UID, PLACES, PART, 1);
    q->kv.keep = q->n_tokens;
    assert_false(tier_submit(w->tier, q, engine_now()));
    assert_int_equal(q->kv.part, PART * KV_PAGE);
    world_take_turn(w, q);
    world_settle(w);
    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID, PLACES, PART, 2), PART);
}

/* The states of a later turn replace those of an earlier one, which are evicted first, before KV that the later states
 * need. */
static void replaced_states_make_room_first(void **state)
{
    struct world *w = *state;
    enum { PAGES = 25, SECOND = 18, LAST = 24 }; /* LAST: the page before the end of the second prompt */
    world_open(w, false, 64 << 20);
    turn(w, 0);
    struct seq *q = world_seq(w, UID, PAGES, PAGES, 0);
    q->kv.keep = (SECOND + KV_SLACK / KV_PAGE) * KV_PAGE;
    world_take_turn(w, q);
    world_settle(w);
    assert_int_equal(atomic_load(&w->counters.host_pages), PAGES + 4);
    for (int i = 0; i < 2; i++)
        assert_true(index_evict_oldest(&w->tier->index));
    world_fresh_pool(w);
    assert_int_equal(world_back(w, UID, N, PAGES, 0), 0); /* the two states of the first turn */
    assert_int_equal(world_back(w, UID, PAGES, PAGES, 0), LAST);
}

#define RUNS(f) cmocka_unit_test_setup_teardown(f, world_setup_states, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUNS(a_state_comes_back_with_the_rest),
        RUNS(states_alone_come_back),
        RUNS(a_lost_state_is_computed_again),
        RUNS(another_models_states_stay_where_they_are),
        RUNS(from_host_memory),
        RUNS(from_within_the_last_step),
        RUNS(where_timelines_part_is_told),
        RUNS(replaced_states_make_room_first),
    };
    return cmocka_run_group_tests_name("tier-states", tests, NULL, NULL);
}
