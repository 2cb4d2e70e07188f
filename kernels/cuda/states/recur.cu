/*
 * recur.cu - the gated delta net and Mamba-2 (op_delta, op_mamba2 of op.h), which are one recurrence: of each head a
 * matrix S of d_k by d_v numbers, of which a row of the step makes
 *     S' = keep S + k change^T,   y = S'^T q = keep S^T q + (k . q) change,
 * where the delta net's change is beta (v - keep S^T k), and Mamba-2's is t x, its k and q being B and C.
 *
 * A step that decodes a delta net has one kernel, `delta_decode`. Else there are three: `prepare` makes q, k, v and the
 * gates of all rows at once; `scan` goes through a sequence's rows, S in registers; `finish` has the norm and the gate
 * of the result. A column of S depends on no other, so that a warp of `scan` has eight columns, a lane a quarter of
 * one, and 32 heads of 128 by 128 are 512 warps: a warp for each of an H100's schedulers, which needs 0.3 us for a row.
 * So a prompt is read by the recurrence itself, and has the bits of decode (tests/bench/lab/NOTES.md).
 *
 * keep is kept as what it lacks to 1: a head that forgets one part in 100,000 would lose digits that count.
 */
#include "kernels/cuda/experts/row.cuh"
#include "kernels/cuda/states/states.cuh"

#include <cuda_pipeline_primitives.h>

enum {
    PREPARE_WARPS = 4,
    PREPARE_ROWS = 8,
    SCAN_WARPS = 4,
    SCAN_COLS = 8 * SCAN_WARPS, /* columns of S that a block has */
    SCAN_ROWS = 16,             /* rows of the step on their way to shared memory together */
    HEAD_MAX = 256,             /* of d_k */
    FINISH_THREADS = 256,
    FINISH_COLS = 4 * FINISH_THREADS,
};

struct recur_args {
    state_view state;
    struct state_conv conv;
    uint32_t n_channel, n_k, n_v, d_k, d_v;
    bool delta, tiled, paired;
    const float *mix; /* ACT_MIX; in its columns: */
    uint32_t ldmix, at_conv, at_gate, at_z;
    float *made; /* [rows][ldmade]: channels after the convolution, where v becomes y; 2 n_v gates; n_k times k . q */
    uint32_t ldmade, at_q, at_k, at_v;
    const float *decay, *dt_bias, *skip;
    struct norm norm;
    uint32_t norm_cols; /* columns that a norm is over */
    uint32_t span;      /* columns of a block of `finish` */
    act_buf out;
};

/* --- q, k, v and gates ------------------------------------------------------------------------------------------ */

/*
 * Channels c0 + 32 e of rows that follow one another: convolved, then x sigmoid(x). What a channel's convolution looks
 * back at stays in registers from row to row; x[k] is input k of those, the oldest first.
 */
template <int N, int TAPS> struct channels {
    float x[N][TAPS - 1], by[N][TAPS], bias[N];
    uint32_t c0, end; /* those from `end` on are not */

    __device__ void weights(const recur_args &a, uint32_t c0_, uint32_t end_)
    {
        c0 = c0_, end = end_;
#pragma unroll
        for (int e = 0; e < N; e++) {
            uint32_t c = c0 + 32 * e;
            bias[e] = c < end && a.conv.bias ? a.conv.bias[c] : 0.f;
#pragma unroll
            for (uint32_t k = 0; k < TAPS; k++)
                by[e][k] = c < end && k < a.conv.n_tap ? a.conv.w[(uint64_t)c * a.conv.n_tap + k] : 0.f;
        }
    }
    /* What lies before input i of a sequence whose first row of the step is row0. */
    __device__ void look_back(const recur_args &a, const float *from, uint32_t row0, uint32_t i)
    {
        uint32_t before = a.conv.n_tap - 1;
#pragma unroll
        for (int e = 0; e < N; e++)
#pragma unroll
            for (uint32_t k = 0; k < TAPS - 1; k++) {
                uint32_t c = c0 + 32 * e;
                x[e][k] = 0;
                if (c < end && k < before && i + k >= before)
                    x[e][k] = __ldcg(a.mix + (uint64_t)(row0 + i + k - before) * a.ldmix + a.at_conv + c);
                else if (c < end && k < before && from)
                    x[e][k] = __ldcg(from + (uint64_t)(i + k) * a.n_channel + c);
            }
    }
    /* The row's channels, and on to the next one. */
    __device__ void row(const recur_args &a, const float *mix, float (&out)[N])
    {
        uint32_t before = a.conv.n_tap - 1;
#pragma unroll
        for (int e = 0; e < N; e++) {
            float now = c0 + 32 * e < end ? __ldcg(mix + a.at_conv + c0 + 32 * e) : 0.f, sum = bias[e];
#pragma unroll
            for (uint32_t k = 0; k < TAPS; k++)
                sum = __fmaf_rn(by[e][k], k < before ? x[e][k < TAPS - 1 ? k : 0] : k == before ? now : 0.f, sum);
            out[e] = state_silu(sum);
#pragma unroll
            for (uint32_t k = 0; k + 1 < TAPS; k++)
                x[e][k] = k + 1 < before ? x[e][k + 2 < TAPS ? k + 1 : k] : now;
        }
    }
};

