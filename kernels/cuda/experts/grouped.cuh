/*
 * grouped.cuh - the products of experts for many rows, in fp16 as in skinny.cuh: pairs of a row and an expert, sorted
 * by expert, are the columns of a product with the expert's matrix.
 *
 * A block takes groups of eight tiles, one tile a warp, of a job, which is up to COLS pairs of one expert. A separate
 * warp streams the weights and gathers the pairs' prepared rows, one record of each a stage; the jobs of an expert are
 * neighbours, so that its weights are found in L2. The order of a pair's sums does not depend on what is in the other
 * columns.
 *
 * For few pairs (args.here) there is no kernel between the router, `up` and `down`. Each block sorts the pairs for
 * itself, and with up to ROUTE_ALONE rows it does so as soon as their routers have published their choices. `up` leaves
 * prepared hidden rows. `down`, whose blocks start as those of `up` exit, issues the copies of the first weights of its
 * ring before all of these have ended.
 */
#ifndef HEARTH_CUDA_EXPERTS_GROUPED_CUH
#define HEARTH_CUDA_EXPERTS_GROUPED_CUH

#include "kernels/cuda/experts/experts.cuh"
#include "kernels/cuda/experts/fp4.cuh"
#include "kernels/cuda/experts/sort.cuh"
#include "kernels/cuda/gemm/gemv_block.cuh"
#include "kernels/cuda/gemm/skinny.cuh"

enum { GROUPED_STAGES = 16, GROUPED_FIXED = 2 * GROUPED_STAGES * 8 };
template <int T, int NT> struct grouped_shape {
    enum {
        COLS = NT * 8,
        KBLK = quant<T>::FRAGS * quant<T>::FRAG_BYTES, /* bytes of a k-block of one tile */
        STAGE = KBLK * WARPS + COLS * XFRAG_KBLK * 2,
    };
};
/* Shared memory in front of the ring: barriers, sums of hidden units, and the sorted jobs and pairs. */
template <int NT> __host__ __device__ static inline uint32_t grouped_fixed(bool hidden, uint32_t pairs)
{
    return (GROUPED_FIXED + (hidden ? 2 * WARPS * NT * 8 * 4 : 0) + sort_bytes(pairs) + 127) & ~127u;
}

/* The epilogue of a warp's tile: the lane has rows g and g + 8, columns 2 t and 2 t + 1 of each eight. pair(i): the
 * job's i-th pair. */
template <int NT, bool DOWN, class P>
__device__ static inline void grouped_end(const experts_args &a, const experts_job &job, uint32_t tile, uint32_t lane,
                                          const float (&acc)[NT][4], P pair)
{
    uint32_t g = lane >> 2, t = lane & 3, o = DOWN || !a.gated ? tile * 16 + g : tile * 8 + g;
    float b[2] = {0, 0};
    if (!DOWN && a.bias) { /* of gate and up of one unit, or of units o and o + 8 */
        const float *of = a.bias + (uint64_t)job.expert * a.n_out;
        if (o < a.n_out)
            b[0] = of[o];
        if (a.gated && o < a.n_out)
            b[1] = of[(uint64_t)a.n_expert * a.n_out + o];
        else if (!a.gated && o + 8 < a.n_out)
            b[1] = of[o + 8];
    }
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            uint32_t col = n * 8 + 2 * t + e;
            if (col >= job.n)
                continue;
            float x = acc[n][e], y = acc[n][2 + e];
            if (DOWN) {
                float *to = a.out + (uint64_t)pair(col) * a.ldout + o;
                if (o < a.n_out)
                    to[0] = x;
                if (o + 8 < a.n_out)
                    to[8] = y;
                continue;
            }
            float *to = a.hidden + (uint64_t)pair(col) * a.n_out + o;
            x = __fadd_rn(x, b[0]), y = __fadd_rn(y, b[1]);
            if (o < a.n_out)
                to[0] = glu_of(a.glu, x, a.gated ? y : 1.f);
            if (!a.gated && o + 8 < a.n_out)
                to[8] = glu_of(a.glu, y, 1.f);
        }
}

