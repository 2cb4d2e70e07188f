/*
 * experts.c - the ops of mixtures of experts against an independent computation in double precision, and what they
 * promise: the same bits in every variant, alone and among others; lower ids first; refusals with a reason.
 *
 *     tests/ops/experts [BACKEND [fast] [host]]   as tests/ops/ops; fast: steps outside the invariant mode, in which
 * bits may depend on the rows beside
 *
 * A GPU rounds activations to fp16 where they enter a product; what a router decides it computes in F32, as the CPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/rig.h"

enum { ROWS = 37, D_MAX = 600, D_ROUTE = 3208, N_MAX = 600, PAGES = 8 };

static const struct backend *backend;
static struct device_info info;
static bool fast;
static double tolerance = 4e-6, route_tolerance = 4e-6;
/* What a step's bits must not depend on. */
static const char *const cpu_variants[] = {"avx2", "avx512", "reference", NULL}, *const gpu_variants[] = {
                                                                                     "eager",  "graph", "reference",
                                                                                     "ampere", "ada",   NULL};
static const char *const *variants = cpu_variants;

/* A device with room for these ops, and pages that a step must name though they read none. */
struct bench {
    const struct backend *be;
    struct device *d;
    struct kv_pool *kv;
    float *vec[8];
    uint32_t n_vec;
};

static void ok(int rc, const struct hearth_err *e)
{
    if (rc)
        fail_msg("%s", e->msg);
}

static bool bench_open(struct bench *b, const char *variant, uint32_t threads)
{
    struct workspace_dims dims = {D_ROUTE, 64, 64, D_MAX, 16, ROWS, ROWS, 2 * EXPERTS_USED_MAX, 8 * D_MAX};
    struct kv_desc desc = {1, 1, 64, 64, 0, info.kv_type, PAGES};
    struct hearth_err e;
    memset(b, 0, sizeof *b);
    b->be = backend;
    b->d = rig_device(b->be, variant, threads);
    if (!b->d)
        return false;
    ok(b->be->reserve(b->d, &dims, &e), &e);
    ok(b->be->kv_new(b->d, &desc, &b->kv, &e), &e);
    return true;
}

static void bench_close(struct bench *b)
{
    for (uint32_t i = 0; i < b->n_vec; i++)
        b->be->vec_free(b->d, b->vec[i]);
    b->be->kv_free(b->d, b->kv);
    b->be->close(b->d);
}

static const float *vec(struct bench *b, const float *v, size_t n)
{
    struct hearth_err e;
    if (!v)
        return NULL;
    ok(b->be->vec_load(b->d, v, n, &b->vec[b->n_vec++], &e), &e);
    return b->vec[b->n_vec - 1];
}

static int run_ops(struct bench *b, const struct op *op, uint32_t n_op, uint32_t n_row, struct hearth_err *e)
{
    static const uint32_t pages[PAGES] = {0, 1, 2, 3, 4, 5, 6, 7};
    int32_t token[ROWS] = {0};
    struct batch_seq seq = {0, n_row, 0, {pages}};
    struct batch batch = {.n_row = n_row,
                          .n_seq = 1,
                          .token = token,
                          .seq = &seq,
                          .kv = {b->kv},
                          .n_group = 1,
                          .once = true,
                          .invariant = !fast};
    struct program p = program_of(NULL, op, n_op);
    return b->be->step_wait(b->d, b->be->step_run(b->d, &batch, &p), NULL, 0, e);
}

static int run(struct bench *b, const struct op *op, uint32_t n_row, struct hearth_err *e)
{
    return run_ops(b, op, 1, n_row, e);
}

/* --- route ------------------------------------------------------------------------------------------------ */

