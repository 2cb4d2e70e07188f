/*
 * experts.c - the ops of mixtures of experts against an independent computation in double precision, and what they
 * promise: the same bits in every variant, alone and among others; refusals with a reason. route.c has the router.
 *
 *     tests/ops/experts [BACKEND [fast] [host]]   as tests/ops/ops; fast: steps outside the invariant mode, in which
 * bits may depend on the rows beside
 *
 * A GPU rounds activations to fp16 where they enter a product.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/experts-bench.h"

static double tolerance = 4e-6;

struct experts_case {
    const char *name;
    enum dtype type[3]; /* of gate, up, down */
    uint32_t d, d_ff, n, used;
    enum glu_kind glu;
    bool bias;
    float residual_scale;
    bool factors; /* each expert's matrices have one of their own */
};
#define OF_TYPE(t, T, number) {#t, {DT_##T, DT_##T, DT_##T}, 512, 256, 6, 2, GLU_SWIGLU, false, 0},
static const struct experts_case experts_cases[] = {
    QUANTS(OF_TYPE){"one of one", {DT_F32, DT_F32, DT_F32}, 1, 1, 1, 1, GLU_SWIGLU, false, 0},
    {"odd widths", {DT_F16, DT_BF16, DT_F32}, 515, 33, 5, 3, GLU_GEGLU, true, 0.4f},
    {"gpt-oss", {DT_MXFP4, DT_MXFP4, DT_MXFP4}, 576, 544, 9, 4, GLU_OAI, true, 0},
    {"more tiles than processors", {DT_MXFP4, DT_MXFP4, DT_MXFP4}, 2880, 288, 5, 4, GLU_OAI, true, 0},
    {"many, few each", {DT_Q8_0, DT_Q8_0, DT_Q4_0}, 64, 32, 200, 8, GLU_SWIGLU, false, 0},
    {"types mixed", {DT_Q4_K, DT_Q5_K, DT_Q6_K}, 256, 512, 4, 2, GLU_SWIGLU, true, 0},
    {"all of them", {DT_Q8_0, DT_Q8_0, DT_Q8_0}, 96, 64, 4, 4, GLU_SWIGLU, false, 0},
    {"ungated", {DT_F16, DT_F16, DT_F16}, 40, 72, 7, 3, GLU_RELU2, true, 0},
    {"factors", {DT_NVFP4, DT_NVFP4, DT_NVFP4}, 256, 128, 6, 2, GLU_SWIGLU, false, 0, true},
    {"factors of types mixed", {DT_F16, DT_Q8_0, DT_Q4_K}, 512, 256, 5, 3, GLU_OAI, true, 0.4f, true},
};

struct experts_numbers {
    uint8_t *packed[3]; /* [n] matrices, one after the other */
    const void *list[3][N_MAX];
    float factor[3][N_MAX];
    float *exact[3]; /* the same in F32, times the factors */
    float x[ROWS * D_MAX], route[ROWS * 2 * 8], hidden[ROWS * 8 * D_MAX], norm[D_MAX];
    float *bias_up, *bias_down;
    uint32_t n_in[3], n_out[3];
};

/* Every row goes to other experts, of which some are nobody's, and one, where there are many, nearly everybody's. */
static void made_up_route(const struct experts_case *c, float *route)
{
    uint32_t state = 3;
    for (uint32_t r = 0; r < ROWS; r++) {
        bool used[N_MAX] = {false};
        for (uint32_t k = 0; k < c->used; k++) {
            uint32_t e = k == 0 && r % 8 ? c->n / 2 : (state = state * 1664525 + 1013904223) / 256 % c->n;
            while (used[e])
                e = (e + 1) % c->n;
            used[e] = true;
            route[r * 2 * c->used + k] = (float)e;
            route[r * 2 * c->used + c->used + k] = (float)(k + 1) / (float)(r + 2);
        }
    }
}

static void experts_init(struct experts_numbers *n, const struct experts_case *c)
{
    const uint32_t in[3] = {c->d, c->d, c->d_ff}, out[3] = {c->d_ff, c->d_ff, c->d};
    for (int i = 0; i < 3; i++) {
        size_t bytes = dtype_bytes(c->type[i], (uint64_t)in[i] * out[i]);
        n->n_in[i] = in[i], n->n_out[i] = out[i];
        n->packed[i] = random_matrix(10 + (uint64_t)i, c->type[i], in[i], out[i] * c->n);
        n->exact[i] = malloc((size_t)in[i] * out[i] * c->n * sizeof *n->exact[i]);
        assert_non_null(n->exact[i]);
        dtype_get(c->type[i])->to_f32(n->packed[i], n->exact[i], (size_t)in[i] * out[i] * c->n);
        for (uint32_t e = 0; e < c->n; e++) {
            n->list[i][e] = n->packed[i] + e * bytes;
            n->factor[i][e] = c->factors ? 0.3f + 0.25f * (float)((e + (uint32_t)i) % 5) : 1;
            for (size_t k = 0, size = (size_t)in[i] * out[i]; k < size; k++)
                n->exact[i][e * size + k] *= n->factor[i][e];
        }
    }
    random_floats(20, n->x, (size_t)ROWS * c->d);
    random_floats(21, n->hidden, (size_t)ROWS * c->used * c->d_ff);
    random_floats(22, n->norm, c->d);
    n->bias_up = malloc((size_t)2 * c->n * c->d_ff * sizeof *n->bias_up);
    n->bias_down = malloc((size_t)c->n * c->d * sizeof *n->bias_down);
    assert_true(n->bias_up && n->bias_down);
    random_floats(23, n->bias_up, (size_t)2 * c->n * c->d_ff);
    random_floats(24, n->bias_down, (size_t)c->n * c->d);
    for (size_t i = 0; i < (size_t)2 * c->n * c->d_ff; i++)
        n->bias_up[i] *= 8; /* so that what is clamped is */
    made_up_route(c, n->route);
}

