/*
 * kv-types.c - KV in F16 and in Q8_0: the logits of a text equal those of a computation on the CPU that rounds at the
 * same places (rounded.h), whichever path the device takes for the prompt, and for the following tokens one by one.
 *
 * HEARTH_BACKEND=cuda runs it on a GPU. There a sum in another order sometimes rounds a number the other way, and the
 * consequences are as large as those of the roundings themselves. So a GPU is judged by the mean over all logits,
 * compared with the error of the roundings against F32: with Q8_0 it may be as far off, which distinguishes a wrong
 * scale or place from a rounding, and with F16 twice as far. A CPU gives the same bits.
 */
#include "tests/golden/rounded.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 64, TEXT = 340, DECODED = 12 /* tokens of the text that are decoded in steps of one row */ };

/* The first tokens of a golden's texts, one text after another. */
static void text(const char *path, int32_t token[TEXT])
{
    json_error_t je;
    json_t *root = json_load_file(path, 0, &je), *c;
    assert_non_null(root);
    uint32_t n = 0;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        const json_t *of[2] = {json_object_get(c, "tokens"), json_object_get(c, "greedy")};
        for (int k = 0; k < 2; k++)
            for (size_t t = 0; t < json_array_size(of[k]) && n < TEXT; t++)
                token[n++] = (int32_t)json_integer_value(json_array_get(of[k], t));
    }
    for (uint32_t k = 0; n < TEXT; k++, n++)
        token[n] = token[k];
    json_decref(root);
}

/* Runs the text in chunks of 64 tokens and its end one by one, and returns all logits, [TEXT, n_vocab]. Uses `r`, or
 * `rounded` unless that is NULL. */
static float *logits(struct run *r, struct rounded *rounded, const int32_t token[TEXT], enum invariance how)
{
    uint32_t n_vocab = r->m->hp.n_vocab;
    float *out = malloc((size_t)TEXT * n_vocab * sizeof *out);
    assert_non_null(out);
    for (uint32_t pos = 0, n; pos < TEXT; pos += n) {
        uint32_t prompt = TEXT - DECODED;
        n = pos >= prompt ? 1 : prompt - pos < ROWS ? prompt - pos : ROWS;
        float *to = out + (size_t)pos * n_vocab;
        if (rounded)
            rounded_step(rounded, token + pos, n, pos, to);
        else
            run_step(r, &(struct piece){token + pos, n, pos, n, r->pages}, 1,
                     n == 1 && how != INVARIANT_BATCH ? INVARIANT_DECODE : how, to);
    }
    return out;
}

/* The root mean square of the differences. */
static double apart(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]) / (double)n;
    return sqrt(sum);
}

static void check(const char *model, const char *golden, enum dtype type)
{
    static const struct {
        enum invariance how;
        const char *name;
    } ways[] = {{INVARIANT_DECODE, "as what is decoded"},
                {INVARIANT_OFF, "fast"},
                {INVARIANT_PROMPT, "as prompts"},
                {INVARIANT_BATCH, "as batches"}};
    char path[4096], json[4096];
    int32_t token[TEXT];
    struct run r, plain;
    struct rounded rounded;
    if (!run_path(path, model) || !run_path(json, golden))
        skip();
    text(json, token);
    run_open_kv(&r, path, run_backend(), NULL, 0, 0, ROWS, type);
    rounded_open(&rounded, path, &r, ROWS);
    run_open(&plain, path, backend_find("cpu"), NULL, 0, 0, ROWS);
    size_t n = (size_t)TEXT * r.m->hp.n_vocab;
    float *want = logits(&r, &rounded, token, INVARIANT_DECODE), *f32 = logits(&plain, NULL, token, INVARIANT_DECODE);
    double takes = apart(want, f32, n);
    print_message("# %s, KV of %s: off F32 by %.5f\n", r.m->hp.name, dtype_get((int)type)->name, takes);
    assert_true(takes > 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        float *got = logits(&r, NULL, token, ways[i].how);
        double off = apart(got, want, n);
        print_message("# ... %s: off what is rounded at the same places by %.5f\n", ways[i].name, off);
        if (r.info.gpu)
            assert_true(off <= takes * (type == DT_F16 ? 2 : 1));
        else
            assert_memory_equal(got, want, n * sizeof *got);
        free(got);
    }
    free(want), free(f32);
    rounded_close(&rounded);
    run_close(&r), run_close(&plain);
}

static void test_tale(void **state)
{
    check("contrib/models/tale-q4_k_m.gguf", "tests/golden/data/tale-q4_k_m.json", *(enum dtype *)*state);
}
static void test_windows(void **state)
{
    check("models/hf-tiny/cohere2", "models/hf-tiny/cohere2/golden.json", *(enum dtype *)*state);
}
static void test_heads_of_32(void **state)
{
    check("models/hf-tiny/glm4", "models/hf-tiny/glm4/golden.json", *(enum dtype *)*state);
}

int main(void)
{
    static enum dtype f16 = DT_F16, q8_0 = DT_Q8_0;
    const struct CMUnitTest tests[] = {
        {"tale, f16", test_tale, NULL, NULL, &f16},
        {"tale, q8_0", test_tale, NULL, NULL, &q8_0},
        {"windows, f16", test_windows, NULL, NULL, &f16},
        {"windows, q8_0", test_windows, NULL, NULL, &q8_0},
        {"heads of 32, f16", test_heads_of_32, NULL, NULL, &f16},
        {"heads of 32, q8_0", test_heads_of_32, NULL, NULL, &q8_0},
    };
    if (!run_possible())
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
