/*
 * norm.cu - RMS norms of rows, after the row's last product has been added from its partial sums (pieces, split_k.cuh):
 * for wgmma.cu into the order of wgmma's fragments, few rows by clusters of blocks, many by one block each,
 * bit-identically; for experts into the prepared form.
 */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/gemm/rows.cuh"
#include "kernels/cuda/gemm/wgmma.cuh"
#include "kernels/cuda/plan.cuh"

/* Loads elements k .. k + 3 of n, aligned to 16 bytes; zeros past the end. */
__device__ static inline void load_four(const float *from, uint32_t k, uint32_t n, float *to)
{
    if (k + 4 <= n) {
        float4 f = *(const float4 *)(from + k);
        to[0] = f.x, to[1] = f.y, to[2] = f.z, to[3] = f.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[i] = k + i < n ? from[k + i] : 0.f;
}

/*
 * A row has CLUSTER times NORM_THREADS threads; each has elements 4 thread + i STEP .. + 3. Squares are added within a
 * thread, within a warp, over the warps of a block of NORM_THREADS, then over the blocks.
 */
enum { CLUSTER = 8, NORM_THREADS = 128, KEEP = 2, STEP = CLUSTER * NORM_THREADS * 4 };
/* The row lengths for which norm_cluster() has kernels: at most STEP / 2 elements, at most STEP, or more. */
enum row_length { ROW_SHORT, ROW_MEDIUM, ROW_LONG };
struct norm_args {
    float *x;
    uint32_t ldx, n;
    struct norm nm;
    const uint32_t *gather;
    partials add;
    const float *bias;
    struct expert_sums experts;

    /* The step's row for output row i. */
    __device__ uint32_t of(uint32_t i) const
    {
        return gather ? gather[i] : i;
    }
    __device__ float *row(uint32_t of) const
    {
        return x + (uint64_t)of * ldx;
    }
    /* Loads elements k .. k + 3 of the step's row i_row, at r, and adds what is outstanding for them; zeros if not
     * `real`. The result is stored back, except where rows are gathered, as a row may be gathered twice. SUMS: experts'
     * sums are added, too. */
    template <bool SUMS, int AT_ONCE = 4>
    __device__ void added(float *r, uint32_t i_row, uint32_t k, const partials::place &from, const float *bias4,
                          float *to, bool real) const
    {
        bool whole = k + 4 <= n;
        float4 f = load_if(real && whole, r + k);
        to[0] = f.x, to[1] = f.y, to[2] = f.z, to[3] = f.w;
        if (real && !whole)
            load_four(r, k, n, to);
        if (!add.p && !(SUMS && experts.y))
            return;
        if (SUMS && experts.y) {
            float4 sum = experts.four(i_row, k, real);
            const float o[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[i] = k + i < n ? to[i] + experts.by * o[i] : 0.f;
        }
        if (add.p) {
            float4 sum = partials::sum<AT_ONCE>(from, real);
            const float o[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[i] = k + i < n ? to[i] + (o[i] + bias4[i]) * add.by : 0.f;
        }
        if (real && whole && !gather)
            *(float4 *)(r + k) = make_float4(to[0], to[1], to[2], to[3]);
        else if (real && !gather)
            for (int i = 0; i < 4 && k + i < n; i++)
                r[k + i] = to[i];
    }
    /* y: the norm of elements k .. k + 3. */
    __device__ void normed(uint32_t k, const float *f, const float *g, float scale, float *y) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            y[i] = k + i < n ? f[i] * scale * g[i] + (nm.b ? nm.b[k + i] : 0.f) : 0.f;
    }
    /* The same, stored at `at` in a form of ld rows. */
    __device__ void store(__half *at, uint32_t ld, uint32_t k, const float *f, const float *g, float scale) const
    {
        float y[4];
        normed(k, f, g, scale, y);
        const __half h[4] = {half_sat(y[0]), half_sat(y[2]), half_sat(y[1]), half_sat(y[3])};
        *(uint32_t *)at = *(const uint32_t *)h;
        *(uint32_t *)(at + ld * 8) = *(const uint32_t *)(h + 2);
    }
};

/*
 * RMS norm of a row by a cluster of blocks, each taking a part of it, after the row's last product has been added: a
 * single block would wait many times as long for a row's partial sums. WG: the output is in wgmma's order; `two`: a
 * second output form, unused where its p is NULL. FIT: bounds a thread to 80 registers, so that a block fits beside two
 * of a product of up to 16 columns. EARLY: the blocks start long before griddepcontrol.wait returns, and execute
 * everything once as a dry run on no data, to warm the instruction cache: the code takes longer to fetch than to
 * execute. Where blocks find room only as the product's blocks exit, a dry run would delay the real one.
 *
 * LENGTH: for rows of at most STEP elements a thread has four elements, and no code for more: code is fetched as it is
 * executed, and most rows are no longer. A short row takes half the blocks, and its partial sums, up to eighteen, are
 * loaded together; the sums are the same.
 */
enum { FIT = 6 };
template <bool WG, bool SUMS, bool EARLY, enum row_length LENGTH>
__global__ void __cluster_dims__(LENGTH == ROW_SHORT ? CLUSTER / 2 : CLUSTER)
    __launch_bounds__(NORM_THREADS, SUMS || !WG ? 1 : FIT)
        norm_cluster(float *x, uint32_t ldx, uint32_t n, struct norm nm, const uint32_t *gather, partials add,
                     const float *bias, const __grid_constant__ expert_sums experts, act_buf out, act_buf two)
{
#if __CUDA_ARCH__ >= 900
    constexpr bool FAR = LENGTH == ROW_LONG;
    constexpr uint32_t RANKS = LENGTH == ROW_SHORT ? CLUSTER / 2 : CLUSTER, KEEP = FAR ? ::KEEP : 1;
    constexpr int AT_ONCE = LENGTH == ROW_SHORT ? 17 : 8;
    constexpr uint32_t WARPS = NORM_THREADS / 32;
    __shared__ float sums[RANKS][WARPS]; /* of the row's warps */
    __shared__ __align__(8) uint64_t told;
    const norm_args a = {x, ldx, n, nm, gather, add, bias, experts};
    uint32_t row = blockIdx.x / RANKS, rank = blockIdx.x % RANKS, k0 = (rank * NORM_THREADS + threadIdx.x) * 4,
             end = (n + 255) / 256 * 256;
    float v[KEEP][4], w[KEEP][4], c[KEEP][4];
    partials::place place[KEEP];
    __half *to[KEEP];
    if (!threadIdx.x)
        told_init(&told, sizeof sums);
    __syncwarp();
    cluster_arrive();
    pdl_trigger();
    uint32_t of = a.of(row);
    float *r = a.row(of);
#pragma unroll
    for (uint32_t i = 0; i < KEEP; i++) {
        uint32_t k = k0 + i * STEP;
        load_four(a.nm.w, k, n, w[i]);
        load_four(a.bias, k, a.add.p && a.bias ? n : 0, c[i]);
        place[i] = k < n ? a.add.at(of, k) : partials::place{NULL, NULL, 0, 0};
        to[i] = WG ? wg_place(out, row, k, n) : NULL;
    }
#pragma unroll 1
    for (int pass = EARLY ? 0 : 1; pass < 2; pass++) {
        bool real = pass;
        float s = 0;
        auto squares = [&](const float *f) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                s = fmaf(f[i], f[i], s);
        };
        if (real)
            pdl_wait();
#pragma unroll
        for (uint32_t i = 0; i < KEEP; i++)
            if (k0 + i * STEP < n)
                a.added<SUMS, AT_ONCE>(r, of, k0 + i * STEP, place[i], c[i], v[i], real), squares(v[i]);
        if (FAR && real)
            for (uint32_t k = k0 + KEEP * STEP; k < n; k += STEP) {
                float far[4], more[4];
                load_four(a.bias, k, a.add.p && a.bias ? n : 0, more);
                a.added<SUMS>(r, of, k, a.add.at(of, k), more, far, true), squares(far);
            }
        for (int i = 16; i; i /= 2)
            s += __shfl_xor_sync(~0u, s, i);
        if (!real || !EARLY)
            cluster_wait();
        uint32_t lane = threadIdx.x % 32;
        if (real && lane < RANKS)
            tell(there(&sums[rank][threadIdx.x / 32], lane), there(&told, lane), s);
        if (real)
            wait_told(&told);
        s = 0; /* of a dry run's sums nothing is used */
#pragma unroll
        for (uint32_t i = 0; i < RANKS; i++) {
            float part = 0;
#pragma unroll
            for (uint32_t k = 0; k < WARPS; k++)
                part += sums[i][k];
            s += part;
        }
        float scale = rsqrtf(s / n + a.nm.eps);
        auto put = [&](uint32_t k, const float *f, const float *g, __half *at) {
            if constexpr (WG) {
                a.store(at, out.ld, k, f, g, scale);
                if (two.p)
                    a.store(wg_place(two, row, k, n), two.ld, k, f, g, scale);
            } else { /* called by whole warps: `end` and a warp's first k are multiples of 128 */
                float y[4];
                a.normed(k, f, g, scale, y);
                store4(out, row, k, n, y);
            }
        };
#pragma unroll
        for (uint32_t i = 0; i < KEEP; i++)
            if (real && k0 + i * STEP < end)
                put(k0 + i * STEP, v[i], w[i], to[i]);
        if (FAR && real)
            for (uint32_t k = k0 + KEEP * STEP; k < end; k += STEP) {
                float far[4], g[4];
                load_four(r, k, n, far), load_four(a.nm.w, k, n, g);
                put(k, far, g, WG ? wg_place(out, row, k, n) : NULL);
            }
    }
#endif
}

/*
 * One block per row of at most KEEP * STEP elements: a thread does the work of EACH threads of norm_cluster(). The row
 * is kept in shared memory, so that the sixteen bytes of each step are stored at once; registers instead would need a
 * copy of the code for each four elements.
 */
enum { ROW_THREADS = 256, EACH = CLUSTER * NORM_THREADS / ROW_THREADS };
static uint32_t norm_block_bytes(uint32_t n)
{
    return (n + 255) / 256 * 256 * (sizeof(float) + sizeof(__half));
}
template <bool SUMS>
__global__ void __launch_bounds__(ROW_THREADS) norm_block(const __grid_constant__ norm_args a, act_buf out, act_buf two)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) float kept[];
    __shared__ float warps[CLUSTER * NORM_THREADS / 32];
    uint32_t row = blockIdx.x, n = a.n, end = (n + 255) / 256 * 256;
    __half *form = (__half *)(kept + end);
    pdl_trigger();
    pdl_wait();
    uint32_t of = a.of(row);
    float *r = a.row(of);
