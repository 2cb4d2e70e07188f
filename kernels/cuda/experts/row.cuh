/*
 * row.cuh - products of a row of norm(x) with rows of F32 weights, and a router's order of sums: the building blocks of
 * route.cu's kernels, which also compute a delta net's F32 columns (states/project.cu).
 *
 * A router's product, and the sum of the row's squares, are summed by tiles of ROUTE_TILE columns. Within a tile each
 * group of four columns is one chain of sums, and the tile's sum is (0 + 1) + (2 + 3) of these groups. Lane l of a warp
 * adds up the tiles l, l + 32 and so on, and the lanes' sums are added pairwise. Because of this order, the block that
 * makes a tile of x can also compute the tile's share of all logits.
 */
#ifndef HEARTH_CUDA_EXPERTS_ROW_CUH
#define HEARTH_CUDA_EXPERTS_ROW_CUH

#include "kernels/cuda/gemm/rows.cuh"

enum { ROUTE_WARPS = 8, ROUTE_TILE = 16 };

/* The group of four columns of a tile that a lane takes i-th. The order does not change the sum, and with this one
 * eight lanes that read rows in shared memory find their groups in different banks. */
__device__ static inline uint32_t tile_four(uint32_t i, uint32_t lane)
{
    return i ^ (lane >> 1 & 3);
}

/* Columns k .. k + 3 of n; zeros past the end. */
__device__ static inline float4 four_at(const float *v, uint32_t k, uint32_t n)
{
    if (k + 4 <= n && !((uintptr_t)v & 15))
        return __ldcg((const float4 *)(v + k));
    return make_float4(k < n ? __ldcg(v + k) : 0, k + 1 < n ? __ldcg(v + k + 1) : 0, k + 2 < n ? __ldcg(v + k + 2) : 0,
                       k + 3 < n ? __ldcg(v + k + 3) : 0);
}

/* The same for weights: since lanes read halves of a sector in turn, these loads go through the L1 cache. */
__device__ static inline float4 weights_at(const float *v, uint32_t k, uint32_t n)
{
    if (k + 4 <= n && !((uintptr_t)v & 15))
        return __ldg((const float4 *)(v + k));
    return make_float4(k < n ? __ldg(v + k) : 0, k + 1 < n ? __ldg(v + k + 1) : 0, k + 2 < n ? __ldg(v + k + 2) : 0,
                       k + 3 < n ? __ldg(v + k + 3) : 0);
}

__device__ static inline float dot_four(float4 w, float4 x, float s)
{
    return __fmaf_rn(w.w, x.w, __fmaf_rn(w.z, x.z, __fmaf_rn(w.y, x.y, __fmaf_rn(w.x, x.x, s))));
}

/* Whether the norm's factor can be applied to the sums afterwards: NORM_RMS without a bias. */
__host__ __device__ static inline bool deferred(const struct norm &nm)
{
    return nm.kind == NORM_RMS && !nm.b;
}
__device__ static inline float row_factor(float squares, uint32_t n, float eps)
{
    return rsqrtf(squares / n + eps);
}

#endif
