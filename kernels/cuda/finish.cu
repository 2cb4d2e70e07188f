/*
 * finish.cu - what surrounds a matrix product where the product's own kernel does not do it: norms into the prepared
 * form, bias, q/k norm, RoPE and the KV append, the residual, the gated activation; and activations to and from f32.
 * A row is computed by the same threads in the same order whatever rows lie beside it.
 */
#include "kernels/cuda/cuda.cuh"

/* Stores four consecutive elements; the 8 lanes of a sub-block of 32 call together, so that its sum can be written. */
__device__ static inline void store4(const act_buf &o, uint32_t row, uint32_t k, uint32_t n, const float v[4])
{
    __half h[4];
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        h[i] = half_sat(k + i < n ? v[i] : 0.f);
        sum += __half2float(h[i]);
    }
    __half *r = o.p + (uint64_t)row * o.ld;
    if (o.plain) {
        if (k < n)
            *(uint2 *)(r + k) = *(const uint2 *)h;
        return;
    }
    __half q[4] = {h[0], h[2], h[1], h[3]};
    for (int i = 1; i < 8; i *= 2)
        sum += __shfl_xor_sync(~0u, sum, i);
    if (k < (n + 255) / 256 * 256) {
        *(uint2 *)(r + prep_at(k)) = *(const uint2 *)q;
        if (k % 32 == 0) {
            __half hi = half_sat(sum);
            r[prep_sum_at(k)] = hi;
            r[prep_sum_at(k) + 8] = half_sat(sum - __half2float(hi));
        }
    }
}

/* The sum of v over the block, in a fixed order; every thread gets it. */
__device__ static inline float block_sum(float v, float *shared)
{
    for (int i = 16; i; i /= 2)
        v += __shfl_xor_sync(~0u, v, i);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (uint32_t i = 0; i < blockDim.x / 32; i++)
        v += shared[i];
    return v;
}

/* Mean (0 for RMS) and 1 / deviation of n values that f(k) gives. */
template <typename F> __device__ static inline float2 norm_stats(F f, uint32_t n, struct norm nm, float *shared)
{
    float s = 0, mean = 0;
    if (nm.kind == NORM_LAYER) {
        for (uint32_t k = threadIdx.x; k < n; k += blockDim.x)
            s += f(k);
        mean = block_sum(s, shared) / n;
        s = 0;
    }
    for (uint32_t k = threadIdx.x; k < n; k += blockDim.x) {
        float v = f(k) - mean;
        s += v * v;
    }
    return make_float2(mean, rsqrtf(block_sum(s, shared) / n + nm.eps));
}

/* One block a row. */
__global__ void norm_row(const float *x, uint32_t ldx, uint32_t n, struct norm nm, const uint32_t *gather, act_buf out,
                         uint32_t row0)
{
    __shared__ float shared[32];
    pdl_go();
    pdl_wait();
    uint32_t row = row0 + blockIdx.x, src = gather ? gather[row] : row;
    const float *r = x + (uint64_t)src * ldx;
    float2 st = norm_stats([&](uint32_t k) { return r[k]; }, n, nm, shared);
    for (uint32_t k = threadIdx.x * 4; k < (n + 255) / 256 * 256; k += blockDim.x * 4) {
        float v[4];
        for (int i = 0; i < 4; i++) {
            bool in = k + i < n;
            v[i] = in ? (r[k + i] - st.x) * st.y * nm.w[k + i] + (nm.b ? nm.b[k + i] : 0.f) : 0.f;
        }
        store4(out, row, k, n, v);
    }
}

/* f32 rows to an activation's form; a block takes 1024 elements of a row. */
__global__ void from_f32(const float *src, uint32_t n, act_buf out, uint32_t row0)
{
    uint32_t row = blockIdx.y, k = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    float v[4];
    for (int i = 0; i < 4; i++)
        v[i] = k + i < n ? src[(uint64_t)row * n + k + i] : 0.f;
    store4(out, row0 + row, k, n, v);
}

__global__ void to_f32(act_buf in, uint32_t n, float *dst, uint32_t row0)
{
    uint32_t row = blockIdx.y, k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n)
        dst[(uint64_t)row * n + k] = __half2float(in.p[(uint64_t)(row0 + row) * in.ld + (in.plain ? k : prep_at(k))]);
}

__device__ static inline float warp_sum(float v)
{
    for (int i = 16; i; i /= 2)
        v += __shfl_xor_sync(~0u, v, i);
    return v;
}

