/*
 * backend.h - the engine's door to the processors: devices, weights, KV pools, and steps, each a batch run through a
 * program of fused ops.
 *
 * A table of tiny ops launches hundreds of kernels a step; one fused forward per model cannot be read. Here the ops
 * (op.h) are the fused steps of a transformer block, so that an architecture file reads like the paper and CUDA still
 * launches five kernels a layer. kernels/cpu is the specification: plain loops first, a tuned twin that gives the same
 * bits second. kernels/cuda is compared with it, op by op, in tests/ops.
 *
 * Three lifetimes. Weights are immutable and belong to a model. KV pages belong to sequences and live in
 * pools. Activations belong to the device's workspace and to the step under way: ops name them (ACT_*)
 * and never see a pointer, so that each backend keeps them in the form its kernels like best (CUDA writes
 * fp16, permuted, with sub-block sums, ready for the next matrix).
 *
 * Errors stick: a step's first failure is kept in the device, and `sync` or `step_wait` reports it.
 * After a sticky HEARTH_EDEVICE the device is dead and the engine exits; hearthd starts another.
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
    PROMPT_ROWS = 512,     /* of INVARIANT_PROMPT in a workspace of so many that has no room for more of them */
    BATCH_SEQS_MAX = 64,   /* sequences in one step */
    KV_GROUPS_MAX = 4,     /* layer groups of a model, a pool each */
    SLOTS_MAX = 256,       /* sampling slots: sequences admitted at once */
    LOGPROBS_MAX = 20,     /* alternatives reported per token */
    EXPERTS_MAX = 1024,    /* experts of a layer */
    EXPERTS_USED_MAX = 32, /* experts of a token in a layer */
    STATE_TAPS_MAX = 8,    /* of a convolution in time */
    STATE_D_MAX = 1024,    /* of either dimension of a head's state */
    STATE_NORM_MAX = 512   /* of a head's norm in a delta net */
};

struct device; /* one opened device: workspace, streams, sticky error; opaque */

/* --- weights ------------------------------------------------------------------------------------------- */

/* How the ops use a matrix. CUDA interleaves and permutes by role; the CPU takes no notice. */
enum weight_role {
    WEIGHT_EMBED,      /* one part: token rows, read by id (embed); also the head's matrix where they are one tensor */
    WEIGHT_QKV,        /* three parts: q, k, v; or less, as op_qkv has it */
    WEIGHT_PROJ,       /* one part: attention output, FFN down */
    WEIGHT_GATE_UP,    /* two parts: gate, up (or one: up alone, for an ungated FFN) */
    WEIGHT_HEAD,       /* one part: logits */
    WEIGHT_ROUTER,     /* one part: a row an expert */
    WEIGHT_EXPERTS_UP, /* as WEIGHT_GATE_UP, of n_expert experts */
    WEIGHT_EXPERTS_DOWN, /* as WEIGHT_PROJ, of n_expert experts */
    WEIGHT_LATENT,       /* two parts: op_latent's */
    WEIGHT_HEADS,        /* one part, of n_expert heads: each multiplies its own by its own */
    WEIGHT_MIXER,        /* up to three parts: what a layer with a recurrent state is computed from */
};

struct weight_part {
    enum dtype type;
    uint32_t n_out;            /* rows of this part */
    const void *data;          /* row-major blocks as in the model file, [n_out, n_in]; must outlive the weight where
                                  `keeps_source` is set, else only the weight_load call */
    const void *const *expert; /* [weight.n_expert] matrices [n_out, n_in] in place of `data`; both the list and what
                                  it points to last as long as data must */
    float scale; /* multiplies every weight (NVFP4 has such a factor for a tensor); 0 = none, which is 1 */
    const float *expert_scale; /* [weight.n_expert] in place of `scale`, or NULL; lasts as `expert` does */
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
    void *dev;         /* the backend's own form; NULL on the CPU, which reads the mapped file */
    const void *model; /* whose it is, or NULL: compared with program.model, never read through */
    uint32_t n_expert; /* 0: each part is one matrix; else one for each expert, and n_out counts those of one */
    uint32_t expanded; /* bit i: the device keeps part i as F16, for want of kernels of its type; set by weight_load */
    bool host;         /* a device with memory of its own shall keep it in the host's, and read it from there: slower,
                          and the same bits. Of a matrix that is kept otherwise than others (a router) it takes no notice */
};

/* --- KV ------------------------------------------------------------------------------------------------ */

