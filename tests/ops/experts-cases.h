/*
 * experts-cases.h - shared by the tests of experts: shapes of mixtures, their weights, and a shared expert or a dense
 * network beside them.
 */
#ifndef TESTS_OPS_EXPERTS_CASES_H
#define TESTS_OPS_EXPERTS_CASES_H

#include "tests/ops/experts-bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { USED_MAX = 8 /* experts of a row in these cases */ };

struct experts_case {
    const char *name;
    enum dtype type[3]; /* of gate, up and down */
    uint32_t d, d_ff, n, used;
    enum glu_kind glu;
    bool bias;
    float residual_scale;
    bool factors; /* each expert's matrices have a factor */
    bool quick;   /* quick enough for prompts on a simulated GPU */
    bool latent;  /* they read ACT_MIX and write ACT_ATT */
};
/* All types of weights and odd shapes; and cases with a shared expert or a network beside the experts. */
extern const struct experts_case experts_cases[], beside_cases[];
extern const size_t n_experts_case, n_beside_case;

struct experts_numbers {
    uint8_t *packed[3]; /* [n] matrices, one after another */
    const void *list[3][N_MAX];
    float factor[3][N_MAX];
    float *exact[3]; /* the same in F32, times the factors */
    float x[ROWS * D_MAX], route[ROWS * 2 * USED_MAX], hidden[ROWS * USED_MAX * D_MAX], norm[D_MAX];
    float *bias_up, *bias_down;
    uint32_t n_in[3], n_out[3];
};
void experts_init(struct experts_numbers *n, const struct experts_case *c);
void experts_fini(struct experts_numbers *n);
/* The weight to load for the experts' gate and up, or for their down. */
struct weight experts_weight(const struct experts_case *c, const struct experts_numbers *n, bool down);

/* The weights of the experts and of what is beside them. */
enum { UP, OWN_UP, DOWN, OWN_DOWN, N_WEIGHT };
/* Loads the experts, and a shared expert, which has the matrices of expert 1, or a network with the numbers of `width`
 * experts. */
void beside_load(struct weight w[N_WEIGHT], struct bench *b, const struct experts_case *c,
                 const struct experts_numbers *n, uint32_t width);
void beside_close(struct weight w[N_WEIGHT], struct bench *b);

/* The tests of a program: a function that is run with each of n cases. */
struct case_tests {
    struct CMUnitTest test[128];
    size_t n;
};
void case_tests_add(struct case_tests *t, void (*test)(void **), const struct experts_case *c, size_t n);

#endif
