/*
 * bench-cpu.c - the speed of the CPU backend's matrix products, compared with the machine's ceilings. Not a test: run
 * it by hand.
 *
 *     tests/bench/bench-cpu [THREADS [VARIANT]]
 *
 * It measures the ceilings first: fused multiply-adds on registers, and reading memory, with all threads at once. Then
 * it times every matrix of Llama-3.2-1B and of tale, with the type that Q4_K_M gives it, for one row (decode; GB/s of
 * weights) and for 128 rows (prefill; GFLOP/s). The weights rotate over several copies, so that a small matrix is not
 * read from the cache unless that of a real model would be. The best of many runs counts, because the machine is
 * usually shared. Before anything is timed, the result is compared with the reference, bit-exactly.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/backend.h"

enum { ROWS = 128, REPEAT = 9 };

static const struct shape {
    const char *model, *name;
    enum dtype type;
    uint32_t n_in, n_out, n_copy; /* as many copies as the model has layers */
} shapes[] = {
    {"1B", "qkv", DT_Q4_K, 2048, 3072, 16},     {"1B", "gate|up", DT_Q4_K, 2048, 16384, 16},
    {"1B", "down", DT_Q4_K, 8192, 2048, 16},    {"1B", "down", DT_Q6_K, 8192, 2048, 16},
    {"1B", "head", DT_Q6_K, 2048, 128256, 1},   {"tale", "qkv", DT_Q4_K, 256, 512, 8},
    {"tale", "gate|up", DT_Q4_K, 256, 1536, 8}, {"tale", "down", DT_Q6_K, 768, 256, 8},
    {"tale", "head", DT_Q6_K, 256, 4096, 1},    {"1B", "down", DT_Q5_K, 8192, 2048, 16},
    {"1B", "down", DT_Q4_0, 8192, 2048, 16},    {"1B", "down", DT_Q8_0, 8192, 2048, 16},
    {"1B", "down", DT_F16, 8192, 2048, 8},
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const struct hearth_err *e)
{
    fprintf(stderr, "bench-cpu: %s\n", e->msg);
    exit(1);
}

/* --- ceilings -------------------------------------------------------------------------------------------- */

enum { FMA_LOOPS = 20000000, READ_BYTES = 1 << 28 };

struct ceiling {
    void *(*run)(void *);
    char *buf;
    double sink;
};

#ifdef __x86_64__
#include <immintrin.h>
__attribute__((target("avx2,fma"))) static void *fma_run(void *arg)
{
    struct ceiling *c = arg;
    __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f), v[12];
    for (int i = 0; i < 12; i++)
        v[i] = _mm256_set1_ps((float)i);
    for (int k = 0; k < FMA_LOOPS; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            v[i] = _mm256_fmadd_ps(v[i], x, y);
    for (int i = 0; i < 12; i++)
        c->sink += (double)_mm256_cvtss_f32(v[i]);
    return NULL;
}
#endif

static void *read_run(void *arg)
{
    struct ceiling *c = arg;
    uint64_t a = 0, b = 0, s = 0, t = 0;
    for (size_t i = 0; i < READ_BYTES; i += 64) { /* one load per cache line: the memory is the bottleneck */
        uint64_t *p = (uint64_t *)(void *)(c->buf + i);
        a += p[0], b += p[2], s += p[4], t += p[6];
    }
    c->sink += (double)(a ^ b ^ s ^ t);
    return NULL;
}

/* The seconds that n threads take to run the ceiling's loop once each; the best of REPEAT runs. */
static double ceiling_time(struct ceiling *c, uint32_t n)
{
    double best = INFINITY;
    pthread_t *thread = calloc(n, sizeof *thread);
    for (int r = 0; thread && r < REPEAT; r++) {
        double t = now();
        uint32_t started = 0;
        while (started < n && !pthread_create(&thread[started], NULL, c[started].run, &c[started]))
            started++;
        for (uint32_t i = 0; i < started; i++)
            pthread_join(thread[i], NULL);
        t = now() - t;
        best = t < best && started == n ? t : best;
    }
    free(thread);
    return best;
}

