/*
 * told.cuh - what a router tells before its kernel has ended, in steps of few rows.
 *
 * A step waits for its router's choice, and a kernel's end is late news: whoever waits for that waits for a fence, a
 * ticket, the last block's stores, and the start of the next kernel's. So blocks leave slots of 16 bytes in memory
 * (struct route_said), written and read as wholes: eight bytes, and a tag of this step and this router of it, so that
 * nobody resets them. A block of the router tells when the row x is whole, every block its logits; the row's first
 * block chooses among these and tells the experts. `few`, whose blocks are there by then, prepares x meanwhile. Of one
 * row `up` may tell `down` its hidden units in the same way, and blocks of `down` each other their sums (few_down.cuh).
 * Of up to ROUTE_ALONE rows `up` and `down` of grouped.cuh hear the choices, by which they sort.
 *
 * A row by itself may do without a router's kernel (shares.cuh): the product before it, which makes x, tells of each of
 * its tiles the tile's shares of all logits. Blocks of `up` add these up, tell one another the logits, and each of them
 * chooses. The first tells the choice to `down`.
 *
 * It cannot lock. Who waits for a router's blocks is its first block of a row, of which there are ROUTE_ALONE at most
 * and for which nobody waits to begin; and blocks of the next kernels, which begin when all of the router's have.
 * Those of `up` that wait for one another are no more than processors, and no other kernel waits so (row_norms_here()).
 * A kernel that did not wait for the end of the one before does so before its own: completion stays transitive.
 */
#ifndef HEARTH_CUDA_EXPERTS_TOLD_CUH
#define HEARTH_CUDA_EXPERTS_TOLD_CUH

#include "kernels/cuda/said.cuh"

/*
 * The shares of one row's logits, [n_expert / 2 + 1][n_tile] slots: two experts' of each tile of ROUTE_TILE columns,
 * and in the last row the tile's sum of squares. n_tile 0: a router's kernel makes the logits.
 */
struct route_shares {
    ulonglong2 *slots;
    uint32_t n_tile;
};
enum { SHARES_EXPERTS = 256, SHARES_TILES = 2 /* for each processor: at most */ };

/* Behind what is said of routes: sums of slices, sixteen each, shares of logits, and hidden units of one row, two a
 * slot. */
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
/* The block waits until x is whole, and sees it. All threads call it. */
__device__ static inline void hear_x(const route_said *said, uint64_t tag)
{
    if (!threadIdx.x) {
        hear(said->x, tag);
        __threadfence();
    }
    __syncthreads();
}
/* This thread sees x whole, and tells it. */
__device__ static inline void say_x(route_said *said, uint64_t tag)
{
    __threadfence();
    say(said->x, 0, tag);
}
/* A row's logits, n of them, by a warp, into shared memory, as they come. */
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
