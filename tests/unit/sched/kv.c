/* kv.c - the page table and prefix cache against the model of the device's memory in kv-world.h: what is matched,
 * shared and evicted, with and without extents. */
#include "tests/unit/sched/kv-world.h"

/* One timeline at a time in a pool that never fills: a match has the length of the longest beginning ever released. */
static void match_is_longest(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct kv *kv = fresh(MAX_PAGES, seed);
        for (int turn = 0; turn < 150; turn++) {
            struct timeline s;
            draw_timeline(&s, 2);
            s.done = kv_match(kv, &s.t, s.id, s.n - 1);
            carry_out(kv);
            verify(&s);
            assert_int_equal(s.done, longest_past(s.t.uid, s.id, s.n - 1));
            assert_true(kv_grow(kv, &s.t, s.done, s.n, LOOKAHEAD));
            carry_out(kv);
            compute(&s, s.n);
            verify(&s);
            remember(&s);
            kv_release(kv, &s.t, s.id, s.n);
            assert_true(kv_check(kv));
        }
        kv_cache_free(kv);
    }
}

/* Many timelines at once in pools that are always full, with three uids; with windows, in chunks of up to LOOKAHEAD
 * tokens. Returns the longest prefix that was found. */
static uint32_t share_and_evict(const uint32_t *window, uint32_t n, uint64_t seed)
{
    uint32_t n_page = len_max / 12 + rnd(len_max / 2), most = 0;
    struct kv *kv = fresh_groups(n_page, window, n, seed);
    static struct timeline live[MAX_SEQ];
    memset(live, 0, sizeof live);
    for (int step = 0; step < 3000; step++) {
        struct timeline *s = &live[rnd(MAX_SEQ)];
        if (!s->live) {
            draw_timeline(s, 3);
            s->t.keep = s->n / 2;
            s->done = kv_match(kv, &s->t, s->id, s->n - 1);
            carry_out(kv);
            s->live = true;
            most = s->done > most ? s->done : most;
        } else if (rnd(len_max / 24)) {
            uint32_t upto = s->done + 1 + rnd(n == 1 && !window[0] ? 30 : LOOKAHEAD);
            upto = upto < s->n ? upto : s->n;
            bool fits = (upto + KV_PAGE - 1) / KV_PAGE <= s->t.n + kv_available(kv);
            bool grew = kv_grow(kv, &s->t, s->done, rnd(2) ? upto : s->n, LOOKAHEAD);
            if (!grew)
                grew = kv_grow(kv, &s->t, s->done, upto, LOOKAHEAD);
            assert_true(grew || !fits || n > 1 || window[0] || kv_was_refused(kv));
            assert_true(!grew || fits || n > 1 || window[0]);
            carry_out(kv);
            upto = s->done + (grew ? kv_cut(kv, &s->t, s->done, upto - s->done) : 0);
            if (grew && shape[n - 1].state && !rnd(8)) {
                compute_states(s, upto, true);
            } else if (grew) {
                compute(s, upto);
                kv_publish(kv, &s->t, s->id, s->done);
            }
        } else {
            remember(s);
            kv_advance(kv, &s->t, s->done);
            kv_release(kv, &s->t, s->id, rnd(4) ? s->done : s->t.n_cached * KV_PAGE);
            s->live = false;
        }
        if (extent && rnd(20) == 0) {
            extents.full = rnd(2);
            if (!extents.full)
                kv_may_grow(kv);
            kv_shrink(kv, rnd(n), 1 + rnd(4), rnd(2));
        }
        for (uint32_t i = 0; i < MAX_SEQ; i++)
            if (live[i].live)
                verify(&live[i]);
        assert_true(kv_check(kv));
    }
    for (uint32_t i = 0; i < MAX_SEQ; i++)
        kv_release(kv, &live[i].t, live[i].id, live[i].live ? live[i].done : 0);
    for (uint32_t g = 0; g < n; g++) {
        struct kv_counts c;
        kv_count(kv, g, &c);
        assert_int_equal(c.held, 0); /* nothing leaked */
        assert_int_equal(c.free + c.cached, c.total);
        if (!extent)
            assert_int_equal(c.total, n_page);
        uint32_t had = c.total;
        uint32_t dropped = kv_shrink(kv, g, UINT32_MAX, true);
        kv_count(kv, g, &c);
        assert_int_equal(c.total, extent ? 0 : n_page);
        assert_int_equal(dropped, extent ? (had + extent - 1) / extent : 0);
    }
    assert_true(kv_check(kv));
    assert_int_equal(extents.mapped, extents.unmapped);
    assert_true(!extent || extents.mapped > n_page / extent); /* some extents were mapped more than once */
    kv_cache_free(kv);
    return most;
}

