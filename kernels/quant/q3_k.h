/* q3_k.h - Q3_K: 256 weights of 3 bits; each 16 share a scale of 6 bits, w = d * (sc - 32) * (q - 4). */
#ifndef HEARTH_QUANT_Q3_K_H
#define HEARTH_QUANT_Q3_K_H

#include "kernels/quant/half.h"

struct block_q3_k { /* the low two bits as in Q2_K; bit j of hmask[i] is the third bit of weight 32 * j + i */
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12]; /* sixteen of six bits: low nibbles in the first eight bytes, top bit pairs in the last four */
    uint16_t d;
};
static_assert(sizeof(struct block_q3_k) == 110, "packed as in the file");

enum { Q3_K_LEN = 256, Q3_K_BYTES = sizeof(struct block_q3_k) };

/* The scale of the j-th 16 weights, -32..31. */
static inline int q3_k_scale(const uint8_t *scales, int j)
{
    return ((scales[j % 8] >> 4 * (j / 8) & 15) | (scales[8 + j % 4] >> 2 * (j / 4) & 3) << 4) - 32;
}

static inline void q3_k_decode(const void *src, float *dst, size_t n)
{
    const struct block_q3_k *b = (const struct block_q3_k *)src;
    for (size_t k = 0; k < n; k += Q3_K_LEN, b++)
        for (int j = 0; j < 16; j++) { /* 16 weights share a scale: half j / 8, quarter j / 2 % 4 of it */
            const uint8_t *qs = b->qs + 32 * (j / 8) + 16 * (j % 2), *hmask = b->hmask + 16 * (j % 2);
            float d = f16_to_f32(b->d) * (float)q3_k_scale(b->scales, j);
            for (int i = 0; i < 16; i++) {
                int q = (qs[i] >> 2 * (j / 2 % 4) & 3) | (hmask[i] >> j / 2 & 1) << 2;
                dst[k + 16 * j + i] = d * (float)(q - 4);
            }
        }
}

#define q3_k_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void q3_k_scale_to(void *block, float std)
{
    ((struct block_q3_k *)block)->d = f16_of_f32(std / 43.0f);
}

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { Q3_K_CHUNKS = 2, Q3_K_SCALES = 16 };
VFN void q3_k_prep(const void *block, float *s)
{
    const struct block_q3_k *b = block;
    uint32_t u[3], nib = 0x0f0f0f0f, top = 0x03030303, v[4]; /* v: sixteen scales, four in each word */
    memcpy(u, b->scales, sizeof u);
    for (int i = 0; i < 4; i++)
        v[i] = (u[i % 2] >> 4 * (i / 2) & nib) | (u[2] >> 2 * i & top) << 4;
    __m128i sc = _mm_sub_epi8(_mm_loadu_si128((const void *)v), _mm_set1_epi8(32));
    int8_t q[16];
    _mm_storeu_si128((void *)q, sc);
    v16_store(s, v16_mul(v16_of_int(v16i_load_s8(q)), v16_set1(_cvtsh_ss(b->d))));
}
/* 32 weights as bytes q - 4: the i-th quarter of a half, whose third bits are bit j of hmask's bytes. */
VFN void q3_bytes(const uint8_t *qs, const uint8_t *hmask, int i, int j, int8_t out[32])
{
    __m256i lo = _mm256_loadu_si256((const void *)qs), hi = _mm256_loadu_si256((const void *)hmask);
    lo = _mm256_and_si256(_mm256_srl_epi16(lo, _mm_cvtsi32_si128(2 * i)), _mm256_set1_epi8(3));
    hi = _mm256_slli_epi16(_mm256_and_si256(_mm256_srl_epi16(hi, _mm_cvtsi32_si128(j)), _mm256_set1_epi8(1)), 2);
    _mm256_storeu_si256((void *)out, _mm256_sub_epi8(_mm256_or_si256(lo, hi), _mm256_set1_epi8(4)));
}
VFN void q3_k_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    const struct block_q3_k *b = block;
    int8_t q[32];
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        q3_bytes(b->qs + 32 * j, b->hmask, i, 4 * j + i, q);
        IN_MEMORY(q);
        EMIT(128 * j + 32 * i, v16_mul(v16_of_int(v16i_load_s8(q)), v16_set1(s[8 * j + 2 * i])));
        EMIT(128 * j + 32 * i + 16, v16_mul(v16_of_int(v16i_load_s8(q + 16)), v16_set1(s[8 * j + 2 * i + 1])));
    }
}
#endif

#endif
