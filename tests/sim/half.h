/*
 * half.h - fp16, by the processor's own conversions.
 */
#ifndef HEARTH_SIM_HALF_H
#define HEARTH_SIM_HALF_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static inline float half_to(uint16_t h)
{
    return _cvtsh_ss(h);
}
/* To the nearest, ties to even. */
static inline uint16_t half_of(float f)
{
    return f != f ? 0x7fff : (uint16_t)_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
}
/* a + b rounded once: by way of float, whose last bit is made odd where it is not the sum itself. */
static inline uint16_t half_of_sum(double a, double b)
{
    double sum = a + b, of_b = sum - a, lost = (a - (sum - of_b)) + (b - of_b);
    float f = (float)sum;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (((double)f != sum || (lost != 0 && sum - sum == 0)) && f - f == 0 && !(bits & 1)) {
        /* towards the sum: float rounded it to an even neighbour, the odd one on the sum's side stands for it */
        double rest = (sum - (double)f) + lost;
        bits += (rest > 0) == !(bits >> 31) ? 1 : (uint32_t)-1;
        memcpy(&f, &bits, 4);
    }
    return half_of(f);
}

#endif
