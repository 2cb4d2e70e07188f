/*
 * wgmma.cuh - mixtures of experts for prompts and large batches on Hopper, except in INVARIANT_DECODE: pairs sorted by
 * expert are the columns of wgmma products (../gemm/wgmma.cuh), up to 128 of them at a time.
 */
#ifndef HEARTH_CUDA_EXPERTS_WGMMA_CUH
#define HEARTH_CUDA_EXPERTS_WGMMA_CUH

#include "kernels/cuda/experts/experts.cuh"

/* Whether a step of n_row rows takes this path through the experts' matrix w. */
bool experts_wg_takes(const struct device *d, const wdev *w, uint32_t n_used, uint32_t n_row, enum invariance how);
/* Gathers the columns of a product, prepared rows at a.x, or a.hidden if `down`, in the element order that w's type
 * wants. a.order and a.jobs must be filled, and a.cols must be what experts_wg_cols() returns. */
void experts_wg_columns(struct device *d, const experts_args &a, const wdev *w, bool down);
/* The products of those columns. `up` writes to a.hidden, or, where `down` (the matrix of the op that reads it) is
 * given, directly to the columns of that product. */
void experts_wg_up(struct device *d, const experts_args &a, const wdev *w, const wdev *down);
void experts_wg_down(struct device *d, const experts_args &a, const wdev *w);
/* The largest number of pairs in a job. */
uint32_t experts_wg_cols(const struct device *d, const wdev *w, uint32_t n_used);

#endif
