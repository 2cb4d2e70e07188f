/* gemv_block.cuh - a block of gemv.cuh: its epilogues, its warps, the layout of its shared memory, and its barriers. */
#ifndef HEARTH_CUDA_GEMM_GEMV_BLOCK_CUH
#define HEARTH_CUDA_GEMM_GEMV_BLOCK_CUH

#include "kernels/cuda/gemm/gemm.cuh"
#include "kernels/cuda/gemm/tile16_int.cuh"

/*
 * The epilogues that have kernels of their own. Code is fetched as it is executed, so a kernel with less code reaches
 * its end sooner; but O and gate|up share a kernel, most of whose code is then fetched only once per layer.
 */
enum gemv_ep {
    GEMV_QKV,
    GEMV_QKV_NORMED, /* q's, k's and v's heads have norms: heads.cuh */
    GEMV_REST,
    GEMV_PAIRS,    /* O and `down`: two tiles per block, which share its activations; a norm may follow: rownorm.cuh */
    GEMV_QKV_SETS, /* as GEMV_QKV and GEMV_REST, for two and four rows: two sets of warps, a tile each */
    GEMV_REST_SETS,
    GEMV_QKV_ROUNDS, /* as GEMV_QKV and GEMV_REST where a row does not fit: rounds.cuh */
    GEMV_REST_ROUNDS,
};
__host__ __device__ constexpr bool is_qkv(int ep)
{
    return ep == GEMV_QKV || ep == GEMV_QKV_NORMED || ep == GEMV_QKV_SETS || ep == GEMV_QKV_ROUNDS;
}
__host__ __device__ constexpr bool in_sets(int ep)
{
    return ep == GEMV_QKV_SETS || ep == GEMV_REST_SETS;
}
__host__ __device__ constexpr bool in_rounds(int ep)
{
    return ep == GEMV_QKV_ROUNDS || ep == GEMV_REST_ROUNDS;
}

enum {
    FLUSH = 2, /* tiles finished at once: the two of a rotation may be a pair */
    STAGES_MAX = 16,
};

/*
 * The shape of a block, by its number of rows M and of sets of eight multiplying warps (CGROUPS), and offsets in its
 * shared memory. Two sets take turns at a tile's records, in a block of one tile, or take a tile each, where tiles are
 * finished in pairs or there are several rows. PARTIALS: BUFS buffers of [warp][TILES][M][16 rows][4 quarters].
 * SQUARES: the norm's sums of squares, one per warp, of which the first set's are read.
 */
template <int M, int CGROUPS, int EP> struct gemv_shape {
    enum {
        PAIRS = EP == GEMV_PAIRS,
        IN_SETS = in_sets(EP),
        BY_TILE = CGROUPS == 2 && is_qkv(EP) && !IN_SETS,
        TILE_EACH = BY_TILE || PAIRS || IN_SETS, /* a set takes every other tile */
        K_SPLIT = TILE_EACH ? 1 : CGROUPS,       /* sets that share a tile */
        EACH = PAIRS ? CGROUPS : K_SPLIT,        /* a set converts every EACH-th record of a row */
        CONSUMER_THREADS = CGROUPS * CONSUMERS,
        EPILOGUE_THREADS = 32,
        THREADS = CONSUMER_THREADS + 32 + EPILOGUE_THREADS,
        BAR_THREADS = CONSUMER_THREADS + EPILOGUE_THREADS, /* threads that take part in a barrier */
        TILES = K_SPLIT == 1 ? FLUSH : 1,
        BUF = K_SPLIT * WARPS * TILES * M * 64,
        BUFS = in_rounds(EP) ? 1 : 2,
        ONE_TILE = CGROUPS == 2 && EP == GEMV_REST, /* one tile per block, of prepared rows, without GLU */
        IN_PAIRS = is_qkv(EP) || PAIRS,             /* tiles may be finished in pairs */
        ZERO = 256,
        SQUARES = ZERO + 64,
        PARTIALS = SQUARES + (BY_TILE + 1) * M * WARPS * 4,
        X = PARTIALS + BUFS * BUF * 4,
    };
    /* n_kblk: records of a row that are in shared memory at a time. Of four rows, which are read together, no two
     * planes are in the same banks: a row is an odd number of sixteens of bytes. */
    __host__ __device__ static uint32_t row_step(uint32_t n_kblk)
    {
        return n_kblk * IX_KBLK + (M == 4 && n_kblk % 2 == 0 ? 16 : 0);
    }
    __host__ __device__ static uint32_t fixed(uint32_t n_kblk)
    {
        return (X + (BY_TILE + 1) * M * row_step(n_kblk) + 127) & ~127u;
    }
    __host__ __device__ static uint32_t fixed(const gemm_args &a)
    {
        return fixed(in_rounds(EP) ? K_SLICES * a.round : a.n_kblk);
    }
};

template <int N> struct gemv_number {
    enum { value = N };
};

template <int TA, int TB> struct gemv_ring {
    static constexpr uint32_t UA = t16_frag_bytes(TA), UB = t16_frag_bytes(TB), PA = t16_frags(TA), PB = t16_frags(TB);
    static uint32_t stage_bytes(uint32_t n_kblk)
    {
        return (UA > UB ? UA : UB) * (n_kblk < K_SLICES ? n_kblk : K_SLICES);
    }
};

/* Named barriers of a block: the sums are in buffer 0 or 1; that buffer has been read; the norm's squares are
 * complete; two sets' warps have converted a slice's records. */
enum { BAR_FULL = 1, BAR_READ = 3, BAR_SQUARES = 5, BAR_RECORDS = 6 /* one for each slice of K */ };

#endif
