/*
 * items.cuh - the epilogue of a product within its own kernel: bias, RoPE, queries and KV, the residual stream, the
 * activation of hidden units, logits.
 *
 * It works in items: for q|k|v the pair of rows of a rotation, otherwise one row. An item's place and the operands it
 * needs besides sums are fetched by functions of their own, so that gemv can do that before its sums are complete.
 */
#ifndef HEARTH_CUDA_GEMM_ITEMS_CUH
#define HEARTH_CUDA_GEMM_ITEMS_CUH

#include "kernels/cuda/gemm/gemm.cuh"

struct coord {
    uint32_t col, ta, tb, ra, rb, part, row, row2, head, k; /* head, k: of q|k|v, row's head and place in it */
    bool ok;
};
struct item {
    float a, b, freq, residual;
    uint32_t pos, slot; /* as loaded: computing with a value as soon as it is requested would wait for it */
    float sn, cs;
    void *to, *to2; /* NULL: not stored */
};

/*
 * The epilogues that a kernel's code is limited to. Code is fetched as it is executed, and a kernel's code displaces
 * the next one's, so a kernel should not contain what it never does. Telling the compiler about a.ep by an assumption
 * does not help: it forgets that at the next barrier.
 */
enum ends { ENDS_BY_EP, ENDS_PAIRS /* of q|k|v */, ENDS_ROWS };
template <enum ends ENDS> __device__ static inline bool ends_qkv(const gemm_args &a)
{
    return ENDS == ENDS_BY_EP ? a.ep == EP_QKV : ENDS == ENDS_PAIRS;
}

/* The number of items of a column in n tiles. */
template <enum ends ENDS = ENDS_BY_EP> __device__ static inline uint32_t n_items(const gemm_args &a, uint32_t n)
{
    return n * (ends_qkv<ENDS>(a) ? 8 : 16);
}

/* The place of item i: tiles and rows within the block's n tiles, the part and the row in it. GEMV: items are those of
 * column 0. */
template <bool GEMV, enum ends ENDS = ENDS_BY_EP, class T>
__device__ static inline coord coord_of(const gemm_args &a, uint32_t i, uint32_t n, T tile)
{
    coord o;
    o.ok = i < n_items<ENDS>(a, n) * (GEMV ? 1 : a.bucket);
    if (!o.ok)
        return o;
    uint32_t each = n_items<ENDS>(a, n), j = GEMV ? i : i % each;
    o.col = GEMV ? 0 : i / each;
    if (ends_qkv<ENDS>(a)) {
        bool neox = a.rope.kind == ROPE_NEOX;
        uint32_t half = a.rope.n_rot / 2;
        if (neox) { /* 16 pairs from two tiles, which gemv has side by side and skinny half a head apart */
            uint32_t d = GEMV ? 1 : half / 16, u = j / 16;
            o.ta = u / d * 2 * d + u % d, o.tb = o.ta + d, o.ra = o.rb = j % 16;
        } else
            o.ta = o.tb = j / 8, o.ra = j % 8 * 2, o.rb = o.ra + 1;
        const gemm_part &p = part_of(a, tile(o.ta));
        o.part = &p - a.part;
        o.row = (tile(o.ta) - p.tile0) * 16 + o.ra;
        o.row2 = o.row + (neox ? half : 1);
        o.head = o.row / a.d_head, o.k = o.row - o.head * a.d_head;
        o.ok = tile(o.tb) < a.tile_hi && o.row < p.n_out;
    } else {
        o.ta = o.tb = j / 16, o.ra = o.rb = j % 16;
        const gemm_part &p = part_of(a, tile(o.ta));
        o.part = &p - a.part;
        o.row = o.row2 = (tile(o.ta) - p.tile0) * 16 + o.ra;
        o.ok = tile(o.ta) < a.tile_hi && o.row < p.n_out;
    }
    return o;
}

