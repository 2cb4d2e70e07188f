/* clang-format off */
/*
 * tile16.cuh - the weights' layout on the GPU and the arithmetic on it: tiles of 16 rows x records of 256 k, by type.
 *
 * A tile is a matrix' 16 rows over all of K; a record is 256 k of it, cut into `per` units (1 for the small types), and
 * a unit is what a warp turns into mma.m16n8k16 A fragments at once. Every unit is a permutation of the file's bits
 * (int8 scales and Q8_0 have their sign bit flipped). Lane L = g << 2 | t of a warp works for rows g and g + 8.
 *
 * K is cut into K_SLICES runs of whole records, a function of the matrix alone: chunk c has n/8 records, the first n%8
 * chunks one more. A row's sum is formed within a chunk in k order and then over the chunks in order, whoever does it:
 * one warp after the other, eight warps, or eight blocks. That is why a row's bits depend neither on the batch nor on
 * the grid. Units lie in the order in which eight warps, a chunk each, want them (t16_frag_at), so that a stage of
 * the decode body is one contiguous copy.
 *
 * The units, offsets in bytes; "half h" is row g (0) or g + 8 (1); plane = 512 bytes, 16 for each lane:
 *   Q4_K 2304: 0 planes [h][p]: file bytes qs[32t + 16p ..], nibbles of sub-blocks 2t (low) and 2t + 1 (high)
 *              2048 u32 a lane: sc(2t), sc(2t+1) of g, the same of g + 8, m(2t) of g, 2 bits of m(2t+1) of g + 8
 *              2176 u16 a lane: m(2t+1) of g, m(2t) of g + 8, 4 bits of m(2t+1) of g + 8;  2240 (d, dmin) a row
 *   Q5_K 2816: as Q4_K, but 2048 planes of fifth bits (u32 [h][p] a lane: word u's byte i has bit u of byte i for the low
 *              nibble, bit 4 + u for the high one), then 2560, 2688, 2752
 *   Q6_K 3360: 0 planes [h][p] of low nibbles: word 4p + i holds k 16s + 4t + 0..3 for s = 2(4p+i) (low nibble of
 *              each byte) and s + 1 (high); 2048 planes [h] of upper bits: word j's byte i has those of byte i of
 *              words 2j and 2j + 1, low nibble first, two bits each; 3072 scales [16 rows][16]; 3328 d [16]
 *   Q8_0 2176 x 2: planes [h][p]: word s & 3 of plane p holds k 128q + 16s + 4t + 0..3, s = 4p + i; 2048 d [16][4]
 *   Q4_0 2304: nibbles as Q6_K; 2048 d [16][8]
 *   F16, BF16 2048 x 4: planes [h][p]: k 64t + 16q + 8p + 0..7, every four in the order 0,2,1,3
 *   F32  2048 x 8: planes [h][p]: k 64t + 8q + 4p + 0..3
 *
 * Exactness, in fp16: sc * q <= 1953 and q - 32, q - 128, q - 8 are integers that fp16 holds; their products with fp16
 * activations are summed in f32 and scaled afterwards. BF16 becomes fp16 (exact from 6e-5 on), F32 is split hi + lo.
 */
/* clang-format on */
#ifndef HEARTH_CUDA_T16_CUH
#define HEARTH_CUDA_T16_CUH

#include "kernels/cuda/cuda.cuh"

enum { K_SLICES = 8 };

/* Halves of a unit written out: at one n-tile for fewer instructions, with more rolled up for fewer registers. */
template <int NT> struct unroll {
    static constexpr int value = NT == 1 ? 2 : 1;
};

__host__ __device__ constexpr uint32_t t16_frag_bytes(int type)
{
    return type == DT_Q5_K                      ? 2816
           : type == DT_Q6_K                    ? 3360
           : type == DT_Q8_0                    ? 2176
           : type == DT_Q4_K || type == DT_Q4_0 ? 2304
                                                : 2048;
}
__host__ __device__ constexpr uint32_t t16_frags(int type)
{
    return type == DT_Q8_0 ? 2 : type == DT_F16 || type == DT_BF16 ? 4 : type == DT_F32 ? 8 : 1;
}
__host__ __device__ constexpr uint32_t t16_kblk_bytes(int type)
{
    return t16_frag_bytes(type) * t16_frags(type);
}

