/* wgmma_mma.cuh - wgmma instructions: A in fp16 registers, B in fp16 in shared memory, sums in F32. */
#ifndef HEARTH_CUDA_GEMM_WGMMA_MMA_CUH
#define HEARTH_CUDA_GEMM_WGMMA_MMA_CUH

#include <stdint.h>

#define WG_R4(d, i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WG_R16(d, i) WG_R4(d, i), WG_R4(d, i + 4), WG_R4(d, i + 8), WG_R4(d, i + 12)
#define WG_S0        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define WG_S1        ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WG_S2        ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define WG_S3        ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/* d += a * b, b at descriptor `desc`; asynchronous. */
template <int N> __device__ static inline void wg_mma(float (&d)[N / 2], const uint32_t *a, uint64_t desc)
{
    if constexpr (N == 16)
        asm volatile("{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                     "{%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1, 0; }"
                     : WG_R4(d, 0), WG_R4(d, 4)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc));
    else if constexpr (N == 32)
        asm volatile("{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" WG_S0
                     "}, {%16,%17,%18,%19}, %20, p, 1, 1, 0; }"
                     : WG_R16(d, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc));
    else if constexpr (N == 64)
        asm volatile(
            "{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" WG_S0 WG_S1
            "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0; }"
            : WG_R16(d, 0), WG_R16(d, 16)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc));
    else if constexpr (N == 96)
        asm volatile(
            "{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" WG_S0 WG_S1
                WG_S2 "}, {%48,%49,%50,%51}, %52, p, 1, 1, 0; }"
            : WG_R16(d, 0), WG_R16(d, 16), WG_R16(d, 32)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc));
    else
        asm volatile(
            "{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" WG_S0 WG_S1
                WG_S2 WG_S3 "}, {%64,%65,%66,%67}, %68, p, 1, 1, 0; }"
            : WG_R16(d, 0), WG_R16(d, 16), WG_R16(d, 32), WG_R16(d, 48)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc));
}
__device__ static inline void wg_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ static inline void wg_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int LEFT> __device__ static inline void wg_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
/* A descriptor of B without swizzle, made of 8 rows x 16 bytes matrices; the second eight k are `lead` bytes further,
 * the next eight rows 128 bytes. */
__device__ static inline uint64_t wg_desc(uint32_t smem, uint32_t lead)
{
    return (uint64_t)(smem >> 4 & 0x3fff) | (uint64_t)(lead >> 4) << 16 | (uint64_t)(128 >> 4) << 32;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* d = a * b, plus d where MORE; b at descriptor `desc`; asynchronous. */
template <int N, int MORE> __device__ static inline void batch_mma(float (&d)[N / 2], const uint32_t *a, uint64_t desc)
{
    static_assert(N == 16 || N == 32 || N == 64, "the widths of batch_cut");
    if constexpr (N == 16)
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %13, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                     "{%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1, 0; }"
                     : WG_R4(d, 0), WG_R4(d, 4)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "n"(MORE));
    else if constexpr (N == 64)
        asm volatile(
            "{ .reg .pred p; setp.ne.u32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" WG_S0 WG_S1
            "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0; }"
            : WG_R16(d, 0), WG_R16(d, 16)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "n"(MORE));
    else
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" WG_S0
                     "}, {%16,%17,%18,%19}, %20, p, 1, 1, 0; }"
                     : WG_R16(d, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "n"(MORE));
}
/* Called after a wait: keeps the compiler from reading the results of products in flight before it. */
template <int N> __device__ static inline void batch_landed(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i]));
}
#endif

#endif
