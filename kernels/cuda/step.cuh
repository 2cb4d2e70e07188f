/*
 * step.cuh - what step.cu shares with metadata.cu and acts.cu: the state of the current step and of earlier ones.
 */
#ifndef HEARTH_CUDA_STEP_CUH
#define HEARTH_CUDA_STEP_CUH

#include "kernels/cuda/local.cuh"
extern "C" {
#include "kernels/staged.h"
}

/* A shape of decode step that was run before, with its graph. The step's launches depend only on the fields up to
 * `mode`, not on the row count; kernels read everything else from the metadata. */
struct shape {
    uint64_t program; /* its id */
    const struct kv_pool *kv[KV_GROUPS_MAX];
    uint32_t bucket, out_bucket, n_split;
    uint32_t mode;               /* bit fields: decode, sample, invariance, path, trunks, teams (shape_of()) */
    cudaGraphExec_t exec;        /* NULL: none captured */
    uint32_t rows[DEVICE_PATHS]; /* rows of its products by path, in the order of step_rec.path */
    uint64_t used;               /* ticket of the last use; 0 = empty */
};

struct step_rec {
    struct shape shape[GRAPHS_MAX];
    uint8_t *meta[RING];           /* pinned: step_dev, more of its groups, attention's words, then the block tables */
    uint32_t n_page;               /* words of this step's block tables */
    uint32_t arg_words_max;        /* words of metadata (8 bytes) that a launch can carry as arguments */
    struct result *ring;           /* pinned, [RING] */
    uint64_t ticket;               /* of the last step */
    uint64_t completed;            /* the latest ticket whose step is known to be done */
    const struct program *program; /* of the current step */
    bool sample, eager;
    struct path_rows path[DEVICE_PATHS]; /* [n_path], totals of all steps ... */
    uint32_t rows[DEVICE_PATHS], n_path; /* ... and those of the current step */
    uint64_t replays;
    uint32_t width[ACT_COUNT]; /* columns of the activations as the last step left them */
    struct staged *staged;     /* what act_write keeps for the next step */
    struct hearth_err
        failed[RING]; /* the error of the step with ticket % RING: refusals of the caller's, not device failures */
    struct hearth_err refused; /* why the last step_run that returned 0 did */
};

/*
 * metadata.cu, in the order of a step. begin: checks the batch, chooses the step's paths, and fills in the metadata;
 * begin_sample: fills in the part for sampling; upload: copies the metadata to the device.
 */
void metadata_init(struct device *d);
void metadata_fini(struct device *d);
void metadata_begin(struct device *d, const struct batch *b, const struct program *p);
void metadata_begin_sample(struct device *d, const struct batch_sample *op);
void metadata_upload(struct device *d);

/* acts.cu: writes what is staged into the activations, in the layout that they have in this step. */
void act_apply(struct device *d);

#endif
