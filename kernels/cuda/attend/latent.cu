/*
 * latent.cu - the ops around latent attention (op.h): op_latent makes a token's single key, op_latent_q brings queries
 * into its space, op_latent_out brings results out of it. The attention itself is wide.cu's. The heads' own matrices
 * are fp16 rows here, sums are f32.
 */
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/plan.cuh"
#include "kernels/cuda/gemm/rows.cuh"

/* Rotates the i-th pair of the n_rot numbers at v; to(k, value) stores each of the two. */
template <class T>
__device__ static inline void turn_pair(const struct rope &rope, const step_dev *s, uint32_t row, uint32_t i,
                                        const float *v, T to)
{
    bool neox = rope.kind == ROPE_NEOX;
    uint32_t one = neox ? i : 2 * i, two = neox ? i + rope.n_rot / 2 : 2 * i + 1;
    float sn, cs, x = v[one], y = v[two];
    rope_sincos((float)s->pos[row], rope_frequencies(rope, s, row)[i], &sn, &cs);
    sn *= rope.scale, cs *= rope.scale;
    to(one, x * cs - y * sn), to(two, x * sn + y * cs);
}

struct latent_args {
    const float *made; /* [rows][ld]: n_q queries, then d_c | n_rot of the key */
    uint32_t ld, n_q, d_c, row0;
    struct norm q_norm, kv_norm; /* kind NORM_NONE: none */
    struct rope rope;
    act_buf latent;
    kv_view kv;
    const step_dev *s;
    const uint32_t *kv_slot;
};

/* One block per row. */
__global__ void __launch_bounds__(256) latent_end(latent_args a)
{
    __shared__ float shared[32];
    pdl_trigger();
    pdl_wait();
    uint32_t row = a.row0 + blockIdx.x, slot = a.kv_slot[row];
    const float *q = a.made + (uint64_t)row * a.ld, *c = q + a.n_q;
    float2 st = norm_stats([&](uint32_t k) { return q[k]; }, a.n_q, a.q_norm, shared);
    for (uint32_t k = threadIdx.x * 4; k < (a.n_q + 255) / 256 * 256; k += blockDim.x * 4) {
        float v[4];
        for (uint32_t i = 0; i < 4; i++)
            v[i] = k + i < a.n_q ? (q[k + i] - st.x) * st.y * (a.q_norm.w ? a.q_norm.w[k + i] : 1.f) : 0.f;
        store4(a.latent, row, k, a.n_q, v);
    }
    st = norm_stats([&](uint32_t k) { return c[k]; }, a.d_c, a.kv_norm, shared);
    if (slot == NO_SLOT)
        return;
    __half *key = kv_k(a.kv, slot, 0);
    /* Where the latent has a NaN or an infinity, its norm's factor is not a finite positive number. The latent is also
     * the values, which must be numbers (value_is_nan()); the rotated part belongs to the key alone, and carries the
     * NaN. */
    bool fine = st.y > 0.f && st.y < INFINITY;
    for (uint32_t k = threadIdx.x; k < a.d_c; k += blockDim.x)
        key[a.rope.n_rot + k] = half_sat(fine ? (c[k] - st.x) * st.y * (a.kv_norm.w ? a.kv_norm.w[k] : 1.f) : 0.f);
    for (uint32_t i = threadIdx.x; i < a.rope.n_rot / 2; i += blockDim.x)
        turn_pair(a.rope, a.s, row, i, c + a.d_c, [&](uint32_t k, float v) { key[k] = half_sat(fine ? v : NAN); });
}

/* Converts an activation to rows of f32. */
__global__ void latent_rows(act_buf in, uint32_t n, float *out, uint32_t ld, uint32_t row0)
{
    pdl_trigger();
    pdl_wait();
    uint32_t row = row0 + blockIdx.y, k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n)
        out[(uint64_t)row * ld + k] = __half2float(act_row(in, row)[in.layout ? k : xfrag_at(k)]);
}
/* Converts rows of f32 to an activation, four elements per thread. */
__global__ void latent_back(const float *from, uint32_t n, uint32_t ld, act_buf out)
{
    pdl_trigger();
    pdl_wait();
    uint32_t row = blockIdx.y, k = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    float v[4];
    for (uint32_t i = 0; i < 4; i++)
        v[i] = k + i < n ? from[(uint64_t)row * ld + k + i] : 0.f;
    store4(out, row, k, n, v);
}

enum { HEAD_ROWS = 8, HEAD_OUTS = 64, HEAD_WARPS = 8 };
/* The product of each head's part of a row and its own matrix. */
struct heads_args {
    const __half *w; /* [n_head][n_out][ldw] */
    uint32_t ldw, n_in, n_out, n_row, row0;
    const float *x; /* [rows][ldx]; head h's elements begin at x_head * h */
    uint32_t ldx, x_head;
    /* op_latent_q: queries [rows][ldq], and the rotated part, which follows the n_in elements; else NULL: */
    __half *q;
    uint32_t ldq;
    struct rope rope;
    const step_dev *s;
    float *y; /* op_latent_out: [rows][ldy] */
    uint32_t ldy;
};

