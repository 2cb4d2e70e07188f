/*
 * wgmma_multiply.cuh - the rings of a block of wgmma.cuh's kernel and of experts/wgmma.cu's, and how a warp multiplies
 * what is in them: by wgmma, or up to eight columns by mma in one of two ways.
 */
#ifndef HEARTH_CUDA_WGMMA_MULTIPLY_CUH
#define HEARTH_CUDA_WGMMA_MULTIPLY_CUH

#include "kernels/cuda/gemm/eight.cuh"
#include "kernels/cuda/gemm/wgmma_mma.cuh"

/* F16's fragments are the registers that a plane is loaded into: a plane is multiplied whole, while the next is
 * loaded. */
__host__ __device__ constexpr int wg_words(int type, int words)
{
    return t16_frags(type) == 4 ? 2 : words;
}

enum { WG_FIXED = 256, WG_STAGES = 8 };
/* Bytes of a launch's barriers, and of a stage of activations: half a k-block, or all of one and room for its means. */
__host__ __device__ constexpr uint32_t wg_fixed(uint32_t columns)
{
    return columns == EIGHT ? 384 : WG_FIXED;
}
__host__ __device__ constexpr uint32_t wg_xstage(uint32_t columns)
{
    return columns == EIGHT ? EIGHT_X + EIGHT_MEANS : columns * 256;
}

/* A block's two rings: stages of weights, a fragment of each tile, and of activations, half a k-block of all columns,
 * or a whole one where there are EIGHT, with its means. */
struct wg_rings {
    uint64_t *full_w, *empty_w, *full_x, *empty_x; /* [WG_STAGES] mbarriers */
    uint64_t *means;                               /* EIGHT columns, WG_FEW: a stage's means are there */
    uint8_t *x, *w;
    uint32_t wstages, xstages;
};
__device__ static inline wg_rings wg_rings_at(uint8_t *sm, uint32_t wstages, uint32_t xstages, uint32_t xstage,
                                              uint32_t fixed = WG_FIXED)
{
    uint64_t *b = (uint64_t *)sm;
    uint8_t *x = sm + fixed;
    return {b,       b + WG_STAGES, b + 2 * WG_STAGES, b + 3 * WG_STAGES, b + 4 * WG_STAGES, x, x + xstages * xstage,
            wstages, xstages};
}
/* Called by all threads of the block: copies complete on the full barriers, `warps` warps release the empty ones. */
__device__ static inline void wg_rings_init(const wg_rings &r, uint32_t warps)
{
    if (!threadIdx.x) {
        for (uint32_t s = 0; s < WG_STAGES; s++) {
            mbar_init(r.full_w + s, 1), mbar_init(r.empty_w + s, warps * WARP_ARRIVALS);
            mbar_init(r.full_x + s, 1), mbar_init(r.empty_x + s, warps * WARP_ARRIVALS);
        }
        mbar_init_done();
    }
    __syncthreads();
}

/* A warp's position in the rings. */
struct wg_turn {
    uint32_t ws, wphase, xs, xphase;
};

/* How weights of type T become fp16: QUICK, for steps whose bits are free, where the type has such a way. */
template <int T, bool QUICK, bool = QUICK &&quant<T>::WG_QUICK> struct wg_weights {
    typedef typename quant<T>::wg type;
};
template <int T> struct wg_weights<T, true, true> {
    typedef typename quant<T>::wg_quick type;
};

