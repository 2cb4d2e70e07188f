/*
 * batch.cuh - gemv's products for 5 to 64 rows, bit-exactly, by wgmma. Included by batch.cu; its kernels are for sm_90a
 * alone.
 *
 * gemv takes a record of 256 activations as 16-bit integers X = 256 hi + lo with one scale, sums integers exactly
 * within a sub-block, and adds scaled sub-blocks in float in a fixed order: by quarters of a record, then over the
 * records of a slice of K, then the quarters, then the slices (gemv.cuh). Here a row is two columns of a wgmma, its
 * planes hi and lo as fp16, which represents them exactly, and weights are integers that fp16 represents exactly. A sum
 * of their products stays below 2^24, so f32 accumulates it exactly, and fma(256, hi, lo) rounds once, as gemv's
 * conversion of its integer to float does. From there on the operations are gemv's, in its order.
 *
 * Activations of a record lie [16 steps of 16 k][2][N columns][8], as in split_k.cuh's order 1; columns come in eights,
 * alternating between lo and hi of eight rows. Beside them (`more`) are the sums of the eight sub-blocks of 32, S =
 * 1024 a + b, [N][8] as fp16, b in a lo column and a in a hi one; then the rows' scales, f32 [R].
 *
 * `pieces` are partial sums of the product, over all of K or a part of it.
 */
#ifndef HEARTH_CUDA_GEMM_BATCH_CUH
#define HEARTH_CUDA_GEMM_BATCH_CUH

#include "kernels/cuda/gemm/batch_types.cuh"
#include "kernels/cuda/gemm/wgmma.cuh"

struct op_call;
/* batch.cu. Whether a product of so many rows takes this path: the card has wgmma, and the types are among those
 * supported here. */
bool batch_takes(const struct device *d, const wdev *w, uint32_t bucket);
/* Runs the rows' product by w, for the op o, with its epilogue, bit-identical to gemv four rows at a time. qkv: gemv
 * would finish it as q|k|v, whatever a.ep is here. What the next op multiplies is left as integers too where that op is
 * one of these products. */
void batch_run(struct device *d, struct op_call *p, const struct op *o, const wdev *w, gemm_args a, bool qkv);

struct batch_args {
    const uint8_t *w;
    struct wg_part part[3];
    uint32_t n_part, n_kblk, n_group;
    uint32_t split;   /* 0: a unit of work is a group's whole K; 1: a slice of it; 2: every other record of a slice */
    uint32_t n_block; /* blocks of rows */
    uint32_t n_unit;  /* groups, times 1, 8 or 16, times blocks of rows */
    uint32_t wstages, xstages;
    const uint8_t *planes, *more;
    float *pieces; /* [unit][R][128]: a group's partial sums of all rows are contiguous */
    uint32_t bucket;
};

/* The records of a unit of work: r0, r0 + step, ... below end, of group g and a block of rows. */
struct batch_unit {
    uint32_t g, block, r0, end, step;
};
__device__ static inline batch_unit batch_unit_of(const batch_args &a, uint32_t u)
{
    uint32_t block = u % a.n_block;
    u /= a.n_block;
    if (!a.split)
        return {u, block, 0, a.n_kblk, 1};
    uint32_t per = K_SLICES * a.split, g = u / per, w = u - g * per, c = w % K_SLICES;
    return {g, block, t16_slice(a.n_kblk, c) + w / K_SLICES, t16_slice(a.n_kblk, c + 1), a.split};
}
enum {
    BATCH_TILES = 8,
    BATCH_WARPS = BATCH_TILES,
    BATCH_THREADS = BATCH_WARPS * 32 + 128,
    BATCH_STAGES = 8,
    BATCH_FIXED = 256,
};

/*
 * Two warpgroups multiply, four tiles each; of a third, one warp streams weights and another activations. Blocks are
 * persistent, one per SM: each takes units u, u + grid, ...
 */
