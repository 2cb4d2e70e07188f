/* q6_k.h - Q6_K: 256 weights of 6 bits; each 16 share a scale of 8 bits, w = d * sc * (q - 32). */
#ifndef HEARTH_QUANT_Q6_K_H
#define HEARTH_QUANT_Q6_K_H

#include "kernels/quant/half.h"
#include "kernels/quant/ints.h"

struct block_q6_k { /* per half of 128, l < 32: ql[l] and ql[l + 32] hold the low bits of weights l and l + 32 (low
                       nibbles), l + 64 and l + 96 (high nibbles); qh[l] holds the top two bits of these four */
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
};
static_assert(sizeof(struct block_q6_k) == 210, "packed as in the file");

enum { Q6_K_LEN = 256, Q6_K_BYTES = sizeof(struct block_q6_k) };

static inline void q6_k_decode(const void *src, float *dst, size_t n)
{
    const struct block_q6_k *b = (const struct block_q6_k *)src;
    for (size_t k = 0; k < n; k += Q6_K_LEN, b++)
        for (int j = 0; j < 16; j++) { /* 16 weights share a scale: half j / 8, quarter j / 2 % 4 of it */
            const uint8_t *ql = b->ql + 64 * (j / 8) + 16 * (j % 4), *qh = b->qh + 32 * (j / 8) + 16 * (j % 2);
            int low = 4 * (j / 4 % 2), high = 2 * (j / 2 % 4);
            float d = f16_to_f32(b->d) * (float)b->scales[j];
            for (int i = 0; i < 16; i++) {
                int q = (ql[i] >> low & 15) | (qh[i] >> high & 3) << 4;
                dst[k + 16 * j + i] = d * (float)(q - 32);
            }
        }
}

static inline void q6_k_ints(const void *block, struct quant_ints *out)
{
    const struct block_q6_k *b = (const struct block_q6_k *)block;
    memset(out, 0, sizeof *out);
    out->d = f16_to_f32(b->d);
    memcpy(out->sc, b->scales, sizeof out->sc);
    for (int k = 0; k < INTS_LEN; k++) {
        int half = k / 128, quarter = k / 32 % 4, i = k % 32;
        int low = b->ql[64 * half + 32 * (quarter & 1) + i] >> 4 * (quarter / 2) & 15;
        out->q[k] = (int8_t)((low | (b->qh[32 * half + i] >> 2 * quarter & 3) << 4) - 32);
    }
}

#define q6_k_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void q6_k_scale_to(void *block, float std)
{
    ((struct block_q6_k *)block)->d = f16_of_f32(std / 74.0f / 18.5f);
}

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { Q6_K_CHUNKS = 2, Q6_K_SCALES = 16 };
VFN void q6_k_prep(const void *block, float *s)
{
    const struct block_q6_k *b = block;
    v16_store(s, v16_mul(v16_of_int(v16i_load_s8(b->scales)), v16_set1(_cvtsh_ss(b->d))));
}
VFN void q6_bytes(const uint8_t *ql, const uint8_t *qh, int quarter, int8_t out[32])
{
    __m256i lo = _mm256_loadu_si256((const void *)(ql + 32 * (quarter & 1)));
    __m256i hi = _mm256_loadu_si256((const void *)qh);
    lo = _mm256_and_si256(quarter & 2 ? _mm256_srli_epi16(lo, 4) : lo, _mm256_set1_epi8(15));
    hi = quarter < 2 ? _mm256_slli_epi16(hi, 4 - 2 * quarter) : _mm256_srli_epi16(hi, 2 * quarter - 4);
    __m256i q = _mm256_or_si256(lo, _mm256_and_si256(hi, _mm256_set1_epi8(48)));
    _mm256_storeu_si256((void *)out, _mm256_sub_epi8(q, _mm256_set1_epi8(32)));
}
VFN void q6_k_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    const struct block_q6_k *b = block;
    int8_t q[32];
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        q6_bytes(b->ql + 64 * j, b->qh + 32 * j, i, q);
        IN_MEMORY(q);
        EMIT(128 * j + 32 * i, v16_mul(v16_of_int(v16i_load_s8(q)), v16_set1(s[8 * j + 2 * i])));
        EMIT(128 * j + 32 * i + 16, v16_mul(v16_of_int(v16i_load_s8(q + 16)), v16_set1(s[8 * j + 2 * i + 1])));
    }
}
/* For products in integers: see tuned-int.h, and tuned-tile.h for Q6_K_GROUPS and Q6_K_SHARED. */
enum { Q6_K_OFFSET = 32, Q6_K_GROUPS = 4, Q6_K_SHARED = 4 };
#define Q6_K_MINS(...)
VFN __m128i q6_k_scale_bytes(const void *block)
{
    return _mm_loadu_si128((const void *)((const struct block_q6_k *)block)->scales);
}
VFN vb q6_k_vector(const void *block, int i)
{
    const struct block_q6_k *b = block;
    return vb_sixes(b->ql, b->qh, i);
}
#endif

#endif
