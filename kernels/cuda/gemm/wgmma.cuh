/*
 * wgmma.cuh - the fast product for 5 to 128 rows on Hopper: T16 weights become fp16 in registers, the A operand of
 * wgmma; activations are in shared memory, the B operand. For sm_90a alone. Up to eight columns are multiplied by
 * mma.m16n8k16: in another way, where the type has it (eight.cuh), or, where bits are fixed, with the sums of wgmma
 * (wg_multiply_chain).
 *
 * The m64 of a warpgroup are four tiles of 16 rows, one per warp, whose fragments have the layout of mma.m16n8k16: the
 * conversion of nibbles to fragments in tile16.cuh applies unchanged. A weight becomes a number of fp16, as in the
 * expanded copies of cublaslt.cu, so that one chain of sums runs over all of K, or over a slice of it; unlike there,
 * the scales and mins of some types are rounded to fp16 before where bits are free, because the conversion of weights
 * takes most of the time. For INVARIANT_PROMPT and INVARIANT_BATCH K is cut into slices that depend on the matrix
 * alone, whose sums are added in order, and a row's bits are the same in every batch.
 *
 * Activations come in the fragments' order of k (split_k.cuh): the B of a step is then made of matrices of 8 rows x 16
 * bytes, as wgmma expects it without swizzle.
 */
#ifndef HEARTH_CUDA_WGMMA_CUH
#define HEARTH_CUDA_WGMMA_CUH

#include "kernels/cuda/gemm/gemm.cuh"
#include "kernels/cuda/gemm/split_k.cuh"
#include "kernels/cuda/gemm/wgmma_multiply.cuh"

/* The fragment of a record that is copied q-th: F16's four go by halves of the order; 64t + 32up + 16h is fragment 2up
 * + h. */
template <int T> __device__ static inline uint32_t wg_nth(uint32_t q)
{
    return quant<T>::FRAGS == 4 ? (q & 1) * 2 + (q >> 1) : q;
}

/* What a launch multiplies: at most N columns, whose bits are free or fixed; any number, in blocks of N; or at most
 * EIGHT, by wg_multiply_chain(), both with fixed bits. */
enum wg_form { WG_FEW, WG_FEW_FIXED, WG_BLOCKS, WG_CHAIN };

struct wg_part {
    uint32_t group0, n_tile, second; /* second: weights of type TB */
    uint64_t off;
    const uint32_t *row_scale; /* [n_tile][16], and as many more as the last group has; NULL: the type has none */
};

/*
 * Pages of KV that the next attention reads first, prefetched into L2 once a block has issued the copies of all of its
 * weights: of each sequence, pages [page0, page0 + n_page) as far as they are among the first WG_AHEAD_EIGHTHS eighths
 * of the pages that are complete before the step, in parts of WG_AHEAD_PART bytes. The remaining pages come from memory
 * while these come from L2.
 */
enum { WG_AHEAD_PART = 4096, WG_AHEAD_EIGHTHS = 5 };
struct wg_ahead {
    const uint8_t *kv; /* page 0, the layer's K and V; NULL: nothing is prefetched */
    uint64_t page_bytes;
    const uint32_t *pages, *pages0;
    const step_dev *step;
    uint32_t page0, n_page, parts; /* parts: of a page */
    bool waits;                    /* waits for the end of the previous kernel, which still reads memory */
};

