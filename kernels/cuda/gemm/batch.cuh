/*
 * batch.cuh - gemv's products for 5 to 64 rows, to the bit, by wgmma. Included by batch.cu; its kernels are sm_90a's
 * alone.
 *
 * gemv takes a record of 256 activations as 16-bit integers X = 256 hi + lo with one factor, sums integers exactly
 * within a sub-block and adds scaled sub-blocks in float in a fixed order: by quarters of a record, then over the
 * records of a slice of K, then the quarters, then the slices (gemv.cuh). Here a row is two columns of a wgmma, its
 * planes hi and lo as fp16, which holds them, and weights are integers that fp16 holds. A sum of their products stays
 * below 2^24, so f32 accumulates it exactly, and fma(256, hi, lo) is the one rounding that gemv's conversion of its
 * integer is. From there on the operations are gemv's, in its order.
 *
 * Activations of a record lie [16 steps of 16 k][2][N columns][8] as split_k.cuh's order 1 has it; columns come in
 * eights, lo and hi of eight rows in turns. Beside them (`more`): the sums of the eight sub-blocks of 32, S = 1024 a +
 * b, [N][8] as fp16, b in a lo column and a in a hi one; then the rows' factors, f32 [R].
 */
#ifndef HEARTH_CUDA_GEMM_BATCH_CUH
#define HEARTH_CUDA_GEMM_BATCH_CUH

#include "kernels/cuda/gemm/tile16_int.cuh"
#include "kernels/cuda/gemm/wgmma.cuh"

struct op_call;
/* batch.cu. Whether a product of so many rows goes this way: the card has wgmma, and the types are among those here. */
bool batch_takes(const struct device *d, const wdev *w, uint32_t bucket);
/* The rows' product by w, of the op o, with its end, as gemv by fours would leave them. qkv: gemv would end it as
 * q|k|v, whatever a.ep is here. What the next op multiplies is left as integers too where that is one of these
 * products. */
void batch_run(struct device *d, struct op_call *p, const struct op *o, const wdev *w, gemm_args a, bool qkv);

/* Of a block of R rows: columns, and bytes of a record's planes and of what lies beside them. */
template <int R> struct batch_shape {
    enum {
        N = 2 * R,
        PLANES = N * 512,
        MORE = N * 18,
        XSTAGE = PLANES + MORE,
        PER = R / 2,            /* sums of a lane and quarter: two weights' rows times a quarter of R */
        ROWS = R < 16 ? R : 16, /* of a wgmma of Q6_K, whose sums wait in registers to be scaled */
        BLOCKS = R / ROWS,
    };
};
enum { BATCH_ROWS = 32 /* of a block at most; more are more blocks, which meet their weights in L2 */ };
__host__ __device__ static inline uint32_t batch_column(uint32_t row, uint32_t plane)
{
    return row / 8 * 16 + plane * 8 + row % 8;
}

struct batch_args {
    const uint8_t *w;
    struct wg_part part[3];
    uint32_t n_part, n_kblk, n_group;
    uint32_t split;   /* 0: a unit of work is a group's whole K; 1: a slice of it; 2: every other record of one */
    uint32_t n_block; /* of rows */
    uint32_t n_unit;  /* groups, times 1, 8 or 16, times blocks of rows */
    uint32_t wstages, xstages;
    const uint8_t *planes, *more;
    float *pieces; /* [unit][R][128]: a group's piece of all rows is one array */
    uint32_t bucket;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* d = a * b, + d where MORE; b at descriptor `desc`; asynchronous. */
template <int N, int MORE> __device__ static inline void batch_mma(float (&d)[N / 2], const uint32_t *a, uint64_t desc)
{
    static_assert(N == 16 || N == 32 || N == 64, "the widths of batch_cut");
    if constexpr (N == 16)
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %13, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                     "{%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1, 0; }"
                     : WG_R4(d, 0), WG_R4(d, 4)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "n"(MORE));
    else if constexpr (N == 64)
        asm volatile(
            "{ .reg .pred p; setp.ne.u32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" WG_S0 WG_S1
            "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0; }"
            : WG_R16(d, 0), WG_R16(d, 16)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "n"(MORE));
    else
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" WG_S0
                     "}, {%16,%17,%18,%19}, %20, p, 1, 1, 0; }"
                     : WG_R16(d, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "n"(MORE));
}
/* After a wait: what the products under way have written is not read before. */
template <int N> __device__ static inline void batch_landed(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i]));
}

