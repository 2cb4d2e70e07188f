/* mxfp4.h - MXFP4: 32 weights of E2M1 share a power of two, w = 2^(e - 128) * fp4_values[q]. */
#ifndef HEARTH_QUANT_MXFP4_H
#define HEARTH_QUANT_MXFP4_H

#include "kernels/quant/codebook.h"

struct block_mxfp4 { /* q[i] is the low nibble of qs[i], q[i + 16] the high one */
    uint8_t e;
    uint8_t qs[16];
};
static_assert(sizeof(struct block_mxfp4) == 17, "packed as in the file");

enum { MXFP4_LEN = 32, MXFP4_BYTES = sizeof(struct block_mxfp4) };

static inline void mxfp4_decode(const void *src, float *dst, size_t n)
{
    const struct block_mxfp4 *b = (const struct block_mxfp4 *)src;
    for (size_t k = 0; k < n; k += MXFP4_LEN, b++) {
        float d = e8m0_half(b->e);
        for (int i = 0; i < 16; i++) {
            dst[k + i] = d * (float)fp4_values[b->qs[i] & 15];
            dst[k + i + 16] = d * (float)fp4_values[b->qs[i] >> 4];
        }
    }
}

#define mxfp4_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation (to a factor of 2), for tests and benchmarks.
 */
static inline void mxfp4_scale_to(void *block, float std)
{
    ((struct block_mxfp4 *)block)->e = (uint8_t)((f32_bits(std / 5.85f) >> 23) + 1);
}

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { MXFP4_CHUNKS = 1, MXFP4_SCALES = 1 };
VFN void mxfp4_prep(const void *block, float *s)
{
    s[0] = e8m0_half(((const struct block_mxfp4 *)block)->e);
}
VFN void mxfp4_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)j;
    int8_t q[32];
    codebook_bytes(fp4_values, ((const struct block_mxfp4 *)block)->qs, q);
    IN_MEMORY(q);
    v16 d = v16_set1(s[0]);
    EMIT(0, v16_mul(v16_of_int(v16i_load_s8(q)), d));
    EMIT(16, v16_mul(v16_of_int(v16i_load_s8(q + 16)), d));
}
#endif

#endif
