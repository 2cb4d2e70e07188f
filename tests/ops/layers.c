/*
 * layers.c - what single layers need beyond a block's usual ops, against an independent computation in double
 * precision: values computed from keys and their norm, queries without keys, results that wait for another, scales of
 * the residual stream and of experts, a layer's own inputs, latent attention. All variants of the CPU are
 * bit-identical.
 *
 *     layers [cuda]
 *
 * A GPU rounds activations and KV to fp16.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/rig.h"

enum { ROWS = 5, D = 67, HEADS = 4, KV = 2, D_HEAD = 32, FF = 39, VOCAB = 11, N_LAYER = 3, D_INPUT = 16, EXPERTS = 6 };
enum { USED = 2, D_Q = HEADS * D_HEAD, D_KV = KV * D_HEAD, WIDTH = N_LAYER * D_INPUT };

/* Sizes of latent attention. */
enum { L_HEADS = 3, L_NOPE = 12, L_ROT = 16, L_QK = L_NOPE + L_ROT, L_C = 64, L_KEY = L_ROT + L_C, L_Q = 19, L_V = 10 };

/* Where the matrices of latent attention begin in `more`. */
enum { AT_KB = 1700, AT_VB = AT_KB + L_HEADS * L_C * L_NOPE, MORE = 2 * D * D };

static const char *backend = "cpu";
static bool gpu;
static double tolerance = 4e-6;
static const int32_t tokens[ROWS] = {3, 0, 10, 7, 3};

/* A device, its pool, and the numbers: matrices [out][in] in F32. */
struct bench {
    const struct backend *be;
    struct device *d;
    struct kv_pool *kv;
    float x[ROWS * D], w[D * D * 3], more[MORE], norm[3][D];
    void *host;
    float *vec[32];
    uint32_t n_vec;
};

static void ok(int rc, const struct hearth_err *e)
{
    if (rc)
        fail_msg("%s", e->msg);
}

static bool bench_open(struct bench *b, const char *variant)
{
    struct workspace_dims dims = {.d_model = D,
                                  .d_q = L_HEADS * L_KEY > D_Q ? L_HEADS * L_KEY : D_Q,
                                  .d_kv = L_KEY,
                                  .d_ff = FF,
                                  .n_vocab = VOCAB,
                                  .n_row = ROWS,
                                  .n_out = 1,
                                  .d_route = 2 * USED,
                                  .d_experts = USED * FF,
                                  .d_latent = L_HEADS * L_QK,
                                  .d_aside = D,
                                  .d_inputs = WIDTH};
    struct kv_desc desc = {
        .n_layer = 1, .n_kv = KV, .d_k = D_HEAD, .d_v = D_HEAD, .type = gpu ? DT_F16 : DT_F32, .n_page = 1};
    struct hearth_err e;
    memset(b, 0, sizeof *b);
    b->be = backend_find(backend);
    assert_non_null(b->be);
    if (!(b->d = rig_device(b->be, variant, 2)))
        return false;
    ok(b->be->reserve(b->d, &dims, &e), &e);
    ok(b->be->kv_new(b->d, &desc, &b->kv, &e), &e);
    ok(b->be->host_alloc(b->d, kv_page_bytes(&desc), &b->host, &e), &e);
    random_floats(1, b->x, ROWS * D);
    random_floats(2, b->w, sizeof b->w / sizeof *b->w);
    random_floats(3, b->more, sizeof b->more / sizeof *b->more);
    random_floats(4, b->norm[0], 3 * D);
    return true;
}

static void bench_close(struct bench *b)
{
    for (uint32_t i = 0; i < b->n_vec; i++)
        b->be->vec_free(b->d, b->vec[i]);
    b->be->host_free(b->d, b->host);
    b->be->kv_free(b->d, b->kv);
    b->be->close(b->d);
}

/* Copies a vector to where the device reads it. */
static const float *vec(struct bench *b, const float *v, size_t n)
{
    struct hearth_err e;
    assert_true(b->n_vec < sizeof b->vec / sizeof *b->vec);
    ok(b->be->vec_load(b->d, v, n, &b->vec[b->n_vec], &e), &e);
    return b->vec[b->n_vec++];
}

