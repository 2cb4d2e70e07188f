/*
 * tile16_int.cuh - T16 units times activations in integers: what the body for few rows (gemv.cuh) multiplies with.
 *
 * A record of 256 activations is scale * X, X integers of 16 bits, |X| <= 32639, as two planes of int8: X = 256 hi +
 * lo. That is finer than fp16: a record's error is at most 2^-16 of its greatest element, where fp16 loses 2^-12 of
 * every one. mma.m16n8k32 on int8 then costs half of what fp16 does, a nibble becomes a byte with one AND, and sums
 * within a sub-block are exact, so that only scaled sub-blocks are rounded.
 *
 * One row fills an mma's eight columns: column 2c + plane has the plane of those sub-blocks that belong to c, zeros
 * elsewhere, so that a column's sum is one sub-block's, and it comes out in the lane (g, t = c) that is to scale it:
 *   Q4_K, Q5_K: the k of lanes t are sub-blocks 2t and 2t + 1 (tile16.cuh): only lanes with g >> 1 == t have anything
 * else than zero. The low nibbles (2t) are summed apart from the high ones (2t + 1). others:     an mma is 16 or 32 k
 * of one scale; the lanes with g >> 1 == (its number) % 4 have the activations. So a lane's sums are of rows g and g +
 * 8 and of a quarter of the sub-blocks; the four quarters are added last.
 */
#ifndef HEARTH_CUDA_T16_INT_CUH
#define HEARTH_CUDA_T16_INT_CUH

#include "kernels/cuda/gemm/tile16.cuh"

/* A record of a row in shared memory, offsets in bytes. The planes lie 320 apart so that they hit different banks. */
enum {
    IX_LO = 0,
    IX_S16 = 256, /* sums of 16 elements, int32, that of 64j + 16t .. at [t][j] */
    IX_HI = 320,
    IX_S32 = 576, /* sums of 32, int32 [8] */
    IX_SCALE = 608,
    IX_KBLK = 624,
    IX_MAX = 32639, /* 127 * 256 + 127 */
};

#if __CUDA_ARCH__ >= 900

/* c += a * b, 32 k; a unsigned or signed bytes of rows g (a0, a2) and g + 8 (a1, a3). */
template <int SIGNED>
__device__ static inline void imma32(int *c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                     uint32_t b1)
{
    if (SIGNED)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ static inline void imma16(int *c, uint32_t a0, uint32_t a1, uint32_t b0)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

/* --- activations ------------------------------------------------------------------------------------------------ */

/*
 * A record by one warp, elements 8 lane + 0..7 of it a lane. A record with an infinity in it counts as zeros and a NaN
 * as some number: either would reach every later token through KV.
 */
__device__ static inline void int_quantize(uint8_t *kblk, uint32_t lane, const float (&v)[8])
{
    float most[8], top, by;
#pragma unroll
    for (int i = 0; i < 8; i++)
        most[i] = fabsf(v[i]);
#pragma unroll
    for (int n = 4; n; n /= 2) /* a tree: short chains, here and below */
#pragma unroll
        for (int i = 0; i < n; i++)
            most[i] = fmaxf(most[i], most[i + n]);
    top = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most[0])));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(by) : "f"(top));
    bool fine = top > 1e-30f && top < 1e30f;
    float to = fine ? __fmul_rn(IX_MAX, by) : 0.f;
    uint32_t x[8];
