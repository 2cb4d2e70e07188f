/*
 * choice.h - how close a router's choice of experts is. A device whose activations are rounded may choose other experts
 * where two are nearly equal; elsewhere, a different choice is an error. Pure.
 */
#ifndef HEARTH_ENGINE_CHOICE_H
#define HEARTH_ENGINE_CHOICE_H

#include <stdbool.h>

#include "kernels/backend.h"

/* Whether two rows of ACT_ROUTE name the same n experts, in any order. */
bool choice_same(const float *a, const float *b, uint32_t n);

struct choice_gap {
    /* The smallest difference between the score of an expert that the CPU chose, or of its group, and that of one that
     * it did not choose: if every logit moves by less than half of it, the choice stays the same. */
    double margin;
    double off; /* the largest difference of the router's logits, at least 1e-5 */
};

/* Judges a row for which a device chose other experts than the CPU did. `w` is the op's matrix as F32,
 * [n_expert][n_in]; x and device_x are the rows of ACT_X that the CPU and the device had, [n_in]. Bias and norm are
 * read from the op where it has them, so the op must be one of the CPU's. False: the choice was clearer than the
 * difference of the logits explains, which is an error. */
bool choice_is_near(const struct op_route *op, const float *w, const float *x, const float *device_x,
                    struct choice_gap *gap);

#endif
