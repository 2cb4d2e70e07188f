/*
 * q5_0.cuh - Q5_0 on the GPU: 32 weights of 5 bits share a scale.
 *
 * The fragment: 0 planes [h][p] of nibbles: word 4p + i holds k 16s + 4t + 0..3 for s = 2(4p+i) (low nibble of each
 * byte) and s + 1 (high); 2048 fifth bits, u32 [h][p] a lane: word i's byte m has bit i of byte m for the low nibble,
 * bit 4 + i for the high one; 2560 d [16 rows][8].
 *
 * Exactness: q - 16 is an integer that fp16 holds; products with fp16 activations are summed in f32, 32 k at a time.
 */
#ifndef HEARTH_CUDA_Q5_0_CUH
#define HEARTH_CUDA_Q5_0_CUH

#include "kernels/cuda/gemm/tile16_int.cuh"
#include "kernels/cuda/quant/slice.cuh"

template <> struct quant<DT_Q5_0> : quant_own {
    static constexpr uint32_t FRAGS = 1, FRAG_BYTES = 2816, BLOCK = 22;
    static constexpr bool INT8 = true, WGMMA = true;
    static constexpr int WG_ORDER = 1;

    /* The 32 fifth bits of a block. */
    __device__ static inline uint32_t fifths(const uint8_t *block)
    {
        return u16_at(block + 2) | u16_at(block + 4) << 16;
    }

    __device__ static inline float at(const uint8_t *row, uint32_t k)
    {
        const uint8_t *b = row + k / 32 * BLOCK;
        uint32_t i = k % 32, q = (i < 16 ? b[6 + i] & 15 : b[6 + i - 16] >> 4) | (fifths(b) >> i & 1) << 4;
        return dq_half(b) * ((int)q - 16);
    }

    __device__ static inline uint32_t pack(const slice &s, uint32_t tile, uint32_t r, uint32_t, uint32_t w)
    {
        uint32_t v = 0;
        if (w < 512) {
            uint32_t plane = w >> 7, lane = w >> 2 & 31, k = 256 * r + 32 * (4 * (plane & 1) + (w & 3));
            const uint8_t *b = k < s.n_in ? s.row(tile, plane >> 1, lane >> 2) : NULL;
            for (uint32_t m = 0; b && m < 4; m++) /* the byte holds elements 4t + m and 16 more */
                v |= (uint32_t)b[k / 32 * BLOCK + 6 + 4 * (lane & 3) + m] << 8 * m;
            return v;
        }
        w -= 512;
        if (w < 128) {
            uint32_t lane = w >> 2, p = w & 1;
            const uint8_t *b = s.row(tile, w >> 1 & 1, lane >> 2);
            for (uint32_t i = 0; b && i < 4; i++) {
                uint32_t k = 256 * r + 32 * (4 * p + i);
                uint32_t bits = k < s.n_in ? fifths(b + k / 32 * BLOCK) >> 4 * (lane & 3) : 0;
                for (uint32_t m = 0; m < 4; m++)
                    v |= (bits >> m & 1) << (8 * m + i) | (bits >> (16 + m) & 1) << (8 * m + 4 + i);
            }
            return v;
        }
        w -= 128;
        return two_d(s.row(tile, w >> 5, w >> 2 & 7), 8 * r + 2 * (w & 3), BLOCK, s.n_in / 32);
    }

    __device__ static inline void unpack(const uint8_t *u, uint32_t h, uint32_t g, uint32_t k, float out[8])
    {
        uint32_t s = k >> 4, w = s >> 1, p = w >> 2;
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t lane = g << 2 | ((k >> 2 & 3) + (i >> 2));
            uint32_t lo = ((const uint32_t *)(u + (2 * h + p) * 512 + lane * 16))[w & 3] >> (8 * (i & 3) + 4 * (s & 1));
            uint32_t hi =
                ((const uint32_t *)(u + 2048 + lane * 16))[2 * h + p] >> (8 * (i & 3) + (w & 3) + 4 * (s & 1));
            int q = (int)((lo & 15) | (hi & 1) << 4);
            out[i] = __half2float(((const __half *)(u + 2560))[(8 * h + g) * 8 + w]) * (float)(q - 16);
        }
    }

    /* The A fragments of a word, as q - 16: rows g and g + 8 by turns, the low nibbles' k16 step, then the high ones'.
     */
    __device__ static inline void fragments(uint32_t a, uint32_t b, uint32_t fg, uint32_t fh, int u, uint32_t *A)
    {
        constexpr uint32_t M = 0x64006400u, LO = 0x64106410u, BY = 0x2C002C00u, HI = 0xD500D500u; /* 1040, 1/16, -80 */
        uint32_t a8 = a >> 8, b8 = b >> 8, f0 = fg << (4 - u), f1 = fg >> (4 + u), f2 = fh << (4 - u),
                 f3 = fh >> (4 + u);
        A[0] = h2sub(lop_or(f0, 0x00100010, lop_or(a, 0x000f000f, M)), LO);
        A[1] = h2sub(lop_or(f2, 0x00100010, lop_or(b, 0x000f000f, M)), LO);
        A[2] = h2sub(lop_or(f1, 0x00100010, lop_or(a8, 0x000f000f, M)), LO);
        A[3] = h2sub(lop_or(f3, 0x00100010, lop_or(b8, 0x000f000f, M)), LO);
        A[4] = h2fma(lop_or(f0, 0x01000100, lop_or(a, 0x00f000f0, M)), BY, HI);
        A[5] = h2fma(lop_or(f2, 0x01000100, lop_or(b, 0x00f000f0, M)), BY, HI);
        A[6] = h2fma(lop_or(f1, 0x01000100, lop_or(a8, 0x00f000f0, M)), BY, HI);
        A[7] = h2fma(lop_or(f3, 0x01000100, lop_or(b8, 0x00f000f0, M)), BY, HI);
    }

    template <int NT>
    __device__ static inline void mul(const uint8_t *r, int, const xfrag &v, int lane, float (&acc)[NT][4])
    {
        int t = lane & 3;
#pragma unroll(unroll <NT>::value)
        for (int p = 0; p < 2; p++) {
            wg w;
            w.plane(r, p, lane);
#pragma unroll
            for (int u = 0; u < 4; u++) {
                int s = 2 * (4 * p + u);
                uint32_t A[8];
                fragments(w.a[u], w.b[u], w.fg, w.fh, u, A);
                float2 dg = __half22float2(*(const __half2 *)&w.dg[u / 2]),
                       dh = __half22float2(*(const __half2 *)&w.dh[u / 2]);
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    float q[4] = {0, 0, 0, 0};
                    uint2 x0 = v.four(n, s, t), x1 = v.four(n, s + 1, t);
                    mma(q, A[0], A[1], A[2], A[3], x0.x, x0.y);
                    mma(q, A[4], A[5], A[6], A[7], x1.x, x1.y);
                    add_scaled(acc[n], q, u & 1 ? dg.y : dg.x, u & 1 ? dh.y : dh.x);
                }
            }
        }
    }

    /* The i-th block's fragments as bytes 8 (q - 16): rows g and g + 8 of its first 16 k, then of the rest. */
    __device__ static inline void int8_fragments(uint32_t a, uint32_t b, uint32_t fg, uint32_t fh, int i, uint32_t *A)
    {
        constexpr uint32_t F = 0x80808080u, N = 0x78787878u;
        A[0] = lop_or(fg << (7 - i), F, a << 3 & N) ^ F, A[1] = lop_or(fh << (7 - i), F, b << 3 & N) ^ F;
        A[2] = lop_or(fg << (3 - i), F, a >> 1 & N) ^ F, A[3] = lop_or(fh << (3 - i), F, b >> 1 & N) ^ F;
    }

