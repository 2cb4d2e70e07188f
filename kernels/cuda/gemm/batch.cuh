/*
 * batch.cuh - gemv's products for 5 to 64 rows, to the bit, by wgmma. Included by batch.cu; sm_90a alone.
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

#include "kernels/cuda/gemm/gemv.cuh"
#include "kernels/cuda/gemm/wgmma.cuh"

/* batch.cu. Whether a product of so many rows goes this way: the card has wgmma, and the types are among those here. */
bool batch_takes(const struct device *d, const wdev *w, uint32_t bucket);
/* The rows' product by w, with its end, as gemv by fours would leave them. qkv: gemv would end it as q|k|v, whatever
 * a.ep is here. */
void batch_run(struct device *d, const wdev *w, gemm_args a, bool qkv);

/* Of R rows: columns, and bytes of a record's planes and of what lies beside them. */
template <int R> struct batch_shape {
    enum {
        N = 2 * R,
        PLANES = N * 512,
        MORE = N * 18,
        XSTAGE = PLANES + MORE,
        ROWS = R < 16 ? R : 16, /* of a wgmma: its sums wait in registers to be scaled */
        BLOCKS = R / ROWS,
        BUFS = R <= 32 ? 2 : 1, /* of sums: one is scaled while another is made; 64 rows have no registers for it */
        PER = R / 2,            /* sums of a lane and quarter: two weights' rows times a quarter of R */
    };
};
__host__ __device__ static inline uint32_t batch_column(uint32_t row, uint32_t plane)
{
    return row / 8 * 16 + plane * 8 + row % 8;
}

