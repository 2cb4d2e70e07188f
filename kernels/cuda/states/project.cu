/*
 * project.cu - columns of ACT_MIX that a product made elsewhere: how a launcher of op_project gets its rows there.
 */
#include "kernels/cuda/states/states.cuh"

/* Of the part's rows [row0, row0 + n) of the merged output, products in pieces to f32. */
__global__ void pieces_to_mix(partials s, uint32_t row0, uint32_t n, float *out, uint32_t ld)
{
    pdl_trigger();
    pdl_wait();
    uint32_t k = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (k >= n)
        return;
    float4 f = s.four(blockIdx.y, row0 + k);
    float *to = out + (uint64_t)blockIdx.y * ld + row0 + k;
    const float v[4] = {f.x, f.y, f.z, f.w};
    if (k + 4 <= n && !((uintptr_t)to & 15))
        *(float4 *)to = f;
    else
        for (uint32_t i = 0; i < 4 && k + i < n; i++)
            to[i] = v[i];
}

__global__ void rows_to_mix(const float *from, uint32_t ld_from, uint32_t n, float *out, uint32_t ld)
{
    pdl_trigger();
    pdl_wait();
    uint32_t k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n)
        out[(uint64_t)blockIdx.y * ld + k] = __ldcg(from + (uint64_t)blockIdx.y * ld_from + k);
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

bool project_begin(struct device *d, const struct op_project *op)
{
    uint64_t end = (uint64_t)op->at + op->w->n_out;
    if (end > op->width || op->width > d->ws.dims.d_mix)
        cuda_refuse(d, HEARTH_EPARAMS, "columns %u to %llu of a projection of %u: the workspace has %u", op->at,
                    (unsigned long long)end, op->width, d->ws.dims.d_mix);
    d->mix_cols = op->width;
    return !d->err.code;
}

void project_pieces(struct device *d, const partials *s, uint32_t row0, uint32_t n, uint32_t at, uint32_t bucket)
{
    cuda_launch(d, pieces_to_mix, dim3((n + 1023) / 1024, bucket), 256, 0, LAUNCH_PDL, *s, row0, n, d->ws.mix + at,
                d->ws.ldmix);
}

void project_tmp(struct device *d, uint32_t n, uint32_t at, uint32_t bucket)
{
    cuda_launch(d, rows_to_mix, dim3((n + 255) / 256, bucket), 256, 0, LAUNCH_PDL, d->ws.tmp, d->ws.ldtmp, n,
                d->ws.mix + at, d->ws.ldmix);
}
