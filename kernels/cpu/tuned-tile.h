/*
 * tuned-tile.h - products in integers (kblock.h) for many rows of activations. Part of tuned.h.
 *
 * A super-block of TILE_ROWS weight rows is unpacked once, to signed bytes, four columns of a row side by side. A lane
 * is then a weight row, so that no sums across lanes are needed. The activations' digits are unsigned here, because the
 * multiply takes unsigned by signed bytes and the weights are signed: the bias times the sum of a row's weights is
 * subtracted at the end.
 */

enum {
    TILE_ROWS = 2 * VR,
    TILE_RUNS = KBLOCK_LEN / 4 / 2, /* upper bound: the shortest run is two groups of four columns */
};

/* One super-block of TILE_ROWS rows. Columns come in groups of four; a run of TILE_RUN groups, which share a scale, is
 * summed before it is multiplied by the scale: all groups of a scale (T_SHARED) or, where sums of two products are kept
 * in 16 bits, as many as cannot overflow (T_GROUPS). */
struct tile_weights {
    _Alignas(64) int8_t q[KBLOCK_LEN / 4][TILE_ROWS][4];
    int32_t scale[TILE_RUNS][TILE_ROWS];
    int32_t bias[TILE_ROWS];
    float d[TILE_ROWS], dmin[TILE_ROWS], m[8][TILE_ROWS];
};
static_assert(sizeof(struct tile_weights) <= TILE_SCRATCH * sizeof(float), "cpu.h");

/* Transposes 32 bytes of each of eight rows: the i-th four bytes of every row go to q[i], for i < 8. */
VFN void tile_transpose(const int8_t (*rows)[KBLOCK_LEN], int8_t (*q)[TILE_ROWS][4])
{
    __m256i a[8], b[8];
    for (int i = 0; i < 8; i++)
        a[i] = _mm256_loadu_si256((const void *)rows[i]);
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            a[i + 2 * k] = _mm256_unpacklo_epi64(b[i + k], b[i + k + 2]);
            a[i + 2 * k + 1] = _mm256_unpackhi_epi64(b[i + k], b[i + k + 2]);
        }
    for (int k = 0; k < 4; k++) {
        _mm256_storeu_si256((void *)q[k], _mm256_permute2x128_si256(a[k], a[k + 4], 0x20));
        _mm256_storeu_si256((void *)q[k + 4], _mm256_permute2x128_si256(a[k], a[k + 4], 0x31));
    }
}

/* Unpacks the super-blocks of n rows; rows from n on repeat row 0, and their results are discarded. */
#define DEFINE_TILE_WEIGHTS(t, T)                                                                                    \
    TARGET static void TUNED(t##_tile_weights)(const char *w, size_t row_bytes, uint32_t n, struct tile_weights *to) \
    {                                                                                                                \
        const int run = TILE_RUN(T), per_run = 4 * run;                                                              \
        int8_t rows[8][KBLOCK_LEN];                                                                                  \
        for (uint32_t r = 0; r < TILE_ROWS; r++) {                                                                   \
            const char *at = w + (r < n ? r : 0) * row_bytes;                                                        \
            const struct block_##t *b = (const void *)at;                                                            \
            __m128i bytes = t##_scale_bytes(b);                                                                      \
            vb_scales scales = vb_scales_of(bytes);                                                                  \
            vb sum = vb_zero();                                                                                      \
            int8_t sc[16];                                                                                           \
            _mm_storeu_si128((void *)sc, bytes);                                                                     \
            for (int i = 0; i < KBLOCK_LEN / VB; i++) {                                                              \
                vb q = vb_sub8(t##_vector(b, i), T##_OFFSET);                                                        \
                vb_store(rows[r % 8] + VB * i, q);                                                                   \
                sum = vb_add_scaled(sum, vb_pairs(vb_set8(1), q), vb_scale(scales, i));                              \
            }                                                                                                        \
            to->bias[r] = DIGIT_BIAS * sum_of_8(vb_half(sum));                                                       \
            for (int i = 0; i < KBLOCK_LEN / per_run; i++)                                                           \
                to->scale[i][r] = tile_scale(sc[i * per_run / 16]);                                                  \
            to->d[r] = _cvtsh_ss(b->d);                                                                              \
            T##_MINS(uint8_t m[16]; to->dmin[r] = _cvtsh_ss(b->dmin); _mm_storeu_si128((void *)m, t##_min_bytes(b)); \
                     for (int j = 0; j < 8; j++) to->m[j][r] =                                                       \
                         (float)m[j];) for (int i = 0; r % 8 == 7 && i < KBLOCK_LEN / 32; i++)                       \
                tile_transpose((const void *)(rows[0] + 32 * i), (void *)(to->q[8 * i][r - 7]));                     \
        }                                                                                                            \
    }
QUANTS_INT(DEFINE_TILE_WEIGHTS)

/* The sums of one row of activations: by digit (h, m, l), for the two vectors of weight rows (0, 1). */
struct tile_sums {
    vb h0, h1, m0, m1, l0, l1;
};

VFN struct tile_sums tile_zero(void)
{
    return (struct tile_sums){vb_zero(), vb_zero(), vb_zero(), vb_zero(), vb_zero(), vb_zero()};
}

/* Adds the products of four columns, at `at` in the digits. */
VFN void tile_mac(struct tile_sums *s, const int8_t *at, vb w0, vb w1)
{
    tile_mac2(&s->h0, &s->h1, at, w0, w1);
    tile_mac2(&s->m0, &s->m1, at + KBLOCK_LEN, w0, w1);
    tile_mac2(&s->l0, &s->l1, at + 2 * KBLOCK_LEN, w0, w1);
}

VFN struct tile_sums tile_scaled(struct tile_sums to, struct tile_sums s, vb w0, vb w1)
{
    return (struct tile_sums){tile_add_scaled(to.h0, s.h0, w0), tile_add_scaled(to.h1, s.h1, w1),
                              tile_add_scaled(to.m0, s.m0, w0), tile_add_scaled(to.m1, s.m1, w1),
                              tile_add_scaled(to.l0, s.l0, w0), tile_add_scaled(to.l1, s.l1, w1)};
}

/* y plus the products of VR weight rows from row r on, from their sums by digit. */
VFN vr tile_result(const struct tile_weights *w, int r, const struct kblock *x, vb h, vb m, vb l, bool mins, vr y)
{
    vb bias = vb_load(w->bias + r);
    vr f = vr_of_digits(vr_sub(h, bias), vr_sub(m, bias), vr_sub(l, bias)), e[4];
    y = vr_fma(f, vr_mul(vr_load(w->d + r), vr_set1(x->scale)), y);
    if (!mins)
        return y;
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        e[i] = vr_mul(vr_load(w->m[i] + r), vr_set1(x->sum[i]));
        e[i] = vr_fma(vr_load(w->m[i + 4] + r), vr_set1(x->sum[i + 4]), e[i]);
    }
    return vr_fnma(vr_load(w->dmin + r), vr_add(vr_add(e[0], e[2]), vr_add(e[1], e[3])), y);
}

