/*
 * chunks.c - prompts of gated delta nets in steps that are not invariant, which a GPU may compute in chunks: against
 * the recurrence in double precision, also with ill-conditioned rows; beside other sequences; and with rows that are
 * NaN. Also the product that computes their gates.
 *
 *     chunks [BACKEND [VARIANT]]    default: cpu and auto
 */
#include "tests/ops/states-bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- ill-conditioned rows ---------------------------------------------------------------------------------- */

/* Sets the gates of a row, for all heads. */
static void set_gates(const struct subject *s, float *in, float b, float a)
{
    const struct op_delta *o = &s->op.delta;
    float *ba = in + delta_channels(o) + o->n_v * o->d_v;
    for (uint32_t i = 0; i < o->n_v; i++)
        ba[i] = b, ba[o->n_v + i] = a;
}
static void equal_keys(const struct subject *s, float *in, float by)
{
    const struct op_delta *o = &s->op.delta;
    float *k = in + o->n_k * o->d_k;
    for (uint32_t i = 0; i < o->n_k * o->d_k; i++)
        k[i] = k[i] * by + (float)(i % 7) - 2.5f;
}
static void keeps_all(const struct subject *s, uint32_t pos, float *in)
{
    (void)pos;
    set_gates(s, in, 200, -200);
}
static void keeps_nearly_all(const struct subject *s, uint32_t pos, float *in)
{
    (void)pos;
    set_gates(s, in, 0.01f * (float)(pos % 300), -11);
}
static void same_keys(const struct subject *s, uint32_t pos, float *in)
{
    equal_keys(s, in, 0);
    keeps_all(s, pos, in);
}
static void near_keys(const struct subject *s, uint32_t pos, float *in)
{
    equal_keys(s, in, 0.01f);
    set_gates(s, in, 6, pos % 2 ? -9 : -8);
}
/* Rows that forget everything or nothing, and that correct everything or nothing, in any order. */
static void extremes(const struct subject *s, uint32_t pos, float *in)
{
    static const float of[] = {-200, 200, 0, -3e38f, 3e38f, -12};
    set_gates(s, in, of[pos * 7 % 11 % 6], of[pos * 5 % 13 % 6] > 1e38f ? 3e38f : pos % 17 ? -200 : of[pos % 6]);
}
static void forgets_at_once(const struct subject *s, uint32_t pos, float *in)
{
    (void)pos;
    set_gates(s, in, 1, 3e38f);
}
/* Values of all magnitudes, by columns and by rows. */
static void large_and_small(const struct subject *s, uint32_t pos, float *in)
{
    const struct op_delta *o = &s->op.delta;
    float *v = in + 2 * o->n_k * o->d_k, by = pos / 100 % 2 ? 1e8f : 1e-3f;
    for (uint32_t i = 0; i < o->n_v * o->d_v; i++)
        v[i] = 4 + v[i] * by * (i / 16 % 2 ? 100 : 1);
}
/* Rows of zeros for a while. */
static void zeros(const struct subject *s, uint32_t pos, float *in)
{
    if (pos % 300 > 100)
        memset(in, 0, delta_channels(&s->op.delta) * sizeof *in);
}

static void chunks_are_right(void **state)
{
    (void)state;
    shape_fn *const hard[] = {keeps_all, keeps_nearly_all, same_keys,       near_keys,
                              extremes,  forgets_at_once,  large_and_small, zeros};
    struct subject all[] = {make_delta(1, 2, 128, 128, 0, 0), make_delta(2, 4, 128, 128, 1, 0),
                            make_delta(1, 6, 128, 128, 0, 0), make_delta(1, 3, 128, 128, 0, 1)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        measure_as(&all[i], INVARIANT_OFF, NULL, 700, states_gpu ? 1e-5 : 5e-6);
        for (size_t k = 0; k < sizeof hard / sizeof *hard && !i; k++)
            measure_as(&all[i], INVARIANT_OFF, hard[k], 700, 1e-5);
    }
    measure_as(&all[0], INVARIANT_OFF, keeps_nearly_all, states_gpu ? 16384 : 2048, 1e-4);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        forget(&all[i]);
}

/* Sequences beside each other, prompts and decoding ones, give the same bits as each in steps of its own. A row that is
 * NaN affects what follows it in its own sequence, and nothing else. */
