/*
 * q6_k.cuh - Q6_K on the GPU: 256 weights of 6 bits; each 16 share a scale of 8 bits.
 *
 * The fragment, offsets in bytes:
 *   0     planes [h][p] of low nibbles: word 4p + i holds k 16s + 4t + 0..3 for s = 2(4p+i) (low nibble of each byte)
 *         and s + 1 (high)
 *   2048  planes [h] of upper bits: byte i of word j has those of byte i of words 2j and 2j + 1, low nibble first, two
 *         bits each
 *   3072  scales [16 rows][16], with the sign bit flipped
 *   3328  d [16 rows]
 *
 * Exactness: q - 32 is an integer that fp16 represents; products with fp16 activations are summed in f32, 16 k at a
 * time.
 */
#ifndef HEARTH_CUDA_Q6_K_CUH
#define HEARTH_CUDA_Q6_K_CUH

#include "kernels/cuda/gemm/tile16_int.cuh"
#include "kernels/cuda/quant/slice.cuh"

/* Low nibble and upper two bits of element k of a Q6_K block. */
__device__ static inline uint32_t q6_lo(const uint8_t *b, uint32_t k)
{
    return b[64 * (k / 128) + 32 * (k / 32 & 1) + k % 32] >> (k / 64 & 1) * 4 & 15;
}
__device__ static inline uint32_t q6_hi(const uint8_t *b, uint32_t k)
{
    return b[128 + 32 * (k / 128) + k % 32] >> 2 * (k / 32 & 3) & 3;
}

