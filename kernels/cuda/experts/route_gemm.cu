/*
 * route_gemm.cu - op_route of many rows: the logits as a blocked product in F32, bit-identical to those of route.cu's
 * kernel.
 *
 * There are three kernels. route_weigh multiplies x by the deferred norm's weights and computes each row's factor.
 * route_product multiplies in blocks of rows x experts, of which a thread has 8 x 4, so that each load from shared
 * memory feeds 13 multiplications and additions. route_choose finishes the sums, and there a warp chooses a row's
 * experts.
 *
 * A logit's sum has the order that a single warp uses (row.cuh): lane l of 32 adds up the tiles l, l + 32 and so on,
 * and the lanes are added pairwise, those 16 apart first. Here these "lanes" are distributed: lane l belongs to slice l
 * % 4 of the grid, and with l / 4 = g + G j it is the j-th sum of thread g of the G threads that share a logit. So
 * lanes that are 16, 8 and 4 apart meet in a thread or a warp, and route_choose adds the slices, those 2 apart first.
 */
#include "kernels/cuda/experts/route.cuh"
#include "kernels/cuda/ptx.cuh"

enum {
    SLICES = 4,                       /* into which the 32 lanes' tiles are divided */
    SLICE_LANES = 32 / SLICES,        /* lanes of a slice; also the tiles of the slice in a chunk */
    CHUNK = SLICE_LANES * ROUTE_TILE, /* columns of a stage */
    STAGES = 3,                       /* chunks that are loaded or in flight */
    PRODUCT_THREADS = 256,
    ROWS_EACH = 8,    /* rows and ... */
    EXPERTS_EACH = 4, /* ... experts of a thread */
    CHOOSE_WARPS = 4,
};

/* The shape of a block of route_product, in which G threads share a logit. */
template <int G> struct shape {
    enum {
        ROW_GROUPS = G == 8 ? 4 : 8,
        EXPERT_GROUPS = PRODUCT_THREADS / G / ROW_GROUPS,
        ROWS = ROW_GROUPS * ROWS_EACH,
        EXPERTS = EXPERT_GROUPS * EXPERTS_EACH,
        SUMS = SLICE_LANES / G,           /* partial sums of a logit in a thread */
        STAGE = (ROWS + EXPERTS) * CHUNK, /* floats */
        BYTES = STAGES * STAGE * 4,
    };
};

struct gemm_route_args {
    const float *w;
    uint32_t n_in, n_expert, ld; /* ld: n_expert rounded up to a multiple of 4 */
    const float *x;
    uint32_t ldx;
    struct norm norm;
    float *weighed; /* [rows][ldw]: x times the norm's weights */
    uint32_t ldw;
    float *parts; /* [SLICES][bucket][ld]: the slices' sums */
    uint32_t bucket;
    float *out; /* [rows][2 n_used]: a row's first element holds its norm's factor until its experts are chosen */
    const float *bias;
    struct route_choice choice;
    const step_dev *step;
};

/* Grid: one block a row. */
__global__ void __launch_bounds__(ROUTE_WARPS * 32) route_weigh(const __grid_constant__ gemm_route_args a)
{
    extern __shared__ float squares[];
    uint32_t row = blockIdx.x, n = a.n_in, t = threadIdx.x;
    pdl_trigger();
    pdl_wait();
    if (row >= a.step->n_row)
        return;
    const float *x = a.x + (uint64_t)row * a.ldx;
    float4 v[FOURS];
    take_fours(v, x, n, t);
    weigh(
        v, x, n, t, [&](uint32_t k) { return four_at(a.norm.w, k, n); }, a.weighed + (uint64_t)row * a.ldw, squares);
    __syncthreads();
    if (t >= 32)
        return;
    float factor = factor_of(squares, n, a.norm.eps, t);
    if (!t)
        a.out[(uint64_t)row * 2 * a.choice.n_used] = factor;
}

