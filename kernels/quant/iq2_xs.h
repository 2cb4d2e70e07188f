/* iq2_xs.h - IQ2_XS: 256 weights; each eight are one of 512 codebook rows, each 16 share a scale of 4 bits; w = d * (2
 * * sc + 1) / 8 * row, with signs. */
#ifndef HEARTH_QUANT_IQ2_XS_H
#define HEARTH_QUANT_IQ2_XS_H

#include "kernels/quant/grids.h"

struct block_iq2_xs {
    uint16_t d;
    uint16_t qs[32]; /* per eight weights: nine bits of row index, seven signs */
    uint8_t scales[8];
};
static_assert(sizeof(struct block_iq2_xs) == 74, "packed as in the file");

enum { IQ2_XS_LEN = 256, IQ2_XS_BYTES = sizeof(struct block_iq2_xs) };

static inline void iq2_xs_decode(const void *src, float *dst, size_t n)
{
    const struct block_iq2_xs *b = (const struct block_iq2_xs *)src;
    for (size_t k = 0; k < n; k += IQ2_XS_LEN, b++)
        for (int j = 0; j < 32; j++) {
            int sc = b->scales[j / 4] >> 4 * (j / 2 % 2) & 15;
            float d = f16_to_f32(b->d) * (float)(2 * sc + 1) * 0.125f;
            iq2_row(d, iq2_xs_grid[b->qs[j] & 511], iq_signs(b->qs[j] >> 9), dst + k + 8 * j);
        }
}

#define iq2_xs_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void iq2_xs_scale_to(void *block, float std)
{
    ((struct block_iq2_xs *)block)->d = f16_of_f32(std / 55.0f);
}

#ifdef TUNED
DECODED(iq2_xs, IQ2_XS)
#endif

#endif
