/*
 * rows.c - prompts in steps of as many rows as are allowed, compared with the same prompts in steps of a few hundred
 * rows: bit-identical in the modes where bits do not depend on the split, and close to each other otherwise.
 */
#include <stdio.h>
#include <math.h>
#include <string.h>

#include "tests/golden/run.h"

enum { LEN = 1000, SEQS = 2, OUT = 3, PAGES = LEN / KV_PAGE + 1, CHUNK = 450 };
_Static_assert(SEQS *LEN <= BATCH_ROWS_MAX && SEQS * LEN > 3 * PROMPT_ROWS, "a step has nearly all that it may");

static const double near_each_other = 0.03; /* root mean square of the differences, relative to that of the logits */

static void tokens(uint32_t n_vocab, int32_t *out)
{
    uint64_t state = 20261123;
    for (uint32_t i = 0; i < SEQS * LEN; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        out[i] = (int32_t)((state >> 33) % n_vocab);
    }
}

/* Returns the logits of each sequence's last OUT rows, in steps that have `chunk` rows of each sequence. */
static void read_prompts(struct run *r, const int32_t *token, uint32_t chunk, enum invariance how, float *out)
{
    for (uint32_t pos = 0; pos < LEN; pos += chunk) {
        uint32_t n = LEN - pos < chunk ? LEN - pos : chunk;
        struct piece p[SEQS];
        for (uint32_t s = 0; s < SEQS; s++)
            p[s] = (struct piece){token + s * LEN + pos, n, pos, pos + n == LEN ? OUT : 0, r->pages + s * PAGES};
        run_step(r, p, SEQS, how, out);
    }
}

static double distance(const float *a, const float *b, size_t n)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)a[i] * (double)a[i];
    }
    return sqrt(off / size);
}

static void in_few_steps(const char *name)
{
    static const char *const hows[] = {"free", "as what is decoded", "as prompts", "as batches"};
    static int32_t token[SEQS * LEN];
    char path[4096], file[256];
    struct run r;
    snprintf(file, sizeof file, "models/hf-tiny/%s", name);
    if (!run_path(path, file))
        skip();
    run_open(&r, path, run_backend(), NULL, 0, SEQS * PAGES, SEQS * LEN);
    assert_true(r.m->hp.n_ctx >= LEN);
    size_t n = (size_t)SEQS * OUT * r.m->hp.n_vocab;
    float *want = malloc(2 * n * sizeof *want), *got = want + n;
    assert_non_null(want);
    tokens(r.m->hp.n_vocab, token);
    for (enum invariance how = INVARIANT_OFF; how <= INVARIANT_BATCH; how++) {
        read_prompts(&r, token, CHUNK, how, want);
        read_prompts(&r, token, LEN, how, got);
        double off = distance(want, got, n);
        print_message("# %s, %s: %.5f\n", name, hows[how], off);
        assert_true(off <= (run_on_gpu() && how == INVARIANT_OFF ? near_each_other : 0));
    }
    free(want);
    run_close(&r);
}

#define MODELS(X) X(llama) X(gpt_oss) X(qwen3_moe) X(qwen3_5_moe_text) X(deepseek_v3) X(gemma4_text) X(lfm2_moe)

#define X(name)                           \
    static void test_##name(void **state) \
    {                                     \
        (void)state;                      \
        in_few_steps(#name);              \
    }
MODELS(X)
#undef X

int main(void)
{
#define X(name) cmocka_unit_test(test_##name),
    const struct CMUnitTest tests[] = {MODELS(X)};
#undef X
    if (!run_possible())
        return 0;
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
