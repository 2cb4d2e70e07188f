/*
 * q48_0.cuh - the product in int8 that Q4_0 and Q8_0 have in common: blocks of 32 weights with a scale.
 */
#ifndef HEARTH_CUDA_Q48_0_CUH
#define HEARTH_CUDA_Q48_0_CUH

#include "kernels/cuda/gemm/tile16_int.cuh"

#if __CUDA_ARCH__ >= 800
/* One mma per block of 32 k: eight blocks (Q4_0, EIGHT 0), or the four of a fragment (Q8_0, EIGHT 1). */
template <int EIGHT, int M>
__device__ static inline void int_q_0(const uint8_t *r, int frag, const ix_frag &v, int lane, float (&acc)[M][2])
{
    int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int p = 0; p < (EIGHT ? 1 : 2); p++) { /* four blocks */
        int c[M][4];
        uint32_t x[M][2];
#pragma unroll
        for (int m = 0; m < M; m++) {
            const uint8_t *row =
                v.at + m * v.row_step + (g & 1) * IX_HI + 128 * (EIGHT ? frag : p) + 32 * (g >> 1) + 4 * t;
            x[m][0] = *(const uint32_t *)row, x[m][1] = *(const uint32_t *)(row + 16);
            c[m][0] = c[m][1] = c[m][2] = c[m][3] = 0;
        }
        auto block = [&](int i, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3) {
#pragma unroll
            for (int m = 0; m < M; m++)
                imma32<1>(c[m], a0, a1, a2, a3, g >> 1 == i ? x[m][0] : 0, g >> 1 == i ? x[m][1] : 0);
        };
        constexpr uint32_t F = 0x80808080u, N = 0xf0f0f0f0u;
        if (EIGHT)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t a[4], b[4];
                four_of(a, ((const uint4 *)r)[i * 32 + lane]);
                four_of(b, ((const uint4 *)r)[(2 + i) * 32 + lane]);
                block(2 * i, a[0] ^ F, b[0] ^ F, a[1] ^ F, b[1] ^ F);
                block(2 * i + 1, a[2] ^ F, b[2] ^ F, a[3] ^ F, b[3] ^ F);
            }
        else {
            uint32_t a[4], b[4];
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
#pragma unroll
            for (int i = 0; i < 4; i++) /* 16 (q - 8) */
                block(i, (a[i] << 4 & N) ^ F, (b[i] << 4 & N) ^ F, (a[i] & N) ^ F, (b[i] & N) ^ F);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t at = EIGHT ? (g + 8 * h) * 4 + t : (g + 8 * h) * 8 + 4 * p + t;
            float d = __half2float(((const __half *)(r + 2048))[at]) * (EIGHT ? 1.f : 0.0625f);
#pragma unroll
            for (int m = 0; m < M; m++) {
                float scale = *(const float *)(v.at + m * v.row_step + IX_SCALE);
                acc[m][h] = __fmaf_rn(__fmul_rn(d, scale), (float)ix_join(c[m], h), acc[m][h]);
            }
        }
    }
}
#endif

#endif
