/*
 * copied.cuh - the product of skinny.cuh on cards other than Hopper, whose copies into shared memory are cp.async,
 * bit-identical to skinny.cuh; and the choice among all of these kernels. Included by one_type.cu.
 *
 * Each warp copies its own tile's fragments, and all of a block's threads copy the activations that its warps share:
 * copies are 16 bytes per thread, and one warp that copied for eight others would take longer to issue its copies than
 * the eight take to multiply. A stage is a k-block. The threads synchronise once per stage, and the stage that they
 * have all left is refilled while the next is multiplied, across the ends of items. The sums of a group of tiles are
 * collected in the stage that was read last, so no shared memory is kept for them.
 *
 * A block has 32 columns, or 64 where two stages of that width fit; further columns go to further blocks, side by side,
 * which share their weights through L2.
 */
#ifndef HEARTH_CUDA_GEMM_COPIED_CUH
#define HEARTH_CUDA_GEMM_COPIED_CUH

#include "kernels/cuda/gemm/gemv_launch.cuh"
#include "kernels/cuda/gemm/skinny.cuh"

enum {
    COPIED_STAGES = 4, /* at most, because of copied_wait() */
    COPIED_FIXED = 128,
};
/* Bytes of a stage, as in skinny.cuh: records of eight tiles, then the rows' activations. The sums of 128 rows need no
 * more than that. */
template <int TA, int TB, int COLS> __host__ __device__ constexpr uint32_t copied_stage_bytes()
{
    return ring_of<TA, TB>::REC * WARPS + COLS * XFRAG_KBLK * 2;
}

/* Blocks over the columns of a launch. */
template <uint32_t COLS> __host__ __device__ static inline uint32_t copied_blocks(const gemm_args &a)
{
    return (a.bucket + COLS - 1) / COLS;
}

#if __CUDA_ARCH__ >= 800
/* The calling warp's part, the w-th of W, of a copy of n bytes. */
template <uint32_t W>
__device__ static inline void copied_part(uint8_t *dst, const void *src, uint32_t n, uint64_t policy, uint32_t w,
                                          uint32_t lane)
{
    for (uint32_t at = w * 512; at < n; at += W * 512)
        cp_async_warp(dst + at, (const uint8_t *)src + at, min(n - at, 512u), policy, lane);
}
/* Waits for a stage where `stages` are in use: the copies of later ones may still be in flight. */
__device__ static inline void copied_wait(uint32_t stages)
{
    if (stages <= 2)
        cp_async_wait<0>();
    else if (stages == 3)
        cp_async_wait<1>();
    else
        cp_async_wait<2>();
}
#endif

/*
 * A block's iteration over its items, k-block by k-block. An item is a group of tiles, over all of K or one slice of
 * it, for a block of columns; the column blocks of a group are neighbours.
 */
template <uint32_t COLS> struct copied_walk {
    uint32_t item, group, cols, c, end, step, steps; /* cols: the column block; k-block `step` of `steps` in slice c */

    __device__ void open(const gemm_args &a, uint32_t i)
    {
        uint32_t blocks = copied_blocks<COLS>(a), rest = i / blocks;
        bool whole = a.split_k == 1;
        item = i, cols = i - rest * blocks;
        group = whole ? rest : rest / K_SLICES;
        c = whole ? 0 : rest % K_SLICES;
        end = whole ? min(a.n_kblk, (uint32_t)K_SLICES) : c + 1; /* later slices are empty */
        open_slice(a);
    }
    __device__ void open_slice(const gemm_args &a)
    {
        step = 0, steps = a.n_kblk / K_SLICES + (c < a.n_kblk % K_SLICES);
    }
    /* Advances; true where that completed an item. */
    __device__ bool next(const gemm_args &a)
    {
        if (++step < steps)
            return false;
        if (++c < end) {
            open_slice(a);
            return false;
        }
        open(a, item + gridDim.x);
        return true;
    }
    /* t16_frag_at() of the k-block's fragment q of `per`. */
    __device__ uint32_t frag(const gemm_args &a, uint32_t per, uint32_t q) const
    {
        uint32_t base = a.n_kblk / K_SLICES, rem = a.n_kblk % K_SLICES;
        return step < base ? (step * per + q) * K_SLICES + c : base * per * K_SLICES + q * rem + c;
    }
};

