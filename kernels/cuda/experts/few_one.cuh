/*
 * few_one.cuh - `down` of a step of one row whose route is published, bit-identical to few.cuh: a block computes one
 * tile of all of the row's experts.
 *
 * From the end of `up` on, all of the step waits for this kernel. A warp has only a few records, whose weights have
 * arrived by then. Each record is one dependent chain, from the hidden units to integers and through the product; here
 * three such chains are interleaved.
 */
#ifndef HEARTH_CUDA_EXPERTS_FEW_ONE_CUH
#define HEARTH_CUDA_EXPERTS_FEW_ONE_CUH

#include "kernels/cuda/experts/few_list.cuh"
#include "kernels/cuda/gemm/tile16_int.cuh"

/* Types for which experts_down_one() was measured; they have one fragment a record. */
__host__ __device__ constexpr bool by_threes(int type)
{
    return type == DT_Q4_K || type == DT_Q6_K;
}

#if __CUDA_ARCH__ >= 900

enum { THREE = 3 };

/* int_quantize() of three records, interleaved step by step; the first n of them are stored. */
__device__ static inline void quantize_three(uint8_t *kblk, uint32_t n, uint32_t lane, const float (&v)[THREE][8])
{
    float top[THREE];
    uint2 lo[THREE], hi[THREE];
    int sum[THREE], pairs[THREE], fours[THREE];
#pragma unroll
    for (int r = 0; r < THREE; r++) {
        float most[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            most[i] = fabsf(v[r][i]);
#pragma unroll
        for (int m = 4; m; m /= 2)
#pragma unroll
            for (int i = 0; i < m; i++)
                most[i] = max_nan(most[i], most[i + m]);
        top[r] = most[0];
    }
#pragma unroll
    for (int r = 0; r < THREE; r++)
        top[r] = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(top[r])));
#pragma unroll
    for (int r = 0; r < THREE; r++) {
        float by;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(by) : "f"(top[r]));
        float to = top[r] > 1e-30f && top[r] < 1e30f ? __fmul_rn(IX_MAX, by) : 0.f;
        uint32_t x[8], w[4];
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = __float_as_uint(__fmaf_rn(v[r][i], to, 12582912.f + 128.f));
#pragma unroll
        for (int i = 0; i < 4; i++)
            w[i] = __byte_perm(x[2 * i], x[2 * i + 1], 0x5410);
        lo[r] = {__byte_perm(w[0], w[1], 0x6420) ^ 0x80808080u, __byte_perm(w[2], w[3], 0x6420) ^ 0x80808080u};
        hi[r] = {__byte_perm(w[0], w[1], 0x7531), __byte_perm(w[2], w[3], 0x7531)};
        sum[r] = 256 * __dp4a((int)hi[r].x, 0x01010101, __dp4a((int)hi[r].y, 0x01010101, 0)) +
                 __dp4a((int)lo[r].x, 0x01010101, __dp4a((int)lo[r].y, 0x01010101, 0));
    }
#pragma unroll
    for (int r = 0; r < THREE; r++)
        pairs[r] = sum[r] + __shfl_xor_sync(~0u, sum[r], 1);
#pragma unroll
    for (int r = 0; r < THREE; r++)
        fours[r] = pairs[r] + __shfl_xor_sync(~0u, pairs[r], 2);
#pragma unroll
    for (int r = 0; r < THREE; r++, kblk += IX_KBLK) {
        if (r >= n)
            break;
        *(uint2 *)(kblk + IX_LO + 8 * lane) = lo[r];
        *(uint2 *)(kblk + IX_HI + 8 * lane) = hi[r];
        uint32_t sixteen = lane >> 1;
        if (!(lane & 1))
            ((int *)(kblk + IX_S16))[(sixteen & 3) * 4 + (sixteen >> 2)] = pairs[r];
        if (!(lane & 3))
            ((int *)(kblk + IX_S32))[lane >> 2] = fours[r];
        bool fine = top[r] > 1e-30f && top[r] < 1e30f;
        if (!lane)
            *(float *)(kblk + IX_SCALE) = fine ? top[r] * (1.f / IX_MAX) : isnan(top[r]) ? top[r] : 0.f;
    }
}

/* Loads up to n records, from c on, of the row's hidden rows, which are concatenated; zeros for the rest. */
__device__ static inline void hidden_three(const experts_args &a, uint32_t c, uint32_t n, float (&v)[THREE][8],
                                           uint32_t lane)
{
    uint32_t slot = c / a.n_kblk, r = c - slot * a.n_kblk;
#pragma unroll
    for (uint32_t i = 0; i < THREE; i++) {
        const float *row = slot < a.n_used ? a.hidden + (uint64_t)slot * a.k : a.shared_hidden;
        uint32_t k = r * 256 + lane * 8; /* k and a.k are multiples of 8 */
        float4 p = make_float4(0, 0, 0, 0), q = p;
        if (i < n && k < a.k)
            p = __ldcg((const float4 *)(row + k)), q = __ldcg((const float4 *)(row + k + 4));
        v[i][0] = p.x, v[i][1] = p.y, v[i][2] = p.z, v[i][3] = p.w;
        v[i][4] = q.x, v[i][5] = q.y, v[i][6] = q.z, v[i][7] = q.w;
        if (++r == a.n_kblk)
            r = 0, slot++;
    }
}
#endif

/* Grid: tiles. The register limit leaves room for two blocks of `up` beside one of these. BIASED: the experts have
 * biases. */
