/*
 * gemm_few.cuh - the matrix product for one, two or four rows of activations, and its launch. Included by
 * gemm_body.cuh.
 *
 * A block takes tiles of 16 rows of weights. Its warps never wait for one another within a tile:
 *   eight multiply, a chunk of K each, and leave their sums in shared memory, FLUSH tiles at a time in two buffers;
 *   one streams the weights into a ring of stages, one contiguous bulk copy of eight units a stage;
 *   one finishes: it adds the eight warps' sums and does what follows the product.
 * Matrices of few tiles and a long K (`down` of small models) have a second set of eight, and every other record is
 * its. Only activations wait for the kernel before. Weights do not, nor does what the end needs besides sums and
 * residuals: a step's kernels are a chain of small ones, and every instruction between the wait and the last store is
 * on it. Activations a warp turns into integers (t16_int.cuh) for its own chunk alone. The factor of an RMS norm is the
 * same for the whole row, so that it is multiplied with the finished sums. Other norms are a kernel of their own, as
 * for `wide`.
 */
#ifndef HEARTH_CUDA_GEMM_FEW_CUH
#define HEARTH_CUDA_GEMM_FEW_CUH

#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/t16_int.cuh"

enum {
    FLUSH = 2, /* tiles finished at once: a rotation's two may be a pair */
    STAGES_MAX = 16,
};

/*
 * A block by its rows and its sets of eight multiplying warps, and offsets in its shared memory. sums: two buffers of
 * [warp][TILES][M][16 rows][4 quarters]; squares: the norm's, a warp each. Two sets have one tile a block.
 */
template <int M, int SETS> struct few_shape {
    enum {
        MULTIPLIERS = SETS * CONSUMERS,
        FINISHERS = 32,
        THREADS = MULTIPLIERS + 32 + FINISHERS,
        MET = MULTIPLIERS + FINISHERS, /* at a barrier */
        TILES = SETS == 1 ? FLUSH : 1,
        BUF = SETS * WARPS * TILES * M * 64,
        ZERO = 256,
        SQUARES = ZERO + 64,
        SUMS = SQUARES + M * WARPS * 4,
        X = SUMS + 2 * BUF * 4,
    };
    __host__ __device__ static uint32_t fixed(uint32_t n_rec)
    {
        return (X + M * n_rec * IX_REC + 127) & ~127u;
    }
};

template <int TA, int TB> struct few_ring {
    static constexpr uint32_t UA = t16_unit(TA), UB = t16_unit(TB), PA = t16_per(TA), PB = t16_per(TB);
    /* Bytes of a stage. */
    static uint32_t stage(uint32_t n_rec)
    {
        return (UA > UB ? UA : UB) * (n_rec < CHUNKS ? n_rec : CHUNKS);
    }
};

#if __CUDA_ARCH__ >= 900

/* The producer's lane: the block's tiles, unit by unit as t16_unit_at() lays them out. */
template <int TA, int TB>
__device__ static inline void few_stream(const gemm_args &a, uint32_t n, uint64_t *full, uint64_t *empty, uint8_t *ring)
{
    using R = few_ring<TA, TB>;
    uint64_t policy = evict_first();
    uint32_t n_rec = a.n_rec, base = n_rec / CHUNKS, rem = n_rec % CHUNKS, s = 0, phase = 1, issued = 0, back = 0,
             back_phase = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t tile = tile_at(a, i);
        const gemm_part &p = part_of(a, tile);
        bool second = TA != TB && p.second;
        uint32_t unit = second ? R::UB : R::UA, per = second ? R::PB : R::PA, left = n_rec * per;
        const uint8_t *src = a.w + p.off + (uint64_t)(tile - p.tile0) * n_rec * unit * per;
        for (uint32_t step = 0; left; step++) {
            uint32_t u = step < base * per ? CHUNKS : rem;
            bar_wait(empty + s, phase);
            if (issued++ >= a.flight) { /* so many on their way at a time: the row's loads would queue behind more */
                bar_wait(full + back, back_phase);
                if (++back == a.stages)
                    back = 0, back_phase ^= 1;
            }
            bar_expect(full + s, u * unit);
            bulk(ring + s * a.stage, src, u * unit, full + s, policy);
            src += u * unit, left -= u;
            if (++s == a.stages)
                s = 0, phase ^= 1;
        }
    }
}

