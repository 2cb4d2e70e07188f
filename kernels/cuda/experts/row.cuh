/*
 * row.cuh - products of a row of norm(x) with rows of F32, in one order of sums: what route.cu's kernels and a delta
 * net's that decodes must have in common, to the bit.
 *
 * A row's squares are added by ROUTE_WARPS warps' threads, by warp, then in the order of the warps. A product is one
 * warp's: its lanes take fours of the columns in turn, in one chain of sums each, which are then added pairwise.
 */
#ifndef HEARTH_CUDA_EXPERTS_ROW_CUH
#define HEARTH_CUDA_EXPERTS_ROW_CUH

#include "kernels/cuda/gemm/rows.cuh"

enum { ROUTE_WARPS = 8 };

/* Columns k .. k + 3 of n; zeros past the end. */
__device__ static inline float4 four_at(const float *v, uint32_t k, uint32_t n)
{
    if (k + 4 <= n && !((uintptr_t)v & 15))
        return __ldcg((const float4 *)(v + k));
    return make_float4(k < n ? __ldcg(v + k) : 0, k + 1 < n ? __ldcg(v + k + 1) : 0, k + 2 < n ? __ldcg(v + k + 2) : 0,
                       k + 3 < n ? __ldcg(v + k + 3) : 0);
}

__device__ static inline float dot_four(float4 w, float4 x, float s)
{
    return __fmaf_rn(w.w, x.w, __fmaf_rn(w.z, x.z, __fmaf_rn(w.y, x.y, __fmaf_rn(w.x, x.x, s))));
}

/* The last norm's factor where it can be multiplied with the sums: NORM_RMS without a bias. */
__host__ __device__ static inline bool deferred(const struct norm &nm)
{
    return nm.kind == NORM_RMS && !nm.b;
}
__device__ static inline float row_factor(float squares, uint32_t n, float eps)
{
    return rsqrtf(squares / n + eps);
}

/* As route.cu's weigh(), with few registers: thread t's fours of x times the norm's weights go to `to`; its warp's sum
 * of squares is returned. */
__device__ static inline float weigh_few(const float *x, uint32_t n, uint32_t t, const float *weights, float *to)
{
    float s = 0;
#pragma unroll 2
    for (uint32_t k = t * 4; k < n; k += ROUTE_WARPS * 128) {
        float4 f = four_at(x, k, n), w = four_at(weights, k, n);
        s = dot_four(f, f, s);
        *(float4 *)(to + k) =
            make_float4(__fmul_rn(f.x, w.x), __fmul_rn(f.y, w.y), __fmul_rn(f.z, w.z), __fmul_rn(f.w, w.w));
    }
    return warp_sum(s);
}

#endif
