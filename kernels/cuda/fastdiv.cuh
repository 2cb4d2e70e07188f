/*
 * fastdiv.cuh - division by a number that is known before the launch, as one multiplication. By a variable it is a
 * dependency chain of some hundred cycles, and a few hundred bytes of code, which cost more where they are executed
 * once.
 */
#ifndef HEARTH_CUDA_FASTDIV_CUH
#define HEARTH_CUDA_FASTDIV_CUH

#include <stdint.h>

/* The multiplier with which fastdiv() computes x / n, for (2x + 1) n < 2^31: 2^31 / n, rounded up. */
static inline uint32_t fastdiv_magic(uint32_t n)
{
    return (uint32_t)(((1ull << 31) + n - 1) / n);
}
__device__ static inline uint32_t fastdiv(uint32_t x, uint32_t by)
{
    return __umulhi(2 * x + 1, by);
}

#endif
