/* iq3_s.h - IQ3_S: 256 weights; each four are one of 512 codebook rows, each 32 share a scale of 4 bits; w = d * (2 *
 * sc + 1) * row, with signs. */
#ifndef HEARTH_QUANT_IQ3_S_H
#define HEARTH_QUANT_IQ3_S_H

#include "kernels/quant/grids.h"

struct block_iq3_s {
    uint16_t d;
    uint8_t qs[64];    /* the low bytes of the row indices */
    uint8_t qh[8];     /* the high bit of the index, for eight rows per byte */
    uint8_t signs[32]; /* a bit for each weight */
    uint8_t scales[4];
};
static_assert(sizeof(struct block_iq3_s) == 110, "packed as in the file");

enum { IQ3_S_LEN = 256, IQ3_S_BYTES = sizeof(struct block_iq3_s) };

static inline void iq3_s_decode(const void *src, float *dst, size_t n)
{
    const struct block_iq3_s *b = (const struct block_iq3_s *)src;
    for (size_t k = 0; k < n; k += IQ3_S_LEN, b++)
        for (int j = 0; j < 64; j++) {
            int sc = b->scales[j / 16] >> 4 * (j / 8 % 2) & 15, row = b->qs[j] | (b->qh[j / 8] >> j % 8 & 1) << 8;
            float d = f16_to_f32(b->d) * (float)(2 * sc + 1);
            iq3_row(d, iq3_s_values, iq3_s_grid[row], b->signs[j / 2] >> 4 * (j % 2), dst + k + 4 * j);
        }
}

#define iq3_s_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void iq3_s_scale_to(void *block, float std)
{
    ((struct block_iq3_s *)block)->d = f16_of_f32(std / 140.0f);
}

#ifdef TUNED
DECODED(iq3_s, IQ3_S)
#endif

#endif