template <int TA, int TB, int R>
__global__ void __launch_bounds__(BATCH_THREADS, 1) gemm_batch(const __grid_constant__ batch_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using S = batch_shape<R>;
    constexpr uint32_t UA = quant<TA>::FRAG_BYTES, UB = quant<TB>::FRAG_BYTES, FRAG = UA > UB ? UA : UB,
                       WSTAGE = BATCH_TILES * FRAG;
    static_assert(quant<TA>::FRAGS == 1 && quant<TB>::FRAGS == 1, "a record is a fragment");
    extern __shared__ __align__(128) uint8_t sm[];
    uint64_t *full_w = (uint64_t *)sm, *empty_w = full_w + BATCH_STAGES, *full_x = empty_w + BATCH_STAGES,
             *empty_x = full_x + BATCH_STAGES;
    uint8_t *xring = sm + BATCH_FIXED, *wring = xring + a.xstages * S::XSTAGE;
    /* [PER][CONSUMERS]: sums of the first half of the slices, where a unit is all of K */
    float *first = (float *)(wring + a.wstages * WSTAGE) + threadIdx.x;
    uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, n_kblk = a.n_kblk;
    if (!threadIdx.x) {
        for (uint32_t s = 0; s < BATCH_STAGES; s++) {
            mbar_init(full_w + s, 1), mbar_init(empty_w + s, BATCH_WARPS * WARP_ARRIVALS);
            mbar_init(full_x + s, 1), mbar_init(empty_x + s, BATCH_WARPS * WARP_ARRIVALS);
        }
        mbar_init_done();
    }
    __syncthreads();
    pdl_trigger();
    if (warp >= BATCH_WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (warp == BATCH_WARPS) {
            uint64_t policy = evict_first();
            uint32_t s = 0, phase = 1;
            for (uint32_t u = blockIdx.x; u < a.n_unit; u += gridDim.x) {
                batch_unit un = batch_unit_of(a, u);
                const wg_part &p = wg_part_of(a, un.g);
                const bool second = TA != TB && p.second;
                uint32_t frag = second ? UB : UA, tile0 = (un.g - p.group0) * BATCH_TILES,
                         n = min((uint32_t)BATCH_TILES, p.n_tile - tile0);
                const uint8_t *tile = a.w + p.off + (uint64_t)(tile0 + lane) * n_kblk * frag;
                for (uint32_t r = un.r0; r < un.end; r += un.step) {
                    mbar_wait(empty_w + s, phase);
                    if (!lane)
                        mbar_expect_tx(full_w + s, n * frag);
                    __syncwarp();
                    if (lane < n)
                        cp_async_bulk(wring + s * WSTAGE + lane * FRAG,
                                      tile + (uint64_t)t16_frag_at(n_kblk, 1, r, 0) * frag, frag, full_w + s, policy);
                    if (++s == a.wstages)
                        s = 0, phase ^= 1;
                }
            }
        } else if (warp == BATCH_WARPS + 1 && !lane) {
            pdl_wait();
            asm volatile("fence.proxy.async;" ::: "memory"); /* the copies read what ordinary stores wrote */
            uint64_t policy = evict_last();
            uint32_t s = 0, phase = 1;
            for (uint32_t u = blockIdx.x; u < a.n_unit; u += gridDim.x) {
                batch_unit un = batch_unit_of(a, u);
                for (uint32_t r = un.r0; r < un.end; r += un.step) {
                    mbar_wait(empty_x + s, phase);
                    mbar_expect_tx(full_x + s, S::XSTAGE);
                    uint8_t *to = xring + s * S::XSTAGE;
                    cp_async_bulk(to, a.planes + (uint64_t)(un.block * n_kblk + r) * S::PLANES, S::PLANES, full_x + s,
                                  policy);
                    cp_async_bulk(to + S::PLANES, a.more + (uint64_t)(un.block * n_kblk + r) * S::MORE, S::MORE,
                                  full_x + s, policy);
                    if (++s == a.xstages)
                        s = 0, phase ^= 1;
                }
            }
        }
        __syncwarp();
        pdl_wait();
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    pdl_wait(); /* before the first store: an earlier kernel may still read what is overwritten */
    uint32_t ws = 0, wphase = 0, xs = 0, xphase = 0, row = warp * 16 + (lane >> 2), col = 2 * (lane & 3);
    float acc[4][S::PER];
    struct type_a {
        enum { value = TA };
    };
    struct type_b {
        enum { value = TB };
    };
    auto clear = [&]() {
#pragma unroll
        for (int t = 0; t < 4; t++)
#pragma unroll
            for (int i = 0; i < S::PER; i++)
                acc[t][i] = 0;
    };
    /* A slice's sum of output i. */
    auto join = [&](int i) { return __fadd_rn(__fadd_rn(acc[0][i], acc[1][i]), __fadd_rn(acc[2][i], acc[3][i])); };
#pragma unroll 1
    for (uint32_t u = blockIdx.x; u < a.n_unit; u += gridDim.x) {
        batch_unit un = batch_unit_of(a, u);
        uint32_t wanted = a.bucket - un.block * R;
        auto store = [&](auto value) { /* all columns of the block, or those that are wanted */
                                       float *to = a.pieces + ((uint64_t)u * R + col) * (BATCH_TILES * 16) + row;
                                       auto at = [&](int i) {
                                           return to + (i / 4 * 8 + (i & 1)) * (BATCH_TILES * 16) + (i & 2) * 4;
                                       };
                                       if (wanted >= R)
#pragma unroll
                                           for (int i = 0; i < S::PER; i++)
                                               __stcg(at(i), value(i));
                                       else
#pragma unroll
                                           for (int i = 0; i < S::PER; i++)
                                               if (col + i / 4 * 8 + (i & 1) < wanted)
                                                   __stcg(at(i), value(i));
        };
        auto run = [&](auto type) {
            constexpr int T = decltype(type)::value;
            uint32_t slice = 0, end = t16_slice(n_kblk, 1);
            bool second = false; /* in the second half of the slices */
            float half[S::PER];  /* the sum of the current half's slices so far */
            clear();
#pragma unroll 1
            for (uint32_t r = un.r0; r < un.end; r += un.step) {
                batch_record v;
                const uint8_t *x = xring + xs * S::XSTAGE;
                v.w = wring + ws * WSTAGE + warp * FRAG;
                uint32_t at = __shfl_sync(~0u, smem_of(x), 0); /* makes it uniform across the warp */
                v.planes = batch_desc(at, S::N * 16), v.sums = batch_desc(at + S::PLANES, 0);
                v.scale = (const float *)(x + S::PLANES + S::N * 16);
                mbar_wait(full_w + ws, wphase);
                mbar_wait(full_x + xs, xphase);
                batch_of<T>::template mul<R>(v, lane, acc);
                mbar_release(empty_w + ws, lane), mbar_release(empty_x + xs, lane);
                if (++ws == a.wstages)
                    ws = 0, wphase ^= 1;
                if (++xs == a.xstages)
                    xs = 0, xphase ^= 1;
                if (!a.split && r + 1 == end) { /* a slice of all of K ends; none before the last one is empty */
                    if (slice == K_SLICES / 2) {
                        second = true;
#pragma unroll
                        for (int i = 0; i < S::PER; i++)
                            first[i * CONSUMERS] = half[i];
                    }
                    bool begins = slice % (K_SLICES / 2) == 0;
#pragma unroll
                    for (int i = 0; i < S::PER; i++)
                        half[i] = __fadd_rn(begins ? 0.f : half[i], join(i));
                    clear();
                    slice++, end = t16_slice(n_kblk, slice + 1);
                }
            }
            if (a.split)
                store(join);
            else
                store(
                    [&](int i) { return second ? __fadd_rn(first[i * CONSUMERS], half[i]) : __fadd_rn(half[i], 0.f); });
        };
        if (TA != TB && wg_part_of(a, un.g).second)
            run(type_b());
        else
            run(type_a());
    }
#endif
}

#endif
