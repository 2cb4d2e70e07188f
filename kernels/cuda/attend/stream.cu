/*
 * stream.cu - attention of steps of one row on Hopper: split_kv.cu's items and bits, fed by bulk copies.
 *
 * A warp of its own copies K and V of a page and head, each contiguous, into a ring of stages in shared memory, page by
 * page and item by item; only a full ring stalls it, so memory is busy while items end. The other warps take a page
 * each and read fragments from shared memory as they need them, so that wide heads need few registers.
 */
#include "kernels/cuda/attend/split_kv.cuh"
#include "kernels/cuda/bulk.cuh"

/* ROWS: most query heads per KV head. */
template <int D, int ROWS> struct stream_shape {
    static constexpr int WARPS = shape<D>::WARPS, CONSUMERS = WARPS * 32, THREADS = CONSUMERS + 32;
    static constexpr int PAGES = fixed_pages(D);      /* of a chunk */
    static constexpr int PAGE = KV_PAGE * D;          /* halves of K, and of V */
    static constexpr int QLD = D + 32;                /* halves from query to query: no bank conflicts */
    static constexpr uint32_t STAGES = 2 * WARPS;     /* a page each; a multiple of WARPS: see attend_stream_run() */
    static constexpr uint32_t BARRIERS = STAGES * 16; /* bytes */
    __host__ __device__ static constexpr uint32_t q_bytes(uint32_t n_head)
    {
        return (n_head * QLD * 2 + 127) & ~127u;
    }
    static constexpr uint32_t SCRATCH = (sizeof(scratch<D, ROWS>) + 127) & ~127u;
    static constexpr uint32_t bytes(uint32_t n_head)
    {
        return BARRIERS + q_bytes(n_head) + SCRATCH + STAGES * PAGE * 4;
    }
};

#if __CUDA_ARCH__ >= 900
/* The number of the item's pages that the row sees. */
template <class P> __device__ static inline uint32_t pages_of(const P &p, const item &it)
{
    return min(it.last / KV_PAGE + 1, (it.chunk + 1) * chunk_pages(p)) - it.page0;
}

/* The producer warp. */
template <int D, int ROWS, class P>
__device__ static inline void stream_producer(const split_args &a, const P &p, item it, uint32_t at, uint64_t *full,
                                              uint64_t *empty, __half *ring)
{
    typedef stream_shape<D, ROWS> S;
    uint32_t lane = threadIdx.x % 32, stage = 0, phase = 1;
    uint64_t policy = evict_first();
    bool waited = false, more = true;
    auto pages = [&](const item &i) {
        return a.pages[table_of(p, i.s) + min(i.page0 + lane, i.last / KV_PAGE)]; /* one page of the chunk per lane */
    };
    uint32_t page = pages(it);
    while (more) {
        item next = it;
        uint32_t n = pages_of(p, it), next_page = 0;
        at += gridDim.x;
        more = find(next, at, p, a);
        if (more)
            next_page = pages(next);
        for (uint32_t r = 0; r < n; r++) {
            /* KV of earlier steps is complete (see split_kv.cu); what this step writes is once the earlier kernels have
             * ended */
            if (!waited && (it.page0 + r + 1) * KV_PAGE > fresh_of(p, it.s)) {
                pdl_wait();
                waited = true;
            }
            const __half *from = kv_k(a.kv, __shfl_sync(~0u, page, r) * KV_PAGE, it.head);
            if (!lane) {
                mbar_wait(empty + stage, phase);
                mbar_expect_tx(full + stage, S::PAGE * 4);
                cp_async_bulk(ring + stage * 2 * S::PAGE, from, S::PAGE * 2, full + stage, policy);
                cp_async_bulk(ring + stage * 2 * S::PAGE + S::PAGE, from + a.kv.v_off, S::PAGE * 2, full + stage,
                              policy);
            }
            __syncwarp();
            if (++stage == S::STAGES)
                stage = 0, phase ^= 1;
        }
        it = next, page = next_page;
    }
    if (!waited)
        pdl_wait();
}
#endif

