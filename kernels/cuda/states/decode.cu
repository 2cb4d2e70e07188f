/*
 * decode.cu - a row of a delta net in one kernel, for steps that decode (recur.cu has the recurrence, and what else
 * such a layer needs). The bits are those of recur.cu's three kernels.
 *
 * A head of a sequence is a thread block cluster's, 32 columns of S a block, or, before Hopper, a block's; four threads
 * have a column, which is on its way before the kernel before has ended, and is read and written once. Blocks are
 * small, so that they find room beside those of the product before.
 *
 * The kernel is a chain of dependent steps that a launch runs once, by code that has to be fetched as it is run: sizes
 * are the kernel's own, so that nothing is asked of an element and its address is an offset (32 KB of code, of which
 * half is behind the wait, where any size had 59), and what does not hang on one another is different warps': q's and
 * k's lengths and the gates. Each block of a head gets all of y for the norm, by stores that a barrier of that block
 * counts: fences would hold up the weights that the next kernel's blocks have asked for on the same processor.
 *
 * Value heads of a key head convolve the same channels. Where a state is left in the page that it is read from, the
 * last of these blocks to have read them leaves the new inputs.
 */
#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/gemm/rows.cuh"
#include "kernels/cuda/states/recur.cuh"

#include <type_traits>

enum { TAPS = 4, BEFORE = TAPS - 1, DECODE_COLS = 32 };

/* A block of COLS columns of a head of DK by DV. What it convolves or only reads of the row lies in shared memory one
 * behind the other: q, k, its columns of v and of z. */
template <int DK, int DV, int COLS> struct decode_shape {
    enum {
        NR = DK / 4,
        BLOCKS = DV / COLS,
        THREADS = 4 * COLS,
        AT_V = 2 * DK,
        AT_Z = AT_V + COLS,
        INPUTS = AT_Z + COLS,
        EACH = (INPUTS + THREADS - 1) / THREADS, /* of a thread */
    };
    static_assert(THREADS >= 128 && DK % 32 == 0 && COLS % 8 == 0, "warps 0 to 2 have something of their own to do");
};

#if __CUDA_ARCH__ >= 900
/* What the cluster's blocks send one another, `bytes` in all for each block, is counted by its barrier `told`. */
__device__ static inline void told_init(uint64_t *told, uint32_t bytes)
{
    mbar_init(told, 1);
    mbar_init_done();
    mbar_expect_tx(told, bytes);
}
__device__ static inline uint32_t there(const void *own, uint32_t rank)
{
    uint32_t at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(smem_of(own)), "r"(rank));
    return at;
}
__device__ static inline void tell(uint32_t at, uint32_t told, float v)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(at), "f"(v),
                 "r"(told)
                 : "memory");
}
__device__ static inline void wait_told(uint64_t *told)
{
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0; @p bra D; "
                 "bra W; D: }" ::"r"(smem_of(told))
                 : "memory");
}
#endif

/* A number that is asked for here, with its neighbours, not where it is wanted: each is a trip to L2. */
__device__ static inline uint32_t now_of(const uint32_t *at)
{
    uint32_t v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(at));
    return v;
}

