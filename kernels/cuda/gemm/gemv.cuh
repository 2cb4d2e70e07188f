/*
 * gemv.cuh - the matrix product for one, two or four rows of activations, and its launch. Included by
 * skinny.cuh.
 *
 * A block takes tiles of 16 rows of weights. Its warps never wait for one another within a tile:
 *   eight multiply, a chunk of K each, and leave their sums in shared memory, FLUSH tiles at a time in two buffers;
 *   one streams the weights into a ring of stages, one contiguous bulk copy of eight units a stage;
 *   one finishes: it adds the eight warps' sums and does what follows the product.
 * Matrices of few tiles and a long K (`down` of small models) have a second set of eight, and every other record is
 * its; so have q|k|v of few tiles that are finished in pairs (NEOX), and a tile of a pair is its. Only activations wait
 * for the kernel before. Weights do not, nor does what the end needs besides sums and residuals: a step's kernels are a
 * chain of small ones, and every instruction between the wait and the last store is on it. Activations a warp turns
 * into integers (tile16_int.cuh) for its own chunk alone. The factor of an RMS norm is the same for the whole row, so
 * that it is multiplied with the finished sums. Other norms are a kernel of their own, as for `wide`.
 */
#ifndef HEARTH_CUDA_GEMM_FEW_CUH
#define HEARTH_CUDA_GEMM_FEW_CUH

#include "kernels/cuda/gemm/gemm.cuh"
#include "kernels/cuda/gemm/heads.cuh"
#include "kernels/cuda/gemm/tile16_int.cuh"
#include "kernels/cuda/said.cuh"

/*
 * What follows the product, as far as it is a kernel of its own. Code is fetched as it is run, so that a kernel with
 * less in it is sooner at its end; but O and gate|up are one kernel, of which a layer fetches the most part once.
 */
enum gemv_ep {
    GEMV_QKV,
    GEMV_QKV_NORMED, /* q's, k's and v's heads: heads.cuh */
    GEMV_REST,
    GEMV_PAIRS, /* O and `down` of two tiles a block, which share its activations; and a norm after them: rownorm.cuh */
    GEMV_QKV_ROUNDS, /* as GEMV_QKV and GEMV_REST where a row does not fit: rounds.cuh */
    GEMV_REST_ROUNDS,
};
__host__ __device__ constexpr bool is_qkv(int ep)
{
    return ep == GEMV_QKV || ep == GEMV_QKV_NORMED || ep == GEMV_QKV_ROUNDS;
}
__host__ __device__ constexpr bool in_rounds(int ep)
{
    return ep == GEMV_QKV_ROUNDS || ep == GEMV_REST_ROUNDS;
}

enum {
    FLUSH = 2, /* tiles finished at once: a rotation's two may be a pair */
    STAGES_MAX = 16,
};

/*
 * A block by its rows and its sets of eight multiplying warps, and offsets in its shared memory. Two sets take a tile's
 * records in turns, of a block of one tile, or, where tiles are finished in pairs, a tile each. sums: BUFS buffers of
 * [warp][TILES][M][16 rows][4 quarters]; squares: the norm's, a warp each, of which the first set's are read.
 */
template <int M, int CGROUPS, int EP> struct gemv_shape {
    enum {
        PAIRS = EP == GEMV_PAIRS,
        BY_TILE = CGROUPS == 2 && is_qkv(EP),
        TILE_EACH = BY_TILE || PAIRS,      /* a set has every other tile */
        K_SPLIT = TILE_EACH ? 1 : CGROUPS, /* sets that share a tile */
        CONSUMER_THREADS = CGROUPS * CONSUMERS,
        EPILOGUE_THREADS = 32,
        THREADS = CONSUMER_THREADS + 32 + EPILOGUE_THREADS,
        BAR_THREADS = CONSUMER_THREADS + EPILOGUE_THREADS, /* at a barrier */
        TILES = K_SPLIT == 1 ? FLUSH : 1,
        BUF = K_SPLIT * WARPS * TILES * M * 64,
        BUFS = in_rounds(EP) ? 1 : 2,
        ZERO = 256,
        SQUARES = ZERO + 64,
        PARTIALS = SQUARES + (BY_TILE + 1) * M * WARPS * 4,
        X = PARTIALS + BUFS * BUF * 4,
    };
    /* n_kblk: records of a row that are there at a time. */
    __host__ __device__ static uint32_t fixed(uint32_t n_kblk)
    {
        return (X + (BY_TILE + 1) * M * n_kblk * IX_KBLK + 127) & ~127u;
    }
    __host__ __device__ static uint32_t fixed(const gemm_args &a)
    {
        return fixed(in_rounds(EP) ? K_SLICES * a.round : a.n_kblk);
    }
};

template <int N> struct gemv_number {
    enum { value = N };
};

template <int TA, int TB> struct gemv_ring {
    static constexpr uint32_t UA = t16_frag_bytes(TA), UB = t16_frag_bytes(TB), PA = t16_frags(TA), PB = t16_frags(TB);
    /* Bytes of a stage. */
    static uint32_t stage_bytes(uint32_t n_kblk)
    {
        return (UA > UB ? UA : UB) * (n_kblk < K_SLICES ? n_kblk : K_SLICES);
    }
};

