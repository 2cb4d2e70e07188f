/* iq2_s.h - IQ2_S: 256 weights; each eight are one of 1024 codebook rows, each 16 share a scale of 4 bits; w = d * (2 *
 * sc + 1) / 8 * row, with signs. */
#ifndef HEARTH_QUANT_IQ2_S_H
#define HEARTH_QUANT_IQ2_S_H

#include "kernels/quant/grids.h"

struct block_iq2_s {
    uint16_t d;
    uint8_t qs[32], signs[32]; /* per eight weights: the low byte of the row index; eight signs */
    uint8_t qh[8];             /* the two high bits of the index, for four rows per byte */
    uint8_t scales[8];
};
static_assert(sizeof(struct block_iq2_s) == 82, "packed as in the file");

enum { IQ2_S_LEN = 256, IQ2_S_BYTES = sizeof(struct block_iq2_s) };

static inline void iq2_s_decode(const void *src, float *dst, size_t n)
{
    const struct block_iq2_s *b = (const struct block_iq2_s *)src;
    for (size_t k = 0; k < n; k += IQ2_S_LEN, b++)
        for (int j = 0; j < 32; j++) {
            int sc = b->scales[j / 4] >> 4 * (j / 2 % 2) & 15, row = b->qs[j] | (b->qh[j / 4] >> 2 * (j % 4) & 3) << 8;
            float d = f16_to_f32(b->d) * (float)(2 * sc + 1) * 0.125f;
            iq2_row(d, iq2_s_grid[row], b->signs[j], dst + k + 8 * j);
        }
}

#define iq2_s_encode NULL /* hearth never writes this type */

/* Gives a block of random bits weights of about this standard deviation, for tests and benchmarks. */
static inline void iq2_s_scale_to(void *block, float std)
{
    ((struct block_iq2_s *)block)->d = f16_of_f32(std / 56.0f);
}

#ifdef TUNED
DECODED(iq2_s, IQ2_S)
#endif

#endif
