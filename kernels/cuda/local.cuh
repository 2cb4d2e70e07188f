/*
 * local.cuh - host functions that the files of the backend call in each other, other than the launchers of ops
 * (plan.cuh) and of epilogues (gemm/epilogue.cuh). Kernels need cuda.cuh only.
 */
#ifndef HEARTH_CUDA_LOCAL_CUH
#define HEARTH_CUDA_LOCAL_CUH

#include "kernels/cuda/cuda.cuh"

/* upload.cu: weights from the mapped file through pinned buffers. */
void upload_init(struct device *d);
void upload_fini(struct device *d);
int weight_load(struct device *d, struct weight *w, struct hearth_err *e);
void weight_free(struct device *d, struct weight *w);
uint64_t weight_bytes(struct device *d, const struct weight *w, uint64_t *passing);

/* spill.cu: weights that stay in host memory. Kernels read them there; a step of many rows copies each matrix once,
 * before the op that multiplies by it. spill_add, spill_remove: a matrix in host memory was loaded, will be freed; the
 * latter waits for copies. spill_bytes: device memory for copies that such a matrix needs. spill_begin: before a step's
 * ops; spill_op, spill_op_end: around each op, whose matrix is read from its copy in between. */
int spill_add(struct device *d, const wdev *w, struct hearth_err *e);
void spill_remove(struct device *d, const wdev *w);
uint64_t spill_bytes(const wdev *w);
void spill_begin(struct device *d, const struct program *p);
void spill_op(struct device *d, const struct op *o);
void spill_op_end(struct device *d);
void spill_fini(struct device *d);

/* pool.cu: KV pools. kv_page_ok: refuses a page that is not in the pool or not mapped. kv_granule: the granule in bytes
 * by which a pool's memory can be mapped; 0: this driver has no virtual memory management. */
int kv_new(struct device *d, const struct kv_desc *desc, struct kv_pool **out, struct hearth_err *e);
void kv_free(struct device *d, struct kv_pool *p);
int kv_map(struct device *d, struct kv_pool *p, uint32_t extent, struct hearth_err *e);
void kv_unmap(struct device *d, struct kv_pool *p, uint32_t extent);
void kv_copy(struct device *d, struct kv_pool *p, uint32_t dst, uint32_t src);
void kv_clear(struct device *d, struct kv_pool *p, uint32_t page);
bool kv_page_ok(struct device *d, const struct kv_pool *p, uint32_t page);
uint64_t kv_granule(struct device *d);

/* memory.cu: accounting of memory that does not come from cuda_alloc. */
void cuda_count(struct device *d, enum mem_kind kind, uint64_t bytes, bool more);
bool cuda_note_pinned(struct device *d, void *p, uint64_t bytes); /* adds it to the list; false: out of memory */
uint64_t cuda_forget(struct device *d, const void *p); /* removes it; returns its bytes, 0: it is not on the list */

/* transfer.cu: KV pages to and from the host. */
void kv_transfer_init(struct device *d);
void kv_transfer_fini(struct device *d);
void kv_transfer_drain(struct device *d); /* waits for every transfer */
uint64_t kv_save(struct device *d, struct kv_pool *p, const uint32_t *pages, void *const *host, uint32_t n);
uint64_t kv_load(struct device *d, struct kv_pool *p, const uint32_t *pages, const void *const *host, uint32_t n);
int kv_transfer_done(struct device *d, uint64_t ticket, struct hearth_err *e);
int kv_transfer_wait(struct device *d, uint64_t ticket, struct hearth_err *e);

/* pinned.cu: host memory that the GPU accesses directly. */
void pinned_init(void); /* called for each device that is opened; pinned_fini: for each that is closed */
void pinned_fini(void);
int host_alloc(struct device *d, uint64_t bytes, void **out, struct hearth_err *e);
void host_free(struct device *d, void *p);

/* step.cu: capture, replay, results; acts.cu: act_read, act_write. */
void step_init(struct device *d);
void step_fini(struct device *d);
void step_drop_graphs(struct device *d); /* destroys captured graphs; waits for the steps that use them */
uint64_t step_run(struct device *d, const struct batch *b, const struct program *p);
int step_wait(struct device *d, uint64_t ticket, struct sampled *out, uint32_t n, struct hearth_err *e);
int step_failed(struct device *d, struct hearth_err *e); /* returns and clears the last step's error */
/* step_count: counts rows of an op of the current step by path; step_counts: the totals, for device_info. */
void step_count(struct device *d, const char *path, uint32_t rows);
void step_counts(const struct device *d, struct device_info *out);
/* The ticket of the next step; the latest ticket known to be done, and with it all that was submitted before. */
uint64_t step_next(const struct device *d);
uint64_t step_completed(const struct device *d);
int act_read(struct device *d, enum act a, uint32_t row0, uint32_t n_row, float *out, struct hearth_err *e);
int act_write(struct device *d, enum act a, uint32_t row0, uint32_t n_row, uint32_t n_col, const float *in,
              struct hearth_err *e);