#if __CUDA_ARCH__ >= 800

/* The producer: the block's tiles, unit by unit as t16_frag_at() lays them out. Of bulk copies it is one lane; else all
 * lanes of a warp. */
template <int TA, int TB, int EP, bool BULK>
__device__ static inline void gemv_producer(const gemm_args &a, uint32_t n, uint64_t *full, uint64_t *empty,
                                            uint8_t *ring, uint32_t lane)
{
    using R = gemv_ring<TA, TB>;
    uint64_t policy = evict_first();
    uint32_t n_kblk = a.n_kblk, base = n_kblk / K_SLICES, rem = n_kblk % K_SLICES, s = 0, phase = 1, issued = 0,
             back = 0, back_phase = 0;
    bool ahead = a.ahead && a.in_flight == 1;
    auto copy = [&](const uint8_t *src, uint32_t bytes) {
        mbar_wait(empty + s, phase);
        /* So many on their way at a time, as the row's loads would queue behind more; where the ring was filled once
         * the warps have the row, and none is waited for one time. */
        if (issued >= a.in_flight && !(ahead && issued == a.stages)) {
            mbar_wait(full + back, back_phase);
            if (++back == a.stages)
                back = 0, back_phase ^= 1;
        }
        issued++;
        if (BULK) {
            mbar_expect_tx(full + s, bytes);
            cp_async_bulk(ring + s * a.stage_bytes, src, bytes, full + s, policy);
        } else {
            cp_async_warp(ring + s * a.stage_bytes, src, bytes, policy, lane);
            cp_async_arrive(full + s);
        }
        if (++s == a.stages)
            s = 0, phase ^= 1;
    };
    if constexpr (EP == GEMV_PAIRS) { /* a record of either tile in turns */
        uint32_t tile = n_kblk * R::UA * R::PA;
        const uint8_t *src = a.w + a.part[0].off + (uint64_t)tile_at(a, 0) * tile;
        for (uint32_t left = n_kblk; left;) {
            uint32_t u = min(left, (uint32_t)K_SLICES), bytes = u * R::UA;
            for (uint32_t q = 0; q < 2 * R::PA; q++)
                copy(src + (q < R::PA ? q * bytes : tile + (q - R::PA) * bytes), bytes);
            src += R::PA * bytes, left -= u;
        }
    } else if constexpr (in_rounds(EP)) { /* of either tile in turns a round's records */
        uint32_t steps = (n_kblk + K_SLICES - 1) / K_SLICES;
        for (uint32_t first = 0; first < n; first += FLUSH)
            for (uint32_t round = 0; round < steps; round += a.round)
                for (uint32_t i = first; i < min(first + FLUSH, n); i++) {
                    uint32_t tile = tile_at(a, i);
                    const gemm_part &p = part_of(a, tile);
                    bool second = TA != TB && p.second;
                    uint32_t frag = second ? R::UB : R::UA, per = second ? R::PB : R::PA;
                    const uint8_t *src =
                        a.w + p.off + ((uint64_t)(tile - p.tile0) * n_kblk + (uint64_t)round * K_SLICES) * frag * per;
                    for (uint32_t step = round; step < min(round + a.round, steps); step++)
                        for (uint32_t q = 0; q < per; q++) {
                            uint32_t u = step < base ? K_SLICES : rem;
                            copy(src, u * frag);
                            src += u * frag;
                        }
                }
    } else
        for (uint32_t i = 0; i < n; i++) {
            uint32_t tile = tile_at(a, i);
            const gemm_part &p = part_of(a, tile);
            bool second = TA != TB && p.second;
            uint32_t frag = second ? R::UB : R::UA, per = second ? R::PB : R::PA, left = n_kblk * per;
            const uint8_t *src = a.w + p.off + (uint64_t)(tile - p.tile0) * n_kblk * frag * per;
            for (uint32_t step = 0; left; step++) {
                uint32_t u = step < base * per ? K_SLICES : rem;
                copy(src, u * frag);
                src += u * frag, left -= u;
            }
        }
}

/*
 * The keys that attention's blocks read first, asked into L2 by the producer's warp when the block's own weights are on
 * their way: from there to attention's first loads memory is idle, but not for much more than these.
 */
__device__ static inline void prefetch_keys(const gemm_args &a, uint32_t lane)
{
#if __CUDA_ARCH__ >= 900
    uint32_t pos = a.step->pos0[0], n_kv = a.kv.n_kv, n = min(a.prefetch_items, (pos / ATTEND_CHUNK + 1) * n_kv);
    for (uint32_t i = lane * gridDim.x + blockIdx.x; i < n * ATTEND_FIRST_PAGES; i += 32 * gridDim.x) {
        uint32_t item = i / ATTEND_FIRST_PAGES, chunk = item / n_kv, head = item - chunk * n_kv,
                 page = chunk * (ATTEND_CHUNK / KV_PAGE) + i % ATTEND_FIRST_PAGES;
        if (page * KV_PAGE <= pos)
            asm volatile(
                "cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(kv_k(a.kv, a.prefetch[page] * KV_PAGE, head)),
                "r"((uint32_t)(KV_PAGE * a.kv.d_head * sizeof(__half)))
                : "memory");
    }
#endif
}

