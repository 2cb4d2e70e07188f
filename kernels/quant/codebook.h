/*
 * codebook.h - the two codebooks of sixteen values: one of IQ4_NL and IQ4_XS, one of MXFP4 and NVFP4; and the scales of
 * MXFP4 (powers of two, E8M0) and NVFP4 (small floats, UE4M3).
 */
#ifndef HEARTH_QUANT_CODEBOOK_H
#define HEARTH_QUANT_CODEBOOK_H

#include "kernels/quant/half.h"

QUANT_TABLE int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/* Twice the values of E2M1, which makes them integers. */
QUANT_TABLE int8_t fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Half of 2^(e - 127), since the values above are doubled; 2^-128 and 2^-127 are subnormal. */
QUANT_FN float e8m0_half(uint8_t e)
{
    return f32_of_bits(e < 2 ? 0x200000u << e : (uint32_t)(e - 1) << 23);
}

/* Half of an unsigned E4M3 (bias 7; bit 7 is ignored). 0x7f, its NaN, counts as zero. */
QUANT_FN float ue4m3_half(uint8_t e)
{
    uint32_t exp = e >> 3 & 15, man = e & 7;
    if (e == 0x7f)
        return 0.0f;
    return exp ? f32_of_bits((exp + 127 - 7 - 1) << 23 | man << 20) : (float)man * (1.0f / 1024.0f);
}

#ifdef TUNED
/* The values of sixteen bytes' low nibbles, then of their high nibbles. */
VFN void codebook_bytes(const int8_t *values, const uint8_t *qs, int8_t out[32])
{
    __m128i b = _mm_loadu_si128((const void *)qs);
    __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)values));
    __m256i q = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(b, 4), b), _mm256_set1_epi8(15));
    _mm256_storeu_si256((void *)out, _mm256_shuffle_epi8(v, q));
}
#endif

#endif
