/* iq4_nl.h - IQ4_NL: 32 weights, each one of 16 codebook values, share a scale, w = d * iq4_values[q]. */
#ifndef HEARTH_QUANT_IQ4_NL_H
#define HEARTH_QUANT_IQ4_NL_H

#include "kernels/quant/codebook.h"

struct block_iq4_nl { /* q[i] is the low nibble of qs[i], q[i + 16] the high one */
    uint16_t d;
    uint8_t qs[16];
};
static_assert(sizeof(struct block_iq4_nl) == 18, "packed as in the file");

enum { IQ4_NL_LEN = 32, IQ4_NL_BYTES = sizeof(struct block_iq4_nl) };

static inline void iq4_nl_decode(const void *src, float *dst, size_t n)
{
    const struct block_iq4_nl *b = (const struct block_iq4_nl *)src;
    for (size_t k = 0; k < n; k += IQ4_NL_LEN, b++) {
        float d = f16_to_f32(b->d);
        for (int i = 0; i < 16; i++) {
            dst[k + i] = d * (float)iq4_values[b->qs[i] & 15];
            dst[k + i + 16] = d * (float)iq4_values[b->qs[i] >> 4];
        }
    }
}

#define iq4_nl_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void iq4_nl_scale_to(void *block, float std)
{
    ((struct block_iq4_nl *)block)->d = f16_of_f32(std / 67.0f);
}

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { IQ4_NL_CHUNKS = 1, IQ4_NL_SCALES = 1 };
VFN void iq4_nl_prep(const void *block, float *s)
{
    s[0] = _cvtsh_ss(((const struct block_iq4_nl *)block)->d);
}
VFN void iq4_nl_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)j;
    int8_t q[32];
    codebook_bytes(iq4_values, ((const struct block_iq4_nl *)block)->qs, q);
    IN_MEMORY(q);
    v16 d = v16_set1(s[0]);
    EMIT(0, v16_mul(v16_of_int(v16i_load_s8(q)), d));
    EMIT(16, v16_mul(v16_of_int(v16i_load_s8(q + 16)), d));
}
#endif

#endif
