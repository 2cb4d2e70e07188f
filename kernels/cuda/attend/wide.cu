/*
 * wide.cu - attention in chunks for heads whose sums fill a warp's registers (more than 256 dimensions), and for latent
 * attention, whose values are the last dimensions of their keys: items, chunks and their sums are those of split_kv.cu
 * (plan.cuh), so that reduce.cu adds them up. It takes any number of rows.
 *
 * The warps take the pages of an item's chunk in turn. Queries are in shared memory, and a page's keys and values are
 * loaded in parts, each while the previous one is multiplied. Memory latency is hidden because a block prefetches its
 * first item's pages into L2 before it waits for the previous kernel, and by two blocks per SM.
 */
#include "kernels/cuda/attend/plan.cuh"

template <int K, int V> struct wide_shape {
    static constexpr bool LATENT = K != V;
    static constexpr int WARPS = attend_warps(K);
    static constexpr int J = (K + 31) / 32;                  /* steps of 32 dimensions of a key */
    static constexpr int KP = 4, PIECES = (J + KP - 1) / KP; /* steps of a part, and parts of a page's keys */
    static constexpr int SPAN = 64, GROUPS = V / SPAN;       /* dimensions of a value: a lane, 16 bytes of 4 tokens */
    static constexpr int VP = GROUPS % 2 ? 1 : 2;            /* groups of a part */
    static constexpr int LDQ = (K + 63) / 64 * 64 + 32;      /* halves: eight lanes' 16 bytes have no bank conflicts */
    static constexpr int LDO = V + 4;
    static constexpr int Q = TILE_ROWS * LDQ * 2, O = WARPS * TILE_ROWS * LDO * 4, ML = WARPS * TILE_ROWS * 4;
    static constexpr int SMEM = Q + O + 2 * ML;
    static_assert(V % SPAN == 0 && K % 16 == 0 && (K - V) % 8 == 0 && fixed_pages(K) == fixed_pages(V), "a size");
};

/* Volatile, in order, and from L2, as load() in pages.cuh. */
__device__ static inline void load16(uint32_t to[4], const __half *from)
{
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from));
}

/* Two probabilities as a word transposed by movmatrix, the right operand of values; adds them to the rows'
 * denominators. */
__device__ static inline uint32_t turned(float even, float odd, float l[2])
{
    __half2 w = __floats2half2_rn(even, odd);
    float2 f = __half22float2(w); /* the rounded probability, which multiplies V, is also what is summed */
    l[0] = __fadd_rn(l[0], f.x), l[1] = __fadd_rn(l[1], f.y);
    return transpose8(*(uint32_t *)&w);
}

