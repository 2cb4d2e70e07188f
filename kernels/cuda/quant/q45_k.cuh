/* clang-format off */
/*
 * q45_k.cuh - what Q4_K and Q5_K have in common on the GPU: 256 weights of 4 bits (and a fifth, where FIVE); each 32
 * share a scale and a min of six bits.
 *
 * The fragment, offsets in bytes (tile16.cuh says what a plane and a half are):
 *   0     planes [h][p]: file bytes qs[32t + 16p ..], nibbles of sub-blocks 2t (low) and 2t + 1 (high), at place(lane)
 *   2048  FIVE only: fifth bits, u32 [h][p] per lane: for byte i of word u of the plane, bit u of byte i is that of the
 *         low nibble, bit 4 + u that of the high one
 *   S     (2560 where FIVE, else 2048) u32 per lane: sc(2t), sc(2t+1) of g, the same of g + 8, m(2t) of g, the low 2
 *         bits of m(2t+1) of g + 8
 *   + 128 u16 per lane: m(2t+1) of g, m(2t) of g + 8, the high 4 bits of m(2t+1) of g + 8
 *   + 192 (d, dmin) per row
 *
 * Exactness: sc * q <= 63 * 31 = 1953 is exact in fp16, and a sub-block's integer sum stays below 2^24.
 */
/* clang-format on */
#ifndef HEARTH_CUDA_Q45_K_CUH
#define HEARTH_CUDA_Q45_K_CUH

#include "kernels/cuda/gemm/tile16_int.cuh"
#include "kernels/cuda/quant/slice.cuh"
#include "kernels/quant/k_scales.h"

/* Scale and min of sub-block j from the 12 bytes of a block. */
__device__ static inline void k_scale_min(const uint8_t *s, uint32_t j, uint32_t *sc, uint32_t *m)
{
    uint8_t scale, min;
    quant_scale_min(s, (int)j, &scale, &min);
    *sc = scale, *m = min;
}

