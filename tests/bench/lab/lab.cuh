/* lab.cuh - shared by the laboratories: the device through its function table, random weights, and an exit on any
 * failure. */
#ifndef HEARTH_BENCH_LAB_CUH
#define HEARTH_BENCH_LAB_CUH

#include "kernels/cuda/cuda.cuh"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern "C" {
#include "kernels/dtype.h"

#define QUANT_HEADERS
#include "kernels/quant/list.h"
extern const struct backend backend_cuda;
}

static const struct backend *bk = &backend_cuda;
static struct device *dev;
static struct hearth_err err;
static int bad;

#define MUST(x)                                                        \
    do {                                                               \
        if (x) {                                                       \
            printf("%s:%d %s: %s\n", __FILE__, __LINE__, #x, err.msg); \
            exit(1);                                                   \
        }                                                              \
    } while (0)

static uint64_t seed = 12345;
static inline uint32_t rnd(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33);
}
static inline float uniform(void)
{
    return (float)(rnd() % 20001) / 10000.f - 1.f;
}
static inline uint16_t half_bits(float v)
{
    __half h = __float2half(v);
    return *(uint16_t *)&h;
}

/* n elements of a type, of a magnitude of about 0.02. */
static inline void random_blocks(enum dtype t, uint8_t *p, uint64_t n)
{
    uint64_t bytes = dtype_bytes(t, n);
    for (uint64_t i = 0; i < bytes / 4; i++)
        ((uint32_t *)p)[i] = rnd() << 1 ^ rnd() >> 7;
    for (uint64_t i = bytes / 4 * 4; i < bytes; i++)
        p[i] = (uint8_t)rnd();
    const struct dtype_info *info = dtype_get(t);
    void (*scale_to)(void *, float) = NULL;
    switch (t) {
#define X(type, TYPE, number)       \
    case DT_##TYPE:                 \
        scale_to = type##_scale_to; \
        break;
        QUANTS(X)
#undef X
    case DT_COUNT:
        break;
    }
    float std = 0.02f * (0.75f + (float)(rnd() % 1000) / 2000.f);
    for (uint64_t b = 0; scale_to && b < bytes; b += info->block_bytes)
        scale_to(p + b, std);
    for (uint64_t i = 0; !scale_to && i < n; i++) {
        float v = uniform() * 0.03f;
        info->from_f32(&v, p + i * info->block_bytes, 1);
    }
}

static inline void need(uint32_t d_model, uint32_t d_q, uint32_t d_kv, uint32_t d_ff, uint32_t vocab, uint32_t rows)
{
    struct workspace_dims w = {d_model, d_q, d_kv, d_ff, vocab, rows, rows};
    MUST(bk->reserve(dev, &w, &err));
}

static inline struct weight make(enum weight_role role, uint32_t n_in, uint32_t n_part, const enum dtype *t,
                                 const uint32_t *n_out, const uint8_t *const *data)
{
    struct weight w = {};
    w.role = role, w.n_in = n_in, w.n_part = n_part;
    for (uint32_t i = 0; i < n_part; i++) {
        w.part[i].type = t[i], w.part[i].n_out = n_out[i], w.part[i].data = data[i];
        w.n_out += n_out[i];
    }
    MUST(bk->weight_load(dev, &w, &err));
    return w;
}

static inline void sync_or_die(const char *what)
{
    if (bk->sync(dev, &err)) {
        printf("%s: %s\n", what, err.msg);
        exit(1);
    }
}

/* The shapes that are measured: Llama-3-8B, Llama-3.2-1B, Qwen2.5-1.5B. */
struct shape {
    const char *name;
    uint32_t n_layer, d_model, n_head, n_kv, d_head, d_ff, vocab;
    enum rope_kind rope;
};
__attribute__((unused)) static const struct shape shapes[] = {
    {"8b", 32, 4096, 32, 8, 128, 14336, 128256, ROPE_NORM},
    {"1b", 16, 2048, 32, 8, 64, 8192, 128256, ROPE_NORM},
    {"1.5b", 28, 1536, 12, 2, 128, 8960, 151936, ROPE_NEOX},
};

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static inline int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif
