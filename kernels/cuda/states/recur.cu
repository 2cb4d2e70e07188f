/*
 * recur.cu - the gated delta net and Mamba-2 (op_delta, op_mamba2 of op.h), which are one recurrence: each head has a
 * matrix S of d_k by d_v numbers, which a row of the step updates by
 *
 *     S' = keep S + k change^T,   y = S'^T q = keep S^T q + (k . q) change,
 *
 * where the delta net's change is beta (v - keep S^T k), and Mamba-2's is t x, with B and C as k and q.
 *
 * A decode step of a delta net is a single kernel where decode.cu has its sizes. Otherwise there are three kernels:
 * `prepare` computes q, k, v and the gates of all rows at once; `scan` goes through a sequence's rows with S in
 * registers; `finish` applies the norm and the gate to the result. The columns of S are independent, so that a warp of
 * `scan` has eight columns, a lane a quarter of one, and 32 heads of 128 by 128 are 512 warps: about one for each of an
 * H100's schedulers, which takes 0.3 us for a row. In invariant steps a prompt is therefore bit-identical to decoding;
 * in others a delta net's prompts are computed in chunks, without `prepare` and `scan` (chunk.cu,
 * tests/bench/lab/NOTES.md).
 *
 * keep is stored as keep - 1: a head that forgets one part in 100,000 would otherwise lose significant digits.
 */
#include "kernels/cuda/states/recur.cuh"

#include <cuda_pipeline_primitives.h>
#include <math.h>

enum {
    PREPARE_WARPS = 4,
    PREPARE_ROWS = 8,
    SCAN_WARPS = 4,
    SCAN_COLS = 8 * SCAN_WARPS, /* columns of S of a block */
    SCAN_ROWS = 16,             /* rows of the step that are copied to shared memory together */
    HEAD_MAX = 256,             /* largest d_k */
    FEW_HEAD = 128,             /* largest d_k of the kernel with fewer registers */
    FEW_TAPS = 4,
    FINISH_THREADS = 256,
    FINISH_COLS = 4 * FINISH_THREADS,
};

/* --- q, k, v and gates ------------------------------------------------------------------------------------------ */

/*
 * Channels c0 + 32 e of consecutive rows: convolved, then x sigmoid(x). The inputs that a channel's convolution looks
 * back at stay in registers from row to row; x[k] is the k-th of them, the oldest first.
 */
