/* dtype.c - element types against blocks that were computed by hand; f16 and bf16 exhaustively; exp, log and the
 * noise. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/dtype.h"
#include "kernels/philox.h"

#define QUANT_HEADERS
#include "kernels/quant/list.h"

static void test_table(void **state)
{
    (void)state;
    assert_null(dtype_get(-1));
    assert_null(dtype_get(DT_COUNT));
    assert_null(dtype_get(4)); /* Q4_2, which is obsolete: a gap in the table */
    assert_string_equal(dtype_get(DT_Q6_K)->name, "Q6_K");
    assert_int_equal(dtype_bytes(DT_Q4_K, 512), 288);
    assert_int_equal(dtype_bytes(DT_Q4_K, 511), 0);
    assert_int_equal(dtype_bytes(DT_F32, 3), 12);
    assert_int_equal(dtype_bytes(DT_F32, UINT64_MAX / 2), 0); /* overflows */
    assert_int_equal(dtype_bytes(9, 32), 0);
    assert_string_equal(dtype_name(DT_IQ4_XS), "IQ4_XS");
    assert_string_equal(dtype_name(19), "IQ1_S"); /* a known name, of a type that cannot run */
    assert_string_equal(dtype_name(35), "TQ2_0");
    assert_null(dtype_name(4));
    assert_null(dtype_name(-1));
    assert_null(dtype_name(43));
}

/* From the definition of the format: sign, exponent, significand. */
static double f16_value(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h >> 15 ? -v : v;
}

static void test_f16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float f = f16_to_f32((uint16_t)h);
        assert_true((double)f == f16_value((uint16_t)h));
        assert_int_equal(f16_of_f32(f), h);
        assert_int_equal(f16_of_f32(-f), h | 0x8000);
        if (h + 1 == 0x7c00)
            break;
        /* The exact middle rounds to even, and its neighbours to the nearer number. */
        float mid = (float)((f16_value((uint16_t)h) + f16_value((uint16_t)(h + 1))) / 2);
        assert_int_equal(f16_of_f32(mid), h + (h & 1));
        assert_int_equal(f16_of_f32(nextafterf(mid, INFINITY)), h + 1);
        assert_int_equal(f16_of_f32(nextafterf(mid, 0.0f)), h);
    }
    assert_int_equal(f16_of_f32(65519.0f), 0x7bff);
    assert_int_equal(f16_of_f32(65520.0f), 0x7c00);
    assert_int_equal(f16_of_f32(-INFINITY), 0xfc00);
    assert_true(isinf(f16_to_f32(0x7c00)));
    assert_true(isnan(f16_to_f32(f16_of_f32(NAN))));
}

static void test_bf16(void **state)
{
    (void)state;
    assert_true(bf16_to_f32(0x3f80) == 1.0f);
    assert_true(bf16_to_f32(0xc040) == -3.0f);
    assert_int_equal(bf16_of_f32(1.0f), 0x3f80);
    assert_int_equal(bf16_of_f32(1.00390625f), 0x3f80); /* halfway: to even */
    assert_int_equal(bf16_of_f32(1.01171875f), 0x3f82);
    assert_int_equal(bf16_of_f32(3.4e38f), 0x7f80);
    assert_true(isnan(bf16_to_f32(bf16_of_f32(NAN))));
}

static void test_q4_0(void **state)
{
    (void)state;
    struct block_q4_0 b = {.d = 0x3800 /* 0.5 */};
    float w[32];
    for (int i = 0; i < 16; i++)
        b.qs[i] = (uint8_t)(i | (15 - i) << 4);
    dtype_get(DT_Q4_0)->to_f32(&b, w, 32);
    for (int i = 0; i < 16; i++) {
        assert_true(w[i] == 0.5f * (float)(i - 8));
        assert_true(w[16 + i] == 0.5f * (float)(7 - i));
    }
}