/*
 * A pool of pages for one layer group: layers that share KV heads, head sizes and window. A page holds KV_PAGE
 * tokens of every layer of the group, contiguously:
 *     page = [n_layer][K [n_kv][KV_PAGE][d_k], then V [n_kv][KV_PAGE][d_v]]      of `type`
 * so that a page moves between tiers as one copy.
 *
 * Layers with a recurrent state have a group of their own, whose page is what has become of all tokens up to some
 * position, in F32, whatever their number:
 *     page = [n_layer][d_state]
 *
 * A device may keep the vectors of a head's page in Q8_0 apart (device_info.kv_apart): first all their numbers
 * [KV_PAGE][d] of 8 bits, then all their scales [KV_PAGE][d / 32] in F16, as many bytes as blocks take. Then numbers
 * lie on the boundaries that a GPU reads by.
 */
struct kv_desc {
    uint32_t n_layer;
    uint32_t n_kv;
    uint32_t d_k, d_v; /* dimensions of a head's K and V; d_v 0: values are the last ones of their keys */
    uint32_t window;   /* tokens visible, the own one included; 0 = all */
    enum dtype type;   /* DT_F32, DT_F16 or DT_Q8_0, as the backend has; a vector is whole blocks */
    uint32_t n_page;   /* pages in the pool, at most */
    uint32_t extent;   /* pages whose memory comes and goes together (kv_map): as many as are whole granules of the
                          device; 0: the pool has all of its memory, always */
    uint32_t d_state;  /* numbers of a layer's state; 0: its pages hold K and V. Else n_kv, d_k, d_v and window are 0 */
};
/* How many extents a pool has that has any; the last one may be longer than its pages. */
static inline uint32_t kv_extents(const struct kv_desc *d)
{
    return (d->n_page + d->extent - 1) / d->extent;
}
/* Of one layer: K alone, which V follows, and both. */
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
/* Q8_0 pages in blocks to pages apart, and back; the two do not overlap. */
void kv_page_apart(const struct kv_desc *d, const void *blocks, void *apart);
void kv_page_blocks(const struct kv_desc *d, const void *apart, void *blocks);
/* The first position that a token at `pos` sees through a window. */
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
 * How a slot picks its tokens. In this order: penalties, bias, mask, temperature, top-k, top-p, min-p.
 * Cut-offs are thresholds on the logit, so equal logits stay or go together and no sort order matters:
 * top_k keeps every token at least as good as the k-th best; top_p the smallest set of the best whose share
 * of the sum (of what top_k left) reaches p; min_p those with probability >= min_p times the best's.
 * Of what is left, the token with the greatest logit/temp + Gumbel(seed, index, id) wins, the lowest id on a
 * tie. temp 0 takes the best logit after penalties, bias and mask, lowest id on a tie.
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
    uint32_t penalty_last;   /* tokens of history that count, prompt included; 0 = the whole timeline */
    uint64_t seed;
    uint32_t n_bias;
    const struct logit_bias *bias; /* copied */
    uint32_t n_logprobs;           /* alternatives to report, <= LOGPROBS_MAX; log-softmax of the raw logits */
};

/* What a step samples once its ops have run. */
struct batch_sample {
    uint32_t n;                  /* rows of ACT_LOGITS sampled, the first n of out_row; 0 = none */
    const uint32_t *slot;        /* [n] */
    const uint32_t *index;       /* [n] completion index: the `index` of the random numbers */
    const uint32_t *const *mask; /* NULL, or [n] bitmaps of n_vocab allowed tokens, NULL entries = all allowed */
};

struct logprob {
    uint32_t id;
    float logprob;
};
struct sampled {
    uint32_t slot;
    uint32_t token;
    float logprob; /* of the token; where n_logprobs is 0 its raw logit; not finite where none of the row could win */
    uint32_t n_top;
    struct logprob top[LOGPROBS_MAX];
};

/* --- a step -------------------------------------------------------------------------------------------- */

/*
 * What a row's bits may depend on. A CPU's are the same in all three. A GPU has two ways to multiply, one for a few
 * rows that decode and one for many of a prompt, whose last bits differ: a caller who wants to have a row's bits again
 * computes it as it was computed first.
 */
enum invariance {
    INVARIANT_OFF,    /* on the rows beside it and on the cut of its prompt as well: the quickest way */
    INVARIANT_DECODE, /* on its own tokens alone; of up to device_info.decode_rows rows that decode always so */
    INVARIANT_PROMPT, /* on its own tokens alone, by the way for many rows: every row is of a prompt */
};