/* The scales of the two rows of a tile that a lane works for, if W has them. */
template <class W, bool = W::ROW_SCALES> struct wg_row_scales {
    __device__ wg_row_scales(const uint32_t *, uint32_t)
    {
    }
    __device__ void open(W &w, const uint8_t *r, uint32_t lane) const
    {
        w.open(r, lane);
    }
    template <int N> __device__ void apply(float (&)[N]) const
    {
    }
};
template <class W> struct wg_row_scales<W, true> {
    t16_row_scales scales;

    __device__ wg_row_scales(const uint32_t *row_scale, uint32_t lane)
        : scales{row_scale[lane >> 2], row_scale[(lane >> 2) + 8]}
    {
    }
    __device__ void open(W &w, const uint8_t *r, uint32_t lane) const
    {
        w.open(r, lane, scales);
    }
    /* acc: as wgmma leaves the sums of a tile */
    template <int N> __device__ void apply(float (&acc)[N]) const
    {
        float g = t16_row_scale(scales.g), h = t16_row_scale(scales.h);
#pragma unroll
        for (int i = 0; i < N; i++)
            acc[i] *= i & 2 ? h : g;
    }
};

/* Loads plane p of a record from the ring: opens its fragment, at r, with the first plane, and releases the stage after
 * the last. */
template <int T, uint32_t WSTAGE, class W>
__device__ __forceinline__ void wg_plane(const wg_rings &ring, wg_turn &at, const wg_row_scales<W> &scales, W &w,
                                         const uint8_t *&r, int p, uint32_t warp, uint32_t lane)
{
    constexpr int FRAG = W::FRAG;
    if (p % FRAG == 0) {
        r = ring.w + at.ws * WSTAGE + warp * quant<T>::FRAG_BYTES;
        mbar_wait(ring.full_w + at.ws, at.wphase);
        scales.open(w, r, lane);
    }
    w.plane(r, p % FRAG, lane);
    if (p % FRAG == FRAG - 1) {
        mbar_release(ring.empty_w + at.ws, lane);
        if (++at.ws == ring.wstages)
            at.ws = 0, at.wphase ^= 1;
    }
}

/*
 * acc, which is 0 before, becomes a warp's 16 rows of weights times N columns, over n k-blocks of the rings; all warps
 * of a warpgroup call it together. row_scale: of the tile's rows, if the type has any. In shared memory eight k are
 * stored for `rows` columns at a time; columns from `rows` on multiply whatever the stage has there.
 */
template <int T, int N, int WORDS, uint32_t WSTAGE, bool QUICK>
__device__ __forceinline__ void wg_multiply(const wg_rings &ring, wg_turn &at, uint32_t n, uint32_t rows, uint32_t warp,
                                            uint32_t lane, const uint32_t *row_scale, float (&acc)[N / 2])
{
    typedef typename wg_weights<T, QUICK>::type W;
    constexpr uint32_t XSTAGE = N * 256;
    const wg_row_scales<W> scales(row_scale, lane);
    uint32_t held = WG_STAGES; /* a stage of activations that products in flight read */
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *r;
        W w;
#pragma unroll
        for (int p = 0; p < 2 * W::PLANES; p++) {
            constexpr int HALF = W::PLANES;
            wg_plane<T, WSTAGE>(ring, at, scales, w, r, p, warp, lane);
            uint64_t desc = wg_desc(smem_of(ring.x + at.xs * XSTAGE), rows * 16);
#pragma unroll
            for (int v = 0; v < W::PAIRS; v += WORDS) {
                bool begins = p % HALF == 0 && !v;
                uint32_t A[WORDS][8];
#pragma unroll
                for (int k = 0; k < WORDS; k++)
                    w.word(v + k, A[k]);
                if (begins)
                    mbar_wait(ring.full_x + at.xs, at.xphase);
                wg_fence();
#pragma unroll
                for (int k = 0; k < WORDS; k++) {
                    wg_mma<N>(acc, A[k], desc + (uint64_t)(W::step(p % HALF, v + k, 0) * rows * 32 >> 4));
                    wg_mma<N>(acc, A[k] + 4, desc + (uint64_t)(W::step(p % HALF, v + k, 1) * rows * 32 >> 4));
                }
                wg_commit();
                wg_wait<1>();
                if (begins && held < WG_STAGES)
                    mbar_release(ring.empty_x + held, lane);
            }
            if (p % HALF == HALF - 1) {
                held = at.xs;
                if (++at.xs == ring.xstages)
                    at.xs = 0, at.xphase ^= 1;
            }
        }
    }
    wg_wait<0>();
    mbar_release(ring.empty_x + held, lane);
    scales.apply(acc);
}

