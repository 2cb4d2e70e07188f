/*
 * places.c - a model on a GPU of which some or all matrices are in host memory gives the same bits as with its matrices
 * in the GPU's memory: decoding rows, in eager steps and replayed graphs, batches, and prompts, whose steps copy the
 * matrices.
 */
#include "tests/golden/run.h"

#include <stdio.h>
#include <string.h>

enum { LEN = 700, DECODED = 6 };

static void fill(int32_t *id, uint32_t n, uint32_t n_vocab)
{
    uint32_t x = 7;
    for (uint32_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        id[i] = (int32_t)((x >> 8) % n_vocab);
    }
}

/* Prompts in chunks of many lengths, then tokens one by one: each shape more than once, so that graphs are replayed. */
static uint32_t run_all(struct run *r, const int32_t *id, enum invariance how, float *logits)
{
    static const uint32_t pieces[] = {1, 3, 5, 16, 40, 64, 65, 100, 129, 200};
    size_t n_vocab = r->m->hp.n_vocab;
    uint32_t pos = 0, n = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; pos += pieces[i++])
        run_step(r, &(struct piece){id + pos, pieces[i], pos, 1, r->pages}, 1, how, logits + n++ * n_vocab);
    enum invariance one = how == INVARIANT_PROMPT ? INVARIANT_DECODE : how;
    for (uint32_t i = 0; i < DECODED; i++, pos++)
        run_step(r, &(struct piece){id + pos, 1, pos, 1, r->pages}, 1, one, logits + n++ * n_vocab);
    return n;
}

static void open_in(struct run *r, const char *path, const struct model_room *room)
{
    run_room = room;
    run_open(r, path, run_backend(), NULL, 0, 0, BATCH_ROWS_MAX);
    run_room = NULL;
    if (r->be->cache_limit) /* expanded copies, which matrices in host memory do not have, change the path of some steps
                             */
        r->be->cache_limit(r->dev, 0);
}

static void same_bits(const char *name)
{
    static const enum invariance hows[] = {INVARIANT_OFF, INVARIANT_DECODE, INVARIANT_PROMPT, INVARIANT_BATCH};
    char path[4096];
    struct run own, out;
    if (!run_path(path, name))
        skip();
    open_in(&own, path, &(struct model_room){UINT64_MAX, 0});
    assert_true(own.m->place.own > 0 && !own.m->place.host);
    uint64_t all = own.m->place.own;
    size_t n_vocab = own.m->hp.n_vocab, most = 40 * n_vocab;
    assert_true(own.m->hp.n_ctx >= LEN);
    int32_t id[LEN];
    fill(id, LEN, (uint32_t)n_vocab);
    float *want = malloc(2 * most * sizeof *want), *got = want + most;
    assert_non_null(want);
    struct model_room within = {0, UINT64_MAX};
    struct model_place p;
    struct hearth_err e;
    uint64_t least = 0, room = 0;
    for (uint64_t step = 1ull << 32; step; step >>= 1) {
        within.own = least + step - 1;
        if (model_find_places(own.g, own.be, own.dev, &within, &p, &e))
            least += step;
    }
    for (int part = 0; part < 3; part++) { /* the least that is possible; half way; nearly all */
        within.own = part == 0 ? least : part == 1 ? least + (all - least) / 2 : all - 1;
        open_in(&out, path, &within);
        assert_true(out.m->place.host > 0 && out.m->place.own + out.m->place.host == all);
        assert_true(out.m->place.own > room || part == 0);
        room = out.m->place.own;
        out.be->info(out.dev, &out.info);
        assert_true(out.info.mem_pinned >= out.m->place.host);
        print_message("# %s: %.1f of %.1f MB in the host's memory\n", name, 1e-6 * (double)out.m->place.host,
                      1e-6 * (double)all);
        for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
            memset(want, 0, 2 * most * sizeof *want);
            uint32_t n = run_all(&own, id, hows[i], want);
            assert_int_equal(run_all(&out, id, hows[i], got), n);
            for (uint32_t s = 0; s < n; s++)
                if (memcmp(want + s * n_vocab, got + s * n_vocab, n_vocab * sizeof *want))
                    fail_msg("%s, room %d, mode %d: the logits of step %u differ", name, part, (int)hows[i], s);
        }
        run_close(&out);
    }
    free(want);
    run_close(&own);
}

static void test_tale(void **state)
{
    (void)state;
    same_bits("contrib/models/tale-q4_k_m.gguf");
}

/* A mixture of experts; an embedding that is also the output matrix, and one that is not. */
#define TEST(name)                          \
    static void test_##name(void **state)   \
    {                                       \
        (void)state;                        \
        same_bits("models/hf-tiny/" #name); \
    }
TEST(qwen3_moe)
TEST(gpt_oss)
TEST(qwen3_5_moe_text)
TEST(mixtral)
TEST(gemma3_text)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tale),    cmocka_unit_test(test_qwen3_moe),        cmocka_unit_test(test_gpt_oss),
        cmocka_unit_test(test_mixtral), cmocka_unit_test(test_qwen3_5_moe_text), cmocka_unit_test(test_gemma3_text),
    };
    if (!run_on_gpu()) {
        printf("1..0 # SKIP the CPU reads the mapped file: HEARTH_BACKEND=cuda\n");
        return 0;
    }
    if (!run_possible())
        return 0;
    return cmocka_run_group_tests_name("places", tests, NULL, NULL);
}