/*
 * Offset of the group of four columns i of tile u in a line; a line is one chunk of a row of x or of an expert's
 * weights, and all lines begin at the same bank. Sixteen lanes that read at once have up to eight addresses, in several
 * tiles or groups of lines or both. They find them in different banks because a lane's i is XORed with (u & 2): the
 * order of the groups of four does not matter to the sum.
 */
__device__ static inline uint32_t four_place(uint32_t u, uint32_t i, uint32_t group)
{
    return 4 * (4 * u + (i ^ (group & 3)));
}

/* Issues the copies of a chunk of LINES lines, EACH of them to a group; zeros past the ends. Each warp takes every
 * eighth line. */
template <int LINES, int EACH>
__device__ static inline void ask(float *to, const float *from, uint32_t ld, uint32_t n_line, uint32_t n,
                                  uint32_t chunk)
{
    constexpr uint32_t STEP = PRODUCT_THREADS / (CHUNK / 4);
    uint32_t line = threadIdx.x / (CHUNK / 4), u = threadIdx.x / 4 % SLICE_LANES, i = threadIdx.x % 4;
    uint32_t k = ((chunk * SLICE_LANES + u) * SLICES + blockIdx.z) * ROUTE_TILE + 4 * i;
    uint32_t end = k < n ? n_line : 0;
    from += k < n ? (uint64_t)line * ld + k : 0;
    to += line * CHUNK;
#pragma unroll 2
    for (; line < LINES; line += STEP, from += STEP * ld, to += STEP * CHUNK)
        cp_async16(to + four_place(u, i, line / EACH), from, line < end);
}

/* Bit 0 of a lane selects the group of experts, bit 1 the group of rows, and the next bits the G threads of a logit:
 * loads in which lanes 1 or 2 apart have the same address are served for half a warp at once. */
