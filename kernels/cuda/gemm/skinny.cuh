/*
 * skinny.cuh - the kernel for up to 64 rows that gemm.cuh describes, in the variant for Hopper, and for cards that have
 * no asynchronous copies into shared memory. Included by copied.cuh.
 */
#ifndef HEARTH_CUDA_GEMM_SKINNY_CUH
#define HEARTH_CUDA_GEMM_SKINNY_CUH

#include "kernels/cuda/gemm/items.cuh"

template <int TA, int TB> struct ring_of {
    static constexpr uint32_t UA = t16_frag_bytes(TA), UB = t16_frag_bytes(TB), PA = t16_frags(TA), PB = t16_frags(TB);
    static constexpr uint32_t REC = UA * PA > UB *PB ? UA *PA : UB *PB;
};

/* Whether this code is compiled for a chip that has bulk copies. */
__host__ __device__ constexpr bool has_bulk()
{
#if __CUDA_ARCH__ >= 900
    return true;
#else
    return false;
#endif
}

enum { STAGED_LD = 132 /* floats from column to column: 128 rows, padded */ };
template <int COLS> __host__ __device__ constexpr uint32_t skinny_fixed()
{
    return 256 + 16 + COLS * STAGED_LD * 4;
}
/* Bytes of a stage: records of eight tiles, then the rows' activations. */
template <int TA, int TB, int COLS> __host__ __device__ constexpr uint32_t skinny_stage_bytes()
{
    return ring_of<TA, TB>::REC * WARPS + COLS * XFRAG_KBLK * 2;
}

template <int T, int NT>
__device__ static inline void t16_mul_add(const uint8_t *r, uint32_t q, const xfrag &v, int lane, float (&acc)[NT][4])
{
    float part[NT][4];
    zero(part);
    quant<T>::template mul<NT>(r, q, v, lane, part);
#pragma unroll
    for (int n = 0; n < NT; n++)
        for (int i = 0; i < 4; i++)
            acc[n][i] = __fadd_rn(acc[n][i], part[n][i]);
}

/*
 * Ends a slice of K of a group of tiles: stores its sums `acc` to [group][slice][column][128 rows]. Returns true in the
 * block that brings a group's last slice, and `staged` then has the sum of all slices, added in order. Columns are col0
 * to col0 + cols of the launch; `row` and `col` are the place of a lane's first sum within the block. semaphore: that
 * of the group and these columns.
 */
template <int NT, uint32_t THREADS>
__device__ static inline bool split_k_last(const gemm_args &a, uint32_t group, uint32_t slice, uint32_t semaphore,
                                           uint32_t row, uint32_t col, uint32_t col0, uint32_t cols,
                                           const float (&acc)[NT][4], float *staged, uint32_t *last, uint32_t tid)
{
    float *partials = a.split_k_partials + ((uint64_t)group * K_SLICES * a.bucket + col0) * 128;
#pragma unroll
    for (int n = 0; n < NT; n++)
        for (int i = 0; i < 4; i++) {
            uint32_t c = n * 8 + col + (i & 1);
            if (c < cols)
                __stcg(partials + ((uint64_t)slice * a.bucket + c) * 128 + row + (i >> 1) * 8, acc[n][i]);
        }
    __threadfence();
    consumers_sync<THREADS>();
    if (!tid) {
        *last = atomicAdd(a.semaphore + semaphore, 1) == K_SLICES - 1;
        if (*last)
            a.semaphore[semaphore] = 0;
        __threadfence();
    }
    consumers_sync<THREADS>();
    if (!*last)
        return false;
    for (uint32_t i = tid; i < cols * 32; i += THREADS) { /* four rows of a column */
        uint32_t c = i / 32, r = i % 32 * 4;
        float4 v[K_SLICES], t = {0, 0, 0, 0};
#pragma unroll
        for (int k = 0; k < K_SLICES; k++)
            v[k] = __ldcg((const float4 *)(partials + ((uint64_t)k * a.bucket + c) * 128 + r));
#pragma unroll
        for (int k = 0; k < K_SLICES; k++) {
            t.x = __fadd_rn(t.x, v[k].x), t.y = __fadd_rn(t.y, v[k].y);
            t.z = __fadd_rn(t.z, v[k].z), t.w = __fadd_rn(t.w, v[k].w);
        }
        *(float4 *)(staged + c * STAGED_LD + r) = t;
    }
    consumers_sync<THREADS>();
    return true;
}

/* CGROUPS sets of eight warps, with NT * 8 columns each: sixteen warps hide more of each other's latency than eight
 * with twice the columns. STAGED: through the ring, where the chip has bulk copies. */
