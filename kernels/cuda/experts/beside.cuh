/*
 * beside.cuh - experts beside a dense feed-forward network ("the network"), in a step of one row: two launches do what
 * few.cuh and gemv.cuh do separately, with bit-identical results. Included by one_type.cu.
 *
 * The network depends only on x, the experts on the router as well. So `up` multiplies by the network's matrix while
 * the router chooses, and issues the copies of the experts' weights when the choice is published. In `down` each block
 * has a tile of 16 columns, of the network and of all of the row's experts. The norms of the two results and of their
 * sum need the whole row, so blocks publish sums of squares to one another as in gemm/rownorm.cuh. They do so twice, in
 * separate slots, as a block may publish its second value before another block has read its first.
 *
 * This cannot deadlock: `down` has at most two blocks for each SM, which fit at the same time, so that all of them
 * become resident, whatever ran before; blocks of the next kernels start only once all of these have started.
 */
#ifndef HEARTH_CUDA_EXPERTS_BESIDE_CUH
#define HEARTH_CUDA_EXPERTS_BESIDE_CUH

#include "kernels/cuda/experts/few.cuh"

/* Shared memory in front of the rings: like few's, but the network's records lie before the experts', and the squares
 * of a second normed row lie at the end. */
__host__ __device__ static inline uint32_t beside_fixed(uint32_t network, uint32_t experts)
{
    return few_fixed(network + experts) + 128;
}

#if __CUDA_ARCH__ >= 900

/* A warp's ring of fragments, which are consumed in the order in which their copies are issued. */
template <int T> struct beside_ring {
    static constexpr uint32_t FRAG = quant<T>::FRAG_BYTES;
    uint8_t *sm;
    uint32_t full, at;                      /* offsets of the barriers and of the stages in sm */
    uint32_t stages, free, to, from, phase; /* to: the stage to be filled next; from: the one to be read next */

    __device__ beside_ring(uint8_t *room, uint32_t fixed, uint32_t n, uint32_t warp)
    {
        sm = room, full = warp * EXPERTS_STAGES * 8, at = fixed + warp * n * FRAG;
        stages = free = n, to = from = phase = 0;
    }
    __device__ void ask(const uint8_t *src, uint32_t lane)
    {
        if (!lane) {
            uint64_t *there = (uint64_t *)(sm + full) + to;
            mbar_expect_tx(there, FRAG);
            cp_async_bulk(sm + at + to * FRAG, src, FRAG, there, evict_first());
        }
        free--, to = to + 1 == stages ? 0 : to + 1;
    }
    /* Waits for the next fragment. */
    __device__ void wait() const
    {
        mbar_wait((uint64_t *)(sm + full) + from, phase);
    }
    /* Multiplies that fragment, q of a record, by v. */
    __device__ void multiply(uint32_t q, const ix_frag &v, uint32_t lane, float (&acc)[1][2])
    {
        quant<T>::template mul_int<1>(sm + at + from * FRAG, q, v, lane, acc);
        __syncwarp();
        free++;
        if (++from == stages)
            from = 0, phase ^= 1;
    }
};

/* Initialises the block's barriers, and the zeros for lanes without activations. */
__device__ static inline void beside_init(uint8_t *sm, uint32_t stages, uint32_t warp, uint32_t lane)
{
    if (!lane) {
        for (uint32_t s = 0; s < stages; s++)
            mbar_init((uint64_t *)sm + warp * EXPERTS_STAGES + s, 1);
        mbar_init_done();
    }
    if (threadIdx.x < 16)
        ((uint32_t *)(sm + FEW_ZERO))[threadIdx.x] = 0;
}

/* Where a lane finds its part of a record of the row. */
__device__ static inline ix_frag beside_frag(uint8_t *sm, const uint8_t *record, uint32_t lane)
{
    bool mine = lane >> 3 == (lane & 3); /* g >> 1 == t */
    return {record, mine ? record + (lane >> 2 & 1) * IX_HI + 64 * (lane & 3) : sm + FEW_ZERO, 0, 0};
}
__device__ static inline void beside_next(ix_frag &v, uint32_t lane)
{
    v.at += IX_KBLK, v.own += lane >> 3 == (lane & 3) ? IX_KBLK : 0;
}

/* The value of a row of a tile, from the warps' sums: added up in few's order and in gemv's. */
__device__ static inline float beside_four(const float *sums, uint32_t n, uint32_t lane)
{
    float4 f = *(const float4 *)(sums + n * 64 + 4 * (lane & 15));
    return __fadd_rn(__fadd_rn(f.x, f.y), __fadd_rn(f.z, f.w));
}
__device__ static inline float beside_sum_few(const float *sums, uint32_t lane)
{
    float y = 0;
#pragma unroll
    for (uint32_t n = 0; n < WARPS; n++)
        y = __fadd_rn(y, beside_four(sums, n, lane));
    return y;
}
__device__ static inline float beside_sum_gemv(const float *sums, uint32_t lane)
{
    float half[2] = {0, 0};
#pragma unroll
    for (uint32_t n = 0; n < WARPS; n++)
        half[n / (WARPS / 2)] = __fadd_rn(half[n / (WARPS / 2)], beside_four(sums, n, lane));
    return __fadd_rn(half[0], half[1]);
}

