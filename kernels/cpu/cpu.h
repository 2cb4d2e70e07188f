/*
 * cpu.h - inside the CPU backend: the device, the panel layout of activations, and the table of variants.
 *
 * THE DOT PRODUCT, as every variant computes it, except for the types of kblock.h. For a weight row w and an
 * activation x, both [K]:
 *   - w[k] is the f32 value that dtype.c's to_f32 gives; w and x are padded with zeros to a multiple of LANES;
 *   - within each block of KB columns: sum[l] = fma(w[k], x[k], sum[l]) for k = l, l + 16, l + 32 ... ascending, from
 *     +0, for each lane l; then sum[l] += sum[l + s] for all l < s, for s = 8, 4, 2, 1;
 *   - the dot product is the sum of the blocks' sum[0], ascending, from +0.
 * The reference does exactly this; the tuned variants do the same operations on many lanes, rows and tokens at once.
 * So all variants are bit-identical, and a result depends only on its own row and its own weights: not on the other
 * rows of the batch, on how a prefill was cut into chunks, or on the number of threads.
 *
 * Norms, q . k and the softmax's denominator use the same lanes and reduction tree, over their whole length as one
 * block. Attention adds p[t] * v[t] in ascending t. exp is fmath.h's.
 *
 * Thread: a device belongs to the thread that opened it; kernels run on the pool's threads and touch only their items.
 */
#ifndef HEARTH_CPU_H
#define HEARTH_CPU_H

#include "kernels/cpu/pool.h"
#include "kernels/cpu/kblock.h"
#include "kernels/staged.h"

enum {
    LANES = 16,      /* partial sums of a dot product */
    KB = 512,        /* columns of a panel's block */
    ROPE_TABLES = 4, /* cached cos/sin tables, one per different struct rope of a step: gemma has two */
};

/*
 * A panel is an activation packed for matrix products: it is divided into blocks of KB columns, each block [n_row][KB],
 * so that the tile being computed is contiguous and no power-of-two stride thrashes a cache set. A panel of one row is
 * the row itself. Columns from n_col to the next multiple of LANES are zero.
 */
