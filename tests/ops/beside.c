/*
 * beside.c - a model's steps are bit-identical before, while and after another model is loaded on the device, also
 * outside the invariant mode, where the choice of kernels follows from the model's own matrices.
 *
 *     tests/ops/beside [BACKEND [VARIANT]]   "cpu" by default; exit status 77 if the machine has no such device
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/rig.h"

static const struct backend *backend;
static const char *variant = "auto";
static struct device_info info;

/* The case of that name, with the device's type of KV. */
static struct op_case case_of(const char *name)
{
    for (size_t i = 0; i < n_op_cases; i++)
        if (!strcmp(op_cases[i].name, name)) {
            struct op_case c = op_cases[i];
            c.kv_type = info.gpu ? info.kv_type : c.kv_type;
            return c;
        }
    fail_msg("there is no case '%s'", name);
    abort();
}

/* Returns the logits of the first n tokens of a sequence, which the caller frees. */
static float *logits(struct rig *r, uint32_t n)
{
    size_t n_vocab = r->n->c->n_vocab;
    float *v = malloc(n * n_vocab * sizeof *v);
    assert_non_null(v);
    rig_batch(r, &(struct seq_shape){0, n}, 0, 1);
    rig_forward(r);
    rig_read(r, ACT_LOGITS, 0, n, v);
    return v;
}

static void assert_same(struct rig *r, const float *want, uint32_t n, const char *when)
{
    float *got = logits(r, n);
    size_t bytes = (size_t)n * r->n->c->n_vocab * sizeof *got;
    if (memcmp(got, want, bytes))
        fail_msg("case '%s', %u tokens: other logits %s", r->n->c->name, n, when);
    free(got);
}

/* Compares steps of n tokens of `one`, after a step of `warm` tokens, which may leave expanded copies of its
 * matrices. */
static void check(const char *one, uint32_t warm, uint32_t n, const char *other)
{
    struct op_case c = case_of(one), beside = case_of(other);
    struct numbers mine, others;
    struct rig r, o;
    struct device *d = rig_device(backend, variant, 2);
    assert_non_null(d);
    numbers_init(&mine, &c);
    numbers_init(&others, &beside);
    rig_init(&r, &mine, backend, d);
    r.how = INVARIANT_OFF;
    free(logits(&r, warm));
    float *want = logits(&r, n);
    rig_init(&o, &others, backend, d);
    o.how = INVARIANT_OFF;
    assert_same(&r, want, n, "beside another model");
    free(logits(&o, n));
    assert_same(&r, want, n, "after a step of the other");
    rig_fini(&o);
    assert_same(&r, want, n, "when the other has gone");
    r.how = INVARIANT_DECODE;
    float *plain = logits(&r, n);
    print_message("# %s, %u tokens: the invariant mode has %s\n", one, n,
                  memcmp(plain, want, (size_t)n * c.n_vocab * sizeof *want) ? "other bits" : "the same bits");
    free(plain);
    free(want);
    rig_fini(&r);
    numbers_fini(&others);
    numbers_fini(&mine);
    backend->close(d);
}

/* Prompts for which Hopper's own products exist, beside a model with a mix of types for which they do not. */
static void test_types(void **state)
{
    (void)state;
    check("q4_k ragged", 20, 20, "five types, 80 tokens");
}

/* Fewer rows than those for which the library is used without expanded copies; the other model has no copies. */
static void test_copies(void **state)
{
    (void)state;
    check("odd f32, 67 tokens", 67, 40, "five types, 80 tokens");
}

/* A matrix of another model is refused, because it would take a path that may not suit it. */
static void test_mixed_up(void **state)
{
    (void)state;
    struct op_case c = case_of("q4_k ragged");
    struct numbers n;
    struct rig r;
    struct hearth_err e;
    struct device *d = rig_device(backend, variant, 1);
    assert_non_null(d);
    numbers_init(&n, &c);
    rig_init(&r, &n, backend, d);
    free(logits(&r, 4));
    struct weight *w[] = {&r.qkv, &r.o, &r.ffn, &r.head};
    for (size_t i = 0; i < sizeof w / sizeof *w; i++) {
        w[i]->model = &n;
        rig_batch(&r, &(struct seq_shape){0, 4}, 0, 1);
        assert_int_equal(rig_try(&r, &r.program, &e), HEARTH_EPARAMS);
        assert_non_null(strstr(e.msg, "another model"));
        w[i]->model = &r;
    }
    free(logits(&r, 4)); /* the error concerned only those steps */
    rig_fini(&r);
    numbers_fini(&n);
    backend->close(d);
}

int main(int argc, char **argv)
{
    if (argc > 2)
        variant = argv[2];
    if (!(backend = rig_backend(argc > 1 ? argv[1] : "cpu", variant, &info)))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_mixed_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
