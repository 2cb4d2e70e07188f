/*
 * tier-loss.c - losses below the tiers: files or parts of them, requests, models and host memory disappear.
 */
#include "config.h"

#include "tests/unit/kvtier/tier-world.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void damage(const struct world *w, uint32_t page)
{
    DIR *d = opendir(w->dir);
    for (struct dirent *en; (en = readdir(d));)
        if (strstr(en->d_name, ".kv")) {
            int fd = openat(dirfd(d), en->d_name, O_RDWR);
            off_t at = lseek(fd, 0, SEEK_END) - (off_t)((N - page) * w->fingerprint.page_bytes) + 5;
            uint8_t b;
            assert_int_equal(pread(fd, &b, 1, at), 1);
            b ^= 1;
            assert_int_equal(pwrite(fd, &b, 1, at), 1);
            close(fd);
        }
    closedir(d);
}

static void what_came_before_the_damage_counts(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    world_take_turn(w, world_seq(w, UID, N, N, 0));
    world_settle(w);
    world_restart(w, true, 0);
    world_settle(w); /* the scan finds the file's head sound */
    damage(w, 8);
    struct seq *q = world_seq(w, UID, N, N, 0);
    uint32_t got = world_pages_back(w, q);
    assert_true(got > 0 && got < N);
    assert_int_equal(q->restored_to, got * KV_PAGE);
    seq_free(q);
    assert_int_equal(w->bad, 1);
    assert_int_equal(w->counters.files_bad, 1);
    world_take_turn(w, world_seq(w, UID, N, N, 0)); /* computed again, and saved again */
    world_settle(w);
    world_fresh_pool(w);
    assert_int_equal(world_back(w, UID, N, N, 0), N);
}

static void a_file_that_was_evicted_is_a_quiet_miss(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    world_take_turn(w, world_seq(w, UID, N, N, 0));
    world_settle(w);
    world_fresh_pool(w);
    world_empty_folder(w);
    assert_int_equal(world_back(w, UID, N, N, 0), 0);
    assert_int_equal(w->bad, 0);
    assert_int_equal(w->counters.file_pages, 0);
}

static void remove_file(const struct world *w, const char *name)
{
    char path[64 + KVFILE_NAME + 1];
    snprintf(path, sizeof path, "%s/%s", w->dir, name);
    assert_int_equal(unlink(path), 0);
}

/* Pages of a file that hearthd has removed are written again when a turn that contains them ends. */
static void a_file_that_is_told_to_be_gone_is_written_again(void **state)
{
    struct world *w = *state;
    for (int ram = 0; ram < 2; ram++) {
        world_open(w, true, ram ? 4 * N * w->fingerprint.page_bytes : 0);
        world_take_turn(w, world_seq(w, UID, N, N, 0));
        world_take_turn(w, world_seq(w, UID, N, 0, 1)); /* in another file */
        world_settle(w);
        assert_int_equal(w->saved, 2);
        remove_file(w, w->last_file);
        tier_file_evicted(w->tier, w->last_file, true, 0);
        tier_file_evicted(w->tier, "0123456789abcdef-0123456789abcdef0123456789abcdef.kv", true,
                          0); /* an unknown file */
        world_turn(w);
        assert_int_equal(w->counters.file_pages, N);
        assert_int_equal(w->counters.host_pages, ram ? 2 * N : 0);
        world_take_turn(w, world_seq(w, UID, N, N, 0)); /* these pages are in a file */
        world_take_turn(w, world_seq(w, UID, N, 0, 1));
        world_settle(w);
        world_turn(w);
        assert_int_equal(w->saved, 3);
        assert_int_equal(w->counters.file_pages, 2 * N);
        world_restart(w, true, 0);
        assert_int_equal(world_back(w, UID, N, 0, 1), N);
        assert_int_equal(world_back(w, UID, N, N, 0), N);
        tier_close(w->tier);
        world_fresh_pool(w);
        world_empty_folder(w);
        w->saved = 0;
    }
    world_open(w, true, 0); /* for the teardown */
}

