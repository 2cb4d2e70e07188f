/*
 * gemm.cuh - the decode path's matrix product: two kernels over T16 weights (tile16.cuh), and their arguments.
 * items.cuh has what follows a product, prepare.cuh how rows become what skinny multiplies.
 *
 * gemv (gemv.cuh) is for one to four rows times quantised weights, in integers. skinny (skinny.cuh, copied.cuh) is for
 * up to 64 rows, in fp16, and for one row where weights are floats or the chip is older than Ampere (it then reads
 * weights and activations straight from memory). A block of skinny takes groups of eight tiles, a warp each, so that a
 * record of activations, streamed beside the weights, serves 128 rows. A matrix of too few groups is cut into its
 * chunks of K over eight blocks; the last to arrive adds the chunks in order.
 *
 * A row's bits are the same in every launch of one of them; the invariant mode keeps a matrix to one of them whatever
 * the number of rows.
 */
#ifndef HEARTH_CUDA_GEMM_CUH
#define HEARTH_CUDA_GEMM_CUH

#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/gemm/rownorm.cuh"
#include "kernels/cuda/quant/quant.cuh"

enum gemm_epilogue {
    EP_TMP,  /* to ws.tmp: another kernel finishes */
    EP_QKV,  /* bias, RoPE, queries and KV */
    EP_PROJ, /* added to ws.x */
    EP_GLU,  /* act(gate) * up, prepared for `down` */
    EP_LOGITS,
};

struct gemm_part {
    uint32_t tile0, n_tile, row0, n_out, second; /* second: of type TB */
    uint64_t off;
};

struct gemm_args {
    const uint8_t *w;
    struct gemm_part part[3];
    uint32_t n_part, n_kblk;
    uint32_t tile_lo, tile_hi; /* tiles of this launch */
    uint32_t pair;             /* gemv: tiles this far apart within 2 * pair are finished together; 0 = alone */
    uint32_t stage_bytes;      /* gemv: bytes of a stage */
    uint32_t in_flight;        /* gemv: stages on their way at a time, one a set, ... */
    uint32_t blocks;           /* gemv, one row: of a processor that there is to be shared memory for; 0: two */
    uint32_t stages, split_k;  /* skinny: split = blocks over K, 1 or K_SLICES */
    uint32_t row0, bucket;
    bool gemv;
    bool ahead;     /* gemv: ... and two at least once the ring was filled */
    bool bulk;      /* the ring is filled by bulk copies */
    uint16_t round; /* gemv, in rounds: k-blocks of a slice that a round takes */
    /* activations: prepared rows, or f32 rows to be normed (gemv) */
    const __half *x;
    uint32_t k;
    const float *xf;
    uint32_t ldxf;
    struct norm norm;
    const uint32_t *gather;
    /* what follows */
    enum gemm_epilogue ep;
    const float *bias;
    float *out; /* TMP, PROJ, LOGITS; QKV: ACT_X */
    uint32_t ldout;
    float scale, softcap; /* PROJ: of the residual; LOGITS */
    enum glu_kind glu;
    uint32_t glu_rows; /* hidden units a tile holds: 8 where gate and up share it */
    act_buf ff;
    uint32_t n_head, n_kv, d_head;
    struct rope rope;
    struct attend_temperature temperature;
    struct {
        const float *w; /* NULL: none */
        float eps;
    } head_norm[3]; /* gemv, NEOX: RMS norms of q's, k's and v's heads, each over the d_head of a head (heads.cuh) */
    bool pairs;     /* gemv, one row: two tiles a block, see gemm.cu's in_pairs() */
    struct row_norm row_norm; /* PROJ in pairs: of the row before it is added */
    __half *q;
    uint32_t ldq;
    kv_view kv;
    const step_dev *step;
    const uint32_t *kv_slot;  /* QKV: of the op's layer group */
    const uint32_t *prefetch; /* gemv, one row: its block table, of which first keys are asked into L2, or NULL */
    uint32_t prefetch_items;
    float *split_k_partials;
    uint32_t *semaphore;
    ulonglong2 *x_said; /* gemv, TMP: a slot that is told when x is whole, or NULL */
    uint32_t x_nth;     /* said_tag() */
};

enum { WARPS = 8, CONSUMERS = WARPS * 32, BLOCK = CONSUMERS + 32 };

template <int N = CONSUMERS> __device__ static inline void consumers_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(N) : "memory");
}

/* An RMS norm's factor can be multiplied with what the matrix makes of the row. */
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
/* The i-th tile of a block's list, for tiles finished in pairs (NEOX: a rotation's two rows lie half a head apart)
 * where a kernel has such. */
template <bool PAIRS = true> __device__ static inline uint32_t tile_at(const gemm_args &a, uint32_t i)
{
    if (!PAIRS || !a.pair)
        return a.tile_lo + blockIdx.x + i * gridDim.x;
    uint32_t u = blockIdx.x + i / 2 * gridDim.x;
    return a.tile_lo + u / a.pair * 2 * a.pair + u % a.pair + (i & 1) * a.pair;
}

/* --- launching --------------------------------------------------------------------------------------------------- */

/* The shared memory of two resident blocks, or of one. */
static inline uint32_t smem_for(const struct device *d, int blocks)
{
    uint32_t all = (uint32_t)d->smem_max + 1024; /* a block has 1 KiB of the system's besides its own */
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
