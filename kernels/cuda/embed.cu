/*
 * embed.cu - token rows into the residual stream: ACT_X = embedding[token] * scale. A token may be named by the slot
 * that sampled it, so that the host need not have seen it yet.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/dequant.cuh"
#include "kernels/cuda/local.cuh"

__global__ void embed(const step_dev *s, const int32_t *slots, wpart w, uint32_t n_in, float scale, float *x,
                      uint32_t ldx)
{
    pdl_go();
    pdl_wait();
    uint32_t row = blockIdx.y, k = blockIdx.x * blockDim.x + threadIdx.x;
    int32_t id = s->token[row];
    if (id < 0)
        id = slots[-1 - id];
    if (k < n_in)
        x[row * ldx + k] = dq_at(w.type, w.raw + (uint32_t)min((uint32_t)id, w.n_out - 1) * w.raw_row_bytes, k) * scale;
}

bool embed_runs_here(void)
{
    cudaFuncAttributes a;
    return cudaFuncGetAttributes(&a, embed) == cudaSuccess;
}

void embed_run(struct device *d, const struct op_embed *op)
{
    const wdev *w = wdev_of(op->w);
    if (!w->part[0].raw) {
        cuda_refuse(d, HEARTH_EINTERNAL, "embedding from a matrix that was not loaded as one");
        return;
    }
    cuda_launch(d, embed, dim3((w->n_in + 255) / 256, d->cap), 256, 0, LAUNCH_PDL, d->step, slot_tokens(d), w->part[0],
                w->n_in, op->scale, d->ws.x, d->ws.ldx);
}
