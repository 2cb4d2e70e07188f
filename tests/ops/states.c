/*
 * states.c - the ops of layers with a recurrent state against their definitions in double precision: their results row
 * by row, and the state that they leave, also after many tokens; the same bits however rows are split into steps; and
 * what they refuse.
 *
 *     states [BACKEND [VARIANT]]    default: cpu and auto
 *
 * On a GPU results are F16; states are F32 everywhere.
 */
#include "tests/ops/states-bench.h"

#include <stdlib.h>
#include <string.h>

static void measure(const struct subject *s, uint32_t n_token, double most)
{
    measure_as(s, INVARIANT_DECODE, NULL, n_token, most);
}

static void save(struct bench *b, float *to)
{
    save_of(b, 0, to);
}

static void rows_are_right(void **state)
{
    (void)state;
    struct subject all[] = {make_shortconv(72, 3),          make_shortconv(64, 4),
                            make_delta(2, 4, 16, 24, 0, 0), make_delta(2, 6, 32, 16, 1, 0),
                            make_delta(2, 4, 16, 16, 0, 1), make_delta(1, 1, 8, 8, 1, 1),
                            make_mamba2(4, 16, 24, 2, 0),   make_mamba2(3, 24, 16, 1, 0),
                            make_delta(1, 2, 64, 64, 0, 0), make_delta(1, 2, 128, 128, 0, 0),
                            make_delta(1, 2, 32, 32, 0, 1), make_delta(1, 1, 192, 40, 0, 0),
                            make_mamba2(2, 64, 128, 1, 0),  make_mamba2(4, 16, 24, 2, 1)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        measure(&all[i], 700, states_gpu ? 1e-5 : 5e-6);
        forget(&all[i]);
    }
}

static void long_timelines_do_not_drift(void **state)
{
    (void)state;
    struct subject all[] = {make_shortconv(8, 3), make_delta(2, 4, 8, 8, 0, 0), make_mamba2(4, 8, 8, 1, 0)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        measure(&all[i], LONG, 1e-4);
        forget(&all[i]);
    }
}

/* Rows in one step, in steps of any length, and with the state written to the page from which it was read, give the
 * same bits. */
static void cuts_do_not_matter(void **unused)
{
    (void)unused;
    enum { N = 150 };
    struct subject all[] = {make_shortconv(72, 3),           make_delta(2, 4, 16, 24, 0, 0),
                            make_delta(2, 6, 32, 16, 1, 0),  make_mamba2(4, 16, 24, 2, 1),
                            make_delta(2, 6, 32, 32, 1, 0),  make_delta(2, 4, 32, 32, 0, 1),
                            make_delta(1, 2, 128, 128, 0, 0)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct subject *s = &all[i];
        struct bench b;
        struct hearth_err e;
        float *in = malloc(N * s->n_mix * sizeof *in), *want = malloc(2 * N * s->n_att * sizeof *want);
        float *got = want + N * s->n_att, *state = malloc(2 * s->n_state * sizeof *state), *left = state + s->n_state;
        assert_true(in && want && state);
        random_floats(7 + i, in, (size_t)N * s->n_mix);
        bench_open(&b, s);
        ok(run(&b, s, 0, N, in, want, &e), &e);
        save(&b, state);
        for (int way = 0; way < 4; way++) {
            for (uint32_t pos = 0, n; pos < N; pos += n) {
                n = way == 0 || way == 3 ? 1 : 1 + (pos * 7 + 3) % (way == 1 ? 5 : 40);
                n = N - pos < n ? N - pos : n;
                if (way >= 2)
                    b.page[0][1] = b.page[0][0];
                ok(run(&b, s, pos, n, in + (size_t)pos * s->n_mix, got + (size_t)pos * s->n_att, &e), &e);
            }
            save(&b, left);
            assert_memory_equal(got, want, N * s->n_att * sizeof *got);
            assert_memory_equal(left, state, s->n_state * sizeof *left);
            b.page[0][0] = 0, b.page[0][1] = 1;
        }
        bench_close(&b);
        forget(&all[i]);
        free(in), free(want), free(state);
    }
}

/* The CPU's variants are bit-identical to the reference: with heads of one vector width, of several, and of neither. */
static void variants_agree(void **unused)
{
    (void)unused;
    enum { N = 40 };
    static const char *const variants[] = {"reference", "avx2", "avxvnni", "avx512"};
    struct subject all[] = {make_shortconv(72, 3),           make_delta(2, 4, 16, 24, 0, 0),
                            make_delta(2, 6, 32, 16, 1, 0),  make_delta(1, 2, 128, 128, 0, 0),
                            make_delta(1, 2, 24, 88, 0, 1),  make_mamba2(4, 16, 24, 2, false),
                            make_mamba2(3, 72, 16, 1, true), make_mamba2(2, 100, 20, 1, false)};
    const char *chosen = states_variant;
    for (size_t i = 0; i < sizeof all / sizeof *all && !states_gpu; i++) {
        const struct subject *s = &all[i];
        struct hearth_err e;
        float *in = malloc(N * s->n_mix * sizeof *in), *out = malloc(2 * N * s->n_att * sizeof *out);
        float *state = malloc(2 * s->n_state * sizeof *state);
        assert_true(in && out && state);
        random_floats(13 + i, in, (size_t)N * s->n_mix);
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            struct device *d = rig_device(states_backend, states_variant = variants[v], 1);
            struct bench b;
            if (!d)
                continue;
            states_backend->close(d);
            bench_open(&b, s);
            ok(run(&b, s, 0, N, in, out + (v ? N * s->n_att : 0), &e), &e);
            save(&b, state + (v ? s->n_state : 0));
            bench_close(&b);
            if (v && (memcmp(out, out + N * s->n_att, N * s->n_att * sizeof *out) ||
                      memcmp(state, state + s->n_state, s->n_state * sizeof *state)))
                fail_msg("%s: other bits of %s %zu", variants[v], s->name, i);
        }
        free(in), free(out), free(state);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        forget(&all[i]);
    states_variant = chosen;
    if (states_gpu)
        skip();
}