/*
 * The same for gated `up` whose hidden units go to `down` in the prepared form. The eight units of a tile and a pair
 * are sixteen bytes of a record, of which each lane has one word once the fragment is transposed. The sum of a
 * sub-block needs values of four warps, which meet at a named barrier; sums: [WARPS][NT * 8], not shared with the next
 * item. Called by all warps: those without a tile store zeros, and so do those of the last group for the rest of its
 * record.
 */
template <int NT, class P>
__device__ static inline void grouped_hidden(const experts_args &a, const experts_job &job, uint32_t tile,
                                             uint32_t lane, const float (&acc)[NT][4], float *sums, P pair)
{
    enum { COLS = NT * 8, RECORD = 32 /* tiles */ };
    uint32_t warp = tile % WARPS, u = tile * 8 + (lane >> 2), c = lane >> 2, t = lane & 3, odd = t & 1;
    bool in = u < a.n_out, last = tile / WARPS == (a.n_tile - 1) / WARPS;
    float b[2] = {0, 0};
    if (a.bias && in)
        b[0] = a.bias[(uint64_t)job.expert * a.n_out + u],
        b[1] = a.bias[((uint64_t)a.n_expert + job.expert) * a.n_out + u];
    uint32_t end =
        last ? (tile + RECORD) / RECORD * RECORD : tile + 1; /* end of the zeros to be stored behind the tile */
    auto record = [&](uint32_t col, uint32_t tile) {
        return a.to + tile / RECORD * a.to_step + (uint64_t)pair(col) * XFRAG_KBLK;
    };
#pragma unroll
    for (int n = 0; n < NT; n++) {
        __half h[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float v = glu_of(a.glu, __fadd_rn(acc[n][e], b[0]), __fadd_rn(acc[n][2 + e], b[1]));
            h[e] = half_sat(in ? v : 0.f);
        }
        /* units 2 t and 2 t + 1 of column c; then in the order of xfrag_at(): 0 and 2, 1 and 3, 4 and 6, 5 and 7 */
        uint32_t own = transpose8(*(const uint32_t *)h), other = __shfl_xor_sync(~0u, own, 1), col = n * 8 + c;
        uint32_t word = odd ? __byte_perm(other, own, 0x7632) : __byte_perm(own, other, 0x5410);
        /* in xfrag_store_sums()'s order */
        float2 f = __half22float2(*(const __half2 *)&own);
        float s = __fadd_rn(f.x, f.y), before = __shfl_xor_sync(~0u, s, 1);
        if (odd)
            s = __fadd_rn(__fadd_rn(before, f.x), f.y);
        s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 2));
        if (t == 1)
            sums[warp * COLS + col] = s;
        if (col < job.n)
            for (uint32_t k = tile; k < end; k += WARPS, word = 0)
                *(uint32_t *)(record(col, k) + eight_at(k % RECORD) + 2 * t) = word;
    }
    named_bar_sync<128>(2 + warp / 4);
    if (warp % 4 == 0 && lane < COLS && lane < job.n) {
        const float *of = sums + warp * COLS + lane;
        float s = __fadd_rn(__fadd_rn(of[0], of[COLS]), __fadd_rn(of[2 * COLS], of[3 * COLS]));
        for (uint32_t k = tile; k < end; k += WARPS, s = 0) {
            __half *to = record(lane, k) + XFRAG_SUM + k % RECORD / 4, hi = half_sat(s);
            to[0] = hi, to[8] = half_sat(__fsub_rn(s, __half2float(hi)));
        }
    }
}

