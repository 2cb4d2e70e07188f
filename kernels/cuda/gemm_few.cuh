/*
 * gemm_few.cuh - the matrix product for one, two or four rows of activations, and its launch. Included by
 * gemm_body.cuh.
 *
 * A block takes tiles of 16 rows of weights; its eight consumer warps take a chunk of K each, a ninth streams the
 * weights into a ring of stages, one contiguous bulk copy of eight units a stage. It does not wait for the kernel
 * before: only activations do. Those a warp turns into integers (t16_int.cuh) for its own chunk alone. The factor of an
 * RMS norm is the same for the whole row, so that nobody waits for it: it is multiplied with the finished sums. Other
 * norms are a kernel of their own, as for `wide`.
 */
#ifndef HEARTH_CUDA_GEMM_FEW_CUH
#define HEARTH_CUDA_GEMM_FEW_CUH

#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/t16_int.cuh"

/* Offsets in a block's shared memory; sums: partial sums, two buffers of FLUSH tiles; squares: the norm's, a warp each.
 */
template <int M> struct few_smem {
    enum { ZERO = 256, SQUARES = ZERO + 64, SUMS = SQUARES + M * WARPS * 4, X = SUMS + 2 * WARPS * FLUSH * M * 16 * 4 };
    __host__ __device__ static uint32_t fixed(uint32_t n_rec)
    {
        return (X + M * n_rec * IX_REC + 127) & ~127u;
    }
};

template <int TA, int TB> struct few_ring {
    static constexpr uint32_t UA = t16_unit(TA), UB = t16_unit(TB), PA = t16_per(TA), PB = t16_per(TB);
    static constexpr uint32_t STAGE = (UA > UB ? UA : UB) * CHUNKS;
};

#if __CUDA_ARCH__ >= 900

/* The producer's lane: the block's tiles, unit by unit as t16_unit_at() lays them out. */
template <int TA, int TB>
__device__ static inline void few_stream(const gemm_args &a, uint32_t n, uint64_t *full, uint64_t *empty, uint8_t *ring)
{
    using R = few_ring<TA, TB>;
    uint64_t policy = evict_first();
    uint32_t n_rec = a.n_rec, base = n_rec / CHUNKS, rem = n_rec % CHUNKS, s = 0, phase = 1, last = 0, last_phase = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t tile = tile_at(a, i);
        const gemm_part &p = part_of(a, tile);
        bool second = TA != TB && p.second;
        uint32_t unit = second ? R::UB : R::UA, per = second ? R::PB : R::PA, left = n_rec * per;
        const uint8_t *src = a.w + p.off + (uint64_t)(tile - p.tile0) * n_rec * unit * per;
        for (uint32_t step = 0; left; step++) {
            uint32_t u = step < base * per ? CHUNKS : rem;
            bar_wait(empty + s, phase);
            if (i || step) /* one stage on its way at a time: the row's loads would queue behind more */
                bar_wait(full + last, last_phase);
            bar_expect(full + s, u * unit);
            bulk(ring + s * R::STAGE, src, u * unit, full + s, policy);
            src += u * unit, left -= u;
            last = s, last_phase = phase ^ 1;
            if (++s == a.stages)
                s = 0, phase ^= 1;
        }
    }
}

/* A warp's records of a prepared row. */
__device__ static inline void few_take(const __half *src, uint32_t r0, uint32_t r1, uint8_t *dst, uint32_t lane)
{
    enum { AHEAD = 4 };
    uint4 h[AHEAD];
    for (uint32_t r = r0; r < r1; r += AHEAD) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (r + i < r1)
                h[i] = __ldcg((const uint4 *)(src + (uint64_t)(r + i) * PREP_STEP + eight_at(lane)));
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (r + i < r1) { /* fours in the order 0, 2, 1, 3 */
                float2 p = __half22float2(*(const __half2 *)&h[i].x), q = __half22float2(*(const __half2 *)&h[i].y);
                float2 s = __half22float2(*(const __half2 *)&h[i].z), t = __half22float2(*(const __half2 *)&h[i].w);
                float v[8] = {p.x, q.x, p.y, q.y, s.x, t.x, s.y, t.y};
                int_record(dst + (r + i) * IX_REC, lane, v);
            }
    }
}

