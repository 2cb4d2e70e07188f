/*
 * slice.cuh - some rows of a matrix in the file's form, addressed as rows of tiles: the input of a type's pack().
 */
#ifndef HEARTH_CUDA_SLICE_CUH
#define HEARTH_CUDA_SLICE_CUH

#include "kernels/cuda/gemm/tile16.cuh"

/* A slice of rows [row0, row0 + n) of a part. */
struct slice {
    const uint8_t *raw;
    uint64_t row_bytes;
    uint32_t row0, n, n_in, n_kblk, type;
    uint32_t tile0;  /* first tile of the slice within the part */
    uint32_t side;   /* 0, 1: the part fills this half of every tile; 2: whole tiles */
    uint8_t *packed; /* the part's first tile */
    /* the file's bytes of row g of half h of a tile, or NULL where that is not in this slice */
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

/* The f16 numbers at the start of two consecutive blocks of `bytes` of a row; 0 for a block that does not exist. */
__device__ static inline uint32_t two_d(const uint8_t *row, uint32_t block, uint32_t bytes, uint32_t blocks)
{
    uint32_t v = 0;
    if (row && block < blocks)
        v = u16_at(row + (uint64_t)block * bytes);
    if (row && block + 1 < blocks)
        v |= u16_at(row + (uint64_t)(block + 1) * bytes) << 16;
    return v;
}

/* An f16 as f32; as blocks have 34, 144 or 210 bytes and so on, halves are on even addresses. */
__device__ static inline float dq_half(const uint8_t *p)
{
    return __half2float(*(const __half *)p);
}

#endif
