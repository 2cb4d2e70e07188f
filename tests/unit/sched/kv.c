/*
 * kv.c - the page table and prefix cache against a model of the device's memory.
 *
 * The model: every row of every page of every pool remembers which (uid, token ids from the root) its KV was computed
 * from, as one hash; copies and clearings are carried out on it. Whatever kv_match hands out must hold exactly the rows
 * of the timeline asked for that the next token sees, however pages were shared, copied, evicted and given to other
 * uids before. A page of states has one such hash, of all tokens up to where it was kept.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/sched/kv-size.h"

enum { MAX_LEN = 420, MAX_SEQ = 12, MAX_PAGES = 4096, LOOKAHEAD = 24 };

#define STATES UINT32_MAX      /* as a window: the group is one of recurrent states */
static uint32_t len_max = 120; /* of timelines that are drawn */

static uint64_t rng_state;
static uint32_t rnd(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

static struct kv_shape shape[KV_GROUPS_MAX]; /* of the table under test */
static uint32_t n_group;
static uint64_t memory[KV_GROUPS_MAX][MAX_PAGES][KV_PAGE]; /* 0: cleared */
static uint64_t owner[KV_GROUPS_MAX][MAX_PAGES];           /* uid + 1 that wrote the page since it was cleared */

/* Of a table whose memory comes in extents: what has none, and who gives it. */
static uint32_t extent; /* pages; 0: there are none */
static struct extents {
    bool has[KV_GROUPS_MAX][MAX_PAGES];
    bool full; /* there is no more memory */
    uint32_t mapped, unmapped;
} extents;

static bool map(void *arg, uint32_t group, uint32_t x)
{
    struct extents *e = arg;
    assert_true(x * extent < shape[group].n_page && !e->has[group][x]);
    if (e->full)
        return false;
    e->has[group][x] = true;
    e->mapped++;
    memset(memory[group][x * extent], 0, extent * sizeof memory[0][0]);
    memset(&owner[group][x * extent], 0, extent * sizeof owner[0][0]);
    return true;
}

/* Whoever writes to such a page meets another's. */
static void unmap(void *arg, uint32_t group, uint32_t x)
{
    struct extents *e = arg;
    assert_true(e->has[group][x]);
    e->has[group][x] = false;
    e->unmapped++;
    memset(memory[group][x * extent], 0xee, extent * sizeof memory[0][0]);
    memset(&owner[group][x * extent], 0xee, extent * sizeof owner[0][0]);
}

static void carry_out(struct kv *kv)
{
    struct kv_action a;
    while (kv_next_action(kv, &a)) {
        if (a.kind == KV_COPY) {
            memcpy(memory[a.group][a.page], memory[a.group][a.from], sizeof memory[0][0]);
            owner[a.group][a.page] = owner[a.group][a.from];
        } else {
            memset(memory[a.group][a.page], 0, sizeof memory[0][0]);
            owner[a.group][a.page] = 0;
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

/* A step that ends at token `upto` writes its states; one that is `stopped` leaves anything there. */
static void compute_states(struct timeline *s, uint32_t upto, bool stopped)
{
    for (uint32_t g = 0; g < n_group; g++) {
        const struct kv_state *own = &s->t.state[g];
        if (!shape[g].state)
            continue;
        assert_true(own->has[1] && own->page[1] < shape[g].n_page && (!own->has[0] || own->page[0] != own->page[1]));
        assert_true(owner[g][own->page[1]] == 0 || owner[g][own->page[1]] == (uint64_t)s->t.uid + 1);
        owner[g][own->page[1]] = (uint64_t)s->t.uid + 1;
        assert_int_equal(s->t.at, s->done);
        assert_true(own->has[0] == (s->done > 0));
        if (s->done)
            assert_true(memory[g][own->page[0]][0] == prefix_hash(s->t.uid, s->id, s->done));
        memory[g][own->page[1]][0] = stopped ? rnd(1000) : prefix_hash(s->t.uid, s->id, upto);
    }
}

static void compute(struct timeline *s, uint32_t upto)
{
    compute_states(s, upto, false);
    for (; s->done < upto; s->done++)
        for (uint32_t g = 0; g < n_group; g++) {
            if (shape[g].state)
                continue;
            uint32_t page = s->t.page[g][s->done / KV_PAGE];
            assert_true(page < shape[g].n_page);
            assert_true(owner[g][page] == 0 || owner[g][page] == (uint64_t)s->t.uid + 1); /* nobody else's KV is met */
            owner[g][page] = (uint64_t)s->t.uid + 1;
            memory[g][page][s->done % KV_PAGE] = prefix_hash(s->t.uid, s->id, s->done + 1);
        }
}

/* What the next token sees is there. */
static void verify(const struct timeline *s)
{
    for (uint32_t g = 0; g < n_group; g++) {
        const struct kv_state *own = &s->t.state[g];
        if (shape[g].state && s->done) /* what was written lately, or what it will go on from */
            assert_true(memory[g][own->page[s->t.at != s->done]][0] == prefix_hash(s->t.uid, s->id, s->done));
        for (uint32_t i = kv_first_visible(s->done, shape[g].window); i < s->done && !shape[g].state; i++) {
            assert_true(s->t.page[g][i / KV_PAGE] < shape[g].n_page);
            assert_true(memory[g][s->t.page[g][i / KV_PAGE]][i % KV_PAGE] == prefix_hash(s->t.uid, s->id, i + 1));
        }
    }
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
    s->n = 1 + rnd(len_max - 1);
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

/* A table of pools of n_page pages each, with these windows. */
static struct kv *fresh_groups(uint32_t n_page, const uint32_t *window, uint32_t n, uint64_t seed)
{
    struct kv *kv;
    struct hearth_err e;
    rng_state = seed * 77777 + 1;
    memset(memory, 0, sizeof memory);
    memset(owner, 0, sizeof owner);
    n_past = 0;
    n_group = n;
    for (uint32_t g = 0; g < n; g++)
        shape[g] = (struct kv_shape){n_page, window[g] == STATES ? 0 : window[g], window[g] == STATES, extent};
    assert_int_equal(kv_cache_new(&kv, shape, n, &e), 0);
    memset(&extents, 0, sizeof extents);
    if (extent)
        memset(owner, 0xee, sizeof owner);
    kv_set_memory(kv, &(struct kv_memory){map, unmap, &extents});
    return kv;
}

static struct kv *fresh(uint32_t n_page, uint64_t seed)
{
    return fresh_groups(n_page, (uint32_t[]){0}, 1, seed);
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

/* Many at once in pools that are always full, three uids; with windows, in pieces of up to LOOKAHEAD tokens. Returns
 * the longest prefix that was found. */
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
            upto = s->done + kv_cut(kv, &s->t, s->done, upto - s->done);
            bool fits = (upto + KV_PAGE - 1) / KV_PAGE <= s->t.n + kv_available(kv);
            bool grew = kv_grow(kv, &s->t, s->done, rnd(2) ? upto : s->n, LOOKAHEAD);
            if (!grew)
                grew = kv_grow(kv, &s->t, s->done, upto, LOOKAHEAD);
            assert_true(grew || !fits || n > 1 || window[0] || kv_was_refused(kv));
            assert_true(!grew || fits || n > 1 || window[0]);
            carry_out(kv);
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
    assert_true(!extent || extents.mapped > n_page / extent); /* some came more than once */
    kv_cache_free(kv);
    return most;
}

static void shared_and_evicted(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++)
        assert_true(share_and_evict((uint32_t[]){0}, 1, 100 + seed) > KV_PAGE);
}

/* The same while memory comes and goes. */
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

/* A pool asks for memory where no page is free, and evicts where there is none; a shrink takes what is free first, and
 * from the least recently used on only what it must. */
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
    assert_int_equal(kv_shrink(kv, 0, 9, false), 0); /* 3 free pages are no extent */
    assert_int_equal(kv_shrink(kv, 0, 1, true), 1);
    kv_count(kv, 0, &c);
    assert_true(c.total == 16 && c.cached == 15 && c.free == 1); /* two pages went, which made their extent free */
    extents.full = false;
    kv_may_grow(kv);
    assert_true(kv_ahead(kv, 14));
    kv_count(kv, 0, &c);
    assert_true(c.free == 15 && c.cached == 15 && c.total == 30); /* the last extent has two pages */
    assert_true(kv_check(kv));
    kv_cache_free(kv);
    extent = 0;
}

/* An extent is whole granules, whatever the page's size. */
static void extents_are_whole_granules(void **state)
{
    (void)state;
    struct kv_desc eight_b = {.n_page = 1 << 16, .n_layer = 32, .n_kv = 8, .d_k = 128, .d_v = 128, .type = DT_F16};
    struct kv_desc qwen = {.n_page = 1 << 16, .n_layer = 28, .n_kv = 2, .d_k = 128, .d_v = 128, .type = DT_F16};
    struct kv_desc odd = {.n_page = 1 << 16, .n_layer = 27, .n_kv = 1, .d_k = 80, .d_v = 80, .type = DT_F16};
    assert_int_equal(kv_size_extent(&eight_b, 2 << 20), 8);
    assert_int_equal(kv_size_extent(&qwen, 2 << 20), 32);
    uint32_t n = kv_size_extent(&odd, 2 << 20);
    assert_int_equal(n * kv_page_bytes(&odd) % (2 << 20), 0);
    assert_true(kv_size_extent(&odd, 1) * kv_page_bytes(&odd) <= 16 << 20);
    eight_b.n_page = 64; /* a small pool has many all the same */
    assert_int_equal(kv_size_extent(&eight_b, 2 << 20), 2);
    odd.n_layer = 100000;
    assert_int_equal(kv_size_extent(&odd, 1), 1);
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
        uint32_t found = share_and_evict(window[seed % 3], n[seed % 3], 300 + seed);
        most[seed % 3] = found > most[seed % 3] ? found : most[seed % 3];
    }
    len_max = 120;
    for (int i = 0; i < 3; i++)
        assert_true(most[i] > 3 * KV_PAGE);
}

/* Pages of the group that tables hold, and that are cached. */
static struct kv_counts counted(const struct kv *kv, uint32_t group)
{
    struct kv_counts c;
    kv_count(kv, group, &c);
    return c;
}

/* Computes up to token n in pieces, as the scheduler does. */
static void feed(struct kv *kv, struct timeline *s, uint32_t n)
{
    while (s->done < n) {
        uint32_t upto = n - s->done < LOOKAHEAD ? n : s->done + LOOKAHEAD;
        assert_true(kv_grow(kv, &s->t, s->done, n, LOOKAHEAD));
        carry_out(kv);
        verify(s);
        compute(s, upto);
        kv_publish(kv, &s->t, s->id, s->done);
        assert_true(kv_check(kv));
    }
}

/* A long prompt and its answer: the pages that a window has left are free, and where the prompt and the turn end the
 * window stays, so that those who go on from there, or a few tokens before, compute nothing twice. */
static void windows_are_freed_and_kept(void **state)
{
    (void)state;
    enum { N = 4000, WINDOW = 48, TURN = 300 };
    static int32_t id[N];
    for (int i = 0; i < N; i++)
        id[i] = i % 251;
    struct kv *kv = fresh_groups(MAX_PAGES, (uint32_t[]){0, WINDOW}, 2, 3);
    struct kv_table t = {.uid = 1, .keep = N - TURN};
    uint32_t done = 0, most = 0;
    while (done < N) {
        uint32_t step = done < N - TURN ? LOOKAHEAD : 1, upto = N - done < step ? N : done + step;
        assert_true(kv_grow(kv, &t, done, upto, LOOKAHEAD));
        kv_publish(kv, &t, id, done);
        done = upto;
        most = counted(kv, 1).held > most ? counted(kv, 1).held : most;
    }
    assert_int_equal(counted(kv, 0).held, N / KV_PAGE);
    assert_true(most <= kv_most(WINDOW, LOOKAHEAD));
    uint32_t ends = (WINDOW + KV_SLACK) / KV_PAGE + 2;
    assert_true(counted(kv, 1).cached <= ends); /* before the prompt's end */
    kv_release(kv, &t, id, N);
    assert_int_equal(counted(kv, 1).held, 0);
    assert_true(counted(kv, 1).cached <= 2 * ends);
    assert_true(kv_check(kv));
    static const struct {
        uint32_t n, found;
    } asked[] = {{N, N},
                 {N - 1, N - 1},
                 {N - KV_SLACK, N - KV_SLACK},
                 {N - TURN, N - TURN},
                 {N - TURN - 5, N - TURN - 5},
                 {N - TURN - KV_SLACK, N - TURN - KV_SLACK},
                 {N - 150, N - TURN},
                 {N - TURN - 100, 0}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        struct kv_table again = {.uid = 1};
        uint32_t found = kv_match(kv, &again, id, asked[i].n);
        /* Of what goes on behind the window that was kept, what is left of its last page may be there too. */
        if (found < asked[i].found || found > asked[i].found + KV_PAGE ||
            (asked[i].n <= asked[i].found && found != asked[i].found))
            fail_msg("%u of %u tokens are found, not %u", found, asked[i].n, asked[i].found);
        kv_release(kv, &again, NULL, 0);
        assert_true(kv_check(kv));
    }
    kv_cache_free(kv);
}

/* A long prompt and its answer: what is kept of its states are a few, and who goes on from the end of either computes
 * 512 tokens at most again; so does one whose step was stopped. */
static void states_are_kept(void **state)
{
    (void)state;
    enum { N = 5000, TURN = 300 };
    static int32_t id[N];
    for (int i = 0; i < N; i++)
        id[i] = i % 251;
    struct kv *kv = fresh_groups(MAX_PAGES, (uint32_t[]){0, STATES}, 2, 3);
    struct kv_table t = {.uid = 1, .keep = N - TURN};
    uint32_t done = 0, most = 0;
    while (done < N) {
        uint32_t step = done < N - TURN ? 300 : 1, n = N - done < step ? N - done : step;
        assert_true(kv_grow(kv, &t, done, done + n, 300));
        kv_publish(kv, &t, id, done);
        done += kv_cut(kv, &t, done, n);
        most = counted(kv, 1).held > most ? counted(kv, 1).held : most;
        assert_true(counted(kv, 1).held + counted(kv, 1).cached <= 6);
    }
    assert_true(most <= 3); /* its own two, and the last that was kept */
    kv_advance(kv, &t, N);
    kv_release(kv, &t, id, N);
    assert_int_equal(counted(kv, 1).held, 0);
    assert_int_equal(counted(kv, 1).cached, 4);
    assert_true(kv_check(kv));
    static const struct {
        uint32_t n, found;
    } asked[] = {{N - 1, N / STATE_SAID * STATE_SAID},
                 {N - 100, N - TURN - KV_SLACK - (N - TURN - KV_SLACK) % KV_PAGE},
                 {N - TURN, N - TURN - KV_SLACK - (N - TURN - KV_SLACK) % KV_PAGE},
                 {N - TURN - KV_SLACK, N - TURN - KV_SLACK - (N - TURN - KV_SLACK) % KV_PAGE},
                 {N - TURN - 200, STATE_SPARSE},
                 {STATE_SPARSE, STATE_SPARSE},
                 {STATE_SPARSE - 1, 0},
                 {N, N}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        struct kv_table again = {.uid = 1};
        assert_int_equal(kv_match(kv, &again, id, asked[i].n), asked[i].found);
        assert_int_equal(again.at, asked[i].found);
        kv_release(kv, &again, id, asked[i].found);
        assert_true(kv_check(kv));
    }
    kv_cache_free(kv);
}

/* Gemma 3 12B as it is: 8 layers of 48 see everything, the others 1,024 tokens. */
static const struct kv_desc gemma[] = {
    {.n_layer = 8, .n_kv = 8, .d_k = 256, .d_v = 256, .type = DT_F16},
    {.n_layer = 40, .n_kv = 8, .d_k = 256, .d_v = 256, .window = 1024, .type = DT_F16}};

static void a_long_prompt_of_gemma3_12b(void **state)
{
    (void)state;
    enum { N = 32768, ROWS = 512 };
    static int32_t id[N];
    struct kv_desc desc[2] = {gemma[0], gemma[1]};
    struct kv_shape pools[2];
    struct hearth_err e;
    struct kv *kv;
    for (int i = 0; i < N; i++)
        id[i] = i * 7 % 1000;
    kv_size_pools(desc, 2, 8192, 131072, ROWS);
    for (int g = 0; g < 2; g++)
        pools[g] = (struct kv_shape){desc[g].n_page, desc[g].window};
    assert_int_equal(kv_cache_new(&kv, pools, 2, &e), 0);
    struct kv_table t = {.uid = 1, .keep = N};
    double full = (double)(kv_page_bytes(&desc[0]) + kv_page_bytes(&desc[1])) * N / KV_PAGE, most = 0;
    for (uint32_t done = 0; done < N; done += ROWS) {
        assert_true(kv_grow(kv, &t, done, N, ROWS));
        kv_publish(kv, &t, id, done + ROWS);
        double used = 0;
        for (uint32_t g = 0; g < 2; g++)
            used += (double)kv_page_bytes(&desc[g]) * (counted(kv, g).held + counted(kv, g).cached);
        most = used > most ? used : most;
    }
    print_message("# of 32,768 tokens %.1f %% of a full cache are in memory at most\n", 100 * most / full);
    assert_true(most < 0.25 * full);
    kv_release(kv, &t, id, N);
    kv_cache_free(kv);
}

/* What a budget buys: no pool is more than it says, and a page of timeline more would be. */
static void pools_fit_their_budget(void **state)
{
    (void)state;
    static const uint64_t budget[] = {1 << 20, 6 << 20, 100 << 20, 1ull << 30, 10ull << 30, 60ull << 30};
    for (size_t i = 0; i < sizeof budget / sizeof *budget; i++)
        for (uint32_t n = 1; n <= 2; n++) {
            struct kv_desc desc[2] = {gemma[0], gemma[1]};
            uint32_t pages = kv_size_for(desc, n, budget[i], 131072, 512);
            assert_true(kv_size_bytes(desc, n, pages, 131072, 512) <= budget[i]);
            assert_true(kv_size_bytes(desc, n, pages + 1, 131072, 512) > budget[i]);
            kv_size_pools(desc, n, pages, 131072, 512);
            assert_int_equal(desc[0].n_page, pages);
            assert_int_equal(kv_size_room(desc, n, 512), (uint64_t)pages * KV_PAGE);
            if (n == 2) {
                assert_true(desc[1].n_page <= pages && (pages < 1600 || desc[1].n_page < pages));
                assert_true(desc[1].n_page == pages || desc[1].n_page >= kv_most(1024, 512));
            }
        }
    struct kv_desc slides = gemma[1]; /* all layers have the window: the timeline may be of any length */
    slides.n_page = kv_most(1024, 512);
    assert_true(kv_size_room(&slides, 1, 512) == UINT64_MAX);
    slides.n_page--;
    assert_int_equal(kv_size_room(&slides, 1, 512), (uint64_t)slides.n_page * KV_PAGE);
}

/* Qwen3.6 35B as it is: states of 66 MB beside pages of 0.33 MB. A small budget is not all states. */
static void large_states_leave_pages(void **state)
{
    (void)state;
    static const struct kv_desc qwen[] = {{.n_layer = 10, .n_kv = 2, .d_k = 256, .d_v = 256, .type = DT_F16},
                                          {.n_layer = 30, .d_state = 549000}};
    uint32_t before = 0;
    for (uint64_t budget = 300u << 20; budget < 64ull << 30; budget += budget / 4) {
        struct kv_desc desc[2] = {qwen[0], qwen[1]};
        uint32_t pages = kv_size_for(desc, 2, budget, 262144, 512);
        assert_true(pages >= before && kv_size_bytes(desc, 2, pages, 262144, 512) <= budget);
        kv_size_pools(desc, 2, pages, 262144, 512);
        assert_true(desc[1].n_page >= 4 && (budget < 2ull << 30 || desc[1].n_page >= 16));
        if (budget >= 600u << 20)
            assert_true(kv_size_room(desc, 2, 512) > 4000);
        before = pages;
    }
}

/* Nor do many of any other size take all of it. */
static void states_leave_pages(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {700, 14592, 70000, 280000, 400000}; /* numbers of a layer; 1 GiB holds over 16 */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct kv_desc of[] = {{.n_layer = 6, .n_kv = 2, .d_k = 256, .d_v = 256, .type = DT_F16},
                                     {.n_layer = 18, .d_state = sizes[i]}};
        uint64_t own = 4 * kv_page_bytes(&of[1]);
        for (uint64_t budget = 3 * own + (8 << 20); budget < 8ull << 30; budget += budget / 4) {
            struct kv_desc desc[2] = {of[0], of[1]};
            uint32_t pages = kv_size_for(desc, 2, budget, 262144, 512);
            assert_true(kv_size_bytes(desc, 2, pages, 262144, 512) <= budget);
            kv_size_pools(desc, 2, pages, 262144, 512);
            assert_true(desc[1].n_page >= 4 && pages * kv_page_bytes(&desc[0]) >= (budget - own) / 3);
            if (budget >= 3ull << 30)
                assert_true(desc[1].n_page >= 256 || desc[1].n_page * kv_page_bytes(&desc[1]) > 900 << 20);
        }
    }
}

/* A turn goes on from the turn before it, and a retry from the same prompt: each computes one token at least. */
static void windows_resume(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct kv *kv = fresh_groups(256, (uint32_t[]){0, 1 + (uint32_t)(seed * 7 % 50), 20}, 3, seed);
        struct timeline s = {.t.uid = 5};
        for (int i = 0; i < MAX_LEN; i++)
            s.id[i] = 1000 + i;
        uint32_t before = 0, prompt_before = 0;
        for (uint32_t n = 5; n + 10 < MAX_LEN; n += 5 + rnd(20)) {
            s.t.keep = n;
            uint32_t retry = prompt_before ? kv_match(kv, &s.t, s.id, prompt_before - 1) : 0;
            assert_int_equal(retry, prompt_before ? prompt_before - 1 : 0);
            carry_out(kv);
            s.done = retry;
            verify(&s);
            kv_release(kv, &s.t, s.id, retry);
            s.done = kv_match(kv, &s.t, s.id, n - 1);
            carry_out(kv);
            verify(&s);
            assert_int_equal(s.done, before < n - 1 ? before : n - 1);
            uint32_t end = n + 1 + rnd(8);
            feed(kv, &s, n);
            for (uint32_t at = n + 1; at <= end; at++)
                feed(kv, &s, at);
            kv_release(kv, &s.t, s.id, end);
            before = end > before ? end : before;
            prompt_before = n;
        }
        for (uint32_t g = 0; g < n_group; g++)
            assert_int_equal(counted(kv, g).held, 0);
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
        assert_true(kv_grow(kv, &s.t, s.done, n, LOOKAHEAD));
        compute(&s, n);
        kv_release(kv, &s.t, s.id, n);
    }
    struct kv_counts c;
    kv_count(kv, 0, &c);
    assert_int_equal(kv_longest(kv), s.done);
    assert_int_equal(c.cached, (s.done + KV_PAGE - 1) / KV_PAGE); /* no leftovers of earlier turns */
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
    assert_int_equal(kv_match(kv, &b.t, b.id, 31), 0); /* the same ids */
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
        cmocka_unit_test(match_is_longest),
        cmocka_unit_test(shared_and_evicted),
        cmocka_unit_test(resume_continues_in_place),
        cmocka_unit_test(other_uid_finds_nothing_and_a_clean_page),
        cmocka_unit_test(grow_takes_all_or_nothing),
        cmocka_unit_test(extents_come_and_go),
        cmocka_unit_test(memory_before_eviction),
        cmocka_unit_test(extents_are_whole_granules),
        cmocka_unit_test(windows_shared_and_evicted),
        cmocka_unit_test(windows_are_freed_and_kept),
        cmocka_unit_test(states_shared_and_evicted),
        cmocka_unit_test(states_are_kept),
        cmocka_unit_test(windows_resume),
        cmocka_unit_test(a_long_prompt_of_gemma3_12b),
        cmocka_unit_test(pools_fit_their_budget),
        cmocka_unit_test(large_states_leave_pages),
        cmocka_unit_test(states_leave_pages),
    };
    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
