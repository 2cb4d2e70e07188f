/*
 * eight.cuh - products of up to eight columns on Hopper, as wgmma.cuh's kernel multiplies them: by mma.m16n8k16 of
 * whole weights, whose sums of a sub-block are then scaled.
 *
 * With eight columns a lane has four sums of a sub-block, so that scaling these is cheaper than making fp16 numbers of
 * 32 weights. What the tensor cores are given is the integers themselves: an integer q below 1024 in the low bits of a
 * half is the subnormal number q 2^-24, so that a weight's bits only have to be masked. Its product with an fp16
 * activation is exact in F32. wgmma has eight columns too, but needs more instructions for its fences, descriptors and
 * waits than ldmatrix and mma do here.
 *
 * Minimums (and the 32 that a Q6_K weight is less than its six bits) are factors of sums of activations. A warp of the
 * block that multiplies no weights computes these for all of them, as means of 16: a sum may be too large for fp16.
 */
#ifndef HEARTH_CUDA_GEMM_EIGHT_CUH
#define HEARTH_CUDA_GEMM_EIGHT_CUH

#include "kernels/cuda/gemm/gemm.cuh"

enum {
    EIGHT = 8,            /* columns */
    EIGHT_X = 256 * 16,   /* bytes of a k-block of activations, in order 1 of k (split_k.cuh) */
    EIGHT_MEANS = 8 * 64, /* bytes of their means, see eight_means() */
    EIGHT_ORDER = 1,
};

/*
 * Stores the means of the sixteen sub-blocks of 16 k of the activations at x, each as two halves: the mean, and what it
 * is more than that, times 2^11, so that nothing is lost of small numbers either. They are the B operands of two
 * mma.m16n8k16 whose k are the sub-blocks 4t, 4t + 1 (slots 2t and 2t + 1) and 4t + 2, 4t + 3 (2t + 8 and 2t + 9):
 * [column][t] is {b0, b1} of the first halves and {b0, b1} of the second. Called by a warp.
 */
__device__ static inline void eight_means(uint32_t x, uint8_t *to, uint32_t lane)
{
    constexpr uint32_t SIXTEENTHS = 0x2C002C00u;
    uint32_t g = lane >> 2, t = lane & 3;
    float mean[2][4]; /* row s of the product of a matrix that has sixteenths in row s alone, and step s */
    for (int h = 0; h < 2; h++)
        mean[h][0] = mean[h][1] = mean[h][2] = mean[h][3] = 0;
#pragma unroll
    for (int s = 0; s < 8; s += 2)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t b[4];
            ldm4(b, x + (8 * h + s) * 256 + lane * 16);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t one = g == s + i ? SIXTEENTHS : 0;
                mma16816(mean[h], one, 0, one, 0, b[2 * i], b[2 * i + 1]);
            }
        }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t s = 8 * h + g;
            __half *at = (__half *)(to + (2 * t + i) * 64 + (s >> 2) * 16) + (s & 3);
            __half first = half_sat(mean[h][i]);
            at[0] = first, at[4] = half_sat((mean[h][i] - __half2float(first)) * 2048);
        }
}

/*
 * A k-block of a type, as a warp multiplies it. open() reads the fragment at r, which may be replaced after that, or,
 * where HOLDS, after multiply(). multiply() adds the product with the activations at x to acc; means() waits for their
 * means and returns the lane's.
 */
template <int T> struct eight_of {
    static constexpr bool TAKES = false;
};

__device__ static inline float2 eight_halves(uint32_t v)
{
    return __half22float2(*(const __half2 *)&v);
}

/* Q4_K, and Q5_K where FIVE (q45_k.cuh). ldmatrix gives a lane four of the sixteen bytes of each of a row's quarters,
 * so that each step is a sub-block's. */
