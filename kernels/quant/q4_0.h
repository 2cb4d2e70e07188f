/* q4_0.h - Q4_0: 32 weights of 4 bits share a scale, w = d * (q - 8). */
#ifndef HEARTH_QUANT_Q4_0_H
#define HEARTH_QUANT_Q4_0_H

#include "kernels/quant/half.h"

struct block_q4_0 { /* w[i] = d * (q - 8); q[i] is the low nibble of qs[i], q[i + 16] the high one */
    uint16_t d;
    uint8_t qs[16];
};
static_assert(sizeof(struct block_q4_0) == 18, "packed as in the file");

enum { Q4_0_LEN = 32, Q4_0_BYTES = sizeof(struct block_q4_0) };

static inline void q4_0_decode(const void *src, float *dst, size_t n)
{
    const struct block_q4_0 *b = (const struct block_q4_0 *)src;
    for (size_t k = 0; k < n; k += Q4_0_LEN, b++) {
        float d = f16_to_f32(b->d);
        for (int i = 0; i < 16; i++) {
            dst[k + i] = d * (float)((b->qs[i] & 15) - 8);
            dst[k + i + 16] = d * (float)((b->qs[i] >> 4) - 8);
        }
    }
}

#define q4_0_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void q4_0_scale_to(void *block, float std)
{
    ((struct block_q4_0 *)block)->d = f16_of_f32(std / 5.0f);
}

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { Q4_0_CHUNKS = 1, Q4_0_SCALES = 2 };
VFN void q4_0_prep(const void *block, float *s)
{
    s[0] = _cvtsh_ss(((const struct block_q4_0 *)block)->d);
    s[1] = -8.0f * s[0];
}
VFN void q4_0_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)j;
    v16i q = v16i_load_u8(((const struct block_q4_0 *)block)->qs);
    v16 d = v16_set1(s[0]), m = v16_set1(s[1]); /* d * q - 8 * d is exact, as d * (q - 8) is */
    EMIT(0, v16_fma(v16_of_int(v16i_and(q, 15)), d, m));
    EMIT(16, v16_fma(v16_of_int(v16i_srl(q, 4)), d, m));
}
#endif

#endif
