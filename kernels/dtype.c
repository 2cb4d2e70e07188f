/*
 * dtype.c - the table of tensor element types. A new type is its block in blocks.h, one function and one row here.
 *
 * Pure functions, any thread. What to_f32 gives is the specification; kernels expand the same values in registers.
 */
#include "kernels/dtype.h"

#include "kernels/quant/blocks.h"

static void f32_to_f32(const void *src, float *dst, size_t n)
{
    memcpy(dst, src, n * sizeof(float));
}

static void f32_from_f32(const float *src, void *dst, size_t n)
{
    memcpy(dst, src, n * sizeof(float));
}

static void f16_to(const void *src, float *dst, size_t n)
{
    const uint16_t *s = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = f16_to_f32(s[i]);
}

static void f16_from(const float *src, void *dst, size_t n)
{
    uint16_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i] = f16_of_f32(src[i]);
}

static void bf16_to(const void *src, float *dst, size_t n)
{
    const uint16_t *s = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = bf16_to_f32(s[i]);
}

static void bf16_from(const float *src, void *dst, size_t n)
{
    uint16_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i] = bf16_of_f32(src[i]);
}

static void q4_0_to(const void *src, float *dst, size_t n)
{
    const struct block_q4_0 *b = src;
    for (size_t k = 0; k < n; k += QK_0, b++) {
        float d = f16_to_f32(b->d);
        for (int i = 0; i < 16; i++) {
            dst[k + i] = d * (float)((b->qs[i] & 15) - 8);
            dst[k + i + 16] = d * (float)((b->qs[i] >> 4) - 8);
        }
    }
}

static void q8_0_to(const void *src, float *dst, size_t n)
{
    const struct block_q8_0 *b = src;
    for (size_t k = 0; k < n; k += QK_0, b++) {
        float d = f16_to_f32(b->d);
        for (int i = 0; i < 32; i++)
            dst[k + i] = d * (float)b->qs[i];
    }
}

static void q4_k_to(const void *src, float *dst, size_t n)
{
    const struct block_q4_k *b = src;
    for (size_t k = 0; k < n; k += QK_K, b++)
        for (int j = 0; j < 8; j++) { /* 32 weights share a scale and a minimum */
            uint8_t sc, m;
            quant_scale_min(b->scales, j, &sc, &m);
            float d = f16_to_f32(b->d) * (float)sc, min = f16_to_f32(b->dmin) * (float)m;
            for (int i = 0; i < 32; i++)
                dst[k + 32 * j + i] = d * (float)(b->qs[32 * (j / 2) + i] >> 4 * (j & 1) & 15) - min;
        }
}

static void q5_k_to(const void *src, float *dst, size_t n)
{
    const struct block_q5_k *b = src;
    for (size_t k = 0; k < n; k += QK_K, b++)
        for (int j = 0; j < 8; j++) {
            uint8_t sc, m;
            quant_scale_min(b->scales, j, &sc, &m);
            float d = f16_to_f32(b->d) * (float)sc, min = f16_to_f32(b->dmin) * (float)m;
            for (int i = 0; i < 32; i++) {
                int q = (b->qs[32 * (j / 2) + i] >> 4 * (j & 1) & 15) | (b->qh[i] >> j & 1) << 4;
                dst[k + 32 * j + i] = d * (float)q - min;
            }
        }
}

static void q6_k_to(const void *src, float *dst, size_t n)
{
    const struct block_q6_k *b = src;
    for (size_t k = 0; k < n; k += QK_K, b++)
        for (int j = 0; j < 16; j++) { /* 16 weights share a scale: half j / 8, quarter j / 2 % 4 of it */
            const uint8_t *ql = b->ql + 64 * (j / 8) + 16 * (j % 4), *qh = b->qh + 32 * (j / 8) + 16 * (j % 2);
            int low = 4 * (j / 4 % 2), high = 2 * (j / 2 % 4);
            float d = f16_to_f32(b->d) * (float)b->scales[j];
            for (int i = 0; i < 16; i++) {
                int q = (ql[i] >> low & 15) | (qh[i] >> high & 3) << 4;
                dst[k + 16 * j + i] = d * (float)(q - 32);
            }
        }
}

static const struct dtype_info types[DT_COUNT] = {
    [DT_F32] = {"F32", 1, 4, f32_to_f32, f32_from_f32},
    [DT_F16] = {"F16", 1, 2, f16_to, f16_from},
    [DT_BF16] = {"BF16", 1, 2, bf16_to, bf16_from},
    [DT_Q4_0] = {"Q4_0", QK_0, sizeof(struct block_q4_0), q4_0_to, NULL},
    [DT_Q8_0] = {"Q8_0", QK_0, sizeof(struct block_q8_0), q8_0_to, NULL},
    [DT_Q4_K] = {"Q4_K", QK_K, sizeof(struct block_q4_k), q4_k_to, NULL},
    [DT_Q5_K] = {"Q5_K", QK_K, sizeof(struct block_q5_k), q5_k_to, NULL},
    [DT_Q6_K] = {"Q6_K", QK_K, sizeof(struct block_q6_k), q6_k_to, NULL},
};

const struct dtype_info *dtype_get(int type)
{
    return type >= 0 && type < DT_COUNT && types[type].name ? &types[type] : NULL;
}

uint64_t dtype_bytes(int type, uint64_t n)
{
    const struct dtype_info *t = dtype_get(type);
    uint64_t bytes;
    if (!t || n % t->block_len || __builtin_mul_overflow(n / t->block_len, (uint64_t)t->block_bytes, &bytes))
        return 0;
    return bytes;
}