static void experts_fini(struct experts_numbers *n)
{
    for (int i = 0; i < 3; i++)
        free(n->packed[i]), free(n->exact[i]);
    free(n->bias_up), free(n->bias_down);
}

static struct weight experts_weight(const struct experts_case *c, const struct experts_numbers *n, bool down)
{
    int first = down ? 2 : glu_gated(c->glu) ? 0 : 1, n_part = !down && glu_gated(c->glu) ? 2 : 1;
    struct weight w = {.role = down ? WEIGHT_EXPERTS_DOWN : WEIGHT_EXPERTS_UP,
                       .n_in = n->n_in[first],
                       .n_part = (uint32_t)n_part,
                       .n_expert = c->n};
    for (int i = 0; i < n_part; i++) {
        w.part[i] = (struct weight_part){.type = c->type[first + i],
                                         .n_out = n->n_out[first],
                                         .expert = n->list[first + i],
                                         .expert_scale = c->factors ? n->factor[first + i] : NULL};
        w.n_out += n->n_out[first];
    }
    return w;
}

/* Rows [row0, row0 + n_row) in one step: the hidden rows, and what is added to the residual stream of made-up ones. */
static bool experts_rows(const struct experts_case *c, const struct experts_numbers *n, const char *variant,
                         uint32_t threads, uint32_t row0, uint32_t n_row, float *hidden, float *x)
{
    struct bench b;
    struct hearth_err e;
    uint32_t width = c->used * c->d_ff;
    if (!bench_open(&b, variant, threads))
        return false;
    struct weight up = experts_weight(c, n, false), down = experts_weight(c, n, true);
    up.host = down.host = rig_host;
    bench_ok(b.be->weight_load(b.d, &up, &e), &e);
    bench_ok(b.be->weight_load(b.d, &down, &e), &e);
    bool gated = glu_gated(c->glu);
    struct op ops[2] = {
        {.kind = OP_EXPERTS_UP,
         .experts_up = {.norm = {NORM_RMS, 1e-5f, bench_vec(&b, n->norm, c->d), NULL},
                        .w = &up,
                        .bias = bench_vec(&b, c->bias ? n->bias_up : NULL, (gated ? 2 : 1) * c->n * c->d_ff),
                        .glu = c->glu,
                        .n_used = c->used}},
        {.kind = OP_EXPERTS_DOWN,
         .experts_down = {.w = &down,
                          .bias = bench_vec(&b, c->bias ? n->bias_down : NULL, c->n * c->d),
                          .residual_scale = c->residual_scale,
                          .n_used = c->used}}};
    for (int i = 0; i < 2; i++) {
        const float *route = n->route + (size_t)row0 * 2 * c->used;
        bench_ok(b.be->act_write(b.d, ACT_X, 0, n_row, c->d, n->x + (size_t)row0 * c->d, &e), &e);
        bench_ok(b.be->act_write(b.d, ACT_ROUTE, 0, n_row, 2 * c->used, route, &e), &e);
        if (i == 1)
            bench_ok(b.be->act_write(b.d, ACT_EXPERTS, 0, n_row, width, n->hidden + (size_t)row0 * width, &e), &e);
        bench_ok(bench_run(&b, &ops[i], n_row, &e), &e);
        if (i == 0)
            bench_ok(b.be->act_read(b.d, ACT_EXPERTS, 0, n_row, hidden, &e), &e);
        else
            bench_ok(b.be->act_read(b.d, ACT_X, 0, n_row, x, &e), &e);
    }
    bench_close(&b);
    return true;
}

static double activated(enum glu_kind kind, double g, double u)
{
    switch (kind) {
    case GLU_SWIGLU:
        return g / (1 + exp(-g)) * u;
    case GLU_GEGLU:
        return 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
    case GLU_OAI:
        g = fmin(g, 7), u = fmax(fmin(u, 7), -7);
        return g / (1 + exp(-1.702 * g)) * (u + 1);
    default:
        return u > 0 ? u * u : 0;
    }
}

static double product(const float *w, const double *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)w[i] * x[i];
    return sum;
}

