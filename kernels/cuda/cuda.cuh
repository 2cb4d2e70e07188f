/*
 * cuda.cuh - what the files of the CUDA backend share: the device, its workspace, the launch, the weights' device
 * form, the step's metadata, and the layout of activations. Included by kernels/cuda/ alone.
 *
 * The backend is C with templates: no STL, no exceptions. Kernels first in a file, launchers last. Every kernel is
 * launched through cuda_launch_on(), every runtime call is checked with cuda_ok(); the first failure sticks in the
 * device.
 *
 * A step (step.cu) runs a program's ops eagerly, under capture, or not at all where a captured graph of the same
 * program and shape is replayed. So what an op's launcher reads from the host must be the same at every replay, and
 * what changes from step to step (tokens, positions, lengths, block tables, slots) lies in `struct step_dev` in device
 * memory. Grids and template choices follow `cap`, the bucket of rows, not the row count.
 */
#ifndef HEARTH_CUDA_CUH
#define HEARTH_CUDA_CUH

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

extern "C" {
#include "kernels/backend.h"
#include "kernels/cuda/rules.h"
}
#include "kernels/cuda/gemm/split_k.cuh"

enum {
    ATTEND_CHUNK = 256, /* tokens of KV per attention work item at most, where a sum follows positions alone */
    ATTEND_FIRST_PAGES =
        8, /* pages of an item that are read first, one a warp, where heads have up to 128 dimensions */
    GRAPHS_MAX = 64,
    MAX_IN_FLIGHT = 4, /* steps in flight: the engine keeps three, of which one may be two */
    RING = MAX_IN_FLIGHT + 1,
};

/* --- activations ---------------------------------------------------------------------------------------------- */

/* clang-format off */
/*
 * The prepared form of a matrix input: fp16 in the order in which mma fragments want it, with sub-block sums.
 * Records of 256 elements, XFRAG_KBLK halves each, lie [ceil(k / 256)][BATCH_ROWS_MAX rows]: a step's rows of a record are
 * one piece, and one bulk copy brings them. In a record:
 *     4 groups of 64 elements, each padded to 72 halves (so that four lanes' 16-byte loads hit different banks);
 *       within a group, every 4 consecutive elements lie in the order 0,2,1,3: a lane's 8 bytes are then the
 *       B fragment's (x0,x2),(x1,x3), which is how nibbles come out of `w & 0x000f000f` and `w >> 8`
 *     8 halves: S_hi of the 8 sub-blocks of 32; 8 halves: S_lo; S = sum of the *rounded* elements, split hi + lo
 *     padding, so that the 16-byte loads of neighbouring rows hit different banks
 * One form serves every weight type. Elements past k are finite (weights there are zero).
 *
 * The plain form is row-major fp16 (the cuBLASLt prefill path reads it): `plain` says which one a buffer holds.
 */
/* clang-format on */
enum {
    XFRAG_GROUP = 72,
    XFRAG_SUM = 4 * XFRAG_GROUP,
    XFRAG_KBLK = XFRAG_SUM + 64,
    XFRAG_STRIDE = BATCH_ROWS_MAX * XFRAG_KBLK, /* halves from record to record of a row */
};

enum { LAYOUT_ROW_MAJOR = 1, LAYOUT_WG = 2 /* and 3: of wgmma's fragments, by order: split_k.cuh */ };
struct act_buf {
    __half *p;
    uint32_t ld;     /* halves from row to row: XFRAG_KBLK in the prepared form; the number of rows in LAYOUT_WG */
    uint32_t layout; /* 1 = row-major fp16, 0 = prepared, or LAYOUT_WG and its order */
};
/*
 * Where element k of a row of n lies in LAYOUT_WG, and the element after it `ld` * 8 halves further. Rows come in
 * blocks of WG_ROWS.
 */
__device__ static inline __half *wg_place(const act_buf &o, uint32_t row, uint32_t k, uint32_t n)
{
    return o.p + (uint64_t)(row / WG_ROWS) * WG_ROWS * ((n + 255) & ~255u) +
           wg_at(o.layout - LAYOUT_WG, o.ld, row % WG_ROWS, k);
}