static void chunks_are_apart(void **state)
{
    (void)state;
    const struct piece first[SEQS] = {{0, 100}, {0, 3}, {0, 129}, {0, 64}},
                       then[SEQS] = {{100, 1}, {3, 33}, {129, 70}, {64, 40}};
    enum { N = 300, AT = 40, NANS = 2 /* sequence */ };
    struct subject s = make_delta(1, 2, 128, 128, 0, 0);
    uint32_t at[] = {0, 128, 256 + 7, 2 * 128 + 2 * 128 + 256, 2 * 128 + 2 * 128 + 256 + 2};
    float *in = malloc(2 * N * s.n_mix * sizeof *in), *out = malloc(3 * N * s.n_att * sizeof *out);
    float *left = malloc(3 * s.n_state * sizeof *left);
    assert_true(in && out && left);
    for (size_t k = 0; k <= sizeof at / sizeof *at;
         k++) { /* one of q, k, v, b, a of a row is NaN; the last time nothing is */
        struct bench b, alone;
        struct hearth_err e;
        bool nan = k < sizeof at / sizeof *at;
        random_floats(9, in, 2 * N * s.n_mix);
        if (nan)
            in[(first[0].n + first[1].n + AT) * s.n_mix + at[k]] = NAN;
        bench_open(&b, &s);
        b.how = INVARIANT_OFF;
        ok(run_all(&b, &s, first, SEQS, in, out, &e), &e);
        ok(run_all(&b, &s, then, SEQS, in + N * s.n_mix, out + N * s.n_att, &e), &e);
        for (uint32_t i = 0, r0 = 0, r1 = 0; i < SEQS; r0 += first[i].n, r1 += then[i++].n) {
            float *one = out + 2 * N * s.n_att, *two = one + first[i].n * s.n_att;
            bench_open(&alone, &s);
            alone.how = INVARIANT_OFF;
            float keep = in[(first[0].n + first[1].n + AT) * s.n_mix + (nan ? at[k] : 0)];
            ok(run(&alone, &s, 0, first[i].n, in + r0 * s.n_mix, one, &e), &e);
            ok(run(&alone, &s, then[i].pos, then[i].n, in + (N + r1) * s.n_mix, two, &e), &e);
            save_of(&b, i, left);
            save_of(&alone, 0, left + s.n_state);
            if (i != NANS || !nan) {
                for (uint32_t r = 0; r < (first[i].n + then[i].n) * s.n_att; r++)
                    if (!isfinite(one[r]))
                        fail_msg("input %zu: sequence %u is NaN at row %u", k, i, r / s.n_att);
                assert_memory_equal(one, out + r0 * s.n_att, first[i].n * s.n_att * sizeof *out);
                assert_memory_equal(two, out + (N + r1) * s.n_att, then[i].n * s.n_att * sizeof *out);
                assert_memory_equal(left, left + s.n_state, s.n_state * sizeof *left);
            } else {
                /* The rows before it are unaffected. After it, all rows of a head that saw the NaN are NaN; a NaN in q
                 * reaches only the rows that the convolution's taps span. */
                in[(first[0].n + first[1].n + AT) * s.n_mix + at[k]] = 0;
                ok(run(&alone, &s, 0, first[i].n, in + r0 * s.n_mix, left, &e), &e);
                in[(first[0].n + first[1].n + AT) * s.n_mix + at[k]] = keep;
                assert_memory_equal(left, out + r0 * s.n_att, AT * s.n_att * sizeof *out);
                uint32_t seen = k ? first[i].n : AT + TAPS, cols = k < 2 ? s.n_att : s.n_att / 2;
                for (uint32_t r = AT; r < first[i].n; r++)
                    for (uint32_t c = 0; c < cols; c++)
                        if (isnan(out[(r0 + r) * s.n_att + c]) != (r < seen))
                            fail_msg("input %zu: row %u column %u is %g", k, r, c, (double)out[(r0 + r) * s.n_att + c]);
            }
            bench_close(&alone);
        }
        bench_close(&b);
    }
    forget(&s);
    free(in), free(out), free(left);
}

