/* iq4_xs.h - IQ4_XS: 256 weights, each one of 16 codebook values; each 32 share a scale of 6 bits; w = d * (ls - 32) *
 * iq4_values[q]. */
#ifndef HEARTH_QUANT_IQ4_XS_H
#define HEARTH_QUANT_IQ4_XS_H

#include "kernels/quant/codebook.h"

struct block_iq4_xs { /* per 32: q[i] is the low nibble of qs[i], q[i + 16] the high one */
    uint16_t d;
    uint16_t scales_h; /* the two high bits of each scale; scales_l: the four low bits */
    uint8_t scales_l[4];
    uint8_t qs[128];
};
static_assert(sizeof(struct block_iq4_xs) == 136, "packed as in the file");

enum { IQ4_XS_LEN = 256, IQ4_XS_BYTES = sizeof(struct block_iq4_xs) };

/* The scale of the j-th 32 weights, -32..31. */
static inline int iq4_xs_scale(const struct block_iq4_xs *b, int j)
{
    return ((b->scales_l[j / 2] >> 4 * (j % 2) & 15) | (b->scales_h >> 2 * j & 3) << 4) - 32;
}

static inline void iq4_xs_decode(const void *src, float *dst, size_t n)
{
    const struct block_iq4_xs *b = (const struct block_iq4_xs *)src;
    for (size_t k = 0; k < n; k += IQ4_XS_LEN, b++)
        for (int j = 0; j < 8; j++) {
            float d = f16_to_f32(b->d) * (float)iq4_xs_scale(b, j); /* 11 + 5 + 7 bits: all products are exact */
            for (int i = 0; i < 16; i++) {
                dst[k + 32 * j + i] = d * (float)iq4_values[b->qs[16 * j + i] & 15];
                dst[k + 32 * j + i + 16] = d * (float)iq4_values[b->qs[16 * j + i] >> 4];
            }
        }
}

#define iq4_xs_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void iq4_xs_scale_to(void *block, float std)
{
    ((struct block_iq4_xs *)block)->d = f16_of_f32(std / 67.0f / 18.5f);
}

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { IQ4_XS_CHUNKS = 8, IQ4_XS_SCALES = 8 };
VFN void iq4_xs_prep(const void *block, float *s)
{
    const struct block_iq4_xs *b = block;
    float d = _cvtsh_ss(b->d);
    for (int j = 0; j < 8; j++)
        s[j] = d * (float)iq4_xs_scale(b, j);
}
VFN void iq4_xs_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    int8_t q[32];
    codebook_bytes(iq4_values, ((const struct block_iq4_xs *)block)->qs + 16 * j, q);
    IN_MEMORY(q);
    v16 d = v16_set1(s[j]);
    EMIT(32 * j, v16_mul(v16_of_int(v16i_load_s8(q)), d));
    EMIT(32 * j + 16, v16_mul(v16_of_int(v16i_load_s8(q + 16)), d));
}
#endif

#endif
