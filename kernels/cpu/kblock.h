/*
 * kblock.h - THE DOT PRODUCT IN INTEGERS, for weights of the types of QUANTS_INT (quant/list.h), which come in
 * super-blocks of 256 with integer scales.
 *
 * An activation is quantised to k-blocks of 256 columns, each with its own scale: x[k] = scale * X[k] with X an
 * integer of 21 bits,
 *     most  = the largest |x[k]|; where that is below KBLOCK_LEAST: scale = 0 and X = 0
 *     scale = most / KBLOCK_MAX, X[k] = rint(x[k] * (KBLOCK_MAX / most))
 * and scale is NaN, X = 0, where any x[k] is not finite. For a super-block (ints.h) and its k-block:
 *     V = sum over k of sc[k / 16] * q[k] * X[k], an integer that is computed exactly, in any order;
 *     f = fma((float)(V >> 14), 2^14, (float)(V & (2^14 - 1)));
 *     y = fma(f, d * scale, y), over the super-blocks of a row ascending, from +0.
 * Where the type has mins, e[i] = fma(m[i + 4], S[i + 4], m[i] * S[i]) for i < 4, with S[j] = scale * (the sum of X
 * over the j-th 32 columns, an exact integer rounded to a float), and then y = fma(-dmin, (e[0] + e[2]) + (e[1] +
 * e[3]), y).
 *
 * 16 bits would not be enough: with them the logits of the test model "tale" were off by 0.0034 (0.0021 with a scale
 * for every 32 columns), against 0.00006 with f32. 21 bits are three digits of seven bits, X = 2^14 h + 2^7 m + l, each
 * from -63 to 64: bytes for the CPU's byte-by-byte multiply, whose sums of pairs fit in 16 bits for the weights of
 * every type.
 */
#ifndef HEARTH_CPU_KBLOCK_H
#define HEARTH_CPU_KBLOCK_H

#include <stdbool.h>
#include <stdint.h>

enum {
    KBLOCK_LEN = 256,
    KBLOCK_DIGITS = 3, /* h, m, l */
    DIGIT_BITS = 7,
    DIGIT_BIAS = 63,         /* added to a digit, makes it unsigned */
    KBLOCK_MAX = 63 * 16513, /* all digits 63 */
};
#define KBLOCK_LEAST 0x1p-100f /* so that KBLOCK_MAX / most is finite */

/* A panel's k-blocks are [n_col / KBLOCK_LEN][n_row]. Where the panel has many rows (panel_many), digits include the
 * bias, as tuned-tile.h needs them, and `off` is not used. */
struct kblock {
    _Alignas(64) int8_t digit[KBLOCK_DIGITS][KBLOCK_LEN];
    int16_t off[KBLOCK_DIGITS][16]; /* -32 * the sum of a digit over 16 columns, for weights that are q - 32 */
    float sum[8];                   /* S */
    float scale;
};

#endif