template <int G>
__global__ void __launch_bounds__(PRODUCT_THREADS, 1) route_product(const __grid_constant__ gemm_route_args a)
{
    using S = shape<G>;
    extern __shared__ __align__(16) float room[];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4 % G, over = lane / 4 / G;
    constexpr uint32_t WIDE = G < 8 ? 2 : 1, HIGH = 8 / G / WIDE; /* pairs of groups that `over` selects */
    constexpr uint32_t WARPS_DOWN = S::ROW_GROUPS / (2 * HIGH);
    uint32_t rg = (warp % WARPS_DOWN * HIGH + over % HIGH) * 2 + (lane >> 1 & 1);
    uint32_t eg = (warp / WARPS_DOWN * WIDE + over / HIGH) * 2 + (lane & 1);
    uint32_t row0 = blockIdx.y * S::ROWS, expert0 = blockIdx.x * S::EXPERTS;
    uint32_t n_row = a.step->n_row; /* written before the step's kernels start */
    uint32_t n_chunk = ((a.n_in + ROUTE_TILE - 1) / ROUTE_TILE + 31) / 32;
    pdl_trigger();
    auto ask_rows = [&](uint32_t c) {
        ask<S::ROWS, ROWS_EACH>(room + c % STAGES * S::STAGE, a.weighed + (uint64_t)row0 * a.ldw, a.ldw, n_row - row0,
                                a.n_in, c);
    };
    auto ask_experts = [&](uint32_t c) {
        ask<S::EXPERTS, EXPERTS_EACH>(room + c % STAGES * S::STAGE + S::ROWS * CHUNK, a.w + (uint64_t)expert0 * a.n_in,
                                      a.n_in, a.n_expert - expert0, a.n_in, c);
    };
    if (row0 < n_row)
        for (uint32_t c = 0; c < STAGES - 1 && c < n_chunk; c++)
            ask_experts(c);
    pdl_wait();
    if (row0 >= n_row)
        return;
    for (uint32_t c = 0; c < STAGES - 1; c++) {
        if (c < n_chunk)
            ask_rows(c);
        cp_async_commit();
    }
    float s[S::SUMS][ROWS_EACH][EXPERTS_EACH] = {};
#pragma unroll 1
    for (uint32_t c = 0; c < n_chunk; c++) {
        cp_async_wait<STAGES - 2>();
        __syncthreads(); /* the chunk has arrived for all threads, and the stage of the previous chunk is no longer read
                          */
        if (c + STAGES - 1 < n_chunk) {
            ask_experts(c + STAGES - 1);
            ask_rows(c + STAGES - 1);
        }
        cp_async_commit();
        const float *xs = room + c % STAGES * S::STAGE + rg * ROWS_EACH * CHUNK;
        const float *ws = room + c % STAGES * S::STAGE + (S::ROWS + eg * EXPERTS_EACH) * CHUNK;
#pragma unroll
        for (uint32_t j = 0; j < S::SUMS; j++) {
            uint32_t u = g + G * j;
            float half[ROWS_EACH][EXPERTS_EACH];
#pragma unroll
            for (uint32_t h = 0; h < 2; h++) {
                float4 w[2][EXPERTS_EACH];
#pragma unroll
                for (uint32_t i = 0; i < 2; i++)
#pragma unroll
                    for (uint32_t e = 0; e < EXPERTS_EACH; e++)
                        w[i][e] = *(const float4 *)(ws + e * CHUNK + four_place(u, (2 * h + i) ^ (u & 2), eg));
#pragma unroll
                for (uint32_t r = 0; r < ROWS_EACH; r++) {
                    float4 x[2];
#pragma unroll
                    for (uint32_t i = 0; i < 2; i++)
                        x[i] = *(const float4 *)(xs + r * CHUNK + four_place(u, (2 * h + i) ^ (u & 2), rg));
#pragma unroll
                    for (uint32_t e = 0; e < EXPERTS_EACH; e++) {
                        float v = __fadd_rn(dot_four(w[0][e], x[0], 0), dot_four(w[1][e], x[1], 0));
                        if (h)
                            s[j][r][e] = __fadd_rn(s[j][r][e], __fadd_rn(half[r][e], v));
                        else
                            half[r][e] = v;
                    }
                }
            }
        }
    }
#pragma unroll
    for (uint32_t m = S::SUMS / 2; m; m /= 2)
#pragma unroll
        for (uint32_t j = 0; j < m; j++)
#pragma unroll
            for (uint32_t r = 0; r < ROWS_EACH; r++)
#pragma unroll
                for (uint32_t e = 0; e < EXPERTS_EACH; e++)
                    s[j][r][e] = __fadd_rn(s[j][r][e], s[j + m][r][e]);
                    /* Of the rows that two lanes still share, each lane gives half to the other and adds up the rest.
                     */
#pragma unroll
    for (uint32_t m = G / 2, rows = ROWS_EACH / 2; m; m /= 2, rows /= 2)
#pragma unroll
        for (uint32_t r = 0; r < rows; r++)
#pragma unroll
            for (uint32_t e = 0; e < EXPERTS_EACH; e++) {
                float low = s[0][r][e], high = s[0][r + rows][e];
                float other = __shfl_xor_sync(~0u, g & m ? low : high, 4 * m);
                s[0][r][e] = __fadd_rn(g & m ? high : low, other);
            }
    uint32_t e0 = expert0 + eg * EXPERTS_EACH;
#pragma unroll
    for (uint32_t r = 0; r < ROWS_EACH / G; r++) {
        uint32_t row = row0 + rg * ROWS_EACH + g * (ROWS_EACH / G) + r;
        if (row < n_row && e0 < a.ld)
            *(float4 *)(a.parts + ((uint64_t)blockIdx.z * a.bucket + row) * a.ld + e0) =
                make_float4(s[0][r][0], s[0][r][1], s[0][r][2], s[0][r][3]);
    }
}

