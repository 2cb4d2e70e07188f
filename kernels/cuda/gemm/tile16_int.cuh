/*
 * tile16_int.cuh - fragments of T16 weights times activations in integers: what gemv.cuh multiplies with.
 *
 * A record of 256 activations is scale * X, X being integers of 16 bits with |X| <= 32639, stored as two planes of
 * int8: X = 256 hi + lo. That is finer than fp16: an element's error is at most 2^-16 of the record's greatest element,
 * where fp16 loses 2^-12 of every element. In return mma.m16n8k32 on int8 costs half of what fp16 does, a nibble
 * becomes a byte with one AND, and sums within a sub-block are exact, so that only scaled sub-blocks are rounded.
 *
 * One row fills an mma's eight columns (in four.cuh, four rows do): column 2c + plane has that plane of the sub-blocks
 * that belong to c, and zeros elsewhere. So a column's sum is that of one sub-block, and it comes out in the lane
 * (g, t = c) that is to scale it:
 *   Q4_K, Q5_K: the k of lanes t are sub-blocks 2t and 2t + 1 (tile16.cuh): only lanes with g >> 1 == t have anything
 *     other than zero. The low nibbles (2t) are summed apart from the high ones (2t + 1).
 *   others: an mma is 16 or 32 k of one scale; the lanes with g >> 1 == (its number) % 4 have the activations.
 * So a lane's sums are of rows g and g + 8 and of a quarter of the sub-blocks; the four quarters are added last.
 */
#ifndef HEARTH_CUDA_GEMM_TILE16_INT_CUH
#define HEARTH_CUDA_GEMM_TILE16_INT_CUH

#include "kernels/cuda/gemm/tile16.cuh"

/* A record of a row in shared memory, offsets in bytes. The planes are 320 bytes apart so that they hit different
 * banks. */
enum {
    IX_LO = 0,
    IX_S16 = 256, /* sums of 16 elements, int32; that of elements 64j + 16t .. is at [t][j] */
    IX_HI = 320,
    IX_S32 = 576, /* sums of 32, int32 [8] */
    IX_SCALE = 608,
    IX_KBLK = 624,
    IX_MAX = 32639, /* 127 * 256 + 127 */
};

#if __CUDA_ARCH__ >= 800

/* c += a * b over 32 k; a has unsigned or signed bytes of rows g (a0, a2) and g + 8 (a1, a3). */
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
 * Converts a record, by one warp; v is the lane's elements 8 lane + 0..7 of it. A record that contains an infinity
 * counts as zeros; one that contains NaN gets NaN as its scale, as no sum of integers can be NaN.
 */
__device__ static inline void int_quantize(uint8_t *kblk, uint32_t lane, const float (&v)[8])
{
    float most[8], top, by;
#pragma unroll
    for (int i = 0; i < 8; i++)
        most[i] = fabsf(v[i]);
#pragma unroll
    for (int n = 4; n; n /= 2) /* a tree, for short dependency chains */
#pragma unroll
        for (int i = 0; i < n; i++)
            most[i] = max_nan(most[i], most[i + n]);
    top = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most[0]))); /* as bits NaN is above all numbers */
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
        *(float *)(kblk + IX_SCALE) = fine ? top * (1.f / IX_MAX) : isnan(top) ? top : 0.f;
}

/* --- units ------------------------------------------------------------------------------------------------------ */

/* Where a lane reads a record of its rows' activations: `at` for all lanes' elements; `own` for Q4_K and Q5_K, which
 * points to zeros, and then does not advance (own_step 0), where the lane's column has nothing. Rows are row_step
 * apart. */
struct ix_frag {
    const uint8_t *at, *own;
    uint32_t row_step, own_step;
};

/*
 * The lane's activations where block i is its own (g >> 1 == i), zeros elsewhere, computed as a product: a select would
 * go to the pipe that unpacks weights, which is the bottleneck for types of few bits, whereas this goes to the
 * multiply-add pipe.
 */
struct ix_own {
    uint32_t one[4]; /* 1 or 0 */
    __device__ explicit ix_own(int g)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            one[i] = g >> 1 == i;
            asm("" : "+r"(one[i])); /* keeps the compiler from turning the product into a select */
        }
    }
    __device__ uint32_t of(uint32_t x, int i) const
    {
        return x * one[i];
    }
};

__device__ static inline int ix_join(const int *c, int h) /* joins both planes of row g (0) or g + 8 (1) */
{
    return c[2 * h + 1] * 256 + c[2 * h];
}

#endif
#endif
