/*
 * gemm_body.cuh - the kernel `wide` that gemm.cuh describes, and the choice between it and `few`. Included by
 * gemm_q4_k.cu and its sisters.
 */
#ifndef HEARTH_CUDA_GEMM_BODY_CUH
#define HEARTH_CUDA_GEMM_BODY_CUH

#include "kernels/cuda/gemm_few.cuh"

template <int TA, int TB> struct ring_of {
    static constexpr uint32_t UA = t16_unit(TA), UB = t16_unit(TB), PA = t16_per(TA), PB = t16_per(TB);
    static constexpr uint32_t REC = UA * PA > UB *PB ? UA *PA : UB *PB;
};

enum { STAGED_LD = 132 /* floats from column to column: 128 rows, padded */ };
template <int COLS> __host__ __device__ constexpr uint32_t wide_fixed()
{
    return 256 + 16 + COLS * STAGED_LD * 4;
}
/* A stage: records of eight tiles, then the rows' activations. */
template <int TA, int TB, int COLS> __host__ __device__ constexpr uint32_t wide_stage()
{
    return ring_of<TA, TB>::REC * WARPS + COLS * PREP_REC * 2;
}

template <int T, int NT>
__device__ static inline void unit_add(const uint8_t *r, uint32_t q, const xfrag &v, int lane, float (&acc)[NT][4])
{
    float part[NT][4];
    zero(part);
    t16_mul<T, NT>(r, q, v, lane, part);
#pragma unroll
    for (int n = 0; n < NT; n++)
        for (int i = 0; i < 4; i++)
            acc[n][i] = __fadd_rn(acc[n][i], part[n][i]);
}

/* SETS of eight warps, NT * 8 columns each: sixteen warps hide more of each other's waits than eight with twice the
 * columns. */