/* One warp a row, with 4 n_expert floats of shared memory. */
__global__ void __launch_bounds__(CHOOSE_WARPS * 32) route_choose(const __grid_constant__ gemm_route_args a)
{
    extern __shared__ float room[];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.x * CHOOSE_WARPS + warp, n = a.n_expert;
    float *own = room + warp * 4 * n, *logits = own + 3 * n; /* choose() may overwrite them once it has read them */
    float *out = a.out + (uint64_t)row * 2 * a.choice.n_used;
    const float *parts = a.parts + (uint64_t)row * a.ld;
    uint64_t slice = (uint64_t)a.bucket * a.ld;
    pdl_trigger();
    pdl_wait();
    if (row >= a.step->n_row)
        return;
    float factor = __ldcg(out);
#pragma unroll 8
    for (uint32_t e = lane; e < n; e += 32) {
        float even = __fadd_rn(__ldcg(parts + e), __ldcg(parts + 2 * slice + e));
        float odd = __fadd_rn(__ldcg(parts + slice + e), __ldcg(parts + 3 * slice + e));
        float v = __fmul_rn(__fadd_rn(even, odd), factor);
        logits[e] = v + (a.bias ? a.bias[e] : 0.f);
    }
    float2 chosen = choose(
        a.choice, [&](uint32_t e) { return logits[e]; }, own, lane);
    if (lane < a.choice.n_used)
        out[lane] = chosen.x, out[a.choice.n_used + lane] = chosen.y;
}

/* --- launchers ---------------------------------------------------------------------------------------------------- */

template <int G> static dim3 grid_of(const gemm_route_args &a)
{
    using S = shape<G>;
    return dim3((a.n_expert + S::EXPERTS - 1) / S::EXPERTS, (a.bucket + S::ROWS - 1) / S::ROWS, SLICES);
}

/* An estimate of the product's time: the partial sums of a thread times the blocks that an SM runs one after the
 * other. */
template <int G> static uint32_t cost(const struct device *d, const gemm_route_args &a)
{
    dim3 grid = grid_of<G>(a);
    uint32_t blocks = grid.x * grid.y * grid.z, sms = (uint32_t)d->sms;
    return shape<G>::BYTES <= d->smem_max ? (blocks + sms - 1) / sms * shape<G>::SUMS : UINT32_MAX;
}

template <int G> static void launch(struct device *d, const gemm_route_args &a)
{
    static uint32_t done;
    if (!(done >> d->index & 1)) {
        cuda_smem(d, route_product<G>, shape<G>::BYTES);
        done |= 1u << d->index;
    }
    cuda_launch(d, route_product<G>, grid_of<G>(a), PRODUCT_THREADS, shape<G>::BYTES, LAUNCH_PDL, a);
}

bool route_gemm_run(struct device *d, const route_args &r)
{
    gemm_route_args a = {};
    a.w = r.w, a.n_in = r.n_in, a.n_expert = r.n_expert, a.ld = (r.n_expert + 3) & ~3u;
    a.x = r.x, a.ldx = r.ldx, a.norm = r.norm, a.out = r.out, a.bias = r.bias, a.choice = r.choice, a.step = r.step;
    a.weighed = d->ws.tmp, a.ldw = d->ws.ldtmp, a.parts = r.logits, a.bucket = d->bucket;
    bool room = SLICES * a.ld <= EXPERTS_MAX && tiled(a.n_in) <= a.ldw;
    bool copies = d->cc >= 80 && a.n_in % 4 == 0 && !((uintptr_t)a.w & 15);
    uint32_t of2 = cost<2>(d, a), of4 = cost<4>(d, a), of8 = cost<8>(d, a);
    if (!deferred(a.norm) || !room || !copies || of8 == UINT32_MAX)
        return false;
    uint32_t squares = tiled(a.n_in) / ROUTE_TILE;
    cuda_launch(d, route_weigh, dim3(a.bucket), ROUTE_WARPS * 32, squares * sizeof(float), LAUNCH_PDL, a);
    if (of2 <= of4 && of2 <= of8) /* at equal costs the larger blocks, which read less */
        launch<2>(d, a);
    else if (of4 <= of8)
        launch<4>(d, a);
    else
        launch<8>(d, a);
    cuda_launch(d, route_choose, dim3((a.bucket + CHOOSE_WARPS - 1) / CHOOSE_WARPS), CHOOSE_WARPS * 32,
                CHOOSE_WARPS * 4 * a.n_expert * sizeof(float), LAUNCH_PDL, a);
    return true;
}
