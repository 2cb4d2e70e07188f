/*
 * golden.c - logits and greedy ids of whole models against a reference in exact F32 arithmetic (data/, and more beside
 * the checkout), through the model and the default CPU backend alone.
 *
 * Every wanted logit within 0.001. A greedy id may differ only where the reference's own lead over its second best is
 * under 0.002; from there the golden id goes on. HEARTH_BACKEND=cuda runs them on a GPU, whose activations are F16:
 * within 0.03 and 0.06.
 */
#include "daemon/model/model.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static double tolerance = 0.001, excuse = 0.002;

enum { ROWS = 64 };

struct run {
    const struct backend *be;
    struct device *dev;
    struct gguf *g;
    struct model *m;
    struct kv_pool *pool;
    uint32_t *pages;
    float *logits; /* [ROWS, n_vocab] */
};

#define MUST(call)                            \
    do {                                      \
        struct hearth_err e = {0};            \
        if (call)                             \
            fail_msg("%s: %s", #call, e.msg); \
    } while (0)

static void run_open(struct run *r, const char *path)
{
    const char *backend = getenv("HEARTH_BACKEND");
    if (!(r->be = backend_find(backend ? backend : "cpu")))
        fail_msg("this build has no backend \"%s\"", backend);
    MUST(gguf_open(&r->g, path, &e));
    MUST(r->be->open(&r->dev, &(struct device_params){.variant = getenv("HEARTH_CPU_VARIANT")}, &e));
    MUST(model_load(&r->m, r->g, r->be, r->dev, NULL, NULL, &e));
    const struct hparams *hp = &r->m->hp;
    struct workspace_dims dims = {.n_row = ROWS, .n_out = ROWS};
    struct kv_desc desc;
    struct device_info info;
    model_workspace(r->m, &dims);
    MUST(r->be->reserve(r->dev, &dims, &e));
    r->be->info(r->dev, &info);
    model_kv_desc(r->m, info.kv_type, &desc);
    desc.n_page = hp->n_ctx / KV_PAGE;
    MUST(r->be->kv_new(r->dev, &desc, &r->pool, &e));
    r->pages = malloc(desc.n_page * sizeof *r->pages);
    for (uint32_t i = 0; i < desc.n_page; i++)
        r->pages[i] = desc.n_page - 1 - i; /* any order will do */
    r->logits = malloc((size_t)ROWS * hp->n_vocab * sizeof *r->logits);
}

static void run_close(struct run *r)
{
    r->be->kv_free(r->dev, r->pool);
    model_free(r->m);
    r->be->close(r->dev);
    gguf_close(r->g);
    free(r->pages);
    free(r->logits);
}

/* Tokens at positions pos.. of the one sequence; the logits of all of them. */
static void step(struct run *r, const int32_t *token, uint32_t n, uint32_t pos)
{
    uint32_t out_row[ROWS];
    for (uint32_t i = 0; i < n; i++)
        out_row[i] = i;
    struct batch_seq seq = {0, n, pos, r->pages};
    struct batch b = {n, 1, n, token, &seq, out_row, r->pool, .invariant = true};
    r->be->step_begin(r->dev, &b, n);
    model_forward(r->m);
    uint64_t ticket = r->be->step_end(r->dev);
    MUST(r->be->step_wait(r->dev, ticket, NULL, 0, &e));
    MUST(r->be->act_read(r->dev, ACT_LOGITS, 0, n, r->logits, &e));
}

static int32_t best(const float *logits, uint32_t n)
{
    uint32_t b = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[b])
            b = i;
    return (int32_t)b;
}

static double check_top(const float *logits, const json_t *top)
{
    double worst = 0;
    for (size_t k = 0; k < json_array_size(top); k++) {
        const json_t *pair = json_array_get(top, k);
        double want = json_number_value(json_array_get(pair, 1));
        double off = fabs((double)logits[json_integer_value(json_array_get(pair, 0))] - want);
        worst = off > worst ? off : worst;
    }
    return worst;
}