static void test_q5_0(void **state)
{
    (void)state;
    struct block_q5_0 b = {.d = 0xb800 /* -0.5 */};
    float w[32];
    for (int k = 0; k < 32; k++) { /* weight k has q = 7 k + 3 mod 32: each number once */
        int q = (7 * k + 3) % 32;
        b.qs[k % 16] |= (uint8_t)((q & 15) << (k < 16 ? 0 : 4));
        b.qh[k / 8] |= (uint8_t)(q >> 4 << k % 8);
    }
    dtype_get(DT_Q5_0)->to_f32(&b, w, 32);
    for (int k = 0; k < 32; k++)
        assert_true(w[k] == -0.5f * (float)((7 * k + 3) % 32 - 16));
}

static void test_q8_0(void **state)
{
    (void)state;
    struct block_q8_0 b[2] = {{.d = 0xbc00 /* -1 */}, {.d = 0x0001 /* 2^-24 */}};
    float w[64];
    for (int i = 0; i < 32; i++) {
        b[0].qs[i] = (int8_t)(i * 8 - 128);
        b[1].qs[i] = (int8_t)(127 - i);
    }
    dtype_get(DT_Q8_0)->to_f32(b, w, 64);
    for (int i = 0; i < 32; i++) {
        assert_true(w[i] == (float)(128 - i * 8));
        assert_true(w[32 + i] == ldexpf((float)(127 - i), -24));
    }
}

/* Scales 1..4 and 40, 50, 60, 63 exercise both packings of the twelve bytes; mins are 63 - scale. */
static const int sc[8] = {1, 2, 3, 4, 40, 50, 60, 63};
static void pack_scales(uint8_t out[12])
{
    memset(out, 0, 12);
    for (int j = 0; j < 4; j++) {
        int hi = sc[j + 4], m = 63 - sc[j], mhi = 63 - hi;
        out[j] = (uint8_t)(sc[j] | hi >> 4 << 6);
        out[j + 4] = (uint8_t)(m | mhi >> 4 << 6);
        out[j + 8] = (uint8_t)((hi & 15) | (mhi & 15) << 4);
    }
}

static void test_q4_k(void **state)
{
    (void)state;
    struct block_q4_k b = {.d = 0x4000 /* 2 */, .dmin = 0x3400 /* 0.25 */};
    float w[256];
    pack_scales(b.scales);
    for (int i = 0; i < 128; i++) /* weight k has q = (5 k + k / 32) mod 16 */
        b.qs[i] = (uint8_t)((5 * i + i / 32 * 2) % 16 | (5 * i + i / 32 * 2 + 1) % 16 << 4);
    dtype_get(DT_Q4_K)->to_f32(&b, w, 256);
    for (int k = 0; k < 256; k++) {
        int j = k / 32, i = j / 2 * 32 + k % 32, q = (5 * i + j) % 16;
        assert_true(w[k] == 2.0f * (float)(sc[j] * q) - 0.25f * (float)(63 - sc[j]));
    }
}

static void test_q5_k(void **state)
{
    (void)state;
    struct block_q5_k b = {.d = 0x3c00 /* 1 */, .dmin = 0xbc00 /* -1 */};
    float w[256];
    pack_scales(b.scales);
    for (int k = 0; k < 256; k++) {
        int q = (7 * k + k / 32) % 32, j = k / 32, l = k % 32;
        b.qs[j / 2 * 32 + l] |= (uint8_t)((q & 15) << 4 * (j & 1));
        b.qh[l] |= (uint8_t)(q >> 4 << j);
    }
    dtype_get(DT_Q5_K)->to_f32(&b, w, 256);
    for (int k = 0; k < 256; k++)
        assert_true(w[k] == (float)(sc[k / 32] * ((7 * k + k / 32) % 32)) + (float)(63 - sc[k / 32]));
}

static void test_q6_k(void **state)
{
    (void)state;
    struct block_q6_k b = {.d = 0x3000 /* 0.125 */};
    float w[256];
    for (int i = 0; i < 16; i++)
        b.scales[i] = (int8_t)(17 * i - 128);
    for (int k = 0; k < 256; k++) {
        int q = (11 * k + k / 16) % 64, half = k / 128, quarter = k / 32 % 4, l = k % 32;
        b.ql[64 * half + 32 * (quarter & 1) + l] |= (uint8_t)((q & 15) << 4 * (quarter / 2));
        b.qh[32 * half + l] |= (uint8_t)(q >> 4 << 2 * quarter);
    }
    dtype_get(DT_Q6_K)->to_f32(&b, w, 256);
    for (int k = 0; k < 256; k++)
        assert_true(w[k] == 0.125f * (float)((17 * (k / 16) - 128) * ((11 * k + k / 16) % 64 - 32)));
}