template <int TA, int TB, int NT, int CGROUPS, bool STAGED>
__global__ void __launch_bounds__(CGROUPS *CONSUMERS + 32, CGROUPS == 1 ? 2 : 1)
    gemm_skinny(const __grid_constant__ gemm_args a)
{
    constexpr uint32_t THREADS = CGROUPS * CONSUMERS;
    using R = ring_of<TA, TB>;
    extern __shared__ __align__(128) uint8_t sm[];
    float *staged = (float *)(sm + 256 + 16);
    uint32_t *last = (uint32_t *)(sm + 256);
    uint32_t tid = threadIdx.x, warp = tid >> 5 & 7, cgroup = tid >> 8, lane = tid & 31, n_kblk = a.n_kblk;
    uint32_t groups = (a.tile_hi - a.tile_lo + WARPS - 1) / WARPS, items = groups * a.split_k;
    constexpr bool RING = STAGED && has_bulk();
    constexpr uint32_t COLS = CGROUPS * NT * 8, STAGE = skinny_stage_bytes<TA, TB, COLS>();
    uint64_t *full = (uint64_t *)sm, *empty = full + 16;
    uint8_t *ring = sm + skinny_fixed<COLS>();
    if (RING && !tid) {
        for (uint32_t s = 0; s < a.stages; s++)
            mbar_init(full + s, 1), mbar_init(empty + s, WARPS * CGROUPS * WARP_ARRIVALS);
        mbar_init_done();
    }
    __syncthreads();
    pdl_trigger();
    if (!RING && cgroup == CGROUPS)
        return;
    if (RING && cgroup == CGROUPS) { /* the producer: first weights before the wait, activations after it */
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
                mbar_expect_tx(full + s, bytes + a.bucket * XFRAG_KBLK * 2);
            __syncwarp();
            for (uint32_t i = lane; i < WARPS * R::PA; i += 32) {
                uint32_t w = i / R::PA, q = i % R::PA, tile = a.tile_lo + group * WARPS + w;
                if (tile >= a.tile_hi)
                    continue;
                const gemm_part &p = part_of(a, tile);
                bool second = TA != TB && p.second;
                uint32_t frag = second ? R::UB : R::UA, per = second ? R::PB : R::PA;
                uint8_t *to = ring + s * STAGE + w * R::REC + q * frag;
                const uint8_t *from =
                    a.w + p.off + ((uint64_t)(tile - p.tile0) * n_kblk * per + t16_frag_at(n_kblk, per, r, q)) * frag;
                cp_async_bulk(to, from, frag, full + s, first);
            }
        };
        auto activations = [&](uint32_t r, uint32_t s) {
            uint8_t *to = ring + s * STAGE + R::REC * WARPS;
            const __half *from = a.x + (uint64_t)r * XFRAG_STRIDE + a.row0 * XFRAG_KBLK;
            if (!lane)
                cp_async_bulk(to, from, a.bucket * XFRAG_KBLK * 2, full + s, keep);
        };
        for (int pass = 0; pass < 2; pass++) {
            uint32_t s = 0, phase = 1, k = 0;
            for (uint32_t it = blockIdx.x; it < items; it += gridDim.x) {
                uint32_t r0 = a.split_k == 1 ? 0 : t16_slice(n_kblk, it % K_SLICES),
                         r1 = a.split_k == 1 ? n_kblk : t16_slice(n_kblk, it % K_SLICES + 1);
                for (uint32_t r = r0; r < r1; r++, k++) {
                    if (!pass && k == a.stages)
                        break;
                    if (pass && k >= fill) {
                        mbar_wait(empty + s, phase);
                        weights(it / a.split_k, r, s);
                    } else if (!pass)
                        weights(it / a.split_k, r, s), fill++;
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
                fence_copies();
            }
        }
        return;
    }
    uint32_t s = 0, phase = 0;
    pdl_wait();
    for (uint32_t it = blockIdx.x; it < items; it += gridDim.x) {
        uint32_t group = it / a.split_k, tile0 = a.tile_lo + group * WARPS, tile = tile0 + warp;
        uint32_t c0 = a.split_k == 1 ? 0 : it % K_SLICES, c1 = a.split_k == 1 ? K_SLICES : c0 + 1;
        bool on = tile < a.tile_hi;
        const gemm_part &p = part_of(a, on ? tile : a.tile_lo);
        bool second = TA != TB && p.second;
        uint32_t row = warp * 16 + (lane >> 2), col = cgroup * NT * 8 + 2 * (lane & 3);
        float acc[NT][4];
        for (uint32_t c = c0; c < c1; c++) {
            zero(acc);
            for (uint32_t r = t16_slice(n_kblk, c); r < t16_slice(n_kblk, c + 1); r++) {
                uint32_t first = cgroup * NT * 8 + (lane >> 2); /* column */
                const uint8_t *w = RING ? ring + s * STAGE + warp * R::REC : a.w + p.off;
                const __half *x = RING ? (const __half *)(ring + s * STAGE + R::REC * WARPS) + first * XFRAG_KBLK
                                       : a.x + (uint64_t)r * XFRAG_STRIDE + (a.row0 + first) * XFRAG_KBLK;
                if (RING)
                    mbar_wait(full + s, phase);
                auto at = [&](uint32_t q, uint32_t frag, uint32_t per) {
                    return RING ? w + q * frag
                                : w + ((uint64_t)(tile - p.tile0) * n_kblk * per + t16_frag_at(n_kblk, per, r, q)) *
                                          frag;
                };
                xfrag v = {x, x + XFRAG_SUM, 8 * XFRAG_KBLK, 8 * XFRAG_KBLK};
                if (on && second)
                    for (uint32_t q = 0; q < R::PB; q++)
                        t16_mul_add<TB, NT>(at(q, R::UB, R::PB), q, v, lane, acc);
                else if (on)
                    for (uint32_t q = 0; q < R::PA; q++)
                        t16_mul_add<TA, NT>(at(q, R::UA, R::PA), q, v, lane, acc);
                if (RING) {
                    mbar_release(empty + s, lane);
                    if (++s == a.stages)
                        s = 0, phase ^= 1;
                }
            }
            if (a.split_k > 1)
                break;
            if (!c)
                consumers_sync<THREADS>(); /* the previous item has been read */
#pragma unroll
            for (int n = 0; n < NT; n++)
                for (int i = 0; i < 4; i++) {
                    float *o = staged + (n * 8 + col + (i & 1)) * STAGED_LD + row + (i >> 1) * 8;
                    *o = __fadd_rn(c ? *o : 0.f, acc[n][i]);
                }
        }
        auto tile_of = [&](uint32_t t) { return tile0 + t; };
        auto in_staged = [&](uint32_t t, uint32_t r, uint32_t c) { return staged[c * STAGED_LD + t * 16 + r]; };
        if (a.split_k == 1) {
            consumers_sync<THREADS>();
            epilogue_skinny<4>(a, tile_of, in_staged, tid, THREADS, 0, a.bucket);
            continue;
        }
        if (split_k_last<NT, THREADS>(a, group, c0, group, row, col, 0, a.bucket, acc, staged, last, tid))
            epilogue_skinny<4>(a, tile_of, in_staged, tid, THREADS, 0, a.bucket);
        consumers_sync<THREADS>();
    }
}

