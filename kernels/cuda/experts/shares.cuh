/*
 * shares.cuh - routing without a router kernel, in a step of one row: the product that makes x, tile by tile, also
 * computes each tile's share of all logits, and `up` adds the shares up and makes the choice.
 *
 * A router reads only 1 or 2 MB, but does it in a chain of small steps, each of which waits for a round trip to L2 or
 * for the end of a kernel. A logit is factor * sum of W[e][i] gain[i] x[i], so a block that has a tile of x can compute
 * the tile's share of each logit with weights that it loaded into shared memory long before. That leaves two round
 * trips: shares to the blocks of `up`, each of which has a pair of experts, and logits to all of these blocks.
 * Meanwhile `up` prepares x, which is in memory when the product's kernel has ended.
 *
 * The sums have the order of row.cuh, so the results are bit-identical to those of route.cu.
 */
#ifndef HEARTH_CUDA_EXPERTS_SHARES_CUH
#define HEARTH_CUDA_EXPERTS_SHARES_CUH

#include "kernels/cuda/experts/experts.cuh"
#include "kernels/cuda/experts/row.cuh"
#include "kernels/cuda/gemm/gemv_launch.cuh"

struct shares_args {
    const float *w;    /* [n_expert][n]: the router's weights */
    const float *gain; /* [n]: the weights of the norm in front of it */
    uint32_t n_expert, n;
    struct route_shares to;
    const step_dev *step;
    uint32_t nth; /* said_tag() */
};

/* Bytes of shared memory that a block needs besides gemv's: all experts' weights in a tile, and the tile's x and x
 * times gain. */
__host__ __device__ static inline uint32_t shares_room(uint32_t n_expert)
{
    return ((n_expert + 1) / 2 * 2 + 2) * ROUTE_TILE * sizeof(float);
}

#if __CUDA_ARCH__ >= 900

/* Offset of the i-th group of four of an expert's weights. The groups are swizzled so that those of eight lanes lie in
 * different banks. Experts come in pairs, those of a slot: first the first expert of every pair, then the second
 * ones. */
__device__ static inline uint32_t shares_at(uint32_t expert, uint32_t pairs, uint32_t i)
{
    uint32_t row = (expert & 1) * pairs + expert / 2;
    return row * ROUTE_TILE + 4 * (i ^ (row >> 1 & 3));
}

