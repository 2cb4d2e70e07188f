/*
 * device.cuh - the device: its workspace, a step's metadata and KV as kernels see them, its failures and its memory.
 */
#ifndef HEARTH_CUDA_DEVICE_CUH
#define HEARTH_CUDA_DEVICE_CUH

#include "kernels/cuda/act.cuh"
#include "kernels/cuda/weights.cuh"

enum {
    ATTEND_CHUNK = 256,     /* at most, in tokens of KV per attention work item cut at fixed positions */
    ATTEND_FIRST_PAGES = 8, /* pages of an item that are read first, one per warp, for heads of up to 128 dimensions */
    GRAPHS_MAX = 64,
    MAX_IN_FLIGHT = 4, /* steps in flight: the engine keeps one fewer where a plan may be two steps */
    RING = MAX_IN_FLIGHT + 1,
};

/* --- the workspace ---------------------------------------------------------------------------------------------- */

/* The part of the workspace for mixtures of experts (experts/). A pair is a row and one of its experts. */
struct alignas(16) experts_job {
    uint32_t expert, first, n; /* its pairs: order[first] to order[first + n - 1] */
    uint32_t at; /* its first column; each job's columns are padded to a multiple of 8: experts/wgmma.cu */
};
/* What a router publishes about a row before its kernel has ended (experts/told.cuh). */
enum { ROUTE_ALONE = 16 /* up to so many rows in a step, each has blocks of its own in the router */ };
struct route_said {
    ulonglong2 x[8];                     /* x[0]: the residual stream is complete. A cache line of its own */
    ulonglong2 logit[EXPERTS_MAX / 2];   /* the logits of two experts each */
    ulonglong2 chosen[EXPERTS_USED_MAX]; /* an id and its weight, as in ACT_ROUTE */
};
struct experts_room {
    float *route;  /* [rows][2 n_used]: ACT_ROUTE */
    float *hidden; /* [pairs][d_expert]: ACT_EXPERTS */
    float *logits; /* [rows][n_expert] of the router, or by slices of K: [4][rows][n_expert] (route_gemm.cu) */
    struct route_said *said;  /* [ROUTE_ALONE], followed by more slots: experts/told.cuh */
    float *row_gate;          /* [rows]: op_ffn_up.row_gate's factors */
    __half *x;                /* [ceil(d_expert / 256)][pairs] records: hidden rows in the prepared form */
    float *y;                 /* [pairs][ldx]: products of `down` before they are summed by row */
    uint32_t *order;          /* [pairs] pairs sorted by expert */
    struct experts_job *jobs; /* pairs of one expert that a product with its matrix takes as columns */
    uint32_t *n_job;
};

struct workspace {
    struct workspace_dims dims; /* physical capacity */
    uint32_t rows;              /* capacity in rows: dims.n_row and n_out rounded up to GEMM_ROWS */
    void *block;                /* the one allocation behind everything below */
    uint64_t bytes;
    float *x;        /* [rows, ldx] f32: ACT_X */
    uint32_t ldx;    /* pad256(d_model) */
    act_buf xn;      /* [rows, d_model] prepared norm(x), for GEMMs that do not make it themselves */
    __half *q;       /* [rows, ldq] fp16 row-major: ACT_Q, after bias, norm and RoPE, not scaled */
    uint32_t ldq;    /* pad256(d_q) */
    act_buf att, ff; /* ACT_ATT [rows, d_q], ACT_FF [rows, d_ff]; the step decides their layout */
    float *tmp;      /* [rows, ldtmp] f32: products that another kernel finishes (post-norm, q/k norm, NEOX pairs) */
    uint32_t ldtmp;  /* pad256(max(d_model, max(d_q, d_mix) + 2 d_kv, 2 d_ff)) */
    float *mix;      /* [rows, ldmix] f32: ACT_MIX */
    float *made;     /* [rows, ldmix] f32: intermediate results of states/recur.cu */
    uint32_t ldmix;  /* pad256(d_mix) */
    float *logits;   /* [n_out rounded up, ldl] f32: ACT_LOGITS */
    uint32_t ldl;    /* pad256(n_vocab) */
    uint32_t out_rows;
    float *part; /* attention partials, attend.cu */
    uint64_t part_bytes;
    uint32_t *semaphore; /* [SEMAPHORES] zero between kernels: the last arriver resets what it used */
    __half *wscratch;    /* cublaslt path: one dequantised slice of a matrix */
    uint64_t wscratch_bytes;
    float *split_k;     /* [SPLIT_K_FLOATS] split-K partial sums of skinny */
    __half *wg_x[2];    /* wgmma.cu: a matrix input, one buffer per order of k (split_k.cuh) */
    __half *wg_ff;      /* ACT_FF in the order that `down` needs */
    float *wg_partials; /* partial sums of products */
    float4 *wg_left;    /* partial sums within launches that finish their product; zero between kernels */
    struct experts_room experts;
};
/* Activations that only few models have, in the same block. */
struct workspace_apart {
    float *aside;   /* [rows, ldx]: ACT_ASIDE */
    float *inputs;  /* [rows, d_inputs]: ACT_INPUTS */
    act_buf latent; /* ACT_LATENT, prepared */
};
enum { SEMAPHORES = 1 << 16, SPLIT_K_FLOATS = 1 << 22 };

