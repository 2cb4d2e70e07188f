/*
 * split_kv.cuh - the arithmetic of an item of plan.cuh, which split_kv.cu, stream.cu and decode.cu share: each brings K
 * and V into a warp's fragments in its own way, with bit-identical results.
 */
#ifndef HEARTH_CUDA_ATTEND_SPLIT_KV_CUH
#define HEARTH_CUDA_ATTEND_SPLIT_KV_CUH

#include "kernels/cuda/attend/pages.cuh"

/* The sums of an item's WARPS warps, for ROWS rows of a tile. */
template <int D, int ROWS = TILE_ROWS, int WARPS = shape<D>::WARPS> struct scratch {
    float o[WARPS][ROWS][shape<D>::OLD], m[WARPS][ROWS], l[WARPS][ROWS];
};

/* A lane's initial state for an item whose rows have one position: what its rows 2t and 2t + 1 see, no maximum, no
 * sum. */
template <int D>
__device__ static inline void begin_item(const split_args &a, const item &it, int t, uint32_t at, int pos[2], int lo[2],
                                         float o[shape<D>::GROUPS][shape<D>::W][4], float m[2], float l[2])
{
    typedef shape<D> S;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        pos[e] = 2 * t + e < (int)it.rows ? (int)at : -1;
        lo[e] = (int)first_visible(pos[e], a.window);
        m[e] = -INFINITY, l[e] = 0;
    }
#pragma unroll
    for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
        for (int w = 0; w < S::W; w++)
            o[b][w][0] = o[b][w][1] = o[b][w][2] = o[b][w][3] = 0;
}

/*
 * Turns the scores c + odd of tokens tok and tok + 8 of a page, for the tile's rows 2t and 2t + 1, into probabilities
 * pr, the right operand of the product with V, and rescales the earlier sums to the new maximum. The two rows are
 * computed side by side, as each is a dependency chain of its own.
 */
template <int D>
__device__ static inline void online_softmax(const attend_args &a, float c[4], const float odd[4], const int pos[2],
                                             const int lo[2], int tok, float o[shape<D>::GROUPS][shape<D>::W][4],
                                             float m[2], float l[2], uint32_t pr[2])
{
    typedef shape<D> S;
    float top[2], base[2], rescale[2];
#pragma unroll
    for (int i = 0; i < 4; i++)
        c[i] = (c[i] + odd[i]) * a.scale;
    if (a.softcap != 0)
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[i] = act_softcap(c[i], a.softcap);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = tok + 8 * (i / 2);
        c[i] = at <= pos[i & 1] && at >= lo[i & 1] ? c[i] * LOG2E : -INFINITY;
    }
#pragma unroll
    for (int e = 0; e < 2; e++)
        top[e] = fmaxf(fmaxf(m[e], c[e]), c[2 + e]);
#pragma unroll
    for (int i = 4; i < 32; i *= 2)
#pragma unroll
        for (int e = 0; e < 2; e++)
            top[e] = fmaxf(top[e], __shfl_xor_sync(~0u, top[e], i));
#pragma unroll
    for (int e = 0; e < 2; e++) {
        base[e] = top[e] == -INFINITY ? 0.f : top[e];
        rescale[e] = exp2_fast(m[e] - base[e]);
        m[e] = top[e], l[e] = __fmul_rn(l[e], rescale[e]);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        /* the rounded probability, which multiplies V, is also what the denominator sums */
        __half2 w = __floats2half2_rn(exp2_fast(c[2 * h] - base[0]), exp2_fast(c[2 * h + 1] - base[1]));
        float2 f = __half22float2(w);
        l[0] = __fadd_rn(l[0], f.x), l[1] = __fadd_rn(l[1], f.y);
        pr[h] = transpose8(*(uint32_t *)&w);
    }
#pragma unroll
    for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
        for (int w = 0; w < S::W; w++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                o[b][w][i] *= rescale[i & 1];
}