template <int FIVE> struct quant_q45_k : quant_own {
    static constexpr uint32_t FRAGS = 1, FRAG_BYTES = FIVE ? 2816 : 2304;
    static constexpr bool INT8 = true, WGMMA = true;
    static constexpr int WG_ORDER = 0;
    static constexpr bool WG_ROW_SCALES = true, WG_QUICK = true;

    /* Where a plane has a lane's sixteen bytes. Quarters change places by row, so that there are no bank conflicts
     * either where each lane reads its own or where eight rows' bytes of one quarter are read together. */
    __device__ static inline uint32_t place(uint32_t lane)
    {
        return lane ^ lane >> 3;
    }
    /* Reads four of the sixteen bytes of each of a row's quarters, of all planes [h][p], so that the k of a step are of
     * one sub-block: those of rows g and g + 8, bytes 4t and on. */
    __device__ static inline void quarters(const uint8_t *r, uint32_t lane, uint32_t (&q)[4][4])
    {
        uint32_t at = smem_of(r) + 16 * place(4 * (lane & 7) + (lane >> 3));
#pragma unroll
        for (int i = 0; i < 4; i++)
            ldm4(q[i], at + 512 * i);
    }

    __device__ static inline float at(const uint8_t *row, uint32_t k)
    {
        const uint8_t *b = row + k / 256 * (FIVE ? 176 : 144), *qs = b + (FIVE ? 48 : 16);
        uint32_t j = k / 32 % 8, i = k % 32, sc, m, q = qs[j / 2 * 32 + i] >> (j & 1) * 4 & 15;
        if (FIVE)
            q |= (b[16 + i] >> j & 1) << 4;
        k_scale_min(b + 4, j, &sc, &m);
        return dq_half(b) * sc * q - dq_half(b + 2) * m;
    }

    __device__ static inline uint32_t pack(const slice &s, uint32_t tile, uint32_t r, uint32_t, uint32_t w)
    {
        uint32_t plane = w >> 7, h = plane >> 1, p = plane & 1, j = w & 3, v = 0;
        uint32_t lane = w < 512 ? place(w >> 2 & 31) : w >> 2 & 31, g = lane >> 2, t = lane & 3;
        uint32_t bytes = FIVE ? 176 : 144, at = r * bytes, S = FIVE ? 640 : 512;
        if (w < 512) {
            const uint8_t *b = s.row(tile, h, g);
            return b ? *(const uint32_t *)(b + at + (FIVE ? 48 : 16) + 32 * t + 16 * p + 4 * j) : 0;
        }
        if (w < S) { /* fifth bits: word j = 2h + p of a lane */
            h = j >> 1, p = j & 1;
            const uint8_t *b = s.row(tile, h, g);
            for (uint32_t i = 0; b && i < 16; i++) { /* to bits i / 4 and i / 4 + 4 of byte i % 4 */
                uint32_t bits = b[at + 16 + 16 * p + i] >> 2 * t & 3, pos = 8 * (i & 3) + (i >> 2);
                v |= (bits & 1) << pos | bits >> 1 << (pos + 4); /* of sub-blocks 2t, 2t + 1 */
            }
            return v;
        }
        w -= S;
        if (w < 32) {
            uint32_t sc0, m0, sc1, m1;
            g = w >> 2, t = w & 3;
            const uint8_t *b = s.row(tile, 0, g), *c = s.row(tile, 1, g);
            if (b) {
                k_scale_min(b + at + 4, 2 * t, &sc0, &m0), k_scale_min(b + at + 4, 2 * t + 1, &sc1, &m1);
                v |= sc0 | sc1 << 6 | m0 << 24;
            }
            if (c) {
                k_scale_min(c + at + 4, 2 * t, &sc0, &m0), k_scale_min(c + at + 4, 2 * t + 1, &sc1, &m1);
                v |= sc0 << 12 | sc1 << 18 | m1 << 30;
            }
            return v;
        }
        w -= 32;
        if (w < 16) {
            for (uint32_t i = 0; i < 2; i++) {
                uint32_t l = 2 * w + i, sc, m0, m1, e = 0;
                const uint8_t *b = s.row(tile, 0, l >> 2), *c = s.row(tile, 1, l >> 2);
                if (b) {
                    k_scale_min(b + at + 4, 2 * (l & 3) + 1, &sc, &m1);
                    e |= m1;
                }
                if (c) {
                    k_scale_min(c + at + 4, 2 * (l & 3), &sc, &m0), k_scale_min(c + at + 4, 2 * (l & 3) + 1, &sc, &m1);
                    e |= m0 << 6 | m1 >> 2 << 12;
                }
                v |= e << 16 * i;
            }
            return v;
        }
        w -= 16;
        const uint8_t *b = s.row(tile, w >> 3, w & 7);
        return b ? *(const uint32_t *)(b + at) : 0;
    }

    __device__ static inline void unpack(const uint8_t *u, uint32_t h, uint32_t g, uint32_t k, float out[8])
    {
        constexpr uint32_t S = FIVE ? 2560 : 2048;
        uint32_t row = 8 * h + g, t = k >> 6, lane = g << 2 | t, up = k >> 5 & 1, p = k >> 4 & 1, j = k >> 2 & 3;
        const uint32_t *w = (const uint32_t *)(u + (2 * h + p) * 512 + place(lane) * 16) + j;
        uint32_t a = ((const uint32_t *)(u + S))[lane], e = ((const uint16_t *)(u + S + 128))[lane];
        uint32_t sc = a >> (12 * h + 6 * up) & 63,
                 m = h ? (up ? a >> 30 | (e >> 12) << 2 : e >> 6 & 63) : (up ? e & 63 : a >> 24 & 63);
        float2 d = __half22float2(((const __half2 *)(u + S + 192))[row]);
        uint32_t five = FIVE ? ((const uint32_t *)(u + 2048 + lane * 16))[2 * h + p] : 0;
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t v = w[i >> 2] >> (8 * (i & 3) + 4 * up) & 15;
            v |= (five >> (8 * (i & 3) + j + (i >> 2) + 4 * up) & 1) << 4;
            out[i] = d.x * (float)sc * (float)v - d.y * (float)m;
        }
    }

    /* sc q from 1024 + q in one exact fma; the high nibble, which is not shifted, from 1024 + 16q. */
    template <int NT>
    __device__ static inline void mul(const uint8_t *r, int, const xfrag &v, int lane, float (&acc)[NT][4])
    {
        constexpr uint32_t S = FIVE ? 2560 : 2048, M = 0x64006400u;
        int g = lane >> 2, t = lane & 3;
        uint32_t s = ((const uint32_t *)(r + S))[lane], e = ((const uint16_t *)(r + S + 128))[lane];
        uint32_t g0 = six(s), g1 = six(s >> 6), h0 = six(s >> 12), h1 = six(s >> 18);
        uint32_t ng0 = h2mul(g0, 0xE400E400u), nh0 = h2mul(h0, 0xE400E400u); /* -1024 sc */
        uint32_t ng1 = h2mul(g1, 0xD400D400u), nh1 = h2mul(h1, 0xD400D400u); /* -64 sc */
        g1 = h2mul(g1, 0x2C002C00u), h1 = h2mul(h1, 0x2C002C00u);            /* sc / 16 */
        uint32_t mg = h2sub((s >> 24 & 63) | (e & 63) << 16 | M, M);
        uint32_t mh = h2sub((e >> 6 & 63) | (s >> 30 | (e >> 12) << 2) << 16 | M, M);
        float q[NT][4]; /* one chain of sums: registers for another would cost skinny a resident block */
        zero(q);
#pragma unroll(unroll <NT>::value)
        for (int p = 0; p < 2; p++) {
            uint32_t a[4], b[4], fg = 0, fh = 0;
            if (FIVE)
                fg = ((const uint32_t *)(r + 2048 + lane * 16))[p],
                fh = ((const uint32_t *)(r + 2048 + lane * 16))[2 + p];
            four_of(a, ((const uint4 *)r)[p * 32 + place(lane)]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + place(lane)]);
#pragma unroll
            for (int u2 = 0; u2 < 2;
                 u2++) { /* two words: the A fragments of four mma, then those mma for all columns */
                uint32_t A[2][8];
#pragma unroll
                for (int w = 0; w < 2; w++) {
                    int u = 2 * u2 + w;
                    uint32_t a8 = a[u] >> 8, b8 = b[u] >> 8;
                    uint32_t al = lop_or(a[u], 0x000f000f, M), bl = lop_or(b[u], 0x000f000f, M),
                             cl = lop_or(a8, 0x000f000f, M), dl = lop_or(b8, 0x000f000f, M),
                             ah = lop_or(a[u], 0x00f000f0, M), bh = lop_or(b[u], 0x00f000f0, M),
                             ch = lop_or(a8, 0x00f000f0, M), dh = lop_or(b8, 0x00f000f0, M);
                    if (FIVE) { /* bit u of a byte to 4 for the low nibble, u + 4 to 8 for the high one */
                        uint32_t f0 = fg << (4 - u), f1 = fg >> (4 + u), f2 = fh << (4 - u), f3 = fh >> (4 + u);
                        al = lop_or(f0, 0x00100010, al), ah = lop_or(f0, 0x01000100, ah),
                        cl = lop_or(f1, 0x00100010, cl), ch = lop_or(f1, 0x01000100, ch);
                        bl = lop_or(f2, 0x00100010, bl), bh = lop_or(f2, 0x01000100, bh),
                        dl = lop_or(f3, 0x00100010, dl), dh = lop_or(f3, 0x01000100, dh);
                    }
                    A[w][0] = h2fma(al, g0, ng0), A[w][1] = h2fma(bl, h0, nh0), A[w][2] = h2fma(cl, g0, ng0),
                    A[w][3] = h2fma(dl, h0, nh0);
                    A[w][4] = h2fma(ah, g1, ng1), A[w][5] = h2fma(bh, h1, nh1), A[w][6] = h2fma(ch, g1, ng1),
                    A[w][7] = h2fma(dh, h1, nh1);
                }
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    uint4 lo = v.eight(n, t * XFRAG_GROUP + 16 * p + 8 * u2),
                          hi = v.eight(n, t * XFRAG_GROUP + 32 + 16 * p + 8 * u2);
                    mma16816(q[n], A[0][0], A[0][1], A[0][2], A[0][3], lo.x, lo.y);
                    mma16816(q[n], A[0][4], A[0][5], A[0][6], A[0][7], hi.x, hi.y);
                    mma16816(q[n], A[1][0], A[1][1], A[1][2], A[1][3], lo.z, lo.w);
                    mma16816(q[n], A[1][4], A[1][5], A[1][6], A[1][7], hi.z, hi.w);
                }
            }
        }
        float2 dg = __half22float2(((const __half2 *)(r + S + 192))[g]),
               dh = __half22float2(((const __half2 *)(r + S + 192))[g + 8]);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint32_t *sum = (const uint32_t *)(v.sum + n * v.sum_step);
            float m[4] = {0, 0, 0, 0};
            mma16816(m, mg, mh, mg, mh, sum[t], sum[4 + t]);
            add_scaled(acc[n], q[n], dg.x, dh.x);
            add_scaled(acc[n], m, -dg.y, -dh.y);
        }
    }

    /* C| <= 32 * 15 * 32639 < 2^24: two of them times 6-bit scales still fit an int. Q5_K's are twice as large, and are
     * scaled in floats. */
