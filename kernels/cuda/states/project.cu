/*
 * project.cu - the end of op_project: how the columns of ACT_MIX get there from a product made elsewhere; and products
 * with F32 matrices.
 */
#include "kernels/cuda/experts/row.cuh"
#include "kernels/cuda/said.cuh"
#include "kernels/cuda/states/states.cuh"

#include <cuda_pipeline_primitives.h>

/* Adds up the partial sums ("pieces") of columns k .. k + 3, of n, of a row, and writes them as f32. */
__device__ static inline void mix_four(const partials &s, uint32_t row, uint32_t k, uint32_t row0, uint32_t n,
                                       float *out, uint32_t ld)
{
    if (k >= n)
        return;
    float4 f = s.four(row, row0 + k);
    float *to = out + (uint64_t)row * ld + row0 + k;
    const float v[4] = {f.x, f.y, f.z, f.w};
    if (k + 4 <= n && !((uintptr_t)to & 15))
        *(float4 *)to = f;
    else
        for (uint32_t i = 0; i < 4 && k + i < n; i++)
            to[i] = v[i];
}

/* Adds up rows [row0, row0 + n) of the merged output, a part of the product. */
__global__ void pieces_to_mix(partials s, uint32_t row0, uint32_t n, float *out, uint32_t ld)
{
    pdl_trigger();
    pdl_wait();
    mix_four(s, blockIdx.y, (blockIdx.x * blockDim.x + threadIdx.x) * 4, row0, n, out, ld);
}

__global__ void rows_to_mix(const float *from, uint32_t ld_from, uint32_t n, float *out, uint32_t ld)
{
    pdl_trigger();
    pdl_wait();
    uint32_t k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n)
        out[(uint64_t)blockIdx.y * ld + k] = __ldcg(from + (uint64_t)blockIdx.y * ld_from + k);
}

/* --- by rows of F32 ------------------------------------------------------------------------------------------------
 */

/*
 * In all of these kernels a dot product is computed by one warp: its lanes take groups of four columns in turn, each in
 * one chain of sums, which are then added pairwise. The squares of a row are summed as if by ROUTE_WARPS warps, whose
 * sums are added in order. So a product is bit-identical in each of these kernels. Matrices that they cannot take go
 * through route.cu, in all rows, with a different order of sums.
 */
struct plain_args {
    const float *w; /* [n_out][n] */
    uint32_t n, n_out;
    struct norm norm;
    const float *x;
    uint32_t ldx;
    const step_dev *step;
    float *out;
    uint32_t ld;
    const ulonglong2 *x_said; /* published when x is complete; NULL: x is complete when pdl_wait returns */
    uint32_t x_nth;           /* said_tag() */
    /* plain_few: in each row of the grid, the blocks after the first `blocks` add up another product's partial sums,
     * n_mix columns, into `mix` */
    uint32_t blocks, n_mix;
    partials pieces;
    float *mix;
};

/* Multiplies a row by the norm's weights into `to`, with one warp; returns the norm's factor. SHARED: row and weights
 * are in shared memory, where `to` may be the row itself. */
template <bool SHARED>
__device__ static inline float weigh_row(const float *x, uint32_t n, const float *gain, float eps, float *to,
                                         uint32_t lane)
{
    float s[ROUTE_WARPS] = {}, squares = 0;
#pragma unroll 1
    for (uint32_t k0 = lane * 4; k0 < n; k0 += ROUTE_WARPS * 128) {
        float4 f[ROUTE_WARPS], g[ROUTE_WARPS];
#pragma unroll
        for (uint32_t v = 0; v < ROUTE_WARPS; v++)
            f[v] = k0 + v * 128 >= n ? make_float4(0, 0, 0, 0)
                   : SHARED          ? *(const float4 *)(x + k0 + v * 128)
                                     : __ldcg((const float4 *)(x + k0 + v * 128));
#pragma unroll
        for (uint32_t v = 0; v < ROUTE_WARPS; v++)
            g[v] = k0 + v * 128 < n ? *(const float4 *)(gain + k0 + v * 128) : make_float4(0, 0, 0, 0);
#pragma unroll
        for (uint32_t v = 0; v < ROUTE_WARPS; v++) {
            s[v] = dot_four(f[v], f[v], s[v]);
            if (k0 + v * 128 < n)
                *(float4 *)(to + k0 + v * 128) = make_float4(__fmul_rn(f[v].x, g[v].x), __fmul_rn(f[v].y, g[v].y),
                                                             __fmul_rn(f[v].z, g[v].z), __fmul_rn(f[v].w, g[v].w));
        }
    }
#pragma unroll
    for (uint32_t v = 0; v < ROUTE_WARPS; v++)
        squares += warp_sum(s[v]);
    return row_factor(squares, n, eps);
}

