/*
 * embed.cu - token rows into the residual stream: ACT_X = embedding[token] * scale. A token may be given as the slot
 * that sampled it, so that the host need not know it yet.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/quant/quant.cuh"
#include "kernels/cuda/local.cuh"
#include "kernels/cuda/plan.cuh"

/* Variant `reference`: reads rows as in the file. */
__global__ void embed_raw(const step_dev *s, const int32_t *slots, wpart w, uint32_t n_in, float scale, float *x,
                          uint32_t ldx)
{
    pdl_trigger();
    pdl_wait();
    uint32_t row = blockIdx.y, k = blockIdx.x * blockDim.x + threadIdx.x;
    int32_t id = s->token[row];
    if (id < 0)
        id = slots[-1 - id];
    if (k < n_in)
        x[row * ldx + k] = dq_at(w.type, w.raw + (uint32_t)min((uint32_t)id, w.n_out - 1) * w.raw_row_bytes, k) * scale;
}

/* Reads rows of the packed matrix, which may be the head's as well; eight elements per thread. */
__global__ void embed(const step_dev *s, const int32_t *slots, wpart w, const uint8_t *packed, uint32_t n_kblk,
                      uint32_t n_in, float scale, float *x, uint32_t ldx)
{
    pdl_trigger();
    pdl_wait();
    uint32_t row = blockIdx.y, k = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    int32_t id = s->token[row];
    if (id < 0)
        id = slots[-1 - id];
    if (k >= n_in)
        return;
    uint32_t at = min((uint32_t)id, w.n_out - 1);
    float v[8];
    unpack_eight(w.type, packed + (uint64_t)(at / 16) * n_kblk * t16_kblk_bytes(w.type), n_kblk, at / 8 & 1, at & 7, k,
                 v);
    for (uint32_t i = 0; i < 8 && k + i < n_in; i++)
        x[row * ldx + k + i] = v[i] * scale;
}

int embed_code(void)
{
    cudaFuncAttributes a;
    return cudaFuncGetAttributes(&a, embed) == cudaSuccess ? a.ptxVersion : 0;
}

void embed_run(struct device *d, struct op_call *, const struct op *o)
{
    const struct op_embed *op = &o->embed;
    const wdev *w = wdev_of(op->w);
    const wpart &p = w->part[0];
    if (w->n_part != 1)
        cuda_refuse(d, HEARTH_EINTERNAL, "embedding from a matrix of %u parts", w->n_part);
    else if (p.raw)
        cuda_launch(d, embed_raw, dim3((w->n_in + 255) / 256, d->bucket), 256, 0, LAUNCH_PDL, d->step, slot_tokens(d),
                    p, w->n_in, op->scale, d->ws.x, d->ws.ldx);
    else
        cuda_launch(d, embed, dim3((w->n_in + 511) / 512, d->bucket), 64, 0, LAUNCH_PDL, d->step, slot_tokens(d), p,
                    w->packed + p.off, w->n_kblk, w->n_in, op->scale, d->ws.x, d->ws.ldx);
}
