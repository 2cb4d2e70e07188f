/*
 * iq4_xs.cuh - IQ4_XS on the GPU: codebook4.cuh with a 6-bit scale per 32 weights times an fp16 scale per 256.
 *
 * Scales in a fragment, offsets in bytes; 24 bits per lane, of the lane that multiplies by them:
 *   0     u16 per lane: the scales of g's blocks t and 4 + t, and four bits of that of g + 8's block t
 *   64    u8 per lane: its other two bits, and the scale of g + 8's block 4 + t
 *   96    d [16 rows]
 */
#ifndef HEARTH_CUDA_IQ4_XS_CUH
#define HEARTH_CUDA_IQ4_XS_CUH

#include "kernels/cuda/quant/codebook4.cuh"

struct codebook_iq4_xs {
    static constexpr uint32_t ROW = 8, BLOCK = 136;
    static constexpr bool FOUR_BITS = false;

    __host__ __device__ static constexpr int VALUES(int i)
    {
        return iq4_values[i];
    }
    __device__ static inline const uint8_t *nibbles(const uint8_t *row, uint32_t j)
    {
        return row + j / 8 * BLOCK + 8 + 16 * (j % 8);
    }
    /* The scale plus 32, six bits, of the j-th 32 weights of a block. */
    __device__ static inline uint32_t six_bits(const uint8_t *b, uint32_t j)
    {
        return (b[4 + j / 2] >> 4 * (j % 2) & 15) | (u16_at(b + 2) >> 2 * j & 3) << 4;
    }
    __device__ static inline float scale(const uint8_t *row, uint32_t j)
    {
        const uint8_t *b = row + j / 8 * BLOCK;
        return dq_half(b) * (float)((int)six_bits(b, j % 8) - 32);
    }
    /* A lane's 24 bits, of g's blocks t and 4 + t, then g + 8's; bits of rows that are not in the slice are 0. */
    __device__ static inline uint32_t of_lane(const slice &s, uint32_t tile, uint32_t r, uint32_t lane)
    {
        uint32_t v = 0;
        for (uint32_t h = 0; h < 2; h++) {
            const uint8_t *b = s.row(tile, h, lane >> 2);
            if (b)
                v |= (six_bits(b + r * BLOCK, lane & 3) | six_bits(b + r * BLOCK, 4 + (lane & 3)) << 6) << 12 * h;
        }
        return v;
    }
    __device__ static inline uint32_t pack_scales(const slice &s, uint32_t tile, uint32_t r, uint32_t w)
    {
        uint32_t v = 0;
        if (w < 16)
            return (of_lane(s, tile, r, 2 * w) & 0xffff) | of_lane(s, tile, r, 2 * w + 1) << 16;
        w -= 16;
        if (w < 8) {
            for (uint32_t i = 0; i < 4; i++)
                v |= of_lane(s, tile, r, 4 * w + i) >> 16 << 8 * i;
            return v;
        }
        w -= 8;
        for (uint32_t i = 0; i < 2; i++) {
            const uint8_t *b = s.row(tile, w >> 2, 2 * (w & 3) + i);
            v |= b ? u16_at(b + r * BLOCK) << 16 * i : 0;
        }
        return v;
    }

    /* A lane's 24 bits in a fragment. */
    __device__ static inline uint32_t bits_of(const uint8_t *scales, uint32_t lane)
    {
        return ((const uint16_t *)scales)[lane] | (uint32_t)scales[64 + lane] << 16;
    }
    __device__ static inline float product(float d, uint32_t bits, uint32_t at)
    {
        return __fmul_rn(d, __fadd_rn(small_float(bits >> at & 63), -32.f));
    }
    __device__ static inline float of(const uint8_t *scales, uint32_t row, uint32_t j)
    {
        return product(__half2float(((const __half *)(scales + 96))[row]), bits_of(scales, (row & 7) << 2 | (j & 3)),
                       (row >> 3) * 12 + (j >> 2) * 6);
    }

    float d[2];
    uint32_t bits;
    __device__ inline void load(const uint8_t *scales, int lane)
    {
        bits = bits_of(scales, lane);
        d[0] = __half2float(((const __half *)(scales + 96))[lane >> 2]);
        d[1] = __half2float(((const __half *)(scales + 96))[8 + (lane >> 2)]);
    }
    __device__ inline float mine(int h, int p) const
    {
        return product(d[h], bits, 12 * h + 6 * p);
    }
};

template <> struct quant<DT_IQ4_XS> : quant_codebook4<codebook_iq4_xs> {
};

#endif
