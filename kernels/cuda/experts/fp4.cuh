/*
 * fp4.cuh - the product of a fragment of MXFP4 with eight columns of fp16, for grouped.cuh. It is bound by the pipe
 * that executes the look-ups of quant_codebook4: building halves by shifts costs half as much of that pipe, and with so
 * few columns there is little other work.
 *
 * A nibble of E2M1 is bit for bit what an fp16 number has from bit 9 on, apart from its sign: it is the value over
 * 2^15, and 0.5 is a subnormal. The nibbles j and j + 4 of a word become a pair of halves, which are elements 16 apart,
 * so the activations are paired in the same way.
 */
#ifndef HEARTH_CUDA_EXPERTS_FP4_CUH
#define HEARTH_CUDA_EXPERTS_FP4_CUH

#include "kernels/cuda/quant/quant.cuh"

/* The values of nibbles j and j + 4 as a pair of halves, divided by 2^15. */
__device__ static inline uint32_t fp4_halves(uint32_t w, int j)
{
    return lop_or(w << (12 - 4 * j), 0x80008000u, (j < 3 ? w << (9 - 4 * j) : w >> 3) & 0x0E000E00u);
}

/* acc += the fragment at r times the eight columns of v. */
__device__ static inline void fp4_mul(const uint8_t *r, const xfrag &v, int lane, float (&acc)[1][4])
{
    int g = lane >> 2, t = lane & 3;
    float sum[4] = {0, 0, 0, 0};
#pragma unroll
    for (int p = 0; p < 2; p++) {
        uint32_t a[4], b[4];
        four_of(a, ((const uint4 *)r)[p * 32 + lane]);
        four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
#pragma unroll
        for (int u = 0; u < 4; u++) {
            int s = 2 * (4 * p + u);
            float q[4] = {0, 0, 0, 0};
            uint2 x = v.four(0, s, t), y = v.four(0, s + 1, t);
            mma16816(q, fp4_halves(a[u], 0), fp4_halves(b[u], 0), fp4_halves(a[u], 1), fp4_halves(b[u], 1),
                     prmt(x.x, y.x, 0x5410), prmt(x.y, y.y, 0x5410));
            mma16816(q, fp4_halves(a[u], 2), fp4_halves(b[u], 2), fp4_halves(a[u], 3), fp4_halves(b[u], 3),
                     prmt(x.x, y.x, 0x7632), prmt(x.y, y.y, 0x7632));
            add_scaled(sum, q, codebook_mxfp4::of(r + 2048, g, 4 * p + u),
                       codebook_mxfp4::of(r + 2048, g + 8, 4 * p + u));
        }
    }
    add_scaled(acc[0], sum, 32768.f, 32768.f);
}

#endif
