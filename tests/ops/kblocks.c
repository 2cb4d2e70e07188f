/*
 * kblocks.c - the CPU's integer products (kernels/cpu/kblock.h) at their limits: activations of all magnitudes, NaN and
 * infinity, and super-blocks with the greatest and least values, with which a sum that is too narrow would overflow.
 *
 * The reference variant is compared with a computation in double precision of the same weights and activations, and the
 * tuned variants bit-exactly with the reference, for few rows and many, with numbers of weight rows that fill no tile.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"

#define QUANT_HEADERS
#include "kernels/quant/list.h"

enum { BLOCKS = 3, N_IN = BLOCKS * KBLOCK_LEN, N_OUT_MAX = 70, ROWS_MAX = 9 };

static const struct cpu_kernels *const tuned[] = {
#ifdef __x86_64__
    &cpu_avx2,
    &cpu_avxvnni,
    &cpu_avx512,
#endif
    NULL,
};

static const enum dtype types[] = {
#define X(t, T) DT_##T,
    QUANTS_INT(X)
#undef X
};

static uint64_t seed = 88172645463325252u;

static uint32_t number(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)(seed >> 16);
}

/* A value of the kind of row r: of all magnitudes, one that outweighs all others, the largest everywhere, nearly
 * zero. */
static float value(uint32_t r, uint32_t k)
{
    float v = (float)((int32_t)(number() % 2001) - 1000) / 500.0f;
    switch (r % 7) {
    case 1:
        return k % KBLOCK_LEN == 17 ? 3e4f : v;
    case 2:
        return k & 1 ? 5.0f : -5.0f;
    case 3:
        return v * 1e-36f;
    case 4:
        return 0.0f;
    case 5:
        return v * 1e30f;
    case 6:
        return 7.0f;
    default:
        return ldexpf(v, (int)(number() % 20) - 10);
    }
}

struct rows {
    float *v;
    uint32_t n;
};

static struct rows rows_new(uint32_t n)
{
    struct rows x = {calloc((size_t)n * round_up(N_IN, KB), sizeof(float)), n};
    struct panel p = {x.v, n, N_IN, NULL};
    assert_non_null(x.v);
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t k = 0; k < N_IN; k++)
            panel_row(&p, r)[k / KB * panel_stride(&p) + k % KB] = value(r, k);
    return x;
}

static struct panel kblocks_of(const struct cpu_kernels *k, const struct rows *x)
{
    struct panel p = {x->v, x->n, N_IN, aligned_alloc(64, (size_t)BLOCKS * x->n * sizeof(struct kblock))};
    assert_non_null(p.kb);
    for (uint32_t b = 0; b < BLOCKS; b++)
        for (uint32_t r = 0; r < x->n; r++) {
            uint32_t at = b * KBLOCK_LEN;
            k->kblock(panel_row(&p, r) + at / KB * panel_stride(&p) + at % KB, &p.kb[b * x->n + r], panel_many(&p));
        }
    return p;
}

/* Weights whose bytes are all the same, or random; with finite scales of the super-block. */
static char *weights_new(enum dtype type, uint32_t n_out, int byte)
{
    const struct dtype_info *t = dtype_get(type);
    size_t n = (size_t)n_out * BLOCKS, size = t->block_bytes;
    char *w = malloc(n * size);
    assert_non_null(w);
    for (size_t i = 0; i < n; i++) {
        uint16_t d = f16_of_f32(0.01f * (float)(1 + number() % 100)), dmin = f16_of_f32(-0.5f);
        for (size_t k = 0; k < size; k++)
            w[i * size + k] = (char)(byte < 0 ? (int)(number() & 255) : byte);
        if (type == DT_Q6_K)
            memcpy(w + i * size + offsetof(struct block_q6_k, d), &d, 2);
        else /* Q4_K and Q5_K begin with both */
            memcpy(w + i * size, &d, 2), memcpy(w + i * size + 2, &dmin, 2);
    }
    return w;
}

