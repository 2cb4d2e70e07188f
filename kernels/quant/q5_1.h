/* q5_1.h - Q5_1: 32 weights of 5 bits share a scale and a min, w = d * q + m. */
#ifndef HEARTH_QUANT_Q5_1_H
#define HEARTH_QUANT_Q5_1_H

#include "kernels/quant/q5_0.h"

struct block_q5_1 { /* q[i] as in Q5_0 */
    uint16_t d, m;
    uint8_t qh[4];
    uint8_t qs[16];
};
static_assert(sizeof(struct block_q5_1) == 24, "packed as in the file");

enum { Q5_1_LEN = 32, Q5_1_BYTES = sizeof(struct block_q5_1) };

static inline void q5_1_decode(const void *src, float *dst, size_t n)
{
    const struct block_q5_1 *b = (const struct block_q5_1 *)src;
    for (size_t k = 0; k < n; k += Q5_1_LEN, b++) {
        float d = f16_to_f32(b->d), m = f16_to_f32(b->m); /* d * q is exact: the sum rounds once */
        for (int i = 0; i < 32; i++) {
            int q = (b->qs[i % 16] >> (i < 16 ? 0 : 4) & 15) | (b->qh[i / 8] >> i % 8 & 1) << 4;
            dst[k + i] = d * (float)q + m;
        }
    }
}

#define q5_1_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void q5_1_scale_to(void *block, float std)
{
    struct block_q5_1 *b = (struct block_q5_1 *)block;
    b->d = f16_of_f32(std / 9.2f);
    b->m = f16_of_f32(-15.5f * std / 9.2f);
}

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { Q5_1_CHUNKS = 1, Q5_1_SCALES = 2 };
VFN void q5_1_prep(const void *block, float *s)
{
    s[0] = _cvtsh_ss(((const struct block_q5_1 *)block)->d);
    s[1] = _cvtsh_ss(((const struct block_q5_1 *)block)->m);
}
VFN void q5_1_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)j;
    const struct block_q5_1 *b = block;
    uint8_t q[32];
    q5_0_bytes(b->qh, b->qs, q);
    IN_MEMORY(q);
    v16 d = v16_set1(s[0]), m = v16_set1(s[1]);
    EMIT(0, v16_fma(v16_of_int(v16i_load_u8(q)), d, m));
    EMIT(16, v16_fma(v16_of_int(v16i_load_u8(q + 16)), d, m));
}
#endif

#endif