/* --- the step's metadata, in device memory ---------------------------------------------------------------------- */

enum { NO_SLOT = 0xffffffffu };

/* Rows from n_row up to the bucket are padding with token 0, position 0, kv_slot NO_SLOT: they may be computed and
 * stored in the workspace, never in KV. Padding entries of out_row, from n_out on, are 0. */
struct step_group { /* what differs between a model's layer groups */
    /* Offset, modulo 2^32, from a page's index in the sequence's block table to its index in pages[]. For a group with
     * a window, pages[] has only the part of the table from the window on. */
    uint32_t pages0[BATCH_SEQS_MAX];
    uint32_t kv_slot[BATCH_ROWS_MAX]; /* page * KV_PAGE + pos % KV_PAGE: where the row's K and V go */
};
/* A step uploads only the used part of each array: metadata_upload(). */
struct step_dev {
    uint64_t ticket; /* written to the result ring when the step is done */
    uint32_t n_row, n_seq, n_out, n_sample;
    uint32_t chunk_pages, chunk_magic; /* KV pages per attention work item, 0: by head size; its fastdiv_magic */
    uint32_t freq_set[BATCH_SEQS_MAX];
    uint32_t row0[BATCH_SEQS_MAX], n_rows[BATCH_SEQS_MAX], pos0[BATCH_SEQS_MAX];
    int32_t token[BATCH_ROWS_MAX]; /* ids, or TOKEN_OF_SLOT */
    uint32_t pos[BATCH_ROWS_MAX];
    uint32_t seq[BATCH_ROWS_MAX]; /* sequence of the row */
    uint32_t out_row[BATCH_ROWS_MAX];
    uint32_t slot[SLOTS_MAX], index[SLOTS_MAX], mask[SLOTS_MAX]; /* sample; mask: row of masks or NO_SLOT */
    struct step_group group[1]; /* as many as the batch has; then attention's words, then the block tables */
};

/* The RoPE frequencies of the row's sequence. */
__device__ static inline const float *rope_frequencies(const struct rope &r, const step_dev *s, uint32_t row)
{
    return r.n_set > 1 ? r.inv_freq + s->freq_set[s->seq[row]] * (r.n_rot / 2) : r.inv_freq;
}

/* --- KV ------------------------------------------------------------------------------------------------------- */

struct kv_pool {
    struct kv_desc desc;
    uint8_t *base; /* [n_page] pages, as the contract lays them out */
    uint64_t page_bytes, layer_bytes;
    unsigned long long *mapped; /* [kv_extents] the driver's memory handles, 0: unmapped; NULL: no extents */
};
/* One layer of a pool, passed to kernels by value: of fp16, or of Q8_0 in the layout of kv_q8.cuh. */
struct kv_view {
    __half *base;       /* page 0, this layer, K */
    uint64_t page_step; /* halves from page to page */
    uint32_t v_off;     /* halves from K to V */
    uint32_t n_kv, d_head;
};
__device__ static inline __half *kv_k(const kv_view &v, uint32_t slot, uint32_t head)
{
    return v.base + (slot / KV_PAGE) * v.page_step + ((uint64_t)head * KV_PAGE + slot % KV_PAGE) * v.d_head;
}
__device__ static inline __half *kv_v(const kv_view &v, uint32_t slot, uint32_t head)
{
    return kv_k(v, slot, head) + v.v_off;
}

/*
 * NaN and KV. Positions of a page that have no token yet keep what another sequence left there. Stale keys do no harm,
 * since their scores are masked by position; but stale values are multiplied by 0, and NaN times 0 is NaN. So values in
 * KV are never NaN: a NaN value is stored as 0, and the row that it belongs to is made NaN in the residual stream
 * instead, by this function. No NaN is lost by that: NaN values without NaN keys can only come from the weights, which
 * are the same for every row; and a row that is NaN itself has NaN keys, too, which every row that attends to it sees.
 */
__device__ static inline void value_is_nan(float *x)
{
    *x = __int_as_float(0x7fffffff);
}

/* --- the device ----------------------------------------------------------------------------------------------- */

enum variant { VARIANT_GRAPH, VARIANT_EAGER, VARIANT_REFERENCE };
enum { SMEM_LEAST = 99 << 10 /* bytes of shared memory that every card since Ampere allows a block */ };

struct step_rec;    /* step.cu */
struct sampler;     /* sample.cuh */
struct uploader;    /* upload.cu */
struct kv_transfer; /* transfer.cu */
struct lt;          /* cublaslt.cu */
struct spill;       /* spill.cu */
struct cuda_block;  /* memory.cu */