static void near_row(const struct experts_case *c, const char *what, uint32_t row, const float *got, const double *want,
                     uint32_t n)
{
    double most = 1e-6;
    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, fabs(want[i]));
    for (uint32_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * most))
            fail_msg("%s, %s, row %u, column %u: %.9g, exactly %.9g (greatest of the row %.3g)", c->name, what, row, i,
                     (double)got[i], want[i], most);
}

static void check_experts_row(const struct experts_case *c, const struct experts_numbers *n, uint32_t row,
                              const float *hidden, const float *x)
{
    double in[D_MAX], want[D_MAX], square = 0, sum[D_MAX] = {0};
    const float *route = n->route + (size_t)row * 2 * c->used;
    for (uint32_t i = 0; i < c->d; i++)
        square += (double)n->x[row * c->d + i] * (double)n->x[row * c->d + i] / c->d;
    for (uint32_t i = 0; i < c->d; i++)
        in[i] = (double)n->x[row * c->d + i] / sqrt(square + 1e-5) * (double)n->norm[i];
    for (uint32_t k = 0; k < c->used; k++) {
        size_t e = (size_t)route[k], gated = glu_gated(c->glu) ? 1 : 0;
        double given[D_MAX];
        for (uint32_t o = 0; o < c->d_ff; o++) {
            double g = product(n->exact[0] + (e * c->d_ff + o) * c->d, in, c->d);
            double u = product(n->exact[1] + (e * c->d_ff + o) * c->d, in, c->d);
            if (c->bias)
                g += (double)n->bias_up[e * c->d_ff + o], u += (double)n->bias_up[(gated * c->n + e) * c->d_ff + o];
            want[o] = activated(c->glu, g, u);
            given[o] = (double)n->hidden[(row * c->used + k) * c->d_ff + o];
        }
        near_row(c, "up", row, hidden + k * c->d_ff, want, c->d_ff);
        for (uint32_t o = 0; o < c->d; o++)
            sum[o] += (double)route[c->used + k] * (product(n->exact[2] + (e * c->d + o) * c->d_ff, given, c->d_ff) +
                                                    (c->bias ? (double)n->bias_down[e * c->d + o] : 0));
    }
    for (uint32_t o = 0; o < c->d; o++)
        want[o] = (double)n->x[row * c->d + o] + sum[o] * (c->residual_scale != 0 ? (double)c->residual_scale : 1);
    near_row(c, "down", row, x, want, c->d);
}

static void experts_are_exact(void **state)
{
    const struct experts_case *c = *state;
    static struct experts_numbers n;
    static float hidden[2][ROWS * 8 * D_MAX], x[2][ROWS * D_MAX];
    size_t width = (size_t)c->used * c->d_ff;
    experts_init(&n, c);
    experts_rows(c, &n, "reference", 1, 0, ROWS, hidden[0], x[0]);
    for (uint32_t r = 0; r < ROWS; r++)
        check_experts_row(c, &n, r, hidden[0] + r * width, x[0] + r * c->d);
    for (size_t v = 0; bench_variants[v]; v++)
        for (uint32_t row0 = 0, m; row0 < ROWS; row0 += m) { /* together, then in pieces: alone, few, the rest */
            m = row0 == 0 ? 1 : row0 == 1 ? 5 : ROWS - row0;
            if (!experts_rows(c, &n, bench_variants[v], 3, row0, m, hidden[1] + row0 * width, x[1] + row0 * c->d))
                break;
            for (uint32_t r = row0; r < row0 + m && bench_fast; r++)
                check_experts_row(c, &n, r, hidden[1] + r * width, x[1] + r * c->d);
            if (bench_fast)
                continue;
            assert_memory_equal(hidden[0] + row0 * width, hidden[1] + row0 * width, m * width * sizeof(float));
            assert_memory_equal(x[0] + row0 * c->d, x[1] + row0 * c->d, m * c->d * sizeof(float));
        }
    experts_fini(&n);
}

/* NaN in a matrix of an expert: in hidden units or results of the rows that go there, in no others. */
static void nan_in_an_expert_is_seen(void **state)
{
    const struct experts_case *c = *state;
    static struct experts_numbers n;
    static float hidden[2][ROWS * 8 * D_MAX], x[2][ROWS * D_MAX];
    uint32_t bad = c->n / 2;
    for (int i = glu_gated(c->glu) ? 0 : 1; i < 3; i++) {
        experts_init(&n, c);
        uint32_t out = n.n_out[i] / 2;
        experts_rows(c, &n, "auto", 2, 0, ROWS, hidden[0], x[0]);
        if (!nan_block(c->type[i], (uint8_t *)n.list[i][bad] + out * dtype_bytes(c->type[i], n.n_in[i]))) {
            experts_fini(&n);
            continue;
        }
        experts_rows(c, &n, "auto", 2, 0, ROWS, hidden[1], x[1]);
        for (uint32_t row = 0; row < ROWS; row++) {
            bool goes = false;
            for (uint32_t k = 0; k < c->used; k++) {
                bool here = n.route[row * 2 * c->used + k] == (float)bad;
                size_t at = ((size_t)row * c->used + k) * c->d_ff;
                goes |= here;
                if (i < 2 && here && !isnan(hidden[1][at + out]))
                    fail_msg("%s: NaN in matrix %d: row %u has a number", c->name, i, row);
                if (!here)
                    assert_memory_equal(hidden[0] + at, hidden[1] + at, c->d_ff * sizeof **hidden);
            }
            if (i == 2 && goes && !isnan(x[1][row * c->d + out]))
                fail_msg("%s: NaN in matrix %d: row %u has a number", c->name, i, row);
            if (!goes)
                assert_memory_equal(x[0] + row * c->d, x[1] + row * c->d, c->d * sizeof **x);
        }
        experts_fini(&n);
    }
}