template <> struct quant<DT_Q6_K> : quant_own {
    static constexpr uint32_t FRAGS = 1, FRAG_BYTES = 3360;
    static constexpr bool INT8 = true, WGMMA = true, COLS16 = true;
    static constexpr int WG_ORDER = 1;
    static constexpr bool WG_ROW_SCALES = true;

    __device__ static inline float at(const uint8_t *row, uint32_t k)
    {
        const uint8_t *b = row + k / 256 * 210;
        uint32_t n = k / 128 % 2, r = k % 128, l = r % 32, quarter = r / 32;
        int q = (b[n * 64 + (quarter & 1) * 32 + l] >> (quarter >> 1) * 4 & 15) |
                (b[128 + n * 32 + l] >> 2 * quarter & 3) << 4;
        return dq_half(b + 208) * (int8_t)b[192 + n * 8 + quarter * 2 + l / 16] * (q - 32);
    }

    __device__ static inline uint32_t pack(const slice &s, uint32_t tile, uint32_t r, uint32_t, uint32_t w)
    {
        uint32_t plane = w >> 7, h = plane >> 1, p = plane & 1, lane = w >> 2 & 31, g = lane >> 2, t = lane & 3,
                 j = w & 3, v = 0;
        uint32_t at = r * 210;
        if (w < 512) {
            const uint8_t *b = s.row(tile, h, g);
            for (uint32_t m = 0; b && m < 4; m++) {
                uint32_t k = 32 * (4 * p + j) + 4 * t + m;
                v |= q6_lo(b + at, k) << 8 * m | q6_lo(b + at, k + 16) << (8 * m + 4);
            }
            return v;
        }
        if (w < 768) {
            w -= 512;
            const uint8_t *b = s.row(tile, w >> 7, g);
            for (uint32_t i = 0; b && i < 8; i++) { /* element m = i & 3 of word 2j + (i >> 2) */
                uint32_t m = i & 3, k = 32 * (2 * j + (i >> 2)) + 4 * t + m, pos = 8 * m + 4 * (i >> 2);
                v |= q6_hi(b + at, k) << pos | q6_hi(b + at, k + 16) << (pos + 2);
            }
            return v;
        }
        if (w < 832) {
            w -= 768;
            const uint8_t *b = s.row(tile, w >> 5, w >> 2 & 7);
            return b ? (u16_at(b + at + 192 + 4 * (w & 3)) | u16_at(b + at + 194 + 4 * (w & 3)) << 16) ^ 0x80808080u
                     : 0;
        }
        w -= 832;
        for (uint32_t i = 0; i < 2; i++) {
            const uint8_t *b = s.row(tile, w >> 2, 2 * (w & 3) + i);
            v |= b ? u16_at(b + at + 208) << 16 * i : 0;
        }
        return v;
    }

    __device__ static inline void unpack(const uint8_t *u, uint32_t h, uint32_t g, uint32_t k, float out[8])
    {
        uint32_t row = 8 * h + g, s = k >> 4;
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t m = i & 3, lane = g << 2 | ((k >> 2 & 3) + (i >> 2)), w = s >> 1;
            uint32_t lo =
                ((const uint32_t *)(u + (2 * h + (w >> 2)) * 512 + lane * 16))[w & 3] >> (8 * m + 4 * (s & 1)) & 15;
            uint32_t hi =
                ((const uint32_t *)(u + 2048 + h * 512 + lane * 16))[w >> 1] >> (8 * m + 4 * (w & 1) + 2 * (s & 1)) & 3;
            int sc = (int)(u[3072 + row * 16 + s]) - 128;
            out[i] = __half2float(((const __half *)(u + 3328))[row]) * (float)sc * (float)((int)(lo | hi << 4) - 32);
        }
    }

    template <int NT>
    __device__ static inline void mul(const uint8_t *r, int, const xfrag &v, int lane, float (&acc)[NT][4])
    {
        constexpr uint32_t M = 0x64006400u;
        int g = lane >> 2, t = lane & 3;
        float kblk[NT][4];
        zero(kblk);
#pragma unroll(unroll <NT>::value)
        for (int p = 0; p < 2; p++) {
            uint32_t a[4], b[4], sg[2], sh[2], fg[2], fh[2];
            two_of(sg, ((const uint2 *)(r + 3072 + g * 16))[p]), two_of(sh, ((const uint2 *)(r + 3200 + g * 16))[p]);
            two_of(fg, ((const uint2 *)(r + 2048 + lane * 16))[p]),
                two_of(fh, ((const uint2 *)(r + 2560 + lane * 16))[p]);
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
#pragma unroll
            for (int u = 0; u < 4; u++) {
                int h = u / 2, s = 2 * (4 * p + u), c = 2 * u % 4;
                /* upper bits in a byte: bits 0 and 2: of the even word's low and high nibble; 4 and 6: of the odd one's
                 */
                uint32_t f = u & 1 ? fg[h] >> 4 : fg[h], k = u & 1 ? fh[h] >> 4 : fh[h];
                uint32_t a8 = a[u] >> 8, b8 = b[u] >> 8;
                uint32_t al = h2sub(lop_or(f << 4, 0x00300030, lop_or(a[u], 0x000f000f, M)), 0x64206420u);
                uint32_t bl = h2sub(lop_or(k << 4, 0x00300030, lop_or(b[u], 0x000f000f, M)), 0x64206420u);
                uint32_t cl = h2sub(lop_or(f >> 4, 0x00300030, lop_or(a8, 0x000f000f, M)), 0x64206420u);
                uint32_t dl = h2sub(lop_or(k >> 4, 0x00300030, lop_or(b8, 0x000f000f, M)), 0x64206420u);
                uint32_t ah = h2fma(lop_or(f << 6, 0x03000300, lop_or(a[u], 0x00f000f0, M)), 0x2C002C00u, 0xD600D600u);
                uint32_t bh = h2fma(lop_or(k << 6, 0x03000300, lop_or(b[u], 0x00f000f0, M)), 0x2C002C00u, 0xD600D600u);
                uint32_t ch = h2fma(lop_or(f >> 2, 0x03000300, lop_or(a8, 0x00f000f0, M)), 0x2C002C00u, 0xD600D600u);
                uint32_t dh = h2fma(lop_or(k >> 2, 0x03000300, lop_or(b8, 0x00f000f0, M)), 0x2C002C00u, 0xD600D600u);
                float cg0 = f32_of_i8(sg[h], c), ch0 = f32_of_i8(sh[h], c), cg1 = f32_of_i8(sg[h], c + 1),
                      ch1 = f32_of_i8(sh[h], c + 1);
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    float q0[4] = {0, 0, 0, 0}, q1[4] = {0, 0, 0, 0};
                    uint2 x0 = v.four(n, s, t), x1 = v.four(n, s + 1, t);
                    mma16816(q0, al, bl, cl, dl, x0.x, x0.y);
                    mma16816(q1, ah, bh, ch, dh, x1.x, x1.y);
                    add_scaled(kblk[n], q0, cg0, ch0);
                    add_scaled(kblk[n], q1, cg1, ch1);
                }
            }
        }
        float dg = __half2float(((const __half *)(r + 3328))[g]),
              dh = __half2float(((const __half *)(r + 3328))[g + 8]);
