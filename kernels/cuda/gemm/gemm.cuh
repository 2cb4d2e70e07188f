/*
 * gemm.cuh - the decode path's matrix product: two kernels over T16 weights (tile16.cuh), and what follows a product.
 *
 * gemv (gemv.cuh) is for one to four rows times quantised weights, in integers. skinny (skinny.cuh, copied.cuh) is for
 * up to 64 rows, in fp16, and for one row where weights are floats or the chip is older than Ampere (it then reads
 * weights and activations straight from memory). A block of skinny takes groups of eight tiles, a warp each, so that a
 * record of activations, streamed beside the weights, serves 128 rows. A matrix of too few groups is cut into its
 * chunks of K over eight blocks; the last to arrive adds the chunks in order.
 *
 * A row's bits are the same in every launch of one of them; the invariant mode keeps a matrix to one of them whatever
 * the number of rows.
 */
#ifndef HEARTH_CUDA_GEMM_CUH
#define HEARTH_CUDA_GEMM_CUH

#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/gemm/rownorm.cuh"
#include "kernels/cuda/quant/quant.cuh"

enum gemm_epilogue {
    EP_TMP,  /* to ws.tmp: another kernel finishes */
    EP_QKV,  /* bias, RoPE, queries and KV */
    EP_PROJ, /* added to ws.x */
    EP_GLU,  /* act(gate) * up, prepared for `down` */
    EP_LOGITS,
};

struct gemm_part {
    uint32_t tile0, n_tile, row0, n_out, second; /* second: of type TB */
    uint64_t off;
};

struct gemm_args {
    const uint8_t *w;
    struct gemm_part part[3];
    uint32_t n_part, n_kblk;
    uint32_t tile_lo, tile_hi; /* tiles of this launch */
    uint32_t pair;             /* gemv: tiles this far apart within 2 * pair are finished together; 0 = alone */
    uint32_t stage_bytes;      /* gemv: bytes of a stage */
    uint32_t in_flight;        /* gemv: stages on their way at a time, one a set, ... */
    uint32_t blocks;           /* gemv, one row: of a processor that there is to be shared memory for; 0: two */
    uint32_t stages, split_k;  /* skinny: split = blocks over K, 1 or K_SLICES */
    uint32_t row0, bucket;
    bool gemv;
    bool ahead;     /* gemv: ... and two at least once the ring was filled */
    bool bulk;      /* the ring is filled by bulk copies */
    uint16_t round; /* gemv, in rounds: k-blocks of a slice that a round takes */
    /* activations: prepared rows, or f32 rows to be normed (gemv) */
    const __half *x;
    uint32_t k;
    const float *xf;
    uint32_t ldxf;
    struct norm norm;
    const uint32_t *gather;
    /* what follows */
    enum gemm_epilogue ep;
    const float *bias;
    float *out; /* TMP, PROJ, LOGITS; QKV: ACT_X */
    uint32_t ldout;
    float scale, softcap; /* PROJ: of the residual; LOGITS */
    enum glu_kind glu;
    uint32_t glu_rows; /* hidden units a tile holds: 8 where gate and up share it */
    act_buf ff;
    uint32_t n_head, n_kv, d_head;
    struct rope rope;
    struct attend_temperature temperature;
    struct {
        const float *w; /* NULL: none */
        float eps;
    } head_norm[3]; /* gemv, NEOX: RMS norms of q's, k's and v's heads, each over the d_head of a head (heads.cuh) */
    bool pairs;     /* gemv, one row: two tiles a block, see gemm.cu's in_pairs() */
    struct row_norm row_norm; /* PROJ in pairs: of the row before it is added */
    __half *q;
    uint32_t ldq;
    kv_view kv;
    const step_dev *step;
    const uint32_t *kv_slot;  /* QKV: of the op's layer group */
    const uint32_t *prefetch; /* gemv, one row: its block table, of which first keys are asked into L2, or NULL */
    uint32_t prefetch_items;
    float *split_k_partials;
    uint32_t *semaphore;
    ulonglong2 *x_said; /* gemv, TMP: a slot that is told when x is whole, or NULL */
    uint32_t x_nth;     /* said_tag() */
};

enum { WARPS = 8, CONSUMERS = WARPS * 32, BLOCK = CONSUMERS + 32 };

template <int N = CONSUMERS> __device__ static inline void consumers_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(N) : "memory");
}