/* A norm with as many columns as the longest of the vectors. */
static struct norm norm_of(struct bench *b, const float *w)
{
    return (struct norm){NORM_RMS, 1e-5f, vec(b, w, D), NULL};
}

static struct weight matrix_of(struct bench *b, enum weight_role role, const float *w, uint32_t n_in, uint32_t n_out,
                               uint32_t n_part)
{
    struct hearth_err e;
    struct weight m = {.role = role, .n_in = n_in, .n_out = n_out * n_part, .n_part = n_part};
    for (uint32_t i = 0; i < n_part; i++)
        m.part[i] = (struct weight_part){.type = DT_F32, .n_out = n_out, .data = w + (size_t)i * n_out * n_in};
    ok(b->be->weight_load(b->d, &m, &e), &e);
    return m;
}

static int run(struct bench *b, const struct op *op, struct hearth_err *e)
{
    static const uint32_t page = 0;
    struct batch_seq seq = {0, ROWS, 0, {&page}};
    struct batch batch = {
        .n_row = ROWS, .n_seq = 1, .token = tokens, .seq = &seq, .kv = {b->kv}, .n_group = 1, .once = true};
    struct program p = program_of(NULL, op, 1);
    return b->be->step_wait(b->d, b->be->step_run(b->d, &batch, &p), NULL, 0, e);
}

static void give(struct bench *b, enum act a, uint32_t n_col, const float *v)
{
    struct hearth_err e;
    ok(b->be->act_write(b->d, a, 0, ROWS, n_col, v, &e), &e);
}

static void take(struct bench *b, const struct op *op, enum act a, float *out)
{
    struct hearth_err e;
    ok(run(b, op, &e), &e);
    ok(b->be->act_read(b->d, a, 0, ROWS, out, &e), &e);
}

/* --- in double precision --------------------------------------------------------------------------------- */

static void multiply(const float *w, const double *x, uint32_t n_in, uint32_t n_out, double *y)
{
    for (uint32_t o = 0; o < n_out; o++) {
        y[o] = 0;
        for (uint32_t i = 0; i < n_in; i++)
            y[o] += (double)w[o * n_in + i] * x[i];
    }
}

static void normalise(const float *w, double *v, uint32_t n)
{
    double sq = 0;
    for (uint32_t i = 0; i < n; i++)
        sq += v[i] * v[i];
    for (uint32_t i = 0; i < n; i++)
        v[i] *= (w ? (double)w[i] : 1) / sqrt(sq / n + 1e-5);
}

static void same(const char *what, const float *got, const double *want, uint32_t n)
{
    double scale = 1e-6;
    for (uint32_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(want[i]));
    for (uint32_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * scale))
            fail_msg("%s, column %u: %.9g, exactly %.9g", what, i, (double)got[i], want[i]);
}

static void row_of(const float *v, uint32_t row, uint32_t n, double *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (double)v[row * n + i];
}

/* Runs `test` with every variant; what it writes to `out` must be bit-identical. */
static void everywhere(void (*test)(struct bench *b, float *out), size_t n)
{
    static const char *const variants[2][5] = {{"reference", "avx2", "avxvnni", "avx512", "auto"},
                                               {"reference", "eager", "graph"}};
    static struct bench b;
    static float want[ROWS * D * 16], got[ROWS * D * 16];
    assert_true(n <= sizeof got / sizeof *got);
    for (size_t i = 0; i < 5 && variants[gpu][i]; i++) {
        memset(got, 0, sizeof got);
        if (!bench_open(&b, variants[gpu][i])) {
            assert_false(gpu);
            continue;
        }
        test(&b, i ? got : want);
        bench_close(&b);
        if (i && !gpu)
            assert_memory_equal(got, want, n * sizeof *got);
    }
}

/* --- qkv: values from keys; queries without keys --------------------------------------------------------- */