struct panel {
    float *v; /* [ceil(n_col / KB)][n_row][KB] */
    uint32_t n_row, n_col;
    struct kblock *kb; /* the same values as integers (kblock.h), or NULL: then all weights are multiplied as f32 */
};
enum { INT_DOTS_TOKENS = 4 }; /* up to so many rows unpack the weights for each row; more unpack them once: the tile */
static inline bool panel_many(const struct panel *p)
{
    return p->n_row > INT_DOTS_TOKENS;
}
static inline size_t panel_stride(const struct panel *p) /* floats between blocks */
{
    return (size_t)p->n_row * KB;
}
static inline float *panel_row(const struct panel *p, uint32_t row) /* its columns [0, KB) */
{
    return p->v + (size_t)row * KB;
}
static inline uint32_t round_up(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

/* Keys and values of one layer and one KV head, page by page. */
struct kv_view {
    enum dtype type;
    uint32_t d_head, d_v;  /* dimensions of a key, and of a value */
    uint32_t v_row;        /* elements from one position's value to the next: of a value, or a key that contains it */
    const char *base;      /* page 0, at this layer and head's K */
    size_t page_stride;    /* bytes from page to page */
    size_t v_offset;       /* bytes from the first key to the first value; the value may be inside the key */
    const uint32_t *pages; /* block table of the sequence */
};
struct attend_args {
    struct kv_view kv;
    uint32_t t0, t1; /* visible positions [t0, t1) */
    uint32_t n_head; /* query heads that share these keys */
    const float *q;  /* [n_head, d_head] */
    float *out;      /* [n_head, d_v] */
    float scale, softcap;
    const float *sinks; /* [n_head] or NULL */
    float *scores;      /* scratch [n_head, round_up(t1 - t0, LANES)] */
    float *tmp;         /* scratch ATTEND_TMP(d_head) floats */
};
enum { ATTEND_HEADS = 4 }; /* query heads that attend computes at a time */
#define ATTEND_TMP(d_head) (2 * (size_t)KV_PAGE * round_up(d_head, LANES))

/* A variant: implementations of the hot loops. kernels/cpu/reference.c specifies their results. */
struct cpu_kernels {
    const char *name;
    bool (*usable)(void);
    /* y[row * ldy + o - o0] = dot(row o of the part, row of x), o in [o0, o1); scratch: [matmul_scratch(n_in)] */
    void (*matmul)(const struct weight_part *w, uint32_t n_in, const struct panel *x, uint32_t o0, uint32_t o1,
                   float *y, size_t ldy, float *scratch);
    /* Makes a k-block of 256 values; `biased` as kblock.h has it. */
    void (*kblock)(const float *x, struct kblock *out, bool biased);
    /* Normalises n values of x into y, whose blocks of KB columns are `ystride` floats apart (KB: contiguous). y may
     * alias x. */
    void (*norm)(const struct norm *p, const float *x, uint32_t n, float *y, size_t ystride);
    void (*glu)(enum glu_kind kind, const float *gate, const float *up, float *y, uint32_t n);
    void (*attend)(const struct attend_args *a);
    void (*softcap)(float *x, uint32_t n, float cap);
    /* Applies RoPE to the first n_rot elements of each head; cs [n_rot] is cos, sin for each pair. */
    void (*rope)(enum rope_kind kind, const float *cs, uint32_t n_rot, float *v, uint32_t n_head, uint32_t d_head);
    void (*exp)(const float *x, float sub, float div, float *y, uint32_t n); /* y = exp((x - sub) / div) */
    void (*f16)(const float *x, uint16_t *y, uint32_t n);                    /* conversion of KV to F16 */
    /* One token of one head: of a gated delta net, updating its state S [d_k, d_v], and of Mamba-2, S [d_state,
     * d_head], where y overwrites x. Specified in elem.h. */
    void (*delta)(float *s, uint32_t d_k, uint32_t d_v, const float *q, const float *k, const float *v, float keep,
                  float beta, float *y);
    void (*mamba2)(float *s, uint32_t d_state, uint32_t d_head, const float *b, const float *c, float keep,
                   float length, float skip, float *x);
};
extern const struct cpu_kernels cpu_reference;
#ifdef __x86_64__
extern const struct cpu_kernels cpu_avx2, cpu_avxvnni, cpu_avx512;
#endif

enum {
    MATMUL_TOKENS = 128,      /* rows of activations in one pass of the tuned matmul */
    MATMUL_ROWS = 8,          /* weight rows that it expands at a time */
    TILE_SCRATCH = 16384 / 4, /* upper bound of struct tile_weights (tuned-tile.h), in floats */
};
static inline size_t matmul_scratch(uint32_t n_in) /* floats */
{
    size_t tuned = (size_t)MATMUL_ROWS * KB;
    size_t row = round_up(n_in, KB); /* the reference expands one row */
    row = row > tuned ? row : tuned;
    return row > TILE_SCRATCH ? row : TILE_SCRATCH;
}

struct kv_pool {
    struct kv_desc desc;
    char *base;
    size_t stride, bytes; /* a page's size, rounded up to whole system pages; the mapping's size */
    bool *has;            /* [kv_extents] which extents are mapped; NULL: no extents, all of the pool is mapped */
};

/* A buffer that only grows. */
struct scratch {
    float *v;
    size_t room; /* floats */
};

struct rope_table {
    struct rope rope;
    struct scratch cs; /* [n_row, n_rot]: cos, sin for each pair */
};

/* sample.c: a slot's state between steps. */
struct slot {
    bool set;
    struct sample_params p; /* p.bias is a copy that the slot owns */
    uint32_t n_vocab;
    int32_t last;     /* token sampled last, or -1 */
    int32_t *history; /* [n_history], only where a penalty needs it */
    uint32_t n_history, room;
    uint32_t *count; /* [n_vocab] occurrences in the window of penalty_last */
};

struct device {
    const struct cpu_kernels *k;
    struct pool *pool;
    uint32_t n_thread;
    enum dtype kv_type;         /* see device_info */
    struct hearth_err err;      /* the step's first error; code 0: none */
    uint64_t ticket, transfers; /* tickets of the last step and of the last KV transfer */
    uint64_t hot_allocs;
    uint64_t held[MEM_KINDS];

    struct workspace_dims dims;
    void *workspace;
    struct panel normed, att, ff;    /* inputs of matrix products; n_row and n_col are the step's */
    struct panel latent;             /* likewise, ACT_LATENT */
    float *x;                        /* [n_row, d_model] */
    float *q, *kv;                   /* [n_row, d_q], [n_row, 2, d_kv] */
    float *y;                        /* [n_row, d_model] product before a post-norm */
    float *logits;                   /* [n_out, n_vocab] */
    float *route, *experts;          /* [n_row, d_route], [n_row, d_experts] */
    float *mix;                      /* [n_row, d_mix] */
    float *aside, *inputs;           /* [n_row, d_model], [n_row, d_inputs] */
    struct scratch *scratch;         /* [n_thread] */
    struct scratch scores, gathered; /* [n_row, n_expert] router logits; the rows of each expert as panels */
    struct scratch kblocks;          /* k-blocks of the panel that is being multiplied */
    struct scratch convolved;        /* [n_row, channels], see state.h */
    uint32_t d_model, d_q, n_logit;  /* columns of x, q and logits, as they were last written */
    uint32_t d_route, d_experts;     /* likewise, of route and experts */
    uint32_t d_mix;                  /* of mix */
    uint32_t d_aside, d_inputs;      /* of aside and inputs */
    uint32_t max_keys;               /* positions in the step's longest sequence, rounded up to LANES */

    struct batch batch;    /* of the last step; its arrays are below */
    const void *model;     /* the model of the program that the step runs */
    struct staged *staged; /* activations that act_write has set for the next step */
    int32_t token[BATCH_ROWS_MAX];
    uint32_t pos[BATCH_ROWS_MAX], seq_of[BATCH_ROWS_MAX], out_row[BATCH_ROWS_MAX];
    struct batch_seq seq[BATCH_SEQS_MAX];
    uint32_t *pages; /* the block tables of all sequences and groups, concatenated */
    size_t pages_room;
    struct rope_table rope[ROPE_TABLES];
    uint32_t n_rope;

    struct sampled sampled[BATCH_ROWS_MAX];
    uint32_t n_sampled;
    struct slot slot[SLOTS_MAX];
};

/* Records the step's error, if it is the first; the remaining ops of the step do nothing. */
void cpu_fail(struct device *d, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Makes the buffer hold at least n floats, 64-byte aligned; its contents are lost where it grows. Returns false and
 * sets the step's error on failure. */
bool cpu_scratch(struct device *d, struct scratch *s, size_t n);

/* kv.c */
int cpu_kv_new(struct device *d, const struct kv_desc *desc, struct kv_pool **out, struct hearth_err *e);
void cpu_kv_free(struct device *d, struct kv_pool *p);
int cpu_kv_map(struct device *d, struct kv_pool *p, uint32_t extent, struct hearth_err *e);
void cpu_kv_unmap(struct device *d, struct kv_pool *p, uint32_t extent);
void cpu_kv_copy(struct device *d, struct kv_pool *p, uint32_t dst, uint32_t src);
void cpu_kv_clear(struct device *d, struct kv_pool *p, uint32_t page);
uint64_t cpu_kv_save(struct device *d, struct kv_pool *p, const uint32_t *pages, void *const *host, uint32_t n);
uint64_t cpu_kv_load(struct device *d, struct kv_pool *p, const uint32_t *pages, const void *const *host, uint32_t n);
int cpu_kv_transfer_done(struct device *d, uint64_t ticket, struct hearth_err *e);
int cpu_kv_transfer_wait(struct device *d, uint64_t ticket, struct hearth_err *e);
int cpu_host_alloc(struct device *d, uint64_t bytes, void **out, struct hearth_err *e);
void cpu_host_free(struct device *d, void *p);

/* rate.c */
int cpu_read_rate(struct device *d, bool host, uint64_t bytes, double *bytes_per_s, struct hearth_err *e);

/* step.c */
uint64_t cpu_step_run(struct device *d, const struct batch *b, const struct program *p);
int cpu_step_wait(struct device *d, uint64_t ticket, struct sampled *out, uint32_t n, struct hearth_err *e);

/* cpu_embed() and so on: ops.c, and files named after the op */
#define X(KIND, name, ...) void cpu_##name(struct device *d, const struct op_##name *op);
OPS(X)
#undef X

/* cpu.c: copies the staged activations into the workspace of the step that begins. */
void cpu_act_apply(struct device *d);

/* sample.c */
void cpu_sample(struct device *d, const struct batch_sample *op);
int cpu_slot_set(struct device *d, uint32_t slot, const struct sample_params *p, const int32_t *history,
                 uint32_t n_history, uint32_t n_vocab, struct hearth_err *e);
void cpu_slot_fini(struct slot *s);

#endif
