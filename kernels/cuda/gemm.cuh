/*
 * gemm.cuh - the decode path's matrix product: two kernels over T16 weights (t16.cuh), and what follows a product.
 *
 * `narrow` is for one row. A block takes tiles of 16 rows; its eight consumer warps take a chunk of K each, a ninth
 * streams the weights into a ring of stages, one contiguous bulk copy of eight units a stage. It does not wait for the
 * kernel before: only activations do. It lets the next kernel in when its last copy is on its way, so that the next
 * one's first copies fill the memory's idle time while this one drains. The norm is made by every block.
 *
 * `wide` is for 2 to 64 rows (and for chips without bulk copies, where it reads weights and activations straight from
 * memory). A block takes groups of eight tiles, a warp each, so that a record of activations, streamed beside the
 * weights, serves 128 rows. A matrix of too few groups is cut into its chunks of K over eight blocks; the last to
 * arrive adds the chunks in order.
 *
 * Both form the same sums in the same order: see t16.cuh.
 */
#ifndef HEARTH_CUDA_GEMM_CUH
#define HEARTH_CUDA_GEMM_CUH

#include "kernels/cuda/t16.cuh"

enum gemm_ep {
    EP_TMP,    /* to ws.tmp: another kernel finishes */
    EP_QKV,    /* bias, RoPE, queries and KV */
    EP_PROJ,   /* added to ws.x */
    EP_GLU,    /* act(gate) * up, prepared for `down` */
    EP_LOGITS,
};

struct gemm_part {
    uint32_t tile0, n_tile, row0, n_out, second; /* second: of type TB */
    uint64_t off;
};

struct gemm_args {
    const uint8_t *w;
    struct gemm_part part[3];
    uint32_t n_part, n_rec;
    uint32_t tile_lo, tile_hi; /* tiles of this launch */
    uint32_t pair;             /* narrow: tiles this far apart within 2 * pair are finished together; 0 = alone */
    uint32_t stages, split;    /* wide: split = blocks over K, 1 or CHUNKS */
    uint32_t row0, cap;
    bool narrow;
    /* activations: prepared rows, or f32 rows to be normed (narrow) */
    const __half *x;
    uint32_t ldx, k;
    const float *xf;
    uint32_t ldxf;
    struct norm norm;
    const uint32_t *gather;
    /* what follows */
    enum gemm_ep ep;
    const float *bias;
    float *out; /* TMP, PROJ, LOGITS */
    uint32_t ldout;
    float scale, softcap;
    enum glu_kind glu;
    uint32_t glu_rows; /* hidden units a tile holds: 8 where gate and up share it */
    act_buf ff;
    uint32_t n_head, n_kv, d_head;
    struct rope rope;
    __half *q;
    uint32_t ldq;
    kv_view kv;
    const step_dev *step;
    float *part_sums;
    uint32_t *ticket;
};

enum { WARPS = 8, CONSUMERS = WARPS * 32, BLOCK = CONSUMERS + 32, FLUSH = 8 /* narrow: tiles finished at once */ };

/* --- Hopper's copies and barriers ------------------------------------------------------------------------------- */

#if __CUDA_ARCH__ >= 900
__device__ static inline uint32_t smem_of(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ static inline void bar_init(uint64_t *b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_of(b)), "r"(n)); }
__device__ static inline void bar_wait(uint64_t *b, uint32_t phase)
{
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra W; D: }" ::"r"(smem_of(b)), "r"(phase)
                 : "memory");
}
__device__ static inline void bar_arrive(uint64_t *b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_of(b)) : "memory"); }
__device__ static inline void bar_expect(uint64_t *b, uint32_t n)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_of(b)), "r"(n) : "memory");
}
__device__ static inline void bulk(void *dst, const void *src, uint32_t n, uint64_t *b, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(smem_of(dst)),
                 "l"(src), "r"(n), "r"(smem_of(b)), "l"(policy)
                 : "memory");
}
__device__ static inline uint64_t evict_first()
{
    uint64_t p;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}
