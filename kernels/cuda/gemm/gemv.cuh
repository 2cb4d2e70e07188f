/*
 * gemv.cuh - the matrix product for one, two or four rows of activations.
 *
 * A block takes tiles of 16 rows of weights. Its warps have three roles and never wait for one another within a tile:
 *   eight warps multiply, a slice of K each, and leave their sums in shared memory, FLUSH tiles at a time, in one of
 *     two buffers;
 *   one warp streams the weights into a ring of stages, one contiguous bulk copy of eight fragments per stage;
 *   one warp finishes: it adds the eight warps' sums and does the epilogue.
 * Matrices with few tiles and a long K (`down` of small models) have a second set of eight multiplying warps, which
 * takes every other record of a tile. q|k|v with few tiles that are finished in pairs (NEOX) has one as well, and there
 * each set takes one tile of a pair. Two and four rows may have two sets (IN_SETS), of which each converts half of the
 * rows for both, and takes every other tile.
 *
 * Only activations wait for the previous kernel. Weights do not, nor does what the epilogue needs besides sums and
 * residuals: a step's kernels are a chain of small ones, and every instruction between griddepcontrol.wait and the last
 * store is on its critical path. Each warp converts activations into integers (tile16_int.cuh) for its own slice alone.
 * The factor of an RMS norm is the same for the whole row, so it is applied to the finished sums. Other norms are a
 * kernel of their own, as for skinny.
 *
 * This file has the multiplying warps and the kernel. four.cuh has the product of four rows together, gemv_block.cuh
 * the layout of a block's shared memory, gemv_ring.cuh the producer warp, gemv_x.cuh the conversion of activations into
 * integers, gemv_end.cuh the epilogue warp, rounds.cuh the multiplying warps where a row does not fit, gemv_launch.cuh
 * the choice among all of these.
 */
#ifndef HEARTH_CUDA_GEMM_GEMV_CUH
#define HEARTH_CUDA_GEMM_GEMV_CUH

#include "kernels/cuda/gemm/four.cuh"
#include "kernels/cuda/gemm/gemv_block.cuh"
#include "kernels/cuda/gemm/gemv_end.cuh"
#include "kernels/cuda/gemm/gemv_ring.cuh"
#include "kernels/cuda/gemm/gemv_x.cuh"
#include "kernels/cuda/gemm/rounds.cuh"

#if __CUDA_ARCH__ >= 800