static void ceilings(uint32_t n)
{
    struct ceiling *c = calloc(n, sizeof *c);
    if (!c)
        return;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        for (uint32_t i = 0; i < n; i++)
            c[i].run = fma_run;
        printf("ceiling  AVX2 fused multiply-add  %8.1f GFLOP/s\n",
               (double)n * FMA_LOOPS * 12 * 16 / ceiling_time(c, n) / 1e9);
    }
#endif
    bool room = true;
    for (uint32_t i = 0; i < n; i++) {
        c[i].run = read_run;
        c[i].buf = malloc(READ_BYTES);
        if (c[i].buf)
            memset(c[i].buf, 1, READ_BYTES);
        room = room && c[i].buf;
    }
    if (room)
        printf("ceiling  reading memory           %8.1f GB/s\n", (double)n * READ_BYTES / ceiling_time(c, n) / 1e9);
    for (uint32_t i = 0; i < n; i++)
        free(c[i].buf);
    free(c);
}

/* --- products -------------------------------------------------------------------------------------------- */

/* Random bytes are valid blocks of any type except for the f16 scales, which must be finite: small bytes everywhere
 * suffice. */
static void fill(uint8_t *data, size_t n)
{
    uint64_t s = 88172645463325252u;
    for (size_t i = 0; i < n; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        data[i] = (uint8_t)(s & 0x2f); /* no byte can be the high byte of an infinite or huge f16 */
    }
}

/* A product of `rows` rows by the head op, which is a norm and a matrix. */
static void product(struct device *d, const struct weight *w, struct kv_pool *kv, uint32_t rows)
{
    static int32_t token[ROWS];
    static uint32_t out_row[ROWS], pages[ROWS / KV_PAGE];
    static float ones[8192];
    for (uint32_t i = 0; i < ROWS; i++)
        out_row[i] = i;
    for (uint32_t i = 0; i < w->n_in; i++)
        ones[i] = 1.0f;
    struct hearth_err e;
    struct batch_seq seq = {.n_row = rows, .pages = {pages}};
    struct batch b = {.n_row = rows,
                      .n_seq = 1,
                      .n_out = rows,
                      .token = token,
                      .seq = &seq,
                      .out_row = out_row,
                      .kv = {kv},
                      .n_group = 1};
    const struct backend *be = backend_find("cpu");
    struct op head = {.kind = OP_HEAD, .head = {.norm = {NORM_RMS, 1e-5f, ones, NULL}, .w = w, .scale = 1.0f}};
    struct program p = program_of(NULL, &head, 1);
    if (be->step_wait(d, be->step_run(d, &b, &p), NULL, 0, &e))
        die(&e);
}

static struct device *opened(const struct shape *s, uint32_t threads, const char *variant, struct kv_pool **kv)
{
    const struct backend *be = backend_find("cpu");
    struct device *d;
    struct hearth_err e;
    struct device_params p = {.threads = threads, .variant = variant};
    struct workspace_dims dims = {s->n_in, 16, 16, 16, s->n_out, ROWS, ROWS};
    struct kv_desc desc = {1, 1, 16, 16, 0, DT_F32, 1};
    if (be->open(&d, &p, &e) || be->reserve(d, &dims, &e) || be->kv_new(d, &desc, kv, &e))
        die(&e);
    float *x = malloc((size_t)ROWS * s->n_in * sizeof *x);
    for (size_t i = 0; x && i < (size_t)ROWS * s->n_in; i++)
        x[i] = sinf((float)i);
    struct batch_seq seq = {.n_row = ROWS, .pages = {(uint32_t[ROWS / KV_PAGE]){0}}};
    struct batch b = {.n_row = ROWS,
                      .n_seq = 1,
                      .token = (int32_t[ROWS]){0},
                      .seq = &seq,
                      .out_row = (uint32_t[1]){0},
                      .kv = {*kv},
                      .n_group = 1};
    struct program nothing = program_of(NULL, NULL, 0);
    if (!x || be->act_write(d, ACT_X, 0, ROWS, s->n_in, x, &e) ||
        be->step_wait(d, be->step_run(d, &b, &nothing), NULL, 0, &e))
        die(&e);
    free(x);
    return d;
}

