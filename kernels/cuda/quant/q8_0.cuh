/*
 * q8_0.cuh - Q8_0 on the GPU: 32 weights of 8 bits share a scale.
 *
 * Two fragments q per k-block, offsets in bytes:
 *   0     planes [h][p]: word i of plane p holds k 128q + 16s + 4t + 0..3, s = 4p + i, with the sign bits flipped
 *   2048  d [16 rows][4]
 *
 * Exactness: a weight's 8-bit integer is exact in fp16; products with fp16 activations are summed in f32, 32 k at a
 * time.
 */
#ifndef HEARTH_CUDA_Q8_0_CUH
#define HEARTH_CUDA_Q8_0_CUH

#include "kernels/cuda/quant/q48_0.cuh"
#include "kernels/cuda/quant/slice.cuh"

template <> struct quant<DT_Q8_0> : quant_own {
    static constexpr uint32_t FRAGS = 2, FRAG_BYTES = 2176;
    static constexpr bool INT8 = true, WGMMA = true;
    static constexpr int WG_ORDER = 1;

    __host__ __device__ static constexpr uint32_t frag_of(uint32_t k)
    {
        return k >> 7;
    }

    __device__ static inline float at(const uint8_t *row, uint32_t k)
    {
        const uint8_t *b = row + k / 32 * 34;
        return dq_half(b) * (int8_t)b[2 + k % 32];
    }

    __device__ static inline uint32_t pack(const slice &s, uint32_t tile, uint32_t r, uint32_t q, uint32_t w)
    {
        uint32_t plane = w >> 7, h = plane >> 1, p = plane & 1, lane = w >> 2 & 31, g = lane >> 2, t = lane & 3,
                 j = w & 3, n_in = s.n_in;
        if (w < 512) {
            uint32_t k = 256 * r + 128 * q + 16 * (4 * p + j) + 4 * t;
            const uint8_t *b = k < n_in ? s.row(tile, h, g) : NULL;
            if (b)
                b += k / 32 * 34 + 2 + k % 32;
            return b ? (u16_at(b) | u16_at(b + 2) << 16) ^ 0x80808080u : 0;
        }
        w -= 512;
        return two_d(s.row(tile, w >> 4, w >> 1 & 7), 8 * r + 4 * q + 2 * (w & 1), 34, n_in / 32);
    }

    __device__ static inline void unpack(const uint8_t *u, uint32_t h, uint32_t g, uint32_t k, float out[8])
    {
        uint32_t row = 8 * h + g, s = k >> 4;
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t lane = g << 2 | ((k >> 2 & 3) + (i >> 2)), w = s & 7;
            int v = (int)u[(2 * h + (w >> 2)) * 512 + lane * 16 + (w & 3) * 4 + (i & 3)] - 128;
            out[i] = __half2float(((const __half *)(u + 2048))[row * 4 + (k >> 5 & 3)]) * (float)v;
        }
    }

    template <int NT>
    __device__ static inline void mul(const uint8_t *r, int frag, const xfrag &v, int lane, float (&acc)[NT][4])
    {
        constexpr uint32_t B = 0x64806480u; /* 1024 + 128 */
        int g = lane >> 2, t = lane & 3;
#pragma unroll(unroll <NT>::value)
        for (int p = 0; p < 2; p++) {
            uint32_t a[4], b[4];
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
            float2 fg = __half22float2(((const __half2 *)(r + 2048))[2 * g + p]),
                   fh = __half22float2(((const __half2 *)(r + 2112))[2 * g + p]);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float q[NT][4];
                zero(q);
#pragma unroll
                for (int i = 2 * j; i < 2 * j + 2; i++) {
                    uint32_t a0 = h2sub(__byte_perm(a[i], 0x64646464u, 0x4240), B),
                             a2 = h2sub(__byte_perm(a[i], 0x64646464u, 0x4341), B);
                    uint32_t a1 = h2sub(__byte_perm(b[i], 0x64646464u, 0x4240), B),
                             a3 = h2sub(__byte_perm(b[i], 0x64646464u, 0x4341), B);
#pragma unroll
                    for (int n = 0; n < NT; n++) {
                        uint2 x = v.four(n, 8 * frag + 4 * p + i, t);
                        mma16816(q[n], a0, a1, a2, a3, x.x, x.y);
                    }
                }
#pragma unroll
                for (int n = 0; n < NT; n++)
                    add_scaled(acc[n], q[n], j ? fg.y : fg.x, j ? fh.y : fh.x);
            }
        }
    }

#if __CUDA_ARCH__ >= 800
    template <int M>
    __device__ static inline void mul_int(const uint8_t *r, int frag, const ix_frag &v, int lane, float (&acc)[M][2])
    {
        int_q_0<1, M>(r, frag, v, lane, acc);
    }
#endif

    /* 1024 + (q + 128), the byte inserted into an fp16, less 1152, which is exact; then times the block's d. A half is
     * one fragment, of two planes. */
    struct wg {
        static constexpr bool ROW_SCALES = false;
        enum { PLANES = 2, FRAG = 2, PAIRS = 2 };
        uint32_t a[4], b[4], dg, dh;

        __device__ static constexpr int step(int p, int v, int i)
        {
            return 4 * p + 2 * v + i;
        }
        __device__ void open(const uint8_t *, int)
        {
        }
        __device__ void plane(const uint8_t *r, int p, int lane)
        {
            int g = lane >> 2;
            dg = ((const uint32_t *)(r + 2048))[2 * g + p], dh = ((const uint32_t *)(r + 2112))[2 * g + p];
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
        }
        __device__ void word(int v, uint32_t *A) const
        {
            constexpr uint32_t M = 0x64646464u, B = 0x64806480u; /* 1024 + 128 */
            uint32_t d = twice(dg, v), e = twice(dh, v);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t x = a[2 * v + i], y = b[2 * v + i];
                A[4 * i] = h2mul(h2sub(__byte_perm(x, M, 0x4240), B), d);
                A[4 * i + 1] = h2mul(h2sub(__byte_perm(y, M, 0x4240), B), e);
                A[4 * i + 2] = h2mul(h2sub(__byte_perm(x, M, 0x4341), B), d);
                A[4 * i + 3] = h2mul(h2sub(__byte_perm(y, M, 0x4341), B), e);
            }
        }
    };
};

#endif
