/* f16.h - F16: IEEE half precision. */
#ifndef HEARTH_QUANT_F16_H
#define HEARTH_QUANT_F16_H

#include "kernels/quant/half.h"

enum { F16_LEN = 1, F16_BYTES = 2 };

static inline void f16_decode(const void *src, float *dst, size_t n)
{
    const uint16_t *s = (const uint16_t *)src;
    for (size_t i = 0; i < n; i++)
        dst[i] = f16_to_f32(s[i]);
}

static inline void f16_encode(const float *src, void *dst, size_t n)
{
    uint16_t *d = (uint16_t *)dst;
    for (size_t i = 0; i < n; i++)
        d[i] = f16_of_f32(src[i]);
}

#define f16_scale_to NULL /* tests encode their own numbers instead */

#ifdef TUNED /* for one CPU variant; kernels/cpu/tuned-dot.h describes prep and chunk */
enum { F16_CHUNKS = 1, F16_SCALES = 1 };
VFN void f16_prep(const void *block, float *s)
{
    (void)block, (void)s;
}
VFN void f16_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)s, (void)j;
    EMIT(0, v16_load_f16(block));
}
#endif

#endif