/* Whether few rows multiply in integers (tile16_int.cuh). */
__host__ __device__ constexpr bool int_type(int type)
{
    return type != DT_F32 && type != DT_F16 && type != DT_BF16;
}

/* First record of chunk c. */
__host__ __device__ static inline uint32_t t16_slice(uint32_t n_kblk, uint32_t c)
{
    uint32_t base = n_kblk / K_SLICES, rem = n_kblk % K_SLICES;
    return c * base + (c < rem ? c : rem);
}
/* Place within a tile, in units, of unit q of record r. */
__host__ __device__ static inline uint32_t t16_frag_at(uint32_t n_kblk, uint32_t per, uint32_t r, uint32_t q)
{
    uint32_t base = n_kblk / K_SLICES, rem = n_kblk % K_SLICES, big = rem * (base + 1);
    uint32_t c = r < big ? r / (base + 1) : rem + (r - big) / base;
    uint32_t step = r - t16_slice(n_kblk, c);
    return step < base ? (step * per + q) * K_SLICES + c : base * per * K_SLICES + q * rem + c;
}

/* --- arithmetic ------------------------------------------------------------------------------------------------ */

__device__ static inline uint32_t lop_or(uint32_t w, uint32_t mask, uint32_t magic) /* (w & mask) | magic, one LOP3 */
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(w), "r"(mask), "r"(magic));
    return r;
}
__device__ static inline uint32_t h2fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
__device__ static inline uint32_t h2mul(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
__device__ static inline uint32_t h2sub(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
__device__ static inline uint32_t h2of(float lo, float hi)
{
    uint32_t r;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
#else /* Turing rounds one at a time, to the same bits */
    asm("{ .reg .f16 a, b; cvt.rn.f16.f32 a, %1; cvt.rn.f16.f32 b, %2; mov.b32 %0, {a, b}; }"
        : "=r"(r)
        : "f"(lo), "f"(hi));
#endif
    return r;
}

/* d = a * b + c; a: rows g (a0, a2), g + 8 (a1, a3). Turing has half of the instruction. */
__device__ static inline void mma(float *d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                  uint32_t b1)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#elif defined(__CUDA_ARCH__)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a2), "r"(a3), "r"(b1));
#endif
}

/* acc += s * q, rows g and g + 8 by their own factor; fused everywhere, so that no instantiation rounds otherwise. */
__device__ static inline void add_scaled(float *acc, const float *q, float sg, float sh)
{
    acc[0] = __fmaf_rn(sg, q[0], acc[0]), acc[1] = __fmaf_rn(sg, q[1], acc[1]);
    acc[2] = __fmaf_rn(sh, q[2], acc[2]), acc[3] = __fmaf_rn(sh, q[3], acc[3]);
}

/*
 * Activations of a record as a lane sees them: its column's row of the prepared form (cuda.cuh), `step` halves from one
 * n-tile of 8 columns to the next.
 */
struct xfrag {
    const __half *x, *sum;
    uint32_t step, sum_step;
    __device__ uint4 eight(int nt, uint32_t at) const
    {
        return *(const uint4 *)(x + nt * step + at);
    }
    __device__ uint2 four(int nt, uint32_t s, uint32_t t) const /* k 16s + 4t + 0..3 */
    {
        return *(const uint2 *)(x + nt * step + (s >> 2) * XFRAG_GROUP + (s & 3) * 16 + 4 * t);
    }
};

template <int NT> __device__ static inline void zero(float (&a)[NT][4])
{
#pragma unroll
    for (int n = 0; n < NT; n++)
        a[n][0] = a[n][1] = a[n][2] = a[n][3] = 0;
}

__device__ static inline void four_of(uint32_t *o, uint4 v)
{
    o[0] = v.x, o[1] = v.y, o[2] = v.z, o[3] = v.w;
}

__device__ static inline void two_of(uint32_t *o, uint2 v)
{
    o[0] = v.x, o[1] = v.y;
}

/* A six-bit integer to both halves, as fp16. */
__device__ static inline uint32_t six(uint32_t v)
{
    v &= 63;
    return h2sub((v | v << 16) | 0x64006400u, 0x64006400u);
}

/* Q4_K and Q5_K. 1024 + q less 1024, times sc, in one exact fma; the upper nibble without a shift as 1024 + 16q. */
template <int FIVE, int NT>
__device__ static inline void mul_k45(const uint8_t *r, const xfrag &v, int lane, float (&acc)[NT][4])
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
    float q[NT][4]; /* one chain of sums: another set of registers costs wide a block */
    zero(q);
#pragma unroll(unroll <NT>::value)
    for (int p = 0; p < 2; p++) {
        uint32_t a[4], b[4], fg = 0, fh = 0;
        if (FIVE)
            fg = ((const uint32_t *)(r + 2048 + lane * 16))[p], fh = ((const uint32_t *)(r + 2048 + lane * 16))[2 + p];
        four_of(a, ((const uint4 *)r)[p * 32 + lane]);
        four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
#pragma unroll
        for (int u2 = 0; u2 < 2; u2++) { /* two words: the A fragments of four mma, then every column's */
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
                    al = lop_or(f0, 0x00100010, al), ah = lop_or(f0, 0x01000100, ah), cl = lop_or(f1, 0x00100010, cl),
                    ch = lop_or(f1, 0x01000100, ch);
                    bl = lop_or(f2, 0x00100010, bl), bh = lop_or(f2, 0x01000100, bh), dl = lop_or(f3, 0x00100010, dl),
                    dh = lop_or(f3, 0x01000100, dh);
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
                mma(q[n], A[0][0], A[0][1], A[0][2], A[0][3], lo.x, lo.y);
                mma(q[n], A[0][4], A[0][5], A[0][6], A[0][7], hi.x, hi.y);
                mma(q[n], A[1][0], A[1][1], A[1][2], A[1][3], lo.z, lo.w);
                mma(q[n], A[1][4], A[1][5], A[1][6], A[1][7], hi.z, hi.w);
            }
        }
    }
    float2 dg = __half22float2(((const __half2 *)(r + S + 192))[g]),
           dh = __half22float2(((const __half2 *)(r + S + 192))[g + 8]);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const uint32_t *sum = (const uint32_t *)(v.sum + n * v.sum_step);
        float m[4] = {0, 0, 0, 0};
        mma(m, mg, mh, mg, mh, sum[t], sum[4 + t]);
        add_scaled(acc[n], q[n], dg.x, dh.x);
        add_scaled(acc[n], m, -dg.y, -dh.y);
    }
}