/* Eight halves of a prepared row of n, elements k on, in the order of the row: zeros past its end. */
__device__ static inline void gemv_floats(uint4 w, uint32_t n, uint32_t k, float (&v)[8])
{
    float2 p = __half22float2(*(const __half2 *)&w.x), q = __half22float2(*(const __half2 *)&w.y);
    float2 s = __half22float2(*(const __half2 *)&w.z), t = __half22float2(*(const __half2 *)&w.w);
    v[0] = p.x, v[1] = q.x, v[2] = p.y, v[3] = q.y, v[4] = s.x, v[5] = t.x, v[6] = s.y, v[7] = t.y; /* 0, 2, 1, 3 */
    if (k + 8 > n)
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = k + j < n ? v[j] : 0.f;
}

/*
 * A warp's records of a row become integers one by one, in a loop that is not unrolled: code is fetched as it is run,
 * and a record more costs what its instructions do. IN_FLIGHT of them are on their way.
 *
 * Of a prepared row of n: every EACH-th record from r0 to r1, src that of r0. What lies past its end is another row's,
 * of whatever the workspace served before: zeros here, as a record's factor follows its greatest element.
 */
template <int EACH>
__device__ static inline void gemv_quantize(const __half *src, uint32_t n, uint32_t r0, uint32_t r1, uint8_t *dst,
                                            uint32_t lane)
{
    enum { IN_FLIGHT = 4 };
    uint4 h[IN_FLIGHT];
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; i++)
        if (r0 + i * EACH < r1)
            h[i] = __ldcg((const uint4 *)(src + i * EACH * XFRAG_STRIDE));
#pragma unroll 1
    for (uint32_t r = r0; r < r1; r += EACH, src += EACH * XFRAG_STRIDE) {
        uint4 w = h[0];
#pragma unroll
        for (int i = 0; i + 1 < IN_FLIGHT; i++)
            h[i] = h[i + 1];
        if (r + IN_FLIGHT * EACH < r1)
            h[IN_FLIGHT - 1] = __ldcg((const uint4 *)(src + IN_FLIGHT * EACH * XFRAG_STRIDE));
        float v[8];
        gemv_floats(w, n, r * 256 + lane * 8, v);
        int_quantize(dst + r * IX_KBLK, lane, v);
    }
}

/* Eight elements of a row of n, a multiple of 8: zeros past its end. */
struct eight {
    float4 a, b;
    __device__ void take(const float *row, uint32_t n, uint32_t k)
    {
        a = b = make_float4(0, 0, 0, 0);
        if (k < n)
            a = __ldcg((const float4 *)(row + k)), b = __ldcg((const float4 *)(row + k + 4));
    }
};
enum { NORM_IN_FLIGHT = 2 };

/*
 * Of norm(x) of a row of n, without the norm's factor, for which the warp's sum of squares goes to *square. f: the
 * norm's weights of the first NORM_IN_FLIGHT records.
 */
__device__ static inline void gemv_norm_quantize(const float *x, uint32_t n, const float *weights,
                                                 eight f[NORM_IN_FLIGHT], uint32_t r0, uint32_t r1, uint8_t *dst,
                                                 float *square, uint32_t lane)
{
    eight e[NORM_IN_FLIGHT];
    float s = 0;
    uint32_t k = r0 * 256 + lane * 8;
#pragma unroll
    for (int i = 0; i < NORM_IN_FLIGHT; i++)
        if (r0 + i < r1)
            e[i].take(x, n, k + 256 * i);
#pragma unroll 1
    for (uint32_t r = r0; r < r1; r++, k += 256) {
        float v[8] = {e[0].a.x, e[0].a.y, e[0].a.z, e[0].a.w, e[0].b.x, e[0].b.y, e[0].b.z, e[0].b.w},
              w[8] = {f[0].a.x, f[0].a.y, f[0].a.z, f[0].a.w, f[0].b.x, f[0].b.y, f[0].b.z, f[0].b.w};
        e[0] = e[1], f[0] = f[1];
        if (r + NORM_IN_FLIGHT < r1)
            e[1].take(x, n, k + 256 * NORM_IN_FLIGHT), f[1].take(weights, n, k + 256 * NORM_IN_FLIGHT);
#pragma unroll
        for (int j = 0; j < 8; j++)
            s = __fmaf_rn(v[j], v[j], s), v[j] = __fmul_rn(v[j], w[j]);
        int_quantize(dst + r * IX_KBLK, lane, v);
    }
#pragma unroll
    for (int i = 16; i; i /= 2)
        s = __fadd_rn(s, __shfl_xor_sync(~0u, s, i));
    if (!lane)
        *square = s;
}
#endif

