/* q4_1.h - Q4_1: 32 weights of 4 bits share a scale and a min, w = d * q + m. */
#ifndef HEARTH_QUANT_Q4_1_H
#define HEARTH_QUANT_Q4_1_H

#include "kernels/quant/half.h"

struct block_q4_1 { /* q[i] is the low nibble of qs[i], q[i + 16] the high one */
    uint16_t d, m;
    uint8_t qs[16];
};
static_assert(sizeof(struct block_q4_1) == 20, "packed as in the file");

enum { Q4_1_LEN = 32, Q4_1_BYTES = sizeof(struct block_q4_1) };

static inline void q4_1_decode(const void *src, float *dst, size_t n)
{
    const struct block_q4_1 *b = (const struct block_q4_1 *)src;
    for (size_t k = 0; k < n; k += Q4_1_LEN, b++) {
        float d = f16_to_f32(b->d), m = f16_to_f32(b->m); /* d * q is exact: the sum rounds once */
        for (int i = 0; i < 16; i++) {
            dst[k + i] = d * (float)(b->qs[i] & 15) + m;
            dst[k + i + 16] = d * (float)(b->qs[i] >> 4) + m;
        }
    }
}

#define q4_1_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void q4_1_scale_to(void *block, float std)
{
    struct block_q4_1 *b = (struct block_q4_1 *)block;
    b->d = f16_of_f32(std / 4.6f);
    b->m = f16_of_f32(-7.5f * std / 4.6f);
}

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { Q4_1_CHUNKS = 1, Q4_1_SCALES = 2 };
VFN void q4_1_prep(const void *block, float *s)
{
    s[0] = _cvtsh_ss(((const struct block_q4_1 *)block)->d);
    s[1] = _cvtsh_ss(((const struct block_q4_1 *)block)->m);
}
VFN void q4_1_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)j;
    v16i q = v16i_load_u8(((const struct block_q4_1 *)block)->qs);
    v16 d = v16_set1(s[0]), m = v16_set1(s[1]);
    EMIT(0, v16_fma(v16_of_int(v16i_and(q, 15)), d, m));
    EMIT(16, v16_fma(v16_of_int(v16i_srl(q, 4)), d, m));
}
#endif

#endif
