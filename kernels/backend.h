/*
 * backend.h - the engine's interface to CPU and GPU: devices, weights, KV pools, and steps, each a batch run through a
 * program of fused ops.
 *
 * With primitive ops a step would launch hundreds of kernels; with one fused forward pass per model the code would be
 * unreadable. Here the ops (op.h) are the fused stages of a transformer block, so that an architecture file reads like
 * the paper and CUDA still launches only about five kernels a layer. kernels/cpu is the specification: a reference
 * implementation in plain loops, and tuned variants that are bit-identical to it. kernels/cuda is compared with it, op
 * by op, in tests/ops.
 *
 * Three lifetimes. Weights are immutable and belong to a model. KV pages belong to sequences and live in pools.
 * Activations belong to the device's workspace and to the running step: ops name them (ACT_*) and never see a pointer,
 * so that each backend keeps them in the layout that suits its kernels (CUDA writes fp16, permuted, with sub-block
 * sums, ready for the next matrix product).
 *
 * Errors stick: a step's first failure is kept in the device, and `sync` or `step_wait` reports it. After a sticky
 * HEARTH_EDEVICE the device is dead and the engine exits; hearthd starts another.
 *
 * Threads: one thread (the engine's device thread) calls everything here. A backend may use threads of its own.
 */
#ifndef HEARTH_BACKEND_H
#define HEARTH_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/dtype.h"
#include "kernels/op.h"
#include "libclient/err.h"

enum {
    KV_PAGE = 16,          /* tokens in a page of KV */
    BATCH_ROWS_MAX = 2048, /* rows in one step, prefill and decode together */
    PROMPT_ROWS = 512,     /* rows in a step of INVARIANT_PROMPT or _BATCH, unless workspace_dims.n_prompt reserves
                              more */
    BATCH_SEQS_MAX = 64,   /* sequences in one step */
    KV_GROUPS_MAX = 4,     /* layer groups of a model, a pool each */
    SLOTS_MAX = 256,       /* sampling slots: sequences admitted at once */
    LOGPROBS_MAX = 20,     /* alternatives reported per token */
    EXPERTS_MAX = 1024,    /* experts of a layer */
    EXPERTS_USED_MAX = 32, /* experts of a token in a layer */
    STATE_TAPS_MAX = 8,    /* taps of a convolution over time */
    STATE_D_MAX = 1024,    /* either dimension of a head's state */
    STATE_NORM_MAX = 512   /* elements of a head's norm in a delta net */
};

struct device; /* one opened device: workspace, streams, sticky error; opaque */

/* --- weights ------------------------------------------------------------------------------------------- */

/* How the ops use a matrix. CUDA interleaves and permutes by role; the CPU ignores it. */
enum weight_role {
    WEIGHT_EMBED,        /* one part: token rows, read by id (embed); with tied embeddings the head's matrix, too */
    WEIGHT_QKV,          /* three parts: q, k, v; or fewer, as described at op_qkv */
    WEIGHT_PROJ,         /* one part: attention output, FFN down */
    WEIGHT_GATE_UP,      /* two parts: gate, up (or one: up alone, for an ungated FFN) */
    WEIGHT_HEAD,         /* one part: logits */
    WEIGHT_ROUTER,       /* one part: one row per expert */
    WEIGHT_EXPERTS_UP,   /* as WEIGHT_GATE_UP, of n_expert experts */
    WEIGHT_EXPERTS_DOWN, /* as WEIGHT_PROJ, of n_expert experts */
    WEIGHT_LATENT,       /* two parts, see op_latent */
    WEIGHT_HEADS,        /* one part, n_expert matrices, one per head: each multiplies its own head's columns */
    WEIGHT_MIXER,        /* up to three parts: the input projections of a layer with a recurrent state (op_project) */
};

