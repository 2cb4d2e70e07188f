/*
 * pages.cuh - a page's K and V of one head in the registers of a warp, as split_kv.cu multiplies with them: fragments
 * of mma.m16n8k16, which fp16 KV gives as loaded, and Q8_0 when it is converted at use. Both types have:
 *
 *   load_k, load_v   load K and V, from global memory straight into registers
 *   scores           c + odd += K q: tokens g and g + 8, two chains of sums
 *   values           o += V^T pr
 *   prefetch         prefetches both into L2
 *
 * A lane is (g, t) = (lane / 4, lane % 4). It has dimensions 32j + 8t .. + 7 of K's tokens g and g + 8, as q has them,
 * and dimensions b SPAN + 2W g .. + 2W - 1 of V's tokens 2t, 2t + 1, 2t + 8 and 2t + 9.
 */
#ifndef HEARTH_CUDA_ATTEND_PAGES_CUH
#define HEARTH_CUDA_ATTEND_PAGES_CUH

#include "kernels/cuda/attend/plan.cuh"
#include "kernels/cuda/kv_q8.cuh"

template <int D> struct shape {
    static constexpr int WARPS = attend_warps(D);
    static constexpr int PAGES = fixed_pages(D) / WARPS; /* of a fixed chunk, per warp */
    static constexpr int J = (D + 31) / 32;              /* steps of QK: 32 dimensions, 16 bytes of a row per lane */
    static constexpr int SPAN = D % 64 == 0 ? 64 : D % 32 == 0 ? 32 : 16;
    static constexpr int W = SPAN / 16;     /* words of V that a lane loads: dimensions 2W * g + i */
    static constexpr int GROUPS = D / SPAN; /* of dimensions */
    static constexpr int OLD = D + 4;       /* floats from row to row of the sums */
};

/* Volatile, so loads stay in order, and from L2: after the wait a load must not hit what a load before it brought into
 * L1. */
template <int W> __device__ static inline void load(uint32_t *to, const void *from)
{
    if constexpr (W == 4)
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "l"(from));
    else if constexpr (W == 2)
        asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(from));
    else
        asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(to[0]) : "l"(from));
}
__device__ static inline uint32_t load_half(const void *from)
{
    uint16_t v;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(v) : "l"(from));
    return v;
}

/* Prefetches a tile's bytes into L2, by a warp. */
template <int BYTES> __device__ static inline void prefetch_l2(const void *from, int lane)
{
#pragma unroll
    for (int i = lane; i < (BYTES + 127) / 128; i += 32)
        asm volatile("prefetch.global.L2 [%0];" ::"l"((const char *)from + 128 * i));
}

/* The token of V that a lane's e-th fragment belongs to. */
__device__ static inline int token_of(int t, int e)
{
    return 2 * t + (e & 1) + 8 * (e / 2);
}

