/*
 * avx2.c - the tuned kernels on AVX2, FMA and F16C: sixteen lanes are two registers. See tuned.h.
 *
 * The instruction set is enabled function by function (the target attribute), so that the library runs on any x86-64
 * and needs no flags.
 */
#ifdef __x86_64__
#include <immintrin.h>

#include "kernels/cpu/elem.h"

#define TUNED(name) avx2_##name
#define TARGET      __attribute__((target("avx2,fma,f16c")))
#define VFN         TARGET static inline __attribute__((always_inline))

/* --- the native register, for the product's tile --------------------------------------------------------- */

enum { VW = 8, NV = LANES / VW };
typedef __m256 vf;

VFN vf vf_zero(void)
{
    return _mm256_setzero_ps();
}
VFN vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
VFN void vf_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a);
}
VFN vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* --- sixteen lanes --------------------------------------------------------------------------------------- */

typedef struct {
    __m256 a, b;
} v16;
typedef struct {
    __m256i a, b;
} v16i;

VFN v16 v16_set1(float f)
{
    return (v16){_mm256_set1_ps(f), _mm256_set1_ps(f)};
}
VFN v16 v16_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
/* Joins the lower lanes, from memory, and the upper lanes, from a register. */
VFN v16 v16_join(const float *lower, vf upper)
{
    return (v16){_mm256_loadu_ps(lower), upper};
}
/* Does the first two steps of the lanes' reduction tree. */
VFN __m128 v16_fold(v16 v)
{
    __m256 s = _mm256_add_ps(v.a, v.b);
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}
VFN void v16_store(float *p, v16 v)
{
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
#define V16_OP(name, op)                          \
    VFN v16 v16_##name(v16 x, v16 y)              \
    {                                             \
        return (v16){op(x.a, y.a), op(x.b, y.b)}; \
    }
V16_OP(add, _mm256_add_ps)
V16_OP(sub, _mm256_sub_ps)
V16_OP(mul, _mm256_mul_ps)
V16_OP(div, _mm256_div_ps)
V16_OP(min, _mm256_min_ps)
V16_OP(max, _mm256_max_ps)
VFN v16 v16_fma(v16 x, v16 y, v16 z)
{
    return (v16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
/* 0 where x < bar, else y */
VFN v16 v16_zero_below(v16 x, v16 bar, v16 y)
{
    return (v16){_mm256_andnot_ps(_mm256_cmp_ps(x.a, bar.a, _CMP_LT_OQ), y.a),
                 _mm256_andnot_ps(_mm256_cmp_ps(x.b, bar.b, _CMP_LT_OQ), y.b)};
}
/* The float whose bits are (bits of t + 127) << 23: see fm_exp. */
VFN v16 v16_pow2(v16 t)
{
    __m256i bias = _mm256_set1_epi32(127);
    return (v16){_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(t.a), bias), 23)),
                 _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(t.b), bias), 23))};
}
VFN v16 v16_load_f16(const uint16_t *p)
{
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const void *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 8)))};
}
VFN void v16_store_f16(uint16_t *p, v16 v)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((void *)(p + 8), _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
}
VFN v16 v16_load_bf16(const uint16_t *p)
{
    __m256i a = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    __m256i b = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p + 8)));
    return (v16){_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
}

VFN v16i v16i_load_u8(const uint8_t *p)
{
    return (v16i){_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)),
                  _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(p + 8)))};
}
VFN v16i v16i_load_s8(const int8_t *p)
{
    return (v16i){_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)),
                  _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p + 8)))};
}
VFN v16i v16i_and(v16i x, int mask)
{
    __m256i m = _mm256_set1_epi32(mask);
    return (v16i){_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}
VFN v16i v16i_srl(v16i x, int n)
{
    return (v16i){_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)};
}
VFN v16 v16_of_int(v16i x)
{
    return (v16){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}

static bool avx2_usable(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); /* F16C comes with these */
}

#include "kernels/cpu/tuned.h"

const struct cpu_kernels cpu_avx2 = TUNED_TABLE("avx2");
#endif
