/* rounds.cuh - gemv's multiplying warps where a row of activations does not fit into a block's shared memory. */
#ifndef HEARTH_CUDA_GEMM_ROUNDS_CUH
#define HEARTH_CUDA_GEMM_ROUNDS_CUH

#include "kernels/cuda/gemm/gemv_block.cuh"
#include "kernels/cuda/gemm/gemv_x.cuh"

#if __CUDA_ARCH__ >= 800
/*
 * The multiplying warps: they go through K in rounds of a.round k-blocks of each slice, for FLUSH tiles at a time,
 * whose sums stay in registers. A warp converts its records of a round again for every FLUSH tiles, unless one round is
 * all of K. The order of sums is that of gemv_consumer().
 */
template <int TA, int TB, int M, int EP>
__device__ static inline void gemv_rounds(const gemm_args &a, uint32_t n, uint8_t *sm, uint32_t chunk, uint32_t lane)
{
    using S = gemv_shape<M, 1, EP>;
    uint64_t *full = (uint64_t *)sm, *empty = full + STAGES_MAX;
    uint32_t n_kblk = a.n_kblk, r0 = t16_slice(n_kblk, chunk), r1 = t16_slice(n_kblk, chunk + 1),
             steps = (n_kblk + K_SLICES - 1) / K_SLICES, row_step = K_SLICES * a.round * IX_KBLK, s = 0, phase = 0;
    uint8_t *xs = sm + S::X + chunk * a.round * IX_KBLK, *ring = sm + S::fixed(a);
    bool mine = lane >> 3 == (lane & 3); /* g >> 1 == t */
    const uint8_t *own = mine ? xs + (lane >> 2 & 1) * IX_HI + 64 * (lane & 3) : sm + S::ZERO;
    uint32_t own_step = mine ? row_step : 0, own_kblk = mine ? IX_KBLK : 0;
    float *to = (float *)(sm + S::PARTIALS) + chunk * S::TILES * M * 64 + lane, square[M];
    const float *row[M];
#pragma unroll
    for (int m = 0; m < M; m++)
        square[m] = 0, row[m] = a.xf + (uint64_t)(a.xf && a.gather ? a.gather[a.row0 + m] : a.row0 + m) * a.ldxf;
    auto quantize = [&](uint32_t step, uint8_t *dst) {
        uint32_t k = (r0 + step) * 256 + lane * 8;
        if (a.xf) {
            eight e[M], w;
            w.take(a.norm.w, a.k, k);
#pragma unroll
            for (int m = 0; m < M; m++)
                e[m].take(row[m], a.k, k);
            const float f[8] = {w.a.x, w.a.y, w.a.z, w.a.w, w.b.x, w.b.y, w.b.z, w.b.w};
#pragma unroll
            for (int m = 0; m < M; m++) {
                float v[8] = {e[m].a.x, e[m].a.y, e[m].a.z, e[m].a.w, e[m].b.x, e[m].b.y, e[m].b.z, e[m].b.w};
#pragma unroll
                for (int j = 0; j < 8; j++)
                    square[m] = __fmaf_rn(v[j], v[j], square[m]), v[j] = __fmul_rn(v[j], f[j]);
                int_quantize(dst + m * row_step, lane, v);
            }
        } else {
            const __half *x = a.x + a.row0 * XFRAG_KBLK + (r0 + step) * XFRAG_STRIDE + eight_at(lane);
            uint4 h[M];
#pragma unroll
            for (int m = 0; m < M; m++)
                h[m] = __ldcg((const uint4 *)(x + m * XFRAG_KBLK));
#pragma unroll
            for (int m = 0; m < M; m++) {
                float v[8];
                gemv_floats(h[m], a.k, k, v);
                int_quantize(dst + m * row_step, lane, v);
            }
        }
    };
    pdl_wait();
#pragma unroll 1
    for (uint32_t first = 0; first < n; first += FLUSH) {
        float acc[FLUSH][M][2] = {};
#pragma unroll 1
        for (uint32_t round = 0; round < steps; round += a.round) {
            uint32_t end = min(round + a.round, steps);
            if (!first || a.round < steps) {
                __syncwarp(); /* all lanes have read the records of the previous round */
#pragma unroll 1
                for (uint32_t c = round; c < end && r0 + c < r1; c++)
                    quantize(c, xs + (c - round) * IX_KBLK);
                __syncwarp();
            }
            if (!first && end == steps && a.xf) {
#pragma unroll
                for (int m = 0; m < M; m++) {
                    float q = square[m];
#pragma unroll
                    for (int i = 16; i; i /= 2)
                        q = __fadd_rn(q, __shfl_xor_sync(~0u, q, i));
                    if (!lane)
                        ((float *)(sm + S::SQUARES))[m * WARPS + chunk] = q;
                }
                named_bar_arrive<S::BAR_THREADS>(BAR_SQUARES);
            }
#pragma unroll
            for (int t = 0; t < FLUSH; t++) {
                auto run = [&](auto type) {
                    constexpr int T = decltype(type)::value;
                    ix_frag v = {xs, own, row_step, own_step};
#pragma unroll 1
                    for (uint32_t c = round; c < end; c++) {
#pragma unroll 1
                        for (uint32_t q = 0; q < t16_frags(T); q++) {
                            mbar_wait(full + s, phase);
                            if (r0 + c < r1)
                                quant<T>::template mul_int<M>(ring + s * a.stage_bytes + chunk * t16_frag_bytes(T), q,
                                                              v, lane, acc[t]);
                            mbar_release(empty + s, lane);
                            if (++s == a.stages)
                                s = 0, phase ^= 1;
                        }
                        v.at += IX_KBLK, v.own += own_kblk;
                    }
                };
                if (first + t >= n)
                    break;
                if (TA != TB && part_of(a, tile_at(a, first + t)).second)
                    run(gemv_number<TB>());
                else
                    run(gemv_number<TA>());
            }
        }
        if (first)
            named_bar_sync<S::BAR_THREADS>(BAR_READ);
#pragma unroll
        for (int t = 0; t < FLUSH; t++)
#pragma unroll
            for (int m = 0; m < M; m++)
                to[(t * M + m) * 64] = acc[t][m][0], to[(t * M + m) * 64 + 32] = acc[t][m][1];
        named_bar_arrive<S::BAR_THREADS>(BAR_FULL);
    }
}
#endif

#endif
