/*
 * four.cuh - a record times four rows in integers, as gemv.cuh multiplies them: with the bits of each type's mul_int(),
 * by a quarter of its products.
 *
 * The eight columns of an mma are the two planes of the four rows. For that its k have to be one sub-block's for all
 * lanes: that is what quarters() of Q4_K and Q5_K is for, and for Q6_K the words are so anyway. A lane's sums are then
 * of rows g and g + 8 of weights and of row t of activations, for all quarters, where mul_int() has those of one
 * quarter. Sums of a sub-block are exact in either, and what follows is the same.
 */
#ifndef HEARTH_CUDA_GEMM_FOUR_CUH
#define HEARTH_CUDA_GEMM_FOUR_CUH

#include "kernels/cuda/quant/quant.cuh"

/* Where a lane reads a record of its rows: row t, and the bytes that it loads for ldmatrix. */
struct four_rows {
    const uint8_t *row;
    uint32_t bytes; /* in shared memory */

    __device__ four_rows(const uint8_t *record, uint32_t row_step, uint32_t lane)
    {
        row = record + (lane & 3) * row_step;
        bytes = smem_of(record) + (lane >> 1 & 3) * row_step + (lane & 1) * IX_HI + (lane >> 3) * 16;
    }
    __device__ void next(uint32_t step)
    {
        row += step, bytes += step;
    }
};

/* mul(): adds a fragment's product to acc, [h][quarter] of row t. */
template <int T> struct rows_of {
    static constexpr bool TAKES = false;
};

template <int FIVE> struct four_q45_k {
    typedef quant<FIVE ? DT_Q5_K : DT_Q4_K> form;
    static constexpr bool TAKES = true;

#if __CUDA_ARCH__ >= 800
    __device__ static inline void mul(const uint8_t *r, const four_rows &x, uint32_t lane, float (&acc)[2][4])
    {
        constexpr uint32_t S = FIVE ? 2560 : 2048, L = 0x0f0f0f0f, H = 0xf0f0f0f0;
        uint32_t g = lane >> 2, t = lane & 3, q[4][4], s[4], e[2];
        form::quarters(r, lane, q);
        four_of(s, ((const uint4 *)(r + S))[g]);
        two_of(e, ((const uint2 *)(r + S + 128))[g]);
        float2 d[2] = {__half22float2(((const __half2 *)(r + S + 192))[g]),
                       __half22float2(((const __half2 *)(r + S + 192))[g + 8])};
        float scale = *(const float *)(x.row + IX_SCALE);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            uint32_t b[4], lo[4], hi[4], five[4];
            int low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0};
            ldm4(b, x.bytes + 64 * c);
            if (FIVE)
                four_of(five, ((const uint4 *)(r + 2048 + 64 * g))[c]);
#pragma unroll
            for (int i = 0; i < 4; i++) { /* row g of both planes, row g + 8: q is [h][p], an mma wants [p][h] */
                uint32_t w = q[i % 2 * 2 + i / 2][c];
                lo[i] = w & L, hi[i] = w & H; /* 16 q */
                if (FIVE) {
                    uint32_t f = five[i % 2 * 2 + i / 2];
                    lo[i] = lop_or(f << (4 - t), 0x10101010u, lo[i]), hi[i] = lop_or(f >> t, 0x10101010u, hi[i] >> 4);
                }
            }
            imma32<0>(low, lo[0], lo[1], lo[2], lo[3], b[0], b[1]);
            imma32<0>(high, hi[0], hi[1], hi[2], hi[3], b[2], b[3]);
            uint32_t more = e[c >> 1] >> 16 * (c & 1);
            int sc[2][2] = {{(int)(s[c] & 63), (int)(s[c] >> 6 & 63)},
                            {(int)(s[c] >> 12 & 63), (int)(s[c] >> 18 & 63)}},
                mn[2][2] = {{(int)(s[c] >> 24 & 63), (int)(more & 63)},
                            {(int)(more >> 6 & 63), (int)(s[c] >> 30 | (more >> 12 & 15) << 2)}};
            int2 sum = *(const int2 *)(x.row + IX_S32 + 8 * c);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int i0 = ix_join(low, h), i1 = ix_join(high, h);
                float n;
                if (FIVE)
                    n = __fmaf_rn((float)sc[h][1], (float)i1, __fmul_rn((float)sc[h][0], (float)i0));
                else
                    n = (float)(sc[h][0] * i0 + sc[h][1] * (i1 >> 4));
                float min = (float)(mn[h][0] * sum.x + mn[h][1] * sum.y);
                acc[h][c] = __fmaf_rn(scale, __fmaf_rn(d[h].x, n, -__fmul_rn(d[h].y, min)), acc[h][c]);
            }
        }
    }
#endif
};
template <> struct rows_of<DT_Q4_K> : four_q45_k<0> {
};
template <> struct rows_of<DT_Q5_K> : four_q45_k<1> {
};

template <> struct rows_of<DT_Q6_K> {
    static constexpr bool TAKES = true;

#if __CUDA_ARCH__ >= 800
    __device__ static inline void mul(const uint8_t *r, const four_rows &x, uint32_t lane, float (&acc)[2][4])
    {
        constexpr uint32_t N = 0x0f0f0f0fu, U = 0x30303030u;
        uint32_t g = lane >> 2;
        float q[2][4];
#pragma unroll
        for (int j = 0; j < 4; j++) { /* sub-blocks 4j .. 4j + 3, one of each quarter: words 2j and 2j + 1 */
            uint32_t b[4], w[2][2], f[2], s[2];
            ldm4(b, x.bytes + 64 * j);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                two_of(w[h], ((const uint2 *)(r + (2 * h + (j >> 1)) * 512 + lane * 16))[j & 1]);
                f[h] = ((const uint32_t *)(r + 2048 + 512 * h + lane * 16))[j];
                s[h] = ((const uint32_t *)(r + 3072 + 128 * h + 16 * g))[j];
            }
#pragma unroll
            for (int t = 0; t < 4; t++) {
                int c[4] = {0, 0, 0, 0}, n = ((const int *)(x.row + IX_S16 + 16 * t))[j];
                uint32_t a[2];
#pragma unroll
                for (int h = 0; h < 2; h++) { /* upper bits: 0 and 2 of a byte are the even word's, 4 and 6 the odd's */
                    uint32_t v = w[h][t >> 1], up = f[h];
                    if (t & 1)
                        a[h] = lop_or(t >> 1 ? up >> 2 : up << 2, U, v >> 4 & N);
                    else
                        a[h] = lop_or(t >> 1 ? up : up << 4, U, v & N);
                }
                imma16(c, a[0], a[1], b[t]);
#pragma unroll
                for (int h = 0; h < 2; h++)
                    q[h][t] = __fmaf_rn(f32_of_i8(s[h], t), (float)(ix_join(c, h) - 32 * n), j ? q[h][t] : 0.f);
            }
        }
        float scale = *(const float *)(x.row + IX_SCALE);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float d = __half2float(((const __half *)(r + 3328))[g + 8 * h]);
#pragma unroll
            for (int t = 0; t < 4; t++)
                acc[h][t] = __fmaf_rn(__fmul_rn(d, scale), q[h][t], acc[h][t]);
        }
    }
#endif
};

#endif
