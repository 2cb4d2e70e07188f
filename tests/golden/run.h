/*
 * run.h - runs a whole model on a device, one step at a time, for the tests of this folder.
 *
 * HEARTH_BACKEND names the backend ("cpu" where it is not set), HEARTH_CPU_VARIANT or HEARTH_GPU_VARIANT its variant.
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
    const struct program *program; /* of the steps that follow; NULL: the model's */
    uint32_t
        freq_set;    /* RoPE's, of the steps that follow: 0, or that of a timeline which is longer than hp.long_from */
    uint32_t *pages; /* [n_page] all of each pool's, in no order that a test could rely on */
};

/* The backend of the environment, or "cpu"; fails the test where this build has none of that name. */
const struct backend *run_backend(void);
bool run_on_gpu(void); /* the backend is not "cpu" */
/* False where the machine has no device of that backend (the reason is printed): the program then exits with 77. */
bool run_possible(void);

/* What models are opened within (model_load_within); NULL: without bounds. */
extern const struct model_room *run_room;

/* `variant` NULL: the environment's. `n_page` 0: the model's context. Steps of up to n_row rows, all with logits. */
void run_open(struct run *r, const char *path, const struct backend *be, const char *variant, uint32_t threads,
              uint32_t n_page, uint32_t n_row);
/* ... with KV of that type: device_params.kv_type. */
void run_open_kv(struct run *r, const char *path, const struct backend *be, const char *variant, uint32_t threads,
                 uint32_t n_page, uint32_t n_row, enum dtype kv_type);
void run_close(struct run *r);

/* Rows of one sequence: the logits of the last n_out are wanted. */
struct piece {
    const int32_t *token;
    uint32_t n, pos, n_out;
    const uint32_t *pages; /* in every group's pool */
};
/* One step; logits [all n_out, n_vocab], may be NULL. */
void run_step(struct run *r, const struct piece *p, uint32_t n_piece, enum invariance how, float *logits);

/* A file of the tree, or of the data beside it; NULL where it cannot be read. */
const char *run_path(char buf[4096], const char *name);

#endif
