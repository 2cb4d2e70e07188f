/* pairs.cu - see pairs.cuh. */
#include "kernels/cuda/experts/pairs.cuh"
#include "kernels/cuda/gemm/prepare.cuh"
#include "kernels/cuda/gemm/rows.cuh"
#include "kernels/cuda/plan.cuh"

/* Exclusive prefix sum of v over a block of 1024 threads; *all: the sum over all of them. */
__device__ static uint32_t sum_before(uint32_t v, uint32_t *all)
{
    __shared__ uint32_t warps[32];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = v, total;
    for (int d = 1; d < 32; d *= 2) {
        uint32_t o = __shfl_up_sync(~0u, sum, d);
        if ((int)lane >= d)
            sum += o;
    }
    __syncthreads(); /* the sums of an earlier call have been read */
    if (lane == 31)
        warps[warp] = sum;
    __syncthreads();
    total = warps[lane];
    for (int d = 1; d < 32; d *= 2) {
        uint32_t o = __shfl_up_sync(~0u, total, d);
        if ((int)lane >= d)
            total += o;
    }
    *all = __shfl_sync(~0u, total, 31);
    return sum - v + (warp ? __shfl_sync(~0u, total, warp - 1) : 0);
}

/* Sorts the step's pairs by expert and makes jobs of up to `cols` of them. One block, one thread for each expert. */
__global__ void __launch_bounds__(EXPERTS_MAX) experts_sort(const float *route, uint32_t n_used, uint32_t n_expert,
                                                            uint32_t cols, const step_dev *step, struct experts_room to)
{
    __shared__ uint32_t count[EXPERTS_MAX], at[EXPERTS_MAX];
    pdl_trigger();
    count[threadIdx.x] = 0;
    pdl_wait();
    __syncthreads();
    uint32_t n = step->n_row * n_used, e = threadIdx.x, all;
    auto expert = [&](uint32_t i) {
        uint32_t row = i / n_used;
        return expert_of(__ldcg(route + (uint64_t)row * n_used + i), n_expert); /* = row * 2 n_used + i % n_used */
    };
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        atomicAdd(&count[expert(i)], 1);
    __syncthreads();
    /* An expert's pairs are divided evenly among its jobs, in multiples of eight. */
    uint32_t mine = count[e], n_job = (mine + cols - 1) / cols, first = sum_before(mine, &all),
             column = sum_before((mine + 7) & ~7u, &all), job = sum_before(n_job, &all),
             most = n_job ? ((mine + n_job - 1) / n_job + 7) & ~7u : 0;
    at[e] = first;
    for (uint32_t j = 0; j < n_job; j++)
        to.jobs[job + j] = {e, first + j * most, min(most, mine - j * most), column + j * most};
    if (!e)
        *to.n_job = all;
    __syncthreads();
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        to.order[atomicAdd(&at[expert(i)], 1)] = i;
}

/* Prepares hidden rows, one warp a record. */
__global__ void __launch_bounds__(256)
    experts_prepare(const float *hidden, uint32_t k, uint32_t n_slot, const step_dev *step, __half *x, uint64_t x_step)
{
    pdl_trigger();
    pdl_wait();
    uint32_t pair = blockIdx.x * 8 + threadIdx.x / 32, r = blockIdx.y, lane = threadIdx.x % 32;
    if (pair >= step->n_row * n_slot)
        return;
    float v[8];
    __half h[8];
    load_eight(v, hidden + (uint64_t)pair * k, r * 256 + lane * 8, k);
#pragma unroll
    for (int i = 0; i < 8; i++)
        h[i] = half_sat(v[i]);
    const __half o[8] = {h[0], h[2], h[1], h[3],
                         h[4], h[6], h[5], h[7]}; /* each group of four in the order 0, 2, 1, 3 */
    __half *to = x + r * x_step + (uint64_t)pair * XFRAG_KBLK;
    *(uint4 *)(to + eight_at(lane)) = *(const uint4 *)o;
    xfrag_store_sums(to, lane, *(const uint4 *)o);
}

/* x += a row's sums, or, if anew, x = the sums; four columns a thread. */
__global__ void __launch_bounds__(256)
    experts_add(const __grid_constant__ expert_sums a, float *x, uint32_t ldx, bool anew)
{
    pdl_trigger();
    pdl_wait();
    uint32_t row = blockIdx.y, k = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (row >= a.step->n_row || k >= a.n)
        return;
    float4 f = a.four(row, k);
    const float s[4] = {f.x, f.y, f.z, f.w};
    x += (uint64_t)row * ldx;
    for (uint32_t i = 0; i < 4 && k + i < a.n; i++)
        x[k + i] = (anew ? 0.f : x[k + i]) + a.by * s[i];
}

/*
 * Finishes a row's sum y: x = x_scale (x + aside_norm(aside + post_norm(y))), where either norm may be absent. A row of
 * up to ROW_NORM_MAX is normed as in gemm/rownorm.cuh, in the order of sums that beside.cuh has too.
 */