/* log(1 + exp(x)) */
__device__ static inline float softplus(float x)
{
    return x > 20.f ? x : log1pf(expf(x));
}

/* What S lacks after a row of what it had, and what its change is multiplied by: with `delta` sigmoid(b), else the
 * step's length. One body for all kernels, as libraries' functions may be fused with what is around them. */
__device__ static __noinline__ float2 gates_of(bool delta, float b, float x, float decay)
{
    float length = softplus(x);
    return make_float2(expm1f(__fmul_rn(decay, length)), delta ? __fdiv_rn(1.f, __fadd_rn(1.f, expf(-b))) : length);
}
/* Where a head's two numbers lie among the gates' columns; Mamba-2 has one. */
__device__ static inline uint2 gates_at(const recur_args &a, uint32_t head)
{
    uint32_t each = a.n_v / a.n_k;
    if (a.paired)
        return make_uint2(head / each * 2 * each + head % each, head / each * 2 * each + each + head % each);
    return make_uint2(head, a.delta ? a.n_v + head : head);
}
__device__ static inline float2 head_gates(const recur_args &a, const float *mix, uint32_t head)
{
    uint2 at = gates_at(a, head);
    const float *g = mix + a.at_gate;
    return gates_of(a.delta, __ldcg(g + at.x), __fadd_rn(__ldcg(g + at.y), a.dt_bias[head]), a.decay[head]);
}

/* What a warp makes of q and k of a head, element lane + 32 e in q[e] and k[e]: of length 1 for a delta net, q over
 * sqrt(d_k). Returns k . q. */
template <int EACH> __device__ static inline float unit_vectors(const recur_args &a, float (&q)[EACH], float (&k)[EACH])
{
    float qq = 0, kk = 0, qk = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++)
        qq = __fmaf_rn(q[e], q[e], qq), kk = __fmaf_rn(k[e], k[e], kk);
    if (a.delta) {
        float by_q = __fdiv_rn(__fdiv_rn(1.f, __fsqrt_rn((float)a.d_k)), __fsqrt_rn(__fadd_rn(warp_sum(qq), 1e-6f)));
        float by_k = __fdiv_rn(1.f, __fsqrt_rn(__fadd_rn(warp_sum(kk), 1e-6f)));
#pragma unroll
        for (int e = 0; e < EACH; e++)
            q[e] = __fmul_rn(q[e], by_q), k[e] = __fmul_rn(k[e], by_k);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        qk = __fmaf_rn(q[e], k[e], qk);
    return warp_sum(qk);
}

/*
 * A warp a task of PREPARE_ROWS rows: a key head; 32 channels of v four times; 32 heads' gates. EACH: channels of a
 * lane that q of a head has.
 */
template <int EACH, int TAPS>
__global__ void __launch_bounds__(PREPARE_WARPS * 32) prepare(const __grid_constant__ recur_args a)
{
    uint32_t task = blockIdx.x * PREPARE_WARPS + threadIdx.x / 32, lane = threadIdx.x % 32,
             first = blockIdx.y * PREPARE_ROWS;
    const step_dev *s = a.state.s;
    uint32_t n_inner = a.n_v * a.d_v, of_v = (n_inner + 127) / 128, end = min(first + PREPARE_ROWS, s->n_row);
    uint32_t at_q = a.at_q + task * a.d_k, at_k = a.at_k + task * a.d_k, at_v = a.at_v + (task - a.n_k) * 128;
    bool keys = task < a.n_k, values = !keys && task - a.n_k < of_v;
    channels<EACH, TAPS> q, k;
    channels<4, TAPS> v;
    pdl_trigger();
    if (keys)
        q.weights(a, at_q + lane, at_q + a.d_k), k.weights(a, at_k + lane, at_k + a.d_k);
    else if (values)
        v.weights(a, at_v + lane, min(at_v + 128, a.at_v + n_inner));
    pdl_wait();
    uint32_t last = ~0u; /* the sequence of the row before */
    for (uint32_t row = first; row < end; row++) {
        uint32_t seq = s->seq[row], row0 = s->row0[seq];
        const float *from = state_from(a.state, seq), *mix = a.mix + (uint64_t)row * a.ldmix;
        float *to = a.made + (uint64_t)row * a.ldmade, *gates = to + a.n_channel;
        if (keys) {
            float qs[EACH], ks[EACH];
            if (seq != last)
                q.look_back(a, from, row0, row - row0), k.look_back(a, from, row0, row - row0);
            q.row(a, mix, qs), k.row(a, mix, ks);
#pragma unroll
            for (int e = 0; e < EACH; e++)
                if (lane + 32 * e >= a.d_k)
                    qs[e] = ks[e] = 0;
            float qk = unit_vectors(a, qs, ks);
#pragma unroll
            for (int e = 0; e < EACH; e++)
                if (lane + 32 * e < a.d_k)
                    to[at_q + lane + 32 * e] = qs[e], to[at_k + lane + 32 * e] = ks[e];
            if (!lane)
                gates[2 * a.n_v + task] = qk;
        } else if (values) {
            float vs[4];
            if (seq != last)
                v.look_back(a, from, row0, row - row0);
            v.row(a, mix, vs);
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (at_v + lane + 32 * e < v.end)
                    to[at_v + lane + 32 * e] = vs[e];
        } else {
            uint32_t head = (task - a.n_k - of_v) * 32 + lane;
            if (head < a.n_v) {
                float2 g = head_gates(a, mix, head);
                gates[2 * head] = g.x, gates[2 * head + 1] = g.y;
            }
        }
        last = seq;
    }
}

