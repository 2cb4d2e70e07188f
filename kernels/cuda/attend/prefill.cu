/*
 * prefill.cu - attention for many rows per sequence: a block takes 128 rows (query heads of a group times tokens) and
 * goes through the KV in blocks that pass through shared memory, with a running softmax: FlashAttention-2 over paged
 * KV. A warp has 32 rows where its registers allow it, as the tensor cores are limited by how often K and V are read
 * from shared memory. Then four warps cover a tile, and a second group of four takes every other block of KV, so that
 * one group's softmax overlaps the other's products; their sums are added at the end. Sequences of a few rows in the
 * same step are split_kv.cu's, which can split a long context over many blocks.
 *
 * In steps of INVARIANT_PROMPT all rows take this path. A context is then cut at multiples of ATTEND_SPLIT into pieces,
 * a block each, and the sums of the pieces that a row sees are added in order: the row's bits depend only on its
 * position and its KV, and a few rows at the end of a long context fill the GPU.
 *
 * Tiles of Q8_0 KV are copied to shared memory as stored in the pages, each beside the space for its fp16 form, to
 * which it is converted on arrival: the copy of the next one is in flight meanwhile, as with fp16.
 */
#include "kernels/cuda/attend/prefill.cuh"
#include "kernels/cuda/local.cuh"

/* Computes a row's head, by one warp, from the pieces of the context that it sees. From a single piece the result is
 * bit-identical to attend_rows() without pieces. */
enum { JOIN_WARPS = 4 };
template <int D> __global__ void __launch_bounds__(JOIN_WARPS * 32) attend_join(attend_args a)
{
    pdl_trigger();
    pdl_wait();
    uint32_t head = blockIdx.x * JOIN_WARPS + threadIdx.x / 32, row = a.row_lo + blockIdx.y;
    if (head >= a.n_head)
        return;
    uint32_t pos = a.s->pos[row], lo = a.window && pos + 1 > a.window ? pos + 1 - a.window : 0;
    uint32_t c0 = lo / a.split, c1 = pos / a.split;
    float top = -INFINITY;
    for (uint32_t c = c0; c <= c1; c++)
        top = fmaxf(top, __ldcg(sums_of<D>(a, c, row, head) + D));
    for (uint32_t dim = threadIdx.x % 32 * 4; dim < D; dim += 128) {
        float v[4] = {0, 0, 0, 0}, den = 0;
        for (uint32_t c = c0; c <= c1; c++) {
            const float *from = sums_of<D>(a, c, row, head);
            float4 f = __ldcg((const float4 *)(from + dim));
            float2 ml = __ldcg((const float2 *)(from + D));
            float u = exp2_fast(ml.x - top);
            den = __fmaf_rn(u, ml.y, den);
            v[0] = __fmaf_rn(u, f.x, v[0]), v[1] = __fmaf_rn(u, f.y, v[1]);
            v[2] = __fmaf_rn(u, f.z, v[2]), v[3] = __fmaf_rn(u, f.w, v[3]);
        }
        float inv = 1.f / with_sink(a, head, top, den);
        __half h[4] = {half_sat(v[0] * inv), half_sat(v[1] * inv), half_sat(v[2] * inv), half_sat(v[3] * inv)};
        gate_halves<D>(a, row, head, dim, h);
        store_four<D>(a, row, head * D + dim, h);
    }
}