struct route_case {
    const char *name;
    uint32_t d, n, used;
    enum route_kind kind;
    bool normalise, bias, select_bias;
    float scale;
    uint32_t n_group, n_group_used, group_best;
};
static const struct route_case route_cases[] = {
    {"one of one", 8, 1, 1, ROUTE_SOFTMAX, true, .scale = 1},
    {"mixtral", 128, 8, 2, ROUTE_SOFTMAX, true, .scale = 1},
    {"qwen2moe", 96, 60, 4, ROUTE_SOFTMAX, false, .scale = 1},
    {"qwen3moe", 600, 128, 8, ROUTE_SOFTMAX, true, .scale = 1},
    {"gpt-oss", 360, 32, 4, ROUTE_SOFTMAX_CHOSEN, false, .bias = true, .scale = 1},
    {"softmax, scaled, biased", 64, 30, 6, ROUTE_SOFTMAX, false, true, true, 2.5f},
    {"glm4moe", 128, 128, 8, ROUTE_SIGMOID, true, false, true, 1.5f},
    {"sigmoid alone", 33, 17, 3, ROUTE_SIGMOID, false, .scale = 1},
    {"deepseek v3", 512, 256, 8, ROUTE_SIGMOID, true, false, true, 2.5f, 8, 4, 2},
    {"deepseek v2", 520, 160, 6, ROUTE_SOFTMAX, false, false, false, 16, 8, 3, 1},
    {"all of them", 40, 12, 12, ROUTE_SIGMOID, true, false, true, 1},
    {"all of a group", 40, 12, 3, ROUTE_SOFTMAX, true, true, true, 1, 4, 1, 3},
    {"qwen35moe", 512, 256, 8, ROUTE_SOFTMAX, true, .scale = 1},
    {"an odd number, biased", 100, 31, 5, ROUTE_SOFTMAX, true, true, true, 1},
    {"sigmoids by groups, biased", 72, 64, 6, ROUTE_SIGMOID, true, true, true, 2.5f, 8, 3, 2},
    {"long rows", D_ROUTE, 12, 3, ROUTE_SOFTMAX, true, .scale = 1},
    {"long rows, chosen first", D_ROUTE - 3, 9, 2, ROUTE_SOFTMAX_CHOSEN, false, true, .scale = 1},
    {"more than 256", 48, 300, 32, ROUTE_SIGMOID, true, false, true, 1},
    {"more than 512", 32, N_MAX, 10, ROUTE_SOFTMAX, false, .scale = 1},
};

struct route_numbers {
    float x[ROWS * D_ROUTE], w[N_MAX * D_ROUTE], norm[D_ROUTE], bias[N_MAX], select[N_MAX];
};

static void route_numbers(struct route_numbers *n, const struct route_case *c)
{
    random_floats(1, n->x, (size_t)ROWS * c->d);
    random_floats(2, n->w, (size_t)c->n * c->d);
    random_floats(3, n->norm, c->d);
    random_floats(4, n->bias, c->n);
    random_floats(5, n->select, c->n);
    for (size_t i = 0; i < (size_t)c->n * c->d; i++)
        n->w[i] *= 3 / sqrtf((float)c->d);
    for (uint32_t i = 0; i < c->n; i++)
        n->select[i] *= 0.1f;
}

static struct op route_op(struct bench *b, const struct route_case *c, const struct route_numbers *n, struct weight *w)
{
    struct hearth_err e;
    *w = (struct weight){.role = WEIGHT_ROUTER, .n_in = c->d, .n_out = c->n, .n_part = 1};
    w->part[0] = (struct weight_part){.type = DT_F32, .n_out = c->n, .data = n->w};
    ok(b->be->weight_load(b->d, w, &e), &e);
    return (struct op){.kind = OP_ROUTE,
                       .route = {.norm = {NORM_RMS, 1e-5f, vec(b, n->norm, c->d), NULL},
                                 .w = w,
                                 .bias = vec(b, c->bias ? n->bias : NULL, c->n),
                                 .select_bias = vec(b, c->select_bias ? n->select : NULL, c->n),
                                 .kind = c->kind,
                                 .n_used = c->used,
                                 .n_group = c->n_group,
                                 .n_group_used = c->n_group_used,
                                 .group_best = c->group_best,
                                 .normalise = c->normalise,
                                 .scale = c->scale}};
}

/* Rows [row0, row0 + n_row) of the input in one step. */
static int route_rows(const struct route_case *c, const struct route_numbers *n, const char *variant, uint32_t threads,
                      uint32_t row0, uint32_t n_row, float *out, struct hearth_err *e)
{
    struct bench b;
    struct weight w;
    if (!bench_open(&b, variant, threads))
        return 1;
    struct op op = route_op(&b, c, n, &w);
    ok(b.be->act_write(b.d, ACT_X, 0, n_row, c->d, n->x + (size_t)row0 * c->d, e), e);
    int rc = run(&b, &op, n_row, e);
    if (!rc)
        ok(b.be->act_read(b.d, ACT_ROUTE, 0, n_row, out, e), e);
    bench_close(&b);
    return rc;
}

/* What a router would choose in double: `choice` by expert, whether each can be chosen, and the weights before
 * `normalise`; the least difference that decided about groups. */
