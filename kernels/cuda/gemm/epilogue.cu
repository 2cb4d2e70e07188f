/*
 * epilogue.cu - what surrounds a matrix product where the product's own kernel does not do it: bias, q/k norm, RoPE and
 * the KV append, the residual, the gated activation. rows.cu has the norms of rows. A row is computed by the same
 * threads in the same order whatever rows are beside it.
 */
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/gemm/rownorm.cuh"
#include "kernels/cuda/gemm/tail.cuh"

/* Products in ws.tmp, with the interface of `partials`. */
struct tmp_rows {
    const float *t;
    uint32_t ld, glu; /* glu: as in partials */
    typedef const float *place;
    __device__ place at(uint32_t row, uint32_t o) const
    {
        uint32_t up = glu && o >= glu;
        if (glu) {
            o -= up * glu;
            o = (o & ~7u) * 2 + (o & 7) + up * 8;
        }
        return t + (uint64_t)row * ld + o;
    }
    template <int AT_ONCE = 1> __device__ static float4 sum(place p) /* as partials::sum() */
    {
        return (uintptr_t)p & 15 ? make_float4(p[0], p[1], p[2], p[3]) : *(const float4 *)p;
    }
    __device__ float4 four(uint32_t row, uint32_t o) const
    {
        return sum(at(row, o));
    }
};

/* One warp per head (of q, k or v) of a row, at most WIDE wide. Where the row's sums are is computed before they are
 * there. Dynamic shared memory: a head_room for each warp. */
enum { EPILOGUE_HEAD = 512, EPILOGUE_SHORT = 128 };
template <class Rows, int WIDE> __global__ void __launch_bounds__(128) qkv_epilogue(Rows t, qkv_epilogue_args a)
{
    extern __shared__ __align__(16) float room[];
    uint32_t row = a.row0 + blockIdx.y, lane = threadIdx.x % 32, head = blockIdx.x * 4 + threadIdx.x / 32;
    head_room r = head_room_at(room + threadIdx.x / 32 * 3 * ((a.d_head + 3) & ~3u), a.d_head);
    float *v = r.v;
    uint32_t of = head, n_kv = a.n_part > 1 ? 2 * a.n_kv : 0; /* of: the head's index in the product */
    pdl_trigger();
    if (head >= a.n_head + n_kv) {
        head -= a.n_head + n_kv;
        pdl_wait();
        if (!a.gates || head >= a.n_head)
            return;
        for (uint32_t i = lane * 4, k = (2 * head + 1) * a.d_head; i < a.d_head; i += 128)
            *(float4 *)(a.gates + (uint64_t)row * a.ldgates + k + i) = t.four(row, k + i);
        return;
    }
    if (a.gates)
        of = head < a.n_head ? 2 * head : head + a.n_head;
    uint32_t part = head < a.n_head ? 0 : head < a.n_head + a.n_kv ? 1 : 2; /* q, k, v */
    if (part == 2 && a.n_part == 2)
        of = head - a.n_kv;
    uint32_t slot = part ? a.kv_slot[row] : 0, pos = a.s->pos[row];
    typename Rows::place at[WIDE / 128];
#pragma unroll
    for (uint32_t u = 0; u < WIDE / 128; u++)
        if (lane * 4 + u * 128 < a.d_head)
            at[u] = t.at(row, of * a.d_head + lane * 4 + u * 128);
    head_begin(a, a.d_head, part, row, pos, lane, r);
    pdl_wait();
    float4 f[WIDE / 128];
#pragma unroll
    for (uint32_t u = 0; u < WIDE / 128; u++)
        if (lane * 4 + u * 128 < a.d_head)
            f[u] = Rows::template sum<8>(at[u]);
#pragma unroll
    for (uint32_t u = 0; u < WIDE / 128; u++) {
        uint32_t i = lane * 4 + u * 128;
        if (i >= a.d_head)
            break;
        v[i] = f[u].x, v[i + 1] = f[u].y, v[i + 2] = f[u].z, v[i + 3] = f[u].w;
        for (uint32_t j = i; a.bias && j < i + 4; j++)
            v[j] += a.bias[of * a.d_head + j];
    }
    head_end(a, a.d_head, part, pos, lane, r);
    if (part) {
        head_append(a, a.d_head, part, row, head - a.n_head - (part - 1) * a.n_kv, slot, lane, v);
        return;
    }
    for (uint32_t i = lane; i < a.d_head; i += 32)
        a.q[(uint64_t)row * a.ldq + head * a.d_head + i] = half_sat(v[i]);
}

