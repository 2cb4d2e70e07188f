/* mxfp4.cuh - MXFP4 on the GPU: codebook4.cuh with a power of two per 32 weights; its exponents are [16 rows][8]. */
#ifndef HEARTH_CUDA_MXFP4_CUH
#define HEARTH_CUDA_MXFP4_CUH

#include "kernels/cuda/quant/codebook4.cuh"

struct codebook_mxfp4 {
    static constexpr uint32_t ROW = 8, BLOCK = 17;
    static constexpr bool FOUR_BITS = true;

    __host__ __device__ static constexpr int VALUES(int i)
    {
        return fp4_values[i];
    }
    __device__ static inline const uint8_t *nibbles(const uint8_t *row, uint32_t j)
    {
        return row + j * BLOCK + 1;
    }
    __device__ static inline float scale(const uint8_t *row, uint32_t j)
    {
        return e8m0_half(row[j * BLOCK]);
    }
    /* Padding has a scale other than 0 (the exponent is 0), but its weights are zeros. */
    __device__ static inline uint32_t pack_scales(const slice &s, uint32_t tile, uint32_t r, uint32_t w)
    {
        const uint8_t *b = s.row(tile, w >> 4, w >> 1 & 7);
        uint32_t block = 8 * r + 4 * (w & 1), v = 0;
        for (uint32_t i = 0; b && i < 4 && block + i < s.n_in / 32; i++)
            v |= (uint32_t)b[(block + i) * BLOCK] << 8 * i;
        return v;
    }
    __device__ static inline float of(const uint8_t *scales, uint32_t row, uint32_t j)
    {
        return e8m0_half(scales[row * 8 + j]);
    }

    const uint8_t *own; /* the lane's first scale */
    __device__ inline void load(const uint8_t *scales, int lane)
    {
        own = scales + (lane >> 2) * 8 + (lane & 3);
    }
    __device__ inline float mine(int h, int p) const
    {
        return e8m0_half(own[64 * h + 4 * p]);
    }
};

template <> struct quant<DT_MXFP4> : quant_codebook4<codebook_mxfp4> {
};

#endif
