/*
 * local.cuh - what the files of the backend ask of each other on the host, beside launching ops (plan.cuh) and what
 * follows products (gemm/epilogue.cuh). Kernels need cuda.cuh only.
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

/* spill.cu: weights that stay in the host's memory. Kernels read them there; for many rows a step copies each matrix
 * once, before the op that multiplies by it. spill_add: a matrix of so many bytes is there; spill_remove: it goes, its
 * copies are done. spill_begin, spill_op, spill_op_end: around a step's ops, and around one: its matrix is in a copy
 * between the two. */
int spill_add(struct device *d, const wdev *w, struct hearth_err *e);
void spill_remove(struct device *d, const wdev *w);
uint64_t spill_bytes(const wdev *w);
void spill_begin(struct device *d, const struct program *p);
void spill_op(struct device *d, const struct op *o);
void spill_op_end(struct device *d);
void spill_fini(struct device *d);

/* pool.cu: KV pools. kv_page_ok: refuses a page that the pool has not. kv_granule: bytes in which a pool's memory may
 * come and go; 0: this driver has nothing for that. */
int kv_new(struct device *d, const struct kv_desc *desc, struct kv_pool **out, struct hearth_err *e);
void kv_free(struct device *d, struct kv_pool *p);
int kv_map(struct device *d, struct kv_pool *p, uint32_t extent, struct hearth_err *e);
void kv_unmap(struct device *d, struct kv_pool *p, uint32_t extent);
void kv_copy(struct device *d, struct kv_pool *p, uint32_t dst, uint32_t src);
void kv_clear(struct device *d, struct kv_pool *p, uint32_t page);
bool kv_page_ok(struct device *d, const struct kv_pool *p, uint32_t page);
uint64_t kv_granule(struct device *d);

/* memory.cu: what else is on the list of the device's memory than blocks of cuda_alloc. */
void cuda_count(struct device *d, enum mem_kind kind, uint64_t bytes, bool more);
bool cuda_note_pinned(struct device *d, void *p, uint64_t bytes); /* false: there is no memory for that */
uint64_t cuda_forget(struct device *d, const void *p);            /* the block's bytes; 0: it is not on the list */

/* transfer.cu: KV pages to and from the host. */
void kv_transfer_init(struct device *d);
void kv_transfer_fini(struct device *d);
void kv_transfer_drain(struct device *d); /* waits for every move */
uint64_t kv_save(struct device *d, struct kv_pool *p, const uint32_t *pages, void *const *host, uint32_t n);
uint64_t kv_load(struct device *d, struct kv_pool *p, const uint32_t *pages, const void *const *host, uint32_t n);
int kv_transfer_done(struct device *d, uint64_t ticket, struct hearth_err *e);
int kv_transfer_wait(struct device *d, uint64_t ticket, struct hearth_err *e);

/* pinned.cu: host memory that the GPU reads and writes by itself. */
void pinned_init(void); /* for each device that is opened */
void pinned_fini(void);
int host_alloc(struct device *d, uint64_t bytes, void **out, struct hearth_err *e);
void host_free(struct device *d, void *p);

/* step.cu: capture, replay, results; acts.cu: act_read, act_write. */
void step_init(struct device *d);
void step_fini(struct device *d);
void step_drop_graphs(struct device *d); /* drops captured graphs; waits for what uses them */
uint64_t step_run(struct device *d, const struct batch *b, const struct program *p);
int step_wait(struct device *d, uint64_t ticket, struct sampled *out, uint32_t n, struct hearth_err *e);
int step_failed(struct device *d, struct hearth_err *e); /* what was wrong with the last step, once */
/* Counts rows that an op of the step being run took a path for; what was counted, for device_info. */
void step_count(struct device *d, const char *path, uint32_t rows);
void step_counts(const struct device *d, struct device_info *out);
/* The ticket of the next step, and the latest one that is known to be done: so is all that was submitted before it. */
uint64_t step_next(const struct device *d);
uint64_t step_completed(const struct device *d);
int act_read(struct device *d, enum act a, uint32_t row0, uint32_t n_row, float *out, struct hearth_err *e);
int act_write(struct device *d, enum act a, uint32_t row0, uint32_t n_row, uint32_t n_col, const float *in,
              struct hearth_err *e);

