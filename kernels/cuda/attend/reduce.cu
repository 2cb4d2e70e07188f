/*
 * reduce.cu - a row's result from the partial sums of its chunks, added in an order that is fixed by position. It is a
 * kernel of its own: with a ticket and the last block to arrive, each item's release and acquire stalled the SM's
 * outstanding reads, a third of all time with long contexts.
 */
#include "kernels/cuda/attend/plan.cuh"

enum {
    REDUCE_WARPS = REDUCE_SETS,
};

/*
 * Computes the result of a row's head from the partial sums of its chunks. Chunk c of the context belongs to warp c %
 * REDUCE_WARPS, which loads several of its chunks together, in groups that are aligned by position; then the warps'
 * sums are added in order. Chunks that a row does not see add exact zeros, and where all of a tile's rows see only one
 * chunk the result is already stored.
 */
template <int D, class P>
__global__ void __launch_bounds__(REDUCE_WARPS * 32) attend_reduce(const __grid_constant__ split_args a)
{
    constexpr int REDUCE_CHUNKS = D <= 256 ? 16 : 4; /* chunks that a warp loads together */
    constexpr int QUADS = (D / 4 + 31) / 32;         /* fours of neighbouring dimensions per lane */
    __shared__ __align__(16) float y[REDUCE_WARPS][D];
    __shared__ float top[REDUCE_WARPS], den[REDUCE_WARPS];
    uint32_t head = blockIdx.x, row = a.row_lo + blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    pdl_trigger();
    const P &p = plan_of(a, (const P *)NULL);
    item it;
    bool live = tile_of(it, row, head, p, a) && in_pieces(a, it);
    int64_t chunk = (int64_t)a.n_head * (D + 4), step = REDUCE_WARPS * chunk; /* floats from one to the next */
    uint32_t first = live ? it.c_lo / (REDUCE_CHUNKS * REDUCE_WARPS) * (REDUCE_CHUNKS * REDUCE_WARPS) + warp : 0;
    /* computed from the first existing chunk: the address that `first` would have */
    const float *from = live ? partial<D>(a, p, it.s, row, head, it.c_lo) + ((int64_t)first - it.c_lo) * chunk : NULL;
    /* A dry run without chunks before the wait warms the instruction cache, as the code takes longer to fetch than to
     * execute. Where there are more blocks than SMs, earlier blocks have fetched it. */
#pragma unroll 1
    for (int round = P::ONE || blockIdx.y * gridDim.x + head < 256 ? 0 : 1; round < 2; round++) {
        bool real = round;
        if (real) {
            pdl_wait();
            if (!live)
                return;
        }
        const float *at = from;
        float m = -INFINITY, d = 0, sum[QUADS][4] = {};
        uint32_t c0 = first, mine = lane % REDUCE_CHUNKS;
#pragma unroll 1
        do {
            auto there = [&](uint32_t e) {
                uint32_t c = c0 + REDUCE_WARPS * e;
                return real && c >= it.c_lo && c <= it.c_hi;
            };
            float2 ml = make_float2(-INFINITY, 0); /* chunk e's in lane e */
            if (there(mine))
                ml = __ldcg((const float2 *)(at + mine * step + D));
            float4 f[REDUCE_CHUNKS][QUADS];
#pragma unroll
            for (int e = 0; e < REDUCE_CHUNKS; e++, at += step)
#pragma unroll
                for (int k = 0; k < QUADS; k++)
                    f[e][k] = load_if(there(e) && (D % 128 == 0 || lane < D / 4 - 32 * k), at + 4 * (lane + 32 * k));
            float last = m, most = ml.x;
#pragma unroll
            for (int i = 1; i < REDUCE_CHUNKS; i *= 2)
                most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
            m = fmaxf(m, most);
            float base = m == -INFINITY ? 0.f : m, rescale = exp2_fast(last - base), u = exp2_fast(ml.x - base);
            d *= rescale;
#pragma unroll
            for (int k = 0; k < QUADS; k++)
                for (int i = 0; i < 4; i++)
                    sum[k][i] *= rescale;
#pragma unroll
            for (int e = 0; e < REDUCE_CHUNKS; e++) {
                float w = __shfl_sync(~0u, u, e);
                d += w * __shfl_sync(~0u, ml.y, e);
#pragma unroll
                for (int k = 0; k < QUADS; k++) {
                    sum[k][0] += w * f[e][k].x, sum[k][1] += w * f[e][k].y;
                    sum[k][2] += w * f[e][k].z, sum[k][3] += w * f[e][k].w;
                }
            }
            c0 += REDUCE_CHUNKS * REDUCE_WARPS;
        } while (real && c0 - warp <= it.c_hi);
#pragma unroll
        for (int k = 0; k < QUADS; k++)
            if (D % 128 == 0 || lane < D / 4 - 32 * k)
                *(float4 *)&y[warp][4 * (lane + 32 * k)] = make_float4(sum[k][0], sum[k][1], sum[k][2], sum[k][3]);
        if (!lane)
            top[warp] = m, den[warp] = d;
        __syncthreads();
        uint32_t i = threadIdx.x;
        static_assert(D / 4 <= REDUCE_WARPS * 32, "a thread four dimensions");
        if (i < D / 4) {
            float v[4];
            join_sets<REDUCE_WARPS>(
                a, head, top, den, [&](int w, int e) { return y[w][4 * i + e]; }, v);
            store_quad<D>(a, row, head, 4 * i, v, real);
        }
        __syncthreads();
    }
}

