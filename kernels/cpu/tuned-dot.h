/* tuned-dot.h - the tuned dot products: expanding weights, one token, the tile, matmul. Part of tuned.h. */

/* --- expanding weights -------------------------------------------------------------------------------------- */

/*
 * Each type has prep(block, s): a block's scales as floats; and chunk(block, s, j, dst, x, acc): its j-th chunk of
 * weights, which either go to dst or are multiplied by x into *acc; in ascending k, always.
 */
#define EMIT(k, w)                                      \
    do {                                                \
        if (acc)                                        \
            *acc = v16_fma(w, v16_load(x + (k)), *acc); \
        else                                            \
            v16_store(dst + (k), w);                    \
    } while (0)

/* A load that widens or broadcasts needs no shuffle, and shuffles are what these loops run out of: makes the compiler
 * write an array and read it back, instead of taking a register apart. */
#define IN_MEMORY(array) __asm__("" : "+m"(array))

VFN void f32_prep(const void *block, float *s)
{
    (void)block, (void)s;
}
VFN void f32_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)s, (void)j;
    EMIT(0, v16_load(block));
}

#define f16_prep f32_prep
VFN void f16_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)s, (void)j;
    EMIT(0, v16_load_f16(block));
}

#define bf16_prep f32_prep
VFN void bf16_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)s, (void)j;
    EMIT(0, v16_load_bf16(block));
}

VFN void q4_0_prep(const void *block, float *s)
{
    s[0] = _cvtsh_ss(((const struct block_q4_0 *)block)->d);
    s[1] = -8.0f * s[0];
}
VFN void q4_0_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)j;
    v16i q = v16i_load_u8(((const struct block_q4_0 *)block)->qs);
    v16 d = v16_set1(s[0]), m = v16_set1(s[1]); /* d * q - 8 * d is exact, as d * (q - 8) is */
    EMIT(0, v16_fma(v16_of_int(v16i_and(q, 15)), d, m));
    EMIT(16, v16_fma(v16_of_int(v16i_srl(q, 4)), d, m));
}

VFN void q8_0_prep(const void *block, float *s)
{
    s[0] = _cvtsh_ss(((const struct block_q8_0 *)block)->d);
}
VFN void q8_0_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    (void)j;
    const int8_t *qs = ((const struct block_q8_0 *)block)->qs;
    v16 d = v16_set1(s[0]);
    EMIT(0, v16_mul(v16_of_int(v16i_load_s8(qs)), d));
    EMIT(16, v16_mul(v16_of_int(v16i_load_s8(qs + 16)), d));
}

/* s: eight scales d * sc, then eight minimums -dmin * m. Both are exact: see quant.h. */
VFN void k_scales(uint16_t d, uint16_t dmin, const uint8_t *scales, float *s)
{
    /* The twelve bytes as three words: four fields of six bits in each, sorted out word-wise. */
    uint32_t u[3], lo = 0x3f3f3f3f, nib = 0x0f0f0f0f, top = 0x03030303;
    memcpy(u, scales, sizeof u);
    uint32_t sm[4] = {u[0] & lo, (u[2] & nib) | (u[0] >> 6 & top) << 4, u[1] & lo,
                      (u[2] >> 4 & nib) | (u[1] >> 6 & top) << 4};
    __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)sm));
    __m256i m = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(sm + 2)));
    _mm256_storeu_ps(s, _mm256_mul_ps(_mm256_cvtepi32_ps(b), _mm256_set1_ps(_cvtsh_ss(d))));
    _mm256_storeu_ps(s + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(m), _mm256_set1_ps(-_cvtsh_ss(dmin))));
}

VFN void q4_k_prep(const void *block, float *s)
{
    const struct block_q4_k *b = block;
    k_scales(b->d, b->dmin, b->scales, s);
}
VFN void q4_k_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    const uint8_t *qs = ((const struct block_q4_k *)block)->qs + 32 * j;
    v16i q0 = v16i_load_u8(qs), q1 = v16i_load_u8(qs + 16);
    v16 d = v16_set1(s[2 * j]), m = v16_set1(s[8 + 2 * j]);
    EMIT(64 * j, v16_fma(v16_of_int(v16i_and(q0, 15)), d, m));
    EMIT(64 * j + 16, v16_fma(v16_of_int(v16i_and(q1, 15)), d, m));
    d = v16_set1(s[2 * j + 1]), m = v16_set1(s[8 + 2 * j + 1]);
    EMIT(64 * j + 32, v16_fma(v16_of_int(v16i_srl(q0, 4)), d, m));
    EMIT(64 * j + 48, v16_fma(v16_of_int(v16i_srl(q1, 4)), d, m));
}