struct qkv_tail {
    const float *t; /* [rows, ldt] merged q|k|v */
    uint32_t ldt, n_head, n_kv, d_head, row0;
    const float *bias;
    struct norm q_norm, k_norm; /* w NULL = none */
    struct rope rope;
    __half *q;
    uint32_t ldq;
    kv_view kv;
    const step_dev *s;
};

/* One warp a head (of q, k or v) of a row: at most 256 wide. */
__global__ void __launch_bounds__(128) qkv_finish(qkv_tail a)
{
    __shared__ float buf[4][256];
    pdl_go();
    pdl_wait();
    uint32_t row = a.row0 + blockIdx.y, lane = threadIdx.x % 32, head = blockIdx.x * 4 + threadIdx.x / 32;
    float *v = buf[threadIdx.x / 32];
    if (head >= a.n_head + 2 * a.n_kv)
        return;
    uint32_t part = head < a.n_head ? 0 : head < a.n_head + a.n_kv ? 1 : 2; /* q, k, v */
    const float *t = a.t + (uint64_t)row * a.ldt + head * a.d_head;
    for (uint32_t i = lane; i < a.d_head; i += 32)
        v[i] = t[i] + (a.bias ? a.bias[head * a.d_head + i] : 0.f);
    const struct norm &nm = part == 0 ? a.q_norm : a.k_norm;
    if (part < 2 && nm.w) {
        float s = 0, mean = 0;
        if (nm.kind == NORM_LAYER) {
            for (uint32_t i = lane; i < a.d_head; i += 32)
                s += v[i];
            mean = warp_sum(s) / a.d_head;
            s = 0;
        }
        for (uint32_t i = lane; i < a.d_head; i += 32)
            s += (v[i] - mean) * (v[i] - mean);
        float r = rsqrtf(warp_sum(s) / a.d_head + nm.eps);
        for (uint32_t i = lane; i < a.d_head; i += 32)
            v[i] = (v[i] - mean) * r * nm.w[i] + (nm.b ? nm.b[i] : 0.f);
    }
    __syncwarp();
    if (part < 2 && a.rope.kind != ROPE_NONE) {
        uint32_t half = a.rope.n_rot / 2;
        bool neox = a.rope.kind == ROPE_NEOX;
        float pos = (float)a.s->pos[row];
        for (uint32_t i = lane; i < half; i += 32) {
            uint32_t p = neox ? i : 2 * i, q = neox ? i + half : 2 * i + 1;
            float sn, cs, x = v[p], y = v[q];
            rope_turn(pos, a.rope.inv_freq[i], &sn, &cs);
            sn *= a.rope.scale, cs *= a.rope.scale;
            v[p] = x * cs - y * sn, v[q] = x * sn + y * cs;
        }
        __syncwarp();
        if (a.rope.spread && lane < half / 8) { /* eight pairs a lane */
            float s[8], t[8];
            for (int i = 0; i < 8; i++) {
                uint32_t j = lane * 8 + i;
                float x = v[neox ? j : 2 * j], y = v[neox ? j + half : 2 * j + 1];
                s[i] = (x + y) * 0.25f, t[i] = (x - y) * 0.25f;
            }
            for (int k = 1; k < 8; k *= 2)
                for (int i = 0; i < 8; i++)
                    if (!(i & k)) {
                        float a0 = s[i], b0 = t[i];
                        s[i] = a0 + s[i | k], s[i | k] = a0 - s[i | k];
                        t[i] = b0 + t[i | k], t[i | k] = b0 - t[i | k];
                    }
            for (int i = 0; i < 8; i++) {
                uint32_t j = lane * 8 + i;
                v[neox ? j : 2 * j] = s[i], v[neox ? j + half : 2 * j + 1] = t[i];
            }
        }
        __syncwarp();
    }
    __half *out;
    if (part == 0)
        out = a.q + (uint64_t)row * a.ldq + head * a.d_head;
    else {
        uint32_t slot = a.s->kv_slot[row];
        if (slot == NO_SLOT)
            return;
        out = part == 1 ? kv_k(a.kv, slot, head - a.n_head) : kv_v(a.kv, slot, head - a.n_head - a.n_kv);
    }
    for (uint32_t i = lane; i < a.d_head; i += 32)
        out[i] = half_sat(v[i]);
}