struct batch_args {
    const uint8_t *w;
    struct wg_part part[3];
    uint32_t n_part, n_kblk, n_group;
    uint32_t split;  /* 0: a unit of work is a group's whole K; 1: a slice of it; 2: every other record of one */
    uint32_t n_unit; /* groups, times 1, 8 or 16 */
    uint32_t wstages, xstages;
    const uint8_t *planes, *more;
    float *pieces; /* [unit][R][128] */
    uint32_t bucket;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* d = a * b, + d where MORE; b at descriptor `desc`; asynchronous. */
template <int N, int MORE> __device__ static inline void batch_mma(float (&d)[N / 2], const uint32_t *a, uint64_t desc)
{
    static_assert(N == 16 || N == 32, "the widths of batch_shape");
    if constexpr (N == 16)
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %13, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                     "{%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1, 0; }"
                     : WG_R4(d, 0), WG_R4(d, 4)
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
        asm volatile("" : "+f"(d[i])::"memory");
}

/* Where a warp finds a record: its fragment, and the activations in shared memory. */
struct batch_record {
    const uint8_t *w;
    uint32_t planes, sums; /* shared addresses */
    const float *scale;    /* of the rows */
};

template <int R> __device__ static inline uint64_t batch_step(const batch_record &v, int step, int block)
{
    using S = batch_shape<R>;
    return wg_desc(v.planes + step * S::N * 32 + block * S::ROWS * 32, S::N * 16);
}

/* Both planes' sums of output o, of the eight rows `i` of a block: exact, rounded once where it is joined. */
template <int N> __device__ static inline float batch_join(const float (&s)[N], int i, int o, float by)
{
    return __fmaf_rn(by, s[8 * i + 4 + o], s[8 * i + o]);
}

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
        float2 d[2] = {__half22float2(((const __half2 *)(r + 2240))[g]),
                       __half22float2(((const __half2 *)(r + 2240))[g + 8])};
        uint32_t A[S::BUFS][4][4];
        float sum[S::BUFS][S::ROWS], low[S::BUFS][S::ROWS];
        auto open = [&](int c) {
            uint32_t(&a)[4][4] = A[c % S::BUFS];
            uint32_t w = ((const uint32_t *)(r + 2048))[4 * g + c];
            uint32_t g0 = six(w), g1 = six(w >> 6), h0 = six(w >> 12), h1 = six(w >> 18);
            uint32_t ng0 = h2mul(g0, 0xE400E400u), nh0 = h2mul(h0, 0xE400E400u); /* -1024 sc */
            uint32_t ng1 = h2mul(g1, 0xD400D400u), nh1 = h2mul(h1, 0xD400D400u); /* -64 sc */
            g1 = h2mul(g1, 0x2C002C00u), h1 = h2mul(h1, 0x2C002C00u);            /* sc / 16 */
#pragma unroll
            for (int p = 0; p < 2; p++) {
                uint32_t x = ((const uint32_t *)(r + p * 512))[16 * g + 4 * c + t],
                         y = ((const uint32_t *)(r + (2 + p) * 512))[16 * g + 4 * c + t], x8 = x >> 8, y8 = y >> 8;
                a[p][0] = h2fma(lop_or(x, 0x000f000f, M), g0, ng0), a[p][1] = h2fma(lop_or(y, 0x000f000f, M), h0, nh0);
                a[p][2] = h2fma(lop_or(x8, 0x000f000f, M), g0, ng0),
                a[p][3] = h2fma(lop_or(y8, 0x000f000f, M), h0, nh0);
                a[2 + p][0] = h2fma(lop_or(x, 0x00f000f0, M), g1, ng1),
                      a[2 + p][1] = h2fma(lop_or(y, 0x00f000f0, M), h1, nh1);
                a[2 + p][2] = h2fma(lop_or(x8, 0x00f000f0, M), g1, ng1),
                      a[2 + p][3] = h2fma(lop_or(y8, 0x00f000f0, M), h1, nh1);
            }
        };
        auto issue = [&](int c, int b) {
            int set = (c * S::BLOCKS + b) % S::BUFS;
            const uint32_t least[4] = {t == c ? mg : 0, t == c ? mh : 0, 0, 0};
            wg_fence();
            batch_mma<2 * S::ROWS, 0>(low[set], least, wg_desc(v.sums + b * S::ROWS * 32, 0));
            batch_mma<2 * S::ROWS, 0>(sum[set], A[c % S::BUFS][0], batch_step<R>(v, 4 * c, b));
#pragma unroll
            for (int i = 1; i < 4; i++)
                batch_mma<2 * S::ROWS, 1>(sum[set], A[c % S::BUFS][i], batch_step<R>(v, 4 * c + i, b));
            wg_commit();
        };
        auto scale = [&](int c, int b) {
            int set = (c * S::BLOCKS + b) % S::BUFS;
            batch_landed(sum[set]), batch_landed(low[set]);
#pragma unroll
            for (int i = 0; i < S::ROWS / 8; i++) {
                float2 by = *(const float2 *)(v.scale + b * S::ROWS + 8 * i + 2 * t);
#pragma unroll
                for (int o = 0; o < 4; o++) {
                    float &to = acc[c][(b * S::ROWS / 8 + i) * 4 + o];
                    float q = batch_join(sum[set], i, o, 256.f), min = batch_join(low[set], i, o, 1024.f);
                    to = __fmaf_rn(o & 1 ? by.y : by.x, __fmaf_rn(d[o / 2].x, q, -__fmul_rn(d[o / 2].y, min)), to);
                }
            }
        };
        open(0);
#pragma unroll
        for (int i = 0; i < 4 * S::BLOCKS; i++) {
            int c = i / S::BLOCKS, b = i % S::BLOCKS;
            issue(c, b);
            if (S::BUFS == 2) {
                if (i) {
                    wg_wait<1>();
                    scale((i - 1) / S::BLOCKS, (i - 1) % S::BLOCKS);
                }
                if (b + 1 == S::BLOCKS && c < 3)
                    open(c + 1);
                if (i + 1 == 4 * S::BLOCKS) {
                    wg_wait<0>();
                    scale(c, b);
                }
            } else {
                wg_wait<0>();
                scale(c, b);
                if (b + 1 == S::BLOCKS && c < 3)
                    open(c + 1);
            }
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
        float sum[S::BUFS][2][S::ROWS];
#pragma unroll
        for (int two = 0; two < 2; two++) {
            uint32_t A[4][2][4], sc[2][4];
            four_of(sc[0], ((const uint4 *)(r + 3072))[g]), four_of(sc[1], ((const uint4 *)(r + 3072))[g + 8]);
#pragma unroll
            for (int p = 0; p < 2; p++) {
                uint32_t a[4], b[4], fg[2], fh[2];
                two_of(fg, ((const uint2 *)(r + 2048 + lane * 16))[p]),
                    two_of(fh, ((const uint2 *)(r + 2560 + lane * 16))[p]);
                four_of(a, ((const uint4 *)r)[p * 32 + lane]);
                four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int u = 2 * i + two;
                    uint32_t f = two ? fg[i] >> 4 : fg[i], k = two ? fh[i] >> 4 : fh[i], a8 = a[u] >> 8, b8 = b[u] >> 8;
                    uint32_t(&x)[2][4] = A[2 * p + i];
                    x[0][0] = h2sub(lop_or(f << 4, 0x00300030, lop_or(a[u], 0x000f000f, M)), 0x64206420u);
                    x[0][1] = h2sub(lop_or(k << 4, 0x00300030, lop_or(b[u], 0x000f000f, M)), 0x64206420u);
                    x[0][2] = h2sub(lop_or(f >> 4, 0x00300030, lop_or(a8, 0x000f000f, M)), 0x64206420u);
                    x[0][3] = h2sub(lop_or(k >> 4, 0x00300030, lop_or(b8, 0x000f000f, M)), 0x64206420u);
                    x[1][0] = h2fma(lop_or(f << 6, 0x03000300, lop_or(a[u], 0x00f000f0, M)), 0x2C002C00u, 0xD600D600u);
                    x[1][1] = h2fma(lop_or(k << 6, 0x03000300, lop_or(b[u], 0x00f000f0, M)), 0x2C002C00u, 0xD600D600u);
                    x[1][2] = h2fma(lop_or(f >> 2, 0x03000300, lop_or(a8, 0x00f000f0, M)), 0x2C002C00u, 0xD600D600u);
                    x[1][3] = h2fma(lop_or(k >> 2, 0x03000300, lop_or(b8, 0x00f000f0, M)), 0x2C002C00u, 0xD600D600u);
                }
            }
            float q[2][S::ROWS / 2];
            auto issue = [&](int i) {
                int b = i / 4, j = i % 4;
                wg_fence();
#pragma unroll
                for (int up = 0; up < 2; up++)
                    batch_mma<2 * S::ROWS, 0>(sum[i % S::BUFS][up], A[j][up],
                                              batch_step<R>(v, 4 * j + 2 * two + up, b));
                wg_commit();
            };
            auto scale = [&](int n) {
                int b = n / 4, j = n % 4, set = n % S::BUFS;
#pragma unroll
                for (int up = 0; up < 2; up++) {
                    batch_landed(sum[set][up]);
                    float by[2] = {f32_of_i8(sc[0][j], 2 * two + up), f32_of_i8(sc[1][j], 2 * two + up)};
#pragma unroll
                    for (int i = 0; i < S::ROWS / 8; i++)
#pragma unroll
                        for (int o = 0; o < 4; o++)
                            q[up][4 * i + o] =
                                __fmaf_rn(by[o / 2], batch_join(sum[set][up], i, o, 256.f), j ? q[up][4 * i + o] : 0.f);
                }
                if (j == 3)
#pragma unroll
                    for (int i = 0; i < S::ROWS / 8; i++) {
                        float2 by = *(const float2 *)(v.scale + b * S::ROWS + 8 * i + 2 * t);
#pragma unroll
                        for (int o = 0; o < 4; o++) {
                            float f = __fmul_rn(d[o / 2], o & 1 ? by.y : by.x);
#pragma unroll
                            for (int up = 0; up < 2; up++) {
                                float &to = acc[2 * two + up][(b * S::ROWS / 8 + i) * 4 + o];
                                to = __fmaf_rn(f, q[up][4 * i + o], to);
                            }
                        }
                    }
            };
#pragma unroll
            for (int i = 0; i < 4 * S::BLOCKS; i++) {
                issue(i);
                if (S::BUFS == 2 && i) {
                    wg_wait<1>();
                    scale(i - 1);
                }
                if (S::BUFS == 1 || i + 1 == 4 * S::BLOCKS) {
                    wg_wait<0>();
                    scale(i);
                }
            }
        }
    }
};