#pragma unroll
    for (int i = 0; i < 8; i++) /* the low bits of 1.5 * 2^23 + 128 + X: lo + 128 and hi */
        x[i] = __float_as_uint(__fmaf_rn(v[i], to, 12582912.f + 128.f));
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i] = __byte_perm(x[2 * i], x[2 * i + 1], 0x5410);
    uint2 lo = {__byte_perm(w[0], w[1], 0x6420) ^ 0x80808080u, __byte_perm(w[2], w[3], 0x6420) ^ 0x80808080u},
          hi = {__byte_perm(w[0], w[1], 0x7531), __byte_perm(w[2], w[3], 0x7531)};
    *(uint2 *)(kblk + IX_LO + 8 * lane) = lo;
    *(uint2 *)(kblk + IX_HI + 8 * lane) = hi;
    int s = 256 * __dp4a((int)hi.x, 0x01010101, __dp4a((int)hi.y, 0x01010101, 0)) +
            __dp4a((int)lo.x, 0x01010101, __dp4a((int)lo.y, 0x01010101, 0));
    s += __shfl_xor_sync(~0u, s, 1);
    if (!(lane & 1)) { /* 16 elements: number lane / 2 = 4j + t */
        uint32_t n = lane >> 1;
        ((int *)(kblk + IX_S16))[(n & 3) * 4 + (n >> 2)] = s;
    }
    s += __shfl_xor_sync(~0u, s, 2);
    if (!(lane & 3))
        ((int *)(kblk + IX_S32))[lane >> 2] = s;
    if (!lane)
        *(float *)(kblk + IX_SCALE) = fine ? top * (1.f / IX_MAX) : 0.f;
}

/* --- units ------------------------------------------------------------------------------------------------------ */

/* Where a lane finds a record of its rows' activations: `at` for all; `own` for Q4_K and Q5_K, zeros where the lane's
 * column has nothing, which do not move on (own_step 0). Rows are row_step apart. */
struct ix_frag {
    const uint8_t *at, *own;
    uint32_t row_step, own_step;
};

__device__ static inline int ix_join(const int *c, int h) /* both planes of row g (0) or g + 8 (1) */
{
    return c[2 * h + 1] * 256 + c[2 * h];
}

/* |C| <= 32 * 15 * 32639 < 2^24, times two scales of 6 bits: in an int still. Q5_K's is twice that: scaled in floats.
 */
template <int FIVE, int M>
__device__ static inline void int_k45(const uint8_t *r, const ix_frag &v, int lane, float (&acc)[M][2])
{
    constexpr uint32_t S = FIVE ? 2560 : 2048;
    int g = lane >> 2, t = lane & 3, lo[M][4], hi[M][4];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            lo[m][i] = hi[m][i] = 0;
#pragma unroll
    for (int p = 0; p < 2; p++) {
        uint32_t a[4], b[4], al[4], bl[4], ah[4], bh[4];
        four_of(a, ((const uint4 *)r)[p * 32 + lane]);
        four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
#pragma unroll
        for (int u = 0; u < 4; u++) {
            al[u] = a[u] & 0x0f0f0f0fu, bl[u] = b[u] & 0x0f0f0f0fu;
            ah[u] = a[u] & 0xf0f0f0f0u, bh[u] = b[u] & 0xf0f0f0f0u; /* 16 q */
        }
        if (FIVE) {
            uint32_t fg = ((const uint32_t *)(r + 2048 + lane * 16))[p],
                     fh = ((const uint32_t *)(r + 2048 + lane * 16))[2 + p];
#pragma unroll
            for (int u = 0; u < 4; u++) {
                al[u] = lop_or(fg << (4 - u), 0x10101010u, al[u]), bl[u] = lop_or(fh << (4 - u), 0x10101010u, bl[u]);
                ah[u] = lop_or(fg >> u, 0x10101010u, ah[u] >> 4), bh[u] = lop_or(fh >> u, 0x10101010u, bh[u] >> 4);
            }
        }
#pragma unroll
        for (int m = 0; m < M; m++) {
            const uint8_t *x = v.own + m * v.own_step;
            uint32_t x0[4], x1[4];
            four_of(x0, *(const uint4 *)(x + 16 * p)), four_of(x1, *(const uint4 *)(x + 32 + 16 * p));
            imma32<0>(lo[m], al[0], bl[0], al[1], bl[1], x0[0], x0[1]);
            imma32<0>(hi[m], ah[0], bh[0], ah[1], bh[1], x1[0], x1[1]);
            imma32<0>(lo[m], al[2], bl[2], al[3], bl[3], x0[2], x0[3]);
            imma32<0>(hi[m], ah[2], bh[2], ah[3], bh[3], x1[2], x1[3]);
        }
    }
    uint32_t s = ((const uint32_t *)(r + S))[lane], e = ((const uint16_t *)(r + S + 128))[lane];
    int sc[2][2] = {{(int)(s & 63), (int)(s >> 6 & 63)}, {(int)(s >> 12 & 63), (int)(s >> 18 & 63)}},
        mn[2][2] = {{(int)(s >> 24 & 63), (int)(e & 63)}, {(int)(e >> 6 & 63), (int)(s >> 30 | (e >> 12) << 2)}};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float2 d = __half22float2(((const __half2 *)(r + S + 192))[g + 8 * h]);
#pragma unroll
        for (int m = 0; m < M; m++) {
            int2 sum = *(const int2 *)(v.at + m * v.row_step + IX_S32 + 8 * t);
            float scale = *(const float *)(v.at + m * v.row_step + IX_SCALE), q;
            int i0 = ix_join(lo[m], h), i1 = ix_join(hi[m], h);
            if (FIVE)
                q = __fmaf_rn((float)sc[h][1], (float)i1, __fmul_rn((float)sc[h][0], (float)i0));
            else
                q = (float)(sc[h][0] * i0 + sc[h][1] * (i1 >> 4));
            float min = (float)(mn[h][0] * sum.x + mn[h][1] * sum.y);
            acc[m][h] = __fmaf_rn(scale, __fmaf_rn(d.x, q, -__fmul_rn(d.y, min)), acc[m][h]);
        }
    }
}