static void test_q4_1(void **state)
{
    (void)state;
    struct block_q4_1 b = {.d = 0x3800 /* 0.5 */, .m = 0xc200 /* -3 */};
    float w[32];
    for (int i = 0; i < 16; i++)
        b.qs[i] = (uint8_t)(i | (15 - i) << 4);
    dtype_get(DT_Q4_1)->to_f32(&b, w, 32);
    for (int i = 0; i < 16; i++) {
        assert_true(w[i] == 0.5f * (float)i - 3.0f);
        assert_true(w[16 + i] == 0.5f * (float)(15 - i) - 3.0f);
    }
}

/* The 32 numbers 7 k mod 32, as nibbles and fifth bits. */
static void pack_fives(uint8_t qh[4], uint8_t qs[16])
{
    for (int k = 0; k < 32; k++) {
        int q = 7 * k % 32;
        qs[k % 16] |= (uint8_t)((q & 15) << (k < 16 ? 0 : 4));
        qh[k / 8] |= (uint8_t)(q >> 4 << k % 8);
    }
}

static void test_q5_1(void **state)
{
    (void)state;
    struct block_q5_1 b = {.d = 0x3400 /* 0.25 */, .m = 0x3c00 /* 1 */};
    float w[32];
    pack_fives(b.qh, b.qs);
    dtype_get(DT_Q5_1)->to_f32(&b, w, 32);
    for (int k = 0; k < 32; k++)
        assert_true(w[k] == 0.25f * (float)(7 * k % 32) + 1.0f);
}

static void test_q2_k(void **state)
{
    (void)state;
    struct block_q2_k b = {.d = 0x4000 /* 2 */, .dmin = 0x3800 /* 0.5 */};
    float w[256];
    for (int j = 0; j < 16; j++)
        b.scales[j] = (uint8_t)(j | (7 * j + 3) % 16 << 4);
    for (int k = 0; k < 256; k++) /* weight k has q = (3 k + k / 16) mod 4 */
        b.qs[32 * (k / 128) + k % 32] |= (uint8_t)((3 * k + k / 16) % 4 << 2 * (k / 32 % 4));
    dtype_get(DT_Q2_K)->to_f32(&b, w, 256);
    for (int k = 0; k < 256; k++) {
        int j = k / 16;
        assert_true(w[k] == 2.0f * (float)(j * ((3 * k + j) % 4)) - 0.5f * (float)((7 * j + 3) % 16));
    }
}

static void test_q3_k(void **state)
{
    (void)state;
    struct block_q3_k b = {.d = 0x3000 /* 0.125 */};
    float w[256];
    for (int j = 0; j < 16; j++) { /* the j-th scale is 11 j mod 64: four bits in one array, two in another */
        int s = 11 * j % 64;
        b.scales[j % 8] |= (uint8_t)((s & 15) << 4 * (j / 8));
        b.scales[8 + j % 4] |= (uint8_t)(s >> 4 << 2 * (j / 4));
    }
    for (int k = 0; k < 256; k++) {
        int q = (5 * k + k / 16) % 8;
        b.qs[32 * (k / 128) + k % 32] |= (uint8_t)((q & 3) << 2 * (k / 32 % 4));
        b.hmask[k % 32] |= (uint8_t)(q >> 2 << k / 32);
    }
    dtype_get(DT_Q3_K)->to_f32(&b, w, 256);
    for (int k = 0; k < 256; k++)
        assert_true(w[k] == 0.125f * (float)((11 * (k / 16) % 64 - 32) * ((5 * k + k / 16) % 8 - 4)));
}

