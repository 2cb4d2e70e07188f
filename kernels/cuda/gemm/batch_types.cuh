/*
 * batch_types.cuh - a record of a type times a block's rows, as batch.cuh multiplies it: integers in fp16, exact sums.
 */
#ifndef HEARTH_CUDA_GEMM_BATCH_TYPES_CUH
#define HEARTH_CUDA_GEMM_BATCH_TYPES_CUH

#include "kernels/cuda/gemm/gemm.cuh"
#include "kernels/cuda/gemm/tile16_int.cuh"
#include "kernels/cuda/gemm/wgmma_mma.cuh"

/* A block of R rows: its columns, and bytes of a record's planes and of what lies beside them. */
template <int R> struct batch_shape {
    enum {
        N = 2 * R,
        PLANES = N * 512,
        MORE = N * 18,
        XSTAGE = PLANES + MORE,
        PER = R / 2,            /* a lane's sums for a quarter: two weight rows times a quarter of R */
        ROWS = R < 16 ? R : 16, /* rows of one wgmma of Q6_K, whose sums stay in registers until they are scaled */
        BLOCKS = R / ROWS,
    };
};
enum { BATCH_ROWS = 32 /* of a block at most; more rows take more blocks, which share their weights in L2 */ };
__host__ __device__ static inline uint32_t batch_column(uint32_t row, uint32_t plane)
{
    return row / 8 * 16 + plane * 8 + row % 8;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Where a warp reads a record: its fragment, and the activations in shared memory. */
struct batch_record {
    const uint8_t *w;
    uint32_t planes, sums; /* descriptors' lower halves */
    const float *scale;    /* the rows' */
};

/* A descriptor's lower half for a shared memory address; the next eight columns are 128 bytes further. */
__device__ static inline uint32_t batch_desc(uint32_t smem, uint32_t lead)
{
    return (smem >> 4 & 0x3fff) | lead >> 4 << 16;
}
__device__ static inline uint64_t batch_at(uint32_t low, uint32_t bytes)
{
    return (uint64_t)(128 >> 4) << 32 | (low + (bytes >> 4));
}

/* Joins both planes' sums of output o, of the eight rows `i` of a block: the sums are exact, and joining rounds
 * once. */
template <int N> __device__ static inline float batch_join(const float (&s)[N], int i, int o, float by)
{
    return __fmaf_rn(by, s[8 * i + 4 + o], s[8 * i + o]);
}

/*
 * Multiplies a record of a type, for a warp's tile: adds the sums of its four quarters to acc.
 *
 * Products of a group (a quarter, or a step of two quarters and sixteen rows) are in flight while the next fragments
 * are made and, where registers have room for two sets of sums, the previous group is scaled. None is in flight at the
 * end.
 */
template <int T> struct batch_of {
    static constexpr bool TAKES = false;
};

/*
 * Q4_K: sc * q is an integer below 946; 64 k of them times a plane stay below 2^23, so a quarter is one chain of four
 * steps. A lane of a fragment has a quarter's nibbles; reading word t of another lane's sixteen bytes makes each step
 * belong to one quarter alone. The mins are a step of their own, whose A is zero except for the quarter's two
 * sub-blocks.
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
        /* the scales of the lane's own quarter; the other quarters' are in other lanes */
        uint32_t g0 = six(s), g1 = h2mul(six(s >> 6), 0x2C002C00u), h0 = six(s >> 12),
                 h1 = h2mul(six(s >> 18), 0x2C002C00u); /* sc, sc / 16 */
        float2 d[2] = {__half22float2(((const __half2 *)(r + 2240))[g]),
                       __half22float2(((const __half2 *)(r + 2240))[g + 8])};
        uint32_t A[2][4][4], least[2][4];
        constexpr int IN_FLIGHT = R < 32 ? 2 : 1; /* sets of sums */
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
                uint32_t n0 = h2mul(w[h][0], 0xE400E400u), n1 = h2mul(w[h][1], 0xE400E400u); /* -1024 times them */
#pragma unroll
                for (int p = 0; p < 2; p++) {
                    uint32_t x = ((const uint32_t *)(r + (2 * h + p) * 512))[4 * quant<DT_Q4_K>::place(4 * g + c) + t],
                             x8 = x >> 8;
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
 * Q6_K: sixteen sub-blocks of 16 k, a step each. Quarter t has sub-blocks t, t + 4, t + 8 and t + 12, whose scaled sums
 * are added in that order. A word of a plane is two neighbouring steps, so two quarters are computed at a time.
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

#endif
