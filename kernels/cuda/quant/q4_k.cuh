/* q4_k.cuh - Q4_K on the GPU: q45_k.cuh without the fifth bit, and the expansion of whole fragments to fp16. */
#ifndef HEARTH_CUDA_Q4_K_CUH
#define HEARTH_CUDA_Q4_K_CUH

#include "kernels/cuda/quant/q45_k.cuh"

template <> struct quant<DT_Q4_K> : quant_q45_k<0> {
    static constexpr bool COLS16 = true;
    static constexpr bool EXPAND = true;

    __device__ static inline void expand(const uint8_t *u, uint32_t h, uint32_t lane, uint4 (*out)[33])
    {
        uint32_t g = lane >> 2, t = lane & 3;
        uint32_t a = ((const uint32_t *)(u + 2048))[lane], e = ((const uint16_t *)(u + 2176))[lane];
        float2 d = __half22float2(((const __half2 *)(u + 2240))[8 * h + g]);
        uint32_t m[2] = {h ? e >> 6 & 63 : a >> 24 & 63, h ? a >> 30 | (e >> 12) << 2 : e & 63};
#pragma unroll
        for (int p = 0; p < 2; p++) {
            uint4 w4 = ((const uint4 *)(u + (2 * h + p) * 512))[place(lane)];
            uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
            for (int up = 0; up < 2; up++) {
                float scale = d.x * small_float(a >> (12 * h + 6 * up) & 63), least = d.y * small_float(m[up]);
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    union {
                        uint4 v;
                        __half2 h[4];
                    } o;
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        uint32_t x = w[2 * half + i / 2] >> (16 * (i & 1) + 4 * up);
                        o.h[i] = __floats2half2_rn(scale * small_float(x & 15) - least,
                                                   scale * small_float(x >> 8 & 15) - least);
                    }
                    uint32_t c = 8 * t + 4 * up + 2 * p + half;
                    out[g][c ^ (c >> 3)] = o.v;
                }
            }
        }
    }
};

#endif