static void shared_and_evicted(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++)
        assert_true(share_and_evict((uint32_t[]){0}, 1, 100 + seed) > KV_PAGE);
}

/* The same while extents are mapped and unmapped. */
static void extents_come_and_go(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        extent = 1 + (uint32_t)seed;
        assert_true(share_and_evict(seed % 3 ? (uint32_t[]){0} : (uint32_t[]){0, 33}, seed % 3 ? 1 : 2, 300 + seed) >
                    0);
    }
    extent = 0;
}

/* A pool asks for memory if no page is free, and evicts if there is no memory. A shrink takes free extents first, and
 * evicts the least recently used pages only as far as necessary. */
static void memory_before_eviction(void **state)
{
    (void)state;
    struct kv_counts c;
    extent = 4;
    struct kv *kv = fresh(30, 1);
    int32_t id[30 * KV_PAGE];
    for (int i = 0; i < 30 * KV_PAGE; i++)
        id[i] = i;
    assert_int_equal(kv_available(kv), 30);
    for (int64_t uid = 0; uid < 4; uid++) {
        struct kv_table t = {.uid = uid};
        assert_true(kv_grow(kv, &t, 0, 5 * KV_PAGE, LOOKAHEAD));
        kv_release(kv, &t, id, 5 * KV_PAGE);
    }
    kv_count(kv, 0, &c);
    assert_true(c.total == 20 && c.cached == 20 && extents.mapped == 5); /* nothing was evicted */
    extents.full = true;
    struct kv_table t = {.uid = 9};
    assert_true(kv_grow(kv, &t, 0, 3 * KV_PAGE, LOOKAHEAD));
    assert_true(kv_was_refused(kv));
    kv_count(kv, 0, &c);
    assert_true(c.total == 20 && c.cached == 17 && c.held == 3);
    assert_int_equal(kv_available(kv), 17);
    kv_release(kv, &t, id, 0);
    assert_int_equal(kv_shrink(kv, 0, 9, false), 0); /* 3 free pages are not an extent */
    assert_int_equal(kv_shrink(kv, 0, 1, true), 1);
    kv_count(kv, 0, &c);
    assert_true(c.total == 16 && c.cached == 15 &&
                c.free == 1); /* two pages were evicted, which made their extent free */
    extents.full = false;
    kv_may_grow(kv);
    assert_true(kv_ahead(kv, 14));
    kv_count(kv, 0, &c);
    assert_true(c.free == 15 && c.cached == 15 && c.total == 30); /* the last extent has two pages */
    assert_true(kv_check(kv));
    kv_cache_free(kv);
    extent = 0;
}

static void windows_shared_and_evicted(void **state)
{
    (void)state;
    static const uint32_t window[][3] = {{0, 20, 0}, {0, 33, 1}, {0, 1, 70}, {25, 60, 0}, {40, 0, 0}};
    static const uint32_t n[] = {2, 3, 3, 2, 1};
    uint32_t most[5] = {0};
    for (uint64_t seed = 0; seed < 20; seed++) {
        uint32_t found = share_and_evict(window[seed % 5], n[seed % 5], 200 + seed);
        most[seed % 5] = found > most[seed % 5] ? found : most[seed % 5];
    }
    for (int i = 0; i < 5; i++)
        assert_true(most[i] > KV_PAGE);
}

static void states_shared_and_evicted(void **state)
{
    (void)state;
    static const uint32_t window[][3] = {{0, STATES, 0}, {STATES, 0, 0}, {0, 40, STATES}};
    static const uint32_t n[] = {2, 1, 3};
    uint32_t most[3] = {0};
    len_max = MAX_LEN;
    for (uint64_t seed = 0; seed < 18; seed++) {
        states_within = seed / 3 % 2;
        uint32_t found = share_and_evict(window[seed % 3], n[seed % 3], 300 + seed);
        most[seed % 3] = found > most[seed % 3] ? found : most[seed % 3];
    }
    states_within = false;
    len_max = 120;
    for (int i = 0; i < 3; i++)
        assert_true(most[i] > 3 * KV_PAGE);
}