template <int DK, int DV, int COLS>
__global__ void __launch_bounds__(4 * COLS, COLS == DECODE_COLS ? 5 : 1)
    delta_decode(const __grid_constant__ recur_args a, uint32_t *semaphore)
{
    using S = decode_shape<DK, DV, COLS>;
    constexpr int NR = S::NR;
    constexpr uint32_t THREADS = S::THREADS, BLOCKS = S::BLOCKS, EACH = S::EACH;
    __shared__ __align__(16) float k_s[4 * (NR + 4)], q_s[4 * (NR + 4)], raw[S::INPUTS], y_s[DV];
    __shared__ float2 gate_s;
    __shared__ uint64_t told;
    __shared__ bool last;
    const step_dev *s = a.state.s;
    uint32_t rank = blockIdx.x, head = blockIdx.y, seq = blockIdx.z, tid = threadIdx.x, warp = tid / 32,
             lane = tid % 32;
    pdl_trigger();
    uint32_t n_seq = now_of(&s->n_seq), row = now_of(&s->row0[seq]), pos0 = now_of(&s->pos0[seq]),
             table = now_of(&a.state.pages0[seq]);
    if (seq >= n_seq) {
        pdl_wait();
        return;
    }
    /* where its state lies, and the state */
    uint32_t read = a.state.pages[table], write = a.state.pages[table + 1];
    bool fresh = !pos0, in_place = !fresh && read == write;
    uint32_t mine = warp * 8 + lane % 8, col = rank * COLS + mine, first = lane / 8 * NR;
    uint64_t at = (uint64_t)BEFORE * a.n_channel + (uint64_t)head * (DK * DV) + first * DV + col;
    const float *from = a.state.base + read * a.state.page_step, *mix = a.mix + (uint64_t)row * a.ldmix;
    float *to = a.state.base + write * a.state.page_step;
    column<NR> c;
#pragma unroll
    for (int i = 0; i < NR; i++)
        c.s[i] = fresh ? 0.f : __ldcg(from + at + i * DV);
    /* its inputs: their places among the row's columns, counted from the convolution's first */
    uint32_t each = a.n_v / a.n_k, group = head / each, of = a.tiled ? head % a.n_k : group;
    uint32_t place[EACH];
    float x[EACH][TAPS], by[EACH][TAPS], sum[EACH];
    auto input = [&](uint32_t e) { return tid + e * THREADS; };
    auto has = [&](uint32_t e) { return (e + 1) * THREADS <= S::INPUTS || input(e) < S::INPUTS; };
    auto convolved = [&](uint32_t e) { return (e + 1) * THREADS <= S::AT_Z || input(e) < S::AT_Z; };
#pragma unroll
    for (uint32_t e = 0; e < EACH; e++) {
        uint32_t i = input(e);
        place[e] = i < DK        ? a.at_q + of * DK + i
                   : i < S::AT_V ? a.at_k + of * DK + i - DK
                   : i < S::AT_Z ? a.at_v + head * DV + rank * COLS + i - S::AT_V
                                 : a.at_z - a.at_conv + head * DV + rank * COLS + i - S::AT_Z;
        float4 w = make_float4(0, 0, 0, 0);
        sum[e] = 0;
        if (convolved(e)) {
            w = __ldg((const float4 *)a.conv.w + place[e]);
            if (a.conv.bias)
                sum[e] = a.conv.bias[place[e]];
        }
        by[e][0] = w.x, by[e][1] = w.y, by[e][2] = w.z, by[e][3] = w.w;
#pragma unroll
        for (uint32_t k = 0; k < BEFORE; k++)
            x[e][k] = convolved(e) && !fresh ? __ldcg(from + (place[e] + k * a.n_channel)) : 0.f;
    }
    float dt_bias = 0, decay = 0;
    uint2 gates = gates_at(a, head);
    if (warp == 2)
        dt_bias = a.dt_bias[head], decay = a.decay[head];
    uint32_t k4 = lane * 4; /* of the first warp's columns of the result */
    bool ends = warp == 0 && k4 < COLS;
    float w[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i] = ends ? a.norm.w[rank * COLS + k4 + i] : 0.f;
#if __CUDA_ARCH__ >= 900
    uint32_t y_there = 0, told_there = 0;
    if (BLOCKS > 1) {
        if (!tid)
            told_init(&told, DV * sizeof(float));
        __syncwarp();
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
        y_there = there(&y_s[col], lane / 8 % BLOCKS), told_there = there(&told, lane / 8 % BLOCKS);
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
#endif
    uint32_t *sem = semaphore + seq * a.n_k + of, arrived = 0;
    bool counts = in_place && tid == THREADS - 1;
    constexpr int PARTS = DK / 32;
    pdl_wait();
    float now[EACH], b_in = 0, a_in = 0;
#pragma unroll
    for (uint32_t e = 0; e < EACH; e++)
        now[e] = has(e) ? __ldcg(mix + a.at_conv + place[e]) : 0.f;
    if (warp == 2)
        b_in = __ldcg(mix + a.at_gate + gates.x), a_in = __ldcg(mix + a.at_gate + gates.y);
#pragma unroll
    for (uint32_t e = 0; e < EACH; e++) {
        x[e][BEFORE] = now[e];
        float v = sum[e];
#pragma unroll
        for (uint32_t k = 0; k < TAPS; k++)
            v = __fmaf_rn(by[e][k], x[e][k], v);
        if (has(e))
            raw[input(e)] = state_silu(convolved(e) ? v : now[e]);
    }
    __syncthreads();
    /* The block has its inputs: something was made of each before the barrier, so that no fence is needed. Who is last
     * is wanted in the end, and not waited for before. */
    if (counts)
        arrived = atomicAdd(sem, 1);
    if (warp < 2) { /* of length 1, as unit_vectors() makes them */
        float v[PARTS], square = 0;
#pragma unroll
        for (int e = 0; e < PARTS; e++)
            v[e] = raw[warp * DK + lane + 32 * e], square = __fmaf_rn(v[e], v[e], square);
        float f = __fsqrt_rn(__fadd_rn(warp_sum(square), 1e-6f));
        f = __fdiv_rn(warp ? 1.f : a.unit_q, f);
        float *unit = warp ? k_s : q_s;
#pragma unroll
        for (int e = 0; e < PARTS; e++)
            unit[quarter_at<NR>(lane + 32 * e)] = __fmul_rn(v[e], f);
    } else if (warp == 2) {
        float2 g = gates_of(true, b_in, __fadd_rn(a_in, dt_bias), decay);
        if (!lane)
            gate_s = g;
    }
    __syncthreads();
    float kq = 0;
#pragma unroll
    for (int e = 0; e < PARTS; e++)
        kq = __fmaf_rn(q_s[quarter_at<NR>(lane + 32 * e)], k_s[quarter_at<NR>(lane + 32 * e)], kq);
    kq = warp_sum(kq);
    float2 gate = gate_s;
    float y = c.template step<true, true>(&k_s[quarter_at<NR>(first)], &q_s[quarter_at<NR>(first)], raw[S::AT_V + mine],
                                          gate.x, gate.y, kq);
#if __CUDA_ARCH__ >= 900
    if (BLOCKS > 1) {
        if (BLOCKS == 4 || lane / 8 < BLOCKS) /* a column's four threads have y, and tell a block each */
            tell(y_there, told_there, y);
    } else
#endif
        if (lane < 8)
        y_s[col] = y;
#pragma unroll
    for (int i = 0; i < NR; i++)
        to[at + i * DV] = c.s[i];
#pragma unroll
    for (uint32_t e = 0; e < EACH; e++)
        if (input(e) >= S::AT_V && convolved(e))
#pragma unroll
            for (uint32_t k = 0; k < BEFORE; k++)
                to[place[e] + k * a.n_channel] = x[e][k + 1];
#if __CUDA_ARCH__ >= 900
    if (BLOCKS > 1)
        wait_told(&told);
    else
#endif
        __syncthreads();
    if (warp == 0) {
        float squares = 0, v[4];
#pragma unroll
        for (int j = 0; j < DV / 32; j++) {
            float f = y_s[lane + 32 * j];
            squares = __fmaf_rn(f, f, squares);
        }
        float f = norm_factor(__fmul_rn(warp_sum(squares), 1.f / DV), a.norm.eps);
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] =
                ends ? __fmul_rn(__fmul_rn(__fmul_rn(y_s[rank * COLS + k4 + i], f), w[i]), raw[S::AT_Z + k4 + i]) : 0.f;
        store4(a.out, row, ends ? head * DV + rank * COLS + k4 : 0xffffff00u, a.n_v * DV, v);
    }
    bool leaves = rank == 0 && (a.tiled ? head < a.n_k : head == group * each);
    if (in_place) {
        if (counts) {
            last = arrived == each * BLOCKS - 1;
            if (last)
                *sem = 0;
        }
        __syncthreads();
        leaves = last;
    }
    if (leaves)
#pragma unroll
        for (uint32_t e = 0; e < EACH; e++)
            if (input(e) < S::AT_V)
#pragma unroll
                for (uint32_t k = 0; k < BEFORE; k++)
                    to[place[e] + k * a.n_channel] = x[e][k + 1];
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

/* Of the sizes of models that there are, and of small ones, by which it is tested. */
template <class F> static bool each_size(const recur_args &a, F f)
{
    if (a.d_k == 128 && a.d_v == 128)
        f(std::integral_constant<int, 128>());
    else if (a.d_k == 32 && a.d_v == 32)
        f(std::integral_constant<int, 32>());
    else
        return false;
    return true;
}

bool delta_decodes(const struct device *d, const recur_args &a)
{
    return d->decode && a.conv.n_tap == TAPS && !((uintptr_t)a.conv.w & 15) && BATCH_SEQS_MAX * a.n_k <= SEMAPHORES &&
           a.n_v <= UINT16_MAX && each_size(a, [](auto) {});
}

void delta_decode_run(struct device *d, const recur_args &a)
{
    each_size(a, [&](auto size) {
        constexpr int D = decltype(size)::value;
        uint32_t blocks = D / DECODE_COLS;
        if (d->cc >= 90)
            cuda_launch_clusters(d, blocks, delta_decode<D, D, DECODE_COLS>, dim3(blocks, a.n_v, state_seqs(d)),
                                 4 * DECODE_COLS, 0, LAUNCH_PDL, a, d->ws.semaphore);
        else
            cuda_launch(d, delta_decode<D, D, D>, dim3(1, a.n_v, state_seqs(d)), 4 * D, 0, LAUNCH_PDL, a,
                        d->ws.semaphore);
    });
}