/* --- a shared expert beside them -------------------------------------------------------------------------- */

enum { UP, OWN_UP, DOWN, OWN_DOWN, N_WEIGHT };

/* Loads the experts, and a shared one, which has the matrices of expert 1, or a network of `width` experts' numbers. */
static void beside_load(struct weight *w, struct bench *b, const struct experts_case *c,
                        const struct experts_numbers *n, uint32_t width)
{
    struct hearth_err e;
    w[UP] = w[OWN_UP] = experts_weight(c, n, false), w[DOWN] = w[OWN_DOWN] = experts_weight(c, n, true);
    w[OWN_UP].role = WEIGHT_GATE_UP, w[OWN_DOWN].role = WEIGHT_PROJ;
    w[OWN_UP].n_expert = w[OWN_DOWN].n_expert = 0;
    for (int i = 0; i < 3; i++) {
        struct weight_part *p = i < 2 ? &w[OWN_UP].part[i] : &w[OWN_DOWN].part[0];
        p->data = p->expert[width == 1], p->expert = NULL;
        p->n_out *= i < 2 ? width : 1;
    }
    w[OWN_UP].n_out *= width, w[OWN_DOWN].n_in *= width;
    for (int i = 0; i < N_WEIGHT; i++) {
        w[i].host = rig_host;
        bench_ok(b->be->weight_load(b->d, &w[i], &e), &e);
    }
}

static void beside_close(struct weight *w, struct bench *b)
{
    for (int i = 0; i < N_WEIGHT; i++)
        b->be->weight_free(b->d, &w[i]);
    bench_close(b);
}

/* `gate` is what the shared expert's result is multiplied by a sigmoid of, or NULL. */
static void beside_rows(const struct experts_case *c, const struct experts_numbers *n, const float *gate, uint32_t row0,
                        uint32_t n_row, float *x)
{
    struct bench b;
    struct hearth_err e;
    assert_true(bench_open(&b, "auto", 3));
    struct weight w[N_WEIGHT];
    beside_load(w, &b, c, n, 1);
    struct norm norm = {NORM_RMS, 1e-5f, bench_vec(&b, n->norm, c->d), NULL};
    struct op ops[4] = {
        {.kind = OP_EXPERTS_UP, .experts_up = {.norm = norm, .w = &w[UP], .glu = c->glu, .n_used = c->used}},
        {.kind = OP_FFN_UP,
         .ffn_up = {.norm = norm, .w = &w[OWN_UP], .glu = c->glu, .row_gate = bench_vec(&b, gate, c->d)}},
        {.kind = OP_EXPERTS_DOWN,
         .experts_down = {.w = &w[DOWN], .residual_scale = c->residual_scale, .n_used = c->used}},
        {.kind = OP_PROJ, .proj = {.in = ACT_FF, .w = &w[OWN_DOWN], .residual_scale = c->residual_scale}}};
    const float *route = n->route + (size_t)row0 * 2 * c->used;
    bench_ok(b.be->act_write(b.d, ACT_X, 0, n_row, c->d, n->x + (size_t)row0 * c->d, &e), &e);
    bench_ok(b.be->act_write(b.d, ACT_ROUTE, 0, n_row, 2 * c->used, route, &e), &e);
    bench_ok(bench_run_ops(&b, ops, 4, n_row, &e), &e);
    bench_ok(b.be->act_read(b.d, ACT_X, 0, n_row, x, &e), &e);
    beside_close(w, &b);
}

/* One expert's result of norm(x), times `by`, to sum. */
static void add_expert(const struct experts_case *c, const struct experts_numbers *n, size_t e, const double *in,
                       double by, double *sum)
{
    double hidden[D_MAX];
    for (uint32_t o = 0; o < c->d_ff; o++)
        hidden[o] = activated(c->glu, product(n->exact[0] + (e * c->d_ff + o) * c->d, in, c->d),
                              product(n->exact[1] + (e * c->d_ff + o) * c->d, in, c->d));
    for (uint32_t o = 0; o < c->d; o++)
        sum[o] += by * product(n->exact[2] + (e * c->d + o) * c->d_ff, hidden, c->d_ff);
}

