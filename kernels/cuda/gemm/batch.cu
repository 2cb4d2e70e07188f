/*
 * batch.cu - gemv's products for 5 to 64 rows on Hopper: conversion of rows to planes of integers, the product
 * (batch.cuh), and its epilogue, by gemv's own operations in gemv's order, so that a row has the bits that it has in a
 * batch of its own.
 */
#include "kernels/cuda/gemm/batch.cuh"
#include "kernels/cuda/gemm/gemv_launch.cuh"
#include "kernels/cuda/gemm/items.cuh"
#include "kernels/cuda/local.cuh"
#include "kernels/cuda/plan.cuh"

/* Where rows are stored as planes. */
struct batch_planes {
    uint8_t *planes, *more;
    uint32_t rows, n_kblk; /* rows: R, rows per block; n_kblk: records of a row */
};

/* Stores record r of a row, as int_quantize() left it at `ix`, by one warp. */
__device__ static inline void batch_store(const batch_planes &o, const uint8_t *ix, uint32_t r, uint32_t row,
                                          uint32_t lane)
{
    uint32_t n = 2 * o.rows;
    r += row / o.rows * o.n_kblk, row %= o.rows;
#pragma unroll
    for (uint32_t p = 0; p < 2; p++) {
        uint32_t col = batch_column(row, p);
        uint2 w = *(const uint2 *)(ix + (p ? IX_HI : IX_LO) + 8 * lane);
        __half h[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
            h[j] = __int2half_rn((int8_t)((j < 4 ? w.x : w.y) >> 8 * (j & 3)));
#pragma unroll
        for (uint32_t c = 0; c < 2; c++) { /* alternate elements */
            __half e[4] = {h[c], h[c + 2], h[c + 4], h[c + 6]};
            __half *to = (__half *)(o.planes + (uint64_t)r * n * 512) + (((lane >> 1) * 2 + c) * n + col) * 8;
            *(uint2 *)(to + (lane & 1) * 4) = *(const uint2 *)e;
        }
    }
    uint8_t *more = o.more + (uint64_t)r * n * 18;
    if (lane < 8) {
        int s = ((const int *)(ix + IX_S32))[lane], a = (s + 512) >> 10;
        ((__half *)more)[batch_column(row, 0) * 8 + lane] = __int2half_rn(s - 1024 * a);
        ((__half *)more)[batch_column(row, 1) * 8 + lane] = __int2half_rn(a);
    }
    if (!lane)
        ((float *)(more + n * 16))[row] = *(const float *)(ix + IX_SCALE);
}

/* Converts prepared rows, one warp per record. */
__global__ void __launch_bounds__(CONSUMERS)
    batch_prepared(const __half *x, uint32_t n, uint32_t row0, batch_planes out)
{
#if __CUDA_ARCH__ >= 900
    __shared__ __align__(16) uint8_t records[WARPS][IX_KBLK];
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = blockIdx.y * WARPS + warp, row = blockIdx.x;
    pdl_trigger();
    pdl_wait();
    if (r * 256 >= n)
        return;
    gemv_quantize<1>(x + (row0 + row) * XFRAG_KBLK + (uint64_t)r * XFRAG_STRIDE + eight_at(lane), n, r, r + 1,
                     records[warp] - r * IX_KBLK, lane);
    __syncwarp();
    batch_store(out, records[warp], r, row, lane);
#endif
}

/* Where the partial sums (pieces) of a product are, and the sums of squares of the norm before it. */
struct batch_sum {
    const float *pieces;
    const float *squares; /* [row][slice of K], or NULL: no norm */
    uint32_t k;           /* elements of a row */
    float eps;
    uint32_t group0[3], rows, n; /* rows: of all blocks; n: partial sums of a group, 1, 8 or 16 */

    __device__ uint64_t piece() const
    {
        return (uint64_t)rows * BATCH_TILES * 16;
    }
    /* The norm's factor of a row. Its few bytes are wanted by many warps at once, which L2 serves one after the other:
     * so there are few loads of them. */
    __device__ float factor(uint32_t row) const
    {
        static_assert(K_SLICES == 8, "two loads of four");
        const float4 *at = (const float4 *)(squares + row * K_SLICES);
        float4 v[2] = {__ldcg(at), __ldcg(at + 1)};
        float q = 0;
#pragma unroll
        for (int i = 0; i < 2; i++)
            q = __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(q, v[i].x), v[i].y), v[i].z), v[i].w);
        return rsqrtf(__fadd_rn(q / k, eps));
    }
    /* Adds, for W neighbouring outputs, what gemv's warps sum: the first half of the partial sums, the second half,
     * then both. */
    template <int W> __device__ void add(const float *at, float (&sum)[W]) const
    {
        if (n == 1) {
            load<W>(at, sum);
            return;
        }
        float half[2][W] = {};
        for (uint32_t i = 0; i < n; i += K_SLICES) {
            float v[K_SLICES][W];
#pragma unroll
            for (int j = 0; j < K_SLICES; j++)
                load<W>(at + (i + j) * piece(), v[j]);
#pragma unroll
            for (int j = 0; j < K_SLICES; j++)
#pragma unroll
                for (int k = 0; k < W; k++)
                    if (n == K_SLICES ? j >= K_SLICES / 2 : i > 0)
                        half[1][k] = __fadd_rn(half[1][k], v[j][k]);
                    else
                        half[0][k] = __fadd_rn(half[0][k], v[j][k]);
        }
#pragma unroll
        for (int k = 0; k < W; k++)
            sum[k] = __fadd_rn(half[0][k], half[1][k]);
    }
    template <int W> __device__ static void load(const float *at, float (&v)[W])
    {
        if constexpr (W == 4) {
            float4 f = __ldcg((const float4 *)at);
            v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
        } else
#pragma unroll
            for (int i = 0; i < W; i++)
                v[i] = __ldcg(at + i);
    }
};