/* A warp's records of a prepared row: every SETS-th from r0 on. */
template <int SETS>
__device__ static inline void few_take(const __half *src, uint32_t r0, uint32_t r1, uint8_t *dst, uint32_t lane)
{
    enum { AHEAD = 4 };
    uint4 h[AHEAD];
    for (uint32_t r = r0; r < r1; r += AHEAD * SETS) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (r + i * SETS < r1)
                h[i] = __ldcg((const uint4 *)(src + (uint64_t)(r + i * SETS) * PREP_STEP + eight_at(lane)));
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (r + i * SETS < r1) { /* fours in the order 0, 2, 1, 3 */
                float2 p = __half22float2(*(const __half2 *)&h[i].x), q = __half22float2(*(const __half2 *)&h[i].y);
                float2 s = __half22float2(*(const __half2 *)&h[i].z), t = __half22float2(*(const __half2 *)&h[i].w);
                float v[8] = {p.x, q.x, p.y, q.y, s.x, t.x, s.y, t.y};
                int_record(dst + (r + i * SETS) * IX_REC, lane, v);
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

/* Barriers of a block: sums are there, in buffer 0 and 1; they were read; the norm's squares are there. */
enum { BAR_FULL = 1, BAR_READ = 3, BAR_SQUARES = 5 };
template <int N> __device__ static inline void meet(int id)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(N) : "memory");
}
template <int N> __device__ static inline void tell(int id)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(N) : "memory");
}

#if __CUDA_ARCH__ >= 900

/* The warps that multiply. */
template <int TA, int TB, int M, int SETS>
__device__ static inline void few_multiply(const gemm_args &a, uint32_t n, uint8_t *sm, uint32_t warp, uint32_t lane)
{
    using S = few_shape<M, SETS>;
    uint64_t *full = (uint64_t *)sm, *empty = full + STAGES_MAX;
    uint8_t *xs = sm + S::X, *ring = sm + S::fixed(a.n_rec);
    uint32_t set = SETS == 1 ? 0 : warp / WARPS, chunk = warp - set * WARPS, n_rec = a.n_rec,
             r0 = t16_chunk(n_rec, chunk), r1 = t16_chunk(n_rec, chunk + 1), end = r0 + (n_rec + CHUNKS - 1) / CHUNKS,
             row_step = n_rec * IX_REC, stages = a.stages;
    r0 += set;
    two_records w;
    if (a.xf) /* constants: on their way before the wait */
        w.take(a.norm.w, a.k, r0, r1, lane);
    pdl_wait();
#pragma unroll 1
    for (uint32_t m = 0; m < M; m++) {
        uint32_t row = a.row0 + m;
        if (a.xf)
            few_norm(a.xf + (uint64_t)(a.gather ? a.gather[row] : row) * a.ldxf, a.k, a.norm.w, w, r0, r1,
                     xs + m * row_step, (float *)(sm + S::SQUARES) + m * WARPS, warp, lane);
        else
            few_take<SETS>(a.x + row * PREP_REC, r0, r1, xs + m * row_step, lane);
    }
    if (a.xf)
        tell<S::MET>(BAR_SQUARES);
    __syncwarp();
    struct type_a {
        enum { value = TA };
    };
    struct type_b {
        enum { value = TB };
    };
    const uint8_t *x = xs + r0 * IX_REC;
    bool mine = lane >> 3 == (lane & 3); /* g >> 1 == t */
    const uint8_t *own = mine ? x + (lane >> 2 & 1) * IX_HI + 64 * (lane & 3) : sm + S::ZERO;
    uint32_t own_step = mine ? row_step : 0, own_rec = mine ? SETS * IX_REC : 0, s = 0, phase = 0;
    auto pass = [&](uint32_t n) { /* stages: a set's own are always the same, as their number is even */
                                  if ((s += n) >= stages)
                                      s -= stages, phase ^= 1;
    };
    float *to = (float *)(sm + S::SUMS) + warp * S::TILES * M * 64 + lane;
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++) {
        float acc[M][2];
#pragma unroll
        for (int m = 0; m < M; m++)
            acc[m][0] = acc[m][1] = 0;
        auto run = [&](auto type) {
            constexpr int T = decltype(type)::value;
            constexpr uint32_t per = t16_per(T), unit = t16_unit(T);
            ix_frag v = {x, own, row_step, own_step};
            pass(set * per);
#pragma unroll 1
            for (uint32_t c = r0; c < end; c += SETS) {
#pragma unroll 1
                for (uint32_t q = 0; q < per; q++) {
                    bar_wait(full + s, phase);
                    if (c < r1)
                        int_mul<T, M>(ring + s * a.stage + chunk * unit, q, v, lane, acc);
                    bar_release(empty + s, lane);
                    pass(1);
                }
                if (SETS > 1)
                    pass(per);
                v.at += SETS * IX_REC, v.own += own_rec;
            }
        };
        if (TA != TB && part_of(a, tile_at(a, i)).second)
            run(type_b());
        else
            run(type_a());
        uint32_t buf = i / FLUSH & 1, at = buf * S::BUF + i % FLUSH * M * 64;
        if (i % FLUSH == 0 && i >= 2 * FLUSH)
            meet<S::MET>(BAR_READ + buf);
#pragma unroll
        for (int m = 0; m < M; m++)
            to[at + m * 64] = acc[m][0], to[at + m * 64 + 32] = acc[m][1]; /* rows g and g + 8, quarter t */
        if (i % FLUSH == FLUSH - 1 || i + 1 == n)
            tell<S::MET>(BAR_FULL + buf);
    }
}