static const struct experts_case beside_cases[] = {
    {"beside: Q4_K", {DT_Q4_K, DT_Q4_K, DT_Q4_K}, 512, 256, 6, 2, GLU_SWIGLU, false, 0, false},
    {"beside: Q4_K and Q6_K", {DT_Q4_K, DT_Q4_K, DT_Q6_K}, 512, 512, 9, 8, GLU_SWIGLU, false, 0.4f, false},
    {"beside: Q8_0", {DT_Q8_0, DT_Q8_0, DT_Q8_0}, 96, 64, 4, 3, GLU_GEGLU, false, 0, false},
    {"beside: Q4_K and Q8_0", {DT_Q4_K, DT_Q4_K, DT_Q8_0}, 512, 288, 9, 8, GLU_GEGLU, false, 0, false},
    {"beside: F16", {DT_F16, DT_F16, DT_F16}, 72, 33, 5, 2, GLU_SWIGLU, false, 0, false},
};

/* A GPU may compute it as one more of a row's experts. In an invariant step a row's bits are its own. */
static void a_shared_expert_is_beside_them(void **state)
{
    const struct experts_case *c = *state;
    static struct experts_numbers n;
    static float together[ROWS * D_MAX], x[ROWS * D_MAX];
    experts_init(&n, c);
    for (int gated = 0; gated < 2; gated++) {
        const float *gate = gated ? n.hidden : NULL;
        beside_rows(c, &n, gate, 0, ROWS, together);
        for (uint32_t row0 = 0, m; row0 < ROWS; row0 += m) {
            m = row0 == 0 ? 1 : row0 == 1 ? 3 : ROWS - row0;
            beside_rows(c, &n, gate, row0, m, x + row0 * c->d);
            if (!bench_fast)
                assert_memory_equal(together + row0 * c->d, x + row0 * c->d, m * c->d * sizeof(float));
        }
        for (uint32_t row = 0; row < ROWS; row++) {
            double in[D_MAX], want[D_MAX], sum[D_MAX] = {0}, square = 0, by = 0;
            const float *from = n.x + row * c->d, *route = n.route + (size_t)row * 2 * c->used;
            for (uint32_t i = 0; i < c->d; i++)
                square += (double)from[i] * (double)from[i] / c->d;
            for (uint32_t i = 0; i < c->d; i++)
                in[i] = (double)from[i] / sqrt(square + 1e-5) * (double)n.norm[i];
            for (uint32_t k = 0; k < c->used; k++)
                add_expert(c, &n, (size_t)route[k], in, (double)route[c->used + k], sum);
            for (uint32_t i = 0; gate && i < c->d; i++)
                by += (double)gate[i] * in[i];
            add_expert(c, &n, 1, in, gate ? 1 / (1 + exp(-by)) : 1, sum);
            for (uint32_t o = 0; o < c->d; o++)
                want[o] = (double)from[o] + sum[o] * (c->residual_scale != 0 ? (double)c->residual_scale : 1);
            near_row(c, gated ? "gated" : "not gated", row, x + row * c->d, want, c->d);
            near_row(c, gated ? "gated, together" : "together", row, together + row * c->d, want, c->d);
        }
    }
    experts_fini(&n);
}

/* What a route that is none would do to memory. */
static void a_wrong_route_is_refused(void **state)
{
    (void)state;
    static const float wrong[][4] = {{0, 6, 1, 1}, {-1, 0, 1, 1}, {NAN, 1, 1, 1}, {1e9f, 1, 1, 1}};
    const struct experts_case *c = &experts_cases[0];
    static struct experts_numbers n;
    struct bench b;
    struct hearth_err e;
    if (bench_info.gpu) /* which reads a route that its own router made, when the host is gone */
        skip();
    experts_init(&n, c);
    assert_true(bench_open(&b, "auto", 2));
    struct weight up = experts_weight(c, &n, false);
    struct op op = {
        .kind = OP_EXPERTS_UP,
        .experts_up = {{NORM_RMS, 1e-5f, bench_vec(&b, n.norm, c->d), NULL}, &up, NULL, GLU_SWIGLU, c->used}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bench_ok(b.be->act_write(b.d, ACT_X, 0, 1, c->d, n.x, &e), &e);
        bench_ok(b.be->act_write(b.d, ACT_ROUTE, 0, 1, 4, wrong[i], &e), &e);
        assert_int_equal(bench_run(&b, &op, 1, &e), HEARTH_EPARAMS);
        assert_non_null(strstr(e.msg, "expert"));
    }
    op.experts_up.n_used = 3; /* where the route has two */
    bench_ok(b.be->act_write(b.d, ACT_X, 0, 1, c->d, n.x, &e), &e);
    bench_ok(b.be->act_write(b.d, ACT_ROUTE, 0, 1, 4, n.route, &e), &e);
    assert_int_equal(bench_run(&b, &op, 1, &e), HEARTH_EPARAMS);
    bench_close(&b);
    experts_fini(&n);
}

/* A step of rows that decode, one a sequence. */
static void decode(struct bench *b, const struct program *p, uint32_t n_row, bool once)
{
    static const uint32_t pages[PAGES] = {0, 1, 2, 3, 4, 5, 6, 7};
    int32_t token[ROWS] = {0};
    struct batch_seq seq[ROWS];
    struct hearth_err e;
    struct batch batch = {.n_row = n_row,
                          .n_seq = n_row,
                          .token = token,
                          .seq = seq,
                          .kv = {b->kv},
                          .n_group = 1,
                          .once = once,
                          .invariant = !bench_fast};
    for (uint32_t i = 0; i < n_row; i++)
        seq[i] = (struct batch_seq){i, 1, 0, {pages}};
    bench_ok(b->be->step_wait(b->d, b->be->step_run(b->d, &batch, p), NULL, 0, &e), &e);
}