/* Byte i of w, flipped sign, as a float: 2^23 + (v + 128) less 2^23 + 128. */
__device__ static inline float f32_of_i8(uint32_t w, int i)
{
    return __fadd_rn(__uint_as_float(__byte_perm(w, 0x4B000000u, 0x7440 | i)), -8388736.f);
}

template <int NT>
__device__ static inline void mul_q6_k(const uint8_t *r, const xfrag &v, int lane, float (&acc)[NT][4])
{
    constexpr uint32_t M = 0x64006400u;
    int g = lane >> 2, t = lane & 3;
    float kblk[NT][4];
    zero(kblk);
#pragma unroll(unroll <NT>::value)
    for (int p = 0; p < 2; p++) {
        uint32_t a[4], b[4], sg[2], sh[2], fg[2], fh[2];
        two_of(sg, ((const uint2 *)(r + 3072 + g * 16))[p]), two_of(sh, ((const uint2 *)(r + 3200 + g * 16))[p]);
        two_of(fg, ((const uint2 *)(r + 2048 + lane * 16))[p]), two_of(fh, ((const uint2 *)(r + 2560 + lane * 16))[p]);
        four_of(a, ((const uint4 *)r)[p * 32 + lane]);
        four_of(b, ((const uint4 *)r)[(2 + p) * 32 + lane]);
#pragma unroll
        for (int u = 0; u < 4; u++) {
            int h = u / 2, s = 2 * (4 * p + u), c = 2 * u % 4;
            /* upper bits of a byte: 0, 2 of the even word's low and high nibble, 4, 6 of the odd one's */
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
                mma(q0, al, bl, cl, dl, x0.x, x0.y);
                mma(q1, ah, bh, ch, dh, x1.x, x1.y);
                add_scaled(kblk[n], q0, cg0, ch0);
                add_scaled(kblk[n], q1, cg1, ch1);
            }
        }
    }
    float dg = __half2float(((const __half *)(r + 3328))[g]), dh = __half2float(((const __half *)(r + 3328))[g + 8]);