/* --- the recurrence --------------------------------------------------------------------------------------------- */

/* Shared memory that is read again, not kept in registers. */
__device__ static inline float4 read_again(const float *at)
{
    float4 f;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(f.x), "=f"(f.y), "=f"(f.z), "=f"(f.w)
                 : "r"((uint32_t)__cvta_generic_to_shared(at)));
    return f;
}

/* A quarter of a column of S: rows g NR .. g NR + NR - 1, of lane 8 g + column. */
template <int NR> struct column {
    float s[NR];

    /* A row of the step: k and q are the quarter's, in shared memory on 16 bytes. Returns y; all four lanes of a column
     * have it. REREAD: k is read again, not kept in registers. */
    template <bool DELTA, bool REREAD = false>
    __device__ inline float step(const float *k_of, const float *q_of, float v, float less, float gate, float kq)
    {
        float k[NR], sk[2] = {0, 0}, sq[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < NR; i += 4) {
            float4 kk = *(const float4 *)(k_of + i), qq = *(const float4 *)(q_of + i);
            k[i] = kk.x, k[i + 1] = kk.y, k[i + 2] = kk.z, k[i + 3] = kk.w;
            if (DELTA) {
                sk[0] = __fmaf_rn(s[i], kk.x, sk[0]), sk[1] = __fmaf_rn(s[i + 1], kk.y, sk[1]);
                sk[0] = __fmaf_rn(s[i + 2], kk.z, sk[0]), sk[1] = __fmaf_rn(s[i + 3], kk.w, sk[1]);
            }
            sq[0] = __fmaf_rn(s[i], qq.x, sq[0]), sq[1] = __fmaf_rn(s[i + 1], qq.y, sq[1]);
            sq[0] = __fmaf_rn(s[i + 2], qq.z, sq[0]), sq[1] = __fmaf_rn(s[i + 3], qq.w, sq[1]);
        }
        float change, a = __fadd_rn(sk[0], sk[1]), b = __fadd_rn(sq[0], sq[1]);
        if (DELTA)
            a = __fadd_rn(a, __shfl_xor_sync(~0u, a, 8));
        b = __fadd_rn(b, __shfl_xor_sync(~0u, b, 8));
        if (DELTA)
            a = __fadd_rn(a, __shfl_xor_sync(~0u, a, 16));
        b = __fadd_rn(b, __shfl_xor_sync(~0u, b, 16));
        change = __fmul_rn(gate, DELTA ? __fsub_rn(v, __fmaf_rn(less, a, a)) : v);
#pragma unroll
        for (int i = 0; i < NR; i += 4) {
            float4 f = REREAD ? read_again(k_of + i) : make_float4(k[i], k[i + 1], k[i + 2], k[i + 3]);
            s[i] = __fmaf_rn(f.x, change, __fmaf_rn(s[i], less, s[i]));
            s[i + 1] = __fmaf_rn(f.y, change, __fmaf_rn(s[i + 1], less, s[i + 1]));
            s[i + 2] = __fmaf_rn(f.z, change, __fmaf_rn(s[i + 2], less, s[i + 2]));
            s[i + 3] = __fmaf_rn(f.w, change, __fmaf_rn(s[i + 3], less, s[i + 3]));
        }
        return __fmaf_rn(kq, change, __fmaf_rn(less, b, b));
    }

    /* Of S of a head at `at`, [d_k, d_v]; NULL: zeros. */
    __device__ inline void load(const float *at, uint32_t first, uint32_t d_k, uint32_t col, uint32_t d_v)
    {
#pragma unroll
        for (int i = 0; i < NR; i++)
            s[i] = at && first + i < d_k && col < d_v ? __ldcg(at + (uint64_t)(first + i) * d_v + col) : 0.f;
    }
    __device__ inline void store(float *at, uint32_t first, uint32_t d_k, uint32_t col, uint32_t d_v) const
    {
#pragma unroll
        for (int i = 0; i < NR; i++)
            if (first + i < d_k && col < d_v)
                at[(uint64_t)(first + i) * d_v + col] = s[i];
    }
};

/* Quarters of a vector lie so that four lanes' 16 bytes hit different banks. */
template <int NR> __device__ static inline uint32_t quarter_at(uint32_t i)
{
    return i / NR * (NR + 4) + i % NR;
}
template <int NR> struct scan_stage {
    float k[SCAN_ROWS][4 * (NR + 4)], q[SCAN_ROWS][4 * (NR + 4)], v[SCAN_ROWS][SCAN_COLS], gate[SCAN_ROWS][4];
};

