/*
 * pairs.cuh - what surrounds the products of experts: pairs sorted by expert, hidden rows prepared, products of a row's
 * experts added up, and what becomes of the sum.
 */
#ifndef HEARTH_CUDA_EXPERTS_PAIRS_CUH
#define HEARTH_CUDA_EXPERTS_PAIRS_CUH

#include "kernels/cuda/experts/experts.cuh"

/* The step's pairs by expert, and jobs of up to a.cols of them. */
void pairs_sort(struct device *d, const experts_args &a);
/* Hidden rows to x, records a.x_step apart. */
void pairs_prepare(struct device *d, const experts_args &a, __half *x);
/* `to` += a row's sums, or `to` = them. */
void pairs_add(struct device *d, const struct expert_sums *s, float *to, uint32_t ldto, bool anew);
/* Of op's results of n columns in ws.tmp, what goes to ws.x. */
void pairs_end(struct device *d, const struct op_experts_down *op, uint32_t n);

#endif