/* One block a row. */
__global__ void proj_finish(const float *t, uint32_t ldt, uint32_t n, const float *bias, struct norm nm, float *x,
                            uint32_t ldx, uint32_t row0)
{
    __shared__ float shared[32];
    pdl_go();
    pdl_wait();
    uint32_t row = row0 + blockIdx.x;
    t += (uint64_t)row * ldt;
    x += (uint64_t)row * ldx;
    auto at = [&](uint32_t k) { return t[k] + (bias ? bias[k] : 0.f); };
    if (!nm.w) {
        for (uint32_t k = threadIdx.x; k < n; k += blockDim.x)
            x[k] += at(k);
        return;
    }
    float2 st = norm_stats(at, n, nm, shared);
    for (uint32_t k = threadIdx.x; k < n; k += blockDim.x)
        x[k] += (at(k) - st.x) * st.y * nm.w[k] + (nm.b ? nm.b[k] : 0.f);
}

__global__ void glu_finish(const float *t, uint32_t ldt, uint32_t d_ff, const float *bias, enum glu_kind glu,
                           act_buf out, uint32_t row0)
{
    pdl_go();
    pdl_wait();
    uint32_t row = row0 + blockIdx.y, k = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    const float *g = t + (uint64_t)row * ldt;
    float v[4];
    for (int i = 0; i < 4; i++) {
        uint32_t j = k + i;
        v[i] = 0;
        if (j < d_ff) {
            float a = g[j] + (bias ? bias[j] : 0.f);
            float u = glu == GLU_GELU ? 1.f : g[d_ff + j] + (bias ? bias[d_ff + j] : 0.f);
            v[i] = glu_act(glu, a) * u;
        }
    }
    store4(out, row, k, d_ff, v);
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

void norm_rows(struct device *d, const struct norm *n, uint32_t k, const act_buf *out, bool gather, uint32_t row0,
               uint32_t cap)
{
    cuda_launch(d, norm_row, dim3(cap), k > 1024 ? 512 : 128, 0, LAUNCH_PDL, d->ws.x, d->ws.ldx, k, *n,
                gather ? d->step->out_row : (const uint32_t *)NULL, *out, row0);
}

void act_from_f32(struct device *d, const float *src, uint32_t k, const act_buf *out, uint32_t row0, uint32_t n)
{
    d->pdl_chain = false;
    cuda_launch(d, from_f32, dim3((k + 1023) / 1024, n), 256, 0, LAUNCH_PLAIN, src, k, *out, row0);
}

void act_to_f32(struct device *d, const act_buf *in, uint32_t k, float *dst, uint32_t row0, uint32_t n)
{
    cuda_launch(d, to_f32, dim3((k + 255) / 256, n), 256, 0, LAUNCH_PLAIN, *in, k, dst, row0);
}

void tail_qkv(struct device *d, const struct op_qkv *op, uint32_t row0, uint32_t cap)
{
    qkv_tail a = {};
    a.t = d->ws.tmp, a.ldt = d->ws.ldtmp;
    a.n_head = op->n_head, a.n_kv = op->n_kv, a.d_head = op->d_head, a.row0 = row0;
    a.bias = op->bias;
    if (op->q_norm)
        a.q_norm = *op->q_norm;
    if (op->k_norm)
        a.k_norm = *op->k_norm;
    if (op->rope)
        a.rope = *op->rope;
    a.q = d->ws.q, a.ldq = d->ws.ldq;
    a.kv = kv_view_of(d->kv, op->layer);
    a.s = d->step;
    cuda_launch(d, qkv_finish, dim3((op->n_head + 2 * op->n_kv + 3) / 4, cap), 128, 0, LAUNCH_PDL, a);
}

void tail_proj(struct device *d, const struct op_proj *op, uint32_t n_out, uint32_t row0, uint32_t cap)
{
    struct norm none = {};
    cuda_launch(d, proj_finish, dim3(cap), 256, 0, LAUNCH_PDL, d->ws.tmp, d->ws.ldtmp, n_out, op->bias,
                op->post_norm ? *op->post_norm : none, d->ws.x, d->ws.ldx, row0);
}

void tail_glu(struct device *d, const struct op_ffn_up *op, uint32_t d_ff, uint32_t row0, uint32_t cap)
{
    cuda_launch(d, glu_finish, dim3((pad256(d_ff) + 1023) / 1024, cap), 256, 0, LAUNCH_PDL, d->ws.tmp, d->ws.ldtmp,
                d_ff, op->bias, op->glu, d->ws.ff, row0);
}
