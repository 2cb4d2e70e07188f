/* q4_k.h - Q4_K: 256 weights of 4 bits; each 32 share a scale and a min of 6 bits, w = d * sc * q - dmin * m. */
#ifndef HEARTH_QUANT_Q4_K_H
#define HEARTH_QUANT_Q4_K_H

#include "kernels/quant/k_scales.h"

struct block_q4_k { /* 32 bytes of qs hold 64 weights: the low nibbles are the first 32, the high ones the others */
    uint16_t d, dmin;
    uint8_t scales[12]; /* eight 6-bit pairs (sc, m): quant_scale_min() */
    uint8_t qs[128];
};
static_assert(sizeof(struct block_q4_k) == 144, "packed as in the file");

enum { Q4_K_LEN = 256, Q4_K_BYTES = sizeof(struct block_q4_k) };

static inline void q4_k_decode(const void *src, float *dst, size_t n)
{
    const struct block_q4_k *b = (const struct block_q4_k *)src;
    for (size_t k = 0; k < n; k += Q4_K_LEN, b++)
        for (int j = 0; j < 8; j++) { /* 32 weights share a scale and a min */
            uint8_t sc, m;
            quant_scale_min(b->scales, j, &sc, &m);
            float d = f16_to_f32(b->d) * (float)sc, min = f16_to_f32(b->dmin) * (float)m;
            for (int i = 0; i < 32; i++)
                dst[k + 32 * j + i] = d * (float)(b->qs[32 * (j / 2) + i] >> 4 * (j & 1) & 15) - min;
        }
}

static inline void q4_k_ints(const void *block, struct quant_ints *out)
{
    const struct block_q4_k *b = (const struct block_q4_k *)block;
    k_ints(b->d, b->dmin, b->scales, out);
    for (int k = 0; k < INTS_LEN; k++)
        out->q[k] = (int8_t)(b->qs[k / 64 * 32 + k % 32] >> 4 * (k / 32 & 1) & 15);
}

#define q4_k_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void q4_k_scale_to(void *block, float std)
{
    struct block_q4_k *b = (struct block_q4_k *)block;
    b->d = f16_of_f32(std / 31.0f / 4.6f);
    b->dmin = f16_of_f32(std / 31.0f * 1.6f);
}

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { Q4_K_CHUNKS = 4, Q4_K_SCALES = 16 };
VFN void q4_k_prep(const void *block, float *s)
{
    const struct block_q4_k *b = block;
    k_scales(b->d, b->dmin, b->scales, s);
}
VFN void q4_k_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    const uint8_t *qs = ((const struct block_q4_k *)block)->qs + 32 * j;
    v16i q0 = v16i_load_u8(qs), q1 = v16i_load_u8(qs + 16);
    v16 d = v16_set1(s[2 * j]), m = v16_set1(s[8 + 2 * j]);
    EMIT(64 * j, v16_fma(v16_of_int(v16i_and(q0, 15)), d, m));
    EMIT(64 * j + 16, v16_fma(v16_of_int(v16i_and(q1, 15)), d, m));
    d = v16_set1(s[2 * j + 1]), m = v16_set1(s[8 + 2 * j + 1]);
    EMIT(64 * j + 32, v16_fma(v16_of_int(v16i_srl(q0, 4)), d, m));
    EMIT(64 * j + 48, v16_fma(v16_of_int(v16i_srl(q1, 4)), d, m));
}
/* For products in integers: see tuned-int.h, and tuned-tile.h for Q4_K_GROUPS and Q4_K_SHARED. */
enum { Q4_K_OFFSET = 0, Q4_K_GROUPS = 8, Q4_K_SHARED = 8 };
#define Q4_K_MINS(...) __VA_ARGS__
VFN __m128i q4_k_scale_bytes(const void *block)
{
    __m128i sc, m;
    k_scale_bytes(((const struct block_q4_k *)block)->scales, &sc, &m);
    return _mm_unpacklo_epi8(sc, sc);
}
VFN __m128i q4_k_min_bytes(const void *block)
{
    __m128i sc, m;
    k_scale_bytes(((const struct block_q4_k *)block)->scales, &sc, &m);
    return m;
}
VFN vb q4_k_vector(const void *block, int i)
{
    const struct block_q4_k *b = block;
    return vb_nibbles(b->qs, i);
}
#endif

#endif