/* The warps that multiply. */
template <int TA, int TB, int M, int CGROUPS, int EP>
__device__ static inline void gemv_consumer(const gemm_args &a, uint32_t n, uint8_t *sm, uint32_t warp, uint32_t lane)
{
    using S = gemv_shape<M, CGROUPS, EP>;
    constexpr bool FOUR = M == 4 && rows_of<TA>::TAKES && rows_of<TB>::TAKES;
    uint64_t *full = (uint64_t *)sm, *empty = full + STAGES_MAX;
    uint8_t *xs = sm + S::X, *ring = sm + S::fixed(a);
    uint32_t cgroup = CGROUPS == 1 ? 0 : warp / WARPS, chunk = warp - cgroup * WARPS, n_kblk = a.n_kblk,
             r0 = t16_slice(n_kblk, chunk), r1 = t16_slice(n_kblk, chunk + 1),
             steps = (n_kblk + K_SLICES - 1) / K_SLICES, end = r0 + steps, row_step = S::row_step(n_kblk),
             stages = a.stages;
    if (S::BY_TILE)
        xs += cgroup * M * row_step; /* each set has a copy of the row */
    else if (S::K_SPLIT > 1)
        r0 += cgroup;
    const uint8_t *x = xs + r0 * IX_KBLK;
    bool mine = lane >> 3 == (lane & 3); /* g >> 1 == t */
    const uint8_t *own = mine ? x + (lane >> 2 & 1) * IX_HI + 64 * (lane & 3) : sm + S::ZERO;
    uint32_t own_step = mine ? row_step : 0, own_kblk = mine ? S::K_SPLIT * IX_KBLK : 0, s = 0, phase = 0;
    float *to = (float *)(sm + S::PARTIALS) + (S::TILE_EACH ? chunk : warp) * S::TILES * M * 64 + lane;
    if (EP == GEMV_QKV_NORMED)
        cluster_wait();
    constexpr int MINE = S::IN_SETS ? M / 2 : M; /* rows that the warp converts */
    const uint32_t m0 = S::IN_SETS ? cgroup * MINE : 0;
    if (!S::PAIRS && !S::ONE_TILE && a.xf) {
        eight w[NORM_IN_FLIGHT]; /* constants, loaded before the wait, as are the rows' addresses */
        const float *row[MINE];
#pragma unroll
        for (int i = 0; i < NORM_IN_FLIGHT; i++)
            if (r0 + i < r1)
                w[i].take(a.norm.w, a.k, (r0 + i) * 256 + lane * 8);
#pragma unroll
        for (int m = 0; m < MINE; m++)
            row[m] = a.xf + (uint64_t)(a.gather ? a.gather[a.row0 + m0 + m] : a.row0 + m0 + m) * a.ldxf;
        pdl_wait();
#pragma unroll
        for (int m = 0; m < MINE; m++) {
            eight f[NORM_IN_FLIGHT] = {w[0], w[1]};
            gemv_norm_quantize(row[m], a.k, a.norm.w, f, r0, r1, xs + (m0 + m) * row_step,
                               (float *)(sm + S::SQUARES) + (S::BY_TILE ? cgroup * M + m : m0 + m) * WARPS + chunk,
                               lane);
        }
        named_bar_arrive<S::BAR_THREADS>(BAR_SQUARES);
    } else {
        uint32_t from = r0 + (S::PAIRS ? cgroup : 0); /* PAIRS: the sets convert alternate records, for both */
        const __half *row = a.x + a.row0 * XFRAG_KBLK + from * XFRAG_STRIDE + eight_at(lane);
        pdl_wait();
#pragma unroll 1
        for (uint32_t m = m0; m < m0 + MINE; m++)
            gemv_quantize<S::EACH>(row + m * XFRAG_KBLK, a.k, from, r1, xs + m * row_step, lane);
    }
    if (S::PAIRS || S::IN_SETS)
        named_bar_sync<64>(BAR_RECORDS + chunk);
    __syncwarp();
    /* Skips stages that belong to the other set. Where sets take turns by record, a stage always belongs to the same
     * set, as the number of stages is a multiple of a turn; where they take turns by tile, the ring holds all of the
     * block's stages (gemv_by_tile()). So a phase is never mistaken for the previous one. With IN_SETS only the last
     * tile may be without one of the other set: of its stages the previous phases have ended as well, since fewer
     * copies are in flight than there are stages. */
    auto pass = [&](uint32_t n) {
        for (s += n; s >= stages; s -= stages)
            phase ^= 1;
    };
    if (S::IN_SETS && cgroup)
        pass(t16_frags(TA));
#pragma unroll 1
    for (uint32_t i = S::TILE_EACH ? cgroup : 0; i < (S::IN_SETS ? (n + 1) & ~1u : n); i += S::TILE_EACH + 1) {
        float acc[M][2], four[2][4]; /* FOUR: [h][quarter] of row t */
#pragma unroll
        for (int m = 0; m < M; m++)
            acc[m][0] = acc[m][1] = 0;
#pragma unroll
        for (int c = 0; c < 4; c++)
            four[0][c] = four[1][c] = 0;
        auto run = [&](auto type) {
            constexpr int T = decltype(type)::value;
            constexpr uint32_t per = t16_frags(T), frag = t16_frag_bytes(T);
            ix_frag v = {x, own, row_step, own_step};
            four_rows rows(x, row_step, lane);
            if (S::BY_TILE && cgroup)
                pass(steps * per);
            else if (CGROUPS > 1 && !S::IN_SETS)
                pass(cgroup * per);
#pragma unroll 1
            for (uint32_t c = r0; c < end; c += S::K_SPLIT) {
#pragma unroll 1
                for (uint32_t q = 0; q < per; q++) {
                    mbar_wait(full + s, phase);
                    if (c < r1) {
                        const uint8_t *record = ring + s * a.stage_bytes + chunk * frag;
                        if constexpr (FOUR)
                            rows_of<T>::mul(record, rows, lane, four);
                        else
                            quant<T>::template mul_int<M>(record, q, v, lane, acc);
                    }
                    mbar_release(empty + s, lane);
                    if (++s == stages)
                        s = 0, phase ^= 1;
                }
                if (S::K_SPLIT > 1 || S::PAIRS || (S::IN_SETS && (i | 1) < n))
                    pass(per);
                v.at += S::K_SPLIT * IX_KBLK, v.own += own_kblk, rows.next(S::K_SPLIT * IX_KBLK);
            }
            if (S::BY_TILE && !cgroup)
                pass(steps * per);
        };
        const bool has = !S::IN_SETS || i < n; /* the last tile may be the other set's alone */
        if (!has)
            ;
        else if (TA != TB && part_of(a, tile_at<S::IN_PAIRS>(a, i)).second)
            run(gemv_number<TB>());
        else
            run(gemv_number<TA>());
        uint32_t buf = i / FLUSH & 1, at = buf * S::BUF + i % FLUSH * M * 64;
        if ((S::TILE_EACH || i % FLUSH == 0) && i >= 2 * FLUSH)
            named_bar_sync<S::BAR_THREADS>(BAR_READ + buf);
        if (!has)
            ;
        else if constexpr (FOUR) {
            float *row = to - lane + at + (lane & 3) * 64 + (lane & ~3u);
#pragma unroll
            for (int h = 0; h < 2; h++)
                *(float4 *)(row + 32 * h) = make_float4(four[h][0], four[h][1], four[h][2], four[h][3]);
        } else {
#pragma unroll
            for (int m = 0; m < M; m++)
                to[at + m * 64] = acc[m][0], to[at + m * 64 + 32] = acc[m][1]; /* rows g and g + 8, quarter t */
        }
        if (S::TILE_EACH || i % FLUSH == FLUSH - 1 || i + 1 == n)
            named_bar_arrive<S::BAR_THREADS>(BAR_FULL + buf);
    }
}

