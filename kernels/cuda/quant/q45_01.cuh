/*
 * q45_01.cuh - what Q4_1, Q5_0 and Q5_1 have in common on the GPU: 32 weights of 4 bits (and a fifth, where FIVE) share
 * a scale and, where MIN, a min.
 *
 * The fragment, offsets in bytes (tile16.cuh says what a plane and a half are):
 *   0     planes [h][p] of nibbles: word 4p + i holds k 16s + 4t + 0..3 for s = 2(4p+i) (low nibble of each byte) and
 *         s + 1 (high)
 *   2048  FIVE only: fifth bits, u32 [h][p] per lane: for byte m of word i, bit i of byte m is that of the low nibble,
 *         bit 4 + i that of the high one
 *   D     d [16 rows][8], then, MIN only, m [16 rows][8]
 *
 * Exactness: q (or q - 16) is an integer that fp16 represents, a min is fp16. Products with fp16 activations are summed
 * in f32, 32 k at a time, and so are mins times the activations' sums.
 */
#ifndef HEARTH_CUDA_Q45_01_CUH
#define HEARTH_CUDA_Q45_01_CUH

#include "kernels/cuda/gemm/tile16_int.cuh"
#include "kernels/cuda/quant/slice.cuh"

template <int FIVE, int MIN> struct quant_q45_01 : quant_own {
    static_assert(FIVE || MIN, "Q4_0 is a file of its own: its product is Q8_0's");
    static constexpr uint32_t BLOCK_QH = MIN ? 4 : 2, BLOCK_QS = BLOCK_QH + (FIVE ? 4 : 0), BLOCK = BLOCK_QS + 16;
    static constexpr uint32_t D = FIVE ? 2560 : 2048, FRAGS = 1, FRAG_BYTES = D + (MIN ? 512 : 256);
    static constexpr uint32_t MINS = D + 256;
    static constexpr int ZERO = MIN ? 0 : 16; /* zero point: subtracted from q */
    static constexpr bool INT8 = true, WGMMA = true;
    static constexpr int WG_ORDER = 1;

    /* The 32 fifth bits of a block. */
    __device__ static inline uint32_t fifths(const uint8_t *block)
    {
        return FIVE ? u16_at(block + BLOCK_QH) | u16_at(block + BLOCK_QH + 2) << 16 : 0;
    }

    __device__ static inline float at(const uint8_t *row, uint32_t k)
    {
        const uint8_t *b = row + k / 32 * BLOCK, *qs = b + BLOCK_QS;
        uint32_t i = k % 32, q = (i < 16 ? qs[i] & 15 : qs[i - 16] >> 4) | (fifths(b) >> i & 1) << 4;
        return dq_half(b) * ((int)q - ZERO) + (MIN ? dq_half(b + 2) : 0.f);
    }

    __device__ static inline uint32_t pack(const slice &s, uint32_t tile, uint32_t r, uint32_t, uint32_t w)
    {
        uint32_t v = 0;
        if (w < 512) {
            uint32_t plane = w >> 7, lane = w >> 2 & 31, k = 256 * r + 32 * (4 * (plane & 1) + (w & 3));
            const uint8_t *b = k < s.n_in ? s.row(tile, plane >> 1, lane >> 2) : NULL;
            for (uint32_t m = 0; b && m < 4; m++) /* the byte holds elements 4t + m and 4t + m + 16 */
                v |= (uint32_t)b[k / 32 * BLOCK + BLOCK_QS + 4 * (lane & 3) + m] << 8 * m;
            return v;
        }
        w -= 512;
        if (FIVE && w < 128) {
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
        w -= FIVE ? 128 : 0;
        const uint8_t *b = s.row(tile, w >> 5 & 1, w >> 2 & 7);
        return two_d(b && w >= 64 ? b + 2 : b, 8 * r + 2 * (w & 3), BLOCK, s.n_in / 32);
    }

    __device__ static inline void unpack(const uint8_t *u, uint32_t h, uint32_t g, uint32_t k, float out[8])
    {
        uint32_t s = k >> 4, w = s >> 1, p = w >> 2, at = (8 * h + g) * 8 + w;
        float d = __half2float(((const __half *)(u + D))[at]),
              min = MIN ? __half2float(((const __half *)(u + MINS))[at]) : 0.f;
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t lane = g << 2 | ((k >> 2 & 3) + (i >> 2)), byte = 8 * (i & 3);
            uint32_t q = ((const uint32_t *)(u + (2 * h + p) * 512 + lane * 16))[w & 3] >> (byte + 4 * (s & 1)) & 15;
            if (FIVE)
                q |= (((const uint32_t *)(u + 2048 + lane * 16))[2 * h + p] >> (byte + (w & 3) + 4 * (s & 1)) & 1) << 4;
            out[i] = d * (float)((int)q - ZERO) + min;
        }
    }

    /* A lane's words of half p of a k-block. */
    struct lane_words {
        uint32_t a[4], b[4], dg[2], dh[2], fg, fh;

        __device__ void load(const uint8_t *r, int p, int lane)
        {
            int g = lane >> 2;
            two_of(dg, ((const uint2 *)(r + D + g * 16))[p]), two_of(dh, ((const uint2 *)(r + D + 128 + g * 16))[p]);
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
            if (FIVE) {
                const uint32_t *five = (const uint32_t *)(r + 2048 + lane * 16);
                fg = five[p], fh = five[2 + p];
            }
        }

        /* The A fragments of word u, as q - ZERO: rows g and g + 8 alternate; first the k16 step of the low nibbles,
         * then that of the high ones. */
        __device__ void fragments(int u, uint32_t *A) const
        {
            constexpr uint32_t M = 0x64006400u, BY = 0x2C002C00u; /* 1024, 1/16 */
            constexpr uint32_t LO = ZERO ? 0x64106410u : M,       /* 1024 + ZERO */
                HI = ZERO ? 0xD500D500u : 0xD400D400u;            /* -64 - ZERO */
            uint32_t a8 = a[u] >> 8, b8 = b[u] >> 8;
            uint32_t lo[4] = {lop_or(a[u], 0x000f000f, M), lop_or(b[u], 0x000f000f, M), lop_or(a8, 0x000f000f, M),
                              lop_or(b8, 0x000f000f, M)},
                     hi[4] = {lop_or(a[u], 0x00f000f0, M), lop_or(b[u], 0x00f000f0, M), lop_or(a8, 0x00f000f0, M),
                              lop_or(b8, 0x00f000f0, M)};
            if (FIVE) {
                uint32_t f[4] = {fg << (4 - u), fh << (4 - u), fg >> (4 + u), fh >> (4 + u)};
#pragma unroll
                for (int i = 0; i < 4; i++)
                    lo[i] = lop_or(f[i], 0x00100010, lo[i]), hi[i] = lop_or(f[i], 0x01000100, hi[i]);
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
                A[i] = h2sub(lo[i], LO), A[4 + i] = h2fma(hi[i], BY, HI);
        }

        /* The i-th block's fragments as bytes, 8 or 16 times q (8 (q - 16) without a min): rows g and g + 8 of its
         * first 16 k, then of the others. */
        __device__ void int8_fragments(int i, uint32_t *A) const
        {
            constexpr uint32_t F = 0x80808080u, N = FIVE ? 0x78787878u : 0xf0f0f0f0u;
            if (FIVE) {
                A[0] = lop_or(fg << (7 - i), F, a[i] << 3 & N), A[1] = lop_or(fh << (7 - i), F, b[i] << 3 & N);
                A[2] = lop_or(fg << (3 - i), F, a[i] >> 1 & N), A[3] = lop_or(fh << (3 - i), F, b[i] >> 1 & N);
            } else
                A[0] = a[i] << 4 & N, A[1] = b[i] << 4 & N, A[2] = a[i] & N, A[3] = b[i] & N;
            if (!MIN)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    A[j] ^= F;
        }
    };

    template <int NT>
    __device__ static inline void mul(const uint8_t *r, int, const xfrag &v, int lane, float (&acc)[NT][4])
    {
        int g = lane >> 2, t = lane & 3;
#pragma unroll(unroll <NT>::value)
        for (int p = 0; p < 2; p++) {
            lane_words w;
            w.load(r, p, lane);
#pragma unroll
            for (int u = 0; u < 4; u++) {
                int s = 2 * (4 * p + u);
                uint32_t A[8];
                w.fragments(u, A);
                float2 dg = __half22float2(*(const __half2 *)&w.dg[u / 2]),
                       dh = __half22float2(*(const __half2 *)&w.dh[u / 2]);
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    float q[4] = {0, 0, 0, 0};
                    uint2 x0 = v.four(n, s, t), x1 = v.four(n, s + 1, t);
                    mma16816(q, A[0], A[1], A[2], A[3], x0.x, x0.y);
                    mma16816(q, A[4], A[5], A[6], A[7], x1.x, x1.y);
                    add_scaled(acc[n], q, u & 1 ? dg.y : dg.x, u & 1 ? dh.y : dh.x);
                }
            }
        }
        if (!MIN)
            return;
        uint32_t mg = ((const uint32_t *)(r + MINS))[g * 4 + t], mh = ((const uint32_t *)(r + MINS))[(g + 8) * 4 + t];
#pragma unroll
        for (int n = 0; n < NT; n++) { /* eight mins times eight sums, each sum as hi + lo */
            const uint32_t *sum = (const uint32_t *)(v.sum + n * v.sum_step);
            mma16816(acc[n], mg, mh, mg, mh, sum[t], sum[4 + t]);
        }
    }

#if __CUDA_ARCH__ >= 800
    /* A block of 32 k takes one mma; lanes with g >> 1 == (its index) % 4 hold its activations. |C| < 2^28. */
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
            lane_words w;
            w.load(r, p, lane);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t A[4];
                w.int8_fragments(i, A);
#pragma unroll
                for (int m = 0; m < M; m++)
                    imma32<!MIN>(c[m], A[0], A[1], A[2], A[3], g >> 1 == i ? x[m][0] : 0, g >> 1 == i ? x[m][1] : 0);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int at = (g + 8 * h) * 8 + 4 * p + t;
                float d = __half2float(((const __half *)(r + D))[at]) * (FIVE ? 0.125f : 0.0625f),
                      min = MIN ? __half2float(((const __half *)(r + MINS))[at]) : 0.f;
#pragma unroll
                for (int m = 0; m < M; m++) {
                    const uint8_t *row = v.at + m * v.row_step;
                    float scale = *(const float *)(row + IX_SCALE);
                    acc[m][h] = __fmaf_rn(__fmul_rn(d, scale), (float)ix_join(c[m], h), acc[m][h]);
                    if (MIN)
                        acc[m][h] = __fmaf_rn(__fmul_rn(min, scale), (float)((const int *)(row + IX_S32))[4 * p + t],
                                              acc[m][h]);
                }
            }
        }
    }
#endif

    struct wg : wg_whole {
        lane_words w;
        uint32_t mg[2], mh[2];

        __device__ void open(const uint8_t *, int)
        {
        }
        __device__ void plane(const uint8_t *r, int p, int lane)
        {
            int g = lane >> 2;
            w.load(r, p, lane);
            if (MIN)
                two_of(mg, ((const uint2 *)(r + MINS + g * 16))[p]),
                    two_of(mh, ((const uint2 *)(r + MINS + 128 + g * 16))[p]);
        }
        __device__ void word(int u, uint32_t *A) const
        {
            uint32_t d = twice(w.dg[u / 2], u & 1), e = twice(w.dh[u / 2], u & 1);
            uint32_t m = MIN ? twice(mg[u / 2], u & 1) : 0, n = MIN ? twice(mh[u / 2], u & 1) : 0;
            w.fragments(u, A);
#pragma unroll
            for (int i = 0; i < 8; i++)
                A[i] = MIN ? h2fma(A[i], i & 1 ? e : d, i & 1 ? n : m) : h2mul(A[i], i & 1 ? e : d);
        }
    };
};

#endif