#pragma unroll
    for (int n = 0; n < NT; n++)
        add_scaled(acc[n], kblk[n], dg, dh);
}

template <int NT>
__device__ static inline void mul_q4_0(const uint8_t *r, const xfrag &v, int lane, float (&acc)[NT][4])
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
            float2 fg = __half22float2(*(const __half2 *)&dg[u / 2]), fh = __half22float2(*(const __half2 *)&dh[u / 2]);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                float q[4] = {0, 0, 0, 0};
                uint2 x0 = v.four(n, s, t), x1 = v.four(n, s + 1, t);
                mma(q, al, bl, cl, dl, x0.x, x0.y);
                mma(q, ah, bh, ch, dhh, x1.x, x1.y);
                add_scaled(acc[n], q, u & 1 ? fg.y : fg.x, u & 1 ? fh.y : fh.x);
            }
        }
    }
}

template <int NT>
__device__ static inline void mul_q8_0(const uint8_t *r, int frag, const xfrag &v, int lane, float (&acc)[NT][4])
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
                    mma(q[n], a0, a1, a2, a3, x.x, x.y);
                }
            }
#pragma unroll
            for (int n = 0; n < NT; n++)
                add_scaled(acc[n], q[n], j ? fg.y : fg.x, j ? fh.y : fh.x);
        }
    }
}

template <int BF, int NT>
__device__ static inline void mul_f16(const uint8_t *r, int frag, const xfrag &v, int lane, float (&acc)[NT][4])
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
            mma(acc[n], a[0], b[0], a[1], b[1], x.x, x.y);
            mma(acc[n], a[2], b[2], a[3], b[3], x.z, x.w);
        }
    }
}

/* hi + lo / 2048: 22 bits of the weight. */
template <int NT>
__device__ static inline void mul_f32(const uint8_t *r, int frag, const xfrag &v, int lane, float (&acc)[NT][4])
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
            mma(acc[n], h[0][0], h[1][0], h[0][1], h[1][1], x.x, x.y);
            mma(lo[n], l[0][0], l[1][0], l[0][1], l[1][1], x.x, x.y);
        }
    }
#pragma unroll
    for (int n = 0; n < NT; n++)
        add_scaled(acc[n], lo[n], 1.f / 2048, 1.f / 2048);
}

/* acc += one unit times its activations; callers pass zeros and add, so that units can be worked on side by side. */
template <int T, int NT>
__device__ static inline void t16_mul(const uint8_t *r, int frag, const xfrag &v, int lane, float (&acc)[NT][4])
{
    if constexpr (T == DT_Q4_K || T == DT_Q5_K)
        mul_k45<T == DT_Q5_K, NT>(r, v, lane, acc);
    else if constexpr (T == DT_Q6_K)
        mul_q6_k<NT>(r, v, lane, acc);
    else if constexpr (T == DT_Q4_0)
        mul_q4_0<NT>(r, v, lane, acc);
    else if constexpr (T == DT_Q8_0)
        mul_q8_0<NT>(r, frag, v, lane, acc);
    else if constexpr (T == DT_F32)
        mul_f32<NT>(r, frag, v, lane, acc);
    else
        mul_f16<T == DT_BF16, NT>(r, frag, v, lane, acc);
}

#endif