static void values_from_keys(struct bench *b, float *out)
{
    float ones[D];
    struct hearth_err e;
    for (uint32_t i = 0; i < D; i++)
        ones[i] = 1;
    struct norm q_norm = norm_of(b, b->norm[1]), k_norm = norm_of(b, b->norm[2]), v_norm = norm_of(b, ones);
    struct weight w = {.role = WEIGHT_QKV, .n_in = D, .n_out = D_Q + D_KV, .n_part = 2};
    w.part[0] = (struct weight_part){.type = DT_F32, .n_out = D_Q, .data = b->w};
    w.part[1] = (struct weight_part){.type = DT_F32, .n_out = D_KV, .data = b->more};
    ok(b->be->weight_load(b->d, &w, &e), &e);
    struct op op = {.kind = OP_QKV,
                    .qkv = {.n_head = HEADS,
                            .n_kv = KV,
                            .d_head = D_HEAD,
                            .norm = norm_of(b, b->norm[0]),
                            .w = &w,
                            .q_norm = &q_norm,
                            .k_norm = &k_norm,
                            .v_norm = &v_norm}};
    uint32_t page = 0;
    struct op alone = op;
    struct weight q = w;
    q.n_part = 1, q.n_out = D_Q;
    alone.qkv.w = &q;
    give(b, ACT_X, D, b->x);
    take(b, &op, ACT_Q, out);
    float *kv = out + ROWS * D_Q, again[ROWS * D_Q];
    double exact[ROWS][D_Q];
    ok(b->be->kv_transfer_wait(b->d, b->be->kv_save(b->d, b->kv, &page, &b->host, 1), &e), &e);
    dtype_get(gpu ? DT_F16 : DT_F32)->to_f32(b->host, kv, (size_t)2 * D_KV * KV_PAGE);
    for (uint32_t r = 0; r < ROWS; r++) {
        double x[D], y[D_Q], k[D_KV], v[D_KV];
        row_of(b->x, r, D, x);
        normalise(b->norm[0], x, D);
        multiply(b->w, x, D, D_Q, y);
        multiply(b->more, x, D, D_KV, k);
        memcpy(v, k, sizeof v);
        for (uint32_t h = 0; h < HEADS; h++)
            normalise(b->norm[1], y + h * D_HEAD, D_HEAD);
        same("q", out + r * D_Q, y, D_Q);
        memcpy(exact[r], y, sizeof y);
        for (uint32_t h = 0; h < KV; h++) {
            normalise(b->norm[2], k + h * D_HEAD, D_HEAD);
            normalise(NULL, v + h * D_HEAD, D_HEAD);
            same("k", kv + (h * KV_PAGE + r) * D_HEAD, k + h * D_HEAD, D_HEAD);
            same("v", kv + ((KV + h) * KV_PAGE + r) * D_HEAD, v + h * D_HEAD, D_HEAD);
        }
    }
    b->be->kv_clear(b->d, b->kv, 0); /* queries without keys are the same, and nothing is appended */
    give(b, ACT_X, D, b->x);
    take(b, &alone, ACT_Q, again);
    for (uint32_t r = 0; r < ROWS; r++)
        same("q alone", again + r * D_Q, exact[r], D_Q);
    assert_true(gpu || !memcmp(again, out, sizeof again));
    ok(b->be->kv_transfer_wait(b->d, b->be->kv_save(b->d, b->kv, &page, &b->host, 1), &e), &e);
    dtype_get(gpu ? DT_F16 : DT_F32)->to_f32(b->host, kv, (size_t)2 * D_KV * KV_PAGE);
    for (uint32_t i = 0; i < 2 * D_KV * KV_PAGE; i++)
        assert_true(kv[i] == 0);
}

/* --- a network beside the experts, experts, a scale of the residual stream ------------------------------- */

