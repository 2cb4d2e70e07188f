/*
 * wgmma.cu - see wgmma.cuh. For sm_90a only.
 *
 * A job is up to N pairs of one expert. An item is a job together with a group of eight tiles, 128 rows, of its
 * expert's matrix. Blocks take items in turn, the items of a job being neighbours. A block's copying warps stream the
 * group's weights and the job's columns through the rings of gemm/wgmma.cuh, and run ahead into the next item while the
 * current one is multiplied. A pair's sums are one chain over K, whatever is in the other columns.
 *
 * The columns of each job are stored by themselves, in the layout that wgmma wants (split_k.cuh): in pieces, each of
 * which is eight elements of every column of the job, whose number is rounded up to eight. wgmma multiplies N columns
 * all the same; what it reads beyond the job's columns belongs to another piece, and those results are discarded.
 */
#include "kernels/cuda/experts/wgmma.cuh"
#include "kernels/cuda/gemm/prepare.cuh"
#include "kernels/cuda/gemm/rows.cuh"
#include "kernels/cuda/gemm/wgmma.cuh"

__device__ static inline experts_job job_at(const experts_job *jobs, uint32_t i)
{
    uint4 v = __ldcg((const uint4 *)jobs + i);
    return {v.x, v.y, v.z, v.w};
}

/* Columns that are reserved for a job: its pairs, rounded up to a multiple of eight. */
__device__ static inline uint32_t columns_of(const experts_job &job)
{
    return (job.n + 7) & ~7u;
}

/* --- columns ------------------------------------------------------------------------------------------------------ */

/* A word of two halves, elements k and k + step of a row of n elements; those past its end are zeros. */
__device__ static inline uint32_t pair_before(uint32_t n, uint32_t k, uint16_t first, uint32_t step, uint16_t second)
{
    return (k < n ? first : 0u) | (k + step < n ? (uint32_t)second << 16 : 0u);
}

struct columns_args {
    const experts_job *jobs;
    const uint32_t *n_job, *order;
    act_buf x; /* prepared rows; p NULL: none */
    uint64_t x_step;
    const float *hidden; /* [pairs][k] */
    uint32_t k, n_kblk, n_used, wg_order;
    __half *to;
};

/*
 * A block takes eight columns of a job, and each warp every eighth k-block of them. Rows are read as they are stored,
 * sixteen bytes a lane, and written in pieces of eight columns, 128 bytes. blockIdx.x: job; blockIdx.y: group of eight
 * columns. Past a row's end and where there is no pair, zeros are written.
 */