/* Eight elements a lane of two records of a row of n, a multiple of 8. */
struct two_records {
    float4 v[2][2];
    __device__ void take(const float *from, uint32_t n, uint32_t r, uint32_t r1, uint32_t lane)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t k = (r + i) * 256 + lane * 8;
            v[i][0] = v[i][1] = make_float4(0, 0, 0, 0);
            if (r + i < r1 && k < n)
                v[i][0] = __ldcg((const float4 *)(from + k)), v[i][1] = __ldcg((const float4 *)(from + k + 4));
        }
    }
};

/*
 * A warp's records of norm(x) of a row of n, without the norm's factor, for which the warp's sum of squares goes to
 * squares[warp]. w: the first of the norm's weights.
 */
__device__ static inline void few_norm(const float *x, uint32_t n, const float *weights, two_records w, uint32_t r0,
                                       uint32_t r1, uint8_t *dst, float *squares, uint32_t warp, uint32_t lane)
{
    float s = 0;
    for (uint32_t r = r0; r < r1; r += 2) {
        two_records x2;
        x2.take(x, n, r, r1, lane);
        if (r > r0)
            w.take(weights, n, r, r1, lane);
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (r + i < r1) {
                float4 p = x2.v[i][0], q = x2.v[i][1], f = w.v[i][0], g = w.v[i][1];
                float e[8] = {p.x, p.y, p.z, p.w, q.x, q.y, q.z, q.w}, h[8] = {f.x, f.y, f.z, f.w, g.x, g.y, g.z, g.w};
#pragma unroll
                for (int j = 0; j < 8; j++)
                    s = __fmaf_rn(e[j], e[j], s), e[j] = __fmul_rn(e[j], h[j]);
                int_record(dst + (r + i) * IX_REC, lane, e);
            }
    }
#pragma unroll
    for (int i = 16; i; i /= 2)
        s = __fadd_rn(s, __shfl_xor_sync(~0u, s, i));
    if (!lane)
        squares[warp] = s;
}
#endif