/* The gates of many rows: a product with F32 rows, judged by its worst number. */
static void gates_are_right(void **state)
{
    static const struct {
        uint32_t n, n_out, n_row;
        enum invariance how;
    } shape[] = {{2048, 64, 512, INVARIANT_OFF}, {5120, 96, 512, INVARIANT_OFF}, {5120, 96, 33, INVARIANT_OFF},
                 {1024, 12, 77, INVARIANT_OFF},  {48, 72, 100, INVARIANT_OFF},   {2048, 64, 512, INVARIANT_DECODE},
                 {100, 33, 80, INVARIANT_OFF},   {2560, 192, 90, INVARIANT_OFF}};
    (void)state;
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        uint32_t n = shape[i].n, n_out = shape[i].n_out, rows = shape[i].n_row;
        float *x = numbers(1, (size_t)rows * n, -3, 3), *w = numbers(2, (size_t)n_out * n, -0.1f, 0.1f);
        float *gain = numbers(3, n, -2, 2), *out = numbers(4, (size_t)rows * n_out, 0, 0), *norm;
        struct workspace_dims dims = {
            .d_model = n, .d_q = 16, .d_kv = 16, .d_ff = 16, .n_vocab = 16, .n_row = ROWS, .n_out = 1, .d_mix = n_out};
        struct hearth_err e;
        struct device *d = rig_device(states_backend, states_variant, 2);
        struct weight of = {.role = WEIGHT_MIXER, .n_in = n, .n_out = n_out, .n_part = 1};
        of.part[0] = (struct weight_part){.type = DT_F32, .n_out = n_out, .data = w};
        x[7] = 1e12f, x[n + 3] = 1e-20f;
        for (uint32_t k = 0; k < n; k++)
            x[2 * n + k] *= 1e6f; /* more than fp16 can represent */
        assert_non_null(d);
        ok(states_backend->weight_load(d, &of, &e), &e);
        ok(states_backend->vec_load(d, gain, n, &norm, &e), &e);
        ok(states_backend->reserve(d, &dims, &e), &e);
        static int32_t token[ROWS];
        static uint32_t none[1];
        uint32_t page[2] = {0, 1};
        struct kv_desc desc = {.n_layer = 1, .type = DT_F32, .n_page = 2, .d_state = 16}; /* a step needs a pool */
        struct kv_pool *pool;
        struct batch_seq seq = {.n_row = rows, .pages = {page}};
        struct batch batch = {.n_row = rows,
                              .n_seq = 1,
                              .token = token,
                              .seq = &seq,
                              .out_row = none,
                              .n_group = 1,
                              .invariant = shape[i].how,
                              .once = true};
        struct op op = {.kind = OP_PROJECT,
                        .project = {.norm = {NORM_RMS, 1e-6f, norm, NULL}, .w = &of, .width = n_out}};
        struct program p = program_of(NULL, &op, 1);
        ok(states_backend->kv_new(d, &desc, &pool, &e), &e);
        batch.kv[0] = pool;
        ok(states_backend->act_write(d, ACT_X, 0, rows, n, x, &e), &e);
        ok(states_backend->step_wait(d, states_backend->step_run(d, &batch, &p), NULL, 0, &e), &e);
        ok(states_backend->act_read(d, ACT_MIX, 0, rows, out, &e), &e);
        double worst = 0;
        for (uint32_t r = 0; r < rows; r++) {
            double squares = 0;
            for (uint32_t k = 0; k < n; k++)
                squares += (double)x[r * n + k] * (double)x[r * n + k];
            for (uint32_t o = 0; o < n_out; o++) {
                double sum = 0, size = 0;
                for (uint32_t k = 0; k < n; k++) {
                    double part = (double)x[r * n + k] * (double)gain[k] * (double)w[o * n + k];
                    sum += part, size += part * part;
                }
                double off = fabs((double)out[r * n_out + o] * sqrt(squares / n + 1e-6) - sum) / sqrt(size);
                worst = off > worst || isnan(off) ? off : worst;
            }
        }
        print_message("# %u rows of %u by %u: off by %.1e of a sum's size\n", rows, n, n_out, worst);
        if (!(worst < 1e-5))
            fail_msg("%u rows of %u by %u are off by %g", rows, n, n_out, worst);
        states_backend->kv_free(d, pool);
        states_backend->vec_free(d, norm);
        states_backend->weight_free(d, &of);
        states_backend->close(d);
        free(x), free(w), free(gain), free(out);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chunks_are_right), cmocka_unit_test(chunks_are_apart),
                                       cmocka_unit_test(gates_are_right)};
    return states_main(argc, argv, "chunks", tests, sizeof tests / sizeof *tests);
}