template <int D, int G, bool Q8>
__global__ void __launch_bounds__(G *tiles<D, G, Q8>::THREADS, 1) attend_rows(attend_args a)
{
    typedef tiles<D, G, Q8> T;
    constexpr int KS = D / 16, NT = T::BN / 8, DT = D / 8, MT = T::MT;
    extern __shared__ __align__(128) uint8_t sm8[];
    int part = threadIdx.x / T::THREADS; /* of the KV */
    uint8_t *const ks = sm8 + T::Q + part * 2 * T::BYTES, *const vs = ks + T::BYTES;
    uint8_t *const staged = sm8 + T::Q + T::GROUPS * 2 * T::BYTES + part * 2 * T::STAGED; /* of K, then of V */
    auto sync = [&]() {
        if (T::GROUPS == 1 || TOGETHER)
            __syncthreads();
        else
            asm volatile("bar.sync %0, %1;" ::"r"(part + 1), "n"(T::THREADS) : "memory");
    };
    pdl_trigger();
    pdl_wait();
    const step_dev *st = a.s;
    /* finds the sequence of this tile; later tiles see more tokens and start first */
    uint32_t tile = gridDim.x - 1 - blockIdx.x, head = blockIdx.y, s = 0;
    for (;; s++) {
        uint2 t = tiles_of(a, st->row0[s], st->n_rows[s]);
        if (tile < t.y) {
            tile += t.x;
            break;
        }
        tile -= t.y;
    }
    uint32_t n = st->n_rows[s] * a.group, row0 = st->row0[s], pos0 = st->pos0[s];
    const uint32_t *pages = a.pages + (int32_t)a.pages0[s]; /* may point before the tables: see step_group */
    int warp = threadIdx.x % T::THREADS / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint32_t first = tile * LONG_ROWS, mine = warp * 16 * MT;
    int pos[MT][2], lo[MT][2]; /* -1: no row */
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint32_t p = first + mine + 16 * m + 8 * r + g;
            pos[m][r] = p < n ? (int)(pos0 + p / a.group) : -1;
            lo[m][r] = a.window && pos[m][r] + 1 > (int)a.window ? pos[m][r] + 1 - (int)a.window : 0;
        }
    uint32_t pos_lo = pos0 + first / a.group, pos_hi = pos0 + (min(first + LONG_ROWS, n) - 1) / a.group;
    uint32_t see_lo = a.window && pos_lo + 1 > a.window ? pos_lo + 1 - a.window : 0, len = pos_hi + 1;
    uint32_t b0 = see_lo / T::BN, b1 = (len + T::BN - 1) / T::BN;
    if (!a.rows_max) /* a block's group follows from its place, not from the window of the tile's first row */
        b0 &= ~(T::GROUPS - 1u);
    if (a.split) {
        b0 = max(b0, blockIdx.z * (a.split / T::BN)), b1 = min(b1, (blockIdx.z + 1) * (a.split / T::BN));
        if (b0 >= b1)
            return;
    }

    for (int i = threadIdx.x; i < LONG_ROWS * (D / 8); i += T::GROUPS * T::THREADS) {
        uint32_t r = i / (D / 8), c = i % (D / 8), p = min(first + r, n - 1);
        cp_async16(sm8 + r * T::ROW + 16 * c,
                   a.q + (uint64_t)(row0 + p / a.group) * a.ldq + (head * a.group + p % a.group) * D + 8 * c,
                   first + r < n);
    }
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    b0 += part;
    auto load = [&](bool v, uint32_t b) {
        if constexpr (Q8)
            stage_block<D, T>(staged + v * T::STAGED, a, pages, head, v ? a.kv.v_off : 0, b * T::BN, len);
        else
            load_block<D, T>(v ? vs : ks, a, pages, head, v ? a.kv.v_off : 0, b * T::BN, len);
    };
    if (b0 < b1)
        load(false, b0);
    float o[MT][DT][4] = {}, top[MT][2], sum[MT][2] = {};
