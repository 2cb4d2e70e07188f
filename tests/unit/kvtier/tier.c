/*
 * tier.c - KV pages are saved and restored through the index, host memory and files, with the real I/O thread and the
 * CPU backend's pool.
 */
#include "config.h"

#include "tests/unit/kvtier/tier-world.h"

#include <poll.h>
#include <semaphore.h>
#include <unistd.h>

static void pages_come_back_from_files(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    world_take_turn(w, world_seq(w, UID, N, N, 0));
    world_settle(w);
    assert_int_equal(w->saved, 1);
    assert_int_equal(atomic_load(&w->counters.host_pages), 0);
    world_take_turn(w, world_seq(w, UID, N, N, 0)); /* none of its pages are new */
    world_take_turn(w, world_seq(w, UID, N + 2, N, 1));
    world_settle(w);
    assert_int_equal(w->saved, 2);
    assert_int_equal(w->counters.pages_dropped, 0); /* they left host memory, but are in files */
    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID + 1, N, N, 0), 0); /* KV of another user is not used */
    assert_int_equal(world_back(w, UID, N + 2, N, 1), N + 2);
    assert_int_equal(w->counters.pages_restored, N + 2);
    assert_int_equal(world_back(w, UID, N + 2, N, 2), N); /* the device has the common part */
    assert_int_equal(world_back(w, UID, N, 3, 3), 3);
    assert_int_equal(w->counters.pages_restored, N + 2);
    assert_true(w->used > 0);
    world_fresh_pool(w); /* an unload: the index is kept */
    assert_int_equal(world_back(w, UID, N, 5, 4), 5);
}

/* A directory that can be used only later: its files are found, and the next turn is written with all of its pages. */
static void a_directory_may_come_later(void **state)
{
    struct world *w = *state;
    struct hearth_err e;
    world_open(w, true, 0);
    world_take_turn(w, world_seq(w, UID, N, N, 0));
    world_settle(w);
    assert_int_equal(w->saved, 1);
    world_restart(w, false, 0);
    world_take_turn(w, world_seq(w, UID, N, 0, 1));
    world_settle(w);
    assert_int_equal(w->saved, 1);
    assert_int_not_equal(tier_use_dir(w->tier, "/nowhere", &e), 0);
    assert_int_equal(tier_use_dir(w->tier, w->dir, &e), 0);
    assert_int_equal(tier_use_dir(w->tier, "/nowhere", &e), 0); /* it has one */
    assert_int_equal(world_back(w, UID, N, N, 0), N);
    world_take_turn(w, world_seq(w, UID, N, 0, 1));
    world_settle(w);
    assert_int_equal(w->saved, 2);
    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID, N, 0, 1), N);
}

static void pages_come_back_from_host_memory(void **state)
{
    struct world *w = *state;
    world_open(w, false, 4 * N * w->fingerprint.page_bytes);
    for (int i = 0; i < 4; i++)
        world_take_turn(w, world_seq(w, UID, N, 0, i));
    world_settle(w);
    world_fresh_pool(w);
    assert_int_equal(world_back(w, UID, N, 0, 1), N);
    world_take_turn(w, world_seq(w, UID, N, 0, 1)); /* used again ... */
    for (int i = 4; i < 7; i++) {
        world_fresh_pool(w);
        world_take_turn(w, world_seq(w, UID, N, 0, i));
        world_settle(w);
    }
    world_fresh_pool(w);
    assert_true(w->counters.host_pages <= 4 * N);
    assert_int_equal(world_back(w, UID, N, 0, 1), N); /* ... so other pages were dropped for the new ones */
    assert_int_equal(world_back(w, UID, N, 0, 0), 0);
    assert_true(w->counters.pages_dropped > 0);
    world_fresh_pool(w);
    assert_int_equal(world_back(w, UID, N, 0, 6), N);
}

