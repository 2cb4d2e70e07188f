/*
 * pairs.cuh - the steps around the products of experts: sorting pairs by expert, preparing hidden rows, adding up the
 * products of a row's experts, and processing the sum.
 */
#ifndef HEARTH_CUDA_EXPERTS_PAIRS_CUH
#define HEARTH_CUDA_EXPERTS_PAIRS_CUH

#include "kernels/cuda/experts/experts.cuh"

/* Sorts the step's pairs by expert and makes jobs of up to a.cols of them. */
void pairs_sort(struct device *d, const experts_args &a);
/* Prepares the hidden rows into x, with a stride of a.x_step between records. */
void pairs_prepare(struct device *d, const experts_args &a, __half *x);
/* `to` += the sums of each row, or, if anew, `to` = the sums. */
void pairs_add(struct device *d, const struct expert_sums *s, float *to, uint32_t ldto, bool anew);
/* Applies op's norms and scale to its results in ws.tmp, n columns, and adds them to ws.x. */
void pairs_end(struct device *d, const struct op_experts_down *op, uint32_t n);

#endif
