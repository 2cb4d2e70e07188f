/*
 * codebook4.cuh - what IQ4_NL, IQ4_XS and MXFP4 have in common on the GPU: weights of 4 bits that are indices of
 * sixteen values; each 32 share a scale.
 *
 * The fragment, offsets in bytes:
 *   0     planes [h][p] of nibbles: word i of plane p holds block 4p + i: k 32(4p + i) + 4t + 0..3 from its lowest
 *         nibble on, and the elements 16 further from bit 16 on
 *   2048  the scales, S::ROW bytes for each of 16 rows, in the type's own form
 *
 * The order of nibbles is that of PRMT's selectors: four nibbles select four bytes at once, so that a look-up is two
 * PRMT (of values 0..7 and of 8..15) and a third that selects between their results.
 *
 * Exactness: values are integers of 8 bits, which fp16 represents; products with fp16 activations are summed in f32,
 * 32 k at a time, and then scaled. IQ4_XS's scale times value (up to 4064) is not always exact in fp16, so scales are
 * applied after that sum; in wgmma's path weights are rounded to fp16 anyway.
 */
#ifndef HEARTH_CUDA_CODEBOOK4_CUH
#define HEARTH_CUDA_CODEBOOK4_CUH

#include "kernels/cuda/gemm/tile16_int.cuh"
#include "kernels/cuda/quant/slice.cuh"
#include "kernels/quant/codebook.h"

/* The plain PRMT instruction; __byte_perm() would mask the selectors' fourth bits at an extra cost. */
__device__ static inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t select)
{
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(select));
    return r;
}

/*
 * S is the part that differs by type:
 *   VALUES(i)                    the i-th value
 *   FOUR_BITS                    the values are below 16, else below 128
 *   ROW                          bytes of a row's scales in a fragment
 *   nibbles(row, j), scale(row, j)   of the j-th 32 weights of a row in the file: their 16 bytes; their scale
 *   pack_scales(slice, tile, r, w)   the w-th word of a fragment's scales
 *   of(scales, row, j)           in a fragment: the scale of the j-th 32 weights of a row
 *   load(scales, lane), mine(h, p)   the lane's own four scales: of row g or g + 8 (h), block 4p + t
 */
