/*
 * experts.c - the ops of mixtures of experts against an independent computation in double precision, and their
 * guarantees: the same bits in every variant, in a batch of its own and batched with other rows; refusals with a
 * reason. The router is tested by route.c, layers of several ops by experts-layers.c.
 *
 *     tests/ops/experts [BACKEND [fast] [host | quick]]   as tests/ops/ops
 *
 * quick: the cases that are quick enough for a simulated GPU; fast: steps outside the invariant mode, in which bits may
 * depend on the other rows.
 *
 * A GPU rounds activations to fp16 where they enter a product.
 */
#include "tests/ops/experts-cases.h"

#include <math.h>
#include <string.h>

static double tolerance = 4e-6;

/* Writes n_row rows of an activation, from row0 on; after the last one the first one follows. */
static void write_rows(struct bench *b, enum act act, const float *rows, uint32_t n_col, uint32_t row0, uint32_t n_row)
{
    struct hearth_err e;
    for (uint32_t at = 0, n; at < n_row; at += n) {
        uint32_t from = (row0 + at) % ROWS;
        n = n_row - at < ROWS - from ? n_row - at : ROWS - from;
        bench_ok(b->be->act_write(b->d, act, at, n, n_col, rows + (size_t)from * n_col, &e), &e);
    }
}

/* Computes the rows [row0, row0 + n_row) in one step: the hidden rows, and from made-up hidden rows what is added to
 * the residual stream or, in a latent space, is written. whole: both ops in one program, without made-up hidden
 * rows. */
