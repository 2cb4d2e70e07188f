/*
 * slice.cuh - some rows of a matrix as they lie in the file, seen as a tile's rows: what a type's pack() reads.
 */
#ifndef HEARTH_CUDA_SLICE_CUH
#define HEARTH_CUDA_SLICE_CUH

#include "kernels/cuda/gemm/tile16.cuh"

/* The rows of a slice, as a tile's rows. */
struct slice {
    const uint8_t *raw;
    uint64_t row_bytes;
    uint32_t row0, n, n_in, n_kblk, type;
    uint32_t tile0;  /* first tile of the slice within the part */
    uint32_t side;   /* 0, 1: the part fills this half of every tile; 2: whole tiles */
    uint8_t *packed; /* the part's first tile */
    /* row g of half h of a tile, or NULL where it is not in this slice */
    __device__ const uint8_t *row(uint32_t tile, uint32_t h, uint32_t g) const
    {
        if (side < 2 && h != side)
            return NULL;
        uint32_t r = side < 2 ? tile * 8 + g : tile * 16 + h * 8 + g;
        return r >= row0 && r - row0 < n ? raw + (r - row0) * row_bytes : NULL;
    }
};

__device__ static inline uint32_t u16_at(const uint8_t *p)
{
    return *(const uint16_t *)p;
}

/* Two f16 scales of rows' blocks, `bytes` long, where the first exists. */
__device__ static inline uint32_t two_d(const uint8_t *row, uint32_t block, uint32_t bytes, uint32_t blocks)
{
    uint32_t v = 0;
    if (row && block < blocks)
        v = u16_at(row + (uint64_t)block * bytes);
    if (row && block + 1 < blocks)
        v |= u16_at(row + (uint64_t)(block + 1) * bytes) << 16;
    return v;
}

/* Blocks of 34, 144 or 210 bytes keep their halves on even addresses. */
__device__ static inline float dq_half(const uint8_t *p)
{
    return __half2float(*(const __half *)p);
}

#endif
