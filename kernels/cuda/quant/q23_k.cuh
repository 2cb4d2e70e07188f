/*
 * q23_k.cuh - what Q2_K and Q3_K have in common on the GPU: 256 weights of 2 bits; each 16 share a scale. Q2_K also has
 * a min, and both are of 4 bits; Q3_K (THREE) has a third bit per weight, and scales of 6 bits.
 *
 * The fragment, offsets in bytes (tile16.cuh says what a half is). A lane's j-th sub-block of 16 is t + 4j. Byte m of a
 * word holds bits of element 4t + m of several sub-blocks. Section n is sub-blocks 8n .. 8n + 7.
 *   0     Q2_K: planes [h]: in word j, sub-blocks 4j + i at bit 2i of each byte
 *         Q3_K: planes [h]: in words 2n and 2n + 1, sub-blocks 0, 1 and 2, 3 of section n at bits 0 and 3; at bit 6 the
 *         low two bits of sub-blocks 6 and 7
 *   1024  Q2_K: u32 [h] per lane: the scale and min of sub-block t + 4j in byte j
 *         Q3_K: u32 [h][n] per lane: sub-blocks 4, 5 at bits 0 and 3; at bits 6 and 7 the third bits of 6 and 7
 *   1280  Q2_K: (d, dmin) per row
 *   1536  Q3_K: u32 per lane: the scales of g's sub-blocks t + 4j at bit 6j, and the low 8 bits of those of g + 8
 *   1664  Q3_K: u16 per lane: the other 16 bits of those of g + 8
 *   1728  Q3_K: d [16 rows]
 * So most sub-blocks need only a mask to become bytes, which are 8 or 4^t times the weights; their sums are divided by
 * that factor.
 *
 * Exactness: sc * q (at most 128 in magnitude) and a min are integers that fp16 represents. A sub-block's sum of
 * integers, including that factor, stays below 2^24, and the sum of four of them times their scales below 2^31.
 */
#ifndef HEARTH_CUDA_Q23_K_CUH
#define HEARTH_CUDA_Q23_K_CUH

#include "kernels/cuda/gemm/tile16_int.cuh"
#include "kernels/cuda/quant/slice.cuh"