static void compare(enum dtype type, int byte, uint32_t n_out, uint32_t n_row)
{
    struct rows x = rows_new(n_row);
    char *w = weights_new(type, n_out, byte);
    struct weight_part part = {.type = type, .n_out = n_out, .data = w};
    struct panel p = kblocks_of(&cpu_reference, &x);
    float want[ROWS_MAX][N_OUT_MAX], got[ROWS_MAX][N_OUT_MAX], expanded[N_IN];
    float *scratch = aligned_alloc(64, matmul_scratch(N_IN) * sizeof *scratch);
    assert_non_null(scratch);
    cpu_reference.matmul(&part, N_IN, &p, 0, n_out, want[0], N_OUT_MAX, scratch);
    for (uint32_t o = 0; o < n_out; o++) {
        dtype_get(type)->to_f32(w + o * dtype_bytes(type, N_IN), expanded, N_IN);
        for (uint32_t r = 0; r < n_row; r++) {
            double sum = 0, size = 0;
            for (uint32_t b = 0; b < BLOCKS; b++) {
                double most = 0, all = 0;
                for (uint32_t k = b * KBLOCK_LEN; k < (b + 1) * KBLOCK_LEN; k++) {
                    double v = (double)panel_row(&p, r)[k / KB * panel_stride(&p) + k % KB];
                    sum += (double)expanded[k] * v;
                    all += fabs((double)expanded[k]);
                    most = fabs(v) > most ? fabs(v) : most;
                }
                size += most * all;
            }
            if (fabs((double)want[r][o] - sum) > size * 0x1p-20 + 1e-29)
                fail_msg("%s of bytes %d, row %u: %g, not %g", dtype_get(type)->name, byte, (unsigned)r,
                         (double)want[r][o], sum);
        }
    }
    free(p.kb);
    for (const struct cpu_kernels *const *k = tuned; *k; k++) {
        if (!(*k)->usable())
            continue;
        p = kblocks_of(*k, &x);
        (*k)->matmul(&part, N_IN, &p, 0, n_out, got[0], N_OUT_MAX, scratch);
        for (uint32_t r = 0; r < n_row; r++)
            if (memcmp(got[r], want[r], n_out * sizeof(float)))
                fail_msg("%s: %s of bytes %d, %u rows of %u", (*k)->name, dtype_get(type)->name, byte, (unsigned)n_row,
                         (unsigned)n_out);
        free(p.kb);
    }
    free(scratch);
    free(w);
    free(x.v);
}

static void test_products(void **state)
{
    static const int bytes[] = {-1, 0, 0x80, 0x7f, 0xff, 0x3f};
    static const uint32_t outs[] = {1, 6, 16, 37, N_OUT_MAX}, rows[] = {1, 2, 3, 8, ROWS_MAX};
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++)
            for (size_t i = 0; i < 5; i++)
                compare(types[t], bytes[b], outs[i], rows[(i + b) % 5]);
}

static void same_kblock(const struct kblock *a, const struct kblock *b, bool biased, const char *name)
{
    if (memcmp(a->digit, b->digit, sizeof a->digit) || (!biased && memcmp(a->off, b->off, sizeof a->off)))
        fail_msg("%s: digits differ", name);
    for (int j = 0; j < 8; j++)
        if (a->sum[j] != b->sum[j] && !(isnan(a->sum[j]) && isnan(b->sum[j])))
            fail_msg("%s: sum %d is %g, not %g", name, j, (double)b->sum[j], (double)a->sum[j]);
    if (a->scale != b->scale && !(isnan(a->scale) && isnan(b->scale)))
        fail_msg("%s: the scale is %g, not %g", name, (double)b->scale, (double)a->scale);
}

/* NaN or infinity anywhere in a k-block makes all its products NaN, in the reference and in the other variants. */
static void test_no_numbers(void **state)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0x1p-149f, 3.4e38f, -0x1p-100f};
    (void)state;
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t at = 0; at < KBLOCK_LEN; at += 51)
            for (int biased = 0; biased < 2; biased++) {
                float x[KBLOCK_LEN];
                struct kblock want, got;
                for (uint32_t k = 0; k < KBLOCK_LEN; k++)
                    x[k] = k == at ? odd[i] : i < 3 ? value(0, k) : 0.0f;
                cpu_reference.kblock(x, &want, biased);
                assert_true(isnan(want.scale) ? i < 3 : i >= 3);
                assert_true(i < 4 || fabsf(want.scale * (float)KBLOCK_MAX / odd[i]) > 0.999f);
                for (const struct cpu_kernels *const *k = tuned; *k; k++)
                    if ((*k)->usable()) {
                        (*k)->kblock(x, &got, biased);
                        same_kblock(&want, &got, biased, (*k)->name);
                    }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_no_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