/* Barriers of a block: sums are there, in buffer 0 and 1; they were read; the norm's squares are there. */
enum { BAR_FULL = 1, BAR_READ = 3, BAR_SQUARES = 5, BAR_RECORDS = 6 /* a chunk's, of eight chunks */ };
template <int N> __device__ static inline void named_bar_sync(int id)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(N) : "memory");
}
template <int N> __device__ static inline void named_bar_arrive(int id)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(N) : "memory");
}

#if __CUDA_ARCH__ >= 800

/* The warps that multiply. */
template <int TA, int TB, int M, int CGROUPS, int EP>
__device__ static inline void gemv_consumer(const gemm_args &a, uint32_t n, uint8_t *sm, uint32_t warp, uint32_t lane)
{
    using S = gemv_shape<M, CGROUPS, EP>;
    uint64_t *full = (uint64_t *)sm, *empty = full + STAGES_MAX;
    uint8_t *xs = sm + S::X, *ring = sm + S::fixed(a);
    uint32_t cgroup = CGROUPS == 1 ? 0 : warp / WARPS, chunk = warp - cgroup * WARPS, n_kblk = a.n_kblk,
             r0 = t16_slice(n_kblk, chunk), r1 = t16_slice(n_kblk, chunk + 1),
             steps = (n_kblk + K_SLICES - 1) / K_SLICES, end = r0 + steps, row_step = n_kblk * IX_KBLK,
             stages = a.stages;
    if (S::BY_TILE)
        xs += cgroup * M * row_step; /* a row for itself */
    else if (!S::PAIRS)
        r0 += cgroup;
    const uint8_t *x = xs + r0 * IX_KBLK;
    bool mine = lane >> 3 == (lane & 3); /* g >> 1 == t */
    const uint8_t *own = mine ? x + (lane >> 2 & 1) * IX_HI + 64 * (lane & 3) : sm + S::ZERO;
    uint32_t own_step = mine ? row_step : 0, own_kblk = mine ? S::K_SPLIT * IX_KBLK : 0, s = 0, phase = 0;
    float *to = (float *)(sm + S::PARTIALS) + (S::TILE_EACH ? chunk : warp) * S::TILES * M * 64 + lane;
    if (EP == GEMV_QKV_NORMED)
        cluster_wait();
    if (!S::PAIRS && a.xf) {
        eight w[NORM_IN_FLIGHT]; /* constants, on their way before the wait, as is where rows lie */
        const float *row[M];
#pragma unroll
        for (int i = 0; i < NORM_IN_FLIGHT; i++)
            if (r0 + i < r1)
                w[i].take(a.norm.w, a.k, (r0 + i) * 256 + lane * 8);
#pragma unroll
        for (int m = 0; m < M; m++)
            row[m] = a.xf + (uint64_t)(a.gather ? a.gather[a.row0 + m] : a.row0 + m) * a.ldxf;
        pdl_wait();
#pragma unroll
        for (int m = 0; m < M; m++) {
            eight f[NORM_IN_FLIGHT] = {w[0], w[1]};
            gemv_norm_quantize(row[m], a.k, a.norm.w, f, r0, r1, xs + m * row_step,
                               (float *)(sm + S::SQUARES) + (S::BY_TILE ? cgroup * M + m : m) * WARPS + chunk, lane);
        }
        named_bar_arrive<S::BAR_THREADS>(BAR_SQUARES);
    } else {
        uint32_t from = r0 + (S::PAIRS ? cgroup : 0); /* of pairs a set makes every other record, for both */
        const __half *row = a.x + a.row0 * XFRAG_KBLK + from * XFRAG_STRIDE + eight_at(lane);
        pdl_wait();
#pragma unroll 1
        for (uint32_t m = 0; m < M; m++)
            gemv_quantize<CGROUPS / (S::BY_TILE + 1)>(row + m * XFRAG_KBLK, a.k, from, r1, xs + m * row_step, lane);
        if (S::PAIRS)
            named_bar_sync<64>(BAR_RECORDS + chunk);
    }
    __syncwarp();
    /* Stages that are another set's. By record a stage is always the same set's, as their number is even; by tile the
     * ring holds all of the block's (gemv_by_tile): a phase is never taken for the one before. */
    auto pass = [&](uint32_t n) {
        for (s += n; s >= stages; s -= stages)
            phase ^= 1;
    };
#pragma unroll 1
    for (uint32_t i = S::TILE_EACH ? cgroup : 0; i < n; i += S::TILE_EACH + 1) {
        float acc[M][2];
#pragma unroll
        for (int m = 0; m < M; m++)
            acc[m][0] = acc[m][1] = 0;
        auto run = [&](auto type) {
            constexpr int T = decltype(type)::value;
            constexpr uint32_t per = t16_frags(T), frag = t16_frag_bytes(T);
            ix_frag v = {x, own, row_step, own_step};
            if (S::BY_TILE && cgroup)
                pass(steps * per);
            else if (CGROUPS > 1)
                pass(cgroup * per);
#pragma unroll 1
            for (uint32_t c = r0; c < end; c += S::K_SPLIT) {
#pragma unroll 1
                for (uint32_t q = 0; q < per; q++) {
                    mbar_wait(full + s, phase);
                    if (c < r1)
                        quant<T>::template mul_int<M>(ring + s * a.stage_bytes + chunk * frag, q, v, lane, acc);
                    mbar_release(empty + s, lane);
                    if (++s == stages)
                        s = 0, phase ^= 1;
                }
                if (S::K_SPLIT > 1 || S::PAIRS)
                    pass(per);
                v.at += S::K_SPLIT * IX_KBLK, v.own += own_kblk;
            }
            if (S::BY_TILE && !cgroup)
                pass(steps * per);
        };
        if (TA != TB && part_of(a, tile_at(a, i)).second)
            run(gemv_number<TB>());
        else
            run(gemv_number<TA>());
        uint32_t buf = i / FLUSH & 1, at = buf * S::BUF + i % FLUSH * M * 64;
        if ((S::TILE_EACH || i % FLUSH == 0) && i >= 2 * FLUSH)
            named_bar_sync<S::BAR_THREADS>(BAR_READ + buf);
#pragma unroll
        for (int m = 0; m < M; m++)
            to[at + m * 64] = acc[m][0], to[at + m * 64 + 32] = acc[m][1]; /* rows g and g + 8, quarter t */
        if (S::TILE_EACH || i % FLUSH == FLUSH - 1 || i + 1 == n)
            named_bar_arrive<S::BAR_THREADS>(BAR_FULL + buf);
    }
}