static double exact_scores(const struct route_case *c, const struct route_numbers *n, uint32_t row, double *choice,
                           double *score, bool *can)
{
    double logit[N_MAX], square = 0, sum = 0, margin = INFINITY;
    const float *x = n->x + (size_t)row * c->d;
    for (uint32_t i = 0; i < c->d; i++)
        square += (double)x[i] * (double)x[i] / c->d;
    for (uint32_t e = 0; e < c->n; e++) {
        logit[e] = c->bias ? (double)n->bias[e] : 0;
        for (uint32_t i = 0; i < c->d; i++)
            logit[e] += (double)x[i] / sqrt(square + 1e-5) * (double)n->norm[i] * (double)n->w[(size_t)e * c->d + i];
        sum += exp(logit[e]);
    }
    for (uint32_t e = 0; e < c->n; e++) {
        score[e] = c->kind == ROUTE_SIGMOID ? 1 / (1 + exp(-logit[e])) : exp(logit[e]);
        if (c->kind == ROUTE_SOFTMAX)
            score[e] /= sum;
        choice[e] = score[e] + (c->select_bias ? (double)n->select[e] : 0);
        can[e] = true;
    }
    uint32_t size = c->n_group > 1 ? c->n / c->n_group : c->n;
    double group[N_MAX];
    for (uint32_t g = 0; c->n_group > 1 && g < c->n_group; g++) {
        bool used[N_MAX] = {false};
        group[g] = 0;
        for (uint32_t k = 0; k < c->group_best; k++) {
            uint32_t best = size;
            for (uint32_t e = 0; e < size; e++)
                if (!used[e] && (best == size || choice[g * size + e] > choice[g * size + best]))
                    best = e;
            used[best] = true;
            group[g] += choice[g * size + best];
        }
    }
    for (uint32_t g = 0; c->n_group > 1 && g < c->n_group; g++) {
        uint32_t above = 0;
        for (uint32_t h = 0; h < c->n_group; h++) {
            above += group[h] > group[g];
            if (h != g)
                margin = fmin(margin, fabs(group[h] - group[g]));
        }
        for (uint32_t e = 0; e < size; e++)
            can[g * size + e] = above < c->n_group_used;
    }
    return margin;
}

static uint32_t n_close; /* rows whose choice rounding could change */

static void check_row(const struct route_case *c, const struct route_numbers *n, uint32_t row, const float *got)
{
    double choice[N_MAX], score[N_MAX], sum = 0, want[EXPERTS_USED_MAX];
    bool can[N_MAX];
    double margin = exact_scores(c, n, row, choice, score, can);
    uint32_t id[EXPERTS_USED_MAX];
    for (uint32_t k = 0; k < c->used; k++) {
        uint32_t best = c->n;
        for (uint32_t e = 0; e < c->n; e++)
            if (can[e] && (best == c->n || choice[e] > choice[best]))
                best = e;
        for (uint32_t e = 0; e < c->n; e++)
            if (can[e] && e != best)
                margin = fmin(margin, fabs(choice[e] - choice[best]));
        can[best] = false;
        id[k] = best;
        want[k] = score[best];
        sum += score[best];
    }
    if (margin < 1e-6) {
        n_close++;
        return;
    }
    for (uint32_t k = 0; k < c->used; k++) {
        if (c->normalise || c->kind == ROUTE_SOFTMAX_CHOSEN)
            want[k] /= sum;
        want[k] *= (double)c->scale;
        if (got[k] != (float)id[k])
            fail_msg("%s, row %u: expert %u is %g, not %u", c->name, row, k, (double)got[k], id[k]);
        if (!(fabs((double)got[c->used + k] - want[k]) <= 4 * route_tolerance * fabs(want[k])))
            fail_msg("%s, row %u: weight %u is %.9g, exactly %.9g", c->name, row, k, (double)got[c->used + k], want[k]);
    }
}

/* Rows of a step, of which a GPU's blocks have one, two, four or eight each. */
static const uint32_t route_steps[] = {1, 2, 4, 5, 8, 13, 32};

static void route_is_exact(void **state)
{
    const struct route_case *c = *state;
    static struct route_numbers n;
    float got[ROWS * 2 * EXPERTS_USED_MAX], other[ROWS * 2 * EXPERTS_USED_MAX];
    struct hearth_err e;
    size_t row = 2 * (size_t)c->used;
    route_numbers(&n, c);
    n_close = 0;
    ok(route_rows(c, &n, "reference", 1, 0, ROWS, got, &e), &e);
    for (uint32_t r = 0; r < ROWS; r++)
        check_row(c, &n, r, got + r * row);
    assert_true(n_close <= ROWS / 10);
    for (size_t v = 0; variants[v]; v++) {
        if (route_rows(c, &n, variants[v], 3, 0, ROWS, other, &e) == 1)
            continue;
        assert_memory_equal(got, other, ROWS * row * sizeof *got);
        for (size_t i = 0; i < sizeof route_steps / sizeof *route_steps; i++) {
            ok(route_rows(c, &n, variants[v], 2, 5, route_steps[i], other, &e), &e);
            assert_memory_equal(got + 5 * row, other, route_steps[i] * row * sizeof *got);
        }
    }
}

