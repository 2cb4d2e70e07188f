/*
 * rows.cuh - rows of f32 that become a matrix input, for kernels that end with one: how four elements are stored in
 * each layout, sums over a warp and a block in a fixed order, and a norm's statistics of a row.
 */
#ifndef HEARTH_CUDA_ROWS_CUH
#define HEARTH_CUDA_ROWS_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/gemm/split_k.cuh"

/* Stores four consecutive elements; the 8 lanes of a sub-block of 32 must call it together, so that its sum can be
 * written. */
__device__ static inline void store4(const act_buf &o, uint32_t row, uint32_t k, uint32_t n, const float v[4])
{
    __half h[4];
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        h[i] = half_sat(k + i < n ? v[i] : 0.f);
        sum += __half2float(h[i]);
    }
    __half *r = act_row(o, row);
    if (o.layout == LAYOUT_ROW_MAJOR) {
        if (k < n)
            *(uint2 *)(r + k) = *(const uint2 *)h;
        return;
    }
    __half q[4] = {h[0], h[2], h[1], h[3]};
    if (o.layout >= LAYOUT_WG) {
        if (k < (n + 255) / 256 * 256) {
            __half *at = wg_place(o, row, k, n);
            *(uint32_t *)at = *(const uint32_t *)q;
            *(uint32_t *)(at + o.ld * 8) = *(const uint32_t *)(q + 2);
        }
        return;
    }
    for (int i = 1; i < 8; i *= 2)
        sum += __shfl_xor_sync(~0u, sum, i);
    if (k < (n + 255) / 256 * 256) {
        *(uint2 *)(r + xfrag_at(k)) = *(const uint2 *)q;
        if (k % 32 == 0) {
            __half hi = half_sat(sum);
            r[xfrag_sum_at(k)] = hi;
            r[xfrag_sum_at(k) + 8] = half_sat(sum - __half2float(hi));
        }
    }
}

/* The sum of v over the block, in a fixed order; every thread gets it. */
__device__ static inline float block_sum(float v, float *shared)
{
    for (int i = 16; i; i /= 2)
        v += __shfl_xor_sync(~0u, v, i);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (uint32_t i = 0; i < blockDim.x / 32; i++)
        v += shared[i];
    return v;
}

/* Mean (0 for RMS) and 1 / deviation of n values that f(k) gives; 0 and 1 where there is no norm. */
template <typename F> __device__ static inline float2 norm_stats(F f, uint32_t n, struct norm nm, float *shared)
{
    float s = 0, mean = 0;
    if (nm.kind == NORM_NONE)
        return make_float2(0, 1);
    if (nm.kind == NORM_LAYER) {
        for (uint32_t k = threadIdx.x; k < n; k += blockDim.x)
            s += f(k);
        mean = block_sum(s, shared) / n;
        s = 0;
    }
    for (uint32_t k = threadIdx.x; k < n; k += blockDim.x) {
        float v = f(k) - mean;
        s += v * v;
    }
    return make_float2(mean, rsqrtf(block_sum(s, shared) / n + nm.eps));
}

__device__ static inline float warp_sum(float v)
{
    for (int i = 16; i; i /= 2)
        v += __shfl_xor_sync(~0u, v, i);
    return v;
}

#endif