/* A user with many pages does not displace the few pages of another user, even if those are older. */
static void who_has_the_most_gives(void **state)
{
    struct world *w = *state;
    world_open(w, false, 4 * N * w->fingerprint.page_bytes);
    for (int i = 0; i < 6; i++) {
        world_take_turn(w, world_seq(w, i == 0 ? UID + 1 : UID, N, 0, i));
        world_settle(w);
        world_fresh_pool(w);
    }
    assert_int_equal(w->counters.pages_dropped, 2 * N);
    assert_int_equal(world_back(w, UID + 1, N, 0, 0), N);
    assert_int_equal(world_back(w, UID, N, 0, 1) + world_back(w, UID, N, 0, 2), 0); /* the user's oldest pages */
    for (int i = 3; i < 6; i++)
        assert_int_equal(world_back(w, UID, N, 0, i), N);

    /* this holds until both have equally much: the other user's next pages displace some of the many */
    for (int i = 6; i < 9; i++) {
        world_fresh_pool(w);
        world_take_turn(w, world_seq(w, UID + 1, N, 0, i));
        world_settle(w);
    }
    world_fresh_pool(w);
    assert_int_equal(world_back(w, UID, N, 0, 3), 0);
    assert_int_equal(world_back(w, UID, N, 0, 4) + world_back(w, UID, N, 0, 5), 2 * N);
    assert_int_equal(world_back(w, UID + 1, N, 0, 7) + world_back(w, UID + 1, N, 0, 8), 2 * N);
    assert_int_equal(w->counters.host_pages, 4 * N);
}

static void the_cheaper_way_is_taken(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    world_take_turn(w, world_seq(w, UID, N, N, 0));
    world_settle(w);
    world_restart(w, true, 0);
    assert_int_equal(world_back(w, UID, N, N, 0), N); /* measures the rates of disk and link */
    assert_true(w->counters.read_rate > 0 && w->counters.device_rate > 0);
    world_fresh_pool(w);
    tier_computed(w->tier, &w->m, 1 << 20, 1e-9); /* as if computing took no time */
    assert_int_equal(world_back(w, UID, N, N, 0), 0);
    for (int i = 0; i < 64; i++)
        tier_computed(w->tier, &w->m, 64, 100); /* as if it took very long */
    assert_int_equal(world_back(w, UID, N, N, 0), N);
}

/* The test sets the clock, and so decides how slow the disk is. */
static void a_restore_that_falls_behind_is_stopped(void **state)
{
    struct world *w = *state;
    struct hearth_err e;
    world_open(w, true, 0);
    world_take_turn(w, world_seq(w, UID, N, N, 0));
    world_settle(w);
    for (int late = 0; late < 2; late++) {
        world_restart(w, true, 0);
        world_settle(w);
        tier_computed(w->tier, &w->m, N * KV_PAGE, 10); /* computing would take ten seconds */
        struct seq *q = world_seq(w, UID, N, N, 0), *ready;
        assert_true(tier_submit(w->tier, q, 100));
        assert_true(tier_poll(w->tier, late ? 101.5 : 100.5, &e) >=
                    0); /* this is the first call that can process events */
        ready = tier_ready(w->tier);
        assert_ptr_equal(ready, late ? q : NULL);
        while (!ready && !(ready = tier_ready(w->tier))) {
            poll(&(struct pollfd){tier_fd(w->tier), POLLIN, 0}, 1, 10000);
            assert_true(tier_poll(w->tier, 100.9, &e) >= 0);
        }
        assert_int_equal(q->restored_to, late ? 0 : N * KV_PAGE);
        seq_free(q);
        world_settle(w);
        assert_int_equal(kv_available(w->m.group.kv), POOL);
    }
}

/* With a GPU, host memory is pinned when there is nothing else to do; a request that waits for an answer about files
 * takes precedence. */
static void pinning_delays_no_restore(void **state)
{
    struct world *w = *state;
    world_open(w, true, 0);
    world_take_turn(w, world_seq(w, UID, 3, 0, 1));
    world_settle(w);
    world_restart(w, true, 128 << 20);
    w->tier->p.gpu = true;
    struct seq *q = world_seq(w, UID, 3, 0, 1);
    assert_true(tier_submit(w->tier, q, engine_now())); /* the folder is being scanned */
    while (!tier_ready(w->tier)) {
        assert_false(tier_idle(w->tier));
        world_turn(w);
    }
    assert_int_equal(q->restored_to, 3 * KV_PAGE);
    w->tier->pin_took = 0; /* without the pace of earlier pinning */
    assert_true(tier_idle(w->tier));
    w->tier->p.gpu = false;
    seq_free(q);
}

/* Pretends that a slab has just been pinned and that this took an hour: pinning that is paced by it does not happen in
 * this test. */