/* Experts of equal rows have equal scores to the bit: the lower ids are chosen, and come first. */
static void equal_scores_go_to_the_lower_id(void **state)
{
    (void)state;
    static struct route_numbers n;
    for (size_t i = 0; i < sizeof route_cases / sizeof *route_cases; i++) {
        struct route_case c = route_cases[i];
        float got[ROWS * 2 * EXPERTS_USED_MAX];
        struct hearth_err e;
        route_numbers(&n, &c);
        for (uint32_t k = 0; k < c.n; k++) {
            memcpy(n.w + (size_t)k * c.d, n.w, c.d * sizeof *n.w);
            n.bias[k] = n.bias[0], n.select[k] = n.select[0];
        }
        for (uint32_t rows = 1; rows <= ROWS; rows += 12) {
            ok(route_rows(&c, &n, "auto", 2, 0, rows, got, &e), &e);
            for (uint32_t k = 0; k < rows * c.used; k++) {
                const float *of = got + k / c.used * 2 * c.used;
                assert_true(of[k % c.used] == (float)(k % c.used));
                assert_memory_equal(&of[c.used + k % c.used], &of[c.used], sizeof *got);
            }
        }
    }
}

/* Of two equal experts the lower is chosen first, and the other next, if there is another to choose. */
static void twins_are_chosen_in_order(void **state)
{
    (void)state;
    static struct route_numbers n;
    for (size_t i = 0; i < sizeof route_cases / sizeof *route_cases; i++) {
        const struct route_case *c = &route_cases[i];
        float got[ROWS * 2 * EXPERTS_USED_MAX];
        struct hearth_err e;
        route_numbers(&n, c);
        for (uint32_t k = 0; k + 1 < c->n; k += 2) {
            memcpy(n.w + (size_t)(k + 1) * c->d, n.w + (size_t)k * c->d, c->d * sizeof *n.w);
            n.bias[k + 1] = n.bias[k], n.select[k + 1] = n.select[k];
        }
        if (c->n_group > 1 && c->n / c->n_group % 2)
            continue; /* twins in two groups, of which one may be left out */
        for (uint32_t rows = 1; rows <= ROWS; rows += 9) {
            ok(route_rows(c, &n, "auto", 2, 0, rows, got, &e), &e);
            for (uint32_t k = 0; k < rows * c->used; k++) {
                uint32_t at = k % c->used, id = (uint32_t)got[k / c->used * 2 * c->used + at];
                const float *of = got + k / c->used * 2 * c->used;
                bool second = id % 2, pair = (id | 1) < c->n;
                if (second && (!at || of[at - 1] != (float)(id - 1)))
                    fail_msg("%s: expert %u without the lower one before it", c->name, id);
                if (!second && pair && at + 1 < c->used && of[at + 1] != (float)(id + 1))
                    fail_msg("%s: expert %u without its equal behind it", c->name, id);
            }
        }
    }
}

/* An expert whose weights are no numbers is chosen last, where scores are its own, and no weight of a row is one. */
static void nan_in_a_router_is_seen(void **state)
{
    (void)state;
    static struct route_numbers n;
    for (size_t i = 0; i < sizeof route_cases / sizeof *route_cases; i++) {
        const struct route_case *c = &route_cases[i];
        float first[ROWS * 2 * EXPERTS_USED_MAX], got[ROWS * 2 * EXPERTS_USED_MAX];
        bool own = c->kind == ROUTE_SIGMOID || (!c->select_bias && c->n_group <= 1); /* else by a softmax, all NaN */
        uint32_t bad = c->n / 2;
        struct hearth_err e;
        route_numbers(&n, c);
        n.w[(size_t)bad * c->d + c->d / 3] = NAN;
        ok(route_rows(c, &n, "reference", 1, 0, ROWS, first, &e), &e);
        for (size_t j = 0; j < sizeof route_steps / sizeof *route_steps; j++) {
            ok(route_rows(c, &n, "auto", 2, 0, route_steps[j], got, &e), &e);
            for (uint32_t k = 0; k < route_steps[j] * c->used; k++) {
                size_t at = (size_t)k / c->used * 2 * c->used + k % c->used;
                assert_true(got[at] == first[at] && got[at] >= 0 && got[at] < (float)c->n);
                assert_true(isnan(got[at + c->used]));
                if (own && c->n_group <= 1 && c->used < c->n)
                    assert_true(got[at] != (float)bad);
            }
        }
    }
}

