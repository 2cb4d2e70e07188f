/*
 * route.c - the router of a mixture of experts against an independent computation in double precision, and its
 * guarantees: the same bits in every variant, in a batch of its own and batched with other rows; lower ids first;
 * refusals with a reason.
 *
 *     tests/ops/route [BACKEND [fast] [host]]   as tests/ops/experts
 *
 * A GPU computes a router's decisions in F32, like the CPU.
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
    float x[BATCH_ROWS_MAX * D_ROUTE], w[N_MAX * D_ROUTE], norm[D_ROUTE], bias[N_MAX], select[N_MAX];
};

static void route_numbers(struct route_numbers *n, const struct route_case *c, uint32_t n_row)
{
    random_floats(1, n->x, (size_t)n_row * c->d);
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
    bench_ok(b->be->weight_load(b->d, w, &e), &e);
    return (struct op){.kind = OP_ROUTE,
                       .route = {.norm = {NORM_RMS, 1e-5f, bench_vec(b, n->norm, c->d), NULL},
                                 .w = w,
                                 .bias = bench_vec(b, c->bias ? n->bias : NULL, c->n),
                                 .select_bias = bench_vec(b, c->select_bias ? n->select : NULL, c->n),
                                 .kind = c->kind,
                                 .n_used = c->used,
                                 .n_group = c->n_group,
                                 .n_group_used = c->n_group_used,
                                 .group_best = c->group_best,
                                 .normalise = c->normalise,
                                 .scale = c->scale}};
}

/* Computes the rows [row0, row0 + n_row) of the input in one step. */
static int route_step(struct bench *b, const struct op *op, const struct route_numbers *n, uint32_t row0,
                      uint32_t n_row, float *out, struct hearth_err *e)
{
    uint32_t d = op->route.w->n_in;
    bench_ok(b->be->act_write(b->d, ACT_X, 0, n_row, d, n->x + (size_t)row0 * d, e), e);
    int rc = bench_run(b, op, n_row, e);
    if (!rc)
        bench_ok(b->be->act_read(b->d, ACT_ROUTE, 0, n_row, out, e), e);
    return rc;
}

/* The same on a device of its own. */
static int route_rows(const struct route_case *c, const struct route_numbers *n, const char *variant, uint32_t threads,
                      uint32_t row0, uint32_t n_row, float *out, struct hearth_err *e)
{
    const struct workspace_dims dims = {D_ROUTE, 64, 64, D_ROUTE, 16, n_row, 1, 2 * EXPERTS_USED_MAX, 64};
    struct bench b;
    struct weight w;
    if (!bench_open_dims(&b, variant, threads, &dims))
        return 1;
    struct op op = route_op(&b, c, n, &w);
    int rc = route_step(&b, &op, n, row0, n_row, out, e);
    bench_close(&b);
    return rc;
}

/* What a router would choose in double precision: `choice` by expert, whether each can be chosen, and the weights
 * before `normalise`. Returns the least difference that decided between groups. */
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
        if (!(fabs((double)got[c->used + k] - want[k]) <= 4 * tolerance * fabs(want[k])))
            fail_msg("%s, row %u: weight %u is %.9g, exactly %.9g", c->name, row, k, (double)got[c->used + k], want[k]);
    }
}

/* Rows of a step of which each of a GPU's blocks has one, two, four or eight. */
static const uint32_t route_steps[] = {1, 2, 4, 5, 8, 13, 32};

static void route_is_exact(void **state)
{
    const struct route_case *c = *state;
    static struct route_numbers n;
    float got[ROWS * 2 * EXPERTS_USED_MAX], other[ROWS * 2 * EXPERTS_USED_MAX];
    struct hearth_err e;
    size_t row = 2 * (size_t)c->used;
    route_numbers(&n, c, ROWS);
    n_close = 0;
    bench_ok(route_rows(c, &n, "reference", 1, 0, ROWS, got, &e), &e);
    for (uint32_t r = 0; r < ROWS; r++)
        check_row(c, &n, r, got + r * row);
    assert_true(n_close <= ROWS / 10);
    for (size_t v = 0; bench_variants[v]; v++) {
        if (route_rows(c, &n, bench_variants[v], 3, 0, ROWS, other, &e) == 1)
            continue;
        assert_memory_equal(got, other, ROWS * row * sizeof *got);
        for (size_t i = 0; i < sizeof route_steps / sizeof *route_steps; i++) {
            bench_ok(route_rows(c, &n, bench_variants[v], 2, 5, route_steps[i], other, &e), &e);
            assert_memory_equal(got + 5 * row, other, route_steps[i] * row * sizeof *got);
        }
    }
}

