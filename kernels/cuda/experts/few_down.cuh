/*
 * few_down.cuh - `down` of one row where it has more tiles than there are SMs but fewer than twice as many, as in
 * gpt-oss.
 *
 * With few.cuh some SMs would have two blocks, of which the second starts when `up` has ended, and others one. Here
 * each SM has one block, beside those of `up`, and the remaining tiles are divided into slices: the first warps of a
 * block each take one more slice, of a tile that no block owns, and publish its sums (told.cuh) to the block that has
 * the tile's last slice. That block adds them in the order of the sums of eight warps, so that the result is
 * bit-identical; it waits only for blocks that started before it. Hidden units are received from `up` tile by tile as
 * they are published, instead of being read when its kernel has ended.
 *
 * Used for the types for which hears_up() is true: it was slower where the product takes few instructions, and other
 * shapes were not measured.
 */
#ifndef HEARTH_CUDA_EXPERTS_FEW_DOWN_CUH
#define HEARTH_CUDA_EXPERTS_FEW_DOWN_CUH

#include "kernels/cuda/experts/experts.cuh"
#include "kernels/cuda/gemm/gemv_x.cuh"

#if __CUDA_ARCH__ >= 800

/* A warp's part of a tile: records r0 to r1. */
struct down_slice {
    uint32_t tile, r0, r1;
};
/* The warp's slice of its block's own tile. */
__device__ static inline down_slice down_own(uint32_t records, uint32_t warp)
{
    return {blockIdx.x, t16_slice(records, warp), t16_slice(records, warp + 1)};
}
/* The warp's slice of a tile that no block owns; nth: its number among all such slices. False where the warp has
 * none. */
__device__ static inline bool down_more(const experts_args &a, uint32_t records, uint32_t warp, uint32_t *nth,
                                        down_slice *more)
{
    *nth = blockIdx.x * a.more + warp;
    *more = {gridDim.x + *nth / WARPS, t16_slice(records, *nth % WARPS), t16_slice(records, *nth % WARPS + 1)};
    return warp < a.more && more->tile < a.n_tile;
}

/*
 * The list of fragments that a warp reads, one after the other, by records: first those of its own slice, then those of
 * the additional one. Computing the place of a record takes divisions, which would be most of a warp's instructions.
 * So, for 32 records at a time, each lane computes the place of one and issues the copies of its fragments.
 */
template <int T> struct down_list {
    static constexpr uint32_t PER = quant<T>::FRAGS, FRAG = quant<T>::FRAG_BYTES;
    uint32_t n, at, q;   /* records; the next one and its next fragment: equal in all lanes */
    const uint8_t *from; /* the next fragment of this lane's record */
    uint32_t step;       /* bytes to the fragment after that */

    __device__ void find(const experts_args &a, uint32_t id, uint32_t warp, uint32_t lane)
    {
        uint32_t records = a.n_used * a.n_kblk, nth;
        down_slice of = down_own(records, warp), more;
        uint32_t i = at + lane, each = of.r1 - of.r0;
        if (i >= each) {
            down_more(a, records, warp, &nth, &more);
            i -= each, of = more;
        }
        uint32_t rec = of.r0 + i, slot = rec / a.n_kblk, r = rec - slot * a.n_kblk,
                 first = t16_frag_at(a.n_kblk, PER, r, 0);
        from = expert_at(a, __shfl_sync(~0u, id, slot)) + ((uint64_t)of.tile * a.n_kblk * PER + first) * FRAG;
        step = PER > 1 ? (t16_frag_at(a.n_kblk, PER, r, 1) - first) * FRAG : 0;
    }
    /* Copies the next fragment, if there is one. id: the row's experts, one in each lane. Called by all lanes. */
    __device__ void ask(const experts_args &a, uint32_t id, uint8_t *to, uint64_t *full, uint64_t policy, uint32_t warp,
                        uint32_t lane)
    {
        uint32_t who = at & 31;
        if (at == n)
            return;
        if (!who && !q)
            find(a, id, warp, lane);
        if (lane == who) {
            mbar_expect_tx(full, FRAG);
            cp_async_bulk(to, from, FRAG, full, policy);
            from += step;
        }
        if (++q == PER)
            q = 0, at++;
    }
};