enum { END_THREADS = 256, END_KEPT = ROW_NORM_MAX / END_THREADS };
struct experts_end_args {
    float *y, *x;
    const float *aside; /* laid out like x, or NULL */
    uint32_t ldy, ldx, n;
    struct norm post_norm, aside_norm; /* kind NORM_NONE: none */
    float x_scale;
    const step_dev *step;
};
__global__ void __launch_bounds__(END_THREADS) experts_end(experts_end_args a)
{
    __shared__ float shared[32], sixteens[2][ROW_NORM_MAX / 16];
    pdl_trigger();
    pdl_wait();
    uint32_t row = blockIdx.x, first = threadIdx.x;
    if (row >= a.step->n_row)
        return;
    float *y = a.y + (uint64_t)row * a.ldy, *x = a.x + (uint64_t)row * a.ldx;
    if (norm_deferrable(a.post_norm) && (!a.aside || norm_deferrable(a.aside_norm)) && a.n <= ROW_NORM_MAX) {
        float v[END_KEPT];
        auto each = [&](auto f) {
#pragma unroll
            for (int i = 0; i < END_KEPT; i++)
                if (first + i * END_THREADS < a.n)
                    f(v[i], first + i * END_THREADS);
        };
        auto factor = [&](float *sums, float eps) {
            float squares[END_KEPT];
#pragma unroll
            for (int i = 0; i < END_KEPT; i++)
                squares[i] = __fmul_rn(v[i], v[i]);
            sums[first % 16 * (END_THREADS / 16) + first / 16] = sum16_each(squares, first);
            __syncthreads();
            return rsqrtf(__fadd_rn(sum_sixteens(sums, (a.n + 15) / 16, first % 32) / a.n, eps));
        };
#pragma unroll
        for (int i = 0; i < END_KEPT; i++)
            v[i] = 0;
        each([&](float &of, uint32_t k) { of = y[k]; });
        float f = factor(sixteens[0], a.post_norm.eps);
        if (a.aside) {
            const float *aside = a.aside + (uint64_t)row * a.ldx;
            each([&](float &of, uint32_t k) { of = row_normed(aside[k], of, f, a.post_norm.w[k], 1); });
            a.post_norm = a.aside_norm;
            f = factor(sixteens[1], a.post_norm.eps);
        }
        each([&](float &of, uint32_t k) { x[k] = row_normed(x[k], of, f, a.post_norm.w[k], 1) * a.x_scale; });
        return;
    }
    auto normed = [&](const struct norm &nm, float2 st, uint32_t k) {
        return (y[k] - st.x) * st.y * (nm.w ? nm.w[k] : 1.f) + (nm.b ? nm.b[k] : 0.f);
    };
    auto at = [&](uint32_t k) { return y[k]; }; /* each thread reads back only what it wrote itself */
    float2 st = norm_stats(at, a.n, a.post_norm, shared);
    if (a.aside) {
        for (uint32_t k = threadIdx.x; k < a.n; k += blockDim.x)
            y[k] = normed(a.post_norm, st, k) + a.aside[(uint64_t)row * a.ldx + k];
        a.post_norm = a.aside_norm;
        st = norm_stats(at, a.n, a.post_norm, shared);
    }
    for (uint32_t k = threadIdx.x; k < a.n; k += blockDim.x)
        x[k] = (x[k] + normed(a.post_norm, st, k)) * a.x_scale;
}

/* --- launchers ---------------------------------------------------------------------------------------------------- */

void pairs_sort(struct device *d, const experts_args &a)
{
    cuda_launch(d, experts_sort, dim3(1), EXPERTS_MAX, 0, LAUNCH_PDL, a.route, a.n_used, a.n_expert, a.cols, a.step,
                d->ws.experts);
}

void pairs_prepare(struct device *d, const experts_args &a, __half *x)
{
    uint32_t pairs = d->bucket * a.n_slot;
    cuda_launch(d, experts_prepare, dim3((pairs + 7) / 8, a.n_kblk), 256, 0, LAUNCH_PDL, d->ws.experts.hidden, a.k,
                a.n_slot, a.step, x, a.x_step);
}

void pairs_add(struct device *d, const struct expert_sums *s, float *to, uint32_t ldto, bool anew)
{
    cuda_launch(d, experts_add, dim3((s->n + 1023) / 1024, d->bucket), 256, 0, LAUNCH_PDL, *s, to, ldto, anew);
}

void expert_sums_run(struct device *d, const struct expert_sums *s)
{
    pairs_add(d, s, d->ws.x, d->ws.ldx, false);
}

void pairs_end(struct device *d, const struct op_experts_down *op, uint32_t n)
{
    experts_end_args a = {};
    a.y = d->ws.tmp, a.ldy = d->ws.ldtmp, a.x = d->ws.x, a.ldx = d->ws.ldx, a.n = n;
    a.post_norm.kind = a.aside_norm.kind = NORM_NONE;
    if (op->post_norm)
        a.post_norm = *op->post_norm;
    if (op->aside_norm)
        a.aside_norm = *op->aside_norm, a.aside = d->apart.aside;
    a.x_scale = op->x_scale != 0 ? op->x_scale : 1, a.step = d->step;
    cuda_launch(d, experts_end, dim3(d->bucket), END_THREADS, 0, LAUNCH_PDL, a);
}