static void bench(const struct shape *s, uint32_t threads, const char *variant)
{
    const struct backend *be = backend_find("cpu");
    struct hearth_err e;
    struct kv_pool *kv, *ref_kv;
    struct device *d = opened(s, threads, variant, &kv), *ref = opened(s, threads, "reference", &ref_kv);
    size_t bytes = dtype_bytes(s->type, (uint64_t)s->n_in * s->n_out);
    uint8_t *data = malloc(bytes * s->n_copy);
    struct weight w[16];
    if (!data)
        exit(1);
    fill(data, bytes * s->n_copy);
    for (uint32_t i = 0; i < s->n_copy; i++) {
        w[i] = (struct weight){WEIGHT_HEAD, s->n_in, s->n_out, 1, {{s->type, s->n_out, data + bytes * i}}, NULL};
        if (be->weight_load(d, &w[i], &e))
            die(&e);
    }
    /* First the results must be correct: the logits of some rows, all columns. */
    float *a = malloc((size_t)s->n_out * sizeof *a), *r = malloc((size_t)s->n_out * sizeof *r);
    product(ref, &w[0], ref_kv, 1);
    product(d, &w[0], kv, 1);
    if (!a || !r || be->act_read(ref, ACT_LOGITS, 0, 1, r, &e) || be->act_read(d, ACT_LOGITS, 0, 1, a, &e) ||
        memcmp(a, r, (size_t)s->n_out * sizeof *a)) {
        fprintf(stderr, "bench-cpu: %s %s differs from the reference\n", s->model, s->name);
        exit(1);
    }
    double one = INFINITY, many = INFINITY;
    for (int i = 0; i < REPEAT; i++) {
        double t = now();
        for (uint32_t c = 0; c < s->n_copy; c++)
            product(d, &w[c], kv, 1);
        t = (now() - t) / s->n_copy;
        one = t < one ? t : one;
    }
    for (int i = 0; i < 5; i++) {
        double t = now();
        product(d, &w[0], kv, ROWS);
        t = now() - t;
        many = t < many ? t : many;
    }
    double flop = 2.0 * s->n_in * s->n_out;
    printf("%-5s%-8s %-5s%6u x %-6u  1 row %8.1f us %6.2f GB/s %6.1f GFLOP/s   %d rows %9.1f us %6.1f GFLOP/s\n",
           s->model, s->name, dtype_get(s->type)->name, (unsigned)s->n_out, (unsigned)s->n_in, one * 1e6,
           (double)bytes / one / 1e9, flop / one / 1e9, ROWS, many * 1e6, ROWS * flop / many / 1e9);
    be->kv_free(d, kv);
    be->kv_free(ref, ref_kv);
    be->close(d);
    be->close(ref);
    free(data);
    free(a);
    free(r);
}

int main(int argc, char **argv)
{
    uint32_t threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    const char *variant = argc > 2 ? argv[2] : "auto";
    const struct backend *be = backend_find("cpu");
    struct device *d;
    struct device_info info;
    struct hearth_err e;
    struct device_params p = {.threads = threads, .variant = variant};
    if (be->open(&d, &p, &e))
        die(&e);
    be->info(d, &info);
    be->close(d);
    printf("%s\n", info.name);
    ceilings(threads ? threads : (uint32_t)sysconf(_SC_NPROCESSORS_ONLN));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        bench(&shapes[i], threads, variant);
    return 0;
}