/* Hidden units of n tiles, a row of 32 a lane: where tiles hold gate and up, a unit's are sixteen lanes apart. */
template <int M, class T, class V>
__device__ static inline void epilogue_glu_gemv(const gemm_args &a, uint32_t n, T tile, V val, uint32_t lane)
{
    bool pairs = a.glu_rows == 8;
    uint32_t half = pairs ? lane >> 4 : 0, t = lane >> (pairs ? 3 : 4) & 1, r = lane & (a.glu_rows - 1),
             d_ff = a.part[0].n_out, u = tile(t) * a.glu_rows + r;
    bool ok = t < n && tile(t) < a.tile_hi && u < (d_ff + 255) / 256 * 256, in = ok && u < d_ff;
    float bias = a.bias && in ? a.bias[half * d_ff + u] : 0.f;
#pragma unroll
    for (int m = 0; m < M; m++) {
        float v = in ? __fadd_rn(val(t, r + 8 * half, m), bias) : 0.f, up = __shfl_down_sync(~0u, v, 16);
        v = glu_act(a.glu, v) * (pairs ? up : 1.f);
        if (ok && !half)
            a.ff.p[(uint64_t)(a.row0 + m) * a.ff.ld + xfrag_at(u)] = half_sat(v);
    }
}

/* Behind the ring: what heads.cuh works with. */
template <int M, int CGROUPS, int EP> __device__ static inline uint8_t *heads_of(const gemm_args &a, uint8_t *sm)
{
    return sm + gemv_shape<M, CGROUPS, EP>::fixed(a) + a.stages * a.stage_bytes;
}

/*
 * The warp that finishes: what becomes of the sums of FLUSH tiles at a time. A row's sum is that of the first half of
 * the warps and that of the second, in order: where a block has one tile the lanes of either half of the warp add one
 * of them, where it has two each lane has a row to itself.
 */
template <int M, int CGROUPS, int EP>
__device__ static inline void gemv_epilogue(const gemm_args &a, uint32_t n, uint8_t *sm, uint32_t lane)
{
    using S = gemv_shape<M, CGROUPS, EP>;
    constexpr bool QKV = is_qkv(EP), NORMED = EP == GEMV_QKV_NORMED;
    __builtin_assume((a.ep == EP_QKV) == QKV); /* so that there is no code for the others */
    __builtin_assume(QKV || S::PAIRS || !a.pair);
    bool units = (EP == GEMV_REST || EP == GEMV_REST_ROUNDS) && a.ep == EP_GLU;
    uint32_t first = 0, tiles = min(n, (uint32_t)FLUSH), half = lane >> 4; /* tiles at hand */
    auto tile = [&](uint32_t i) { return tile_at(a, first + i); };
    coord at = {};
    item it[M];
    bool normed = false;          /* at's head is */
    uint32_t place = 0, turn = 0; /* the lane's element of it */
    float gain = 0;
    auto prefetch = [&]() {
        at = coord_of<true>(a, QKV || tiles == 1 ? lane & 15 : lane, tiles, tile);
#pragma unroll
        for (int m = 0; m < M; m++)
            at.col = m, it[m] = item_load(a, at);
#pragma unroll
        for (int m = 0; m < M; m++)
            at.col = m, item_rope(a, at, it[m]);
        if (NORMED) {
            normed = at.ok && a.head_norm[at.part].w;
            if (normed)
                place = at.k + half * (a.d_head / 2), gain = a.head_norm[at.part].w[place];
        }
    };
    auto prefetch_residual = [&]() {
#pragma unroll
        for (int m = 0; m < M; m++)
            item_load_residual(a, at, it[m]);
    };
    if (!units) /* constants of the step */
        prefetch();
    uint64_t tag = 0;
    if (S::PAIRS && a.row_norm.w) {
        tag = a.step->ticket << 16 | (a.row_norm.nth & 0xffff);
        gain = at.ok ? a.row_norm.w[at.row] : 0.f;
    }
    if (NORMED)
        cluster_wait();
    bool tells = EP == GEMV_REST && a.x_said && !blockIdx.x && !lane;
    uint64_t x_tag = tells ? said_tag(a.step, a.x_nth) : 0;
    pdl_wait();
    if (tells) /* no fence: x is in L2 since the kernel that wrote it has ended, and is read from there */
        say(a.x_said, 0, x_tag);
    if (!units)
        prefetch_residual();
    float f[M];
#pragma unroll
    for (int m = 0; m < M; m++)
        f[m] = 1;
    if (!S::PAIRS && a.xf) {
        named_bar_sync<S::BAR_THREADS>(BAR_SQUARES);
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float *squares = (const float *)(sm + S::SQUARES) + m * WARPS;
            float q = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                q = __fadd_rn(q, squares[w]);
            f[m] = rsqrtf(__fadd_rn(q / a.k, a.norm.eps));
        }
    }