#if __CUDA_ARCH__ >= 800
    template <int M>
    __device__ static inline void mul_int(const uint8_t *r, int, const ix_frag &v, int lane, float (&acc)[M][2])
    {
        constexpr uint32_t S = FIVE ? 2560 : 2048;
        int g = lane >> 2, t = lane & 3, lo[M][4], hi[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                lo[m][i] = hi[m][i] = 0;
#pragma unroll
        for (int p = 0; p < 2; p++) {
            uint32_t a[4], b[4], al[4], bl[4], ah[4], bh[4];
            four_of(a, ((const uint4 *)r)[p * 32 + place(lane)]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + place(lane)]);
#pragma unroll
            for (int u = 0; u < 4; u++) {
                al[u] = a[u] & 0x0f0f0f0fu, bl[u] = b[u] & 0x0f0f0f0fu;
                ah[u] = a[u] & 0xf0f0f0f0u, bh[u] = b[u] & 0xf0f0f0f0u; /* 16 q */
            }
            if (FIVE) {
                uint32_t fg = ((const uint32_t *)(r + 2048 + lane * 16))[p],
                         fh = ((const uint32_t *)(r + 2048 + lane * 16))[2 + p];
#pragma unroll
                for (int u = 0; u < 4; u++) {
                    al[u] = lop_or(fg << (4 - u), 0x10101010u, al[u]),
                    bl[u] = lop_or(fh << (4 - u), 0x10101010u, bl[u]);
                    ah[u] = lop_or(fg >> u, 0x10101010u, ah[u] >> 4), bh[u] = lop_or(fh >> u, 0x10101010u, bh[u] >> 4);
                }
            }
#pragma unroll
            for (int m = 0; m < M; m++) {
                const uint8_t *x = v.own + m * v.own_step;
                uint32_t x0[4], x1[4];
                four_of(x0, *(const uint4 *)(x + 16 * p)), four_of(x1, *(const uint4 *)(x + 32 + 16 * p));
                imma32<0>(lo[m], al[0], bl[0], al[1], bl[1], x0[0], x0[1]);
                imma32<0>(hi[m], ah[0], bh[0], ah[1], bh[1], x1[0], x1[1]);
                imma32<0>(lo[m], al[2], bl[2], al[3], bl[3], x0[2], x0[3]);
                imma32<0>(hi[m], ah[2], bh[2], ah[3], bh[3], x1[2], x1[3]);
            }
        }
        uint32_t s = ((const uint32_t *)(r + S))[lane], e = ((const uint16_t *)(r + S + 128))[lane];
        int sc[2][2] = {{(int)(s & 63), (int)(s >> 6 & 63)}, {(int)(s >> 12 & 63), (int)(s >> 18 & 63)}},
            mn[2][2] = {{(int)(s >> 24 & 63), (int)(e & 63)}, {(int)(e >> 6 & 63), (int)(s >> 30 | (e >> 12) << 2)}};
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float2 d = __half22float2(((const __half2 *)(r + S + 192))[g + 8 * h]);
#pragma unroll
            for (int m = 0; m < M; m++) {
                int2 sum = *(const int2 *)(v.at + m * v.row_step + IX_S32 + 8 * t);
                float scale = *(const float *)(v.at + m * v.row_step + IX_SCALE), q;
                int i0 = ix_join(lo[m], h), i1 = ix_join(hi[m], h);
                if (FIVE)
                    q = __fmaf_rn((float)sc[h][1], (float)i1, __fmul_rn((float)sc[h][0], (float)i0));
                else
                    q = (float)(sc[h][0] * i0 + sc[h][1] * (i1 >> 4));
                float min = (float)(mn[h][0] * sum.x + mn[h][1] * sum.y);
                acc[m][h] = __fmaf_rn(scale, __fmaf_rn(d.x, q, -__fmul_rn(d.y, min)), acc[m][h]);
            }
        }
    }
