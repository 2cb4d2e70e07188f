/*
 * chunk.cuh - what the kernels of chunks share (chunk.cu says what they compute): where a chunk is and how its rows are
 * laid out, and products of matrices whose elements are split into two fp16 numbers.
 */
#ifndef HEARTH_CUDA_STATES_CHUNK_CUH
#define HEARTH_CUDA_STATES_CHUNK_CUH

#include "kernels/cuda/states/recur.cuh"

enum { ROWS = 64 /* of a chunk */, D = 128 /* rows and columns of S */ };

/* Factors that bring numbers of at most 1, and q's of at most 1 / sqrt(D), into fp16's range. */
#define CHUNK_K 256.f
#define CHUNK_Q 4096.f

/* --- tensor cores ----------------------------------------------------------------------------------------------- */

/* Row r, piece c of 8 halves, of a matrix in shared memory with W pieces a row, swizzled so that the same piece of
 * eight consecutive rows lies in different banks. */
template <int W> __device__ static inline __half *piece(__half *m, uint32_t r, uint32_t c)
{
    return m + (r * W + (c ^ (r & 7))) * 8;
}
template <bool TRANS> __device__ static inline void matrices(uint32_t r[4], const __half *at)
{
    if (TRANS)
        ldm4t(r, smem_of(at));
    else
        ldm4(r, smem_of(at));
}
__device__ static inline void mma(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    mma16816(c, a[0], a[1], a[2], a[3], b[0], b[1]);
}

/* Splits two numbers into two fp16 numbers each, x = hi + lo. */
__device__ static inline void split(float x, float y, uint32_t &hi, uint32_t &lo)
{
    __half2 h = __floats2half2_rn(x, y);
    float2 f = __half22float2(h);
    __half2 l = __floats2half2_rn(x - f.x, y - f.y);
    hi = *(uint32_t *)&h, lo = *(uint32_t *)&l;
}
/* The left operand of a product: 16 rows by 16 of k. */
struct left {
    uint32_t hi[4], lo[4];

    /* Makes it from accumulators of 16 by 8 and their right neighbours, multiplied by `by`. */
    __device__ void of_sums(const float x[4], const float y[4], float by)
    {
        split(x[0] * by, x[1] * by, hi[0], lo[0]);
        split(x[2] * by, x[3] * by, hi[1], lo[1]);
        split(y[0] * by, y[1] * by, hi[2], lo[2]);
        split(y[2] * by, y[3] * by, hi[3], lo[3]);
    }
};
/* Adds the products of a with N right operands of 16 by 16 to c, whose accumulators are of 16 by 8, two neighbours for
 * each operand. at(n) points to the lane's piece of hi of the n-th operand; its lo lies `lo` halves further. TRANS: the
 * right operand is stored [k][n], not [n][k]. The three products of an accumulator are issued far apart, as each waits
 * for the previous one. */
template <int N, bool TRANS, class F>
__device__ static inline void add16(float (*c)[4], const left &a, uint32_t lo, F at)
{
    uint32_t h[N][4], l[N][4];
#pragma unroll
    for (int n = 0; n < N; n++)
        matrices<TRANS>(h[n], at(n));
#pragma unroll
    for (int n = 0; n < N; n++)
        mma(c[2 * n], a.hi, h[n]), mma(c[2 * n + 1], a.hi, h[n] + 2);
#pragma unroll
    for (int n = 0; n < N; n++)
        matrices<TRANS>(l[n], at(n) + lo);
#pragma unroll
    for (int n = 0; n < N; n++)
        mma(c[2 * n], a.lo, h[n]), mma(c[2 * n + 1], a.lo, h[n] + 2);
#pragma unroll
    for (int n = 0; n < N; n++)
        mma(c[2 * n], a.hi, l[n]), mma(c[2 * n + 1], a.hi, l[n] + 2);
}

/* The same in TF32, for numbers of any magnitude: an accumulator of 16 by 8 is the left operand for 8 of k. The right
 * operand is a lower triangle, of which the columns 8 K .. 8 K + 7 are multiplied only in rows 8 K and below. Columns 2
 * t and 2 t + 1 of a lane serve as k = t and t + 4 on both sides. */
