/* selfcheck-internal.h - shared by the parts of the check: its batches, its pages, and a step on the device. */
#ifndef HEARTH_ENGINE_SELFCHECK_INTERNAL_H
#define HEARTH_ENGINE_SELFCHECK_INTERNAL_H

#include "daemon/engine/selfcheck/selfcheck.h"

enum {
    DECODES = 2,            /* the first batches decode: one row, and three rows of three sequences */
    EXPECTED = 3,           /* the third has five rows of two sequences, as prompts are computed, ... */
    BATCHES = 1 + EXPECTED, /* ... and the last the same, as a batch decodes, with the same results */
    SPARE = 2               /* pages that belong to no sequence */
};

/* An error is measured relative to the value and to the magnitude of the terms of its sum. A GPU rounds normed
 * activations to fp16: usually 3e-4 of a sum's magnitude, and half a unit in the last place more for results stored in
 * fp16. A product whose activations are not rounded has only the rounding of f32 sums; for prompts, weights are rounded
 * to fp16 too. A CPU is exact except for the order of its sums. */
struct tolerance {
    double rounded, exact, prompt;
};

/* The pages of a layer group. */
struct check_kv {
    struct kv_desc desc;
    struct check_pages pool;
    uint64_t page_bytes;
    uint8_t *fill, *now; /* [CHECK_PAGES] the pages before the check, and after the device ran */
};

struct check {
    const struct model *m;
    const struct backend *be;
    struct device *d;
    const struct tolerance *tol;
    struct check_jobs *jobs;
    struct check_job *job;      /* [list.n][EXPECTED] */
    struct reference *ref;      /* the reference that jobs_end returned */
    struct op_list list, whole; /* the different ops; the ops of one step */
    struct program all;         /* the program of `whole` */
    struct check_batch batch[BATCHES];
    uint32_t n_batch;                  /* of those, how many are checked */
    struct check_kv kv[KV_GROUPS_MAX]; /* [n_group] */
    uint32_t n_group;
    float **out[BATCHES];   /* [list.n] each op's results, all columns */
    float *logits[DECODES]; /* of the steps that were run op by op */
    double device_ms;
    char *failed;
};

/* --- selfcheck-make.c ------------------------------------------------------------------------------------- */

void check_make_batches(struct check *c);
/* Creates the pages of every layer group and fills them. */
int check_make_kv(struct check *c, enum dtype type, struct hearth_err *e);
/* Downloads the current content of all pages. */
int check_download(struct check *c, struct hearth_err *e);
void check_fini(struct check *c);
/* Runs the program over the batch as a step, and waits. `once`: op by op, without capturing or replaying a graph. */
int check_step_run(struct check *c, const struct check_batch *b, const struct program *p, bool once,
                   const struct batch_sample *sample, struct sampled *out, struct hearth_err *e);

#endif
