/* iq4_nl.cuh - IQ4_NL on the GPU: codebook4.cuh with an fp16 scale per 32 weights; in a fragment [16 rows][8]. */
#ifndef HEARTH_CUDA_IQ4_NL_CUH
#define HEARTH_CUDA_IQ4_NL_CUH

#include "kernels/cuda/quant/codebook4.cuh"

struct codebook_iq4_nl {
    static constexpr uint32_t ROW = 16, BLOCK = 18;
    static constexpr bool FOUR_BITS = false;

    __host__ __device__ static constexpr int VALUES(int i)
    {
        return iq4_values[i];
    }
    __device__ static inline const uint8_t *nibbles(const uint8_t *row, uint32_t j)
    {
        return row + j * BLOCK + 2;
    }
    __device__ static inline float scale(const uint8_t *row, uint32_t j)
    {
        return dq_half(row + j * BLOCK);
    }
    __device__ static inline uint32_t pack_scales(const slice &s, uint32_t tile, uint32_t r, uint32_t w)
    {
        return two_d(s.row(tile, w >> 5, w >> 2 & 7), 8 * r + 2 * (w & 3), BLOCK, s.n_in / 32);
    }
    __device__ static inline float of(const uint8_t *scales, uint32_t row, uint32_t j)
    {
        return __half2float(((const __half *)scales)[row * 8 + j]);
    }

    const __half *own; /* the lane's first scale */
    __device__ inline void load(const uint8_t *scales, int lane)
    {
        own = (const __half *)scales + (lane >> 2) * 8 + (lane & 3);
    }
    __device__ inline float mine(int h, int p) const
    {
        return __half2float(own[64 * h + 4 * p]);
    }
};

template <> struct quant<DT_IQ4_NL> : quant_codebook4<codebook_iq4_nl> {
};

#endif
