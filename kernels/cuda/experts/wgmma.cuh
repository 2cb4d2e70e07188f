/*
 * wgmma.cuh - prompts through mixtures of experts on Hopper, outside the invariant mode of decoding: pairs by expert
 * are the columns of products by wgmma (../gemm/wgmma.cuh), up to 128 of them at a time.
 */
#ifndef HEARTH_CUDA_EXPERTS_WGMMA_CUH
#define HEARTH_CUDA_EXPERTS_WGMMA_CUH

#include "kernels/cuda/experts/experts.cuh"

/* Whether a step of so many rows goes this way through experts' matrix w. */
bool experts_wg_takes(const struct device *d, const wdev *w, uint32_t n_used, uint32_t n_row, enum invariance how);
/* The columns of a product: prepared rows at a.x, or a.hidden, to the order that w's type wants. a.order and a.jobs are
 * there, and a.cols is what experts_wg_cols() says. */
void experts_wg_columns(struct device *d, const experts_args &a, const wdev *w, bool down);
/* The products of those columns. up: to a.hidden, or, where `down` is its reader's matrix, to that one's columns. */
void experts_wg_up(struct device *d, const experts_args &a, const wdev *w, const wdev *down);
void experts_wg_down(struct device *d, const experts_args &a, const wdev *w);
/* Pairs of a job at most. */
uint32_t experts_wg_cols(const struct device *d, const wdev *w, uint32_t n_used);

#endif