static const int nonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const float e2m1[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
static float e2m1_of(int q)
{
    return q < 8 ? e2m1[q] : -e2m1[q - 8];
}

static void test_iq4_nl(void **state)
{
    (void)state;
    struct block_iq4_nl b = {.d = 0xb800 /* -0.5 */};
    float w[32];
    for (int i = 0; i < 16; i++)
        b.qs[i] = (uint8_t)(i | (15 - i) << 4);
    dtype_get(DT_IQ4_NL)->to_f32(&b, w, 32);
    for (int i = 0; i < 16; i++) {
        assert_true(w[i] == -0.5f * (float)nonlinear[i]);
        assert_true(w[16 + i] == -0.5f * (float)nonlinear[15 - i]);
    }
}

static void test_iq4_xs(void **state)
{
    (void)state;
    static const int ls[8] = {0, 1, 31, 32, 33, 47, 62, 63};
    struct block_iq4_xs b = {.d = 0x3c00 /* 1 */};
    float w[256];
    for (int j = 0; j < 8; j++) {
        b.scales_l[j / 2] |= (uint8_t)((ls[j] & 15) << 4 * (j % 2));
        b.scales_h |= (uint16_t)(ls[j] >> 4 << 2 * j);
    }
    for (int i = 0; i < 128;
         i++) /* weight 32 j + i has q = i + j, and weight 32 j + i + 16 has 7 (i + j), both mod 16 */
        b.qs[i] = (uint8_t)((i % 16 + i / 16) % 16 | 7 * (i % 16 + i / 16) % 16 << 4);
    dtype_get(DT_IQ4_XS)->to_f32(&b, w, 256);
    for (int k = 0; k < 256; k++) {
        int j = k / 32, q = (k % 16 + j) * (k % 32 < 16 ? 1 : 7) % 16;
        assert_true(w[k] == (float)((ls[j] - 32) * nonlinear[q]));
    }
}

static void test_mxfp4(void **state)
{
    (void)state;
    static const uint8_t e[] = {0, 1, 2, 127, 130, 252}; /* 2^(e - 127) times E2M1; small values are subnormal */
    for (size_t n = 0; n < sizeof e; n++) {
        struct block_mxfp4 b = {.e = e[n]};
        float w[32];
        for (int i = 0; i < 16; i++)
            b.qs[i] = (uint8_t)(i | (15 - i) << 4);
        dtype_get(DT_MXFP4)->to_f32(&b, w, 32);
        for (int i = 0; i < 16; i++) {
            assert_true(w[i] == ldexpf(e2m1_of(i), e[n] - 127));
            assert_true(w[16 + i] == ldexpf(e2m1_of(15 - i), e[n] - 127));
        }
    }
}

static void test_nvfp4(void **state)
{
    (void)state;
    static const struct {
        uint8_t byte;
        float value; /* E4M3 without its sign */
    } d[] = {{0x00, 0},     {0x01, 0x1p-9f}, {0x07, 7 * 0x1p-9f}, {0x08, 0x1p-6f}, {0x38, 1},   {0x39, 1.125f},
             {0x47, 3.75f}, {0x7e, 448},     {0x7f, 0},           {0xb8, 1},       {0x78, 256}, {0x30, 0.5f}};
    for (size_t n = 0; n < sizeof d / sizeof *d; n += 4) {
        struct block_nvfp4 b = {.d = {d[n].byte, d[n + 1].byte, d[n + 2].byte, d[n + 3].byte}};
        float w[64];
        for (int i = 0; i < 32; i++)
            b.qs[i] = (uint8_t)(i % 16 | (i / 8 + 5 * i) % 16 << 4);
        dtype_get(DT_NVFP4)->to_f32(&b, w, 64);
        for (int i = 0; i < 32; i++) {
            int j = i / 8, k = 16 * j + i % 8;
            assert_true(w[k] == d[n + (size_t)j].value * e2m1_of(i % 16));
            assert_true(w[k + 8] == d[n + (size_t)j].value * e2m1_of((i / 8 + 5 * i) % 16));
        }
    }
}

/* Four rows of each codebook, as published; the l-th group of eight (four) weights of a block has row ROW(l). */
static const struct known2 {
    int row;
    int w[8];
} xxs2[4] = {{3, {8, 43, 8, 8, 8, 8, 8, 8}},
             {77, {8, 8, 43, 25, 8, 8, 25, 8}},
             {200, {8, 8, 8, 8, 25, 8, 43, 25}},
             {255, {8, 25, 8, 8, 25, 43, 43, 43}}},
  xs2[4] = {{3, {8, 43, 8, 8, 8, 8, 8, 8}},
            {200, {8, 8, 8, 8, 25, 43, 25, 8}},
            {300, {8, 25, 25, 8, 8, 25, 8, 25}},
            {511, {43, 43, 43, 43, 43, 43, 43, 43}}},
  s2[4] = {{3, {8, 43, 8, 8, 8, 8, 8, 8}},
           {300, {8, 25, 43, 25, 8, 25, 25, 8}},
           {600, {25, 8, 25, 8, 43, 25, 8, 25}},
           {1023, {43, 43, 43, 43, 43, 43, 43, 43}}};
static const struct known3 {
    int row;
    int w[4];
} xxs3[4] = {{1, {20, 4, 4, 4}}, {77, {20, 12, 20, 12}}, {200, {4, 62, 4, 44}}, {255, {4, 28, 52, 62}}},
  s3[4] = {{1, {3, 1, 1, 1}}, {200, {15, 1, 1, 5}}, {300, {3, 5, 3, 7}}, {511, {1, 1, 15, 15}}};
#define ROW(l) (((l) + (l) / 4) % 4)

/* Seven signs of the l-th group of eight weights; the eighth sign makes their number even. */
static uint32_t signs(int l)
{
    return (uint32_t)(37 * l + 11) % 128;
}
static bool negative(int l, int i)
{
    return i < 7 ? signs(l) >> i & 1 : __builtin_popcount(signs(l)) % 2;
}

static void check_iq2(enum dtype type, const void *block, const struct known2 *known, const int *scale, float d)
{
    float w[256];
    dtype_get((int)type)->to_f32(block, w, 256);
    for (int k = 0; k < 256; k++) {
        float v = d * (float)(2 * scale[k / 16] + 1) / 8.0f * (float)known[ROW(k / 8)].w[k % 8];
        assert_true(w[k] == (negative(k / 8, k % 8) ? -v : v));
    }
}

static void test_iq2(void **state)
{
    (void)state;
    int scale[16], widened[16]; /* per 16 and per 32 weights */
    for (int j = 0; j < 16; j++)
        scale[j] = (5 * j + 2) % 16, widened[j] = scale[j / 2];
    struct block_iq2_xxs xxs = {.d = 0x4000 /* 2 */};
    struct block_iq2_xs xs = {.d = 0x3800 /* 0.5 */};
    struct block_iq2_s s = {.d = 0xbc00 /* -1 */};
    for (int l = 0; l < 32; l++) {
        int row = xxs2[ROW(l)].row;
        uint32_t word = signs(l) << 7 * (l % 4) | (uint32_t)widened[l / 2] << 28;
        xxs.qs[l / 4 * 4 + l % 4 / 2] |= (uint16_t)(row << 8 * (l % 2));
        xxs.qs[l / 4 * 4 + 2] |= (uint16_t)word, xxs.qs[l / 4 * 4 + 3] |= (uint16_t)(word >> 16);
        xs.qs[l] = (uint16_t)((uint32_t)xs2[ROW(l)].row | signs(l) << 9);
        xs.scales[l / 4] |= (uint8_t)(l % 2 ? 0 : scale[l / 2] << 4 * (l / 2 % 2));
        s.qs[l] = (uint8_t)s2[ROW(l)].row;
        s.qh[l / 4] |= (uint8_t)(s2[ROW(l)].row >> 8 << 2 * (l % 4));
        s.scales[l / 4] = xs.scales[l / 4];
        for (int i = 0; i < 8; i++)
            s.signs[l] |= (uint8_t)(negative(l, i) << i);
    }
    check_iq2(DT_IQ2_XXS, &xxs, xxs2, widened, 2.0f);
    check_iq2(DT_IQ2_XS, &xs, xs2, scale, 0.5f);
    check_iq2(DT_IQ2_S, &s, s2, scale, -1.0f);
}

static void test_iq3(void **state)
{
    (void)state;
    struct block_iq3_xxs xxs = {.d = 0x4000 /* 2 */};
    struct block_iq3_s s = {.d = 0xb800 /* -0.5 */};
    float w[256];
    for (int j = 0; j < 8; j++) {
        uint32_t word = (uint32_t)(5 * j + 2) % 16 << 28;
        for (int l = 0; l < 4; l++)
            word |= signs(4 * j + l) << 7 * l;
        memcpy(xxs.ss[j], &word, 4);
        s.scales[j / 2] |= (uint8_t)((5 * j + 2) % 16 << 4 * (j % 2));
    }
    for (int l = 0; l < 64; l++) {
        xxs.qs[l] = (uint8_t)xxs3[ROW(l)].row;
        s.qs[l] = (uint8_t)s3[ROW(l)].row;
        s.qh[l / 8] |= (uint8_t)(s3[ROW(l)].row >> 8 << l % 8);
        for (int i = 4 * (l % 2); i < 4 * (l % 2) + 4; i++)
            s.signs[l / 2] |= (uint8_t)(negative(l / 2, i) << i);
    }
    dtype_get(DT_IQ3_XXS)->to_f32(&xxs, w, 256);
    for (int k = 0; k < 256; k++) {
        float v = 2.0f * (float)(2 * ((5 * (k / 32) + 2) % 16) + 1) / 4.0f * (float)xxs3[ROW(k / 4)].w[k % 4];
        assert_true(w[k] == (negative(k / 8, k % 8) ? -v : v));
    }
    dtype_get(DT_IQ3_S)->to_f32(&s, w, 256);
    for (int k = 0; k < 256; k++) {
        float v = -0.5f * (float)(2 * ((5 * (k / 32) + 2) % 16) + 1) * (float)s3[ROW(k / 4)].w[k % 4];
        assert_true(w[k] == (negative(k / 8, k % 8) ? -v : v));
    }
}

/* FNV-1a of a codebook's rows, so that any change of an entry is noticed. Rows ascend. Those of IQ2 are points of the
 * E8 lattice, which have an even sum, and those of IQ3_XXS points of D4, likewise. */
static void check_grid(const uint16_t *row, int n, int bits, bool even, uint64_t want)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++) {
        h = (h ^ (row[i] & 255)) * 0x100000001b3u;
        h = (h ^ row[i] >> 8) * 0x100000001b3u;
        assert_true(i == 0 || row[i] > row[i - 1]);
        int sum = 0;
        for (int r = row[i]; r; r >>= bits)
            sum += r & ((1 << bits) - 1);
        assert_true(!even || sum % 2 == 0);
        assert_true(bits == 3 || !(row[i] & row[i] >> 1 & 0x5555)); /* no digit is 3 */
    }
    assert_true(h == want);
}