/*
 * One step advances up to BATCH_SEQS_MAX sequences by one or more tokens each. Rows of a sequence are consecutive and
 * in position order. All arrays are the caller's and are copied by step_run.
 */
struct batch_seq {
    uint32_t row0, n_row; /* rows of this sequence in the step */
    uint32_t pos0;        /* position of its first row; KV [0, pos0) is already in the pages */
    /* Block tables by group: ceil((pos0 + n_row) / KV_PAGE) page numbers of pool kv[group]. Of pages that lie before
     * the pool's window, as row0 sees it, the numbers are not looked at. Of a group of states two numbers: the page
     * with the state before row0, which is only read, and is not looked at where pos0 is 0; and the page that gets the
     * state after the last row. They may be the same. */
    const uint32_t *pages[KV_GROUPS_MAX];
    uint32_t freq_set; /* of RoPE's frequencies, below ROPE_SETS_MAX: which its rows turn by, where rope.n_set is 2 */
    uint32_t n_within; /* after so many of the rows, fewer than all, a third page of each group of states gets the
                          state; 0: there is none. Of devices that say so (device_info.states_within) */
};
struct batch {
    uint32_t n_row, n_seq, n_out;
    const int32_t *token;        /* [n_row] token ids; TOKEN_OF_SLOT(s) takes what slot s sampled last, on the device */
    const struct batch_seq *seq; /* [n_seq] */
    const uint32_t *out_row;     /* [n_out] rows whose logits are wanted, ascending */
    struct kv_pool *kv[KV_GROUPS_MAX]; /* the pools of this step's pages, one for each of the model's groups */
    uint32_t n_group;
    enum invariance invariant;
    bool once; /* a step that does not come again (tests, checks): no graph is captured of it */
    struct batch_sample sample;
    /* Where not NULL, a device that computes in step_run asks it between ops, on the same thread. True: the step ends
     * there, nothing is sampled, its rows' KV is undefined and step_wait says HEARTH_ECANCELLED. A GPU, whose steps are
     * short, does not ask. */
    bool (*stop)(void *arg);
    void *stop_arg;
};
#define TOKEN_OF_SLOT(s) (-1 - (int32_t)(s))

/* --- the table ----------------------------------------------------------------------------------------- */

struct device_params {
    int index;           /* which of the backend's devices */
    uint32_t threads;    /* CPU: worker threads, 0 = the machine's cores */
    const char *variant; /* CPU: "auto", "reference", "avx2", "avx512"; CUDA: "auto", "eager", "graph" */
    enum dtype kv_type;  /* DT_F16 or DT_Q8_0: what KV is to be kept in; DT_F32, which is 0: what the device likes */
};

/* What a device's memory is held for. Of the CPU the weights are the mapped file, of which the system keeps in memory
 * what it likes. */
enum mem_kind {
    MEM_WEIGHTS,
    MEM_KV,        /* pages of pools; of the CPU this is the caller's to know, who knows which were written */
    MEM_WORKSPACE, /* activations, partial sums, sampling */
    MEM_CACHE,     /* copies that make things quicker, given back when the memory is wanted */
    MEM_KINDS
};

/* Rows that a path took: those of each op that multiplies, with what fills up a launch. */
struct path_rows {
    const char *path; /* as op_path() names it: a static string */
    uint64_t rows;
};
enum { DEVICE_PATHS = 8 };

struct device_info {
    char name[96]; /* "AMD EPYC ... (avx2, 2 threads)", "NVIDIA H100 80GB HBM3" */
    char id[160];  /* all that its results may depend on beside this program: the chip, its serial, its driver.
                      "": not known, and what was found out about it is not to be remembered */
    bool gpu;
    uint32_t devices;             /* of this kind that this process could open; 0: they are not counted */
    bool keeps_source;            /* weights read the mapped model file: it must stay mapped */
    bool states_within;           /* steps give states from between their rows: batch_seq.n_within */
    bool kv_apart;                /* pages of Q8_0 have numbers and scales apart: see struct kv_desc */
    enum dtype kv_type;           /* what KV is kept in; a GPU has pools of this type alone, but for states */
    uint32_t max_in_flight;       /* steps the caller may have in flight: 1 on the CPU */
    uint32_t decode_rows;         /* steps that decode so many rows or fewer have INVARIANT_DECODE's bits anyway */
    uint64_t mem_total, mem_free; /* bytes */
    uint64_t held[MEM_KINDS];     /* by this backend; what MEM_CACHE has counts as free, too */
    uint64_t mem_pinned;          /* bytes of host memory that the device may read by itself */
    uint64_t kv_granule;          /* bytes in multiples of which a pool's memory comes and goes; 0: it cannot */
    /* What steps and slot_set do of this, since the device was opened; they do none of it once their shape was seen
     * before. Waits are those of the host for the device, but for step_wait, which is there to wait. */
    uint64_t hot_allocs, hot_graphs, hot_waits;
    /* Of the steps since then: by path, of a device that has several; and how many were replays of a graph. */
    struct path_rows path[DEVICE_PATHS];
    uint32_t n_path;
    uint64_t replays;
};