/*
 * A block has ROWS rows, and each warp computes one dot product for each of them. The matrix does not depend on an
 * earlier kernel, so its loads are issued before griddepcontrol.wait: EARLY groups of four of a lane into registers,
 * the rest prefetched into L2. Dynamic shared memory: the rows, which are replaced by the rows times the norm's
 * weights, and those weights. All rows are copied at once, as each trip to L2 queues behind weights of the next
 * kernel's product.
 */
enum { FEW_WARPS = 4, FEW_EARLY = 16, LONG_EARLY = 40 /* all of a row of 5,120 */ };
template <int ROWS, int EARLY>
__global__ void __launch_bounds__(FEW_WARPS * 32) plain_few(const __grid_constant__ plain_args a)
{
    extern __shared__ __align__(16) float room[];
    __shared__ float factor[ROWS], squares[ROUTE_WARPS];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = a.n, row0 = blockIdx.y * ROWS, n_row = a.step->n_row;
    uint32_t o = blockIdx.x * FEW_WARPS + warp, rows = n_row > row0 ? min((uint32_t)ROWS, n_row - row0) : 0;
    const float *w = a.w + (uint64_t)min(o, a.n_out - 1) * n + lane * 4;
    float4 early[EARLY];
    pdl_trigger();
    if (blockIdx.x >= a.blocks) {
        uint32_t each = (a.n_mix + FEW_WARPS * 128 - 1) / (FEW_WARPS * 128), i = blockIdx.x - a.blocks;
        pdl_wait();
        if (i / each < rows)
            mix_four(a.pieces, row0 + i / each, (i % each * FEW_WARPS * 32 + threadIdx.x) * 4, 0, a.n_mix, a.mix, a.ld);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < EARLY; i++)
        early[i] = lane * 4 + i * 128 < n ? __ldg((const float4 *)(w + i * 128)) : make_float4(0, 0, 0, 0);
    for (uint32_t k = EARLY * 128 + lane * 32; k < n; k += 1024) /* one line of 128 bytes each */
        asm volatile("prefetch.global.L2 [%0];" ::"l"(w - lane * 4 + k));
    /* until the barrier a thread reads only what it copied itself */
    auto copy = [&](float *to, const float *from) {
        for (uint32_t k = threadIdx.x * 4; k < n; k += FEW_WARPS * 128)
            __pipeline_memcpy_async(to + k, from + k, 16);
    };
    copy(room + ROWS * n, a.norm.w);
#if __CUDA_ARCH__ >= 800
    if (a.x_said) {
        if (!threadIdx.x)
            hear(a.x_said, said_tag(a.step, a.x_nth));
        __syncthreads();
    } else
#endif
        pdl_wait();
    if (rows)
#pragma unroll 1
        for (uint32_t r = 0; r < ROWS; r++) /* missing rows repeat the last one */
            copy(room + r * n, a.x + (uint64_t)(row0 + min(r, rows - 1)) * a.ldx);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    if (!rows) {
        pdl_wait();
        return;
    }
    if (ROWS == 1) {
        float s[2] = {0, 0}; /* a warp has the sums of two of the ROUTE_WARPS warps */
        auto four = [&](uint32_t k, float &s) {
            float4 f = *(float4 *)(room + k), g = *(float4 *)(room + n + k);
            s = dot_four(f, f, s);
            *(float4 *)(room + k) =
                make_float4(__fmul_rn(f.x, g.x), __fmul_rn(f.y, g.y), __fmul_rn(f.z, g.z), __fmul_rn(f.w, g.w));
        };
#pragma unroll 2
        for (uint32_t k = threadIdx.x * 4; k < n; k += 2 * FEW_WARPS * 128) {
            four(k, s[0]);
            if (k + FEW_WARPS * 128 < n)
                four(k + FEW_WARPS * 128, s[1]);
        }
        s[0] = warp_sum(s[0]), s[1] = warp_sum(s[1]);
        if (!lane)
            squares[warp] = s[0], squares[FEW_WARPS + warp] = s[1];
        __syncthreads();
        float sum = 0;
#pragma unroll
        for (int v = 0; v < ROUTE_WARPS; v++)
            sum += squares[v];
        factor[0] = row_factor(sum, n, a.norm.eps); /* all threads write the same value */
    } else {
        __syncthreads();
        for (uint32_t r = warp; r < ROWS; r += FEW_WARPS)
            factor[r] = weigh_row<true>(room + r * n, n, room + ROWS * n, a.norm.eps, room + r * n, lane);
        __syncthreads();
    }
    float s[ROWS] = {};
    auto add = [&](float4 f, uint32_t k) {
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++)
            s[r] = dot_four(f, *(const float4 *)(room + r * n + k), s[r]);
    };