/* BLOCKS: per SM. It is one where the stages of two do not fit; a block then has the registers of two. */
template <int TA, int TB, int NT, int CGROUPS, int BLOCKS>
__global__ void __launch_bounds__(CGROUPS *CONSUMERS, BLOCKS) gemm_copied(const __grid_constant__ gemm_args a)
{
#if __CUDA_ARCH__ >= 800
    constexpr uint32_t THREADS = CGROUPS * CONSUMERS, COLS = CGROUPS * NT * 8,
                       STAGE = copied_stage_bytes<TA, TB, COLS>();
    using R = ring_of<TA, TB>;
    static_assert(COLS * STAGED_LD * 4 <= STAGE, "a stage has room for the sums");
    extern __shared__ __align__(128) uint8_t sm[];
    uint32_t *last = (uint32_t *)sm;
    uint8_t *ring = sm + COPIED_FIXED;
    uint32_t tid = threadIdx.x, warp = tid >> 5 & 7, cgroup = tid >> 8, lane = tid & 31;
    uint32_t groups = (a.tile_hi - a.tile_lo + WARPS - 1) / WARPS, items = groups * a.split_k * copied_blocks<COLS>(a);
    uint64_t first = evict_first(), keep = evict_last();
    pdl_trigger();
    pdl_wait();

    copied_walk<COLS> at, ahead; /* the k-block being multiplied; the one being copied */
    at.open(a, blockIdx.x), ahead.open(a, blockIdx.x);
    const uint8_t *from = NULL; /* the warp's tile of `ahead`; NULL: none */
    uint32_t frag = R::UA, per = R::PA, put = 0;
    auto aim = [&]() {
        uint32_t tile = a.tile_lo + ahead.group * WARPS + warp;
        from = NULL;
        if (ahead.item >= items || tile >= a.tile_hi)
            return;
        const gemm_part &p = part_of(a, tile);
        if (TA != TB)
            frag = p.second ? R::UB : R::UA, per = p.second ? R::PB : R::PA;
        from = a.w + p.off + (uint64_t)(tile - p.tile0) * a.n_kblk * per * frag;
    };
    /* Fills stage `put`; commits a group of copies even where nothing is left to copy. */
    auto fill = [&]() {
        if (ahead.item < items) {
            uint8_t *to = ring + put * STAGE;
            uint32_t col0 = ahead.cols * COLS, r = t16_slice(a.n_kblk, ahead.c) + ahead.step;
            const __half *x = a.x + (uint64_t)r * XFRAG_STRIDE + (a.row0 + col0) * XFRAG_KBLK;
            for (uint32_t q = 0; from && q < per; q++)
                copied_part<CGROUPS>(to + warp * R::REC + q * frag, from + (uint64_t)ahead.frag(a, per, q) * frag, frag,
                                     first, cgroup, lane);
            copied_part<WARPS * CGROUPS>(to + R::REC * WARPS, x, min(COLS, a.bucket - col0) * XFRAG_KBLK * 2, keep,
                                         tid >> 5, lane);
            if (++put == a.stages)
                put = 0;
            if (ahead.next(a))
                aim();
        }
        cp_async_commit();
    };
    aim();
    for (uint32_t i = 1; i < a.stages; i++)
        fill();

    float acc[NT][4], sum[NT][4]; /* sums of a slice; of an item */
    uint32_t s = 0, row = warp * 16 + (lane >> 2), col = cgroup * NT * 8 + 2 * (lane & 3);
    zero(acc), zero(sum);
    while (at.item < items) {
        uint32_t group = at.group, slice = at.c, col0 = at.cols * COLS, cols = min(COLS, a.bucket - col0),
                 tile = a.tile_lo + group * WARPS + warp;
        uint8_t *stage = ring + s * STAGE;
        if (a.stages == 1) { /* all threads have left the stage */
            consumers_sync<THREADS>();
            fill();
        }
        copied_wait(a.stages);
        consumers_sync<THREADS>(); /* the stage is filled, and all threads have left the previous one */
        if (a.stages > 1)
            fill();
        if (tile < a.tile_hi) {
            const uint8_t *w = stage + warp * R::REC;
            const __half *x = (const __half *)(stage + R::REC * WARPS) + (cgroup * NT * 8 + (lane >> 2)) * XFRAG_KBLK;
            xfrag v = {x, x + XFRAG_SUM, 8 * XFRAG_KBLK, 8 * XFRAG_KBLK};
            if (TA != TB && part_of(a, tile).second)
                for (uint32_t q = 0; q < R::PB; q++)
                    t16_mul_add<TB, NT>(w + q * R::UB, q, v, lane, acc);
            else
                for (uint32_t q = 0; q < R::PA; q++)
                    t16_mul_add<TA, NT>(w + q * R::UA, q, v, lane, acc);
        }
        if (at.step + 1 == at.steps) {
#pragma unroll
            for (int n = 0; n < NT; n++)
                for (int i = 0; i < 4; i++)
                    sum[n][i] = __fadd_rn(sum[n][i], acc[n][i]);
            zero(acc);
        }
        if (++s == a.stages)
            s = 0;
        if (!at.next(a))
            continue;
        /* The item's end. No copy in flight targets this stage: it is refilled only after the next barrier. */
        float *staged = (float *)stage;
        bool ends = true;
        if (a.split_k == 1) {
            consumers_sync<THREADS>(); /* all threads have left it */
#pragma unroll
            for (int n = 0; n < NT; n++)
                for (int i = 0; i < 4; i++)
                    staged[(n * 8 + col + (i & 1)) * STAGED_LD + row + (i >> 1) * 8] = sum[n][i];
            consumers_sync<THREADS>();
        } else
            ends = split_k_last<NT, THREADS>(a, group, slice, group * copied_blocks<COLS>(a) + col0 / COLS, row, col,
                                             col0, cols, sum, staged, last, tid);
        if (ends)
            epilogue_skinny<2>(
                a, [&](uint32_t t) { return a.tile_lo + group * WARPS + t; },
                [&](uint32_t t, uint32_t r, uint32_t c) { return staged[(c - col0) * STAGED_LD + t * 16 + r]; }, tid,
                THREADS, col0, cols);
        zero(sum);
    }
#endif
}