static void beside(struct bench *b, float *out)
{
    static const void *list[EXPERTS];
    struct hearth_err e;
    float ff[ROWS * FF], hidden[ROWS * USED * FF], route[ROWS * 2 * USED], aside[ROWS * D];
    struct norm first = norm_of(b, b->norm[0]), second = norm_of(b, b->norm[1]), last = norm_of(b, b->norm[2]);
    struct weight down = matrix_of(b, WEIGHT_PROJ, b->w, FF, D, 1);
    struct weight experts = {.role = WEIGHT_EXPERTS_DOWN, .n_in = FF, .n_out = D, .n_part = 1, .n_expert = EXPERTS};
    for (uint32_t i = 0; i < EXPERTS; i++) /* the experts overlap */
        list[i] = b->w + i * D;
    experts.part[0] = (struct weight_part){.type = DT_F32, .n_out = D, .expert = list};
    ok(b->be->weight_load(b->d, &experts, &e), &e);
    random_floats(10, ff, ROWS * FF);
    random_floats(11, hidden, ROWS * USED * FF);
    for (uint32_t r = 0; r < ROWS; r++) {
        route[r * 4] = (float)(r % EXPERTS), route[r * 4 + 1] = (float)((r + 2) % EXPERTS);
        route[r * 4 + 2] = 0.75f, route[r * 4 + 3] = 0.25f;
    }
    struct op ops[] = {
        {.kind = OP_PROJ, .proj = {.in = ACT_FF, .w = &down, .post_norm = &first, .aside = true}},
        {.kind = OP_EXPERTS_DOWN,
         .experts_down = {.w = &experts, .n_used = USED, .post_norm = &second, .aside_norm = &last, .x_scale = 1.5f}},
        {.kind = OP_PROJ, .proj = {.in = ACT_FF, .w = &down, .x_scale = 0.25f}},
        {.kind = OP_PROJ, .proj = {.in = ACT_FF, .w = &down, .post_norm = &first, .x_scale = 0.25f}},
    };
    assert_true(op_writes(&ops[0]) == ACT_ASIDE && op_writes(&ops[2]) == ACT_X);
    assert_true(op_reads(&ops[1]) & ACT_BIT(ACT_ASIDE) && op_columns(&ops[1], ACT_ASIDE) == D);
    give(b, ACT_FF, FF, ff);
    take(b, &ops[0], ACT_ASIDE, aside);
    give(b, ACT_X, D, b->x);
    give(b, ACT_ROUTE, 2 * USED, route);
    give(b, ACT_EXPERTS, USED * FF, hidden);
    give(b, ACT_ASIDE, D, aside);
    take(b, &ops[1], ACT_X, out);
    for (int i = 2; i < 4; i++) {
        give(b, ACT_X, D, b->x);
        give(b, ACT_FF, FF, ff);
        take(b, &ops[i], ACT_X, out + (i - 1) * ROWS * D);
    }
    for (uint32_t r = 0; r < ROWS; r++) {
        double f[FF], h[FF], x[D], plain[D], y[D], z[D], one[D], sum[D] = {0};
        row_of(ff, r, FF, f);
        row_of(b->x, r, D, x);
        multiply(b->w, f, FF, D, y);
        memcpy(plain, y, sizeof y);
        normalise(b->norm[0], y, D);
        same("aside", aside + r * D, y, D);
        for (uint32_t k = 0; k < USED; k++) {
            row_of(hidden, r * USED + k, FF, h);
            multiply(list[(uint32_t)route[r * 4 + k]], h, FF, D, one);
            for (uint32_t i = 0; i < D; i++)
                sum[i] += (double)route[r * 4 + 2 + k] * one[i];
        }
        normalise(b->norm[1], sum, D);
        for (uint32_t i = 0; i < D; i++)
            z[i] = sum[i] + y[i];
        normalise(b->norm[2], z, D);
        for (uint32_t i = 0; i < D; i++) {
            z[i] = 1.5 * (x[i] + z[i]);
            plain[i] = 0.25 * (x[i] + plain[i]);
            y[i] = 0.25 * (x[i] + y[i]);
        }
        same("experts beside", out + r * D, z, D);
        same("scaled", out + (ROWS + r) * D, plain, D);
        same("normalised, scaled", out + (2 * ROWS + r) * D, y, D);
    }
    ops[1].experts_down.post_norm = NULL;
    assert_int_equal(run(b, &ops[1], &e), HEARTH_EPARAMS);
}