static void test_grids(void **state)
{
    (void)state;
    check_grid(iq2_xxs_grid, 256, 2, true, 0x6fca17f5c451905du);
    check_grid(iq2_xs_grid, 512, 2, true, 0x29d6ac8e0e6b14e3u);
    check_grid(iq2_s_grid, 1024, 2, true, 0x641f9aa3fbd98694u);
    check_grid(iq3_xxs_grid, 256, 3, true, 0x79d733576d562547u);
    check_grid(iq3_s_grid, 512, 3, false, 0x55b224116d1e5ca2u);
}

/* The error in units in the last place of the f32 nearest to the exact value. */
static double ulps(float got, double want)
{
    float near = (float)want;
    return fabs((double)got - want) / ((double)nextafterf(fabsf(near), INFINITY) - (double)fabsf(near));
}

static void test_fmath(void **state)
{
    (void)state;
    double worst_exp = 0, worst_log = 0;
    for (int i = -86999; i < 88000; i += 7) {
        float x = (float)i * 1e-3f;
        double u = ulps(fm_exp(x), exp((double)x));
        worst_exp = u > worst_exp ? u : worst_exp;
    }
    for (float x = 1e-37f; x < 3e38f; x *= 1.003f) {
        double u = ulps(fm_log(x), log((double)x));
        worst_log = u > worst_log ? u : worst_log;
    }
    for (int i = -2000; i < 2000; i++) { /* near 1, where log is small */
        float x = 1.0f + (float)i * 1e-4f;
        if (x != 1.0f)
            worst_log = ulps(fm_log(x), log((double)x)) > worst_log ? ulps(fm_log(x), log((double)x)) : worst_log;
    }
    if (worst_exp > 1.5 || worst_log > 2.0)
        fail_msg("exp is %.2f ulp off, log %.2f", worst_exp, worst_log);
    assert_true(fm_exp(0.0f) == 1.0f);
    assert_true(fm_exp(-INFINITY) == 0.0f);
    assert_true(fm_exp(-88.0f) == 0.0f);
    assert_true(isfinite(fm_exp(INFINITY)));
    assert_true(fm_log(1.0f) == 0.0f);
}

