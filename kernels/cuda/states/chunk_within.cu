/*
 * chunk_within.cu - what depends only on a chunk's own rows (chunk.cu has the formulas): q, k and v after the
 * convolution, and T and P, for all chunks at once.
 */
#include "kernels/cuda/states/chunk.cuh"

#include <cuda_pipeline_primitives.h>

enum {
    WITHIN_THREADS = 256,
    WITHIN_HEADS = 4, /* value heads of a key head whose systems are inverted together */
    LOWER =
        ROWS + 4, /* floats of a row of a matrix to invert; padded so that a fragment's lanes have no bank conflicts */
};

/* --- q, k and v ------------------------------------------------------------------------------------------------- */

enum { PREPARE_WARPS = 4, PREPARE_ROWS = 8, TAPS = 4, BEFORE = TAPS - 1 };

/* A warp takes one task for PREPARE_ROWS rows of a chunk: 128 channels, four in each lane, which are a head of q, k or
 * v; or the gates of 32 heads. All inputs are loaded at once. */
__global__ void __launch_bounds__(PREPARE_WARPS * 32) chunk_prepare(const __grid_constant__ recur_args a)
{
    uint32_t task = blockIdx.x * PREPARE_WARPS + threadIdx.x / 32, lane = threadIdx.x % 32, tasks = a.n_channel / D;
    uint32_t channel = task * D + lane * 4, head = (task - tasks) * 32 + lane, r0 = blockIdx.y % (ROWS / PREPARE_ROWS);
    float4 by[4], bias = make_float4(0, 0, 0, 0);
    pdl_trigger();
    if (task < tasks) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            by[e] = *(const float4 *)(a.conv.w + (channel + e) * TAPS);
        if (a.conv.bias)
            bias = *(const float4 *)(a.conv.bias + channel);
    }
    pdl_wait();
    const chunk c = chunk_at(a.state.s, blockIdx.y / (ROWS / PREPARE_ROWS));
    r0 *= PREPARE_ROWS;
    if (r0 >= c.n)
        return;
    const uint32_t n = min((uint32_t)PREPARE_ROWS, c.n - r0), at = c.at + r0;
    const float *mix = a.mix + (uint64_t)(c.row0 + r0) * a.ldmix;
    if (task >= tasks) {
        if (head >= a.n_v)
            return;
        uint2 of = gates_at(a, head);
#pragma unroll
        for (uint32_t r = 0; r < PREPARE_ROWS; r++)
            if (r < n) {
                const float *g = mix + (uint64_t)r * a.ldmix + a.at_gate;
                float length = softplus(__ldcg(g + of.y) + a.dt_bias[head]), b = __ldcg(g + of.x);
                *gates_of_row(a, c.row0 + r0 + r, head) = make_float2(a.decay[head] * length, 1.f / (1.f + expf(-b)));
            }
        return;
    }
    const float *from = state_from(a.state, c.seq);
    float4 in[PREPARE_ROWS + BEFORE];
#pragma unroll
    for (uint32_t i = 0; i < PREPARE_ROWS + BEFORE; i++) {
        in[i] = make_float4(0, 0, 0, 0);
        if (at + i >= BEFORE && i < n + BEFORE)
            in[i] = __ldcg((const float4 *)(mix + ((int64_t)i - BEFORE) * a.ldmix + channel));
        else if (at + i < BEFORE && from)
            in[i] = __ldcg((const float4 *)(from + (uint64_t)(at + i) * a.n_channel + channel));
    }
#pragma unroll
    for (uint32_t r = 0; r < PREPARE_ROWS; r++) {
        float x[4] = {bias.x, bias.y, bias.z, bias.w};
        float *row = a.made + (uint64_t)(c.row0 + r0 + r) * a.ldmade + task * D;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float w[TAPS] = {by[e].x, by[e].y, by[e].z, by[e].w};
#pragma unroll
            for (int k = 0; k < TAPS; k++)
                x[e] = __fmaf_rn(w[k], (&in[r + k].x)[e], x[e]);
            x[e] = state_silu(x[e]);
        }
        if (r >= n) /* the same in all lanes */
            break;
        if (task < 2 * a.n_k) {
            float sum = warp_sum(x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3]);
            float unit = (task < a.n_k ? a.unit_q * CHUNK_Q : CHUNK_K) / sqrtf(sum + 1e-6f);
            uint2 hi, lo;
            split(x[0] * unit, x[1] * unit, hi.x, lo.x);
            split(x[2] * unit, x[3] * unit, hi.y, lo.y);
            *(uint2 *)((__half *)row + lane * 4) = hi;
            *(uint2 *)((__half *)row + D + lane * 4) = lo;
        } else
            *(float4 *)(row + lane * 4) = make_float4(x[0], x[1], x[2], x[3]);
    }
}

/* --- T and P ---------------------------------------------------------------------------------------------------- */

