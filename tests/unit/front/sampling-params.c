/*
 * sampling-params.c - the parameters that result from a request's sampling fields and from the tokens that the model's
 * file suppresses.
 */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "daemon/engine/front/sampling-params.h"
#include "daemon/model/gguf-make.h"

enum { N_VOCAB = 10 };

/* A file with only this list of suppressed tokens, or with no key if `ids` is NULL. */
static struct gguf *file_of(const int32_t *ids, size_t n)
{
    struct gguf *g;
    struct hearth_err e = {0};
    struct gguf_make *m = gguf_make_new();
    assert_non_null(m);
    if (ids)
        gguf_make_i32s(m, "tokenizer.ggml.suppress_tokens", ids, n);
    if (gguf_make_done(m, &g, &e))
        fail_msg("%s", e.msg);
    gguf_make_free(m);
    return g;
}

/* The sum of a token's biases. */
static float bias_of(const struct sample_params *p, uint32_t id)
{
    float sum = 0;
    for (uint32_t i = 0; i < p->n_bias; i++)
        if (p->bias[i].id == id)
            sum += p->bias[i].bias;
    return sum;
}

static void test_suppressed(void **state)
{
    (void)state;
    static const int32_t never[] = {5, 7};
    struct hearth_bias asked[] = {{.id = 7, .bias = 100}, {.id = 2, .bias = -3}};
    struct wire_sampling w = {.has_seed = true, .temperature = 1, .logit_bias = asked, .n_logit_bias = 2};
    struct sample_params p;
    struct logit_bias *bias;
    struct hearth_err e = {0};
    struct gguf *g = file_of(never, 2);
    assert_int_equal(sample_params_make(g, &w, -1, N_VOCAB, &p, &bias, &e), 0);
    assert_int_equal(p.n_bias, 4);
    assert_ptr_equal(p.bias, bias);
    assert_true(isinf(bias_of(&p, 5)) && bias_of(&p, 5) < 0);
    assert_true(isinf(bias_of(&p, 7)) && bias_of(&p, 7) < 0);
    assert_true(bias_of(&p, 2) == -3);
    assert_true(bias_of(&p, 6) == 0);
    free(bias);
    w.n_logit_bias = 0, w.logit_bias = NULL;
    assert_int_equal(sample_params_make(g, &w, -1, N_VOCAB, &p, &bias, &e), 0);
    assert_int_equal(p.n_bias, 2);
    free(bias);
    gguf_close(g);
}

/* A file whose penalties look at no tokens has none, whatever their strength; what the request says counts. */
static void test_last_none(void **state)
{
    (void)state;
    struct wire_sampling w = {HEARTH_UNSET,
                              HEARTH_UNSET,
                              HEARTH_UNSET,
                              HEARTH_UNSET,
                              .repetition_penalty = HEARTH_UNSET,
                              .penalty_last = HEARTH_UNSET},
                         all = w;
    struct hearth_err e = {0};
    struct gguf *g;
    struct gguf_make *m = gguf_make_new();
    assert_non_null(m);
    gguf_make_u32(m, "general.sampling.penalty_last_n", 0);
    gguf_make_f32(m, "general.sampling.penalty_repeat", 1.5f);
    assert_int_equal(gguf_make_done(m, &g, &e), 0);
    gguf_make_free(m);
    assert_int_equal(sample_params_fill(g, &w, &e), 0);
    assert_true(w.repetition_penalty == 1 && w.penalty_last == 64);
    all.penalty_last = 0;
    assert_int_equal(sample_params_fill(g, &all, &e), 0);
    assert_true(all.repetition_penalty == 1.5 && all.penalty_last == 0);
    gguf_close(g);
}

static void test_none(void **state)
{
    (void)state;
    struct hearth_bias asked[] = {{.id = N_VOCAB, .bias = 1}};
    struct wire_sampling w = {.has_seed = true, .temperature = 1};
    struct sample_params p;
    struct logit_bias *bias;
    struct hearth_err e = {0};
    struct gguf *g = file_of(NULL, 0);
    assert_int_equal(sample_params_make(g, &w, -1, N_VOCAB, &p, &bias, &e), 0);
    assert_int_equal(p.n_bias, 0);
    assert_null(bias);
    w.logit_bias = asked, w.n_logit_bias = 1;
    assert_int_equal(sample_params_make(g, &w, -1, N_VOCAB, &p, &bias, &e), HEARTH_EPARAMS);
    assert_string_equal(e.msg, "generate.sampling.logit_bias[0]: token 10 is not in the vocabulary of 10");
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_suppressed), cmocka_unit_test(test_none),
                                       cmocka_unit_test(test_last_none)};
    return cmocka_run_group_tests_name("sampling-params", tests, NULL, NULL);
}