static void experts_scales(struct bench *b, float *out)
{
    static const float scale[EXPERTS] = {1, -2, 0.5f, 3, 0, 0.25f};
    struct weight w = matrix_of(b, WEIGHT_ROUTER, b->w, D, EXPERTS, 1);
    struct op op = {.kind = OP_ROUTE,
                    .route = {.norm = norm_of(b, b->norm[0]), .w = &w, .n_used = USED, .normalise = true, .scale = 2}};
    float plain[ROWS * 2 * USED];
    give(b, ACT_X, D, b->x);
    take(b, &op, ACT_ROUTE, plain);
    op.route.expert_scale = vec(b, scale, EXPERTS);
    give(b, ACT_X, D, b->x);
    take(b, &op, ACT_ROUTE, out);
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t k = 0; k < USED; k++) {
            const float *was = plain + r * 2 * USED, *is = out + r * 2 * USED;
            assert_true(is[k] == was[k] && is[USED + k] == was[USED + k] * scale[(uint32_t)was[k]]);
        }
}

/* --- a layer's own inputs -------------------------------------------------------------------------------- */

static void inputs(struct bench *b, float *out)
{
    struct hearth_err e;
    struct weight proj = matrix_of(b, WEIGHT_PROJ, b->w, D, WIDTH, 1);
    struct weight table = matrix_of(b, WEIGHT_EMBED, b->more, WIDTH, VOCAB, 1);
    struct weight gate = matrix_of(b, WEIGHT_GATE_UP, b->more, D, D_INPUT, 1);
    struct op make = {.kind = OP_INPUTS,
                      .inputs = {.w = &proj,
                                 .embed = &table,
                                 .norm = norm_of(b, b->norm[0]),
                                 .d_input = D_INPUT,
                                 .w_scale = 0.125f,
                                 .embed_scale = 3,
                                 .scale = 0.7f}};
    struct op use = {.kind = OP_INPUT_GATE, .input_gate = {.w = &gate, .layer = 1, .n_layer = N_LAYER}};
    float *got = out + ROWS * WIDTH;
    assert_int_equal(op_columns(&use, ACT_INPUTS), WIDTH);
    assert_int_equal(op_columns(&use, ACT_X), D);
    give(b, ACT_X, D, b->x);
    take(b, &make, ACT_INPUTS, out);
    give(b, ACT_X, D, b->x);
    give(b, ACT_INPUTS, WIDTH, out);
    take(b, &use, ACT_FF, got);
    for (uint32_t r = 0; r < ROWS; r++) {
        double x[D], y[WIDTH], g[D_INPUT];
        row_of(b->x, r, D, x);
        multiply(b->w, x, D, WIDTH, y);
        for (uint32_t i = 0; i < WIDTH; i++)
            y[i] *= 0.125;
        for (uint32_t l = 0; l < N_LAYER; l++)
            normalise(b->norm[0], y + l * D_INPUT, D_INPUT);
        for (uint32_t i = 0; i < WIDTH; i++)
            y[i] = (y[i] + 3 * (double)b->more[(uint32_t)tokens[r] * WIDTH + i]) * (double)0.7f;
        same("inputs", out + r * WIDTH, y, WIDTH);
        multiply(b->more, x, D, D_INPUT, g);
        for (uint32_t i = 0; i < D_INPUT; i++)
            g[i] = 0.5 * g[i] * (1 + tanh(sqrt(2 / M_PI) * (g[i] + 0.044715 * g[i] * g[i] * g[i]))) * y[D_INPUT + i];
        same("input_gate", got + r * D_INPUT, g, D_INPUT);
    }
    use.input_gate.layer = N_LAYER;
    assert_int_equal(run(b, &use, &e), HEARTH_EPARAMS);
    make.inputs.d_input = D_INPUT - 1;
    assert_int_equal(run(b, &make, &e), HEARTH_EPARAMS);
}

/* --- latent attention ------------------------------------------------------------------------------------- */

static struct weight heads_of(struct bench *b, const void **list, const float *w, uint32_t n_in, uint32_t n_out)
{
    struct hearth_err e;
    struct weight m = {.role = WEIGHT_HEADS, .n_in = n_in, .n_out = n_out, .n_part = 1, .n_expert = L_HEADS};
    for (uint32_t h = 0; h < L_HEADS; h++)
        list[h] = w + h * n_in * n_out;
    m.part[0] = (struct weight_part){.type = DT_F32, .n_out = n_out, .expert = list};
    ok(b->be->weight_load(b->d, &m, &e), &e);
    return m;
}