/* The same for EIGHT columns, by mma, each warp for itself. */
template <int T, uint32_t WSTAGE>
__device__ __forceinline__ void wg_multiply_eight(const wg_rings &ring, wg_turn &at, uint32_t n, uint32_t warp,
                                                  uint32_t lane, float (&acc)[EIGHT / 2])
{
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++) {
        eight_of<T> w;
        const uint8_t *x = ring.x + at.xs * wg_xstage(EIGHT);
        mbar_wait(ring.full_w + at.ws, at.wphase);
        w.open(ring.w + at.ws * WSTAGE + warp * quant<T>::FRAG_BYTES, lane);
        if (!w.HOLDS)
            mbar_release(ring.empty_w + at.ws, lane);
        mbar_wait(ring.full_x + at.xs, at.xphase);
        auto means = [&]() {
            mbar_wait(ring.means + at.xs, at.xphase);
            return ((const uint4 *)(x + EIGHT_X))[lane];
        };
        w.multiply(smem_of(x), means, lane, acc);
        if (w.HOLDS)
            mbar_release(ring.empty_w + at.ws, lane);
        mbar_release(ring.empty_x + at.xs, lane);
        if (++at.ws == ring.wstages)
            at.ws = 0, at.wphase ^= 1;
        if (++at.xs == ring.xstages)
            at.xs = 0, at.xphase ^= 1;
    }
}

/*
 * wg_multiply()'s sums of up to EIGHT columns, bit-identically: a chain of mma.m16n8k16 adds as a chain of m64nNk16
 * does (tests/bench/lab/NOTES.md, "One arithmetic for every row"), and each warp goes its own way. The activations have
 * `rows` rows, whose columns beyond repeat them.
 */
template <int T, uint32_t WSTAGE>
__device__ __forceinline__ void wg_multiply_chain(const wg_rings &ring, wg_turn &at, uint32_t n, uint32_t rows,
                                                  uint32_t warp, uint32_t lane, const uint32_t *row_scale,
                                                  float (&acc)[EIGHT / 2])
{
    typedef typename quant<T>::wg W;
    const wg_row_scales<W> scales(row_scale, lane);
    constexpr int HALF = W::PLANES, APART = W::step(0, 0, 1) - W::step(0, 0, 0); /* of the two steps of a word */
    static_assert(APART == W::step(HALF - 1, W::PAIRS - 1, 1) - W::step(HALF - 1, W::PAIRS - 1, 0));
    const uint32_t step = rows * 32,
                   mine = (lane >> 4) * APART * step + (lane >> 3 & 1) * step / 2 + (lane & (rows - 1) & 7) * 16;
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *r;
        const uint32_t x = smem_of(ring.x + at.xs * wg_xstage(EIGHT)) + mine;
        W w;
#pragma unroll
        for (int p = 0; p < 2 * HALF; p++) {
            wg_plane<T, WSTAGE>(ring, at, scales, w, r, p, warp, lane);
            if (!p)
                mbar_wait(ring.full_x + at.xs, at.xphase);
#pragma unroll
            for (int v = 0; v < W::PAIRS; v++) {
                uint32_t A[8], b[4];
                w.word(v, A);
                ldm4(b, x + (8 * (p / HALF) + W::step(p % HALF, v, 0)) * step);
                mma16816(acc, A[0], A[1], A[2], A[3], b[0], b[1]);
                mma16816(acc, A[4], A[5], A[6], A[7], b[2], b[3]);
            }
        }
        mbar_release(ring.empty_x + at.xs, lane);
        if (++at.xs == ring.xstages)
            at.xs = 0, at.xphase ^= 1;
    }
    scales.apply(acc);
}

#endif