struct weight_part {
    enum dtype type;
    uint32_t n_out;            /* rows of this part */
    const void *data;          /* row-major blocks as in the model file, [n_out, n_in]; must outlive the weight where
                                  `keeps_source` is set, else only the weight_load call */
    const void *const *expert; /* [weight.n_expert] matrices [n_out, n_in] in place of `data`; the list and the matrices
                                  must live as long as `data` would have to */
    float scale;               /* multiplies every weight (NVFP4 has such a factor per tensor); 0 = none, i.e. 1 */
    const float *expert_scale; /* [weight.n_expert] in place of `scale`, or NULL; must live as long as `expert` */
};
static inline float weight_part_scale(const struct weight_part *p)
{
    return p->scale != 0.0f ? p->scale : 1.0f;
}
/* One expert's matrix, as an ordinary part. */
static inline struct weight_part weight_part_of(const struct weight_part *p, uint32_t expert)
{
    struct weight_part one = *p;
    one.data = p->expert[expert];
    one.scale = p->expert_scale ? p->expert_scale[expert] : p->scale;
    one.expert = NULL;
    one.expert_scale = NULL;
    return one;
}

/* Up to three matrices over the same input, used by one op in one pass. */
struct weight {
    enum weight_role role;
    uint32_t n_in;
    uint32_t n_out; /* sum over parts */
    uint32_t n_part;
    struct weight_part part[3];
    void *dev;         /* the backend's own representation; NULL on the CPU, which reads the mapped file */
    const void *model; /* the model that owns it, or NULL; only compared with program.model, never dereferenced */
    uint32_t n_expert; /* 0: each part is one matrix; else one matrix per expert, and n_out is that of one expert */
    uint32_t expanded; /* bit i: the device has no kernels for part i's type and keeps it as F16; set by weight_load */
    bool host;         /* a device with memory of its own is to keep the matrix in host memory and read it from there:
                          slower, bit-identical. Ignored for matrices with a special storage form (a router's) */
};

/* --- KV ------------------------------------------------------------------------------------------------ */

/*
 * A pool of pages for one layer group: layers that share KV heads, head sizes and window. A page holds KV_PAGE
 * tokens of every layer of the group, contiguously:
 *     page = [n_layer][K [n_kv][KV_PAGE][d_k], then V [n_kv][KV_PAGE][d_v]]      of `type`
 * so that a page moves between tiers as one copy.
 *
 * Layers with a recurrent state have a group of their own. Its page is the state after all tokens up to some
 * position, in F32; its size does not depend on the number of tokens:
 *     page = [n_layer][d_state]
 *
 * A device may keep a Q8_0 page with quants and scales apart (device_info.kv_apart): per head first the 8-bit quants
 * [KV_PAGE][d], then the F16 scales [KV_PAGE][d / 32], as many bytes in all as the blocks take. This puts the quants
 * on the alignment that a GPU's vector loads need.
 */
struct kv_desc {
    uint32_t n_layer;
    uint32_t n_kv;
    uint32_t d_k, d_v; /* dimensions of a head's K and V; d_v 0: a value is the last dimensions of its key */
    uint32_t window;   /* visible tokens, the query's own included; 0 = all */
    enum dtype type;   /* DT_F32, DT_F16 or DT_Q8_0, as the backend supports; a vector is whole blocks */
    uint32_t n_page;   /* capacity of the pool, in pages */
    uint32_t extent;   /* pages whose memory is mapped and unmapped together (kv_map), a multiple of the device's
                          granule in bytes; 0: all of the pool's memory is always mapped */
    uint32_t d_state;  /* floats in a layer's state; 0: pages hold K and V. Else n_kv, d_k, d_v and window are 0 */
};
/* The number of extents of a pool whose desc->extent is not 0; the last may extend beyond the last page. */
static inline uint32_t kv_extents(const struct kv_desc *d)
{
    return (d->n_page + d->extent - 1) / d->extent;
}
/* Bytes of one layer in a page: of its K, which V follows, and of both. */
static inline uint64_t kv_k_bytes(const struct kv_desc *d)
{
    return dtype_bytes(d->type, (uint64_t)d->n_kv * KV_PAGE * d->d_k);
}
static inline uint64_t kv_layer_bytes(const struct kv_desc *d)
{
    if (d->d_state)
        return d->d_state * sizeof(float);
    return kv_k_bytes(d) + dtype_bytes(d->type, (uint64_t)d->n_kv * KV_PAGE * d->d_v);
}
static inline uint64_t kv_page_bytes(const struct kv_desc *d)
{
    return d->n_layer * kv_layer_bytes(d);
}
/* Where the K or the V of a head at position `pos` lies, in bytes from the beginning of its page. */
static inline uint64_t kv_vector_at(const struct kv_desc *d, uint32_t layer, bool v, uint32_t head, uint32_t pos)
{
    return layer * kv_layer_bytes(d) + (v ? kv_k_bytes(d) : 0) +
           ((uint64_t)head * KV_PAGE + pos % KV_PAGE) * dtype_bytes(d->type, v ? d->d_v : d->d_k);
}
/* Convert a Q8_0 page from blocks to quants and scales apart, and back; the buffers must not overlap. */
void kv_page_apart(const struct kv_desc *d, const void *blocks, void *apart);
void kv_page_blocks(const struct kv_desc *d, const void *apart, void *blocks);
/* The first position that is visible to a token at `pos` through a window (0: no window). */
static inline uint32_t kv_first_visible(uint32_t pos, uint32_t window)
{
    return window && pos >= window ? pos + 1 - window : 0;
}
struct kv_pool; /* opaque */