/* Where a warp finds a record: its fragment, and the activations in shared memory. */
struct batch_record {
    const uint8_t *w;
    uint32_t planes, sums; /* descriptors' lower halves */
    const float *scale;    /* of the rows */
};

/* What a descriptor's lower half is at a shared address; the next eight columns are 128 bytes on. */
__device__ static inline uint32_t batch_desc(uint32_t smem, uint32_t lead)
{
    return (smem >> 4 & 0x3fff) | lead >> 4 << 16;
}
__device__ static inline uint64_t batch_at(uint32_t low, uint32_t bytes)
{
    return (uint64_t)(128 >> 4) << 32 | (low + (bytes >> 4));
}

/* Both planes' sums of output o, of the eight rows `i` of a block: exact, rounded once where it is joined. */
template <int N> __device__ static inline float batch_join(const float (&s)[N], int i, int o, float by)
{
    return __fmaf_rn(by, s[8 * i + 4 + o], s[8 * i + o]);
}

/*
 * A record of a type, for a warp's tile: its four quarters' sums in acc.
 *
 * Products of a group (a quarter, or a step of two quarters and sixteen rows) are under way while fragments after them
 * are made and, where registers have room for sums twice, the group before them is scaled. None is left at the end.
 */
template <int T> struct batch_of {
    static constexpr bool TAKES = false;
};

/*
 * Q4_K: sc * q is an integer below 946, 64 k of them times a plane stay below 2^23, so a quarter is one chain of four
 * steps. A lane of a fragment has a quarter's nibbles: word t of another lane's sixteen bytes makes each step one
 * quarter's alone. The minimums are a step whose A is zero but for the quarter's two.
 */
