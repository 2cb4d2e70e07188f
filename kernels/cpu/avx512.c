/* avx512.c - the tuned kernels on AVX-512F: sixteen lanes are one register. See tuned.h, and avx2.c for the
 * operations. */
#ifdef __x86_64__
#include <immintrin.h>

#include "kernels/cpu/elem.h"

#define TUNED(name) avx512_##name
#define TARGET      __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")))
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

/* --- bytes and their products: see avx2.c ------------------------------------------------------------------ */

typedef __m512i vb;
enum { VB = 64 };

VFN vb vb_zero(void)
{
    return _mm512_setzero_si512();
}
VFN vb vb_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
VFN vb vb_or(vb a, vb b)
{
    return _mm512_or_si512(a, b);
}
VFN void vb_store(void *p, vb v)
{
    _mm512_storeu_si512(p, v);
}
VFN vb vb_set8(int v)
{
    return _mm512_set1_epi8((char)v);
}
VFN vb vb_sub8(vb a, int b)
{
    return _mm512_sub_epi8(a, vb_set8(b));
}
VFN vb vb_pairs(vb u, vb s)
{
    return _mm512_maddubs_epi16(u, s);
}
VFN vb vb_add_scaled(vb sum, vb pairs, vb scale)
{
    return _mm512_dpwssd_epi32(sum, pairs, scale);
}
VFN __m256i vb_half(vb v)
{
    return _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
}
VFN vb vb_add_half(vb v, __m256i add)
{
    return _mm512_add_epi32(v, _mm512_zextsi256_si512(add));
}
typedef __m512i vb_scales;
VFN vb_scales vb_scales_of(__m128i bytes)
{
    return _mm512_castsi256_si512(_mm256_cvtepi8_epi16(bytes));
}
VFN vb vb_scale(vb_scales s, int i)
{
    const __m512i lanes = _mm512_set_epi64(0x0003000300030003, 0x0003000300030003, 0x0002000200020002,
                                           0x0002000200020002, 0x0001000100010001, 0x0001000100010001, 0, 0);
    return _mm512_permutexvar_epi16(_mm512_add_epi16(lanes, _mm512_set1_epi16((short)(4 * i))), s);
}
VFN vb vb_shifted(const uint8_t *p, int low, int high) /* 32 bytes twice, shifted right by `low` and by `high` bits */
{
    __m512i by = _mm512_inserti64x4(_mm512_set1_epi64(low), _mm256_set1_epi64x(high), 1);
    return _mm512_srlv_epi64(_mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)p)), by);
}
VFN vb vb_nibbles(const uint8_t *qs, int i)
{
    return _mm512_and_si512(vb_shifted(qs + 32 * i, 0, 4), _mm512_set1_epi8(15));
}
VFN vb vb_fifths(const uint8_t *qh, int i)
{
    return _mm512_and_si512(_mm512_slli_epi64(vb_shifted(qh, 2 * i, 2 * i + 1), 4), _mm512_set1_epi8(16));
}
VFN vb vb_sixes(const uint8_t *ql, const uint8_t *qh, int i)
{
    __m512i lo = _mm512_loadu_si512(ql + 64 * (i / 2));
    lo = _mm512_and_si512(i & 1 ? _mm512_srli_epi16(lo, 4) : lo, _mm512_set1_epi8(15));
    __m512i hi = _mm512_slli_epi64(vb_shifted(qh + 32 * (i / 2), 4 * (i & 1), 4 * (i & 1) + 2), 4);
    return _mm512_or_si512(lo, _mm512_and_si512(hi, _mm512_set1_epi8(48)));
}

enum { VR = 16, TILE_TOKENS = 4 };
#define TILE_RUN(T) T##_SHARED
VFN void tile_mac2(vb *s0, vb *s1, const int8_t *x, vb w0, vb w1)
{
    vb a;
    __asm__("vpbroadcastd %5, %2\n\t"
            "vpdpbusd %3, %2, %0\n\t"
            "vpdpbusd %4, %2, %1"
            : "+v"(*s0), "+v"(*s1), "=&v"(a)
            : "v"(w0), "v"(w1), "m"(*(const int32_t(*)[1])(const void *)x));
}
VFN vb tile_add_scaled(vb sum, vb products, vb scale)
{
    return _mm512_add_epi32(sum, _mm512_mullo_epi32(products, scale));
}
VFN int32_t tile_scale(int8_t sc)
{
    return sc;
}
typedef __m512 vr;
VFN vr vr_of_digits(vb h, vb m, vb l)
{
    __m512i low = _mm512_set1_epi32(127);
    m = _mm512_add_epi32(m, _mm512_srai_epi32(l, DIGIT_BITS));
    h = _mm512_add_epi32(h, _mm512_srai_epi32(m, DIGIT_BITS));
    l = _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(m, low), DIGIT_BITS), _mm512_and_si512(l, low));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(h), _mm512_set1_ps(16384.0f), _mm512_cvtepi32_ps(l));
}
VFN vb vr_sub(vb a, vb b)
{
    return _mm512_sub_epi32(a, b);
}
VFN vr vr_set1(float f)
{
    return _mm512_set1_ps(f);
}
VFN vr vr_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VFN void vr_store(float *p, vr v)
{
    _mm512_storeu_ps(p, v);
}
VFN vr vr_fma(vr a, vr b, vr c)
{
    return _mm512_fmadd_ps(a, b, c);
}
VFN vr vr_fnma(vr a, vr b, vr c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
VFN vr vr_mul(vr a, vr b)
{
    return _mm512_mul_ps(a, b);
}
VFN vr vr_add(vr a, vr b)
{
    return _mm512_add_ps(a, b);
}

static bool avx512_usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#include "kernels/cpu/tuned.h"

const struct cpu_kernels cpu_avx512 = TUNED_TABLE("avx512");
#endif
