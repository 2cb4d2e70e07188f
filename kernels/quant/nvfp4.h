/* nvfp4.h - NVFP4: 64 weights of E2M1; each 16 share a scale of UE4M3, w = ue4m3_half(d) * fp4_values[q]. */
#ifndef HEARTH_QUANT_NVFP4_H
#define HEARTH_QUANT_NVFP4_H

#include "kernels/quant/codebook.h"

struct block_nvfp4 { /* per 16: q[i] is the low nibble of qs[i], q[i + 8] the high one */
    uint8_t d[4];
    uint8_t qs[32];
};
static_assert(sizeof(struct block_nvfp4) == 36, "packed as in the file");

enum { NVFP4_LEN = 64, NVFP4_BYTES = sizeof(struct block_nvfp4) };

static inline void nvfp4_decode(const void *src, float *dst, size_t n)
{
    const struct block_nvfp4 *b = (const struct block_nvfp4 *)src;
    for (size_t k = 0; k < n; k += NVFP4_LEN, b++)
        for (int j = 0; j < 4; j++) {
            float d = ue4m3_half(b->d[j]);
            for (int i = 0; i < 8; i++) {
                dst[k + 16 * j + i] = d * (float)fp4_values[b->qs[8 * j + i] & 15];
                dst[k + 16 * j + i + 8] = d * (float)fp4_values[b->qs[8 * j + i] >> 4];
            }
        }
}

#define nvfp4_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void nvfp4_scale_to(void *block, float std)
{
    struct block_nvfp4 *b = (struct block_nvfp4 *)block;
    uint8_t e = 4;
    while (e < 0x7e && ue4m3_half(e) < std / 5.85f)
        e++;
    for (int j = 0; j < 4; j++)
        b->d[j] = (uint8_t)(e - j); /* all different, so that a test notices swapped scales */
}

#ifdef TUNED
DECODED(nvfp4, NVFP4)
#endif

#endif