#pragma unroll 1
    for (; first < n; first += FLUSH) {
        uint32_t buf = first / FLUSH & (S::BUFS - 1);
        const float *partials = (const float *)(sm + S::PARTIALS) + buf * S::BUF;
        if (first) {
            tiles = min(n - first, (uint32_t)FLUSH);
            if (!units)
                prefetch(), prefetch_residual();
        }
        auto part = [&](uint32_t i, uint32_t r, uint32_t m,
                        uint32_t h) { /* half h of the warps */
                                      constexpr int HALF = S::K_SPLIT * WARPS / 2;
                                      const float *from =
                                          partials + (h * HALF * S::TILES + i) * M * 64 + m * 64 + 4 * r;
                                      float q = 0;
#pragma unroll
                                      for (int w = 0; w < HALF; w++) {
                                          float4 v = *(const float4 *)(from + w * S::TILES * M * 64);
                                          q = __fadd_rn(q, __fadd_rn(__fadd_rn(v.x, v.y), __fadd_rn(v.z, v.w)));
                                      }
                                      return q;
        };
        auto val = [&](uint32_t i, uint32_t r, uint32_t m) {
            return __fmul_rn(__fadd_rn(part(i, r, m, 0), part(i, r, m, 1)), f[m]);
        };
        named_bar_sync<S::BAR_THREADS>(BAR_FULL + buf);
        if (QKV) {
            float x[M];
#pragma unroll
            for (int m = 0; m < M; m++)
                x[m] = at.ok ? val(half ? at.tb : at.ta, half ? at.rb : at.ra, m) : 0.f;
            if (NORMED && normed) { /* of all blocks of the cluster, or of none */
                float s[M];
#pragma unroll
                for (int m = 0; m < M; m++)
                    x[m] = __fadd_rn(x[m], half ? it[m].b : it[m].a), it[m].a = it[m].b = 0;
                heads_squares<M>(heads_of<M, CGROUPS, EP>(a, sm), a.pair, a.d_head, turn++, place, x, s);
#pragma unroll
                for (int m = 0; m < M; m++)
                    x[m] =
                        __fmul_rn(__fmul_rn(x[m], rsqrtf(__fadd_rn(s[m] / a.d_head, a.head_norm[at.part].eps))), gain);
            }
#pragma unroll
            for (int m = 0; m < M; m++) {
                float y = __shfl_down_sync(~0u, x[m], 16);
                at.col = m;
                if (at.ok && !half)
                    epilogue_pair(a, at, it[m], x[m], y);
            }
        } else if (S::PAIRS && a.row_norm.w) {
            float y = at.ok ? __fadd_rn(val(at.ta, at.ra, 0), it[0].a) : 0.f;
            float by = rsqrtf(__fadd_rn(row_squares(a.row_norm, tag, y, lane) / a.part[0].n_out, a.row_norm.eps));
            if (at.ok)
                *(float *)it[0].to =
                    row_normed(a.row_norm.anew ? 0.f : it[0].residual, y, by, gain, a.scale) * a.row_norm.x_scale;
        } else if (units)
            epilogue_glu_gemv<M>(a, tiles, tile, val, lane);
        else
#pragma unroll
            for (int m = 0; m < M; m++) {
                if (tiles == 1) {
                    float x = part(0, lane & 15, m, half);
                    x = __fmul_rn(__fadd_rn(x, __shfl_down_sync(~0u, x, 16)), f[m]);
                    if (at.ok && !half)
                        epilogue_row(a, it[m], x);
                } else if (at.ok)
                    epilogue_row(a, it[m], val(at.ta, at.ra, m));
            }
        if (first + S::BUFS * FLUSH < n)
            named_bar_arrive<S::BAR_THREADS>(BAR_READ + buf);
    }
}
#endif