/* A step's results, in pinned memory that the GPU writes; `ticket` is written last. */
struct result {
    volatile uint64_t ticket;
    struct sampled out[SLOTS_MAX]; /* one per sampled row; a step samples each slot at most once */
};
/* Ends a step without `sample`: writes its ticket. */
void done_run(struct device *d, struct result *ring);

/* sample.cu: sample_run; slots.cu: the rest. */
void sample_init(struct device *d);
void sample_fini(struct device *d);
void sample_run(struct device *d, uint32_t bucket, uint32_t n_vocab, struct result *ring);
int slot_set(struct device *d, uint32_t slot, const struct sample_params *p, const int32_t *history, uint32_t n_history,
             uint32_t n_vocab, struct hearth_err *e);
/* Checks that the slots are set, for this vocabulary, and named once; refuses the step otherwise. */
bool sample_check(struct device *d, const struct batch_sample *op, uint32_t n_vocab);
/* The last token of each slot, in device memory, which TOKEN_OF_SLOT refers to. */
const int32_t *slot_tokens(const struct device *d);
/* A buffer for a step's allowed-token masks, [n][words] u32 in device memory; NULL on failure. */
uint32_t *mask_room(struct device *d, uint32_t n, uint32_t words);

/* cublaslt.cu: opens the library, if it is installed. */
void prefill_init(struct device *d);
void prefill_fini(struct device *d);
bool prefill_available(const struct device *d);

/* dequant.cu: rows [row0, row0 + n) of the merged output as fp16 [n, ld], from any form in which the weight is kept. */
void dequant(struct device *d, const wdev *w, uint32_t row0, uint32_t n, __half *dst, uint32_t ld);

/* wcache.cu: copies of matrices expanded to fp16. wcache_alloc: memory for one, which the caller fills, or NULL;
 * wcache_evict: frees all of them, false where there were none; wcache_has_all: every matrix of the model has one. */
static inline uint32_t wcache_ld(const wdev *w)
{
    return (w->n_in + 7) & ~7u;
}
__half *wcache_alloc(struct device *d, struct wdev *w);
void wcache_free(struct device *d, struct wdev *w);
bool wcache_evict(struct device *d);
void cache_limit(struct device *d, uint64_t bytes);
bool wcache_has_all(const struct device *d, const void *model);

/* lacks.cu: names, for an error message, what the op needs and no launcher implements; NULL: nothing. */
const char *cuda_lacks(const struct op *o);

/* rate.cu */
int read_rate(struct device *d, bool host, uint64_t bytes, double *bytes_per_s, struct hearth_err *e);

/* embed.cu: the architecture for which the code that the current GPU runs was compiled, 90 for sm_90: the card's own,
 * or that of older PTX; 0: this build has no code for it. */
int embed_code(void);
/* gemm.cu; wgmma.cu: bytes of workspace for partial sums and for a matrix input, 0: never used. */
void gemm_init(struct device *d);
void gemm_fini(struct device *d); /* frees what gemm_init() allocated */
uint64_t wg_partials_bytes(const struct device *d, const struct workspace_dims *dims);
uint64_t wg_left_bytes(const struct device *d);
uint64_t wg_x_bytes(const struct device *d, const struct workspace_dims *dims);

/* attend.cu */
void attend_init(struct device *d);
#define HEAD_SIZES "32, 48, 64, 80, 96, 112, 128, 192, 256 and 512, and for latents of 512 in keys of 576"
/* Whether there is attention for keys and values of these sizes (not all of them for Q8_0); d_v as in kv_desc. */
bool attend_supports(enum dtype type, uint32_t d_k, uint32_t d_v);
/* Whether there is attention to such KV for steps of INVARIANT_PROMPT; true for states, which need none. */
bool attend_has_prompts(const struct kv_desc *kv);
/* Words that attention has in a step's metadata, before the first block table. */
uint32_t attend_words(void);
/* Cuts the step's KV into work items: fills in chunk_pages, chunk_magic, attention's words and the device's n_split. */
void attend_cut(struct device *d, step_dev *m);
/* Whether sequences of the step that was just cut share a trunk, which takes other launches. */
bool attend_shares(const struct device *d);
/* Allocates room for the partial results of a step with these lengths; may drop captured graphs. */
void attend_reserve(struct device *d, const step_dev *m);
/* backend.step_bytes: what attend_reserve() will want at most. */
uint64_t attend_bytes(struct device *d, const struct workspace_dims *dims, const struct kv_desc *kv, uint32_t n_group,
                      uint32_t n_token);

#endif
