/*
 * grouped.cuh - the products of experts for many rows, in fp16 as skinny.cuh does: pairs of a row and an expert, sorted
 * by expert, are the columns of a product with the expert's matrix.
 *
 * A block takes groups of eight tiles, a warp each, of a job: up to COLS pairs of one expert. A warp streams the
 * weights and gathers the pairs' prepared rows, a record of either a stage, by copies of their own; the jobs of an
 * expert are neighbours, so that the L2 cache has its weights. A pair's sums have one order, whatever lies in the other
 * columns.
 */
#ifndef HEARTH_CUDA_EXPERTS_GROUPED_CUH
#define HEARTH_CUDA_EXPERTS_GROUPED_CUH

#include "kernels/cuda/experts/experts.cuh"
#include "kernels/cuda/experts/fp4.cuh"
#include "kernels/cuda/gemm/skinny.cuh"

enum { GROUPED_STAGES = 16, GROUPED_FIXED = 2 * GROUPED_STAGES * 8 };
template <int T, int NT> struct grouped_shape {
    enum {
        COLS = NT * 8,
        KBLK = quant<T>::FRAGS * quant<T>::FRAG_BYTES, /* of a tile */
        STAGE = KBLK * WARPS + COLS * XFRAG_KBLK * 2,
    };
};

/* What follows the product of a warp's tile: rows g and g + 8, columns 2 t and 2 t + 1 of each eight. */
template <int NT, bool DOWN>
__device__ static inline void grouped_end(const experts_args &a, const experts_job &job, uint32_t tile, uint32_t lane,
                                          const float (&acc)[NT][4])
{
    uint32_t g = lane >> 2, t = lane & 3, o = DOWN || !a.gated ? tile * 16 + g : tile * 8 + g;
    float b[2] = {0, 0};
    if (!DOWN && a.bias) { /* gate and up of a unit, or units o and o + 8 */
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
            uint32_t pair = __ldcg(a.order + job.first + col);
            float x = acc[n][e], y = acc[n][2 + e];
            if (DOWN) {
                float *to = a.out + (uint64_t)pair * a.ldout + o;
                if (o < a.n_out)
                    to[0] = x;
                if (o + 8 < a.n_out)
                    to[8] = y;
                continue;
            }
            float *to = a.hidden + (uint64_t)pair * a.n_out + o;
            x = __fadd_rn(x, b[0]), y = __fadd_rn(y, b[1]);
            if (o < a.n_out)
                to[0] = glu_of(a.glu, x, a.gated ? y : 1.f);
            if (!a.gated && o + 8 < a.n_out)
                to[8] = glu_of(a.glu, y, 1.f);
        }
}

/* The prepared row of a job's column. */
template <bool DOWN> __device__ static inline const __half *grouped_row(const experts_args &a, uint32_t at)
{
    uint32_t pair = __ldcg(a.order + at);
    return act_row(a.x, DOWN ? pair : pair / a.n_used);
}