/* Whether this pair of rows is rotated. */
template <enum ends ENDS = ENDS_BY_EP> __device__ static inline bool has_rope(const gemm_args &a, const coord &p)
{
    return ends_qkv<ENDS>(a) && p.ok && p.part < 2 &&
           (a.rope.kind == ROPE_NEOX || (a.rope.kind == ROPE_NORM && p.k + 1 < a.rope.n_rot));
}
/* Whether this is a query, which is multiplied by the attention temperature. */
template <enum ends ENDS = ENDS_BY_EP> __device__ static inline bool has_temperature(const gemm_args &a, const coord &p)
{
    return ends_qkv<ENDS>(a) && a.temperature.beta != 0 && p.ok && p.part == 0;
}
/* Loads the operands that no kernel of the step writes. */
template <enum ends ENDS = ENDS_BY_EP> __device__ static inline item item_load(const gemm_args &a, const coord &p)
{
    item m = {0, 0, 0, 0, 0, NO_SLOT, 0, 1, NULL, NULL};
    bool qkv = ends_qkv<ENDS>(a) && p.ok;
    uint32_t row0 = a.part[p.ok ? p.part : 0].row0, row = a.row0 + p.col;
    if (a.bias && p.ok)
        m.a = a.bias[row0 + p.row], m.b = a.bias[row0 + p.row2];
    if (has_rope<ENDS>(a, p))
        m.freq = rope_frequencies(a.rope, a.step, row)[a.rope.kind == ROPE_NEOX ? p.k : p.k / 2],
        m.pos = a.step->pos[row];
    if (has_temperature<ENDS>(a, p))
        m.pos = a.step->pos[row];
    if (qkv && p.part)
        m.slot = a.kv_slot[row];
    if (!qkv && p.ok)
        m.to = a.out + (uint64_t)row * a.ldout + row0 + p.row;
    return m;
}
/* Loads what an earlier kernel wrote. */
__device__ static inline void item_load_residual(const gemm_args &a, const coord &p, item &m)
{
    if (a.ep == EP_PROJ && p.ok)
        m.residual = __ldcg((const float *)m.to);
}
template <enum ends ENDS = ENDS_BY_EP>
__device__ static inline void item_rope(const gemm_args &a, const coord &p, item &m)
{
    if (has_rope<ENDS>(a, p)) {
        rope_sincos((float)m.pos, m.freq, &m.sn, &m.cs);
        m.sn *= a.rope.scale, m.cs *= a.rope.scale;
    }
    if (has_temperature<ENDS>(a, p)) {
        float by = temperature_at(a.temperature, m.pos);
        m.sn *= by, m.cs *= by;
    }
    if (!ends_qkv<ENDS>(a) || !p.ok)
        return;
    __half *to = NULL;
    if (p.part == 0)
        to = a.q + (uint64_t)(a.row0 + p.col) * a.ldq + p.head * a.d_head;
    else if (m.slot != NO_SLOT)
        to = p.part == 1 ? kv_k(a.kv, m.slot, p.head) : kv_v(a.kv, m.slot, p.head);
    if (to)
        m.to = to + p.k, m.to2 = to + p.k + p.row2 - p.row;
}

/* Finishes a row whose product is x. */
__device__ static inline void epilogue_row(const gemm_args &a, const item &m, float x)
{
    if (a.ep == EP_PROJ)
        x = __fadd_rn(m.residual, __fmul_rn(__fadd_rn(x, m.a), a.scale));
    else if (a.ep == EP_LOGITS) {
        x = __fmul_rn(__fadd_rn(x, m.a), a.scale);
        x = a.softcap != 0 ? act_softcap(x, a.softcap) : x;
    }
    *(float *)m.to = x;
}
/* Finishes a pair of rows of q|k|v; eight neighbouring lanes call it for eight neighbouring pairs. */
__device__ static inline void epilogue_pair(const gemm_args &a, const coord &p, const item &m, float x, float y)
{
    x = __fadd_rn(x, m.a), y = __fadd_rn(y, m.b);
    if (has_rope<ENDS_PAIRS>(a, p) || a.temperature.beta != 0) { /* unrotated: sn is 0, cs 1 or the temperature */
        float xr = __fmaf_rn(x, m.cs, -__fmul_rn(y, m.sn));
        y = __fmaf_rn(x, m.sn, __fmul_rn(y, m.cs)), x = xr;
    }
    if (p.part < 2 && a.rope.hadamard) {
        float s = __fadd_rn(x, y) * 0.25f, t = __fsub_rn(x, y) * 0.25f;
#pragma unroll
        for (int k = 1; k < 8; k *= 2) {
            uint32_t eight = 0xffu << (threadIdx.x & 24);
            float os = __shfl_xor_sync(eight, s, k), ot = __shfl_xor_sync(eight, t, k);
            s = threadIdx.x & k ? __fsub_rn(os, s) : __fadd_rn(s, os);
            t = threadIdx.x & k ? __fsub_rn(ot, t) : __fadd_rn(t, ot);
        }
        x = s, y = t;
    }
    if (!m.to)
        return;
    if (p.part == 2 && (isnan(x) || isnan(y))) {
        value_is_nan(a.out + (uint64_t)(a.row0 + p.col) * a.ldout);
        x = isnan(x) ? 0.f : x, y = isnan(y) ? 0.f : y;
    }
    *(__half *)m.to = half_sat(x), *(__half *)m.to2 = half_sat(y);
}
template <class V> __device__ static inline void epilogue_item(const gemm_args &a, const coord &p, V val, const item &m)
{
    if (!p.ok)
        return;
    float x = val(p.ta, p.ra, p.col);
    if (a.ep == EP_QKV)
        epilogue_pair(a, p, m, x, val(p.tb, p.rb, p.col));
    else
        epilogue_row(a, m, x);
}

