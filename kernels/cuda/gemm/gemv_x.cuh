/*
 * gemv_x.cuh - conversion of rows of activations, by a warp, into the integers that weights are multiplied by
 * (tile16_int.cuh): from prepared rows, or from norm(x) of the residual stream.
 */
#ifndef HEARTH_CUDA_GEMM_GEMV_X_CUH
#define HEARTH_CUDA_GEMM_GEMV_X_CUH

#include "kernels/cuda/gemm/gemm.cuh"
#include "kernels/cuda/gemm/tile16_int.cuh"

#if __CUDA_ARCH__ >= 800

/* Converts eight halves of a prepared row of n elements, from element k on, into row order, with zeros past the row's
 * end. */
__device__ static inline void gemv_floats(uint4 w, uint32_t n, uint32_t k, float (&v)[8])
{
    float2 p = __half22float2(*(const __half2 *)&w.x), q = __half22float2(*(const __half2 *)&w.y);
    float2 s = __half22float2(*(const __half2 *)&w.z), t = __half22float2(*(const __half2 *)&w.w);
    v[0] = p.x, v[1] = q.x, v[2] = p.y, v[3] = q.y, v[4] = s.x, v[5] = t.x, v[6] = s.y, v[7] = t.y; /* 0, 2, 1, 3 */
    if (k + 8 > n)
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = k + j < n ? v[j] : 0.f;
}

/*
 * A warp converts its records of a row one by one, in a loop that is not unrolled: code is fetched as it is executed,
 * and so one more record costs only what its instructions do. IN_FLIGHT records are loaded ahead.
 *
 * From a prepared row of n elements: every EACH-th record from r0 to r1, src being that of r0. What lies past the row's
 * end in the last record is left over from another row that the workspace served before. It is read as zeros, as a
 * record's scale follows from its greatest element.
 */
template <int EACH>
__device__ static inline void gemv_quantize(const __half *src, uint32_t n, uint32_t r0, uint32_t r1, uint8_t *dst,
                                            uint32_t lane)
{
    enum { IN_FLIGHT = 4 };
    uint4 h[IN_FLIGHT];
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; i++)
        if (r0 + i * EACH < r1)
            h[i] = __ldcg((const uint4 *)(src + i * EACH * XFRAG_STRIDE));
#pragma unroll 1
    for (uint32_t r = r0; r < r1; r += EACH, src += EACH * XFRAG_STRIDE) {
        uint4 w = h[0];
#pragma unroll
        for (int i = 0; i + 1 < IN_FLIGHT; i++)
            h[i] = h[i + 1];
        if (r + IN_FLIGHT * EACH < r1)
            h[IN_FLIGHT - 1] = __ldcg((const uint4 *)(src + IN_FLIGHT * EACH * XFRAG_STRIDE));
        float v[8];
        gemv_floats(w, n, r * 256 + lane * 8, v);
        int_quantize(dst + r * IX_KBLK, lane, v);
    }
}

/* Eight elements of a row of n elements, n a multiple of 8; zeros past its end. */
struct eight {
    float4 a, b;
    __device__ void take(const float *row, uint32_t n, uint32_t k)
    {
        a = b = make_float4(0, 0, 0, 0);
        if (k < n)
            a = __ldcg((const float4 *)(row + k)), b = __ldcg((const float4 *)(row + k + 4));
    }
};
enum { NORM_IN_FLIGHT = 2 };

/*
 * From norm(x) of a row of n elements, without the norm's factor; the warp's sum of squares for that factor goes to
 * *square. f: the norm's weights of the first NORM_IN_FLIGHT records.
 */
__device__ static inline void gemv_norm_quantize(const float *x, uint32_t n, const float *weights,
                                                 eight f[NORM_IN_FLIGHT], uint32_t r0, uint32_t r1, uint8_t *dst,
                                                 float *square, uint32_t lane)
{
    eight e[NORM_IN_FLIGHT];
    float s = 0;
    uint32_t k = r0 * 256 + lane * 8;
#pragma unroll
    for (int i = 0; i < NORM_IN_FLIGHT; i++)
        if (r0 + i < r1)
            e[i].take(x, n, k + 256 * i);
#pragma unroll 1
    for (uint32_t r = r0; r < r1; r++, k += 256) {
        float v[8] = {e[0].a.x, e[0].a.y, e[0].a.z, e[0].a.w, e[0].b.x, e[0].b.y, e[0].b.z, e[0].b.w},
              w[8] = {f[0].a.x, f[0].a.y, f[0].a.z, f[0].a.w, f[0].b.x, f[0].b.y, f[0].b.z, f[0].b.w};
        e[0] = e[1], f[0] = f[1];
        if (r + NORM_IN_FLIGHT < r1)
            e[1].take(x, n, k + 256 * NORM_IN_FLIGHT), f[1].take(weights, n, k + 256 * NORM_IN_FLIGHT);
#pragma unroll
        for (int j = 0; j < 8; j++)
            s = __fmaf_rn(v[j], v[j], s), v[j] = __fmul_rn(v[j], w[j]);
        int_quantize(dst + r * IX_KBLK, lane, v);
    }
#pragma unroll
    for (int i = 16; i; i /= 2)
        s = __fadd_rn(s, __shfl_xor_sync(~0u, s, i));
    if (!lane)
        *square = s;
}

#endif

#endif
