/*
 * bulk.cuh - copies into the stages of a ring in shared memory, and the mbarriers that they complete on. Hopper has
 * bulk copies, one instruction of one lane each; cards since Ampere have cp.async of 16 bytes, which a whole warp
 * issues. A kernel that has both selects one by its argument `bulk`, so that a test can run the other cards' path on a
 * Hopper.
 */
#ifndef HEARTH_CUDA_BULK_CUH
#define HEARTH_CUDA_BULK_CUH

#include "kernels/cuda/ptx.cuh"

__device__ static inline void mbar_init(uint64_t *b, int n)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem_of(b)), "r"(n));
}
/* Makes initialised barriers visible to bulk copies; for the block's threads __syncthreads() does that. */
__device__ static inline void mbar_init_done()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ static inline void mbar_wait(uint64_t *b, uint32_t phase)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra W; D: }" ::"r"(
                     smem_of(b)),
                 "r"(phase)
                 : "memory");
#else
    asm volatile(
        "{ .reg .pred p; W: mbarrier.test_wait.parity.shared.b64 p, [%0], %1; @p bra D; bra W; D: }" ::"r"(smem_of(b)),
        "r"(phase)
        : "memory");
#endif
}
__device__ static inline void mbar_arrive(uint64_t *b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_of(b)) : "memory");
#else
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(smem_of(b)) : "memory");
#endif
}
/*
 * mbar_release: a warp has read a stage and releases it. Its lanes' reads are ordered before __syncwarp, and that
 * before lane 0's arrival. compute-sanitizer's racecheck does not follow this chain and would report every refill of a
 * stage; in a build with -DRACECHECK, on which racecheck is run, each lane arrives for itself.
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

/* Whether the code is compiled for a chip whose copies can complete on mbarriers. */
__host__ __device__ constexpr bool has_copies()
{
#if __CUDA_ARCH__ >= 800
    return true;
#else
    return false;
#endif
}
/* Arrivals per filled stage: one lane's, with the bytes it expects (bulk), or those of the 32 lanes that copy. */
__device__ static inline int fill_arrivals(bool bulk)
{
    return bulk ? 1 : 32;
}
/* A warp copies n bytes, a multiple of 16, 16 bytes at a time; bypassing L1 (.cg), as weights are read once. */
__device__ static inline void cp_async_warp(void *dst, const void *src, uint32_t n, uint64_t policy, uint32_t lane)
{
    for (uint32_t at = lane * 16; at < n; at += 512)
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(smem_of(dst) + at),
                     "l"((const uint8_t *)src + at), "l"(policy)
                     : "memory");
}
/* The calling lane arrives at the barrier once all of its copies so far are done. */
__device__ static inline void cp_async_arrive(uint64_t *b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem_of(b)) : "memory");
}
#if __CUDA_ARCH__ >= 900
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
/* Makes ordinary stores visible to the bulk copies that follow. */
__device__ static inline void fence_copies()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}
#else /* never called: `bulk` is false there */
__device__ static inline void mbar_expect_tx(uint64_t *, uint32_t)
{
}
__device__ static inline void cp_async_bulk(void *, const void *, uint32_t, uint64_t *, uint64_t)
{
}
__device__ static inline void fence_copies()
{
}
#endif
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