template <int N, int TAPS> struct channels {
    float x[N][TAPS - 1], by[N][TAPS], bias[N];
    uint32_t c0, end; /* channels from `end` on are not computed */

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
    /* Loads the inputs before input i of a sequence whose first row in the step is row0. */
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
    /* Computes the row's channels and advances to the next row. */
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

/* Normalises q and k of a head, with a warp; element lane + 32 e is in q[e] and k[e]. For a delta net both get length
 * 1, and q is multiplied by 1 / sqrt(d_k). Returns k . q. */
template <int EACH> __device__ static inline float unit_vectors(const recur_args &a, float (&q)[EACH], float (&k)[EACH])
{
    float qq = 0, kk = 0, qk = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++)
        qq = __fmaf_rn(q[e], q[e], qq), kk = __fmaf_rn(k[e], k[e], kk);
    if (a.delta) {
        float by_q = __fdiv_rn(a.unit_q, __fsqrt_rn(__fadd_rn(warp_sum(qq), 1e-6f)));
        float by_k = __frcp_rn(__fsqrt_rn(__fadd_rn(warp_sum(kk), 1e-6f)));
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
 * A warp takes one task for PREPARE_ROWS rows: q and k of a key head, 4 times 32 channels of v, or the gates of 32
 * heads. EACH: channels of a head's q in each lane.
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
    uint32_t last = ~0u; /* the previous row's sequence */
    for (uint32_t row = first; row < end; row++) {
        uint32_t seq = s->seq[row], row0 = s->row0[seq];
        const float *from = state_from(a.state, seq), *mix = a.mix + (uint64_t)row * a.ldmix;
        float *to = a.made + (uint64_t)row * a.ldmade, *gates = to + a.n_channel;
        if (in_chunks(a, s->n_rows[seq]))
            continue;
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

template <int NR> struct scan_stage {
    float k[SCAN_ROWS][4 * (NR + 4)], q[SCAN_ROWS][4 * (NR + 4)], v[SCAN_ROWS][SCAN_COLS], gate[SCAN_ROWS][4];
};

/* Distributes n rows of `of` items each over the threads, without a division for each item. */
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

/* A block computes SCAN_COLS columns of a head for all rows of a sequence. */
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
    uint32_t row0 = s->row0[seq], n_row = s->n_rows[seq];
    if (seq >= s->n_seq || in_chunks(a, n_row)) {
        pdl_wait();
        return;
    }
    uint64_t at = (uint64_t)(a.conv.n_tap - 1) * a.n_channel + (uint64_t)head * a.d_k * a.d_v;
    const float *from = state_from(a.state, seq);
    float *to = state_to(a.state, seq), skip = DELTA ? 0.f : a.skip[head];
    c.load(from ? from + at : NULL, first, a.d_k, col,
           a.d_v); /* written in an earlier step, so it may be read before pdl_wait() */
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

/* The number that the norm is taken over: Mamba-2 applies its gate before the norm. */
__device__ static inline float ungated(const recur_args &a, float y, float z)
{
    return a.delta ? y : __fmul_rn(y, state_silu(z));
}

/* A block handles `span` columns of a row, a whole number of norms. Dynamic shared memory: a factor for each norm. */
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
    bool together = each > 512; /* the whole block computes one norm at a time */
    for (uint32_t g = together ? 0 : threadIdx.x / 32; g < groups; g += together ? 1 : FINISH_THREADS / 32) {
        float sum = 0;
        for (uint32_t j = together ? threadIdx.x : lane; j < each; j += together ? FINISH_THREADS : 32) {
            uint32_t k = k0 + g * each + j;
            float v = ungated(a, __ldcg(y + k), a.delta ? 0.f : __ldcg(z + k));
            sum = __fmaf_rn(v, v, sum);
        }
        sum = together ? block_sum(sum, shared) : warp_sum(sum);
        if (together ? !threadIdx.x : !lane)
            factor[g] = norm_factor(__fdiv_rn(sum, (float)each), a.norm.eps);
    }
    __syncthreads();
    bool fours = (each | a.at_v | a.at_z) % 4 == 0;
    for (uint32_t base = k0; base < k1; base += FINISH_COLS) { /* whole warps, as store4 computes sums across lanes */
        uint32_t k = base + threadIdx.x * 4;
        uint32_t at = (k - k0) / each, of = (k - k0) % each;
        __align__(16) float v[4], gate[4];
        if (fours && k < k1) {
            *(float4 *)v = __ldcg((const float4 *)(y + k));
            *(float4 *)gate = __ldcg((const float4 *)(z + k));
        } else
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = k + i < k1 ? __ldcg(y + k + i) : 0.f, gate[i] = k + i < k1 ? __ldcg(z + k + i) : 0.f;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (k + i < k1) {
                float f = factor[at], w = a.norm.w[a.delta ? of : k + i];
                v[i] = __fmul_rn(__fmul_rn(ungated(a, v[i], gate[i]), f), w);
                if (a.delta)
                    v[i] = __fmul_rn(v[i], state_silu(gate[i]));
                if (++of == each)
                    of = 0, at++;
            }
        store4(a.out, row, k < k1 ? k : 0xffffff00u, n, v);
    }
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

/* Launched only when the previous kernel has ended (LAUNCH_PLAIN): otherwise several blocks would be placed on each of
 * the SMs that finish first, while each block needs an SM of its own. */
template <int NR> static void scan_of(struct device *d, const recur_args &a, dim3 grid)
{
    if (a.delta)
        cuda_launch(d, scan<NR, true>, grid, SCAN_WARPS * 32, 0, LAUNCH_PLAIN, a);
    else
        cuda_launch(d, scan<NR, false>, grid, SCAN_WARPS * 32, 0, LAUNCH_PLAIN, a);
}

static void scan_run(struct device *d, const recur_args &a)
{
    dim3 grid(a.n_v * ((a.d_v + SCAN_COLS - 1) / SCAN_COLS), state_seqs(d));
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
}

/* alone: decode.cu's kernel does all the work. */
static void run(struct device *d, struct op_call *p, recur_args &a, bool alone)
{
    uint32_t n = a.n_v * a.d_v, tasks, scanned;
    a.mix = d->ws.mix, a.ldmix = d->ws.ldmix, a.made = d->ws.made, a.ldmade = d->ws.ldmix;
    if (a.n_channel + 2 * a.n_v + a.n_k > a.ldmade) {
        cuda_refuse(d, HEARTH_EUNSUPPORTED, "%u heads of %u: the GPU has no room for their gates", a.n_v, a.d_v);
        return;
    }
    if (alone) {
        a.out = state_result(d, p, n);
        delta_decode_run(d, a);
        return;
    }
    a.chunks = delta_chunks(d, a, &scanned);
    if (a.chunks)
        delta_chunks_run(d, a);
    tasks = a.n_k + (n + 127) / 128 + (a.n_v + 31) / 32;
    dim3 rows((tasks + PREPARE_WARPS - 1) / PREPARE_WARPS, (d->bucket + PREPARE_ROWS - 1) / PREPARE_ROWS);
    auto kernel = a.conv.n_tap > FEW_TAPS ? prepare<HEAD_MAX / 32, STATE_TAPS_MAX>
                  : a.d_k > FEW_HEAD      ? prepare<HEAD_MAX / 32, FEW_TAPS>
                                          : prepare<FEW_HEAD / 32, FEW_TAPS>;
    if (scanned) {
        cuda_launch(d, kernel, rows, PREPARE_WARPS * 32, 0, LAUNCH_PDL, a);
        scan_run(d, a);
    }
    a.out = state_result(d, p, n);
    for (a.span = a.norm_cols; a.span < n && (a.span % 32 || a.span < FINISH_COLS);)
        a.span += a.norm_cols;
    cuda_launch(d, finish, dim3((n + a.span - 1) / a.span, d->bucket), FINISH_THREADS,
                a.span / a.norm_cols * sizeof(float), LAUNCH_PDL, a);
}

/* Whether these sizes form a recurrence and have kernels (lacks.cu has refused models that have none). */
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
    a.unit_q = 1.f / sqrtf((float)a.d_k);
    run(d, p, a, delta_decodes(d, a));
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
    a.norm_cols = mamba2_norm_cols(op);
    run(d, p, a, false);
}