static void pin_slowly(struct world *w)
{
    w->tier->pin_ended = engine_now();
    w->tier->pin_took = 3600;
}

/* While other streams run, a GPU's host memory is pinned at a limited pace; a save waits for it and is not lost. */
static void pinning_for_a_save_is_paced(void **state)
{
    struct world *w = *state;
    struct hearth_err e;
    world_open(w, true, 128 << 20);
    w->tier->p.gpu = true;
    world_take_turn(w, world_seq(w, UID, 3, 0, 1));
    pin_slowly(w);
    for (enum tier_foreground what = TIER_FG_IDLE; what <= TIER_FG_PREFILL; what++) {
        tier_foreground(w->tier, what);
        assert_int_equal(tier_poll(w->tier, engine_now(), &e), 0);
        assert_int_equal(w->tier->host.bytes, 0);
        double patience = tier_poll_timeout(w->tier), most = what == TIER_FG_DECODE ? 19 : 9;
        assert_true(patience > 3600 * (most - 1) && patience <= 3600 * most);
    }
    w->tier->pin_took = 0;
    tier_foreground(w->tier, TIER_FG_SUBMIT); /* pins in the next iteration, when the step has been submitted */
    assert_int_equal(tier_poll(w->tier, engine_now(), &e), 1);
    assert_int_equal(w->tier->host.bytes, 0);
    pin_slowly(w);
    tier_foreground(w->tier, TIER_FG_BLOCKED);
    assert_true(tier_poll(w->tier, engine_now(), &e) >= 0);
    assert_true(w->tier->host.bytes > 0);
    world_settle(w);
    assert_int_equal(atomic_load(&w->counters.pages_saved), 3);
    assert_true(tier_poll_timeout(w->tier) < 0);
    w->tier->p.gpu = false;
}

/* A save holds pages of the pool. When the pool runs short, pinning for the save is not paced, because prompts would
 * wait for it. */
static void a_short_pool_hurries_a_save(void **state)
{
    struct world *w = *state;
    struct hearth_err e;
    struct kv_table others = {.uid = UID};
    world_open(w, true, 128 << 20);
    w->tier->p.gpu = true;
    world_take_turn(w, world_seq(w, UID, 3, 0, 1));
    pin_slowly(w);
    assert_int_equal(tier_poll(w->tier, engine_now(), &e), 0);
    assert_int_equal(w->tier->host.bytes, 0);
    assert_true(kv_grow(w->m.group.kv, &others, 0, (POOL - 10) * KV_PAGE, 0));
    assert_true(tier_poll(w->tier, engine_now(), &e) >= 0);
    assert_true(w->tier->host.bytes > 0);
    world_settle(w);
    assert_int_equal(atomic_load(&w->counters.pages_saved), 3);
    kv_release(w->m.group.kv, &others, NULL, 0);
    w->tier->p.gpu = false;
}

/* Pinning ahead waits after a step, because a client that has just got its answer may send its next request at once. */
static void pinning_ahead_waits_after_a_step(void **state)
{
    struct world *w = *state;
    struct hearth_err e;
    world_open(w, false, 128 << 20);
    w->tier->p.gpu = true;
    w->tier->page_bytes = w->fingerprint.page_bytes;
    w->tier->pin_took = 400;
    w->tier->pin_ended = engine_now() - 3600;
    tier_foreground(w->tier, TIER_FG_PREFILL);
    assert_int_equal(tier_poll(w->tier, engine_now(), &e), 0);
    tier_foreground(w->tier, TIER_FG_IDLE);
    assert_int_equal(tier_poll(w->tier, engine_now(), &e), 0);
    assert_false(tier_idle(w->tier));
    assert_true(tier_poll_timeout(w->tier) > 3500);
    w->tier->busy -= 3600;
    assert_true(tier_idle(w->tier));
    assert_true(w->tier->host.bytes > 0);
    w->tier->p.gpu = false;
}