#pragma unroll 1
    for (int j = 0; j < EACH; j++) {
        float s = 0;
#pragma unroll
        for (uint32_t i = 0; i < KEEP; i++) {
            uint32_t k = (j * ROW_THREADS + threadIdx.x) * 4 + i * STEP;
            float c[4], v[4];
            if (k >= n)
                continue;
            load_four(a.bias, k, a.add.p && a.bias ? n : 0, c);
            a.added<SUMS>(r, of, k, a.add.at(of, k), c, v, true);
#pragma unroll
            for (int e = 0; e < 4; e++)
                s = fmaf(v[e], v[e], s);
            *(float4 *)(kept + k) = make_float4(v[0], v[1], v[2], v[3]);
        }
        s = warp_sum(s);
        if (threadIdx.x % 32 == 0)
            warps[(j * ROW_THREADS + threadIdx.x) / 32] = s;
    }
    __syncthreads();
    float q = 0;
#pragma unroll 1
    for (int i = 0; i < CLUSTER; i++) {
        float part = 0;
        for (int k = 0; k < NORM_THREADS / 32; k++)
            part += warps[i * (NORM_THREADS / 32) + k];
        q += part;
    }
    float scale = rsqrtf(q / n + a.nm.eps);
#pragma unroll 1
    for (int second = 0; second < 1 + (two.p != NULL); second++) {
        const act_buf &o = second ? two : out;
#pragma unroll 2
        for (uint32_t k = threadIdx.x * 4; k < end; k += ROW_THREADS * 4) {
            float w[4], v[4];
            load_four(a.nm.w, k, n, w), load_four(kept, k, n, v);
            a.store(form + wg_at(o.layout - LAYOUT_WG, 1, 0, k), 1, k, v, w, scale);
        }
        __syncthreads();
        __half *to = wg_place(o, row, 0, n);
        for (uint32_t i = threadIdx.x; i < end / 8; i += ROW_THREADS)
            *(uint4 *)(to + (uint64_t)i * o.ld * 8) = *(const uint4 *)(form + 8 * i);
        __syncthreads();
    }