/* A record of the concatenated K of all of a row's experts: which of the row's experts it belongs to, and which of that
 * expert's records it is. */
struct down_record {
    uint32_t slot, r;
    __device__ down_record(const experts_args &a, uint32_t c)
    {
        slot = c / a.n_kblk, r = c - slot * a.n_kblk;
    }
    __device__ void next(const experts_args &a)
    {
        if (++r == a.n_kblk)
            r = 0, slot++;
    }
};

/* Quantises records c0 .. c1 of the row's hidden rows, which are concatenated, to integers as `up` publishes them. */
__device__ static inline void down_quantize(const experts_args &a, uint64_t tag, uint32_t c0, uint32_t c1, uint8_t *to,
                                            uint32_t lane)
{
    enum { AT_ONCE = 3 };
#pragma unroll 1
    for (uint32_t base = c0; base < c1; base += AT_ONCE) {
        uint64_t v[AT_ONCE][4];
        bool all;
        down_record at(a, base);
        if (!lane) /* only one lane polls, to spare the memory system */
            hear(a.told + (at.slot * a.k + at.r * 256) / 2, tag);
        __syncwarp();
        do {
            all = true;
            down_record now = at;
#pragma unroll
            for (uint32_t i = 0; i < AT_ONCE; i++) {
                uint32_t k = now.r * 256 + lane * 8; /* k and a.k are multiples of 8 */
                if (base + i < c1 && k < a.k)
#pragma unroll
                    for (uint32_t j = 0; j < 4; j++)
                        all = heard(a.told + (now.slot * a.k + k) / 2 + j, tag, &v[i][j]) && all;
                else
#pragma unroll
                    for (uint32_t j = 0; j < 4; j++)
                        v[i][j] = 0;
                now.next(a);
            }
        } while (!all);
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            float f[8];
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                f[2 * j] = said_first(v[i][j]), f[2 * j + 1] = said_second(v[i][j]);
            if (base + i < c1)
                int_quantize(to + (base + i) * IX_KBLK, lane, f);
        }
    }
}

/* The sums of a slice's sixteen rows, of four quarters each: in lanes 0 to 15, and repeated in the others. */
__device__ static inline float down_sum(const float *sums, uint32_t lane)
{
    float4 f = *(const float4 *)(sums + 4 * (lane & 15));
    return __fadd_rn(__fadd_rn(f.x, f.y), __fadd_rn(f.z, f.w));
}
/* Publishes the sums, two a slot, of the nth slice among those that no block owns. */
__device__ static inline void down_tell(const experts_args &a, uint32_t nth, float y, uint64_t tag, uint32_t lane)
{
    float next = __shfl_down_sync(~0u, y, 1);
    if (lane < 16 && !(lane & 1))
        say(a.slices + nth * 8 + lane / 2, said_two(y, next), tag);
}
/* Waits for the sums of a tile's eight slices, from the nth on, and adds them up; a lane reads two of their 64
 * slots. */
__device__ static inline float down_hear(const experts_args &a, uint32_t nth, uint64_t tag, uint32_t lane)
{
    const ulonglong2 *slots = a.slices + nth * 8;
    uint64_t v[2] = {hear(slots + lane, tag), hear(slots + 32 + lane, tag)};
    __syncwarp();
    float y = 0;
#pragma unroll
    for (uint32_t n = 0; n < WARPS; n++) {
        uint32_t from = n % 4 * 8 + (lane >> 1 & 7);
        float even = __shfl_sync(~0u, said_first(v[n / 4]), from), odd = __shfl_sync(~0u, said_second(v[n / 4]), from);
        y = __fadd_rn(y, lane & 1 ? odd : even);
    }
    return y;
}