/* --- sampling ------------------------------------------------------------------------------------------ */

struct logit_bias {
    uint32_t id;
    float bias; /* -INFINITY forbids */
};

/*
 * How a slot picks its tokens. Applied in this order: penalties, bias, mask, temperature, top-k, top-p, min-p.
 * Cut-offs are thresholds on the logit, so equal logits stay or go together and no sort order matters:
 * top_k keeps every token at least as good as the k-th best; top_p the smallest set of best tokens whose share of the
 * probability mass that top_k left reaches p; min_p those with probability >= min_p times the best's.
 * Of the remaining tokens the one with the greatest logit/temp + Gumbel(seed, index, id) wins, the lowest id on a
 * tie. temp 0 takes the best logit after penalties, bias and mask, the lowest id on a tie. So does a temp of at most
 * 2^-30, or 2^-30 times the best logit's magnitude: f32 could not add noise to logit/temp.
 * The Gumbel noise is philox.h's, a pure function of (seed, index, id).
 */
struct sample_params {
    float temp;
    uint32_t top_k;          /* 0 = off */
    float top_p;             /* 1 = off */
    float min_p;             /* 0 = off */
    float rep_penalty;       /* 1 = off: positive logits of seen tokens are divided, negative multiplied by it */
    float presence_penalty;  /* 0 = off: subtracted once from the logits of seen tokens */
    float frequency_penalty; /* 0 = off: subtracted once per occurrence */
    uint32_t penalty_last;   /* most recent tokens that the penalties look at, prompt included; 0 = all */
    uint64_t seed;
    uint32_t n_bias;
    const struct logit_bias *bias; /* copied */
    uint32_t n_logprobs;           /* alternatives to report, <= LOGPROBS_MAX; log-softmax of the raw logits */
};

/* What a step samples once its ops have run. */
struct batch_sample {
    uint32_t n;                  /* rows of ACT_LOGITS sampled, the first n of out_row; 0 = none */
    const uint32_t *slot;        /* [n] */
    const uint32_t *index;       /* [n] completion index, which the random numbers are a function of */
    const uint32_t *const *mask; /* NULL, or [n] bitmaps of n_vocab allowed tokens, NULL entries = all allowed. Only
                                    tests/ops/sample sets it; the engine has no use for it yet */
};

struct logprob {
    uint32_t id;
    float logprob;
};
struct sampled {
    uint32_t slot;
    uint32_t token; /* 0 where every token is forbidden */
    float logprob;  /* of the token; its raw logit where n_logprobs is 0; not finite where the row has no finite best */
    uint32_t n_top;
    struct logprob top[LOGPROBS_MAX];
};

/* --- a step -------------------------------------------------------------------------------------------- */