/*
 * Bias, and the norms of q and k over all heads of a row together, in place, which one warp per head cannot do: one
 * block for each of q, k and v of a row.
 */
struct whole_norms {
    struct norm norm[2]; /* of q and k; kind NORM_NONE: none */
    uint32_t n_q, n_kv;
    const float *bias;
};
__global__ void qk_norm_whole(float *t, uint32_t ldt, struct whole_norms a, uint32_t row0)
{
    __shared__ float shared[32];
    pdl_trigger();
    pdl_wait();
    uint32_t part = blockIdx.x, from = part == 0 ? 0 : a.n_q + (part - 1) * a.n_kv, n = part == 0 ? a.n_q : a.n_kv;
    struct norm nm = {NORM_NONE};
    if (part < 2)
        nm = a.norm[part];
    t += (uint64_t)(row0 + blockIdx.y) * ldt + from;
    auto at = [&](uint32_t k) { return t[k] + (a.bias ? a.bias[from + k] : 0.f); };
    float2 st = norm_stats(at, n, nm, shared);
    for (uint32_t k = threadIdx.x; k < n; k += blockDim.x)
        t[k] = (at(k) - st.x) * st.y * (nm.w ? nm.w[k] : 1.f) + (nm.b ? nm.b[k] : 0.f);
}

/*
 * One block per row. In decode this kernel is on the step's critical path, and its time is that of its loads: a thread
 * keeps up to PROJ_KEPT elements in registers, whose norm weights it requests before the wait, and everything else
 * together after it. A row kept this way is bit-identical to rownorm.cuh's.
 */