#pragma unroll
    for (uint32_t i = 0; i < EARLY; i++)
        if (lane * 4 + i * 128 < n)
            add(early[i], lane * 4 + i * 128);
#pragma unroll 8
    for (uint32_t k = EARLY * 128; k + lane * 4 < n; k += 128)
        add(__ldg((const float4 *)(w + k)), k + lane * 4);
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++) {
        float v = warp_sum(s[r]);
        if (!lane && o < a.n_out && r < rows)
            a.out[(uint64_t)(row0 + r) * a.ld + o] = __fmul_rn(v, factor[r]);
    }
    pdl_wait();
}

/* A block has MANY_ROWS rows and each warp MANY_OUT rows of the matrix, so that what it reads of one serves all of the
 * other. Dynamic shared memory: the rows times the norm's weights. */
enum { MANY_WARPS = 8, MANY_ROWS = 8, MANY_OUT = 6 };
static_assert((int)MANY_ROWS == (int)MANY_WARPS, "a warp makes a row");
__global__ void __launch_bounds__(MANY_WARPS * 32, 1) plain_many(const __grid_constant__ plain_args a)
{
    extern __shared__ __align__(16) float room[];
    __shared__ float factor[MANY_ROWS];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = a.n, row0 = blockIdx.y * MANY_ROWS,
             n_row = a.step->n_row, first = (blockIdx.x * MANY_WARPS + warp) * MANY_OUT;
    pdl_trigger();
    pdl_wait();
    if (row0 >= n_row)
        return;
    factor[warp] = weigh_row<false>(a.x + (uint64_t)min(row0 + warp, n_row - 1) * a.ldx, n, a.norm.w, a.norm.eps,
                                    room + warp * n, lane);
    __syncthreads();
    if (first >= a.n_out)
        return;
    const float *of[MANY_OUT];
    float s[MANY_OUT][MANY_ROWS] = {};
    float4 next[2][MANY_OUT]; /* two steps ahead */
    auto fetch = [&](float4(&to)[MANY_OUT], uint32_t k) {
#pragma unroll
        for (uint32_t j = 0; j < MANY_OUT; j++)
            to[j] = k + lane * 4 < n ? __ldg((const float4 *)(of[j] + k)) : make_float4(0, 0, 0, 0);
    };
#pragma unroll
    for (uint32_t j = 0; j < MANY_OUT; j++)
        of[j] = a.w + (uint64_t)min(first + j, a.n_out - 1) * n + lane * 4;
    fetch(next[0], 0), fetch(next[1], 128);
    auto step = [&](float4(&w)[MANY_OUT], uint32_t k) {
        float4 now[MANY_OUT];
#pragma unroll
        for (uint32_t j = 0; j < MANY_OUT; j++)
            now[j] = w[j];
        fetch(w, k + 256);
        if (k + lane * 4 < n)
#pragma unroll
            for (uint32_t r = 0; r < MANY_ROWS; r++) {
                float4 f = *(const float4 *)(room + r * n + k + lane * 4);
#pragma unroll
                for (uint32_t j = 0; j < MANY_OUT; j++)
                    s[j][r] = dot_four(now[j], f, s[j][r]);
            }
    };
#pragma unroll 1
    for (uint32_t k = 0; k < n; k += 256)
        step(next[0], k), step(next[1], k + 128);
#pragma unroll
    for (uint32_t j = 0; j < MANY_OUT; j++)
#pragma unroll
        for (uint32_t r = 0; r < MANY_ROWS; r++) {
            float v = warp_sum(s[j][r]);
            if (!lane && first + j < a.n_out && row0 + r < n_row)
                a.out[(uint64_t)(row0 + r) * a.ld + first + j] = __fmul_rn(v, factor[r]);
        }
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

bool project_begin(struct device *d, const struct op_project *op)
{
    uint64_t end = (uint64_t)op->at + op->w->n_out;
    if (end > op->width || op->width > d->ws.dims.d_mix)
        cuda_refuse(d, HEARTH_EPARAMS, "columns %u to %llu of a projection of %u: the workspace has %u", op->at,
                    (unsigned long long)end, op->width, d->ws.dims.d_mix);
    d->mix_cols = op->width;
    return !d->err.code;
}

void project_pieces(struct device *d, const partials *s, uint32_t row0, uint32_t n, uint32_t at, uint32_t bucket)
{
    cuda_launch(d, pieces_to_mix, dim3((n + 1023) / 1024, bucket), 256, 0, LAUNCH_PDL, *s, row0, n, d->ws.mix + at,
                d->ws.ldmix);
}

void project_tmp(struct device *d, uint32_t n, uint32_t at, uint32_t bucket)
{
    cuda_launch(d, rows_to_mix, dim3((n + 255) / 256, bucket), 256, 0, LAUNCH_PDL, d->ws.tmp, d->ws.ldtmp, n,
                d->ws.mix + at, d->ws.ldmix);
}

template <typename K>
static void plain_launch(struct device *d, K *k, const plain_args &a, uint32_t outs, uint32_t rows, uint32_t threads,
                         uint32_t smem, uint32_t *done)
{
    if (!(*done >> d->index & 1)) {
        cuda_smem(d, k, d->smem_max - 1024); /* leaves room for the static part */
        *done |= 1u << d->index;
    }
    uint32_t more = a.n_mix ? (a.n_mix + FEW_WARPS * 128 - 1) / (FEW_WARPS * 128) * rows : 0;
    cuda_launch(d, k, dim3((a.n_out + outs - 1) / outs + more, (d->bucket + rows - 1) / rows), threads, smem,
                LAUNCH_PDL, a);
}

template <int ROWS> static void few_launch(struct device *d, const plain_args &a, uint32_t done[2])
{
    uint32_t smem = (ROWS + 1) * a.n * sizeof(float);
    if (a.n <= FEW_EARLY * 128)
        plain_launch(d, plain_few<ROWS, FEW_EARLY>, a, FEW_WARPS, ROWS, FEW_WARPS * 32, smem, &done[0]);
    else
        plain_launch(d, plain_few<ROWS, LONG_EARLY>, a, FEW_WARPS, ROWS, FEW_WARPS * 32, smem, &done[1]);
}

void project_plain(struct device *d, struct op_call *p, const struct op *o)
{
    project_told(d, p, o, NULL, 0);
}

static plain_args plain_of(struct device *d, const struct op_project *op)
{
    const wdev *w = wdev_of(op->w);
    plain_args a = {};
    a.w = (const float *)w->part[0].raw, a.n = w->n_in, a.n_out = w->n_out;
    a.norm = op->norm, a.x = d->ws.x, a.ldx = d->ws.ldx, a.step = d->step;
    a.out = d->ws.mix + op->at, a.ld = d->ws.ldmix, a.blocks = ~0u;
    return a;
}

/* The blocks that add up partial sums are given shared memory that they do not use, so their number and its size are
 * kept small. */
enum { BESIDE_ROWS = 32, BESIDE_SMEM = 48 << 10 };

bool project_beside(struct device *d, struct op_call *p, const partials *s, uint32_t n, uint32_t at)
{
    static uint32_t done[2];
    const struct op *o = p->next;
    if (!o || o->kind != OP_PROJECT || !wdev_of(o->project.w)->plain || !deferred(o->project.norm) ||
        d->bucket <= GEMV_ROWS || d->bucket > BESIDE_ROWS)
        return false;
    plain_args a = plain_of(d, &o->project);
    if (a.n % 4 || (FEW_WARPS + 1) * a.n * sizeof(float) > BESIDE_SMEM || !project_begin(d, &o->project))
        return false;
    a.blocks = (a.n_out + FEW_WARPS - 1) / FEW_WARPS, a.n_mix = n, a.pieces = *s, a.mix = d->ws.mix + at;
    few_launch<FEW_WARPS>(d, a, done);
    p->projected = o;
    return true;
}

void project_told(struct device *d, struct op_call *p, const struct op *o, const ulonglong2 *x_said, uint32_t x_nth)
{
    static uint32_t done[5];
    const struct op_project *op = &o->project;
    const wdev *w = wdev_of(op->w);
    if (o == p->projected) /* computed in the launch of the op before it */
        return;
    if (!project_begin(d, op))
        return;
    plain_args a = plain_of(d, op);
    a.x_said = x_said, a.x_nth = x_nth;
    uint32_t room = d->smem_max - 1024, row = w->n_in * sizeof(float);
    bool can = w->n_in % 4 == 0 && deferred(op->norm) && 2 * row <= room;
    if (can && d->bucket > GEMM_ROWS && MANY_ROWS * row <= room)
        plain_launch(d, plain_many, a, MANY_WARPS * MANY_OUT, MANY_ROWS, MANY_WARPS * 32, MANY_ROWS * row, &done[0]);
    else if (can && d->bucket > GEMV_ROWS && (FEW_WARPS + 1) * row <= room)
        few_launch<FEW_WARPS>(d, a, done + 1);
    else if (can)
        few_launch<1>(d, a, done + 3);
    else
        route_project(d, op);
}