struct device {
    int index, sms, cc; /* cc: 90 for sm_90; the architecture whose features kernels may use (dev_open) */
    uint64_t smem_card, smem_max /* shared memory per block: the card's limit; the limit in use */, kv_granule;
    char name[96], id[160]; /* see device_info */
    enum variant variant;
    bool reference; /* matrices stay as in the file and go through ref.cu */
    bool pdl;       /* the chip has programmatic dependent launch and the variant uses it */
    bool pdl_chain; /* the next kernel may be launched before the previous one on the stream has ended */
    cudaStream_t stream,
        copy; /* steps and all that is in step order; weight uploads. KV transfers have their own: transfer.cu */
    cudaEvent_t uploaded;
    struct hearth_err err;                      /* the first failure; code 0 = none */
    uint64_t hot_allocs, hot_graphs, hot_waits; /* see device_info; counted where they happen */
    bool capturing;
    struct workspace ws;
    step_dev *step;                    /* device memory */
    uint32_t *pages;                   /* device memory: the step's block tables, concatenated */
    uint32_t pages_cap;                /* capacity behind step_dev in words: more groups, attention's, block tables */
    struct kv_pool *kv[KV_GROUPS_MAX]; /* the step's pools */
    uint32_t n_group;
    uint32_t mix_cols;            /* columns of ACT_MIX, as last written */
    uint32_t bucket, out_bucket;  /* the step's buckets of rows and of out rows */
    uint32_t n_row, n_seq, n_out; /* on the host: launchers may use them in eager steps, not in captured ones */
    const step_dev *host;         /* likewise: the host's copy of the metadata */
    uint32_t max_pos;             /* likewise: length of the step's longest sequence */
    bool decode;                  /* every sequence of the step has one row */
    enum invariance invariant;    /* what a row's bits may depend on */
    enum path path;               /* the step's path of PATHS_WHOLE (rules.h) for products, or PATH_NONE */
    struct step_rec *rec;
    struct sampler *sampler;
    struct uploader *up;
    struct kv_transfer *kv_transfer;
    struct lt *lt;
    struct spill *spill; /* NULL: no matrix has been in host memory */
    struct wdev *weights;
    struct {
        struct cuda_block *v;
        uint32_t n, cap;
    } mem;                    /* the blocks of cuda_alloc and host_alloc */
    uint64_t held[MEM_KINDS]; /* bytes of device memory, by what it is for */
    uint64_t pinned;          /* bytes of host memory of host_alloc */
    uint64_t wcache_bytes;    /* bytes of expanded copies of matrices (wcache.cu) */
    uint64_t wcache_budget;   /* bytes free for more of them, where wcache_budget_known */
    bool wcache_budget_known;
    uint64_t wcache_limit; /* limit of wcache_bytes */
    uint32_t n_split; /* attention chunks per sequence at most, a power of two; a captured step's grids depend on it */
    enum dtype kv_type; /* of the pools: DT_F16 or DT_Q8_0 */
    struct workspace_apart apart;
    uint32_t team;     /* warps that share a work item of decode.cu; a captured step's kernels depend on it */
    uint64_t foreseen; /* the most that attend_bytes() has returned */
};

/* Records a runtime error as the device's failure, if it is the first; returns false where `rc` is an error. */
bool cuda_fail(struct device *d, cudaError_t rc, const char *what, const char *file, int line);
#define cuda_ok(d, call) cuda_fail(d, (call), #call, __FILE__, __LINE__)
/* Records a failure that is not the runtime's, such as an op that the backend cannot run. */
void cuda_refuse(struct device *d, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Returns the code of the first failure, 0 if there was none, and copies it to *e (may be NULL). */
int cuda_failure(const struct device *d, struct hearth_err *e);

/* Device memory, counted; NULL and *e (may be NULL) on failure. Running out of memory does not stick. */
void *cuda_alloc_for(struct device *d, enum mem_kind kind, uint64_t bytes, const char *what, struct hearth_err *e);
static inline void *cuda_alloc(struct device *d, uint64_t bytes, const char *what, struct hearth_err *e)
{
    return cuda_alloc_for(d, MEM_WORKSPACE, bytes, what, e);
}
void cuda_free(struct device *d, void *p); /* counts as a wait: the runtime waits for all running work */
/* Waits for all steps; counts as a wait. */
void cuda_wait(struct device *d);

static inline kv_view kv_view_of(const struct kv_pool *p, uint32_t layer)
{
    kv_view v;
    v.base = (__half *)(p->base + layer * p->layer_bytes);
    v.page_step = p->page_bytes / 2;
    v.v_off = (uint32_t)(kv_k_bytes(&p->desc) / 2);
    v.n_kv = p->desc.n_kv, v.d_head = p->desc.d_k;
    return v;
}

#endif