/* Those that finish: what becomes of the sums of FLUSH tiles at a time. */
template <int M, int SETS>
__device__ static inline void few_finish(const gemm_args &a, uint32_t n, const uint8_t *sm, uint32_t tid)
{
    using S = few_shape<M, SETS>;
    uint32_t first = 0, tiles = min(n, (uint32_t)FLUSH); /* tiles at hand */
    auto tile = [&](uint32_t i) { return tile_at(a, first + i); };
    bool glu = a.ep == EP_GLU;
    place at = {};
    item m = {};
    auto ask = [&](uint32_t j) {
        at = place_of<M>(a, j, tiles, tile);
        m = fetch_item(a, at);
        turn_item(a, at, m);
    };
    if (!glu) /* constants of the step */
        ask(tid);
    pdl_wait();
    fetch_old(a, at, m);
    float f[M];
#pragma unroll
    for (int i = 0; i < M; i++)
        f[i] = 1;
    if (a.xf) {
        meet<S::MET>(BAR_SQUARES);
#pragma unroll
        for (int i = 0; i < M; i++) {
            const float *squares = (const float *)(sm + S::SQUARES) + i * WARPS;
            float q = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                q = __fadd_rn(q, squares[w]);
            f[i] = rsqrtf(__fadd_rn(q / a.k, a.norm.eps));
        }
    }
    for (; first < n; first += FLUSH) {
        uint32_t buf = first / FLUSH & 1;
        const float *sums = (const float *)(sm + S::SUMS) + buf * S::BUF;
        if (first) {
            tiles = min(n - first, (uint32_t)FLUSH);
            if (!glu)
                ask(tid), fetch_old(a, at, m);
        }
        auto val = [&](uint32_t i, uint32_t r, uint32_t row) {
            float q = 0;
#pragma unroll
            for (int w = 0; w < SETS * WARPS; w++) {
                float4 v = *(const float4 *)(sums + ((w * S::TILES + i) * M + row) * 64 + 4 * r);
                q = __fadd_rn(q, __fadd_rn(__fadd_rn(v.x, v.y), __fadd_rn(v.z, v.w)));
            }
            float by = f[0];
#pragma unroll
            for (int k = 1; k < M; k++)
                by = row == k ? f[k] : by;
            return __fmul_rn(q, by);
        };
        meet<S::MET>(BAR_FULL + buf);
        if (glu && a.glu_rows == 8)
            finish_pairs<M>(a, tiles, tile, val, tid);
        else if (glu)
            finish_glu<M>(a, tiles, tile, val, tid, S::FINISHERS);
        else
            for (uint32_t j = tid; at.ok; j += S::FINISHERS) {
                finish_item(a, at, val, m);
                if (M == 1)
                    break;
                ask(j + S::FINISHERS), fetch_old(a, at, m);
            }
        if (first + 2 * FLUSH < n)
            tell<S::MET>(BAR_READ + buf);
    }
}
#endif

/* M rows from row0 on; tiles as in gemm_args. For one row registers are kept to what lets the next kernels' blocks in
 * beside these: three of a block of one set, or as if two sets had 896 threads. */