struct within_smem {
    union {
        __half x[4][ROWS * D]; /* hi and lo of k, of q */
        float inverse[WITHIN_HEADS][ROWS][ROWS];
    };
    float lower[WITHIN_HEADS][ROWS * LOWER]; /* [column][row] */
    double sum[WITHIN_HEADS][ROWS];          /* G */
    float beta[WITHIN_HEADS][ROWS];
    uint32_t bad; /* the first row whose k is not finite, or ROWS */
};

/* For one head, by a warp: writes beta and the sums of the logarithms of keep to shared memory. In global memory
 * replaces both numbers of each row by what is kept from the chunk's first row up to this one, in the encoding of
 * kept(), and by what is kept from this row to the chunk's end. */
__device__ static inline void sum_gates(const recur_args &a, const chunk &c, uint32_t head, uint32_t bad, double *sum,
                                        float *beta)
{
    uint32_t lane = threadIdx.x % 32, lacks[2];
    float2 gate[2];
    double x[2], before = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t r = lane + 32 * i;
        gate[i] = r < c.n ? __ldcg(gates_of_row(a, c.row0 + r, head)) : make_float2(0, 0);
        lacks[i] = __ballot_sync(~0u, !(gate[i].x <= 80.f) || isnan(gate[i].y));
    }
    bad = min(bad, lacks[0] ? __ffs(lacks[0]) - 1 : lacks[1] ? 31 + __ffs(lacks[1]) : ROWS);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        bool good = lane + 32 * i < bad;
        x[i] = good ? (double)fmaxf(gate[i].x, -1000.f) : 0.;
        for (int o = 1; o < 32; o *= 2) {
            double y = __shfl_up_sync(~0u, x[i], o);
            x[i] += lane >= o ? y : 0.;
        }
        x[i] += before;
        before = __shfl_sync(~0u, x[i], 31);
        sum[lane + 32 * i] = x[i], beta[lane + 32 * i] = good ? gate[i].y : 0.f;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t r = lane + 32 * i;
        if (r < c.n)
            *gates_of_row(a, c.row0 + r, head) =
                make_float2(r < bad ? kept(x[i]) : __int_as_float(0x7fffffff), expf((float)(before - x[i])));
    }
}

/* Computes column `col` of the inverse of 1 + lower, by blocks of 16 rows; the blocks before `first` are zeros. */
__device__ static inline void invert(const float *lower, float (*inverse)[ROWS], uint32_t col, uint32_t first)
{
    for (uint32_t b = first; b < ROWS; b += 16) {
        float x[16];
#pragma unroll
        for (int i = 0; i < 16; i++)
            x[i] = b + i == col ? 1.f : 0.f;
        for (uint32_t j = first; j < b; j++) {
            float by = inverse[j][col];
#pragma unroll
            for (int i = 0; i < 16; i += 4) {
                float4 m = *(const float4 *)(lower + j * LOWER + b + i);
                x[i] -= m.x * by, x[i + 1] -= m.y * by, x[i + 2] -= m.z * by, x[i + 3] -= m.w * by;
            }
        }
#pragma unroll
        for (int j = 0; j < 16; j++) {
            inverse[b + j][col] = x[j];
#pragma unroll
            for (int i = j / 4 * 4; i < 16; i += 4) {
                float4 m = *(const float4 *)(lower + (b + j) * LOWER + b + i);
                const float of[4] = {m.x, m.y, m.z, m.w};
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (i + e > j)
                        x[i + e] -= of[e] * x[j];
            }
        }
    }
}

