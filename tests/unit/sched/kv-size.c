/* kv-size.c - how many pages a memory budget buys, in extents of which size, and how many of them a long prompt
 * needs. */
#include "tests/unit/sched/kv-world.h"

/* The real shape of Gemma 3 12B: 8 of 48 layers see everything, the others 1,024 tokens. */
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

/* Pools fit their budget, and with one more page of the timeline they would not. */
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
    struct kv_desc slides = gemma[1]; /* all layers have the window: the timeline may have any length */
    slides.n_page = kv_most(1024, 512);
    assert_true(kv_size_room(&slides, 1, 512) == UINT64_MAX);
    slides.n_page--;
    assert_int_equal(kv_size_room(&slides, 1, 512), (uint64_t)slides.n_page * KV_PAGE);
}

/* The real shape of Qwen3.6 35B: states of 66 MB beside pages of 0.33 MB. With a small budget not all memory goes to
 * states. */
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

/* Nor do states of any other size take all of it, however many there are. */
static void states_leave_pages(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {700, 14592, 70000, 280000,
                                     400000}; /* values in a layer's state; 1 GiB holds over 16 states */
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

/* An extent is a whole number of granules, whatever the page's size. */
static void extents_are_whole_granules(void **state)
{
    (void)state;
    struct kv_desc eight_b = {.n_page = 1 << 16, .n_layer = 32, .n_kv = 8, .d_k = 128, .d_v = 128, .type = DT_F16};
    struct kv_desc qwen = {.n_page = 1 << 16, .n_layer = 28, .n_kv = 2, .d_k = 128, .d_v = 128, .type = DT_F16};
    struct kv_desc odd = {.n_page = 1 << 16, .n_layer = 27, .n_kv = 1, .d_k = 80, .d_v = 80, .type = DT_F16};
    assert_int_equal(kv_size_extent(&eight_b, 2 << 20), 32);
    assert_int_equal(kv_size_extent(&qwen, 2 << 20), 128);
    uint32_t n = kv_size_extent(&odd, 2 << 20);
    assert_int_equal(n * kv_page_bytes(&odd) % (2 << 20), 0);
    assert_true(kv_size_extent(&odd, 1) * kv_page_bytes(&odd) <= 64 << 20);
    eight_b.n_page = 64; /* a small pool also has many extents */
    assert_int_equal(kv_size_extent(&eight_b, 2 << 20), 2);
    odd.n_layer = 100000;
    assert_int_equal(kv_size_extent(&odd, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_prompt_of_gemma3_12b), cmocka_unit_test(pools_fit_their_budget),
        cmocka_unit_test(large_states_leave_pages),    cmocka_unit_test(states_leave_pages),
        cmocka_unit_test(extents_are_whole_granules),
    };
    return cmocka_run_group_tests_name("kv-size", tests, NULL, NULL);
}
