/* experts-bench.h - the basis of the tests of routers and experts: a device, its kind, and steps of given ops. */
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

/* A device with room for these ops, and pages, which a step must name although these ops do not read them. */
struct bench {
    const struct backend *be;
    struct device *d;
    struct kv_pool *kv;
    float *vec[8];
    uint32_t n_vec;
};

extern struct device_info bench_info;
extern bool bench_fast; /* steps are not invariant */
/* Variants that must give the same bits; NULL at the end. */
extern const char *const *bench_variants;

/* Reads BACKEND [fast] [host]. False if there is no such device; the line that skips the program has been printed
 * then. */
bool bench_begin(int argc, char **argv);
/* Fails the test if rc is an error. */
void bench_ok(int rc, const struct hearth_err *e);
/* False if the machine does not have the variant. */
bool bench_open(struct bench *b, const char *variant, uint32_t threads);
/* ... with a workspace of other dimensions than most tests need. */
bool bench_open_dims(struct bench *b, const char *variant, uint32_t threads, const struct workspace_dims *dims);
void bench_close(struct bench *b);
/* Copies n numbers to the device, where they stay until bench_close(); NULL for NULL. */
const float *bench_vec(struct bench *b, const float *v, size_t n);
/* Runs a step of these ops over n_row rows of one sequence, and returns step_wait()'s result. */
int bench_run_ops(struct bench *b, const struct op *op, uint32_t n_op, uint32_t n_row, struct hearth_err *e);
int bench_run(struct bench *b, const struct op *op, uint32_t n_row, struct hearth_err *e);

#endif