struct wg_args {
    const uint8_t *w;
    struct wg_part part[3];
    struct wg_ahead ahead;
    uint32_t n_part, n_kblk, n_group;
    uint32_t per;                   /* units of work per block; a unit is a record of a group of tiles */
    uint32_t kblk_magic, per_magic; /* fastdiv_magic() of n_kblk and per */
    t16_order order;                /* of n_kblk */
    uint32_t segs;                  /* groups of which a block may have partial sums */
    uint32_t slice; /* WG_BLOCKS: records of a group that form one chain of sums; `per` is one slice or all */
    uint32_t n_col; /* WG_BLOCKS: blocks of N columns, neighbours in the grid; they share their weights in L2 */
    uint32_t wstages, xstages; /* of the two rings */
    uint32_t rows;             /* WG_CHAIN: rows of the activations' form, a power of two; ... */
    uint32_t tiles;            /* ... tiles of a group, at most as many as there are warps that multiply */
    uint32_t early;            /* stages of weights that a block copies before the previous kernel has ended */
    const __half *x[2];        /* by order */
    float *partials;           /* [share][segs][columns][rows of a group] */
    /* where the kernel does the epilogue itself: logits [row][ldout], or hidden units in an order of k */
    uint32_t *flag; /* [block][tile]: sums of over 32 columns are stored; zero between kernels. NULL: no epilogue */
    float4 *left;   /* [block][tile][columns / 8][32]: those of up to 32 columns, their own flags; likewise zero */
    float *out;
    uint32_t ldout, n_out, bucket; /* bucket: columns that are wanted */
    float scale, softcap;
    act_buf ff;
    const float *bias;
    enum glu_kind glu;
    bool x_first; /* EIGHT columns, WG_FEW: weights that are not early are asked for once their first record's
                   * activations are there */
    bool late;    /* the next kernel is let in once the ring has been filled, not at the start */
};

/* --- the kernel ------------------------------------------------------------------------------------------------- */

/* Args: any struct with n_part parts. */
template <class Args> __device__ static inline const wg_part &wg_part_of(const Args &a, uint32_t group)
{
    int i = 0;
    while (i + 1 < (int)a.n_part && group >= a.part[i + 1].group0)
        i++;
    return a.part[i];
}

/*
 * Block shapes by number of columns, as measured: warpgroups of a block, 64 rows each; blocks per SM; words of a lane's
 * plane that are converted to fragments while the previous words are multiplied. Registers and shared memory limit all
 * of them together.
 */
template <int N> struct wg_shape {
    enum { GROUPS = N == 96 ? 4 : 2, BLOCKS = N <= 64 ? 2 : 1, WORDS = N <= 32 || N == 128 ? 2 : 1 };
    /* Registers of a thread that multiplies, and of one that copies. BOUND: the number of threads for which a launch's
     * registers are bounded; more than there are leaves room for the small kernels between two products, at the price
     * of some spills. */
    enum {
        REGS = N == 8        ? 88
               : N == 16     ? 96
               : BLOCKS == 2 ? 104
               : GROUPS == 2 ? 232
                             : 112,
        COPY_REGS = N == 8                       ? 40
                    : N == 16                    ? 24
                    : BLOCKS == 1 && GROUPS == 2 ? 40
                                                 : 32,
        BOUND = N <= 16 ? 448 : GROUPS * 128 + 128
    };
};

/*
 * A block's units, in the order in which it takes them. Where a group is finished in this kernel, by the block that has
 * its last record, the other blocks compute their partial sums of that group first, and the finishing block computes
 * its own last, so that it rarely waits for them.
 */
struct wg_share {
    uint32_t u0, n, head, tail;

    __device__ uint32_t at(uint32_t i) const
    {
        uint32_t whole = n - head - tail;
        return u0 + (i < head ? n - head + i : i < head + whole ? tail + i - head : i - head - whole);
    }
};
__device__ static inline wg_share wg_share_of(const wg_args &a, uint32_t block)
{
    uint32_t u0 = block * a.per, n = min(a.n_group * a.n_kblk - u0, a.per);
    wg_share s = {u0, n, 0, 0};
    if (a.flag) {
        /* records of a group that an earlier block has begun */
        uint32_t past = fastdiv(u0 + a.n_kblk - 1, a.kblk_magic) * a.n_kblk - u0;
        s.head = min(n, u0 + n - fastdiv(u0 + n, a.kblk_magic) * a.n_kblk);
        s.tail = min(n - s.head, past);
    }
    return s;
}

