/* gemv_end.cuh - the epilogue warp of gemv.cuh: it adds the multiplying warps' sums and does the epilogue. */
#ifndef HEARTH_CUDA_GEMM_GEMV_END_CUH
#define HEARTH_CUDA_GEMM_GEMV_END_CUH

#include "kernels/cuda/gemm/gemv_block.cuh"
#include "kernels/cuda/gemm/heads.cuh"
#include "kernels/cuda/gemm/items.cuh"
#include "kernels/cuda/said.cuh"

#if __CUDA_ARCH__ >= 800

/* The GLU of n tiles' hidden units, one row of 32 per lane; where tiles hold gate and up, a unit's two rows are sixteen
 * lanes apart. */
template <int M, class T, class V>
__device__ static inline void epilogue_glu_gemv(const gemm_args &a, uint32_t n, T tile, V val, uint32_t lane)
{
    bool pairs = a.glu_rows == 8;
    uint32_t half = pairs ? lane >> 4 : 0, t = lane >> (pairs ? 3 : 4) & 1, r = lane & (a.glu_rows - 1),
             d_ff = a.part[0].n_out, u = tile(t) * a.glu_rows + r;
    bool ok = t < n && tile(t) < a.tile_hi && u < (d_ff + 255) / 256 * 256, in = ok && u < d_ff;
    float bias = a.bias && in ? a.bias[half * d_ff + u] : 0.f;
#pragma unroll
    for (int m = 0; m < M; m++) {
        float v = in ? __fadd_rn(val(t, r + 8 * half, m), bias) : 0.f, up = __shfl_down_sync(~0u, v, 16);
        v = glu_act(a.glu, v) * (pairs ? up : 1.f);
        if (ok && !half)
            a.ff.p[(uint64_t)(a.row0 + m) * a.ff.ld + xfrag_at(u)] = half_sat(v);
    }
}

/* Shared memory of heads.cuh, behind the ring. */
template <int M, int CGROUPS, int EP> __device__ static inline uint8_t *heads_of(const gemm_args &a, uint8_t *sm)
{
    return sm + gemv_shape<M, CGROUPS, EP>::fixed(a) + a.stages * a.stage_bytes;
}

/*
 * The epilogue warp: finishes FLUSH tiles at a time. A row's sum is the sum of the first half of the warps plus that of
 * the second half, each in order: where a block has one tile, either half of the lanes adds one of the two, and where
 * it has two tiles, each lane has a row to itself.
 */