#pragma unroll
    for (int m = 0; m < MT; m++)
        top[m][0] = top[m][1] = -INFINITY;
    uint32_t q_at = smem_of(sm8) + (mine + (lane & 15)) * T::ROW + (lane >> 4) * 16;
    uint32_t k_at = smem_of(ks) + ((lane & 7) + (lane >> 4) * 8) * T::ROW + (lane >> 3 & 1) * 16;
    uint32_t v_at = smem_of(vs) + ((lane & 7) + (lane >> 3 & 1) * 8) * T::ROW + (lane >> 4) * 16;
    const float scale2 = a.scale * LOG2E;

    for (uint32_t b = b0; (TOGETHER ? b - part : b) < b1; b += T::GROUPS) {
        cp_async_wait<0>();
        sync(); /* K has arrived, and V's space is free */
        load(true, b);
        if constexpr (Q8) {
            expand_block<D, T>(ks, staged, b * T::BN, len);
            sync();
        }
        float c[MT][NT][4] = {};
#pragma unroll
        for (int k = 0; k < KS; k++) {
            uint32_t q[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++)
                ldm4(q[m], q_at + m * 16 * T::ROW + k * 32);
#pragma unroll
            for (int i = 0; i < NT; i += 2) {
                uint32_t f[4];
                ldm4(f, k_at + i * 8 * T::ROW + k * 32);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma16816(c[m][i], q[m][0], q[m][1], q[m][2], q[m][3], f[0], f[1]);
                    mma16816(c[m][i + 1], q[m][0], q[m][1], q[m][2], q[m][3], f[2], f[3]);
                }
            }
        }
        sync(); /* K's space is free */
        if (b + T::GROUPS < b1)
            load(false, b + T::GROUPS);
        float f = scale2;
        if (a.softcap != 0) {
            f = 1.f;
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int i = 0; i < NT; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        c[m][i][e] = act_softcap(c[m][i][e] * a.scale, a.softcap) * LOG2E;
        }
        int tok0 = (int)(b * T::BN) + 2 * t;
        bool edge = (b + 1) * T::BN > pos_lo + 1 || a.window;
        uint32_t p[MT][NT][2];
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float now = top[m][r];
#pragma unroll
                for (int i = 0; i < NT; i++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float v = c[m][i][2 * r + e] * f;
                        if (edge) {
                            int tok = tok0 + 8 * i + e;
                            v = tok <= pos[m][r] && tok >= lo[m][r] ? v : -INFINITY;
                        }
                        c[m][i][2 * r + e] = v;
                        now = fmaxf(now, v);
                    }
                now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
                now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
                float old = top[m][r] == -INFINITY ? 0.f : exp2_fast(top[m][r] - now);
                float base = now == -INFINITY ? 0.f : now, l = sum[m][r] * old;
                top[m][r] = now;
#pragma unroll
                for (int i = 0; i < DT; i++)
                    o[m][i][2 * r] *= old, o[m][i][2 * r + 1] *= old;
#pragma unroll
                for (int i = 0; i < NT; i++) {
                    __half2 h =
                        __floats2half2_rn(exp2_fast(c[m][i][2 * r] - base), exp2_fast(c[m][i][2 * r + 1] - base));
                    float2 x = __half22float2(h);
                    l += x.x + x.y;
                    p[m][i][r] = *(uint32_t *)&h;
                }
                sum[m][r] = l;
            }
        if (b + T::GROUPS < b1)
            cp_async_wait<1>();
        else
            cp_async_wait<0>();
        sync(); /* V has arrived */
        if constexpr (Q8) {
            expand_block<D, T>(vs, staged + T::STAGED, b * T::BN, len);
            sync();
        }
#pragma unroll
        for (int k = 0; k < NT; k += 2)