#endif

    /* A lane's nibbles and fifth bits of a plane. */
    struct wg_bits : wg_whole {
        uint32_t a[4], b[4], fg, fh;

        __device__ void plane(const uint8_t *r, int p, int lane)
        {
            four_of(a, ((const uint4 *)r)[p * 32 + place(lane)]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + place(lane)]);
            if (FIVE)
                fg = ((const uint32_t *)(r + 2048 + lane * 16))[p],
                fh = ((const uint32_t *)(r + 2048 + lane * 16))[2 + p];
        }
        /* Integers of word u as halves, MAGIC or-ed into each: q in Q[0] to Q[3], 16 q in the others; of row g in even
         * ones, of row g + 8 in odd ones. */
        template <uint32_t MAGIC> __device__ void integers(int u, uint32_t *Q) const
        {
            constexpr uint32_t L = 0x000f000f, H = 0x00f000f0;
            const uint32_t w[4] = {a[u], b[u], a[u] >> 8, b[u] >> 8};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                Q[i] = lop_or(w[i], L, MAGIC), Q[4 + i] = lop_or(w[i], H, MAGIC);
                if (FIVE) { /* bit u of a byte to 4 for the low nibble, u + 4 to 8 for the high one */
                    uint32_t five = i & 1 ? fh : fg, f = i < 2 ? five << (4 - u) : five >> (4 + u);
                    Q[i] = lop_or(f, 0x00100010, Q[i]), Q[4 + i] = lop_or(f, 0x01000100, Q[4 + i]);
                }
            }
        }
    };

    /*
     * (1024 + q) sc + k, where k is -1032 sc (Q5_K: -1039 sc) rounded to fp16: the sum is a small integer and exact.
     * Then times d, plus c = d z - dmin m with z = -k - 1024 sc, which corrects for k: one rounding, and that of c,
     * which is small.
     */
    struct wg : wg_bits {
        uint32_t g0, g1, h0, h1, kg0, kg1, kh0, kh1, dg, dh, cg0, cg1, ch0, ch1;

        __device__ void open(const uint8_t *r, int lane)
        {
            constexpr uint32_t S = FIVE ? 2560 : 2048, M = 0x64006400u;
            int g = lane >> 2;
            uint32_t s = ((const uint32_t *)(r + S))[lane], e = ((const uint16_t *)(r + S + 128))[lane];
            uint32_t d2 = ((const uint32_t *)(r + S + 192))[g], e2 = ((const uint32_t *)(r + S + 192))[g + 8];
            uint32_t mg = h2sub((s >> 24 & 63) | (e & 63) << 16 | M, M);
            uint32_t mh = h2sub((e >> 6 & 63) | (s >> 30 | (e >> 12) << 2) << 16 | M, M);
            g0 = six(s), g1 = six(s >> 6), h0 = six(s >> 12), h1 = six(s >> 18);
            constexpr uint32_t LO = FIVE ? 0xE40FE40Fu : 0xE408E408u, HI = FIVE ? 0xD500D500u : 0xD480D480u,
                               Z = FIVE ? 0xCC00CC00u : 0xC800C800u;
            kg0 = h2mul(g0, LO), kh0 = h2mul(h0, LO);
            kg1 = h2mul(g1, HI), kh1 = h2mul(h1, HI); /* 1024 + 16 q is multiplied by sc / 16: -64 sc - 8 sc, exact */
            uint32_t zg0 = h2fma(g0, 0x64006400u, kg0), zh0 = h2fma(h0, 0x64006400u, kh0); /* -z */
            uint32_t zg1 = h2mul(g1, Z), zh1 = h2mul(h1, Z);
            g1 = h2mul(g1, 0x2C002C00u), h1 = h2mul(h1, 0x2C002C00u);
            dg = twice(d2, 0), dh = twice(e2, 0);
            float fd = low(d2), fm = low(d2 >> 16), gd = low(e2), gm = low(e2 >> 16);
            cg0 = both(-fmaf(fd, low(zg0), fm * low(mg))), cg1 = both(-fmaf(fd, low(zg1), fm * low(mg >> 16)));
            ch0 = both(-fmaf(gd, low(zh0), gm * low(mh))), ch1 = both(-fmaf(gd, low(zh1), gm * low(mh >> 16)));
        }
        __device__ void word(int u, uint32_t *A) const
        {
            this->template integers<0x64006400u>(u, A);
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                A[i] = h2fma(h2fma(A[i], g0, kg0), dg, cg0), A[i + 1] = h2fma(h2fma(A[i + 1], h0, kh0), dh, ch0);
                A[i + 4] = h2fma(h2fma(A[i + 4], g1, kg1), dg, cg1);
                A[i + 5] = h2fma(h2fma(A[i + 5], h1, kh1), dh, ch1);
            }
        }
    };

    /* 63 d and dmin, both times 2^24 and divided by the scale, must be in the range of fp16. */
    __device__ static inline float wg_row_scale_min(const uint8_t *r, uint32_t row)
    {
        float2 d = __half22float2(((const __half2 *)(r + (FIVE ? 2560 : 2048) + 192))[row]);
        return fmaxf(63 * fabsf(d.x), fabsf(d.y)) * (TWO24 / F16_MAX);
    }

    /*
     * d sc q - dmin m, divided by the row's scale (tile16.cuh), by one fma: q in the low bits of a half, or 16 q, is
     * the subnormal number q 2^-24. Its factor d sc is rounded to fp16, and so is the addend, to which what that
     * rounding takes from the middle of the range of q is added.
     */
    struct wg_quick : wg_bits {
        static constexpr bool ROW_SCALES = true;
        uint32_t sg, sh, cg, ch; /* factors and addends: of low nibbles, and of high ones */

        __device__ void open(const uint8_t *r, int lane, const t16_row_scales &rows)
        {
            constexpr uint32_t S = FIVE ? 2560 : 2048;
            int g = lane >> 2;
            uint32_t s = ((const uint32_t *)(r + S))[lane], e = ((const uint16_t *)(r + S + 128))[lane];
            uint32_t dg = rows.of_g(((const uint32_t *)(r + S + 192))[g]),
                     dh = rows.of_h(((const uint32_t *)(r + S + 192))[g + 8]); /* d and dmin, times 2^24 */
            /* scales: sc(2t), sc(2t+1) at bits 0 and 6; mins: m(2t), m(2t+1) at bits 0 and 16 */
            auto row = [](uint32_t d, uint32_t scales, uint32_t mins, uint32_t &by, uint32_t &add) {
                constexpr uint32_t M = 0x54006400, N = 0x4C004C00, MIDDLE = FIVE ? 0x01000010 : 0x00800008;
                uint32_t sc = h2sub(lop_or(scales, 0x3f, lop_or(scales << 10, 0x3f0000, M)), M), /* sc, sc / 16 */
                    m = h2sub(lop_or(mins, 0x3f003f, N), N);                                     /* m / 64 */
                by = h2mul(sc, twice(d, 0));
                add = h2fma(m, twice(h2mul(d, 0x80408040u) /* -2^-18 */, 1), h2mul(h2fms(sc, twice(d, 0), by), MIDDLE));
            };
            row(dg, s, __byte_perm(s, e, 0x0403), sg, cg);
            row(dh, s >> 12, lop_or(s >> 14, 0x30000, lop_or(e << 6, 0x3c0000, e >> 6 & 63)), sh, ch);
        }
        __device__ void word(int u, uint32_t *A) const
        {
            this->template integers<0>(u, A);
#pragma unroll
            for (int i = 0; i < 8; i++)
                A[i] = h2fma(A[i], twice(i & 1 ? sh : sg, i / 4), twice(i & 1 ? ch : cg, i / 4));
        }
    };
};

#endif