enum { PROJ_THREADS = 256, PROJ_KEPT = ROW_NORM_MAX / PROJ_THREADS };
struct proj_end {
    float by, x_scale; /* x = x_scale (x + by norm(product)) */
    float *x;
    uint32_t ldx;
    bool anew; /* the result replaces x */
};
__global__ void __launch_bounds__(PROJ_THREADS)
    proj_epilogue(const float *t, uint32_t ldt, uint32_t n, const float *bias, struct norm nm, struct proj_end e,
                  uint32_t row0)
{
    __shared__ float shared[32], sixteens[ROW_NORM_MAX / 16];
    uint32_t row = row0 + blockIdx.x, first = threadIdx.x;
    float w[PROJ_KEPT], v[PROJ_KEPT], old[PROJ_KEPT], squares[PROJ_KEPT];
    pdl_trigger();
    t += (uint64_t)row * ldt;
    float *x = e.x + (uint64_t)row * e.ldx;
    auto at = [&](uint32_t k) { return t[k] + (bias ? bias[k] : 0.f); };
    auto end = [&](float now, float of, float2 st, float weight, uint32_t k) {
        return (now + ((of - st.x) * st.y * weight + (nm.b && k < n ? nm.b[k] : 0.f)) * e.by) * e.x_scale;
    };
    bool kept = nm.w && nm.kind == NORM_RMS && n <= PROJ_KEPT * PROJ_THREADS;
    if (kept)
#pragma unroll
        for (int i = 0; i < PROJ_KEPT; i++)
            w[i] = first + i * PROJ_THREADS < n ? nm.w[first + i * PROJ_THREADS] : 0.f;
#pragma unroll 1
    for (int real = 0; kept && real < 2; real++) { /* first a dry run, to warm the instruction cache */
        if (real)
            pdl_wait();
#pragma unroll
        for (int i = 0; i < PROJ_KEPT; i++) {
            uint32_t k = first + i * PROJ_THREADS;
            v[i] = real && k < n ? at(k) : 0.f, old[i] = real && k < n && !e.anew ? x[k] : 0.f;
        }
#pragma unroll
        for (int i = 0; i < PROJ_KEPT; i++)
            squares[i] = __fmul_rn(v[i], v[i]);
        sixteens[first % 16 * (PROJ_THREADS / 16) + first / 16] = sum16_each(squares, first);
        __syncthreads();
        float2 st = make_float2(0, rsqrtf(__fadd_rn(sum_sixteens(sixteens, (n + 15) / 16, first % 32) / n, nm.eps)));
#pragma unroll
        for (int i = 0; i < PROJ_KEPT; i++) {
            uint32_t k = first + i * PROJ_THREADS;
            float y = nm.b ? end(old[i], v[i], st, w[i], k) : row_normed(old[i], v[i], st.y, w[i], e.by) * e.x_scale;
            if (real && k < n)
                x[k] = y;
        }
        __syncthreads();
    }
    if (kept)
        return;
    pdl_wait();
    if (!nm.w) {
        for (uint32_t k = first; k < n; k += blockDim.x)
            x[k] = ((e.anew ? 0.f : x[k]) + at(k) * e.by) * e.x_scale;
        return;
    }
    float2 st = norm_stats(at, n, nm, shared);
    for (uint32_t k = first; k < n; k += blockDim.x)
        x[k] = end(e.anew ? 0.f : x[k], at(k), st, nm.w[k], k);
}

/* op_ffn_up's gate for a whole row of norm(x), where the norm's factor can be applied to the finished dot product. */
struct whole_gate {
    const float *w; /* [n]; NULL: none */
    const float *x;
    uint32_t ldx, n;
    struct norm norm;
};
__device__ static inline float4 four_or_less(const float *v, uint32_t k, uint32_t n)
{
    if (k + 4 <= n)
        return __ldcg((const float4 *)(v + k));
    return make_float4(k < n ? v[k] : 0.f, k + 1 < n ? v[k + 1] : 0.f, k + 2 < n ? v[k + 2] : 0.f, 0.f);
}

