/*
 * rate.cu - measures how fast this GPU reads its memory, or host memory over the link: every thread adds up what it
 * loads, 16 bytes at a time with several loads in flight. Thread: the engine's device thread.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/local.cuh"

enum {
    THREADS = 256,
    LOADS = 8,      /* in flight per thread */
    BLOCKS_SM = 16, /* blocks per SM in a launch, resident or not */
    PASSES = 5,
};

static const uint64_t own_bytes = 2ull << 30; /* about forty times the largest L2 */
static const uint64_t host_bytes = 128ull << 20;

/* The buffer is filled with bytes of 1, so that no sum is 1 and nothing is written; yet no load can be optimised away.
 */
static __global__ void __launch_bounds__(THREADS) read_all(const uint4 *buf, uint64_t n, uint32_t *out)
{
    uint64_t stride = (uint64_t)gridDim.x * THREADS, i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    uint32_t sum = 0;
    for (; i + (LOADS - 1) * stride < n; i += LOADS * stride) {
        uint4 v[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            v[k] = __ldcs(buf + i + k * stride);
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < n; i += stride)
        sum += buf[i].x;
    if (sum == 1)
        out[threadIdx.x] = sum;
}

int read_rate(struct device *d, bool host, uint64_t bytes, double *bytes_per_s, struct hearth_err *e)
{
    cudaEvent_t begin = NULL, end = NULL;
    double best = 0;
    void *buf = NULL;
    bytes = bytes ? bytes : host ? host_bytes : own_bytes;
    if (host && host_alloc(d, bytes, &buf, e))
        return e ? e->code : HEARTH_ENOMEM;
    if (!host && !(buf = cuda_alloc(d, bytes, "a buffer to read", e)))
        return d->err.code ? d->err.code : HEARTH_ENOMEM;
    if (!cuda_ok(d, cudaEventCreate(&begin)) || !cuda_ok(d, cudaEventCreate(&end)) ||
        !cuda_ok(d, cudaMemsetAsync(buf, 1, bytes, d->stream)))
        goto out;
    for (int i = 0; i < PASSES; i++) {
        float ms = 0;
        cuda_ok(d, cudaEventRecord(begin, d->stream));
        cuda_launch(d, read_all, dim3(d->sms * BLOCKS_SM), THREADS, 0, 0, (const uint4 *)buf, bytes / 16,
                    (uint32_t *)buf);
        if (!cuda_ok(d, cudaEventRecord(end, d->stream)) || !cuda_ok(d, cudaEventSynchronize(end)) ||
            !cuda_ok(d, cudaEventElapsedTime(&ms, begin, end)))
            goto out;
        double rate = 1e3 * (double)bytes / ms;
        best = rate > best ? rate : best;
    }
out:
    if (begin)
        cudaEventDestroy(begin);
    if (end)
        cudaEventDestroy(end);
    if (host)
        host_free(d, buf);
    else
        cuda_free(d, buf);
    *bytes_per_s = best;
    return cuda_failure(d, e);
}
