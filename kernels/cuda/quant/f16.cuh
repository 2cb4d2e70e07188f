/*
 * f16.cuh - F16 on the GPU, and BF16 (BF), which differs from it only in the conversion of its 16 bits.
 *
 * Four fragments q per k-block, each of planes [h][p]: k 64t + 16q + 8p + 0..7, each four in the order 0,2,1,3.
 */
#ifndef HEARTH_CUDA_F16_CUH
#define HEARTH_CUDA_F16_CUH

#include "kernels/cuda/gemm/tile16.cuh"
#include "kernels/cuda/quant/slice.cuh"

template <int BF> struct quant_16 : quant_own {
    static constexpr uint32_t FRAGS = 4, FRAG_BYTES = 2048;
    static constexpr bool WGMMA = true;

    __host__ __device__ static constexpr uint32_t frag_of(uint32_t k)
    {
        return k >> 4 & 3;
    }

    __device__ static inline float at(const uint8_t *row, uint32_t k)
    {
        uint16_t v = ((const uint16_t *)row)[k];
        return BF ? __uint_as_float((uint32_t)v << 16) : __half2float(__ushort_as_half(v));
    }

    __device__ static inline uint32_t pack(const slice &s, uint32_t tile, uint32_t r, uint32_t q, uint32_t w)
    {
        uint32_t plane = w >> 7, h = plane >> 1, p = plane & 1, lane = w >> 2 & 31, g = lane >> 2, t = lane & 3,
                 j = w & 3, n_in = s.n_in, v;
        uint32_t k = 256 * r + 64 * t + 16 * q + 8 * p + 4 * (j >> 1) + (j & 1);
        const uint8_t *b = s.row(tile, h, g);
        v = b && k < n_in ? u16_at(b + 2 * k) : 0;
        return v | (b && k + 2 < n_in ? u16_at(b + 2 * k + 4) << 16 : 0);
    }

    __device__ static inline void unpack(const uint8_t *u, uint32_t h, uint32_t g, uint32_t k, float out[8])
    {
        uint32_t t = k >> 6;
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t m = i & 3, at = (i & 4) + (m == 1 ? 2 : m == 2 ? 1 : m);
            uint32_t v = ((const uint16_t *)(u + (2 * h + (k >> 3 & 1)) * 512 + (g << 2 | t) * 16))[at];
            out[i] = BF ? __uint_as_float(v << 16) : __half2float(__ushort_as_half((uint16_t)v));
        }
    }

    template <int NT>
    __device__ static inline void mul(const uint8_t *r, int frag, const xfrag &v, int lane, float (&acc)[NT][4])
    {
        int t = lane & 3;
#pragma unroll
        for (int p = 0; p < 2; p++) {
            uint32_t a[4], b[4];
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
            if (BF)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    a[i] = h2of(__uint_as_float(a[i] << 16), __uint_as_float(a[i] & 0xffff0000u));
                    b[i] = h2of(__uint_as_float(b[i] << 16), __uint_as_float(b[i] & 0xffff0000u));
                }
#pragma unroll
            for (int n = 0; n < NT; n++) {
                uint4 x = v.eight(n, t * XFRAG_GROUP + 16 * frag + 8 * p);
                mma16816(acc[n], a[0], b[0], a[1], b[1], x.x, x.y);
                mma16816(acc[n], a[2], b[2], a[3], b[3], x.z, x.w);
            }
        }
    }

    /*
     * Uses fragments without rearranging them; a half is two units of 64 k. BF16 is converted to fp16, as in mul() and
     * in the expanded copies: its eight significant bits are exact from 2^-17 to 65504, and smaller numbers are off by
     * at most 2^-25, about a millionth of typical weights. wgmma in bf16 would round activations to eight bits.
     */
    struct wg {
        static constexpr bool ROW_SCALES = false;
        enum { PLANES = 2, FRAG = 1, PAIRS = 2 };
        uint32_t a[8], b[8];

        __device__ static constexpr int step(int p, int v, int i)
        {
            return 4 * v + 2 * i + p;
        }
        __device__ void open(const uint8_t *, int)
        {
        }
        __device__ void plane(const uint8_t *r, int, int lane)
        {
#pragma unroll
            for (int p = 0; p < 2; p++) {
                four_of(a + 4 * p, ((const uint4 *)r)[p * 32 + lane]);
                four_of(b + 4 * p, ((const uint4 *)r)[(2 + p) * 32 + lane]);
            }
        }
        __device__ static uint32_t half2_of(uint32_t w)
        {
            return BF ? h2of(__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u)) : w;
        }
        __device__ void word(int v, uint32_t *A) const
        {
#pragma unroll
            for (int i = 0; i < 4; i++)
                A[2 * i] = half2_of(a[4 * v + i]), A[2 * i + 1] = half2_of(b[4 * v + i]);
        }
    };
};

template <> struct quant<DT_F16> : quant_16<0> {
};

#endif
