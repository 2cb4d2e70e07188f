/*
 * fmath.h - exp and log in f32 that are bit-identical in C and CUDA, scalar and vector.
 *
 * libm's, CUDA's and a vector library's results differ in the last place, which can decide which of two tokens wins.
 * Every step here is one IEEE operation: a fused multiply-add, or an addition or multiplication that no compiler may
 * fuse with its neighbour (the C code is built with -ffp-contract=off, and no product here feeds a sum). The
 * coefficients are minimax fits over the reduced range; both errors are below 0.9 ulp.
 */
#ifndef HEARTH_FMATH_H
#define HEARTH_FMATH_H

#include <math.h>

#include "kernels/quant/half.h"

#define FM_LOG2E  1.442695041f
#define FM_LN2_HI 0.693145752f    /* 16 bits: n * FM_LN2_HI is exact */
#define FM_LN2_LO 1.428606820e-6f /* ln 2 - FM_LN2_HI */
#define FM_MAGIC  12582912.0f     /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
#define FM_EXP_LO (-87.0f)        /* below: 0 */
#define FM_EXP_HI 88.0f           /* above: e^88, finite */
#define FM_EXP_C2 0.5f
#define FM_EXP_C3 0.166665182f
#define FM_EXP_C4 0.0416662060f
#define FM_EXP_C5 0.00836888980f
#define FM_EXP_C6 0.00139504892f

QUANT_FN float fm_exp(float x)
{
    float c = x < FM_EXP_HI ? x : FM_EXP_HI;
    c = c > FM_EXP_LO ? c : FM_EXP_LO;
    float t = fmaf(c, FM_LOG2E, FM_MAGIC);
    float n = t - FM_MAGIC;
    float r = fmaf(n, -FM_LN2_LO, fmaf(n, -FM_LN2_HI, c));
    float p = fmaf(fmaf(fmaf(fmaf(FM_EXP_C6, r, FM_EXP_C5), r, FM_EXP_C4), r, FM_EXP_C3), r, FM_EXP_C2);
    p = fmaf(fmaf(p, r, 1.0f), r, 1.0f);
    float y = p * f32_of_bits((f32_bits(t) + 127) << 23); /* t's low bits hold n */
    return x < FM_EXP_LO ? 0.0f : y;
}

/* log(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1]. */
QUANT_FN float fm_log1p_reduced(float f)
{
    float p = fmaf(0.0691536814f, f, -0.117898077f);
    p = fmaf(p, f, 0.118729763f);
    p = fmaf(p, f, -0.123843484f);
    p = fmaf(p, f, 0.142186582f);
    p = fmaf(p, f, -0.166692510f);
    p = fmaf(p, f, 0.200022265f);
    p = fmaf(p, f, -0.249999866f);
    p = fmaf(p, f, 0.333333105f);
    p = fmaf(p, f, -0.5f);
    float f2 = f * f;
    return fmaf(f2, p, f);
}

/* x positive, finite and normal. */
QUANT_FN float fm_log(float x)
{
    uint32_t u = f32_bits(x) - 0x3f3504f3; /* sqrt(1/2): the mantissa then lies in [sqrt(1/2), sqrt(2)) */
    float n = (float)((int32_t)u >> 23);
    float f = f32_of_bits((u & 0x7fffff) + 0x3f3504f3) - 1.0f;
    return fmaf(n, FM_LN2_HI, fmaf(n, FM_LN2_LO, fm_log1p_reduced(f)));
}

#endif