/* Computes the factor of a row's result of the shared expert, with one warp. */
__device__ static inline void grouped_shared_gate(const experts_args &a, uint32_t row, uint32_t lane)
{
    const float *x = a.xf + (uint64_t)row * a.ldxf;
    float squares = 0, dot = 0;
#pragma unroll 4
    for (uint32_t k = lane * 4; k < a.k; k += 128) { /* a.k is a multiple of 8 */
        float4 f = __ldcg((const float4 *)(x + k)), w = __ldcg((const float4 *)(a.norm.w + k)),
               gate = __ldcg((const float4 *)(a.shared_gate + k));
        const float v[4] = {f.x, f.y, f.z, f.w}, n[4] = {w.x, w.y, w.z, w.w}, o[4] = {gate.x, gate.y, gate.z, gate.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
            squares = __fmaf_rn(v[i], v[i], squares), dot = __fmaf_rn(__fmul_rn(v[i], n[i]), o[i], dot);
    }
    squares = warp_sum(squares), dot = warp_sum(dot);
    if (!lane)
        a.shared_by[row] = act_sigmoid(__fmul_rn(dot, rsqrtf(__fadd_rn(squares / a.k, a.norm.eps))));
}

/* STAGED: weights and rows go through the ring, on GPUs with copies that complete on mbarriers. */
template <int T, int NT, bool DOWN, bool STAGED>
__global__ void __launch_bounds__(BLOCK, 2) experts_grouped(const __grid_constant__ experts_args a)
{
    using S = grouped_shape<T, NT>;
    constexpr uint32_t PER = quant<T>::FRAGS, FRAG = quant<T>::FRAG_BYTES;
    extern __shared__ __align__(128) uint8_t sm[];
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n_kblk = a.n_kblk,
             n_group = (a.n_tile + WARPS - 1) / WARPS;
    constexpr bool RING = STAGED && has_copies();
    const bool early = DOWN && RING && a.routed; /* weights are copied before griddepcontrol.wait */
    if (DOWN || !a.routed)
        pdl_trigger();
    uint64_t *full = (uint64_t *)sm, *empty = full + GROUPED_STAGES;
    float *sums = (float *)(sm + GROUPED_FIXED);
    uint32_t *jobs = (uint32_t *)(sm + grouped_fixed<NT>(!DOWN && a.to, 0));
    uint16_t *order = (uint16_t *)(jobs + a.bucket * a.n_slot);
    uint8_t *ring = sm + a.ring;
    if (RING && !threadIdx.x) {
        for (uint32_t s = 0; s < a.stages; s++)
            mbar_init(full + s, fill_arrivals(a.bulk)), mbar_init(empty + s, WARPS * WARP_ARRIVALS);
        mbar_init_done();
    }
    if (RING)
        __syncthreads();
    auto wait = [&] {
        if (!early && !a.said)
            pdl_wait();
    };
    uint32_t n_job;
    if (a.here)
        n_job = sort_pairs<S::COLS>(a, jobs, order, (uint32_t *)ring, wait);
    else
        wait(), n_job = __ldcg(a.n_job);
    if (!DOWN && a.routed)
        pdl_trigger(); /* not earlier: the dependent kernel may read the route at once */
    uint32_t items = n_job * n_group;
    auto job_of = [&](uint32_t it) { return a.here ? sorted_job(jobs[it % n_job]) : a.jobs[it % n_job]; };
    auto pair_at = [&](uint32_t i) -> uint32_t { return a.here ? order[i] : __ldcg(a.order + i); };
    auto row_at = [&](uint32_t i) { /* the prepared row of a column */
                                    uint32_t pair = pair_at(i);
                                    return act_row(a.x, DOWN ? pair : pair / a.n_slot);
    };
    if (!RING && warp == WARPS)
        return;
    if (RING && warp == WARPS) {
#if __CUDA_ARCH__ >= 900
        if (!DOWN && a.said) { /* x was complete before a router chose by it; this wait makes it visible here */
            if (lane < a.step->n_row)
                hear(a.said[lane].x, said_tag(a.step, a.nth));
            __threadfence();
            __syncwarp();
        }
#endif
        if (a.bulk)
            fence_copies();
        uint64_t first = evict_first(), keep = evict_last();
        /* Calls f for the block's records, one after the other, but only for the first `most`. at: the record's place
         * in a tile. */
        auto each = [&](uint32_t most, auto f) {
            uint32_t nth = 0;
            for (uint32_t it = blockIdx.x; it < items; it += gridDim.x) {
                experts_job job = job_of(it);
                uint32_t tile0 = it / n_job * WARPS, n = min((uint32_t)WARPS, a.n_tile - tile0);
                const uint8_t *w = expert_at(a, job.expert) + (uint64_t)tile0 * n_kblk * S::KBLK;
                t16_walk at(n_kblk);
                for (uint32_t r = 0; r < n_kblk; r++, nth++, at.next()) {
                    if (nth == most)
                        return;
                    f(nth, job, n, w, r, at);
                }
            }
        };
        auto weights = [&](uint32_t s, const experts_job &job, uint32_t n, const uint8_t *w, const t16_walk &at) {
            if (!lane && a.bulk)
                mbar_expect_tx(full + s, n * S::KBLK + job.n * XFRAG_KBLK * 2);
            __syncwarp();
            for (uint32_t i = a.bulk ? lane : 0; i < n * PER; i += a.bulk ? 32 : 1) {
                uint32_t tile = i / PER, q = i % PER;
                const uint8_t *from = w + ((uint64_t)tile * n_kblk * PER + at.frag(PER, q)) * FRAG;
                if (a.bulk)
                    cp_async_bulk(ring + s * S::STAGE + i * FRAG, from, FRAG, full + s, first);
                else
                    cp_async_warp(ring + s * S::STAGE + i * FRAG, from, FRAG, first, lane);
            }
        };
        if (early) {
            each(a.stages, [&](uint32_t nth, const experts_job &job, uint32_t n, const uint8_t *w, uint32_t,
                               const t16_walk &at) { weights(nth, job, n, w, at); });
            pdl_wait();
            fence_copies();
        }
        uint32_t s = 0, phase = 1;
        const __half *x = NULL;
        each(~0u,
             [&](uint32_t nth, const experts_job &job, uint32_t n, const uint8_t *w, uint32_t r, const t16_walk &at) {
                 if (!r)
                     x = lane < job.n ? row_at(job.first + lane) : NULL;
                 mbar_wait(empty + s, phase);
                 if (!early || nth >= a.stages)
                     weights(s, job, n, w, at);
                 uint8_t *to = ring + s * S::STAGE + WARPS * S::KBLK;
                 if (!a.bulk) {
                     for (uint32_t c = 0; c < job.n; c++) {
                         const __half *row = (const __half *)__shfl_sync(~0u, (unsigned long long)x, c);
                         cp_async_warp(to + c * XFRAG_KBLK * 2, row + r * a.x_step, XFRAG_KBLK * 2, keep, lane);
                     }
                     cp_async_arrive(full + s);
                 } else if (lane < job.n)
                     cp_async_bulk(to + lane * XFRAG_KBLK * 2, x + r * a.x_step, XFRAG_KBLK * 2, full + s, keep);
                 if (++s == a.stages)
                     s = 0, phase ^= 1;
             });
        if (!DOWN && a.shared_gate) /* starts with the blocks that have the fewest records */
            for (uint32_t row = gridDim.x - 1 - blockIdx.x; row < a.step->n_row; row += gridDim.x)
                grouped_shared_gate(a, row, lane);
        if (!DOWN && a.said)
            pdl_wait(); /* keeps completion transitive */
        return;
    }
    uint32_t s = 0, phase = 0, nth = 0;
    for (uint32_t it = blockIdx.x; it < items; it += gridDim.x, nth++) {
        experts_job job = job_of(it);
        uint32_t tile = it / n_job * WARPS + warp;
        bool on = tile < a.n_tile;
        float acc[NT][4];
        zero(acc);
        for (uint32_t r = 0; r < n_kblk; r++) {
            const uint8_t *w = RING ? ring + s * S::STAGE + warp * S::KBLK
                                    : expert_at(a, job.expert) + (uint64_t)tile * n_kblk * S::KBLK;
            __half *x = (__half *)(RING ? ring + s * S::STAGE + WARPS * S::KBLK : sm);
            if (RING)
                mbar_wait(full + s, phase);
            else {
                consumers_sync(); /* the previous record has been read */
                for (uint32_t i = threadIdx.x; i < job.n * (XFRAG_KBLK / 8); i += CONSUMERS) {
                    uint32_t c = i / (XFRAG_KBLK / 8), j = i % (XFRAG_KBLK / 8) * 8;
                    *(uint4 *)(x + c * XFRAG_KBLK + j) = *(const uint4 *)(row_at(job.first + c) + r * a.x_step + j);
                }
                consumers_sync();
            }
            auto at = [&](uint32_t q) { return w + (RING ? q : (uint64_t)t16_frag_at(n_kblk, PER, r, q)) * FRAG; };
            x += (lane >> 2) * XFRAG_KBLK;
            xfrag v = {x, x + XFRAG_SUM, 8 * XFRAG_KBLK, 8 * XFRAG_KBLK};
            if (on)
                for (uint32_t q = 0; q < PER; q++)
                    if constexpr (T == DT_MXFP4 && NT == 1)
                        fp4_mul(at(q), v, lane, acc);
                    else
                        t16_mul_add<T, NT>(at(q), q, v, lane, acc);
            if (RING) {
                mbar_release(empty + s, lane);
                if (++s == a.stages)
                    s = 0, phase ^= 1;
            }
        }
        auto pair = [&](uint32_t col) { return pair_at(job.first + col); };
        if (!DOWN && a.to)
            grouped_hidden<NT>(a, job, tile, lane, acc, sums + (nth & 1) * WARPS * S::COLS, pair);
        else if (on)
            grouped_end<NT, DOWN>(a, job, tile, lane, acc, pair);
    }
}

/* --- launching ---------------------------------------------------------------------------------------------------- */

template <int T, int NT, bool DOWN> static void launch_grouped(struct device *d, experts_args &a)
{
    static uint32_t done[2];
    using S = grouped_shape<T, NT>;
    uint32_t n_group = (a.n_tile + WARPS - 1) / WARPS, blocks = 2, jobs = a.bucket * a.n_slot;
    constexpr bool large = GROUPED_FIXED + S::STAGE > SMEM_LEAST; /* a stage may not fit on every GPU */
    bool ring = d->cc >= 80 && (!large || smem_for(d, 1) >= GROUPED_FIXED + S::STAGE), direct = false;
    a.ring = grouped_fixed<NT>(!DOWN && a.to, a.here ? a.bucket * a.n_slot : 0);
    if (ring && smem_for(d, blocks) < a.ring + 2 * S::STAGE)
        blocks = 1;
    a.stages = min_u((smem_for(d, blocks) - a.ring) / S::STAGE, GROUPED_STAGES);
    auto kernel = experts_grouped<T, NT, DOWN, true>; /* reads without a ring before Ampere */
    if constexpr (large)
        if (d->cc >= 80 && !ring)
            kernel = experts_grouped<T, NT, DOWN, false>, direct = true;
    smem_once(d, kernel, &done[direct]);
    cuda_launch(d, kernel, dim3(min_u(jobs * n_group, d->sms * blocks)), BLOCK,
                ring ? a.ring + a.stages * S::STAGE : S::COLS * XFRAG_KBLK * 2, LAUNCH_PDL, a);
}

template <int T, bool DOWN> static void run_grouped(struct device *d, experts_args &a)
{
    if (a.cols <= 8)
        launch_grouped<T, 1, DOWN>(d, a);
    else
        launch_grouped<T, 4, DOWN>(d, a);
}

#endif