/* Prompts: the rows of a step for which a GPU uses a blocked product are bit-identical to the same rows in small
 * steps. */
static const struct many_case {
    struct route_case of;
    uint32_t rows;
} many_cases[] = {
    {{"prompt, gpt-oss", 2880, 32, 4, ROUTE_SOFTMAX_CHOSEN, false, .bias = true, .scale = 1}, 130},
    {{"prompt, qwen3moe", 2048, 128, 8, ROUTE_SOFTMAX, true, .scale = 1}, 131},
    {{"prompt, qwen3moe, long", 520, 128, 8, ROUTE_SOFTMAX, true, .scale = 1}, 512},
    {{"prompt, qwen35moe", 136, 256, 8, ROUTE_SOFTMAX, true, .scale = 1}, 512},
    {{"prompt, deepseek v3", 512, 256, 8, ROUTE_SIGMOID, true, false, true, 2.5f, 8, 4, 2}, 77},
    {{"prompt, an odd number", 2052, 31, 5, ROUTE_SOFTMAX, true, true, true, 1}, 201},
    {{"prompt, columns that are no fours", 1027, 60, 4, ROUTE_SOFTMAX, false, .scale = 1}, 270},
    {{"prompt, more than 256", 64, 300, 10, ROUTE_SOFTMAX, true, .scale = 1}, 300},
};

static void rows_of_a_prompt_are_those_of_few(void **state)
{
    const struct many_case *m = *state;
    const struct route_case *c = &m->of;
    const struct workspace_dims dims = {c->d, 64, 64, c->d, 16, m->rows, 1, 2 * c->used, 64};
    static struct route_numbers n;
    static float together[BATCH_ROWS_MAX * 2 * EXPERTS_USED_MAX], few[ROWS * 2 * EXPERTS_USED_MAX];
    struct hearth_err e;
    size_t row = 2 * (size_t)c->used;
    uint32_t bad = m->rows / 2;
    route_numbers(&n, c, m->rows);
    n.x[(size_t)bad * c->d + c->d / 3] = NAN;
    for (size_t v = 0; bench_variants[v]; v++) {
        struct bench b;
        struct weight w;
        if (!bench_open_dims(&b, bench_variants[v], 3, &dims))
            continue;
        struct op op = route_op(&b, c, &n, &w);
        bench_ok(route_step(&b, &op, &n, 0, m->rows, together, &e), &e);
        for (uint32_t row0 = 0, n_row; row0 < m->rows; row0 += n_row) {
            n_row = m->rows - row0 < ROWS ? m->rows - row0 : ROWS;
            bench_ok(route_step(&b, &op, &n, row0, n_row, few, &e), &e);
            for (uint32_t r = row0; r < row0 + n_row; r++)
                if (r != bad && memcmp(together + r * row, few + (r - row0) * row, row * sizeof *few))
                    fail_msg("%s, %s: row %u of %u is not what it is among %u", c->name, bench_variants[v], r, m->rows,
                             n_row);
        }
        for (uint32_t k = 0; k < c->used; k++)
            assert_true(together[bad * row + k] < (float)c->n && isnan(together[bad * row + c->used + k]));
        bench_close(&b);
    }
}

/* Experts with equal weight rows have bit-identical scores: the lower ids are chosen, and come first. */
static void equal_scores_go_to_the_lower_id(void **state)
{
    (void)state;
    static struct route_numbers n;
    for (size_t i = 0; i < sizeof route_cases / sizeof *route_cases; i++) {
        struct route_case c = route_cases[i];
        float got[ROWS * 2 * EXPERTS_USED_MAX];
        struct hearth_err e;
        route_numbers(&n, &c, ROWS);
        for (uint32_t k = 0; k < c.n; k++) {
            memcpy(n.w + (size_t)k * c.d, n.w, c.d * sizeof *n.w);
            n.bias[k] = n.bias[0], n.select[k] = n.select[0];
        }
        for (uint32_t rows = 1; rows <= ROWS; rows += 12) {
            bench_ok(route_rows(&c, &n, "auto", 2, 0, rows, got, &e), &e);
            for (uint32_t k = 0; k < rows * c.used; k++) {
                const float *of = got + k / c.used * 2 * c.used;
                assert_true(of[k % c.used] == (float)(k % c.used));
                assert_memory_equal(&of[c.used + k % c.used], &of[c.used], sizeof *got);
            }
        }
    }
}

