/*
 * blocks.h - packed block layouts of the quantised types, byte for byte as in a GGUF file. Shared by C and CUDA.
 *
 * A K-type superblock is 256 weights; w = d * sc * q - dmin * m, with sc and m per 32 weights (Q4_K, Q5_K) or
 * w = d * sc * q with sc per 16 weights (Q6_K). d is f16 (11 significant bits), so that every product here fits
 * f32's 24 bits: expansion to f32 rounds once, at the subtraction, and is the same on every machine, fused or not.
 */
#ifndef HEARTH_QUANT_H
#define HEARTH_QUANT_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define QUANT_FN static __host__ __device__ inline
#else
#define QUANT_FN static inline
#endif

enum { QK_K = 256, QK_0 = 32 };

struct block_q4_0 { /* w[i] = d * (q - 8); q[i] is the low nibble of qs[i], q[i + 16] the high one */
    uint16_t d;
    uint8_t qs[16];
};
struct block_q8_0 { /* w[i] = d * qs[i] */
    uint16_t d;
    int8_t qs[32];
};
struct block_q4_k { /* 64 weights share 32 bytes of qs: the low nibbles are the first 32, the high ones the rest */
    uint16_t d, dmin;
    uint8_t scales[12]; /* eight 6-bit pairs (sc, m): quant_scale_min() */
    uint8_t qs[128];
};
struct block_q5_k { /* as Q4_K, and bit j of qh[i] is the fifth bit of weight 32 * j + i */
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
};
struct block_q6_k { /* per half of 128: ql[l] and ql[l + 32] low and high nibbles, qh[l] four 2-bit tops; q - 32 */
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
};

static_assert(sizeof(struct block_q4_0) == 18, "packed as in the file");
static_assert(sizeof(struct block_q8_0) == 34, "packed as in the file");
static_assert(sizeof(struct block_q4_k) == 144, "packed as in the file");
static_assert(sizeof(struct block_q5_k) == 176, "packed as in the file");
static_assert(sizeof(struct block_q6_k) == 210, "packed as in the file");

/* The j-th (0..7) scale and minimum of a Q4_K or Q5_K superblock. */
QUANT_FN void quant_scale_min(const uint8_t *s, int j, uint8_t *sc, uint8_t *m)
{
    if (j < 4) {
        *sc = s[j] & 63;
        *m = s[j + 4] & 63;
    } else {
        *sc = (uint8_t)((s[j + 4] & 15) | (s[j - 4] >> 6 << 4));
        *m = (uint8_t)((s[j + 4] >> 4) | (s[j] >> 6 << 4));
    }
}

QUANT_FN float f32_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

QUANT_FN uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

QUANT_FN float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;
    if (mag >= 0x7c00) /* Inf, NaN: a NaN becomes quiet, as the machine's own conversion does */
        return f32_of_bits(sign | 0x7f800000 | (mag & 0x3ff) << 13 | (mag > 0x7c00 ? 0x400000 : 0));
    if (mag >= 0x400)
        return f32_of_bits(sign | ((mag << 13) + ((127 - 15) << 23)));
    float sub = (float)mag * (1.0f / 16777216.0f); /* subnormal: exact */
    return f32_of_bits(sign | f32_bits(sub));
}

/* To nearest, ties to even. */
QUANT_FN uint16_t f16_of_f32(float f)
{
    uint32_t u = f32_bits(f), mag = u & 0x7fffffff;
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    if (mag > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
    if (mag >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (mag < 0x38800000) /* subnormal in f16: let the adder round at 2^-24 */
        return (uint16_t)(sign | (f32_bits(f32_of_bits(mag) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | ((mag - ((127u - 15) << 23) + 0xfff + (mag >> 13 & 1)) >> 13));
}

QUANT_FN float bf16_to_f32(uint16_t h)
{
    return f32_of_bits((uint32_t)h << 16);
}

/* To nearest, ties to even. */
QUANT_FN uint16_t bf16_of_f32(float f)
{
    uint32_t u = f32_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#endif