#endif

/* Grid: one block for each SM. The route and the hidden units are published while this kernel runs. */
template <int T>
__global__ void __launch_bounds__(CONSUMERS + 64, 2) experts_down_slices(const __grid_constant__ experts_args a)
{
#if __CUDA_ARCH__ >= 900
    using C = down_list<T>;
    extern __shared__ __align__(128) uint8_t sm[];
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, records = a.n_used * a.n_kblk, nth_more, s = 0,
             phase = 0;
    uint64_t *full = (uint64_t *)sm + warp * EXPERTS_STAGES;
    uint8_t *xs = sm + FEW_X, *ring = sm + few_fixed(records) + warp * a.stages * C::FRAG;
    float *sums = (float *)(sm + FEW_SUMS);
    pdl_trigger();
    if (!lane) {
#pragma unroll 1
        for (uint32_t i = 0; i < a.stages; i++)
            mbar_init(full + i, 1);
        mbar_init_done();
    }
    if (threadIdx.x < 16)
        ((uint32_t *)(sm + FEW_ZERO))[threadIdx.x] = 0;
    if (!a.step->n_row) { /* written before the step's kernels start */
        pdl_wait();
        return;
    }
    __syncthreads();
    uint64_t tag = said_tag(a.step, a.nth), policy = evict_first();
    bool used = lane < a.n_used;
    uint32_t id = a.n_expert;
    float weight = 0;
    if (used) {
        uint64_t v = hear(a.said->chosen + lane, tag);
        id = expert_of(said_first(v), a.n_expert), weight = said_second(v);
    }
    __syncwarp();
    down_slice now = down_own(records, warp), more;
    bool helps = down_more(a, records, warp, &nth_more, &more);
    C list = {now.r1 - now.r0 + (helps ? more.r1 - more.r0 : 0), 0, 0, NULL, 0};
    for (uint32_t i = 0; i < min(a.stages, list.n * C::PER); i++) {
        if (i) /* one in flight, as in few_list.cuh */
            mbar_wait(full + i - 1, 0);
        list.ask(a, id, ring + i * C::FRAG, full + i, policy, warp, lane);
    }
    auto bias_of = [&](uint32_t o) {
        float bias = 0;
        for (uint32_t j = 0; a.bias && j < a.n_used; j++) {
            uint32_t e = __shfl_sync(~0u, id, j);
            float by = __shfl_sync(~0u, weight, j);
            if (o < a.n_out)
                bias = __fmaf_rn(by, a.bias[(uint64_t)e * a.n_out + o], bias);
        }
        return bias;
    };
    auto residual_of = [&](uint32_t o) { return lane < 16 && o < a.n_out && !a.anew ? __ldcg(a.out + o) : 0.f; };
    auto end = [&](uint32_t o, float y, float bias, float residual) {
        pdl_wait(); /* usually returns at once. x may be written only when all kernels that read it have ended */
        if (lane < 16 && o < a.n_out)
            a.out[o] = __fmaf_rn(a.scale, __fadd_rn(y, bias), residual);
    };
    bool ends = warp == WARPS - 1; /* this warp never has a second slice */
    float bias = 0;
    if (ends) {
        if (!lane) { /* x is the row that the results are added to */
            hear(a.said->x, tag);
            __threadfence();
        }
        __syncwarp();
        bias = bias_of(now.tile * 16 + (lane & 15));
    }
    down_quantize(a, tag, now.r0, now.r1, xs, lane);
    __syncwarp();
    bool mine = lane >> 3 == (lane & 3); /* g >> 1 == t */
#pragma unroll 1
    for (uint32_t i = 0; i < 1 + helps; i++) {
        if (i)
            now = more;
        uint32_t o = now.tile * 16 + (lane & 15);
        float residual = ends ? residual_of(o) : 0;
        const uint8_t *x = xs + now.r0 * IX_KBLK;
        ix_frag v = {x, mine ? x + (lane >> 2 & 1) * IX_HI + 64 * (lane & 3) : sm + FEW_ZERO, 0, 0};
        float acc[1][2] = {{0, 0}};
        down_record rec(a, now.r0);
#pragma unroll 1
        for (uint32_t c = now.r0; c < now.r1; c++) {
            float part[1][2] = {{0, 0}}, by = __shfl_sync(~0u, weight, rec.slot);
#pragma unroll 1
            for (uint32_t q = 0; q < C::PER; q++) {
                mbar_wait(full + s, phase);
                quant<T>::template mul_int<1>(ring + s * C::FRAG, q, v, lane, part);
                __syncwarp();
                list.ask(a, id, ring + s * C::FRAG, full + s, policy, warp, lane);
                if (++s == a.stages)
                    s = 0, phase ^= 1;
            }
            acc[0][0] = __fmaf_rn(by, part[0][0], acc[0][0]), acc[0][1] = __fmaf_rn(by, part[0][1], acc[0][1]);
            rec.next(a);
            v.at += IX_KBLK, v.own += mine ? IX_KBLK : 0;
        }
        float *to = sums + (i * WARPS + warp) * 64 + lane;
        to[0] = acc[0][0], to[32] = acc[0][1]; /* rows g and g + 8, quarter t */
        if (i) {                               /* a slice of a tile that no block owns: no other warp takes part */
            __syncwarp();
            down_tell(a, nth_more, down_sum(to - lane, lane), tag, lane);
            break;
        }
        __syncthreads(); /* now all records are in shared memory, too */
        if (!ends)
            continue;
        float y = 0;
#pragma unroll
        for (uint32_t n = 0; n < WARPS; n++)
            y = __fadd_rn(y, down_sum(sums + n * 64, lane));
        end(o, y, bias, residual);
    }
    uint32_t first = blockIdx.x * a.more,
             done = (first + a.more) / WARPS; /* tiles whose last slice is in this block or an earlier one */
    if (ends && done > first / WARPS && done <= a.n_tile - gridDim.x) {
        uint32_t o = (gridDim.x + done - 1) * 16 + (lane & 15);
        float residual = residual_of(o);
        bias = bias_of(o);
        end(o, down_hear(a, (done - 1) * WARPS, tag, lane), bias, residual);
    }
    pdl_wait(); /* keeps completion transitive */
#endif
}