/* --- activations ------------------------------------------------------------------------------------------------ */

/*
 * A prepared record by one warp: eight consecutive elements a lane, in the record's order. The four lanes of a
 * sub-block form its sum as epilogue.cu forms it: fours in order, then pairs of fours.
 */
__device__ static inline void xfrag_store_sums(__half *kblk, uint32_t lane, uint4 v)
{
    float2 a = __half22float2(*(const __half2 *)&v.x), b = __half22float2(*(const __half2 *)&v.y); /* 0, 2; 1, 3 */
    float2 c = __half22float2(*(const __half2 *)&v.z), d = __half22float2(*(const __half2 *)&v.w);
    float s = __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(a.x, b.x), a.y), b.y),
                        __fadd_rn(__fadd_rn(__fadd_rn(c.x, d.x), c.y), d.y));
    s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 1));
    s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 2));
    if (!(lane & 3)) {
        __half hi = half_sat(s);
        kblk[XFRAG_SUM + (lane >> 2)] = hi;
        kblk[XFRAG_SUM + 8 + (lane >> 2)] = half_sat(__fsub_rn(s, __half2float(hi)));
    }
}
__device__ static inline uint32_t eight_at(uint32_t lane)
{
    return (lane >> 3) * XFRAG_GROUP + (lane & 7) * 8;
}

/* An RMS norm's factor can be multiplied with what the matrix makes of the row. */
__host__ __device__ static inline bool norm_deferrable(const struct norm &n)
{
    return n.kind == NORM_RMS && !n.b;
}

__device__ static inline void load_eight(float v[8], const float *x, uint32_t k, uint32_t n)
{
    if (k + 8 <= n && !((uintptr_t)x & 15)) {
        float4 a = __ldcg((const float4 *)(x + k)), b = __ldcg((const float4 *)(x + k + 4));
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else
        for (int i = 0; i < 8; i++)
            v[i] = k + i < n ? __ldcg(x + k + i) : 0.f;
}

/* The block's sum over its eight consumer warps, in their order. */
__device__ static inline float consumers_sum(float s, float *shared, uint32_t warp, uint32_t lane)
{
#pragma unroll
    for (int i = 16; i; i /= 2)
        s = __fadd_rn(s, __shfl_xor_sync(~0u, s, i));
    if (!lane)
        shared[warp] = s;
    consumers_sync();
    s = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        s = __fadd_rn(s, shared[i]);
    return s;
}

/*
 * norm(x), or x where there is no norm, of a row of n into prepared records, by eight warps, a chunk each. row() waits
 * for the kernel before and gives x; the norm's weights, which nobody writes, are on their way by then. Up to KEEP
 * records of a chunk stay in registers, the rest is read again. step: halves from record to record at dst; shared: 16
 * floats.
 */
template <class X>
__device__ static inline void norm_chunks(X row, uint32_t n, const struct norm &nm, uint32_t n_kblk, __half *dst,
                                          uint32_t step, float *shared, uint32_t warp, uint32_t lane)
{
    enum { KEEP = 2 };
    uint32_t r0 = t16_slice(n_kblk, warp), r1 = t16_slice(n_kblk, warp + 1);
    auto weights = [&](float *to, uint32_t r) {
        if (nm.kind != NORM_NONE)
            load_eight(to, nm.w, r * 256 + lane * 8, n);
        else
            for (int j = 0; j < 8; j++)
                to[j] = 1;
    };
    float v[KEEP][8], wt[KEEP][8], far[8], mean = 0, s = 0;
#pragma unroll
    for (int i = 0; i < KEEP; i++)
        if (r0 + i < r1)
            weights(wt[i], r0 + i);
    const float *x = row();
#pragma unroll
    for (int i = 0; i < KEEP; i++)
        if (r0 + i < r1)
            load_eight(v[i], x, (r0 + i) * 256 + lane * 8, n);
    if (nm.kind == NORM_LAYER) {
#pragma unroll
        for (int i = 0; i < KEEP; i++)
            if (r0 + i < r1)
                for (int j = 0; j < 8; j++)
                    s = __fadd_rn(s, v[i][j]);
        for (uint32_t r = r0 + KEEP; r < r1; r++) {
            load_eight(far, x, r * 256 + lane * 8, n);
            for (int j = 0; j < 8; j++)
                s = __fadd_rn(s, far[j]);
        }
        mean = consumers_sum(s, shared, warp, lane) / n;
        s = 0;
    }
    auto square = [&](const float *f, uint32_t r) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float c = r * 256 + lane * 8 + j < n ? __fsub_rn(f[j], mean) : 0.f;
            s = __fmaf_rn(c, c, s);
        }
    };