#endif
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

/* Whether a product of n rows, two of whose blocks fill an SM, leaves a quarter of the places free. */
static bool leaves_room(const struct device *d, const partials &of, uint32_t n)
{
    uint32_t units = of.p ? (((n - 1) >> of.log_rows) + 1) * of.n_kblk : 0,
             blocks = of.p ? (units + of.per - 1) / of.per : 0;
    return 4 * blocks <= 3 * 2 * (uint32_t)d->sms;
}

/* The cluster kernel for rows of LENGTH. form: output in wgmma's order; sums: experts' sums are added; room: its blocks
 * can start early. */
template <enum row_length LENGTH> static auto cluster_of(bool form, bool sums, bool room)
{
    if (form)
        return sums ? norm_cluster<true, true, true, LENGTH> : norm_cluster<true, false, false, LENGTH>;
    if (sums)
        return norm_cluster<false, true, false, LENGTH>;
    return room ? norm_cluster<false, false, true, LENGTH> : norm_cluster<false, false, false, LENGTH>;
}

void norm_pieces_run(struct device *d, struct op_call *p, const struct norm *nm, uint32_t n, act_buf out, act_buf two,
                     bool gather, uint32_t bucket)
{
    if (gather && (n > KEEP * STEP || p->read_again & ACT_BIT(ACT_X)))
        plan_complete(d, p, ACT_BIT(ACT_X));
    const bool taken = gather && p->acts.pieces & ACT_BIT(ACT_X); /* added up while reading, and not stored */
    norm_args a = {d->ws.x, d->ws.ldx, n,           *nm, gather ? d->step->out_row + p->row0 : NULL,
                   p->x,    p->x_bias, p->x_experts};
    bool form = out.layout >= LAYOUT_WG, sums = p->x_experts.y, room = leaves_room(d, a.add, n);
    bool half = form && !sums && n <= STEP / 2; /* other short rows were not measured */
    auto cluster = half       ? norm_cluster<true, false, false, ROW_SHORT>
                   : n > STEP ? cluster_of<ROW_LONG>(form, sums, room)
                              : cluster_of<ROW_MEDIUM>(form, sums, room);
    static uint32_t done;
    if (!(done >> d->index & 1)) {
        cuda_smem(d, norm_block<true>, norm_block_bytes(KEEP * STEP));
        cuda_smem(d, norm_block<false>, norm_block_bytes(KEEP * STEP));
        done |= 1u << d->index;
    }
    if (form && bucket > WG_ROWS && n <= KEEP * STEP)
        cuda_launch(d, sums ? norm_block<true> : norm_block<false>, dim3(bucket), ROW_THREADS, norm_block_bytes(n),
                    LAUNCH_PDL, a, out, two);
    else
        cuda_launch(d, cluster, dim3(bucket * (half ? CLUSTER / 2 : CLUSTER)), NORM_THREADS, 0, LAUNCH_PDL, a.x, a.ldx,
                    a.n, a.nm, a.gather, a.add, a.bias, a.experts, out, two);
    x_completed(p);
    if (taken)
        act_taken(&p->acts, ACT_X);
}