static void turn(double *v, uint32_t pos, const float *inv_freq)
{
    for (uint32_t i = 0; i < L_ROT / 2; i++) {
        double c = cos(pos * (double)inv_freq[i]), s = sin(pos * (double)inv_freq[i]), x = v[2 * i], y = v[2 * i + 1];
        v[2 * i] = x * c - y * s;
        v[2 * i + 1] = x * s + y * c;
    }
}

/* Attention of every row in its original form: each head has its own keys and values. */
static void attend_by_heads(const struct bench *b, bool low_rank, const float *inv_freq, const float *w1,
                            const float *kb, const float *vb, double out[ROWS][L_HEADS * L_V])
{
    static double q[ROWS][L_HEADS * L_QK], c[ROWS][L_KEY];
    for (uint32_t r = 0; r < ROWS; r++) {
        double x[D], qa[L_Q];
        row_of(b->x, r, D, x);
        normalise(b->norm[0], x, D);
        multiply(b->w, x, D, low_rank ? L_Q : L_HEADS * L_QK, low_rank ? qa : q[r]);
        if (low_rank) {
            normalise(b->norm[1], qa, L_Q);
            multiply(b->more, qa, L_Q, L_HEADS * L_QK, q[r]);
        }
        for (uint32_t h = 0; h < L_HEADS; h++)
            turn(q[r] + h * L_QK + L_NOPE, r, inv_freq);
        multiply(w1, x, D, L_KEY, c[r]);
        normalise(b->norm[2], c[r], L_C);
        turn(c[r] + L_C, r, inv_freq);
        for (uint32_t h = 0; h < L_HEADS; h++) {
            double sum = 0, *o = out[r] + h * L_V, v[L_V];
            memset(o, 0, L_V * sizeof *o);
            for (uint32_t t = 0; t <= r; t++) {
                double score = 0;
                for (uint32_t i = 0; i < L_NOPE; i++) {
                    double k = 0;
                    for (uint32_t j = 0; j < L_C; j++)
                        k += (double)kb[(h * L_C + j) * L_NOPE + i] * c[t][j];
                    score += k * q[r][h * L_QK + i];
                }
                for (uint32_t i = 0; i < L_ROT; i++)
                    score += q[r][h * L_QK + L_NOPE + i] * c[t][L_C + i];
                score = exp(score * (double)0.03f);
                multiply(vb + h * L_V * L_C, c[t], L_C, L_V, v);
                sum += score;
                for (uint32_t i = 0; i < L_V; i++)
                    o[i] += score * v[i];
            }
            for (uint32_t i = 0; i < L_V; i++)
                o[i] /= sum;
        }
    }
}