template <int TA, int TB, int NT, int SETS>
__global__ void __launch_bounds__(SETS *CONSUMERS + 32, SETS == 1 ? 2 : 1)
    gemm_wide(const __grid_constant__ gemm_args a)
{
    constexpr uint32_t THREADS = SETS * CONSUMERS;
    using R = ring_of<TA, TB>;
    extern __shared__ __align__(128) uint8_t sm[];
    float *staged = (float *)(sm + 256 + 16);
    uint32_t *last = (uint32_t *)(sm + 256);
    uint32_t tid = threadIdx.x, warp = tid >> 5 & 7, set = tid >> 8, lane = tid & 31, n_rec = a.n_rec;
    uint32_t groups = (a.tile_hi - a.tile_lo + WARPS - 1) / WARPS, items = groups * a.split;
#if __CUDA_ARCH__ >= 900
    constexpr uint32_t COLS = SETS * NT * 8, STAGE = wide_stage<TA, TB, COLS>();
    uint64_t *full = (uint64_t *)sm, *empty = full + 16;
    uint8_t *ring = sm + wide_fixed<COLS>();
    if (!tid) {
        for (uint32_t s = 0; s < a.stages; s++)
            bar_init(full + s, 1), bar_init(empty + s, WARPS * SETS * WARP_ARRIVALS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    pdl_go();
    if (set == SETS) { /* the producer: weights of the first stages before the wait, activations after it */
        uint64_t first = evict_first(), keep = evict_last();
        uint32_t fill = 0;
        auto weights = [&](uint32_t group, uint32_t r, uint32_t s) {
            uint32_t bytes = 0;
            for (uint32_t w = 0; w < WARPS; w++) {
                uint32_t tile = a.tile_lo + group * WARPS + w;
                if (tile < a.tile_hi)
                    bytes += TA != TB && part_of(a, tile).second ? R::UB * R::PB : R::UA * R::PA;
            }
            if (!lane)
                bar_expect(full + s, bytes + a.cap * PREP_REC * 2);
            __syncwarp();
            for (uint32_t i = lane; i < WARPS * R::PA; i += 32) {
                uint32_t w = i / R::PA, q = i % R::PA, tile = a.tile_lo + group * WARPS + w;
                if (tile >= a.tile_hi)
                    continue;
                const gemm_part &p = part_of(a, tile);
                bool second = TA != TB && p.second;
                uint32_t unit = second ? R::UB : R::UA, per = second ? R::PB : R::PA;
                bulk(ring + s * STAGE + w * R::REC + q * unit,
                     a.w + p.off + ((uint64_t)(tile - p.tile0) * n_rec * per + t16_unit_at(n_rec, per, r, q)) * unit,
                     unit, full + s, first);
            }
        };
        auto activations = [&](uint32_t r, uint32_t s) {
            if (!lane)
                bulk(ring + s * STAGE + R::REC * WARPS, a.x + (uint64_t)r * PREP_STEP + a.row0 * PREP_REC,
                     a.cap * PREP_REC * 2, full + s, keep);
        };
        for (int pass = 0; pass < 2; pass++) {
            uint32_t s = 0, phase = 1, k = 0;
            for (uint32_t it = blockIdx.x; it < items; it += gridDim.x) {
                uint32_t r0 = a.split == 1 ? 0 : t16_chunk(n_rec, it % CHUNKS),
                         r1 = a.split == 1 ? n_rec : t16_chunk(n_rec, it % CHUNKS + 1);
                for (uint32_t r = r0; r < r1; r++, k++) {
                    if (!pass && k == a.stages)
                        break;
                    if (pass && k >= fill) {
                        bar_wait(empty + s, phase);
                        weights(it / a.split, r, s);
                    } else if (!pass)
                        weights(it / a.split, r, s), fill++;
                    if (pass)
                        activations(r, s);
                    if (++s == a.stages)
                        s = 0, phase ^= 1;
                }
                if (!pass && k == a.stages)
                    break;
            }
            if (!pass) {
                pdl_wait();
                asm volatile("fence.proxy.async;" ::: "memory"); /* the copies read what ordinary stores wrote */
            }
        }
        return;
    }
    uint32_t s = 0, phase = 0;
#else
    if (set == SETS)
        return;
#endif
    pdl_wait();
    for (uint32_t it = blockIdx.x; it < items; it += gridDim.x) {
        uint32_t group = it / a.split, tile0 = a.tile_lo + group * WARPS, tile = tile0 + warp;
        uint32_t c0 = a.split == 1 ? 0 : it % CHUNKS, c1 = a.split == 1 ? CHUNKS : c0 + 1;
        bool on = tile < a.tile_hi;
        const gemm_part &p = part_of(a, on ? tile : a.tile_lo);
        bool second = TA != TB && p.second;
        uint32_t row = warp * 16 + (lane >> 2), col = set * NT * 8 + 2 * (lane & 3);
        float acc[NT][4];
        for (uint32_t c = c0; c < c1; c++) {
            zero(acc);
            for (uint32_t r = t16_chunk(n_rec, c); r < t16_chunk(n_rec, c + 1); r++) {
#if __CUDA_ARCH__ >= 900
                const uint8_t *w = ring + s * STAGE + warp * R::REC;
                const __half *x =
                    (const __half *)(ring + s * STAGE + R::REC * WARPS) + (set * NT * 8 + (lane >> 2)) * PREP_REC;
                bar_wait(full + s, phase);
                auto at = [&](uint32_t q, uint32_t unit, uint32_t) { return w + q * unit; };
#else
                const uint8_t *w = a.w + p.off;
                const __half *x = a.x + (uint64_t)r * PREP_STEP + (a.row0 + set * NT * 8 + (lane >> 2)) * PREP_REC;
                auto at = [&](uint32_t q, uint32_t unit, uint32_t per) {
                    return w + ((uint64_t)(tile - p.tile0) * n_rec * per + t16_unit_at(n_rec, per, r, q)) * unit;
                };
#endif
                xfrag v = {x, x + PREP_SUM, 8 * PREP_REC, 8 * PREP_REC};
                if (on && second)
                    for (uint32_t q = 0; q < R::PB; q++)
                        unit_add<TB, NT>(at(q, R::UB, R::PB), q, v, lane, acc);
                else if (on)
                    for (uint32_t q = 0; q < R::PA; q++)
                        unit_add<TA, NT>(at(q, R::UA, R::PA), q, v, lane, acc);
#if __CUDA_ARCH__ >= 900
                bar_release(empty + s, lane);
                if (++s == a.stages)
                    s = 0, phase ^= 1;
#endif
            }
            if (a.split > 1)
                break;
            if (!c)
                consumers_sync<THREADS>(); /* the last item's readers are done */
#pragma unroll
            for (int n = 0; n < NT; n++)
                for (int i = 0; i < 4; i++) {
                    float *o = staged + (n * 8 + col + (i & 1)) * STAGED_LD + row + (i >> 1) * 8;
                    *o = __fadd_rn(c ? *o : 0.f, acc[n][i]);
                }
        }
        auto tile_of = [&](uint32_t t) { return tile0 + t; };
        auto in_staged = [&](uint32_t t, uint32_t r, uint32_t c) { return staged[c * STAGED_LD + t * 16 + r]; };
        if (a.split == 1) {
            consumers_sync<THREADS>();
            finish_wide(a, tile_of, in_staged, tid, THREADS);
            continue;
        }
        /* a chunk's sums [group][chunk][col][128] */
        float *sums = a.part_sums + (uint64_t)group * CHUNKS * a.cap * 128;
#pragma unroll
        for (int n = 0; n < NT; n++)
            for (int i = 0; i < 4; i++) {
                uint32_t c = n * 8 + col + (i & 1);
                if (c < a.cap)
                    __stcg(sums + ((uint64_t)c0 * a.cap + c) * 128 + row + (i >> 1) * 8, acc[n][i]);
            }
        __threadfence();
        consumers_sync<THREADS>();
        if (!tid) {
            *last = atomicAdd(a.ticket + group, 1) == CHUNKS - 1;
            if (*last)
                a.ticket[group] = 0;
            __threadfence();
        }
        consumers_sync<THREADS>();
        if (*last) {
            for (uint32_t i = tid; i < a.cap * 32; i += THREADS) { /* four rows of a column */
                uint32_t c = i / 32, r = i % 32 * 4;
                float4 v[CHUNKS], t = {0, 0, 0, 0};
#pragma unroll
                for (int k = 0; k < CHUNKS; k++)
                    v[k] = __ldcg((const float4 *)(sums + ((uint64_t)k * a.cap + c) * 128 + r));
#pragma unroll
                for (int k = 0; k < CHUNKS; k++) {
                    t.x = __fadd_rn(t.x, v[k].x), t.y = __fadd_rn(t.y, v[k].y);
                    t.z = __fadd_rn(t.z, v[k].z), t.w = __fadd_rn(t.w, v[k].w);
                }
                *(float4 *)(staged + c * STAGED_LD + r) = t;
            }
            consumers_sync<THREADS>();
            finish_wide(a, tile_of, in_staged, tid, THREADS);
        }
        consumers_sync<THREADS>();
    }
}

/* --- launching ------------------------------------------------------------------------------------------------------
 */

template <int TA, int TB, int NT, int SETS> static void run_wide(struct device *d, gemm_args &a)
{
    static uint32_t done;
    constexpr uint32_t cols = SETS * NT * 8, stage = wide_stage<TA, TB, cols>(), fixed = wide_fixed<cols>();
    bool bulk_copies = d->cc >= 90;
    uint32_t groups = (a.tile_hi - a.tile_lo + WARPS - 1) / WARPS, blocks = SETS == 1 ? 2 : 1;
    if (bulk_copies && smem_for(d, blocks) < fixed + 2 * stage)
        blocks = 1;
    a.stages = min_u((smem_for(d, blocks) - fixed) / stage, 16);
    a.split = groups < (uint32_t)d->sms && (uint64_t)groups * CHUNKS * a.cap * 128 <= SPLIT_FLOATS &&
                      groups <= TICKETS && a.n_rec >= CHUNKS
                  ? CHUNKS
                  : 1;
    smem_once(d, gemm_wide<TA, TB, NT, SETS>, &done);
    cuda_launch(d, gemm_wide<TA, TB, NT, SETS>, dim3(min_u(groups * a.split, d->sms * blocks)), SETS * CONSUMERS + 32,
                fixed + (bulk_copies ? a.stages * stage : 0), LAUNCH_PDL, a);
}

/* NT2: whether 16 columns have a width of their own. */
template <int TA, int TB, int NT2> static void run_gemm(struct device *d, gemm_args &a)
{
    if constexpr (int_type(TA))
        if (a.few) {
            run_few<TA, TB>(d, a);
            return;
        }
    if (a.cap <= 8)
        run_wide<TA, TB, 1, 1>(d, a);
    else if (a.cap <= 16 && NT2)
        run_wide<TA, TB, 2, 1>(d, a);
    else if (a.cap <= 32)
        run_wide<TA, TB, 4, 1>(d, a);
    else
        run_wide<TA, TB, 4, 2>(d, a);
}

#endif