/* The workspace's size: grow-only, kept by the device, shared by its models. */
struct workspace_dims {
    uint32_t d_model, d_q /* n_head * d_head */, d_kv, d_ff, n_vocab;
    uint32_t n_row, n_out;
    uint32_t d_route /* 2 n_used */, d_experts /* n_used * d_expert */; /* 0: no mixture of experts */
    uint32_t d_mix;                                                     /* of ACT_MIX; 0: no op writes it */
    uint32_t d_latent;                                                  /* of ACT_LATENT, or 0 */
    uint32_t d_aside /* d_model, or 0 */, d_inputs /* n_layer * d_input, or 0 */;
    uint32_t n_prompt; /* rows of a step of INVARIANT_PROMPT, where they are more than PROMPT_ROWS */
};

struct backend {
    const char *name; /* "cpu", "cuda" */

    /* Opens a device. HEARTH_EDEVICE with the reason where there is none, it is too old or too small. */
    int (*open)(struct device **out, const struct device_params *p, struct hearth_err *e);
    void (*close)(struct device *d);
    void (*info)(struct device *d, struct device_info *out);

    /* Makes room for steps of these dimensions. HEARTH_ENOMEM leaves the old workspace as it was. */
    int (*reserve)(struct device *d, const struct workspace_dims *dims, struct hearth_err *e);

    /* Takes a matrix: fills w->dev from w->part. HEARTH_EUNSUPPORTED names a type it cannot multiply by. */
    int (*weight_load)(struct device *d, struct weight *w, struct hearth_err *e);
    /* Bytes that weight_load would take of the memory that w->host names; 0: it would refuse the matrix. *passing: of a
     * matrix in the host's memory, what it needs of the device's to pass through, once for all of them; 0: it can be in
     * the device's alone. Looks at no numbers. NULL: the device reads the mapped file. */
    uint64_t (*weight_bytes)(struct device *d, const struct weight *w, uint64_t *passing);
    void (*weight_free)(struct device *d, struct weight *w);
    /* Copies n floats to device memory; free with vec_free. */
    int (*vec_load)(struct device *d, const float *src, size_t n, float **out, struct hearth_err *e);
    void (*vec_free)(struct device *d, float *v);

    int (*kv_new)(struct device *d, const struct kv_desc *desc, struct kv_pool **out, struct hearth_err *e);
    void (*kv_free)(struct device *d, struct kv_pool *p);
    /*
     * Memory of a pool with extents, which has none at first. kv_map: the extent's pages have memory from now on, and
     * are zero; HEARTH_ENOMEM is an ordinary refusal. kv_unmap gives it back, contents and all; no step, copy or move
     * that names one of its pages is under way. Neither waits for steps that name none. NULL where kv_granule is 0.
     */
    int (*kv_map)(struct device *d, struct kv_pool *p, uint32_t extent, struct hearth_err *e);
    void (*kv_unmap)(struct device *d, struct kv_pool *p, uint32_t extent);
    void (*kv_copy)(struct device *d, struct kv_pool *p, uint32_t dst, uint32_t src); /* whole page, in step order */
    void (*kv_clear)(struct device *d, struct kv_pool *p,
                     uint32_t page); /* zero, before another uid gets it; may give memory back */

    /*
     * Moves of whole pages between a pool and memory of host_alloc, beside the steps: pages[i] goes to or comes from
     * host[i], kv_page_bytes each. A move begins when what was submitted before it (steps, copies, clears) is done, and
     * delays nothing submitted later; the moves of one direction are done in order. Until kv_transfer_done says 1
     *   - the caller keeps the pool, the host memory and the pages: no step writes to them, nor reads one being loaded.
     *     The two arrays are read in the call alone;
     *   - a load may be seen in part; what is submitted afterwards finds it whole.
     * A ticket of 0: refused (a page that the pool has not, a dead device; the error sticks), nothing will come of it.
     */
    uint64_t (*kv_save)(struct device *d, struct kv_pool *p, const uint32_t *pages, void *const *host, uint32_t n);
    uint64_t (*kv_load)(struct device *d, struct kv_pool *p, const uint32_t *pages, const void *const *host,
                        uint32_t n);
    /* 1 = done, 0 = under way, negative = never: the device failed, or no move has that ticket. Does not wait. */
    int (*kv_transfer_done)(struct device *d, uint64_t ticket, struct hearth_err *e);
    int (*kv_transfer_wait)(struct device *d, uint64_t ticket, struct hearth_err *e); /* 0 = done */

