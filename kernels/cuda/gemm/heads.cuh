/*
 * heads.cuh - norms of q's, k's and v's heads within the product that makes them: few rows, NEOX. Included by
 * gemv_end.cuh.
 *
 * Each of a head's pairs of tiles is one block's, and these blocks form a thread block cluster. The epilogue warp of
 * each sends its 32 elements of the head into the shared memory of all of them. Then every block has the head's sum of
 * squares, added in the order of epilogue.cu: it is bit-identical to that kernel's, without a launch and without a
 * round trip through global memory.
 */
#ifndef HEARTH_CUDA_GEMM_HEADS_CUH
#define HEARTH_CUDA_GEMM_HEADS_CUH

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/gemm/gemm.cuh"

enum { HEAD_BLOCKS = 8 /* most blocks of a cluster that every chip with clusters supports */ };

/* Bytes of a block's shared memory for M rows of its heads: two barriers, and two buffers for the heads' elements. */
static inline uint32_t heads_smem(int m, uint32_t d_head)
{
    return 16 + 2 * m * d_head * 4;
}

#if __CUDA_ARCH__ >= 900
__device__ static inline void heads_init(uint8_t *heads)
{
    for (int turn = 0; turn < 2; turn++)
        mbar_init((uint64_t *)heads + turn, 1);
}

/*
 * x[m] of a lane is element `at` of M rows of the block's head, four lanes having four neighbours; s[m] becomes the sum
 * of squares of that row's head. All lanes of one warp of each of the cluster's `blocks` blocks call it, in turns 0, 1,
 * ... The two buffers alternate: a block sends into a buffer again only after it has received the turn in between from
 * all blocks, each of which had by then read the buffer. When a block leaves its last turn, everything sent to it has
 * arrived, so nothing is sent to a block that has exited. Elements are sent in fours, because each arriving store is
 * counted by the barrier, and that takes time. Written with cluster.cuh's functions, the loop is compiled otherwise.
 */
template <int M>
__device__ static inline void heads_squares(uint8_t *heads, uint32_t blocks, uint32_t d_head, uint32_t turn,
                                            uint32_t at, const float x[M], float s[M])
{
    uint32_t lane = threadIdx.x & 31, full = smem_of((uint64_t *)heads + (turn & 1));
    const float *head = (const float *)(heads + 16) + (turn & 1) * M * d_head;
    uint32_t own = smem_of(head + (at & ~3u));
    if (!lane)
        mbar_expect_tx((uint64_t *)heads + (turn & 1), M * d_head * 4);
    __syncwarp();
    float four[M][4];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            four[m][i] = __shfl_sync(~0u, x[m], (lane & ~3u) + i);
    for (uint32_t to = lane & 3; to < blocks; to += 4) {
        uint32_t there, bar;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(to));
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(bar) : "r"(full), "r"(to));
#pragma unroll
        for (int m = 0; m < M; m++)
            asm volatile(
                "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                    there + m * d_head * 4),
                "f"(four[m][0]), "f"(four[m][1]), "f"(four[m][2]), "f"(four[m][3]), "r"(bar)
                : "memory");
    }
    __syncwarp();
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1; @p bra D; "
                 "bra W; D: }" ::"r"(full),
                 "r"(turn >> 1 & 1)
                 : "memory");
#pragma unroll
    for (int m = 0; m < M; m++) {
        s[m] = 0;
        for (uint32_t i = lane; i < d_head; i += 32) {
            float v = head[m * d_head + i];
            s[m] = __fmaf_rn(v, v, s[m]);
        }
#pragma unroll
        for (int i = 16; i; i /= 2)
            s[m] = __fadd_rn(s[m], __shfl_xor_sync(~0u, s[m], i));
    }
}
#else /* no clusters: gemm_ends_here() is false there */
__device__ static inline void heads_init(uint8_t *)
{
}
template <int M>
__device__ static inline void heads_squares(uint8_t *, uint32_t, uint32_t, uint32_t, uint32_t, const float *, float *)
{
}
#endif

#endif
