/*
 * experts-layers.c - steps of layers with a router, experts and what is beside them are bit-identical to their ops one
 * by one or, if a GPU computes two ops as one, give the same bits in every step, whether it is replayed or not.
 *
 *     tests/ops/experts-layers [BACKEND [fast] [host | quick]]   as tests/ops/experts; quick: layers behind a product
 */
#include "tests/ops/experts-cases.h"

#include <string.h>

/* A step of decoding rows, one per sequence. */
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

/* The numbers of rows of steps, of which each three have one; 0 at the end. */
static const uint32_t rows_few[] = {1, 3, 4, 1, 8, 2, 0}, rows_many[] = {ROWS - 4, ROWS, ROWS - 4, 0};

/* Steps of several layers, of up to `most` rows, are bit-identical to their ops one by one; a GPU replays all but the
 * first step of a number of rows, or of similar ones. */
static void same_as_ops(struct bench *b, const struct experts_case *c, const struct op *ops, uint32_t n_op,
                        const uint32_t *rows_of, uint32_t most)
{
    static float x[ROWS * D_MAX], got[ROWS * D_MAX], want[ROWS * D_MAX];
    struct hearth_err e;
    struct program all = program_of(NULL, ops, n_op);
    for (uint32_t s = 0; rows_of[s / 3]; s++) {
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

/* Loads a router for each layer. */
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

static void routed_layers(const struct experts_case *c, const uint32_t *rows_of)
{
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
    same_as_ops(&b, c, ops, 3 * LAYERS, rows_of, ROWS);
    bench_close(&b);
    experts_fini(&n);
}

/* The kernel after a router need not wait for the end of the router's kernel. */
static void layers_are_their_ops(void **state)
{
    routed_layers(*state, rows_few);
}

/* A GPU may compute so many rows of an expert in another way. */
static void large_batches_are_replayed(void **state)
{
    routed_layers(*state, rows_many);
}

static const struct experts_case behind_cases[] = {
    {"behind a product: Q4_K", {DT_Q4_K, DT_Q4_K, DT_Q4_K}, 512, 256, 6, 2, GLU_SWIGLU, false, 0, false},
    {"behind a product: Q4_K and Q6_K", {DT_Q4_K, DT_Q4_K, DT_Q6_K}, 512, 512, 9, 8, GLU_SWIGLU, false, 0.4f, false},
    {"behind a product: many", {DT_Q8_0, DT_Q8_0, DT_Q8_0}, 64, 32, 200, 8, GLU_GEGLU, false, 0, false},
    {"behind a product: more than 128 tiles", {DT_MXFP4, DT_MXFP4, DT_MXFP4}, 2880, 288, 5, 4, GLU_OAI, true, 0, false},
    {"behind a product: F16", {DT_F16, DT_F16, DT_F16}, 72, 33, 5, 2, GLU_SWIGLU, false, 0, false},
};

/* The product before a router also computes the router's logits of a single row, where it can. */
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
        uint32_t kind = (l + c->n) % 3; /* each kind occurs in some case, since there are fewer layers than kinds */
        const struct op layer[OPS] = {
            {.kind = OP_FFN_UP, .ffn_up = {.norm = norm, .w = &w[OWN_UP], .glu = GLU_GEGLU}},
            {.kind = OP_PROJ, .proj = {.in = ACT_FF, .w = &w[OWN_DOWN], .residual_scale = l ? 0.75f : 0}},
            {.kind = OP_ROUTE,
             .route = {.norm = norm,
                       .w = &route[l],
                       .kind = kinds[kind],
                       .bias = l ? biases : NULL,
                       .select_bias = kinds[kind] == ROUTE_SIGMOID ? biases : NULL,
                       .n_used = c->used,
                       .normalise = true,
                       .scale = 1}},
            {.kind = OP_EXPERTS_UP,
             .experts_up = {.norm = norm, .w = &w[UP], .glu = c->glu, .n_used = c->used, .bias = up}},
            {.kind = OP_EXPERTS_DOWN,
             .experts_down = {.w = &w[DOWN], .n_used = c->used, .residual_scale = c->residual_scale}}};
        memcpy(ops + OPS * l, layer, sizeof layer);
    }
    same_as_ops(&b, c, ops, OPS * LAYERS, rows_few, bench_fast && bench_info.gpu ? bench_info.decode_rows : ROWS);
    beside_close(w, &b);
    experts_fini(&n);
}

/* The same for layers with a network of another width beside the experts, where both results have norms of their
 * own. */
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
    /* for more rows, whose bits are free, a GPU's dense products pass on partial sums that have not been added up */
    same_as_ops(&b, c, ops, 5 * LAYERS, rows_few, bench_fast && bench_info.gpu ? bench_info.decode_rows : ROWS);
    beside_close(w, &b);
    experts_fini(&n);
}

/* The same for layers with a shared expert, which a GPU computes as one more expert of a row: a program of several
 * layers does not have the bits of its ops one by one, but those of a step for each layer, whether it is replayed or
 * not. */
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
    for (uint32_t s = 0; s < 20; s++) {
        uint32_t rows = 1 + s / 5; /* up to four */
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

int main(int argc, char **argv)
{
    if (!bench_begin(argc, argv))
        return 77;
    struct case_tests tests = {.n = 0};
    bool quick = argc > 2 && !strcmp(argv[argc - 1], "quick");
    if (!quick)
        case_tests_add(&tests, layers_are_their_ops, experts_cases, n_experts_case);
    for (size_t i = 0; i < n_experts_case; i++) /* one of them is what a simulated GPU has time for */
        if (!quick || (experts_cases[i].quick && experts_cases[i].type[0] == DT_Q4_K))
            case_tests_add(&tests, large_batches_are_replayed, &experts_cases[i], 1);
    case_tests_add(&tests, layers_behind_a_product_are_their_ops, behind_cases,
                   sizeof behind_cases / sizeof *behind_cases);
    if (!quick) {
        case_tests_add(&tests, layers_beside_a_network_are_their_ops, beside_cases, n_beside_case);
        case_tests_add(&tests, layers_with_a_shared_expert_are_replayed, beside_cases, n_beside_case);
    }
    return _cmocka_run_group_tests("experts-layers", tests.test, tests.n, NULL, NULL);
}
