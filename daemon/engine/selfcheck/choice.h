/*
 * choice.h - how close a router's choice of experts is. A device whose activations are rounded may choose other experts
 * where two are nearly equal; elsewhere, a different choice is an error. Pure.
 */
#ifndef HEARTH_ENGINE_CHOICE_H
#define HEARTH_ENGINE_CHOICE_H

#include <stdbool.h>

#include "kernels/backend.h"

/* Computes the router's logits of a row, [n_expert], in double. `w` is the op's matrix as F32, [n_expert][n_in]; x is
 * the row of ACT_X, [n_in]. Bias and norm are read from the op where it has them, so the op must be one of the
 * CPU's. */
void choice_logits(const struct op_route *op, const float *w, const float *x, double *logit);

/* Returns the smallest difference between the score of a chosen expert, or of its group, and that of one not chosen: if
 * every logit moves by less than half of it, the choice stays the same. */
double choice_margin(const struct op_route *op, const double *logit);

/* Whether two rows of ACT_ROUTE name the same n experts, in any order. */
bool choice_same(const float *a, const float *b, uint32_t n);

struct choice_gap {
    double margin; /* choice_margin() of the CPU's logits */
    double off;    /* the largest difference of the router's logits, at least 1e-5 */
};

/* Judges a row for which a device chose other experts than the CPU did. `w` as above; x and device_x are the rows of
 * ACT_X that the CPU and the device had, [n_in]. False: the choice was clearer than the difference of the logits
 * explains, which is an error. */
bool choice_is_near(const struct op_route *op, const float *w, const float *x, const float *device_x,
                    struct choice_gap *gap);

#endif
