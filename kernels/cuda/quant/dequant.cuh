/*
 * dequant.cuh - one element of a row in the model file's own layout, as f32: what the embedding and the reference GEMM
 * read. kernels/dtype.c is the specification; speed does not matter here.
 */
#ifndef HEARTH_CUDA_DEQUANT_CUH
#define HEARTH_CUDA_DEQUANT_CUH

#include "kernels/cuda/cuda.cuh"

/* Blocks of 34, 144 or 210 bytes keep their halves on even addresses. */
__device__ static inline float dq_half(const uint8_t *p)
{
    return __half2float(*(const __half *)p);
}

/* Scale and min (six bits each) of sub-block j from the 12 bytes of a Q4_K or Q5_K block. */
__device__ static inline void dq_scale_min(const uint8_t *s, uint32_t j, uint32_t *sc, uint32_t *m)
{
    *sc = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    *m = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
}

__device__ static inline float dq_at(enum dtype type, const uint8_t *row, uint32_t k)
{
    switch (type) {
    case DT_F32:
        return ((const float *)row)[k];
    case DT_F16:
        return dq_half(row + 2 * k);
    case DT_BF16:
        return __uint_as_float((uint32_t)((const uint16_t *)row)[k] << 16);
    case DT_Q8_0: {
        const uint8_t *b = row + k / 32 * 34;
        return dq_half(b) * (int8_t)b[2 + k % 32];
    }
    case DT_Q4_0: {
        const uint8_t *b = row + k / 32 * 18;
        uint32_t i = k % 32, q = i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4;
        return dq_half(b) * ((int)q - 8);
    }
    case DT_Q4_K:
    case DT_Q5_K: {
        bool five = type == DT_Q5_K;
        const uint8_t *b = row + k / 256 * (five ? 176 : 144), *qs = b + (five ? 48 : 16);
        uint32_t j = k / 32 % 8, i = k % 32, sc, m, q = qs[j / 2 * 32 + i] >> (j & 1) * 4 & 15;
        if (five)
            q |= (b[16 + i] >> j & 1) << 4;
        dq_scale_min(b + 4, j, &sc, &m);
        return dq_half(b) * sc * q - dq_half(b + 2) * m;
    }
    case DT_Q6_K: {
        const uint8_t *b = row + k / 256 * 210;
        uint32_t n = k / 128 % 2, r = k % 128, l = r % 32, quarter = r / 32;
        int q = (b[n * 64 + (quarter & 1) * 32 + l] >> (quarter >> 1) * 4 & 15) |
                (b[128 + n * 32 + l] >> 2 * quarter & 3) << 4;
        return dq_half(b + 208) * (int8_t)b[192 + n * 8 + quarter * 2 + l / 16] * (q - 32);
    }
    default:
        return 0;
    }
}

#endif
