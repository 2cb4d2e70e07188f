/*
 * kv.c - the page table and prefix cache against a model of the device's memory.
 *
 * The model: every row of every page remembers which (uid, token ids from the root) its KV was computed from, as one
 * hash; copies and clearings are carried out on it. Whatever kv_match hands out must hold exactly the rows of the
 * timeline asked for, however pages were shared, copied, evicted and given to other uids before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/sched/kv.h"

enum { MAX_LEN = 120, MAX_SEQ = 12, MAX_PAGES = 4096 };

static uint64_t rng_state;
static uint32_t rnd(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

static uint64_t memory[MAX_PAGES][KV_PAGE]; /* 0: cleared */
static uint64_t owner[MAX_PAGES];           /* uid + 1 that wrote the page since it was cleared */

static void carry_out(struct kv *kv)
{
    struct kv_action a;
    while (kv_next_action(kv, &a)) {
        if (a.kind == KV_COPY) {
            memcpy(memory[a.page], memory[a.from], sizeof memory[0]);
            owner[a.page] = owner[a.from];
        } else {
            memset(memory[a.page], 0, sizeof memory[0]);
            owner[a.page] = 0;
        }
    }
}

static uint64_t prefix_hash(int64_t uid, const int32_t *id, uint32_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u * (uint64_t)(uid + 3);
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ (uint64_t)(uint32_t)id[i]) * 0xff51afd7ed558ccdu + 0x632be59bd9b4e019u;
    return h | 1;
}

struct timeline {
    struct kv_table t;
    int32_t id[MAX_LEN];
    uint32_t n, done; /* ids, and of those how many have KV */
    bool live;
};

static void compute(struct timeline *s, uint32_t upto)
{
    for (; s->done < upto; s->done++) {
        uint32_t page = s->t.page[s->done / KV_PAGE];
        assert_true(owner[page] == 0 || owner[page] == (uint64_t)s->t.uid + 1); /* nobody else's KV is met */
        owner[page] = (uint64_t)s->t.uid + 1;
        memory[page][s->done % KV_PAGE] = prefix_hash(s->t.uid, s->id, s->done + 1);
    }
}

static void verify(const struct timeline *s)
{
    for (uint32_t i = 0; i < s->done; i++)
        assert_true(memory[s->t.page[i / KV_PAGE]][i % KV_PAGE] == prefix_hash(s->t.uid, s->id, i + 1));
}

/* What was released before, to compare the length of a match with. */
struct past {
    int64_t uid;
    int32_t id[MAX_LEN];
    uint32_t n;
};
static struct past past[4096];
static uint32_t n_past;

static uint32_t longest_past(int64_t uid, const int32_t *id, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < n_past; i++) {
        uint32_t k = 0;
        while (past[i].uid == uid && k < n && k < past[i].n && past[i].id[k] == id[k])
            k++;
        best = k > best ? k : best;
    }
    return best;
}

/* A random timeline: as a rule the beginning of an earlier one, then new ids of a small alphabet. */
static void draw_timeline(struct timeline *s, uint32_t n_uid)
{
    memset(s, 0, sizeof *s);
    s->t.uid = rnd(n_uid);
    s->n = 1 + rnd(MAX_LEN - 1);
    uint32_t k = 0;
    if (n_past && rnd(4)) {
        const struct past *p = &past[rnd(n_past)];
        k = rnd(p->n + 1);
        k = k < s->n ? k : s->n;
        memcpy(s->id, p->id, k * sizeof *s->id);
    }
    for (; k < s->n; k++)
        s->id[k] = (int32_t)rnd(3);
}

static void remember(const struct timeline *s)
{
    if (n_past == sizeof past / sizeof *past)
        return;
    past[n_past].uid = s->t.uid;
    past[n_past].n = s->done;
    memcpy(past[n_past++].id, s->id, sizeof s->id);
}

static struct kv *fresh(uint32_t n_page, uint64_t seed)
{
    struct kv *kv;
    struct hearth_err e;
    rng_state = seed * 77777 + 1;
    memset(memory, 0, sizeof memory);
    memset(owner, 0, sizeof owner);
    n_past = 0;
    assert_int_equal(kv_cache_new(&kv, n_page, &e), 0);
    return kv;
}