#include "kernels/cuda/gemm/rounds.cuh" /* of what is above */

/* M rows from row0 on; tiles as in gemm_args. For one row registers are kept to what lets the next kernels' blocks in
 * beside these: three of a block of one set, or as if two sets had 896 threads. */
template <int TA, int TB, int M, int CGROUPS, int EP>
__global__ void __launch_bounds__(CGROUPS == 2 && M == 1 ? 896 : gemv_shape<M, CGROUPS, EP>::THREADS,
                                  CGROUPS == 2 || in_rounds(EP) ? 1
                                  : M == 1                      ? 3
                                                                : 2) gemv_int8(const __grid_constant__ gemm_args a)
{
#if __CUDA_ARCH__ >= 800
    if (EP == GEMV_QKV_NORMED && __CUDA_ARCH__ < 900)
        return; /* of clusters; no code for the others */
    extern __shared__ __align__(128) uint8_t sm[];
    uint64_t *full = (uint64_t *)sm, *empty = full + STAGES_MAX;
    uint32_t tid, tiles = a.tile_hi - a.tile_lo, n;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(tid)); /* volatile: else it is read again in every round of a loop */
    uint32_t warp = tid >> 5, lane = tid & 31;
    pdl_trigger();
    if (EP == GEMV_PAIRS)
        n = 2;
    else if (is_qkv(EP) && a.pair)
        n = 2 * ((tiles / 2 - blockIdx.x + gridDim.x - 1) / gridDim.x);
    else
        n = (tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
    if (!tid) {
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
        __syncwarp(); /* or the other lanes' wait holds up lane 0 with them */
        if (is_qkv(EP) && M == 1 && a.prefetch)
            prefetch_keys(a, lane);
        if (EP == GEMV_QKV_NORMED)
            cluster_wait();
        pdl_wait();
    }
#endif
}

/* --- launching ------------------------------------------------------------------------------------------------------
 */

/* Shared memory for a block: of two sets three quarters of a processor's, so that the next kernel's finds room. */
template <int CGROUPS> static uint32_t gemv_smem(const struct device *d, int blocks)
{
    return CGROUPS == 1 ? smem_for(d, blocks) : smem_for(d, 1) - smem_for(d, 4);
}

/* Of that, what a block has beside its ring. */
template <int M, int CGROUPS, int EP> static uint32_t gemv_beside_ring(const gemm_args &a)
{
    return gemv_shape<M, CGROUPS, EP>::fixed(a) + (EP == GEMV_QKV_NORMED ? heads_smem(M, a.d_head) : 0);
}

/* Whether M rows of activations fit beside two stages, of two sets one of a record each. */
template <int TA, int TB, int M, int CGROUPS, int EP> static bool gemv_fits(const struct device *d, const gemm_args &a)
{
    using R = gemv_ring<TA, TB>;
    uint32_t least = CGROUPS == 1 ? 2 : CGROUPS * (R::PA > R::PB ? R::PA : R::PB);
    return gemv_beside_ring<M, CGROUPS, EP>(a) + least * R::stage_bytes(a.n_kblk) <= gemv_smem<CGROUPS>(d, 1);
}

template <int TA, int TB, int M, int CGROUPS, int EP> static void launch_gemv(struct device *d, gemm_args a)
{
    static uint32_t done;
    using R = gemv_ring<TA, TB>;
    constexpr uint32_t per = R::PA > R::PB ? R::PA : R::PB;
    constexpr uint32_t even = CGROUPS == 1 ? 1 : CGROUPS * per; /* stages come in whole turns of the sets: see pass() */
    uint32_t fixed = gemv_beside_ring<M, CGROUPS, EP>(a), cluster = EP == GEMV_QKV_NORMED ? a.pair : 1,
             units = (a.tile_hi - a.tile_lo) / (a.pair ? 2 : 1), blocks = M == 1 && a.blocks ? a.blocks : 2,
             room = gemv_smem<CGROUPS>(d, blocks);
    a.stage_bytes = R::stage_bytes(a.n_kblk);
    while (CGROUPS == 1 && blocks > 1 && room < fixed + 2 * a.stage_bytes)
        room = gemv_smem<CGROUPS>(d, --blocks);
    uint32_t grid = min_u(units, d->sms * blocks / cluster * cluster),
             tiles = (units + grid - 1) / grid * (a.pair ? 2 : 1),
             need = (tiles * ((a.n_kblk + K_SLICES - 1) / K_SLICES) * per + even - 1) / even * even;
    bool many = grid > (uint32_t)d->sms;
    a.stages = min_u((room - fixed) / a.stage_bytes / even * even, STAGES_MAX);
    if (many ||
        CGROUPS > 1) /* no more than its tiles need: beside these blocks the next kernels' find room and start */
        a.stages = min_u(a.stages, need);
    /* Where kernels begin early the row's loads would queue behind more; where they do not, a second stage is on its
     * way while the first arrives. */
    a.in_flight = a.bulk ? CGROUPS : min_u(2 * CGROUPS, a.stages);
    a.bucket = M;
    smem_once(d, gemv_int8<TA, TB, M, CGROUPS, EP>, &done);
    cuda_launch_clusters(d, cluster, gemv_int8<TA, TB, M, CGROUPS, EP>, dim3(grid), gemv_shape<M, CGROUPS, EP>::THREADS,
                         fixed + a.stages * a.stage_bytes, LAUNCH_PDL, a);
}

