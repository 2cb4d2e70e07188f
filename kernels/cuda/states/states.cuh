/*
 * states.cuh - what the kernels of layers with a recurrent state share (op.h): where a sequence's state is stored, and
 * what their launchers begin and end with.
 *
 * A page of states has the layout of the specification, [n_layer][d_state] in F32. The step's block tables have two
 * pages for each sequence: the one that its state is read from and the one that the new state is written to, which may
 * be the same. No earlier kernel of the step writes a layer's states, so that they may be read before pdl_wait().
 *
 * Except in chunks (chunk.cu), a sequence's rows are computed one after the other, by the same threads with the same
 * operations for any number of them: a row's result depends neither on where its prompt is cut nor on the other rows of
 * the step. Operations that the compiler might fuse in one kernel and not in another are written as __fmaf_rn() and the
 * like.
 */
#ifndef HEARTH_CUDA_STATES_CUH
#define HEARTH_CUDA_STATES_CUH

#include "kernels/cuda/gemm/rows.cuh"
#include "kernels/cuda/plan.cuh"
extern "C" {
#include "kernels/fmath.h"
}

/* One layer of a pool of states, passed to kernels by value. */
struct state_view {
    float *base;        /* page 0, this layer */
    uint64_t page_step; /* stride between pages, in floats */
    const step_dev *s;
    const uint32_t *pages, *pages0; /* as in attend_args */
};
__device__ static inline uint32_t state_page(const state_view &v, uint32_t seq, uint32_t which)
{
    return v.pages[v.pages0[seq] + which];
}
/* The state before the sequence's rows of this step; NULL where the sequence begins, which stands for zeros. */
__device__ static inline const float *state_from(const state_view &v, uint32_t seq)
{
    return v.s->pos0[seq] ? v.base + state_page(v, seq, 0) * v.page_step : NULL;
}
__device__ static inline float *state_to(const state_view &v, uint32_t seq)
{
    return v.base + state_page(v, seq, 1) * v.page_step;
}

/* x sigmoid(x), bit-identical to the specification's. */
__device__ static inline float state_silu(float x)
{
    return __fmul_rn(x, __frcp_rn(__fadd_rn(1.f, fm_exp(-x))));
}

/* Sets *out to the layer's states, if the op's group holds states of n numbers, ACT_MIX has n_mix columns and ACT_ATT
 * has room for n_att; else refuses the step and returns false. */
bool state_begin(struct device *d, const char *what, uint32_t group, uint32_t layer, uint64_t n, uint32_t n_mix,
                 uint32_t n_att, state_view *out);

/* Where to write ACT_ATT: in the element order of the product that reads it, where possible. */
act_buf state_result(struct device *d, struct op_call *p, uint32_t n_att);

/* The number of sequences in a launch's grid: in a decode step as many as rows in the bucket, since its graph may be
 * replayed for more. */
static inline uint32_t state_seqs(const struct device *d)
{
    return d->decode ? d->bucket : d->n_seq;
}

#endif