template <int K, int V, class P>
__global__ void __launch_bounds__(wide_shape<K, V>::WARPS * 32) attend_wide(const __grid_constant__ split_args a)
{
    typedef wide_shape<K, V> S;
    extern __shared__ __align__(128) uint8_t sm8[];
    __half *q = (__half *)sm8;
    float *sums = (float *)(sm8 + S::Q), *tops = (float *)(sm8 + S::Q + S::O), *dens = tops + S::WARPS * TILE_ROWS;
    int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    uint32_t at = blockIdx.x;
    pdl_trigger();
    const P &p = plan_of(a, (const P *)NULL);
    item it;
    bool some = find(it, at, p, a);
    auto end_of = [&](const item &i) { return min(i.last / KV_PAGE + 1, (i.chunk + 1) * chunk_pages(p)); };
    auto key_of = [&](const item &i, uint32_t page) {
        return a.kv.base + a.pages[table_of(p, i.s) + page] * a.kv.page_step + i.head * KV_PAGE * K;
    };
    if (some)
        for (uint32_t page = it.page0 + warp; page < end_of(it); page += S::WARPS) {
            const char *k = (const char *)key_of(it, page);
#pragma unroll
            for (int i = lane; i < KV_PAGE * K * 2 / 128; i += 32) {
                asm volatile("prefetch.global.L2 [%0];" ::"l"(k + 128 * i));
                if (!S::LATENT)
                    asm volatile("prefetch.global.L2 [%0];" ::"l"(k + 2 * (uint64_t)a.kv.v_off + 128 * i));
            }
        }
    pdl_wait();
    for (; some; at += gridDim.x, some = find(it, at, p, a)) {
        for (int i = tid; i < TILE_ROWS * K / 8; i += S::WARPS * 32) {
            uint32_t r = i / (K / 8), c = i % (K / 8), row = 0, word[4] = {0, 0, 0, 0};
            if (r < it.rows) {
                uint32_t head = head_of(a, p, it, r, &row);
                load16(word, a.q + (uint64_t)row * a.ldq + head * K + 8 * c);
            }
            *(uint4 *)(q + r * S::LDQ + 8 * c) = make_uint4(word[0], word[1], word[2], word[3]);
        }
        int pos[2], lo[2]; /* the positions that rows 2t and 2t + 1 see */
        float o[S::GROUPS][4][4], m[2], l[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            pos[e] = 2 * t + e < (int)it.rows ? (int)pos_of(a, p, it, 2 * t + e) : -1;
            lo[e] = (int)first_visible(pos[e], a.window);
            m[e] = -INFINITY, l[e] = 0;
        }
#pragma unroll
        for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
            for (int w = 0; w < 4; w++)
                o[b][w][0] = o[b][w][1] = o[b][w][2] = o[b][w][3] = 0;
        __syncthreads();
#pragma unroll 1
        for (uint32_t page = it.page0 + warp; page < end_of(it); page += S::WARPS) {
            const __half *keys = key_of(it, page), *k = keys + g * K + 8 * t,
                         *v = keys + (S::LATENT ? K - V : (int)a.kv.v_off) + 2 * t * K + 8 * g;
            float c[4] = {}, odd[4] = {}; /* two chains of sums */
#pragma unroll
            for (int piece = 0; piece < S::PIECES; piece++) {
                uint32_t kw[S::KP][2][4], qw[4];
#pragma unroll
                for (int j = 0; j < S::KP; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        int dim = 32 * (piece * S::KP + j);
                        kw[j][e][0] = kw[j][e][1] = kw[j][e][2] = kw[j][e][3] = 0;
                        if (dim < K && (K % 32 == 0 || dim + 8 * t < K))
                            load16(kw[j][e], k + 8 * e * K + dim);
                    }
#pragma unroll
                for (int j = 0; j < S::KP; j++) {
                    int dim = 32 * (piece * S::KP + j);
                    if (dim >= K)
                        continue;
                    *(uint4 *)qw = make_uint4(0, 0, 0, 0);
                    if (K % 32 == 0 || dim + 8 * t < K)
                        *(uint4 *)qw = *(const uint4 *)(q + g * S::LDQ + dim + 8 * t);
                    mma16816(c, kw[j][0][0], kw[j][1][0], kw[j][0][1], kw[j][1][1], qw[0], qw[1]);
                    mma16816(odd, kw[j][0][2], kw[j][1][2], kw[j][0][3], kw[j][1][3], qw[2], qw[3]);
                }
            }
            float top[2], base[2], rescale[2];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int tok = (int)page * KV_PAGE + g + 8 * (i / 2);
                float s = (c[i] + odd[i]) * a.scale;
                s = a.softcap != 0 ? act_softcap(s, a.softcap) : s;
                c[i] = tok <= pos[i & 1] && tok >= lo[i & 1] ? s * LOG2E : -INFINITY;
            }
#pragma unroll
            for (int e = 0; e < 2; e++) {
                top[e] = fmaxf(fmaxf(m[e], c[e]), c[2 + e]);
#pragma unroll
                for (int i = 4; i < 32; i *= 2)
                    top[e] = fmaxf(top[e], __shfl_xor_sync(~0u, top[e], i));
                base[e] = top[e] == -INFINITY ? 0.f : top[e];
                rescale[e] = exp2_fast(m[e] - base[e]);
                m[e] = top[e], l[e] = __fmul_rn(l[e], rescale[e]);
            }
            uint32_t pr[2];
#pragma unroll
            for (int h = 0; h < 2; h++)
                pr[h] = turned(exp2_fast(c[2 * h] - base[0]), exp2_fast(c[2 * h + 1] - base[1]), l);
#pragma unroll
            for (int b0 = 0; b0 < S::GROUPS; b0 += S::VP) {
                uint32_t vw[S::VP][4][4];
#pragma unroll
                for (int b = 0; b < S::VP; b++)
#pragma unroll
                    for (int e = 0; e < 4; e++) /* tokens 2t, 2t + 1, 2t + 8, 2t + 9 */
                        load16(vw[b][e], v + ((e & 1) + 8 * (e / 2)) * K + (b0 + b) * S::SPAN);
#pragma unroll
                for (int b = 0; b < S::VP; b++)
#pragma unroll
                    for (int w = 0; w < 4; w++) {
                        float *s = o[b0 + b][w];
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            s[i] *= rescale[i & 1];
                        mma16816(s, __byte_perm(vw[b][0][w], vw[b][1][w], 0x5410),
                                 __byte_perm(vw[b][0][w], vw[b][1][w], 0x7632),
                                 __byte_perm(vw[b][2][w], vw[b][3][w], 0x5410),
                                 __byte_perm(vw[b][2][w], vw[b][3][w], 0x7632), pr[0], pr[1]);
                    }
            }
        }
        /* the warps' results, added in order */
#pragma unroll
        for (int e = 0; e < 2; e++) {
#pragma unroll
            for (int i = 4; i < 32; i *= 2)
                l[e] += __shfl_xor_sync(~0u, l[e], i);
            if (!g)
                tops[warp * TILE_ROWS + 2 * t + e] = m[e], dens[warp * TILE_ROWS + 2 * t + e] = l[e];
#pragma unroll
            for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
                for (int w = 0; w < 4; w++)
                    *(float2 *)&sums[(warp * TILE_ROWS + 2 * t + e) * S::LDO + b * S::SPAN + 2 * (4 * g + w)] =
                        make_float2(o[b][w][e], o[b][w][2 + e]);
        }
        __syncthreads();
        for (uint32_t i = tid; i < it.rows * (V / 4);
             i += S::WARPS * 32) { /* a row's neighbours by neighbouring lanes */
            uint32_t r = i / (V / 4), dim = i % (V / 4) * 4, row, head = head_of(a, p, it, r, &row);
            float all = -INFINITY, den = 0, y[4] = {0, 0, 0, 0};
#pragma unroll
            for (int w = 0; w < S::WARPS; w++)
                all = fmaxf(all, tops[w * TILE_ROWS + r]);
#pragma unroll
            for (int w = 0; w < S::WARPS; w++) {
                float u = exp2_fast(tops[w * TILE_ROWS + r] - (all == -INFINITY ? 0.f : all));
                float4 s = *(const float4 *)&sums[(w * TILE_ROWS + r) * S::LDO + dim];
                den += u * dens[w * TILE_ROWS + r];
                y[0] += u * s.x, y[1] += u * s.y, y[2] += u * s.z, y[3] += u * s.w;
            }
            if (it.c_lo == it.c_hi) {
                den = 1.f / with_sink(a, head, all, den);
                for (int e = 0; e < 4; e++)
                    y[e] *= den;
                store_quad<V>(a, row, head, dim, y);
            } else {
                float *to = partial<V>(a, p, it.s, row, head, it.chunk);
                *(float4 *)(to + dim) = make_float4(y[0], y[1], y[2], y[3]);
                if (!dim)
                    *(float2 *)(to + V) = make_float2(all, den);
            }
        }
        __syncthreads();
    }
}