/* What is no number stays in its row, and is seen there. */
static void nan_stays_in_its_row(void **state)
{
    (void)state;
    static struct route_numbers n;
    for (size_t i = 0; i < sizeof route_cases / sizeof *route_cases; i++) {
        const struct route_case *c = &route_cases[i];
        float want[3 * 2 * EXPERTS_USED_MAX], got[3 * 2 * EXPERTS_USED_MAX];
        size_t row = 2 * (size_t)c->used;
        struct hearth_err e;
        route_numbers(&n, c);
        ok(route_rows(c, &n, "auto", 2, 0, 3, want, &e), &e);
        n.x[c->d + c->d / 2] = NAN;
        ok(route_rows(c, &n, "auto", 2, 0, 3, got, &e), &e);
        assert_memory_equal(want, got, row * sizeof *got);
        assert_memory_equal(want + 2 * row, got + 2 * row, row * sizeof *got);
        for (uint32_t k = 0; k < c->used; k++)
            assert_true(got[row + k] >= 0 && got[row + k] < (float)c->n && isnan(got[row + c->used + k]));
    }
}

static void what_cannot_be_chosen_is_refused(void **state)
{
    (void)state;
    static const struct route_case bad[] = {
        {"none", 8, 8, 0, ROUTE_SOFTMAX, .scale = 1},
        {"more than there are", 8, 8, 9, ROUTE_SOFTMAX, .scale = 1},
        {"more than hearth takes", 8, 64, 33, ROUTE_SOFTMAX, .scale = 1},
        {"groups that do not divide", 8, 8, 2, ROUTE_SIGMOID, .scale = 1, .n_group = 3, .n_group_used = 1,
         .group_best = 1},
        {"no group", 8, 8, 2, ROUTE_SIGMOID, .scale = 1, .n_group = 2, .n_group_used = 0, .group_best = 1},
        {"too many groups", 8, 8, 2, ROUTE_SIGMOID, .scale = 1, .n_group = 2, .n_group_used = 3, .group_best = 1},
        {"too small groups", 8, 8, 3, ROUTE_SIGMOID, .scale = 1, .n_group = 4, .n_group_used = 1, .group_best = 1},
        {"the best 3 of 2", 8, 8, 2, ROUTE_SIGMOID, .scale = 1, .n_group = 4, .n_group_used = 1, .group_best = 3},
    };
    static struct route_numbers n;
    float got[2 * EXPERTS_USED_MAX];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hearth_err e = {0};
        route_numbers(&n, &bad[i]);
        assert_int_equal(route_rows(&bad[i], &n, "auto", 1, 0, 1, got, &e), HEARTH_EPARAMS);
        if (!strstr(e.msg, "cannot be chosen"))
            fail_msg("%s: \"%s\"", bad[i].name, e.msg);
    }
}

/* --- experts_up, experts_down ----------------------------------------------------------------------------- */

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
    ok(b.be->weight_load(b.d, &up, &e), &e);
    ok(b.be->weight_load(b.d, &down, &e), &e);
    bool gated = glu_gated(c->glu);
    struct op ops[2] = {{.kind = OP_EXPERTS_UP,
                         .experts_up = {.norm = {NORM_RMS, 1e-5f, vec(&b, n->norm, c->d), NULL},
                                        .w = &up,
                                        .bias = vec(&b, c->bias ? n->bias_up : NULL, (gated ? 2 : 1) * c->n * c->d_ff),
                                        .glu = c->glu,
                                        .n_used = c->used}},
                        {.kind = OP_EXPERTS_DOWN,
                         .experts_down = {.w = &down,
                                          .bias = vec(&b, c->bias ? n->bias_down : NULL, c->n * c->d),
                                          .residual_scale = c->residual_scale,
                                          .n_used = c->used}}};
    for (int i = 0; i < 2; i++) {
        const float *route = n->route + (size_t)row0 * 2 * c->used;
        ok(b.be->act_write(b.d, ACT_X, 0, n_row, c->d, n->x + (size_t)row0 * c->d, &e), &e);
        ok(b.be->act_write(b.d, ACT_ROUTE, 0, n_row, 2 * c->used, route, &e), &e);
        if (i == 1)
            ok(b.be->act_write(b.d, ACT_EXPERTS, 0, n_row, width, n->hidden + (size_t)row0 * width, &e), &e);
        ok(run(&b, &ops[i], n_row, &e), &e);
        if (i == 0)
            ok(b.be->act_read(b.d, ACT_EXPERTS, 0, n_row, hidden, &e), &e);
        else
            ok(b.be->act_read(b.d, ACT_X, 0, n_row, x, &e), &e);
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
    for (size_t v = 0; variants[v]; v++)
        for (uint32_t row0 = 0, m; row0 < ROWS; row0 += m) { /* together, then in pieces: alone, few, the rest */
            m = row0 == 0 ? 1 : row0 == 1 ? 5 : ROWS - row0;
            if (!experts_rows(c, &n, variants[v], 3, row0, m, hidden[1] + row0 * width, x[1] + row0 * c->d))
                break;
            for (uint32_t r = row0; r < row0 + m && fast; r++)
                check_experts_row(c, &n, r, hidden[1] + r * width, x[1] + r * c->d);
            if (fast)
                continue;
            assert_memory_equal(hidden[0] + row0 * width, hidden[1] + row0 * width, m * width * sizeof(float));
            assert_memory_equal(x[0] + row0 * c->d, x[1] + row0 * c->d, m * c->d * sizeof(float));
        }
    experts_fini(&n);
}