template <int FIVE> struct eight_q45_k {
    typedef quant<FIVE ? DT_Q5_K : DT_Q4_K> form;
    static constexpr bool TAKES = true, HOLDS = FIVE;
    const uint8_t *fifths;
    uint32_t q[4][4]; /* [h][p], quarter */
    uint32_t s[4], own, e, dg, dh;

    __device__ void open(const uint8_t *r, uint32_t lane)
    {
        constexpr uint32_t S = FIVE ? 2560 : 2048;
        uint32_t g = lane >> 2;
        form::quarters(r, lane, q);
        four_of(s, ((const uint4 *)(r + S))[g]);
        own = ((const uint32_t *)(r + S))[lane], e = ((const uint16_t *)(r + S + 128))[lane];
        dg = ((const uint32_t *)(r + S + 192))[g], dh = ((const uint32_t *)(r + S + 192))[g + 8];
        if (FIVE)
            fifths = r + 2048 + 64 * g;
    }

    template <class Means> __device__ void multiply(uint32_t x, Means means, uint32_t lane, float (&acc)[4]) const
    {
        constexpr uint32_t L = 0x000f000f, H = 0x00f000f0;
        const uint32_t t = lane & 3;
        float low_sum[4] = {0, 0, 0, 0}, high_sum[4] = {0, 0, 0, 0}; /* apart, as the upper nibbles are times 16 */
#pragma unroll
        for (int c = 0; c < 4; c++) {
            uint32_t b[2][4], five[4];
            float l[4] = {0, 0, 0, 0}, h[4] = {0, 0, 0, 0};
            ldm4(b[0], x + (2 * c) * 512 + lane * 16), ldm4(b[1], x + (2 * c + 1) * 512 + lane * 16);
            if (FIVE)
                four_of(five, ((const uint4 *)fifths)[c]);
#pragma unroll
            for (int p = 0; p < 2; p++) {
                uint32_t lo[4], hi[4]; /* A: rows g and g + 8 of k 4t and 4t + 2, then of 4t + 1 and 4t + 3 */
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    uint32_t v = q[2 * i + p][c], v8 = v >> 8;
                    lo[i] = v & L, lo[2 + i] = v8 & L, hi[i] = v & H, hi[2 + i] = v8 & H;
                    if (FIVE) { /* bit t of a byte to 4 for the low nibble, 4 + t to 8 for the high one */
                        uint32_t f0 = five[2 * i + p] << (4 - t), f1 = five[2 * i + p] >> (4 + t);
                        lo[i] = lop_or(f0, 0x00100010, lo[i]), lo[2 + i] = lop_or(f1, 0x00100010, lo[2 + i]);
                        hi[i] = lop_or(f0, 0x01000100, hi[i]), hi[2 + i] = lop_or(f1, 0x01000100, hi[2 + i]);
                    }
                }
                mma16816(l, lo[0], lo[1], lo[2], lo[3], b[0][2 * p], b[0][2 * p + 1]);
                mma16816(h, hi[0], hi[1], hi[2], hi[3], b[1][2 * p], b[1][2 * p + 1]);
            }
            /* scales of six bits, as subnormal halves: sc(2c) of g, and 4 sc(2c + 1) of g + 8 in the upper half */
            float2 two = eight_halves(s[c] & 0x00fc003f);
            add_scaled(low_sum, l, two.x, low(s[c] >> 12 & 63));
            add_scaled(high_sum, h, low(s[c] >> 6 & 63), two.y);
        }
        uint4 m = means();
        float least[4] = {0, 0, 0, 0};
        uint32_t g0 = twice(own >> 24 & 63, 0), g1 = twice(e & 63, 0), h0 = twice(e >> 6 & 63, 0),
                 h1 = twice(own >> 30 | (e >> 12) << 2, 0);
        auto by = [](uint32_t v) { return h2mul(v, 0x68006800u); }; /* 2^11, as the second halves are */
        mma16816(least, by(g0), by(h0), by(g1), by(h1), m.x, m.y);
        mma16816(least, g0, h0, g1, h1, m.z, m.w);
        float2 d[2] = {eight_halves(dg), eight_halves(dh)};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float sum = __fmaf_rn(i < 2 ? 1.f / 16 : 1.f / 64, high_sum[i], low_sum[i]);
            acc[i] = __fmaf_rn(d[i >> 1].x * (TWO24 * TWO24), sum,
                               __fmaf_rn(d[i >> 1].y * (-16 * TWO24 / 2048), least[i], acc[i]));
        }
    }
};
template <> struct eight_of<DT_Q4_K> : eight_q45_k<0> {
};
template <> struct eight_of<DT_Q5_K> : eight_q45_k<1> {
};