/*
 * Batch invariance: what the bits of a row's results may depend on. On the CPU they are the same in all modes. A GPU
 * has two kernel paths for matrix products, one for a few decoding rows and one for many rows, and their last bits
 * differ: a caller that needs to reproduce a row bit-exactly computes it in the mode in which it was first computed.
 */
enum invariance {
    INVARIANT_OFF,    /* may also depend on the other rows and on where the prompt was cut into chunks: the fastest */
    INVARIANT_DECODE, /* only on the row's own tokens; decode steps of INVARIANT_OFF of up to device_info.decode_rows
                         rows have these bits as well */
    INVARIANT_PROMPT, /* only on the row's own tokens, by the path for many rows: every row belongs to a prompt */
    INVARIANT_BATCH,  /* only on the row's own tokens, by the path for many rows: rows that are decoded, one or many.
                         INVARIANT_DECODE where the device has no such path for the program */
};
enum { INVARIANCES = INVARIANT_BATCH + 1 };

/*
 * One step advances up to BATCH_SEQS_MAX sequences by one or more tokens each. Rows of a sequence are consecutive and
 * in position order. All arrays are the caller's and are copied by step_run.
 */
struct batch_seq {
    uint32_t row0, n_row; /* rows of this sequence in the step */
    uint32_t pos0;        /* position of its first row; KV [0, pos0) is already in the pages */
    /* Block tables by group: ceil((pos0 + n_row) / KV_PAGE) page numbers in pool kv[group]. The numbers of pages that
     * lie wholly before the window of row0 are ignored. For a group of states there are two numbers: the page with the
     * state before row0, which is only read, and ignored where pos0 is 0; and the page that receives the state after
     * the last row. They may be the same. */
    const uint32_t *pages[KV_GROUPS_MAX];
    uint32_t freq_set; /* which of RoPE's frequency sets its rows use, where rope.n_set is 2; below ROPE_SETS_MAX */
    uint32_t n_within; /* if not 0, the state after the first n_within rows (fewer than n_row) is stored as well, in a
                          third page of each group of states. Only on devices with device_info.states_within */
};
struct batch {
    uint32_t n_row, n_seq, n_out;
    const int32_t *token;              /* [n_row] token ids; TOKEN_OF_SLOT(s) is the token that slot s sampled last */
    const struct batch_seq *seq;       /* [n_seq] */
    const uint32_t *out_row;           /* [n_out] rows whose logits are wanted, ascending */
    struct kv_pool *kv[KV_GROUPS_MAX]; /* the pools of this step's pages, one for each of the model's groups */
    uint32_t n_group;
    enum invariance invariant;
    bool once; /* the step will not be repeated (tests, checks): no graph is captured of it */
    struct batch_sample sample;
    /* Where not NULL, a device that computes inside step_run calls it between ops, on the same thread. If it returns
     * true, the step ends there: nothing is sampled, its rows' KV is undefined and step_wait returns HEARTH_ECANCELLED.
     * A GPU, whose steps are short, does not call it. */
    bool (*stop)(void *arg);
    void *stop_arg;
};
#define TOKEN_OF_SLOT(s) (-1 - (int32_t)(s))

/* --- the table ----------------------------------------------------------------------------------------- */

struct device_params {
    int index;           /* which of the backend's devices */
    uint32_t threads;    /* CPU: worker threads, 0 = the machine's cores */
    const char *variant; /* CPU: "auto", "reference", "avx2", "avxvnni", "avx512"; CUDA: "auto", which is "graph",
                            "graph", "eager", "reference", and "ampere", "ada": as such a card computes */
    enum dtype kv_type;  /* DT_F16 or DT_Q8_0: the type of KV; DT_F32, which is 0: the device's default */
};

/* What a device's memory is used for. On the CPU, weights are the mapped model file, of which the operating system
 * decides how much is resident. */
enum mem_kind {
    MEM_WEIGHTS,
    MEM_KV,        /* pages of pools; on the CPU only extents that are mapped. Pages of a pool without extents are
                      committed by their first write, so that only the caller can count them */
    MEM_WORKSPACE, /* activations, partial sums, sampling */
    MEM_CACHE,     /* copies that speed things up and are freed when the memory is needed */
    MEM_KINDS
};

