/* dtype.c - element types against blocks worked out by hand, f16 and bf16 exhaustively, exp, log and the noise. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
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
    assert_null(dtype_get(3)); /* Q4_1: a row between ours */
    assert_string_equal(dtype_get(DT_Q6_K)->name, "Q6_K");
    assert_int_equal(dtype_bytes(DT_Q4_K, 512), 288);
    assert_int_equal(dtype_bytes(DT_Q4_K, 511), 0);
    assert_int_equal(dtype_bytes(DT_F32, 3), 12);
    assert_int_equal(dtype_bytes(DT_F32, UINT64_MAX / 2), 0); /* overflows */
    assert_int_equal(dtype_bytes(7, 32), 0);
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
        /* Halfway to the next goes to the even one; a hair beside it to the nearer. */
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
    for (int k = 0; k < 32; k++) { /* weight k has q = 7 k + 3 mod 32: every number once */
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

/* Scales 1..4 and 40, 50, 60, 63 take both packings of the twelve bytes; minimums 63 - scale. */
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

/* Error in units of the last place of the f32 nearest to the exact value. */
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
    /* Against -log(-log u) in double, over all magnitudes of n and of 2^32 - n. */
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
    if (worst > 4e-6) /* two ulp at its greatest value, 22.9 */
        fail_msg("the noise is off by %g", worst);
    /* Mean and variance of a million draws: Euler's constant and pi^2 / 6, five standard errors wide. */
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
    /* Seed, index and id all matter. */
    assert_true(philox_token_gumbel(1, 0, 0) != philox_token_gumbel(2, 0, 0));
    assert_true(philox_token_gumbel(1ull << 32, 0, 0) != philox_token_gumbel(0, 0, 0));
    assert_true(philox_token_gumbel(1, 1, 0) != philox_token_gumbel(1, 0, 0));
    assert_true(philox_token_gumbel(1, 0, 1) != philox_token_gumbel(1, 0, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table), cmocka_unit_test(test_f16),    cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_q4_0),  cmocka_unit_test(test_q5_0),   cmocka_unit_test(test_q8_0),
        cmocka_unit_test(test_q4_k),  cmocka_unit_test(test_q5_k),   cmocka_unit_test(test_q6_k),
        cmocka_unit_test(test_fmath), cmocka_unit_test(test_philox), cmocka_unit_test(test_gumbel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
