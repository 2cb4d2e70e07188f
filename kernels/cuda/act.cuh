/* act.cuh - in which forms activations lie in the workspace, and where in them an element is. */
#ifndef HEARTH_CUDA_ACT_CUH
#define HEARTH_CUDA_ACT_CUH

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

extern "C" {
#include "kernels/backend.h"
#include "kernels/cuda/rules.h"
}
#include "kernels/cuda/gemm/split_k.cuh"

/* clang-format off */
/*
 * The prepared form of a matrix input: fp16 in the order in which mma fragments want it, with sub-block sums.
 * Records of 256 elements, XFRAG_KBLK halves each, lie [row / XFRAG_ROWS][k / 256][row % XFRAG_ROWS]: the rows that a launch
 * of skinny takes are one piece of a record, and one bulk copy brings them. In a record:
 *     4 groups of 64 elements, each padded to 72 halves (so that four lanes' 16-byte loads hit different banks);
 *       within a group, every 4 consecutive elements lie in the order 0,2,1,3: a lane's 8 bytes are then the
 *       B fragment's (x0,x2),(x1,x3), which is how nibbles come out of `w & 0x000f000f` and `w >> 8`
 *     8 halves: S_hi of the 8 sub-blocks of 32; 8 halves: S_lo; S = sum of the *rounded* elements, split hi + lo
 *     padding, so that the 16-byte loads of neighbouring rows hit different banks
 * One form serves every weight type. Elements past k are finite (weights there are zero).
 *
 * The plain form is row-major fp16 (the cuBLASLt prefill path reads it): `layout` says which one a buffer holds.
 */
/* clang-format on */
enum {
    XFRAG_GROUP = 72,
    XFRAG_SUM = 4 * XFRAG_GROUP,
    XFRAG_KBLK = XFRAG_SUM + 64,
    XFRAG_ROWS = 512,                       /* rows whose records lie side by side */
    XFRAG_STRIDE = XFRAG_ROWS * XFRAG_KBLK, /* halves from record to record of a row */
};
static_assert(XFRAG_ROWS % GEMM_ROWS == 0, "rows of a launch lie side by side");

enum {
    LAYOUT_PREPARED,
    LAYOUT_ROW_MAJOR,
    LAYOUT_WG, /* and the one after it: of wgmma's fragments, by order: split_k.cuh */
};
struct act_buf {
    __half *p;
    uint32_t ld; /* halves from row to row: XFRAG_KBLK in the prepared form; the number of rows in LAYOUT_WG */
    uint32_t layout;
    uint32_t block; /* halves from XFRAG_ROWS rows to the next; not in LAYOUT_WG */
};
/* Row `row`, of any number of a step's. */
__device__ static inline __half *act_row(const act_buf &a, uint32_t row)
{
    return a.p + (uint64_t)(row / XFRAG_ROWS) * a.block + (uint64_t)(row % XFRAG_ROWS) * a.ld;
}
/*
 * Where element k of a row of n lies in LAYOUT_WG, and the element after it `ld` * 8 halves further. Rows come in
 * blocks of WG_ROWS.
 */
__device__ static inline __half *wg_place(const act_buf &o, uint32_t row, uint32_t k, uint32_t n)
{
    return o.p + (uint64_t)(row / WG_ROWS) * WG_ROWS * ((n + 255) & ~255u) +
           wg_at(o.layout - LAYOUT_WG, o.ld, row % WG_ROWS, k);
}

/* Halves of a buffer of so many prepared rows of k. */
__host__ __device__ static inline uint64_t xfrag_halves(uint32_t k, uint32_t rows)
{
    return (rows + XFRAG_ROWS - 1) / XFRAG_ROWS * ((k + 255) / 256) * (uint64_t)XFRAG_STRIDE;
}
/* Offset of element k in a prepared row, and of its sub-block's S_hi (S_lo is 8 further). */
__host__ __device__ static inline uint32_t xfrag_at(uint32_t k)
{
    uint32_t j = k & 3;
    return (k >> 8) * XFRAG_STRIDE + (k >> 6 & 3) * XFRAG_GROUP + (k & 60) + (j == 1 ? 2 : j == 2 ? 1 : j);
}
__host__ __device__ static inline uint32_t xfrag_sum_at(uint32_t k)
{
    return (k >> 8) * XFRAG_STRIDE + XFRAG_SUM + (k >> 5 & 7);
}
/* Offset in a record of the eight elements that a lane has of it, a warp all. */
__device__ static inline uint32_t eight_at(uint32_t lane)
{
    return (lane >> 3) * XFRAG_GROUP + (lane & 7) * 8;
}
/* Padded element count of every workspace row. */
static inline uint32_t pad256(uint32_t n)
{
    return (n + 255) & ~255u;
}
/* A buffer of rows of up to k elements at p. */
static inline act_buf act_prepared(__half *p, uint32_t k)
{
    return {p, XFRAG_KBLK, LAYOUT_PREPARED, (uint32_t)xfrag_halves(k, XFRAG_ROWS)};
}
static inline act_buf act_row_major(__half *p, uint32_t ld)
{
    return {p, ld, LAYOUT_ROW_MAJOR, XFRAG_ROWS * ld};
}
/* The same for a launch of up to GEMM_ROWS rows from row0 on, whose row `row` lies at p + row * ld. */
static inline act_buf act_launch(act_buf a, uint32_t row0)
{
    uint32_t before = row0 / XFRAG_ROWS;
    a.p += (int64_t)before * a.block - (int64_t)before * XFRAG_ROWS * a.ld;
    return a;
}

#endif
