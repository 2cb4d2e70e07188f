/* avx2.c - the tuned kernels on AVX2, FMA and F16C: see avx2.h. */
#ifdef __x86_64__
#define TUNED(name) avx2_##name
#define TARGET      __attribute__((target("avx2,fma,f16c")))

#include "kernels/cpu/avx2.h"

VFN vb vb_add_scaled(vb sum, vb pairs, vb scale)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, scale));
}

/* --- many rows: see tuned-tile.h ----------------------------------------------------------------------------- */

#define TILE_RUN(T)     T##_GROUPS
#define tile_add_scaled vb_add_scaled
/* The products of four columns with two vectors of rows. In assembler, because the compiler would compute all products
 * before it adds any, run out of registers and be twice as slow. */
VFN void tile_mac2(vb *s0, vb *s1, const int8_t *x, vb w0, vb w1)
{
    vb a, b;
    __asm__("vpbroadcastd %6, %2\n\t"
            "vpmaddubsw %4, %2, %3\n\t"
            "vpmaddubsw %5, %2, %2\n\t"
            "vpaddw %3, %0, %0\n\t"
            "vpaddw %2, %1, %1"
            : "+x"(*s0), "+x"(*s1), "=&x"(a), "=&x"(b)
            : "x"(w0), "x"(w1), "m"(*(const int32_t(*)[1])(const void *)x));
}
VFN int32_t tile_scale(int8_t sc) /* for both sums of 16 bits in a lane */
{
    return (int32_t)((uint32_t)(uint16_t)sc * 0x10001u);
}

static bool avx2_usable(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); /* F16C comes with these */
}

#include "kernels/cpu/tuned.h"

const struct cpu_kernels cpu_avx2 = TUNED_TABLE("avx2");
#endif