/* Issues the prefetches of `a`; called by one warp of each block. */
__device__ static inline void wg_ask_ahead(const wg_ahead &a, uint32_t lane)
{
    uint32_t all = a.step->n_seq * a.n_page * a.parts;
#pragma unroll 1
    for (uint32_t i = blockIdx.x * 32 + lane; i < all; i += gridDim.x * 32) {
        uint32_t nth = i / a.parts, s = nth / a.n_page, page = a.page0 + nth % a.n_page;
        if (page < a.step->pos0[s] / KV_PAGE * WG_AHEAD_EIGHTHS / 8)
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                             a.kv + a.pages[a.pages0[s] + page] * a.page_bytes + i % a.parts * WG_AHEAD_PART),
                         "r"((uint32_t)WG_AHEAD_PART)
                         : "memory");
    }
}

/*
 * With few columns each number signals by itself that it is stored: it is not 0, as a 0 is stored as -0, and its reader
 * resets it to 0. So nothing else has to be waited for, neither a flag nor an order of stores. With more columns, warps
 * that poll all of the numbers would keep the memory busy.
 */
template <int N> __host__ __device__ constexpr bool wg_own_flags()
{
    return N <= 32;
}
/* Where a warp's sums of a tile are, in the order of its lanes: stored for the block that finishes the group, and added
 * there. */
template <int N>
__device__ static inline float4 *wg_partial(const wg_args &a, uint32_t block, uint32_t warp, uint32_t lane)
{
    return (wg_own_flags<N>() ? a.left : (float4 *)a.partials) +
           ((uint64_t)block * wg_shape<N>::GROUPS * 4 + warp) * (N / 8) * 32 + lane;
}
__device__ static inline bool none_is_zero(float4 v)
{
    return __float_as_uint(v.x) && __float_as_uint(v.y) && __float_as_uint(v.z) && __float_as_uint(v.w);
}
template <int N>
__device__ static inline void wg_store_partial(const wg_args &a, uint32_t warp, uint32_t lane, const float *acc)
{
    constexpr bool OWN = wg_own_flags<N>();
    float4 *to = wg_partial<N>(a, blockIdx.x, warp, lane);
    auto kept = [](float v) { return OWN && v == 0 ? -0.f : v; };
#pragma unroll
    for (int i = 0; i < N / 8; i++)
        __stcg(to + 32 * i,
               make_float4(kept(acc[4 * i]), kept(acc[4 * i + 1]), kept(acc[4 * i + 2]), kept(acc[4 * i + 3])));
    if constexpr (!OWN) {
        __syncwarp();
        if (!lane)
            asm volatile(
                "st.release.gpu.global.u32 [%0], 1;" ::"l"(a.flag + blockIdx.x * wg_shape<N>::GROUPS * 4 + warp)
                : "memory");
    }
}
template <int N>
__device__ static inline void wg_add_partial(const wg_args &a, uint32_t block, uint32_t warp, uint32_t lane, float *acc)
{
    float4 *from = wg_partial<N>(a, block, warp, lane);
    auto add = [&](int i, float4 v) {
        acc[4 * i] += v.x, acc[4 * i + 1] += v.y, acc[4 * i + 2] += v.z, acc[4 * i + 3] += v.w;
    };
    if constexpr (wg_own_flags<N>()) {
        float4 v[N / 8];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < N / 8; i++)
                v[i] = load_now(from + 32 * i), all = all && none_is_zero(v[i]);
        } while (!all);
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
            add(i, v[i]);
            __stcg(from + 32 * i, make_float4(0, 0, 0, 0));
        }
        __syncwarp();
    } else {
        if (!lane) {
            uint32_t *flag = a.flag + block * wg_shape<N>::GROUPS * 4 + warp, there;
            do
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(flag) : "memory");
            while (!there);
            *flag = 0;
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < N / 8; i++)
            add(i, __ldcg(from + 32 * i));
    }
}

