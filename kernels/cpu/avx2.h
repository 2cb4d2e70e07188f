/*
 * avx2.h - sixteen lanes as two registers of AVX2, with FMA and F16C: what avx2.c and avxvnni.c have in common. They
 * define TUNED and TARGET before they include it, and then how products are summed. See tuned.h.
 *
 * The instruction set is enabled function by function (the target attribute), so that the library runs on any x86-64
 * and needs no flags.
 */
#include <immintrin.h>

#include "kernels/cpu/elem.h"

#define VFN TARGET static inline __attribute__((always_inline))

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

/* --- bytes and their products ------------------------------------------------------------------------------ */

/* A vector of VB bytes. Products of unsigned and signed bytes are added in pairs to 16 bits, and these, times the
 * scales, in pairs to 32 bits. */
typedef __m256i vb;
enum { VB = 32 };

VFN vb vb_zero(void)
{
    return _mm256_setzero_si256();
}
VFN vb vb_load(const void *p)
{
    return _mm256_loadu_si256(p);
}
VFN vb vb_or(vb a, vb b)
{
    return _mm256_or_si256(a, b);
}
VFN void vb_store(void *p, vb v)
{
    _mm256_storeu_si256(p, v);
}
VFN vb vb_set8(int v)
{
    return _mm256_set1_epi8((char)v);
}
VFN vb vb_sub8(vb a, int b)
{
    return _mm256_sub_epi8(a, vb_set8(b));
}
VFN vb vb_pairs(vb u, vb s)
{
    return _mm256_maddubs_epi16(u, s);
}
VFN __m256i vb_half(vb v)
{
    return v;
}
VFN vb vb_add_half(vb v, __m256i add)
{
    return _mm256_add_epi32(v, add);
}
/* Sixteen scales as 16 bits, even ones in the low half, odd ones in the high half; vb_scale(): those of vector i. */
typedef __m256i vb_scales;
VFN vb_scales vb_scales_of(__m128i bytes)
{
    const __m128i parted = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, parted));
}
VFN vb vb_scale(vb_scales s, int i)
{
    return _mm256_shuffle_epi8(s, _mm256_set1_epi16((short)((2 * i + 1) << 8 | 2 * i)));
}
/* Vector i of columns stored as nibbles, 64 columns in 32 bytes: the low nibbles are the first 32 columns. */
VFN vb vb_nibbles(const uint8_t *qs, int i)
{
    __m256i v = _mm256_loadu_si256((const void *)(qs + 32 * (i / 2)));
    return _mm256_and_si256(i & 1 ? _mm256_srli_epi16(v, 4) : v, _mm256_set1_epi8(15));
}
/* The fifth bits of vector i, as value 16: bit i of byte k belongs to column 32 i + k. */
VFN vb vb_fifths(const uint8_t *qh, int i)
{
    __m256i v = _mm256_loadu_si256((const void *)qh);
    return _mm256_and_si256(i < 4 ? _mm256_slli_epi16(v, 4 - i) : _mm256_srli_epi16(v, i - 4), _mm256_set1_epi8(16));
}
/* Vector i of columns of six bits, as stored in Q6_K. */
VFN vb vb_sixes(const uint8_t *ql, const uint8_t *qh, int i)
{
    int half = i / 4, quarter = i % 4;
    __m256i lo = _mm256_loadu_si256((const void *)(ql + 64 * half + 32 * (quarter & 1)));
    __m256i hi = _mm256_loadu_si256((const void *)(qh + 32 * half));
    lo = _mm256_and_si256(quarter & 2 ? _mm256_srli_epi16(lo, 4) : lo, _mm256_set1_epi8(15));
    hi = quarter < 2 ? _mm256_slli_epi16(hi, 4 - 2 * quarter) : _mm256_srli_epi16(hi, 2 * quarter - 4);
    return _mm256_or_si256(lo, _mm256_and_si256(hi, _mm256_set1_epi8(48)));
}

/* --- many rows: see tuned-tile.h ----------------------------------------------------------------------------- */

enum { VR = 8, TILE_TOKENS = 2 };
typedef __m256 vr;
VFN vr vr_of_digits(vb h, vb m, vb l)
{
    __m256i low = _mm256_set1_epi32(127);
    m = _mm256_add_epi32(m, _mm256_srai_epi32(l, DIGIT_BITS));
    h = _mm256_add_epi32(h, _mm256_srai_epi32(m, DIGIT_BITS));
    l = _mm256_or_si256(_mm256_slli_epi32(_mm256_and_si256(m, low), DIGIT_BITS), _mm256_and_si256(l, low));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(h), _mm256_set1_ps(16384.0f), _mm256_cvtepi32_ps(l));
}
VFN vb vr_sub(vb a, vb b)
{
    return _mm256_sub_epi32(a, b);
}
VFN vr vr_set1(float f)
{
    return _mm256_set1_ps(f);
}
VFN vr vr_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
VFN void vr_store(float *p, vr v)
{
    _mm256_storeu_ps(p, v);
}
VFN vr vr_fma(vr a, vr b, vr c)
{
    return _mm256_fmadd_ps(a, b, c);
}
VFN vr vr_fnma(vr a, vr b, vr c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
VFN vr vr_mul(vr a, vr b)
{
    return _mm256_mul_ps(a, b);
}
VFN vr vr_add(vr a, vr b)
{
    return _mm256_add_ps(a, b);
}
