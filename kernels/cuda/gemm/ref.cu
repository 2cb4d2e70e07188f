/*
 * ref.cu - the matrix ops, slow and plain: weights in the file's layout, one warp per output, f32 sums. The variant
 * "reference" runs these; the fast kernels are compared with them on the GPU itself.
 */
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/plan.cuh"
#include "kernels/cuda/quant/quant.cuh"

/* out[row][w.row0 + o] = sum_k in[row][k] * w[o][k]; 8 warps per block, one output each. */
__global__ void ref_gemm(wpart w, uint32_t n_in, act_buf in, float *out, uint32_t ldo, uint32_t row0, float scale,
                         float softcap, const float *bias)
{
    pdl_trigger();
    pdl_wait();
    uint32_t o = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32, row = row0 + blockIdx.y;
    if (o >= w.n_out)
        return;
    const uint8_t *wr = w.raw + o * w.raw_row_bytes;
    const __half *x = act_row(in, row);
    float s = 0;
    for (uint32_t k = lane; k < n_in; k += 32)
        s = fmaf(dq_at(w.type, wr, k), __half2float(x[in.layout ? k : xfrag_at(k)]), s);
    for (int i = 16; i; i /= 2)
        s += __shfl_xor_sync(~0u, s, i);
    s = (s + (bias ? bias[w.row0 + o] : 0.f)) * scale;
    if (softcap != 0)
        s = act_softcap(s, softcap);
    if (!lane)
        out[(uint64_t)row * ldo + w.row0 + o] = s;
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

static void matmul(struct device *d, const wdev *w, const act_buf &in, float *out, uint32_t ldo, uint32_t row0,
                   uint32_t bucket, float scale, float softcap, const float *bias)
{
    for (uint32_t i = 0; i < w->n_part; i++)
        cuda_launch(d, ref_gemm, dim3((w->part[i].n_out + 7) / 8, bucket), 256, 0, LAUNCH_PDL, w->part[i], w->n_in, in,
                    out, ldo, row0, scale, softcap, bias);
}

static act_buf normed(struct device *d, const struct norm *n, uint32_t k, bool gather, uint32_t row0, uint32_t bucket)
{
    act_buf xn = d->ws.xn;
    norm_rows(d, n, k, &xn, gather, row0, bucket);
    return xn;
}

void ref_product(struct device *d, const struct op_call *p, const wdev *w, const struct norm *norm, const act_buf *x,
                 float *out, uint32_t ldout)
{
    matmul(d, w, norm ? normed(d, norm, w->n_in, false, p->row0, p->bucket) : *x, out, ldout, p->row0, p->bucket, 1, 0,
           NULL);
}

void ref_qkv(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_qkv *op = &o->qkv;
    uint32_t row0 = p->row0, bucket = p->bucket;
    const wdev *w = wdev_of(op->w);
    matmul(d, w, normed(d, &op->norm, w->n_in, false, row0, bucket), d->ws.tmp, d->ws.ldtmp, row0, bucket, 1, 0, NULL);
    qkv_epilogue_run(d, op, row0, bucket);
}

void ref_proj(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_proj *op = &o->proj;
    uint32_t row0 = p->row0, bucket = p->bucket;
    const wdev *w = wdev_of(op->w);
    matmul(d, w, op->in == ACT_ATT ? d->ws.att : d->ws.ff, d->ws.tmp, d->ws.ldtmp, row0, bucket, 1, 0, NULL);
    proj_epilogue_run(d, op, w->n_out, row0, bucket);
}

void ref_ffn_up(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_ffn_up *op = &o->ffn_up;
    uint32_t row0 = p->row0, bucket = p->bucket;
    const wdev *w = wdev_of(op->w);
    matmul(d, w, normed(d, &op->norm, w->n_in, false, row0, bucket), d->ws.tmp, d->ws.ldtmp, row0, bucket, 1, 0, NULL);
    glu_epilogue_run(d, op, d_ff_of(op), false, row0, bucket);
}

void ref_project(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_project *op = &o->project;
    const wdev *w = wdev_of(op->w);
    if (project_begin(d, op))
        matmul(d, w, normed(d, &op->norm, w->n_in, false, p->row0, p->bucket), d->ws.mix + op->at, d->ws.ldmix, p->row0,
               p->bucket, 1, 0, NULL);
}

void ref_head(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_head *op = &o->head;
    uint32_t row0 = p->row0, bucket = p->bucket;
    const wdev *w = wdev_of(op->w);
    matmul(d, w, normed(d, &op->norm, w->n_in, true, row0, bucket), d->ws.logits, d->ws.ldl, row0, bucket, op->scale,
           op->softcap, op->bias);
}