/* The sums over the row of the squares of a and of b, which are the values of column 16 blockIdx.x + (lane & 15).
 * Called by one warp of every block. */
__device__ static inline float2 beside_squares(ulonglong2 *said, uint64_t tag, float a, float b, uint32_t lane)
{
    enum { AT_ONCE = 3 };
    float mine = sum16(__fmul_rn(a, a)), other = sum16(__fmul_rn(b, b)), first = 0, second = 0;
    if (!lane)
        say(said + blockIdx.x, said_two(mine, other), tag);
#pragma unroll 1
    for (uint32_t base = 2 * lane; base - 2 * lane < gridDim.x; base += 64 * AT_ONCE) {
        uint64_t v[AT_ONCE][2];
        bool all;
        do {
            all = true;
#pragma unroll
            for (uint32_t i = 0; i < AT_ONCE; i++)
#pragma unroll
                for (uint32_t j = 0; j < 2; j++)
                    all = heard(said + min(base + 64 * i + j, gridDim.x - 1), tag, &v[i][j]) && all;
        } while (!all);
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
#pragma unroll
            for (uint32_t j = 0; j < 2; j++)
                if (base + 64 * i + j < gridDim.x)
                    first = __fadd_rn(first, said_first(v[i][j])), second = __fadd_rn(second, said_second(v[i][j]));
    }
    __syncwarp();
    return make_float2(sum_lanes(first), sum_lanes(second));
}
#endif

/* Grid: blocks that take tiles in turn, those of the network first. */
template <int T>
__global__ void __launch_bounds__(CONSUMERS, 3) experts_up_beside(const __grid_constant__ experts_args a)
{
#if __CUDA_ARCH__ >= 900
    constexpr uint32_t PER = quant<T>::FRAGS, FRAG = quant<T>::FRAG_BYTES;
    extern __shared__ __align__(128) uint8_t sm[];
    const experts_beside &b = a.beside;
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r0 = t16_slice(a.n_kblk, warp),
             r1 = t16_slice(a.n_kblk, warp + 1), tiles = b.n_tile + a.n_used * a.n_tile;
    uint8_t *xs = sm + FEW_X;
    float *sums = (float *)(sm + FEW_SUMS), *squares = (float *)(sm + FEW_SQUARES);
    beside_init(sm, a.stages, warp, lane);
    eight w[NORM_IN_FLIGHT];
    auto weights = [&](const float *of) {
#pragma unroll
        for (int i = 0; i < NORM_IN_FLIGHT; i++)
            if (r0 + i < r1)
                w[i].take(of, a.k, (r0 + i) * 256 + lane * 8);
    };
    weights(b.gain);
    __syncthreads();
    uint32_t fixed = beside_fixed(a.n_kblk, a.n_kblk);
    beside_ring<T> ring(sm, fixed, a.stages, warp);
    uint32_t tile = blockIdx.x, rec = r0, frag = 0, id = 0,
             limit = b.n_tile; /* the next fragment to be copied; only tiles below `limit` may be */
    /* Called before the first fragment and whenever one has arrived, so that one is in flight (few_list.cuh). */
    auto ask = [&]() {
        if (!ring.free || tile >= limit || r0 == r1)
            return;
        const uint8_t *w = b.w;
        uint32_t t = tile;
        if (t >= b.n_tile) {
            uint32_t slot = (t - b.n_tile) / a.n_tile;
            t -= b.n_tile + slot * a.n_tile, w = expert_at(a, __shfl_sync(~0u, id, slot));
        }
        ring.ask(w + ((uint64_t)t * a.n_kblk * PER + t16_frag_at(a.n_kblk, PER, rec, frag)) * FRAG, lane);
        if (++frag < PER)
            return;
        frag = 0;
        if (++rec == r1)
            rec = r0, tile += gridDim.x;
    };
    ask();
    uint64_t tag = said_tag(a.step, a.nth);
    float *again = (float *)(sm + fixed - 128);
    hear_x(a.said, tag);
    gemv_norm_quantize(a.xf, a.k, b.gain, w, r0, r1, xs, squares + warp, lane);
    weights(a.norm.w); /* while the router chooses */
    gemv_norm_quantize(a.xf, a.k, a.norm.w, w, r0, r1, xs + a.n_kblk * IX_KBLK, again + warp, lane);
    __syncwarp();
    uint32_t i = 0;
#pragma unroll 1
    for (uint32_t at = blockIdx.x; at < tiles; at += gridDim.x, i++) {
        bool own = at < b.n_tile;
        if (!own && limit < tiles) {
            if (lane < a.n_used)
                id = expert_of(said_first(hear(a.said->chosen + lane, tag)), a.n_expert);
            __syncwarp();
            pdl_trigger(); /* so that the next kernel's copies queue behind those that this one is about to issue */
            limit = tiles;
            ask();
        }
        ix_frag v = beside_frag(sm, xs + (own ? r0 : a.n_kblk + r0) * IX_KBLK, lane);
        float acc[1][2] = {{0, 0}}, *all = sums + (i & 1) * WARPS * 64;
#pragma unroll 1
        for (uint32_t c = r0; c < r1; c++, beside_next(v, lane))
#pragma unroll 1
            for (uint32_t q = 0; q < PER; q++)
                ring.wait(), ask(), ring.multiply(q, v, lane, acc);
        all[warp * 64 + lane] = acc[0][0], all[warp * 64 + 32 + lane] = acc[0][1]; /* rows g and g + 8, quarter t */
        __syncthreads(); /* every reader of the other buffer has arrived too */
        if (warp != (i & (WARPS - 1)))
            continue;
        const float *of = own ? squares : again;
        float y = own ? beside_sum_gemv(all, lane) : beside_sum_few(all, lane), q = 0;
#pragma unroll
        for (int n = 0; n < WARPS; n++)
            q = __fadd_rn(q, of[n]);
        y = __fmul_rn(y, rsqrtf(__fadd_rn(q / a.k, own ? b.eps : a.norm.eps)));
        float up = __shfl_down_sync(~0u, y, 8);
        uint32_t slot = own ? 0 : (at - b.n_tile) / a.n_tile,
                 o = (own ? at : at - b.n_tile - slot * a.n_tile) * 8 + (lane & 7);
        if (own && lane < 8 && o < b.n_out)
            b.ff.p[xfrag_at(o)] = half_sat(glu_act(b.glu, y) * up);
        else if (!own && lane < 8 && o < a.n_out)
            a.hidden[slot * a.n_out + o] = glu_of(a.glu, y, up);
    }
    if (limit < tiles)
        pdl_trigger();
    pdl_wait(); /* keeps completion transitive */
#endif
}

