/*
 * device.cuh - the device: its workspace, a step's metadata and KV as kernels see them, its failures and its memory.
 */
#ifndef HEARTH_CUDA_DEVICE_CUH
#define HEARTH_CUDA_DEVICE_CUH

#include "kernels/cuda/act.cuh"
#include "kernels/cuda/weights.cuh"

enum {
    ATTEND_CHUNK = 256, /* tokens of KV per attention work item at most, where a sum follows positions alone */
    ATTEND_FIRST_PAGES =
        8, /* pages of an item that are read first, one a warp, where heads have up to 128 dimensions */
    GRAPHS_MAX = 64,
    MAX_IN_FLIGHT = 4, /* steps in flight: the engine keeps three, of which one may be two */
    RING = MAX_IN_FLIGHT + 1,
};

/* --- the workspace ---------------------------------------------------------------------------------------------- */

/* What mixtures of experts have in the workspace (experts/). A pair is a row and one of its experts. */
struct alignas(16) experts_job {
    uint32_t expert, first, n; /* its pairs: order[first] to order[first + n - 1] */
    uint32_t at;               /* where its columns begin, of which each job has whole eights: experts/wgmma.cu */
};
/* What is told of a row's route before its kernel has ended (experts/experts.cuh, "told"). */
enum { ROUTE_ALONE = 16 /* rows of a step that have blocks of their own in the router */ };
struct route_said {
    ulonglong2 x[8];                     /* the first: the residual stream is whole. A line of its own */
    ulonglong2 logit[EXPERTS_MAX / 2];   /* two experts' logits each */
    ulonglong2 chosen[EXPERTS_USED_MAX]; /* an id and its weight, as in ACT_ROUTE */
};
struct experts_room {
    float *route;             /* [rows][2 n_used]: ACT_ROUTE */
    float *hidden;            /* [pairs][d_expert]: ACT_EXPERTS */
    float *logits;            /* [rows][n_expert] of the router, or by slices: [4][rows][n_expert] (route_gemm.cu) */
    struct route_said *said;  /* [ROUTE_ALONE] */
    float *row_gate;          /* [rows]: op_ffn_up.row_gate's factors */
    __half *x;                /* [ceil(d_expert / 256)][pairs] records: hidden rows prepared */
    float *y;                 /* [pairs][ldx]: products that are not added up yet */
    uint32_t *order;          /* [pairs] by expert */
    struct experts_job *jobs; /* columns of a product, a matrix each */
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
    act_buf att, ff; /* ACT_ATT [rows, d_q], ACT_FF [rows, d_ff]; their layout is the step's */
    float *tmp;      /* [rows, ldtmp] f32: products that another kernel finishes (post-norm, q/k norm, NEOX pairs) */
    uint32_t ldtmp;  /* pad256(max(d_model, max(d_q, d_mix) + 2 d_kv, 2 d_ff)) */
    float *mix;      /* [rows, ldmix] f32: ACT_MIX */
    float *made;     /* [rows, ldmix] f32: what states/recur.cu makes of it on the way */
    uint32_t ldmix;  /* pad256(d_mix) */
    float *logits;   /* [n_out rounded up, ldl] f32: ACT_LOGITS */
    uint32_t ldl;    /* pad256(n_vocab) */
    uint32_t out_rows;
    float *part; /* attention partials, attend.cu */
    uint64_t part_bytes;
    uint32_t *semaphore; /* [SEMAPHORES] zero between kernels: the last arriver resets what it used */
    __half *wscratch;    /* prefill: one dequantised slice of a matrix */
    uint64_t wscratch_bytes;
    float *split_k;  /* [SPLIT_K_FLOATS] split-K partials of skinny */
    __half *wg_x[2]; /* wgmma.cu: a matrix input by order of k, ACT_FF in `down`'s, and products */
    __half *wg_ff;
    float *wg_partials;
    float4 *wg_left; /* zero between kernels, as semaphores are */
    struct experts_room experts;
};
/* What few models have beside, in the same block. */
struct workspace_apart {
    float *aside;   /* [rows, ldx]: ACT_ASIDE */
    float *inputs;  /* [rows, d_inputs]: ACT_INPUTS */
    act_buf latent; /* ACT_LATENT, prepared */
};
enum { SEMAPHORES = 1 << 16, SPLIT_K_FLOATS = 1 << 22 };