/* A store that happens only where `live`, without a branch. */
__device__ static inline void wg_store(__half *at, __half v, uint32_t live)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p st.global.b16 [%0], %1; }" ::"l"(at),
                 "h"(*(const uint16_t *)&v), "r"(live)
                 : "memory");
}

/* glu_act() in few instructions: x / (1 + 2^(x (a x^2 + b))), with a division accurate to two ulp. */
struct wg_glu {
    float a, b;

    __device__ wg_glu(enum glu_kind k)
    {
        a = k == GLU_SWIGLU ? 0.f : -0.044715f * 1.5957691216f * LOG2E;
        b = k == GLU_SWIGLU ? -LOG2E : -1.5957691216f * LOG2E;
    }
    __device__ float operator()(float x) const
    {
        return __fdividef(x, 1.f + exp2_fast(fmaf(x * x, a, b) * x));
    }
};

/*
 * The warpgroups that multiply come first, then one of which a warp streams weights, another activations, and with
 * EIGHT columns of WG_FEW a third computes their means.
 *
 * WG_BLOCKS: for more than N columns, in blocks of N. A block then takes all slices of K of a group, or one of them,
 * and adds their sums in order, as the kernel that finishes the op does with partial sums: a row's bits are those of a
 * launch of few columns whose blocks have one slice each.
 */