/* --- launchers ---------------------------------------------------------------------------------------------------- */

/* A pair of sizes, key and value; each_wide() calls f(size) for all of them. */
template <int KEY, int VALUE> struct wide_size {
    enum { k = KEY, v = VALUE };
};
template <class F> static void each_wide(F f)
{
    f(wide_size<512, 512>()), f(wide_size<576, 512>()), f(wide_size<80, 64>());
}

bool attend_wide_supports(uint32_t d_k, uint32_t d_value)
{
    bool found = false;
    each_wide([&](auto size) { found = found || (size.k == d_k && (d_value ? size.v == d_value : size.v != size.k)); });
    return found;
}

void attend_wide_init(struct device *d)
{
    each_wide([&](auto size) {
        constexpr int K = size.k, V = size.v, SMEM = wide_shape<K, V>::SMEM;
        if ((uint64_t)SMEM > d->smem_max)
            return;
        cuda_smem(d, attend_wide<K, V, plan>, SMEM);
        cuda_smem(d, attend_wide<K, V, plan_one<true, fixed_pages(K)>>, SMEM);
        cuda_smem(d, attend_wide<K, V, plan_one<false, fixed_pages(K)>>, SMEM);
    });
}

void attend_wide_run(struct device *d, const split_args &a, uint32_t d_k, uint32_t d_value)
{
    each_wide([&](auto size) {
        constexpr int K = size.k, V = size.v;
        if (K != d_k || V != d_value)
            return;
        if ((uint64_t)wide_shape<K, V>::SMEM > d->smem_max) {
            cuda_refuse(d, HEARTH_EUNSUPPORTED, "heads of %u and %u want %d bytes of shared memory; this GPU has %llu",
                        d_k, d_value, wide_shape<K, V>::SMEM, (unsigned long long)d->smem_max);
            return;
        }
        uint32_t most = 2 * d->sms, items = attend_items(d, a, d_k);
        by_plan<K>(a, [&](auto kind) {
            cuda_launch(d, attend_wide<K, V, typename decltype(kind)::type>,
                        dim3(d->decode && items < most ? items : most), wide_shape<K, V>::WARPS * 32,
                        wide_shape<K, V>::SMEM, LAUNCH_PDL, a);
        });
    });
}