enum { STEPS = 18 };

/* Steps of several layers, of up to `most` rows, have the bits of their ops one by one; a GPU replays all but the
 * first.
 */
static void same_as_ops(struct bench *b, const struct experts_case *c, const struct op *ops, uint32_t n_op,
                        uint32_t most)
{
    static const uint32_t rows_of[] = {1, 3, 4, 1, 8, 2};
    static float x[ROWS * D_MAX], got[ROWS * D_MAX], want[ROWS * D_MAX];
    struct hearth_err e;
    struct program all = program_of(NULL, ops, n_op);
    for (uint32_t s = 0; s < STEPS; s++) {
        uint32_t rows = rows_of[s / 3] < most ? rows_of[s / 3] : most;
        random_floats(50 + s, x, (size_t)rows * c->d);
        bench_ok(b->be->act_write(b->d, ACT_X, 0, rows, c->d, x, &e), &e);
        for (uint32_t i = 0; i < n_op; i++) {
            struct program one = program_of(NULL, &ops[i], 1);
            decode(b, &one, rows, true);
        }
        bench_ok(b->be->act_read(b->d, ACT_X, 0, rows, want, &e), &e);
        bench_ok(b->be->act_write(b->d, ACT_X, 0, rows, c->d, x, &e), &e);
        decode(b, &all, rows, false);
        bench_ok(b->be->act_read(b->d, ACT_X, 0, rows, got, &e), &e);
        assert_memory_equal(got, want, sizeof(float) * rows * c->d);
        assert_memory_not_equal(got, x, sizeof(float) * rows * c->d);
    }
}

/* A router of each layer. */
static void routers_load(struct bench *b, const struct experts_case *c, struct weight route[LAYERS])
{
    static float router[LAYERS][N_MAX * D_MAX];
    struct hearth_err e;
    for (uint32_t l = 0; l < LAYERS; l++) {
        random_floats(40 + l, router[l], (size_t)c->n * c->d);
        route[l] = (struct weight){.role = WEIGHT_ROUTER, .n_in = c->d, .n_out = c->n, .n_part = 1};
        route[l].part[0] = (struct weight_part){.type = DT_F32, .n_out = c->n, .data = router[l]};
        bench_ok(b->be->weight_load(b->d, &route[l], &e), &e);
    }
}

/* Who comes after a router need not wait for the end of its kernel. */
static void layers_are_their_ops(void **state)
{
    const struct experts_case *c = *state;
    static struct experts_numbers n;
    struct bench b;
    struct hearth_err e;
    experts_init(&n, c);
    assert_true(bench_open(&b, "auto", 2));
    struct weight up = experts_weight(c, &n, false), down = experts_weight(c, &n, true), route[LAYERS];
    up.host = down.host = rig_host;
    bench_ok(b.be->weight_load(b.d, &up, &e), &e);
    bench_ok(b.be->weight_load(b.d, &down, &e), &e);
    routers_load(&b, c, route);
    struct norm norm = {NORM_RMS, 1e-5f, bench_vec(&b, n.norm, c->d), NULL};
    struct op ops[3 * LAYERS];
    for (uint32_t l = 0; l < LAYERS; l++) {
        ops[3 * l] =
            (struct op){.kind = OP_ROUTE,
                        .route = {.norm = norm, .w = &route[l], .n_used = c->used, .normalise = true, .scale = 1}};
        ops[3 * l + 1] = (struct op){.kind = OP_EXPERTS_UP,
                                     .experts_up = {.norm = norm, .w = &up, .glu = c->glu, .n_used = c->used}};
        ops[3 * l + 2] =
            (struct op){.kind = OP_EXPERTS_DOWN,
                        .experts_down = {.w = &down, .n_used = c->used, .residual_scale = c->residual_scale}};
    }
    same_as_ops(&b, c, ops, 3 * LAYERS, ROWS);
    bench_close(&b);
    experts_fini(&n);
}

static const struct experts_case behind_cases[] = {
    {"behind a product: Q4_K", {DT_Q4_K, DT_Q4_K, DT_Q4_K}, 512, 256, 6, 2, GLU_SWIGLU, false, 0, false},
    {"behind a product: Q4_K and Q6_K", {DT_Q4_K, DT_Q4_K, DT_Q6_K}, 512, 512, 9, 8, GLU_SWIGLU, false, 0.4f, false},
    {"behind a product: many", {DT_Q8_0, DT_Q8_0, DT_Q8_0}, 64, 32, 200, 8, GLU_GEGLU, false, 0, false},
    {"behind a product: more than 128 tiles", {DT_MXFP4, DT_MXFP4, DT_MXFP4}, 2880, 288, 5, 4, GLU_OAI, true, 0, false},
    {"behind a product: F16", {DT_F16, DT_F16, DT_F16}, 72, 33, 5, 2, GLU_SWIGLU, false, 0, false},
};

