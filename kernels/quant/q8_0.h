/* q8_0.h - Q8_0: 32 weights of 8 bits share a scale, w = d * q. */
#ifndef HEARTH_QUANT_Q8_0_H
#define HEARTH_QUANT_Q8_0_H

#include "kernels/quant/half.h"

#include <math.h>

struct block_q8_0 { /* w[i] = d * qs[i] */
    uint16_t d;
    int8_t qs[32];
};
static_assert(sizeof(struct block_q8_0) == 34, "packed as in the file");

enum { Q8_0_LEN = 32, Q8_0_BYTES = sizeof(struct block_q8_0) };

static inline void q8_0_decode(const void *src, float *dst, size_t n)
{
    const struct block_q8_0 *b = (const struct block_q8_0 *)src;
    for (size_t k = 0; k < n; k += Q8_0_LEN, b++) {
        float d = f16_to_f32(b->d);
        for (int i = 0; i < 32; i++)
            dst[k + i] = d * (float)b->qs[i];
    }
}

/* For KV. The scale is the largest magnitude / 127, rounded to f16; a block with an infinite or NaN number becomes all
 * NaN, so that it is noticed. */
static inline void q8_0_encode(const float *src, void *dst, size_t n)
{
    struct block_q8_0 *b = (struct block_q8_0 *)dst;
    for (size_t k = 0; k < n; k += Q8_0_LEN, b++) {
        float most = 0.0f, sum = 0.0f;
        for (int i = 0; i < 32; i++) {
            float size = fabsf(src[k + i]);
            most = size > most ? size : most;
            sum += src[k + i] - src[k + i]; /* NaN where one is infinite or NaN */
        }
        b->d = sum == 0.0f ? f16_of_f32(most / 127.0f) : 0x7e00;
        float d = f16_to_f32(b->d);
        for (int i = 0; i < 32; i++) {
            float q = sum == 0.0f && d > 0.0f ? rintf(src[k + i] / d) : 1.0f;
            b->qs[i] = (int8_t)(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
        }
    }
}

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void q8_0_scale_to(void *block, float std)
{
    ((struct block_q8_0 *)block)->d = f16_of_f32(std / 73.0f);
}

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { Q8_0_CHUNKS = 1, Q8_0_SCALES = 1 };
VFN void q8_0_prep(const void *block, float *s)
{
    s[0] = _cvtsh_ss(((const struct block_q8_0 *)block)->d);
}
VFN void q8_0_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)j;
    const int8_t *qs = ((const struct block_q8_0 *)block)->qs;
    v16 d = v16_set1(s[0]);
    EMIT(0, v16_mul(v16_of_int(v16i_load_s8(qs)), d));
    EMIT(16, v16_mul(v16_of_int(v16i_load_s8(qs + 16)), d));
}
#endif

#endif