/* While host memory may still grow, saving a conversation does not evict pages of another one from it. */
static void memory_is_pinned_before_pages_go(void **state)
{
    struct world *w = *state;
    enum { SLAB = 1024 };
    struct host_page *held[SLAB];
    uint32_t n = 0;
    world_open(w, true, 128 << 20);
    w->tier->p.gpu = true;
    for (int32_t seed = 1; seed <= 2; seed++) {
        world_take_turn(w, world_seq(w, UID, 3, 0, seed));
        world_settle(w);
        assert_int_equal(atomic_load(&w->counters.host_pages), 3 * seed);
        while (n < SLAB && (held[n] = host_take(&w->tier->host, w->fingerprint.page_bytes)))
            n++; /* the next save finds no free page */
    }
    while (n)
        host_give(&w->tier->host, held[--n]);
    w->tier->p.gpu = false;
}

/* The sync of a file takes as long as the test wants: the linker replaces the real function by this one
 * (tests/local.mk). */
static sem_t synced;
static _Atomic bool syncs_slowly;
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    while (syncs_slowly && sem_wait(&synced) < 0) {
    }
    return __real_fdatasync(fd);
}

static void end_sync(void)
{
    syncs_slowly = false;
    sem_post(&synced);
}

static int setup_sync(void **state)
{
    sem_init(&synced, 0, 0);
    return world_setup(state);
}

static int teardown_sync(void **state)
{
    end_sync(); /* in case the test failed before it did so */
    int rc = world_teardown(state);
    sem_destroy(&synced);
    return rc;
}

/* A model is unloaded right after a turn, and the turn is resumed before its file is complete: the pages are in no
 * other place. */
static void a_file_on_its_way_is_waited_for(void **state)
{
    struct world *w = *state;
    struct hearth_err e;
    world_open(w, true, 0);
    for (int late = 0; late < 3; late++) {
        bool computes =
            late == 1; /* the file is late the third time too, but then TIER_ALWAYS restores it whatever that costs */
        w->tier->p.policy = late < 2 ? TIER_BY_COST : TIER_ALWAYS;
        world_settle(w);
        syncs_slowly = true;
        world_take_turn(w, world_seq(w, UID, N, 0, late));
        do
            world_turn(w);
        while (w->counters.host_pages || tier_busy(w->tier, &w->m));
        assert_true(tier_saving(w->tier));
        world_fresh_pool(w);
        tier_computed(w->tier, &w->m, N * KV_PAGE, 10); /* computing would take ten seconds */
        struct seq *q = world_seq(w, UID, N, 0, late), *ready = NULL;
        assert_true(tier_submit(w->tier, q, 100));
        assert_true(tier_poll(w->tier, 100.9, &e) >= 0);
        assert_null(tier_ready(w->tier));
        if (late) { /* a tenth of that has passed */
            assert_true(tier_poll(w->tier, 101.5, &e) >= 0);
            assert_ptr_equal(ready = tier_ready(w->tier), computes ? q : NULL);
        }
        end_sync();
        while (!ready && !(ready = tier_ready(w->tier))) {
            poll(&(struct pollfd){tier_fd(w->tier), POLLIN, 0}, 1, 10);
            assert_true(tier_poll(w->tier, 100.9, &e) >= 0);
        }
        assert_int_equal(q->restored_to, computes ? 0 : N * KV_PAGE);
        world_settle(w);
        assert_int_equal(world_pages_back(w, q), N); /* the file is complete by then in any case */
        seq_free(q);
    }
}

static void two_that_want_the_same_fetch_it_once(void **state)
{
    struct world *w = *state;
    struct seq *q[3];
    world_open(w, true, 0);
    world_take_turn(w, world_seq(w, UID, N, N, 0));
    world_settle(w);
    world_restart(w, true, 0);
    for (int i = 0; i < 3; i++) {
        q[i] = world_seq(w, UID, N + 1, N, i);
        assert_true(tier_submit(w->tier, q[i], engine_now()));
    }
    for (int n = 0; n < 3;) {
        struct seq *r = tier_ready(w->tier);
        n += r != NULL;
        if (!r)
            world_turn(w);
    }
    assert_int_equal(w->counters.pages_restored, N);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(world_pages_back(w, q[i]), N);
        seq_free(q[i]);
    }
}

static void a_full_pool_takes_what_fits(void **state)
{
    struct world *w = *state;
    struct kv_table other = {.uid = UID};
    world_open(w, true, 0);
    world_take_turn(w, world_seq(w, UID, N, N, 0));
    world_settle(w);
    world_fresh_pool(w);
    assert_true(kv_grow(w->m.group.kv, &other, 0, (POOL - 5) * KV_PAGE, 0));
    uint32_t got = world_back(w, UID, N, N, 0);
    assert_true(got > 0 && got <= 5);
    kv_release(w->m.group.kv, &other, NULL, 0);
}