/* A block takes eight rows and HEAD_OUTS outputs of a head, a warp one output at a time. Shared memory: the rows. */
__global__ void __launch_bounds__(HEAD_WARPS * 32) latent_heads(const __grid_constant__ heads_args a)
{
    extern __shared__ __align__(16) float xs[];
    uint32_t head = blockIdx.y, row0 = blockIdx.z * HEAD_ROWS, warp = threadIdx.x / 32, lane = threadIdx.x % 32,
             rows = min((uint32_t)HEAD_ROWS, a.n_row - row0), o1 = min((blockIdx.x + 1) * HEAD_OUTS, a.n_out);
    pdl_trigger();
    pdl_wait();
    row0 += a.row0;
    for (uint32_t i = threadIdx.x; i < HEAD_ROWS * a.ldw; i += blockDim.x) {
        uint32_t r = i / a.ldw, k = i - r * a.ldw;
        xs[i] = r < rows && k < a.n_in ? __ldcg(a.x + (uint64_t)(row0 + r) * a.ldx + head * a.x_head + k) : 0.f;
    }
    __syncthreads();
    uint32_t n_rot = a.q ? a.rope.n_rot : 0, d_k = n_rot + a.n_out;
    for (uint32_t o = blockIdx.x * HEAD_OUTS + warp; o < o1; o += HEAD_WARPS) {
        const __half *w = a.w + ((uint64_t)head * a.n_out + o) * a.ldw;
        float s[HEAD_ROWS] = {};
        for (uint32_t k = lane * 8; k < a.ldw; k += 256) {
            union {
                uint4 v;
                __half h[8];
            } f;
            f.v = *(const uint4 *)(w + k);
#pragma unroll
            for (uint32_t r = 0; r < HEAD_ROWS; r++)
#pragma unroll
                for (uint32_t i = 0; i < 8; i++)
                    s[r] = __fmaf_rn(__half2float(f.h[i]), xs[r * a.ldw + k + i], s[r]);
        }
#pragma unroll
        for (uint32_t r = 0; r < HEAD_ROWS; r++) {
#pragma unroll
            for (int i = 16; i; i /= 2)
                s[r] += __shfl_xor_sync(~0u, s[r], i);
            if (lane || r >= rows)
                continue;
            if (a.q)
                a.q[(uint64_t)(row0 + r) * a.ldq + head * d_k + n_rot + o] = half_sat(s[r]);
            else
                a.y[(uint64_t)(row0 + r) * a.ldy + head * a.n_out + o] = s[r];
        }
    }
    if (!a.q || blockIdx.x)
        return;
    for (uint32_t i = threadIdx.x; i < rows * (n_rot / 2); i += blockDim.x) {
        uint32_t r = i / (n_rot / 2), row = row0 + r;
        __half *to = a.q + (uint64_t)row * a.ldq + head * d_k;
        turn_pair(a.rope, a.s, row, i - r * (n_rot / 2), a.x + (uint64_t)row * a.ldx + head * a.x_head + a.n_in,
                  [&](uint32_t k, float v) { to[k] = half_sat(v); });
    }
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

void latent_run(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_latent *op = &o->latent;
    const wdev *w = wdev_of(op->w);
    const struct kv_desc *kv = &d->kv[op->group]->desc;
    uint32_t n_q = w->part[0].n_out, d_k = op->rope->n_rot + op->d_c;
    if (w->n_part != 2 || w->part[1].n_out != d_k || op->rope->kind == ROPE_NONE || op->rope->hadamard ||
        kv->d_k != d_k || kv->d_v || kv->n_kv != 1 || op->layer >= kv->n_layer) {
        cuda_refuse(d, HEARTH_EPARAMS, "latent attention's matrix of %u parts does not give keys of %u to pages of %u",
                    w->n_part, d_k, kv->d_k);
        return;
    }
    if (n_q > d->ws.dims.d_latent || w->n_out > d->ws.ldtmp) {
        cuda_refuse(d, HEARTH_EPARAMS, "%u columns of latent queries: the workspace has room for %u", n_q,
                    d->ws.dims.d_latent);
        return;
    }
    rows_product(d, p, o, w, &op->norm, NULL, d->ws.tmp, d->ws.ldtmp);
    latent_args a = {};
    a.made = d->ws.tmp, a.ld = d->ws.ldtmp, a.n_q = n_q, a.d_c = op->d_c, a.row0 = p->row0;
    a.q_norm.kind = NORM_NONE;
    if (op->q_norm)
        a.q_norm = *op->q_norm;
    a.kv_norm = op->kv_norm, a.rope = *op->rope, a.latent = d->apart.latent;
    a.kv = kv_view_of(d->kv[op->group], op->layer);
    a.s = d->step, a.kv_slot = d->step->group[op->group].kv_slot;
    cuda_launch(d, latent_end, dim3(p->bucket), 256, 0, LAUNCH_PDL, a);
}

/* Launches the heads' products over `rows` rows. */
static void heads_run(struct device *d, heads_args &a, const struct weight *heads, uint32_t rows)
{
    const wdev *w = wdev_of(heads);
    a.w = (const __half *)w->part[0].raw, a.ldw = (w->n_in + 7) & ~7u, a.n_in = w->n_in, a.n_out = w->n_out;
    a.n_row = rows;
    cuda_launch(d, latent_heads,
                dim3((a.n_out + HEAD_OUTS - 1) / HEAD_OUTS, w->n_expert, (rows + HEAD_ROWS - 1) / HEAD_ROWS),
                HEAD_WARPS * 32, HEAD_ROWS * a.ldw * sizeof(float), LAUNCH_PDL, a);
}

static bool is_per_head(struct device *d, const struct weight *heads, uint32_t n_in)
{
    const wdev *w = wdev_of(heads);
    uint32_t most = 48 * 1024 / (HEAD_ROWS * sizeof(float)); /* what a block has without opting in to more */
    if (w->role == WEIGHT_HEADS && w->n_in == n_in && w->n_in <= most)
        return true;
    cuda_refuse(d, HEARTH_EPARAMS, "matrices of %u heads over %u columns; there are %u, and at most %u are computed",
                w->n_expert, w->n_in, n_in, most);
    return false;
}

void latent_q_run(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_latent_q *op = &o->latent_q;
    const wdev *absorb = wdev_of(op->absorb);
    uint32_t n_rot = op->rope->n_rot, d_made = op->d_nope + n_rot, n = op->n_head * d_made;
    if (!is_per_head(d, op->absorb, op->d_nope))
        return;
    if (absorb->n_expert != op->n_head || absorb->n_out != op->d_c || (op->w && op->w->n_out != n) ||
        (op->w && op->w->model != op->absorb->model) || n > d->ws.ldtmp || (!op->w && n > d->ws.dims.d_latent) ||
        (uint64_t)op->n_head * (n_rot + op->d_c) > d->ws.dims.d_q) {
        cuda_refuse(d, HEARTH_EPARAMS, "%u heads of %u, to be %u: not what the matrices give, or no room for it",
                    op->n_head, d_made, op->d_c + n_rot);
        return;
    }
    if (op->w)
        rows_product(d, p, o, wdev_of(op->w), NULL, &d->apart.latent, d->ws.tmp, d->ws.ldtmp);
    else
        cuda_launch(d, latent_rows, dim3((n + 255) / 256, p->bucket), 256, 0, LAUNCH_PDL, d->apart.latent, n, d->ws.tmp,
                    d->ws.ldtmp, p->row0);
    heads_args a = {};
    a.x = d->ws.tmp, a.ldx = d->ws.ldtmp, a.x_head = d_made, a.row0 = p->row0;
    a.q = d->ws.q, a.ldq = d->ws.ldq, a.rope = *op->rope, a.s = d->step;
    heads_run(d, a, op->absorb, p->bucket);
}

/* Results are converted to f32 rows first, beside which the new ones are stored, as both are ACT_ATT. */
void latent_out_run(struct device *d, struct op_call *, const struct op *o)
{
    const struct op_latent_out *op = &o->latent_out;
    const wdev *w = wdev_of(op->w);
    uint32_t n_in = w->n_expert * w->n_in, n_out = w->n_expert * w->n_out, at = (n_in + 3) & ~3u;
    if (!is_per_head(d, op->w, w->n_in))
        return;
    if (n_in > d->ws.dims.d_q || n_out > d->ws.dims.d_q || at + n_out > d->ws.ldtmp) {
        cuda_refuse(d, HEARTH_EPARAMS, "%u heads of %u and %u: the workspace has room for %u in all", w->n_expert,
                    w->n_in, w->n_out, d->ws.dims.d_q);
        return;
    }
    cuda_launch(d, latent_rows, dim3((n_in + 255) / 256, d->bucket), 256, 0, LAUNCH_PDL, d->ws.att, n_in, d->ws.tmp,
                d->ws.ldtmp, 0u);
    heads_args a = {};
    a.x = d->ws.tmp, a.ldx = d->ws.ldtmp, a.x_head = w->n_in;
    a.y = d->ws.tmp + at, a.ldy = d->ws.ldtmp;
    heads_run(d, a, op->w, d->bucket);
    cuda_launch(d, latent_back, dim3((pad256(n_out) + 1023) / 1024, d->bucket), 256, 0, LAUNCH_PDL,
                (const float *)d->ws.tmp + at, n_out, d->ws.ldtmp, d->ws.att);
}