#pragma unroll
            for (int i = 0; i < DT; i += 2) {
                uint32_t w[4];
                ldm4t(w, v_at + k * 8 * T::ROW + i * 16);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma16816(o[m][i], p[m][k][0], p[m][k][1], p[m][k + 1][0], p[m][k + 1][1], w[0], w[1]);
                    mma16816(o[m][i + 1], p[m][k][0], p[m][k][1], p[m][k + 1][0], p[m][k + 1][1], w[2], w[3]);
                }
            }
    }
    if (T::GROUPS == 2) {
        float *of = (float *)(sm8 + T::Q) + threadIdx.x % T::THREADS; /* the second group's, in the space of K and V */
        __syncthreads();
        if (part)
#pragma unroll
            for (int m = 0; m < MT; m++) {
#pragma unroll
                for (int r = 0; r < 2; r++)
                    of[(4 * m + r) * T::THREADS] = top[m][r], of[(4 * m + 2 + r) * T::THREADS] = sum[m][r];
#pragma unroll
                for (int i = 0; i < 4 * DT; i++)
                    of[(4 * MT + 4 * DT * m + i) * T::THREADS] = o[m][i / 4][i % 4];
            }
        __syncthreads();
        if (!part)
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float other = of[(4 * m + r) * T::THREADS], both = fmaxf(top[m][r], other);
                    float x = top[m][r] == -INFINITY ? 0.f : exp2_fast(top[m][r] - both),
                          y = other == -INFINITY ? 0.f : exp2_fast(other - both);
                    top[m][r] = both;
                    sum[m][r] = sum[m][r] * x + of[(4 * m + 2 + r) * T::THREADS] * y;
#pragma unroll
                    for (int i = 0; i < DT; i++)
#pragma unroll
                        for (int e = 2 * r; e < 2 * r + 2; e++)
                            o[m][i][e] = o[m][i][e] * x + of[(4 * MT + 4 * (DT * m + i) + e) * T::THREADS] * y;
                }
    }
    if (a.split) {
        if (!part)
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    uint32_t p = first + mine + 16 * m + 8 * r + g;
                    float l = sum[m][r];
                    l += __shfl_xor_sync(~0u, l, 1);
                    l += __shfl_xor_sync(~0u, l, 2);
                    uint32_t row = row0 + p / a.group;
                    if (p >= n || row < a.row_lo || row >= a.row_hi)
                        continue;
                    float *to = sums_of<D>(a, blockIdx.z, row, head * a.group + p % a.group);
#pragma unroll
                    for (int i = 0; i < DT; i++)
                        *(float2 *)(to + 8 * i + 2 * t) = make_float2(o[m][i][2 * r], o[m][i][2 * r + 1]);
                    if (!t)
                        *(float2 *)(to + D) = make_float2(top[m][r], l);
                }
        return;
    }
    /* results pass through shared memory, each warp's in the place of its queries, so that rows are stored in whole
     * sub-blocks */
    constexpr int OLD = T::ROW / 2;
    __half *out = (__half *)sm8;
    if (!part)
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float l = sum[m][r];
                l += __shfl_xor_sync(~0u, l, 1);
                l += __shfl_xor_sync(~0u, l, 2);
                if (a.sinks && pos[m][r] >= 0)
                    l = with_sink(a, head * a.group + (first + mine + 16 * m + 8 * r + g) % a.group, top[m][r], l);
                float inv = pos[m][r] >= 0 ? 1.f / l : 0.f;
#pragma unroll
                for (int i = 0; i < DT; i++)
                    *(__half2 *)(out + (mine + 16 * m + g + 8 * r) * OLD + 8 * i + 2 * t) =
                        __halves2half2(half_sat(o[m][i][2 * r] * inv), half_sat(o[m][i][2 * r + 1] * inv));
            }
    __syncthreads();
    for (int i = threadIdx.x; i < LONG_ROWS * D / 4;
         i += T::GROUPS * T::THREADS) { /* whole warps: four neighbours per lane */
        uint32_t r = i / (D / 4), dim = i % (D / 4) * 4, p = first + r;
        uint32_t k = (head * a.group + p % a.group) * D + dim;
        union {
            uint2 u;
            __half h[4];
        } v;
        v.u = *(const uint2 *)(out + r * OLD + dim);
        if (p < n)
            gate_halves<D>(a, row0 + p / a.group, k / D, dim, v.h);
        float sum = (__half2float(v.h[0]) + __half2float(v.h[1])) + (__half2float(v.h[2]) + __half2float(v.h[3]));
        for (int d = 1; d < 8; d *= 2)
            sum += __shfl_xor_sync(~0u, sum, d);
        if (p >= n)
            continue;
        store_four<D>(a, row0 + p / a.group, k, v.h);
        if (!a.out.layout && D % 32 == 0 && k % 32 == 0) {
            __half *to = act_row(a.out, row0 + p / a.group);
            __half hi = half_sat(sum);
            to[xfrag_sum_at(k)] = hi, to[xfrag_sum_at(k) + 8] = half_sat(sum - __half2float(hi));
        }
    }
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