enum { COLUMN_WORDS = 128 + 4 /* of a k-block in shared memory; the padding puts eight columns four banks apart */ };
__global__ void __launch_bounds__(256) experts_columns(const __grid_constant__ columns_args a)
{
    __shared__ __align__(16) uint32_t room[8][8][COLUMN_WORDS];
    pdl_trigger();
    pdl_wait();
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, col0 = blockIdx.y * 8;
    if (blockIdx.x >= __ldcg(a.n_job))
        return;
    const experts_job job = job_at(a.jobs, blockIdx.x);
    if (col0 >= job.n)
        return;
    const uint32_t rows = columns_of(job), here = min(job.n - col0, 8u);
    const uint32_t pair = lane < here ? __ldcg(a.order + job.first + col0 + lane) : 0;
    __half *to = a.to + (uint64_t)job.at * a.n_kblk * 256 + (col0 + lane % 8) * 8;
    uint32_t(*mine)[COLUMN_WORDS] = room[warp];
    for (uint32_t r = warp; r < a.n_kblk; r += 8) {
        const uint32_t k = r * 256 + lane * 8;
        uint4 v[8];
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) { /* each group of four in the order 0, 2, 1, 3 */
            uint32_t of = __shfl_sync(~0u, pair, i);
            v[i] = make_uint4(0, 0, 0, 0);
            if (i >= here)
                continue;
            if (a.x.p) {
                v[i] = __ldcg((const uint4 *)(act_row(a.x, of / a.n_used) + r * a.x_step + eight_at(lane)));
            } else {
                float f[8];
                load_eight(f, a.hidden + (uint64_t)of * a.k, k, a.k);
                __half2 h[4] = {{half_sat(f[0]), half_sat(f[2])},
                                {half_sat(f[1]), half_sat(f[3])},
                                {half_sat(f[4]), half_sat(f[6])},
                                {half_sat(f[5]), half_sat(f[7])}};
                v[i] = *(const uint4 *)h;
            }
        }
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            const uint16_t *h = (const uint16_t *)&v[i];
            if (k + 8 > a.k) /* in storage order: k, k + 2, k + 1, k + 3 and so on */
                v[i] = make_uint4(pair_before(a.k, k, h[0], 2, h[1]), pair_before(a.k, k + 1, h[2], 2, h[3]),
                                  pair_before(a.k, k + 4, h[4], 2, h[5]), pair_before(a.k, k + 5, h[6], 2, h[7]));
            *(uint4 *)(mine[i] + lane * 4) = v[i];
        }
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t piece = 4 * i + lane / 8, c = piece & 1, step = piece >> 1 & 7, p = piece >> 4, w[4];
#pragma unroll
            for (uint32_t t = 0; t < 4; t++) {
                uint32_t four = a.wg_order ? 32 * p + 4 * step + t : 16 * t + 8 * (step & 1) + 4 * p + (step >> 1);
                w[t] = mine[lane % 8][four * 2 + c];
            }
            *(uint4 *)(to + (uint64_t)r * rows * 256 + piece * rows * 8) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}

/* --- products ----------------------------------------------------------------------------------------------------- */

struct experts_wg_args {
    const uint8_t *w;
    uint64_t expert_bytes;
    const uint32_t *row_scale;        /* [n_expert][n_tile][16], or NULL */
    uint32_t n_tile, n_kblk, n_group; /* n_group: groups of eight tiles, including those that only produce zeros */
    uint32_t wstages, xstages;
    const experts_job *jobs;
    const uint32_t *n_job, *order;
    const __half *x; /* the columns of all jobs */
    /* what follows */
    uint32_t n_out;
    const float *bias; /* up: [parts][n_expert][n_out], or NULL */
    uint32_t n_expert, gated;
    enum glu_kind glu;
    __half *made; /* up: the columns of `down`, in order `made_order`; or NULL */
    uint32_t made_order;
    float *hidden;        /* up: [pairs][n_out] */
    float *out;           /* down: [pairs][ldout] */
    uint32_t ldout, down; /* down: the epilogue is that of `down` */
};

/* The epilogue of `up`: hidden units of a warp's tile. With a gate, gate and up of a unit are rows 8 apart, in one
 * lane. */
template <int N>
__device__ static inline void wg_hidden(const experts_wg_args &a, const experts_job &job, uint32_t tile, uint32_t lane,
                                        const float (&acc)[N / 2])
{
    const uint32_t rows = columns_of(job), units = a.gated ? 8 : 16, end = (a.n_out + 255) & ~255u;
    const bool fast = a.glu == GLU_SWIGLU || a.glu == GLU_GEGLU;
    const wg_glu act(a.glu);
    __half *made = a.made ? a.made + (uint64_t)job.at * end : NULL;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t u = tile * units + (lane >> 2) + half * 8;
        if (half && a.gated)
            break;
        if (u >= end)
            break;
        bool real = u < a.n_out;
        const float *b = a.bias ? a.bias + (uint64_t)job.expert * a.n_out + u : NULL;
        float bg = b && real ? b[0] : 0.f, bu = b && real && a.gated ? b[(uint64_t)a.n_expert * a.n_out] : 0.f;
#pragma unroll
        for (int j = 0; j < N / 4; j++) {
            uint32_t i = j / 2 * 4 + (j & 1), col = j / 2 * 8 + 2 * (lane & 3) + (j & 1);
            if (j / 2 * 8 >= rows)
                break;
            float x = (half ? acc[i + 2] : acc[i]) + bg, y = a.gated ? acc[i + 2] + bu : 1.f;
            float v = !real ? 0.f : fast && a.gated ? act(x) * y : glu_of(a.glu, x, y);
            if (made)
                made[wg_at(a.made_order, rows, col, u)] = half_sat(v);
            else if (real && col < job.n)
                a.hidden[(uint64_t)__ldcg(a.order + job.first + col) * a.n_out + u] = v;
        }
    }
}

