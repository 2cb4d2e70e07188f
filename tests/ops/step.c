/*
 * step.c - batches, weights and pages on the CPU: invalid ones are refused with a name and do no harm, and KV pages are
 * copied, read, written and cleared as a whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/rig.h"

static const struct backend *be;

struct fixture {
    struct numbers n;
    struct device *d;
    struct rig r;
};

static void fixture_init(struct fixture *f)
{
    numbers_init(&f->n, &op_cases[1]);
    f->d = rig_device(be, "auto", 2);
    assert_non_null(f->d);
    rig_init(&f->r, &f->n, be, f->d);
    rig_fill_kv(&f->r);
}

static void fixture_fini(struct fixture *f)
{
    rig_fini(&f->r);
    be->close(f->d);
    numbers_fini(&f->n);
}

/* Runs a whole step over the batch and returns step_wait()'s result. */
static int run(struct fixture *f, const struct batch *b, struct hearth_err *e)
{
    return be->step_wait(f->d, be->step_run(f->d, b, &f->r.program), NULL, 0, e);
}

static void test_batches(void **state)
{
    (void)state;
    struct fixture f;
    struct hearth_err e;
    fixture_init(&f);
    int32_t token[4] = {0, 1, 2, 3};
    uint32_t pages[2] = {0, 1}, bad_pages[2] = {0, RIG_PAGES}, out[4] = {0, 1, 2, 3}, falling[2] = {1, 0},
             beyond[1] = {2};
    const struct batch_seq good[2] = {{0, 2, 0, {pages}}, {2, 2, 5, {pages + 1}}};
    const struct batch_seq gap[2] = {{0, 1, 0, {pages}}, {2, 2, 5, {pages + 1}}};
    const struct batch_seq empty[1] = {{0, 0, 0, {pages}}}, far[1] = {{0, 2, UINT32_MAX, {pages}}};
    const struct batch_seq bad[1] = {{0, 2, 15, {bad_pages}}}, more[1] = {{0, 3, 0, {pages}}};
    const struct batch ok = {4, 2, 4, token, good, out, {f.r.kv}, 1, true};
    struct batch cases[10];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cases[i] = ok;
    cases[0].n_row = 0;
    cases[1].n_row = BATCH_ROWS_MAX + 1;
    cases[2].n_seq = BATCH_SEQS_MAX + 1;
    cases[3].seq = gap;
    cases[4] = (struct batch){2, 1, 0, token, empty, out, {f.r.kv}, 1, true};
    cases[5] = (struct batch){2, 1, 0, token, far, out, {f.r.kv}, 1, true};
    cases[6] = (struct batch){2, 1, 0, token, bad, out, {f.r.kv}, 1, true};
    cases[7] = (struct batch){2, 1, 0, token, more, out, {f.r.kv}, 1, true};
    cases[8].n_out = 2, cases[8].out_row = falling;
    cases[9] = (struct batch){2, 1, 1, token, good, beyond, {f.r.kv}, 1, true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rc = run(&f, &cases[i], &e);
        if (rc != HEARTH_EPARAMS)
            fail_msg("batch %zu gave %d", i, rc);
        assert_true(strlen(e.msg) > 10);
        assert_int_equal(run(&f, &ok, &e), 0); /* the error concerned only that step */
    }
    static const int32_t bad_tokens[] = {50, INT32_MAX, TOKEN_OF_SLOT(0), TOKEN_OF_SLOT(SLOTS_MAX), INT32_MIN};
    for (size_t i = 0; i < sizeof bad_tokens / sizeof *bad_tokens; i++) {
        token[2] = bad_tokens[i];
        assert_int_equal(run(&f, &ok, &e), HEARTH_EPARAMS);
    }
    token[2] = 0;
    assert_int_equal(run(&f, &ok, &e), 0);
    fixture_fini(&f);
}

