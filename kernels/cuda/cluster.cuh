/*
 * cluster.cuh - how the blocks of a thread block cluster send each other numbers: by stores to another block's shared
 * memory that its mbarrier counts, so that a block waits for what it is sent and not for the other blocks.
 */
#ifndef HEARTH_CUDA_CLUSTER_CUH
#define HEARTH_CUDA_CLUSTER_CUH

#include "kernels/cuda/bulk.cuh"

#if __CUDA_ARCH__ >= 900
/* Every thread of each block calls both; after the second, the shared memory of the other blocks can be accessed, and
 * what they wrote there before the first. */
__device__ static inline void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ static inline void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Called by one thread, before cluster_arrive(): the block will be told `bytes`. */
__device__ static inline void told_init(uint64_t *told, uint32_t bytes)
{
    mbar_init(told, 1);
    mbar_init_done();
    mbar_expect_tx(told, bytes);
}
/* The address at block `rank` of the cluster of what is `own` here. */
__device__ static inline uint32_t there(const void *own, uint32_t rank)
{
    uint32_t at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(smem_of(own)), "r"(rank));
    return at;
}
/* Stores v at `at`, and counts it at barrier `told`; both are addresses of there(), in a block that is known to have
 * started. */
__device__ static inline void tell(uint32_t at, uint32_t told, float v)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(at), "f"(v),
                 "r"(told)
                 : "memory");
}
__device__ static inline void tell(uint32_t at, uint32_t told, float2 v)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(at),
                 "f"(v.x), "f"(v.y), "r"(told)
                 : "memory");
}
__device__ static inline void tell(uint32_t at, uint32_t told, float4 v)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(at),
                 "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(told)
                 : "memory");
}
__device__ static inline void wait_told(uint64_t *told)
{
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0; @p bra D; "
                 "bra W; D: }" ::"r"(smem_of(told))
                 : "memory");
}
#else
__device__ static inline void cluster_arrive()
{
}
__device__ static inline void cluster_wait()
{
}
#endif

#endif
