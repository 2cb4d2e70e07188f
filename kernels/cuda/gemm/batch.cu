/*
 * batch.cu - gemv's products for 5 to 64 rows on Hopper: rows to planes of integers, the product (batch.cuh), and what
 * follows it, by gemv's own operations in gemv's order, so that a row has the bits that it has alone.
 */
#include "kernels/cuda/gemm/batch.cuh"
#include "kernels/cuda/plan.cuh"

/* Where rows go as planes. */
struct batch_planes {
    uint8_t *planes, *more;
    uint32_t rows; /* R */
};

/* Record r of a row, as int_quantize() leaves it at `ix`, by one warp. */
__device__ static inline void batch_store(const batch_planes &o, const uint8_t *ix, uint32_t r, uint32_t row,
                                          uint32_t lane)
{
    uint32_t n = 2 * o.rows;
#pragma unroll
    for (uint32_t p = 0; p < 2; p++) {
        uint32_t col = batch_column(row, p);
        uint2 w = *(const uint2 *)(ix + (p ? IX_HI : IX_LO) + 8 * lane);
        __half h[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
            h[j] = __int2half_rn((int8_t)((j < 4 ? w.x : w.y) >> 8 * (j & 3)));
#pragma unroll
        for (uint32_t c = 0; c < 2; c++) { /* every other element */
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

/* A row of norm(x) without the norm's factor, which goes to factor[row]: a block a row, a warp a slice of K, as in
 * gemv. */
__global__ void __launch_bounds__(CONSUMERS)
    batch_norm(const float *x, uint32_t ldx, uint32_t n, struct norm nm, const uint32_t *gather, uint32_t row0,
               batch_planes out, float *factor)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) uint8_t records[];
    __shared__ float squares[WARPS];
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n_kblk = (n + 255) / 256, r0 = t16_slice(n_kblk, warp),
             r1 = t16_slice(n_kblk, warp + 1), row = blockIdx.x;
    eight w[NORM_IN_FLIGHT];
    pdl_trigger();
#pragma unroll
    for (int i = 0; i < NORM_IN_FLIGHT; i++)
        if (r0 + i < r1)
            w[i].take(nm.w, n, (r0 + i) * 256 + lane * 8);
    const float *from = x + (uint64_t)(gather ? gather[row0 + row] : row0 + row) * ldx;
    pdl_wait();
    gemv_norm_quantize(from, n, nm.w, w, r0, r1, records, squares + warp, lane);
    __syncthreads();
    for (uint32_t r = r0; r < r1; r++)
        batch_store(out, records + r * IX_KBLK, r, row, lane);
    if (!threadIdx.x) {
        float q = 0;
#pragma unroll
        for (int i = 0; i < WARPS; i++)
            q = __fadd_rn(q, squares[i]);
        factor[row] = rsqrtf(__fadd_rn(q / n, nm.eps));
    }
#endif
}

/* Prepared rows: a warp a record. */
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

/* Where a product lies in pieces, and what it is multiplied with. */
struct batch_sum {
    const float *pieces;
    const float *factor;         /* of the rows, or NULL */
    uint32_t group0[3], rows, n; /* rows: R; n: pieces of a group, 1, 8 or 16 */
};

/* What follows a product: gemv's sum of its warps, then its ends. A block has eight tiles, and blocks side by side in y
 * share its items. */
__global__ void __launch_bounds__(CONSUMERS) batch_end(const __grid_constant__ gemm_args a, batch_sum s)
{
    pdl_trigger();
    pdl_wait();
    auto tile = [&](uint32_t i) { return a.tile_lo + blockIdx.x * BATCH_TILES + i; };
    auto val = [&](uint32_t t, uint32_t r, uint32_t col) {
        uint32_t part = 0, at = tile(t);
        while (part + 1 < a.n_part && at >= a.part[part + 1].tile0)
            part++;
        at -= part ? a.part[part].tile0 : a.tile_lo;
        uint32_t group0 = part == 0 ? s.group0[0] : part == 1 ? s.group0[1] : s.group0[2];
        const uint64_t piece = (uint64_t)s.rows * BATCH_TILES * 16;
        const float *p = s.pieces + (uint64_t)(group0 + at / BATCH_TILES) * s.n * piece + col * (BATCH_TILES * 16) +
                         at % BATCH_TILES * 16 + r;
        float sum;
        if (s.n == 1)
            sum = __ldcg(p);
        else {
            float half[2] = {0, 0};
            for (uint32_t i = 0; i < s.n; i += K_SLICES) {
                float v[K_SLICES];
#pragma unroll
                for (int j = 0; j < K_SLICES; j++)
                    v[j] = __ldcg(p + (i + j) * piece);
                bool both = s.n == K_SLICES; /* halves of these, or these a half */
#pragma unroll
                for (int j = 0; j < K_SLICES; j++)
                    if (both ? j >= K_SLICES / 2 : i > 0)
                        half[1] = __fadd_rn(half[1], v[j]);
                    else
                        half[0] = __fadd_rn(half[0], v[j]);
            }
            sum = __fadd_rn(half[0], half[1]);
        }
        return s.factor ? __fmul_rn(sum, s.factor[col]) : sum;
    };
    epilogue_skinny(a, tile, val, threadIdx.x + blockIdx.y * CONSUMERS, CONSUMERS * gridDim.y);
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

/* Types of a product: one, or those of q|k|v in Q4_K_M. */
#define BATCH_TYPES(X) X(Q4_K, Q4_K) X(Q6_K, Q6_K) X(Q4_K, Q6_K)

typedef void batch_kernel(const batch_args);
static uint32_t batch_rows(uint32_t bucket)
{
    return bucket <= 8 ? 8 : bucket <= 16 ? 16 : bucket <= 32 ? 32 : 64;
}
template <int TA, int TB> static batch_kernel *by_rows(struct device *d, uint32_t rows)
{
    static uint32_t done[4];
    uint32_t at = rows == 8 ? 0 : rows == 16 ? 1 : rows == 32 ? 2 : 3;
    batch_kernel *k = at == 0   ? gemm_batch<TA, TB, 8>
                      : at == 1 ? gemm_batch<TA, TB, 16>
                      : at == 2 ? gemm_batch<TA, TB, 32>
                                : gemm_batch<TA, TB, 64>;
    if (d)
        smem_once(d, k, &done[at]);
    return k;
}

/* The kernel for a weight's types, or NULL. */
static batch_kernel *kernel_of(struct device *d, const wdev *w, uint32_t rows)
{
    enum dtype a = w->part[0].type, b = a;
    for (uint32_t i = 1; i < w->n_part; i++)
        if (w->part[i].type != a) {
            if (b != a && b != w->part[i].type)
                return NULL;
            b = w->part[i].type;
        }
#define X(A, B)                     \
    if (a == DT_##A && b == DT_##B) \
        return by_rows<DT_##A, DT_##B>(d, rows);
    BATCH_TYPES(X)
#undef X
    return NULL;
}

bool batch_takes(const struct device *d, const wdev *w, uint32_t bucket)
{
    return d->cc == 90 && bucket > GEMV_ROWS && bucket <= GEMM_ROWS && w->packed && kernel_of(NULL, w, 8) &&
           wg_x_bytes(d, &d->ws.dims) && w->n_kblk * IX_KBLK <= 48 << 10;
}

/* Units of work that a group is cut into: all of K in one, unless slices come to fewer rounds over the processors. */
static uint32_t split_of(const struct device *d, const batch_args &a, uint32_t rows, bool twice, uint64_t room)
{
    uint32_t n = K_SLICES * (twice ? 2 : 1), sms = d->sms;
    uint32_t whole = (a.n_group + sms - 1) / sms * a.n_kblk,
             slices = (a.n_group * n + sms - 1) / sms * ((a.n_kblk + n - 1) / n);
    bool fits = (uint64_t)a.n_group * n * rows * BATCH_TILES * 16 * 4 <= room;
    return fits && (twice || 5 * slices < 4 * whole) ? n / K_SLICES : 0;
}

/* Tiles [lo, hi) of a matrix; where lo > 0, of its only part. */
static void tiles(struct device *d, const wdev *w, gemm_args a, uint32_t rows, bool twice, uint32_t lo, uint32_t hi)
{
    batch_args b = {};
    batch_sum s = {};
    uint32_t frag = 0;
    b.w = w->packed, b.n_kblk = w->n_kblk, b.n_part = a.n_part, b.bucket = a.bucket;
    a.tile_lo = lo, a.tile_hi = hi;
    for (uint32_t i = 0; i < b.n_part; i++) {
        const gemm_part &p = a.part[i];
        uint32_t bytes = t16_frag_bytes(w->part[i].type), n = b.n_part == 1 ? hi - lo : p.n_tile;
        b.part[i] = {b.n_group, n, p.second, p.off + (uint64_t)lo * w->n_kblk * bytes};
        s.group0[i] = b.n_group;
        b.n_group += (n + BATCH_TILES - 1) / BATCH_TILES;
        frag = bytes > frag ? bytes : frag;
    }
    b.split = split_of(d, b, rows, twice, wg_partials_bytes(d, &d->ws.dims));
    s.n = b.split ? K_SLICES * b.split : 1;
    b.n_unit = b.n_group * s.n;
    b.planes = (const uint8_t *)d->ws.wg_x[0], b.more = (const uint8_t *)d->ws.wg_x[1];
    b.pieces = d->ws.wg_partials;
    uint32_t xst = 2 * rows * 530, wst = BATCH_TILES * frag, part = b.split ? 0 : rows / 2 * CONSUMERS * 4,
             room = (uint32_t)d->smem_max - BATCH_FIXED - part;
    b.wstages = 2;
    b.xstages = min_u((room - 2 * wst) / xst, 3);
    b.wstages = min_u((room - b.xstages * xst) / wst, BATCH_STAGES);
    b.xstages = min_u((room - b.wstages * wst) / xst, BATCH_STAGES);
    cuda_launch(d, kernel_of(d, w, rows), dim3(min_u(b.n_unit, d->sms)), BATCH_THREADS,
                BATCH_FIXED + b.wstages * wst + b.xstages * xst + part, LAUNCH_PDL, b);
    s.pieces = b.pieces, s.rows = rows;
    s.factor = a.xf ? (const float *)d->ws.wg_ff : NULL;
    cuda_launch(d, batch_end, dim3((hi - lo + BATCH_TILES - 1) / BATCH_TILES, (a.bucket + 7) / 8), CONSUMERS, 0,
                LAUNCH_PDL, a, s);
}

/* A tile's records in turns of two sets of warps: as run_gemv() decides. */
static bool two_sets(const struct device *d, const wdev *w, const gemm_args &a, bool qkv)
{
    bool can = w->part[0].type == DT_Q4_K ? gemv_fits<DT_Q4_K, DT_Q4_K, 1, 2, GEMV_REST>(d, a)
                                          : gemv_fits<DT_Q6_K, DT_Q6_K, 1, 2, GEMV_REST>(d, a);
    for (uint32_t i = 1; i < a.n_part; i++)
        can = can && !a.part[i].second;
    return can && !qkv && a.ep != EP_GLU && !a.xf && w->n_tile <= (uint32_t)d->sms && a.n_kblk > 2 * K_SLICES;
}

void batch_run(struct device *d, const wdev *w, gemm_args a, bool qkv)
{
    uint32_t rows = batch_rows(a.bucket);
    batch_planes out = {(uint8_t *)d->ws.wg_x[0], (uint8_t *)d->ws.wg_x[1], rows};
    if (a.xf)
        cuda_launch(d, batch_norm, dim3(a.bucket), CONSUMERS, a.n_kblk * IX_KBLK, LAUNCH_PDL, a.xf, a.ldxf, a.k, a.norm,
                    a.gather, a.row0, out, (float *)d->ws.wg_ff);
    else
        cuda_launch(d, batch_prepared, dim3(a.bucket, (a.n_kblk + WARPS - 1) / WARPS), CONSUMERS, 0, LAUNCH_PDL, a.x,
                    a.k, a.row0, out);
    /* as many tiles at a time as there is room for the sums of */
    uint64_t each = (uint64_t)rows * BATCH_TILES * 16 * 4, most = wg_partials_bytes(d, &d->ws.dims) / each;
    uint32_t step = most * BATCH_TILES < w->n_tile && a.n_part == 1 ? (uint32_t)most * BATCH_TILES : w->n_tile;
    for (uint32_t lo = 0; lo < w->n_tile; lo += step)
        tiles(d, w, a, rows, two_sets(d, w, a, qkv), lo, min_u(lo + step, w->n_tile));
}