VFN void q5_k_prep(const void *block, float *s)
{
    const struct block_q5_k *b = block;
    k_scales(b->d, b->dmin, b->scales, s);
}
/* 32 weights as bytes, put together bytewise: four times fewer instructions than on dwords. */
VFN void q5_bytes(const uint8_t *qs, const uint8_t *qh, int j, uint8_t out[32])
{
    __m256i lo = _mm256_loadu_si256((const void *)qs), hi = _mm256_loadu_si256((const void *)qh);
    lo = _mm256_and_si256(j & 1 ? _mm256_srli_epi16(lo, 4) : lo, _mm256_set1_epi8(15));
    hi = _mm256_slli_epi16(_mm256_srl_epi16(hi, _mm_cvtsi32_si128(j)), 4);
    _mm256_storeu_si256((void *)out, _mm256_or_si256(lo, _mm256_and_si256(hi, _mm256_set1_epi8(16))));
}
VFN void q5_k_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    const struct block_q5_k *b = block;
    uint8_t q[32];
    _Pragma("GCC unroll 2") for (int i = 2 * j; i < 2 * j + 2; i++)
    {
        q5_bytes(b->qs + 32 * j, b->qh, i, q);
        IN_MEMORY(q);
        v16 d = v16_set1(s[i]), m = v16_set1(s[8 + i]);
        EMIT(32 * i, v16_fma(v16_of_int(v16i_load_u8(q)), d, m));
        EMIT(32 * i + 16, v16_fma(v16_of_int(v16i_load_u8(q + 16)), d, m));
    }
}

VFN void q6_k_prep(const void *block, float *s)
{
    const struct block_q6_k *b = block;
    v16_store(s, v16_mul(v16_of_int(v16i_load_s8(b->scales)), v16_set1(_cvtsh_ss(b->d))));
}
VFN void q6_bytes(const uint8_t *ql, const uint8_t *qh, int quarter, int8_t out[32])
{
    __m256i lo = _mm256_loadu_si256((const void *)(ql + 32 * (quarter & 1)));
    __m256i hi = _mm256_loadu_si256((const void *)qh);
    lo = _mm256_and_si256(quarter & 2 ? _mm256_srli_epi16(lo, 4) : lo, _mm256_set1_epi8(15));
    hi = quarter < 2 ? _mm256_slli_epi16(hi, 4 - 2 * quarter) : _mm256_srli_epi16(hi, 2 * quarter - 4);
    __m256i q = _mm256_or_si256(lo, _mm256_and_si256(hi, _mm256_set1_epi8(48)));
    _mm256_storeu_si256((void *)out, _mm256_sub_epi8(q, _mm256_set1_epi8(32)));
}
VFN void q6_k_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc)
{
    const struct block_q6_k *b = block;
    int8_t q[32];
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        q6_bytes(b->ql + 64 * j, b->qh + 32 * j, i, q);
        IN_MEMORY(q);
        EMIT(128 * j + 32 * i, v16_mul(v16_of_int(v16i_load_s8(q)), v16_set1(s[8 * j + 2 * i])));
        EMIT(128 * j + 32 * i + 16, v16_mul(v16_of_int(v16i_load_s8(q + 16)), v16_set1(s[8 * j + 2 * i + 1])));
    }
}

/* --- one token: the dot products of some rows --------------------------------------------------------------- */

