/*
 * half.h - fp16, with the CPU's own conversions.
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
/* Rounds to nearest, ties to even. */
static inline uint16_t half_of(float f)
{
    return f != f ? 0x7fff : (uint16_t)_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
}
/* a + b rounded once, by way of float, whose last bit is made odd if the sum is not exact. */
static inline uint16_t half_of_sum(double a, double b)
{
    double sum = a + b, of_b = sum - a, lost = (a - (sum - of_b)) + (b - of_b);
    float f = (float)sum;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (((double)f != sum || (lost != 0 && sum - sum == 0)) && f - f == 0 && !(bits & 1)) {
        /* towards the exact sum: where float rounded to an even neighbour, the odd one on the side of the sum replaces
         * it */
        double rest = (sum - (double)f) + lost;
        bits += (rest > 0) == !(bits >> 31) ? 1 : (uint32_t)-1;
        memcpy(&f, &bits, 4);
    }
    return half_of(f);
}

#endif