/* --- a shared expert beside them -------------------------------------------------------------------------- */

/* It has the matrices of expert 1; `gate` is what its result is multiplied by a sigmoid of, or NULL. */
static void beside_rows(const struct experts_case *c, const struct experts_numbers *n, const float *gate, uint32_t row0,
                        uint32_t n_row, float *x)
{
    struct bench b;
    struct hearth_err e;
    assert_true(bench_open(&b, "auto", 3));
    struct weight up = experts_weight(c, n, false), down = experts_weight(c, n, true), own_up = up, own_down = down;
    own_up.role = WEIGHT_GATE_UP, own_down.role = WEIGHT_PROJ, own_up.n_expert = own_down.n_expert = 0;
    for (int i = 0; i < 3; i++) {
        struct weight_part *p = i < 2 ? &own_up.part[i] : &own_down.part[0];
        p->data = p->expert[1], p->expert = NULL;
    }
    struct weight *const all[4] = {&up, &own_up, &down, &own_down};
    for (int i = 0; i < 4; i++) {
        all[i]->host = rig_host;
        ok(b.be->weight_load(b.d, all[i], &e), &e);
    }
    struct norm norm = {NORM_RMS, 1e-5f, vec(&b, n->norm, c->d), NULL};
    struct op ops[4] = {
        {.kind = OP_EXPERTS_UP, .experts_up = {.norm = norm, .w = &up, .glu = c->glu, .n_used = c->used}},
        {.kind = OP_FFN_UP, .ffn_up = {.norm = norm, .w = &own_up, .glu = c->glu, .row_gate = vec(&b, gate, c->d)}},
        {.kind = OP_EXPERTS_DOWN, .experts_down = {.w = &down, .residual_scale = c->residual_scale, .n_used = c->used}},
        {.kind = OP_PROJ, .proj = {.in = ACT_FF, .w = &own_down, .residual_scale = c->residual_scale}}};
    const float *route = n->route + (size_t)row0 * 2 * c->used;
    ok(b.be->act_write(b.d, ACT_X, 0, n_row, c->d, n->x + (size_t)row0 * c->d, &e), &e);
    ok(b.be->act_write(b.d, ACT_ROUTE, 0, n_row, 2 * c->used, route, &e), &e);
    ok(run_ops(&b, ops, 4, n_row, &e), &e);
    ok(b.be->act_read(b.d, ACT_X, 0, n_row, x, &e), &e);
    for (int i = 0; i < 4; i++)
        b.be->weight_free(b.d, all[i]);
    bench_close(&b);
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
            if (!fast)
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
    if (info.gpu) /* which reads a route that its own router made, when the host is gone */
        skip();
    experts_init(&n, c);
    assert_true(bench_open(&b, "auto", 2));
    struct weight up = experts_weight(c, &n, false);
    struct op op = {.kind = OP_EXPERTS_UP,
                    .experts_up = {{NORM_RMS, 1e-5f, vec(&b, n.norm, c->d), NULL}, &up, NULL, GLU_SWIGLU, c->used}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ok(b.be->act_write(b.d, ACT_X, 0, 1, c->d, n.x, &e), &e);
        ok(b.be->act_write(b.d, ACT_ROUTE, 0, 1, 4, wrong[i], &e), &e);
        assert_int_equal(run(&b, &op, 1, &e), HEARTH_EPARAMS);
        assert_non_null(strstr(e.msg, "expert"));
    }
    op.experts_up.n_used = 3; /* where the route has two */
    ok(b.be->act_write(b.d, ACT_X, 0, 1, c->d, n.x, &e), &e);
    ok(b.be->act_write(b.d, ACT_ROUTE, 0, 1, 4, n.route, &e), &e);
    assert_int_equal(run(&b, &op, 1, &e), HEARTH_EPARAMS);
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
                          .invariant = !fast};
    for (uint32_t i = 0; i < n_row; i++)
        seq[i] = (struct batch_seq){i, 1, 0, {pages}};
    ok(b->be->step_wait(b->d, b->be->step_run(b->d, &batch, p), NULL, 0, &e), &e);
}

enum { STEPS = 18 };

/* Steps of several layers, of which a GPU replays all but the first, have the bits of their ops one by one: who comes
 * after a router need not wait for the end of its kernel. */