__global__ void __launch_bounds__(WITHIN_THREADS, 1) chunk_within(const __grid_constant__ recur_args a)
{
    extern __shared__ __align__(128) uint8_t dynamic[];
    within_smem &m = *(within_smem *)dynamic;
    uint32_t of = blockIdx.x, each = a.n_v / a.n_k, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (!threadIdx.x)
        m.bad = ROWS;
    pdl_trigger();
    pdl_wait();
    const chunk c = chunk_at(a.state.s, blockIdx.y);
    if (!c.n)
        return;
    for (uint32_t i = threadIdx.x; i < ROWS * 4 * D / 8; i += WITHIN_THREADS) {
        uint32_t r = i / (4 * D / 8), which = i / (D / 8) % 4, p = i % (D / 8);
        const float *row = a.made + (uint64_t)(c.row0 + (r < c.n ? r : 0)) * a.ldmade + (which < 2 ? a.at_k : a.at_q);
        __pipeline_memcpy_async(piece<D / 8>(m.x[which], r, p), (const __half *)(row + of * D) + which % 2 * D + p * 8,
                                16, r < c.n ? 0 : 16);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < ROWS * D / 8; i += WITHIN_THREADS) {
        uint4 k = *(const uint4 *)(m.x[0] + i * 8);
        const uint32_t two[4] = {k.x, k.y, k.z, k.w};
        bool none = false;
#pragma unroll
        for (int e = 0; e < 4; e++)
            none |= (two[e] & 0x7c00) == 0x7c00 || (two[e] & 0x7c000000) == 0x7c000000;
        if (none)
            atomicMin(&m.bad, i / (D / 8));
    }
    __syncthreads();
    const uint32_t bad = m.bad;
    if (bad < ROWS) { /* no other block reads these rows of k before this kernel has ended */
        for (uint32_t i = threadIdx.x; i < ROWS * 2 * D / 8; i += WITHIN_THREADS) {
            uint32_t r = i / (2 * D / 8), p = i % (2 * D / 8);
            if (r >= bad) {
                *(uint4 *)piece<D / 8>(m.x[p / (D / 8)], r, p % (D / 8)) = make_uint4(0, 0, 0, 0);
                if (r < c.n)
                    *(uint4 *)((__half *)(a.made + (uint64_t)(c.row0 + r) * a.ldmade + a.at_k + of * D) + p * 8) =
                        make_uint4(0, 0, 0, 0);
            }
        }
        __syncthreads();
    }

    /* four warps compute k . k and four q . k, 16 rows each: what lies below or on the diagonal */
    const uint32_t tile = warp % 4, g = lane / 4, t = lane % 4;
    const bool queries = warp >= 4;
    float dot[8][4] = {};
#pragma unroll
    for (uint32_t ks = 0; ks < D / 16; ks++) {
        left x;
        uint32_t r = 16 * tile + lane % 16, p = 2 * ks + lane / 16;
        matrices<false>(x.hi, piece<D / 8>(m.x[queries ? 2 : 0], r, p));
        matrices<false>(x.lo, piece<D / 8>(m.x[queries ? 3 : 1], r, p));
        add16<4, false>(dot, x, ROWS * D, [&](int n) {
            return piece<D / 8>(m.x[0], 16 * n + lane / 16 * 8 + lane % 8, 2 * ks + lane / 8 % 2);
        });
    }
    __syncthreads();
    for (uint32_t h0 = 0; h0 < each; h0 += WITHIN_HEADS) {
        uint32_t heads = min((uint32_t)WITHIN_HEADS, each - h0);
        auto head_of = [&](uint32_t h) { return a.tiled ? of + (h0 + h) * a.n_k : of * each + h0 + h; };
        if (warp < heads)
            sum_gates(a, c, head_of(warp), bad, m.sum[warp], m.beta[warp]);
        __syncthreads();
        for (uint32_t h = 0; h < heads; h++) {
#pragma unroll
            for (uint32_t n = 0; n < 8; n++)
#pragma unroll
                for (uint32_t e = 0; e < 4; e += 2) {
                    uint32_t i = 16 * tile + g + 4 * e, j = 8 * n + 2 * t;
                    float x[2];
                    if (n / 2 > tile)
                        continue;
#pragma unroll
                    for (uint32_t k = 0; k < 2; k++) {
                        float keep = expf((float)(m.sum[h][i] - m.sum[h][j + k])), by = dot[n][e + k];
                        if (queries)
                            x[k] = j + k <= i ? keep * by * (1.f / (CHUNK_Q * CHUNK_K)) : 0.f;
                        else
                            x[k] = j + k < i ? m.beta[h][i] * keep * by * (1.f / (CHUNK_K * CHUNK_K)) : 0.f;
                    }
                    if (!queries)
                        m.lower[h][j * LOWER + i] = x[0], m.lower[h][(j + 1) * LOWER + i] = x[1];
                    else if (i < c.n)
                        *(float2 *)(made_of(a, c.row0 + i, head_of(h)) + ROWS + j) = make_float2(x[0], x[1]);
                }
        }
        __syncthreads();
        if (warp / 2 < heads)
            invert(m.lower[warp / 2], m.inverse[warp / 2], warp % 2 * 32 + lane, warp % 2 * 32);
        __syncthreads();
        for (uint32_t at = threadIdx.x; at < heads * ROWS * ROWS / 4; at += WITHIN_THREADS) {
            uint32_t h = at / (ROWS * ROWS / 4), i = at / (ROWS / 4) % ROWS, j = at % (ROWS / 4) * 4;
            float x[4];
            if (i >= c.n || j / 16 > i / 16) /* blocks above the diagonal are never read */
                continue;
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                x[e] = j + e <= i ? m.inverse[h][i][j + e] * m.beta[h][j + e] : 0.f;
            *(float4 *)(made_of(a, c.row0 + i, head_of(h)) + j) = make_float4(x[0], x[1], x[2], x[3]);
        }
        __syncthreads();
    }
}

/* --- launchers -------------------------------------------------------------------------------------------------- */

void delta_chunks_within(struct device *d, const recur_args &a)
{
    static uint32_t done;
    uint32_t tasks = a.n_channel / D + (a.n_v + 31) / 32;
    if (!(done >> d->index & 1)) {
        cuda_smem(d, chunk_within, sizeof(within_smem));
        done |= 1u << d->index;
    }
    cuda_launch(d, chunk_prepare, dim3((tasks + PREPARE_WARPS - 1) / PREPARE_WARPS, a.chunks * (ROWS / PREPARE_ROWS)),
                PREPARE_WARPS * 32, 0, LAUNCH_PDL, a);
    cuda_launch(d, chunk_within, dim3(a.n_k, a.chunks), WITHIN_THREADS, sizeof(within_smem), LAUNCH_PDL, a);
}
