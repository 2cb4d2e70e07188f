/* tuned-dot.h - the tuned dot products in f32: expanding weights, one token, the tile, matmul. Part of tuned.h. */

/* --- expanding weights -------------------------------------------------------------------------------------- */

/*
 * Each type has, in its own file, prep(block, s), which converts a block's scales (and mins) to T_SCALES floats; and
 * chunk(block, s, j, dst, x, acc), which expands the j-th of T_CHUNKS chunks of weights and either stores them to dst
 * or multiplies them by x into *acc, always in ascending k. For a type of one weight per block, prep and chunk take
 * LANES weights at a time.
 */
#define EMIT(k, w)                                      \
    do {                                                \
        if (acc)                                        \
            *acc = v16_fma(w, v16_load(x + (k)), *acc); \
        else                                            \
            v16_store(dst + (k), w);                    \
    } while (0)

/* Makes the compiler store an array and reload it instead of extracting elements from a register: a widening or
 * broadcasting load needs no shuffle, and these loops are bound by the shuffle port. */
#define IN_MEMORY(array) __asm__("" : "+m"(array))

/* prep and chunk of a type that has no tuned kernels: they call its specification, block by block. */
#define DECODED(t, T)                                                                                  \
    enum { T##_CHUNKS = 1, T##_SCALES = 1 };                                                           \
    VFN void t##_prep(const void *block, float *s)                                                     \
    {                                                                                                  \
        (void)block, (void)s;                                                                          \
    }                                                                                                  \
    VFN void t##_chunk(const void *block, const float *s, int j, float *dst, const float *x, v16 *acc) \
    {                                                                                                  \
        float w[T##_LEN];                                                                              \
        (void)s, (void)j;                                                                              \
        t##_decode(block, w, T##_LEN);                                                                 \
        for (int k = 0; k < (int)T##_LEN; k += LANES)                                                  \
            EMIT(k, v16_load(w + k));                                                                  \
    }

#define QUANT_HEADERS
#include "kernels/quant/list.h"

/* --- one token: the dot products of some rows --------------------------------------------------------------- */

/* The lanes' tree sum, of one vector, and of four at once, transposed so that four cost little more than one. */
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
 * For each type: T_dots (rows o0..o1 times x) and T_panel (expands n_row rows from w, klen columns from k0 on, to panel
 * [n_row][KB]). `len` weights make a block of `size` bytes, `chunks` chunks and `scales` scales. T_dots takes four rows
 * at a time, which are contiguous in memory, and prefetches the next four.
 */
enum { PREFETCH = 1024 };
#define DEFINE_TYPE(T, len, size, chunks, scales)                                                                      \
    TARGET static void TUNED(T##_dots)(const char *w, size_t row_bytes, uint32_t n_in, const float *x, size_t xstride, \
                                       uint32_t o0, uint32_t o1, float *y)                                             \
    {                                                                                                                  \
        uint32_t o = o0;                                                                                               \
        size_t ahead = 4 * row_bytes + PREFETCH;                                                                       \
        float s[4][scales];                                                                                            \
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
        float s[scales];                                                                                               \
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

#define X(t, T, number)                                                        \
    enum { T##_STEP = (int)T##_LEN < (int)LANES ? (int)LANES : (int)T##_LEN }; \
    DEFINE_TYPE(t, T##_STEP, (size_t)T##_STEP / T##_LEN * T##_BYTES, T##_CHUNKS, (T##_SCALES < 16 ? 16 : T##_SCALES))
QUANTS(X)
#undef X

static const struct type_kernels {
    void (*dots)(const char *w, size_t row_bytes, uint32_t n_in, const float *x, size_t xstride, uint32_t o0,
                 uint32_t o1, float *y);
    void (*panel)(const char *w, size_t row_bytes, uint32_t k0, uint32_t klen, uint32_t n_row, float *panel);
} type_kernels[DT_COUNT] = {
#define X(t, T, number) [DT_##T] = {TUNED(t##_dots), TUNED(t##_panel)},
    QUANTS(X)
#undef X
};

/* --- the tile: 4 rows x up to 3 vectors --------------------------------------------------------------------- */

/*
 * out[4 * t + r] = row r . vector t over klen columns, a multiple of LANES, as one block. The three bodies differ only
 * in the number of vectors. Twelve sums, three vectors and a row take the sixteen registers of AVX2, which therefore
 * goes over the columns once for the lower lanes and once more for the upper lanes.
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

#include "kernels/cpu/tuned-int.h"

#include "kernels/cpu/tuned-tile.h"

/* --- matmul ------------------------------------------------------------------------------------------------- */

/* Up to this many tokens, expanding the weights for each costs less than writing them to a panel. */
enum { DOTS_TOKENS = 2 };

/* Expands columns [k0, k0 + KB) of n_row weight rows from `row` on to f32, padded with zeros to whole lanes. */
TARGET static void TUNED(panel)(const struct weight_part *w, uint32_t n_in, uint32_t row, uint32_t n_row, uint32_t k0,
                                float *panel)
{
    const struct dtype_info *t = dtype_get(w->type);
    size_t row_bytes = (size_t)n_in / t->block_len * t->block_bytes;
    uint32_t klen = n_in - k0 < KB ? n_in - k0 : KB, tail = klen % LANES;
    const char *rows = (const char *)w->data + row * row_bytes;
    type_kernels[w->type].panel(rows, row_bytes, k0, klen, n_row, panel);
    for (uint32_t r = 0; tail && r < n_row; r++) { /* only types of one weight per block have a tail */
        float *to = panel + (size_t)r * KB + klen - tail;
        memset(to, 0, LANES * sizeof *to);
        t->to_f32(rows + r * row_bytes + (size_t)(k0 + klen - tail) * t->block_bytes, to, tail);
    }
}

/* to[i] += v[i], for i below the lesser of n and 4 */
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
    if (x->kb && int_kernels[w->type].dots) {
        TUNED(matmul_ints)(w, n_in, x, o0, o1, y, ldy, scratch);
        return;
    }
    if (x->n_row <= DOTS_TOKENS && n_in % LANES == 0) {
        const struct dtype_info *t = dtype_get(w->type);
        size_t row_bytes = (size_t)n_in / t->block_len * t->block_bytes;
        uint32_t some = x->n_row == 1 ? o1 - o0 : MATMUL_ROWS; /* rows that stay in L1 for the next token */
        for (uint32_t o = o0; o < o1; o += some)
            for (uint32_t r = 0; r < x->n_row; r++)
                type_kernels[w->type].dots(w->data, row_bytes, n_in, panel_row(x, r), panel_stride(x), o,
                                           o1 - o < some ? o1 : o + some, y + r * ldy + (o - o0));
        return;
    }
    /* Goes over the columns block by block, so that the tokens' block stays in L2 while all weight rows are
     * streamed. */
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
                    for (uint32_t g = 0; g < n_out; g += 4) { /* rows past n_out are not stored */
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
