/*
 * attend.cuh - what the kernels of attention share: their arguments, the sizes of heads, gates and sinks.
 */
#ifndef HEARTH_CUDA_ATTEND_CUH
#define HEARTH_CUDA_ATTEND_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/ptx.cuh"

enum {
    TILE_ROWS = 8,   /* rows of a work item: the columns of an mma */
    TRUNK_ROWS = 32, /* rows of a work item of trunk.cu */
};

/*
 * Attention's part of a step's metadata, before the block tables: trunks, which are sets of sequences whose block
 * tables begin with the same pages, and the number of whole chunks of attention that they share.
 */
enum { TRUNKS_MAX = 8 };
struct step_trunk {
    uint32_t first, n_seq; /* in step_trunks.seq */
    uint32_t n_chunk;
};
struct step_trunks {
    uint32_t n, rows; /* n: trunks; rows: rows whose sequence has one */
    struct step_trunk trunk[TRUNKS_MAX];
    uint32_t seq[BATCH_SEQS_MAX];    /* their sequences, trunk by trunk */
    uint32_t chunks[BATCH_SEQS_MAX]; /* a sequence's chunks that belong to its trunk; 0: it has none */
};
static inline struct step_trunks *trunks_of(const struct device *d, const step_dev *m)
{
    return (struct step_trunks *)(m->group + d->n_group);
}

struct attend_args {
    const __half *q; /* [rows, ldq] */
    uint32_t ldq;
    act_buf out;
    kv_view kv;
    const step_dev *s;
    const uint32_t *pages, *pages0; /* the step's block tables; where a sequence's begins: step_group.pages0 */
    const step_trunks *trunks;      /* NULL: the step has none, or the layer does not read them */
    uint32_t n_head, group, window; /* group: query heads per KV head */
    float scale, softcap;
    const float *sinks; /* one per query head, or NULL: op_attend.sinks */
    const float *gates; /* ACT_MIX, where results have gates there (op_attend.gated); else NULL */
    uint32_t ldgates;
    float *part;             /* [(row, chunk)][n_head][D sums, maximum, denominator, 2 unused] */
    uint32_t row_lo, row_hi; /* rows of the step that this launch takes; in prefill.cu the rows whose sums it keeps */
    uint32_t rows_max;       /* sequences with more rows go to the other kernel, prefill.cu's; 0: all do */
    uint32_t split;          /* prefill.cu: 0, or tokens of KV per block, whose sums are in `part` by [piece][row] */
    uint32_t split_rows;     /* rows of such a piece, the first being row_lo */
    bool q8;                 /* KV is of Q8_0, and heads are made of whole blocks; else fp16 */
    bool one;                /* the step has one row, and a group's heads fit a tile */
    bool first;              /* likewise; the row sees all of its context, and its block table is the step's first */
};

/* Multiplies four neighbouring dimensions of a row's result by the sigmoid of their gates. */
template <int D>
__device__ static inline void apply_gates(const attend_args &a, uint32_t row, uint32_t head, uint32_t dim, float v[4])
{
    float4 g = __ldcg((const float4 *)(a.gates + (uint64_t)row * a.ldgates + (2 * head + 1) * D + dim));
    v[0] *= act_sigmoid(g.x), v[1] *= act_sigmoid(g.y), v[2] *= act_sigmoid(g.z), v[3] *= act_sigmoid(g.w);
}

/* split_kv.cu, stream.cu and reduce.cu: rows [row_lo, row_hi) of sequences of at most rows_max rows (plan.cuh). */
struct split_args;
void attend_split_init(struct device *d);
void attend_split_run(struct device *d, const split_args &a, uint32_t d_head);
/* The most blocks that such a launch has work for. No more are launched, so that the next product's blocks start on the
 * rest of the GPU and load weights. */
uint32_t attend_items(const struct device *d, const split_args &a, uint32_t d_head);
/* Whether items for heads of this size may have REDUCE_SETS chunks, whose sums are kept in shared memory until the
 * item's end. */
bool attend_spans(const struct device *d, uint32_t d_head);
/*
 * decode.cu: the same for decode steps of many sequences on Hopper, with fp16 KV, whose items do the tail of q|k|v
 * themselves (tailed.cuh). attend_decode_takes: whether it takes this step's attention to a pool, with `group` query
 * heads per KV head. attend_ranks: log2 of the number of blocks that share an item, in steps of so many items whose
 * contexts are not cut. attend_decode_teams: how many teams of so many warps (ATTEND_TEAM_MIN up to attend_warps()) the
 * device runs at once.
 */