/* What a step gave, in pinned memory that the GPU writes: `ticket` last. */
struct result {
    volatile uint64_t ticket;
    struct sampled out[SLOTS_MAX]; /* a step's, each of a slot of its own */
};
/* Ends a step without `sample`: writes its ticket. */
void done_run(struct device *d, struct result *ring);

/* sample.cu: sample_run; slots.cu: the rest. */
void sample_init(struct device *d);
void sample_fini(struct device *d);
void sample_run(struct device *d, uint32_t bucket, uint32_t n_vocab, struct result *ring);
int slot_set(struct device *d, uint32_t slot, const struct sample_params *p, const int32_t *history, uint32_t n_history,
             uint32_t n_vocab, struct hearth_err *e);
/* Slots that are set, each once, for this vocabulary; refuses the step otherwise. */
bool sample_check(struct device *d, const struct batch_sample *op, uint32_t n_vocab);
/* The last token of each slot, in device memory: what TOKEN_OF_SLOT means. */
const int32_t *slot_tokens(const struct device *d);
/* Makes room for a step's allowed-token masks: [n] rows of words u32 in device memory; NULL on failure. */
uint32_t *mask_room(struct device *d, uint32_t n, uint32_t words);

/* cublaslt.cu: the library, if it is there. */
void prefill_init(struct device *d);
void prefill_fini(struct device *d);
bool prefill_available(const struct device *d);

/* dequant.cu: rows [row0, row0 + n) of the merged output as fp16 [n, ld], from whichever form the weight is kept in. */
void dequant(struct device *d, const wdev *w, uint32_t row0, uint32_t n, __half *dst, uint32_t ld);

/* wcache.cu: expanded copies. wcache_alloc: room for one, which the caller fills, or NULL; wcache_evict: gives all
 * back, false where there were none; wcache_has_all: every matrix of the model has one. */
static inline uint32_t wcache_ld(const wdev *w)
{
    return (w->n_in + 7) & ~7u;
}
__half *wcache_alloc(struct device *d, struct wdev *w);
void wcache_free(struct device *d, struct wdev *w);
bool wcache_evict(struct device *d);
void cache_limit(struct device *d, uint64_t bytes);
bool wcache_has_all(const struct device *d, const void *model);

/* lacks.cu: what the op asks for that no launcher computes, for people; NULL: nothing. */
const char *cuda_lacks(const struct op *o);

/* rate.cu */
int read_rate(struct device *d, bool host, uint64_t bytes, double *bytes_per_s, struct hearth_err *e);

/* embed.cu: the architecture that the code of this build which the current GPU runs was written for, as 90 of sm_90:
 * that of the card, or of older PTX; 0: this build has none for it. */
int embed_code(void);
/* gemm.cu; wgmma.cu: bytes of products and of a matrix input, 0: never used. */
void gemm_init(struct device *d);
void gemm_fini(struct device *d); /* gives back what gemm_init() took */
uint64_t wg_partials_bytes(const struct device *d, const struct workspace_dims *dims);
uint64_t wg_left_bytes(const struct device *d);
uint64_t wg_x_bytes(const struct device *d, const struct workspace_dims *dims);

/* attend.cu */
void attend_init(struct device *d);
#define HEAD_SIZES "32, 48, 64, 80, 96, 112, 128, 192, 256 and 512, and for latents of 512 in keys of 576"
/* Keys and values of such sizes, of Q8_0 not all of them; d_v 0: values are in their keys. */
bool attend_supports(enum dtype type, uint32_t d_k, uint32_t d_v);
/* Whether there is attention for steps of INVARIANT_PROMPT to such KV; a state needs none. */
bool attend_has_prompts(const struct kv_desc *kv);
/* Words of attention's own before the first block table of a step's metadata. */
uint32_t attend_words(void);
/* Cuts the step's KV into work items: fills in chunk_pages, chunk_magic, attention's words and the device's n_split. */
void attend_cut(struct device *d, step_dev *m);
/* Whether sequences of the step that was cut share what they begin with: it has other launches then. */
bool attend_shares(const struct device *d);
/* Room for the partials of a step with these lengths; may drop captured graphs. */
void attend_reserve(struct device *d, const step_dev *m);

#endif