/* Sixteen sub-blocks of 16 k, an mma each; q without its 32, which the sums of the activations take off. */
template <int M>
__device__ static inline void int_q6_k(const uint8_t *r, const ix_frag &v, int lane, float (&acc)[M][2])
{
    int g = lane >> 2, t = lane & 3, c[M][4][4];
    uint32_t x[M][4];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            x[m][j] = *(const uint32_t *)(v.at + m * v.row_step + (g & 1) * IX_HI + 64 * j + 16 * (g >> 1) + 4 * t);
            c[m][j][0] = c[m][j][1] = c[m][j][2] = c[m][j][3] = 0;
        }
#pragma unroll
    for (int p = 0; p < 2; p++) {
        uint32_t a[4], b[4], fg[2], fh[2];
        two_of(fg, ((const uint2 *)(r + 2048 + lane * 16))[p]), two_of(fh, ((const uint2 *)(r + 2560 + lane * 16))[p]);
        four_of(a, ((const uint4 *)r)[p * 32 + lane]);
        four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
#pragma unroll
        for (int u = 0; u < 4; u++) {
            constexpr uint32_t N = 0x0f0f0f0fu, U = 0x30303030u;
            uint32_t f = fg[u / 2], k = fh[u / 2];
            uint32_t al = lop_or(u & 1 ? f : f << 4, U, a[u] & N), bl = lop_or(u & 1 ? k : k << 4, U, b[u] & N),
                     ah = lop_or(u & 1 ? f >> 2 : f << 2, U, a[u] >> 4 & N),
                     bh = lop_or(u & 1 ? k >> 2 : k << 2, U, b[u] >> 4 & N);
            int s = 2 * (4 * p + u);
#pragma unroll
            for (int m = 0; m < M; m++) {
                imma16(c[m][s >> 2], al, bl, g >> 1 == (s & 3) ? x[m][s >> 2] : 0);
                imma16(c[m][s >> 2], ah, bh, g >> 1 == (s & 3) + 1 ? x[m][s >> 2] : 0);
            }
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float d = __half2float(((const __half *)(r + 3328))[g + 8 * h]);
        const uint8_t *sc = r + 3072 + (g + 8 * h) * 16 + t;
#pragma unroll
        for (int m = 0; m < M; m++) {
            const uint8_t *row = v.at + m * v.row_step;
            int sum[4];
            int4 s4 = *(const int4 *)(row + IX_S16 + 16 * t);
            sum[0] = s4.x, sum[1] = s4.y, sum[2] = s4.z, sum[3] = s4.w;
            float q = 0;
#pragma unroll
            for (int j = 0; j < 4; j++)
                q = __fmaf_rn((float)((int)sc[4 * j] - 128), (float)(ix_join(c[m][j], h) - 32 * sum[j]), q);
            acc[m][h] = __fmaf_rn(__fmul_rn(d, *(const float *)(row + IX_SCALE)), q, acc[m][h]);
        }
    }
}