/* The same for a file that is being read: pages that have been delivered count. */
static void a_file_may_go_while_it_is_read(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    world_take_turn(w, world_seq(w, UID, N, N, 0));
    world_settle(w);
    world_restart(w, true, 0);
    world_settle(w);
    struct seq *q = world_seq(w, UID, N, N, 0);
    assert_true(tier_submit(w->tier, q, engine_now()));
    world_turn(w);
    tier_file_evicted(w->tier, w->last_file, true, 0);
    while (tier_ready(w->tier) != q)
        world_turn(w);
    world_settle(w);
    assert_int_equal(w->counters.file_pages, 0);
    seq_free(q);
}

static void a_cancelled_restore_leaves_nothing(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    world_take_turn(w, world_seq(w, UID, N, N, 0));
    world_settle(w);
    for (int turns = 0; turns < 6; turns++) {
        world_fresh_pool(w);
        struct seq *q = world_seq(w, UID, N, N, 0);
        bool taken = tier_submit(w->tier, q, engine_now());
        assert_true(taken && w->m.group.n_seq == 1);
        assert_null(tier_cancel(w->tier, q->id + 1));
        for (int i = 0; i < turns; i++)
            world_turn(w);
        assert_ptr_equal(tier_cancel(w->tier, q->id), q);
        assert_null(tier_cancel(w->tier, q->id));
        assert_int_equal(w->m.group.n_seq, 0);
        seq_free(q);
        while (tier_busy(w->tier, &w->m) || w->tier->io_jobs)
            world_turn(w);
        assert_int_equal(kv_available(w->m.group.kv), POOL);
        assert_null(tier_ready(w->tier));
    }
    world_turn(w);
    assert_int_equal(w->counters.host_pages, 0);
    assert_int_equal(w->counters.moving, 0);
}

/* A model is unloaded before its pages are copied: copies that are under way still complete, and nothing hangs. */
static void a_model_may_go_at_any_time(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    for (int turns = 0; turns < 4; turns++) {
        world_take_turn(w, world_seq(w, UID, N, 0, turns));
        for (int i = 0; i < turns; i++)
            world_turn(w);
        tier_detach(w->tier, &w->m);
        while (tier_busy(w->tier, &w->m))
            world_turn(w);
        world_fresh_pool(w);
    }
    world_settle(w);
    world_turn(w);
    assert_int_equal(w->counters.host_pages, 0);
}

static int no_host_memory(struct device *d, uint64_t bytes, void **out, struct hearth_err *e)
{
    (void)d, (void)out;
    return err_set(e, HEARTH_ENOMEM, "no %llu bytes", (unsigned long long)bytes);
}

/* On a machine that provides no host memory nobody waits for it, and no page of the pool is held for it. */
static void without_host_memory_there_are_no_tiers(void **state)
{
    enum { LONG = 100 /* turns */ };
    struct world *w = *state;
    struct backend poor = *w->be;
    const struct backend *be = w->be;
    struct kv_counts c;
    poor.host_alloc = no_host_memory;
    world_open(w, true, 0);
    world_take_turn(w, world_seq(w, UID, N, N, 0));
    world_settle(w);
    tier_close(w->tier);
    world_fresh_pool(w);
    w->be = &poor;
    world_open(w, true, 0);
    world_settle(w);
    struct seq *q = world_seq(w, UID, N, N, 0);
    bool taken = tier_submit(w->tier, q, engine_now());
    for (int i = 0; i < LONG && taken; i++) {
        world_turn(w);
        taken = !tier_ready(w->tier);
    }
    assert_false(taken);
    assert_int_equal(q->restored_to, 0);
    seq_free(q);
    world_take_turn(w, world_seq(w, UID, N, 0, 1));
    for (int i = 0; i < LONG && tier_saving(w->tier); i++)
        world_turn(w);
    assert_false(tier_saving(w->tier));
    kv_count(w->m.group.kv, 0, &c);
    assert_int_equal(c.held, 0);
    tier_close(w->tier);
    w->be = be;
    world_open(w, true, 0);
    world_settle(w);
}

int main(void)
{
#define RUNS(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        RUNS(what_came_before_the_damage_counts),
        RUNS(a_file_that_was_evicted_is_a_quiet_miss),
        RUNS(a_file_that_is_told_to_be_gone_is_written_again),
        RUNS(a_file_may_go_while_it_is_read),
        RUNS(a_cancelled_restore_leaves_nothing),
        RUNS(a_model_may_go_at_any_time),
        RUNS(without_host_memory_there_are_no_tiers),
    };
    return cmocka_run_group_tests_name("tier-loss", tests, NULL, NULL);
}
