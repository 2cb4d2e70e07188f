/*
 * step.cuh - what step.cu shares with metadata.cu and acts.cu: what is known of the step being run and of those before.
 */
#ifndef HEARTH_CUDA_STEP_CUH
#define HEARTH_CUDA_STEP_CUH

#include "kernels/cuda/local.cuh"
extern "C" {
#include "kernels/staged.h"
}

/* A shape of step that was run before, with its graph where it is a decode step. The grids of a decode step's launches
 * follow this much of it and no row count; what else they need they read from the metadata. */
struct shape {
    uint64_t program; /* its id */
    const struct kv_pool *kv[KV_GROUPS_MAX];
    uint32_t bucket, out_bucket, n_split;
    uint32_t mode;               /* decode, sample: bits; what bits may depend on; the path; trunks; teams */
    cudaGraphExec_t exec;        /* NULL = run eagerly */
    uint32_t rows[DEVICE_PATHS]; /* that its products take by path, in the order of step_rec.path */
    uint64_t used;               /* ticket of the last use; 0 = empty */
};

struct step_rec {
    struct shape shape[GRAPHS_MAX];
    uint8_t *meta[RING];           /* pinned: step_dev, more of its groups, attention's words, then the block tables */
    uint32_t n_page;               /* words of this step's block tables */
    uint32_t arg_words_max;        /* words of metadata that a launch may carry */
    struct result *ring;           /* pinned, [RING] */
    uint64_t ticket;               /* of the last step */
    uint64_t completed;            /* the latest ticket whose step was seen to be done */
    const struct program *program; /* of the step that is being run */
    bool sample, eager;
    struct path_rows path[DEVICE_PATHS]; /* [n_path], in all steps; of the one being run: */
    uint32_t rows[DEVICE_PATHS], n_path;
    uint64_t replays;
    uint32_t width[ACT_COUNT]; /* columns of the activations as the last step left them */
    struct staged *staged;     /* what act_write keeps for the next step */
    struct hearth_err
        failed[RING]; /* what was wrong with the step of that ticket: not the device's failure, the caller's */
};

/*
 * metadata.cu, in the order of a step. begin: takes the batch, which is checked, chooses how the step goes, and fills
 * in the metadata; begin_sample: that of what the step samples; upload: brings it to the device.
 */
void metadata_init(struct device *d);
void metadata_fini(struct device *d);
void metadata_begin(struct device *d, const struct batch *b, const struct program *p);
void metadata_begin_sample(struct device *d, const struct batch_sample *op);
void metadata_upload(struct device *d);

/* acts.cu: writes what is staged into the activations, in the form that this step has them. */
void act_apply(struct device *d);

#endif
