/*
 * route.cuh - the arguments of route.cu's kernel, and how rows are prepared for the product with a router's weights:
 * either normed, or multiplied by the norm's weights with their tiles' sums of squares kept beside them, so that the
 * norm's factor can be applied later.
 */
#ifndef HEARTH_CUDA_EXPERTS_ROUTE_CUH
#define HEARTH_CUDA_EXPERTS_ROUTE_CUH

#include "kernels/cuda/experts/choice.cuh"
#include "kernels/cuda/experts/row.cuh"

enum {
    ROUTE_ROWS = 8, /* of a block; one warp each makes the choices */
    EARLY = 3072,   /* columns of an expert's weights that are prefetched at most */
    FOURS = 4,      /* groups of four columns that a thread loads at once */
    SOON_ROWS = 64, /* largest step whose warps have one expert each */
};

struct route_args {
    const float *w; /* [n_expert][n_in] */
    uint32_t n_in, n_expert;
    const float *bias;
    struct route_choice choice;
    struct norm norm;
    const float *x;
    uint32_t ldx;
    float *logits, *out; /* [rows][n_expert], [rows][2 n_used] */
    uint32_t *semaphore;
    const step_dev *step;
    uint32_t row0;
    float *row_gate; /* [rows], instead of a choice */
    float *product;  /* [rows][ldproduct], instead of logits and a choice: op_project's columns */
    uint32_t ldproduct;
    uint32_t gains;   /* where the norm's weights are in shared memory, in floats */
    uint32_t early;   /* columns of each expert's weights prefetched there; 0: none */
    bool bulk;        /* the prefetch is a bulk copy, else cp.async */
    route_said *said; /* [rows], or NULL: nothing is published */
    uint32_t nth;     /* said_tag() */
};

/* The mean and the factor of a row's norm, computed by one warp. */
__device__ static inline float2 row_stats(const float *x, uint32_t n, const struct norm &nm, uint32_t lane)
{
    float s = 0, mean = 0;
    if (nm.kind == NORM_NONE)
        return make_float2(0, 1);
    if (nm.kind == NORM_LAYER) {
#pragma unroll 1
        for (uint32_t k = lane * 4; k < n; k += 128) {
            float4 f = four_at(x, k, n);
            s += (f.x + f.y) + (f.z + f.w);
        }
        mean = warp_sum(s) / n;
        s = 0;
    }
#pragma unroll 2
    for (uint32_t k = lane * 4; k < n; k += 128) {
        float4 f = four_at(x, k, n);
        const float v[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            float c = k + i < n ? v[i] - mean : 0.f;
            s = fmaf(c, c, s);
        }
    }
    return make_float2(mean, rsqrtf(warp_sum(s) / n + nm.eps));
}

/* Four columns of norm(x). */
__device__ static inline float4 normed_four(const float *x, const struct norm &nm, float2 st, uint32_t k, uint32_t n)
{
    float4 f = four_at(x, k, n);
    if (nm.kind == NORM_NONE)
        return f;
    float4 w = four_at(nm.w, k, n), b = nm.b ? four_at(nm.b, k, n) : make_float4(0, 0, 0, 0);
    return make_float4(__fadd_rn(__fmul_rn(__fmul_rn(f.x - st.x, st.y), w.x), b.x),
                       __fadd_rn(__fmul_rn(__fmul_rn(f.y - st.x, st.y), w.y), b.y),
                       __fadd_rn(__fmul_rn(__fmul_rn(f.z - st.x, st.y), w.z), b.z),
                       __fadd_rn(__fmul_rn(__fmul_rn(f.w - st.x, st.y), w.w), b.w));
}

/* Loads the first FOURS groups of four of the columns that thread t of a block handles. */
__device__ static inline void take_fours(float4 v[FOURS], const float *x, uint32_t n, uint32_t t)
{
#pragma unroll
    for (uint32_t i = 0; i < FOURS; i++)
        v[i] = four_at(x, (i * ROUTE_WARPS * 32 + t) * 4, n);
}

/* tiled(): the columns of a row in shared memory, rounded up to whole tiles. tiled_room(): floats that they and the
 * tiles' sums of squares behind them take. */
__host__ __device__ static inline uint32_t tiled(uint32_t n)
{
    return (n + ROUTE_TILE - 1) / ROUTE_TILE * ROUTE_TILE;
}
__host__ __device__ static inline uint32_t tiled_room(uint32_t n)
{
    return tiled(n) + (tiled(n) / ROUTE_TILE + 3 & ~3u);
}

/* Processes the columns that thread t of a block handles (v: the first of them), together with the rest of its warp: x
 * times the norm's weights goes to `to`, and the tiles' sums of squares to `squares`. gain(k): the norm's weights of
 * columns k to k + 3. */
template <class G>
__device__ static inline void weigh(const float4 v[FOURS], const float *x, uint32_t n, uint32_t t, G gain, float *to,
                                    float *squares)
{
    uint32_t all = tiled(n);
    auto four = [&](float4 f, uint32_t k) {
        float s = dot_four(f, f, 0);
        s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 1));
        s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 2));
        if (k >= all)
            return;
        float4 w = gain(k);
        *(float4 *)(to + k) =
            make_float4(__fmul_rn(f.x, w.x), __fmul_rn(f.y, w.y), __fmul_rn(f.z, w.z), __fmul_rn(f.w, w.w));
        if (k % ROUTE_TILE == 0)
            squares[k / ROUTE_TILE] = s;
    };
    uint32_t k = t * 4, warp0 = (t & ~31u) * 4; /* the warp's first column: its lanes stay together */
#pragma unroll
    for (uint32_t i = 0; i < FOURS; i++, k += ROUTE_WARPS * 128, warp0 += ROUTE_WARPS * 128)
        if (warp0 < all)
            four(v[i], k);
    for (; warp0 < all; k += ROUTE_WARPS * 128, warp0 += ROUTE_WARPS * 128)
        four(four_at(x, k, n), k);
}
/* The norm's factor of a row that went through weigh(), computed by a warp. */
__device__ static inline float factor_of(const float *squares, uint32_t n, float eps, uint32_t lane)
{
    float s = 0;
    for (uint32_t t = lane; t < tiled(n) / ROUTE_TILE; t += 32)
        s = __fadd_rn(s, squares[t]);
    return row_factor(warp_sum(s), n, eps);
}

/* The logits and choices of all of a step's rows by the kernels for many rows (route_gemm.cu), bit-identical to
 * route_rows. Returns false, having launched nothing, where these kernels cannot take the step. */
bool route_gemm_run(struct device *d, const route_args &a);

#endif