/*
 * Handles a slice of K of a row: with ADD, a product is added to the residual stream; then, where there is a norm, the
 * row becomes planes of norm(x) without the norm's factor, and the slice's sum of squares goes to squares[row][slice],
 * as a warp of gemv computes it.
 */
enum { BATCH_NORM_THREADS = 128 };
struct batch_row {
    float *x;
    uint32_t ldx, n, row0;
    const uint32_t *gather;
    const float *bias; /* the product's */
    float scale;
    const float *norm; /* weights, or NULL */
    float *squares;
};
template <bool ADD>
__global__ void __launch_bounds__(BATCH_NORM_THREADS) batch_norm(batch_row a, batch_sum s, batch_planes out)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) uint8_t sm[];
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n_kblk = (a.n + 255) / 256, row = blockIdx.x,
             slice = blockIdx.y, r0 = t16_slice(n_kblk, slice), r1 = t16_slice(n_kblk, slice + 1);
    uint8_t *record = sm + warp * IX_KBLK;
    float *x = (float *)(sm + BATCH_NORM_THREADS / 32 * IX_KBLK);
    pdl_trigger();
    float *from = a.x + (uint64_t)(!ADD && a.gather ? a.gather[a.row0 + row] : a.row0 + row) * a.ldx;
    eight w;
    if (a.norm)
        w.take(a.norm, a.n, (r0 + warp) * 256 + lane * 8);
    pdl_wait();
    for (uint32_t i = threadIdx.x * 4; i < (r1 - r0) * 256; i += BATCH_NORM_THREADS * 4) {
        uint32_t k = r0 * 256 + i;
        float4 v = {0, 0, 0, 0};
        if (k < a.n)
            v = __ldcg((const float4 *)(from + k));
        if (ADD && k < a.n) {
            float sum[4];
            s.add<4>(s.pieces + (uint64_t)(k / 128) * s.n * s.piece() + row * 128 + k % 128, sum);
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum[j] = __fmul_rn(__fadd_rn(sum[j], a.bias ? a.bias[k + j] : 0.f), a.scale);
            v.x = __fadd_rn(v.x, sum[0]), v.y = __fadd_rn(v.y, sum[1]);
            v.z = __fadd_rn(v.z, sum[2]), v.w = __fadd_rn(v.w, sum[3]);
            *(float4 *)(from + k) = v;
        }
        *(float4 *)(x + i) = v;
    }
    if (!a.norm)
        return;
    __syncthreads();
    for (uint32_t r = r0 + warp; r < r1; r += BATCH_NORM_THREADS / 32) {
        const float *at = x + (r - r0) * 256 + lane * 8;
        float v[8], f[8] = {w.a.x, w.a.y, w.a.z, w.a.w, w.b.x, w.b.y, w.b.z, w.b.w};
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = __fmul_rn(at[j], f[j]);
        w.take(a.norm, a.n, (r + BATCH_NORM_THREADS / 32) * 256 + lane * 8);
        int_quantize(record, lane, v);
        __syncwarp();
        batch_store(out, record, r, row, lane);
        __syncwarp();
    }
    if (warp == BATCH_NORM_THREADS / 32 - 1) {
        float q = 0;
        for (uint32_t r = r0; r < r1; r++)
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float v = x[(r - r0) * 256 + lane * 8 + j];
                q = __fmaf_rn(v, v, q);
            }
