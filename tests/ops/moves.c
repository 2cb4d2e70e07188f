/*
 * moves.c - KV transfers between pool and host: they are exact, run after the steps that were submitted before them and
 * before those submitted after them, any number may be in flight, and they do not affect the steps of other sequences.
 *
 *     tests/ops/moves [BACKEND [VARIANT [q8_0]]]
 *
 * KV is F16, or Q8_0. Exit status 77 if the machine has no such device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/rig.h"

static const struct backend *be;
static const char *variant = "auto";

/* Only decoding rows, so that a GPU captures the step and replays it; at least two pages per sequence. */
static struct op_case decode = {"decode",
                                DT_Q4_K,
                                256,
                                768,
                                47,
                                4,
                                2,
                                64,
                                .norm = NORM_RMS,
                                .rope = ROPE_NORM,
                                .glu = GLU_SWIGLU,
                                .n_rot = 64,
                                .embed_scale = 1.0f,
                                .kv_type = DT_F16,
                                .seq = {{33, 1}, {18, 1}, {40, 1}}};
enum { SEQS = 3 };

struct fixture {
    struct numbers n;
    struct device *d;
    struct rig r;
    size_t page;            /* bytes */
    uint8_t *slab, *mirror; /* [RIG_PAGES] pages: memory for moves; the expected contents of the pool */
    uint32_t all[RIG_PAGES];
    void *host[RIG_PAGES]; /* page i's place in the slab */
};

static void fixture_init(struct fixture *b)
{
    struct hearth_err e;
    numbers_init(&b->n, &decode);
    b->d = rig_device(be, variant, 2);
    assert_non_null(b->d);
    rig_init(&b->r, &b->n, be, b->d);
    rig_fill_kv(&b->r);
    b->r.apart = false; /* from here on pages are compared as bytes */
    b->page = rig_page_bytes(&b->r);
    if (be->host_alloc(b->d, RIG_PAGES * b->page, (void **)&b->slab, &e))
        fail_msg("%s", e.msg);
    memset(b->slab, 0xa5, RIG_PAGES * b->page);
    b->mirror = malloc(RIG_PAGES * b->page);
    assert_non_null(b->mirror);
    for (uint32_t i = 0; i < RIG_PAGES; i++) {
        b->all[i] = i;
        b->host[i] = b->slab + i * b->page;
        rig_page_read(&b->r, i, b->mirror + i * b->page);
        assert_memory_not_equal(b->mirror + i * b->page, b->mirror + (i ? i - 1 : 1) * b->page, b->page);
    }
}

static void fixture_fini(struct fixture *b)
{
    struct hearth_err e;
    if (be->sync(b->d, &e))
        fail_msg("%s", e.msg);
    be->host_free(b->d, b->slab);
    free(b->mirror);
    rig_fini(&b->r);
    be->close(b->d);
    numbers_fini(&b->n);
}

static uint64_t save(struct fixture *b, const uint32_t *pages, void *const *host, uint32_t n)
{
    uint64_t t = be->kv_save(b->d, b->r.kv, pages, host, n);
    assert_int_not_equal(t, 0);
    return t;
}

static uint64_t load(struct fixture *b, const uint32_t *pages, void *const *host, uint32_t n)
{
    uint64_t t = be->kv_load(b->d, b->r.kv, pages, (const void *const *)host, n);
    assert_int_not_equal(t, 0);
    return t;
}

