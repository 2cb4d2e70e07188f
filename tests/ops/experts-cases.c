/* experts-cases.c - see experts-cases.h. */
#include "tests/ops/experts-cases.h"

#include <stdlib.h>

#define OF_TYPE(t, T, number) {#t, {DT_##T, DT_##T, DT_##T}, 512, 256, 6, 2, GLU_SWIGLU, false, 0},
const struct experts_case experts_cases[] = {
    QUANTS(OF_TYPE){"one of one", {DT_F32, DT_F32, DT_F32}, 1, 1, 1, 1, GLU_SWIGLU, false, 0},
    {"odd widths", {DT_F16, DT_BF16, DT_F32}, 515, 33, 5, 3, GLU_GEGLU, true, 0.4f},
    {"gpt-oss", {DT_MXFP4, DT_MXFP4, DT_MXFP4}, 576, 544, 9, 4, GLU_OAI, true, 0, .quick = true},
    {"more tiles than processors", {DT_MXFP4, DT_MXFP4, DT_MXFP4}, 2880, 288, 5, 4, GLU_OAI, true, 0},
    {"slices uneven", {DT_Q8_0, DT_Q8_0, DT_Q8_0}, 2560, 32, 24, 4, GLU_SWIGLU, false, 0, .quick = true},
    {"many, few each", {DT_Q8_0, DT_Q8_0, DT_Q4_0}, 64, 32, 300, 8, GLU_SWIGLU, false, 0, .quick = true},
    {"some each of a prompt", {DT_Q4_K, DT_Q4_K, DT_Q6_K}, 512, 256, 24, 4, GLU_SWIGLU, false, 0, .quick = true},
    {"types mixed", {DT_Q4_K, DT_Q5_K, DT_Q6_K}, 256, 512, 4, 2, GLU_SWIGLU, true, 0},
    {"all of them", {DT_Q8_0, DT_Q8_0, DT_Q8_0}, 96, 64, 4, 4, GLU_SWIGLU, false, 0},
    {"ungated", {DT_F16, DT_F16, DT_F16}, 40, 72, 7, 3, GLU_RELU2, true, 0},
    {"factors", {DT_NVFP4, DT_NVFP4, DT_NVFP4}, 256, 128, 6, 2, GLU_SWIGLU, false, 0, true},
    {"factors of types mixed", {DT_F16, DT_Q8_0, DT_Q4_K}, 512, 256, 5, 3, GLU_OAI, true, 0.4f, true},
    {"latent", {DT_Q8_0, DT_Q8_0, DT_Q8_0}, 96, 64, 24, 4, GLU_RELU2, false, 0, .quick = true, .latent = true},
    {"latent: Q4_K and Q6_K", {DT_Q4_K, DT_Q4_K, DT_Q6_K}, 512, 256, 6, 2, GLU_RELU2, false, 0, .latent = true},
    {"latent: odd widths", {DT_F16, DT_BF16, DT_F32}, 515, 33, 5, 3, GLU_GEGLU, true, 0, .latent = true},
};
const size_t n_experts_case = sizeof experts_cases / sizeof *experts_cases;

const struct experts_case beside_cases[] = {
    {"beside: Q4_K", {DT_Q4_K, DT_Q4_K, DT_Q4_K}, 512, 256, 6, 2, GLU_SWIGLU, false, 0, false},
    {"beside: Q4_K and Q6_K", {DT_Q4_K, DT_Q4_K, DT_Q6_K}, 512, 512, 9, 8, GLU_SWIGLU, false, 0.4f, false},
    {"beside: Q8_0", {DT_Q8_0, DT_Q8_0, DT_Q8_0}, 96, 64, 4, 3, GLU_GEGLU, false, 0, false},
    {"beside: Q4_K and Q8_0", {DT_Q4_K, DT_Q4_K, DT_Q8_0}, 512, 288, 9, 8, GLU_GEGLU, false, 0, false},
    {"beside: many", {DT_Q4_K, DT_Q4_K, DT_Q6_K}, 256, 256, 70, 8, GLU_SWIGLU, false, 0, false},
    {"beside: F16", {DT_F16, DT_F16, DT_F16}, 72, 33, 5, 2, GLU_SWIGLU, false, 0, false},
};
const size_t n_beside_case = sizeof beside_cases / sizeof *beside_cases;

/* Routes each row to different experts. Some experts get no row, and if there are many rows, one gets nearly all of
 * them. */
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

void experts_init(struct experts_numbers *n, const struct experts_case *c)
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
        n->bias_up[i] *= 8; /* so that some values are clamped */
    made_up_route(c, n->route);
}

void experts_fini(struct experts_numbers *n)
{
    for (int i = 0; i < 3; i++)
        free(n->packed[i]), free(n->exact[i]);
    free(n->bias_up), free(n->bias_down);
}

struct weight experts_weight(const struct experts_case *c, const struct experts_numbers *n, bool down)
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

void beside_load(struct weight w[N_WEIGHT], struct bench *b, const struct experts_case *c,
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

void beside_close(struct weight w[N_WEIGHT], struct bench *b)
{
    for (int i = 0; i < N_WEIGHT; i++)
        b->be->weight_free(b->d, &w[i]);
    bench_close(b);
}

void case_tests_add(struct case_tests *t, void (*test)(void **), const struct experts_case *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_true(t->n < sizeof t->test / sizeof *t->test);
        t->test[t->n++] = (struct CMUnitTest){c[i].name, test, NULL, NULL, (void *)&c[i]};
    }
}
