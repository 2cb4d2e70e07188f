/*
 * said.cuh - how a kernel publishes results before its end: slots of 16 bytes in memory, written and read atomically.
 * Eight bytes are the value, eight a tag of the step and of the publisher within it, so that slots need no reset.
 */
#ifndef HEARTH_CUDA_SAID_CUH
#define HEARTH_CUDA_SAID_CUH

#include "kernels/cuda/cuda.cuh"

/* nth: number of the publisher within the step, from 1, so that no tag is 0, the initial content of memory. */
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
/* Reads a slot's value; returns whether the slot has the tag. */
__device__ static inline bool heard(const ulonglong2 *slot, uint64_t tag, uint64_t *v)
{
    uint64_t t;
    asm volatile("{ .reg .b128 v; ld.relaxed.gpu.global.b128 v, [%2]; mov.b128 {%0, %1}, v; }"
                 : "=l"(*v), "=l"(t)
                 : "l"(slot)
                 : "memory");
    return t == tag;
}
/* Waits until the slot has the tag, and returns its value. */
__device__ static inline uint64_t hear(const ulonglong2 *slot, uint64_t tag)
{
    uint64_t v;
    while (!heard(slot, tag, &v))
        ;
    return v;
}
#endif

#endif