__device__ static inline uint64_t evict_last()
{
    uint64_t p;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p));
    return p;
}
#endif
__device__ static inline void consumers_sync() { asm volatile("bar.sync 1, %0;" ::"n"((int)CONSUMERS) : "memory"); }

/* --- activations ------------------------------------------------------------------------------------------------ */

/*
 * Eight consecutive elements of a row, k % 8 == 0, to their place in a prepared record; the four lanes of a sub-block
 * call together. The sum is formed as finish.cu forms it: fours in order, then pairs of fours.
 */
__device__ static inline void put_eight(__half *rec, uint32_t lane, const __half h[8])
{
    __half o[8] = {h[0], h[2], h[1], h[3], h[4], h[6], h[5], h[7]};
    *(uint4 *)(rec + (lane >> 3) * PREP_GROUP + (lane & 7) * 8) = *(const uint4 *)o;
    float f[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        f[i] = __half2float(h[i]);
    float a = __fadd_rn(__fadd_rn(__fadd_rn(f[0], f[1]), f[2]), f[3]), b = __fadd_rn(__fadd_rn(__fadd_rn(f[4], f[5]), f[6]), f[7]);
    float s = __fadd_rn(a, b);
    s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 1));
    s = __fadd_rn(s, __shfl_xor_sync(~0u, s, 2));
    if (!(lane & 3)) {
        __half hi = half_sat(s);
        rec[PREP_SUM + (lane >> 2)] = hi;
        rec[PREP_SUM + 8 + (lane >> 2)] = half_sat(__fsub_rn(s, __half2float(hi)));
    }
}