/* A row may take the token that a slot sampled, without the host's help. */
static void test_token_of_slot(void **state)
{
    (void)state;
    struct fixture f;
    struct hearth_err e;
    struct sampled s;
    fixture_init(&f);
    const struct op_case *c = f.n.c;
    uint32_t pages[1] = {0}, out[1] = {0}, slot[1] = {7}, index[1] = {0};
    int32_t token[1] = {4};
    struct batch_seq seq[1] = {{0, 1, 0, {pages}}};
    struct batch b = {1, 1, 1, token, seq, out, {f.r.kv}, 1, true};
    struct sample_params p = {.temp = 0.0f, .top_p = 1.0f, .rep_penalty = 1.0f};
    assert_int_equal(be->slot_set(f.d, 7, &p, NULL, 0, c->n_vocab, &e), 0);
    b.sample = (struct batch_sample){1, slot, index, NULL};
    assert_int_equal(be->step_wait(f.d, be->step_run(f.d, &b, &f.r.program), &s, 1, &e), 0);
    b.sample.n = 0;
    float named[64], given[64];
    token[0] = TOKEN_OF_SLOT(7);
    seq[0].pos0 = 1;
    assert_int_equal(run(&f, &b, &e), 0);
    rig_read(&f.r, ACT_LOGITS, 0, 1, named);
    token[0] = (int32_t)s.token;
    assert_int_equal(run(&f, &b, &e), 0);
    rig_read(&f.r, ACT_LOGITS, 0, 1, given);
    assert_memory_equal(named, given, c->n_vocab * sizeof *named);
    fixture_fini(&f);
}

/* Stops after so many calls. */
static bool stop_in(void *arg)
{
    uint32_t *left = arg;
    return (*left)-- == 0;
}

/* A step may be stopped before any of its ops. It samples nothing then, and the next step gives the bits that it would
 * have given without the stopped one. */
static void test_stop(void **state)
{
    (void)state;
    struct fixture f;
    struct hearth_err e;
    fixture_init(&f);
    uint32_t n_vocab = f.n.c->n_vocab, left, looks = 0;
    float undisturbed[64], after[64];
    assert_true(n_vocab <= 64);
    rig_batch(&f.r, &(struct seq_shape){0, 20}, 0, 1);
    assert_int_equal(run(&f, &f.r.batch, &e), 0);
    rig_read(&f.r, ACT_LOGITS, 19, 1, undisturbed);
    for (uint32_t at = 0; at <= f.r.program.n_op; at++) {
        struct batch b = f.r.batch;
        b.stop = stop_in;
        b.stop_arg = &left;
        left = at;
        int rc = run(&f, &b, &e);
        looks += rc == HEARTH_ECANCELLED;
        assert_int_equal(rc, at < f.r.program.n_op ? HEARTH_ECANCELLED : 0);
        assert_int_equal(run(&f, &f.r.batch, &e), 0);
        rig_read(&f.r, ACT_LOGITS, 19, 1, after);
        assert_memory_equal(undisturbed, after, n_vocab * sizeof *after);
    }
    assert_int_equal(looks, f.r.program.n_op);
    fixture_fini(&f);
}

static void test_ops_refuse(void **state)
{
    (void)state;
    struct fixture f;
    struct hearth_err e;
    fixture_init(&f);
    struct op bad[] = {op_qkv(&f.r, LAYERS) /* the pool has fewer layers */, op_attend(&f.r, 0), op_o(&f.r)};
    bad[1].attend.n_kv = 3;    /* not the pool's number */
    bad[2].proj.w = &f.r.down; /* another width */
    rig_batch(&f.r, &(struct seq_shape){0, 1}, 0, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct program p = program_of(&f.r, &bad[i], 1);
        assert_int_equal(rig_try(&f.r, &p, &e), HEARTH_EPARAMS);
        be->step_run(f.d, &f.r.batch, &p);
        assert_int_equal(be->sync(f.d, &e), HEARTH_EPARAMS);
    }
    assert_int_equal(be->sync(f.d, &e), 0);
    fixture_fini(&f);
}

/* An activation that a test writes must fit the step, and applies to that step only. */
static void test_writes(void **state)
{
    (void)state;
    struct fixture f;
    struct hearth_err e;
    fixture_init(&f);
    uint32_t d_model = f.n.c->d_model;
    float *v = calloc(2 * d_model, sizeof *v), got[64] = {0};
    struct program nothing = program_of(&f.r, NULL, 0);
    assert_true(v && d_model <= 64 * 16);
    rig_batch(&f.r, &(struct seq_shape){0, 1}, 0, 1);
    assert_int_equal(be->act_write(f.d, ACT_COUNT, 0, 1, d_model, v, &e), HEARTH_EPARAMS);
    assert_int_equal(be->act_write(f.d, ACT_X, 0, 0, d_model, v, &e), HEARTH_EPARAMS);
    rig_write(&f.r, ACT_X, 2, d_model, v); /* more rows than the step has */
    assert_int_equal(rig_try(&f.r, &nothing, &e), HEARTH_EPARAMS);
    assert_int_equal(rig_try(&f.r, &nothing, &e), 0);
    rig_write(&f.r, ACT_X, 1, 64, (v[3] = 7, v)); /* narrower than reserved */
    assert_int_equal(rig_try(&f.r, &nothing, &e), 0);
    rig_read(&f.r, ACT_X, 0, 1, got);
    assert_memory_equal(got, v, sizeof got);
    free(v);
    fixture_fini(&f);
}