static void check_case(struct run *r, const json_t *c, double *worst, size_t *excused)
{
    const json_t *tokens = json_object_get(c, "tokens"), *top = json_object_get(c, "top");
    const json_t *greedy = json_object_get(c, "greedy"), *gap = json_object_get(c, "greedy_gap");
    uint32_t n = (uint32_t)json_array_size(tokens), n_vocab = r->m->hp.n_vocab, chunk = 0;
    assert_true(n > 0 && json_array_size(top) == n);
    for (uint32_t pos = 0; pos < n; pos += chunk) {
        int32_t ids[ROWS];
        chunk = n - pos < ROWS ? n - pos : ROWS;
        for (uint32_t i = 0; i < chunk; i++)
            ids[i] = (int32_t)json_integer_value(json_array_get(tokens, pos + i));
        step(r, ids, chunk, pos);
        for (uint32_t i = 0; i < chunk; i++) {
            double off = check_top(r->logits + (size_t)i * n_vocab, json_array_get(top, pos + i));
            *worst = off > *worst ? off : *worst;
        }
    }
    const float *last = r->logits + (size_t)(chunk - 1) * n_vocab;
    const json_t *all = json_object_get(c, "last_logits");
    for (size_t i = 0; i < json_array_size(all); i++) {
        double off = fabs((double)last[i] - json_number_value(json_array_get(all, i)));
        *worst = off > *worst ? off : *worst;
    }
    for (size_t i = 0; i < json_array_size(greedy); i++) {
        int32_t want = (int32_t)json_integer_value(json_array_get(greedy, i)), got = best(last, n_vocab);
        if (got != want) {
            double lead = json_number_value(json_array_get(gap, i));
            if (lead >= excuse)
                fail_msg("greedy id %zu is %d, not %d, where the reference leads by %g", i, got, want, lead);
            ++*excused;
        }
        step(r, &want, 1, n + (uint32_t)i);
        last = r->logits;
    }
}

static void golden(const char *gguf, const char *json)
{
    if (access(gguf, R_OK) || access(json, R_OK))
        skip();
    struct run r = {0};
    run_open(&r, gguf);
    json_error_t je;
    json_t *root = json_load_file(json, 0, &je), *c;
    assert_non_null(root);
    double worst = 0;
    size_t i, excused = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c) check_case(&r, c, &worst, &excused);
    assert_true(i > 0);
    print_message("# %s: worst logit off by %.6f, %zu ids excused\n", r.m->hp.name, worst, excused);
    assert_true(worst <= tolerance); /* false for NaN too */
    json_decref(root);
    run_close(&r);
}

static const char *path_in(char buf[4096], const char *var, const char *absent, const char *rest)
{
    const char *dir = getenv(var);
    snprintf(buf, 4096, "%s/%s", dir ? dir : absent, rest);
    return buf;
}

static void carried(const char *gguf, const char *json)
{
    char a[4096], b[4096];
    golden(path_in(a, "top_srcdir", "..", gguf), path_in(b, "top_srcdir", "..", json));
}

static void beside(const char *gguf, const char *json)
{
    char a[4096], b[4096];
    golden(path_in(a, "HEARTH_SHARED", "../shared", gguf), path_in(b, "HEARTH_SHARED", "../shared", json));
}

#define TEST(name, where, gguf, json)     \
    static void test_##name(void **state) \
    {                                     \
        (void)state;                      \
        where(gguf, json);                \
    }
TEST(tale, carried, "contrib/models/tale-q4_k_m.gguf", "tests/golden/data/tale-q4_k_m.json")
TEST(rope3, carried, "tests/golden/data/tiny-llama-rope3.gguf", "tests/golden/data/tiny-llama-rope3.json")
TEST(f16, beside, "models/tale/tale-f16.gguf", "golden/tale-f16.json")
TEST(q8_0, beside, "models/tale/tale-q8_0.gguf", "golden/tale-q8_0.json")
TEST(q6_k, beside, "models/tale/tale-q6_k.gguf", "golden/tale-q6_k.json")
TEST(q5_k_m, beside, "models/tale/tale-q5_k_m.gguf", "golden/tale-q5_k_m.json")
TEST(q4_k_m, beside, "models/tale/tale-q4_k_m.gguf", "golden/tale-q4_k_m.json")
TEST(q4_0, beside, "models/tale/tale-q4_0.gguf", "golden/tale-q4_0.json")
TEST(qwen2, beside, "models/tiny/qwen2.gguf", "golden/tiny-qwen2.json")

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tale),   cmocka_unit_test(test_rope3), cmocka_unit_test(test_f16),
        cmocka_unit_test(test_q8_0),   cmocka_unit_test(test_q6_k),  cmocka_unit_test(test_q5_k_m),
        cmocka_unit_test(test_q4_k_m), cmocka_unit_test(test_q4_0),  cmocka_unit_test(test_qwen2),
    };
    const char *backend = getenv("HEARTH_BACKEND");
    if (backend && strcmp(backend, "cpu") != 0)
        tolerance = 0.03, excuse = 0.06;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
