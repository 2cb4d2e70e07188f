/* q5_k.h - Q5_K: Q4_K with a fifth bit, w = d * sc * q - dmin * m. */
#ifndef HEARTH_QUANT_Q5_K_H
#define HEARTH_QUANT_Q5_K_H

#include "kernels/quant/k_scales.h"

struct block_q5_k { /* as Q4_K, and bit j of qh[i] is the fifth bit of weight 32 * j + i */
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
};
static_assert(sizeof(struct block_q5_k) == 176, "packed as in the file");

enum { Q5_K_LEN = 256, Q5_K_BYTES = sizeof(struct block_q5_k) };

static inline void q5_k_decode(const void *src, float *dst, size_t n)
{
    const struct block_q5_k *b = (const struct block_q5_k *)src;
    for (size_t k = 0; k < n; k += Q5_K_LEN, b++)
        for (int j = 0; j < 8; j++) {
            uint8_t sc, m;
            quant_scale_min(b->scales, j, &sc, &m);
            float d = f16_to_f32(b->d) * (float)sc, min = f16_to_f32(b->dmin) * (float)m;
            for (int i = 0; i < 32; i++) {
                int q = (b->qs[32 * (j / 2) + i] >> 4 * (j & 1) & 15) | (b->qh[i] >> j & 1) << 4;
                dst[k + 32 * j + i] = d * (float)q - min;
            }
        }
}

static inline void q5_k_ints(const void *block, struct quant_ints *out)
{
    const struct block_q5_k *b = (const struct block_q5_k *)block;
    k_ints(b->d, b->dmin, b->scales, out);
    for (int k = 0; k < INTS_LEN; k++) {
        int low = b->qs[k / 64 * 32 + k % 32] >> 4 * (k / 32 & 1) & 15;
        out->q[k] = (int8_t)(low | (b->qh[k % 32] >> k / 32 & 1) << 4);
    }
}

#define q5_k_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void q5_k_scale_to(void *block, float std)
{
    struct block_q5_k *b = (struct block_q5_k *)block;
    b->d = f16_of_f32(std / 31.0f / 9.2f);
    b->dmin = f16_of_f32(std / 31.0f * 1.6f);
}

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { Q5_K_CHUNKS = 4, Q5_K_SCALES = 16 };
VFN void q5_k_prep(const void *block, float *s)
{
    const struct block_q5_k *b = block;
    k_scales(b->d, b->dmin, b->scales, s);
}
/* 32 weights as bytes, assembled bytewise: a quarter of the instructions that dwords would take. */
VFN void q5_bytes(const uint8_t *qs, const uint8_t *qh, int j, uint8_t out[32])
{
    __m256i lo = _mm256_loadu_si256((const void *)qs), hi = _mm256_loadu_si256((const void *)qh);
    lo = _mm256_and_si256(j & 1 ? _mm256_srli_epi16(lo, 4) : lo, _mm256_set1_epi8(15));
    hi = _mm256_slli_epi16(_mm256_srl_epi16(hi, _mm_cvtsi32_si128(j)), 4);
    _mm256_storeu_si256((void *)out, _mm256_or_si256(lo, _mm256_and_si256(hi, _mm256_set1_epi8(16))));
}
VFN void q5_k_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    const struct block_q5_k *b = block;
    uint8_t q[32];
    _Pragma("GCC unroll 2") for (int i = 2 * j; i < 2 * j + 2; i++)
    {
        q5_bytes(b->qs + 32 * j, b->qh, i, q);
        IN_MEMORY(q);
        v16 d = v16_set1(s[i]), m = v16_set1(s[8 + i]);
        EMIT(32 * i, v16_fma(v16_of_int(v16i_load_u8(q)), d, m));
        EMIT(32 * i + 16, v16_fma(v16_of_int(v16i_load_u8(q + 16)), d, m));
    }
}
/* For products in integers: see tuned-int.h, and tuned-tile.h for Q5_K_GROUPS and Q5_K_SHARED. */
enum { Q5_K_OFFSET = 0, Q5_K_GROUPS = 4, Q5_K_SHARED = 8 };
#define Q5_K_MINS(...) __VA_ARGS__
VFN __m128i q5_k_scale_bytes(const void *block)
{
    __m128i sc, m;
    k_scale_bytes(((const struct block_q5_k *)block)->scales, &sc, &m);
    return _mm_unpacklo_epi8(sc, sc);
}
VFN __m128i q5_k_min_bytes(const void *block)
{
    __m128i sc, m;
    k_scale_bytes(((const struct block_q5_k *)block)->scales, &sc, &m);
    return m;
}
VFN vb q5_k_vector(const void *block, int i)
{
    const struct block_q5_k *b = block;
    return vb_or(vb_nibbles(b->qs, i), vb_fifths(b->qh, i));
}
#endif

#endif