/* M rows from row0 on; tiles as in gemm_args. */
template <int TA, int TB, int M>
__global__ void __launch_bounds__(BLOCK, 2) gemm_few(const __grid_constant__ gemm_args a)
{
#if __CUDA_ARCH__ >= 900
    using R = few_ring<TA, TB>;
    using L = few_smem<M>;
    extern __shared__ __align__(128) uint8_t sm[];
    uint64_t *full = (uint64_t *)sm, *empty = full + 16;
    float *squares = (float *)(sm + L::SQUARES), *sums = (float *)(sm + L::SUMS);
    uint8_t *xs = sm + L::X, *ring = sm + L::fixed(a.n_rec);
    uint32_t tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, n_rec = a.n_rec, base = n_rec / CHUNKS,
             rem = n_rec % CHUNKS, tiles = a.tile_hi - a.tile_lo, n;
    pdl_go();
    if (a.pair)
        n = 2 * ((tiles / 2 - blockIdx.x + gridDim.x - 1) / gridDim.x);
    else
        n = (tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
    if (!tid) {
        for (uint32_t s = 0; s < a.stages; s++)
            bar_init(full + s, 1), bar_init(empty + s, WARPS * WARP_ARRIVALS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (tid < 16)
        ((uint32_t *)(sm + L::ZERO))[tid] = 0;
    __syncthreads();
    if (warp == WARPS) {
        if (!lane)
            few_stream<TA, TB>(a, n, full, empty, ring);
        pdl_wait();
        return;
    }
    uint32_t r0 = t16_chunk(n_rec, warp), r1 = t16_chunk(n_rec, warp + 1), row_step = n_rec * IX_REC;
    uint32_t flushed = 0; /* tiles finished */
    auto group_tile = [&](uint32_t i) { return tile_at(a, flushed + i); };
    place at = place_of<M>(a, tid, min(n, (uint32_t)FLUSH), group_tile);
    two_records w;
    if (a.xf) /* constants: on their way before the wait */
        w.take(a.norm.w, a.k, r0, r1, lane);
    pdl_wait();
#pragma unroll 1
    for (uint32_t m = 0; m < M; m++) {
        uint32_t row = a.row0 + m;
        if (a.xf)
            few_norm(a.xf + (uint64_t)(a.gather ? a.gather[row] : row) * a.ldxf, a.k, a.norm.w, w, r0, r1,
                     xs + m * row_step, squares + m * WARPS, warp, lane);
        else
            few_take(a.x + row * PREP_REC, r0, r1, xs + m * row_step, lane);
    }
    __syncwarp();
    item next = fetch_item(a, at); /* after the row: its loads must not stand behind these */
    struct type_a {
        enum { value = TA };
    };
    struct type_b {
        enum { value = TB };
    };
    uint32_t g = lane >> 2, t = lane & 3, s = 0, phase = 0;
    bool mine = g >> 1 == t;
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++) {
        float acc[M][2];
#pragma unroll
        for (int m = 0; m < M; m++)
            acc[m][0] = acc[m][1] = 0;
        auto run = [&](auto type) {
            constexpr int T = decltype(type)::value;
            constexpr uint32_t per = t16_per(T), unit = t16_unit(T);
            const uint8_t *x = xs + r0 * IX_REC;
            ix_frag v = {x, mine ? x + (g & 1) * IX_HI + 64 * t : sm + L::ZERO, row_step, mine ? row_step : 0};
#pragma unroll 1
            for (uint32_t c = 0; c < base + (rem != 0); c++) {
#pragma unroll 1
                for (uint32_t q = 0; q < per; q++) {
                    bar_wait(full + s, phase);
                    if (c < r1 - r0)
                        int_mul<T, M>(ring + s * R::STAGE + warp * unit, q, v, lane, acc);
                    bar_release(empty + s, lane);
                    if (++s == a.stages)
                        s = 0, phase ^= 1;
                }
                v.at += IX_REC, v.own += mine ? IX_REC : 0;
            }
        };
        if (TA != TB && part_of(a, tile_at(a, i)).second)
            run(type_b());
        else
            run(type_a());
        float *buf = sums + (flushed / FLUSH & 1) * WARPS * FLUSH * M * 16;
        uint32_t fl = i - flushed;
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) { /* the four quarters of the sub-blocks */
                float q = __fadd_rn(acc[m][h], __shfl_xor_sync(~0u, acc[m][h], 1));
                q = __fadd_rn(q, __shfl_xor_sync(~0u, q, 2));
                if (!t)
                    buf[((warp * FLUSH + fl) * M + m) * 16 + g + 8 * h] = q;
            }
        if (fl + 1 < FLUSH && i + 1 < n)
            continue;
        consumers_sync();
        auto factor = [&](uint32_t m) {
            float q = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                q = __fadd_rn(q, squares[m * WARPS + w]);
            return rsqrtf(__fadd_rn(q / a.k, a.norm.eps));
        };
        bool late = a.xf != NULL;
        float f = M == 1 && late ? factor(0) : 1.f;
        auto val = [&](uint32_t i, uint32_t r, uint32_t m) {
            float q = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                q = __fadd_rn(q, buf[((w * FLUSH + i) * M + m) * 16 + r]);
            return __fmul_rn(q, M == 1 ? f : late ? factor(m) : 1.f);
        };
        if (a.ep == EP_GLU)
            finish_glu<M>(a, fl + 1, group_tile, val, tid, CONSUMERS);
        else
            for (uint32_t j = tid; at.ok; j += CONSUMERS) {
                finish_item(a, at, val, next);
                if (M == 1)
                    break;
                at = place_of<M>(a, j + CONSUMERS, fl + 1, group_tile);
                next = fetch_item(a, at);
            }
        flushed = i + 1;
        if (flushed < n && a.ep != EP_GLU) {
            at = place_of<M>(a, tid, min(n - flushed, (uint32_t)FLUSH), group_tile);
            next = fetch_item(a, at);
        }
    }
#endif
}

/* Whether M rows of activations fit beside two stages. */
template <int TA, int TB, int M> static bool few_fits(const struct device *d, uint32_t n_rec)
{
    return few_smem<M>::fixed(n_rec) + 2 * few_ring<TA, TB>::STAGE <= smem_for(d, 1);
}

template <int TA, int TB, int M> static void run_few(struct device *d, gemm_args a, uint32_t row)
{
    static uint32_t done;
    uint32_t fixed = few_smem<M>::fixed(a.n_rec), stage = few_ring<TA, TB>::STAGE,
             blocks = smem_for(d, 2) < fixed + 2 * stage ? 1 : 2, units = (a.tile_hi - a.tile_lo) / (a.pair ? 2 : 1);
    a.row0 += row, a.cap = M;
    a.stages = min_u((smem_for(d, blocks) - fixed) / stage, 16);
    smem_once(d, gemm_few<TA, TB, M>, &done);
    cuda_launch(d, gemm_few<TA, TB, M>, dim3(min_u(units, d->sms * blocks)), BLOCK, fixed + a.stages * stage,
                LAUNCH_PDL, a);
}

#endif