template <int TA, int TB, int N, enum wg_form FORM = WG_FEW>
__global__ void __launch_bounds__(wg_shape<N>::BOUND, wg_shape<N>::BLOCKS) gemm_wg(const __grid_constant__ wg_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr bool BLOCKS = FORM == WG_BLOCKS, CHAIN = FORM == WG_CHAIN, MEANS = N == EIGHT && !CHAIN;
    constexpr uint32_t WGS = wg_shape<N>::GROUPS, WORDS = wg_words(TA, wg_shape<N>::WORDS), TILES = WGS * 4,
                       UA = quant<TA>::FRAG_BYTES, UB = quant<TB>::FRAG_BYTES, FRAG = UA > UB ? UA : UB,
                       WSTAGE = TILES * FRAG, XSTAGE = wg_xstage(N), COPIES = N == EIGHT ? 1 : 2;
    const uint32_t tiles = CHAIN ? a.tiles : TILES; /* of a group */
    const uint32_t xrows = CHAIN ? a.rows : N, xcopy = xrows * 512 / COPIES;
    static_assert(!CHAIN || N == EIGHT);
    static_assert(!MEANS || (quant<TA>::FRAGS == 1 && quant<TB>::FRAGS == 1), "a stage of weights is a record");
    extern __shared__ __align__(128) uint8_t room[];
    const wg_rings ring =
        wg_rings_at(MEANS || CHAIN ? room : shared_once(room), a.wstages, a.xstages, XSTAGE, wg_fixed(N));
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n_kblk = a.n_kblk;
    const uint32_t block = BLOCKS ? blockIdx.x / a.n_col : blockIdx.x, column = BLOCKS ? blockIdx.x % a.n_col : 0;
    const wg_share share = wg_share_of(a, block);
    if (MEANS && threadIdx.x < WG_STAGES)
        mbar_init(ring.means + threadIdx.x, WARP_ARRIVALS);
    wg_rings_init(ring, tiles);
    if (!a.late)
        pdl_trigger();
    if (warp >= TILES)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)wg_shape<N>::COPY_REGS));
    if (warp == TILES) {
        uint64_t policy = evict_first();
        uint32_t s = 0, phase = 1;
        for (uint32_t i = 0; i < share.n; i++) {
            uint32_t u = share.at(i), g = fastdiv(u, a.kblk_magic), r = u - g * n_kblk;
            const wg_part &p = wg_part_of(a, g);
            const bool second = TA != TB && p.second;
            uint32_t frag = second ? UB : UA, per = second ? quant<TB>::FRAGS : quant<TA>::FRAGS,
                     tile0 = (g - p.group0) * tiles, n = min(tiles, p.n_tile - tile0),
                     at = t16_frag_at(a.order, per, r, 0), next = per > 1 ? t16_frag_at(a.order, per, r, 1) - at : 0;
            const uint8_t *tile = a.w + p.off + (uint64_t)(tile0 + lane) * n_kblk * per * frag;
            for (uint32_t q = 0; q < per; q++) {
                if (i * per + q == a.early) {
                    pdl_wait();
                    if (MEANS && a.x_first) /* for a stage that is not released before these weights are there */
                        mbar_wait(ring.full_x + i, 0);
                }
                mbar_wait(ring.empty_w + s, phase);
                if (!lane)
                    mbar_expect_tx(ring.full_w + s, n * frag);
                __syncwarp();
                if (lane < n)
                    cp_async_bulk(ring.w + s * WSTAGE + lane * frag,
                                  tile + (uint64_t)(at + (second ? wg_nth<TB>(q) : wg_nth<TA>(q)) * next) * frag, frag,
                                  ring.full_w + s, policy);
                if (++s == a.wstages) {
                    s = 0, phase ^= 1;
                    if (a.late)
                        pdl_trigger();
                }
            }
        }
        pdl_trigger(); /* where the ring was never full; after another one it has no effect */
        if (!BLOCKS && a.ahead.kv) {
            if (a.ahead.waits)
                pdl_wait();
            wg_ask_ahead(a.ahead, lane);
        }
        return;
    }
    if (warp == TILES + 1) {
        pdl_wait();
        if (!lane) {
            asm volatile("fence.proxy.async;" ::: "memory"); /* the copies read what ordinary stores wrote */
            uint64_t policy = evict_last();
            uint32_t s = 0, phase = 1;
            for (uint32_t i = 0; i < share.n; i++) {
                uint32_t u = share.at(i), g = fastdiv(u, a.kblk_magic), r = u - g * n_kblk;
                const __half *x = a.x[MEANS                                 ? EIGHT_ORDER
                                      : TA != TB && wg_part_of(a, g).second ? quant<TB>::WG_ORDER
                                                                            : quant<TA>::WG_ORDER] +
                                  (uint64_t)(BLOCKS ? column * n_kblk + r : r) * xrows * 256;
                for (uint32_t h = 0; h < COPIES; h++) {
                    mbar_wait(ring.empty_x + s, phase);
                    mbar_expect_tx(ring.full_x + s, xcopy);
                    cp_async_bulk(ring.x + s * XSTAGE, x + h * xcopy / 2, xcopy, ring.full_x + s, policy);
                    if (++s == a.xstages)
                        s = 0, phase ^= 1;
                }
            }
        }
        return;
    }
    if (MEANS && warp == TILES + 2) {
        uint32_t s = 0, phase = 0;
        for (uint32_t i = 0; i < share.n; i++) {
            uint8_t *x = ring.x + s * XSTAGE;
            mbar_wait(ring.full_x + s, phase);
            eight_means(smem_of(x), x + EIGHT_X, lane);
            mbar_release(ring.means + s, lane);
            if (++s == a.xstages)
                s = 0, phase ^= 1;
        }
        return;
    }
    if (warp >= TILES)
        return;
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)wg_shape<N>::REGS));
    if (warp >= tiles)
        return;
    uint32_t seg = 0, done = 0;
    wg_turn turn = {0, 0, 0, 0};
    const uint32_t bucket = BLOCKS ? a.bucket - column * N : a.bucket;
    float acc[N / 2], slices[BLOCKS ? N / 2 : 1];
    const wg_glu act(a.glu);