template <> struct batch_of<DT_Q4_K> {
    static constexpr bool TAKES = true;

    template <int R>
    __device__ static inline void mul(const batch_record &v, int lane, float (&acc)[4][batch_shape<R>::PER])
    {
        using S = batch_shape<R>;
        constexpr uint32_t M = 0x64006400u;
        int g = lane >> 2, t = lane & 3;
        const uint8_t *r = v.w;
        uint32_t s = ((const uint32_t *)(r + 2048))[lane], e = ((const uint16_t *)(r + 2176))[lane];
        uint32_t mg = h2sub((s >> 24 & 63) | (e & 63) << 16 | M, M),
                 mh = h2sub((e >> 6 & 63) | (s >> 30 | (e >> 12) << 2) << 16 | M, M);
        /* the lane's own quarter's scales; the others' lie in other lanes */
        uint32_t g0 = six(s), g1 = h2mul(six(s >> 6), 0x2C002C00u), h0 = six(s >> 12),
                 h1 = h2mul(six(s >> 18), 0x2C002C00u); /* sc, sc / 16 */
        float2 d[2] = {__half22float2(((const __half2 *)(r + 2240))[g]),
                       __half22float2(((const __half2 *)(r + 2240))[g + 8])};
        uint32_t A[2][4][4], least[2][4];
        constexpr int IN_FLIGHT = R < 32 ? 2 : 1; /* of sums */
        float sum[IN_FLIGHT][R], low[IN_FLIGHT][R];
        float2 by[R / 8];
#pragma unroll
        for (int k = 0; k < R / 8; k++)
            by[k] = *(const float2 *)(v.scale + 8 * k + 2 * t);
        auto scale = [&](int c) {
            float(&q)[R] = sum[c % IN_FLIGHT], (&min)[R] = low[c % IN_FLIGHT];
            batch_landed(q), batch_landed(min);
#pragma unroll
            for (int k = 0; k < R / 8; k++) {
                float2 row = by[k];
#pragma unroll
                for (int o = 0; o < 4; o++) {
                    float &to = acc[c][k * 4 + o];
                    float x = batch_join(q, k, o, 256.f), m = batch_join(min, k, o, 1024.f);
                    to = __fmaf_rn(o & 1 ? row.y : row.x, __fmaf_rn(d[o / 2].x, x, -__fmul_rn(d[o / 2].y, m)), to);
                }
            }
        };
        auto make = [&](int c) {
            uint32_t(&a)[4][4] = A[c & 1], (&l)[4] = least[c & 1];
            int from = (lane & 28) + c;
            uint32_t w[2][2] = {{__shfl_sync(~0u, g0, from), __shfl_sync(~0u, g1, from)},
                                {__shfl_sync(~0u, h0, from), __shfl_sync(~0u, h1, from)}};
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint32_t n0 = h2mul(w[h][0], 0xE400E400u), n1 = h2mul(w[h][1], 0xE400E400u); /* -1024 of them */
#pragma unroll
                for (int p = 0; p < 2; p++) {
                    uint32_t x = ((const uint32_t *)(r + (2 * h + p) * 512))[16 * g + 4 * c + t], x8 = x >> 8;
                    a[p][h] = h2fma(lop_or(x, 0x000f000f, M), w[h][0], n0);
                    a[p][2 + h] = h2fma(lop_or(x8, 0x000f000f, M), w[h][0], n0);
                    a[2 + p][h] = h2fma(lop_or(x, 0x00f000f0, M), w[h][1], n1); /* 1024 + 16 q */
                    a[2 + p][2 + h] = h2fma(lop_or(x8, 0x00f000f0, M), w[h][1], n1);
                }
            }
            l[0] = t == c ? mg : 0, l[1] = t == c ? mh : 0, l[2] = l[3] = 0;
        };
        make(0);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            wg_fence();
            batch_mma<2 * R, 0>(low[c % IN_FLIGHT], least[c & 1], batch_at(v.sums, 0));
            batch_mma<2 * R, 0>(sum[c % IN_FLIGHT], A[c & 1][0], batch_at(v.planes + c * (R * 16), 0));
#pragma unroll
            for (int k = 1; k < 4; k++)
                batch_mma<2 * R, 1>(sum[c % IN_FLIGHT], A[c & 1][k], batch_at(v.planes + c * (R * 16), k * R * 64));
            wg_commit();
            if (IN_FLIGHT == 1) {
                if (c < 3)
                    make(c + 1);
                wg_wait<0>();
                scale(c);
            } else {
                if (c) {
                    wg_wait<1>();
                    scale(c - 1);
                }
                if (c < 3)
                    make(c + 1);
            }
        }
        if (IN_FLIGHT == 2) {
            wg_wait<0>();
            scale(3);
        }
    }
};

/*
 * Q6_K: sixteen sub-blocks of 16 k, a step each; quarter t has sub-blocks t, t + 4, t + 8 and t + 12, whose scaled sums
 * are added in that order. A word of a plane is two neighbouring steps, so two quarters are made at a time.
 */
