/* act.cuh - the layouts of activations in the workspace, and the place of an element in each. */
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
 * The prepared form of a matrix input: fp16 in the order of mma fragments, with sub-block sums. A row is cut into
 * records of 256 elements, XFRAG_KBLK halves each, laid out [row / XFRAG_ROWS][k / 256][row % XFRAG_ROWS]: the records
 * of a launch's rows at the same k are contiguous, and one bulk copy brings them. In a record:
 *     4 groups of 64 elements, each padded to 72 halves (so that four lanes' 16-byte loads hit different banks);
 *       within a group, every 4 consecutive elements lie in the order 0,2,1,3: a lane's 8 bytes are then the
 *       B fragment's (x0,x2),(x1,x3), which is how nibbles come out of `w & 0x000f000f` and `w >> 8`
 *     8 halves: S_hi of the 8 sub-blocks of 32; 8 halves: S_lo; S = sum of the *rounded* elements, split hi + lo
 *     padding, so that the 16-byte loads of neighbouring rows hit different banks
 * One form serves every weight type. Elements past k are finite (the weights there are zero).
 *
 * The plain form is row-major fp16, for the cuBLASLt path; act_buf.layout says which form a buffer holds.
 */
/* clang-format on */
enum {
    XFRAG_GROUP = 72,
    XFRAG_SUM = 4 * XFRAG_GROUP,
    XFRAG_KBLK = XFRAG_SUM + 64,
    XFRAG_ROWS = 512,                       /* rows whose records of the same k are contiguous */
    XFRAG_STRIDE = XFRAG_ROWS * XFRAG_KBLK, /* halves from one record of a row to the next */
};
static_assert(XFRAG_ROWS % GEMM_ROWS == 0, "rows of a launch lie side by side");

enum {
    LAYOUT_PREPARED,
    LAYOUT_ROW_MAJOR,
    LAYOUT_WG, /* + order (0 or 1): the order of wgmma's fragments, see split_k.cuh */
};
struct act_buf {
    __half *p;
    uint32_t ld; /* halves from row to row: XFRAG_KBLK in the prepared form; the number of rows in LAYOUT_WG */
    uint32_t layout;
    uint32_t block; /* halves from one block of XFRAG_ROWS rows to the next; unused in LAYOUT_WG */
};
/* The address of row `row` of a step, however many rows it has. */
__device__ static inline __half *act_row(const act_buf &a, uint32_t row)
{
    return a.p + (uint64_t)(row / XFRAG_ROWS) * a.block + (uint64_t)(row % XFRAG_ROWS) * a.ld;
}
/*
 * The address in LAYOUT_WG of element k, even, of a row of n; element k + 1 is `ld` * 8 halves further. Rows come in
 * blocks of WG_ROWS.
 */
__device__ static inline __half *wg_place(const act_buf &o, uint32_t row, uint32_t k, uint32_t n)
{
    return o.p + (uint64_t)(row / WG_ROWS) * WG_ROWS * ((n + 255) & ~255u) +
           wg_at(o.layout - LAYOUT_WG, o.ld, row % WG_ROWS, k);
}

/* Halves in a buffer of so many prepared rows of k elements. */
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
/* Offset in a record of a lane's eight elements, of the 256 that a warp handles. */
__device__ static inline uint32_t eight_at(uint32_t lane)
{
    return (lane >> 3) * XFRAG_GROUP + (lane & 7) * 8;
}
/* Padded element count of every workspace row. */
static inline uint32_t pad256(uint32_t n)
{
    return (n + 255) & ~255u;
}
/* A buffer at p of prepared rows of up to k elements. */
static inline act_buf act_prepared(__half *p, uint32_t k)
{
    return {p, XFRAG_KBLK, LAYOUT_PREPARED, (uint32_t)xfrag_halves(k, XFRAG_ROWS)};
}
static inline act_buf act_row_major(__half *p, uint32_t ld)
{
    return {p, ld, LAYOUT_ROW_MAJOR, XFRAG_ROWS * ld};
}
/* The buffer as a launch of up to GEMM_ROWS rows from row0 on may use it: row `row` is at p + row * ld. */
static inline act_buf act_launch(act_buf a, uint32_t row0)
{
    uint32_t before = row0 / XFRAG_ROWS;
    a.p += (int64_t)before * a.block - (int64_t)before * XFRAG_ROWS * a.ld;
    return a;
}

#endif