static bool experts_rows(const struct experts_case *c, const struct experts_numbers *n, const char *variant,
                         uint32_t threads, uint32_t row0, uint32_t n_row, bool whole, float *hidden, float *x)
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
         .experts_up = {.norm = {c->latent ? NORM_NONE : NORM_RMS, 1e-5f,
                                 bench_vec(&b, c->latent ? NULL : n->norm, c->d), NULL},
                        .w = &up,
                        .bias = bench_vec(&b, c->bias ? n->bias_up : NULL, (gated ? 2 : 1) * c->n * c->d_ff),
                        .glu = c->glu,
                        .n_used = c->used,
                        .latent = c->latent}},
        {.kind = OP_EXPERTS_DOWN,
         .experts_down = {.w = &down,
                          .bias = bench_vec(&b, c->bias ? n->bias_down : NULL, c->n * c->d),
                          .residual_scale = c->residual_scale,
                          .n_used = c->used,
                          .latent = c->latent}}};
    for (int i = 0; i < (whole ? 1 : 2); i++) {
        write_rows(&b, c->latent ? ACT_MIX : ACT_X, n->x, c->d, row0, n_row);
        write_rows(&b, ACT_ROUTE, n->route, 2 * c->used, row0, n_row);
        if (i == 1)
            write_rows(&b, ACT_EXPERTS, n->hidden, width, row0, n_row);
        bench_ok(bench_run_ops(&b, &ops[i], whole ? 2 : 1, n_row, &e), &e);
        if (i == 0 && !whole)
            bench_ok(b.be->act_read(b.d, ACT_EXPERTS, 0, n_row, hidden, &e), &e);
        else
            bench_ok(b.be->act_read(b.d, c->latent ? ACT_ATT : ACT_X, 0, n_row, x, &e), &e);
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

/* The results of a row's experts: the hidden rows, and x with the results added, or in a latent space only the results;
 * computed from the hidden rows `given` or, if NULL, from its own. */
struct exact_row {
    double hidden[USED_MAX * D_MAX], x[D_MAX];
};
static void exact_experts(const struct experts_case *c, const struct experts_numbers *n, uint32_t row,
                          const float *given, struct exact_row *r)
{
    double in[D_MAX], own[D_MAX], square = 0, sum[D_MAX] = {0};
    const float *route = n->route + (size_t)row * 2 * c->used;
    for (uint32_t i = 0; i < c->d; i++)
        square += (double)n->x[row * c->d + i] * (double)n->x[row * c->d + i] / c->d;
    for (uint32_t i = 0; i < c->d; i++) {
        in[i] = (double)n->x[row * c->d + i];
        if (!c->latent)
            in[i] *= (double)n->norm[i] / sqrt(square + 1e-5);
    }
    for (uint32_t k = 0; k < c->used; k++) {
        size_t e = (size_t)route[k], gated = glu_gated(c->glu) ? 1 : 0;
        for (uint32_t o = 0; o < c->d_ff; o++) {
            double g = product(n->exact[0] + (e * c->d_ff + o) * c->d, in, c->d);
            double u = product(n->exact[1] + (e * c->d_ff + o) * c->d, in, c->d);
            if (c->bias)
                g += (double)n->bias_up[e * c->d_ff + o], u += (double)n->bias_up[(gated * c->n + e) * c->d_ff + o];
            r->hidden[k * c->d_ff + o] = activated(c->glu, g, u);
            own[o] = given ? (double)given[k * c->d_ff + o] : r->hidden[k * c->d_ff + o];
        }
        for (uint32_t o = 0; o < c->d; o++)
            sum[o] += (double)route[c->used + k] * (product(n->exact[2] + (e * c->d + o) * c->d_ff, own, c->d_ff) +
                                                    (c->bias ? (double)n->bias_down[e * c->d + o] : 0));
    }
    for (uint32_t o = 0; o < c->d; o++) {
        r->x[o] = c->latent ? 0 : (double)n->x[row * c->d + o];
        r->x[o] += sum[o] * (c->residual_scale != 0 ? (double)c->residual_scale : 1);
    }
}

static void check_experts_row(const struct experts_case *c, const struct experts_numbers *n, uint32_t row,
                              const float *hidden, const float *x)
{
    static struct exact_row want;
    exact_experts(c, n, row, n->hidden + (size_t)row * c->used * c->d_ff, &want);
    for (uint32_t k = 0; k < c->used; k++)
        near_row(c, "up", row, hidden + k * c->d_ff, want.hidden + k * c->d_ff, c->d_ff);
    near_row(c, "down", row, x, want.x, c->d);
}

static void experts_are_exact(void **state)
{
    const struct experts_case *c = *state;
    static struct experts_numbers n;
    static float hidden[2][ROWS * USED_MAX * D_MAX], x[2][ROWS * D_MAX];
    size_t width = (size_t)c->used * c->d_ff;
    experts_init(&n, c);
    experts_rows(c, &n, "reference", 1, 0, ROWS, false, hidden[0], x[0]);
    for (uint32_t r = 0; r < ROWS; r++)
        check_experts_row(c, &n, r, hidden[0] + r * width, x[0] + r * c->d);
    for (size_t v = 0; bench_variants[v]; v++)
        for (uint32_t row0 = 0, m; row0 < ROWS; row0 += m) { /* together, then in parts: one row, five, the rest */
            m = row0 == 0 ? 1 : row0 == 1 ? 5 : ROWS - row0;
            if (!experts_rows(c, &n, bench_variants[v], 3, row0, m, false, hidden[1] + row0 * width,
                              x[1] + row0 * c->d))
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

/* Prompts, for which a GPU computes many rows of an expert at once: the rows repeated, op by op and with both ops in
 * one program. */
static void prompts_are_exact(void **state)
{
    static const uint32_t rows[] = {2 * ROWS, 3 * ROWS, ROWS_PROMPT};
    static const bool whole[] = {false, true};
    const struct experts_case *c = *state;
    static struct experts_numbers n;
    static float hidden[ROWS_PROMPT * USED_MAX * D_MAX], x[ROWS_PROMPT * D_MAX];
    static struct exact_row want;
    size_t width = (size_t)c->used * c->d_ff;
    experts_init(&n, c);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < 2; j++) {
            experts_rows(c, &n, "auto", 3, 0, rows[i], whole[j], hidden, x);
            for (uint32_t row = 0; row < ROWS; row++) {
                exact_experts(c, &n, row, whole[j] ? NULL : n.hidden + row * width, &want);
                for (uint32_t r = row; r < rows[i]; r += ROWS) {
                    for (uint32_t k = 0; k < c->used && !whole[j]; k++)
                        near_row(c, "up of a prompt", r, hidden + r * width + k * c->d_ff, want.hidden + k * c->d_ff,
                                 c->d_ff);
                    near_row(c, whole[j] ? "both of a prompt" : "down of a prompt", r, x + r * c->d, want.x, c->d);
                }
            }
        }
    experts_fini(&n);
}

/* NaN in an expert's matrix appears in the hidden units or results of the rows that are routed to it, and in no
 * others. */
static void nan_in_an_expert_is_seen(void **state)
{
    const struct experts_case *c = *state;
    static struct experts_numbers n;
    static float hidden[2][ROWS * USED_MAX * D_MAX], x[2][ROWS * D_MAX];
    uint32_t bad = c->n / 2;
    for (int i = glu_gated(c->glu) ? 0 : 1; i < 3; i++) {
        experts_init(&n, c);
        uint32_t out = n.n_out[i] / 2;
        experts_rows(c, &n, "auto", 2, 0, ROWS, false, hidden[0], x[0]);
        if (!nan_block(c->type[i], (uint8_t *)n.list[i][bad] + out * dtype_bytes(c->type[i], n.n_in[i]))) {
            experts_fini(&n);
            continue;
        }
        experts_rows(c, &n, "auto", 2, 0, ROWS, false, hidden[1], x[1]);
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

/* The shared expert's result is multiplied by the sigmoid of `gate`'s product with the row, unless `gate` is NULL. */
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

/* Adds one expert's result for the input, times `by`, to the sum. */
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

/* A GPU may compute the shared expert as one more expert of a row. In an invariant step a row's bits do not depend on
 * others. */
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
            m = row0 == 0 ? 1 : row0 == 1 ? 3 : row0 == 4 ? 20 : ROWS - row0;
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

/* Invalid routes are refused, since they would lead to accesses outside of memory. */
static void a_wrong_route_is_refused(void **state)
{
    (void)state;
    static const float wrong[][4] = {{0, 6, 1, 1}, {-1, 0, 1, 1}, {NAN, 1, 1, 1}, {1e9f, 1, 1, 1}};
    const struct experts_case *c = &experts_cases[0];
    static struct experts_numbers n;
    struct bench b;
    struct hearth_err e;
    if (bench_info.gpu) /* a GPU reads routes that its own router wrote, without the host */
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
    op.experts_up.n_used = 3; /* the route has two */
    bench_ok(b.be->act_write(b.d, ACT_X, 0, 1, c->d, n.x, &e), &e);
    bench_ok(b.be->act_write(b.d, ACT_ROUTE, 0, 1, 4, n.route, &e), &e);
    assert_int_equal(bench_run(&b, &op, 1, &e), HEARTH_EPARAMS);
    bench_close(&b);
    experts_fini(&n);
}

int main(int argc, char **argv)
{
    if (!bench_begin(argc, argv))
        return 77;
    if (bench_info.gpu)
        tolerance = 2e-3;
    bool quick = argc > 2 && !strcmp(argv[argc - 1], "quick");
    struct case_tests tests = {{cmocka_unit_test(a_wrong_route_is_refused)}, 1};
    if (!quick)
        case_tests_add(&tests, experts_are_exact, experts_cases, n_experts_case);
    for (size_t i = 0; i < n_experts_case && bench_info.gpu;
         i++) /* cases in which the number of rows decides the path */
        if (!quick || experts_cases[i].quick)
            case_tests_add(&tests, prompts_are_exact, &experts_cases[i], 1);
    if (!quick)
        case_tests_add(&tests, nan_in_an_expert_is_seen, experts_cases, n_experts_case);
    case_tests_add(&tests, a_shared_expert_is_beside_them, beside_cases, n_beside_case);
    return _cmocka_run_group_tests("experts", tests.test, tests.n, NULL, NULL);
}
