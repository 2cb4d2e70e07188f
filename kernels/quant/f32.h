/* f32.h - F32: a float as it is. */
#ifndef HEARTH_QUANT_F32_H
#define HEARTH_QUANT_F32_H

#include "kernels/quant/half.h"

enum { F32_LEN = 1, F32_BYTES = 4 };

static inline void f32_decode(const void *src, float *dst, size_t n)
{
    memcpy(dst, src, n * sizeof(float));
}

static inline void f32_encode(const float *src, void *dst, size_t n)
{
    memcpy(dst, src, n * sizeof(float));
}

#define f32_scale_to NULL /* tests encode their own numbers instead */

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { F32_CHUNKS = 1, F32_SCALES = 1 };
VFN void f32_prep(const void *block, float *s)
{
    (void)block, (void)s;
}
VFN void f32_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)s, (void)j;
    EMIT(0, v16_load(block));
}
#endif

#endif