template <int TA, int TB, int M, int SETS>
__global__ void __launch_bounds__(SETS == 2 && M == 1 ? 896 : few_shape<M, SETS>::THREADS, SETS == 2 ? 1
                                                                                           : M == 1  ? 3
                                                                                                     : 2)
    gemm_few(const __grid_constant__ gemm_args a)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) uint8_t sm[];
    uint64_t *full = (uint64_t *)sm, *empty = full + STAGES_MAX;
    uint32_t tid, tiles = a.tile_hi - a.tile_lo, n;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(tid)); /* volatile: else it is read again in every round of a loop */
    uint32_t warp = tid >> 5, lane = tid & 31;
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
        ((uint32_t *)(sm + few_shape<M, SETS>::ZERO))[tid] = 0;
    __syncthreads();
    if (warp < SETS * WARPS)
        few_multiply<TA, TB, M, SETS>(a, n, sm, warp, lane);
    else if (warp > SETS * WARPS)
        few_finish<M, SETS>(a, n, sm, lane);
    else {
        if (!lane)
            few_stream<TA, TB>(a, n, full, empty, sm + few_shape<M, SETS>::fixed(a.n_rec));
        __syncwarp(); /* or the other lanes' wait holds up lane 0 with them */
        pdl_wait();
    }
#endif
}

/* --- launching ------------------------------------------------------------------------------------------------------
 */

/* Shared memory for a block: of two sets three quarters of a processor's, so that the next kernel's finds room. */
template <int SETS> static uint32_t few_room(const struct device *d, int blocks)
{
    return SETS == 1 ? smem_for(d, blocks) : smem_for(d, 1) - smem_for(d, 4);
}

/* Whether M rows of activations fit beside two stages a set. */
template <int TA, int TB, int M, int SETS> static bool few_fits(const struct device *d, uint32_t n_rec)
{
    using R = few_ring<TA, TB>;
    uint32_t least = SETS == 1 ? 2 : SETS * (R::PA > R::PB ? R::PA : R::PB);
    return few_shape<M, SETS>::fixed(n_rec) + least * R::stage(n_rec) <= few_room<SETS>(d, 1);
}

template <int TA, int TB, int M, int SETS> static void launch_few(struct device *d, gemm_args a)
{
    static uint32_t done;
    using R = few_ring<TA, TB>;
    constexpr uint32_t per = R::PA > R::PB ? R::PA : R::PB, even = SETS == 1 ? 1 : SETS * per;
    uint32_t fixed = few_shape<M, SETS>::fixed(a.n_rec), units = (a.tile_hi - a.tile_lo) / (a.pair ? 2 : 1),
             room = few_room<SETS>(d, 2), blocks = 2;
    a.stage = R::stage(a.n_rec);
    if (SETS == 1 && room < fixed + 2 * a.stage)
        room = few_room<SETS>(d, 1), blocks = 1;
    uint32_t grid = min_u(units, d->sms * blocks), tiles = (units + grid - 1) / grid * (a.pair ? 2 : 1),
             need = (tiles * ((a.n_rec + CHUNKS - 1) / CHUNKS) * per + even - 1) / even * even;
    bool many = grid > (uint32_t)d->sms;
    a.stages = min_u((room - fixed) / a.stage / even * even, STAGES_MAX);
    if (many || SETS > 1) /* no more than its tiles need: beside these blocks the next kernels' find room and start */
        a.stages = min_u(a.stages, need);
    a.flight = SETS;
    a.cap = M;
    smem_once(d, gemm_few<TA, TB, M, SETS>, &done);
    cuda_launch(d, gemm_few<TA, TB, M, SETS>, dim3(grid), few_shape<M, SETS>::THREADS, fixed + a.stages * a.stage,
                LAUNCH_PDL, a);
}

/* All rows, by fours, twos and ones. */
template <int TA, int TB, int SETS> static void few_rows(struct device *d, gemm_args a)
{
    uint32_t rows = a.cap, m;
    for (; rows; rows -= m, a.row0 += m)
        if (rows >= 4 && few_fits<TA, TB, 4, SETS>(d, a.n_rec))
            m = 4, launch_few<TA, TB, 4, SETS>(d, a);
        else if (rows >= 2 && few_fits<TA, TB, 2, SETS>(d, a.n_rec))
            m = 2, launch_few<TA, TB, 2, SETS>(d, a);
        else
            m = 1, launch_few<TA, TB, 1, SETS>(d, a);
}

/* One set or two: a matter of the matrix alone, as a sum's order follows. */
template <int TA, int TB> static void run_few(struct device *d, const gemm_args &a)
{
    if constexpr (TA == TB)
        if (!a.xf && !a.pair && a.tile_hi - a.tile_lo <= (uint32_t)d->sms && a.n_rec > 2 * CHUNKS &&
            few_fits<TA, TB, 1, 2>(d, a.n_rec)) {
            few_rows<TA, TB, 2>(d, a);
            return;
        }
    few_rows<TA, TB, 1>(d, a);
}

#endif