template <int THREE> struct quant_q23_k : quant_own {
    static constexpr uint32_t FRAGS = 1, FRAG_BYTES = THREE ? 1760 : 1344;
    static constexpr uint32_t BLOCK = THREE ? 110 : 84, BLOCK_QS = THREE ? 32 : 16, BLOCK_D = THREE ? 108 : 80;
    static constexpr bool INT8 = true, WGMMA = true;
    static constexpr int WG_ORDER = 1;

    /* --- the file's blocks ------------------------------------------------------------------------------------- */

    __device__ static inline uint32_t low_bits(const uint8_t *b, uint32_t k)
    {
        return b[BLOCK_QS + 32 * (k / 128) + k % 32] >> 2 * (k / 32 % 4) & 3;
    }
    __device__ static inline uint32_t third_bit(const uint8_t *b, uint32_t k)
    {
        return b[k % 32] >> k / 32 & 1;
    }
    __device__ static inline uint32_t weight_bits(const uint8_t *b, uint32_t k)
    {
        return low_bits(b, k) | third_bit(b, k) << 2;
    }
    /* The scale plus 32, six bits, of the j-th sub-block. */
    __device__ static inline uint32_t six_bits(const uint8_t *b, uint32_t j)
    {
        const uint8_t *s = b + 96;
        return (s[j % 8] >> 4 * (j / 8) & 15) | (s[8 + j % 4] >> 2 * (j / 4) & 3) << 4;
    }

    /* One weight; for Q3_K, the caller has subtracted 32 from sc and 4 from q. */
    __device__ static inline float weight(float d, float dmin, int sc, int min, int q)
    {
        return THREE ? d * (float)(sc * q) : d * (float)(sc * q) - dmin * (float)min;
    }

    __device__ static inline float at(const uint8_t *row, uint32_t k)
    {
        const uint8_t *b = row + k / 256 * BLOCK;
        k %= 256;
        if (THREE)
            return weight(dq_half(b + BLOCK_D), 0, (int)six_bits(b, k / 16) - 32, 0,
                          (int)(low_bits(b, k) | third_bit(b, k) << 2) - 4);
        return weight(dq_half(b + BLOCK_D), dq_half(b + BLOCK_D + 2), b[k / 16] & 15, b[k / 16] >> 4, low_bits(b, k));
    }

    /* --- packing ------------------------------------------------------------------------------------------------ */

    /* The scales of lane (g, t)'s four sub-blocks of row h, six bits each. */
    __device__ static inline uint32_t four_scales(const slice &s, uint32_t tile, uint32_t r, uint32_t h, uint32_t lane)
    {
        const uint8_t *b = s.row(tile, h, lane >> 2);
        uint32_t v = 0;
        for (uint32_t j = 0; b && j < 4; j++)
            v |= six_bits(b + r * BLOCK, 4 * j + (lane & 3)) << 6 * j;
        return v;
    }

    __device__ static inline uint32_t pack(const slice &s, uint32_t tile, uint32_t r, uint32_t, uint32_t w)
    {
        uint32_t v = 0;
        if (w < 256) {
            uint32_t lane = w >> 2 & 31, j = w & 3;
            const uint8_t *b = s.row(tile, w >> 7, lane >> 2);
            for (uint32_t m = 0; b && m < 4; m++) {
                const uint8_t *block = b + r * BLOCK;
                uint32_t k = 4 * (lane & 3) + m, first = 8 * (j / 2) + 2 * (j & 1), late = 8 * (j / 2) + 6 + (j & 1);
                if (THREE)
                    v |= (weight_bits(block, 16 * first + k) | weight_bits(block, 16 * first + 16 + k) << 3 |
                          low_bits(block, 16 * late + k) << 6)
                         << 8 * m;
                for (uint32_t i = 0; !THREE && i < 4; i++)
                    v |= low_bits(block, 16 * (4 * j + i) + k) << (8 * m + 2 * i);
            }
            return v;
        }
        w -= 256;
        if (!THREE) {
            const uint8_t *b = s.row(tile, w < 64 ? w >> 5 : w >> 3 & 1, w < 64 ? w >> 2 & 7 : w & 7);
            if (b && w < 64)
                for (uint32_t j = 0; j < 4; j++)
                    v |= (uint32_t)b[r * BLOCK + 4 * j + (w & 3)] << 8 * j;
            else if (b)
                v = *(const uint32_t *)(b + r * BLOCK + BLOCK_D);
            return v;
        }
        if (w < 128) {
            uint32_t lane = w >> 1 & 31, n = w & 1;
            const uint8_t *b = s.row(tile, w >> 6, lane >> 2);
            for (uint32_t m = 0; b && m < 4; m++) {
                const uint8_t *block = b + r * BLOCK;
                uint32_t k = 128 * n + 4 * (lane & 3) + m;
                v |= (weight_bits(block, k + 64) | weight_bits(block, k + 80) << 3 | third_bit(block, k + 96) << 6 |
                      third_bit(block, k + 112) << 7)
                     << 8 * m;
            }
            return v;
        }
        w -= 128;
        if (w < 32)
            return four_scales(s, tile, r, 0, w) | four_scales(s, tile, r, 1, w) << 24;
        w -= 32;
        if (w < 16)
            return four_scales(s, tile, r, 1, 2 * w) >> 8 | four_scales(s, tile, r, 1, 2 * w + 1) >> 8 << 16;
        w -= 16;
        for (uint32_t i = 0; i < 2; i++) {
            const uint8_t *b = s.row(tile, w >> 2, 2 * (w & 3) + i);
            v |= b ? u16_at(b + r * BLOCK + BLOCK_D) << 16 * i : 0;
        }
        return v;
    }

    /* --- the fragment ------------------------------------------------------------------------------------------- */

    /* A lane's scales of row g (h = 0) or g + 8 (1): THREE: six bits each; else a scale and a min per byte. */
    __device__ static inline uint32_t scales(const uint8_t *u, uint32_t h, uint32_t lane)
    {
        if (!THREE)
            return ((const uint32_t *)(u + 1024))[32 * h + lane];
        uint32_t s = ((const uint32_t *)(u + 1536))[lane];
        return h ? s >> 24 | (uint32_t)((const uint16_t *)(u + 1664))[lane] << 8 : s;
    }
    /* (d, dmin) of a row of 16. */
    __device__ static inline float2 factors(const uint8_t *u, uint32_t row)
    {
        if (THREE)
            return make_float2(__half2float(((const __half *)(u + 1728))[row]), 0.f);
        return __half22float2(((const __half2 *)(u + 1280))[row]);
    }
    /* A lane's words of one row and section n: sub-blocks 8n + s, s = 0..7. */
    struct eight_blocks {
        uint32_t w[2], c; /* c: THREE only */

        __device__ void load(const uint8_t *u, int h, int n, int lane)
        {
            two_of(w, ((const uint2 *)(u + 512 * h + lane * 16))[n]);
            c = THREE ? ((const uint32_t *)(u + 1024 + 256 * h + lane * 8))[n] : 0;
        }
        /* Sub-block s at bit 0 of the bytes; higher bits may be those of others. */
        __device__ uint32_t at_zero(int s) const
        {
            if (!THREE)
                return w[s / 4] >> 2 * (s % 4);
            if (s == 6)
                return lop_or(c >> 4, 0x04040404u, w[0] >> 6 & 0x03030303u);
            if (s == 7)
                return lop_or(c >> 5, 0x04040404u, w[1] >> 6 & 0x03030303u);
            return (s < 4 ? w[s / 2] : c) >> 3 * (s % 2);
        }
        /* Sub-block s as bytes, times 8 where s is odd, or 4^(s % 4) in Q2_K. */
        __device__ uint32_t bytes(int s) const
        {
            if (!THREE)
                return w[s / 4] & 0x03030303u << 2 * (s % 4);
            if (s == 6)
                return at_zero(6);
            if (s == 7)
                return lop_or(c >> 2, 0x20202020u, w[1] >> 3 & 0x18181818u);
            return (s < 4 ? w[s / 2] : c) & 0x07070707u << 3 * (s % 2);
        }
        /* The A fragments of sub-block s, as 1024 + q: elements 0, 2, then 1, 3. */
        __device__ void fragments(int s, uint32_t *A) const
        {
            constexpr uint32_t M = 0x64006400u, ALL = THREE ? 0x00070007u : 0x00030003u;
            uint32_t v = at_zero(s);
            A[0] = lop_or(v, ALL, M), A[1] = lop_or(v >> 8, ALL, M);
        }
    };

    __device__ static inline void unpack(const uint8_t *u, uint32_t h, uint32_t g, uint32_t k, float out[8])
    {
        uint32_t s = k >> 4, j = s >> 2, sc = scales(u, h, g << 2 | (s & 3));
        float2 d = factors(u, 8 * h + g);
        for (uint32_t i = 0; i < 8; i++) {
            eight_blocks w;
            w.load(u, h, s >> 3, g << 2 | ((k >> 2 & 3) + (i >> 2)));
            int q = w.at_zero(s & 7) >> 8 * (i & 3) & (THREE ? 7 : 3);
            out[i] = THREE ? weight(d.x, 0, (int)(sc >> 6 * j & 63) - 32, 0, q - 4)
                           : weight(d.x, d.y, sc >> 8 * j & 15, sc >> (8 * j + 4) & 15, q);
        }
    }

    /* Multiplies by sc (q - 4), or by sc q and the min: integers in fp16. */
    template <int NT>
    __device__ static inline void mul(const uint8_t *r, int, const xfrag &v, int lane, float (&acc)[NT][4])
    {
        constexpr uint32_t M = 0x64006400u, Q = THREE ? 0x64046404u : M;
        int g = lane >> 2, t = lane & 3;
        float q[NT][4], least[NT][4];
        zero(q), zero(least);
#pragma unroll
        for (int j = 0; j < 4; j++) { /* four sub-blocks */
            eight_blocks a, b;
            a.load(r, 0, j / 2, lane), b.load(r, 1, j / 2, lane);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int s = 4 * j + i;
                uint32_t A[4], sg = scales(r, 0, g << 2 | i), sh = scales(r, 1, g << 2 | i), mg = 0, mh = 0;
                if (THREE) {
                    sg = h2sub(six(sg >> 6 * j), 0x50005000u), sh = h2sub(six(sh >> 6 * j), 0x50005000u); /* 32 */
                } else {
                    mg = six(sg >> (8 * j + 4) & 15), mh = six(sh >> (8 * j + 4) & 15);
                    sg = six(sg >> 8 * j & 15), sh = six(sh >> 8 * j & 15);
                }
                a.fragments(s % 8, A), b.fragments(s % 8, A + 2);
                A[0] = h2mul(h2sub(A[0], Q), sg), A[1] = h2mul(h2sub(A[1], Q), sg);
                A[2] = h2mul(h2sub(A[2], Q), sh), A[3] = h2mul(h2sub(A[3], Q), sh);
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    uint2 x = v.four(n, s, t);
                    mma16816(q[n], A[0], A[2], A[1], A[3], x.x, x.y);
                    if (!THREE)
                        mma16816(least[n], mg, mh, mg, mh, x.x, x.y);
                }
            }
        }
        float2 dg = factors(r, g), dh = factors(r, g + 8);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            add_scaled(acc[n], q[n], dg.x, dh.x);
            if (!THREE)
                add_scaled(acc[n], least[n], -dg.y, -dh.y);
        }
    }

    /* One mma per sub-block of 16 k; for Q3_K they multiply by q, and 4 times the activations' sums is subtracted
     * afterwards. The sum of four sub-blocks times their scales is at most 4 * 32 * 16 * 8 * 4 * 32639 < 2^31 in
     * magnitude. */