/* Halves of a buffer of prepared rows. */
__host__ __device__ static inline uint64_t xfrag_halves(uint32_t k)
{
    return (k + 255) / 256 * (uint64_t)XFRAG_STRIDE;
}
/* Offset of element k in a prepared row, and of its sub-block's S_hi (S_lo is 8 further). */
__host__ __device__ static inline uint32_t xfrag_at(uint32_t k)
{
    uint32_t j = k & 3;
    return (k >> 8) * XFRAG_STRIDE + (k >> 6 & 3) * XFRAG_GROUP + (k & 60) + (j == 1 ? 2 : j == 2 ? 1 : j);
}
__host__ __device__ static inline uint32_t xfrag_sum_at(uint32_t k)
{
    return (k >> 8) * XFRAG_STRIDE + XFRAG_SUM + (k >> 5 & 7);
}
__device__ static inline uint32_t act_at(const act_buf &a, uint32_t row, uint32_t k)
{
    return row * a.ld + (a.layout ? k : xfrag_at(k));
}

/* The greater and the lesser of two; NaN where one is, which fmaxf and fminf would lose: of a model with such weights
 * the logits must show it. */
__device__ static inline float max_nan(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    return a > b || isnan(a) ? a : b;
#endif
}
__device__ static inline float min_nan(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    return a < b || isnan(a) ? a : b;
#endif
}