static void latent_of(struct bench *b, bool low_rank, float *out)
{
    static const uint32_t page = 0;
    static const float inv_freq[L_ROT / 2] = {1, 0.5f, 0.3f, 0.2f, 0.1f, 0.05f, 0.02f, 0.01f};
    static double want[ROWS][L_HEADS * L_V];
    const void *k_list[L_HEADS], *v_list[L_HEADS];
    struct hearth_err e;
    struct kv_pool *pool;
    uint32_t n_q = low_rank ? L_Q : L_HEADS * L_QK;
    const float *w1 = b->w + L_HEADS * L_QK * D, *kb = b->more + AT_KB, *vb = b->more + AT_VB;
    struct kv_desc desc = {.n_layer = 1, .n_kv = 1, .d_k = L_KEY, .type = gpu ? DT_F16 : DT_F32, .n_page = 1};
    assert_int_equal(kv_page_bytes(&desc), KV_PAGE * L_KEY * (gpu ? 2 : 4)); /* K without V */
    ok(b->be->kv_new(b->d, &desc, &pool, &e), &e);
    struct rope rope = {ROPE_NORM, L_ROT, vec(b, inv_freq, L_ROT / 2), 1, false};
    struct norm q_norm = norm_of(b, b->norm[1]);
    struct weight w = {.role = WEIGHT_LATENT, .n_in = D, .n_out = n_q + L_KEY, .n_part = 2};
    w.part[0] = (struct weight_part){.type = DT_F32, .n_out = n_q, .data = b->w};
    w.part[1] = (struct weight_part){.type = DT_F32, .n_out = L_KEY, .data = w1};
    ok(b->be->weight_load(b->d, &w, &e), &e);
    struct weight q_b = matrix_of(b, WEIGHT_PROJ, b->more, L_Q, L_HEADS * L_QK, 1);
    struct weight k_b = heads_of(b, k_list, kb, L_NOPE, L_C), v_b = heads_of(b, v_list, vb, L_C, L_V);
    struct op ops[] = {
        {.kind = OP_LATENT,
         .latent = {.d_c = L_C,
                    .norm = norm_of(b, b->norm[0]),
                    .w = &w,
                    .q_norm = low_rank ? &q_norm : NULL,
                    .kv_norm = norm_of(b, b->norm[2]),
                    .rope = &rope}},
        {.kind = OP_LATENT_Q,
         .latent_q = {.n_head = L_HEADS,
                      .d_nope = L_NOPE,
                      .d_c = L_C,
                      .w = low_rank ? &q_b : NULL,
                      .absorb = &k_b,
                      .rope = &rope}},
        {.kind = OP_ATTEND, .attend = {.n_head = L_HEADS, .n_kv = 1, .d_head = L_KEY, .scale = 0.03f, .d_latent = L_C}},
        {.kind = OP_LATENT_OUT, .latent_out = {.w = &v_b}},
    };
    assert_true(op_columns(&ops[1], ACT_Q) == L_HEADS * L_KEY && op_columns(&ops[2], ACT_ATT) == L_HEADS * L_C);
    struct program p = program_of(NULL, ops, 4);
    assert_true(p.width[ACT_LATENT] == n_q && p.width[ACT_ATT] == L_HEADS * L_V);
    struct batch_seq seq = {0, ROWS, 0, {&page}};
    struct batch batch = {
        .n_row = ROWS, .n_seq = 1, .token = tokens, .seq = &seq, .kv = {pool}, .n_group = 1, .once = true};
    give(b, ACT_X, D, b->x);
    ok(b->be->step_wait(b->d, b->be->step_run(b->d, &batch, &p), NULL, 0, &e), &e);
    ok(b->be->act_read(b->d, ACT_ATT, 0, ROWS, out, &e), &e);
    attend_by_heads(b, low_rank, inv_freq, w1, kb, vb, want);
    for (uint32_t r = 0; r < ROWS; r++)
        same("latent attention", out + r * L_HEADS * L_V, want[r], L_HEADS * L_V);
    ops[1].latent_q.d_nope = L_NOPE - 1; /* matrices of heads with another size */
    give(b, ACT_X, D, b->x);
    assert_int_equal(b->be->step_wait(b->d, b->be->step_run(b->d, &batch, &p), NULL, 0, &e), HEARTH_EPARAMS);
    b->be->kv_free(b->d, pool);
}

static void latent(struct bench *b, float *out)
{
    latent_of(b, true, out);
    latent_of(b, false, out + ROWS * L_HEADS * L_V);
}

static void test_latent(void **state)
{
    (void)state;
    everywhere(latent, 2 * ROWS * L_HEADS * L_V);
}

static void test_values_from_keys(void **state)
{
    (void)state;
    everywhere(values_from_keys, ROWS * D_Q + 2 * D_KV * KV_PAGE);
}

static void test_beside(void **state)
{
    (void)state;
    everywhere(beside, 3 * ROWS * D);
}

static void test_experts_scales(void **state)
{
    (void)state;
    everywhere(experts_scales, ROWS * 2 * USED);
}

static void test_inputs(void **state)
{
    (void)state;
    everywhere(inputs, ROWS * (WIDTH + D_INPUT));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values_from_keys), cmocka_unit_test(test_beside),
                                       cmocka_unit_test(test_experts_scales), cmocka_unit_test(test_inputs),
                                       cmocka_unit_test(test_latent)};
    if (argc > 1)
        backend = argv[1];
    gpu = strcmp(backend, "cpu");
    if (gpu)
        tolerance = 4e-3;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
