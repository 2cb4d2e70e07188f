/*
 * f32.cuh - F32 on the GPU. Eight fragments q per k-block, each of planes [h][p]: k 64t + 8q + 4p + 0..3.
 *
 * A weight is split into hi + lo / 2048, two fp16 numbers with 22 significant bits in all.
 */
#ifndef HEARTH_CUDA_F32_CUH
#define HEARTH_CUDA_F32_CUH

#include "kernels/cuda/gemm/tile16.cuh"
#include "kernels/cuda/quant/slice.cuh"

template <> struct quant<DT_F32> : quant_own {
    static constexpr uint32_t FRAGS = 8, FRAG_BYTES = 2048;

    __host__ __device__ static constexpr uint32_t frag_of(uint32_t k)
    {
        return k >> 3 & 7;
    }

    __device__ static inline float at(const uint8_t *row, uint32_t k)
    {
        return ((const float *)row)[k];
    }

    __device__ static inline uint32_t pack(const slice &s, uint32_t tile, uint32_t r, uint32_t q, uint32_t w)
    {
        uint32_t plane = w >> 7, h = plane >> 1, p = plane & 1, lane = w >> 2 & 31, g = lane >> 2, t = lane & 3,
                 j = w & 3;
        uint32_t k = 256 * r + 64 * t + 8 * q + 4 * p + j;
        const uint8_t *b = k < s.n_in ? s.row(tile, h, g) : NULL;
        return b ? ((const uint32_t *)b)[k] : 0;
    }

    __device__ static inline void unpack(const uint8_t *u, uint32_t h, uint32_t g, uint32_t k, float out[8])
    {
        uint32_t t = k >> 6;
        for (uint32_t i = 0; i < 8; i++)
            out[i] = ((const float *)(u + (2 * h + (i >> 2)) * 512 + (g << 2 | t) * 16))[i & 3];
    }

    template <int NT>
    __device__ static inline void mul(const uint8_t *r, int frag, const xfrag &v, int lane, float (&acc)[NT][4])
    {
        int t = lane & 3;
        float lo[NT][4];
        zero(lo);
#pragma unroll
        for (int p = 0; p < 2; p++) {
            uint32_t h[2][2], l[2][2]; /* [row half][element pair] */
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float4 w = ((const float4 *)r)[(2 * i + p) * 32 + lane];
                h[i][0] = h2of(w.x, w.z), h[i][1] = h2of(w.y, w.w);
                float2 a = __half22float2(*(const __half2 *)&h[i][0]), b = __half22float2(*(const __half2 *)&h[i][1]);
                l[i][0] = h2of((w.x - a.x) * 2048, (w.z - a.y) * 2048),
                l[i][1] = h2of((w.y - b.x) * 2048, (w.w - b.y) * 2048);
            }
#pragma unroll
            for (int n = 0; n < NT; n++) {
                uint2 x = *(const uint2 *)(v.x + n * v.step + t * XFRAG_GROUP + 8 * frag + 4 * p);
                mma16816(acc[n], h[0][0], h[1][0], h[0][1], h[1][1], x.x, x.y);
                mma16816(lo[n], l[0][0], l[1][0], l[0][1], l[1][1], x.x, x.y);
            }
        }
#pragma unroll
        for (int n = 0; n < NT; n++)
            add_scaled(acc[n], lo[n], 1.f / 2048, 1.f / 2048);
    }
};

#endif