#pragma unroll
        for (int i = 16; i; i /= 2)
            q = __fadd_rn(q, __shfl_xor_sync(~0u, q, i));
        if (!lane)
            a.squares[row * K_SLICES + slice] = q;
    }
#endif
}

/*
 * The GLU of gate|up, whose tiles hold both, converted for `down`: one warp per record of a row, which is 32 tiles'
 * units, one tile per lane. The units are also stored as gemv stores them, for any other reader.
 */
__global__ void __launch_bounds__(CONSUMERS)
    batch_glu(const __grid_constant__ gemm_args a, batch_sum s, batch_planes out)
{
#if __CUDA_ARCH__ >= 900
    __shared__ __align__(16) uint8_t records[WARPS][IX_KBLK];
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, r = blockIdx.y * WARPS + warp, row = blockIdx.x,
             u = r * 256 + lane * 8, d_ff = a.part[0].n_out;
    pdl_trigger();
    pdl_wait();
    if (r * 256 >= d_ff)
        return;
    float v[8] = {0};
    __half h[8];
    if (u < d_ff) {
        float f = s.squares ? s.factor(row) : 1.f, gate[2][4], up[2][4];
        const float *at = s.pieces + (uint64_t)(u / 64) * s.n * s.piece() + row * 128 + u / 8 % 8 * 16;
#pragma unroll
        for (int i = 0; i < 2; i++)
            s.add<4>(at + 4 * i, gate[i]), s.add<4>(at + 8 + 4 * i, up[i]);
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (u + j < d_ff) {
                v[j] = glu_act(a.glu, __fadd_rn(__fmul_rn(gate[j / 4][j % 4], f), a.bias ? a.bias[u + j] : 0.f));
                v[j] *= __fadd_rn(__fmul_rn(up[j / 4][j % 4], f), a.bias ? a.bias[d_ff + u + j] : 0.f);
            }
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
        h[j] = half_sat(v[j]), v[j] = __half2float(h[j]);
    __half o[8] = {h[0], h[2], h[1], h[3], h[4], h[6], h[5], h[7]};
    *(uint4 *)(a.ff.p + (uint64_t)(a.row0 + row) * a.ff.ld + (uint64_t)r * XFRAG_STRIDE + eight_at(lane)) =
        *(const uint4 *)o;
    int_quantize(records[warp], lane, v);
    __syncwarp();
    batch_store(out, records[warp], r, row, lane);
#endif
}

/* Where the partial sums of row r of a tile are, for the first column. */
__device__ static inline const float *batch_sums_at(const gemm_args &a, const batch_sum &s, uint32_t tile, uint32_t r)
{
    uint32_t part = 0, at = tile;
    while (part + 1 < a.n_part && at >= a.part[part + 1].tile0)
        part++;
    at -= part ? a.part[part].tile0 : a.tile_lo;
    uint32_t group0 = part == 0 ? s.group0[0] : part == 1 ? s.group0[1] : s.group0[2];
    return s.pieces + (uint64_t)(group0 + at / BATCH_TILES) * s.n * s.piece() + at % BATCH_TILES * 16 + r;
}

/* The epilogue of q|k|v, one pair of rows per thread; operands that no kernel of the step writes are loaded before the
 * wait. */
__global__ void __launch_bounds__(CONSUMERS) batch_qkv(const __grid_constant__ gemm_args a, batch_sum s)
{
    __builtin_assume(a.ep == EP_QKV);
    auto tile = [&](uint32_t i) { return blockIdx.x * BATCH_TILES + i; };
    pdl_trigger();
    coord p = coord_of<false>(a, threadIdx.x + blockIdx.y * CONSUMERS, WARPS, tile);
    item m = item_load(a, p);
    item_rope(a, p, m);
    const float *x = NULL, *y = NULL;
    if (p.ok) {
        x = batch_sums_at(a, s, tile(p.ta), p.ra) + p.col * (BATCH_TILES * 16);
        y = batch_sums_at(a, s, tile(p.tb), p.rb) + p.col * (BATCH_TILES * 16);
    }
    pdl_wait();
    if (!p.ok)
        return;
    float one[1], two[1], f = s.squares ? s.factor(p.col) : 1.f;
    s.add<1>(x, one), s.add<1>(y, two);
    epilogue_pair(a, p, m, __fmul_rn(one[0], f), __fmul_rn(two[0], f));
}

/* The epilogue of logits: a row per warp, four neighbouring outputs per lane of every gridDim.x-th group. */
__global__ void __launch_bounds__(CONSUMERS) batch_logits(const __grid_constant__ gemm_args a, batch_sum s)
{
    __builtin_assume(a.ep == EP_LOGITS);
    uint32_t row = blockIdx.y * WARPS + (threadIdx.x >> 5), at = (threadIdx.x & 31) * 4, n_out = a.part[0].n_out,
             n_group = (a.tile_hi - a.tile_lo + BATCH_TILES - 1) / BATCH_TILES;
    pdl_trigger();
    pdl_wait();
    if (row >= a.bucket)
        return;
    float f = s.squares ? s.factor(row) : 1.f;
    for (uint32_t g = blockIdx.x; g < n_group; g += gridDim.x) {
        uint32_t n = (a.tile_lo + g * BATCH_TILES) * 16 + at;
        if (n >= n_out)
            return;
        float sum[4], x[4], *to = a.out + (uint64_t)(a.row0 + row) * a.ldout + n;
        s.add<4>(s.pieces + (uint64_t)g * s.n * s.piece() + row * 128 + at, sum);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            item m = {};
            m.a = a.bias && n + j < n_out ? a.bias[n + j] : 0.f, m.to = &x[j];
            epilogue_row(a, m, __fmul_rn(sum[j], f));
        }
        if (n + 4 <= n_out) /* rows of logits begin at multiples of 1 KiB */
            __stcg((float4 *)to, make_float4(x[0], x[1], x[2], x[3]));
        else
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (n + j < n_out)
                    to[j] = x[j];
    }
}