template <int N>
__device__ static inline void wg_products(const experts_wg_args &a, const experts_job &job, uint32_t tile,
                                          uint32_t lane, const float (&acc)[N / 2])
{
    uint32_t o = tile * 16 + (lane >> 2);
#pragma unroll
    for (int j = 0; j < N / 4; j++) {
        uint32_t i = j / 2 * 4 + (j & 1), col = j / 2 * 8 + 2 * (lane & 3) + (j & 1);
        if (col >= job.n)
            continue;
        float *to = a.out + (uint64_t)__ldcg(a.order + job.first + col) * a.ldout + o;
        if (o < a.n_out)
            __stcg(to, acc[i]);
        if (o + 8 < a.n_out)
            __stcg(to + 8, acc[i + 2]);
    }
}

template <int T, int N>
__global__ void __launch_bounds__(wg_shape<N>::BOUND, wg_shape<N>::BLOCKS)
    experts_wg(const __grid_constant__ experts_wg_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    static_assert(wg_shape<N>::GROUPS == 2, "a group is eight tiles");
    constexpr uint32_t TILES = 8, FRAG = quant<T>::FRAG_BYTES, PER = quant<T>::FRAGS, WSTAGE = TILES * FRAG,
                       XSTAGE = N * 256;
    extern __shared__ __align__(128) uint8_t sm[];
    const wg_rings ring = wg_rings_at(sm, a.wstages, a.xstages, XSTAGE);
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    wg_rings_init(ring, TILES);
    pdl_trigger();
    /* With one block a processor the launch has registers enough for all. */
    if (wg_shape<N>::BLOCKS > 1 && warp >= TILES)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)wg_shape<N>::COPY_REGS));
    pdl_wait();
    const uint32_t items = __ldcg(a.n_job) * a.n_group;
    if (warp == TILES) {
        uint64_t policy = evict_first();
        uint32_t s = 0, phase = 1;
        for (uint32_t it = blockIdx.x; it < items; it += gridDim.x) {
            experts_job job = job_at(a.jobs, it / a.n_group);
            uint32_t tile0 = it % a.n_group * TILES;
            if (tile0 >= a.n_tile)
                continue;
            uint32_t n = min(TILES, a.n_tile - tile0);
            const uint8_t *tile = a.w + job.expert * a.expert_bytes + (uint64_t)(tile0 + lane) * a.n_kblk * PER * FRAG;
            for (uint32_t r = 0; r < a.n_kblk; r++)
                for (uint32_t q = 0; q < PER; q++) {
                    mbar_wait(ring.empty_w + s, phase);
                    if (!lane)
                        mbar_expect_tx(ring.full_w + s, n * FRAG);
                    __syncwarp();
                    if (lane < n)
                        cp_async_bulk(ring.w + s * WSTAGE + lane * FRAG,
                                      tile + (uint64_t)t16_frag_at(a.n_kblk, PER, r, wg_nth<T>(q)) * FRAG, FRAG,
                                      ring.full_w + s, policy);
                    if (++s == ring.wstages)
                        s = 0, phase ^= 1;
                }
        }
        return;
    }
    if (warp == TILES + 1) {
        if (lane)
            return;
        asm volatile("fence.proxy.async;" ::: "memory"); /* the bulk copies read what ordinary stores wrote */
        uint64_t policy = evict_last();
        uint32_t s = 0, phase = 1;
        for (uint32_t it = blockIdx.x; it < items; it += gridDim.x) {
            experts_job job = job_at(a.jobs, it / a.n_group);
            if (it % a.n_group * TILES >= a.n_tile)
                continue;
            uint32_t half = columns_of(job) * 128; /* halves of half a k-block */
            const __half *x = a.x + (uint64_t)job.at * a.n_kblk * 256;
            for (uint32_t h = 0; h < 2 * a.n_kblk; h++) {
                mbar_wait(ring.empty_x + s, phase);
                mbar_expect_tx(ring.full_x + s, half * 2);
                cp_async_bulk(ring.x + s * XSTAGE, x + (uint64_t)h * half, half * 2, ring.full_x + s, policy);
                if (++s == ring.xstages)
                    s = 0, phase ^= 1;
            }
        }
        return;
    }
    if (warp > TILES)
        return;
    /* Only here, where no other warp comes: the compiler ignores both instructions if code that all warps share may
     * need more registers than copying warps keep, and then has too few to leave products in flight. */
    if (wg_shape<N>::BLOCKS > 1)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)wg_shape<N>::REGS));
    wg_turn turn = {0, 0, 0, 0};