/* Blocks of 32 k, an mma each: eight of them (Q4_0), or four in each of two units (Q8_0). */
template <int EIGHT, int M>
__device__ static inline void int_q_0(const uint8_t *r, int frag, const ix_frag &v, int lane, float (&acc)[M][2])
{
    int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int p = 0; p < (EIGHT ? 1 : 2); p++) { /* four blocks */
        int c[M][4];
        uint32_t x[M][2];
#pragma unroll
        for (int m = 0; m < M; m++) {
            const uint8_t *row =
                v.at + m * v.row_step + (g & 1) * IX_HI + 128 * (EIGHT ? frag : p) + 32 * (g >> 1) + 4 * t;
            x[m][0] = *(const uint32_t *)row, x[m][1] = *(const uint32_t *)(row + 16);
            c[m][0] = c[m][1] = c[m][2] = c[m][3] = 0;
        }
        auto block = [&](int i, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3) {
#pragma unroll
            for (int m = 0; m < M; m++)
                imma32<1>(c[m], a0, a1, a2, a3, g >> 1 == i ? x[m][0] : 0, g >> 1 == i ? x[m][1] : 0);
        };
        constexpr uint32_t F = 0x80808080u, N = 0xf0f0f0f0u;
        if (EIGHT)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t a[4], b[4];
                four_of(a, ((const uint4 *)r)[i * 32 + lane]);
                four_of(b, ((const uint4 *)r)[(2 + i) * 32 + lane]);
                block(2 * i, a[0] ^ F, b[0] ^ F, a[1] ^ F, b[1] ^ F);
                block(2 * i + 1, a[2] ^ F, b[2] ^ F, a[3] ^ F, b[3] ^ F);
            }
        else {
            uint32_t a[4], b[4];
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
#pragma unroll
            for (int i = 0; i < 4; i++) /* 16 (q - 8) */
                block(i, (a[i] << 4 & N) ^ F, (b[i] << 4 & N) ^ F, (a[i] & N) ^ F, (b[i] & N) ^ F);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t at = EIGHT ? (g + 8 * h) * 4 + t : (g + 8 * h) * 8 + 4 * p + t;
            float d = __half2float(((const __half *)(r + 2048))[at]) * (EIGHT ? 1.f : 0.0625f);
#pragma unroll
            for (int m = 0; m < M; m++) {
                float scale = *(const float *)(v.at + m * v.row_step + IX_SCALE);
                acc[m][h] = __fmaf_rn(__fmul_rn(d, scale), (float)ix_join(c[m], h), acc[m][h]);
            }
        }
    }
}

template <int T, int M>
__device__ static inline void int_mul(const uint8_t *r, int frag, const ix_frag &v, int lane, float (&acc)[M][2])
{
    if constexpr (T == DT_Q4_K || T == DT_Q5_K)
        int_k45<T == DT_Q5_K, M>(r, v, lane, acc);
    else if constexpr (T == DT_Q6_K)
        int_q6_k<M>(r, v, lane, acc);
    else
        int_q_0<T == DT_Q8_0, M>(r, frag, v, lane, acc);
}

#endif
#endif