/* The epilogue of other products: gemv's sum over its warps, then its epilogues. A block has eight tiles, and blocks
 * side by side in y share its items. */
__global__ void __launch_bounds__(CONSUMERS) batch_end(const __grid_constant__ gemm_args a, batch_sum s)
{
    __shared__ float factor[GEMM_ROWS];
    pdl_trigger();
    pdl_wait();
    if (s.squares) {
        if (threadIdx.x < a.bucket)
            factor[threadIdx.x] = s.factor(threadIdx.x);
        __syncthreads();
    }
    auto tile = [&](uint32_t i) { return a.tile_lo + blockIdx.x * BATCH_TILES + i; };
    auto val = [&](uint32_t t, uint32_t r, uint32_t col) {
        float sum[1];
        s.add<1>(batch_sums_at(a, s, tile(t), r) + col * (BATCH_TILES * 16), sum);
        return s.squares ? __fmul_rn(sum[0], factor[col]) : sum[0];
    };
    epilogue_skinny<4>(a, tile, val, threadIdx.x + blockIdx.y * CONSUMERS, CONSUMERS * gridDim.y, 0, a.bucket);
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

typedef void batch_kernel(const batch_args);
static uint32_t batch_rows(uint32_t bucket)
{
    return bucket <= 8 ? 8 : bucket <= 16 ? 16 : BATCH_ROWS;
}
template <int TA, int TB> static batch_kernel *by_rows(struct device *d, uint32_t rows)
{
    static uint32_t done[3];
    uint32_t at = rows == 8 ? 0 : rows == 16 ? 1 : 2;
    batch_kernel *k = at == 0   ? gemm_batch<TA, TB, 8>
                      : at == 1 ? gemm_batch<TA, TB, 16>
                                : gemm_batch<TA, TB, BATCH_ROWS>;
    if (d)
        smem_once(d, k, &done[at]);
    return k;
}

/* The kernel for a weight's types: a single type, or the types of q|k|v in Q4_K_M; else NULL. */
static batch_kernel *batch_kernel_of(struct device *d, const wdev *w, uint32_t rows)
{
    auto by_types = [&](auto t) { return by_rows<t.first, t.second>(d, rows); };
    return kernel_of(w, by_types, types<DT_Q4_K, DT_Q4_K>(), types<DT_Q6_K, DT_Q6_K>(), types<DT_Q4_K, DT_Q6_K>());
}

bool batch_takes(const struct device *d, const wdev *w, uint32_t bucket)
{
    return d->cc == 90 && bucket > GEMV_ROWS && bucket <= GEMM_ROWS && w->packed && batch_kernel_of(NULL, w, 8) &&
           wg_x_bytes(d, &d->ws.dims) && w->n_kblk * IX_KBLK <= 48 << 10;
}

/* How a group is split (batch_args.split): all of K in one unit, unless slices take fewer rounds over the SMs. */
static uint32_t split_of(const struct device *d, const batch_args &a, uint32_t rows, bool twice, uint64_t room)
{
    uint32_t n = K_SLICES * (twice ? 2 : 1), sms = d->sms;
    uint32_t groups = a.n_group * a.n_block, whole = (groups + sms - 1) / sms * a.n_kblk,
             slices = (groups * n + sms - 1) / sms * ((a.n_kblk + n - 1) / n);
    bool fits = (uint64_t)groups * n * rows * BATCH_TILES * 16 * 4 <= room;
    return fits && (twice || 5 * slices < 4 * whole) ? n / K_SLICES : 0;
}

static float *squares_of(struct device *d)
{
    return (float *)d->ws.wg_ff;
}

/* Launches the product of tiles [lo, hi) of a matrix; lo > 0 only for a matrix of one part. */
static batch_sum multiply(struct device *d, const wdev *w, const gemm_args &a, uint32_t rows, bool twice, uint32_t lo,
                          uint32_t hi)
{
    batch_args b = {};
    batch_sum s = {};
    uint32_t frag = 0;
    b.w = w->packed, b.n_kblk = w->n_kblk, b.n_part = a.n_part, b.bucket = a.bucket;
    for (uint32_t i = 0; i < b.n_part; i++) {
        const gemm_part &p = a.part[i];
        uint32_t bytes = t16_frag_bytes(w->part[i].type), n = b.n_part == 1 ? hi - lo : p.n_tile;
        b.part[i] = {b.n_group, n, p.second, p.off + (uint64_t)lo * w->n_kblk * bytes};
        s.group0[i] = b.n_group;
        b.n_group += (n + BATCH_TILES - 1) / BATCH_TILES;
        frag = bytes > frag ? bytes : frag;
    }
    b.n_block = (a.bucket + rows - 1) / rows;
    b.split = split_of(d, b, rows, twice, wg_partials_bytes(d, &d->ws.dims));
    s.n = b.split ? K_SLICES * b.split : 1;
    b.n_unit = b.n_group * s.n * b.n_block;
    b.planes = (const uint8_t *)d->ws.wg_x[0], b.more = (const uint8_t *)d->ws.wg_x[1];
    b.pieces = d->ws.wg_partials;
    uint32_t xst = 2 * rows * 530, wst = BATCH_TILES * frag, part = b.split ? 0 : rows / 2 * CONSUMERS * 4,
             room = (uint32_t)d->smem_max - BATCH_FIXED - part;
    b.wstages = 2;
    b.xstages = min_u((room - 2 * wst) / xst, 3);
    b.wstages = min_u((room - b.xstages * xst) / wst, BATCH_STAGES);
    b.xstages = min_u((room - b.wstages * wst) / xst, BATCH_STAGES);
    cuda_launch(d, batch_kernel_of(d, w, rows), dim3(min_u(b.n_unit, d->sms)), BATCH_THREADS,
                BATCH_FIXED + b.wstages * wst + b.xstages * xst + part, LAUNCH_PDL, b);
    s.pieces = b.pieces, s.rows = rows * b.n_block;
    if (a.xf)
        s.squares = squares_of(d), s.k = a.k, s.eps = a.norm.eps;
    return s;
}

/* Whether gemv would have two sets of warps take turns at a tile's records, as run_gemv() decides. */
static bool two_sets(const struct device *d, const wdev *w, const gemm_args &a, bool qkv)
{
    bool can = w->part[0].type == DT_Q4_K ? gemv_fits<DT_Q4_K, DT_Q4_K, 1, 2, GEMV_REST>(d, a)
                                          : gemv_fits<DT_Q6_K, DT_Q6_K, 1, 2, GEMV_REST>(d, a);
    for (uint32_t i = 1; i < a.n_part; i++)
        can = can && !a.part[i].second;
    return can && !qkv && a.ep != EP_GLU && !a.xf && w->n_tile <= (uint32_t)d->sms && a.n_kblk > 2 * K_SLICES;
}

/* The norm with which the next op's product of these rows begins, where that is one of these products and takes all n
 * columns of ACT_X; else NULL. */
static const struct norm *next_norm(const struct device *d, const struct op_call *p, uint32_t n)
{
    const struct op *o = p->next;
    const struct norm *norm = !o                     ? NULL
                              : o->kind == OP_QKV    ? &o->qkv.norm
                              : o->kind == OP_FFN_UP ? &o->ffn_up.norm
                                                     : NULL;
    if (!norm || !norm_deferrable(*norm) || n % 8 || wdev_of(op_weight(o))->n_in != n ||
        !batch_takes(d, wdev_of(op_weight(o)), p->bucket))
        return NULL;
    return norm;
}

static uint32_t slice_bytes(uint32_t n)
{
    return BATCH_NORM_THREADS / 32 * IX_KBLK + ((n + 255) / 256 + K_SLICES - 1) / K_SLICES * 1024;
}

void batch_run(struct device *d, struct op_call *p, const struct op *o, const wdev *w, gemm_args a, bool qkv)
{
    uint32_t rows = batch_rows(a.bucket);
    const struct op *next = p->next;
    batch_planes out = {(uint8_t *)d->ws.wg_x[0], (uint8_t *)d->ws.wg_x[1], rows, a.n_kblk};
    bool there = p->planes.op == o && p->planes.row0 == a.row0 && p->planes.bucket == a.bucket;
    p->planes.op = NULL;
    if (there)
        ;
    else if (a.xf) {
        batch_row row = {(float *)a.xf, a.ldxf, a.k, a.row0, a.gather, NULL, 0, a.norm.w, squares_of(d)};
        cuda_launch(d, batch_norm<false>, dim3(a.bucket, K_SLICES), BATCH_NORM_THREADS, slice_bytes(a.k), LAUNCH_PDL,
                    row, batch_sum{}, out);
    } else
        cuda_launch(d, batch_prepared, dim3(a.bucket, (a.n_kblk + WARPS - 1) / WARPS), CONSUMERS, 0, LAUNCH_PDL, a.x,
                    a.k, a.row0, out);
    /* as many tiles at a time as there is room for the sums of */
    uint64_t each = (uint64_t)(a.bucket + rows - 1) / rows * rows * BATCH_TILES * 16 * 4,
             most = wg_partials_bytes(d, &d->ws.dims) / each;
    uint32_t step = most * BATCH_TILES < w->n_tile && a.n_part == 1 ? (uint32_t)most * BATCH_TILES : w->n_tile;
    bool twice = two_sets(d, w, a, qkv), whole = step == w->n_tile;
    for (uint32_t lo = 0; lo < w->n_tile; lo += step) {
        a.tile_lo = lo, a.tile_hi = min_u(lo + step, w->n_tile);
        batch_sum s = multiply(d, w, a, rows, twice, lo, a.tile_hi);
        if (whole && o->kind == OP_PROJ && a.ep == EP_PROJ && w->n_out % 4 == 0) {
            const struct norm *norm = next_norm(d, p, w->n_out);
            out.n_kblk = (w->n_out + 255) / 256;
            batch_row row = {a.out,        a.ldout, w->n_out, a.row0, NULL, a.bias, a.scale, norm ? norm->w : NULL,
                             squares_of(d)};
            cuda_launch(d, batch_norm<true>, dim3(a.bucket, K_SLICES), BATCH_NORM_THREADS, slice_bytes(w->n_out),
                        LAUNCH_PDL, row, s, out);
            if (norm)
                p->planes = {next, a.row0, a.bucket};
        } else if (whole && a.ep == EP_GLU && a.glu_rows == 8 && next && next->kind == OP_PROJ &&
                   next->proj.in == ACT_FF && wdev_of(next->proj.w)->n_in == a.part[0].n_out &&
                   batch_takes(d, wdev_of(next->proj.w), a.bucket)) {
            out.n_kblk = wdev_of(next->proj.w)->n_kblk;
            cuda_launch(d, batch_glu, dim3(a.bucket, ((a.part[0].n_out + 255) / 256 + WARPS - 1) / WARPS), CONSUMERS, 0,
                        LAUNCH_PDL, a, s, out);
            p->planes = {next, a.row0, a.bucket};
        } else if (whole && a.ep == EP_QKV)
            cuda_launch(d, batch_qkv, dim3((w->n_tile + BATCH_TILES - 1) / BATCH_TILES, (a.bucket + 3) / 4), CONSUMERS,
                        0, LAUNCH_PDL, a, s);
        else if (a.ep == EP_LOGITS) {
            uint32_t y = (a.bucket + WARPS - 1) / WARPS;
            cuda_launch(d, batch_logits,
                        dim3(min_u((a.tile_hi - lo + BATCH_TILES - 1) / BATCH_TILES, 8 * d->sms / y), y), CONSUMERS, 0,
                        LAUNCH_PDL, a, s);
        } else
            cuda_launch(d, batch_end, dim3((a.tile_hi - lo + BATCH_TILES - 1) / BATCH_TILES, (a.bucket + 7) / 8),
                        CONSUMERS, 0, LAUNCH_PDL, a, s);
    }
}