template <> struct batch_of<DT_Q6_K> {
    static constexpr bool TAKES = true;

    template <int R>
    __device__ static inline void mul(const batch_record &v, int lane, float (&acc)[4][batch_shape<R>::PER])
    {
        using S = batch_shape<R>;
        constexpr uint32_t M = 0x64006400u;
        int g = lane >> 2, t = lane & 3;
        const uint8_t *r = v.w;
        float d[2] = {__half2float(((const __half *)(r + 3328))[g]), __half2float(((const __half *)(r + 3328))[g + 8])};
        uint32_t a[4], c[4], fg[2], fh[2], A[2][2][4];
        float sum[2][2][S::ROWS], q[4][S::ROWS / 2];
        auto scale = [&](int n) {
            int b = n / 8, j = n / 2 % 4, two = n % 2;
            uint32_t sc[2] = {((const uint32_t *)(r + 3072 + g * 16))[j] >> 16 * two,
                              ((const uint32_t *)(r + 3200 + g * 16))[j] >> 16 * two};
#pragma unroll
            for (int up = 0; up < 2; up++) {
                batch_landed(sum[n & 1][up]);
                float by[2] = {f32_of_i8(sc[0], up), f32_of_i8(sc[1], up)};
#pragma unroll
                for (int m = 0; m < S::ROWS / 8; m++) {
                    float2 row = *(const float2 *)(v.scale + b * S::ROWS + 8 * m + 2 * t);
#pragma unroll
                    for (int o = 0; o < 4; o++) {
                        float &to = q[2 * two + up][4 * m + o], &all = acc[2 * two + up][(b * S::ROWS / 8 + m) * 4 + o];
                        to = __fmaf_rn(by[o / 2], batch_join(sum[n & 1][up], m, o, 256.f), j ? to : 0.f);
                        if (j == 3)
                            all = __fmaf_rn(__fmul_rn(d[o / 2], o & 1 ? row.y : row.x), to, all);
                    }
                }
            }
        };
#pragma unroll
        for (int n = 0; n < 8 * S::BLOCKS; n++) {
            int b = n / 8, j = n / 2 % 4, two = n % 2, p = j / 2, i = j % 2;
            if (!two && !i) {
                two_of(fg, ((const uint2 *)(r + 2048 + lane * 16))[p]);
                two_of(fh, ((const uint2 *)(r + 2560 + lane * 16))[p]);
                four_of(a, ((const uint4 *)r)[p * 32 + lane]);
                four_of(c, ((const uint4 *)r)[(2 + p) * 32 + lane]);
            }
            uint32_t f = fg[i] >> 4 * two, k = fh[i] >> 4 * two, x = a[2 * i + two], y = c[2 * i + two], x8 = x >> 8,
                     y8 = y >> 8, (&w)[2][4] = A[n & 1];
            w[0][0] = h2sub(lop_or(f << 4, 0x00300030, lop_or(x, 0x000f000f, M)), 0x64206420u);
            w[0][1] = h2sub(lop_or(k << 4, 0x00300030, lop_or(y, 0x000f000f, M)), 0x64206420u);
            w[0][2] = h2sub(lop_or(f >> 4, 0x00300030, lop_or(x8, 0x000f000f, M)), 0x64206420u);
            w[0][3] = h2sub(lop_or(k >> 4, 0x00300030, lop_or(y8, 0x000f000f, M)), 0x64206420u);
            w[1][0] = h2fma(lop_or(f << 6, 0x03000300, lop_or(x, 0x00f000f0, M)), 0x2C002C00u, 0xD600D600u);
            w[1][1] = h2fma(lop_or(k << 6, 0x03000300, lop_or(y, 0x00f000f0, M)), 0x2C002C00u, 0xD600D600u);
            w[1][2] = h2fma(lop_or(f >> 2, 0x03000300, lop_or(x8, 0x00f000f0, M)), 0x2C002C00u, 0xD600D600u);
            w[1][3] = h2fma(lop_or(k >> 2, 0x03000300, lop_or(y8, 0x00f000f0, M)), 0x2C002C00u, 0xD600D600u);
            wg_fence();
#pragma unroll
            for (int up = 0; up < 2; up++)
                batch_mma<2 * S::ROWS, 0>(sum[n & 1][up], w[up],
                                          batch_at(v.planes + two * (R * 8), (4 * j + up) * R * 64 + b * S::ROWS * 32));
            wg_commit();
            if (n) {
                wg_wait<1>();
                scale(n - 1);
            }
        }
        wg_wait<0>();
        scale(8 * S::BLOCKS - 1);
    }
};

#else
template <int T> struct batch_of {
    static constexpr bool TAKES = T == DT_Q4_K || T == DT_Q6_K;
};
#endif

/* The records of a unit of work: r0, r0 + step, ... below end, of group g and a block of rows. */
struct batch_unit {
    uint32_t g, block, r0, end, step;
};
__device__ static inline batch_unit batch_unit_of(const batch_args &a, uint32_t u)
{
    uint32_t block = u % a.n_block;
    u /= a.n_block;
    if (!a.split)
        return {u, block, 0, a.n_kblk, 1};
    uint32_t per = K_SLICES * a.split, g = u / per, w = u - g * per, c = w % K_SLICES;
    return {g, block, t16_slice(a.n_kblk, c) + w / K_SLICES, t16_slice(a.n_kblk, c + 1), a.split};
}
enum {
    BATCH_TILES = 8,
    BATCH_WARPS = BATCH_TILES,
    BATCH_THREADS = BATCH_WARPS * 32 + 128,
    BATCH_STAGES = 8,
    BATCH_FIXED = 256,
};

