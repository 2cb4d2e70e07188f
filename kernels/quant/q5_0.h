/* q5_0.h - Q5_0: 32 weights of 5 bits share a scale, w = d * (q - 16). */
#ifndef HEARTH_QUANT_Q5_0_H
#define HEARTH_QUANT_Q5_0_H

#include "kernels/quant/half.h"

struct block_q5_0 { /* q[i] is the low nibble of qs[i], q[i + 16] the high one; bit i of qh is the fifth bit of q[i] */
    uint16_t d;
    uint8_t qh[4];
    uint8_t qs[16];
};
static_assert(sizeof(struct block_q5_0) == 22, "packed as in the file");

enum { Q5_0_LEN = 32, Q5_0_BYTES = sizeof(struct block_q5_0) };

static inline void q5_0_decode(const void *src, float *dst, size_t n)
{
    const struct block_q5_0 *b = (const struct block_q5_0 *)src;
    for (size_t k = 0; k < n; k += Q5_0_LEN, b++) {
        float d = f16_to_f32(b->d);
        for (int i = 0; i < 32; i++) {
            int q = (b->qs[i % 16] >> (i < 16 ? 0 : 4) & 15) | (b->qh[i / 8] >> i % 8 & 1) << 4;
            dst[k + i] = d * (float)(q - 16);
        }
    }
}

#define q5_0_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void q5_0_scale_to(void *block, float std)
{
    ((struct block_q5_0 *)block)->d = f16_of_f32(std / 9.2f);
}

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { Q5_0_CHUNKS = 1, Q5_0_SCALES = 2 };
VFN void q5_0_prep(const void *block, float *s)
{
    s[0] = _cvtsh_ss(((const struct block_q5_0 *)block)->d);
    s[1] = -16.0f * s[0];
}
/* 32 weights as bytes: each byte of qh is broadcast to eight bytes, each of which tests its own bit. */
VFN void q5_0_bytes(const uint8_t *fifth, const uint8_t *nibbles, uint8_t out[32])
{
    int qh;
    memcpy(&qh, fifth, sizeof qh);
    __m128i qs = _mm_loadu_si128((const void *)nibbles);
    __m256i lo = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(qs, 4), qs), _mm256_set1_epi8(15));
    __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    __m256i own = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i hi = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(qh), byte_of), own);
    hi = _mm256_and_si256(_mm256_cmpeq_epi8(hi, own), _mm256_set1_epi8(16));
    _mm256_storeu_si256((void *)out, _mm256_or_si256(lo, hi));
}
VFN void q5_0_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)j;
    const struct block_q5_0 *b = block;
    uint8_t q[32];
    q5_0_bytes(b->qh, b->qs, q);
    IN_MEMORY(q);
    v16 d = v16_set1(s[0]), m = v16_set1(s[1]); /* d * q - 16 * d is exact, as d * (q - 16) is */
    EMIT(0, v16_fma(v16_of_int(v16i_load_u8(q)), d, m));
    EMIT(16, v16_fma(v16_of_int(v16i_load_u8(q + 16)), d, m));
}
#endif

#endif