static void wait_for(struct fixture *b, uint64_t ticket)
{
    struct hearth_err e;
    if (be->kv_transfer_wait(b->d, ticket, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(be->kv_transfer_done(b->d, ticket, &e), 1);
}

/* Polls, as an engine does between other work. */
static void poll_for(struct fixture *b, uint64_t ticket)
{
    struct hearth_err e;
    int rc;
    while (!(rc = be->kv_transfer_done(b->d, ticket, &e)))
        ;
    if (rc < 0)
        fail_msg("%s", e.msg);
}

static void assert_pool(struct fixture *b)
{
    uint8_t *page = malloc(b->page);
    assert_non_null(page);
    for (uint32_t i = 0; i < RIG_PAGES; i++) {
        rig_page_read(&b->r, i, page);
        if (memcmp(page, b->mirror + i * b->page, b->page))
            fail_msg("page %u is not what it should be", (unsigned)i);
    }
    free(page);
}

/* Scattered pages, runs that are contiguous on one side or on both, and all pages at once. */
static void test_exact(void **state)
{
    (void)state;
    struct fixture b;
    fixture_init(&b);
    static const uint32_t from[] = {5, 6, 7, 90, 2, 3, 95, 0}, to[] = {40, 41, 42, 50, 49, 48, 1, 94};
    enum { N = sizeof from / sizeof *from };
    void *host[N];
    for (uint32_t i = 0; i < N; i++)
        host[i] = b.host[i < 5 ? 10 + i : 30 - i]; /* upwards, then downwards */
    wait_for(&b, save(&b, from, host, N));
    for (uint32_t i = 0; i < N; i++)
        assert_memory_equal(host[i], b.mirror + from[i] * b.page, b.page);
    assert_int_equal(b.slab[9 * b.page + b.page - 1], 0xa5); /* nothing was written beside it */
    assert_int_equal(b.slab[15 * b.page], 0xa5);
    wait_for(&b, load(&b, to, host, N));
    for (uint32_t i = 0; i < N; i++)
        memcpy(b.mirror + to[i] * b.page, b.mirror + from[i] * b.page, b.page);
    assert_pool(&b);
    wait_for(&b, save(&b, b.all, b.host, RIG_PAGES));
    assert_memory_equal(b.slab, b.mirror, RIG_PAGES * b.page);
    wait_for(&b, save(&b, NULL, NULL, 0)); /* an empty move is allowed */
    fixture_fini(&b);
}

/* A save sees the copies, clears and steps before it, and a load sees them too; later ones see the load's data. */
static void test_order(void **state)
{
    (void)state;
    struct fixture b;
    fixture_init(&b);
    uint8_t *zero = calloc(1, b.page);
    assert_non_null(zero);
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t dst = 80 + i;
        be->kv_copy(b.d, b.r.kv, dst, i);
        uint64_t copied = save(&b, &dst, &b.host[dst], 1);
        be->kv_clear(b.d, b.r.kv, i);
        uint64_t cleared = save(&b, &i, &b.host[i], 1);
        wait_for(&b, cleared);
        assert_memory_equal(b.host[i], zero, b.page);
        wait_for(&b, copied);
        assert_memory_equal(b.host[dst], b.mirror + i * b.page, b.page);
        memcpy(b.mirror + dst * b.page, b.mirror + i * b.page, b.page);
        be->kv_clear(b.d, b.r.kv, i); /* again, so that the load must come after it */
        poll_for(&b, load(&b, &i, &b.host[dst], 1));
        be->kv_copy(b.d, b.r.kv, 70 + i, i); /* and this after the load */
        memcpy(b.mirror + (70 + i) * b.page, b.mirror + i * b.page, b.page);
    }
    assert_pool(&b);
    free(zero);
    fixture_fini(&b);
}

/* A save right after a step that writes to a page has what the step wrote. */
static void test_after_step(void **state)
{
    (void)state;
    struct fixture b;
    struct hearth_err e;
    fixture_init(&b);
    uint8_t *want = malloc(b.page);
    assert_non_null(want);
    for (int again = 0; again < 5; again++)
        for (uint32_t s = 0; s < SEQS; s++) {
            uint32_t page = b.r.pages[s][decode.seq[s].pos0 / KV_PAGE];
            rig_page_write(&b.r, page, b.mirror + page * b.page);
            rig_batch(&b.r, decode.seq, 0, SEQS);
            uint64_t step = be->step_run(b.d, &b.r.batch, &b.r.program);
            uint64_t t = save(&b, &page, &b.host[page], 1);
            poll_for(&b, t);
            assert_int_equal(be->step_wait(b.d, step, NULL, 0, &e), 0);
            rig_page_read(&b.r, page, want);
            assert_memory_equal(b.host[page], want, b.page);
            assert_memory_not_equal(b.host[page], b.mirror + page * b.page, b.page);
        }
    free(want);
    fixture_fini(&b);
}

static void step(struct fixture *b, float *logits)
{
    rig_batch(&b->r, decode.seq, 0, SEQS);
    rig_forward(&b->r);
    rig_read(&b->r, ACT_LOGITS, 0, SEQS, logits);
}

/* Pages that were saved and loaded back to other places give a step the same bits. */
static void test_restored(void **state)
{
    (void)state;
    struct fixture b;
    fixture_init(&b);
    float want[SEQS * 64], got[SEQS * 64];
    size_t n = SEQS * decode.n_vocab * sizeof *want;
    step(&b, want);
    wait_for(&b, save(&b, b.all, b.host, RIG_PAGES));
    for (uint32_t i = 0; i < RIG_PAGES; i++)
        be->kv_clear(b.d, b.r.kv, i);
    step(&b, got);
    assert_memory_not_equal(got, want, n); /* otherwise the comparison would prove nothing */
    uint32_t turned[RIG_PAGES];
    for (uint32_t i = 0; i < RIG_PAGES; i++)
        turned[i] = RIG_PAGES - 1 - i;
    for (uint32_t s = 0; s < SEQS; s++)
        for (uint32_t i = 0; i < SEQ_PAGES; i++)
            b.r.pages[s][i] = turned[b.r.pages[s][i]];
    poll_for(&b, load(&b, turned, b.host, RIG_PAGES));
    step(&b, got);
    assert_memory_equal(got, want, n);
    fixture_fini(&b);
}

/* Moves of other pages beside steps change neither, and the steps neither allocate nor wait because of them. */
static void test_beside_steps(void **state)
{
    (void)state;
    struct fixture b;
    struct device_info before, after;
    struct hearth_err e;
    fixture_init(&b);
    enum { HALF = RIG_PAGES / 2 };
    float want[SEQS * 64], got[SEQS * 64];
    size_t n = SEQS * decode.n_vocab * sizeof *want;
    for (uint32_t s = 0; s < SEQS; s++) /* the steps use the first half */
        for (uint32_t i = 0; i < SEQ_PAGES; i++)
            b.r.pages[s][i] %= HALF;
    step(&b, want);
    step(&b, want);
    be->info(b.d, &before);
    uint64_t saved = 0, loaded = 0;
    for (int i = 0; i < 40; i++) {
        saved = save(&b, b.all + HALF, b.host, HALF / 2);
        rig_batch(&b.r, decode.seq, 0, SEQS);
        uint64_t t = be->step_run(b.d, &b.r.batch, &b.r.program);
        poll_for(&b, saved);
        loaded = load(&b, b.all + HALF + HALF / 2, b.host, HALF / 2);
        assert_int_equal(be->step_wait(b.d, t, NULL, 0, &e), 0);
        rig_read(&b.r, ACT_LOGITS, 0, SEQS, got);
        assert_memory_equal(got, want, n);
    }
    wait_for(&b, loaded);
    be->info(b.d, &after);
    assert_int_equal(after.hot_allocs, before.hot_allocs);
    for (uint32_t i = 0; i < HALF / 2; i++)
        memcpy(b.mirror + (HALF + HALF / 2 + i) * b.page, b.mirror + (HALF + i) * b.page, b.page);
    for (uint32_t i = HALF; i < RIG_PAGES; i++) {
        rig_page_read(&b.r, i, b.slab);
        assert_memory_equal(b.slab, b.mirror + i * b.page, b.page);
    }
    fixture_fini(&b);
}

/* More moves than a backend may have events for, polled in any order. */
static void test_many(void **state)
{
    (void)state;
    struct fixture b;
    fixture_init(&b);
    enum { MOVES = 3 * RIG_PAGES };
    uint64_t saved[MOVES], loaded[RIG_PAGES];
    for (uint32_t i = 0; i < MOVES; i++) {
        uint32_t page = i * 7 % RIG_PAGES;
        saved[i] = save(&b, &page, &b.host[page], 1);
        for (uint32_t k = 0; k < i && i < 20; k++)
            assert_int_not_equal(saved[k], saved[i]);
    }
    for (uint32_t i = 0; i < MOVES; i++)
        wait_for(&b, saved[i * 5 % MOVES]);
    assert_memory_equal(b.slab, b.mirror, RIG_PAGES * b.page);
    for (uint32_t i = 0; i < RIG_PAGES; i++) {
        uint32_t to = RIG_PAGES - 1 - i;
        loaded[i] = load(&b, &to, &b.host[i], 1);
    }
    for (uint32_t i = 0; i < RIG_PAGES; i++)
        poll_for(&b, loaded[i * 11 % RIG_PAGES]);
    for (uint32_t i = 0; i < RIG_PAGES; i++)
        memcpy(b.mirror + (RIG_PAGES - 1 - i) * b.page, b.host[i], b.page);
    assert_pool(&b);
    for (uint32_t i = 0; i < MOVES; i++)
        wait_for(&b, saved[i]); /* a finished move stays finished */
    fixture_fini(&b);
}

static int by_address(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    return (x > y) - (x < y);
}

/* If blocks of host memory are adjacent, pages at their boundary may be adjacent too while each is in another block: no
 * copy may span both. */
static void test_blocks(void **state)
{
    (void)state;
    struct fixture b;
    struct hearth_err e;
    enum { BLOCKS = 8, N = 2 * (BLOCKS - 1), BLOCK_BYTES = 2 << 20 };
    char *block[BLOCKS];
    fixture_init(&b);
    assert_true(2 * b.page <= BLOCK_BYTES);
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (be->host_alloc(b.d, BLOCK_BYTES, (void **)&block[i], &e))
            fail_msg("%s", e.msg);
    qsort(block, BLOCKS, sizeof *block, by_address);
    for (uint32_t i = 0; i < N; i++) /* the end of one block, the beginning of the next */
        b.host[i] = i % 2 ? block[i / 2 + 1] : block[i / 2] + BLOCK_BYTES - b.page;
    wait_for(&b, save(&b, b.all, b.host, N));
    for (uint32_t i = 0; i < N; i++) {
        assert_memory_equal(b.host[i], b.mirror + i * b.page, b.page);
        memset(b.host[i], (int)i, b.page);
        memset(b.mirror + i * b.page, (int)i, b.page);
    }
    wait_for(&b, load(&b, b.all, b.host, N));
    assert_pool(&b);
    for (uint32_t i = 0; i < BLOCKS; i++)
        be->host_free(b.d, block[i]);
    fixture_fini(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    struct fixture b;
    struct hearth_err e;
    void *p;
    fixture_init(&b);
    uint64_t t = save(&b, b.all, b.host, 1);
    wait_for(&b, t);
    assert_true(be->kv_transfer_done(b.d, 0, &e) < 0);
    assert_true(be->kv_transfer_done(b.d, t + 100, &e) < 0);
    assert_true(be->kv_transfer_wait(b.d, UINT64_MAX, &e) < 0);
    assert_true(strlen(e.msg) > 10);
    uint32_t bad[2] = {3, RIG_PAGES};
    uint8_t was = b.slab[3 * b.page] = 0x5a;
    assert_int_equal(be->kv_save(b.d, b.r.kv, bad, &b.host[3], 2), 0);
    assert_true(be->sync(b.d, &e) < 0);
    char beyond[32];
    snprintf(beyond, sizeof beyond, "KV page %d", RIG_PAGES);
    assert_non_null(strstr(e.msg, beyond));
    assert_int_equal(be->sync(b.d, &e), 0);
    assert_int_equal(b.slab[3 * b.page], was); /* all or nothing */
    assert_int_equal(be->kv_load(b.d, b.r.kv, bad, (const void *const *)&b.host[3], 2), 0);
    assert_true(be->sync(b.d, &e) < 0);
    assert_pool(&b);
    assert_int_equal(be->host_alloc(b.d, 0, &p, &e), HEARTH_ENOMEM);
    be->host_free(b.d, NULL);
    fixture_fini(&b);
}

/* A pool whose memory is mapped and unmapped: pages are zero when they are mapped, a step over pages of several extents
 * gives the same bits as with a single allocation, and unmapped memory is no longer counted. */
static void test_extents(void **state)
{
    (void)state;
    enum { EXTENTS = 3, UNUSED = 1 };
    struct fixture b;
    struct device_info info;
    struct hearth_err e;
    fixture_init(&b);
    be->info(b.d, &info);
    if (!info.kv_granule) {
        fixture_fini(&b);
        skip();
    }
    struct kv_desc desc = {LAYERS, decode.n_kv, decode.d_head, decode.d_head, 0, decode.kv_type, 0, 0};
    uint64_t held = info.held[MEM_KV];
    do
        desc.extent++;
    while (desc.extent < RIG_PAGES / EXTENTS || desc.extent * kv_page_bytes(&desc) % info.kv_granule);
    desc.n_page = (EXTENTS + UNUSED) * desc.extent;
    struct kv_pool *whole = b.r.kv, *pool;
    if (be->kv_new(b.d, &desc, &pool, &e))
        fail_msg("%s", e.msg);
    be->info(b.d, &info);
    assert_int_equal(info.held[MEM_KV], held); /* nothing is mapped yet */
    assert_int_equal(be->kv_map(b.d, pool, EXTENTS + UNUSED, &e), HEARTH_EINTERNAL);
    assert_int_equal(be->kv_map(b.d, whole, 0, &e), HEARTH_EINTERNAL);
    for (uint32_t x = EXTENTS; x-- > 0;)
        assert_int_equal(be->kv_map(b.d, pool, x, &e), 0);

    float want[SEQS * 64], got[SEQS * 64];
    size_t n = SEQS * decode.n_vocab * sizeof *want;
    step(&b, want);
    wait_for(&b, save(&b, b.all, b.host, RIG_PAGES));
    uint32_t scattered[RIG_PAGES];
    for (uint32_t i = 0; i < RIG_PAGES; i++)
        scattered[i] = i % EXTENTS * desc.extent + i / EXTENTS;
    for (uint32_t s = 0; s < SEQS; s++)
        for (uint32_t i = 0; i < SEQ_PAGES; i++)
            b.r.pages[s][i] = scattered[b.r.pages[s][i]];
    b.r.kv = pool;
    wait_for(&b, load(&b, scattered, b.host, RIG_PAGES));
    step(&b, got);
    assert_memory_equal(got, want, n);

    assert_int_equal(be->sync(b.d, &e), 0);
    be->info(b.d, &info);
    assert_true(info.held[MEM_KV] >= held + EXTENTS * desc.extent * b.page);
    be->kv_unmap(b.d, pool, 1);
    be->kv_unmap(b.d, pool, EXTENTS); /* it is not mapped, so nothing changes */
    uint64_t all = info.held[MEM_KV];
    be->info(b.d, &info);
    assert_int_equal(all - info.held[MEM_KV], (all - held) / EXTENTS);
    assert_int_equal(be->kv_map(b.d, pool, 1, &e), 0);
    uint8_t *zero = calloc(1, b.page);
    assert_non_null(zero);
    uint32_t page = desc.extent + 1;
    wait_for(&b, save(&b, &page, b.host, 1));
    assert_memory_equal(b.host[0], zero, b.page);
    free(zero);
    b.r.kv = whole;
    be->kv_free(b.d, pool);
    be->info(b.d, &info);
    assert_int_equal(info.held[MEM_KV], held);
    fixture_fini(&b);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu";
    if (argc > 2)
        variant = argv[2];
    if (argc > 3 && !strcmp(argv[3], "q8_0"))
        decode.kv_type = DT_Q8_0;
    rig_kv_type = decode.kv_type;
    if (!(be = rig_backend(name, variant, NULL)))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),        cmocka_unit_test(test_order),  cmocka_unit_test(test_after_step),
        cmocka_unit_test(test_restored),     cmocka_unit_test(test_many),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_beside_steps), cmocka_unit_test(test_blocks), cmocka_unit_test(test_extents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