/* Of two equal experts the lower one is chosen first, and the other one next, if another is to be chosen. */
static void twins_are_chosen_in_order(void **state)
{
    (void)state;
    static struct route_numbers n;
    for (size_t i = 0; i < sizeof route_cases / sizeof *route_cases; i++) {
        const struct route_case *c = &route_cases[i];
        float got[ROWS * 2 * EXPERTS_USED_MAX];
        struct hearth_err e;
        route_numbers(&n, c, ROWS);
        for (uint32_t k = 0; k + 1 < c->n; k += 2) {
            memcpy(n.w + (size_t)(k + 1) * c->d, n.w + (size_t)k * c->d, c->d * sizeof *n.w);
            n.bias[k + 1] = n.bias[k], n.select[k + 1] = n.select[k];
        }
        if (c->n_group > 1 && c->n / c->n_group % 2)
            continue; /* the twins are in two groups, one of which may be left out */
        for (uint32_t rows = 1; rows <= ROWS; rows += 9) {
            bench_ok(route_rows(c, &n, "auto", 2, 0, rows, got, &e), &e);
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

/* An expert whose weights contain a NaN is chosen last if scores are independent of each other, and all of a row's
 * weights are NaN. */
static void nan_in_a_router_is_seen(void **state)
{
    (void)state;
    static struct route_numbers n;
    for (size_t i = 0; i < sizeof route_cases / sizeof *route_cases; i++) {
        const struct route_case *c = &route_cases[i];
        float first[ROWS * 2 * EXPERTS_USED_MAX], got[ROWS * 2 * EXPERTS_USED_MAX];
        bool own = c->kind == ROUTE_SIGMOID ||
                   (!c->select_bias && c->n_group <= 1); /* otherwise by a softmax, which makes all of them NaN */
        uint32_t bad = c->n / 2;
        struct hearth_err e;
        route_numbers(&n, c, ROWS);
        n.w[(size_t)bad * c->d + c->d / 3] = NAN;
        bench_ok(route_rows(c, &n, "reference", 1, 0, ROWS, first, &e), &e);
        for (size_t j = 0; j < sizeof route_steps / sizeof *route_steps; j++) {
            bench_ok(route_rows(c, &n, "auto", 2, 0, route_steps[j], got, &e), &e);
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

/* NaN stays in its row, and is visible there. */
static void nan_stays_in_its_row(void **state)
{
    (void)state;
    static struct route_numbers n;
    for (size_t i = 0; i < sizeof route_cases / sizeof *route_cases; i++) {
        const struct route_case *c = &route_cases[i];
        float want[3 * 2 * EXPERTS_USED_MAX], got[3 * 2 * EXPERTS_USED_MAX];
        size_t row = 2 * (size_t)c->used;
        struct hearth_err e;
        route_numbers(&n, c, ROWS);
        bench_ok(route_rows(c, &n, "auto", 2, 0, 3, want, &e), &e);
        n.x[c->d + c->d / 2] = NAN;
        bench_ok(route_rows(c, &n, "auto", 2, 0, 3, got, &e), &e);
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
        route_numbers(&n, &bad[i], ROWS);
        assert_int_equal(route_rows(&bad[i], &n, "auto", 1, 0, 1, got, &e), HEARTH_EPARAMS);
        if (!strstr(e.msg, "cannot be chosen"))
            fail_msg("%s: \"%s\"", bad[i].name, e.msg);
    }
}

enum { N_ROUTE = sizeof route_cases / sizeof *route_cases, N_MANY = sizeof many_cases / sizeof *many_cases };

int main(int argc, char **argv)
{
    if (!bench_begin(argc, argv))
        return 77;
    if (bench_info.gpu)
        tolerance = 8e-6;
    struct CMUnitTest tests[N_ROUTE + N_MANY + 5] = {
        cmocka_unit_test(equal_scores_go_to_the_lower_id),
        cmocka_unit_test(twins_are_chosen_in_order),
        cmocka_unit_test(nan_stays_in_its_row),
        cmocka_unit_test(nan_in_a_router_is_seen),
        cmocka_unit_test(what_cannot_be_chosen_is_refused),
    };
    struct CMUnitTest *at = tests + 5;
    for (size_t i = 0; i < N_ROUTE; i++)
        *at++ = (struct CMUnitTest){route_cases[i].name, route_is_exact, NULL, NULL, (void *)&route_cases[i]};
    for (size_t i = 0; i < N_MANY; i++)
        *at++ = (struct CMUnitTest){many_cases[i].of.name, rows_of_a_prompt_are_those_of_few, NULL, NULL,
                                    (void *)&many_cases[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