#else
template <int T> struct batch_of {
    static constexpr bool TAKES = T == DT_Q4_K || T == DT_Q6_K;
};
#endif

/* The records of a unit of work: r0, r0 + step, ... below end, of group g. */
struct batch_unit {
    uint32_t g, r0, end, step;
};
__device__ static inline batch_unit batch_unit_of(const batch_args &a, uint32_t u)
{
    if (!a.split)
        return {u, 0, a.n_kblk, 1};
    uint32_t per = K_SLICES * a.split, g = u / per, w = u - g * per, c = w % K_SLICES;
    return {g, t16_slice(a.n_kblk, c) + w / K_SLICES, t16_slice(a.n_kblk, c + 1), a.split};
}
__device__ static inline const wg_part &batch_part_of(const batch_args &a, uint32_t group)
{
    int i = 0;
    while (i + 1 < (int)a.n_part && group >= a.part[i + 1].group0)
        i++;
    return a.part[i];
}

enum { BATCH_TILES = 8, BATCH_THREADS = CONSUMERS + 128, BATCH_STAGES = 8, BATCH_FIXED = 256 };

/*
 * Two warpgroups multiply, four tiles each; of a third one warp streams weights and another activations. Blocks stay:
 * a processor has one, which takes units u, u + grid, ...
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
    float *halves = (float *)(wring + a.wstages * WSTAGE); /* [PER][CONSUMERS], where a unit is all of K */
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n_kblk = a.n_kblk;
    if (!threadIdx.x) {
        for (uint32_t s = 0; s < BATCH_STAGES; s++) {
            mbar_init(full_w + s, 1), mbar_init(empty_w + s, WARPS * WARP_ARRIVALS);
            mbar_init(full_x + s, 1), mbar_init(empty_x + s, WARPS * WARP_ARRIVALS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    pdl_trigger();
    if (warp >= WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (warp == WARPS) {
            uint64_t policy = evict_first();
            uint32_t s = 0, phase = 1;
            for (uint32_t u = blockIdx.x; u < a.n_unit; u += gridDim.x) {
                batch_unit un = batch_unit_of(a, u);
                const wg_part &p = batch_part_of(a, un.g);
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
        } else if (warp == WARPS + 1 && !lane) {
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
                    cp_async_bulk(to, a.planes + (uint64_t)r * S::PLANES, S::PLANES, full_x + s, policy);
                    cp_async_bulk(to + S::PLANES, a.more + (uint64_t)r * S::MORE, S::MORE, full_x + s, policy);
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
    auto quarters = [&](int i) { return __fadd_rn(__fadd_rn(acc[0][i], acc[1][i]), __fadd_rn(acc[2][i], acc[3][i])); };
#pragma unroll 1
    for (uint32_t u = blockIdx.x; u < a.n_unit; u += gridDim.x) {
        batch_unit un = batch_unit_of(a, u);
        float *to = a.pieces + ((uint64_t)u * R + col) * (BATCH_TILES * 16) + row, *part = halves + threadIdx.x;
        auto each = [&](auto f) { /* f(output of the lane, its place), of columns that are wanted */
#pragma unroll
                                  for (int i = 0; i < S::PER; i++) {
                                      uint32_t c = i / 4 * 8 + (i & 1);
                                      if (col + c < a.bucket)
                                          f(i, to + c * (BATCH_TILES * 16) + (i & 2) * 4);
                                  }
        };
        auto run = [&](auto type) {
            constexpr int T = decltype(type)::value;
            uint32_t slice = 0, end = t16_slice(n_kblk, 1);
            bool second = false; /* half of the slices */
            clear();
#pragma unroll 1
            for (uint32_t r = un.r0; r < un.end; r += un.step) {
                batch_record v;
                const uint8_t *x = xring + xs * S::XSTAGE;
                v.w = wring + ws * WSTAGE + warp * FRAG;
                v.planes = smem_of(x), v.sums = v.planes + S::PLANES;
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
                        each([&](int i, float *at) { __stcg(at, part[i * CONSUMERS]); });
                    }
                    bool first = slice % (K_SLICES / 2) == 0;
#pragma unroll
                    for (int i = 0; i < S::PER; i++)
                        part[i * CONSUMERS] = __fadd_rn(first ? 0.f : part[i * CONSUMERS], quarters(i));
                    clear();
                    slice++, end = t16_slice(n_kblk, slice + 1);
                }
            }
            if (a.split)
                each([&](int i, float *at) { __stcg(at, quarters(i)); });
            else if (second)
                each([&](int i, float *at) { __stcg(at, __fadd_rn(__ldcg(at), part[i * CONSUMERS])); });
            else
                each([&](int i, float *at) { __stcg(at, __fadd_rn(part[i * CONSUMERS], 0.f)); });
        };
        if (TA != TB && batch_part_of(a, un.g).second)
            run(type_b());
        else
            run(type_a());
    }
#endif
}

#endif