/* The GLU of a block of skinny: hidden units in whole sub-blocks of 32, and the sub-blocks' sums. */
template <class T, class V>
__device__ static inline void epilogue_glu(const gemm_args &a, T tile, V val, uint32_t tid, uint32_t threads,
                                           uint32_t col0, uint32_t cols)
{
    uint32_t e = a.glu_rows, d_ff = a.part[0].n_out, each = WARPS * e;
    for (uint32_t i = each * col0 + tid; i < each * (col0 + cols); i += threads) {
        uint32_t col = i / each, j = i % each, t = e == 8 ? j / 8 : j / 16, r = j & (e - 1), u = tile(t) * e + r;
        bool mine = u < (d_ff + 255) / 256 * 256 && tile(t) < a.tile_hi;
        float v = 0;
        if (mine && u < d_ff) {
            v = glu_act(a.glu, __fadd_rn(val(t, r, col), a.bias ? a.bias[u] : 0.f));
            if (e == 8)
                v *= __fadd_rn(val(t, r + 8, col), a.bias ? a.bias[d_ff + u] : 0.f);
        }
        __half h = half_sat(v), *row = a.ff.p + (uint64_t)(a.row0 + col) * a.ff.ld;
        float f = __half2float(h), s = f;
#pragma unroll
        for (int w = 1; w < 4; w++) /* fours in order: lane 4i adds 4i + 1, 2, 3 */
            s = __fadd_rn(s, __shfl_down_sync(~0u, f, w));
#pragma unroll
        for (int w = 4; w < 32; w *= 2)
            s = __fadd_rn(s, __shfl_xor_sync(~0u, s, w));
        if (mine)
            row[xfrag_at(u)] = h;
        if (mine && u % 32 == 0) {
            __half hi = half_sat(s);
            row[xfrag_sum_at(u)] = hi;
            row[xfrag_sum_at(u) + 8] = half_sat(__fsub_rn(s, __half2float(hi)));
        }
    }
}

/* The epilogue of columns col0 to col0 + cols of the launch. BATCH: items whose operands are loaded together. */
template <int BATCH, class T, class V>
__device__ static inline void epilogue_skinny(const gemm_args &a, T tile, V val, uint32_t tid, uint32_t threads,
                                              uint32_t col0, uint32_t cols)
{
    if (a.ep == EP_GLU) {
        epilogue_glu(a, tile, val, tid, threads, col0, cols);
        return;
    }
    uint32_t each = n_items(a, WARPS), end = each * (col0 + cols);
    auto coord_at = [&](uint32_t i) {
        coord p = coord_of<false>(a, i, WARPS, tile);
        p.ok = p.ok && i < end;
        return p;
    };
    for (uint32_t i = each * col0 + tid; i < end; i += BATCH * threads) {
        item m[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            coord p = coord_at(i + j * threads);
            m[j] = item_load(a, p);
            item_load_residual(a, p, m[j]);
        }
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            coord p = coord_at(i + j * threads);
            item_rope(a, p, m[j]);
            epilogue_item(a, p, val, m[j]);
        }
    }
}

#endif