template <> struct eight_of<DT_Q6_K> {
    static constexpr bool TAKES = true, HOLDS = false;
    uint32_t q[2][2][4], f[2][4], s[2][4], own[2], d[2];

    __device__ void open(const uint8_t *r, uint32_t lane)
    {
        uint32_t g = lane >> 2, t = lane & 3;
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int p = 0; p < 2; p++)
                four_of(q[h][p], ((const uint4 *)r)[(2 * h + p) * 32 + lane]);
            four_of(f[h], ((const uint4 *)(r + 2048))[h * 32 + lane]);
            four_of(s[h], ((const uint4 *)(r + 3072))[8 * h + g]);
            own[h] = ((const uint32_t *)(r + 3072))[(8 * h + g) * 4 + t];
            d[h] = ((const uint16_t *)(r + 3328))[8 * h + g];
        }
    }

    template <class Means> __device__ void multiply(uint32_t x, Means means, uint32_t lane, float (&acc)[4]) const
    {
        float sum[4] = {0, 0, 0, 0};
#pragma unroll
        for (int w = 0; w < 8; w++) { /* a word: sub-blocks 2w and 2w + 1 */
            uint32_t b[4], A[2][4];
            float l[4] = {0, 0, 0, 0}, h[4] = {0, 0, 0, 0};
            ldm4(b, x + w * 512 + lane * 16);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t v = q[i][w >> 2][w & 3], k = f[i][w >> 1];
                uint32_t lo = lop_or(w & 1 ? k : k << 4, 0x30303030, v & 0x0f0f0f0f),
                         hi = lop_or(w & 1 ? k >> 2 : k << 2, 0x30303030, v >> 4 & 0x0f0f0f0f);
                A[0][i] = __byte_perm(lo, 0, 0x4240), A[0][2 + i] = __byte_perm(lo, 0, 0x4341);
                A[1][i] = __byte_perm(hi, 0, 0x4240), A[1][2 + i] = __byte_perm(hi, 0, 0x4341);
            }
            mma16816(l, A[0][0], A[0][1], A[0][2], A[0][3], b[0], b[1]);
            mma16816(h, A[1][0], A[1][1], A[1][2], A[1][3], b[2], b[3]);
            float2 sg = eight_halves(h2sub(__byte_perm(s[0][w >> 1], 0, w & 1 ? 0x4342 : 0x4140), 0x00800080)),
                   sh = eight_halves(h2sub(__byte_perm(s[1][w >> 1], 0, w & 1 ? 0x4342 : 0x4140), 0x00800080));
            add_scaled(sum, l, sg.x, sh.x);
            add_scaled(sum, h, sg.y, sh.y);
        }
        uint4 m = means();
        float least[4] = {0, 0, 0, 0};
        auto scales = [](uint32_t bytes, uint32_t pick) {
            return h2sub(__byte_perm(bytes, 0x64646464u, pick), 0x64806480u); /* 1024 + 128 */
        };
        uint32_t g0 = scales(own[0], 0x4140), g1 = scales(own[0], 0x4342), h0 = scales(own[1], 0x4140),
                 h1 = scales(own[1], 0x4342);
        auto less = [](uint32_t v) { return h2mul(v, 0x10001000u); }; /* 2^-11: the second halves are as much larger */
        mma16816(least, g0, h0, g1, h1, m.x, m.y);
        mma16816(least, less(g0), less(h0), less(g1), less(h1), m.z, m.w);
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[i] = __fmaf_rn(low(d[i >> 1]), __fmaf_rn(-512.f, least[i], TWO24 * TWO24 * sum[i]), acc[i]);
    }
};

__host__ __device__ constexpr bool takes_eight(int type)
{
    switch (type) {
#define X(t, T, number) \
    case DT_##T:        \
        return eight_of<DT_##T>::TAKES;
        QUANTS(X)
#undef X
    }
    return false;
}

#endif
