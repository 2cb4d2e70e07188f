/* q2_k.h - Q2_K: 256 weights of 2 bits; each 16 share a scale and a min of 4 bits, w = d * sc * q - dmin * m. */
#ifndef HEARTH_QUANT_Q2_K_H
#define HEARTH_QUANT_Q2_K_H

#include "kernels/quant/half.h"

struct block_q2_k {     /* qs, per half of 128: byte l of 32 holds weights l, l + 32, l + 64, l + 96, two bits each */
    uint8_t scales[16]; /* low nibble sc, high nibble m */
    uint8_t qs[64];
    uint16_t d, dmin;
};
static_assert(sizeof(struct block_q2_k) == 84, "packed as in the file");

enum { Q2_K_LEN = 256, Q2_K_BYTES = sizeof(struct block_q2_k) };

static inline void q2_k_decode(const void *src, float *dst, size_t n)
{
    const struct block_q2_k *b = (const struct block_q2_k *)src;
    for (size_t k = 0; k < n; k += Q2_K_LEN, b++)
        for (int j = 0; j < 16; j++) { /* 16 weights share a scale: half j / 8, quarter j / 2 % 4 of it */
            const uint8_t *qs = b->qs + 32 * (j / 8) + 16 * (j % 2);
            float d = f16_to_f32(b->d) * (float)(b->scales[j] & 15);
            float min = f16_to_f32(b->dmin) * (float)(b->scales[j] >> 4); /* k_scales.h: only the difference rounds */
            for (int i = 0; i < 16; i++)
                dst[k + 16 * j + i] = d * (float)(qs[i] >> 2 * (j / 2 % 4) & 3) - min;
        }
}

#define q2_k_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void q2_k_scale_to(void *block, float std)
{
    struct block_q2_k *b = (struct block_q2_k *)block;
    b->d = f16_of_f32(std / 13.9f);
    b->dmin = f16_of_f32(std / 13.9f * 1.5f);
}

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { Q2_K_CHUNKS = 2, Q2_K_SCALES = 32 };
VFN void q2_k_prep(const void *block, float *s)
{
    const struct block_q2_k *b = block;
    v16i v = v16i_load_u8(b->scales);
    v16_store(s, v16_mul(v16_of_int(v16i_and(v, 15)), v16_set1(_cvtsh_ss(b->d))));
    v16_store(s + 16, v16_mul(v16_of_int(v16i_srl(v, 4)), v16_set1(-_cvtsh_ss(b->dmin))));
}
VFN void q2_k_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    const uint8_t *qs = ((const struct block_q2_k *)block)->qs + 32 * j;
    v16i q0 = v16i_load_u8(qs), q1 = v16i_load_u8(qs + 16);
    s += 8 * j;
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        v16i a = v16i_and(v16i_srl(q0, 2 * i), 3), b = v16i_and(v16i_srl(q1, 2 * i), 3);
        EMIT(128 * j + 32 * i, v16_fma(v16_of_int(a), v16_set1(s[2 * i]), v16_set1(s[16 + 2 * i])));
        EMIT(128 * j + 32 * i + 16, v16_fma(v16_of_int(b), v16_set1(s[2 * i + 1]), v16_set1(s[17 + 2 * i])));
    }
}
#endif

#endif