#if __CUDA_ARCH__ >= 900
    /* A block of 32 k is an mma; lanes with g >> 1 == (its number) % 4 have the activations. |C| < 2^27. */
    template <int M>
    __device__ static inline void mul_int(const uint8_t *r, int, const ix_frag &v, int lane, float (&acc)[M][2])
    {
        int g = lane >> 2, t = lane & 3;
#pragma unroll
        for (int p = 0; p < 2; p++) { /* four blocks */
            int c[M][4];
            uint32_t x[M][2];
#pragma unroll
            for (int m = 0; m < M; m++) {
                const uint8_t *row = v.at + m * v.row_step + (g & 1) * IX_HI + 128 * p + 32 * (g >> 1) + 4 * t;
                x[m][0] = *(const uint32_t *)row, x[m][1] = *(const uint32_t *)(row + 16);
                c[m][0] = c[m][1] = c[m][2] = c[m][3] = 0;
            }
            wg w;
            w.plane(r, p, lane);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t A[4];
                int8_fragments(w.a[i], w.b[i], w.fg, w.fh, i, A);
#pragma unroll
                for (int m = 0; m < M; m++)
                    imma32<1>(c[m], A[0], A[1], A[2], A[3], g >> 1 == i ? x[m][0] : 0, g >> 1 == i ? x[m][1] : 0);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float d = __half2float(((const __half *)(r + 2560))[(g + 8 * h) * 8 + 4 * p + t]) * 0.125f;
#pragma unroll
                for (int m = 0; m < M; m++) {
                    float scale = *(const float *)(v.at + m * v.row_step + IX_SCALE);
                    acc[m][h] = __fmaf_rn(__fmul_rn(d, scale), (float)ix_join(c[m], h), acc[m][h]);
                }
            }
        }
    }
#endif

    struct wg : wg_whole {
        uint32_t a[4], b[4], dg[2], dh[2], fg, fh;

        __device__ void open(const uint8_t *, int)
        {
        }
        __device__ void plane(const uint8_t *r, int p, int lane)
        {
            int g = lane >> 2;
            two_of(dg, ((const uint2 *)(r + 2560 + g * 16))[p]), two_of(dh, ((const uint2 *)(r + 2688 + g * 16))[p]);
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
            fg = ((const uint32_t *)(r + 2048 + lane * 16))[p], fh = ((const uint32_t *)(r + 2048 + lane * 16))[2 + p];
        }
        __device__ void word(int u, uint32_t *A) const
        {
            uint32_t d = twice(dg[u / 2], u & 1), e = twice(dh[u / 2], u & 1);
            fragments(a[u], b[u], fg, fh, u, A);
#pragma unroll
            for (int i = 0; i < 8; i++)
                A[i] = h2mul(A[i], i & 1 ? e : d);
        }
    };
};

#endif