/* Grid: one block for each tile. */
template <int T>
__global__ void __launch_bounds__(CONSUMERS, 2) experts_down_beside(const __grid_constant__ experts_args a)
{
#if __CUDA_ARCH__ >= 900
    constexpr uint32_t PER = quant<T>::FRAGS, FRAG = quant<T>::FRAG_BYTES;
    extern __shared__ __align__(128) uint8_t sm[];
    const experts_beside &b = a.beside;
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n = a.n_used * a.n_kblk, d0 = t16_slice(b.n_kblk, warp),
             d1 = t16_slice(b.n_kblk, warp + 1), e0 = t16_slice(n, warp), e1 = t16_slice(n, warp + 1),
             o = blockIdx.x * 16 + (lane & 15);
    uint8_t *xd = sm + FEW_X, *xe = xd + b.n_kblk * IX_KBLK;
    float *sums = (float *)(sm + FEW_SUMS), gain[3] = {0, 0, 0}, x = 0;
    bool ends = !warp, ok = o < a.n_out;
    pdl_trigger();
    beside_init(sm, a.stages, warp, lane);
    if (ends && ok)
        gain[0] = b.own.w[o], gain[1] = b.post.w[o], gain[2] = b.last.w[o];
    __syncthreads();
    beside_ring<T> ring(sm, beside_fixed(b.n_kblk, n), a.stages, warp);
    uint32_t dense = d0, rec = e0, frag = 0, id = 0; /* records to be copied next */
    bool heard_route = false;
    /* Returns whether there was a free stage, and a fragment that is known. */
    auto ask = [&]() {
        if (!ring.free || (dense == d1 && (!heard_route || rec == e1)))
            return false;
        bool own = dense < d1;
        uint32_t n_kblk = own ? b.n_kblk : a.n_kblk, slot = own ? 0 : rec / n_kblk,
                 r = own ? dense : rec - slot * n_kblk;
        const uint8_t *w = expert_at(a, __shfl_sync(~0u, id, slot));
        ring.ask((own ? b.w : w) + ((uint64_t)blockIdx.x * n_kblk * PER + t16_frag_at(n_kblk, PER, r, frag)) * FRAG,
                 lane);
        if (++frag == PER)
            frag = 0, dense += own, rec += !own;
        return true;
    };
    auto fill = [&]() {
        while (ask())
            ;
    };
    fill();
    float weight = 0;
    uint64_t tag = said_tag(a.step, a.nth);
    if (lane < a.n_used) {
        uint64_t v = hear(a.said->chosen + lane, tag);
        id = expert_of(said_first(v), a.n_expert), weight = said_second(v);
    }
    __syncwarp();
    heard_route = true;
    fill();
    pdl_wait();
    if (ends && ok)
        x = __ldcg(b.x + o);
    few_quantize_hidden(a, a.hidden, NULL, e0, e1, xe, lane,
                        [&] { gemv_quantize<1>(b.ff.p + d0 * XFRAG_STRIDE + eight_at(lane), b.k, d0, d1, xd, lane); });
    __syncwarp();
    float acc[1][2] = {{0, 0}}, *to = sums + warp * 64 + lane;
    ix_frag v = beside_frag(sm, xd + d0 * IX_KBLK, lane);
#pragma unroll 1
    for (uint32_t c = d0; c < d1; c++, beside_next(v, lane))
#pragma unroll 1
        for (uint32_t q = 0; q < PER; q++)
            ring.wait(), ask(), ring.multiply(q, v, lane, acc);
    to[0] = acc[0][0], to[32] = acc[0][1]; /* rows g and g + 8, quarter t */
    acc[0][0] = acc[0][1] = 0, v = beside_frag(sm, xe + e0 * IX_KBLK, lane);
#pragma unroll 1
    for (uint32_t c = e0; c < e1; c++, beside_next(v, lane)) {
        float part[1][2] = {{0, 0}}, by = __shfl_sync(~0u, weight, c / a.n_kblk);
#pragma unroll 1
        for (uint32_t q = 0; q < PER; q++)
            ring.wait(), ask(), ring.multiply(q, v, lane, part);
        acc[0][0] = __fmaf_rn(by, part[0][0], acc[0][0]), acc[0][1] = __fmaf_rn(by, part[0][1], acc[0][1]);
    }
    to += WARPS * 64;
    to[0] = acc[0][0], to[32] = acc[0][1];
    __syncthreads();
    if (!ends)
        return;
    float own = ok ? beside_sum_gemv(sums, lane) : 0.f,
          experts = ok ? __fmaf_rn(a.scale, beside_sum_few(sums + WARPS * 64, lane), 0.f) : 0.f;
    float2 s = beside_squares(b.own.said, said_tag(a.step, b.own.nth), own, experts, lane);
    auto factor = [&](float squares, const row_norm &nm) { return rsqrtf(__fadd_rn(squares / a.n_out, nm.eps)); };
    own = row_normed(0, own, factor(s.x, b.own), gain[0], b.scale);
    float both = row_normed(own, experts, factor(s.y, b.post), gain[1], 1);
    s = beside_squares(b.last.said, said_tag(a.step, b.last.nth), both, 0, lane);
    if (ok && lane < 16)
        b.x[o] = row_normed(x, both, factor(s.x, b.last), gain[2], 1) * b.x_scale;
#endif
}