/* A thread's share of n rows of `of` things, without a division for each. */
struct scan_share {
    uint32_t of, row, at, rows, rest;
    __device__ explicit scan_share(uint32_t of_)
        : of(of_), row(threadIdx.x / of_), at(threadIdx.x % of_), rows(blockDim.x / of_), rest(blockDim.x % of_)
    {
    }
    template <class F> __device__ void each(uint32_t n, F f) const
    {
        for (uint32_t r = row, e = at; r < n;) {
            f(r, e);
            r += rows, e += rest;
            if (e >= of)
                e -= of, r++;
        }
    }
};

/* The convolution's state after n_row rows, of this block's share of the channels. */
__device__ static inline void leave_inputs(const recur_args &a, const float *from, float *to, uint32_t row0,
                                           uint32_t n_row, uint32_t share, uint32_t shares)
{
    uint32_t before = a.conv.n_tap - 1, c0 = (uint32_t)((uint64_t)a.n_channel * share / shares),
             c1 = (uint32_t)((uint64_t)a.n_channel * (share + 1) / shares);
    for (uint32_t c = c0 + threadIdx.x; c < c1; c += blockDim.x)
        for (uint32_t k = 0; k < before; k++) { /* ascending: what is read here lies behind what was written */
            uint32_t i = n_row + k;
            to[(uint64_t)k * a.n_channel + c] =
                i >= before ? __ldcg(a.mix + (uint64_t)(row0 + i - before) * a.ldmix + a.at_conv + c)
                : from      ? from[(uint64_t)i * a.n_channel + c]
                            : 0.f;
        }
}

/* SCAN_COLS columns of a head, all rows of a sequence. */
template <int NR, bool DELTA>
__global__ void __launch_bounds__(SCAN_WARPS * 32) scan(const __grid_constant__ recur_args a)
{
    __shared__ __align__(16) scan_stage<NR> stage[NR <= 32 ? 2 : 1];
    constexpr uint32_t STAGES = NR <= 32 ? 2 : 1;
    uint32_t chunks = (a.d_v + SCAN_COLS - 1) / SCAN_COLS, head = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
    uint32_t seq = blockIdx.y, lane = threadIdx.x % 32, mine = threadIdx.x / 32 * 8 + lane % 8;
    uint32_t col = chunk * SCAN_COLS + mine, first = lane / 8 * NR,
             of = a.tiled ? head % a.n_k : head / (a.n_v / a.n_k);
    const step_dev *s = a.state.s;
    column<NR> c;
    pdl_trigger();
    if (seq >= s->n_seq) {
        pdl_wait();
        return;
    }
    uint32_t row0 = s->row0[seq], n_row = s->n_rows[seq];
    uint64_t at = (uint64_t)(a.conv.n_tap - 1) * a.n_channel + (uint64_t)head * a.d_k * a.d_v;
    const float *from = state_from(a.state, seq);
    float *to = state_to(a.state, seq), skip = DELTA ? 0.f : a.skip[head];
    c.load(from ? from + at : NULL, first, a.d_k, col, a.d_v); /* written in an earlier step */
    for (uint32_t i = threadIdx.x; i < STAGES * SCAN_ROWS * (4 * NR - min(a.d_k, 4u * NR)); i += blockDim.x) {
        uint32_t pad = 4 * NR - a.d_k, r = i / pad, e = quarter_at<NR>(a.d_k + i % pad);
        stage[r / SCAN_ROWS].k[r % SCAN_ROWS][e] = stage[r / SCAN_ROWS].q[r % SCAN_ROWS][e] = 0.f;
    }
    pdl_wait();
    bool aligned = (a.d_k | a.d_v | a.at_q | a.at_k | a.at_v) % 4 == 0;
    uint32_t width = aligned ? 4 : 1, left = min((uint32_t)SCAN_COLS, a.d_v - chunk * SCAN_COLS);
    const scan_share keys(a.d_k / width), values(left / width);
    const float *made = a.made + (uint64_t)row0 * a.ldmade, *v_of = made + a.at_v + head * a.d_v + chunk * SCAN_COLS;
    auto copy = [&](float *y, const float *x) {
        if (aligned)
            __pipeline_memcpy_async(y, x, 16);
        else
            __pipeline_memcpy_async(y, x, 4);
    };
    auto fetch = [&](uint32_t r0, scan_stage<NR> &st) {
        uint32_t n = min((uint32_t)SCAN_ROWS, n_row - r0);
        const float *rows = made + (uint64_t)r0 * a.ldmade;
        keys.each(n, [&](uint32_t r, uint32_t e) {
            const float *x = rows + (uint64_t)r * a.ldmade + of * a.d_k + e * width;
            copy(&st.k[r][quarter_at<NR>(e * width)], x + a.at_k);
            copy(&st.q[r][quarter_at<NR>(e * width)], x + a.at_q);
        });
        values.each(n, [&](uint32_t r, uint32_t e) {
            copy(&st.v[r][e * width], v_of + (uint64_t)(r0 + r) * a.ldmade + e * width);
        });
        for (uint32_t i = threadIdx.x; i < 4 * n; i += blockDim.x) {
            uint32_t r = i / 4, e = i % 4;
            if (e < 3)
                __pipeline_memcpy_async(
                    &st.gate[r][e],
                    rows + (uint64_t)r * a.ldmade + a.n_channel + (e < 2 ? 2 * head + e : 2 * a.n_v + of), 4);
        }
        __pipeline_commit();
    };
    if (STAGES == 2 && n_row)
        fetch(0, stage[0]);
    for (uint32_t r0 = 0, turn = 0; r0 < n_row; r0 += SCAN_ROWS, turn ^= STAGES - 1) {
        uint32_t next = r0 + SCAN_ROWS;
        if (STAGES == 1)
            fetch(r0, stage[0]);
        if (STAGES == 2 && next < n_row) {
            fetch(next, stage[turn ^ (STAGES - 1)]);
            __pipeline_wait_prior(1);
        } else
            __pipeline_wait_prior(0);
        __syncthreads();
        const scan_stage<NR> &st = stage[turn];
        for (uint32_t r = 0; r < SCAN_ROWS && r0 + r < n_row; r++) {
            float v = st.v[r][mine];
            float4 g = *(const float4 *)st.gate[r];
            float y = c.template step<DELTA>(&st.k[r][quarter_at<NR>(first)], &st.q[r][quarter_at<NR>(first)], v, g.x,
                                             g.y, g.z);
            if (lane < 8 && col < a.d_v)
                a.made[(uint64_t)(row0 + r0 + r) * a.ldmade + a.at_v + head * a.d_v + col] =
                    DELTA ? y : __fmaf_rn(skip, v, y);
        }
        __syncthreads();
    }
    c.store(to + at, first, a.d_k, col, a.d_v);
    leave_inputs(a, from, to, row0, n_row, blockIdx.x, gridDim.x);
}

