/* iq2_xxs.h - IQ2_XXS: 256 weights; each eight are one of 256 codebook rows, each 32 share a scale of 4 bits; w = d *
 * (2 * sc + 1) / 8 * row, with signs. */
#ifndef HEARTH_QUANT_IQ2_XXS_H
#define HEARTH_QUANT_IQ2_XXS_H

#include "kernels/quant/grids.h"

struct block_iq2_xxs {
    uint16_t d;
    uint16_t qs[32]; /* per 32 weights: four row indices of a byte; a 32-bit word of four times seven signs and sc */
};
static_assert(sizeof(struct block_iq2_xxs) == 66, "packed as in the file");

enum { IQ2_XXS_LEN = 256, IQ2_XXS_BYTES = sizeof(struct block_iq2_xxs) };

static inline void iq2_xxs_decode(const void *src, float *dst, size_t n)
{
    const struct block_iq2_xxs *b = (const struct block_iq2_xxs *)src;
    for (size_t k = 0; k < n; k += IQ2_XXS_LEN, b++)
        for (int j = 0; j < 8; j++) {
            const uint16_t *q = b->qs + 4 * j;
            uint32_t word = q[2] | (uint32_t)q[3] << 16;
            float d = f16_to_f32(b->d) * (float)(2 * (word >> 28) + 1) * 0.125f;
            for (int l = 0; l < 4; l++)
                iq2_row(d, iq2_xxs_grid[q[l / 2] >> 8 * (l % 2) & 255], iq_signs(word >> 7 * l),
                        dst + k + 32 * j + 8 * l);
        }
}

#define iq2_xxs_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void iq2_xxs_scale_to(void *block, float std)
{
    ((struct block_iq2_xxs *)block)->d = f16_of_f32(std / 54.0f);
}

#ifdef TUNED
DECODED(iq2_xxs, IQ2_XXS)
#endif

#endif
