/*
 * nan.c - NaN is never masked: NaN in a row of the residual stream reaches the logits of that row and of all rows that
 * attend to it, and of no others, then or later; NaN in a weight reaches all logits. Otherwise a model with such
 * weights would silently generate text. Nor does a model see NaN that another one has left in the workspace: all cases
 * use the same device.
 *
 *     tests/ops/nan [BACKEND [VARIANT [fast | prompt | batch] [q8_0] [rows | weights]]]   as tests/ops/ops
 *
 * rows, weights: only the tests of these.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/rig.h"

enum {
    WEIGHED_ROWS = 20 /* cases of up to so many rows are used for weights, since each is loaded once for every matrix */
};

static const struct backend *backend;
static struct device *device; /* shared by all cases */
static bool gpu;
static enum invariance how = INVARIANT_DECODE;

/* Runs the layers and the head over x, [n_row][d_model], and returns the logits, which the caller frees. */
static float *logits_of(struct rig *r, const struct seq_shape *seq, uint32_t n_seq, const float *x)
{
    const struct op_case *c = r->n->c;
    struct program p = program_of(r, r->program.op + 1, r->program.n_op - 1);
    struct hearth_err e;
    rig_batch(r, seq, 0, n_seq);
    r->batch.once = true; /* p does not outlive this function */
    rig_write(r, ACT_X, r->batch.n_row, c->d_model, x);
    float *out = malloc(sizeof *out * r->batch.n_row * c->n_vocab);
    assert_non_null(out);
    if (rig_try(r, &p, &e))
        fail_msg("'%s': %s", c->name, e.msg);
    rig_read(r, ACT_LOGITS, 0, r->batch.n_row, out);
    return out;
}

/* --- what another model has left ----------------------------------------------------------------------------- */

/* Wider than any case whose rows end within a super-block of 256; its weights are floats, for which every path has
 * products. */
static const struct op_case broad_case = {.name = "broad",
                                          .type = DT_F16,
                                          .d_model = 1024,
                                          .d_ff = 1024,
                                          .n_vocab = 64,
                                          .n_head = 16,
                                          .n_kv = 1,
                                          .d_head = 64,
                                          .norm = NORM_RMS,
                                          .rope = ROPE_NORM,
                                          .n_rot = 64,
                                          .glu = GLU_SWIGLU,
                                          .embed_scale = 1};
static struct numbers broad_numbers;
static struct rig *broad;
static float *broad_x; /* NaN throughout */

static void broad_begin(enum dtype kv_type)
{
    static struct op_case c;
    c = broad_case;
    c.kv_type = kv_type;
    c.seq[0].n_row = gpu ? 200 : 8; /* on a GPU enough rows for its library's products, too */
    broad_x = malloc(sizeof *broad_x * c.seq[0].n_row * c.d_model);
    broad = malloc(sizeof *broad);
    assert_true(broad_x && broad);
    for (uint32_t i = 0; i < c.seq[0].n_row * c.d_model; i++)
        broad_x[i] = NAN;
    numbers_init(&broad_numbers, &c);
    rig_init(broad, &broad_numbers, backend, device);
    rig_fill_kv(broad);
}

/* Leaves NaN in all of the workspace that steps of so many rows use, in every mode. */
static void broad_run(void)
{
    const struct seq_shape all = broad_numbers.c->seq[0], some = {0, all.n_row / 2};
    enum invariance ways[] = {INVARIANT_DECODE, how, INVARIANT_OFF};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        broad->how = ways[i];
        free(logits_of(broad, &some, 1, broad_x));
    }
    free(logits_of(broad, &all, 1, broad_x));
}

/* The case on the device; the caller calls rig_fini() and free(). If a test fails, its rig is leaked. */
static struct rig *rig_of(const struct numbers *n)
{
    struct rig *r = malloc(sizeof *r);
    assert_non_null(r);
    rig_init(r, n, backend, device);
    r->how = how;
    rig_fill_kv(r);
    return r;
}

static bool all_nan(const float *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!isnan(v[i]))
            return false;
    return true;
}

/* --- a row ------------------------------------------------------------------------------------------------ */

/* Puts NaN into row `bad` of sequence 0. */
static void one_row(struct rig *r, uint32_t bad, float *x, const float *want)
{
    const struct op_case *c = r->n->c;
    uint32_t n_seq, n_row = case_rows(c, &n_seq), v = c->n_vocab, at = bad * c->d_model + c->d_model / 3;
    float was = x[at];
    x[at] = NAN;
    float *got = logits_of(r, c->seq, n_seq, x);
    x[at] = was;
    for (uint32_t row = 0; row < n_row; row++) {
        bool sees = row >= bad && row < c->seq[0].n_row, far = c->window && row >= bad + c->window;
        if (sees && !far && !all_nan(got + (size_t)row * v, v))
            fail_msg("'%s': NaN in row %u: row %u has numbers", c->name, bad, row);
        for (size_t i = (size_t)row * v; !sees && i < (size_t)(row + 1) * v; i++)
            if (memcmp(got + i, want + i, sizeof *got))
                fail_msg("'%s': NaN in row %u: row %u, which does not see it, has the logit %g for %g", c->name, bad,
                         row, got[i], want[i]);
    }
    free(got);
}

/* The sequence whose last row is sequence 0's last but one: the KV of the latter's last row is after its end, in the
 * same page or the next. */
static struct seq_shape shorter(const struct seq_shape *s)
{
    return s->n_row > 1 ? (struct seq_shape){s->pos0, s->n_row - 1} : (struct seq_shape){s->pos0 ? s->pos0 - 1 : 0, 1};
}