/* pages.cuh's products for a page's K and V in shared memory: scores c + odd += K q, where k is the lane's first
 * dimension of token g; and o += V^T pr, where v is its first of token 2t. */
template <int D>
__device__ static inline void page_scores(const __half *k, const uint32_t q[shape<D>::J][4], float c[4], float odd[4])
{
#pragma unroll
    for (int j = 0; j < shape<D>::J; j++) {
        uint4 ka = *(const uint4 *)(k + 32 * j), kb = *(const uint4 *)(k + 8 * D + 32 * j);
        mma16816(c, ka.x, kb.x, ka.y, kb.y, q[j][0], q[j][1]);
        mma16816(odd, ka.z, kb.z, ka.w, kb.w, q[j][2], q[j][3]);
    }
}
template <int D>
__device__ static inline void page_values(const __half *v, const uint32_t pr[2],
                                          float o[shape<D>::GROUPS][shape<D>::W][4])
{
    typedef shape<D> F;
#pragma unroll
    for (int b = 0; b < F::GROUPS; b++) {
        uint32_t f[4][F::W];
#pragma unroll
        for (int e = 0; e < 4; e++) /* tokens 2t, 2t + 1, 2t + 8, 2t + 9 */
            *(uint4 *)f[e] = *(const uint4 *)(v + ((e & 1) + 8 * (e / 2)) * D + b * F::SPAN);
#pragma unroll
        for (int w = 0; w < F::W; w++)
            mma16816(o[b][w], __byte_perm(f[0][w], f[1][w], 0x5410), __byte_perm(f[0][w], f[1][w], 0x7632),
                     __byte_perm(f[2][w], f[3][w], 0x5410), __byte_perm(f[2][w], f[3][w], 0x7632), pr[0], pr[1]);
    }
}

/* The place of the i-th four dimensions of an item's results. */
struct four {
    uint32_t r, dim, row, head;
};
template <int D, class P>
__device__ static inline four four_at(const split_args &a, const P &p, const item &it, uint32_t i)
{
    four f;
    f.r = i / (D / 4), f.dim = i % (D / 4) * 4;
    f.head = head_of(a, p, it, f.r, &f.row);
    return f;
}
/* Adds the warps' sums of four dimensions of a chunk, in order. */
template <int D, int ROWS, int WARPS>
__device__ static inline void add_warps(const scratch<D, ROWS, WARPS> &x, four f, float &top, float &den, float y[4])
{
    top = -INFINITY, den = 0, y[0] = y[1] = y[2] = y[3] = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        top = fmaxf(top, x.m[w][f.r]);
    float base = top == -INFINITY ? 0.f : top;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        float u = exp2_fast(x.m[w][f.r] - base);
        float4 s = *(const float4 *)&x.o[w][f.r][f.dim];
        den += u * x.l[w][f.r];
        y[0] += u * s.x, y[1] += u * s.y, y[2] += u * s.z, y[3] += u * s.w;
    }
}
template <int D, class P>
__device__ static inline void store_partial(const split_args &a, const P &p, const item &it, uint32_t chunk, four f,
                                            float top, float den, const float y[4])
{
    float *to = partial<D>(a, p, it.s, f.row, f.head, chunk);
    *(float4 *)(to + f.dim) = make_float4(y[0], y[1], y[2], y[3]);
    if (!f.dim)
        *(float2 *)(to + D) = make_float2(top, den);
}
/* For an item of one chunk: stores a result where the rows see only this chunk, else partial sums. */
template <int D, class P, int ROWS, int WARPS>
__device__ static inline void reduce_warps(const split_args &a, const P &p, const scratch<D, ROWS, WARPS> &x,
                                           const item &it, four f)
{
    float top, den, y[4];
    add_warps(x, f, top, den, y);
    if (it.c_lo == it.c_hi) {
        den = 1.f / with_sink(a, f.head, top, den);
        for (int e = 0; e < 4; e++)
            y[e] *= den;
        store_quad<D>(a, f.row, f.head, f.dim, y);
    } else
        store_partial<D>(a, p, it, it.chunk, f, top, den, y);
}
/* For an item of several chunks, with sums x[chunk % REDUCE_SETS]: stores a result where the rows see only these
 * chunks, as reduce.cu would compute it from their partial sums, since each chunk is a set of its own there; else
 * partial sums. */
