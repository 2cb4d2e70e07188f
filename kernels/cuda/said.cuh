/*
 * said.cuh - what a kernel tells before its end: slots of 16 bytes in memory, written and read as wholes, of which
 * eight are a tag of this step and of who tells within it, so that nobody resets them.
 */
#ifndef HEARTH_CUDA_SAID_CUH
#define HEARTH_CUDA_SAID_CUH

#include "kernels/cuda/cuda.cuh"

/* nth: who tells, of the step's, from 1, so that no tag is 0, which memory begins with. */
__device__ static inline uint64_t said_tag(const step_dev *s, uint32_t nth)
{
    return s->ticket << 16 | (nth & 0xffff);
}

#if __CUDA_ARCH__ >= 800
__device__ static inline void say(ulonglong2 *slot, uint64_t v, uint64_t tag)
{
    asm volatile("{ .reg .b128 v; mov.b128 v, {%1, %2}; st.relaxed.gpu.global.b128 [%0], v; }" ::"l"(slot), "l"(v),
                 "l"(tag)
                 : "memory");
}
/* What a slot has now; whether it has the tag. */
__device__ static inline bool heard(const ulonglong2 *slot, uint64_t tag, uint64_t *v)
{
    uint64_t t;
    asm volatile("{ .reg .b128 v; ld.relaxed.gpu.global.b128 v, [%2]; mov.b128 {%0, %1}, v; }"
                 : "=l"(*v), "=l"(t)
                 : "l"(slot)
                 : "memory");
    return t == tag;
}
/* What it has as soon as it has the tag. */
__device__ static inline uint64_t hear(const ulonglong2 *slot, uint64_t tag)
{
    uint64_t v;
    while (!heard(slot, tag, &v))
        ;
    return v;
}
#endif

#endif
