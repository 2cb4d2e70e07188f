/*
 * half.h - the bits of an f32, and conversions of f16 and bf16 to and from f32. Shared by C and CUDA.
 *
 * Pure functions, any thread: plain integer arithmetic, so that results are bit-identical on every machine.
 */
#ifndef HEARTH_QUANT_HALF_H
#define HEARTH_QUANT_HALF_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define QUANT_FN static __host__ __device__ inline
#else
#define QUANT_FN static inline
#endif
#ifdef __cplusplus
#define QUANT_TABLE static constexpr /* so that GPU code can use its entries as constants */
#else
#define QUANT_TABLE static const
#endif

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
    if (mag >= 0x7c00) /* Inf, NaN: a NaN becomes quiet, as in the hardware's conversion */
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
    if (mag < 0x38800000) /* subnormal in f16: adding 0.5 makes the FPU round at 2^-24 */
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