/* The whole tree of one sum, and of four at once, transposed so that four cost little more than one. */
VFN float v16_sum(v16 acc)
{
    float s[LANES];
    v16_store(s, acc);
    return lanes_sum(s);
}
VFN __m128 v16_sum4(v16 v0, v16 v1, v16 v2, v16 v3)
{
    __m128 a = v16_fold(v0), b = v16_fold(v1), c = v16_fold(v2), d = v16_fold(v3);
    __m128 ab = _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
    __m128 cd = _mm_add_ps(_mm_movelh_ps(c, d), _mm_movehl_ps(d, c));
    return _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xdd));
}

/*
 * For each type: T_dots (rows o0..o1 times x) and T_panel (n_row rows from w, columns k0.. of which klen are real, to
 * panel [n_row][KB]). `len` weights make a block of `size` bytes and `chunks` chunks. Four rows lie one after the
 * other, so what they read is one stretch of memory, and the stretch of the next four is fetched meanwhile.
 */
enum { PREFETCH = 1024 };
#define DEFINE_TYPE(T, len, size, chunks)                                                                              \
    TARGET static void TUNED(T##_dots)(const char *w, size_t row_bytes, uint32_t n_in, const float *x, size_t xstride, \
                                       uint32_t o0, uint32_t o1, float *y)                                             \
    {                                                                                                                  \
        uint32_t o = o0;                                                                                               \
        size_t ahead = 4 * row_bytes + PREFETCH;                                                                       \
        float s[4][16];                                                                                                \
        for (; o + 4 <= o1; o += 4) {                                                                                  \
            const char *w0 = w + o * row_bytes, *w1 = w0 + row_bytes, *w2 = w1 + row_bytes, *w3 = w2 + row_bytes;      \
            const char *fetch = w0 + ahead;                                                                            \
            __m128 total = _mm_setzero_ps();                                                                           \
            for (uint32_t k = 0; k < n_in;) {                                                                          \
                uint32_t end = n_in - k < KB ? n_in : k + KB;                                                          \
                const float *xb = x + k / KB * xstride;                                                                \
                v16 a0 = v16_set1(0.0f), a1 = a0, a2 = a0, a3 = a0;                                                    \
                for (; k < end; k += (len), xb += (len)) {                                                             \
                    for (size_t p = 0; p < 4 * (size); p += 64)                                                        \
                        _mm_prefetch(fetch + p, _MM_HINT_T0);                                                          \
                    fetch += 4 * (size);                                                                               \
                    T##_prep(w0, s[0]);                                                                                \
                    T##_prep(w1, s[1]);                                                                                \
                    T##_prep(w2, s[2]);                                                                                \
                    T##_prep(w3, s[3]);                                                                                \
                    IN_MEMORY(s);                                                                                      \
                    _Pragma("GCC unroll 1") for (int j = 0; j < (chunks); j++)                                         \
                    {                                                                                                  \
                        T##_chunk(w0, s[0], j, NULL, xb, &a0);                                                         \
                        T##_chunk(w1, s[1], j, NULL, xb, &a1);                                                         \
                        T##_chunk(w2, s[2], j, NULL, xb, &a2);                                                         \
                        T##_chunk(w3, s[3], j, NULL, xb, &a3);                                                         \
                    }                                                                                                  \
                    w0 += (size), w1 += (size), w2 += (size), w3 += (size);                                            \
                }                                                                                                      \
                total = _mm_add_ps(total, v16_sum4(a0, a1, a2, a3));                                                   \
            }                                                                                                          \
            _mm_storeu_ps(y + (o - o0), total);                                                                        \
        }                                                                                                              \
        for (; o < o1; o++) {                                                                                          \
            const char *b = w + o * row_bytes;                                                                         \
            float total = 0.0f;                                                                                        \
            for (uint32_t k = 0; k < n_in;) {                                                                          \
                uint32_t end = n_in - k < KB ? n_in : k + KB;                                                          \
                const float *xb = x + k / KB * xstride;                                                                \
                v16 a0 = v16_set1(0.0f);                                                                               \
                for (; k < end; k += (len), b += (size), xb += (len)) {                                                \
                    T##_prep(b, s[0]);                                                                                 \
                    IN_MEMORY(s);                                                                                      \
                    _Pragma("GCC unroll 1") for (int j = 0; j < (chunks); j++) T##_chunk(b, s[0], j, NULL, xb, &a0);   \
                }                                                                                                      \
                total += v16_sum(a0);                                                                                  \
            }                                                                                                          \
            y[o - o0] = total;                                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    TARGET static void TUNED(T##_panel)(const char *w, size_t row_bytes, uint32_t k0, uint32_t klen, uint32_t n_row,   \
                                        float *panel)                                                                  \
    {                                                                                                                  \
        float s[16];                                                                                                   \
        for (uint32_t r = 0; r < n_row; r++, w += row_bytes, panel += KB) {                                            \
            const char *b = w + (size_t)k0 / (len) * (size), *fetch = b + MATMUL_ROWS * row_bytes;                     \
            for (size_t p = 0; p < klen / (len) * (size); p += 64)                                                     \
                _mm_prefetch(fetch + p, _MM_HINT_T0);                                                                  \
            for (uint32_t k = 0; k + (len) <= klen; k += (len), b += (size)) {                                         \
                T##_prep(b, s);                                                                                        \
                IN_MEMORY(s);                                                                                          \
                _Pragma("GCC unroll 1") for (int j = 0; j < (chunks); j++) T##_chunk(b, s, j, panel + k, NULL, NULL);  \
            }                                                                                                          \
        }                                                                                                              \
    }

DEFINE_TYPE(f32, LANES, LANES * 4, 1)
DEFINE_TYPE(f16, LANES, LANES * 2, 1)
DEFINE_TYPE(bf16, LANES, LANES * 2, 1)
DEFINE_TYPE(q4_0, QK_0, sizeof(struct block_q4_0), 1)
DEFINE_TYPE(q8_0, QK_0, sizeof(struct block_q8_0), 1)
DEFINE_TYPE(q4_k, QK_K, sizeof(struct block_q4_k), 4)
DEFINE_TYPE(q5_k, QK_K, sizeof(struct block_q5_k), 4)
DEFINE_TYPE(q6_k, QK_K, sizeof(struct block_q6_k), 2)

static const struct type_kernels {
    void (*dots)(const char *w, size_t row_bytes, uint32_t n_in, const float *x, size_t xstride, uint32_t o0,
                 uint32_t o1, float *y);
    void (*panel)(const char *w, size_t row_bytes, uint32_t k0, uint32_t klen, uint32_t n_row, float *panel);
} type_kernels[DT_COUNT] = {
    [DT_F32] = {TUNED(f32_dots), TUNED(f32_panel)},    [DT_F16] = {TUNED(f16_dots), TUNED(f16_panel)},
    [DT_BF16] = {TUNED(bf16_dots), TUNED(bf16_panel)}, [DT_Q4_0] = {TUNED(q4_0_dots), TUNED(q4_0_panel)},
    [DT_Q8_0] = {TUNED(q8_0_dots), TUNED(q8_0_panel)}, [DT_Q4_K] = {TUNED(q4_k_dots), TUNED(q4_k_panel)},
    [DT_Q5_K] = {TUNED(q5_k_dots), TUNED(q5_k_panel)}, [DT_Q6_K] = {TUNED(q6_k_dots), TUNED(q6_k_panel)},
};

/* --- the tile: 4 rows x up to 3 vectors --------------------------------------------------------------------- */

/*
 * out[4 * t + r] = row r . vector t over klen columns, a multiple of LANES, as one block. The three bodies differ in
 * the number of vectors alone; twelve sums, three vectors and a row are the sixteen registers of AVX2, which therefore
 * goes over the columns once for the lower lanes and once more for the upper.
 */
#define TILE_BEGIN                                                                             \
    float lower[12 * VW];                                                                      \
    for (int part = 0; part < NV; part++) {                                                    \
        const float *w0 = ws[0] + part * VW, *w1 = ws[1] + part * VW, *w2 = ws[2] + part * VW, \
                    *w3 = ws[3] + part * VW;                                                   \
        const float *x0 = x + part * VW;
#define TILE_ZERO(t) vf s##t##0 = vf_zero(), s##t##1 = vf_zero(), s##t##2 = vf_zero(), s##t##3 = vf_zero()
#define TILE_ROW(r, ...)          \
    {                             \
        vf w = vf_load(w##r + k); \
        __VA_ARGS__               \
    }
#define TILE_END(t)                                                                                               \
    {                                                                                                             \
        float *lo = lower + 4 * t * VW;                                                                           \
        if (part + 1 < NV)                                                                                        \
            vf_store(lo, s##t##0), vf_store(lo + VW, s##t##1), vf_store(lo + 2 * VW, s##t##2),                    \
                vf_store(lo + 3 * VW, s##t##3);                                                                   \
        else                                                                                                      \
            _mm_storeu_ps(out + 4 * t, v16_sum4(v16_join(lo, s##t##0), v16_join(lo + VW, s##t##1),                \
                                                v16_join(lo + 2 * VW, s##t##2), v16_join(lo + 3 * VW, s##t##3))); \
    }

TARGET static void TUNED(tile3)(const float *const ws[4], const float *x, size_t ldx, uint32_t klen, float *out)
{
    TILE_BEGIN
    const float *x1 = x0 + ldx, *x2 = x1 + ldx;
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    for (size_t k = 0; k < klen; k += LANES) {
        vf v0 = vf_load(x0 + k), v1 = vf_load(x1 + k), v2 = vf_load(x2 + k);
        TILE_ROW(0, s00 = vf_fma(w, v0, s00); s10 = vf_fma(w, v1, s10); s20 = vf_fma(w, v2, s20);)
        TILE_ROW(1, s01 = vf_fma(w, v0, s01); s11 = vf_fma(w, v1, s11); s21 = vf_fma(w, v2, s21);)
        TILE_ROW(2, s02 = vf_fma(w, v0, s02); s12 = vf_fma(w, v1, s12); s22 = vf_fma(w, v2, s22);)
        TILE_ROW(3, s03 = vf_fma(w, v0, s03); s13 = vf_fma(w, v1, s13); s23 = vf_fma(w, v2, s23);)
    }
    TILE_END(0);
    TILE_END(1);
    TILE_END(2);
}
}

TARGET static void TUNED(tile2)(const float *const ws[4], const float *x, size_t ldx, uint32_t klen, float *out)
{
    TILE_BEGIN
    const float *x1 = x0 + ldx;
    TILE_ZERO(0);
    TILE_ZERO(1);
    for (size_t k = 0; k < klen; k += LANES) {
        vf v0 = vf_load(x0 + k), v1 = vf_load(x1 + k);
        TILE_ROW(0, s00 = vf_fma(w, v0, s00); s10 = vf_fma(w, v1, s10);)
        TILE_ROW(1, s01 = vf_fma(w, v0, s01); s11 = vf_fma(w, v1, s11);)
        TILE_ROW(2, s02 = vf_fma(w, v0, s02); s12 = vf_fma(w, v1, s12);)
        TILE_ROW(3, s03 = vf_fma(w, v0, s03); s13 = vf_fma(w, v1, s13);)
    }
    TILE_END(0);
    TILE_END(1);
}
}

TARGET static void TUNED(tile1)(const float *const ws[4], const float *x, uint32_t klen, float *out)
{
    TILE_BEGIN
    TILE_ZERO(0);
    for (size_t k = 0; k < klen; k += LANES) {
        vf v0 = vf_load(x0 + k);
        TILE_ROW(0, s00 = vf_fma(w, v0, s00);)
        TILE_ROW(1, s01 = vf_fma(w, v0, s01);)
        TILE_ROW(2, s02 = vf_fma(w, v0, s02);)
        TILE_ROW(3, s03 = vf_fma(w, v0, s03);)
    }
    TILE_END(0);
}
}

VFN void tile(uint32_t n_vec, const float *const ws[4], const float *x, size_t ldx, uint32_t klen, float out[12])
{
    if (n_vec == 3)
        TUNED(tile3)(ws, x, ldx, klen, out);
    else if (n_vec == 2)
        TUNED(tile2)(ws, x, ldx, klen, out);
    else
        TUNED(tile1)(ws, x, klen, out);
}

/* --- matmul ------------------------------------------------------------------------------------------------- */

/* Up to so many tokens, expanding the weights for each costs less than writing them to a panel. */
enum { DOTS_TOKENS = 2 };

/* Columns [k0, k0 + KB) of some weight rows as f32, continued with zeros to whole lanes. */
TARGET static void TUNED(panel)(const struct weight_part *w, uint32_t n_in, uint32_t row, uint32_t n_row, uint32_t k0,
                                float *panel)
{
    const struct dtype_info *t = dtype_get(w->type);
    size_t row_bytes = (size_t)n_in / t->block_len * t->block_bytes;
    uint32_t klen = n_in - k0 < KB ? n_in - k0 : KB, tail = klen % LANES;
    const char *rows = (const char *)w->data + row * row_bytes;
    type_kernels[w->type].panel(rows, row_bytes, k0, klen, n_row, panel);
    for (uint32_t r = 0; tail && r < n_row; r++) { /* types of one weight a block only: the others have no tail */
        float *to = panel + (size_t)r * KB + klen - tail;
        memset(to, 0, LANES * sizeof *to);
        t->to_f32(rows + r * row_bytes + (size_t)(k0 + klen - tail) * t->block_bytes, to, tail);
    }
}

/* to[0..4) += v, or as many as there are */
VFN void add_some(float *to, const float *v, uint32_t n)
{
    if (n >= 4)
        _mm_storeu_ps(to, _mm_add_ps(_mm_loadu_ps(to), _mm_loadu_ps(v)));
    else
        for (uint32_t i = 0; i < n; i++)
            to[i] += v[i];
}

TARGET static void TUNED(matmul)(const struct weight_part *w, uint32_t n_in, const struct panel *x, uint32_t o0,
                                 uint32_t o1, float *y, size_t ldy, float *scratch)
{
    if (x->n_row <= DOTS_TOKENS && n_in % LANES == 0) {
        const struct dtype_info *t = dtype_get(w->type);
        size_t row_bytes = (size_t)n_in / t->block_len * t->block_bytes;
        uint32_t some = x->n_row == 1 ? o1 - o0 : MATMUL_ROWS; /* rows that L1 keeps for the next token */
        for (uint32_t o = o0; o < o1; o += some)
            for (uint32_t r = 0; r < x->n_row; r++)
                type_kernels[w->type].dots(w->data, row_bytes, n_in, panel_row(x, r), panel_stride(x), o,
                                           o1 - o < some ? o1 : o + some, y + r * ldy + (o - o0));
        return;
    }
    /* Block by block of columns, so that the tokens' part stays in L2 while all the weight rows pass by. */
    float *panel = scratch, sums[12];
    for (uint32_t r0 = 0; r0 < x->n_row; r0 += MATMUL_TOKENS) {
        uint32_t n_row = x->n_row - r0 < MATMUL_TOKENS ? x->n_row - r0 : MATMUL_TOKENS;
        float *yr = y + r0 * ldy;
        for (uint32_t r = 0; r < n_row; r++)
            memset(yr + r * ldy, 0, (o1 - o0) * sizeof *yr);
        for (uint32_t k0 = 0; k0 < n_in; k0 += KB) {
            uint32_t klen = n_in - k0 < KB ? round_up(n_in - k0, LANES) : KB;
            const float *xb = x->v + k0 / KB * panel_stride(x) + (size_t)r0 * KB;
            for (uint32_t o = o0; o < o1; o += MATMUL_ROWS) {
                uint32_t n_out = o1 - o < MATMUL_ROWS ? o1 - o : MATMUL_ROWS;
                TUNED(panel)(w, n_in, o, n_out, k0, panel);
                for (uint32_t r = 0; r < n_row; r += 3)
                    for (uint32_t g = 0; g < n_out; g += 4) { /* past n_out: an old panel's rows, not kept */
                        const float *ws[4] = {panel + g * KB, panel + (g + 1) * KB, panel + (g + 2) * KB,
                                              panel + (g + 3) * KB};
                        uint32_t n_vec = n_row - r < 3 ? n_row - r : 3;
                        tile(n_vec, ws, xb + (size_t)r * KB, KB, klen, sums);
                        for (uint32_t t = 0; t < n_vec; t++)
                            add_some(yr + (r + t) * ldy + (o - o0) + g, sums + 4 * t, n_out - g);
                    }
            }
        }
    }
}
