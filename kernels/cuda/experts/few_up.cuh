/*
 * few_up.cuh - `up` of one row without a router kernel (shares.cuh), bit-identical to few.cuh; and the gate of a shared
 * expert, which a block of its own computes in either kernel.
 *
 * All of a step waits for the chain from the logits to the first weights of the experts, so that this chain is kept as
 * short as possible. The places of a warp's fragments are computed before (few_list.cuh). Every block makes the choice
 * for itself, but only the ids: the weights of the results are needed by `down`, and the first block publishes them
 * after it has issued the first copies of its own weights. The warp that makes the choice quantises its part of x while
 * these copies are in flight; the other warps do so before, when they have nothing else to do.
 */
#ifndef HEARTH_CUDA_EXPERTS_FEW_UP_CUH
#define HEARTH_CUDA_EXPERTS_FEW_UP_CUH

#include "kernels/cuda/experts/few_list.cuh"
#include "kernels/cuda/experts/shares.cuh"

#if __CUDA_ARCH__ >= 800
/* Computes the factor of the row's result of the shared expert, with a whole block. room: two floats for each warp. */
__device__ static inline void few_shared_gate(const experts_args &a, uint32_t row, bool live, bool told, float *room)
{
    uint32_t first = threadIdx.x * 4, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    auto four = [&](const float *v, uint32_t k) {
        return k < a.k ? __ldcg((const float4 *)(v + k)) : make_float4(0, 0, 0, 0); /* a.k is a multiple of 8 */
    };
    enum { KEPT = 4 };
    float4 w[KEPT], g[KEPT];
#pragma unroll
    for (uint32_t i = 0; i < KEPT; i++)
        g[i] = four(a.shared_gate, first + i * CONSUMERS * 4), w[i] = four(a.norm.w, first + i * CONSUMERS * 4);
    if (told)
        hear_x(a.said + row, said_tag(a.step, a.nth));
    else
        pdl_wait();
    pdl_trigger();
    if (!live)
        return;
    const float *x = a.xf + (uint64_t)row * a.ldxf;
    float squares = 0, dot = 0;
    auto add = [&](float4 f, float4 weight, float4 gate) {
        const float v[4] = {f.x, f.y, f.z, f.w}, n[4] = {weight.x, weight.y, weight.z, weight.w},
                    o[4] = {gate.x, gate.y, gate.z, gate.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
            squares = __fmaf_rn(v[i], v[i], squares), dot = __fmaf_rn(__fmul_rn(v[i], n[i]), o[i], dot);
    };
#pragma unroll
    for (uint32_t i = 0; i < KEPT; i++)
        add(four(x, first + i * CONSUMERS * 4), w[i], g[i]);
    for (uint32_t k = first + KEPT * CONSUMERS * 4; k < a.k; k += CONSUMERS * 4)
        add(four(x, k), four(a.norm.w, k), four(a.shared_gate, k));
#pragma unroll
    for (int i = 16; i; i /= 2)
        squares = __fadd_rn(squares, __shfl_xor_sync(~0u, squares, i)),
        dot = __fadd_rn(dot, __shfl_xor_sync(~0u, dot, i));
    if (!lane)
        room[warp] = squares, room[WARPS + warp] = dot;
    __syncthreads();
    squares = dot = 0;
    for (int n = 0; n < WARPS; n++)
        squares = __fadd_rn(squares, room[n]), dot = __fadd_rn(dot, room[WARPS + n]);
    if (!threadIdx.x)
        a.shared_by[row] = act_sigmoid(__fmul_rn(dot, rsqrtf(__fadd_rn(squares / a.k, a.norm.eps))));
    if (told)
        pdl_wait();
}
#endif

#if __CUDA_ARCH__ >= 900

/*
 * A warp waits for the row's logits and selects the ids of the row's experts; both go to shared memory. PAIRS: slots
 * that a lane reads, those at 32 i + lane. room: SHARES_EXPERTS words.
 */
template <int PAIRS>
__device__ static inline void up_choose(const experts_args &a, const route_choice &c, uint64_t tag, float *logits,
                                        uint32_t *room, uint32_t *ids, uint32_t lane)
{
    uint32_t n = c.n_expert, key[2 * PAIRS];
    uint64_t v[PAIRS];
    bool all;
    do {
        all = true;
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            if (64 * i + 2 * lane < n)
                all = heard(a.said->logit + 32 * i + lane, tag, &v[i]) && all;
    } while (!all);
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        uint32_t e = 64 * i + 2 * lane;
        key[2 * i] = key[2 * i + 1] = 0;
        if (e < n)
            logits[e] = said_first(v[i]), key[2 * i] = key_of(logits[e]);
        if (e + 1 < n)
            logits[e + 1] = said_second(v[i]), key[2 * i + 1] = key_of(logits[e + 1]);
    }
    __syncwarp();
    if (c.select_bias) {
        route_total t = total_of(c, logits, lane);
#pragma unroll 1
        for (uint32_t e = lane; e < n; e += 32)
            room[e] = key_of(score_of(c, logits[e], t) + c.select_bias[e]);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2 * PAIRS; i++) {
            uint32_t e = 64 * (i / 2) + 2 * lane + (i & 1);
            if (e < n)
                key[i] = room[e];
        }
    }
    greatest_pairs<PAIRS>(key, c.n_used, ids, lane);
    __syncwarp();
}