/* The known answers of the Random123 distribution (kat_vectors, philox4x32 10). */
static void test_philox(void **state)
{
    (void)state;
    static const struct {
        struct philox ctr;
        uint32_t key[2];
        struct philox want;
    } kat[] = {
        {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{~0u, ~0u, ~0u, ~0u}}, {~0u, ~0u}, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {0xa4093822, 0x299f31d0},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof kat / sizeof *kat; i++) {
        struct philox got = philox4x32(kat[i].ctr, kat[i].key[0], kat[i].key[1]);
        assert_memory_equal(&got, &kat[i].want, sizeof got);
    }
}

static void test_gumbel(void **state)
{
    (void)state;
    /* Against -log(-log u) in double precision, over all magnitudes of n and of 2^32 - n. */
    double worst = 0;
    for (uint32_t n = 0; n < 0xfff00000u; n += 65521 + n / 997) {
        double want = -log(-log(((double)n + 0.5) / 4294967296.0));
        worst = fmax(worst, fabs((double)philox_gumbel(n) - want));
    }
    for (uint32_t m = 0; m < 0x40000000u; m += m / 61 + 1) {
        uint32_t n = ~m;
        double want = -log(-log1p(-((double)m + 0.5) / 4294967296.0));
        worst = fmax(worst, fabs((double)philox_gumbel(n) - want));
        assert_true(philox_gumbel(n) <= philox_gumbel_bound(n));
    }
    if (worst > 4e-6) /* two ulp at the greatest value, 22.9 */
        fail_msg("the noise is off by %g", worst);
    /* Mean and variance of a million draws are Euler's constant and pi^2 / 6, within five standard errors. */
    double sum = 0, sq = 0;
    for (uint32_t id = 0; id < 1000000; id++) {
        double g = (double)philox_token_gumbel(42, 7, id);
        sum += g;
        sq += g * g;
        assert_true(g <= (double)philox_gumbel_bound(philox_group(42, 7, id >> 2).v[id & 3]));
    }
    double mean = sum / 1e6, var = sq / 1e6 - mean * mean;
    assert_true(fabs(mean - 0.5772157) < 5 * 1.2825 / 1000);
    assert_true(fabs(var - 1.6449341) < 5 * 3.5 / 1000);
    /* The noise depends on seed, index and id. */
    assert_true(philox_token_gumbel(1, 0, 0) != philox_token_gumbel(2, 0, 0));
    assert_true(philox_token_gumbel(1ull << 32, 0, 0) != philox_token_gumbel(0, 0, 0));
    assert_true(philox_token_gumbel(1, 1, 0) != philox_token_gumbel(1, 0, 0));
    assert_true(philox_token_gumbel(1, 0, 1) != philox_token_gumbel(1, 0, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),  cmocka_unit_test(test_f16),    cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_q4_0),   cmocka_unit_test(test_q8_0),   cmocka_unit_test(test_q4_k),
        cmocka_unit_test(test_q5_k),   cmocka_unit_test(test_q6_k),   cmocka_unit_test(test_q4_1),
        cmocka_unit_test(test_q5_0),   cmocka_unit_test(test_q5_1),   cmocka_unit_test(test_q2_k),
        cmocka_unit_test(test_q3_k),   cmocka_unit_test(test_iq4_nl), cmocka_unit_test(test_iq4_xs),
        cmocka_unit_test(test_mxfp4),  cmocka_unit_test(test_nvfp4),  cmocka_unit_test(test_iq2),
        cmocka_unit_test(test_iq3),    cmocka_unit_test(test_grids),  cmocka_unit_test(test_fmath),
        cmocka_unit_test(test_philox), cmocka_unit_test(test_gumbel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
