/*
 * ptx.cuh - instructions that CUDA C++ has no function for, or one that compiles to other code: tensor cores and loads
 * of their fragments, copies into shared memory, and some arithmetic. Those for rings of stages are in bulk.cuh.
 */
#ifndef HEARTH_CUDA_PTX_CUH
#define HEARTH_CUDA_PTX_CUH

#include <stdint.h>

/* Loads 16 bytes that other blocks may be writing (relaxed, gpu scope); each 4 bytes are atomic by themselves. */
__device__ static inline float4 load_now(const float4 *at)
{
    float4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

__device__ static inline uint32_t smem_of(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
/* p, in shared memory, of which the compiler does not see what it is: otherwise it computes the address of an array
 * from a special register wherever it is used. */
__device__ static inline uint8_t *shared_once(const uint8_t *p)
{
    uint32_t at = smem_of(p);
    asm volatile("" : "+r"(at));
    return (uint8_t *)__cvta_shared_to_generic(at);
}

/* c += a * b; a: rows g (a0, a2), g + 8 (a1, a3). Turing has only k8: two instructions, one per half of k. */
__device__ static inline void mma16816(float *c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                       uint32_t b1)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#elif defined(__CUDA_ARCH__)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a2), "r"(a3), "r"(b1));
#endif
}

/* Loads four 8 x 8 matrices of halves from shared memory; a lane's `at` is a row of one of them. ldm4t: transposed. */
__device__ static inline void ldm4(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
__device__ static inline void ldm4t(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
/* Transposes an 8 x 8 matrix of halves in registers. */
__device__ static inline uint32_t transpose8(uint32_t w)
{
    uint32_t r;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(w));
    return r;
}

/* Copies 16 bytes, or zeros where `in` is false, to shared memory; in flight until cp_async_wait(). Turing has no such
 * copies: there it is done at once. */
__device__ static inline void cp_async16(void *dst, const void *src, bool in)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_of(dst)), "l"(src), "r"(in ? 16 : 0)
                 : "memory");
#else
    *(uint4 *)dst = in ? *(const uint4 *)src : make_uint4(0, 0, 0, 0);
#endif
}
/* Makes the calling thread's copies since the last call a group. */
__device__ static inline void cp_async_commit()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* Waits for all of the calling thread's groups but the LEFT latest. */
template <int LEFT> __device__ static inline void cp_async_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

#define LOG2E 1.4426950408889634f
__device__ static inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* A barrier of N of the block's threads, whole warps; id: 1 to 15, 0 is that of __syncthreads(). */
template <int N> __device__ static inline void named_bar_sync(int id)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(N) : "memory");
}
template <int N> __device__ static inline void named_bar_arrive(int id)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(N) : "memory");
}

#endif