/* --- the result ------------------------------------------------------------------------------------------------- */

/* The number that the norm is over: Mamba-2's gate comes before it. */
__device__ static inline float ungated(const recur_args &a, const float *y, const float *z, uint32_t k)
{
    return a.delta ? __ldcg(y + k) : __fmul_rn(__ldcg(y + k), state_silu(__ldcg(z + k)));
}

__device__ static inline float norm_factor(float squares, uint32_t n, float eps)
{
    return __fdiv_rn(1.f, __fsqrt_rn(__fadd_rn(__fdiv_rn(squares, (float)n), eps)));
}

/* `span` columns of a row, which are whole norms. Dynamic shared memory: a factor for each. */
__global__ void __launch_bounds__(FINISH_THREADS) finish(const __grid_constant__ recur_args a)
{
    extern __shared__ float factor[];
    __shared__ float shared[32];
    uint32_t row = blockIdx.y, n = a.n_v * a.d_v, k0 = blockIdx.x * a.span, k1 = min(n, k0 + a.span),
             each = a.norm_cols;
    bool live = row < a.state.s->n_row;
    pdl_trigger();
    pdl_wait();
    if (!live)
        return;
    const float *y = a.made + (uint64_t)row * a.ldmade + a.at_v, *z = a.mix + (uint64_t)row * a.ldmix + a.at_z;
    uint32_t lane = threadIdx.x % 32, groups = (k1 - k0) / each;
    bool together = each > 512; /* the block has a norm together */
    for (uint32_t g = together ? 0 : threadIdx.x / 32; g < groups; g += together ? 1 : FINISH_THREADS / 32) {
        float sum = 0;
        for (uint32_t j = together ? threadIdx.x : lane; j < each; j += together ? FINISH_THREADS : 32) {
            float v = ungated(a, y, z, k0 + g * each + j);
            sum = __fmaf_rn(v, v, sum);
        }
        sum = together ? block_sum(sum, shared) : warp_sum(sum);
        if (together ? !threadIdx.x : !lane)
            factor[g] = norm_factor(sum, each, a.norm.eps);
    }
    __syncthreads();
    for (uint32_t base = k0; base < k1; base += FINISH_COLS) { /* whole warps, for the sums of store4 */
        uint32_t k = base + threadIdx.x * 4;
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = 0;
            if (k + i < k1) {
                float f = factor[(k + i - k0) / each], w = a.norm.w[a.delta ? (k + i) % each : k + i];
                v[i] = __fmul_rn(__fmul_rn(ungated(a, y, z, k + i), f), w);
                if (a.delta)
                    v[i] = __fmul_rn(v[i], state_silu(__ldcg(z + k + i)));
            }
        }
        store4(a.out, row, k < k1 ? k : 0xffffff00u, n, v);
    }
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

/*
 * All three for a row of a delta net: a head of a sequence is a thread block cluster's, 32 columns of S a block, or,
 * before Hopper, a block's; four threads have a column, which is on its way before the kernel before has ended, and is
 * read and written once. What the other kernels would give, to the bit. Blocks are small, so that they find room beside
 * those of the product before.
 *
 * Value heads of a key head convolve the same channels. Where a state is left in the page that it is read from, the
 * last of these blocks to have read them leaves the new inputs.
 */