#pragma unroll 1
    for (;;) {
        uint32_t u = share.at(done), g = fastdiv(u, a.kblk_magic),
                 n = min(share.u0 + share.n - u, (g + 1) * n_kblk - u);
        if (BLOCKS)
            n = a.slice;
        const wg_part &p = wg_part_of(a, g);
        const uint32_t *row_scale = p.row_scale + ((g - p.group0) * tiles + warp) * 16;
        auto run = [&](auto type) {
            if constexpr (CHAIN)
                wg_multiply_chain<decltype(type)::value, WSTAGE>(ring, turn, n, a.rows, warp, lane, row_scale, acc);
            else if constexpr (MEANS)
                wg_multiply_eight<decltype(type)::value, WSTAGE>(ring, turn, n, warp, lane, acc);
            else
                wg_multiply<decltype(type)::value, N, WORDS, WSTAGE, FORM == WG_FEW>(ring, turn, n, N, warp, lane,
                                                                                     row_scale, acc);
        };
        struct type_a {
            enum { value = TA };
        };
        struct type_b {
            enum { value = TB };
        };
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            acc[i] = 0;
        if (TA != TB && p.second)
            run(type_b());
        else
            run(type_a());
        done += n;
        if constexpr (BLOCKS) {
            if (u != share.u0)
#pragma unroll
                for (int i = 0; i < N / 2; i++)
                    acc[i] = slices[i] + acc[i];
            if (done < share.n) {
#pragma unroll
                for (int i = 0; i < N / 2; i++)
                    slices[i] = acc[i];
                continue;
            }
        }
        if (!BLOCKS && a.flag) {
            if (u + n != (g + 1) * n_kblk) {
                wg_store_partial<N>(a, warp, lane, acc);
                if (done == share.n)
                    return;
                seg++;
                continue;
            }
            for (uint32_t b = fastdiv(g * n_kblk, a.per_magic); b < blockIdx.x; b++)
                wg_add_partial<N>(a, b, warp, lane, acc);
        }
        uint32_t row = warp * 16 + (lane >> 2), col = 2 * (lane & 3);
        if (a.ff.p) { /* gate and up of a unit are rows 8 apart, in the same lane */
            uint32_t u = (g * tiles + warp) * 8 + (lane >> 2), in = u < (a.n_out + 255) / 256 * 256;
            float bg = a.bias && u < a.n_out ? a.bias[u] : 0.f, bu = a.bias && u < a.n_out ? a.bias[a.n_out + u] : 0.f;
            __half *to = a.ff.p + (BLOCKS ? (uint64_t)column * N * ((a.n_out + 255) & ~255u) : 0) +
                         wg_at(a.ff.layout - LAYOUT_WG, BLOCKS ? N : a.ff.ld, col, u); /* zeros for units past n_out */
#pragma unroll
            for (int j = 0; j < N / 4; j++) {
                uint32_t i = j / 2 * 4 + (j & 1);
                if (j % 2 == 0 && j / 2 * 8 >= bucket)
                    break;
                wg_store(to + (j / 2 * 8 + (j & 1)) * 8, half_sat(act(acc[i] + bg) * (acc[i + 2] + bu)),
                         in && (!CHAIN || col + j < a.ff.ld));
            }
        } else if (!BLOCKS && a.out) {
            row += g * tiles * 16;
#pragma unroll
            for (int j = 0; j < N / 2; j++) {
                uint32_t c = col + j / 4 * 8 + (j & 1), r = row + (j & 2) * 4;
                float v = (acc[j] + (a.bias && r < a.n_out ? a.bias[r] : 0.f)) * a.scale;
                if (c < a.bucket && r < a.n_out)
                    __stcg(a.out + (uint64_t)c * a.ldout + r, a.softcap != 0 ? act_softcap(v, a.softcap) : v);
            }
        } else {
            float *o = a.partials + (((uint64_t)blockIdx.x * a.segs + seg) * N + col) * (WGS * 64) + row;
#pragma unroll
            for (int j = 0; j < N / 2; j++) {
                if (!CHAIN && j % 4 == 0 && j / 4 * 8 >= bucket)
                    break;
                if (CHAIN && col + (j & 1) >= bucket) /* columns that repeat others */
                    continue;
                __stcg(o + (j / 4 * 8 + (j & 1)) * (WGS * 64) + (j & 2) * 4, acc[j]);
            }
        }
        if (done == share.n)
            return;
        seg++;
    }
#endif
}

#endif