/* A chunk of a prepared row, by one warp; sums are formed anew (narrow's SwiGLU does not write them). */
__device__ static inline void take_chunk(const __half *src, __half *dst, uint32_t r0, uint32_t r1, uint32_t lane)
{
#pragma unroll 4
    for (uint32_t r = r0; r < r1; r++) {
        uint4 v = __ldcg((const uint4 *)(src + r * PREP_REC + (lane >> 3) * PREP_GROUP + (lane & 7) * 8));
        const __half *p = (const __half *)&v;
        __half h[8] = {p[0], p[2], p[1], p[3], p[4], p[6], p[5], p[7]};
        put_eight(dst + r * PREP_REC, lane, h);
    }
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
__device__ static inline float eight_warps(float s, float *shared, uint32_t warp, uint32_t lane)
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
 * norm(x) of a row of n into prepared records, by eight warps, a chunk each. Up to KEEP records of a chunk stay in
 * registers between the passes. The rest is read again. shared: 16 floats.
 */
__device__ static inline void norm_chunks(const float *x, uint32_t n, const struct norm &nm, uint32_t n_rec, __half *dst, float *shared,
                                          uint32_t warp, uint32_t lane)
{
    enum { KEEP = 4 };
    uint32_t r0 = t16_chunk(n_rec, warp), r1 = t16_chunk(n_rec, warp + 1);
    float v[KEEP][8], far[8], mean = 0, s = 0;
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
        mean = eight_warps(s, shared, warp, lane) / n;
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
    float scale = rsqrtf(__fadd_rn(eight_warps(s, shared + WARPS, warp, lane) / n, nm.eps));
    auto put = [&](const float *f, uint32_t r) {
        __half h[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            uint32_t k = r * 256 + lane * 8 + j;
            float y = k < n ? __fmul_rn(__fmul_rn(__fsub_rn(f[j], mean), scale), nm.w[k]) : 0.f;
            h[j] = half_sat(nm.b && k < n ? __fadd_rn(y, nm.b[k]) : y);
        }
        put_eight(dst + r * PREP_REC, lane, h);
    };
#pragma unroll
    for (int i = 0; i < KEEP; i++)
        if (r0 + i < r1)
            put(v[i], r0 + i);
    for (uint32_t r = r0 + KEEP; r < r1; r++) {
        load_eight(far, x, r * 256 + lane * 8, n);
        put(far, r);
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

__device__ static inline void put_qkv(const gemm_args &a, uint32_t part, uint32_t head, uint32_t i, uint32_t col, uint32_t slot, float v)
{
    if (part == 0)
        a.q[(uint64_t)(a.row0 + col) * a.ldq + head * a.d_head + i] = half_sat(v);
    else if (slot != NO_SLOT)
        (part == 1 ? kv_k(a.kv, slot, head) : kv_v(a.kv, slot, head))[i] = half_sat(v);
}

/*
 * Finishes n tiles for all columns. val(i, r, col) is the product of row r of the i-th tile, tile(i) its number.
 * WIDE blocks hold whole sub-blocks of hidden units and write their sums too.
 */
template <int WIDE, class V, class T> __device__ static inline void finish_tiles(const gemm_args &a, uint32_t n, V val, T tile, uint32_t tid)
{
    if (a.ep == EP_QKV) {
        bool neox = a.rope.kind == ROPE_NEOX;
        uint32_t half = a.rope.n_rot / 2, pt = neox ? half / 16 : 0; /* tiles between the rows of a pair */
        for (uint32_t i = tid; i < n * 8 * a.cap; i += CONSUMERS) {
            uint32_t col = i / (n * 8), j = i % (n * 8), ta, tb, ra, rb;
            if (neox) { /* 16 pairs from two tiles; narrow has them side by side, wide pt apart */
                uint32_t d = WIDE ? pt : 1, u = j / 16;
                ta = u / d * 2 * d + u % d, tb = ta + d, ra = rb = j % 16;
            } else
                ta = tb = j / 8, ra = j % 8 * 2, rb = ra + 1;
            const gemm_part &p = part_of(a, tile(ta));
            uint32_t first = (tile(ta) - p.tile0) * 16 + ra;
            if (tile(tb) >= a.tile_hi || first >= p.n_out)
                continue;
            uint32_t part = &p - a.part, head = first / a.d_head, k = first % a.d_head, k2 = neox ? k + half : k + 1;
            float x = val(ta, ra, col), y = val(tb, rb, col);
            if (a.bias)
                x += a.bias[p.row0 + first], y += a.bias[p.row0 + first + k2 - k];
            if (part < 2 && a.rope.kind != ROPE_NONE && (neox || k2 < a.rope.n_rot)) {
                float sn, cs;
                rope_turn((float)a.step->pos[a.row0 + col], a.rope.inv_freq[neox ? k : k / 2], &sn, &cs);
                sn *= a.rope.scale, cs *= a.rope.scale;
                float xr = __fmaf_rn(x, cs, -__fmul_rn(y, sn));
                y = __fmaf_rn(x, sn, __fmul_rn(y, cs)), x = xr;
            }
            uint32_t slot = part ? a.step->kv_slot[a.row0 + col] : 0;
            put_qkv(a, part, head, k, col, slot, x);
            put_qkv(a, part, head, k2, col, slot, y);
        }
        return;
    }
    if (a.ep == EP_GLU) {
        uint32_t e = a.glu_rows, d_ff = a.part[0].n_out;
        for (uint32_t i = tid; i < (n * e * a.cap + 31) / 32 * 32; i += CONSUMERS) {
            uint32_t col = i / (n * e), j = i % (n * e), t = j / e, r = j % e, u = tile(t) * e + r;
            float v = 0;
            if (col < a.cap && u < d_ff && tile(t) < a.tile_hi) {
                v = val(t, r, col) + (a.bias ? a.bias[u] : 0.f);
                v = glu_act(a.glu, v);
                if (e == 8)
                    v *= val(t, r + 8, col) + (a.bias ? a.bias[d_ff + u] : 0.f);
            }
            __half h = half_sat(v);
            __half *row = a.ff.p + (uint64_t)(a.row0 + col) * a.ff.ld;
            bool mine = col < a.cap && u < (d_ff + 255) / 256 * 256 && tile(t) < a.tile_hi;
            if (mine)
                row[prep_at(u)] = h;
            if (WIDE) {
                float f = __half2float(h), s = f;
#pragma unroll
                for (int w = 1; w < 4; w++) { /* fours in order: lane 4i of each adds 4i + 1, 2, 3 */
                    float o = __shfl_down_sync(~0u, f, w);
                    s = __fadd_rn(s, o);
                }
#pragma unroll
                for (int w = 4; w < 32; w *= 2)
                    s = __fadd_rn(s, __shfl_xor_sync(~0u, s, w));
                if (mine && u % 32 == 0) {
                    __half hi = half_sat(s);
                    row[prep_sum_at(u)] = hi;
                    row[prep_sum_at(u) + 8] = half_sat(__fsub_rn(s, __half2float(hi)));
                }
            }
        }
        return;
    }
    for (uint32_t i = tid; i < n * 16 * a.cap; i += CONSUMERS) {
        uint32_t col = i / (n * 16), j = i % (n * 16), t = j / 16;
        if (tile(t) >= a.tile_hi)
            continue;
        const gemm_part &p = part_of(a, tile(t));
        uint32_t row = (tile(t) - p.tile0) * 16 + j % 16;
        if (row >= p.n_out)
            continue;
        float v = val(t, j % 16, col), *o = a.out + (uint64_t)(a.row0 + col) * a.ldout + p.row0 + row;
        if (a.ep == EP_PROJ)
            *o = __fadd_rn(__ldcg(o), a.bias ? __fadd_rn(v, a.bias[row]) : v);
        else if (a.ep == EP_LOGITS) {
            v *= a.scale;
            *o = a.softcap != 0 ? act_softcap(v, a.softcap) : v;
        } else
            *o = v;
    }
}

/* --- one row -------------------------------------------------------------------------------------------------------- */

template <int TA, int TB> struct ring_of {
    static constexpr uint32_t UA = t16_unit(TA), UB = t16_unit(TB), PA = t16_per(TA), PB = t16_per(TB);
    static constexpr uint32_t U = UA > UB ? UA : UB, STAGE = U * CHUNKS;
    static constexpr uint32_t REC = UA * PA > UB * PB ? UA * PA : UB * PB; /* wide keeps whole records */
};

/* Shared memory besides the ring: barriers, two buffers of partial sums, the norm's sums, the row. */
__host__ __device__ static inline uint32_t narrow_fixed(uint32_t n_rec) { return 256 + 2 * WARPS * FLUSH * 16 * 4 + 64 + n_rec * PREP_REC * 2; }

template <int TA, int TB> __global__ void __launch_bounds__(BLOCK, 2) gemm_narrow(const __grid_constant__ gemm_args a)
{
#if __CUDA_ARCH__ >= 900
    using R = ring_of<TA, TB>;
    extern __shared__ __align__(128) uint8_t sm[];
    uint64_t *full = (uint64_t *)sm, *empty = full + 16;
    float *red = (float *)(sm + 256), *sums = red + 2 * WARPS * FLUSH * 16;
    __half *xs = (__half *)(sums + 16);
    uint8_t *ring = sm + narrow_fixed(a.n_rec);
    uint32_t tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, n_rec = a.n_rec, base = n_rec / CHUNKS, rem = n_rec % CHUNKS;
    uint32_t tiles = a.tile_hi - a.tile_lo, n;
    if (a.pair)
        n = 2 * ((tiles / 2 - blockIdx.x + gridDim.x - 1) / gridDim.x);
    else
        n = (tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
    if (!tid) {
        for (uint32_t s = 0; s < a.stages; s++)
            bar_init(full + s, 1), bar_init(empty + s, WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (warp == WARPS) { /* the producer */
        if (!lane) {
            uint64_t policy = evict_first();
            uint32_t s = 0, phase = 1;
            for (uint32_t i = 0; i < n; i++) {
                uint32_t tile = tile_at(a, i);
                const gemm_part &p = part_of(a, tile);
                bool second = TA != TB && p.second;
                uint32_t unit = second ? R::UB : R::UA, per = second ? R::PB : R::PA, left = n_rec * per;
                const uint8_t *src = a.w + p.off + (uint64_t)(tile - p.tile0) * n_rec * unit * per;
                for (uint32_t step = 0; left; step++) {
                    uint32_t u = step < base * per ? CHUNKS : rem;
                    bar_wait(empty + s, phase);
                    bar_expect(full + s, u * unit);
                    bulk(ring + s * R::STAGE, src, u * unit, full + s, policy);
                    src += u * unit, left -= u;
                    if (++s == a.stages)
                        s = 0, phase ^= 1;
                }
            }
            pdl_go();
        }
        pdl_wait();
        return;
    }
    uint32_t r0 = t16_chunk(n_rec, warp), r1 = t16_chunk(n_rec, warp + 1);
    pdl_wait();
    if (a.xf) {
        uint32_t row = a.gather ? a.gather[a.row0] : a.row0;
        norm_chunks(a.xf + (uint64_t)row * a.ldxf, a.k, a.norm, n_rec, xs, sums, warp, lane);
    } else
        take_chunk(a.x + (uint64_t)a.row0 * a.ldx, xs, r0, r1, lane);
    __syncwarp();
    uint32_t s = 0, phase = 0;
    for (uint32_t i = 0, done = 0; i < n; i++) {
        uint32_t tile = tile_at(a, i);
        bool second = TA != TB && part_of(a, tile).second;
        float acc[1][4] = {{0, 0, 0, 0}};
        auto run = [&](auto type) {
            constexpr int T = decltype(type)::value;
            constexpr uint32_t per = t16_per(T), unit = t16_unit(T);
            for (uint32_t c = 0; c < base + (rem != 0); c++) {
                const __half *x = xs + (r0 + c) * PREP_REC;
                xfrag v = {x, x + PREP_SUM, 0, 0};
#pragma unroll 1
                for (uint32_t q = 0; q < per; q++) {
                    bar_wait(full + s, phase);
                    if (c < r1 - r0)
                        t16_mul<T, 1>(ring + s * R::STAGE + warp * unit, q, v, lane, acc);
                    __syncwarp();
                    if (!lane)
                        bar_arrive(empty + s);
                    if (++s == a.stages)
                        s = 0, phase ^= 1;
                }
            }
        };
        struct type_a { enum { value = TA }; };
        struct type_b { enum { value = TB }; };
        if (second)
            run(type_b());
        else
            run(type_a());
        float *buf = red + (done / FLUSH & 1) * WARPS * FLUSH * 16;
        uint32_t fl = done % FLUSH;
        if (!(lane & 3)) {
            buf[(warp * FLUSH + fl) * 16 + (lane >> 2)] = acc[0][0];
            buf[(warp * FLUSH + fl) * 16 + (lane >> 2) + 8] = acc[0][2];
        }
        done++;
        if (fl + 1 == FLUSH || i + 1 == n) {
            consumers_sync();
            uint32_t first = i - fl;
            auto val = [&](uint32_t t, uint32_t r, uint32_t) {
                float v = 0;
#pragma unroll
                for (int w = 0; w < WARPS; w++)
                    v = __fadd_rn(v, buf[(w * FLUSH + t) * 16 + r]);
                return v;
            };
            finish_tiles<0>(a, fl + 1, val, [&](uint32_t t) { return tile_at(a, first + t); }, tid);
        }
    }
#endif
}

/* --- 2 to 64 rows ----------------------------------------------------------------------------------------------------- */

enum { STAGED_LD = 132 /* floats from column to column: 128 rows, padded */ };
template <int NT> __host__ __device__ constexpr uint32_t wide_fixed() { return 256 + 16 + NT * 8 * STAGED_LD * 4; }
/* A stage: records of eight tiles, then the activations' groups, then their sums. 592 bytes a row for types that read
 * four at a time, 576 for those that read eight: different banks for different columns. */
template <int TA> __host__ __device__ constexpr uint32_t x_step() { return TA == DT_Q4_K || TA == DT_Q5_K || t16_per(TA) >= 4 ? 288 : 304; }
template <int TA, int TB, int NT> __host__ __device__ constexpr uint32_t wide_stage()
{
    return ring_of<TA, TB>::REC * WARPS + NT * 8 * (x_step<TA>() * 2 + 32);
}

template <int TA, int TB, int NT> __global__ void __launch_bounds__(BLOCK, NT <= 2 ? 2 : 1) gemm_wide(const __grid_constant__ gemm_args a)
{
    using R = ring_of<TA, TB>;
    extern __shared__ __align__(128) uint8_t sm[];
    float *staged = (float *)(sm + 256 + 16);
    uint32_t *last = (uint32_t *)(sm + 256);
    uint32_t tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, n_rec = a.n_rec;
    uint32_t groups = (a.tile_hi - a.tile_lo + WARPS - 1) / WARPS, items = groups * a.split;
#if __CUDA_ARCH__ >= 900
    constexpr uint32_t STAGE = wide_stage<TA, TB, NT>(), XS = x_step<TA>();
    uint64_t *full = (uint64_t *)sm, *empty = full + 16;
    uint8_t *ring = sm + wide_fixed<NT>();
    if (!tid) {
        for (uint32_t s = 0; s < a.stages; s++)
            bar_init(full + s, 1), bar_init(empty + s, WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (warp == WARPS) { /* the producer: weights of the first stages before the wait, activations after it */
        uint64_t first = evict_first(), keep = evict_last();
        uint32_t total = 0, fill = 0;
        for (uint32_t it = blockIdx.x; it < items; it += gridDim.x)
            total += a.split == 1 ? n_rec : t16_chunk(n_rec, it % CHUNKS + 1) - t16_chunk(n_rec, it % CHUNKS);
        auto weights = [&](uint32_t group, uint32_t r, uint32_t s) {
            uint32_t bytes = 0;
            for (uint32_t w = 0; w < WARPS; w++) {
                uint32_t tile = a.tile_lo + group * WARPS + w;
                if (tile < a.tile_hi)
                    bytes += TA != TB && part_of(a, tile).second ? R::UB * R::PB : R::UA * R::PA;
            }
            if (!lane)
                bar_expect(full + s, bytes + a.cap * (288 * 2 + 32));
            __syncwarp();
            for (uint32_t i = lane; i < WARPS * R::PA; i += 32) {
                uint32_t w = i / R::PA, q = i % R::PA, tile = a.tile_lo + group * WARPS + w;
                if (tile >= a.tile_hi)
                    continue;
                const gemm_part &p = part_of(a, tile);
                bool second = TA != TB && p.second;
                uint32_t unit = second ? R::UB : R::UA, per = second ? R::PB : R::PA;
                bulk(ring + s * STAGE + w * R::REC + q * unit, a.w + p.off + ((uint64_t)(tile - p.tile0) * n_rec * per + t16_unit_at(n_rec, per, r, q)) * unit,
                     unit, full + s, first);
            }
        };
        auto activations = [&](uint32_t r, uint32_t s) {
            uint8_t *x = ring + s * STAGE + R::REC * WARPS;
            for (uint32_t c = lane; c < a.cap; c += 32) {
                const __half *src = a.x + (uint64_t)(a.row0 + c) * a.ldx + r * PREP_REC;
                bulk(x + c * XS * 2, src, 288 * 2, full + s, keep);
                bulk(x + NT * 8 * XS * 2 + c * 32, src + PREP_SUM, 32, full + s, keep);
            }
        };
        for (int pass = 0; pass < 2; pass++) {
            uint32_t s = 0, phase = 1, k = 0;
            for (uint32_t it = blockIdx.x; it < items; it += gridDim.x) {
                uint32_t r0 = a.split == 1 ? 0 : t16_chunk(n_rec, it % CHUNKS), r1 = a.split == 1 ? n_rec : t16_chunk(n_rec, it % CHUNKS + 1);
                for (uint32_t r = r0; r < r1; r++, k++) {
                    if (!pass && k == a.stages)
                        break;
                    if (pass && k >= fill) {
                        bar_wait(empty + s, phase);
                        weights(it / a.split, r, s);
                    } else if (!pass)
                        weights(it / a.split, r, s), fill++;
                    if (pass)
                        activations(r, s);
                    if (++s == a.stages)
                        s = 0, phase ^= 1;
                }
                if (!pass && k == a.stages)
                    break;
            }
            if (!pass) {
                if (total <= a.stages)
                    pdl_go();
                pdl_wait();
                asm volatile("fence.proxy.async;" ::: "memory"); /* the copies read what ordinary stores wrote */
            } else
                pdl_go();
        }
        return;
    }
    uint32_t s = 0, phase = 0;
#else
    if (warp == WARPS)
        return;
#endif
    pdl_wait();
    for (uint32_t it = blockIdx.x; it < items; it += gridDim.x) {
        uint32_t group = it / a.split, tile0 = a.tile_lo + group * WARPS, tile = tile0 + warp;
        uint32_t c0 = a.split == 1 ? 0 : it % CHUNKS, c1 = a.split == 1 ? CHUNKS : c0 + 1;
        bool on = tile < a.tile_hi;
        const gemm_part &p = part_of(a, on ? tile : a.tile_lo);
        bool second = TA != TB && p.second;
        float total[NT][4];
        zero(total);
        for (uint32_t c = c0; c < c1; c++) {
            float acc[NT][4];
            zero(acc);
            for (uint32_t r = t16_chunk(n_rec, c); r < t16_chunk(n_rec, c + 1); r++) {
#if __CUDA_ARCH__ >= 900
                const uint8_t *w = ring + s * STAGE + warp * R::REC;
                const __half *x = (const __half *)(ring + s * STAGE + R::REC * WARPS);
                xfrag v = {x + (lane >> 2) * XS, x + NT * 8 * XS + (lane >> 2) * 16, 8 * XS, 8 * 16};
                bar_wait(full + s, phase);
                auto at = [&](uint32_t q, uint32_t unit, uint32_t) { return w + q * unit; };
#else
                const uint8_t *w = a.w + p.off;
                const __half *x = a.x + (uint64_t)(a.row0 + (lane >> 2)) * a.ldx + r * PREP_REC;
                xfrag v = {x, x + PREP_SUM, 8 * a.ldx, 8 * a.ldx};
                auto at = [&](uint32_t q, uint32_t unit, uint32_t per) {
                    return w + ((uint64_t)(tile - p.tile0) * n_rec * per + t16_unit_at(n_rec, per, r, q)) * unit;
                };
#endif
                if (on && second)
                    for (uint32_t q = 0; q < R::PB; q++)
                        t16_mul<TB, NT>(at(q, R::UB, R::PB), q, v, lane, acc);
                else if (on)
                    for (uint32_t q = 0; q < R::PA; q++)
                        t16_mul<TA, NT>(at(q, R::UA, R::PA), q, v, lane, acc);
#if __CUDA_ARCH__ >= 900
                __syncwarp();
                if (!lane)
                    bar_arrive(empty + s);
                if (++s == a.stages)
                    s = 0, phase ^= 1;
#endif
            }
#pragma unroll
            for (int n = 0; n < NT; n++)
                for (int i = 0; i < 4; i++)
                    total[n][i] = __fadd_rn(total[n][i], acc[n][i]);
        }
        uint32_t row = warp * 16 + (lane >> 2), col = 2 * (lane & 3);
        auto tile_of = [&](uint32_t t) { return tile0 + t; };
        if (a.split == 1) {
            consumers_sync(); /* the last item's readers are done */
#pragma unroll
            for (int n = 0; n < NT; n++)
                for (int i = 0; i < 4; i++)
                    staged[(n * 8 + col + (i & 1)) * STAGED_LD + row + (i >> 1) * 8] = total[n][i];
            consumers_sync();
            finish_tiles<1>(a, WARPS, [&](uint32_t t, uint32_t r, uint32_t c) { return staged[c * STAGED_LD + t * 16 + r]; }, tile_of, tid);
            continue;
        }
        /* a chunk's sums [group][chunk][col][128] */
        float *sums = a.part_sums + (uint64_t)group * CHUNKS * a.cap * 128;
#pragma unroll
        for (int n = 0; n < NT; n++)
            for (int i = 0; i < 4; i++) {
                uint32_t c = n * 8 + col + (i & 1);
                if (c < a.cap)
                    __stcg(sums + ((uint64_t)c0 * a.cap + c) * 128 + row + (i >> 1) * 8, total[n][i]);
            }
        __threadfence();
        consumers_sync();
        if (!tid) {
            *last = atomicAdd(a.ticket + group, 1) == CHUNKS - 1;
            if (*last)
                a.ticket[group] = 0;
            __threadfence();
        }
        consumers_sync();
        if (*last)
            finish_tiles<1>(a, WARPS, [&](uint32_t t, uint32_t r, uint32_t c) {
                float v = 0;
#pragma unroll
                for (int k = 0; k < CHUNKS; k++)
                    v = __fadd_rn(v, __ldcg(sums + ((uint64_t)k * a.cap + c) * 128 + t * 16 + r));
                return v;
            }, tile_of, tid);
        consumers_sync();
    }
}

/* --- launching ------------------------------------------------------------------------------------------------------ */

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
    cuda_smem(d, k, d->smem_max);
    *done |= 1u << d->index;
}

static inline uint32_t min_u(uint32_t a, uint32_t b) { return a < b ? a : b; }

template <int TA, int TB, int NT> static void run_wide(struct device *d, gemm_args &a)
{
    static uint32_t done;
    bool bulk_copies = d->cc >= 90;
    uint32_t groups = (a.tile_hi - a.tile_lo + WARPS - 1) / WARPS, blocks = NT <= 2 ? 2 : 1;
    uint32_t stage = wide_stage<TA, TB, NT>(), room = smem_for(d, blocks) - wide_fixed<NT>();
    if (bulk_copies && room < 2 * stage)
        blocks = 1, room = smem_for(d, 1) - wide_fixed<NT>();
    a.stages = min_u(room / stage, 16);
    a.split = groups < (uint32_t)d->sms && (uint64_t)groups * CHUNKS * a.cap * 128 <= SPLIT_FLOATS && groups <= TICKETS && a.n_rec >= CHUNKS ? CHUNKS : 1;
    smem_once(d, gemm_wide<TA, TB, NT>, &done);
    cuda_launch(d, gemm_wide<TA, TB, NT>, dim3(min_u(groups * a.split, d->sms * blocks)), BLOCK,
                bulk_copies ? wide_fixed<NT>() + a.stages * stage : wide_fixed<NT>(), LAUNCH_PDL, a);
}

/* NTS: which widths exist; a narrower batch takes the next wider one. */
template <int TA, int TB, int NT2, int NT4> static void run_gemm(struct device *d, gemm_args &a)
{
    static uint32_t done;
    if (a.narrow) {
        uint32_t fixed = narrow_fixed(a.n_rec), stage = ring_of<TA, TB>::STAGE, room = smem_for(d, 2);
        if (room < fixed + 2 * stage)
            room = smem_for(d, 1);
        a.stages = min_u((room - fixed) / stage, 16);
        uint32_t units = (a.tile_hi - a.tile_lo) / (a.pair ? 2 : 1);
        smem_once(d, gemm_narrow<TA, TB>, &done);
        cuda_launch(d, gemm_narrow<TA, TB>, dim3(min_u(units, d->sms)), BLOCK, fixed + a.stages * stage, LAUNCH_PDL, a);
    } else if (a.cap <= 8)
        run_wide<TA, TB, 1>(d, a);
    else if (a.cap <= 16 && NT2)
        run_wide<TA, TB, 2>(d, a);
    else if (a.cap <= 32 && NT4)
        run_wide<TA, TB, 4>(d, a);
    else
        run_wide<TA, TB, 8>(d, a);
}

/* One per pair of types: gemm_k.cu, gemm_b.cu. False where there is none. */
bool gemm_run_k(struct device *d, enum dtype ta, enum dtype tb, gemm_args &a);
bool gemm_run_b(struct device *d, enum dtype ta, enum dtype tb, gemm_args &a);

#endif
