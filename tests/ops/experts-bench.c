/* experts-bench.c - see experts-bench.h. */
#include "tests/ops/experts-bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct backend *backend;
struct device_info bench_info;
bool bench_fast;
static const char *const cpu_variants[] = {"avx2", "avxvnni", "avx512", "reference", NULL};
static const char *const gpu_variants[] = {"eager", "graph", "reference", "ampere", "ada", NULL};
const char *const *bench_variants = cpu_variants;

bool bench_begin(int argc, char **argv)
{
    if (!(backend = rig_backend(argc > 1 ? argv[1] : "cpu", "auto", &bench_info)))
        return false;
    bench_fast = argc > 2 && !strcmp(argv[2], "fast");
    rig_host = argc > 2 && !strcmp(argv[argc - 1], "host");
    if (bench_info.gpu)
        bench_variants = gpu_variants;
    else
        bench_info.kv_type = DT_F32;
    return true;
}

void bench_ok(int rc, const struct hearth_err *e)
{
    if (rc)
        fail_msg("%s", e->msg);
}

bool bench_open_dims(struct bench *b, const char *variant, uint32_t threads, const struct workspace_dims *dims)
{
    struct kv_desc desc = {1, 1, 64, 64, 0, bench_info.kv_type, PAGES};
    struct hearth_err e;
    memset(b, 0, sizeof *b);
    b->be = backend;
    b->d = rig_device(b->be, variant, threads);
    if (!b->d)
        return false;
    bench_ok(b->be->reserve(b->d, dims, &e), &e);
    bench_ok(b->be->kv_new(b->d, &desc, &b->kv, &e), &e);
    return true;
}

bool bench_open(struct bench *b, const char *variant, uint32_t threads)
{
    struct workspace_dims dims = {
        D_ROUTE,  D_LATENT,        64, D_MAX, 16, ROWS_PROMPT, ROWS, 2 * EXPERTS_USED_MAX, 8 * D_MAX,
        D_LATENT, .d_aside = D_MAX};
    return bench_open_dims(b, variant, threads, &dims);
}

void bench_close(struct bench *b)
{
    for (uint32_t i = 0; i < b->n_vec; i++)
        b->be->vec_free(b->d, b->vec[i]);
    b->be->kv_free(b->d, b->kv);
    b->be->close(b->d);
}

const float *bench_vec(struct bench *b, const float *v, size_t n)
{
    struct hearth_err e;
    if (!v)
        return NULL;
    bench_ok(b->be->vec_load(b->d, v, n, &b->vec[b->n_vec++], &e), &e);
    return b->vec[b->n_vec - 1];
}

int bench_run_ops(struct bench *b, const struct op *op, uint32_t n_op, uint32_t n_row, struct hearth_err *e)
{
    static const int32_t token[BATCH_ROWS_MAX];
    uint32_t pages[PAGES];
    struct batch_seq seq = {0, n_row, 0, {pages}};
    struct batch batch = {.n_row = n_row,
                          .n_seq = 1,
                          .token = token,
                          .seq = &seq,
                          .kv = {b->kv},
                          .n_group = 1,
                          .once = true,
                          .invariant = !bench_fast};
    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = i;
    struct program p = program_of(NULL, op, n_op);
    return b->be->step_wait(b->d, b->be->step_run(b->d, &batch, &p), NULL, 0, e);
}

int bench_run(struct bench *b, const struct op *op, uint32_t n_row, struct hearth_err *e)
{
    return bench_run_ops(b, op, 1, n_row, e);
}