/* A conversation: each turn reuses everything up to the last token, without a copy unless another sequence holds it. */
static void resume_continues_in_place(void **state)
{
    (void)state;
    struct kv *kv = fresh(64, 7);
    struct timeline s = {.t.uid = 5};
    for (int i = 0; i < MAX_LEN; i++)
        s.id[i] = 1000 + i;
    for (uint32_t n = 5; n < MAX_LEN; n += 9) {
        uint32_t before = s.done;
        s.done = kv_match(kv, &s.t, s.id, n - 1);
        assert_int_equal(s.done, before);
        struct kv_action a;
        assert_false(kv_next_action(kv, &a));
        assert_true(kv_grow(kv, &s.t, s.done, n, LOOKAHEAD));
        compute(&s, n);
        kv_release(kv, &s.t, s.id, n);
    }
    struct kv_counts c;
    kv_count(kv, 0, &c);
    assert_int_equal(kv_longest(kv), s.done);
    assert_int_equal(c.cached, (s.done + KV_PAGE - 1) / KV_PAGE); /* nothing is left over from earlier turns */
    kv_cache_free(kv);
}

static void other_uid_finds_nothing_and_a_clean_page(void **state)
{
    (void)state;
    struct kv *kv = fresh(2, 9);
    struct timeline a = {.t.uid = 1, .n = 32}, b = {.t.uid = 2, .n = 32};
    assert_int_equal(kv_match(kv, &a.t, a.id, 31), 0);
    assert_true(kv_grow(kv, &a.t, 0, 32, LOOKAHEAD));
    compute(&a, 32);
    kv_release(kv, &a.t, a.id, 32);
    assert_int_equal(kv_match(kv, &b.t, b.id, 31), 0); /* the same ids of another uid */
    assert_true(kv_grow(kv, &b.t, 0, 32, LOOKAHEAD));
    struct kv_action act;
    for (int i = 0; i < 2; i++) {
        assert_true(kv_next_action(kv, &act));
        assert_int_equal(act.kind, KV_CLEAR);
    }
    assert_false(kv_next_action(kv, &act));
    kv_release(kv, &b.t, b.id, 0);
    kv_cache_free(kv);
}

/* Pages of no user, those of an eval, are in the cache as long as it needs them, and evict nobody's. */
static void nobodys_pages_do_not_stay(void **state)
{
    (void)state;
    struct kv_counts c;
    struct kv *kv = fresh(5, 1);
    struct timeline a = {.t.uid = 1, .n = 32}, eval = {.t.uid = -2, .n = 48};
    assert_true(kv_grow(kv, &a.t, 0, 32, LOOKAHEAD));
    compute(&a, 32);
    kv_release(kv, &a.t, a.id, 32);
    for (int i = 0; i < 3; i++) {
        assert_true(kv_grow(kv, &eval.t, 0, 48, LOOKAHEAD));
        compute(&eval, 48);
        kv_publish(kv, &eval.t, eval.id, 48);
        kv_release(kv, &eval.t, eval.id, 48);
        kv_count(kv, 0, &c);
        assert_true(c.cached == 2 && c.held == 0 && c.free == 3);
    }
    assert_int_equal(kv_match(kv, &a.t, a.id, 32), 32);
    kv_release(kv, &a.t, a.id, 32);
    assert_true(kv_check(kv));
    kv_cache_free(kv);
}

static void grow_takes_all_or_nothing(void **state)
{
    (void)state;
    struct kv *kv = fresh(4, 1);
    struct kv_table t = {.uid = 1};
    assert_false(kv_grow(kv, &t, 0, 4 * KV_PAGE + 1, LOOKAHEAD));
    assert_int_equal(kv_available(kv), 4);
    assert_true(kv_grow(kv, &t, 0, 4 * KV_PAGE, LOOKAHEAD));
    assert_int_equal(kv_available(kv), 0);
    kv_release(kv, &t, NULL, 0);
    assert_int_equal(kv_available(kv), 4);
    kv_cache_free(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(match_is_longest),           cmocka_unit_test(shared_and_evicted),
        cmocka_unit_test(resume_continues_in_place),  cmocka_unit_test(other_uid_finds_nothing_and_a_clean_page),
        cmocka_unit_test(nobodys_pages_do_not_stay),  cmocka_unit_test(grow_takes_all_or_nothing),
        cmocka_unit_test(extents_come_and_go),        cmocka_unit_test(memory_before_eviction),
        cmocka_unit_test(windows_shared_and_evicted), cmocka_unit_test(states_shared_and_evicted),
    };
    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
