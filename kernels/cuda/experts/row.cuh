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

#endif