#pragma unroll 1
    for (uint32_t it = blockIdx.x; it < items; it += gridDim.x) {
        experts_job job = job_at(a.jobs, it / a.n_group);
        uint32_t group = it % a.n_group, tile = group * TILES + warp;
        float acc[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            acc[i] = 0;
        if (group * TILES < a.n_tile)
            wg_multiply<T, N, wg_words(T, wg_shape<N>::WORDS), WSTAGE, false>(
                ring, turn, a.n_kblk, columns_of(job), warp, lane,
                a.row_scale + ((uint64_t)job.expert * a.n_tile + tile) * 16, acc);
        if (a.down)
            wg_products<N>(a, job, tile, lane, acc);
        else
            wg_hidden<N>(a, job, tile, lane, acc);
    }
#endif
}

/* --- launchers ---------------------------------------------------------------------------------------------------- */

typedef void experts_wg_kernel(const experts_wg_args);
/* d: the device to prepare the kernel for, or NULL. */
template <int T> static experts_wg_kernel *by_cols(struct device *d, uint32_t cols)
{
    static uint32_t done[3];
    uint32_t at = cols <= 32 ? 0 : cols <= 64 ? 1 : 2;
    experts_wg_kernel *k = at == 0 ? experts_wg<T, 32> : at == 1 ? experts_wg<T, 64> : experts_wg<T, 128>;
    if (d && !(done[at] >> d->index & 1)) {
        cuda_smem(d, k, d->smem_max);
        done[at] |= 1u << d->index;
    }
    return k;
}

