/* avx512.c - the tuned kernels on AVX-512F: sixteen lanes are one register. See tuned.h, and avx2.c for the
 * operations. */
#ifdef __x86_64__
#include <immintrin.h>

#include "kernels/cpu/elem.h"

#define TUNED(name) avx512_##name
#define TARGET      __attribute__((target("avx512f,avx2,fma,f16c")))
#define VFN         TARGET static inline __attribute__((always_inline))

enum { VW = 16, NV = LANES / VW };
typedef __m512 vf;

VFN vf vf_zero(void)
{
    return _mm512_setzero_ps();
}
VFN vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VFN void vf_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}
VFN vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
typedef __m512 v16;
typedef __m512i v16i;

VFN v16 v16_set1(float f)
{
    return _mm512_set1_ps(f);
}
VFN v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VFN v16 v16_join(const float *lower, vf upper)
{
    (void)lower; /* one register has all lanes */
    return upper;
}
VFN __m128 v16_fold(v16 v)
{
    __m256 hi = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
    __m256 s = _mm256_add_ps(_mm512_castps512_ps256(v), hi);
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}
VFN void v16_store(float *p, v16 v)
{
    _mm512_storeu_ps(p, v);
}
#define V16_OP(name, op)             \
    VFN v16 v16_##name(v16 x, v16 y) \
    {                                \
        return op(x, y);             \
    }
V16_OP(add, _mm512_add_ps)
V16_OP(sub, _mm512_sub_ps)
V16_OP(mul, _mm512_mul_ps)
V16_OP(div, _mm512_div_ps)
V16_OP(min, _mm512_min_ps)
V16_OP(max, _mm512_max_ps)
VFN v16 v16_fma(v16 x, v16 y, v16 z)
{
    return _mm512_fmadd_ps(x, y, z);
}
VFN v16 v16_zero_below(v16 x, v16 bar, v16 y)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bar, _CMP_NLT_UQ), y);
}
VFN v16 v16_pow2(v16 t)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(127)), 23));
}
VFN v16 v16_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}
VFN void v16_store_f16(uint16_t *p, v16 v)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
VFN v16 v16_load_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
}

VFN v16i v16i_load_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
}
VFN v16i v16i_load_s8(const int8_t *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p));
}
VFN v16i v16i_and(v16i x, int mask)
{
    return _mm512_and_si512(x, _mm512_set1_epi32(mask));
}
VFN v16i v16i_srl(v16i x, int n)
{
    return _mm512_srli_epi32(x, (unsigned)n);
}
VFN v16 v16_of_int(v16i x)
{
    return _mm512_cvtepi32_ps(x);
}

static bool avx512_usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#include "kernels/cpu/tuned.h"

const struct cpu_kernels cpu_avx512 = TUNED_TABLE("avx512");
#endif