/* --- the step's metadata, in device memory ---------------------------------------------------------------------- */

enum { NO_SLOT = 0xffffffffu };

/* Rows from n_row up to the bucket are padded with token 0, position 0, kv_slot NO_SLOT: they may be computed and
 * stored in the workspace, never in KV. Out rows from n_out up are 0. */
struct step_group { /* what differs between a model's layer groups */
    /* What to add to a page's place in the sequence's block table for its place in pages[], modulo 2^32: tables of a
     * group with a window begin where the window does. */
    uint32_t pages0[BATCH_SEQS_MAX];
    uint32_t kv_slot[BATCH_ROWS_MAX]; /* page * KV_PAGE + pos % KV_PAGE: where the row's K and V go */
};
/* Of arrays by rows a step brings what it has rows of: metadata_upload(). */
struct step_dev {
    uint64_t ticket; /* written to the result ring when all is done */
    uint32_t n_row, n_seq, n_out, n_sample;
    uint32_t chunk_pages, chunk_magic; /* attention: KV pages of an item, 0 by head size; fastdiv_magic of it */
    uint32_t freq_set[BATCH_SEQS_MAX];
    uint32_t row0[BATCH_SEQS_MAX], n_rows[BATCH_SEQS_MAX], pos0[BATCH_SEQS_MAX];
    int32_t token[BATCH_ROWS_MAX]; /* ids, or TOKEN_OF_SLOT */
    uint32_t pos[BATCH_ROWS_MAX];
    uint32_t seq[BATCH_ROWS_MAX]; /* sequence of the row */
    uint32_t out_row[BATCH_ROWS_MAX];
    uint32_t slot[SLOTS_MAX], index[SLOTS_MAX], mask[SLOTS_MAX]; /* sample; mask: row of masks or NO_SLOT */
    struct step_group group[1];                                  /* as many as the batch has; then the block tables */
};

/* The frequencies that the row turns by. */
__device__ static inline const float *rope_frequencies(const struct rope &r, const step_dev *s, uint32_t row)
{
    return r.n_set > 1 ? r.inv_freq + s->freq_set[s->seq[row]] * (r.n_rot / 2) : r.inv_freq;
}

/* --- KV ------------------------------------------------------------------------------------------------------- */

struct kv_pool {
    struct kv_desc desc;
    uint8_t *base; /* [n_page] pages, as the contract lays them out */
    uint64_t page_bytes, layer_bytes;
    unsigned long long *mapped; /* [kv_extents] the driver's handles of their memory, 0: none; NULL: one allocation */
};
/* One layer of a pool, by value to kernels: of fp16, or of Q8_0, where kv_q8.cuh says what lies in a page. */
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
 * KV that is NaN. A page's places that no token has yet keep what another sequence left there. Of keys that does no
 * harm, since scores of such places are put aside by their position; values are multiplied by 0 there, and NaN times 0
 * is NaN. So values in KV are numbers always: one that is none becomes 0, and the row that it is of says so in its
 * place, through the residual stream. Only weights make such a value alone, and those of every row; a row that is NaN
 * itself has NaN keys, too, and so whoever attends to it sees it.
 */
__device__ static inline void value_is_nan(float *x)
{
    *x = __int_as_float(0x7fffffff);
}

/* --- the device ----------------------------------------------------------------------------------------------- */

enum variant { VARIANT_GRAPH, VARIANT_EAGER, VARIANT_REFERENCE };
enum { SMEM_LEAST = 99 << 10 /* bytes of a block: what every card since Ampere allows */ };

struct step_rec;    /* step.cu */
struct sampler;     /* sample.cuh */
struct uploader;    /* upload.cu */
struct kv_transfer; /* transfer.cu */
struct lt;          /* cublaslt.cu */
struct spill;       /* spill.cu */
struct cuda_block;  /* memory.cu */