/* --- launching ------------------------------------------------------------------------------------------------------
 */

/* The blocks that K is split over, for a matrix of so many groups of tiles, each with col_blocks blocks of columns. */
static uint32_t skinny_split(const struct device *d, const gemm_args &a, uint32_t groups, uint32_t col_blocks)
{
    bool split = groups * col_blocks < (uint32_t)d->sms && groups * col_blocks <= SEMAPHORES &&
                 (uint64_t)groups * K_SLICES * a.bucket * 128 <= SPLIT_K_FLOATS && a.n_kblk >= K_SLICES;
    return split ? K_SLICES : 1;
}

/* STAGED false: operands are read straight from memory. Before Hopper true does so too. */
template <int TA, int TB, int NT, int CGROUPS, bool STAGED> static void run_skinny(struct device *d, gemm_args &a)
{
    static uint32_t done;
    constexpr uint32_t cols = CGROUPS * NT * 8, stage_bytes = skinny_stage_bytes<TA, TB, cols>(),
                       fixed = skinny_fixed<cols>();
    bool ring = STAGED && d->cc >= 90;
    uint32_t groups = (a.tile_hi - a.tile_lo + WARPS - 1) / WARPS, blocks = CGROUPS == 1 ? 2 : 1;
    if (ring && smem_for(d, blocks) < fixed + 2 * stage_bytes)
        blocks = 1;
    a.stages = ring ? min_u((smem_for(d, blocks) - fixed) / stage_bytes, 16) : 0;
    a.split_k = skinny_split(d, a, groups, 1);
    smem_once(d, gemm_skinny<TA, TB, NT, CGROUPS, STAGED>, &done);
    cuda_launch(d, gemm_skinny<TA, TB, NT, CGROUPS, STAGED>, dim3(min_u(groups * a.split_k, d->sms * blocks)),
                CGROUPS * CONSUMERS + 32, fixed + a.stages * stage_bytes, LAUNCH_PDL, a);
}

#endif