#if __CUDA_ARCH__ >= 800
    template <int M>
    __device__ static inline void mul_int(const uint8_t *r, int, const ix_frag &v, int lane, float (&acc)[M][2])
    {
        int g = lane >> 2, t = lane & 3, c[M][4][4];
        ix_own own(g);
        uint32_t a[4], b[4], ac[2] = {0, 0}, bc[2] = {0, 0};
        four_of(a, ((const uint4 *)r)[lane]), four_of(b, ((const uint4 *)(r + 512))[lane]);
        if (THREE)
            two_of(ac, ((const uint2 *)(r + 1024))[lane]), two_of(bc, ((const uint2 *)(r + 1280))[lane]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int n = j / 2;
            const eight_blocks row_g = {{a[2 * n], a[2 * n + 1]}, ac[n]}, row_h = {{b[2 * n], b[2 * n + 1]}, bc[n]};
            uint32_t x[M];
#pragma unroll
            for (int m = 0; m < M; m++) {
                x[m] = *(const uint32_t *)(v.at + m * v.row_step + (g & 1) * IX_HI + 64 * j + 16 * (g >> 1) + 4 * t);
                c[m][j][0] = c[m][j][1] = c[m][j][2] = c[m][j][3] = 0;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t e = row_g.bytes(4 * (j % 2) + i), f = row_h.bytes(4 * (j % 2) + i);
#pragma unroll
                for (int m = 0; m < M; m++)
                    imma16(c[m][j], e, f, own.of(x[m], i));
            }
        }
        const int times = t & 1 ? 32 : 4; /* the 4 to be subtracted from q, times the factor of bytes() */
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float2 d = factors(r, g + 8 * h);
            uint32_t sc = scales(r, h, lane);
#pragma unroll
            for (int m = 0; m < M; m++) {
                const uint8_t *row = v.at + m * v.row_step;
                int4 s4 = *(const int4 *)(row + IX_S16 + 16 * t);
                const int sum[4] = {s4.x, s4.y, s4.z, s4.w};
                int q = 0, least = 0;
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (THREE)
                        q += ((int)(sc >> 6 * j & 63) - 32) * (ix_join(c[m][j], h) - times * sum[j]);
                    else
                        q += (int)(sc >> 8 * j & 15) * (ix_join(c[m][j], h) >> 2 * t),
                            least += (int)(sc >> (8 * j + 4) & 15) * sum[j];
                float f = __fmul_rn(THREE && t & 1 ? 0.125f * d.x : d.x, (float)q),
                      scale = *(const float *)(row + IX_SCALE);
                if (!THREE)
                    f = __fmaf_rn(-d.y, (float)least, f);
                acc[m][h] = __fmaf_rn(scale, f, acc[m][h]);
            }
        }
    }