/* Computes the sub-block sums of prepared rows whose heads do not end on multiples of 32. */
__global__ void attend_sums(act_buf out, uint32_t n)
{
    pdl_trigger();
    pdl_wait();
    uint32_t k = (blockIdx.x * blockDim.x + threadIdx.x) * 32;
    __half *r = act_row(out, blockIdx.y);
    float four[8] = {0};
    if (k >= n)
        return;
    for (uint32_t i = 0; i < 32 && k + i < n; i++)
        four[i / 4] += __half2float(r[xfrag_at(k + i)]);
    float sum = ((four[0] + four[1]) + (four[2] + four[3])) + ((four[4] + four[5]) + (four[6] + four[7]));
    __half hi = half_sat(sum);
    r[xfrag_sum_at(k)] = hi, r[xfrag_sum_at(k) + 8] = half_sat(sum - __half2float(hi));
}

/* --- launchers ---------------------------------------------------------------------------------------------------- */

void attend_reduce_init(struct device *d)
{
    each_value([&](auto size) {
        cuda_smem(d, attend_reduce<size.d, plan>, 0);
        cuda_smem(d, attend_reduce<size.d, plan_one<true, fixed_pages(size.d)>>, 0),
            cuda_smem(d, attend_reduce<size.d, plan_one<false, fixed_pages(size.d)>>, 0);
    });
}

void attend_reduce_run(struct device *d, const split_args &a, uint32_t d_value)
{
    uint32_t rows = d->bucket - a.row_lo < GEMM_ROWS ? d->bucket - a.row_lo : GEMM_ROWS;
    by_value(d_value, [&](auto size) {
        by_plan<decltype(size)::d>(a, [&](auto kind) {
            cuda_launch(d, attend_reduce<decltype(size)::d, typename decltype(kind)::type>, dim3(a.n_head, rows),
                        REDUCE_WARPS * 32, 0, LAUNCH_PDL, a);
        });
    });
}

void attend_sums_run(struct device *d, const attend_args &a, uint32_t d_head)
{
    if (d_head % 32 && !a.out.layout)
        cuda_launch(d, attend_sums, dim3((a.n_head * d_head + 4095) / 4096, d->bucket), 128, 0, LAUNCH_PDL, a.out,
                    a.n_head * d_head);
}