/* Rows that went through a kernel path, added up over the ops that multiply, with the padding rows of a launch. */
struct path_rows {
    const char *path; /* as op_path() names it: a static string */
    uint64_t rows;
};
enum { DEVICE_PATHS = 8 };

struct device_info {
    char name[96]; /* "AMD EPYC ... (avx2, 2 threads)", "NVIDIA H100 80GB HBM3" */
    char id[160];  /* everything besides this program that its results may depend on: the chip, its serial number, its
                      driver. "": unknown; results of checks on this device must then not be cached */
    bool gpu;
    uint32_t devices;             /* devices of this kind that this process could open; 0: not counted */
    bool keeps_source;            /* weights are read from the mapped model file: it must stay mapped */
    bool states_within;           /* steps can store a state from between their rows: batch_seq.n_within */
    bool kv_apart;                /* pages of Q8_0 have quants and scales apart: see struct kv_desc */
    enum dtype kv_type;           /* the type of KV; a GPU has pools of this type only, except for states */
    uint32_t max_in_flight;       /* steps the caller may have in flight: 1 on the CPU */
    uint32_t decode_rows;         /* decode steps of INVARIANT_OFF of up to so many rows have INVARIANT_DECODE's bits.
                                     Only tests read it */
    uint64_t mem_total, mem_free; /* bytes */
    uint64_t held[MEM_KINDS];     /* bytes held by this backend; those of MEM_CACHE are also counted in mem_free */
    uint64_t mem_sums;            /* those of held[MEM_WORKSPACE] that step_bytes foresees */
    uint64_t mem_pinned;          /* bytes of host memory that the device can access directly */
    uint64_t kv_granule;          /* a pool's memory is mapped in multiples of so many bytes; 0: it cannot be */
    /* Allocations, graph captures and waits in step_run and slot_set since the device was opened. Once a step's shape
     * has been seen, there are none. Waits are those of the host for the device; step_wait's are not counted. */
    uint64_t hot_allocs, hot_graphs, hot_waits;
    /* The steps since the device was opened: rows by path, on a device that has several; and the graph replays. */
    struct path_rows path[DEVICE_PATHS];
    uint32_t n_path;
    uint64_t replays;
};

/* The workspace's size: grow-only, kept by the device, shared by its models. */
struct workspace_dims {
    uint32_t d_model, d_q /* n_head * d_head */, d_kv, d_ff, n_vocab;
    uint32_t n_row, n_out;
    uint32_t d_route /* 2 n_used */, d_experts /* n_used * d_expert */; /* 0: no mixture of experts */
    uint32_t d_mix;                                                     /* columns of ACT_MIX; 0: no op writes it */
    uint32_t d_latent;                                                  /* columns of ACT_LATENT, or 0 */
    uint32_t d_aside /* d_model, or 0 */, d_inputs /* n_layer * d_input, or 0 */;
    uint32_t n_prompt; /* rows of a step of INVARIANT_PROMPT or _BATCH, where more than PROMPT_ROWS are wanted */
};

struct backend {
    const char *name; /* "cpu", "cuda" */

    /* Opens a device. HEARTH_EDEVICE, with the reason, where there is none or where it is too old or too small. */
    int (*open)(struct device **out, const struct device_params *p, struct hearth_err *e);
    void (*close)(struct device *d);
    void (*info)(struct device *d, struct device_info *out);

    /* Makes room for steps of these dimensions. HEARTH_ENOMEM leaves the old workspace as it was. */
    int (*reserve)(struct device *d, const struct workspace_dims *dims, struct hearth_err *e);

