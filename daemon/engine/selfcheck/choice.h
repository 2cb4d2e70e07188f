/*
 * choice.h - how close a choice of experts is. A device whose activations are rounded may choose others where two are
 * nearly equal; where they are not, others are an error. Pure.
 */
#ifndef HEARTH_ENGINE_CHOICE_H
#define HEARTH_ENGINE_CHOICE_H

#include "kernels/backend.h"

/* The router's logits of a row, [n_expert], in double. `w`: the op's matrix as F32, [n_expert][n_in]; x: the row of
 * ACT_X, [n_in]. Bias and norm are read where the op has them: the CPU's. */
void choice_logits(const struct op_route *op, const float *w, const float *x, double *logit);

/* The least difference between what an expert, or its group, is chosen by, and one that is not: no logit that moves by
 * less than half of it changes a choice. */
double choice_margin(const struct op_route *op, const double *logit);

#endif