/* --- launching ---------------------------------------------------------------------------------------------------- */

/* Bytes, the allocation granularity of shared memory, by which two blocks of `up` exceed two thirds of an SM's: if
 * three of them fitted on an SM, it would have no room for a block of this kernel. */
enum { UP_MORE = 128 };

template <int T> static void experts_down_told(struct device *d, experts_args &a)
{
    static uint32_t done;
    constexpr uint32_t PER = quant<T>::FRAGS, FRAG = quant<T>::FRAG_BYTES;
    uint32_t records = a.n_used * a.n_kblk, fixed = few_fixed(records),
             blocks = 3; /* on an SM: two of `up`, one of this kernel */
    while (blocks > 1 && smem_for(d, blocks) < fixed + 2 * WARPS * FRAG)
        blocks--;
    uint32_t room = smem_for(d, blocks) - (blocks == 3 ? 2 * UP_MORE : 0);
    a.stages = min_u(min_u((room - fixed) / (WARPS * FRAG), 2 * ((records + WARPS - 1) / WARPS) * PER), EXPERTS_STAGES);
    smem_once(d, experts_down_slices<T>, &done);
    cuda_launch(d, experts_down_slices<T>, dim3(d->sms), CONSUMERS, fixed + a.stages * WARPS * FRAG, LAUNCH_PDL, a);
}

#endif