/* The default size of host memory is shared between engines. */
static void host_memory_is_shared(void **state)
{
    struct world *w = *state;
    struct hearth_err e = {0};
    uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), limit[4];
    static const struct {
        uint32_t sharers;
        uint64_t ram;
    } rows[] = {{1, TIER_RAM_AUTO}, {1000, TIER_RAM_AUTO}, {1000, 12345678}, {0, TIER_RAM_AUTO}};
    for (size_t i = 0; i < 4; i++) {
        struct tier_params p = {.be = w->be,
                                .dev = w->dev,
                                .gpu = true,
                                .ram = rows[i].ram,
                                .sharers = rows[i].sharers,
                                .counters = &w->counters};
        assert_int_equal(tier_open(&w->tier, &p, &e), 0);
        limit[i] = atomic_load(&w->counters.host_limit);
        tier_close(w->tier);
        w->tier = NULL;
    }
    assert_true(limit[0] > 0 && limit[0] <= ram / 4 && limit[0] <= UINT64_C(16) << 30);
    assert_true(limit[1] > 0 && limit[1] <= ram / 4000);
    assert_int_equal(limit[2], 12345678); /* each as it was configured */
    assert_int_equal(limit[3], limit[0]);
}

static uint64_t machine_has;
static uint64_t ram_left(void)
{
    return machine_has;
}

/* ... and is at most what the machine has left. */
static void host_memory_follows_the_machine(void **state)
{
    struct world *w = *state;
    struct hearth_err e = {0};
    static const uint64_t gib = UINT64_C(1) << 30;
    struct tier_params p = {.be = w->be,
                            .dev = w->dev,
                            .gpu = true,
                            .ram = TIER_RAM_AUTO,
                            .sharers = 2,
                            .ram_left = ram_left,
                            .counters = &w->counters};
    assert_int_equal(tier_open(&w->tier, &p, &e), 0);
    struct tier *t = w->tier;
    uint64_t most = t->ram, transit = t->host.limit - t->ram;
    static const struct {
        double at;
        uint64_t has;
    } rows[] = {{100, UINT64_MAX}, {100.5, 0}, {101, 0}, {102, 2 << 20}, {103, UINT64_C(1) << 30}, {104, UINT64_MAX}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        machine_has = rows[i].has;
        assert_int_equal(tier_poll(t, rows[i].at, &e), 0);
        uint64_t half = machine_has / 2, want = half < transit ? 0 : half - transit; /* no slabs have been pinned yet */
        want = i == 1 || want > most ? most : want;                                  /* measured just before */
        assert_int_equal(t->ram, want);
        assert_int_equal(t->host.limit, want + transit);
        assert_int_equal(atomic_load(&w->counters.host_limit), want);
    }
    machine_has = 0; /* memory that has been taken is kept */
    assert_true(host_grow(&t->host, 4096));
    uint64_t has = t->host.bytes;
    assert_true(has > 0 && has < transit && transit < gib);
    assert_int_equal(tier_poll(t, 105, &e), 0);
    assert_true(t->ram == 0 && t->host.limit == transit && t->host.bytes == has);
}

int main(void)
{
#define RUNS(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        RUNS(pages_come_back_from_files),
        RUNS(a_directory_may_come_later),
        RUNS(pages_come_back_from_host_memory),
        RUNS(who_has_the_most_gives),
        RUNS(the_cheaper_way_is_taken),
        RUNS(a_restore_that_falls_behind_is_stopped),
        RUNS(pinning_delays_no_restore),
        RUNS(pinning_for_a_save_is_paced),
        RUNS(a_short_pool_hurries_a_save),
        RUNS(pinning_ahead_waits_after_a_step),
        RUNS(memory_is_pinned_before_pages_go),
        cmocka_unit_test_setup_teardown(a_file_on_its_way_is_waited_for, setup_sync, teardown_sync),
        RUNS(two_that_want_the_same_fetch_it_once),
        RUNS(a_full_pool_takes_what_fits),
        RUNS(host_memory_is_shared),
        RUNS(host_memory_follows_the_machine),
    };
    return cmocka_run_group_tests_name("tier", tests, NULL, NULL);
}