#pragma unroll
        for (int n = 0; n < NT; n++)
            add_scaled(acc[n], kblk[n], dg, dh);
    }

    /* One mma per sub-block of 16 k; they multiply by q, and 32 times the activations' sums is subtracted afterwards.
     */
#if __CUDA_ARCH__ >= 800
    template <int M>
    __device__ static inline void mul_int(const uint8_t *r, int, const ix_frag &v, int lane, float (&acc)[M][2])
    {
        int g = lane >> 2, t = lane & 3, c[M][4][4];
        uint32_t x[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                x[m][j] = *(const uint32_t *)(v.at + m * v.row_step + (g & 1) * IX_HI + 64 * j + 16 * (g >> 1) + 4 * t);
                c[m][j][0] = c[m][j][1] = c[m][j][2] = c[m][j][3] = 0;
            }
#pragma unroll
        for (int p = 0; p < 2; p++) {
            uint32_t a[4], b[4], fg[2], fh[2];
            two_of(fg, ((const uint2 *)(r + 2048 + lane * 16))[p]),
                two_of(fh, ((const uint2 *)(r + 2560 + lane * 16))[p]);
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
#pragma unroll
            for (int u = 0; u < 4; u++) {
                constexpr uint32_t N = 0x0f0f0f0fu, U = 0x30303030u;
                uint32_t f = fg[u / 2], k = fh[u / 2];
                uint32_t al = lop_or(u & 1 ? f : f << 4, U, a[u] & N), bl = lop_or(u & 1 ? k : k << 4, U, b[u] & N),
                         ah = lop_or(u & 1 ? f >> 2 : f << 2, U, a[u] >> 4 & N),
                         bh = lop_or(u & 1 ? k >> 2 : k << 2, U, b[u] >> 4 & N);
                int s = 2 * (4 * p + u);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    imma16(c[m][s >> 2], al, bl, g >> 1 == (s & 3) ? x[m][s >> 2] : 0);
                    imma16(c[m][s >> 2], ah, bh, g >> 1 == (s & 3) + 1 ? x[m][s >> 2] : 0);
                }
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float d = __half2float(((const __half *)(r + 3328))[g + 8 * h]);
            const uint8_t *sc = r + 3072 + (g + 8 * h) * 16 + t;
#pragma unroll
            for (int m = 0; m < M; m++) {
                const uint8_t *row = v.at + m * v.row_step;
                int sum[4];
                int4 s4 = *(const int4 *)(row + IX_S16 + 16 * t);
                sum[0] = s4.x, sum[1] = s4.y, sum[2] = s4.z, sum[3] = s4.w;
                float q = 0;
#pragma unroll
                for (int j = 0; j < 4; j++)
                    q = __fmaf_rn((float)((int)sc[4 * j] - 128), (float)(ix_join(c[m][j], h) - 32 * sum[j]), q);
                acc[m][h] = __fmaf_rn(__fmul_rn(d, *(const float *)(row + IX_SCALE)), q, acc[m][h]);
            }
        }
    }