__device__ static inline void mma_tf32(float c[4], const uint32_t a[4], const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
__device__ static inline void split_tf32(float x, uint32_t &hi, uint32_t &lo)
{
    hi = (__float_as_uint(x) + 0x1000) & 0xffffe000; /* rounds to nearest: tensor cores would truncate */
    lo = __float_as_uint(x - __uint_as_float(hi));
}
/* Row r, piece c of 4 floats, of a triangular matrix in shared memory. */
__device__ static inline float *four(float *m, uint32_t r, uint32_t c)
{
    return m + r * ROWS + (c ^ (r & 7) << 1) * 4;
}
template <int K> __device__ static inline void add_below(float (&c)[ROWS / 8][4], const float x[4], float *m)
{
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t hi[4], lo[4];
    float2 b[ROWS / 8];
    split_tf32(x[0], hi[0], lo[0]), split_tf32(x[2], hi[1], lo[1]);
    split_tf32(x[1], hi[2], lo[2]), split_tf32(x[3], hi[3], lo[3]);
#pragma unroll
    for (int n = K; n < ROWS / 8; n++)
        b[n] = *(const float2 *)(four(m, 8 * n + g, 2 * K + t / 2) + t % 2 * 2);
#pragma unroll
    for (int term = 0; term < 3; term++)
#pragma unroll
        for (int n = K; n < ROWS / 8; n++) {
            uint32_t h[2], l[2];
            split_tf32(b[n].x, h[0], l[0]), split_tf32(b[n].y, h[1], l[1]);
            mma_tf32(c[n], term == 1 ? lo : hi, term == 2 ? l : h);
        }
}
__device__ static inline void add_triangle(float (&c)[ROWS / 8][4], const float (&x)[ROWS / 8][4], float *m)
{
    add_below<0>(c, x[0], m), add_below<1>(c, x[1], m), add_below<2>(c, x[2], m), add_below<3>(c, x[3], m);
    add_below<4>(c, x[4], m), add_below<5>(c, x[5], m), add_below<6>(c, x[6], m), add_below<7>(c, x[7], m);
}

/* --- chunks ----------------------------------------------------------------------------------------------------- */

struct chunk {
    uint32_t row0, n; /* the chunk's first row in the step, and its number of rows */
    uint32_t seq, at; /* its sequence, and the first row's number among the sequence's rows of the step */
};
/* The step's chunk `which`; n is 0 if there is no such chunk. */
__device__ static inline chunk chunk_at(const step_dev *s, uint32_t which)
{
    for (uint32_t seq = 0; seq < s->n_seq; seq++) {
        uint32_t n = s->n_rows[seq], chunks = n < CHUNK_LEAST ? 0 : (n + ROWS - 1) / ROWS;
        if (which < chunks)
            return {s->row0[seq] + which * ROWS, min((uint32_t)ROWS, n - which * ROWS), seq, which * ROWS};
        which -= chunks;
    }
    return {0, 0, 0, 0};
}
/* What a row holds besides q, k and v: for each head the row's rows of T and P (made_of), and two numbers
 * (gates_of_row). */
__device__ static inline float *made_of(const recur_args &a, uint32_t row, uint32_t head)
{
    return a.made + (uint64_t)row * a.ldmade + a.n_channel + head * (uint32_t)D;
}
__device__ static inline float2 *gates_of_row(const recur_args &a, uint32_t row, uint32_t head)
{
    return (float2 *)(a.made + (uint64_t)row * a.ldmade + a.n_channel + a.n_v * (uint32_t)D) + head;
}
/* e^x in the encoding of a row's gates: where more than half is kept, e^x - 1, which is at most 0; else e^x, which is
 * greater than 0. */
__device__ static inline float kept(double x)
{
    return x > -0.69 && x <= 0 ? expm1f((float)x) : fmaxf(expf((float)x), 1e-37f);
}
/* Multiplies x by a factor in that encoding. */
struct keeps {
    float by, all;
    __device__ explicit keeps(float of) : by(of), all(of > 0 ? 0.f : 1.f)
    {
    }
    __device__ float of(float x) const
    {
        return fmaf(by, x, all * x);
    }
};
__device__ static inline bool no_number(uint32_t bits)
{
    return (bits & 0x7f800000) == 0x7f800000;
}

/* chunk_within.cu: computes q, k, v, T and P of all chunks of the step. */
void delta_chunks_within(struct device *d, const recur_args &a);

#endif
