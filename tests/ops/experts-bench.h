/* experts-bench.h - what tests of routers and of experts begin with: a device, its kind, and steps of given ops. */
#ifndef TESTS_OPS_EXPERTS_BENCH_H
#define TESTS_OPS_EXPERTS_BENCH_H

#include "tests/ops/rig.h"

enum {
    ROWS = 37,
    ROWS_PROMPT = 5 * ROWS + 3,
    D_MAX = 2880,
    D_ROUTE = 3208,
    D_LATENT = 515,
    N_MAX = 600,
    PAGES = BATCH_ROWS_MAX / KV_PAGE
};

/* A device with room for these ops, and pages that a step must name though they read none. */
struct bench {
    const struct backend *be;
    struct device *d;
    struct kv_pool *kv;
    float *vec[8];
    uint32_t n_vec;
};

extern struct device_info bench_info;
extern bool bench_fast; /* steps are not invariant */
/* What a step's bits must not depend on; NULL at the end. */
extern const char *const *bench_variants;

/* Reads BACKEND [fast] [host]. False where there is no such device: the line that skips the program is printed. */
bool bench_begin(int argc, char **argv);
/* Fails the test where rc is an error. */
void bench_ok(int rc, const struct hearth_err *e);
/* False where the machine does not have the variant. */
bool bench_open(struct bench *b, const char *variant, uint32_t threads);
/* ... with a workspace of other dimensions than most tests need. */
bool bench_open_dims(struct bench *b, const char *variant, uint32_t threads, const struct workspace_dims *dims);
void bench_close(struct bench *b);
/* A vector of n numbers on the device until bench_close(); NULL of NULL. */
const float *bench_vec(struct bench *b, const float *v, size_t n);
/* A step of these ops over n_row rows of one sequence; what step_wait says of it. */
int bench_run_ops(struct bench *b, const struct op *op, uint32_t n_op, uint32_t n_row, struct hearth_err *e);
int bench_run(struct bench *b, const struct op *op, uint32_t n_row, struct hearth_err *e);

#endif