#endif

/* M rows from row0 on; tiles as in gemm_args. For a single row, registers are limited so that the next kernels' blocks
 * can be resident beside these: as for three blocks of one set, or as if a block of two sets had 896 threads. */
template <int TA, int TB, int M, int CGROUPS, int EP>
__global__ void __launch_bounds__(CGROUPS == 2 && M == 1 ? 896 : gemv_shape<M, CGROUPS, EP>::THREADS,
                                  CGROUPS == 2 || in_rounds(EP) ? 1
                                  : M == 1                      ? 3
                                                                : 2) gemv_int8(const __grid_constant__ gemm_args a)
{
#if __CUDA_ARCH__ >= 800
    if (EP == GEMV_QKV_NORMED && __CUDA_ARCH__ < 900)
        return; /* needs clusters: no code for older architectures */
    extern __shared__ __align__(128) uint8_t sm[];
    uint64_t *full = (uint64_t *)sm, *empty = full + STAGES_MAX;
    uint32_t tid, tiles = a.tile_hi - a.tile_lo, n;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(tid)); /* volatile: else it is read again in every loop iteration */
    uint32_t warp = tid >> 5, lane = tid & 31;
    pdl_trigger();
    if (EP == GEMV_PAIRS)
        n = 2;
    else if (gemv_shape<M, CGROUPS, EP>::ONE_TILE)
        n = 1;
    else if (is_qkv(EP) && a.pair)
        n = 2 * ((tiles / 2 - blockIdx.x + gridDim.x - 1) / gridDim.x);
    else
        n = (tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
    if (!tid) {
#pragma unroll 1
        for (uint32_t s = 0; s < a.stages; s++)
            mbar_init(full + s, fill_arrivals(a.bulk)), mbar_init(empty + s, WARPS * WARP_ARRIVALS);
        if (EP == GEMV_QKV_NORMED)
            heads_init(heads_of<M, CGROUPS, EP>(a, sm));
        mbar_init_done();
    }
    if (tid < 16)
        ((uint32_t *)(sm + gemv_shape<M, CGROUPS, EP>::ZERO))[tid] = 0;
    __syncthreads();
    if (EP == GEMV_QKV_NORMED)
        cluster_arrive();
    if (warp < CGROUPS * WARPS) {
        if constexpr (in_rounds(EP))
            gemv_rounds<TA, TB, M, EP>(a, n, sm, warp, lane);
        else
            gemv_consumer<TA, TB, M, CGROUPS, EP>(a, n, sm, warp, lane);
    } else if (warp > CGROUPS * WARPS)
        gemv_epilogue<M, CGROUPS, EP>(a, n, sm, lane);
    else {
        uint8_t *ring = sm + gemv_shape<M, CGROUPS, EP>::fixed(a);
        if (!a.bulk)
            gemv_producer<TA, TB, EP, false>(a, n, full, empty, ring, lane);
        else if (!lane)
            gemv_producer<TA, TB, EP, true>(a, n, full, empty, ring, 0);
        __syncwarp(); /* otherwise the other lanes' wait would stall lane 0 with them */
        if (is_qkv(EP) && M == 1 && a.prefetch)
            prefetch_keys(a, lane);
        if (EP == GEMV_QKV_NORMED)
            cluster_wait();
        pdl_wait();
    }
#endif
}

#endif
