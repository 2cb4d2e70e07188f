/*
 * told.cuh - what a router publishes before its kernel has ended, in steps of few rows.
 *
 * All of a step waits for its router's choice, and the end of a kernel is a slow signal: a dependent kernel waits for a
 * fence, a ticket, the last block's stores and its own start. So blocks publish their results in slots of 16 bytes in
 * global memory (struct route_said), each written and read as a whole: eight bytes of data and a tag that names this
 * step and this router within it, so that slots never need to be reset. One block of the router publishes that the row
 * x is complete, and every block publishes its logits; the row's first block chooses among these and publishes the
 * choice for the experts. Meanwhile `few`, whose blocks are resident by then, prepares x. For a step of one row `up`
 * may publish its hidden units to `down` in the same way, and blocks of `down` may publish their sums to each other
 * (few_down.cuh). For up to ROUTE_ALONE rows `up` and `down` of grouped.cuh wait for the published choices and sort by
 * them.
 *
 * A step of one row may do without a router kernel (shares.cuh): the product that makes x publishes, for each of its
 * tiles, that tile's share of all logits. Blocks of `up` add these up, publish the logits to one another, and each of
 * them makes the choice. The first block publishes the choice to `down`.
 *
 * This cannot deadlock. The blocks that wait for blocks of the router are the first block of each row, at most
 * ROUTE_ALONE of them, whose waiting keeps no other block from starting, and blocks of the next kernels, which start
 * only once all of the router's blocks have. The blocks of `up` that the others wait for are no more than there are
 * SMs, and no other kernel on the device waits in this way (row_norms_here()). A kernel that did not wait for the end
 * of its predecessor at the start does so before its own end, so that completion stays transitive.
 */
#ifndef HEARTH_CUDA_EXPERTS_TOLD_CUH
#define HEARTH_CUDA_EXPERTS_TOLD_CUH

#include "kernels/cuda/said.cuh"

/*
 * The shares of one row's logits, [n_expert / 2 + 1][n_tile] slots: each slot has the shares of two experts' logits in
 * one tile of ROUTE_TILE columns, and the last row of slots has the tiles' sums of squares. n_tile 0: a router kernel
 * computes the logits.
 */
struct route_shares {
    ulonglong2 *slots;
    uint32_t n_tile;
};
enum { SHARES_EXPERTS = 256, SHARES_TILES = 2 /* at most, for each SM */ };

/* Layout behind the slots of the routes: sums of slices (16 sums each, two a slot), shares of logits, and the hidden
 * units of one row, two a slot. */
enum { SLICE_SLOTS = 8 };
__host__ __device__ static inline uint64_t shares_slots(uint32_t sms)
{
    return (SHARES_EXPERTS / 2 + 1ull) * SHARES_TILES * sms;
}
static inline uint64_t said_bytes(uint32_t sms, uint32_t d_experts)
{
    return ROUTE_ALONE * sizeof(route_said) +
           (8ull * SLICE_SLOTS * sms + shares_slots(sms) + (d_experts + 1) / 2) * sizeof(ulonglong2);
}
static inline ulonglong2 *said_slices(route_said *said)
{
    return (ulonglong2 *)(said + ROUTE_ALONE);
}
static inline ulonglong2 *said_shares(route_said *said, uint32_t sms)
{
    return said_slices(said) + 8 * SLICE_SLOTS * sms;
}
static inline ulonglong2 *said_hidden(route_said *said, uint32_t sms)
{
    return said_shares(said, sms) + shares_slots(sms);
}

__device__ static inline uint64_t said_two(float a, float b)
{
    return (uint64_t)__float_as_uint(b) << 32 | __float_as_uint(a);
}
__device__ static inline float said_first(uint64_t v)
{
    return __uint_as_float((uint32_t)v);
}
__device__ static inline float said_second(uint64_t v)
{
    return __uint_as_float((uint32_t)(v >> 32));
}

#if __CUDA_ARCH__ >= 800
/* The block waits until x is complete and visible to it. Called by all threads. */
__device__ static inline void hear_x(const route_said *said, uint64_t tag)
{
    if (!threadIdx.x) {
        hear(said->x, tag);
        __threadfence();
    }
    __syncthreads();
}
/* Publishes that x is complete, which must be visible to the calling thread. */
__device__ static inline void say_x(route_said *said, uint64_t tag)
{
    __threadfence();
    say(said->x, 0, tag);
}
/* A warp copies a row's n logits into shared memory, waiting until they are published. */
__device__ static inline void hear_logits(const route_said *said, uint64_t tag, uint32_t n, float *to, uint32_t lane)
{
    enum { AT_ONCE = 4 };
    uint32_t pairs = (n + 1) / 2;
#pragma unroll 1
    for (uint32_t base = 0; base < pairs; base += 32 * AT_ONCE) {
        uint64_t v[AT_ONCE];
        bool all;
        do {
            all = true;
#pragma unroll
            for (uint32_t i = 0; i < AT_ONCE; i++)
                all = heard(said->logit + min(base + 32 * i + lane, pairs - 1), tag, &v[i]) && all;
        } while (!all);
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            uint32_t e = 2 * (base + 32 * i + lane);
            if (e < n)
                to[e] = said_first(v[i]);
            if (e + 1 < n)
                to[e + 1] = said_second(v[i]);
        }
    }
    __syncwarp();
}
#endif

#endif
