/* avxvnni.c - the tuned kernels on AVX2 with VNNI in the same registers, which desktop processors without AVX-512 have:
 * four products of bytes are added to 32 bits in one instruction. See avx2.h. */
#ifdef __x86_64__
#include <cpuid.h>

#define TUNED(name) avxvnni_##name
#define TARGET      __attribute__((target("avx2,fma,f16c,avxvnni")))

#include "kernels/cpu/avx2.h"

VFN vb vb_add_scaled(vb sum, vb pairs, vb scale)
{
    return _mm256_dpwssd_avx_epi32(sum, pairs, scale);
}

/* --- many rows: see tuned-tile.h ----------------------------------------------------------------------------- */

#define TILE_RUN(T) T##_SHARED
/* In assembler for the same reason as in avx2.c. */
VFN void tile_mac2(vb *s0, vb *s1, const int8_t *x, vb w0, vb w1)
{
    vb a;
    __asm__("vpbroadcastd %5, %2\n\t"
            "%{vex%} vpdpbusd %3, %2, %0\n\t"
            "%{vex%} vpdpbusd %4, %2, %1"
            : "+x"(*s0), "+x"(*s1), "=&x"(a)
            : "x"(w0), "x"(w1), "m"(*(const int32_t(*)[1])(const void *)x));
}
VFN vb tile_add_scaled(vb sum, vb products, vb scale)
{
    return _mm256_add_epi32(sum, _mm256_mullo_epi32(products, scale));
}
VFN int32_t tile_scale(int8_t sc)
{
    return sc;
}

static bool avxvnni_usable(void)
{
    unsigned a, b, c, d; /* leaf 7, subleaf 1: not every compiler's __builtin_cpu_supports() knows the name */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
           a & 1u << 4;
}

#include "kernels/cpu/tuned.h"

const struct cpu_kernels cpu_avxvnni = TUNED_TABLE("avxvnni");
#endif