/* --- launching ---------------------------------------------------------------------------------------------------- */

/* A block's shared memory; also sets a.stages. Where two stages fit, it is sized for three blocks on an SM, two of `up`
 * and one of `down`. Returns 0 where it does not fit. */
template <int T> static uint32_t beside_smem(const struct device *d, experts_args &a, bool down)
{
    uint32_t fixed = beside_fixed(a.beside.n_kblk, (down ? a.n_used : 1) * a.n_kblk),
             stage = WARPS * quant<T>::FRAG_BYTES, blocks = 3;
    if (smem_for(d, blocks) < fixed + 2 * stage)
        blocks = 2;
    if (smem_for(d, blocks) < fixed + 2 * stage)
        return 0;
    a.stages = min_u((smem_for(d, blocks) - fixed) / stage, EXPERTS_STAGES);
    return fixed + a.stages * stage;
}

template <int T> static void up_beside(struct device *d, experts_args &a)
{
    static uint32_t done;
    uint32_t smem = beside_smem<T>(d, a, false), tiles = a.beside.n_tile + a.n_used * a.n_tile;
    smem_once(d, experts_up_beside<T>, &done);
    cuda_launch(d, experts_up_beside<T>, dim3(min_u(tiles, 2 * d->sms)), CONSUMERS, smem, LAUNCH_PDL, a);
}

template <int T> static void down_beside(struct device *d, experts_args &a)
{
    static uint32_t done;
    uint32_t smem = beside_smem<T>(d, a, true);
    smem_once(d, experts_down_beside<T>, &done);
    cuda_launch(d, experts_down_beside<T>, dim3(a.n_tile), CONSUMERS, smem, LAUNCH_PDL, a);
}

#endif