/* to[0..TILE_ROWS) += the products of one row of activations. */
VFN void tile_store(const struct tile_weights *w, const struct kblock *x, struct tile_sums s, bool mins, float *to)
{
    vr_store(to, tile_result(w, 0, x, s.h0, s.m0, s.l0, mins, vr_load(to)));
    vr_store(to + VR, tile_result(w, VR, x, s.h1, s.m1, s.l1, mins, vr_load(to + VR)));
}

/* Multiplies TILE_TOKENS rows of activations, as many as there are registers for; adds row t's products to to[t]. */
VFN void tile_ints(const struct tile_weights *w, int run, bool mins, const struct kblock *const x[TILE_TOKENS],
                   float *const to[TILE_TOKENS])
{
    struct tile_sums all[TILE_TOKENS];
    _Pragma("GCC unroll 4") for (int t = 0; t < TILE_TOKENS; t++) all[t] = tile_zero();
    const int8_t *q = w->q[0][0], *x0 = x[0]->digit[0], *x1 = x[1]->digit[0];
    const int8_t *x2 = x[TILE_TOKENS - 2]->digit[0], *x3 = x[TILE_TOKENS - 1]->digit[0];
    size_t at = 0;
    for (int i = 0; i < KBLOCK_LEN / 4 / run; i++) {
        struct tile_sums a = tile_zero(), b = a, c = a, d = a;
        _Pragma("GCC unroll 1") for (int g = 0; g < run; g++, at += 4)
        {
            vb w0 = vb_load(q + at * TILE_ROWS), w1 = vb_load(q + at * TILE_ROWS + VB);
            tile_mac(&a, x0 + at, w0, w1);
            tile_mac(&b, x1 + at, w0, w1);
            if (TILE_TOKENS > 2) {
                tile_mac(&c, x2 + at, w0, w1);
                tile_mac(&d, x3 + at, w0, w1);
            }
        }
        vb s0 = vb_load(w->scale[i]), s1 = vb_load(w->scale[i] + VR);
        all[0] = tile_scaled(all[0], a, s0, s1);
        all[1] = tile_scaled(all[1], b, s0, s1);
        if (TILE_TOKENS > 2) {
            all[TILE_TOKENS - 2] = tile_scaled(all[TILE_TOKENS - 2], c, s0, s1);
            all[TILE_TOKENS - 1] = tile_scaled(all[TILE_TOKENS - 1], d, s0, s1);
        }
    }
    for (int t = 0; t < TILE_TOKENS; t++)
        tile_store(w, x[t], all[t], mins, to[t]);
}

#define DEFINE_TILE(t, T)                                                                                       \
    TARGET static void TUNED(t##_tile)(const struct tile_weights *w, const struct kblock *const x[TILE_TOKENS], \
                                       float *const to[TILE_TOKENS])                                            \
    {                                                                                                           \
        bool mins = false;                                                                                      \
        T##_MINS(mins = true;) tile_ints(w, TILE_RUN(T), mins, x, to);                                          \
    }
