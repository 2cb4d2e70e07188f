/*
 * rownorm.cuh - an RMS norm over the whole output row of a product, for a single row, before it is added to the
 * residual.
 *
 * The norm's factor needs the whole row, whose tiles belong to many blocks. Each block publishes the sums of squares of
 * its pair of tiles, tagged with the number of the step and of the norm within it, and polls those of all others until
 * they have arrived: one store and one load through L2 instead of a kernel. As blocks wait for one another, all of them
 * have to be resident at once: there are no more of them than SMs, the next kernel's blocks start only when all of
 * these have, and no other kernel waits in this way (row_norms_here()).
 *
 * The order of the sum depends on the row's length alone: sixteen neighbours, then pairs of sixteens per lane, then the
 * lanes. epilogue.cu's kernel adds in the same order, bit-exactly.
 */
#ifndef HEARTH_CUDA_GEMM_ROWNORM_CUH
#define HEARTH_CUDA_GEMM_ROWNORM_CUH

#include "kernels/cuda/cuda.cuh"

enum { ROW_NORM_MAX = 4096 /* elements of a row */ };

struct row_norm {
    const float *w; /* NULL: none */
    float eps;
    uint32_t nth;     /* number of the norm, which distinguishes tags within a step */
    ulonglong2 *said; /* one slot per block: its two sums of squares, and a tag */
    bool anew;        /* the row replaces the output: there is nothing to add it to */
    float x_scale;    /* factor of the result, the residual included */
};

/* Slots that row_norm.said has per SM: experts/beside.cuh runs two blocks per SM and publishes twice. */
enum { ROW_SLOTS = 4 };

/* gemm.cu: whether kernels of this device may wait in this way; and the step's next norm, where they may. */
bool row_norms_here(const struct device *d);
struct row_norm row_norm_next(struct device *d, const struct norm *n);

/* The sum over sixteen neighbouring lanes, in each of them. */
__device__ static inline float sum16(float v)
{
#pragma unroll
    for (int i = 8; i; i /= 2)
        v = __fadd_rn(v, __shfl_xor_sync(~0u, v, i));
    return v;
}
/* The same for sixteen values: lane i of the sixteen gets the sum of v[i]. */
__device__ static inline float sum16_each(float v[16], uint32_t lane)
{
#pragma unroll
    for (int n = 8; n; n /= 2)
#pragma unroll
        for (int i = 0; i < n; i++) {
            bool upper = lane & n;
            float keep = upper ? v[i + n] : v[i], give = upper ? v[i] : v[i + n];
            v[i] = __fadd_rn(keep, __shfl_xor_sync(~0u, give, n));
        }
    return v[0];
}
/* The row's sum from each lane's share of it. */
__device__ static inline float sum_lanes(float v)
{
#pragma unroll
    for (int i = 16; i; i /= 2)
        v = __fadd_rn(v, __shfl_xor_sync(~0u, v, i));
    return v;
}

/* x + by * norm(y) for one element: f is the norm's factor, w its weight. */
__device__ static inline float row_normed(float x, float y, float f, float w, float by)
{
    return __fmaf_rn(__fmul_rn(__fmul_rn(y, f), w), by, x);
}

/* The row's sum of squares, by one warp, from n sums of sixteen. */
__device__ static inline float sum_sixteens(const float *s, uint32_t n, uint32_t lane)
{
    float sum = 0;
    for (uint32_t i = 2 * lane; i < n; i += 64)
        sum = __fadd_rn(__fadd_rn(sum, s[i]), i + 1 < n ? s[i + 1] : 0.f);
    return sum_lanes(sum);
}

#if __CUDA_ARCH__ >= 800
/*
 * The same for a row whose elements 32 blockIdx.x + lane are y, by one warp of every block of the grid. Slots are
 * written and read as 16-byte units, so that a tag and its values become visible together.
 */
__device__ static inline float row_squares(const row_norm &n, uint64_t tag, float y, uint32_t lane)
{
    enum { AT_ONCE = 5 };
    float mine = sum16(__fmul_rn(y, y)), other = __shfl_down_sync(~0u, mine, 16), sum = 0;
    if (!lane)
        asm volatile(
            "{ .reg .b128 v; mov.b128 v, {%1, %2}; st.relaxed.gpu.global.b128 [%0], v; }" ::"l"(n.said + blockIdx.x),
            "l"((uint64_t)__float_as_uint(other) << 32 | __float_as_uint(mine)), "l"(tag)
            : "memory");
#pragma unroll 1
    for (uint32_t base = 0; base < gridDim.x; base += 32 * AT_ONCE) {
        uint64_t v[AT_ONCE], t[AT_ONCE];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                uint32_t at = min(base + 32 * i + lane, gridDim.x - 1);
                asm volatile("{ .reg .b128 v; ld.relaxed.gpu.global.b128 v, [%2]; mov.b128 {%0, %1}, v; }"
                             : "=l"(v[i]), "=l"(t[i])
                             : "l"(n.said + at)
                             : "memory");
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                all = all && t[i] == tag;
        } while (!all);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (base + 32 * i + lane < gridDim.x)
                sum = __fadd_rn(__fadd_rn(sum, __uint_as_float((uint32_t)v[i])), __uint_as_float(v[i] >> 32));
    }
    __syncwarp();
    return sum_lanes(sum);
}
#endif

#endif
