/*
 * few.cuh - the products of experts for rows that are each computed by themselves, in integers as in gemv.cuh.
 *
 * For `up` only the norm's weights can be loaded before the router has chosen. It learns the choice before the router
 * kernel has ended (told.cuh), or makes it itself (few_up.cuh). `down` can load its first fragments while `up` is
 * running: two blocks of `up` leave an SM room for one of `down`, which may start once all blocks of `up` have seen the
 * route. There is no producer warp: each warp has its own ring of as many fragments as fit at once, filled by its lane
 * 0. For `up` a block takes tiles of its row's experts, and each warp a slice of K. For `down` it takes one tile of all
 * of the row's experts, whose K are concatenated, and each warp a slice of that. The sums of `down` are weighted record
 * by record, so that the result only has to be added to the residual stream.
 */
#ifndef HEARTH_CUDA_EXPERTS_FEW_CUH
#define HEARTH_CUDA_EXPERTS_FEW_CUH

#include "kernels/cuda/experts/few_down.cuh"
#include "kernels/cuda/experts/few_one.cuh"
#include "kernels/cuda/experts/few_up.cuh"
#include "kernels/cuda/gemm/prepare.cuh"

#if __CUDA_ARCH__ >= 800

/* A cursor over the fragments that a warp reads, one after the other. */
template <int T, bool DOWN> struct few_cursor {
    static constexpr uint32_t PER = quant<T>::FRAGS, FRAG = quant<T>::FRAG_BYTES;
    uint32_t tile, rec, q; /* tile: in the block's list; rec: record in the warp's slice; q: fragment of the record */

    __device__ void next(uint32_t r0, uint32_t r1, uint32_t step)
    {
        if (++q < PER)
            return;
        q = 0;
        if (++rec < r1)
            return;
        rec = r0, tile += step;
    }
    /* The fragment's address. id: the row's experts, one in each lane. Called by all lanes. */
    __device__ const uint8_t *at(const experts_args &a, uint32_t id) const
    {
        uint32_t slot = DOWN ? rec / a.n_kblk : tile / a.n_tile, t = DOWN ? tile : tile - slot * a.n_tile,
                 r = DOWN ? rec - slot * a.n_kblk : rec;
        return expert_at(a, __shfl_sync(~0u, id, slot)) +
               ((uint64_t)t * a.n_kblk * PER + t16_frag_at(a.n_kblk, PER, r, q)) * FRAG;
    }
};

/* Quantises records c0 .. c1 of a row's hidden rows, which are concatenated, to integers. meanwhile() runs while the
 * first loads are in flight. */