/* A product before a router makes the logits of a row by itself where it can. */
static void layers_behind_a_product_are_their_ops(void **state)
{
    enum { OPS = 5 };
    const struct experts_case *c = *state;
    static struct experts_numbers n;
    static float bias[N_MAX];
    static const enum route_kind kinds[3] = {ROUTE_SOFTMAX, ROUTE_SOFTMAX_CHOSEN, ROUTE_SIGMOID};
    struct bench b;
    experts_init(&n, c);
    assert_true(bench_open(&b, "auto", 2));
    struct weight w[N_WEIGHT], route[LAYERS];
    beside_load(w, &b, c, &n, 1);
    routers_load(&b, c, route);
    random_floats(47, bias, c->n);
    const float *biases = bench_vec(&b, bias, c->n),
                *up = bench_vec(&b, c->bias ? n.bias_up : NULL, 2 * c->n * c->d_ff);
    struct norm norm = {NORM_RMS, 1e-5f, bench_vec(&b, n.norm, c->d), NULL};
    struct op ops[OPS * LAYERS];
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct op layer[OPS] = {
            {.kind = OP_FFN_UP, .ffn_up = {.norm = norm, .w = &w[OWN_UP], .glu = GLU_GEGLU}},
            {.kind = OP_PROJ, .proj = {.in = ACT_FF, .w = &w[OWN_DOWN], .residual_scale = l ? 0.75f : 0}},
            {.kind = OP_ROUTE,
             .route = {.norm = norm,
                       .w = &route[l],
                       .kind = kinds[l % 3],
                       .bias = l ? biases : NULL,
                       .select_bias = l % 3 == 2 ? biases : NULL,
                       .n_used = c->used,
                       .normalise = true,
                       .scale = 1}},
            {.kind = OP_EXPERTS_UP,
             .experts_up = {.norm = norm, .w = &w[UP], .glu = c->glu, .n_used = c->used, .bias = up}},
            {.kind = OP_EXPERTS_DOWN,
             .experts_down = {.w = &w[DOWN], .n_used = c->used, .residual_scale = c->residual_scale}}};
        memcpy(ops + OPS * l, layer, sizeof layer);
    }
    same_as_ops(&b, c, ops, OPS * LAYERS, bench_fast && bench_info.gpu ? bench_info.decode_rows : ROWS);
    beside_close(w, &b);
    experts_fini(&n);
}

/* Likewise of layers with a network of another width beside the experts, results of both with norms of their own. */
static void layers_beside_a_network_are_their_ops(void **state)
{
    const struct experts_case *c = *state;
    static struct experts_numbers n;
    static float norms[5][D_MAX];
    struct norm norm[5];
    struct bench b;
    experts_init(&n, c);
    assert_true(bench_open(&b, "auto", 2));
    struct weight w[N_WEIGHT], route[LAYERS];
    beside_load(w, &b, c, &n, 2 * c->d_ff <= D_MAX ? 2 : 1);
    routers_load(&b, c, route);
    for (uint32_t i = 0; i < 5; i++) {
        random_floats(30 + i, norms[i], c->d);
        norm[i] = (struct norm){NORM_RMS, i == 1 ? 1e-3f : 1e-5f, bench_vec(&b, norms[i], c->d), NULL};
    }
    struct op ops[5 * LAYERS];
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct op layer[5] = {
            {.kind = OP_ROUTE,
             .route = {.norm = norm[0], .w = &route[l], .n_used = c->used, .normalise = true, .scale = 1}},
            {.kind = OP_EXPERTS_UP, .experts_up = {.norm = norm[0], .w = &w[UP], .glu = c->glu, .n_used = c->used}},
            {.kind = OP_FFN_UP, .ffn_up = {.norm = norm[1], .w = &w[OWN_UP], .glu = GLU_GEGLU}},
            {.kind = OP_PROJ,
             .proj = {.in = ACT_FF,
                      .w = &w[OWN_DOWN],
                      .post_norm = &norm[2],
                      .residual_scale = l ? 0.75f : 0,
                      .aside = true}},
            {.kind = OP_EXPERTS_DOWN,
             .experts_down = {.w = &w[DOWN],
                              .residual_scale = c->residual_scale,
                              .n_used = c->used,
                              .post_norm = &norm[3],
                              .aside_norm = &norm[4],
                              .x_scale = l ? 0.625f : 0}}};
        memcpy(ops + 5 * l, layer, sizeof layer);
    }
    /* of more rows whose bits are free, a GPU's dense products hand on what they have not added up yet */
    same_as_ops(&b, c, ops, 5 * LAYERS, bench_fast && bench_info.gpu ? bench_info.decode_rows : ROWS);
    beside_close(w, &b);
    experts_fini(&n);
}

/* The same of layers with a shared expert, which a GPU computes as one more of a row's: not the bits of its ops, but in
 * every step those of the same step, whether it is replayed or not, alone or behind others. */