static void test_load_refuses(void **state)
{
    (void)state;
    struct fixture f;
    struct hearth_err e;
    fixture_init(&f);
    static const uint8_t data[1024];
    struct weight w = {WEIGHT_PROJ, 100, 1, 1, {{DT_Q4_K, 1, data}}, NULL};
    assert_int_equal(be->weight_load(f.d, &w, &e), HEARTH_EBADMODEL);              /* not whole blocks */
    w = (struct weight){WEIGHT_PROJ, 64, 1, 1, {{(enum dtype)19, 1, data}}, NULL}; /* IQ1_S */
    assert_int_equal(be->weight_load(f.d, &w, &e), HEARTH_EUNSUPPORTED);
    w = (struct weight){WEIGHT_PROJ, 64, 2, 1, {{DT_F32, 1, data}}, NULL}; /* n_out is not the sum over the parts */
    assert_int_equal(be->weight_load(f.d, &w, &e), HEARTH_EPARAMS);
    w = (struct weight){WEIGHT_PROJ, 64, 1, 1, {{DT_F32, 1, data + 1}}, NULL};
    assert_int_equal(be->weight_load(f.d, &w, &e), HEARTH_EBADMODEL);
    struct kv_pool *kv;
    struct kv_desc desc = {1, 1, 48, 64, 0, DT_Q8_0, 4}; /* not whole blocks */
    assert_int_equal(be->kv_new(f.d, &desc, &kv, &e), HEARTH_EUNSUPPORTED);
    desc = (struct kv_desc){1, 1, 64, 64, 0, DT_Q4_0, 4};
    assert_int_equal(be->kv_new(f.d, &desc, &kv, &e), HEARTH_EUNSUPPORTED);
    desc = (struct kv_desc){1, 0, 64, 64, 0, DT_F32, 4};
    assert_int_equal(be->kv_new(f.d, &desc, &kv, &e), HEARTH_EPARAMS);
    desc = (struct kv_desc){UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, DT_F32, UINT32_MAX};
    assert_int_equal(be->kv_new(f.d, &desc, &kv, &e), HEARTH_ENOMEM);
    struct device *d;
    struct device_params p = {.threads = 1, .variant = "sse9"};
    assert_int_equal(be->open(&d, &p, &e), HEARTH_EPARAMS);
    p = (struct device_params){.index = 1};
    assert_int_equal(be->open(&d, &p, &e), HEARTH_EDEVICE);
    struct workspace_dims dims = {UINT32_MAX, 1, 1, 1, 1, 1, 1};
    assert_int_equal(be->reserve(f.d, &dims, &e), HEARTH_EPARAMS);
    fixture_fini(&f);
}

static void test_pages(void **state)
{
    (void)state;
    struct fixture f;
    struct hearth_err e;
    fixture_init(&f);
    size_t n = rig_page_bytes(&f.r);
    uint8_t *a = malloc(n), *b = malloc(n), *zero = calloc(1, n);
    assert_true(a && b && zero);
    rig_page_read(&f.r, 3, a);
    be->kv_copy(f.d, f.r.kv, 4, 3);
    rig_page_read(&f.r, 4, b);
    assert_memory_equal(a, b, n);
    assert_memory_not_equal(a, zero, n);
    be->kv_clear(f.d, f.r.kv, 4);
    rig_page_read(&f.r, 4, b);
    assert_memory_equal(b, zero, n);
    rig_page_read(&f.r, 3, b); /* the neighbouring page is unchanged */
    assert_memory_equal(a, b, n);
    rig_page_write(&f.r, 4, a);
    rig_page_read(&f.r, 4, b);
    assert_memory_equal(a, b, n);
    assert_int_equal(be->sync(f.d, &e), 0);
    be->kv_copy(f.d, f.r.kv, RIG_PAGES, 0);
    assert_int_equal(be->sync(f.d, &e), HEARTH_EPARAMS);
    free(a), free(b), free(zero);
    fixture_fini(&f);
}

int main(void)
{
    be = backend_find("cpu");
    assert_null(backend_find("abacus"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches),    cmocka_unit_test(test_token_of_slot), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_ops_refuse), cmocka_unit_test(test_writes),        cmocka_unit_test(test_load_refuses),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
