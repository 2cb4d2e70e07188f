/*
 * tier-windows.c - the tiers of a model with two layer groups, one of which has a window: the pages saved of that group
 * are those from which a sequence may continue, and a restore brings back all that is needed, or nothing.
 */
#include "config.h"

#include "tests/unit/kvtier/tier-world.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Cached pages of the group, which other sequences can find on the device. */
static uint32_t cached(const struct world *w, uint32_t group)
{
    struct kv_counts c;
    kv_count(w->m.group.kv, group, &c);
    return c.cached;
}

enum { ENDS = (WINDOW + KV_SLACK) / KV_PAGE + 2 /* the most pages that are kept before an end */ };

static void turn(struct world *w, uint32_t n, uint32_t fork, int32_t seed, uint32_t keep)
{
    struct seq *q = world_seq(w, UID, n, fork, seed);
    q->kv.keep = keep;
    world_take_turn(w, q);
    world_settle(w);
}

static void a_window_comes_back_with_the_rest(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    turn(w, N, N, 0, 5 * KV_PAGE);
    assert_int_equal(w->saved, 3); /* all of one group; of the other, the windows before page 5 and before the end */
    assert_true(cached(w, 1) <= 2 * ENDS && cached(w, 1) < N);
    assert_int_equal(w->counters.pages_saved, N + cached(w, 1));
    uint64_t saved = w->counters.pages_saved;
    turn(w, N, N, 0, 5 * KV_PAGE);
    assert_int_equal(w->counters.pages_saved, saved); /* none of its pages are new */

    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID + 1, N, N, 0), 0); /* KV of another user is not used */
    assert_int_equal(world_back(w, UID, N, N, 0), N);
    assert_true(w->counters.pages_restored > N && w->counters.pages_restored <= N + ENDS);

    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID, 5, N, 0), 5); /* from the end of the prompt */
    uint64_t restored = w->counters.pages_restored;
    world_fresh_pool(w);
    assert_int_equal(world_back(w, UID, N, 5, 3), 5); /* and a different continuation from there */
    assert_true(w->counters.pages_restored > restored);
    world_fresh_pool(w);
    restored = w->counters.pages_restored;
    assert_int_equal(world_back(w, UID, N, 8, 3), 5); /* no window was kept before page 8 */
    assert_true(w->counters.pages_restored > restored);
}

/* The device has the timeline's KV, but its small pool of windows was needed for other sequences. */
static void windows_alone_come_back(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    turn(w, N, N, 0, 0);
    for (int32_t i = 1; i < 6; i++)
        turn(w, 6, 0, i, 0);
    struct seq *q = world_seq(w, UID, N, N, 0);
    assert_int_equal(kv_match(w->m.group.kv, &q->kv, q->token, N * KV_PAGE), 0);
    kv_release(w->m.group.kv, &q->kv, NULL, 0);
    uint64_t restored = w->counters.pages_restored;
    assert_int_equal(world_pages_back(w, q), N);
    assert_true(w->counters.pages_restored > restored && w->counters.pages_restored <= restored + ENDS);
    assert_int_equal(q->restored_from, 0);
    assert_int_equal(q->restored_to, N * KV_PAGE);
    seq_free(q);
}

static void a_lost_window_is_a_lost_prefix(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    turn(w, N, N, 0, 0);
    world_damage(w, &w->window_fingerprint, false);
    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID, N, N, 0), 0);
    assert_int_equal(w->bad, 1);
    turn(w, N, N, 0, 0); /* computed again, and saved again */
    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID, N, N, 0), N);

    world_damage(w, &w->fingerprint, false);
    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID, N, N, 0), 0);
    assert_int_equal(w->bad, 2);
}

static void from_host_memory(void **state)
{
    struct world *w = *state;
    world_open(w, false, 64 << 20);
    turn(w, N, N, 0, 4 * KV_PAGE);
    world_fresh_pool(w);
    assert_int_equal(world_back(w, UID, N, N, 0), N);
    world_fresh_pool(w);
    assert_int_equal(world_back(w, UID, 4, N, 0), 4);
    assert_int_equal(world_back(w, UID, N, N, 0), N);
}

#define RUNS(f) cmocka_unit_test_setup_teardown(f, world_setup_windows, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUNS(a_window_comes_back_with_the_rest),
        RUNS(windows_alone_come_back),
        RUNS(a_lost_window_is_a_lost_prefix),
        RUNS(from_host_memory),
    };
    return cmocka_run_group_tests_name("tier-windows", tests, NULL, NULL);
}