/* A state from within a step has the bits of the state after a step of only those rows, and changes nothing else; also
 * after the first row, within the taps of a convolution and after the last row but one. */
static void states_come_from_within(void **unused)
{
    (void)unused;
    enum { N = 60, BEFORE = 7 };
    static const uint32_t at[] = {1, 2, 3, 33, N - 1};
    struct subject all[] = {make_shortconv(72, 3), make_shortconv(64, 4), make_delta(2, 4, 16, 24, 0, 0),
                            make_delta(2, 6, 32, 16, 1, 0), make_mamba2(4, 16, 24, 2, false)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct subject *s = &all[i];
        struct bench b;
        struct hearth_err e;
        struct device_info info;
        float *in = malloc((BEFORE + N) * s->n_mix * sizeof *in), *want = malloc(2 * N * s->n_att * sizeof *want);
        float *got = want + N * s->n_att, *state = malloc(2 * s->n_state * sizeof *state), *left = state + s->n_state;
        assert_true(in && want && state);
        random_floats(11 + i, in, (size_t)(BEFORE + N) * s->n_mix);
        bench_open(&b, s);
        b.be->info(b.d, &info);
        for (size_t k = 0; k < sizeof at / sizeof *at && info.states_within; k++) {
            const float *rows = in + (size_t)BEFORE * s->n_mix;
            ok(run(&b, s, 0, BEFORE, in, got, &e), &e);
            b.n_within = at[k];
            ok(run(&b, s, BEFORE, N, rows, want, &e), &e);
            b.n_within = 0;
            save_page(&b, b.page[0][2], left);
            ok(run(&b, s, 0, BEFORE, in, got, &e), &e);
            ok(run(&b, s, BEFORE, at[k], rows, got, &e), &e);
            save(&b, state);
            assert_memory_equal(left, state, s->n_state * sizeof *left);
            ok(run(&b, s, BEFORE + at[k], N - at[k], rows + (size_t)at[k] * s->n_mix, got + (size_t)at[k] * s->n_att,
                   &e),
               &e);
            assert_memory_equal(got, want, N * s->n_att * sizeof *got);
        }
        b.n_within = N;
        if (info.states_within) {
            assert_int_equal(run(&b, s, 0, N, in, got, &e), HEARTH_EPARAMS);
            assert_non_null(strstr(e.msg, "after row 60 of 60"));
        }
        bench_close(&b);
        forget(&all[i]);
        free(in), free(want), free(state);
    }
    if (states_gpu)
        skip();
}

/* Shapes that do not fit each other, the pool, or the reserved workspace. */
static void refused(void **state)
{
    (void)state;
    struct subject s = make_delta(2, 4, 16, 16, 0, 0);
    struct bench b;
    struct hearth_err e;
    float *in = calloc(ROWS * COLS_MAX, sizeof *in), *out = calloc(ROWS * COLS_MAX, sizeof *out);
    bench_open(&b, &s);
    struct op_delta wrong[8];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        wrong[i] = s.op.delta;
    wrong[0].n_k = 3, wrong[1].d_k = 0, wrong[2].d_k = 17, wrong[3].group = 1, wrong[4].layer = 1;
    wrong[5].conv.n_tap = 1, wrong[6].conv.n_tap = 99, wrong[7].d_v = 100000;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct subject of = s;
        of.op.delta = wrong[i];
        if (run(&b, &of, 0, 3, in, out, &e) != HEARTH_EPARAMS)
            fail_msg("wrong shape %zu was taken", i);
        assert_non_null(strstr(e.msg, "delta"));
    }
    ok(run(&b, &s, 0, 3, in, out, &e), &e);
    b.page[0][0] =
        99; /* a page that the pool does not have: harmless at position 0, where no state is read, but not later */
    ok(run(&b, &s, 0, 3, in, out, &e), &e);
    b.page[0][0] = 99;
    assert_int_not_equal(run(&b, &s, 3, 3, in, out, &e), 0);
    assert_non_null(strstr(e.msg, "page 99"));
    bench_close(&b);
    struct kv_pool *pool;
    struct kv_desc both = {.n_layer = 1, .n_kv = 1, .d_k = 16, .d_v = 16, .n_page = 1, .d_state = 8, .type = DT_F32};
    b.d = rig_device(b.be, states_variant, 1);
    assert_int_equal(b.be->kv_new(b.d, &both, &pool, &e), HEARTH_EPARAMS);
    b.be->close(b.d);
    forget(&s);
    free(in), free(out);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_right),          cmocka_unit_test(long_timelines_do_not_drift),
        cmocka_unit_test(cuts_do_not_matter),      cmocka_unit_test(variants_agree),
        cmocka_unit_test(states_come_from_within), cmocka_unit_test(refused)};
    return states_main(argc, argv, "states", tests, sizeof tests / sizeof *tests);
}