template <class F>
__device__ static inline void few_quantize_hidden(const experts_args &a, const float *hidden, const float *shared,
                                                  uint32_t c0, uint32_t c1, uint8_t *to, uint32_t lane, F meanwhile)
{
    enum { IN_FLIGHT = 3 };
    float v[IN_FLIGHT][8];
    auto load = [&](float *f, uint32_t c) {
        uint32_t slot = c / a.n_kblk, r = c - slot * a.n_kblk;
        load_eight(f, slot < a.n_used ? hidden + (uint64_t)slot * a.k : shared, r * 256 + lane * 8, a.k);
    };
#pragma unroll
    for (uint32_t i = 0; i < IN_FLIGHT; i++)
        if (c0 + i < c1)
            load(v[i], c0 + i);
    meanwhile();
#pragma unroll 1
    for (uint32_t c = c0; c < c1; c++) {
        float now[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            now[i] = v[0][i], v[0][i] = v[1][i], v[1][i] = v[2][i];
        if (c + IN_FLIGHT < c1)
            load(v[IN_FLIGHT - 1], c + IN_FLIGHT);
        int_quantize(to + c * IX_KBLK, lane, now);
    }
}
#endif

/* Grid: x blocks of a row, y rows. */
template <int T, bool DOWN>
__global__ void __launch_bounds__(CONSUMERS, DOWN ? 2 : 3) experts_few(const __grid_constant__ experts_args a)
{
#if __CUDA_ARCH__ >= 800
    using C = few_cursor<T, DOWN>;
    extern __shared__ __align__(128) uint8_t sm[];
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, row = blockIdx.y,
             records = DOWN ? a.n_slot * a.n_kblk : a.n_kblk, r0 = t16_slice(records, warp),
             r1 = t16_slice(records, warp + 1), tiles = DOWN ? a.n_tile : a.n_slot * a.n_tile;
    uint64_t *full = (uint64_t *)sm + warp * EXPERTS_STAGES;
    uint8_t *xs = sm + FEW_X, *ring = sm + few_fixed(records) + warp * a.stages * C::FRAG;
    float *sums = (float *)(sm + FEW_SUMS), *squares = (float *)(sm + FEW_SQUARES);
    if (DOWN)
        pdl_trigger();
    if (!lane) {
        for (uint32_t s = 0; s < a.stages; s++)
            mbar_init(full + s, fill_arrivals(a.bulk));
        mbar_init_done();
    }
    if (threadIdx.x < 16)
        ((uint32_t *)(sm + FEW_ZERO))[threadIdx.x] = 0;
    eight w[NORM_IN_FLIGHT];
    if (!DOWN && a.xf)
#pragma unroll
        for (int i = 0; i < NORM_IN_FLIGHT; i++)
            if (r0 + i < r1)
                w[i].take(a.norm.w, a.k, (r0 + i) * 256 + lane * 8);
    bool live = row < a.step->n_row,
         used = lane < a.n_used; /* the step's metadata were written before its kernels start */
    bool told = a.said && live;
    if (!DOWN && blockIdx.x == a.grid) {
        few_shared_gate(a, row, live, told, sums);
        return;
    }
    __syncthreads();
    uint64_t tag = told ? said_tag(a.step, a.nth) : 0;
    uint32_t id = a.n_expert;
    float weight = 0;
    if (!DOWN && told) { /* x is prepared while the router chooses */
        hear_x(a.said + row, tag);
        gemv_norm_quantize(a.xf + (uint64_t)row * a.ldxf, a.k, a.norm.w, w, r0, r1, xs, squares + warp, lane);
    } else if (!live || !DOWN || !a.routed)
        pdl_wait();
    if (!DOWN && !told)
        pdl_trigger(); /* not earlier: the dependent kernel may read the route at once */
    const float *route = a.route + (uint64_t)row * 2 * a.n_used;
    if (used && told) {
        uint64_t v = hear(a.said[row].chosen + lane, tag);
        id = expert_of(said_first(v), a.n_expert), weight = said_second(v);
    } else if (used && live)
        id = expert_of(__ldcg(route + lane), a.n_expert), weight = __ldcg(route + a.n_used + lane);
    __syncwarp();
    if (!DOWN && told)
        pdl_trigger(); /* its copies queue behind those that this kernel is about to issue */
    if (!live)
        return;
    uint64_t policy = evict_first();
    C ask = {blockIdx.x, r0, 0}, have = ask;
    uint32_t asked = 0, s = 0, phase = 0;
    auto request = [&](uint32_t stage) { /* copies the next fragment, if there is one */
                                         if (ask.tile >= tiles || r0 >= r1)
                                             return;
                                         const uint8_t *from = ask.at(a, id);
                                         if (!a.bulk) {
                                             cp_async_warp(ring + stage * C::FRAG, from, C::FRAG, policy, lane);
                                             cp_async_arrive(full + stage);
                                         } else if (!lane) {
                                             mbar_expect_tx(full + stage, C::FRAG);
                                             cp_async_bulk(ring + stage * C::FRAG, from, C::FRAG, full + stage, policy);
                                         }
                                         ask.next(r0, r1, a.grid);
    };
    for (; asked < a.stages; asked++)
        request(asked);
    if (DOWN && a.routed)
        pdl_wait();
    if (DOWN && lane == a.n_used && a.shared)
        weight = a.shared_gate ? __ldcg(a.shared_by + row) : 1.f;
    if (DOWN)
        few_quantize_hidden(a, a.hidden + (uint64_t)row * a.n_used * a.k, a.shared_hidden + (uint64_t)row * a.ldshared,
                            r0, r1, xs, lane, [] {});
    else if (a.xf && !told)
        gemv_norm_quantize(a.xf + (uint64_t)row * a.ldxf, a.k, a.norm.w, w, r0, r1, xs, squares + warp, lane);
    else if (!a.xf)
        gemv_quantize<1>(act_row(a.x, row) + r0 * XFRAG_STRIDE + eight_at(lane), a.k, r0, r1, xs, lane);
    __syncwarp();
    const uint8_t *x = xs + r0 * IX_KBLK;
    bool mine = lane >> 3 == (lane & 3); /* g >> 1 == t */
    const uint8_t *own = mine ? x + (lane >> 2 & 1) * IX_HI + 64 * (lane & 3) : sm + FEW_ZERO;
    uint32_t own_step = mine ? IX_KBLK : 0;
#pragma unroll 1
    for (uint32_t i = 0; have.tile < tiles; i++, have.tile += a.grid) {
        uint32_t slot = DOWN ? 0 : have.tile / a.n_tile, t = have.tile - slot * a.n_tile,
                 expert = __shfl_sync(~0u, id, slot), buf = i & 1;
        bool ends = warp == (i & (WARPS - 1)); /* this warp finishes the tile */
        uint32_t o = DOWN || !a.gated ? t * 16 + (lane & 15) : t * 8 + (lane & 7);
        float bias = 0, residual = 0;
        if (!DOWN && ends && a.bias && lane < 16 && o < a.n_out)
            bias = a.bias[((uint64_t)(a.gated ? lane >> 3 : 0) * a.n_expert + expert) * a.n_out + o];
        if (DOWN && ends) {
            for (uint32_t j = 0; a.bias && j < a.n_used; j++) {
                uint32_t e = __shfl_sync(~0u, id, j);
                float by = __shfl_sync(~0u, weight, j);
                if (o < a.n_out)
                    bias = __fmaf_rn(by, a.bias[(uint64_t)e * a.n_out + o], bias);
            }
            if (lane < 16 && o < a.n_out && !a.anew)
                residual = __ldcg(a.out + (uint64_t)row * a.ldout + o);
        }
        float acc[1][2] = {{0, 0}};
        ix_frag v = {x, own, 0, 0};
#pragma unroll 1
        for (uint32_t c = r0; c < r1; c++) {
            float part[1][2] = {{0, 0}};
#pragma unroll 1
            for (uint32_t q = 0; q < C::PER; q++) {
                mbar_wait(full + s, phase);
                quant<T>::template mul_int<1>(ring + s * C::FRAG, q, v, lane, DOWN ? part : acc);
                __syncwarp();
                request(s);
                if (++s == a.stages)
                    s = 0, phase ^= 1;
            }
            if (DOWN) {
                float by = __shfl_sync(~0u, weight, c / a.n_kblk);
                acc[0][0] = __fmaf_rn(by, part[0][0], acc[0][0]), acc[0][1] = __fmaf_rn(by, part[0][1], acc[0][1]);
            }
            v.at += IX_KBLK, v.own += own_step;
        }
        float *to = sums + (buf * WARPS + warp) * 64 + lane;
        to[0] = acc[0][0], to[32] = acc[0][1]; /* rows g and g + 8, quarter t */
        __syncthreads();                       /* every reader of the other buffer has arrived too */
        if (!ends)
            continue;
        float y = 0;
#pragma unroll
        for (uint32_t n = 0; n < WARPS; n++) {
            float4 f = *(const float4 *)(sums + (buf * WARPS + n) * 64 + 4 * (lane & 15));
            y = __fadd_rn(y, __fadd_rn(__fadd_rn(f.x, f.y), __fadd_rn(f.z, f.w)));
        }
        if (DOWN) {
            if (lane < 16 && o < a.n_out)
                a.out[(uint64_t)row * a.ldout + o] = __fmaf_rn(a.scale, __fadd_rn(y, bias), residual);
            continue;
        }
        if (a.xf) {
            float q = 0;
#pragma unroll
            for (int n = 0; n < WARPS; n++)
                q = __fadd_rn(q, squares[n]);
            y = __fmul_rn(y, rsqrtf(__fadd_rn(q / a.k, a.norm.eps)));
        }
        y = __fadd_rn(y, bias);
        float up = a.gated ? __shfl_down_sync(~0u, y, 8) : 1.f;
        if (hears_up(T) && a.told) {
            float h = glu_of(a.glu, y, up), next = __shfl_down_sync(~0u, h, 1);
            if (lane < (a.gated ? 8 : 16) && !(lane & 1))
                say(a.told + ((uint64_t)slot * a.n_out + o) / 2, said_two(h, next), tag);
        }
        if (lane < (a.gated ? 8 : 16) && o < a.n_out)
            (slot < a.n_used ? a.hidden + ((uint64_t)row * a.n_used + slot) * a.n_out
                             : a.shared_hidden + (uint64_t)row * a.ldshared)[o] = glu_of(a.glu, y, up);
    }
    if (!DOWN && told)
        pdl_wait(); /* keeps completion transitive */
#endif
}

/* --- launching ---------------------------------------------------------------------------------------------------- */

template <int T, bool DOWN> static void experts_alone(struct device *d, experts_args &a)
{
    static uint32_t done;
    constexpr uint32_t PER = quant<T>::FRAGS, FRAG = quant<T>::FRAG_BYTES;
    if constexpr (DOWN && hears_up(T))
        if (a.told) {
            experts_down_told<T>(d, a);
            return;
        }
    uint32_t records = DOWN ? a.n_slot * a.n_kblk : a.n_kblk, tiles = DOWN ? a.n_tile : a.n_slot * a.n_tile;
    bool chooses = !DOWN && a.router.shares.n_tile; /* a step of one row, all blocks of which are resident at once */
    uint32_t slots = 2 * d->sms / a.bucket - (chooses && a.shared_gate),
             grid = DOWN ? tiles : min_u(tiles, slots ? slots : 1);
    uint32_t each = ((tiles + grid - 1) / grid) * ((records + WARPS - 1) / WARPS) * PER, fixed = few_fixed(records);
    int blocks = 3; /* on an SM: two of `up`, one of `down` */
    while (blocks > 1 && smem_for(d, blocks) < fixed + 2 * WARPS * FRAG)
        blocks--;
    uint32_t room = smem_for(d, blocks) - (DOWN && blocks == 3 ? 2 * UP_MORE : 0);
    a.stages = min_u(min_u((room - fixed) / (WARPS * FRAG), each), EXPERTS_STAGES);
    a.grid = grid;
    uint32_t bytes = fixed + a.stages * WARPS * FRAG;
    if (!DOWN && (chooses || (hears_up(T) && a.told)) && blocks == 3 && grid > (uint32_t)d->sms)
        bytes = bytes > room + UP_MORE ? bytes : room + UP_MORE; /* two on an SM and no third: few_down.cuh */
    dim3 blocks_of(grid + (!DOWN && a.shared_gate), a.bucket);
    if constexpr (!DOWN)
        if (chooses) {
            static uint32_t once[2];
            bool plain = plain_up(a);
            auto chosen = plain ? experts_up_chosen<T, true> : experts_up_chosen<T, false>;
            smem_once(d, chosen, &once[plain]);
            cuda_launch(d, chosen, blocks_of, CONSUMERS, bytes, LAUNCH_PDL, a);
            return;
        }
    if constexpr (DOWN && by_threes(T))
        if (a.bucket == 1 && a.said && a.routed && d->cc >= 90) {
            static uint32_t once[2];
            auto one = a.bias ? experts_down_one<T, true> : experts_down_one<T, false>;
            smem_once(d, one, &once[a.bias != NULL]);
            cuda_launch(d, one, blocks_of, CONSUMERS, bytes, LAUNCH_PDL, a);
            return;
        }
    smem_once(d, experts_few<T, DOWN>, &done);
    cuda_launch(d, experts_few<T, DOWN>, blocks_of, CONSUMERS, bytes, LAUNCH_PDL, a);
}

#endif
