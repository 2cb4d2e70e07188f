/*
 * sort.cuh - pairs of a row and an expert sorted by expert, by each block of grouped.cuh for itself. For few pairs that
 * costs less than a sorting kernel, whose end all blocks would have to wait for before they could issue any copies.
 *
 * Each expert has a bitmap with one bit for each pair, so that the order is the same in all blocks: they divide the
 * columns of a product among themselves by it.
 */
#ifndef HEARTH_CUDA_EXPERTS_SORT_CUH
#define HEARTH_CUDA_EXPERTS_SORT_CUH

#include "kernels/cuda/experts/experts.cuh"

enum { SORT_EACH = 2, SORT_PAIRS = SORT_EACH * BLOCK, SORT_FIRST_BITS = 10, SORT_N_BITS = 6 };
static_assert(SORT_PAIRS <= 1 << SORT_FIRST_BITS, "a job is packed");

/* Bytes of shared memory that a block keeps: the jobs, then the order of the pairs. */
__host__ __device__ static inline uint32_t sort_bytes(uint32_t pairs)
{
    return pairs * (sizeof(uint32_t) + sizeof(uint16_t));
}
/* Words of an expert's bitmap: an odd number, so that equal words of neighbouring experts lie in different banks. */
__host__ __device__ static inline uint32_t sort_words(uint32_t pairs)
{
    return (pairs + 31) / 32 | 1;
}
/* Whether a block can sort so many pairs of so many experts, and of a shared expert, in the shared memory of the ring,
 * which is not filled yet. */
__host__ __device__ static inline bool sort_fits(uint32_t n_expert, uint32_t pairs)
{
    enum { ROOM = 24 << 10 /* two stages of the smallest ring are larger */ };
    uint32_t words = BLOCK / 32 + (n_expert + 1) * (sort_words(pairs) + 1);
    return pairs <= SORT_PAIRS && n_expert < BLOCK && words * sizeof(uint32_t) <= ROOM;
}

__device__ static inline experts_job sorted_job(uint32_t v)
{
    return {v >> (SORT_FIRST_BITS + SORT_N_BITS), v >> SORT_N_BITS & ((1u << SORT_FIRST_BITS) - 1),
            (v & ((1u << SORT_N_BITS) - 1)) + 1};
}

/* The expert in a slot of a row: waits for the router to publish it, or reads the route where that is complete. */
__device__ static inline float id_of(const experts_args &a, uint32_t row, uint32_t slot)
{
#if __CUDA_ARCH__ >= 900
    if (a.said)
        return said_first(hear(a.said[row].chosen + slot, said_tag(a.step, a.nth)));
#endif
    return __ldcg(a.route + (uint64_t)row * 2 * a.n_used + slot);
}

/* Called by all threads of a block: fills `jobs`, of up to COLS pairs each, and `order`, and returns the number of
 * jobs. wait() returns when the route is complete. */
template <uint32_t COLS, class F>
__device__ static inline uint32_t sort_pairs(const experts_args &a, uint32_t *jobs, uint16_t *order, uint32_t *room,
                                             F wait)
{
    uint32_t tid = threadIdx.x, warp = tid / 32, lane = tid % 32, n_all = a.n_expert + (a.n_slot > a.n_used),
             words = sort_words(a.bucket * a.n_slot), n = a.step->n_row * a.n_slot;
    uint32_t *warps = room, *bits = warps + BLOCK / 32, *first = bits + n_all * words, expert[SORT_EACH];
    for (uint32_t i = tid; i < n_all * words; i += BLOCK)
        bits[i] = 0;
    __syncthreads();
    wait();
#pragma unroll
    for (uint32_t j = 0; j < SORT_EACH; j++) {
        uint32_t i = tid + j * BLOCK, row = i / a.n_slot, slot = i - row * a.n_slot;
        expert[j] = a.n_expert;
        if (i < n && slot < a.n_used)
            expert[j] = expert_of(id_of(a, row, slot), a.n_expert);
        if (i < n)
            atomicOr(bits + expert[j] * words + i / 32, 1u << i % 32);
    }
    __syncthreads();
    uint32_t count = 0, all = 0;
    if (tid < n_all)
        for (uint32_t w = 0; w < words; w++)
            count += __popc(bits[tid * words + w]);
    uint32_t n_job = (count + COLS - 1) / COLS, sum = count << 16 | n_job, own = sum; /* one scan for both */
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        uint32_t o = __shfl_up_sync(~0u, sum, d);
        if ((int)lane >= d)
            sum += o;
    }
    if (lane == 31)
        warps[warp] = sum;
    __syncthreads();
    sum -= own;
#pragma unroll
    for (uint32_t w = 0; w < BLOCK / 32; w++) {
        sum += w < warp ? warps[w] : 0;
        all += warps[w];
    }
    if (tid < n_all) {
        first[tid] = sum >> 16;
        for (uint32_t j = 0; j < n_job; j++)
            jobs[(sum & 0xffff) + j] =
                (tid << SORT_FIRST_BITS | ((sum >> 16) + j * COLS)) << SORT_N_BITS | (min(COLS, count - j * COLS) - 1);
    }
    __syncthreads();
#pragma unroll
    for (uint32_t j = 0; j < SORT_EACH; j++) {
        uint32_t i = tid + j * BLOCK;
        if (i >= n)
            break;
        const uint32_t *of = bits + expert[j] * words;
        uint32_t at = first[expert[j]] + __popc(of[i / 32] & ((1u << i % 32) - 1));
        for (uint32_t w = 0; w < i / 32; w++)
            at += __popc(of[w]);
        order[at] = i;
    }
    __syncthreads();
    return all & 0xffff;
}

#endif
