/*
 * run.h - runs a whole model on a device, one step at a time, for the tests of this folder.
 *
 * HEARTH_BACKEND names the backend ("cpu" if it is not set), HEARTH_CPU_VARIANT or HEARTH_GPU_VARIANT its variant.
 */
#ifndef TESTS_GOLDEN_RUN_H
#define TESTS_GOLDEN_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "daemon/model/model.h"

#define MUST(call)                            \
    do {                                      \
        struct hearth_err e = {0};            \
        if (call)                             \
            fail_msg("%s: %s", #call, e.msg); \
    } while (0)

struct run {
    const struct backend *be;
    struct device *dev;
    struct device_info info;
    struct gguf *g;
    struct model *m;
    struct kv_desc kv[KV_GROUPS_MAX];
    struct kv_pool *pool[KV_GROUPS_MAX]; /* [n_group] */
    uint32_t n_group, n_page;
    const struct program *program; /* of the following steps; NULL: the model's */
    uint32_t freq_set; /* RoPE's set for the following steps: 0, or the one for timelines longer than hp.long_from */
    uint32_t *pages;   /* [n_page] all pages of each pool, in an order on which tests cannot rely */
};

/* The backend named by the environment, or "cpu"; fails the test if this build has none of that name. */
const struct backend *run_backend(void);
bool run_on_gpu(void); /* whether the backend is not "cpu" */
/* False if the machine has no device of that backend (the reason is printed): the program then exits with 77. */
bool run_possible(void);

/* The room within which models are opened (model_load_within); NULL: no limit. */
extern const struct model_room *run_room;

/* Opens a model. `variant` NULL: the environment's. `n_page` 0: enough for the model's context. Steps have up to n_row
 * rows, all with logits. */
void run_open(struct run *r, const char *path, const struct backend *be, const char *variant, uint32_t threads,
              uint32_t n_page, uint32_t n_row);
/* The same with that type of KV: device_params.kv_type. */
void run_open_kv(struct run *r, const char *path, const struct backend *be, const char *variant, uint32_t threads,
                 uint32_t n_page, uint32_t n_row, enum dtype kv_type);
void run_close(struct run *r);

/* Rows of one sequence, of which the last n_out have logits. */
struct piece {
    const int32_t *token;
    uint32_t n, pos, n_out;
    const uint32_t *pages; /* in the pool of every group */
};
/* Runs one step; logits [all n_out, n_vocab], may be NULL. */
void run_step(struct run *r, const struct piece *p, uint32_t n_piece, enum invariance how, float *logits);

/* Finds a file in the source tree, or in the data beside it; NULL if it cannot be read. */
const char *run_path(char buf[4096], const char *name);

#endif
