/*
 * k_scales.h - the twelve bytes of scales and mins that Q4_K and Q5_K have in common, and why expansion is
 * reproducible.
 *
 * A K-quant super-block is 256 weights; w = d * sc * q - dmin * m, with sc and m per 32 weights (Q4_K, Q5_K) or w = d *
 * sc * q with sc per 16 weights (Q6_K). d is f16 (11 significant bits), so that every product here fits f32's 24 bits:
 * expansion to f32 rounds once, at the subtraction, and is the same on every machine, fused or not.
 */
#ifndef HEARTH_QUANT_K_SCALES_H
#define HEARTH_QUANT_K_SCALES_H

#include "kernels/quant/half.h"
#include "kernels/quant/ints.h"

/* The j-th (0..7) scale and min of a Q4_K or Q5_K super-block. */
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

/* The part of struct quant_ints that Q4_K and Q5_K fill in alike: all but the weights. */
static inline void k_ints(uint16_t d, uint16_t dmin, const uint8_t *scales, struct quant_ints *out)
{
    out->mins = true;
    out->d = f16_to_f32(d);
    out->dmin = f16_to_f32(dmin);
    for (int j = 0; j < 8; j++) {
        uint8_t sc;
        quant_scale_min(scales, j, &sc, &out->m[j]);
        out->sc[2 * j] = out->sc[2 * j + 1] = (int8_t)sc;
    }
}

#ifdef TUNED
/* Unpacks the twelve bytes: eight scales and eight mins, a byte each. */
VFN void k_scale_bytes(const uint8_t *scales, __m128i *sc, __m128i *m)
{
    uint32_t u[3], lo = 0x3f3f3f3f, nib = 0x0f0f0f0f, top = 0x03030303;
    memcpy(u, scales, sizeof u);
    *sc = _mm_cvtsi64_si128((long long)((uint64_t)((u[2] & nib) | (u[0] >> 6 & top) << 4) << 32 | (u[0] & lo)));
    *m = _mm_cvtsi64_si128((long long)((uint64_t)((u[2] >> 4 & nib) | (u[1] >> 6 & top) << 4) << 32 | (u[1] & lo)));
}

/* s: eight scales d * sc, then eight mins -dmin * m. Both are exact. */
VFN void k_scales(uint16_t d, uint16_t dmin, const uint8_t *scales, float *s)
{
    /* The twelve bytes as three words, unpacked word-wise to four words of four six-bit fields. */
    uint32_t u[3], lo = 0x3f3f3f3f, nib = 0x0f0f0f0f, top = 0x03030303;
    memcpy(u, scales, sizeof u);
    uint32_t sm[4] = {u[0] & lo, (u[2] & nib) | (u[0] >> 6 & top) << 4, u[1] & lo,
                      (u[2] >> 4 & nib) | (u[1] >> 6 & top) << 4};
    __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)sm));
    __m256i m = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(sm + 2)));
    _mm256_storeu_ps(s, _mm256_mul_ps(_mm256_cvtepi32_ps(b), _mm256_set1_ps(_cvtsh_ss(d))));
    _mm256_storeu_ps(s + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(m), _mm256_set1_ps(-_cvtsh_ss(dmin))));
}
#endif

#endif