static void layers_are_their_ops(void **state)
{
    static const uint32_t rows_of[] = {1, 3, 4, 1, 8, 2};
    const struct experts_case *c = *state;
    static struct experts_numbers n;
    static float x[ROWS * D_MAX], got[ROWS * D_MAX], want[ROWS * D_MAX], router[LAYERS][N_MAX * D_MAX];
    struct bench b;
    struct hearth_err e;
    experts_init(&n, c);
    assert_true(bench_open(&b, "auto", 2));
    struct weight up = experts_weight(c, &n, false), down = experts_weight(c, &n, true), route[LAYERS];
    up.host = down.host = rig_host;
    ok(b.be->weight_load(b.d, &up, &e), &e);
    ok(b.be->weight_load(b.d, &down, &e), &e);
    struct norm norm = {NORM_RMS, 1e-5f, vec(&b, n.norm, c->d), NULL};
    struct op ops[3 * LAYERS];
    for (uint32_t l = 0; l < LAYERS; l++) {
        random_floats(40 + l, router[l], (size_t)c->n * c->d);
        route[l] = (struct weight){.role = WEIGHT_ROUTER, .n_in = c->d, .n_out = c->n, .n_part = 1};
        route[l].part[0] = (struct weight_part){.type = DT_F32, .n_out = c->n, .data = router[l]};
        ok(b.be->weight_load(b.d, &route[l], &e), &e);
        ops[3 * l] =
            (struct op){.kind = OP_ROUTE,
                        .route = {.norm = norm, .w = &route[l], .n_used = c->used, .normalise = true, .scale = 1}};
        ops[3 * l + 1] = (struct op){.kind = OP_EXPERTS_UP,
                                     .experts_up = {.norm = norm, .w = &up, .glu = c->glu, .n_used = c->used}};
        ops[3 * l + 2] =
            (struct op){.kind = OP_EXPERTS_DOWN,
                        .experts_down = {.w = &down, .n_used = c->used, .residual_scale = c->residual_scale}};
    }
    struct program all = program_of(NULL, ops, 3 * LAYERS);
    for (uint32_t s = 0; s < STEPS; s++) {
        uint32_t rows = rows_of[s / 3];
        random_floats(50 + s, x, (size_t)rows * c->d);
        ok(b.be->act_write(b.d, ACT_X, 0, rows, c->d, x, &e), &e);
        for (uint32_t i = 0; i < 3 * LAYERS; i++) {
            struct program one = program_of(NULL, &ops[i], 1);
            decode(&b, &one, rows, true);
        }
        ok(b.be->act_read(b.d, ACT_X, 0, rows, want, &e), &e);
        ok(b.be->act_write(b.d, ACT_X, 0, rows, c->d, x, &e), &e);
        decode(&b, &all, rows, false);
        ok(b.be->act_read(b.d, ACT_X, 0, rows, got, &e), &e);
        assert_memory_equal(got, want, sizeof(float) * rows * c->d);
        assert_memory_not_equal(got, x, sizeof(float) * rows * c->d);
    }
    bench_close(&b);
    experts_fini(&n);
}

/* The same of layers with a shared expert, which a GPU computes as one more of a row's: not the bits of its ops, but in
 * every step those of the same step, whether it is replayed or not, alone or behind others. */