    /* How many bytes MEM_CACHE may have from now on; what is over is given back, after the steps under way. NULL: the
     * device keeps no such copies. */
    void (*cache_limit)(struct device *d, uint64_t bytes);

    /* Host memory for moves, on a system page's boundary, not cleared: pinned for a GPU, which takes the thread
     * about a second for some GB. Take slabs, before they are wanted. HEARTH_ENOMEM is an ordinary refusal. */
    int (*host_alloc)(struct device *d, uint64_t bytes, void **out, struct hearth_err *e);
    void (*host_free)(struct device *d, void *p); /* its moves are done */

    /*
     * Runs the program's ops over the batch, in order, then samples what the batch wants sampled. Returns the step's
     * ticket: 1, 2, 3 ... An op that multiplies by a matrix of another model than the program's is refused: the way
     * that matrices are multiplied may depend on all of their model's, and on nobody else's. The program is not kept;
     * CUDA may find by its id a graph that an earlier step of it left.
     */
    uint64_t (*step_run)(struct device *d, const struct batch *b, const struct program *p);

    /* The path that op i of the program takes in a step of n_row rows, one token of as many sequences: "cpu" on the
     * CPU; on a GPU "gemv", "skinny", "wgmma", "cublaslt" or "ref" for products, with "+epilogue" where what follows
     * the product takes a launch of its own; "one" for ops that have a single path, "one+plan" where a row needs its
     * kernels for many; NULL for an op that it cannot run. A static string. */
    const char *(*op_path)(struct device *d, const struct program *p, uint32_t i, uint32_t n_row, bool invariant);

    /* Whether INVARIANT_PROMPT is a way for many rows with this model's matrices, which are loaded, and such KV; else
     * its rows take INVARIANT_DECODE's, which is many times slower. NULL: it is not. */
    bool (*prompt_is_quick)(struct device *d, const void *model, const struct kv_desc *kv, uint32_t n_group);

    /* Waits until the step is done and copies what it sampled (in batch.sample's order) to out[n]; n may be 0.
     * At most device_info.max_in_flight tickets may be outstanding. */
    int (*step_wait)(struct device *d, uint64_t ticket, struct sampled *out, uint32_t n, struct hearth_err *e);

    /* A slot's sampling state: parameters and the token history that penalties read. The sampled tokens are
     * appended by the step that samples them. A slot set again starts anew. */
    int (*slot_set)(struct device *d, uint32_t slot, const struct sample_params *p, const int32_t *history,
                    uint32_t n_history, uint32_t n_vocab, struct hearth_err *e);

    /* Reads rows of an activation as the last step left them, as f32, in the order the specification gives. Slow; eval
     * and tests. */
    int (*act_read)(struct device *d, enum act a, uint32_t row0, uint32_t n_row, float *out, struct hearth_err *e);
    /* Rows of an activation, [n_row, n_col], that the next step finds when its ops begin; for tests of single ops. The
     * numbers are copied and wait for that step, which alone knows the form of its activations; it refuses rows that it
     * has not. What neither this nor an op wrote is as the last step left it, where that was over the same rows. */
    int (*act_write)(struct device *d, enum act a, uint32_t row0, uint32_t n_row, uint32_t n_col, const float *in,
                     struct hearth_err *e);

    /* Waits for everything, moves included, and reports the sticky error. */
    int (*sync)(struct device *d, struct hearth_err *e);

    /* Measures how fast the device reads memory that no cache holds, its own or, `host`, what it keeps of weight.host,
     * in bytes per second: the ceiling of a decode step. Takes a good part of a second and a buffer of so many bytes;
     * 0: as many as no cache falsifies. */
    int (*read_rate)(struct device *d, bool host, uint64_t bytes, double *bytes_per_s, struct hearth_err *e);
};

/* All backends of this build, best first, NULL-terminated. */
extern const struct backend *const backends[];

/* The backend of that name, or NULL. */
const struct backend *backend_find(const char *name);

#endif
