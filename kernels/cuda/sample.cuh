/* sample.cuh - a device's state for sampling, which slots.cu allocates and sets and the kernel of sample.cu uses. */
#ifndef HEARTH_CUDA_SAMPLE_CUH
#define HEARTH_CUDA_SAMPLE_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/local.cuh"

enum { SAMPLE_ROWS = 64, SAMPLE_BINS = 2048 }; /* rows per launch; bins per histogram */

struct slot_dev {
    struct sample_params p; /* p.bias is not used here */
    uint32_t n_vocab;
    float *bias;     /* [n_vocab] or NULL */
    uint32_t *count; /* [n_vocab] occurrences in the window, or NULL where nothing is penalised */
    int32_t *ring;   /* [p.penalty_last] the tokens in the window; NULL where it is the whole timeline */
    uint32_t ring_at, ring_used;
};

/* State that the blocks of a row share; zero between launches. */
struct row_dev {
    unsigned long long max, best, raw_max, sum, top[LOGPROBS_MAX];
    uint32_t arrived, finished;
    uint32_t count[3][SAMPLE_BINS];
    unsigned long long weight[3][SAMPLE_BINS];
};

struct slot_mem { /* host: grow-only */
    float *bias;
    uint32_t *count;
    int32_t *ring;
    uint32_t n_bias, n_count, n_ring;
    uint32_t n_vocab; /* of the last slot_set; 0 = never set */
    void *list;       /* pinned: biases and history, the input of slot_set's kernels */
    uint64_t list_bytes;
    uint64_t list_read; /* ticket of the step after whose end the kernels are done with the list */
};

struct sampler {
    slot_dev *slot;
    int32_t *last; /* [SLOTS_MAX] */
    row_dev *row;  /* [SAMPLE_ROWS] */
    uint32_t *rows_done;
    uint32_t *mask;
    uint64_t mask_words;
    struct slot_mem mem[SLOTS_MAX];
};

#endif