/* STAGED: through the ring, where the chip has copies that complete on barriers. */
template <int T, int NT, bool DOWN, bool STAGED>
__global__ void __launch_bounds__(BLOCK, 2) experts_grouped(const __grid_constant__ experts_args a)
{
    using S = grouped_shape<T, NT>;
    constexpr uint32_t PER = quant<T>::FRAGS, FRAG = quant<T>::FRAG_BYTES;
    extern __shared__ __align__(128) uint8_t sm[];
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n_kblk = a.n_kblk,
             n_group = (a.n_tile + WARPS - 1) / WARPS;
    constexpr bool RING = STAGED && has_copies();
    pdl_trigger();
    uint64_t *full = (uint64_t *)sm, *empty = full + GROUPED_STAGES;
    uint8_t *ring = sm + GROUPED_FIXED;
    if (RING && !threadIdx.x) {
        for (uint32_t s = 0; s < a.stages; s++)
            mbar_init(full + s, fill_arrivals(a.bulk)), mbar_init(empty + s, WARPS * WARP_ARRIVALS);
        mbar_init_done();
    }
    if (RING)
        __syncthreads();
    pdl_wait();
    uint32_t n_job = __ldcg(a.n_job), items = n_job * n_group;
    if (!RING && warp == WARPS)
        return;
    if (RING && warp == WARPS) {
        if (a.bulk)
            fence_copies();
        uint64_t first = evict_first(), keep = evict_last();
        uint32_t s = 0, phase = 1;
        for (uint32_t it = blockIdx.x; it < items; it += gridDim.x) {
            experts_job job = a.jobs[it % n_job];
            uint32_t tile0 = it / n_job * WARPS, n = min((uint32_t)WARPS, a.n_tile - tile0);
            const uint8_t *w = a.w + job.expert * a.expert_bytes + (uint64_t)tile0 * n_kblk * S::KBLK;
            const __half *x = lane < job.n ? grouped_row<DOWN>(a, job.first + lane) : NULL;
            for (uint32_t r = 0; r < n_kblk; r++) {
                mbar_wait(empty + s, phase);
                uint8_t *to = ring + s * S::STAGE;
                if (!lane && a.bulk)
                    mbar_expect_tx(full + s, n * S::KBLK + job.n * XFRAG_KBLK * 2);
                __syncwarp();
                for (uint32_t i = a.bulk ? lane : 0; i < n * PER; i += a.bulk ? 32 : 1) {
                    uint32_t tile = i / PER, q = i % PER;
                    const uint8_t *from = w + ((uint64_t)tile * n_kblk * PER + t16_frag_at(n_kblk, PER, r, q)) * FRAG;
                    if (a.bulk)
                        cp_async_bulk(to + i * FRAG, from, FRAG, full + s, first);
                    else
                        cp_async_warp(to + i * FRAG, from, FRAG, first, lane);
                }
                if (!a.bulk) {
                    for (uint32_t c = 0; c < job.n; c++) {
                        const __half *row = (const __half *)__shfl_sync(~0u, (unsigned long long)x, c);
                        cp_async_warp(to + WARPS * S::KBLK + c * XFRAG_KBLK * 2, row + r * a.x_step, XFRAG_KBLK * 2,
                                      keep, lane);
                    }
                    cp_async_arrive(full + s);
                } else if (lane < job.n)
                    cp_async_bulk(to + WARPS * S::KBLK + lane * XFRAG_KBLK * 2, x + r * a.x_step, XFRAG_KBLK * 2,
                                  full + s, keep);
                if (++s == a.stages)
                    s = 0, phase ^= 1;
            }
        }
        return;
    }
    uint32_t s = 0, phase = 0;
    for (uint32_t it = blockIdx.x; it < items; it += gridDim.x) {
        experts_job job = a.jobs[it % n_job];
        uint32_t tile = it / n_job * WARPS + warp;
        bool on = tile < a.n_tile;
        float acc[NT][4];
        zero(acc);
        for (uint32_t r = 0; r < n_kblk; r++) {
            const uint8_t *w = RING ? ring + s * S::STAGE + warp * S::KBLK
                                    : a.w + job.expert * a.expert_bytes + (uint64_t)tile * n_kblk * S::KBLK;
            __half *x = (__half *)(RING ? ring + s * S::STAGE + WARPS * S::KBLK : sm);
            if (RING)
                mbar_wait(full + s, phase);
            else {
                consumers_sync(); /* the record before was read */
                for (uint32_t i = threadIdx.x; i < job.n * (XFRAG_KBLK / 8); i += CONSUMERS) {
                    uint32_t c = i / (XFRAG_KBLK / 8), j = i % (XFRAG_KBLK / 8) * 8;
                    *(uint4 *)(x + c * XFRAG_KBLK + j) =
                        *(const uint4 *)(grouped_row<DOWN>(a, job.first + c) + r * a.x_step + j);
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
        if (on)
            grouped_end<NT, DOWN>(a, job, tile, lane, acc);
    }
}

/* --- launching ---------------------------------------------------------------------------------------------------- */

template <int T, int NT, bool DOWN> static void launch_grouped(struct device *d, experts_args &a)
{
    static uint32_t done[2];
    using S = grouped_shape<T, NT>;
    uint32_t n_group = (a.n_tile + WARPS - 1) / WARPS, blocks = 2, jobs = a.bucket * a.n_used;
    constexpr bool large = GROUPED_FIXED + S::STAGE > SMEM_LEAST; /* a card may have no room for a stage */
    bool ring = d->cc >= 80 && (!large || smem_for(d, 1) >= GROUPED_FIXED + S::STAGE), direct = false;
    if (ring && smem_for(d, blocks) < GROUPED_FIXED + 2 * S::STAGE)
        blocks = 1;
    a.stages = min_u((smem_for(d, blocks) - GROUPED_FIXED) / S::STAGE, GROUPED_STAGES);
    auto kernel = experts_grouped<T, NT, DOWN, true>; /* which reads without a ring before Ampere */
    if constexpr (large)
        if (d->cc >= 80 && !ring)
            kernel = experts_grouped<T, NT, DOWN, false>, direct = true;
    smem_once(d, kernel, &done[direct]);
    cuda_launch(d, kernel, dim3(min_u(jobs * n_group, d->sms * blocks)), BLOCK,
                ring ? GROUPED_FIXED + a.stages * S::STAGE : S::COLS * XFRAG_KBLK * 2, LAUNCH_PDL, a);
}

template <int T, bool DOWN> static void run_grouped(struct device *d, experts_args &a)
{
    if (a.cols <= 8)
        launch_grouped<T, 1, DOWN>(d, a);
    else
        launch_grouped<T, 4, DOWN>(d, a);
}

#endif