/* A tile's share of a logit: w and x are in shared memory, the groups of four of w swizzled by `turn`. */
__device__ static inline float tile_product(const float *w, uint32_t turn, const float *x)
{
    float v[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        v[i] = dot_four(*(const float4 *)(w + 4 * (i ^ turn)), *(const float4 *)(x + 4 * i), 0);
    return __fadd_rn(__fadd_rn(v[0], v[1]), __fadd_rn(v[2], v[3]));
}

/* The epilogue warp of a block of one tile: does what gemv_epilogue() does, and then computes the tile's shares. */
template <class S>
__device__ static inline void shares_epilogue(const gemm_args &a, const shares_args &s, uint8_t *sm, float *room,
                                              uint32_t lane)
{
    uint32_t tile = blockIdx.x, pairs = (s.n_expert + 1) / 2, half = lane >> 4, r = lane & 15;
    float *xs = room + 2 * pairs * ROUTE_TILE, *weighed = xs + ROUTE_TILE;
    uint64_t tag = said_tag(s.step, s.nth);
    for (uint32_t i = lane; i < 4 * s.n_expert; i += 32)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_of(room + shares_at(i / 4, pairs, i & 3))),
                     "l"(s.w + (uint64_t)(i / 4) * s.n + tile * ROUTE_TILE + 4 * (i & 3))
                     : "memory");
    float *x = a.out + tile * ROUTE_TILE + r, gain = s.gain[tile * ROUTE_TILE + r],
          bias = a.bias ? a.bias[tile * ROUTE_TILE + r] : 0;
    if (!half)
        xs[r] = weighed[r] = 0;
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
#pragma unroll 1
    for (uint32_t again = 0; again < 2; again++) { /* the first pass is a dry run to warm the instruction cache */
        if (again) {
            pdl_wait();
            float residual = __ldcg(x);
            named_bar_sync<S::BAR_THREADS>(BAR_FULL);
            const float *from = (const float *)(sm + S::PARTIALS) + half * (WARPS / 2) * S::TILES * 64 + 4 * r;
            float y = 0;
#pragma unroll
            for (int w = 0; w < WARPS / 2; w++) {
                float4 v = *(const float4 *)(from + w * S::TILES * 64);
                y = __fadd_rn(y, __fadd_rn(__fadd_rn(v.x, v.y), __fadd_rn(v.z, v.w)));
            }
            y = __fadd_rn(y, __shfl_down_sync(~0u, y, 16));
            if (!half) {
                y = __fadd_rn(residual, __fmul_rn(__fadd_rn(y, bias), a.scale)); /* as epilogue_row() */
                *x = y;
                xs[r] = y, weighed[r] = __fmul_rn(y, gain);
            }
            __syncwarp();
        }
#pragma unroll 1
        for (uint32_t p = lane; p <= pairs; p += 32) {
            bool last = p == pairs; /* the slot behind the experts has the sum of squares */
            uint32_t turn = last ? 0 : p >> 1 & 3, turn_b = last ? 0 : (pairs + p) >> 1 & 3;
            const float *of = last ? xs : weighed, *w = last ? xs : room + p * ROUTE_TILE;
            uint64_t v =
                said_two(tile_product(w, turn, of), tile_product(last ? xs : w + pairs * ROUTE_TILE, turn_b, of));
            asm volatile("" ::"l"(v)); /* computed before the branch, so in the dry run too */
            if (again)
                say(s.to.slots + (uint64_t)p * s.to.n_tile + tile, v, tag);
        }
    }
}

/* The sums of a row of slots over all tiles, for both numbers of a slot, in all lanes. */
__device__ static inline float2 hear_shares(const route_shares &s, uint32_t row, uint64_t tag, uint32_t lane)
{
    enum { AT_ONCE = 4 };
    const ulonglong2 *slots = s.slots + (uint64_t)row * s.n_tile;
    float2 sum;
    bool all;
    do { /* repeated as a whole until all slots are there, which also warms the instruction cache */
        all = true, sum = make_float2(0, 0);
#pragma unroll 1
        for (uint32_t base = lane; base - lane < s.n_tile; base += 32 * AT_ONCE) {
            uint64_t v[AT_ONCE];
#pragma unroll
            for (uint32_t i = 0; i < AT_ONCE; i++)
                all = heard(slots + min(base + 32 * i, s.n_tile - 1), tag, &v[i]) && all;
#pragma unroll
            for (uint32_t i = 0; i < AT_ONCE; i++)
                if (base + 32 * i < s.n_tile)
                    sum.x = __fadd_rn(sum.x, said_first(v[i])), sum.y = __fadd_rn(sum.y, said_second(v[i]));
        }
        sum = make_float2(warp_sum(sum.x), warp_sum(sum.y));
    } while (!__all_sync(~0u, all));
    return sum;
}

/* Publishes the logits of the block's pairs of experts to all blocks of `up`. Called by the block's first two warps:
 * the first computes the logits, the second the norm's factor. n: columns of the row; room: a float in shared
 * memory. compute-sanitizer's racecheck loses track of the block's barrier after BAR_FACTOR; in a build with
 * -DRACECHECK the first warp computes both. */