template <int D> static constexpr int groups_most = D > 128 ? 1 : 2;
template <int D, bool Q8> static bool two_groups(const struct device *d)
{
    return groups_most<D> == 2 && tiles<D, 2, Q8>::SMEM <= d->smem_max;
}

template <int D, bool Q8> static void rows_init(struct device *d)
{
    if (tiles<D, 1, Q8>::SMEM <= d->smem_max)
        cuda_smem(d, attend_rows<D, 1, Q8>, tiles<D, 1, Q8>::SMEM);
    if (two_groups<D, Q8>(d))
        cuda_smem(d, attend_rows<D, groups_most<D>, Q8>, tiles<D, groups_most<D>, Q8>::SMEM);
}

template <int D, int G, bool Q8> static void rows_launch(struct device *d, const attend_args &a, uint32_t n_tile)
{
    typedef tiles<D, G, Q8> T;
    uint32_t pieces = a.split ? (d->max_pos + a.split - 1) / a.split : 1;
    cuda_launch(d, attend_rows<D, G, Q8>, dim3(n_tile, a.kv.n_kv, pieces), G * T::THREADS, T::SMEM, LAUNCH_PDL, a);
    if (a.split)
        cuda_launch(d, attend_join<D>, dim3((a.n_head + JOIN_WARPS - 1) / JOIN_WARPS, a.row_hi - a.row_lo),
                    JOIN_WARPS * 32, 0, LAUNCH_PDL, a);
}
/* False where the chip has too little shared memory for it (Turing): split_kv.cu takes any number of rows there. */
template <int D, bool Q8> static bool rows(struct device *d, const attend_args &a, uint32_t n_tile)
{
    if (two_groups<D, Q8>(d))
        rows_launch<D, groups_most<D>, Q8>(d, a, n_tile);
    else if (tiles<D, 1, Q8>::SMEM <= d->smem_max)
        rows_launch<D, 1, Q8>(d, a, n_tile);
    else
        return false;
    return true;
}

void attend_long_init(struct device *d)
{
    each_head([&](auto size) {
        rows_init<size.d, false>(d);
        if constexpr (size.d % KV_Q8_BLOCK == 0)
            rows_init<size.d, true>(d);
    });
}

/* Launches rows [row_lo, row_hi) of the step; false where the chip cannot. */
static bool long_rows(struct device *d, const struct op_attend *op, const attend_args &a)
{
    uint32_t n_tile = 0;
    for (uint32_t s = 0; s < d->n_seq; s++)
        n_tile += tiles_of(a, d->host->row0[s], d->host->n_rows[s]).y;
    bool took = false;
    by_head(op->d_head, [&](auto size) {
        if constexpr (size.d % KV_Q8_BLOCK == 0)
            if (a.q8) {
                took = rows<size.d, true>(d, a, n_tile);
                return;
            }
        took = rows<size.d, false>(d, a, n_tile);
    });
    return took;
}

bool attend_long(struct device *d, const struct op_attend *op, attend_args a)
{
    uint32_t each = d->n_row;
    if (!a.rows_max && d->max_pos > ATTEND_SPLIT)
        a.split = ATTEND_SPLIT, a.split_rows = each = each < attend_split_rows(d) ? each : attend_split_rows(d);
    bool took = true;
    for (a.row_lo = 0; a.row_lo < d->n_row && took; a.row_lo = a.row_hi) {
        a.row_hi = each < d->n_row - a.row_lo ? a.row_lo + each : d->n_row;
        took = long_rows(d, op, a);
    }
    return took;
}