/* f32 to fp16, saturating; NaN stays. */
__device__ static inline __half half_sat(float v)
{
    return __float2half_rn(min_nan(max_nan(v, -65504.f), 65504.f));
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

/* Padded element count of every workspace row. */
static inline uint32_t pad256(uint32_t n)
{
    return (n + 255) & ~255u;
}

/* What mixtures of experts have in the workspace (experts/). A pair is a row and one of its experts. */
struct experts_job {
    uint32_t expert, first, n; /* its pairs: order[first] to order[first + n - 1] */
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
    float *logits;            /* [rows][n_expert] of the router */
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
    __half *xn;      /* [rows, ldxn] prepared norm(x), for GEMMs that do not make it themselves */
    uint32_t ldxn;   /* XFRAG_KBLK */
    __half *q;       /* [rows, ldq] fp16 row-major: ACT_Q, after bias, norm and RoPE, not scaled */
    uint32_t ldq;    /* pad256(d_q) */
    act_buf att, ff; /* ACT_ATT [rows, d_q], ACT_FF [rows, d_ff]; `plain` is set per step */
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
    float *split_k;  /* [SPLIT_K_FLOATS] split-K partials of the GEMM body */
    __half *wg_x[2]; /* wgmma.cu: a matrix input by order of k, ACT_FF in `down`'s, and products */
    __half *wg_ff;
    float *wg_partials;
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
struct step_group {                   /* what differs between a model's layer groups */
    uint32_t kv_slot[BATCH_ROWS_MAX]; /* page * KV_PAGE + pos % KV_PAGE: where the row's K and V go */
    /* What to add to a page's place in the sequence's block table for its place in pages[], modulo 2^32: tables of a
     * group with a window begin where the window does. */
    uint32_t pages0[BATCH_SEQS_MAX];
};
struct step_dev {
    uint64_t ticket; /* written to the result ring when all is done */
    uint32_t n_row, n_seq, n_out, n_sample;
    uint32_t chunk_pages, chunk_magic; /* attention: KV pages of an item, 0 by head size; fastdiv_magic of it */
    int32_t token[BATCH_ROWS_MAX];     /* ids, or TOKEN_OF_SLOT */
    uint32_t pos[BATCH_ROWS_MAX];
    uint32_t seq[BATCH_ROWS_MAX]; /* sequence of the row */
    uint32_t freq_set[BATCH_SEQS_MAX];
    uint32_t out_row[BATCH_ROWS_MAX];
    uint32_t row0[BATCH_SEQS_MAX], n_rows[BATCH_SEQS_MAX], pos0[BATCH_SEQS_MAX];
    uint32_t slot[BATCH_ROWS_MAX], index[BATCH_ROWS_MAX],
        mask[BATCH_ROWS_MAX];   /* sample; mask: row of masks or NO_SLOT */
    struct step_group group[1]; /* as many as the batch has; then the block tables */
};

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

/* The frequencies that the row turns by. */
__device__ static inline const float *rope_frequencies(const struct rope &r, const step_dev *s, uint32_t row)
{
    return r.n_set > 1 ? r.inv_freq + s->freq_set[s->seq[row]] * (r.n_rot / 2) : r.inv_freq;
}

/* cos and sin of pos * inv_freq. The specification takes the angle in double; here it is a pair of floats, reduced by
 * 2 pi in three parts: 2^-21 absolute is enough where Q and K are fp16. */
__device__ static inline void rope_sincos(float pos, float inv_freq, float *s, float *c)
{
    float a = pos * inv_freq, low = fmaf(pos, inv_freq, -a), k = rintf(a * 0.15915494309189535f);
    a = fmaf(-k, 6.28125f, a);
    a = fmaf(-k, 1.9350051879882812e-3f, a);
    a = fmaf(-k, 3.0199159819567e-7f, a) + low;
    *s = __sinf(a), *c = __cosf(a);
}

/* The specification's activations (kernels/cpu/elem.h) to f32 accuracy. */
__device__ static inline float act_sigmoid(float x)
{
    return 1.f / (1.f + __expf(-x));
}
__device__ static inline float act_gelu(float x)
{
    return x * act_sigmoid(fmaf(x * x, 0.044715f * 1.5957691216f, 1.5957691216f) * x);
}
__device__ static inline float glu_act(enum glu_kind glu,
                                       float gate) /* multiply by up, or by 1 where there is no gate */
{
    if (glu == GLU_RELU2) {
        float x = max_nan(gate, 0.f);
        return x * x;
    }
    return glu == GLU_SWIGLU ? gate * act_sigmoid(gate) : act_gelu(gate);
}
/* glu_gated(), for kernels too. */
__host__ __device__ static inline bool has_gate(enum glu_kind glu)
{
    return glu == GLU_SWIGLU || glu == GLU_GEGLU || glu == GLU_OAI;
}
/* act(gate) and up as they are joined; `up` is 1 where there is no gate. */
__device__ static inline float glu_of(enum glu_kind glu, float gate, float up)
{
    if (glu == GLU_OAI) {
        float g = min_nan(gate, 7.f), u = max_nan(min_nan(up, 7.f), -7.f);
        return g * act_sigmoid(1.702f * g) * (u + 1.f);
    }
    return glu_act(glu, gate) * up;
}
__device__ static inline float act_softcap(float x, float cap)
{
    return cap * tanhf(x / cap);
}

/* op_qkv.temperature by value to kernels, and what queries at a position are multiplied with. */
struct attend_temperature {
    float beta;
    uint32_t length;
};
static inline struct attend_temperature temperature_of(const struct op_qkv *op)
{
    return {op->temperature.beta, op->temperature.length};
}
__device__ static inline float temperature_at(const struct attend_temperature &t, uint32_t pos)
{
    return fmaf(t.beta, logf((float)(1 + pos / t.length)), 1.f);
}
static inline float residual_scale(const struct op_proj *op)
{
    return op->residual_scale != 0 ? op->residual_scale : 1;
}

/* Whether what comes out of the product is more than added to the residual stream. */
static inline bool proj_apart(const struct op_proj *op)
{
    return op->post_norm || op->aside || op->x_scale != 0;
}

/* --- weights -------------------------------------------------------------------------------------------------- */

/* Tiles of 16 rows x 256 k in T16 records (gemm.cuh says the layout by type); a part's tiles follow one another,
 * [n_tile][n_kblk] records, unless pack_plan() interleaves gate and up. */
struct wpart {
    enum dtype type;
    uint32_t n_out, row0;   /* rows of the part, and its first row in the merged output */
    uint32_t tile0, n_tile; /* filled by pack_plan() */
    uint64_t off;           /* bytes from `packed` to its first record; filled by pack_plan() */
    uint8_t *raw;           /* rows as in the file: the reference variant */
    uint64_t raw_row_bytes;
};
struct wdev {
    enum weight_role role;
    uint32_t n_in, n_out, n_kblk, n_part, n_tile;
    struct wpart part[3];
    uint8_t *packed;       /* device memory, or `host`, or a copy of it */
    uint8_t *host;         /* pinned host memory, where the matrix is kept there; else NULL */
    uint64_t packed_bytes; /* filled by pack_plan() */
    uint32_t interleaved;  /* gate and up share tiles: 8 rows each; filled by pack_plan() */
    uint32_t n_expert;     /* 0, or so many matrices of these parts, one after the other */
    uint64_t expert_bytes; /* from one to the next, of all parts; filled by pack_plan() */
    bool plain;            /* rows of F32, those of all parts at part[0].raw: multiplied by experts/route.cu */
    __half *cached;        /* all rows expanded, [n_out][wcache_ld()], or NULL: wcache.cu */
    struct wdev *next;     /* list of the device's weights */
    const void *model;     /* see weight */
};
/* Whether the dense products' paths multiply by it: some are chosen for all such matrices of a model. */
static inline bool wdev_dense(const wdev *w)
{
    return w->role == WEIGHT_QKV || w->role == WEIGHT_PROJ || w->role == WEIGHT_GATE_UP ||
           (w->role == WEIGHT_MIXER && !w->plain);
}
static inline const wdev *wdev_of(const struct weight *w)
{
    return (const wdev *)w->dev;
}
/* Columns of ACT_FF that the op makes. */
static inline uint32_t d_ff_of(const struct op_ffn_up *op)
{
    return wdev_of(op->w)->n_out / (has_gate(op->glu) ? 2 : 1);
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
    uint64_t l2_bytes, smem_card, smem_max /* of a block: that the card allows, and that is used */, kv_granule;
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

/* The one place where kernels are launched; false where nothing was. `early`: before the kernel before it has ended;
 * `cluster`: blocks of a thread block cluster, which divide the grid. */
template <typename... P, typename... A>
static inline bool cuda_launch_on(struct device *d, cudaStream_t stream, bool early, uint32_t cluster, void (*k)(P...),
                                  dim3 grid, uint32_t block, size_t smem, A... args)
{
    if (d->err.code || !grid.x || !grid.y || !grid.z)
        return false;
    cudaLaunchAttribute attr[2];
    uint32_t n = 0;
    if (early) {
        attr[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[n++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attr[n].id = cudaLaunchAttributeClusterDimension;
        attr[n].val.clusterDim.x = cluster, attr[n].val.clusterDim.y = attr[n].val.clusterDim.z = 1;
        n++;
    }
    cudaLaunchConfig_t c = {};
    c.gridDim = grid;
    c.blockDim = dim3(block);
    c.dynamicSmemBytes = smem;
    c.stream = stream;
    c.attrs = attr;
    c.numAttrs = n;
    return cuda_ok(d, cudaLaunchKernelEx(&c, k, P(args)...));
}

/*
 * A kernel of a step. LAUNCH_PDL: the kernel calls pdl_wait() before it touches anything that an earlier kernel writes
 * or reads (weights and vectors are constants), and pdl_trigger() as soon as its successor may start. Every kernel
 * launched with LAUNCH_PDL must call pdl_wait(), or completion is not transitive. Dynamic shared memory above 48 KiB:
 * call cuda_smem() once, in the file's init.
 */
enum { LAUNCH_PLAIN = 0, LAUNCH_PDL = 1 };

template <typename... P, typename... A>
static inline void cuda_launch_clusters(struct device *d, uint32_t cluster, void (*k)(P...), dim3 grid, uint32_t block,
                                        size_t smem, int flags, A... args)
{
    bool early = d->pdl && d->pdl_chain && (flags & LAUNCH_PDL);
    if (cuda_launch_on(d, d->stream, early, cluster, k, grid, block, smem, args...))
        d->pdl_chain = true;
}
template <typename... P, typename... A>
static inline void cuda_launch(struct device *d, void (*k)(P...), dim3 grid, uint32_t block, size_t smem, int flags,
                               A... args)
{
    cuda_launch_clusters(d, 1, k, grid, block, smem, flags, args...);
}
template <typename K> static inline void cuda_smem(struct device *d, K *k, size_t bytes)
{
    cuda_ok(d, cudaFuncSetAttribute((const void *)k, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    cuda_ok(d, cudaFuncSetAttribute((const void *)k, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
}

__device__ static inline void pdl_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ static inline void pdl_trigger()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* --- who does what -------------------------------------------------------------------------------------------- */

/* pack.cu: T16 from file blocks. pack_plan fills tile0, n_tile, off, n_tile, packed_bytes; HEARTH_EUNSUPPORTED names
 * the type. pack_rows packs rows [row0, row0 + n) of a part, n and row0 multiples of 16 but for the part's end, from a
 * copy of the file's bytes in device memory, on stream s. unpack_f16 writes rows [row0, row0 + n) of the merged output,
 * in logical order, as fp16 [n, ld] row-major, on d->stream. */
int pack_plan(struct wdev *w, struct hearth_err *e);
void pack_rows(struct device *d, struct wdev *w, uint32_t part, uint32_t row0, uint32_t n, const uint8_t *raw,
               cudaStream_t s);
void unpack_f16(struct device *d, const struct wdev *w, uint32_t row0, uint32_t n, __half *dst, uint32_t ld);

/* wgmma.cu: bytes of products and of a matrix input; 0 = never used. The launchers of the ops are in plan.cuh. */
uint64_t wg_partials_bytes(const struct device *d, const struct workspace_dims *dims);
uint64_t wg_x_bytes(const struct device *d, const struct workspace_dims *dims);

/* experts/route.cu: ws.experts.row_gate[row] = sigmoid(row_gate . norm(x)) of op_ffn_up. NULL where it has none. */
const float *row_gate_run(struct device *d, const struct op_ffn_up *op, uint32_t row0, uint32_t bucket);

/* epilogue.cu: what follows a product in ws.tmp (f32, [rows, ldtmp]), for paths that cannot do it in their epilogue.
 * qkv_epilogue_run: bias, q/k norm, RoPE (both kinds), ACT_Q and the KV append from merged rows q|k|v of ws.tmp.
 * proj_epilogue_run: x += norm?(tmp + bias). glu_epilogue_run: ws.ff = act(gate) * up from rows gate|up of ws.tmp,
 * which share tiles where `interleaved`, in ws.ff's form. */
void qkv_epilogue_run(struct device *d, const struct op_qkv *op, uint32_t row0, uint32_t bucket);
void proj_epilogue_run(struct device *d, const struct op_proj *op, uint32_t n_out, uint32_t row0, uint32_t bucket);
void glu_epilogue_run(struct device *d, const struct op_ffn_up *op, uint32_t d_ff, bool interleaved, uint32_t row0,
                      uint32_t bucket);
/* Rows [row0, row0 + bucket) of a product, by p->path, REF, GEMV or SKINNY: norm(ws.x), or, where there is none,
 * prepared rows x, times w -> out [rows, ldout] f32. */
struct op_call;
void rows_product(struct device *d, struct op_call *p, const struct op *o, const wdev *w, const struct norm *norm,
                  const act_buf *x, float *out, uint32_t ldout);
/* The same from products in pieces, with a form for the activation; added to x; as rows of ws.tmp. */
void qkv_reduce_run(struct device *d, const struct op_qkv *op, const partials *s, uint32_t bucket);
void glu_reduce_run(struct device *d, const struct op_ffn_up *op, const partials *s, uint32_t d_ff, const act_buf *out,
                    uint32_t bucket);
void reduce_to_x(struct device *d, const partials *s, const float *bias, uint32_t n, uint32_t bucket);
void reduce_to_tmp(struct device *d, const partials *s, uint32_t n, uint32_t bucket);
/* norm(ws.x rows) into out, and into a second form where `two` is given; a product (NULL: none) is added to x first. */
void reduce_norm_rows(struct device *d, const struct norm *n, uint32_t k, const partials *add, const float *bias,
                      const act_buf *out, const act_buf *two, bool gather, uint32_t row0, uint32_t bucket);
/* Prepared rows, `bucket` of them, to an order of wgmma's. */
void act_to_wg(struct device *d, const act_buf *in, uint32_t k, const act_buf *out, uint32_t bucket);
/* norm(ws.x rows) into out (row r of the step at out row r, or compact by out_row where `gather`). */
void norm_rows(struct device *d, const struct norm *n, uint32_t k, const act_buf *out, bool gather, uint32_t row0,
               uint32_t bucket);
/* f32 [n, k] in device memory to rows row0.. of an activation buffer and back (act_write, act_read). */
void act_from_f32(struct device *d, const float *src, uint32_t k, const act_buf *out, uint32_t row0, uint32_t n);
void act_to_f32(struct device *d, const act_buf *in, uint32_t k, float *dst, uint32_t row0, uint32_t n);

/* attend.cu, gemm.cu */
void attend_init(struct device *d);
uint64_t attend_part_bytes(const struct device *d, const struct workspace_dims *dims);
void gemm_init(struct device *d);

#endif
