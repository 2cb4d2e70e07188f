/* prepare.cuh - conversion of rows of activations, normed or as they are, into prepared records (act.cuh). */
#ifndef HEARTH_CUDA_GEMM_PREPARE_CUH
#define HEARTH_CUDA_GEMM_PREPARE_CUH

#include "kernels/cuda/gemm/gemm.cuh"

/*
 * Stores the sub-block sums of a prepared record, by one warp: v is a lane's eight consecutive elements, in the
 * record's order. The four lanes of a sub-block form its sum as store4() does: fours in order, then pairs of fours.
 */
__device__ static inline void xfrag_store_sums(__half *kblk, uint32_t lane, uint4 v)
{
    float2 a = __half22float2(*(const __half2 *)&v.x), b = __half22float2(*(const __half2 *)&v.y); /* 0, 2; 1, 3 */
    float2 c = __half22float2(*(const __half2 *)&v.z), d = __half22float2(*(const __half2 *)&v.w);
    float s = __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(a.x, b.x), a.y), b.y),
                        __fadd_rn(__fadd_rn(__fadd_rn(c.x, d.x), c.y), d.y));
    s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 1));
    s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 2));
    if (!(lane & 3)) {
        __half hi = half_sat(s);
        kblk[XFRAG_SUM + (lane >> 2)] = hi;
        kblk[XFRAG_SUM + 8 + (lane >> 2)] = half_sat(__fsub_rn(s, __half2float(hi)));
    }
}
__device__ static inline void load_eight(float v[8], const float *x, uint32_t k, uint32_t n)
{
    if (k + 8 <= n && !((uintptr_t)x & 15)) {
        float4 a = __ldcg((const float4 *)(x + k)), b = __ldcg((const float4 *)(x + k + 4));
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else
        for (int i = 0; i < 8; i++)
            v[i] = k + i < n ? __ldcg(x + k + i) : 0.f;
}

/* The sum of s over the block's eight consumer warps, in their order; every thread gets it. */
__device__ static inline float consumers_sum(float s, float *shared, uint32_t warp, uint32_t lane)
{
#pragma unroll
    for (int i = 16; i; i /= 2)
        s = __fadd_rn(s, __shfl_xor_sync(~0u, s, i));
    if (!lane)
        shared[warp] = s;
    consumers_sync();
    s = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        s = __fadd_rn(s, shared[i]);
    return s;
}

/*
 * Writes norm(x), or x where there is no norm, of a row of n elements into prepared records, by eight warps, a slice of
 * K each. row() waits for the previous kernel and returns x; the norm's weights, which no kernel writes, are requested
 * before it. Up to KEEP records of a slice stay in registers, the rest is read again. step: halves from record to
 * record at dst; shared: 16 floats.
 */
template <class X>
__device__ static inline void norm_chunks(X row, uint32_t n, const struct norm &nm, uint32_t n_kblk, __half *dst,
                                          uint32_t step, float *shared, uint32_t warp, uint32_t lane)
{
    enum { KEEP = 2 };
    uint32_t r0 = t16_slice(n_kblk, warp), r1 = t16_slice(n_kblk, warp + 1);
    auto weights = [&](float *to, uint32_t r) {
        if (nm.kind != NORM_NONE)
            load_eight(to, nm.w, r * 256 + lane * 8, n);
        else
            for (int j = 0; j < 8; j++)
                to[j] = 1;
    };
    float v[KEEP][8], wt[KEEP][8], far[8], mean = 0, s = 0;
#pragma unroll
    for (int i = 0; i < KEEP; i++)
        if (r0 + i < r1)
            weights(wt[i], r0 + i);
    const float *x = row();
#pragma unroll
    for (int i = 0; i < KEEP; i++)
        if (r0 + i < r1)
            load_eight(v[i], x, (r0 + i) * 256 + lane * 8, n);
    if (nm.kind == NORM_LAYER) {
#pragma unroll
        for (int i = 0; i < KEEP; i++)
            if (r0 + i < r1)
                for (int j = 0; j < 8; j++)
                    s = __fadd_rn(s, v[i][j]);
        for (uint32_t r = r0 + KEEP; r < r1; r++) {
            load_eight(far, x, r * 256 + lane * 8, n);
            for (int j = 0; j < 8; j++)
                s = __fadd_rn(s, far[j]);
        }
        mean = consumers_sum(s, shared, warp, lane) / n;
        s = 0;
    }
    auto square = [&](const float *f, uint32_t r) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float c = r * 256 + lane * 8 + j < n ? __fsub_rn(f[j], mean) : 0.f;
            s = __fmaf_rn(c, c, s);
        }
    };
#pragma unroll
    for (int i = 0; i < KEEP; i++)
        if (r0 + i < r1)
            square(v[i], r0 + i);
    for (uint32_t r = r0 + KEEP; r < r1; r++) {
        load_eight(far, x, r * 256 + lane * 8, n);
        square(far, r);
    }
    float scale = rsqrtf(__fadd_rn(consumers_sum(s, shared + WARPS, warp, lane) / n, nm.eps));
    if (nm.kind == NORM_NONE)
        scale = 1;
    auto store = [&](const float *f, const float *w, uint32_t r) {
        __half h[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            uint32_t k = r * 256 + lane * 8 + j;
            float y = k < n ? __fmul_rn(__fmul_rn(__fsub_rn(f[j], mean), scale), w[j]) : 0.f;
            h[j] = half_sat(nm.b && k < n ? __fadd_rn(y, nm.b[k]) : y);
        }
        __half o[8] = {h[0], h[2], h[1], h[3], h[4], h[6], h[5], h[7]};
        *(uint4 *)(dst + r * step + eight_at(lane)) = *(const uint4 *)o;
        xfrag_store_sums(dst + r * step, lane, *(const uint4 *)o);
    };
#pragma unroll
    for (int i = 0; i < KEEP; i++)
        if (r0 + i < r1)
            store(v[i], wt[i], r0 + i);
    for (uint32_t r = r0 + KEEP; r < r1; r++) {
        load_eight(far, x, r * 256 + lane * 8, n);
        weights(wt[0], r);
        store(far, wt[0], r);
    }
}

#endif
