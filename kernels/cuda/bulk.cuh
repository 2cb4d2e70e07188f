/* bulk.cuh - Hopper's bulk copies into shared memory, and the barriers that they complete on. */
#ifndef HEARTH_CUDA_BULK_CUH
#define HEARTH_CUDA_BULK_CUH

#include <stdint.h>

#if __CUDA_ARCH__ >= 900
__device__ static inline uint32_t smem_of(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
__device__ static inline void mbar_init(uint64_t *b, int n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_of(b)), "r"(n));
}
__device__ static inline void mbar_wait(uint64_t *b, uint32_t phase)
{
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra W; D: }" ::"r"(
                     smem_of(b)),
                 "r"(phase)
                 : "memory");
}
__device__ static inline void mbar_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_of(b)) : "memory");
}
/*
 * A warp has read a stage and gives it back: its lanes' reads come before __syncwarp, and that before lane 0's arrival.
 * compute-sanitizer's racecheck does not follow this chain and reports every refill of a stage; a build with
 * -DRACECHECK has each lane arrive for itself, and is what racecheck is run on.
 */
#ifdef RACECHECK
enum { WARP_ARRIVALS = 32 };
#else
enum { WARP_ARRIVALS = 1 };
#endif
__device__ static inline void mbar_release(uint64_t *b, uint32_t lane)
{
    __syncwarp();
    if (lane < WARP_ARRIVALS)
        mbar_arrive(b);
}
__device__ static inline void mbar_expect_tx(uint64_t *b, uint32_t n)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_of(b)), "r"(n) : "memory");
}
__device__ static inline void cp_async_bulk(void *dst, const void *src, uint32_t n, uint64_t *b, uint64_t policy)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(smem_of(dst)),
        "l"(src), "r"(n), "r"(smem_of(b)), "l"(policy)
        : "memory");
}
__device__ static inline uint64_t evict_first()
{
    uint64_t p;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}
__device__ static inline uint64_t evict_last()
{
    uint64_t p;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p));
    return p;
}
#endif

#endif
