/*
 * tuned-int.h - the tuned products in integers (kblock.h): k-blocks, and the dot products for a few rows of
 * activations; tuned-tile.h has those for many. Part of tuned.h.
 *
 * Each type of QUANTS_INT has, in its own file, t_vector(block, i): the i-th VB of its weights as unsigned bytes, q +
 * T_OFFSET (0 or 32); t_scale_bytes(block): its sixteen scales; and where T_MINS expands to its argument,
 * t_min_bytes(block): its eight mins.
 */

/* --- k-blocks ------------------------------------------------------------------------------------------------ */

VFN int32_t sum_of_8(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* Removes the lowest digit from each of eight integers and returns it. */
VFN __m256i take_digit(__m256i *v)
{
    __m256i bias = _mm256_set1_epi32(DIGIT_BIAS);
    __m256i d = _mm256_and_si256(_mm256_add_epi32(*v, bias), _mm256_set1_epi32(127));
    d = _mm256_sub_epi32(d, bias);
    *v = _mm256_srai_epi32(_mm256_sub_epi32(*v, d), DIGIT_BITS);
    return d;
}

/* Stores 32 integers from four registers as bytes, plus `add`. */
VFN void store_bytes(int8_t *to, const __m256i v[4], int add)
{
    __m256i lo = _mm256_packs_epi32(v[0], v[1]), hi = _mm256_packs_epi32(v[2], v[3]);
    __m256i b = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(lo, hi), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((void *)to, _mm256_add_epi8(b, _mm256_set1_epi8((char)add)));
}

TARGET static void TUNED(kblock)(const float *x, struct kblock *out, bool biased)
{
    __m256 sign = _mm256_set1_ps(-0.0f), top = _mm256_setzero_ps(), inf = _mm256_set1_ps(INFINITY);
    int finite = 255, add = biased ? DIGIT_BIAS : 0;
    for (int k = 0; k < KBLOCK_LEN; k += 8) {
        __m256 size = _mm256_andnot_ps(sign, _mm256_loadu_ps(x + k));
        finite &= _mm256_movemask_ps(_mm256_cmp_ps(size, inf, _CMP_LT_OQ));
        top = _mm256_max_ps(top, size);
    }
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    float most = _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
    if (finite != 255 || most < KBLOCK_LEAST) {
        memset(out, 0, sizeof *out);
        memset(out->digit, add, sizeof out->digit);
        out->scale = finite != 255 ? NAN : 0.0f;
        for (int j = 0; j < 8; j++)
            out->sum[j] = out->scale * 0.0f;
        return;
    }
    __m256 to = _mm256_set1_ps((float)KBLOCK_MAX / most);
    out->scale = most / (float)KBLOCK_MAX;
    for (int j = 0; j < 8; j++) {
        __m256i v[4], h[4], mid[4], l[4];
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 32 * j + 8 * i), to));
            h[i] = v[i];
            l[i] = take_digit(&h[i]);
            mid[i] = take_digit(&h[i]);
        }
        __m256i all = _mm256_add_epi32(_mm256_add_epi32(v[0], v[1]), _mm256_add_epi32(v[2], v[3]));
        out->sum[j] = out->scale * (float)sum_of_8(all);
        store_bytes(out->digit[0] + 32 * j, h, add);
        store_bytes(out->digit[1] + 32 * j, mid, add);
        store_bytes(out->digit[2] + 32 * j, l, add);
        for (int i = 0; i < 2 && !biased; i++) {
            out->off[0][2 * j + i] = (int16_t)(-32 * sum_of_8(_mm256_add_epi32(h[2 * i], h[2 * i + 1])));
            out->off[1][2 * j + i] = (int16_t)(-32 * sum_of_8(_mm256_add_epi32(mid[2 * i], mid[2 * i + 1])));
            out->off[2][2 * j + i] = (int16_t)(-32 * sum_of_8(_mm256_add_epi32(l[2 * i], l[2 * i + 1])));
        }
    }
}

/* --- a super-block times a k-block ----------------------------------------------------------------------------- */

/* One sum per digit h, m, l, still spread over lanes. */
struct digits {
    vb h, m, l;
};

VFN __m128i sums_of_4(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

/* kblock.h's f of V = 2^14 h + 2^7 m + l, four at a time, from the digits' sums: V >> 14 and the rest. */
VFN __m128 floats_of_4(__m128i h, __m128i m, __m128i l)
{
    __m128i low = _mm_set1_epi32(127);
    m = _mm_add_epi32(m, _mm_srai_epi32(l, DIGIT_BITS));
    h = _mm_add_epi32(h, _mm_srai_epi32(m, DIGIT_BITS));
    l = _mm_or_si128(_mm_slli_epi32(_mm_and_si128(m, low), DIGIT_BITS), _mm_and_si128(l, low));
    return _mm_fmadd_ps(_mm_cvtepi32_ps(h), _mm_set1_ps(16384.0f), _mm_cvtepi32_ps(l));
}

/* kblock.h's e[0..4), from eight mins. */
VFN __m128 min_products(__m128i m, const float *sum)
{
    __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(m));
    __m128 e = _mm_mul_ps(_mm256_castps256_ps128(v), _mm_loadu_ps(sum));
    return _mm_fmadd_ps(_mm256_extractf128_ps(v, 1), _mm_loadu_ps(sum + 4), e);
}

/* (e[0] + e[2]) + (e[1] + e[3]) of each of four vectors e. */
VFN __m128 min_sums(__m128 a, __m128 b, __m128 c, __m128 d)
{
    __m128 ab = _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
    __m128 cd = _mm_add_ps(_mm_movelh_ps(c, d), _mm_movehl_ps(d, c));
    return _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xdd));
}