/* A warp computes the weights of the chosen experts, publishes them with the ids to `down`, and stores both for the
 * kernels that follow. */
__device__ static inline void up_tell(const experts_args &a, const route_choice &c, uint64_t tag, const float *logits,
                                      uint32_t id, uint32_t lane)
{
    route_total t = total_of(c, logits, lane);
    bool used = lane < c.n_used;
    float weight = weight_of(c, id, used ? score_of(c, logits[id], t) : 0.f, t.broken, lane);
    if (!used)
        return;
    say(a.said->chosen + lane, said_two((float)id, weight), tag);
    a.router.out[lane] = (float)id, a.router.out[c.n_used + lane] = weight;
}
#endif

/* Whether the mixture is one for which experts_up_chosen() has a specialised kernel: code is not in the instruction
 * cache when it is executed, so that what a mixture never uses costs time for each row. */
enum { PLAIN_EXPERTS = 128 };
static inline bool plain_up(const experts_args &a)
{
    const route_choice &c = a.router.choice;
    return a.gated && a.glu == GLU_SWIGLU && !a.bias && !a.router.bias && !c.select_bias && !c.expert_scale &&
           !a.shared_gate && c.n_expert <= PLAIN_EXPERTS;
}

/* Grid: blocks of the row, and one more where a shared expert has a gate. PLAIN: plain_up() holds. */
template <int T, bool PLAIN>
__global__ void __launch_bounds__(CONSUMERS, 3) experts_up_chosen(const __grid_constant__ experts_args a)
{
#if __CUDA_ARCH__ >= 900
    using C = few_list<T, false>;
    const bool gated = PLAIN || a.gated;
    const enum glu_kind glu = PLAIN ? GLU_SWIGLU : a.glu;
    const float *const biases = PLAIN ? NULL : a.bias;
    experts_router router = a.router;
    if (PLAIN)
        router.bias = router.choice.select_bias = router.choice.expert_scale = NULL;
    extern __shared__ __align__(128) uint8_t sm[];
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, tiles = a.n_slot * a.n_tile;
    uint64_t *full = (uint64_t *)sm + warp * EXPERTS_STAGES;
    uint8_t *xs = sm + FEW_X, *ring = sm + few_fixed(a.n_kblk) + warp * a.stages * C::FRAG;
    float *sums = (float *)(sm + FEW_SUMS), *squares = (float *)(sm + FEW_SQUARES),
          *logits = sums + WARPS * 64; /* in the buffer that the second tile's sums use later */
    uint32_t *ids = (uint32_t *)(logits + SHARES_EXPERTS);
    if (!lane) {
#pragma unroll 1
        for (uint32_t s = 0; s < a.stages; s++)
            mbar_init(full + s, 1);
        mbar_init_done();
    }
    if (threadIdx.x < 16)
        ((uint32_t *)(sm + FEW_ZERO))[threadIdx.x] = 0;
    bool live = a.step->n_row; /* written before the step's kernels start */
    if (!PLAIN && blockIdx.x == a.grid) {
        few_shared_gate(a, 0, live, false, sums);
        return;
    }
    if (!live) {
        pdl_wait();
        return;
    }
    C list(a, tiles, a.n_kblk, warp, lane);
    for (uint32_t k = list.r0 * 256 + lane * 8; k < min(list.r1 * 256, a.k); k += 256)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(a.norm.w + k));
    __syncthreads();
    uint64_t tag = said_tag(a.step, a.nth);
    auto prepare = [&] {
        eight w[NORM_IN_FLIGHT];
        pdl_wait();
#pragma unroll
        for (int i = 0; i < NORM_IN_FLIGHT; i++)
            if (list.r0 + i < list.r1)
                w[i].take(a.norm.w, a.k, (list.r0 + i) * 256 + lane * 8);
        gemv_norm_quantize(a.xf, a.k, a.norm.w, w, list.r0, list.r1, xs, squares + warp, lane);
        if (a.told && !blockIdx.x && threadIdx.x == CONSUMERS - 1)
            say_x(a.said, tag);
    };
    if (warp < 2)
        shares_tell(router, a.said, a.k, a.grid, tag, (float *)(ids + EXPERTS_USED_MAX), warp, lane);
    if (warp)
        prepare();
    else if (PLAIN || router.choice.n_expert <= PLAIN_EXPERTS)
        up_choose<2>(a, router.choice, tag, logits, (uint32_t *)sums, ids, lane);
    else
        up_choose<4>(a, router.choice, tag, logits, (uint32_t *)sums, ids, lane);
    __syncthreads();
    uint32_t id = lane < a.n_used ? ids[lane] : a.n_expert;
    list.locate(a, id);
    list.ask_first(ring, full, lane);
    constexpr bool late = hears_up(T); /* `down` waits for hidden units from its start, and would only be in the way */
    if (!late)
        pdl_trigger();
    if (!warp) {
        if (!blockIdx.x)
            up_tell(a, router.choice, tag, logits, id, lane);
        prepare();
    }
    __syncwarp();
    const uint8_t *x = xs + list.r0 * IX_KBLK;
    bool mine = lane >> 3 == (lane & 3); /* g >> 1 == t */
    const uint8_t *own = mine ? x + (lane >> 2 & 1) * IX_HI + 64 * (lane & 3) : sm + FEW_ZERO;
    uint32_t own_step = mine ? IX_KBLK : 0, s = 0, phase = 0;