enum { GLU_THREADS = 256, GATE_KEPT = 2 /* fours of a gate's weights that a thread loads before the wait */ };
template <class Rows>
__global__ void __launch_bounds__(GLU_THREADS)
    glu_epilogue(Rows t, uint32_t d_ff, const float *bias, enum glu_kind glu, const float *row_gate, whole_gate whole,
                 act_buf out, uint32_t row0)
{
    __shared__ float shared[32];
    uint32_t row = row0 + blockIdx.y, k = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    float4 kept[GATE_KEPT];
    pdl_trigger();
    auto weights = [&](uint32_t i) {
        float4 g = four_or_less(whole.w, i, whole.n), w = four_or_less(whole.norm.w, i, whole.n);
        return make_float4(g.x * w.x, g.y * w.y, g.z * w.z, g.w * w.w);
    };
#pragma unroll
    for (uint32_t i = 0; i < GATE_KEPT; i++)
        kept[i] = whole.w ? weights((threadIdx.x + i * GLU_THREADS) * 4) : make_float4(0, 0, 0, 0);
    pdl_wait();
    float4 gate = {0, 0, 0, 0}, with = {1, 1, 1, 1};
    if (k < d_ff) {
        gate = t.four(row, k);
        if (has_gate(glu))
            with = t.four(row, d_ff + k);
    }
    float by = row_gate ? row_gate[row] : 1.f;
    if (whole.w) {
        const float *x = whole.x + (uint64_t)row * whole.ldx;
        float squares = 0, dot = 0;
        auto add = [&](float4 w, float4 f) {
            squares = __fmaf_rn(f.x, f.x, __fmaf_rn(f.y, f.y, __fmaf_rn(f.z, f.z, __fmaf_rn(f.w, f.w, squares))));
            dot = __fmaf_rn(f.x, w.x, __fmaf_rn(f.y, w.y, __fmaf_rn(f.z, w.z, __fmaf_rn(f.w, w.w, dot))));
        };
#pragma unroll
        for (uint32_t i = 0; i < GATE_KEPT; i++)
            add(kept[i], four_or_less(x, (threadIdx.x + i * GLU_THREADS) * 4, whole.n));
        for (uint32_t i = (threadIdx.x + GATE_KEPT * GLU_THREADS) * 4; i < whole.n; i += GLU_THREADS * 4)
            add(weights(i), four_or_less(x, i, whole.n));
        squares = block_sum(squares, shared), dot = block_sum(dot, shared);
        by = 1.f / (1.f + expf(-dot * rsqrtf(squares / whole.n + whole.norm.eps)));
    }
    const float g[4] = {gate.x, gate.y, gate.z, gate.w}, w[4] = {with.x, with.y, with.z, with.w};
    float v[4];
    for (int i = 0; i < 4; i++) {
        uint32_t j = k + i;
        v[i] = 0;
        if (j < d_ff) {
            float a = g[i] + (bias ? bias[j] : 0.f);
            float u = !has_gate(glu) ? 1.f : w[i] + (bias ? bias[d_ff + j] : 0.f);
            v[i] = glu_of(glu, a, u) * by;
        }
    }
    store4(out, row, k, d_ff, v);
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

qkv_epilogue_args qkv_epilogue_args_of(struct device *d, const struct op_qkv *op)
{
    qkv_epilogue_args a = {};
    a.n_head = op->n_head, a.n_kv = op->n_kv, a.d_head = op->d_head;
    a.bias = op->bias;
    if (op->q_norm)
        a.norm[0] = *op->q_norm;
    if (op->k_norm)
        a.norm[1] = *op->k_norm;
    if (op->v_norm)
        a.norm[2] = *op->v_norm;
    a.n_part = op->w->n_part;
    if (op->rope)
        a.rope = *op->rope;
    a.temperature = temperature_of(op);
    a.q = d->ws.q, a.ldq = d->ws.ldq;
    a.kv = kv_view_of(d->kv[op->group], op->layer);
    a.s = d->step, a.kv_slot = d->step->group[op->group].kv_slot;
    a.q8 = d->kv[op->group]->desc.type == DT_Q8_0;
    a.x = d->ws.x, a.ldx = d->ws.ldx;
    return a;
}

static void qkv_epilogue_launch(struct device *d, const struct op_qkv *op, const partials *s, uint32_t row0,
                                uint32_t bucket)
{
    tmp_rows t = {d->ws.tmp, d->ws.ldtmp, 0};
    if (op->d_head > EPILOGUE_HEAD || (op->whole_norms && op->w->n_part != 3)) {
        cuda_refuse(d, HEARTH_EUNSUPPORTED, "heads of %u from a matrix of %u parts", op->d_head, op->w->n_part);
        return;
    }
    qkv_epilogue_args a = qkv_epilogue_args_of(d, op);
    a.row0 = row0;
    if (op->whole_norms && (op->q_norm || op->k_norm)) {
        const struct norm none = {NORM_NONE};
        struct whole_norms w = {{op->q_norm ? *op->q_norm : none, op->k_norm ? *op->k_norm : none},
                                op->n_head * op->d_head,
                                op->n_kv * op->d_head,
                                op->bias};
        if (s)
            reduce_to_tmp(d, s, w.n_q + 2 * w.n_kv, bucket);
        cuda_launch(d, qk_norm_whole, dim3(3, bucket), 256, 0, LAUNCH_PDL, d->ws.tmp, d->ws.ldtmp, w, row0);
        s = NULL, a.bias = NULL, a.norm[0] = a.norm[1] = {};
    }
    if (op->gated)
        a.gates = d->ws.mix, a.ldgates = d->ws.ldmix, d->mix_cols = 2 * op->n_head * op->d_head;
    uint32_t smem = 4 * 3 * ((a.d_head + 3) & ~3u) * sizeof(float);
    dim3 grid((op->n_head * (op->gated ? 2 : 1) + (a.n_part > 1 ? 2 * op->n_kv : 0) + 3) / 4, bucket);
    bool few = a.d_head <= EPILOGUE_SHORT;
    if (s)
        cuda_launch(d, few ? qkv_epilogue<partials, EPILOGUE_SHORT> : qkv_epilogue<partials, EPILOGUE_HEAD>, grid, 128,
                    smem, LAUNCH_PDL, *s, a);
    else
        cuda_launch(d, few ? qkv_epilogue<tmp_rows, EPILOGUE_SHORT> : qkv_epilogue<tmp_rows, EPILOGUE_HEAD>, grid, 128,
                    smem, LAUNCH_PDL, t, a);
}

void qkv_epilogue_run(struct device *d, const struct op_qkv *op, uint32_t row0, uint32_t bucket)
{
    qkv_epilogue_launch(d, op, NULL, row0, bucket);
}

void qkv_reduce_run(struct device *d, const struct op_qkv *op, const partials *s, uint32_t bucket)
{
    qkv_epilogue_launch(d, op, s, 0, bucket);
}

void proj_epilogue_run(struct device *d, const struct op_proj *op, uint32_t n_out, uint32_t row0, uint32_t bucket)
{
    struct norm none = {};
    struct proj_end e = {residual_scale(op), op->x_scale != 0 ? op->x_scale : 1, op->aside ? d->apart.aside : d->ws.x,
                         d->ws.ldx, op->aside};
    if (op->aside && n_out > d->ws.dims.d_aside) {
        cuda_refuse(d, HEARTH_EPARAMS, "%u columns aside: the workspace has room for %u", n_out, d->ws.dims.d_aside);
        return;
    }
    cuda_launch(d, proj_epilogue, dim3(bucket), PROJ_THREADS, 0, LAUNCH_PDL, d->ws.tmp, d->ws.ldtmp, n_out, op->bias,
                op->post_norm ? *op->post_norm : none, e, row0);
}

template <class Rows>
static void glu_launch(struct device *d, const struct op_ffn_up *op, Rows t, uint32_t d_ff, const act_buf *out,
                       uint32_t row0, uint32_t bucket)
{
    whole_gate whole = {};
    const float *row_gate = NULL;
    if (op->row_gate && op->norm.kind == NORM_RMS && !op->norm.b)
        whole = {op->row_gate, d->ws.x, d->ws.ldx, wdev_of(op->w)->n_in, op->norm};
    else
        row_gate = row_gate_run(d, op, row0, bucket);
    cuda_launch(d, glu_epilogue<Rows>, dim3((pad256(d_ff) + 1023) / 1024, bucket), GLU_THREADS, 0, LAUNCH_PDL, t, d_ff,
                op->bias, op->glu, row_gate, whole, *out, row0);
}

void glu_epilogue_run(struct device *d, const struct op_ffn_up *op, uint32_t d_ff, bool interleaved, uint32_t row0,
                      uint32_t bucket)
{
    tmp_rows t = {d->ws.tmp, d->ws.ldtmp, interleaved ? d_ff : 0};
    glu_launch(d, op, t, d_ff, &d->ws.ff, row0, bucket);
}

void glu_reduce_run(struct device *d, const struct op_ffn_up *op, const partials *s, uint32_t d_ff, const act_buf *out,
                    uint32_t bucket)
{
    glu_launch(d, op, *s, d_ff, out, 0, bucket);
}