/* One at a time in a pool that never fills: a match is as long as the longest beginning ever released. */
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
            assert_true(kv_grow(kv, &s.t, s.n));
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

/* Many at once in a pool that is always full, three uids. */
static void shared_and_evicted(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        uint32_t n_page = 10 + rnd(60);
        struct kv *kv = fresh(n_page, 100 + seed);
        static struct timeline live[MAX_SEQ];
        memset(live, 0, sizeof live);
        for (int step = 0; step < 3000; step++) {
            struct timeline *s = &live[rnd(MAX_SEQ)];
            if (!s->live) {
                draw_timeline(s, 3);
                s->done = kv_match(kv, &s->t, s->id, s->n - 1);
                carry_out(kv);
                s->live = true;
            } else if (rnd(5)) {
                uint32_t upto = s->done + 1 + rnd(30);
                upto = upto < s->n ? upto : s->n;
                bool fits = (upto + KV_PAGE - 1) / KV_PAGE <= s->t.n + kv_available(kv);
                assert_int_equal(kv_grow(kv, &s->t, upto), fits);
                carry_out(kv);
                if (fits) {
                    compute(s, upto);
                    kv_publish(kv, &s->t, s->id, s->done);
                }
            } else {
                remember(s);
                kv_release(kv, &s->t, s->id, rnd(4) ? s->done : s->t.n_cached * KV_PAGE);
                s->live = false;
            }
            for (uint32_t i = 0; i < MAX_SEQ; i++)
                if (live[i].live)
                    verify(&live[i]);
            assert_true(kv_check(kv));
        }
        for (uint32_t i = 0; i < MAX_SEQ; i++)
            kv_release(kv, &live[i].t, live[i].id, live[i].live ? live[i].done : 0);
        struct kv_counts c;
        kv_count(kv, &c);
        assert_int_equal(c.held, 0); /* nothing leaked */
        assert_int_equal(c.free + c.cached, n_page);
        kv_cache_free(kv);
    }
}

/* A conversation: each turn reuses everything up to the last token, without a copy where nobody else holds it. */
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
        assert_true(kv_grow(kv, &s.t, n));
        compute(&s, n);
        kv_release(kv, &s.t, s.id, n);
    }
    struct kv_counts c;
    kv_count(kv, &c);
    assert_int_equal(c.longest, s.done);
    assert_int_equal(c.cached, (s.done + KV_PAGE - 1) / KV_PAGE); /* no leftovers of earlier turns */
    kv_cache_free(kv);
}

static void other_uid_finds_nothing_and_a_clean_page(void **state)
{
    (void)state;
    struct kv *kv = fresh(2, 9);
    struct timeline a = {.t.uid = 1, .n = 32}, b = {.t.uid = 2, .n = 32};
    assert_int_equal(kv_match(kv, &a.t, a.id, 31), 0);
    assert_true(kv_grow(kv, &a.t, 32));
    compute(&a, 32);
    kv_release(kv, &a.t, a.id, 32);
    assert_int_equal(kv_match(kv, &b.t, b.id, 31), 0); /* the same ids */
    assert_true(kv_grow(kv, &b.t, 32));
    struct kv_action act;
    for (int i = 0; i < 2; i++) {
        assert_true(kv_next_action(kv, &act));
        assert_int_equal(act.kind, KV_CLEAR);
    }
    assert_false(kv_next_action(kv, &act));
    kv_release(kv, &b.t, b.id, 0);
    kv_cache_free(kv);
}

static void grow_takes_all_or_nothing(void **state)
{
    (void)state;
    struct kv *kv = fresh(4, 1);
    struct kv_table t = {.uid = 1};
    assert_false(kv_grow(kv, &t, 4 * KV_PAGE + 1));
    assert_int_equal(kv_available(kv), 4);
    assert_true(kv_grow(kv, &t, 4 * KV_PAGE));
    assert_int_equal(kv_available(kv), 0);
    kv_release(kv, &t, NULL, 0);
    assert_int_equal(kv_available(kv), 4);
    kv_cache_free(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(match_is_longest),          cmocka_unit_test(shared_and_evicted),
        cmocka_unit_test(resume_continues_in_place), cmocka_unit_test(other_uid_finds_nothing_and_a_clean_page),
        cmocka_unit_test(grow_takes_all_or_nothing),
    };
    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