#pragma unroll
    for (int i = 0; i < KEEP; i++)
        if (r0 + i < r1)
            square(v[i], r0 + i);
    for (uint32_t r = r0 + KEEP; r < r1; r++) {
        load_eight(far, x, r * 256 + lane * 8, n);
        square(far, r);
    }
    float scale = rsqrtf(__fadd_rn(consumers_sum(s, shared + WARPS, warp, lane) / n, nm.eps));
    if (nm.kind == NORM_NONE)
        scale = 1;
    auto store = [&](const float *f, const float *w, uint32_t r) {
        __half h[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            uint32_t k = r * 256 + lane * 8 + j;
            float y = k < n ? __fmul_rn(__fmul_rn(__fsub_rn(f[j], mean), scale), w[j]) : 0.f;
            h[j] = half_sat(nm.b && k < n ? __fadd_rn(y, nm.b[k]) : y);
        }
        __half o[8] = {h[0], h[2], h[1], h[3], h[4], h[6], h[5], h[7]};
        *(uint4 *)(dst + r * step + eight_at(lane)) = *(const uint4 *)o;
        xfrag_store_sums(dst + r * step, lane, *(const uint4 *)o);
    };
#pragma unroll
    for (int i = 0; i < KEEP; i++)
        if (r0 + i < r1)
            store(v[i], wt[i], r0 + i);
    for (uint32_t r = r0 + KEEP; r < r1; r++) {
        load_eight(far, x, r * 256 + lane * 8, n);
        weights(wt[0], r);
        store(far, wt[0], r);
    }
}

/* --- what follows a product --------------------------------------------------------------------------------------- */

__device__ static inline const gemm_part &part_of(const gemm_args &a, uint32_t tile)
{
    int i = 0;
    while (i + 1 < (int)a.n_part && tile >= a.part[i + 1].tile0)
        i++;
    return a.part[i];
}
/* The i-th tile of a block's list, for tiles finished in pairs (NEOX: a rotation's two rows lie half a head apart). */
__device__ static inline uint32_t tile_at(const gemm_args &a, uint32_t i)
{
    if (!a.pair)
        return a.tile_lo + blockIdx.x + i * gridDim.x;
    uint32_t u = blockIdx.x + i / 2 * gridDim.x;
    return a.tile_lo + u / a.pair * 2 * a.pair + u % a.pair + (i & 1) * a.pair;
}

/*
 * What follows is done in items: a rotation's pair of rows for q|k|v, a row otherwise. Where an item lies and what it
 * needs besides sums is fetched apart from its end, so that gemv has it before its sums are there.
 */
struct coord {
    uint32_t col, ta, tb, ra, rb, part, row, row2, head, k; /* head, k: of q|k|v, where row lies in its part */
    bool ok;
};
struct item {
    float a, b, freq, residual;
    uint32_t pos, slot; /* nothing is made of what was asked for before it is wanted: that would wait for it */
    float sn, cs;
    void *to, *to2; /* NULL: nowhere */
};
/* Items of a column in n tiles. */
__device__ static inline uint32_t n_items(const gemm_args &a, uint32_t n)
{
    return n * (a.ep == EP_QKV ? 8 : 16);
}