    /* Loads a matrix: fills w->dev from w->part. HEARTH_EUNSUPPORTED names a type it cannot multiply by. */
    int (*weight_load)(struct device *d, struct weight *w, struct hearth_err *e);
    /* The bytes that weight_load would take, of device memory or, where w->host is set, of host memory; 0: it would
     * refuse the matrix. *passing: the staging buffer in device memory through which a matrix in host memory would be
     * copied, one for all such matrices, in bytes; 0: the matrix can be in device memory only. Does not read the
     * weights. The function is NULL where the device reads the mapped file. */
    uint64_t (*weight_bytes)(struct device *d, const struct weight *w, uint64_t *passing);
    void (*weight_free)(struct device *d, struct weight *w);
    /* Copies n floats to device memory; free with vec_free. */
    int (*vec_load)(struct device *d, const float *src, size_t n, float **out, struct hearth_err *e);
    void (*vec_free)(struct device *d, float *v);

    int (*kv_new)(struct device *d, const struct kv_desc *desc, struct kv_pool **out, struct hearth_err *e);
    void (*kv_free)(struct device *d, struct kv_pool *p);
    /*
     * Memory of a pool with extents, which has none at first. kv_map gives the extent's pages memory, filled with
     * zeros; HEARTH_ENOMEM is an ordinary refusal. kv_unmap frees it with its contents; no step or transfer that names
     * one of its pages may be running. kv_map waits for steps only if it has to free MEM_CACHE; kv_unmap may wait for
     * the steps in flight. NULL where kv_granule is 0.
     */
    int (*kv_map)(struct device *d, struct kv_pool *p, uint32_t extent, struct hearth_err *e);
    void (*kv_unmap)(struct device *d, struct kv_pool *p, uint32_t extent);
    void (*kv_copy)(struct device *d, struct kv_pool *p, uint32_t dst, uint32_t src); /* whole page, in step order */
    void (*kv_clear)(struct device *d, struct kv_pool *p,
                     uint32_t page); /* zeroes it before it goes to another uid; may release its memory */

    /*
     * Asynchronous transfers of whole pages between a pool and memory of host_alloc: pages[i] to (save) or from (load)
     * host[i], kv_page_bytes each. A transfer begins when everything submitted before it (steps, copies, clears) is
     * done, and delays nothing submitted later; the transfers of one direction are done in order. Both return a ticket.
     * Until kv_transfer_done returns 1 for it
     *   - the caller keeps the pool, the host memory and the pages: no step may write to these pages, nor read one
     *     that is being loaded. The two arrays are only read during the call;
     *   - a load may be partly visible; work submitted afterwards sees all of it.
     * Ticket 0: the transfer was refused (no such page, or a dead device) and does not happen; the error sticks.
     */
    uint64_t (*kv_save)(struct device *d, struct kv_pool *p, const uint32_t *pages, void *const *host, uint32_t n);
    uint64_t (*kv_load)(struct device *d, struct kv_pool *p, const uint32_t *pages, const void *const *host,
                        uint32_t n);
    /* 1 = done, 0 = not yet, negative = never: the device failed, or no transfer has that ticket. Does not wait. */
    int (*kv_transfer_done)(struct device *d, uint64_t ticket, struct hearth_err *e);
    int (*kv_transfer_wait)(struct device *d, uint64_t ticket, struct hearth_err *e); /* 0 = done */

    /* Limits MEM_CACHE to so many bytes; the excess is freed after the steps in flight. NULL: the device keeps no such
     * copies. */
    void (*cache_limit)(struct device *d, uint64_t bytes);

    /* Host memory for transfers, aligned to a system page, not cleared. For a GPU it is pinned, which blocks the thread
     * for about a second per several GB: allocate it in slabs, ahead of need. HEARTH_ENOMEM is an ordinary refusal. */
    int (*host_alloc)(struct device *d, uint64_t bytes, void **out, struct hearth_err *e);
    void (*host_free)(struct device *d, void *p); /* its transfers must be done */

