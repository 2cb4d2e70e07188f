/*
 * rows.cu - kernels of their own for rows before and after a matrix product: norms into an activation's form, sums of
 * split products, conversion between forms, and activations to and from f32.
 */
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/gemm/rows.cuh"
#include "kernels/cuda/launch.cuh"

/* x += (s + bias) * by, elements k .. k + 3 of n. */
__device__ static inline void add_four(float *x, float4 s, const float *bias, float by, uint32_t k, uint32_t n)
{
    const float v[4] = {s.x, s.y, s.z, s.w};
    for (int i = 0; i < 4; i++)
        if (k + i < n)
            x[k + i] += (v[i] + (bias ? bias[k + i] : 0.f)) * by;
}

/* One block per row; first adds the last product to the row where `add` has one. `two`: a second output form, unused
 * where its p is NULL. */
__global__ void norm_row(float *x, uint32_t ldx, uint32_t n, struct norm nm, const uint32_t *gather, partials add,
                         const float *bias, act_buf out, act_buf two, uint32_t row0)
{
    __shared__ float shared[32];
    pdl_trigger();
    pdl_wait();
    uint32_t row = row0 + blockIdx.x, src = gather ? gather[row] : row;
    float *r = x + (uint64_t)src * ldx;
    if (add.p) {
        for (uint32_t k = threadIdx.x * 4; k < n; k += blockDim.x * 4)
            add_four(r, add.four(row, k), bias, add.by, k, n);
        __syncthreads();
    }
    float2 st = norm_stats([&](uint32_t k) { return r[k]; }, n, nm, shared);
    for (uint32_t k = threadIdx.x * 4; k < (n + 255) / 256 * 256; k += blockDim.x * 4) {
        float v[4];
        for (int i = 0; i < 4; i++) {
            bool in = k + i < n;
            v[i] = in ? (r[k + i] - st.x) * st.y * (nm.w ? nm.w[k + i] : 1.f) + (nm.b ? nm.b[k + i] : 0.f) : 0.f;
        }
        store4(out, row, k, n, v);
        if (two.p)
            store4(two, row, k, n, v);
    }
}

/* x += (product + bias) * s.by; a block takes 1024 elements of a row. */
__global__ void reduce_add(partials s, const float *bias, uint32_t n, float *x, uint32_t ldx)
{
    pdl_trigger();
    pdl_wait();
    uint32_t row = blockIdx.y, k = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (k < n)
        add_four(x + (uint64_t)row * ldx, s.four(row, k), bias, s.by, k, n);
}

/* The product as rows of f32. */
__global__ void reduce_rows(partials s, uint32_t n, float *out, uint32_t ld)
{
    pdl_trigger();
    pdl_wait();
    uint32_t k = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (k < n) /* rows end on multiples of 256 */
        *(float4 *)(out + (uint64_t)blockIdx.y * ld + k) = s.four(blockIdx.y, k);
}

/* Prepared rows of n into the order of wgmma's fragments. A thread writes 16 bytes, with zeros past the row's end,
 * where the last record still holds what the workspace served before. blockIdx.y: the block of WG_ROWS rows. */
__global__ void xfrag_to_wg(act_buf in, uint32_t n, act_buf out)
{
    pdl_trigger();
    pdl_wait();
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, rows = out.ld, row = blockIdx.y * WG_ROWS + i % rows,
             c = i / rows & 1, step = i / rows >> 1 & 7, p = i / rows >> 4 & 1, kblk = i / rows >> 5,
             n_kblk = (n + 255) / 256;
    if (kblk >= n_kblk)
        return;
    const __half *from = act_row(in, row);
    uint32_t v[4];
#pragma unroll
    for (uint32_t t = 0; t < 4; t++) {
        uint32_t k =
            out.layout == LAYOUT_WG ? 64 * t + 32 * (step & 1) + 16 * p + 4 * (step >> 1) : 128 * p + 16 * step + 4 * t;
        k += kblk * 256;
        v[t] = __ldcg((const uint32_t *)(from + xfrag_at(k) + 2 * c));
        /* elements k + c and k + c + 2 */
        v[t] = k + c >= n ? 0 : k + c + 2 >= n ? v[t] & 0xffff : v[t];
    }
    *(uint4 *)(out.p + (uint64_t)blockIdx.y * WG_ROWS * 256 * n_kblk + (uint64_t)i * 8) =
        make_uint4(v[0], v[1], v[2], v[3]);
}

/* f32 rows into an activation's form; a block takes 1024 elements of a row. */
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
        dst[(uint64_t)row * n + k] = __half2float(act_row(in, row0 + row)[in.layout ? k : xfrag_at(k)]);
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

void reduce_norm_rows(struct device *d, const struct norm *n, uint32_t k, const partials *add, const float *bias,
                      const act_buf *out, const act_buf *two, const uint32_t *gather, uint32_t row0, uint32_t bucket)
{
    partials none = {};
    act_buf no = {};
    cuda_launch(d, norm_row, dim3(bucket), k > 1024 ? 512 : 128, 0, LAUNCH_PDL, d->ws.x, d->ws.ldx, k, *n, gather,
                add ? *add : none, bias, *out, two ? *two : no, row0);
}

void norm_rows(struct device *d, const struct norm *n, uint32_t k, const act_buf *out, bool gather, uint32_t row0,
               uint32_t bucket)
{
    reduce_norm_rows(d, n, k, NULL, NULL, out, NULL, gather ? d->step->out_row : NULL, row0, bucket);
}

void rows_as_they_are(struct device *d, float *x, uint32_t ldx, uint32_t k, const act_buf *out, uint32_t bucket)
{
    partials none = {};
    act_buf no = {};
    struct norm plain = {NORM_NONE, 0, NULL, NULL};
    cuda_launch(d, norm_row, dim3(bucket), k > 1024 ? 512 : 128, 0, LAUNCH_PDL, x, ldx, k, plain,
                (const uint32_t *)NULL, none, (const float *)NULL, *out, no, 0u);
}

void reduce_to_x(struct device *d, const partials *s, const float *bias, uint32_t n, uint32_t bucket)
{
    cuda_launch(d, reduce_add, dim3((n + 1023) / 1024, bucket), 256, 0, LAUNCH_PDL, *s, bias, n, d->ws.x, d->ws.ldx);
}

void reduce_to_tmp(struct device *d, const partials *s, uint32_t n, uint32_t bucket)
{
    cuda_launch(d, reduce_rows, dim3((n + 1023) / 1024, bucket), 256, 0, LAUNCH_PDL, *s, n, d->ws.tmp, d->ws.ldtmp);
}

void act_to_wg(struct device *d, const act_buf *in, uint32_t k, const act_buf *out, uint32_t bucket)
{
    cuda_launch(d, xfrag_to_wg, dim3(((k + 255) / 256 * out->ld + 7) / 8, (bucket + WG_ROWS - 1) / WG_ROWS), 256, 0,
                LAUNCH_PDL, *in, k, *out);
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