static void layers_with_a_shared_expert_are_replayed(void **state)
{
    const struct experts_case *c = *state;
    static struct experts_numbers n;
    static float x[ROWS * D_MAX], got[ROWS * D_MAX], want[ROWS * D_MAX], router[LAYERS][N_MAX * D_MAX];
    struct bench b;
    struct hearth_err e;
    experts_init(&n, c);
    assert_true(bench_open(&b, "auto", 2));
    struct weight up = experts_weight(c, &n, false), down = experts_weight(c, &n, true), own_up = up, own_down = down,
                  route[LAYERS];
    own_up.role = WEIGHT_GATE_UP, own_down.role = WEIGHT_PROJ, own_up.n_expert = own_down.n_expert = 0;
    for (int i = 0; i < 3; i++) {
        struct weight_part *p = i < 2 ? &own_up.part[i] : &own_down.part[0];
        p->data = p->expert[1], p->expert = NULL;
    }
    struct weight *const all[4] = {&up, &own_up, &down, &own_down};
    for (int i = 0; i < 4; i++) {
        all[i]->host = rig_host;
        ok(b.be->weight_load(b.d, all[i], &e), &e);
    }
    struct norm norm = {NORM_RMS, 1e-5f, vec(&b, n.norm, c->d), NULL};
    const float *gate = vec(&b, n.hidden, c->d);
    struct op ops[5 * LAYERS];
    for (uint32_t l = 0; l < LAYERS; l++) {
        random_floats(40 + l, router[l], (size_t)c->n * c->d);
        route[l] = (struct weight){.role = WEIGHT_ROUTER, .n_in = c->d, .n_out = c->n, .n_part = 1};
        route[l].part[0] = (struct weight_part){.type = DT_F32, .n_out = c->n, .data = router[l]};
        ok(b.be->weight_load(b.d, &route[l], &e), &e);
        const struct op layer[5] = {
            {.kind = OP_ROUTE,
             .route = {.norm = norm, .w = &route[l], .n_used = c->used, .normalise = true, .scale = 1}},
            {.kind = OP_EXPERTS_UP, .experts_up = {.norm = norm, .w = &up, .glu = c->glu, .n_used = c->used}},
            {.kind = OP_FFN_UP, .ffn_up = {.norm = norm, .w = &own_up, .glu = c->glu, .row_gate = l ? gate : NULL}},
            {.kind = OP_EXPERTS_DOWN,
             .experts_down = {.w = &down, .residual_scale = c->residual_scale, .n_used = c->used}},
            {.kind = OP_PROJ, .proj = {.in = ACT_FF, .w = &own_down, .residual_scale = c->residual_scale}}};
        memcpy(ops + 5 * l, layer, sizeof layer);
    }
    struct program whole = program_of(NULL, ops, 5 * LAYERS);
    for (uint32_t s = 0; s < STEPS; s++) {
        uint32_t rows = 1 + s / 5;
        random_floats(50 + s, x, (size_t)rows * c->d);
        ok(b.be->act_write(b.d, ACT_X, 0, rows, c->d, x, &e), &e);
        for (uint32_t l = 0; l < LAYERS; l++) {
            struct program one = program_of(NULL, ops + 5 * l, 5);
            decode(&b, &one, rows, true);
        }
        ok(b.be->act_read(b.d, ACT_X, 0, rows, want, &e), &e);
        for (int again = 0; again < 3; again++) {
            ok(b.be->act_write(b.d, ACT_X, 0, rows, c->d, x, &e), &e);
            decode(&b, &whole, rows, false);
            ok(b.be->act_read(b.d, ACT_X, 0, rows, got, &e), &e);
            assert_memory_equal(got, want, sizeof(float) * rows * c->d);
        }
        assert_memory_not_equal(got, x, sizeof(float) * rows * c->d);
    }
    bench_close(&b);
    experts_fini(&n);
}

enum { N_BESIDE = sizeof beside_cases / sizeof *beside_cases };
enum { N_EXPERTS = sizeof experts_cases / sizeof *experts_cases };
enum { N_ROUTE = sizeof route_cases / sizeof *route_cases };

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu";
    if (!(backend = rig_backend(name, "auto", &info)))
        return 77;
    fast = argc > 2 && !strcmp(argv[2], "fast");
    rig_host = argc > 2 && !strcmp(argv[argc - 1], "host");
    if (info.gpu)
        variants = gpu_variants, tolerance = 2e-3, route_tolerance = 8e-6;
    else
        info.kv_type = DT_F32;
    struct CMUnitTest tests[N_ROUTE + 2 * (N_EXPERTS + N_BESIDE) + 6] = {
        cmocka_unit_test(equal_scores_go_to_the_lower_id),
        cmocka_unit_test(twins_are_chosen_in_order),
        cmocka_unit_test(nan_stays_in_its_row),
        cmocka_unit_test(nan_in_a_router_is_seen),
        cmocka_unit_test(what_cannot_be_chosen_is_refused),
        cmocka_unit_test(a_wrong_route_is_refused),
    };
    struct CMUnitTest *at = tests + 6;
    for (size_t i = 0; i < N_ROUTE; i++)
        *at++ = (struct CMUnitTest){route_cases[i].name, route_is_exact, NULL, NULL, (void *)&route_cases[i]};
    for (size_t i = 0; i < N_EXPERTS; i++)
        *at++ = (struct CMUnitTest){experts_cases[i].name, experts_are_exact, NULL, NULL, (void *)&experts_cases[i]};
    for (size_t i = 0; i < N_BESIDE; i++)
        *at++ = (struct CMUnitTest){beside_cases[i].name, a_shared_expert_is_beside_them, NULL, NULL,
                                    (void *)&beside_cases[i]};
    for (size_t i = 0; i < N_EXPERTS; i++)
        *at++ = (struct CMUnitTest){experts_cases[i].name, layers_are_their_ops, NULL, NULL, (void *)&experts_cases[i]};
    for (size_t i = 0; i < N_BESIDE; i++)
        *at++ = (struct CMUnitTest){beside_cases[i].name, layers_with_a_shared_expert_are_replayed, NULL, NULL,
                                    (void *)&beside_cases[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