#endif

    /* The greatest factor is 128 |d| 2^24, divided by the scale. */
    __device__ static inline float wg_row_scale_min(const uint8_t *r, uint32_t row)
    {
        return fabsf(__half2float(((const __half *)(r + 3328))[row])) * (128.f * TWO24 / F16_MAX);
    }

    /* q - 32 times the sub-block's scale, which is rounded to fp16, divided by the row's scale (tile16.cuh), by one
     * fma: q in the low bits of a half is the subnormal number q 2^-24. */
    struct wg : wg_whole {
        static constexpr bool ROW_SCALES = true;
        uint32_t dg, dh, a[4], b[4], sg[2], sh[2], fg[2], fh[2];

        __device__ void open(const uint8_t *r, int lane, const t16_row_scales &rows)
        {
            int g = lane >> 2;
            dg = rows.of_g(((const uint16_t *)(r + 3328))[g]), dh = rows.of_h(((const uint16_t *)(r + 3328))[g + 8]);
        }
        __device__ void plane(const uint8_t *r, int p, int lane)
        {
            int g = lane >> 2;
            four_of(a, ((const uint4 *)r)[p * 32 + lane]);
            four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
            two_of(sg, ((const uint2 *)(r + 3072 + g * 16))[p]), two_of(sh, ((const uint2 *)(r + 3200 + g * 16))[p]);
            two_of(fg, ((const uint2 *)(r + 2048 + lane * 16))[p]),
                two_of(fh, ((const uint2 *)(r + 2560 + lane * 16))[p]);
        }
        __device__ void word(int u, uint32_t *A) const
        {
            /* v, k: a row's nibbles and upper bits; sc: its two scales as bytes, sign bit flipped */
            auto row = [&](uint32_t v, uint32_t k, uint32_t sc, uint32_t d, uint32_t *to) {
                constexpr uint32_t N = 0x0f0f0f0f, U = 0x30303030, M = 0x64646464, B = 0x64806480 /* 1024 + 128 */;
                uint32_t lo = lop_or(u & 1 ? k : k << 4, U, v & N), hi = lop_or(u & 1 ? k >> 2 : k << 2, U, v >> 4 & N);
                uint32_t s = h2mul(h2sub(__byte_perm(sc, M, u & 1 ? 0x4342 : 0x4140), B), twice(d, 0)),
                         least = h2mul(s, 0x80208020u); /* -32 2^-24 */
                auto by = [&](uint32_t q, int half) { return h2fma(q, twice(s, half), twice(least, half)); };
                to[0] = by(__byte_perm(lo, 0, 0x4240), 0), to[2] = by(__byte_perm(lo, 0, 0x4341), 0);
                to[4] = by(__byte_perm(hi, 0, 0x4240), 1), to[6] = by(__byte_perm(hi, 0, 0x4341), 1);
            };
            row(a[u], fg[u / 2], sg[u / 2], dg, A), row(b[u], fh[u / 2], sh[u / 2], dh, A + 1);
        }
    };

    static constexpr bool EXPAND = true;

    __device__ static inline void expand(const uint8_t *u, uint32_t h, uint32_t lane, uint4 (*out)[33])
    {
        uint32_t g = lane >> 2, t = lane & 3;
        float d = __half2float(((const __half *)(u + 3328))[8 * h + g]);
        uint4 s4 = ((const uint4 *)(u + 3072))[8 * h + g], x4 = ((const uint4 *)(u + 2048 + h * 512))[lane];
        uint32_t sc[4] = {s4.x, s4.y, s4.z, s4.w}, x[4] = {x4.x, x4.y, x4.z, x4.w};
#pragma unroll
        for (int p = 0; p < 2; p++) {
            uint4 w4 = ((const uint4 *)(u + (2 * h + p) * 512))[lane];
            uint32_t w[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
            for (int i = 0; i < 8; i++) { /* s = 8p + i: k 16s + 4t .. + 3 */
                int s = 8 * p + i, q = s >> 1;
                float scale = d * (small_float(sc[s >> 2] >> 8 * (s & 3) & 255) - 128.f), f[4];
#pragma unroll
                for (int m = 0; m < 4; m++) {
                    uint32_t lo = w[i >> 1] >> (8 * m + 4 * (s & 1)) & 15;
                    uint32_t hi = x[q >> 1] >> (8 * m + 4 * (q & 1) + 2 * (s & 1)) & 3;
                    f[m] = scale * (small_float(lo | hi << 4) - 32.f);
                }
                union {
                    uint2 v;
                    __half2 h[2];
                } o;
                o.h[0] = __floats2half2_rn(f[0], f[1]), o.h[1] = __floats2half2_rn(f[2], f[3]);
                uint32_t c = 2 * s + (t >> 1);
                ((uint2 *)&out[g][c ^ (c >> 3)])[t & 1] = o.v;
            }
        }
    }
};

#endif
