/*
 * shares.cuh - a router without a kernel of its own, of a step of one row: the product that makes x, tile by tile,
 * makes each tile's shares of all logits, and `up` adds them up and chooses.
 *
 * A router's 1 or 2 MB are a chain of small steps, each of which waits for a trip to L2 or for a kernel's end. But a
 * logit is factor * sum of W[e][i] gain[i] x[i]: who has a tile of x can make its share of each, by weights that are in
 * its shared memory long before. So there are two trips: shares to blocks of `up`, a pair of experts each, and logits
 * to all of them. `up` prepares x meanwhile, which it finds in memory when the product's kernel has ended.
 *
 * Sums are in the order of row.cuh: the bits of route.cu.
 */
#ifndef HEARTH_CUDA_EXPERTS_SHARES_CUH
#define HEARTH_CUDA_EXPERTS_SHARES_CUH

#include "kernels/cuda/experts/experts.cuh"
#include "kernels/cuda/experts/row.cuh"
#include "kernels/cuda/gemm/gemv_launch.cuh"

struct shares_args {
    const float *w;    /* [n_expert][n]: the router's */
    const float *gain; /* [n]: of the norm before it */
    uint32_t n_expert, n;
    struct route_shares to;
    const step_dev *step;
    uint32_t nth; /* said_tag() */
};

/* Shared memory of a block beside gemv's: the experts' weights of a tile, and x and x times gain of it. */
__host__ __device__ static inline uint32_t shares_room(uint32_t n_expert)
{
    return ((n_expert + 1) / 2 * 2 + 2) * ROUTE_TILE * sizeof(float);
}

#if __CUDA_ARCH__ >= 900

/* Where four i of the weights of an expert lies: fours are turned so that eight lanes' lie in different banks. Experts
 * come by twos, those of a slot: all the first ones, then all the second ones. */
__device__ static inline uint32_t shares_at(uint32_t expert, uint32_t pairs, uint32_t i)
{
    uint32_t row = (expert & 1) * pairs + expert / 2;
    return row * ROUTE_TILE + 4 * (i ^ (row >> 1 & 3));
}

/* A tile's share: both in shared memory, the fours of w turned by `turn`. */
__device__ static inline float tile_product(const float *w, uint32_t turn, const float *x)
{
    float v[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        v[i] = dot_four(*(const float4 *)(w + 4 * (i ^ turn)), *(const float4 *)(x + 4 * i), 0);
    return __fadd_rn(__fadd_rn(v[0], v[1]), __fadd_rn(v[2], v[3]));
}

/* The warp that finishes, of a block of one tile: as gemv_epilogue(), and then the tile's shares. */
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
    for (uint32_t again = 0; again < 2; again++) { /* once before, as code is fetched as it is run */
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
            bool last = p == pairs; /* of these the squares */
            uint32_t turn = last ? 0 : p >> 1 & 3, turn_b = last ? 0 : (pairs + p) >> 1 & 3;
            const float *of = last ? xs : weighed, *w = last ? xs : room + p * ROUTE_TILE;
            uint64_t v =
                said_two(tile_product(w, turn, of), tile_product(last ? xs : w + pairs * ROUTE_TILE, turn_b, of));
            asm volatile("" ::"l"(v)); /* before the branch */
            if (again)
                say(s.to.slots + (uint64_t)p * s.to.n_tile + tile, v, tag);
        }
    }
}

/* The sums over all tiles of a row of slots, of both numbers, in all lanes. */
__device__ static inline float2 hear_shares(const route_shares &s, uint32_t row, uint64_t tag, uint32_t lane)
{
    enum { AT_ONCE = 4 };
    const ulonglong2 *slots = s.slots + (uint64_t)row * s.n_tile;
    float2 sum;
    bool all;
    do { /* all of it again until all are there, so that the code is */
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

/* Logits of pairs of experts, those of the block, to all blocks of `up`, by its first warp; the second one has the
 * norm's factor. n: columns of the row; room: a float in shared memory. */
enum { BAR_FACTOR = 1 };
__device__ static inline void shares_tell(const experts_router &r, route_said *said, uint32_t n, uint32_t blocks,
                                          uint64_t tag, float *room, uint32_t warp, uint32_t lane)
{
    uint32_t n_expert = r.choice.n_expert, pairs = (n_expert + 1) / 2;
    float by = 0;
    if (blockIdx.x >= pairs)
        return;
    if (warp) {
        *room = row_factor(hear_shares(r.shares, pairs, tag, lane).x, n, r.eps);
        named_bar_arrive<64>(BAR_FACTOR);
        return;
    }
    for (uint32_t p = blockIdx.x; p < pairs; p += blocks) {
        float bias[2] = {0, 0};
        if (r.bias)
            bias[0] = r.bias[2 * p], bias[1] = r.bias[min(2 * p + 1, n_expert - 1)];
        float2 sum = hear_shares(r.shares, p, tag, lane);
        if (p == blockIdx.x)
            named_bar_sync<64>(BAR_FACTOR), by = *room;
        if (!lane)
            say(said->logit + p,
                said_two(__fadd_rn(__fmul_rn(sum.x, by), bias[0]), __fadd_rn(__fmul_rn(sum.y, by), bias[1])), tag);
    }
}

#endif

/* The product of one row with a matrix of one type, a tile a block: the bits of gemv. */
template <int T>
__global__ void __launch_bounds__(448, 2) /* registers: two blocks of `up` beside one */
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
        __syncwarp(); /* or the other lanes' wait holds up lane 0 with them */
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