enum { DECODE_HEAD = 128, DECODE_TAPS = 4, DECODE_COLS = 32, DECODE_CHANNELS = 3 /* of a thread */ };

/* Numbers in shared memory go to the same place in block `rank` of the cluster, too. */
__device__ static inline void tell(float *at, uint32_t rank, float v)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .u32 a; mapa.shared::cluster.u32 a, %0, %1; st.shared::cluster.f32 [a], %2; }" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(at)),
                 "r"(rank), "f"(v)
                 : "memory");
#else
    *at = v;
#endif
}
/* All threads of all of a head's blocks: what was told is there. */
__device__ static inline void all_told()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}

/* COLS: columns of a block, at most. */
template <int NR, int COLS>
__global__ void __launch_bounds__(4 * COLS, COLS == DECODE_COLS ? 5 : 1)
    delta_decode(const __grid_constant__ recur_args a, uint32_t *semaphore)
{
    __shared__ __align__(16) float k_s[4 * (NR + 4)], q_s[4 * (NR + 4)], raw[3 * DECODE_HEAD], y_s[DECODE_HEAD];
    __shared__ float kq;
    __shared__ bool last;
    const step_dev *s = a.state.s;
    uint32_t cols = blockDim.x / 4, blocks = a.d_v / cols, rank = blockIdx.x % blocks, head = blockIdx.x / blocks;
    uint32_t seq = blockIdx.y, tid = threadIdx.x, warp = tid / 32, lane = tid % 32, d_k = a.d_k, d_v = a.d_v;
    uint32_t mine = warp * 8 + lane % 8, col = rank * cols + mine, first = lane / 8 * NR, each = a.n_v / a.n_k;
    uint32_t of = a.tiled ? head % a.n_k : head / each, before = a.conv.n_tap - 1;
    column<NR> c;
    pdl_trigger();
    if (seq >= s->n_seq) {
        pdl_wait();
        return;
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;"); /* the others' memory is there once they have started */
#endif
    uint32_t row = s->row0[seq];
    uint64_t at = (uint64_t)before * a.n_channel + (uint64_t)head * d_k * d_v;
    const float *from = state_from(a.state, seq), *mix = a.mix + (uint64_t)row * a.ldmix;
    float *to = state_to(a.state, seq);
    c.load(from ? from + at : NULL, first, d_k, col, d_v);
    /* its channels: the key head's, then the block's of v */
    uint32_t channel[DECODE_CHANNELS];
    float x[DECODE_CHANNELS][DECODE_TAPS], by[DECODE_CHANNELS][DECODE_TAPS], sum[DECODE_CHANNELS];
    auto has = [&](uint32_t e) { return tid + e * blockDim.x < 2 * d_k + cols; };
#pragma unroll
    for (uint32_t e = 0; e < DECODE_CHANNELS; e++) {
        uint32_t i = tid + e * blockDim.x;
        channel[e] = i < d_k       ? a.at_q + of * d_k + i
                     : i < 2 * d_k ? a.at_k + of * d_k + i - d_k
                                   : a.at_v + head * d_v + rank * cols + i - 2 * d_k;
        sum[e] = has(e) && a.conv.bias ? a.conv.bias[channel[e]] : 0.f;
#pragma unroll
        for (uint32_t k = 0; k < DECODE_TAPS; k++) {
            x[e][k] = by[e][k] = 0;
            if (has(e) && k <= before && (from || k == before)) {
                by[e][k] = a.conv.w[(uint64_t)channel[e] * a.conv.n_tap + k];
                if (k < before)
                    x[e][k] = __ldcg(from + (uint64_t)k * a.n_channel + channel[e]);
            }
        }
    }
    float dt_bias = a.dt_bias[head], decay = a.decay[head];
    uint32_t k4 = lane * 4; /* of the first warp's columns of the result */
    float w[4], z[4];
    bool ends = warp == 0 && k4 < cols;
#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i] = ends ? a.norm.w[rank * cols + k4 + i] : 0.f;
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
    pdl_wait();
    uint2 of_gates = gates_at(a, head);
    float b_in = __ldcg(mix + a.at_gate + of_gates.x), a_in = __ldcg(mix + a.at_gate + of_gates.y);
    float now[DECODE_CHANNELS];
#pragma unroll
    for (uint32_t e = 0; e < DECODE_CHANNELS; e++)
        now[e] = has(e) ? __ldcg(mix + a.at_conv + channel[e]) : 0.f;
#pragma unroll
    for (int i = 0; i < 4; i++)
        z[i] = ends ? __ldcg(mix + a.at_z + head * d_v + rank * cols + k4 + i) : 0.f;
#pragma unroll
    for (uint32_t e = 0; e < DECODE_CHANNELS; e++) {
#pragma unroll
        for (uint32_t k = 0; k < DECODE_TAPS; k++) {
            x[e][k] = k == before ? now[e] : x[e][k];
            sum[e] = __fmaf_rn(by[e][k], x[e][k], sum[e]);
        }
        if (has(e))
            raw[tid + e * blockDim.x] = state_silu(sum[e]);
    }
    __syncthreads();
    bool in_place = from && state_page(a.state, seq, 0) == state_page(a.state, seq, 1);
    /* The block has its inputs: something was made of each before the barrier, so that no fence is needed, which would
     * hold up all loads of the processor. Who is last is wanted in the end, and not waited for before. */
    uint32_t *sem = semaphore + seq * a.n_k + of, arrived = 0;
    bool counts = in_place && tid == blockDim.x - 1;
    if (counts)
        arrived = atomicAdd(sem, 1);
    if (warp == 0) {
        enum { EACH = DECODE_HEAD / 32 };
        float q[EACH], k[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            uint32_t i = lane + 32 * e;
            q[e] = i < d_k ? raw[i] : 0.f, k[e] = i < d_k ? raw[d_k + i] : 0.f;
        }
        float qk = unit_vectors(a, q, k);
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            uint32_t i = lane + 32 * e;
            if (i < 4 * NR)
                q_s[quarter_at<NR>(i)] = q[e], k_s[quarter_at<NR>(i)] = k[e];
        }
        if (!lane)
            kq = qk;
    }
    float2 gate = gates_of(true, b_in, __fadd_rn(a_in, dt_bias), decay);
    __syncthreads();
    float y = c.template step<true, true>(&k_s[quarter_at<NR>(first)], &q_s[quarter_at<NR>(first)], raw[2 * d_k + mine],
                                          gate.x, gate.y, kq);
    if (lane < 8)
        for (uint32_t r = 0; r < blocks; r++)
            tell(&y_s[col], r, y);
    all_told();
    if (warp == 0) {
        float squares = 0, v[4];
        for (uint32_t j = lane; j < d_v; j += 32)
            squares = __fmaf_rn(y_s[j], y_s[j], squares);
        float f = norm_factor(warp_sum(squares), d_v, a.norm.eps);
        uint32_t k = rank * cols + k4;
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = ends ? __fmul_rn(__fmul_rn(__fmul_rn(y_s[k + i], f), w[i]), state_silu(z[i])) : 0.f;
        store4(a.out, row, ends ? head * d_v + k : 0xffffff00u, a.n_v * d_v, v);
    }
    c.store(to + at, first, d_k, col, d_v);
    if (in_place) {
        if (counts) {
            last = arrived == each * blocks - 1;
            if (last)
                *sem = 0;
        }
        __syncthreads();
    }
    bool leaves = in_place ? last : rank == 0 && (a.tiled ? head < a.n_k : head % each == 0);
#pragma unroll
    for (uint32_t e = 0; e < DECODE_CHANNELS; e++)
        if (has(e) && (tid + e * blockDim.x >= 2 * d_k || leaves))
#pragma unroll
            for (uint32_t k = 0; k < DECODE_TAPS - 1; k++)
                if (k < before)
                    to[(uint64_t)k * a.n_channel + channel[e]] = x[e][k + 1];
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

/* Not before the kernel before has ended: its blocks would come to lie on the processors that are done first, several
 * on one, and each needs one to itself. */
template <int NR> static void scan_of(struct device *d, const recur_args &a, dim3 grid)
{
    if (a.delta)
        cuda_launch(d, scan<NR, true>, grid, SCAN_WARPS * 32, 0, LAUNCH_PLAIN, a);
    else
        cuda_launch(d, scan<NR, false>, grid, SCAN_WARPS * 32, 0, LAUNCH_PLAIN, a);
}

/* Whether a step that decodes has a kernel for itself. */
static bool decodes(const struct device *d, const struct op_delta *op)
{
    return d->decode && op->conv.n_tap <= DECODE_TAPS && op->d_v % DECODE_COLS == 0 && op->d_v <= DECODE_HEAD &&
           op->d_k <= DECODE_HEAD && 2 * op->d_k + DECODE_COLS <= DECODE_CHANNELS * 4 * DECODE_COLS &&
           BATCH_SEQS_MAX * op->n_k <= SEMAPHORES;
}

template <int NR> static void decode_of(struct device *d, const recur_args &a)
{
    uint32_t blocks = a.d_v / DECODE_COLS;
    if (d->cc >= 90)
        cuda_launch_clusters(d, blocks, delta_decode<NR, DECODE_COLS>, dim3(a.n_v * blocks, state_seqs(d)),
                             4 * DECODE_COLS, 0, LAUNCH_PDL, a, d->ws.semaphore);
    else
        cuda_launch(d, delta_decode<NR, DECODE_HEAD>, dim3(a.n_v, state_seqs(d)), 4 * a.d_v, 0, LAUNCH_PDL, a,
                    d->ws.semaphore);
}

/* alone: one kernel does all. */
static void run(struct device *d, struct op_call *p, recur_args &a, bool alone)
{
    uint32_t n = a.n_v * a.d_v, chunks = (a.d_v + SCAN_COLS - 1) / SCAN_COLS, tasks;
    a.mix = d->ws.mix, a.ldmix = d->ws.ldmix, a.made = d->ws.made, a.ldmade = d->ws.ldmix;
    if (a.n_channel + 2 * a.n_v + a.n_k > a.ldmade) {
        cuda_refuse(d, HEARTH_EUNSUPPORTED, "%u heads of %u: the GPU has no room for their gates", a.n_v, a.d_v);
        return;
    }
    if (alone) {
        a.out = state_result(d, p, n);
        if (a.d_k <= 16)
            decode_of<4>(d, a);
        else if (a.d_k <= 32)
            decode_of<8>(d, a);
        else if (a.d_k <= 64)
            decode_of<16>(d, a);
        else
            decode_of<32>(d, a);
        return;
    }
    tasks = a.n_k + (n + 127) / 128 + (a.n_v + 31) / 32;
    dim3 rows((tasks + PREPARE_WARPS - 1) / PREPARE_WARPS, (d->bucket + PREPARE_ROWS - 1) / PREPARE_ROWS);
    auto kernel = a.conv.n_tap > DECODE_TAPS ? prepare<HEAD_MAX / 32, STATE_TAPS_MAX>
                  : a.d_k > DECODE_HEAD      ? prepare<HEAD_MAX / 32, DECODE_TAPS>
                                             : prepare<DECODE_HEAD / 32, DECODE_TAPS>;
    cuda_launch(d, kernel, rows, PREPARE_WARPS * 32, 0, LAUNCH_PDL, a);
    dim3 grid(a.n_v * chunks, state_seqs(d));
    if (a.d_k <= 16)
        scan_of<4>(d, a, grid);
    else if (a.d_k <= 32)
        scan_of<8>(d, a, grid);
    else if (a.d_k <= 64)
        scan_of<16>(d, a, grid);
    else if (a.d_k <= 128)
        scan_of<32>(d, a, grid);
    else
        scan_of<64>(d, a, grid);
    a.out = state_result(d, p, n);
    for (a.span = a.norm_cols; a.span < n && (a.span % 32 || a.span < FINISH_COLS);)
        a.span += a.norm_cols;
    cuda_launch(d, finish, dim3((n + a.span - 1) / a.span, d->bucket), FINISH_THREADS,
                a.span / a.norm_cols * sizeof(float), LAUNCH_PDL, a);
}

/* Whether a recurrence of these sizes is one, and has its kernels (lacks.cu has refused what has none). */
static bool sizes_ok(struct device *d, const char *what, const recur_args &a)
{
    uint64_t channels = 2ull * a.n_k * a.d_k + (uint64_t)a.n_v * a.d_v;
    if (a.conv.n_tap >= 2 && a.conv.n_tap <= STATE_TAPS_MAX && a.n_k && a.n_v && a.n_v % a.n_k == 0 && a.d_k && a.d_v &&
        a.d_k <= STATE_D_MAX && a.d_v <= STATE_D_MAX && channels <= UINT32_MAX / STATE_TAPS_MAX)
        return true;
    cuda_refuse(d, HEARTH_EPARAMS, "%s of %u heads of %u on %u of %u, with %u taps", what, a.n_v, a.d_v, a.n_k, a.d_k,
                a.conv.n_tap);
    return false;
}

void delta_run(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_delta *op = &o->delta;
    recur_args a = {};
    a.delta = true, a.tiled = op->tiled, a.paired = op->paired, a.conv = op->conv;
    a.n_k = op->n_k, a.n_v = op->n_v, a.d_k = op->d_k, a.d_v = op->d_v;
    if (!sizes_ok(d, "delta", a))
        return;
    a.n_channel = delta_channels(op);
    uint32_t inner = a.n_v * a.d_v, n_mix = a.n_channel + inner + 2 * a.n_v;
    uint64_t n = (uint64_t)(a.conv.n_tap - 1) * a.n_channel + (uint64_t)inner * a.d_k;
    if (!state_begin(d, "delta", op->group, op->layer, n, n_mix, inner, &a.state))
        return;
    a.at_z = a.n_channel, a.at_gate = a.n_channel + inner;
    a.at_k = a.n_k * a.d_k, a.at_v = 2 * a.at_k;
    a.decay = op->decay, a.dt_bias = op->dt_bias, a.norm = op->norm, a.norm_cols = a.d_v;
    run(d, p, a, decodes(d, op));
}

void mamba2_run(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_mamba2 *op = &o->mamba2;
    recur_args a = {};
    a.conv = op->conv;
    a.n_k = op->n_group, a.n_v = op->n_head, a.d_k = op->d_state, a.d_v = op->d_head;
    if (!sizes_ok(d, "mamba2", a))
        return;
    a.n_channel = mamba2_channels(op);
    uint32_t inner = a.n_v * a.d_v, n_mix = inner + a.n_channel + a.n_v;
    uint64_t n = (uint64_t)(a.conv.n_tap - 1) * a.n_channel + (uint64_t)inner * a.d_k;
    if (!state_begin(d, "mamba2", op->group, op->layer, n, n_mix, inner, &a.state))
        return;
    a.at_conv = inner, a.at_gate = inner + a.n_channel;
    a.at_k = inner, a.at_q = inner + a.n_k * a.d_k;
    a.decay = op->decay, a.dt_bias = op->dt_bias, a.skip = op->skip, a.norm = op->norm;
    a.norm_cols = inner / op->n_group;
    run(d, p, a, false);
}