template <int T, bool BIASED>
__global__ void __launch_bounds__(320, 2) experts_down_one(const __grid_constant__ experts_args a)
{
#if __CUDA_ARCH__ >= 900
    using C = few_list<T, true>;
    extern __shared__ __align__(128) uint8_t sm[];
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, records = a.n_slot * a.n_kblk;
    uint64_t *full = (uint64_t *)sm + warp * EXPERTS_STAGES;
    uint8_t *xs = sm + FEW_X, *ring = sm + few_fixed(records) + warp * a.stages * C::FRAG;
    float *sums = (float *)(sm + FEW_SUMS);
    if (!lane) {
#pragma unroll 1
        for (uint32_t s = 0; s < a.stages; s++)
            mbar_init(full + s, 1);
        mbar_init_done();
    }
    if (threadIdx.x < 16)
        ((uint32_t *)(sm + FEW_ZERO))[threadIdx.x] = 0;
    __syncthreads();
    if (!a.step->n_row) { /* written before the step's kernels start */
        pdl_wait();
        return;
    }
    uint64_t tag = said_tag(a.step, a.nth);
    C list(a, a.n_tile, records, warp, lane);
    uint32_t id = a.n_expert, s = 0, phase = 0, o = blockIdx.x * 16 + (lane & 15);
    float weight = 0, bias = 0, residual = 0;
    if (lane < a.n_used) {
        uint64_t v = hear(a.said->chosen + lane, tag);
        id = expert_of(said_first(v), a.n_expert), weight = said_second(v);
    }
    __syncwarp();
    list.locate(a, id);
    list.ask_first(ring, full, lane);
#pragma unroll 1
    for (uint32_t i = 1; i < min(a.stages, list.n); i++) {
        mbar_wait(full + i - 1, 0);
        list.ask(a, id, ring + i * C::FRAG, full + i, lane);
    }
    bool mine = lane >> 3 == (lane & 3), ends = !warp; /* g >> 1 == t; this warp finishes the tile */
    if (ends)
        for (uint32_t j = 0; BIASED && j < a.n_used; j++) {
            uint32_t e = __shfl_sync(~0u, id, j);
            float by = __shfl_sync(~0u, weight, j);
            if (o < a.n_out)
                bias = __fmaf_rn(by, a.bias[(uint64_t)e * a.n_out + o], bias);
        }
    pdl_wait();
    if (lane == a.n_used && a.shared)
        weight = a.shared_gate ? __ldcg(a.shared_by) : 1.f;
    if (ends && lane < 16 && o < a.n_out && !a.anew)
        residual = __ldcg(a.out + o);
#pragma unroll 1
    for (uint32_t c = list.r0; c < list.r1; c += THREE) {
        float v[THREE][8];
        hidden_three(a, c, list.r1 - c, v, lane);
        quantize_three(xs + c * IX_KBLK, list.r1 - c, lane, v);
    }
    __syncwarp();
    pdl_trigger(); /* not earlier: the loads above would be delayed by the next kernel's blocks and their copies */
    const uint8_t *x = xs + list.r0 * IX_KBLK;
    float acc[1][2] = {{0, 0}};
    ix_frag v = {x, mine ? x + (lane >> 2 & 1) * IX_HI + 64 * (lane & 3) : sm + FEW_ZERO, 0, 0};
    auto next = [&] {
        v.at += IX_KBLK, v.own += mine ? IX_KBLK : 0;
        if (++s == a.stages)
            s = 0, phase ^= 1;
    };
    auto add = [&](uint32_t c, const float(&part)[1][2]) {
        float by = __shfl_sync(~0u, weight, c / a.n_kblk);
        acc[0][0] = __fmaf_rn(by, part[0][0], acc[0][0]), acc[0][1] = __fmaf_rn(by, part[0][1], acc[0][1]);
    };
    uint32_t c = list.r0;
#pragma unroll 1
    for (; c + THREE <= list.r1 && a.stages >= THREE; c += THREE) {
        float part[THREE][1][2] = {};
        uint32_t at[THREE], ready = s, parity = phase;
#pragma unroll
        for (int i = 0; i < THREE; i++) {
            mbar_wait(full + ready, parity);
            if (++ready == a.stages)
                ready = 0, parity ^= 1;
        }
#pragma unroll
        for (int i = 0; i < THREE; i++) {
            quant<T>::template mul_int<1>(ring + s * C::FRAG, 0, v, lane, part[i]);
            at[i] = s, next();
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < THREE; i++) {
            list.ask(a, id, ring + at[i] * C::FRAG, full + at[i], lane);
            add(c + i, part[i]);
        }
    }
#pragma unroll 1
    for (; c < list.r1; c++) {
        float part[1][2] = {{0, 0}};
        mbar_wait(full + s, phase);
        quant<T>::template mul_int<1>(ring + s * C::FRAG, 0, v, lane, part);
        __syncwarp();
        list.ask(a, id, ring + s * C::FRAG, full + s, lane);
        add(c, part);
        next();
    }
    float *to = sums + warp * 64 + lane, y = 0;
    to[0] = acc[0][0], to[32] = acc[0][1]; /* rows g and g + 8, quarter t */
    __syncthreads();
    if (!ends)
        return;
#pragma unroll
    for (uint32_t n = 0; n < WARPS; n++) {
        float4 f = *(const float4 *)(sums + n * 64 + 4 * (lane & 15));
        y = __fadd_rn(y, __fadd_rn(__fadd_rn(f.x, f.y), __fadd_rn(f.z, f.w)));
    }
    if (lane < 16 && o < a.n_out)
        a.out[o] = __fmaf_rn(a.scale, __fadd_rn(y, bias), residual);
#endif
}

#endif