template <int M, int CGROUPS, int EP>
__device__ static inline void gemv_epilogue(const gemm_args &a, uint32_t n, uint8_t *sm, uint32_t lane)
{
    using S = gemv_shape<M, CGROUPS, EP>;
    constexpr bool QKV = is_qkv(EP), NORMED = EP == GEMV_QKV_NORMED;
    constexpr enum ends ENDS = QKV ? ENDS_PAIRS : ENDS_ROWS;
    bool units = (EP == GEMV_REST || EP == GEMV_REST_SETS || EP == GEMV_REST_ROUNDS) && !S::ONE_TILE && a.ep == EP_GLU;
    uint32_t first = 0, tiles = 0, half = lane >> 4; /* first, tiles: the tiles being finished */
    auto tile = [&](uint32_t i) { return tile_at<S::IN_PAIRS>(a, first + i); };
    coord at = {};
    item it[M];
    bool normed = false;          /* whether at's head has a norm */
    uint32_t place = 0, turn = 0; /* place: the lane's element of that head */
    float gain = 0;
    auto prefetch = [&]() {
        at = coord_of<true, ENDS>(a, QKV || S::ONE_TILE || tiles == 1 ? lane & 15 : lane, tiles, tile);
#pragma unroll
        for (int m = 0; m < M; m++)
            at.col = m, it[m] = item_load<ENDS>(a, at);
#pragma unroll
        for (int m = 0; m < M; m++)
            at.col = m, item_rope<ENDS>(a, at, it[m]);
        if (NORMED) {
            normed = at.ok && a.head_norm[at.part].w;
            if (normed)
                place = at.k + half * (a.d_head / 2), gain = a.head_norm[at.part].w[place];
        }
    };
    auto prefetch_residual = [&]() {
#pragma unroll
        for (int m = 0; m < M; m++)
            item_load_residual(a, at, it[m]);
    };
    uint64_t tag = 0, x_tag = 0;
    bool tells = EP == GEMV_REST && a.x_said && !blockIdx.x && !lane;
    float f[M];
#pragma unroll
    for (int m = 0; m < M; m++)
        f[m] = 1;
#pragma unroll 1
    for (; first < n; first += FLUSH) { /* one loop for first and later tiles: less code to fetch */
        uint32_t buf = first / FLUSH & (S::BUFS - 1);
        const float *partials = (const float *)(sm + S::PARTIALS) + buf * S::BUF;
        tiles = S::ONE_TILE ? 1 : min(n - first, (uint32_t)FLUSH);
        if (!units) /* operands that no kernel of the step writes */
            prefetch();
        if (!first) {
            if (S::PAIRS && a.row_norm.w) {
                tag = a.step->ticket << 16 | (a.row_norm.nth & 0xffff);
                gain = at.ok ? a.row_norm.w[at.row] : 0.f;
            }
            if (NORMED)
                cluster_wait();
            if (tells)
                x_tag = said_tag(a.step, a.x_nth);
            pdl_wait();
            if (tells) /* no fence: the kernel that wrote x has completed, so x is in L2, and is read from there */
                say(a.x_said, 0, x_tag);
        }
        if (!units)
            prefetch_residual();
        if (!first && !S::PAIRS && !S::ONE_TILE && a.xf) {
            named_bar_sync<S::BAR_THREADS>(BAR_SQUARES);
#pragma unroll
            for (int m = 0; m < M; m++) {
                const float *squares = (const float *)(sm + S::SQUARES) + m * WARPS;
                float q = 0;
#pragma unroll
                for (int w = 0; w < WARPS; w++)
                    q = __fadd_rn(q, squares[w]);
                f[m] = rsqrtf(__fadd_rn(q / a.k, a.norm.eps));
            }
        }
        auto part = [&](uint32_t i, uint32_t r, uint32_t m,
                        uint32_t h) { /* over half h of the warps */
                                      constexpr int HALF = S::K_SPLIT * WARPS / 2;
                                      const float *from =
                                          partials + (h * HALF * S::TILES + i) * M * 64 + m * 64 + 4 * r;
                                      float q = 0;
#pragma unroll
                                      for (int w = 0; w < HALF; w++) {
                                          float4 v = *(const float4 *)(from + w * S::TILES * M * 64);
                                          q = __fadd_rn(q, __fadd_rn(__fadd_rn(v.x, v.y), __fadd_rn(v.z, v.w)));
                                      }
                                      return q;
        };
        auto val = [&](uint32_t i, uint32_t r, uint32_t m) {
            return __fmul_rn(__fadd_rn(part(i, r, m, 0), part(i, r, m, 1)), f[m]);
        };
        named_bar_sync<S::BAR_THREADS>(BAR_FULL + buf);
        if (QKV) {
            float x[M];
#pragma unroll
            for (int m = 0; m < M; m++)
                x[m] = at.ok ? val(half ? at.tb : at.ta, half ? at.rb : at.ra, m) : 0.f;
            if (NORMED && normed) { /* the same in all blocks of the cluster */
                float s[M];
#pragma unroll
                for (int m = 0; m < M; m++)
                    x[m] = __fadd_rn(x[m], half ? it[m].b : it[m].a), it[m].a = it[m].b = 0;
                heads_squares<M>(heads_of<M, CGROUPS, EP>(a, sm), a.pair, a.d_head, turn++, place, x, s);
#pragma unroll
                for (int m = 0; m < M; m++)
                    x[m] =
                        __fmul_rn(__fmul_rn(x[m], rsqrtf(__fadd_rn(s[m] / a.d_head, a.head_norm[at.part].eps))), gain);
            }
#pragma unroll
            for (int m = 0; m < M; m++) {
                float y = __shfl_down_sync(~0u, x[m], 16);
                at.col = m;
                if (at.ok && !half)
                    epilogue_pair(a, at, it[m], x[m], y);
            }
        } else if (S::PAIRS && a.row_norm.w) {
            float y = at.ok ? __fadd_rn(val(at.ta, at.ra, 0), it[0].a) : 0.f;
            float by = rsqrtf(__fadd_rn(row_squares(a.row_norm, tag, y, lane) / a.part[0].n_out, a.row_norm.eps));
            if (at.ok)
                *(float *)it[0].to =
                    row_normed(a.row_norm.anew ? 0.f : it[0].residual, y, by, gain, a.scale) * a.row_norm.x_scale;
        } else if (units)
            epilogue_glu_gemv<M>(a, tiles, tile, val, lane);
        else
#pragma unroll
            for (int m = 0; m < M; m++) {
                if (S::ONE_TILE || tiles == 1) {
                    float x = part(0, lane & 15, m, half);
                    x = __fmul_rn(__fadd_rn(x, __shfl_down_sync(~0u, x, 16)), f[m]);
                    if (at.ok && !half)
                        epilogue_row(a, it[m], x);
                } else if (at.ok)
                    epilogue_row(a, it[m], val(at.ta, at.ra, m));
            }
        if (first + S::BUFS * FLUSH < n)
            named_bar_arrive<S::BAR_THREADS>(BAR_READ + buf);
    }
}

#endif

#endif
