/*
 * states.cuh - what the kernels of layers with a recurrent state share (op.h): where a sequence's state lies, and the
 * convolution in time that such layers begin with.
 *
 * A page of states is the specification's, [n_layer][d_state] in F32. Of each sequence the step's block tables have two
 * pages: the one that its state is read from, and the one that it is left in, which may be the same. No kernel before
 * in the step writes a layer's states, so that they may be read before pdl_wait().
 *
 * A sequence's rows are computed one after the other, but in chunks (chunk.cu), by the same threads with the same
 * operations for any number of them: what a row gives depends neither on the cut of its prompt nor on the rows beside
 * it. Whatever the compiler might fuse in one kernel and not in another is written by __fmaf_rn() and its like.
 */
#ifndef HEARTH_CUDA_STATES_CUH
#define HEARTH_CUDA_STATES_CUH

#include "kernels/cuda/gemm/rows.cuh"
#include "kernels/cuda/plan.cuh"
extern "C" {
#include "kernels/fmath.h"
}

/* One layer of a pool of states, by value to kernels. */
struct state_view {
    float *base;        /* page 0, this layer */
    uint64_t page_step; /* floats from page to page */
    const step_dev *s;
    const uint32_t *pages, *pages0; /* as in attend_args */
};
__device__ static inline uint32_t state_page(const state_view &v, uint32_t seq, uint32_t which)
{
    return v.pages[v.pages0[seq] + which];
}
/* The state before the sequence's rows; NULL where it begins, which is zeros. */
__device__ static inline const float *state_from(const state_view &v, uint32_t seq)
{
    return v.s->pos0[seq] ? v.base + state_page(v, seq, 0) * v.page_step : NULL;
}
__device__ static inline float *state_to(const state_view &v, uint32_t seq)
{
    return v.base + state_page(v, seq, 1) * v.page_step;
}

/* x sigmoid(x), to the bit of the specification's. */
__device__ static inline float state_silu(float x)
{
    return __fmul_rn(x, __frcp_rn(__fadd_rn(1.f, fm_exp(-x))));
}

/* The layer, where the op's group is one of states of n numbers, ACT_MIX has n_mix columns and ACT_ATT room for n_att;
 * else the step is refused. */
bool state_begin(struct device *d, const char *what, uint32_t group, uint32_t layer, uint64_t n, uint32_t n_mix,
                 uint32_t n_att, state_view *out);

/* Where ACT_ATT goes: in the order that the product after it wants, where that can be. */
act_buf state_result(struct device *d, struct op_call *p, uint32_t n_att);

/* Sequences that a launch's grid has: of a step that decodes as many as rows, whose graph may serve more. */
static inline uint32_t state_seqs(const struct device *d)
{
    return d->decode ? d->bucket : d->n_seq;
}

#endif