#pragma unroll 1
    for (uint32_t i = 0, tile = blockIdx.x; tile < tiles; i++, tile += a.grid) {
        uint32_t slot = 0, o = 0, buf = i & 1;
        bool ends = warp == (i & (WARPS - 1)); /* this warp finishes the tile */
        float bias = 0;
        if (ends) {
            slot = tile / a.n_tile;
            uint32_t t = tile - slot * a.n_tile, expert = __shfl_sync(~0u, id, slot);
            o = gated ? t * 8 + (lane & 7) : t * 16 + (lane & 15);
            if (biases && lane < 16 && o < a.n_out)
                bias = biases[((uint64_t)(gated ? lane >> 3 : 0) * a.n_expert + expert) * a.n_out + o];
        }
        float acc[1][2] = {{0, 0}};
        ix_frag v = {x, own, 0, 0};
#pragma unroll 1
        for (uint32_t c = list.r0; c < list.r1; c++) {
#pragma unroll 1
            for (uint32_t q = 0; q < C::PER; q++) {
                mbar_wait(full + s, phase);
                uint32_t next = s + 1 == a.stages ? 0 : s + 1;
                list.ask(a, id, ring + next * C::FRAG, full + next, lane);
                quant<T>::template mul_int<1>(ring + s * C::FRAG, q, v, lane, acc);
                __syncwarp();
                s = next, phase ^= !next;
            }
            v.at += IX_KBLK, v.own += own_step;
        }
        float *to = sums + (buf * WARPS + warp) * 64 + lane;
        to[0] = acc[0][0], to[32] = acc[0][1]; /* rows g and g + 8, quarter t */
        __syncthreads();                       /* every reader of the other buffer has arrived too */
        if (late && i == 1)
            pdl_trigger();
        if (!ends)
            continue;
        float y = 0, q = 0;
#pragma unroll
        for (uint32_t n = 0; n < WARPS; n++) {
            float4 f = *(const float4 *)(sums + (buf * WARPS + n) * 64 + 4 * (lane & 15));
            y = __fadd_rn(y, __fadd_rn(__fadd_rn(f.x, f.y), __fadd_rn(f.z, f.w)));
        }
#pragma unroll
        for (int n = 0; n < WARPS; n++)
            q = __fadd_rn(q, squares[n]);
        y = __fadd_rn(__fmul_rn(y, rsqrtf(__fadd_rn(q / a.k, a.norm.eps))), bias);
        float h = glu_of(glu, y, gated ? __shfl_down_sync(~0u, y, 8) : 1.f);
        if (hears_up(T) && a.told) {
            float next = __shfl_down_sync(~0u, h, 1);
            if (lane < (gated ? 8 : 16) && !(lane & 1))
                say(a.told + ((uint64_t)slot * a.n_out + o) / 2, said_two(h, next), tag);
        }
        if (lane < (gated ? 8 : 16) && o < a.n_out)
            (slot < a.n_used ? a.hidden + (uint64_t)slot * a.n_out : a.shared_hidden)[o] = h;
    }
#endif
}

#endif