enum { BAR_FACTOR = 1 };
#ifdef RACECHECK
enum { FACTOR_APART = 0 };
#else
enum { FACTOR_APART = 1 };
#endif
__device__ static inline void shares_tell(const experts_router &r, route_said *said, uint32_t n, uint32_t blocks,
                                          uint64_t tag, float *room, uint32_t warp, uint32_t lane)
{
    uint32_t n_expert = r.choice.n_expert, pairs = (n_expert + 1) / 2;
    float by = 0;
    if (blockIdx.x >= pairs)
        return;
    if (warp) {
        if (FACTOR_APART) {
            *room = row_factor(hear_shares(r.shares, pairs, tag, lane).x, n, r.eps);
            named_bar_arrive<64>(BAR_FACTOR);
        }
        return;
    }
    if (!FACTOR_APART)
        by = row_factor(hear_shares(r.shares, pairs, tag, lane).x, n, r.eps);
    for (uint32_t p = blockIdx.x; p < pairs; p += blocks) {
        float bias[2] = {0, 0};
        if (r.bias)
            bias[0] = r.bias[2 * p], bias[1] = r.bias[min(2 * p + 1, n_expert - 1)];
        float2 sum = hear_shares(r.shares, p, tag, lane);
        if (FACTOR_APART && p == blockIdx.x)
            named_bar_sync<64>(BAR_FACTOR), by = *room;
        if (!lane)
            say(said->logit + p,
                said_two(__fadd_rn(__fmul_rn(sum.x, by), bias[0]), __fadd_rn(__fmul_rn(sum.y, by), bias[1])), tag);
    }
}

#endif

/* The product of one row with a matrix of one type, one tile a block; bit-identical to gemv. */
template <int T>
__global__ void __launch_bounds__(448, 2) /* leaves registers for two blocks of `up` beside one of these */
    gemv_shares(const __grid_constant__ gemm_args a, const __grid_constant__ shares_args s)
{
#if __CUDA_ARCH__ >= 900
    using S = gemv_shape<1, 1, GEMV_REST>;
    extern __shared__ __align__(128) uint8_t sm[];
    uint64_t *full = (uint64_t *)sm, *empty = full + STAGES_MAX;
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    uint8_t *ring = sm + S::fixed(a);
    pdl_trigger();
    if (!threadIdx.x) {
#pragma unroll 1
        for (uint32_t i = 0; i < a.stages; i++)
            mbar_init(full + i, 1), mbar_init(empty + i, WARPS * WARP_ARRIVALS);
        mbar_init_done();
    }
    if (threadIdx.x < 16)
        ((uint32_t *)(sm + S::ZERO))[threadIdx.x] = 0;
    __syncthreads();
    if (warp < WARPS)
        gemv_consumer<T, T, 1, 1, GEMV_REST>(a, 1, sm, warp, lane);
    else if (warp > WARPS)
        shares_epilogue<S>(a, s, sm, (float *)(ring + a.stages * a.stage_bytes), lane);
    else {
        if (!lane)
            gemv_producer<T, T, GEMV_REST, true>(a, 1, full, empty, ring, 0);
        __syncwarp(); /* else the other lanes' wait would hold up lane 0 with them */
        pdl_wait();
    }
#endif
}

/* --- launching ---------------------------------------------------------------------------------------------------- */

template <int T> static bool shares_run(struct device *d, gemm_args a, const shares_args &s)
{
    static uint32_t done;
    using S = gemv_shape<1, 1, GEMV_REST>;
    using R = gemv_ring<T, T>;
    uint32_t beside = S::fixed(a) + shares_room(s.n_expert), room = smem_for(d, 2),
             need = (a.n_kblk + K_SLICES - 1) / K_SLICES * R::PA;
    a.stage_bytes = R::stage_bytes(a.n_kblk);
    if (room < beside + 2 * a.stage_bytes)
        return false;
    a.stages = min_u(min_u((room - beside) / a.stage_bytes, need), STAGES_MAX);
    a.in_flight = 1, a.bucket = 1;
    smem_once(d, gemv_shares<T>, &done);
    cuda_launch(d, gemv_shares<T>, dim3(a.tile_hi - a.tile_lo), S::THREADS, beside + a.stages * a.stage_bytes,
                LAUNCH_PDL, a, s);
    return true;
}

#endif