QUANTS_INT(DEFINE_TILE)

static const struct int_kernels {
    void (*dots)(const char *w, size_t row_bytes, uint32_t n_block, const struct kblock *x, size_t xstride, uint32_t o0,
                 uint32_t o1, float *y);
    void (*weights)(const char *w, size_t row_bytes, uint32_t n, struct tile_weights *to);
    void (*tile)(const struct tile_weights *w, const struct kblock *const x[TILE_TOKENS], float *const to[TILE_TOKENS]);
} int_kernels[DT_COUNT] = {
#define X(t, T) [DT_##T] = {TUNED(t##_int_dots), TUNED(t##_tile_weights), TUNED(t##_tile)},
    QUANTS_INT(X)
#undef X
};

/* n unpacked weight rows of one super-block column times n_row rows of k-blocks. Where the tile has more rows than that
 * on either side, the results go through a spare buffer. */
TARGET static void TUNED(tile_rows)(const struct int_kernels *k, const struct tile_weights *w, const struct kblock *x,
                                    uint32_t n_row, uint32_t n, float *y, size_t ldy)
{
    float spare[TILE_TOKENS][TILE_ROWS];
    for (uint32_t r = 0; r < n_row; r += TILE_TOKENS) {
        const struct kblock *xs[TILE_TOKENS];
        float *to[TILE_TOKENS];
        for (uint32_t t = 0; t < TILE_TOKENS; t++) {
            bool is = r + t < n_row, whole = is && n == TILE_ROWS;
            xs[t] = x + (is ? r + t : r);
            to[t] = whole ? y + (r + t) * ldy : spare[t];
            if (!whole)
                memset(spare[t], 0, sizeof spare[t]);
            if (is && !whole)
                memcpy(spare[t], y + (r + t) * ldy, n * sizeof *y);
        }
        k->tile(w, xs, to);
        for (uint32_t t = 0; t < TILE_TOKENS && r + t < n_row; t++)
            if (to[t] == spare[t])
                memcpy(y + (r + t) * ldy, spare[t], n * sizeof *y);
    }
}

/* Prefetches a super-block of each of up to TILE_ROWS of n rows: the hardware prefetcher misses such long strides. */
TARGET static void TUNED(tile_fetch)(const char *w, size_t row_bytes, uint32_t n, size_t size)
{
    for (uint32_t r = 0; r < TILE_ROWS && r < n; r++)
        for (size_t p = 0; p < size + 63; p += 64)
            _mm_prefetch(w + r * row_bytes + p, _MM_HINT_T1);
}

/* Goes over the columns super-block by super-block, so that the k-blocks stay in L2 while all weight rows stream by. */
TARGET static void TUNED(matmul_ints)(const struct weight_part *w, uint32_t n_in, const struct panel *x, uint32_t o0,
                                      uint32_t o1, float *y, size_t ldy, float *scratch)
{
    const struct int_kernels *k = &int_kernels[w->type];
    size_t size = dtype_get(w->type)->block_bytes, row_bytes = n_in / KBLOCK_LEN * size;
    uint32_t n_block = n_in / KBLOCK_LEN;
    if (!panel_many(x)) {
        uint32_t some = x->n_row == 1 ? o1 - o0 : MATMUL_ROWS;
        for (uint32_t o = o0; o < o1; o += some)
            for (uint32_t r = 0; r < x->n_row; r++)
                k->dots(w->data, row_bytes, n_block, x->kb + r, x->n_row, o, o1 - o < some ? o1 : o + some,
                        y + r * ldy + (o - o0));
        return;
    }
    struct tile_weights *to = (struct tile_weights *)(void *)scratch;
    for (uint32_t r = 0; r < x->n_row; r++)
        memset(y + r * ldy, 0, (o1 - o0) * sizeof *y);
    for (uint32_t r0 = 0; r0 < x->n_row; r0 += MATMUL_TOKENS) {
        uint32_t n_row = x->n_row - r0 < MATMUL_TOKENS ? x->n_row - r0 : MATMUL_TOKENS;
        for (uint32_t b = 0; b < n_block; b++)
            for (uint32_t o = o0; o < o1; o += TILE_ROWS) {
                uint32_t n = o1 - o < TILE_ROWS ? o1 - o : TILE_ROWS, left = o1 - o - n;
                const char *at = (const char *)w->data + o * row_bytes + b * size;
                const char *next = left ? at + n * row_bytes : (const char *)w->data + o0 * row_bytes + (b + 1) * size;
                k->weights(at, row_bytes, n, to);
                TUNED(tile_fetch)(next, row_bytes, left ? left : o1 - o0, size);
                TUNED(tile_rows)(k, to, x->kb + (size_t)b * x->n_row + r0, n_row, n, y + r0 * ldy + (o - o0), ldy);
            }
    }
}
