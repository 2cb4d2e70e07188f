/*
 * q4_0.cuh - Q4_0 on the GPU: 32 weights of 4 bits share a scale.
 *
 * The fragment, offsets in bytes:
 *   0     planes [h][p] of nibbles: word 4p + i holds k 16s + 4t + 0..3 for s = 2(4p+i) (low nibble of each byte) and
 *         s + 1 (high)
 *   2048  d [16 rows][8]
 *
 * Exactness: q - 8 is an integer that fp16 represents; products with fp16 activations are summed in f32, 32 k at a
 * time.
 */
#ifndef HEARTH_CUDA_Q4_0_CUH
#define HEARTH_CUDA_Q4_0_CUH

#include "kernels/cuda/quant/q48_0.cuh"
#include "kernels/cuda/quant/slice.cuh"

template <> struct quant<DT_Q4_0> : quant_own {
    static constexpr uint32_t FRAGS = 1, FRAG_BYTES = 2304;
    static constexpr bool INT8 = true, WGMMA = true;
    static constexpr int WG_ORDER = 1;

    __device__ static inline float at(const uint8_t *row, uint32_t k)
    {
        const uint8_t *b = row + k / 32 * 18;
        uint32_t i = k % 32, q = i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4;
        return dq_half(b) * ((int)q - 8);
    }

    __device__ static inline uint32_t pack(const slice &s, uint32_t tile, uint32_t r, uint32_t, uint32_t w)
    {
        uint32_t plane = w >> 7, h = plane >> 1, p = plane & 1, lane = w >> 2 & 31, g = lane >> 2, t = lane & 3,
                 j = w & 3, n_in = s.n_in, v = 0;
        if (w < 512) {
            uint32_t k = 256 * r + 32 * (4 * p + j);
            const uint8_t *b = k < n_in ? s.row(tile, h, g) : NULL;
            for (uint32_t m = 0; b && m < 4; m++) { /* the byte holds elements 4t + m and 4t + m + 16 */
                uint32_t c = b[k / 32 * 18 + 2 + 4 * t + m];
                v |= c << 8 * m;
            }
            return v;
        }
        w -= 512;
        return two_d(s.row(tile, w >> 5, w >> 2 & 7), 8 * r + 2 * (w & 3), 18, n_in / 32);
    }

    __device__ static inline void unpack(const uint8_t *u, uint32_t h, uint32_t g, uint32_t k, float out[8])
    {
        uint32_t row = 8 * h + g, s = k >> 4;
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t lane = g << 2 | ((k >> 2 & 3) + (i >> 2)), w = s >> 1;
            uint32_t v =
                ((const uint32_t *)(u + (2 * h + (w >> 2)) * 512 + lane * 16))[w & 3] >> (8 * (i & 3) + 4 * (s & 1)) &
                15;
            out[i] = __half2float(((const __half *)(u + 2048))[row * 8 + (k >> 5)]) * (float)((int)v - 8);
        }
    }

    template <int NT>
    __device__ static inline void mul(const uint8_t *r, int, const xfrag &v, int lane, float (&acc)[NT][4])
    {
        constexpr uint32_t M = 0x64006400u;
        int g = lane >> 2, t = lane & 3;
#pragma unroll(unroll <NT>::value)
        for (int p = 0; p < 2; p++) {
            uint32_t a[4], b[4], dg[2], dh[2];
            two_of(dg, ((const uint2 *)(r + 2048 + g * 16))[p]), two_of(dh, ((const uint2 *)(r + 2176 + g * 16))[p]);
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
#pragma unroll
            for (int u = 0; u < 4; u++) {
                int s = 2 * (4 * p + u);
                uint32_t a8 = a[u] >> 8, b8 = b[u] >> 8;
                uint32_t al = h2sub(lop_or(a[u], 0x000f000f, M), 0x64086408u),
                         bl = h2sub(lop_or(b[u], 0x000f000f, M), 0x64086408u);
                uint32_t cl = h2sub(lop_or(a8, 0x000f000f, M), 0x64086408u),
                         dl = h2sub(lop_or(b8, 0x000f000f, M), 0x64086408u);
                uint32_t ah = h2fma(lop_or(a[u], 0x00f000f0, M), 0x2C002C00u, 0xD480D480u),
                         bh = h2fma(lop_or(b[u], 0x00f000f0, M), 0x2C002C00u, 0xD480D480u);
                uint32_t ch = h2fma(lop_or(a8, 0x00f000f0, M), 0x2C002C00u, 0xD480D480u),
                         dhh = h2fma(lop_or(b8, 0x00f000f0, M), 0x2C002C00u, 0xD480D480u);
                float2 fg = __half22float2(*(const __half2 *)&dg[u / 2]),
                       fh = __half22float2(*(const __half2 *)&dh[u / 2]);
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    float q[4] = {0, 0, 0, 0};
                    uint2 x0 = v.four(n, s, t), x1 = v.four(n, s + 1, t);
                    mma16816(q, al, bl, cl, dl, x0.x, x0.y);
                    mma16816(q, ah, bh, ch, dhh, x1.x, x1.y);
                    add_scaled(acc[n], q, u & 1 ? fg.y : fg.x, u & 1 ? fh.y : fh.x);
                }
            }
        }
    }

#if __CUDA_ARCH__ >= 800
    template <int M>
    __device__ static inline void mul_int(const uint8_t *r, int frag, const ix_frag &v, int lane, float (&acc)[M][2])
    {
        int_q_0<0, M>(r, frag, v, lane, acc);
    }
#endif

    struct wg : wg_whole {
        uint32_t a[4], b[4], dg[2], dh[2];

        __device__ void open(const uint8_t *, int)
        {
        }
        __device__ void plane(const uint8_t *r, int p, int lane)
        {
            int g = lane >> 2;
            two_of(dg, ((const uint2 *)(r + 2048 + g * 16))[p]), two_of(dh, ((const uint2 *)(r + 2176 + g * 16))[p]);
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
        }
        __device__ void word(int u, uint32_t *A) const
        {
            constexpr uint32_t M = 0x64006400u;
            uint32_t a8 = a[u] >> 8, b8 = b[u] >> 8, d = twice(dg[u / 2], u & 1), e = twice(dh[u / 2], u & 1);
            A[0] = h2mul(h2sub(lop_or(a[u], 0x000f000f, M), 0x64086408u), d);
            A[1] = h2mul(h2sub(lop_or(b[u], 0x000f000f, M), 0x64086408u), e);
            A[2] = h2mul(h2sub(lop_or(a8, 0x000f000f, M), 0x64086408u), d);
            A[3] = h2mul(h2sub(lop_or(b8, 0x000f000f, M), 0x64086408u), e);
            A[4] = h2mul(h2fma(lop_or(a[u], 0x00f000f0, M), 0x2C002C00u, 0xD480D480u), d);
            A[5] = h2mul(h2fma(lop_or(b[u], 0x00f000f0, M), 0x2C002C00u, 0xD480D480u), e);
            A[6] = h2mul(h2fma(lop_or(a8, 0x00f000f0, M), 0x2C002C00u, 0xD480D480u), d);
            A[7] = h2mul(h2fma(lop_or(b8, 0x00f000f0, M), 0x2C002C00u, 0xD480D480u), e);
        }
    };
};

#endif