/* Where item i lies: tiles and rows within the block's n tiles, the part and the row there. GEMV: of column 0. */
template <bool GEMV, class T>
__device__ static inline coord coord_of(const gemm_args &a, uint32_t i, uint32_t n, T tile)
{
    coord o;
    o.ok = i < n_items(a, n) * (GEMV ? 1 : a.bucket);
    if (!o.ok)
        return o;
    uint32_t each = n_items(a, n), j = GEMV ? i : i % each;
    o.col = GEMV ? 0 : i / each;
    if (a.ep == EP_QKV) {
        bool neox = a.rope.kind == ROPE_NEOX;
        uint32_t half = a.rope.n_rot / 2;
        if (neox) { /* 16 pairs from two tiles; gemv has them side by side, skinny half a head apart */
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

/* A rotation that this pair of rows takes part in. */
__device__ static inline bool has_rope(const gemm_args &a, const coord &p)
{
    return a.ep == EP_QKV && p.ok && p.part < 2 &&
           (a.rope.kind == ROPE_NEOX || (a.rope.kind == ROPE_NORM && p.k + 1 < a.rope.n_rot));
}
/* A query that the attention temperature is multiplied with. */
__device__ static inline bool has_temperature(const gemm_args &a, const coord &p)
{
    return a.ep == EP_QKV && a.temperature.beta != 0 && p.ok && p.part == 0;
}
/* What no kernel of the step writes. */
__device__ static inline item item_load(const gemm_args &a, const coord &p)
{
    item m = {0, 0, 0, 0, 0, NO_SLOT, 0, 1, NULL, NULL};
    bool qkv = a.ep == EP_QKV && p.ok;
    uint32_t row0 = a.part[p.ok ? p.part : 0].row0, row = a.row0 + p.col;
    if (a.bias && p.ok)
        m.a = a.bias[row0 + p.row], m.b = a.bias[row0 + p.row2];
    if (has_rope(a, p))
        m.freq = rope_frequencies(a.rope, a.step, row)[a.rope.kind == ROPE_NEOX ? p.k : p.k / 2],
        m.pos = a.step->pos[row];
    if (has_temperature(a, p))
        m.pos = a.step->pos[row];
    if (qkv && p.part)
        m.slot = a.kv_slot[row];
    if (!qkv && p.ok)
        m.to = a.out + (uint64_t)row * a.ldout + row0 + p.row;
    return m;
}
/* What an earlier one left. */
__device__ static inline void item_load_residual(const gemm_args &a, const coord &p, item &m)
{
    if (a.ep == EP_PROJ && p.ok)
        m.residual = __ldcg((const float *)m.to);
}
__device__ static inline void item_rope(const gemm_args &a, const coord &p, item &m)
{
    if (has_rope(a, p)) {
        rope_sincos((float)m.pos, m.freq, &m.sn, &m.cs);
        m.sn *= a.rope.scale, m.cs *= a.rope.scale;
    }
    if (has_temperature(a, p)) {
        float by = temperature_at(a.temperature, m.pos);
        m.sn *= by, m.cs *= by;
    }
    if (a.ep != EP_QKV || !p.ok)
        return;
    __half *to = NULL;
    if (p.part == 0)
        to = a.q + (uint64_t)(a.row0 + p.col) * a.ldq + p.head * a.d_head;
    else if (m.slot != NO_SLOT)
        to = p.part == 1 ? kv_k(a.kv, m.slot, p.head) : kv_v(a.kv, m.slot, p.head);
    if (to)
        m.to = to + p.k, m.to2 = to + p.k + p.row2 - p.row;
}

/* The end of a row whose product is x. */
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
/* ... of a pair of rows of q|k|v, eight pairs by eight neighbouring lanes. */
__device__ static inline void epilogue_pair(const gemm_args &a, const coord &p, const item &m, float x, float y)
{
    x = __fadd_rn(x, m.a), y = __fadd_rn(y, m.b);
    if (has_rope(a, p) || a.temperature.beta != 0) { /* what does not turn turns by nothing */
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

/* Hidden units of a block of skinny, whole sub-blocks of 32, and their sums. */
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

/* Of columns col0 to col0 + cols of the launch's. BATCH: items whose operands are on their way together. */
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

/* --- launching --------------------------------------------------------------------------------------------------- */

/* The shared memory of two resident blocks, or of one. */
static inline uint32_t smem_for(const struct device *d, int blocks)
{
    uint32_t all = (uint32_t)d->smem_max + 1024; /* a block has 1 KiB of the system's besides its own */
    return all / blocks - 1024;
}

template <typename K> static inline void smem_once(struct device *d, K *k, uint32_t *done)
{
    if (*done >> d->index & 1)
        return;
    cuda_smem(d, k, d->smem_card);
    *done |= 1u << d->index;
}

static inline uint32_t min_u(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* One per type (one_type.cu), and per pair of types in one q|k|v. */
typedef void gemm_fn(struct device *d, gemm_args &a);
#define X(t, T, number) extern gemm_fn gemm_##t;
QUANTS(X)
#undef X
extern gemm_fn gemm_q46_k;

#endif
