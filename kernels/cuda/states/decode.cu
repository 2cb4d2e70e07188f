/*
 * decode.cu - a row of a delta net in one kernel, for decode steps (recur.cu has the recurrence, and the other kernels
 * that such a layer needs). Bit-identical to recur.cu's three kernels.
 *
 * A head of a sequence is computed by a thread block cluster, with 32 columns of S a block, or, before Hopper, by one
 * block. Four threads have a column, whose load is issued before the previous kernel has ended, and which is read and
 * written once. Blocks are small, so that they fit beside those of the preceding product.
 *
 * The kernel is a chain of dependent steps that each launch executes once, from code that is not in the instruction
 * cache. So sizes are template parameters: elements need no bounds checks, and their addresses are constant offsets (32
 * KB of code, half of it after griddepcontrol.wait, where a version for any size had 59 KB). Independent work is given
 * to different warps: the lengths of q and k, and the gates. Each block of a head receives all of y for the norm, by
 * stores that a barrier of that block counts: fences would be held up by the weights that the next kernel's blocks are
 * loading on the same SM.
 *
 * Value heads of a key head convolve the same channels of q and k. Where the new state is written to the page that the
 * old one is read from, the last of these blocks to have read the old inputs writes the new ones.
 */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/gemm/rows.cuh"
#include "kernels/cuda/states/recur.cuh"

#include <type_traits>

enum { TAPS = 4, BEFORE = TAPS - 1, DECODE_COLS = 32 };

/* The shape of a block of COLS columns of a head of DK by DV. The inputs that it convolves or only reads lie one after
 * the other in shared memory: q, k, its columns of v and of z. */
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

/* A load that the compiler cannot move to where the value is used. Each is a round trip to L2, so they are issued
 * together. */
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
    /* the pages of its state, and the state */
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
    /* its inputs: their places in the row's columns, counted from the convolution's first one */
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
    uint32_t k4 = lane * 4; /* the lane's columns of the result, which the first warp writes */
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
        cluster_wait();
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
    /* The block has read its inputs, since each was used before the barrier, so that no fence is needed. Which block
     * arrives last is needed only at the end, and not waited for before. */
    if (counts)
        arrived = atomicAdd(sem, 1);
    if (warp < 2) { /* to length 1, as in unit_vectors() */
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
        if (BLOCKS == 4 || lane / 8 < BLOCKS) /* the four threads of a column have y, and each sends it to one block */
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

/* Calls f for the sizes of existing models, and for small ones used by the tests. Returns false for any other size. */
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