static void layers_with_a_shared_expert_are_replayed(void **state)
{
    const struct experts_case *c = *state;
    static struct experts_numbers n;
    static float x[ROWS * D_MAX], got[ROWS * D_MAX], want[ROWS * D_MAX];
    struct bench b;
    struct hearth_err e;
    experts_init(&n, c);
    assert_true(bench_open(&b, "auto", 2));
    struct weight w[N_WEIGHT], route[LAYERS];
    beside_load(w, &b, c, &n, 1);
    routers_load(&b, c, route);
    struct norm norm = {NORM_RMS, 1e-5f, bench_vec(&b, n.norm, c->d), NULL};
    const float *gate = bench_vec(&b, n.hidden, c->d);
    struct op ops[5 * LAYERS];
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct op layer[5] = {
            {.kind = OP_ROUTE,
             .route = {.norm = norm, .w = &route[l], .n_used = c->used, .normalise = true, .scale = 1}},
            {.kind = OP_EXPERTS_UP, .experts_up = {.norm = norm, .w = &w[UP], .glu = c->glu, .n_used = c->used}},
            {.kind = OP_FFN_UP, .ffn_up = {.norm = norm, .w = &w[OWN_UP], .glu = c->glu, .row_gate = l ? gate : NULL}},
            {.kind = OP_EXPERTS_DOWN,
             .experts_down = {.w = &w[DOWN], .residual_scale = c->residual_scale, .n_used = c->used}},
            {.kind = OP_PROJ, .proj = {.in = ACT_FF, .w = &w[OWN_DOWN], .residual_scale = c->residual_scale}}};
        memcpy(ops + 5 * l, layer, sizeof layer);
    }
    struct program whole = program_of(NULL, ops, 5 * LAYERS);
    for (uint32_t s = 0; s < STEPS; s++) {
        uint32_t rows = 1 + s / 5;
        random_floats(50 + s, x, (size_t)rows * c->d);
        bench_ok(b.be->act_write(b.d, ACT_X, 0, rows, c->d, x, &e), &e);
        for (uint32_t l = 0; l < LAYERS; l++) {
            struct program one = program_of(NULL, ops + 5 * l, 5);
            decode(&b, &one, rows, true);
        }
        bench_ok(b.be->act_read(b.d, ACT_X, 0, rows, want, &e), &e);
        for (int again = 0; again < 3; again++) {
            bench_ok(b.be->act_write(b.d, ACT_X, 0, rows, c->d, x, &e), &e);
            decode(&b, &whole, rows, false);
            bench_ok(b.be->act_read(b.d, ACT_X, 0, rows, got, &e), &e);
            assert_memory_equal(got, want, sizeof(float) * rows * c->d);
        }
        assert_memory_not_equal(got, x, sizeof(float) * rows * c->d);
    }
    beside_close(w, &b);
    experts_fini(&n);
}

enum { N_BESIDE = sizeof beside_cases / sizeof *beside_cases };
enum { N_EXPERTS = sizeof experts_cases / sizeof *experts_cases };
enum { N_BEHIND = sizeof behind_cases / sizeof *behind_cases };

int main(int argc, char **argv)
{
    if (!bench_begin(argc, argv))
        return 77;
    if (bench_info.gpu)
        tolerance = 2e-3;
    struct CMUnitTest tests[3 * N_EXPERTS + 3 * N_BESIDE + N_BEHIND + 1] = {
        cmocka_unit_test(a_wrong_route_is_refused),
    };
    struct CMUnitTest *at = tests + 1;
    for (size_t i = 0; i < N_EXPERTS; i++)
        *at++ = (struct CMUnitTest){experts_cases[i].name, experts_are_exact, NULL, NULL, (void *)&experts_cases[i]};
    for (size_t i = 0; i < N_EXPERTS; i++)
        *at++ =
            (struct CMUnitTest){experts_cases[i].name, nan_in_an_expert_is_seen, NULL, NULL, (void *)&experts_cases[i]};
    for (size_t i = 0; i < N_BESIDE; i++)
        *at++ = (struct CMUnitTest){beside_cases[i].name, a_shared_expert_is_beside_them, NULL, NULL,
                                    (void *)&beside_cases[i]};
    for (size_t i = 0; i < N_EXPERTS; i++)
        *at++ = (struct CMUnitTest){experts_cases[i].name, layers_are_their_ops, NULL, NULL, (void *)&experts_cases[i]};
    for (size_t i = 0; i < N_BEHIND; i++)
        *at++ = (struct CMUnitTest){behind_cases[i].name, layers_behind_a_product_are_their_ops, NULL, NULL,
                                    (void *)&behind_cases[i]};
    for (size_t i = 0; i < N_BESIDE; i++)
        *at++ = (struct CMUnitTest){beside_cases[i].name, layers_beside_a_network_are_their_ops, NULL, NULL,
                                    (void *)&beside_cases[i]};
    for (size_t i = 0; i < N_BESIDE; i++)
        *at++ = (struct CMUnitTest){beside_cases[i].name, layers_with_a_shared_expert_are_replayed, NULL, NULL,
                                    (void *)&beside_cases[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