/*
 * For each type T_products, a super-block times a k-block, and T_int_dots, rows o0..o1 times a row of k-blocks.
 * T_int_dots takes four rows at a time, which are contiguous in memory, and prefetches the next four.
 */
#define DEFINE_INT_DOTS(t, T)                                                                                         \
    VFN struct digits t##_products(const void *block, const struct kblock *x)                                         \
    {                                                                                                                 \
        struct digits a = {vb_zero(), vb_zero(), vb_zero()};                                                          \
        __m128i bytes = t##_scale_bytes(block);                                                                       \
        vb_scales scales = vb_scales_of(bytes);                                                                       \
        _Pragma("GCC unroll 8") for (int i = 0; i < KBLOCK_LEN / VB; i++)                                             \
        {                                                                                                             \
            vb q = t##_vector(block, i), sc = vb_scale(scales, i);                                                    \
            a.h = vb_add_scaled(a.h, vb_pairs(q, vb_load(x->digit[0] + VB * i)), sc);                                 \
            a.m = vb_add_scaled(a.m, vb_pairs(q, vb_load(x->digit[1] + VB * i)), sc);                                 \
            a.l = vb_add_scaled(a.l, vb_pairs(q, vb_load(x->digit[2] + VB * i)), sc);                                 \
        }                                                                                                             \
        if (T##_OFFSET) {                                                                                             \
            __m256i sc = _mm256_cvtepi8_epi16(bytes);                                                                 \
            a.h = vb_add_half(a.h, _mm256_madd_epi16(sc, _mm256_loadu_si256((const void *)x->off[0])));               \
            a.m = vb_add_half(a.m, _mm256_madd_epi16(sc, _mm256_loadu_si256((const void *)x->off[1])));               \
            a.l = vb_add_half(a.l, _mm256_madd_epi16(sc, _mm256_loadu_si256((const void *)x->off[2])));               \
        }                                                                                                             \
        return a;                                                                                                     \
    }                                                                                                                 \
    TARGET static void TUNED(t##_int_dots)(const char *w, size_t row_bytes, uint32_t n_block, const struct kblock *x, \
                                           size_t xstride, uint32_t o0, uint32_t o1, float *y)                        \
    {                                                                                                                 \
        const size_t size = T##_BYTES, ahead = 4 * row_bytes + PREFETCH;                                              \
        for (uint32_t o = o0; o < o1; o += 4) {                                                                       \
            const char *w0 = w + o * row_bytes, *w1 = o + 1 < o1 ? w0 + row_bytes : w0;                               \
            const char *w2 = o + 2 < o1 ? w1 + row_bytes : w0, *w3 = o + 3 < o1 ? w2 + row_bytes : w0;                \
            const char *fetch = w0 + ahead;                                                                           \
            const struct kblock *xb = x;                                                                              \
            __m128 total = _mm_setzero_ps();                                                                          \
            for (uint32_t b = 0; b < n_block; b++, xb += xstride) {                                                   \
                for (size_t p = 0; p < 4 * size; p += 64)                                                             \
                    _mm_prefetch(fetch + p, _MM_HINT_T0);                                                             \
                fetch += 4 * size;                                                                                    \
                struct digits a0 = t##_products(w0, xb), a1 = t##_products(w1, xb), a2 = t##_products(w2, xb),        \
                              a3 = t##_products(w3, xb);                                                              \
                __m128i h = sums_of_4(vb_half(a0.h), vb_half(a1.h), vb_half(a2.h), vb_half(a3.h));                    \
                __m128i m = sums_of_4(vb_half(a0.m), vb_half(a1.m), vb_half(a2.m), vb_half(a3.m));                    \
                __m128i l = sums_of_4(vb_half(a0.l), vb_half(a1.l), vb_half(a2.l), vb_half(a3.l));                    \
                const struct block_##t *b0 = (const void *)w0, *b1 = (const void *)w1, *b2 = (const void *)w2,        \
                                       *b3 = (const void *)w3;                                                        \
                __m128 d =                                                                                            \
                    _mm_cvtph_ps(_mm_setr_epi16((short)b0->d, (short)b1->d, (short)b2->d, (short)b3->d, 0, 0, 0, 0)); \
                total = _mm_fmadd_ps(floats_of_4(h, m, l), _mm_mul_ps(d, _mm_set1_ps(xb->scale)), total);             \
                T##_MINS(                                                                                             \
                    total = _mm_fnmadd_ps(                                                                            \
                        _mm_cvtph_ps(_mm_setr_epi16((short)b0->dmin, (short)b1->dmin, (short)b2->dmin,                \
                                                    (short)b3->dmin, 0, 0, 0, 0)),                                    \
                        min_sums(min_products(t##_min_bytes(w0), xb->sum), min_products(t##_min_bytes(w1), xb->sum),  \
                                 min_products(t##_min_bytes(w2), xb->sum), min_products(t##_min_bytes(w3), xb->sum)), \
                        total);) w0 += size,                                                                          \
                    w1 += size, w2 += size, w3 += size;                                                               \
            }                                                                                                         \
            if (o + 4 <= o1)                                                                                          \
                _mm_storeu_ps(y + (o - o0), total);                                                                   \
            else {                                                                                                    \
                float last[4];                                                                                        \
                _mm_storeu_ps(last, total);                                                                           \
                memcpy(y + (o - o0), last, (o1 - o) * sizeof *y);                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }
QUANTS_INT(DEFINE_INT_DOTS)