enum { ATTEND_TEAM_MIN = 2 }; /* warps, a power of two */
struct attend_tail;
void attend_decode_init(struct device *d);
bool attend_decode_takes(const struct device *d, const struct kv_desc *kv, uint32_t group);
uint32_t attend_ranks(const struct device *d, uint32_t items);
uint32_t attend_decode_teams(const struct device *d, uint32_t d_head, uint32_t warps);
void attend_decode_run(struct device *d, const split_args &a, const attend_tail &tail, uint32_t d_head);
/* stream.cu: the same for a step of one row; false where split_kv.cu has to do it. */
void attend_stream_init(struct device *d);
bool attend_stream_run(struct device *d, const split_args &a, uint32_t d_head);
/*
 * trunk.cu, on Hopper: partial sums of the chunks that sequences of a decode step share. attend_trunks finds trunks in
 * the step's block tables, where bits may depend on the batch: it writes their sequences to `to`, and to `pages`, by
 * sequence, the number of whole pages shared, 0 for none; returns the number of trunks.
 */
uint32_t attend_trunks(const struct device *d, const step_dev *m, struct step_trunks *to,
                       uint32_t pages[BATCH_SEQS_MAX]);
void attend_trunk_init(struct device *d);
void attend_trunk_run(struct device *d, const split_args &a, uint32_t d_head);
/* wide.cu: the same for key and value sizes that split_kv.cu does not take. d_value == d_k, or values are the last
 * d_value dimensions of their keys. attend_wide_supports with d_value 0: whether there is a kernel for this d_k with
 * any size of values. */
bool attend_wide_supports(uint32_t d_k, uint32_t d_value);
void attend_wide_init(struct device *d);
void attend_wide_run(struct device *d, const split_args &a, uint32_t d_k, uint32_t d_value);
void attend_reduce_init(struct device *d);
void attend_reduce_run(struct device *d, const split_args &a, uint32_t d_value);
/* Computes the sub-block sums of the results where heads do not end on multiples of 32: the other kernels leave them
 * out there. */
void attend_sums_run(struct device *d, const attend_args &a, uint32_t d_head);

/* prefill.cu: takes the sequences with more than a.rows_max rows; false where the chip has too little shared memory. */
enum {
    ATTEND_SHORT_ROWS = 16,
    ATTEND_SPLIT = 2048, /* tokens at which prefill.cu cuts a context in steps of INVARIANT_PROMPT: whole turns of both
                          * its groups */
    ATTEND_SPLIT_ROWS = 512, /* at most, rows of the step whose pieces are in `part` at a time */
};
/* The rows of the step whose pieces are in `part` at a time: fewer where contexts are long. */
uint32_t attend_split_rows(const struct device *d);
void attend_long_init(struct device *d);
bool attend_long(struct device *d, const struct op_attend *op, attend_args a);

/* The head sizes that split_kv.cu and prefill.cu take: f(head_size<D>()). by_head: false if d_head is none of them.
 * each_value, by_value: the sizes of values, wide.cu's included. */
template <int D> struct head_size {
    enum { d = D };
};
template <class F> static inline void each_head(F f)
{
    f(head_size<32>()), f(head_size<48>()), f(head_size<64>()), f(head_size<80>()), f(head_size<96>());
    f(head_size<112>()), f(head_size<128>()), f(head_size<192>()), f(head_size<256>());
}
template <class F> static inline bool by_head(uint32_t d_head, F f)
{
    bool found = false;
    each_head([&](auto size) {
        if (size.d == d_head)
            f(size), found = true;
    });
    return found;
}

template <class F> static inline void each_value(F f)
{
    each_head(f);
    f(head_size<512>());
}
template <class F> static inline void by_value(uint32_t d_value, F f)
{
    each_value([&](auto size) {
        if (size.d == d_value)
            f(size);
    });
}

template <int N> struct vec;
template <> struct vec<2> {
    typedef uint32_t type;
};
template <> struct vec<4> {
    typedef uint2 type;
};
template <> struct vec<8> {
    typedef uint4 type;
};
/* The denominator of a row's softmax including its head's sink (op_attend.sinks), where there are sinks. top: the
 * greatest of the row's scores, in base 2; den: the sum of 2 to the power of each score less top. */
__device__ static inline float with_sink(const attend_args &a, uint32_t head, float top, float den)
{
    if (!a.sinks)
        return den;
    float s = a.sinks[head] * LOG2E - top;
    return den + exp2_fast(fminf(s, 120.f)); /* a sink far above all scores: they vanish beside it */
}

#endif