template <int D> struct page_f16 {
    typedef shape<D> S;
    uint32_t k[S::J][2][4], v[S::GROUPS][4][S::W];

    __device__ static inline void prefetch(const kv_view &kv, uint32_t page, uint32_t head, int lane)
    {
        const __half *from = kv_k(kv, page * KV_PAGE, head);
        prefetch_l2<KV_PAGE * D * 2>(from, lane);
        prefetch_l2<KV_PAGE * D * 2>(from + kv.v_off, lane);
    }
    __device__ inline void load_k(const kv_view &kv, uint32_t page, uint32_t head, int g, int t)
    {
        const __half *from = kv.base + page * kv.page_step + (head * KV_PAGE + g) * D + 8 * t;
#pragma unroll
        for (int j = 0; j < S::J; j++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (D % 32 == 0 || 32 * j + 8 * t < D)
                    load<4>(k[j][e], from + 8 * e * D + 32 * j);
                else
                    k[j][e][0] = k[j][e][1] = k[j][e][2] = k[j][e][3] = 0;
    }
    __device__ inline void load_v(const kv_view &kv, uint32_t page, uint32_t head, int g, int t)
    {
        const __half *from = kv.base + kv.v_off + page * kv.page_step + (head * KV_PAGE + 2 * t) * D + 2 * S::W * g;
#pragma unroll
        for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                load<S::W>(v[b][e], from + token_of(0, e) * D + b * S::SPAN);
    }
    __device__ inline void scores(float c[4], float odd[4], const uint32_t q[S::J][4]) const
    {
#pragma unroll
        for (int j = 0; j < S::J; j++) {
            mma16816(c, k[j][0][0], k[j][1][0], k[j][0][1], k[j][1][1], q[j][0], q[j][1]);
            mma16816(odd, k[j][0][2], k[j][1][2], k[j][0][3], k[j][1][3], q[j][2], q[j][3]);
        }
    }
    __device__ inline void values(float o[S::GROUPS][S::W][4], const uint32_t pr[2], int) const
    {
#pragma unroll
        for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
            for (int w = 0; w < S::W; w++)
                mma16816(o[b][w], __byte_perm(v[b][0][w], v[b][1][w], 0x5410),
                         __byte_perm(v[b][0][w], v[b][1][w], 0x7632), __byte_perm(v[b][2][w], v[b][3][w], 0x5410),
                         __byte_perm(v[b][2][w], v[b][3][w], 0x7632), pr[0], pr[1]);
    }
};

/*
 * KV of Q8_0. Keys are multiplied as integers, and the sum of each block of 32 is then multiplied by its token's scale,
 * so keys are not rounded. A fragment of values has dimensions of two blocks and tokens of four scales, so values are
 * multiplied by their scales before the product: rounded once, as fp16 KV is.
 */
template <int D> struct page_q8 {
    typedef shape<D> S;
    static constexpr int N = D / KV_Q8_BLOCK, WORDS = (N + 1) / 2; /* scales of a vector; registers for them */
    uint32_t k[S::J][2][2], v[S::GROUPS][4][S::W / 2], k_scale[2][WORDS], v_scale[4][WORDS];
    static_assert(D % KV_Q8_BLOCK || (S::J == N && S::W % 2 == 0), "whole blocks");

    __device__ static inline void prefetch(const kv_view &kv, uint32_t page, uint32_t head, int lane)
    {
        const uint8_t *from = kv_q8_tile(kv, page, head);
        prefetch_l2<kv_q8_bytes(D)>(from, lane);
        prefetch_l2<kv_q8_bytes(D)>(from + 2 * (uint64_t)kv.v_off, lane);
    }
    /* Loads a vector's scales, in pairs where vectors begin on whole words. */
    __device__ static inline void load_scales(uint32_t to[WORDS], const uint8_t *tile, int slot)
    {
        const uint8_t *from = tile + KV_PAGE * D + slot * 2 * N;
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            if constexpr (N % 4 == 0) {
                if (i % 2 == 0)
                    load<2>(to + i, from + 4 * i);
            } else if constexpr (N % 2 == 0)
                load<1>(to + i, from + 4 * i);
            else {
                uint32_t lo = load_half(from + 4 * i), hi = 2 * i + 1 < N ? load_half(from + 4 * i + 2) : 0;
                to[i] = lo | hi << 16;
            }
    }
    __device__ inline void load_k(const kv_view &kv, uint32_t page, uint32_t head, int g, int t)
    {
        const uint8_t *tile = kv_q8_tile(kv, page, head);
#pragma unroll
        for (int j = 0; j < S::J; j++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                load<2>(k[j][e], tile + (g + 8 * e) * D + 32 * j + 8 * t);
#pragma unroll
        for (int e = 0; e < 2; e++)
            load_scales(k_scale[e], tile, g + 8 * e);
    }
    __device__ inline void load_v(const kv_view &kv, uint32_t page, uint32_t head, int g, int t)
    {
        const uint8_t *tile = kv_q8_tile(kv, page, head) + 2 * (uint64_t)kv.v_off;
#pragma unroll
        for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                load<S::W / 2>(v[b][e], tile + token_of(t, e) * D + b * S::SPAN + 2 * S::W * g);
#pragma unroll
        for (int e = 0; e < 4; e++)
            load_scales(v_scale[e], tile, token_of(t, e));
    }
    __device__ inline void scores(float c[4], float odd[4], const uint32_t q[S::J][4]) const
    {
#pragma unroll
        for (int j = 0; j < S::J; j++) {
            uint32_t a[2][4];
            float sum[4] = {};
#pragma unroll
            for (int e = 0; e < 2; e++)
#pragma unroll
                for (int w = 0; w < 2; w++)
                    kv_q8_halves(k[j][e][w], (__half2 *)&a[e][2 * w]);
            mma16816(sum, a[0][0], a[1][0], a[0][1], a[1][1], q[j][0], q[j][1]);
            mma16816(sum, a[0][2], a[1][2], a[0][3], a[1][3], q[j][2], q[j][3]);
            float *to = j % 2 ? odd : c;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float2 scale = __half22float2(*(const __half2 *)&k_scale[i / 2][j / 2]);
                to[i] = __fmaf_rn(sum[i], j % 2 ? scale.y : scale.x, to[i]);
            }
        }
    }
    __device__ inline void values(float o[S::GROUPS][S::W][4], const uint32_t pr[2], int g) const
    {
#pragma unroll
        for (int b = 0; b < S::GROUPS; b++) {
            uint32_t a[4][S::W];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int block = b * S::SPAN / KV_Q8_BLOCK; /* that of the group's first dimensions; 64 dimensions are two */
                bool second = S::SPAN == 64 ? g >= 4 : block % 2;
                uint32_t scale = __byte_perm(v_scale[e][block / 2], 0, second ? 0x3232 : 0x1010);
#pragma unroll
                for (int w = 0; w < S::W / 2; w++) {
                    kv_q8_halves(v[b][e][w], (__half2 *)&a[e][2 * w]);
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        __half2 *x = (__half2 *)&a[e][2 * w + i];
                        *x = __hmul2(*x, *(const __half2 *)&scale);
                    }
                }
            }
#pragma unroll
            for (int w = 0; w < S::W; w++)
                mma16816(o[b][w], __byte_perm(a[0][w], a[1][w], 0x5410), __byte_perm(a[0][w], a[1][w], 0x7632),
                         __byte_perm(a[2][w], a[3][w], 0x5410), __byte_perm(a[2][w], a[3][w], 0x7632), pr[0], pr[1]);
        }
    }
};

#endif