    /*
     * Runs the program's ops over the batch, in order, then samples as batch.sample says. Returns the step's
     * ticket: 1, 2, 3 ... An op that multiplies by a matrix of another model than the program's is refused, because the
     * kernel path of a step may depend on all matrices of its model, and only on these. No reference to the program is
     * kept; CUDA uses its id to find a graph that an earlier step of the same program was captured in.
     *
     * Ticket 0: a GPU has no memory for what this step needs beyond the workspace, such as the partial sums of
     * attention to a long context. This is an ordinary refusal: nothing was done, and step_wait(0) returns
     * HEARTH_ENOMEM with the reason. The caller may free memory, or submit a smaller step.
     */
    uint64_t (*step_run)(struct device *d, const struct batch *b, const struct program *p);

    /* The path that op i of the program takes in a step of n_row rows, each the one token of a sequence, in a mode for
     * rows that decode: "cpu" on the CPU; on a GPU "gemv", "skinny", "wgmma", "cublaslt" or "ref" for products,
     * "gemv+epilogue" and "skinny+epilogue" where the epilogue takes a launch of its own; "few", "grouped" or "wgmma"
     * for experts; "one" for ops that have a single path, "one+plan" for attention whose single row has to go through
     * the kernels for many rows; NULL for an op that the device cannot run. A static string. */
    const char *(*op_path)(struct device *d, const struct program *p, uint32_t i, uint32_t n_row, enum invariance how);

    /* Whether INVARIANT_PROMPT goes through the path for many rows with this model, whose matrices are loaded, and KV
     * of these groups; else its rows take INVARIANT_DECODE's path, which is many times slower. NULL: never. */
    bool (*prompt_is_quick)(struct device *d, const void *model, const struct kv_desc *kv, uint32_t n_group);

    /* Waits until the step is done and copies what it sampled (in batch.sample's order) to out[n]; n may be 0.
     * At most device_info.max_in_flight tickets may be outstanding. */
    int (*step_wait)(struct device *d, uint64_t ticket, struct sampled *out, uint32_t n, struct hearth_err *e);

    /* Initialises a slot's sampling state: its parameters and the token history that penalties read. A step appends the
     * tokens that it samples to the history. Setting a slot again discards its previous state. */
    int (*slot_set)(struct device *d, uint32_t slot, const struct sample_params *p, const int32_t *history,
                    uint32_t n_history, uint32_t n_vocab, struct hearth_err *e);

    /* Reads rows of an activation as the last step left them, as f32 in the layout of enum act. Slow; for eval and
     * tests. */
    int (*act_read)(struct device *d, enum act a, uint32_t row0, uint32_t n_row, float *out, struct hearth_err *e);
    /* Sets rows of an activation, [n_row, n_col], before the ops of the next step begin; for tests of single ops. The
     * numbers are copied and kept until then, because only that step knows the form of its activations; it fails where
     * it does not have these rows. Activations that neither this nor an op wrote are as the last step left them,
     * provided that it had the same rows. */
    int (*act_write)(struct device *d, enum act a, uint32_t row0, uint32_t n_row, uint32_t n_col, const float *in,
                     struct hearth_err *e);

    /* Waits for everything, transfers included, and reports the sticky error. */
    int (*sync)(struct device *d, struct hearth_err *e);

    /* Measures the device's read bandwidth, uncached, in bytes per second: from its own memory or, with `host`, from
     * the host memory in which matrices with weight.host are kept. This bounds the speed of a decode step. Takes a good
     * part of a second and a buffer of `bytes`; 0: a default that is large enough for caches not to matter. */
    int (*read_rate)(struct device *d, bool host, uint64_t bytes, double *bytes_per_s, struct hearth_err *e);

    /* The bytes that steps in a workspace of these dimensions take beyond it, as far as can be foreseen: for the
     * partial sums of attention to n_token tokens, with KV of these groups. Steps of all models use the same memory,
     * which is allocated when a step needs it: no more than the most that this has returned, if that is enough. NULL:
     * none. */
    uint64_t (*step_bytes)(struct device *d, const struct workspace_dims *dims, const struct kv_desc *kv,
                           uint32_t n_group, uint32_t n_token);
};

/* All backends of this build, best first, NULL-terminated. */
extern const struct backend *const backends[];

/* The backend of that name, or NULL. */
const struct backend *backend_find(const char *name);

#endif
