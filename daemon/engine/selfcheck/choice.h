/*
 * choice.h - how close a choice of experts is. A device whose activations are rounded may choose others where two are
 * nearly equal; where they are not, others are an error. Pure.
 */
#ifndef HEARTH_ENGINE_CHOICE_H
#define HEARTH_ENGINE_CHOICE_H

#include <stdbool.h>

#include "kernels/backend.h"

/* The router's logits of a row, [n_expert], in double. `w`: the op's matrix as F32, [n_expert][n_in]; x: the row of
 * ACT_X, [n_in]. Bias and norm are read where the op has them: the CPU's. */
void choice_logits(const struct op_route *op, const float *w, const float *x, double *logit);

/* The least difference between what an expert, or its group, is chosen by, and one that is not: no logit that moves by
 * less than half of it changes a choice. */
double choice_margin(const struct op_route *op, const double *logit);

/* Two rows of ACT_ROUTE name the same n experts, in whatever order. */
bool choice_same(const float *a, const float *b, uint32_t n);

struct choice_gap {
    double margin; /* of the CPU's choice */
    double off;    /* what the router's logits are apart at most, or 1e-5 */
};

/* A device chose others for a row than the CPU did. `w` as above; x, device_x: what each had of ACT_X, [n_in]. False:
 * by more than its logits are off, which is an error. */
bool choice_is_near(const struct op_route *op, const float *w, const float *x, const float *device_x,
                    struct choice_gap *gap);

#endif