struct device {
    int index, sms, cc; /* cc: 90 for sm_90; what its code may use (dev_open) */
    uint64_t smem_card, smem_max /* of a block: that the card allows, and that is used */, kv_granule;
    char name[96], id[160]; /* see device_info */
    enum variant variant;
    bool reference; /* matrices stay as in the file and go through ref.cu */
    bool pdl;       /* the chip has programmatic dependent launch and the variant wants it */
    bool pdl_chain; /* the launch before this one on the stream may be overlapped */
    cudaStream_t stream,
        copy; /* steps and everything in step order; weight uploads (moves have their own: transfer.cu) */
    cudaEvent_t uploaded;
    struct hearth_err err;                      /* the first failure; code 0 = none */
    uint64_t hot_allocs, hot_graphs, hot_waits; /* see device_info; counted wherever they are done */
    bool capturing;
    struct workspace ws;
    step_dev *step;                    /* device memory */
    uint32_t *pages;                   /* device memory: the step's block tables, one after the other */
    uint32_t pages_cap;                /* words behind step_dev: more groups, block tables */
    struct kv_pool *kv[KV_GROUPS_MAX]; /* the step's pools */
    uint32_t n_group;
    uint32_t mix_cols;            /* columns of ACT_MIX, by who wrote it last */
    uint32_t bucket, out_bucket;  /* the step's buckets of rows and of out rows */
    uint32_t n_row, n_seq, n_out; /* host's copy: eager launchers may use them, captured ones must not */
    const step_dev *host;         /* likewise */
    uint32_t max_pos;             /* host's copy, likewise: longest sequence of the step */
    bool decode;                  /* every sequence of the step has one row */
    enum invariance invariant;    /* what a row's bits may depend on */
    enum path path;               /* of this step's products, where one takes them whole; else PATH_NONE */
    struct step_rec *rec;
    struct sampler *sampler;
    struct uploader *up;
    struct kv_transfer *kv_transfer;
    struct lt *lt;
    struct spill *spill; /* NULL: no matrix is in the host's memory */
    struct wdev *weights;
    struct {
        struct cuda_block *v;
        uint32_t n, cap;
    } mem;                    /* what cuda_alloc has given out */
    uint64_t held[MEM_KINDS]; /* bytes of it, by what it is for */
    uint64_t pinned;          /* bytes of host memory of host_alloc */
    uint64_t wcache_bytes;    /* in expanded copies */
    uint64_t wcache_budget;   /* for more of them, where wcache_budget_known */
    bool wcache_budget_known;
    uint64_t wcache_limit; /* bytes that all copies may have */
    uint32_t n_split;   /* chunks of attention a sequence may have, a power of two: a captured step's grids follow it */
    enum dtype kv_type; /* of the pools: DT_F16 or DT_Q8_0 */
    struct workspace_apart apart;
    uint32_t team; /* warps that share an item of decode.cu: a captured step's kernels follow it */
};

/* Keeps the first failure of the device; false where `rc` is one. */
bool cuda_fail(struct device *d, cudaError_t rc, const char *what, const char *file, int line);
#define cuda_ok(d, call) cuda_fail(d, (call), #call, __FILE__, __LINE__)
/* A failure that is not the runtime's: an op called with what the backend cannot do. */
void cuda_refuse(struct device *d, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The code of the first failure, 0: there was none; it is told to *e, which may be NULL. */
int cuda_failure(const struct device *d, struct hearth_err *e);

/* Device memory, counted; NULL and *e (may be NULL) on failure, which does not stick. */
void *cuda_alloc_for(struct device *d, enum mem_kind kind, uint64_t bytes, const char *what, struct hearth_err *e);
static inline void *cuda_alloc(struct device *d, uint64_t bytes, const char *what, struct hearth_err *e)
{
    return cuda_alloc_for(d, MEM_WORKSPACE, bytes, what, e);
}
void cuda_free(struct device *d, void *p); /* counts as a wait: the runtime waits for what is under way */
/* The host waits for all steps: counted. */
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