#endif

    /* Q3_K: q - 4, exact, times the sub-block's scale rounded to fp16. Q2_K: sc q, exact, times d, less the sub-block's
     * min rounded to fp16. */
    struct wg : wg_whole {
        /* s[i]: scales of a half's sub-blocks i and i + 4, row g's in the lower 16 bits, row g + 8's in the upper */
        uint32_t dg, dh, s[4];
        eight_blocks a, b;

        __device__ void open(const uint8_t *r, int lane)
        {
            int g = lane >> 2;
            if (THREE)
                dg = twice(((const uint16_t *)(r + 1728))[g], 0), dh = twice(((const uint16_t *)(r + 1728))[g + 8], 0);
            else
                dg = ((const uint32_t *)(r + 1280))[g], dh = ((const uint32_t *)(r + 1280))[g + 8];
        }
        __device__ void plane(const uint8_t *r, int p, int lane)
        {
            a.load(r, 0, p, lane), b.load(r, 1, p, lane);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t sg = scales(r, 0, (lane & 28) | i), sh = scales(r, 1, (lane & 28) | i);
                s[i] = THREE ? (sg >> 12 * p & 0xfff) | (sh >> 12 * p & 0xfff) << 16
                             : __byte_perm(sg, sh, p ? 0x7632 : 0x5410);
            }
        }
        /* In fp16: the fields at bit `at`, masked with `bits`, of s[i] and s[i + 1]; row g + 8's are 16 bits further.
         */
        __device__ uint32_t two_scales(int i, int at, uint32_t bits) const
        {
            return h2sub((s[i] >> at & bits) | (s[i + 1] >> at & bits) << 16 | 0x64006400u,
                         THREE ? 0x64206420u : 0x64006400u);
        }
        __device__ void word(int u, uint32_t *A) const
        {
            constexpr uint32_t M = 0x64006400u;
            int i = 2 * u % 4, n = u / 2; /* sub-blocks 2u and 2u + 1 of the half */
            uint32_t sg = two_scales(i, (THREE ? 6 : 8) * n, THREE ? 63 : 15),
                     sh = two_scales(i, (THREE ? 6 : 8) * n + 16, THREE ? 63 : 15), mg = 0, mh = 0;
            if (THREE)
                sg = h2mul(sg, dg), sh = h2mul(sh, dh);
            else
                mg = h2mul(two_scales(i, 8 * n + 4, 15), twice(dg, 1)),
                mh = h2mul(two_scales(i, 8 * n + 20, 15), twice(dh, 1));
#pragma unroll
            for (int k = 0; k < 2; k++) {
                uint32_t e[2], f[2], eg = twice(sg, k), eh = twice(sh, k);
                a.fragments(4 * n + i + k, e), b.fragments(4 * n + i + k, f);
#pragma unroll
                for (int c = 0; c < 2; c++)
                    if (THREE) {
                        A[4 * k + 2 * c] = h2mul(h2sub(e[c], 0x64046404u), eg);
                        A[4 * k + 2 * c + 1] = h2mul(h2sub(f[c], 0x64046404u), eh);
                    } else {
                        uint32_t lg = h2mul(twice(mg, k), 0xBC00BC00u), lh = h2mul(twice(mh, k), 0xBC00BC00u); /* -1 */
                        A[4 * k + 2 * c] = h2fma(h2mul(h2sub(e[c], M), eg), twice(dg, 0), lg);
                        A[4 * k + 2 * c + 1] = h2fma(h2mul(h2sub(f[c], M), eh), twice(dh, 0), lh);
                    }
            }
        }
    };
};

#endif