/*
 * Two warpgroups multiply, four tiles each; of a third one warp streams weights and another activations. Blocks stay: a
 * processor has one, which takes units u, u + grid, ...
 */
template <int TA, int TB, int R>
__global__ void __launch_bounds__(BATCH_THREADS, 1) gemm_batch(const __grid_constant__ batch_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using S = batch_shape<R>;
    constexpr uint32_t UA = quant<TA>::FRAG_BYTES, UB = quant<TB>::FRAG_BYTES, FRAG = UA > UB ? UA : UB,
                       WSTAGE = BATCH_TILES * FRAG;
    static_assert(quant<TA>::FRAGS == 1 && quant<TB>::FRAGS == 1, "a record is a fragment");
    extern __shared__ __align__(128) uint8_t sm[];
    uint64_t *full_w = (uint64_t *)sm, *empty_w = full_w + BATCH_STAGES, *full_x = empty_w + BATCH_STAGES,
             *empty_x = full_x + BATCH_STAGES;
    uint8_t *xring = sm + BATCH_FIXED, *wring = xring + a.xstages * S::XSTAGE;
    /* [PER][CONSUMERS], sums of the first half of the slices, where a unit is all of K */
    float *first = (float *)(wring + a.wstages * WSTAGE) + threadIdx.x;
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n_kblk = a.n_kblk;
    if (!threadIdx.x) {
        for (uint32_t s = 0; s < BATCH_STAGES; s++) {
            mbar_init(full_w + s, 1), mbar_init(empty_w + s, BATCH_WARPS * WARP_ARRIVALS);
            mbar_init(full_x + s, 1), mbar_init(empty_x + s, BATCH_WARPS * WARP_ARRIVALS);
        }
        mbar_init_done();
    }
    __syncthreads();
    pdl_trigger();
    if (warp >= BATCH_WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (warp == BATCH_WARPS) {
            uint64_t policy = evict_first();
            uint32_t s = 0, phase = 1;
            for (uint32_t u = blockIdx.x; u < a.n_unit; u += gridDim.x) {
                batch_unit un = batch_unit_of(a, u);
                const wg_part &p = wg_part_of(a, un.g);
                const bool second = TA != TB && p.second;
                uint32_t frag = second ? UB : UA, tile0 = (un.g - p.group0) * BATCH_TILES,
                         n = min((uint32_t)BATCH_TILES, p.n_tile - tile0);
                const uint8_t *tile = a.w + p.off + (uint64_t)(tile0 + lane) * n_kblk * frag;
                for (uint32_t r = un.r0; r < un.end; r += un.step) {
                    mbar_wait(empty_w + s, phase);
                    if (!lane)
                        mbar_expect_tx(full_w + s, n * frag);
                    __syncwarp();
                    if (lane < n)
                        cp_async_bulk(wring + s * WSTAGE + lane * FRAG,
                                      tile + (uint64_t)t16_frag_at(n_kblk, 1, r, 0) * frag, frag, full_w + s, policy);
                    if (++s == a.wstages)
                        s = 0, phase ^= 1;
                }
            }
        } else if (warp == BATCH_WARPS + 1 && !lane) {
            pdl_wait();
            asm volatile("fence.proxy.async;" ::: "memory"); /* the copies read what ordinary stores wrote */
            uint64_t policy = evict_last();
            uint32_t s = 0, phase = 1;
            for (uint32_t u = blockIdx.x; u < a.n_unit; u += gridDim.x) {
                batch_unit un = batch_unit_of(a, u);
                for (uint32_t r = un.r0; r < un.end; r += un.step) {
                    mbar_wait(empty_x + s, phase);
                    mbar_expect_tx(full_x + s, S::XSTAGE);
                    uint8_t *to = xring + s * S::XSTAGE;
                    cp_async_bulk(to, a.planes + (uint64_t)(un.block * n_kblk + r) * S::PLANES, S::PLANES, full_x + s,
                                  policy);
                    cp_async_bulk(to + S::PLANES, a.more + (uint64_t)(un.block * n_kblk + r) * S::MORE, S::MORE,
                                  full_x + s, policy);
                    if (++s == a.xstages)
                        s = 0, phase ^= 1;
                }
            }
        }
        __syncwarp();
        pdl_wait();
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    pdl_wait(); /* before the first store: what an earlier kernel still reads may lie there */
    uint32_t ws = 0, wphase = 0, xs = 0, xphase = 0, row = warp * 16 + (lane >> 2), col = 2 * (lane & 3);
    float acc[4][S::PER];
    struct type_a {
        enum { value = TA };
    };
    struct type_b {
        enum { value = TB };
    };
    auto clear = [&]() {
#pragma unroll
        for (int t = 0; t < 4; t++)
#pragma unroll
            for (int i = 0; i < S::PER; i++)
                acc[t][i] = 0;
    };
    /* A slice's sum of output i. */
    auto join = [&](int i) { return __fadd_rn(__fadd_rn(acc[0][i], acc[1][i]), __fadd_rn(acc[2][i], acc[3][i])); };
#pragma unroll 1
    for (uint32_t u = blockIdx.x; u < a.n_unit; u += gridDim.x) {
        batch_unit un = batch_unit_of(a, u);
        uint32_t wanted = a.bucket - un.block * R;
        auto store = [&](auto value) { /* of all columns of the block, or of those that are wanted */
                                       float *to = a.pieces + ((uint64_t)u * R + col) * (BATCH_TILES * 16) + row;
                                       auto at = [&](int i) {
                                           return to + (i / 4 * 8 + (i & 1)) * (BATCH_TILES * 16) + (i & 2) * 4;
                                       };
                                       if (wanted >= R)
#pragma unroll
                                           for (int i = 0; i < S::PER; i++)
                                               __stcg(at(i), value(i));
                                       else
#pragma unroll
                                           for (int i = 0; i < S::PER; i++)
                                               if (col + i / 4 * 8 + (i & 1) < wanted)
                                                   __stcg(at(i), value(i));
        };
        auto run = [&](auto type) {
            constexpr int T = decltype(type)::value;
            uint32_t slice = 0, end = t16_slice(n_kblk, 1);
            bool second = false; /* half of the slices */
            float half[S::PER];  /* the sum of a half's slices so far */
            clear();
#pragma unroll 1
            for (uint32_t r = un.r0; r < un.end; r += un.step) {
                batch_record v;
                const uint8_t *x = xring + xs * S::XSTAGE;
                v.w = wring + ws * WSTAGE + warp * FRAG;
                uint32_t at = __shfl_sync(~0u, smem_of(x), 0); /* which makes it a warp's, not a lane's */
                v.planes = batch_desc(at, S::N * 16), v.sums = batch_desc(at + S::PLANES, 0);
                v.scale = (const float *)(x + S::PLANES + S::N * 16);
                mbar_wait(full_w + ws, wphase);
                mbar_wait(full_x + xs, xphase);
                batch_of<T>::template mul<R>(v, lane, acc);
                mbar_release(empty_w + ws, lane), mbar_release(empty_x + xs, lane);
                if (++ws == a.wstages)
                    ws = 0, wphase ^= 1;
                if (++xs == a.xstages)
                    xs = 0, xphase ^= 1;
                if (!a.split && r + 1 == end) { /* a slice of all of K ends; there are no empty ones before the last */
                    if (slice == K_SLICES / 2) {
                        second = true;
#pragma unroll
                        for (int i = 0; i < S::PER; i++)
                            first[i * CONSUMERS] = half[i];
                    }
                    bool begins = slice % (K_SLICES / 2) == 0;
#pragma unroll
                    for (int i = 0; i < S::PER; i++)
                        half[i] = __fadd_rn(begins ? 0.f : half[i], join(i));
                    clear();
                    slice++, end = t16_slice(n_kblk, slice + 1);
                }
            }
            if (a.split)
                store(join);
            else
                store(
                    [&](int i) { return second ? __fadd_rn(first[i * CONSUMERS], half[i]) : __fadd_rn(half[i], 0.f); });
        };
        if (TA != TB && wg_part_of(a, un.g).second)
            run(type_b());
        else
            run(type_a());
    }
#endif
}

#endif