template <int D, class P>
__device__ static inline void reduce_chunks(const split_args &a, const P &p, const scratch<D> *x, const item &it,
                                            four f)
{
    float top[REDUCE_SETS], den[REDUCE_SETS], y[REDUCE_SETS][4], v[4];
    bool pieces = in_pieces(a, it);
#pragma unroll
    for (uint32_t k = 0; k < REDUCE_SETS; k++) {
        uint32_t chunk = it.chunk / REDUCE_SETS * REDUCE_SETS + k;
        top[k] = -INFINITY, den[k] = 0, y[k][0] = y[k][1] = y[k][2] = y[k][3] = 0;
        if (chunk < it.chunk || chunk > it.end)
            continue;
        add_warps(x[k], f, top[k], den[k], y[k]);
        if (pieces)
            store_partial<D>(a, p, it, chunk, f, top[k], den[k], y[k]);
    }
    if (pieces)
        return;
    join_sets<REDUCE_SETS>(
        a, f.head, top, den, [&](int k, int e) { return y[k][e]; }, v);
    store_quad<D>(a, f.row, f.head, f.dim, v);
}

/* Stores a warp's sums o of the tile's rows 2t and 2t + 1, with their maxima m and denominators l, for the item's other
 * warps. */
template <int D, int ROWS, int WARPS>
__device__ static inline void item_leave(scratch<D, ROWS, WARPS> &x, const item &it, uint32_t tid,
                                         const float o[shape<D>::GROUPS][shape<D>::W][4], const float m[2], float l[2])
{
    typedef shape<D> S;
    int warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 4; i < 32; i *= 2)
#pragma unroll
        for (int e = 0; e < 2; e++)
            l[e] += __shfl_xor_sync(~0u, l[e], i);
#pragma unroll
    for (int e = 0; e < 2; e++)
        if (2 * t + e < (int)it.rows) {
            if (!g)
                x.m[warp][2 * t + e] = m[e], x.l[warp][2 * t + e] = l[e];
#pragma unroll
            for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
                for (int w = 0; w < S::W; w++)
                    *(float2 *)&x.o[warp][2 * t + e][b * S::SPAN + 2 * (S::W * g + w)] =
                        make_float2(o[b][w][e], o[b][w][2 + e]);
        }
}
/* Calls f(four) for all results that an item's WARPS warps have stored sums of; mine is four_at() of thread tid. */
template <int D, int ROWS, int WARPS = shape<D>::WARPS, class P, class F>
__device__ static inline void item_each(const split_args &a, const P &p, const item &it, four mine, uint32_t tid, F f)
{
    if (mine.r < it.rows)
        f(mine);
    if (ROWS * D / 4 > WARPS * 32)
        for (uint32_t i = tid + WARPS * 32; i < it.rows * (D / 4); i += WARPS * 32)
            f(four_at<D>(a, p, it, i));
}
/* Ends an item of one chunk: its warps store their sums, and all threads add them in order. sync(): a barrier of the
 * WARPS * 32 threads. */
template <int D, int ROWS, int WARPS, class P, class Sync>
__device__ static inline void item_end(const split_args &a, const P &p, scratch<D, ROWS, WARPS> &x, const item &it,
                                       four mine, uint32_t tid, const float o[shape<D>::GROUPS][shape<D>::W][4],
                                       const float m[2], float l[2], Sync sync)
{
    item_leave<D>(x, it, tid, o, m, l);
    sync();
    item_each<D, ROWS, WARPS>(a, p, it, mine, tid, [&](four f) { reduce_warps<D>(a, p, x, it, f); });
}

#endif