template <class S> struct quant_codebook4 : quant_own {
    static constexpr uint32_t FRAGS = 1, FRAG_BYTES = 2048 + 16 * S::ROW;
    static constexpr bool INT8 = true, WGMMA = true;
    static constexpr int WG_ORDER = 1;

    /* Values 4i .. 4i + 3 as bytes, each with `more` added. */
    __host__ __device__ static constexpr uint32_t four(int i, int more)
    {
        return (uint32_t)(uint8_t)(S::VALUES(4 * i) + more) | (uint32_t)(uint8_t)(S::VALUES(4 * i + 1) + more) << 8 |
               (uint32_t)(uint8_t)(S::VALUES(4 * i + 2) + more) << 16 |
               (uint32_t)(uint8_t)(S::VALUES(4 * i + 3) + more) << 24;
    }

    /* The values of a word's nibbles as bytes, with MORE added: those of the lower half in v[0], of the upper in v[1].
     */
    template <int MORE> __device__ static inline void look_up(uint32_t w, uint32_t *v)
    {
        constexpr uint32_t A = four(0, MORE), B = four(1, MORE), C = four(2, MORE), D = four(3, MORE);
        uint32_t upper = w ^ 0x88888888u, pick = lop_or(w >> 1, 0x44444444u, 0x32103210u);
        v[0] = prmt(prmt(A, B, w), prmt(C, D, upper), pick);
        v[1] = prmt(prmt(A, B, w >> 16), prmt(C, D, upper >> 16), pick >> 16);
    }

    /* A nibble as stored in fragments: -0 is stored as 0. */
    __device__ static inline uint32_t code(uint32_t q)
    {
        return q == 8 && !S::VALUES(8) ? 0 : q;
    }

    /* One value, by its index. */
    __device__ static inline float value(uint32_t q)
    {
        uint32_t v[2];
        look_up<128>(q, v);
        return (float)((int)(v[0] & 255) - 128);
    }

    __device__ static inline float at(const uint8_t *row, uint32_t k)
    {
        uint32_t c = S::nibbles(row, k / 32)[k % 16];
        return S::scale(row, k / 32) * value(k % 32 < 16 ? c & 15 : c >> 4);
    }

    __device__ static inline uint32_t pack(const slice &s, uint32_t tile, uint32_t r, uint32_t, uint32_t w)
    {
        if (w >= 512)
            return S::pack_scales(s, tile, r, w - 512);
        uint32_t plane = w >> 7, lane = w >> 2 & 31, block = 8 * r + 4 * (plane & 1) + (w & 3), v = 0;
        const uint8_t *b = block < s.n_in / 32 ? s.row(tile, plane >> 1, lane >> 2) : NULL;
        for (uint32_t m = 0; b && m < 4; m++) {
            uint32_t c = S::nibbles(b, block)[4 * (lane & 3) + m];
            v |= code(c & 15) << 4 * m | code(c >> 4) << (16 + 4 * m);
        }
        return v;
    }

    __device__ static inline void unpack(const uint8_t *u, uint32_t h, uint32_t g, uint32_t k, float out[8])
    {
        uint32_t j = k >> 5;
        float d = S::of(u + 2048, 8 * h + g, j);
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t lane = g << 2 | ((k >> 2 & 3) + (i >> 2));
            uint32_t w = ((const uint32_t *)(u + (2 * h + (j >> 2)) * 512 + lane * 16))[j & 3];
            out[i] = d * value(w >> (4 * (i & 3) + (k & 16)) & 15);
        }
    }

    template <int NT>
    __device__ static inline void mul(const uint8_t *r, int, const xfrag &v, int lane, float (&acc)[NT][4])
    {
        constexpr uint32_t M = 0x64646464u, B = 0x64806480u; /* 1024 + 128 */
        int g = lane >> 2, t = lane & 3;
#pragma unroll(unroll <NT>::value)
        for (int p = 0; p < 2; p++) {
            uint32_t a[4], b[4];
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
#pragma unroll
            for (int u = 0; u < 4; u++) {
                int s = 2 * (4 * p + u);
                uint32_t x[2], y[2], A[8];
                look_up<128>(a[u], x), look_up<128>(b[u], y);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    A[4 * i] = h2sub(prmt(x[i], M, 0x4240), B), A[4 * i + 1] = h2sub(prmt(y[i], M, 0x4240), B);
                    A[4 * i + 2] = h2sub(prmt(x[i], M, 0x4341), B), A[4 * i + 3] = h2sub(prmt(y[i], M, 0x4341), B);
                }
                float dg = S::of(r + 2048, g, 4 * p + u), dh = S::of(r + 2048, g + 8, 4 * p + u);
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    float q[4] = {0, 0, 0, 0};
                    uint2 x0 = v.four(n, s, t), x1 = v.four(n, s + 1, t);
                    mma16816(q, A[0], A[1], A[2], A[3], x0.x, x0.y);
                    mma16816(q, A[4], A[5], A[6], A[7], x1.x, x1.y);
                    add_scaled(acc[n], q, dg, dh);
                }
            }
        }
    }

    /*
     * mul_int() does without the third PRMT. Where the fourth bit of a selector is set, PRMT yields 0 or -1, the sign
     * of the byte that the other bits select. So one product looks nibbles up in the table of values 0..7 and another
     * one, with the fourth bits inverted, in that of values 8..15; a nibble of the other table yields the table's sign,
     * which is the same for all of a table's values. The two add up to the value and a constant, which signed_four()
     * subtracts. FIRST and SECOND are what the first and the second table yield for a nibble of the other one.
     */
    static constexpr int FIRST = S::VALUES(0) < 0 ? -1 : 0, SECOND = S::VALUES(15) < 0 ? -1 : 0;
    static_assert(FIRST != SECOND, "one table is negative");
    /* Bytes 4i .. 4i + 3 of these two tables. Where value 8 is -0, its entry only supplies the sign: code() keeps it
     * out of fragments. */
    __host__ __device__ static constexpr uint32_t signed_four(int i)
    {
        uint32_t v = 0;
        for (int k = 4 * i; k < 4 * i + 4; k++) {
            int value = S::VALUES(k) - (k < 8 ? SECOND : FIRST);
            v |= (uint32_t)(uint8_t)(k == 8 && !value ? SECOND : value) << 8 * (k % 4);
        }
        return v;
    }

