/* prefill.cuh - the layout of a prefill.cu block's shared memory, how tiles of KV get there, and where results go. */
#ifndef HEARTH_CUDA_ATTEND_PREFILL_CUH
#define HEARTH_CUDA_ATTEND_PREFILL_CUH

#include "kernels/cuda/attend/attend.cuh"
#include "kernels/cuda/kv_q8.cuh"

enum { LONG_ROWS = 128 };

/*
 * The two groups use barriers of their own, and take as many turns as their parts of the KV need. compute-sanitizer's
 * racecheck loses track of the block's barrier after those and reports the groups' final exchange; a build with
 * -DRACECHECK has all threads take the same turns and use the same barriers, and is what racecheck is run on.
 */
#ifdef RACECHECK
enum { TOGETHER = 1 };
#else
enum { TOGETHER = 0 };
#endif

template <int D, int G, bool Q8> struct tiles {
    static constexpr int GROUPS = G;                           /* of warps, each with all rows and its part of the KV */
    static constexpr int MT = D > 128 ? 1 : 2;                 /* tiles of 16 rows per warp */
    static constexpr int THREADS = LONG_ROWS / (16 * MT) * 32; /* of a group */
    static constexpr int BN = D > 128 ? 32 : 64;               /* tokens of KV per turn */
    static constexpr int ROW = D * 2 + 16; /* bytes: an odd multiple of 16, so that ldmatrix has no bank conflicts */
    static constexpr int Q = LONG_ROWS * ROW;
    static constexpr int BYTES = BN * ROW;                                     /* of K, or of V */
    static constexpr int STAGED = Q8 ? BN / KV_PAGE * (int)kv_q8_bytes(D) : 0; /* of either, as in the pages */
    static constexpr int SMEM = Q + GROUPS * 2 * (BYTES + STAGED);
};

/* A sequence's tiles that have rows of this launch: index of the first, and their number. */
__host__ __device__ static inline uint2 tiles_of(const attend_args &a, uint32_t row0, uint32_t n)
{
    uint32_t lo = a.row_lo > row0 ? a.row_lo : row0, hi = a.row_hi < row0 + n ? a.row_hi : row0 + n;
    if (n <= a.rows_max || lo >= hi)
        return make_uint2(0, 0);
    uint32_t first = (lo - row0) * a.group / LONG_ROWS;
    return make_uint2(first, ((hi - row0) * a.group + LONG_ROWS - 1) / LONG_ROWS - first);
}

/* Copies tokens from tok0 on of K, or of V, which is `off` halves further. */
template <int D, class T>
__device__ static inline void load_block(uint8_t *to, const attend_args &a, const uint32_t *pages, uint32_t head,
                                         uint32_t off, uint32_t tok0, uint32_t len)
{
    constexpr int C = D / 8; /* 16-byte pieces of a row */
    for (int i = threadIdx.x % T::THREADS; i < T::BN * C; i += T::THREADS) {
        uint32_t r = i / C, c = i % C, tok = tok0 + r;
        bool in = tok < len;
        uint32_t slot = in ? pages[tok / KV_PAGE] * KV_PAGE + tok % KV_PAGE : 0;
        cp_async16(to + r * T::ROW + 16 * c, kv_k(a.kv, slot, head) + off + 8 * c, in);
    }
    cp_async_commit();
}

/* The same for KV of Q8_0, page by page, into the staging area. */
template <int D, class T>
__device__ static inline void stage_block(uint8_t *to, const attend_args &a, const uint32_t *pages, uint32_t head,
                                          uint32_t off, uint32_t tok0, uint32_t len)
{
    constexpr int C = kv_q8_bytes(D) / 16; /* 16-byte pieces of a tile */
    for (int i = threadIdx.x % T::THREADS; i < T::BN / KV_PAGE * C; i += T::THREADS) {
        uint32_t p = i / C, c = i % C, tok = tok0 + p * KV_PAGE;
        bool in = tok < len;
        cp_async16(to + 16 * i, kv_q8_tile(a.kv, in ? pages[tok / KV_PAGE] : 0, head) + 2 * (uint64_t)off + 16 * c, in);
    }
    cp_async_commit();
}
/* Converts what was staged to what load_block() would have stored, 16 elements per thread at a time. Tokens past `len`
 * are zero. */
template <int D, class T>
__device__ static inline void expand_block(uint8_t *to, uint8_t *staged, uint32_t tok0, uint32_t len)
{
    constexpr int C = D / 16;
    for (int i = threadIdx.x % T::THREADS; i < T::BN * C; i += T::THREADS) {
        uint32_t r = i / C, c = i % C, slot = r % KV_PAGE;
        uint8_t *tile = staged + r / KV_PAGE * kv_q8_bytes(D);
        uint4 q = *(const uint4 *)(tile + slot * D + 16 * c);
        __half2 scale = __half2half2(kv_q8_scales(tile, D, slot)[c / 2]), h[8];
        const uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int w = 0; w < 4; w++)
            kv_q8_halves(words[w], h + 2 * w);
#pragma unroll
        for (int w = 0; w < 8; w++)
            h[w] = tok0 + r < len ? __hmul2(h[w], scale) : __half2half2(__ushort_as_half(0));
        *(uint4 *)(to + r * T::ROW + 32 * c) = *(const uint4 *)h;
        *(uint4 *)(to + r * T::ROW + 32 * c + 16) = *(const uint4 *)(h + 4);
    }
}

/* Stores four neighbouring elements of a row's results, from k on, without sub-block sums. */
template <int D>
__device__ static inline void store_four(const attend_args &a, uint32_t row, uint32_t k, const __half h[4])
{
    __half2 even = __halves2half2(h[0], h[2]), odd = __halves2half2(h[1], h[3]);
    if (a.out.layout >= LAYOUT_WG) {
        __half *at = wg_place(a.out, row, k, a.n_head * D);
        *(__half2 *)at = even, *(__half2 *)(at + a.out.ld * 8) = odd;
        return;
    }
    __half *to = act_row(a.out, row);
    if (a.out.layout)
        *(uint2 *)(to + k) = *(const uint2 *)h;
    else
        *(uint2 *)(to + xfrag_at(k)) = make_uint2(*(uint32_t *)&even, *(uint32_t *)&odd);
}

/* Multiplies results that are already rounded by their gates, where they have some. */
template <int D>
__device__ static inline void gate_halves(const attend_args &a, uint32_t row, uint32_t head, uint32_t dim, __half h[4])
{
    if (!a.gates)
        return;
    float v[4] = {__half2float(h[0]), __half2float(h[1]), __half2float(h[2]), __half2float(h[3])};
    apply_gates<D>(a, row, head, dim, v);
    for (int i = 0; i < 4; i++)
        h[i] = half_sat(v[i]);
}

/* Where the sums of a row's head over a piece of the context are: D sums, the maximum, the denominator. */
template <int D>
__device__ static inline float *sums_of(const attend_args &a, uint32_t piece, uint32_t row, uint32_t head)
{
    return a.part + ((uint64_t)(piece * a.split_rows + row - a.row_lo) * a.n_head + head) * (D + 4);
}

#endif