template <int D, int ROWS, class P>
__global__ void __launch_bounds__(stream_shape<D, ROWS>::THREADS, D == 256 ? 2 : 1)
    attend_stream(const __grid_constant__ split_args a)
{
#if __CUDA_ARCH__ >= 900
    typedef shape<D> F;
    typedef stream_shape<D, ROWS> S;
    extern __shared__ __align__(128) uint8_t sm[];
    uint64_t *full = (uint64_t *)sm, *empty = full + S::STAGES;
    __half *queries = (__half *)(sm + S::BARRIERS);
    scratch<D, ROWS> &x = *(scratch<D, ROWS> *)(sm + S::BARRIERS + S::q_bytes(a.n_head));
    __half *ring = (__half *)(sm + S::BARRIERS + S::q_bytes(a.n_head) + S::SCRATCH);
    pdl_trigger();
    int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    if (!tid) {
        for (uint32_t s = 0; s < S::STAGES; s++)
            mbar_init(full + s, 1), mbar_init(empty + s, WARP_ARRIVALS);
        mbar_init_done();
    }
    const P p = plan_of(a, (const P *)NULL);
    uint32_t at = blockIdx.x;
    item it;
    bool more = find(it, at, p, a);
    __syncthreads();
    if (!more) {
        pdl_wait();
        return;
    }
    if (warp == S::WARPS) {
        stream_producer<D, ROWS>(a, p, it, at, full, empty, ring);
        return;
    }
    auto sync = []() { asm volatile("bar.sync 1, %0;" ::"n"(S::CONSUMERS) : "memory"); };
    pdl_wait();
    for (uint32_t i = tid; i < a.n_head * (D / 8); i += S::CONSUMERS)
        *(uint4 *)(queries + i / (D / 8) * S::QLD + i % (D / 8) * 8) = __ldcg((const uint4 *)a.q + i);
    sync();
    uint32_t first = 0, first_phase = 0; /* stage of the item's first page */
    auto pass = [&](uint32_t &stage, uint32_t &phase, uint32_t n) {
        for (stage += n; stage >= S::STAGES; stage -= S::STAGES)
            phase ^= 1;
    };
    while (more) {
        uint32_t n = pages_of(p, it);
        item next = it;
        at += gridDim.x;
        more = find(next, at, p, a);
        four mine = four_at<D>(a, p, it, tid);
        const __half *q = queries + (it.head * a.group + g) * S::QLD + 8 * t;
        bool live = g < (int)it.rows;
        int pos[2], lo[2];
        float o[F::GROUPS][F::W][4], m[2], l[2];
        begin_item<D>(a, it, t, p.pos, pos, lo, o, m, l);
        uint32_t stage = first, phase = first_phase;
        pass(stage, phase, warp);
        pass(first, first_phase, n);
#pragma unroll 1
        for (uint32_t r = warp; r < n; r += S::WARPS) {
            const __half *k = ring + stage * 2 * S::PAGE + g * D + 8 * t,
                         *v = ring + stage * 2 * S::PAGE + S::PAGE + 2 * t * D + 2 * F::W * g;
            float c[4] = {}, odd[4] = {}; /* two chains of sums */
            uint32_t pr[2];
            mbar_wait(full + stage, phase);
#pragma unroll
            for (int j = 0; j < F::J; j++) {
                uint4 ka = *(const uint4 *)(k + 32 * j), kb = *(const uint4 *)(k + 8 * D + 32 * j),
                      b = live ? *(const uint4 *)(q + 32 * j) : make_uint4(0, 0, 0, 0);
                mma16816(c, ka.x, kb.x, ka.y, kb.y, b.x, b.y);
                mma16816(odd, ka.z, kb.z, ka.w, kb.w, b.z, b.w);
            }
            online_softmax<D>(a, c, odd, pos, lo, (int)(it.page0 + r) * KV_PAGE + g, o, m, l, pr);
            page_values<D>(v, pr, o);
            mbar_release(empty + stage, lane);
            pass(stage, phase, S::WARPS);
        }
        item_end<D>(a, p, x, it, mine, tid, o, m, l, sync);
        if (more)
            sync();
        it = next;
    }
#endif
}

/* --- launchers ---------------------------------------------------------------------------------------------------- */

enum {
    STREAM_GROUP = 4, /* query heads per KV head; more have a kernel of their own */
    STREAM_SPLIT = 8, /* n_split from which heads of 128 are taken: contexts beyond 1,024 tokens */
};

/* The heads that these kernels take: of 256 dimensions always, as split_kv.cu spills registers for them; of 128 where
 * contexts are long, as a ring takes longer to start than loads into registers, and with large groups only where blocks
 * have several items. */
template <class F> static bool by_stream_head(const struct device *d, const split_args &a, uint32_t d_head, F f)
{
    bool large = a.group > STREAM_GROUP;
    auto by_rows = [&](auto size) {
        if (large)
            f(size, head_size<TILE_ROWS>());
        else
            f(size, head_size<STREAM_GROUP>());
    };
    if (d_head == 256)
        by_rows(head_size<256>());
    else if (d_head == 128 && d->n_split >= STREAM_SPLIT && (!large || attend_items(d, a, 128) > (uint32_t)d->sms))
        by_rows(head_size<128>());
    else
        return false;
    return true;
}

template <int D, int ROWS> static void stream_init(struct device *d)
{
    cuda_smem(d, attend_stream<D, ROWS, plan_one<true, fixed_pages(D)>>, d->smem_max);
    cuda_smem(d, attend_stream<D, ROWS, plan_one<false, fixed_pages(D)>>, d->smem_max);
}

void attend_stream_init(struct device *d)
{
    stream_init<256, STREAM_GROUP>(d), stream_init<128, STREAM_GROUP>(d);
    stream_init<256, TILE_ROWS>(d), stream_init<128, TILE_ROWS>(d);
}

template <int D, int ROWS> static bool stream_run(struct device *d, const split_args &a)
{
    typedef stream_shape<D, ROWS> S;
    uint32_t items = attend_items(d, a, D), sms = d->sms, smem = S::bytes(a.n_head);
    dim3 grid(items < sms ? items : sms);
    if (smem > d->smem_max)
        return false;
    if (a.first)
        cuda_launch(d, attend_stream<D, ROWS, plan_one<true, fixed_pages(D)>>, grid, S::THREADS, smem, LAUNCH_PDL, a);
    else
        cuda_launch(d, attend_stream<D, ROWS, plan_one<false, fixed_pages(D)>>, grid, S::THREADS, smem, LAUNCH_PDL, a);
    return true;
}

/*
 * A stage always belongs to the same warp, which waits for the stage's phase by parity and so must not get two phases
 * ahead. This holds because pages of a chunk and stages are multiples of the warps, and a chunk that is not full is a
 * block's last item as long as there are no more KV heads than blocks.
 */
bool attend_stream_run(struct device *d, const split_args &a, uint32_t d_head)
{
    bool done = false;
    if (d->cc >= 90 && !a.q8 && a.one && a.group <= TILE_ROWS && a.kv.n_kv <= (uint32_t)d->sms)
        by_stream_head(d, a, d_head, [&](auto size, auto rows) { done = stream_run<size.d, rows.d>(d, a); });
    return done;
}