static void rows_are_seen(void **state)
{
    const struct op_case *c = *state;
    struct numbers n;
    numbers_init(&n, c);
    struct rig *r = rig_of(&n);
    uint32_t n_seq, n_row = case_rows(c, &n_seq);
    struct seq_shape other = shorter(&c->seq[0]);
    float *x = malloc(sizeof *x * n_row * c->d_model);
    assert_non_null(x);
    random_floats(3, x, (size_t)n_row * c->d_model);
    broad_run();
    float *want = logits_of(r, c->seq, n_seq, x), *want_other = logits_of(r, &other, 1, x);
    for (uint32_t i = 0; i < n_row * c->n_vocab; i++)
        if (!isfinite(want[i]))
            fail_msg("'%s': row %u sees NaN of another model", c->name, i / c->n_vocab);
    if (c->seq[0].n_row > 1)
        one_row(r, 0, x, want);
    one_row(r, c->seq[0].n_row - 1, x, want);
    /* What it left in KV does not affect the next owner of these pages. */
    float *got_other = logits_of(r, &other, 1, x);
    bool apart = c->seq[0].pos0 < 2 * SEQ_PAGES * KV_PAGE; /* a long sequence uses the rig's pages more than once */
    for (uint32_t i = 0; apart && i < other.n_row * c->n_vocab; i++)
        if (memcmp(got_other + i, want_other + i, sizeof *x))
            fail_msg("'%s': row %u sees NaN that another sequence left in its page: %g for %g", c->name, i / c->n_vocab,
                     got_other[i], want_other[i]);
    free(x), free(want), free(want_other), free(got_other);
    rig_fini(r);
    free(r);
    numbers_fini(&n);
}

/* --- a weight --------------------------------------------------------------------------------------------- */

static void weights_are_seen(void **state)
{
    static const char *const names[PARTS + 1] = {"q", "k", "v", "o", "gate", "up", "down", "head"};
    const struct op_case *c = *state;
    struct numbers n;
    numbers_init(&n, c);
    uint32_t n_seq, n_row = case_rows(c, &n_seq), v = c->n_vocab;
    float *x = malloc(sizeof *x * n_row * c->d_model);
    assert_non_null(x);
    random_floats(3, x, (size_t)n_row * c->d_model);
    for (int i = 0; i <= PARTS; i++) {
        if (i == P_GATE && !glu_gated(c->glu))
            continue;
        uint8_t was[512], *of = i < PARTS ? n.packed[i] : n.head;
        enum dtype type = i < PARTS ? n.type[i] : n.head_type;
        uint32_t n_in = i < PARTS ? n.n_in[i] : c->d_model, row = (i < PARTS ? n.n_out[i] : v) / 2;
        assert_true(dtype_get(type)->block_bytes <= sizeof was);
        uint8_t *block = of + row * dtype_bytes(type, n_in);
        memcpy(was, block, dtype_get(type)->block_bytes);
        if (!nan_block(type, block))
            continue;
        struct rig *r = rig_of(&n);
        float *got = logits_of(r, c->seq, n_seq, x);
        for (uint32_t j = 0; j < n_row; j++)
            if (i < PARTS ? !all_nan(got + (size_t)j * v, v) : !isnan(got[j * v + row]))
                fail_msg("'%s': NaN in '%s': row %u has numbers", c->name, names[i], j);
        memcpy(block, was, dtype_get(type)->block_bytes);
        free(got);
        rig_fini(r);
        free(r);
    }
    free(x);
    numbers_fini(&n);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu", *variant = argc > 2 ? argv[2] : "auto", *alone = NULL;
    for (int i = 3; i < argc; i++)
        if (!strcmp(argv[i], "fast") || !strcmp(argv[i], "prompt") || !strcmp(argv[i], "batch"))
            how = *argv[i] == 'f' ? INVARIANT_OFF : *argv[i] == 'p' ? INVARIANT_PROMPT : INVARIANT_BATCH;
        else if (!strcmp(argv[i], "q8_0"))
            rig_kv_type = DT_Q8_0;
        else if (!strcmp(argv[i], "rows") || !strcmp(argv[i], "weights"))
            alone = argv[i];
    struct device_info info;
    if (!(backend = rig_backend(name, variant, &info)))
        return 77;
    struct CMUnitTest *tests = calloc(2 * n_op_cases, sizeof *tests);
    struct op_case *cases = calloc(n_op_cases, sizeof *cases);
    if (!tests || !cases)
        return 1;
    size_t n = 0;
    for (size_t i = 0; i < n_op_cases; i++) {
        struct op_case *c = &cases[i];
        *c = op_cases[i];
        uint32_t n_seq;
        if (!rig_case(&info, c))
            continue;
        if (!alone || *alone == 'r')
            tests[n++] = (struct CMUnitTest){c->name, rows_are_seen, NULL, NULL, c};
        if ((!alone || *alone == 'w') && case_rows(c, &n_seq) < WEIGHED_ROWS)
            tests[n++] = (struct CMUnitTest){c->name, weights_are_seen, NULL, NULL, c};
    }
    device = rig_device(backend, variant, 2);
    if (!device)
        return 1;
    gpu = info.gpu;
    broad_begin(info.kv_type);
    int failed = _cmocka_run_group_tests(name, tests, n, NULL, NULL);
    rig_fini(broad);
    numbers_fini(&broad_numbers);
    backend->close(device);
    free(broad), free(broad_x);
    free(tests);
    free(cases);
    return failed;
}
