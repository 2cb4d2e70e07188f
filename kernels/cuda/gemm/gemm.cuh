/*
 * gemm.cuh - the decode path's matrix product: the arguments of its two kernels over T16 weights (tile16.cuh), gemv and
 * skinny. items.cuh has what follows a product; prepare.cuh has how rows become what skinny multiplies.
 *
 * gemv (gemv.cuh) multiplies one to four rows by quantised weights, in integers. skinny (skinny.cuh, copied.cuh)
 * multiplies up to 64 rows, in fp16; it also takes a single row where weights are floats or the chip is older than
 * Ampere (it then reads weights and activations straight from memory). A block of skinny takes groups of eight tiles,
 * one per warp, so that a record of activations, streamed beside the weights, serves 128 weight rows. A matrix with too
 * few groups is split along K: eight blocks take one slice of K each, and the last block to arrive adds the slices'
 * sums in order.
 *
 * A row's bits are the same in every launch of the same kernel; the invariant mode uses the same kernel for a matrix
 * whatever the number of rows.
 */
#ifndef HEARTH_CUDA_GEMM_CUH
#define HEARTH_CUDA_GEMM_CUH

#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/gemm/rownorm.cuh"
#include "kernels/cuda/quant/quant.cuh"

enum gemm_epilogue {
    EP_TMP,  /* to ws.tmp: another kernel finishes the op */
    EP_QKV,  /* bias, RoPE, queries and KV */
    EP_PROJ, /* added to ws.x */
    EP_GLU,  /* act(gate) * up, prepared for `down` */
    EP_LOGITS,
};

struct gemm_part {
    uint32_t tile0, n_tile, row0, n_out, second; /* second: the part's weights are of type TB */
    uint64_t off;
};

struct gemm_args {
    const uint8_t *w;
    struct gemm_part part[3];
    uint32_t n_part, n_kblk;
    uint32_t tile_lo, tile_hi; /* tiles of this launch */
    uint32_t pair;             /* gemv: tiles this far apart within 2 * pair are finished together; 0: each by itself */
    uint32_t stage_bytes;      /* gemv: bytes of a stage */
    uint32_t in_flight;        /* gemv: copies of stages in flight at a time, one for each set of consumers; ... */
    uint32_t blocks;           /* gemv, one row: blocks per SM that shared memory is divided among; 0: two */
    uint32_t stages, split_k;  /* skinny; split_k: blocks along K, 1 or K_SLICES */
    uint32_t row0, bucket;
    bool gemv;
    bool ahead;     /* gemv: ... and at least two once the ring has been filled */
    bool bulk;      /* the ring is filled by bulk copies */
    uint16_t round; /* gemv, in rounds: k-blocks of each slice that a round takes */
    /* activations: prepared rows, or f32 rows to be normed (gemv) */
    const __half *x;
    uint32_t k;
    const float *xf;
    uint32_t ldxf;
    struct norm norm;
    const uint32_t *gather;
    /* the epilogue */
    enum gemm_epilogue ep;
    const float *bias;
    float *out; /* TMP, PROJ, LOGITS: the output; QKV: ACT_X, for value_is_nan() */
    uint32_t ldout;
    float scale, softcap; /* PROJ: factor of what is added to the residual; LOGITS */
    enum glu_kind glu;
    uint32_t glu_rows; /* hidden units that a tile holds: 8 where gate and up share it */
    act_buf ff;
    uint32_t n_head, n_kv, d_head;
    struct rope rope;
    struct attend_temperature temperature;
    struct {
        const float *w; /* NULL: none */
        float eps;
    } head_norm[3]; /* gemv, NEOX: RMS norms of q's, k's and v's heads, each over the d_head of a head (heads.cuh) */
    bool pairs;     /* gemv, one row: a block takes two tiles, see in_pairs() in gemm.cu */
    struct row_norm row_norm; /* PROJ in pairs: the norm of the row before it is added */
    __half *q;
    uint32_t ldq;
    kv_view kv;
    const step_dev *step;
    const uint32_t *kv_slot;  /* QKV: those of the op's layer group */
    const uint32_t *prefetch; /* gemv, one row: its block table, whose first keys are prefetched into L2, or NULL */
    uint32_t prefetch_items;
    float *split_k_partials;
    uint32_t *semaphore;
    ulonglong2 *x_said; /* gemv, TMP: the slot in which it is published that ws.x is complete, or NULL */
    uint32_t x_nth;     /* said_tag() */
};

enum { WARPS = 8, CONSUMERS = WARPS * 32, BLOCK = CONSUMERS + 32 };

template <int N = CONSUMERS> __device__ static inline void consumers_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(N) : "memory");
}

/* Whether the norm's factor can be applied to the product instead of its input: an RMS norm without a bias. */
__host__ __device__ static inline bool norm_deferrable(const struct norm &n)
{
    return n.kind == NORM_RMS && !n.b;
}

__device__ static inline const gemm_part &part_of(const gemm_args &a, uint32_t tile)
{
    int i = 0;
    while (i + 1 < (int)a.n_part && tile >= a.part[i + 1].tile0)
        i++;
    return a.part[i];
}
/* The i-th tile of a block's list; PAIRS: for kernels that may finish tiles in pairs (NEOX: a rotation's two rows lie
 * half a head apart). */
template <bool PAIRS = true> __device__ static inline uint32_t tile_at(const gemm_args &a, uint32_t i)
{
    if (!PAIRS || !a.pair)
        return a.tile_lo + blockIdx.x + i * gridDim.x;
    uint32_t u = blockIdx.x + i / 2 * gridDim.x;
    return a.tile_lo + u / a.pair * 2 * a.pair + u % a.pair + (i & 1) * a.pair;
}

/* --- launching --------------------------------------------------------------------------------------------------- */

/* The dynamic shared memory of each of so many resident blocks of an SM. */
static inline uint32_t smem_for(const struct device *d, int blocks)
{
    uint32_t all = (uint32_t)d->smem_max + 1024; /* the system reserves 1 KiB per block besides the block's own */
    return all / blocks - 1024;
}

template <typename K> static inline void smem_once(struct device *d, K *k, uint32_t *done)
{
    if (*done >> d->index & 1)
        return;
    cuda_smem(d, k, d->smem_card);
    *done |= 1u << d->index;
}

static inline uint32_t min_u(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* One per type (one_type.cu), and per pair of types in one q|k|v. */
typedef void gemm_fn(struct device *d, gemm_args &a);
#define X(t, T, number) extern gemm_fn gemm_##t;
QUANTS(X)
#undef X
extern gemm_fn gemm_q46_k;

#endif