#if __CUDA_ARCH__ >= 800
    /* A block of 32 k takes two mma; lanes with g >> 1 == (its index) % 4 hold its activations. |C| < 2^27. */
    template <int M>
    __device__ static inline void mul_int(const uint8_t *r, int, const ix_frag &v, int lane, float (&acc)[M][2])
    {
        constexpr uint32_t A = signed_four(0), B = signed_four(1), C = signed_four(2), D = signed_four(3);
        int g = lane >> 2, t = lane & 3;
        ix_own own(g);
        S scales;
        scales.load(r + 2048, lane);
#pragma unroll
        for (int p = 0; p < 2; p++) { /* four blocks */
            int c[M][4];
            uint32_t x[M][2], a[4], b[4];
#pragma unroll
            for (int m = 0; m < M; m++) {
                const uint8_t *row = v.at + m * v.row_step + (g & 1) * IX_HI + 128 * p + 32 * (g >> 1) + 4 * t;
                x[m][0] = *(const uint32_t *)row, x[m][1] = *(const uint32_t *)(row + 16);
                c[m][0] = c[m][1] = c[m][2] = c[m][3] = 0;
            }
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t e = a[i], f = b[i], e2 = e ^ 0x88888888u, f2 = f ^ 0x88888888u;
                uint32_t first[4] = {prmt(A, B, e), prmt(A, B, f), prmt(A, B, e >> 16), prmt(A, B, f >> 16)},
                         second[4] = {prmt(C, D, e2), prmt(C, D, f2), prmt(C, D, e2 >> 16), prmt(C, D, f2 >> 16)};
#pragma unroll
                for (int m = 0; m < M; m++) {
                    uint32_t x0 = own.of(x[m][0], i), x1 = own.of(x[m][1], i);
                    imma32<1>(c[m], first[0], first[1], first[2], first[3], x0, x1);
                    imma32<1>(c[m], second[0], second[1], second[2], second[3], x0, x1);
                }
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float d = scales.mine(h, p);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    float scale = *(const float *)(v.at + m * v.row_step + IX_SCALE);
                    acc[m][h] = __fmaf_rn(__fmul_rn(d, scale), (float)ix_join(c[m], h), acc[m][h]);
                }
            }
        }
    }
#endif

    /* value / 128 (or / 16), which is exact, times 128 (or 16) times the scale, rounded to fp16. Scaled up like this,
     * the scale is not a subnormal, which by itself it might be. */
    struct wg : wg_whole {
        uint32_t a[4], b[4], dg[2], dh[2];

        __device__ void open(const uint8_t *, int)
        {
        }
        __device__ void plane(const uint8_t *r, int p, int lane)
        {
            constexpr float UP = S::FOUR_BITS ? 16.f : 128.f;
            int g = lane >> 2;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int j = 4 * p + 2 * i;
                dg[i] = h2of(UP * S::of(r + 2048, g, j), UP * S::of(r + 2048, g, j + 1));
                dh[i] = h2of(UP * S::of(r + 2048, g + 8, j), UP * S::of(r + 2048, g + 8, j + 1));
            }
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
        }
        __device__ void word(int u, uint32_t *A) const
        {
            constexpr uint32_t M = 0x64646464u, BY = S::FOUR_BITS ? 0x2C002C00u : 0x20002000u, /* 1/16, 1/128 */
                LESS = S::FOUR_BITS ? 0xD480D480u : 0xC880C880u;                               /* -1152 of them */
            uint32_t x[2], y[2], d = twice(dg[u / 2], u & 1), e = twice(dh[u / 2], u & 1);
            look_up<128>(a[u], x), look_up<128>(b[u], y);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                A[4 * i] = h2mul(h2fma(prmt(x[i], M, 0x4240), BY, LESS), d);
                A[4 * i + 1] = h2mul(h2fma(prmt(y[i], M, 0x4240), BY, LESS), e);
                A[4 * i + 2] = h2mul(h2fma(prmt(x[i], M, 0x4341), BY, LESS), d);
                A[4 * i + 3] = h2mul(h2fma(prmt(y[i], M, 0x4341), BY, LESS), e);
            }
        }
    };
};

#endif