/* --- launching ------------------------------------------------------------------------------------------------------
 */

/* Stages of so many bytes that fit where an SM has `blocks` blocks. */
static uint32_t copied_stages(const struct device *d, uint32_t blocks, uint32_t stage_bytes)
{
    return min_u((smem_for(d, blocks) - COPIED_FIXED) / stage_bytes, COPIED_STAGES);
}

template <int TA, int TB, int NT, int CGROUPS, int BLOCKS> static void launch_copied(struct device *d, gemm_args &a)
{
    static uint32_t done;
    constexpr uint32_t cols = CGROUPS * NT * 8, stage_bytes = copied_stage_bytes<TA, TB, cols>();
    uint32_t groups = (a.tile_hi - a.tile_lo + WARPS - 1) / WARPS;
    a.stages = copied_stages(d, BLOCKS, stage_bytes);
    a.split_k = skinny_split(d, a, groups, copied_blocks<cols>(a));
    smem_once(d, gemm_copied<TA, TB, NT, CGROUPS, BLOCKS>, &done);
    cuda_launch(d, gemm_copied<TA, TB, NT, CGROUPS, BLOCKS>,
                dim3(min_u(groups * a.split_k * copied_blocks<cols>(a), d->sms * BLOCKS)), CGROUPS * CONSUMERS,
                COPIED_FIXED + a.stages * stage_bytes, LAUNCH_PDL, a);
}

template <int TA, int TB, int NT, int CGROUPS> static void run_copied(struct device *d, gemm_args &a)
{
    constexpr uint32_t stage_bytes = copied_stage_bytes<TA, TB, CGROUPS * NT * 8>();
    if constexpr (COPIED_FIXED + stage_bytes > SMEM_LEAST)
        if (!copied_stages(d, 1, stage_bytes)) {
            run_skinny<TA, TB, NT, CGROUPS, false>(d, a);
            return;
        }
    constexpr bool halves = CGROUPS == 1 && NT % 2 == 0;
    if (CGROUPS == 1 && copied_stages(d, 2, stage_bytes) >= 2)
        launch_copied<TA, TB, NT, CGROUPS, CGROUPS == 1 ? 2 : 1>(d, a);
    else /* one block per SM: sixteen warps, with half of the columns each, hide more of each other's latency */
        launch_copied<TA, TB, halves ? NT / 2 : NT, halves ? 2 : CGROUPS, 1>(d, a);
}

/* Whether a card uses cp.async. Hopper uses bulk copies: it alone has wgmma for the products for which these are too
 * slow. */
static inline bool goes_copied(const struct device *d)
{
    return d->cc >= 80 && d->cc != 90;
}

template <int TA, int TB, int NT, int CGROUPS> static void run_columns(struct device *d, gemm_args &a)
{
    if (goes_copied(d))
        run_copied<TA, TB, NT, CGROUPS>(d, a);
    else
        run_skinny<TA, TB, NT, CGROUPS, true>(d, a);
}

/* NT2: whether 16 columns have a variant of their own. */
template <int TA, int TB, int NT2> static void run_gemm(struct device *d, gemm_args &a)
{
    if constexpr (int_type(TA))
        if (a.gemv) {
            run_gemv<TA, TB>(d, a);
            return;
        }
    if (a.bucket <= 8)
        run_columns<TA, TB, 1, 1>(d, a);
    else if (a.bucket <= 16 && NT2)
        run_columns<TA, TB, 2, 1>(d, a);
    else if (a.bucket <= 32 || (goes_copied(d) && copied_stages(d, 1, copied_stage_bytes<TA, TB, 64>()) < 2 &&
                                copied_stages(d, 1, copied_stage_bytes<TA, TB, 32>()))) /* column blocks side by side */
        run_columns<TA, TB, 4, 1>(d, a);
    else
        run_columns<TA, TB, 4, 2>(d, a);
}

/* The products of one type, which must have kernels of its own: gemm.cu calls it for no other. */
template <int T> static void run_type(struct device *d, gemm_args &a)
{
    if constexpr (quant<T>::OWN)
        run_gemm<T, T, quant<T>::COLS16>(d, a);
    else
        cuda_refuse(d, HEARTH_EINTERNAL, "a product by weights of type %d, which are kept as F16", T);
}

#endif