/* Whether a block's pair of tiles may have a set of warps each: a pair a processor at most, and room for all of it. */
template <int TA, int TB, int EP> static bool gemv_by_tile(const struct device *d, const gemm_args &a)
{
    using R = gemv_ring<TA, TB>;
    uint32_t stages = 2 * ((a.n_kblk + K_SLICES - 1) / K_SLICES) * (R::PA > R::PB ? R::PA : R::PB);
    return a.pair && a.tile_hi - a.tile_lo <= 2 * (uint32_t)d->sms && stages <= STAGES_MAX &&
           gemv_beside_ring<1, 2, EP>(a) + stages * R::stage_bytes(a.n_kblk) <= gemv_smem<2>(d, 2);
}

/* The greatest round of M rows that there is room for; 0: none, or one that makes records anew for many tiles. */
template <int TA, int TB, int M, int EP> static uint32_t gemv_round(const struct device *d, gemm_args a)
{
    uint32_t steps = (a.n_kblk + K_SLICES - 1) / K_SLICES;
    for (a.round = steps; a.round && !gemv_fits<TA, TB, M, 1, EP>(d, a);)
        a.round--;
    return a.round == steps || a.tile_hi - a.tile_lo <= 2 * FLUSH * (uint32_t)d->sms ? a.round : 0;
}

/*
 * All rows, by fours, twos and ones. CGROUPS: of warps that share a tile, one or two, which is a matter of the matrix
 * alone, as a sum's order follows. A single row whose tiles are finished in pairs, a pair a processor at most, has a
 * set for either.
 */
template <int TA, int TB, int CGROUPS, int EP> static void gemv_rows(struct device *d, gemm_args a)
{
    [[maybe_unused]] constexpr int ROUNDS = EP == GEMV_QKV ? GEMV_QKV_ROUNDS : GEMV_REST_ROUNDS;
    constexpr bool may = CGROUPS == 1 && (EP == GEMV_QKV || EP == GEMV_REST);
    uint32_t rows = a.bucket, m;
    auto rounds = [&](auto number) {
        [[maybe_unused]] constexpr int M = decltype(number)::value;
        if constexpr (may)
            if (rows >= M && (a.round = gemv_round<TA, TB, M, ROUNDS>(d, a))) {
                launch_gemv<TA, TB, M, 1, ROUNDS>(d, a);
                return true;
            }
        return false;
    };
    for (; rows; rows -= m, a.row0 += m)
        if (rows >= 4 && gemv_fits<TA, TB, 4, CGROUPS, EP>(d, a))
            m = 4, launch_gemv<TA, TB, 4, CGROUPS, EP>(d, a);
        else if (rounds(gemv_number<4>()))
            m = 4;
        else if (rows >= 2 && gemv_fits<TA, TB, 2, CGROUPS, EP>(d, a))
            m = 2, launch_gemv<TA, TB, 2, CGROUPS, EP>(d, a);
        else if (rounds(gemv_number<2>()))
            m = 2;
        else if (is_qkv(EP) && gemv_by_tile<TA, TB, EP>(d, a))
            m = 1, launch_gemv < TA, TB, 1, 2, is_qkv(EP) ? EP : GEMV_QKV > (d, a);
        else {
            m = 1;
            if constexpr (EP == GEMV_REST && CGROUPS == 1 && TA == TB)
                if (a.pairs) {
                    a.pair = 1; /* neighbours */
                    launch_gemv<TA, TA, 1, 2, GEMV_PAIRS>(d, a);
                    continue;
                }
            launch_gemv<TA, TB, 1, CGROUPS, EP>(d, a);
        }
}

template <int TA, int TB> static void run_gemv(struct device *d, const gemm_args &a)
{
    if (a.ep == EP_QKV && (a.head_norm[0].w || a.head_norm[1].w || a.head_norm[2].w)) {
        gemv_rows<TA, TB, 1, GEMV_QKV_NORMED>(d, a);
        return;
    }
    if (a.ep == EP_QKV) {
        gemv_rows<TA, TB, 1, GEMV_QKV>(d, a);
        return;
    }
    if constexpr (TA == TB)
        if (a.ep != EP_GLU && !a.xf && a.tile_hi - a.tile_lo <= (uint32_t)d->sms && a.n_kblk > 2 * K_SLICES &&
            gemv_fits<TA, TB, 1, 2, GEMV_REST>(d, a)) {
            gemv_rows<TA, TB, 2, GEMV_REST>(d, a);
            return;
        }
    gemv_rows<TA, TB, 1, GEMV_REST>(d, a);
}

#endif
