/*
 * check.cu - kernels for check-runtime.c, which is C: one that adds, one with parameters of many sizes, one with many
 * bytes of parameters, one that is compiled for pairs of blocks, one that writes to an unmapped address, and one with 1
 * KiB of static shared memory.
 */
#include "tests/sim/check.h"

#include <cuda_runtime.h>

__global__ void __launch_bounds__(64) check_add(uint32_t *at, uint32_t by)
{
    at[blockIdx.x * blockDim.x + threadIdx.x] += by;
}

__global__ void check_mixed(uint8_t first, struct check_params p, uint16_t last, uint64_t *out)
{
    extern __shared__ uint64_t sum[];
    sum[0] = first + p.a + p.b[0] + p.b[1] + p.b[2] + last;
    *out = sum[0];
}

__global__ void check_many(struct check_many many, uint32_t at, uint32_t *out)
{
    *out = many.v[at];
}

/* The block's rank in its pair, and the size of the cluster. */
__global__ void __cluster_dims__(2) check_pair(uint32_t *out)
{
    uint32_t rank, n;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
    out[blockIdx.x] = 10 * n + rank;
}

__global__ void check_wild(uint32_t *at)
{
    *at = 1;
}

__global__ void check_room(uint32_t *at)
{
    __shared__ uint32_t room[256];
    room[255 - threadIdx.x] = at[threadIdx.x];
    __syncthreads();
    at[threadIdx.x] = room[threadIdx.x];
}

extern "C" {
const void *check_kernel(enum check_kernel k)
{
    const void *const v[] = {(const void *)check_add,  (const void *)check_mixed, (const void *)check_many,
                             (const void *)check_pair, (const void *)check_wild,  (const void *)check_room};
    return v[k];
}

/* A launch by <<<>>>, which the backend does not use. */
void check_add_plainly(uint32_t *at, uint32_t by, unsigned blocks, unsigned threads)
{
    check_add<<<blocks, threads>>>(at, by);
}
}