static experts_wg_kernel *kernel_for(struct device *d, const wdev *w, uint32_t cols)
{
    switch (w->part[0].type) {
#define X(t, T, number)                      \
    case DT_##T:                             \
        if constexpr (quant<DT_##T>::WGMMA)  \
            return by_cols<DT_##T>(d, cols); \
        return NULL;
        QUANTS(X)
#undef X
    case DT_COUNT:
        break;
    }
    return NULL;
}

static uint32_t wg_blocks(uint32_t cols)
{
    return cols <= 64 ? (uint32_t)wg_shape<64>::BLOCKS : (uint32_t)wg_shape<128>::BLOCKS;
}

/* The largest number of jobs, of up to `cols` pairs each, that so many pairs can make. */
static uint32_t jobs_most(const wdev *w, uint32_t cols, uint32_t pairs)
{
    return pairs / cols + min_u(w->n_expert, pairs);
}

/* The largest number of columns that the jobs of so many rows reserve: each expert's last job is rounded up to
 * eight. */
static uint64_t columns_most(const wdev *w, uint32_t n_used, uint32_t n_row)
{
    return (uint64_t)n_row * n_used + 7ull * min_u(w->n_expert, n_row * n_used);
}

/* Where the columns of a product are stored: those of `up` use the memory of down's products, which are written
 * later. */
static __half *columns_room(const struct device *d, bool down)
{
    return down ? d->ws.experts.x : (__half *)d->ws.experts.y;
}
static bool has_room(const struct device *d, const wdev *w, uint32_t n_used, uint32_t n_row)
{
    uint64_t rows = d->ws.rows, used = d->ws.dims.d_route / 2;
    uint64_t bytes = w->role == WEIGHT_EXPERTS_DOWN ? rows * (d->ws.dims.d_experts / 256 + 1 + used) * XFRAG_KBLK * 2
                                                    : rows * used * d->ws.ldx * 4;
    return columns_most(w, n_used, n_row) * w->n_kblk * 512 <= bytes;
}

bool experts_wg_takes(const struct device *d, const wdev *w, uint32_t n_used, uint32_t n_row, enum invariance how)
{
    /* mean pairs of an expert; below that, and up to the rows that it takes at once, `grouped` takes less time */
    const uint32_t worth = 6, at_once = 32;
    if (d->cc != 90 || d->variant == VARIANT_REFERENCE || !w->packed || !kernel_for(NULL, w, 64))
        return false;
    if (how) /* must not depend on the number of rows, as the bits must not */
        return how == INVARIANT_PROMPT && has_room(d, w, n_used, d->ws.rows);
    return n_row > at_once && n_row * n_used >= worth * w->n_expert && has_room(d, w, n_used, n_row);
}

uint32_t experts_wg_cols(const struct device *d, const wdev *w, uint32_t n_used)
{
    uint32_t mean = d->bucket * n_used / w->n_expert;
    return mean <= 28 ? 32 : mean <= 48 ? 64 : 128;
}

void experts_wg_columns(struct device *d, const experts_args &a, const wdev *w, bool down)
{
    columns_args c = {};
    c.jobs = a.jobs, c.n_job = a.n_job, c.order = a.order;
    c.x = down ? act_buf{} : a.x, c.x_step = a.x_step, c.hidden = a.hidden;
    c.k = a.k, c.n_kblk = a.n_kblk, c.n_used = a.n_used, c.wg_order = wg_order(w->part[0].type);
    c.to = columns_room(d, down);
    cuda_launch(d, experts_columns, dim3(jobs_most(w, a.cols, a.bucket * a.n_used), a.cols / 8), 256, 0, LAUNCH_PDL, c);
}

static void launch(struct device *d, const experts_args &a, const wdev *w, experts_wg_args &g)
{
    uint32_t blocks = wg_blocks(a.cols), frag = t16_frag_bytes(w->part[0].type), wst = 8 * frag, xst = a.cols * 256,
             room = ((uint32_t)d->smem_max + 1024) / blocks - 1024 - WG_FIXED;
    g.w = a.w, g.expert_bytes = a.expert_bytes, g.n_tile = a.n_tile, g.n_kblk = a.n_kblk;
    g.row_scale = w->row_scale;
    g.jobs = a.jobs, g.n_job = a.n_job, g.order = a.order, g.n_expert = a.n_expert, g.n_out = a.n_out;
    g.x = columns_room(d, g.down);
    g.xstages = 3;
    g.wstages = min_u((room - g.xstages * xst) / wst, WG_STAGES);
    g.xstages = min_u((room - g.wstages * wst) / xst, WG_STAGES);
    cuda_launch(d, kernel_for(d, w, a.cols), dim3(d->sms * blocks), 2 * 128 + 128,
                WG_FIXED + g.wstages * wst + g.xstages * xst, LAUNCH_PDL, g);
}

void experts_wg_up(struct device *d, const experts_args &a, const wdev *w, const wdev *down)
{
    experts_wg_args g = {};
    uint32_t units = a.gated ? 64 : 128; /* hidden units of a group */
    g.bias = a.bias, g.glu = a.glu, g.gated = a.gated, g.hidden = a.hidden;
    g.n_group = (a.n_tile + 7) / 8;
    if (down) {
        g.made = columns_room(d, true), g.made_order = wg_order(down->part[0].type);
        g.n_group = (pad256(a.n_out) + units - 1) / units;
    }
    launch(d, a, w, g);
}

void experts_wg_down(struct device *d, const experts_args &a, const wdev *w)
{
    experts_wg_args g = {};
    g.down = true, g.out = a.out, g.ldout = a.ldout, g.n_group = (a.n_tile + 7) / 8;
    launch(d, a, w, g);
}
