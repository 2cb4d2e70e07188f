/*
 * unpack.cuh - elements of a T16 unit (tile16.cuh) as f32: the way back of pack.cu, for who wants single rows of a
 * packed matrix. The bits are those of dequant.cuh on the file's blocks: every product in them is exact but the last
 * rounding.
 */
#ifndef HEARTH_CUDA_UNPACK_CUH
#define HEARTH_CUDA_UNPACK_CUH

#include "kernels/cuda/gemm/tile16.cuh"

/* Elements k .. k + 7 (k % 8 == 0) of row (h, g) of a tile. */
__device__ static inline void unpack_eight(uint32_t type, const uint8_t *tile, uint32_t n_kblk, uint32_t h, uint32_t g,
                                           uint32_t k, float out[8])
{
    uint32_t kblk = k >> 8, per = t16_frags(type), frag = t16_frag_bytes(type), q = 0, row = 8 * h + g;
    k &= 255;
    if (type == DT_Q8_0)
        q = k >> 7;
    else if (per == 4)
        q = k >> 4 & 3;
    else if (per == 8)
        q = k >> 3 & 7;
    const uint8_t *u = tile + (uint64_t)t16_frag_at(n_kblk, per, kblk, q) * frag;
    uint32_t t = k >> 6, s = k >> 4;
    switch (type) {
    case DT_Q4_K:
    case DT_Q5_K: {
        uint32_t S = type == DT_Q5_K ? 2560 : 2048, lane = g << 2 | t, up = k >> 5 & 1, p = k >> 4 & 1, j = k >> 2 & 3;
        const uint32_t *w = (const uint32_t *)(u + (2 * h + p) * 512 + lane * 16) + j;
        uint32_t a = ((const uint32_t *)(u + S))[lane], e = ((const uint16_t *)(u + S + 128))[lane];
        uint32_t sc = a >> (12 * h + 6 * up) & 63,
                 m = h ? (up ? a >> 30 | (e >> 12) << 2 : e >> 6 & 63) : (up ? e & 63 : a >> 24 & 63);
        float2 d = __half22float2(((const __half2 *)(u + S + 192))[row]);
        uint32_t five = type == DT_Q5_K ? ((const uint32_t *)(u + 2048 + lane * 16))[2 * h + p] : 0;
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t v = w[i >> 2] >> (8 * (i & 3) + 4 * up) & 15;
            v |= (five >> (8 * (i & 3) + j + (i >> 2) + 4 * up) & 1) << 4;
            out[i] = d.x * (float)sc * (float)v - d.y * (float)m;
        }
        return;
    }
    case DT_Q6_K:
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t m = i & 3, lane = g << 2 | ((k >> 2 & 3) + (i >> 2)), w = s >> 1;
            uint32_t lo =
                ((const uint32_t *)(u + (2 * h + (w >> 2)) * 512 + lane * 16))[w & 3] >> (8 * m + 4 * (s & 1)) & 15;
            uint32_t hi =
                ((const uint32_t *)(u + 2048 + h * 512 + lane * 16))[w >> 1] >> (8 * m + 4 * (w & 1) + 2 * (s & 1)) & 3;
            int sc = (int)(u[3072 + row * 16 + s]) - 128;
            out[i] = __half2float(((const __half *)(u + 3328))[row]) * (float)sc * (float)((int)(lo | hi << 4) - 32);
        }
        return;
    case DT_Q8_0:
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t lane = g << 2 | ((k >> 2 & 3) + (i >> 2)), w = s & 7;
            int v = (int)u[(2 * h + (w >> 2)) * 512 + lane * 16 + (w & 3) * 4 + (i & 3)] - 128;
            out[i] = __half2float(((const __half *)(u + 2048))[row * 4 + (k >> 5 & 3)]) * (float)v;
        }
        return;
    case DT_Q4_0:
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t lane = g << 2 | ((k >> 2 & 3) + (i >> 2)), w = s >> 1;
            uint32_t v =
                ((const uint32_t *)(u + (2 * h + (w >> 2)) * 512 + lane * 16))[w & 3] >> (8 * (i & 3) + 4 * (s & 1)) &
                15;
            out[i] = __half2float(((const __half *)(u + 2048))[row * 8 + (k >> 5)]) * (float)((int)v - 8);
        }
        return;
    case DT_F32:
        for (uint32_t i = 0; i < 8; i++)
            out[i] = ((const float *)(u + (2 * h + (i >> 2)) * 512 + (g << 2 | t) * 16))[i & 3];
        return;
    default:
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t m = i & 3, at = (i & 4) + (m == 1 ? 2 : m == 2 ? 1 : m);
            uint32_t v = ((const uint16_t *)(u + (2 * h + (k >> 3 & 1)) * 512 + (g << 2 | t) * 16))[at];
            out[i] = type == DT_F16 ? __half2float(__ushort_as_half((uint16_t)v)) : __uint_as_float(v << 16);
        }
    }
}

#endif
