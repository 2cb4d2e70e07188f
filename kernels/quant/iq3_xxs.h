/* iq3_xxs.h - IQ3_XXS: 256 weights; each four are one of 256 codebook rows, each 32 share a scale of 4 bits; w = d * (2
 * * sc + 1) / 4 * row, with signs. */
#ifndef HEARTH_QUANT_IQ3_XXS_H
#define HEARTH_QUANT_IQ3_XXS_H

#include "kernels/quant/grids.h"

struct block_iq3_xxs {
    uint16_t d;
    uint8_t qs[64];   /* row indices */
    uint8_t ss[8][4]; /* per 32 weights: a 32-bit word of four times seven signs and sc */
};
static_assert(sizeof(struct block_iq3_xxs) == 98, "packed as in the file");

enum { IQ3_XXS_LEN = 256, IQ3_XXS_BYTES = sizeof(struct block_iq3_xxs) };

static inline void iq3_xxs_decode(const void *src, float *dst, size_t n)
{
    const struct block_iq3_xxs *b = (const struct block_iq3_xxs *)src;
    for (size_t k = 0; k < n; k += IQ3_XXS_LEN, b++)
        for (int j = 0; j < 8; j++) {
            uint32_t word;
            memcpy(&word, b->ss[j], sizeof word);
            float d = f16_to_f32(b->d) * (float)(2 * (word >> 28) + 1) * 0.25f;
            for (int l = 0; l < 8; l++)
                iq3_row(d, iq3_xxs_values, iq3_xxs_grid[b->qs[8 * j + l]], iq_signs(word >> 7 * (l / 2)) >> 4 * (l % 2),
                        dst + k + 32 * j + 4 * l);
        }
}

#define iq3_xxs_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void iq3_xxs_scale_to(void *block, float std)
{
    ((struct block_iq3_xxs *)block)->d = f16_of_f32(std / 142.0f);
}

#ifdef TUNED
DECODED(iq3_xxs, IQ3_XXS)
#endif

#endif
