/*
 * split_kv.cu - attention over paged KV, of fp16 or Q8_0, for few rows per sequence, item by item of plan.cuh.
 *
 * Each warp of a block goes independently through its pages of a chunk. K and V go from global memory straight into mma
 * fragments as the left operand (tokens are rows of the scores, dimensions rows of the result), the tile's rows are the
 * eight columns, and probabilities are rearranged from one form into the other in registers. While a warp works on a
 * page its next one is in flight, including the first of the next item: nothing goes through shared memory and there is
 * no barrier before the item's end, where the warps' partial results are added.
 *
 * A warp's share of a chunk is fixed by position, and so is the order of all sums: where a chunk's length is fixed, a
 * row's bits depend only on its own position and KV. Masked tokens weigh exactly zero.
 */
#include "kernels/cuda/attend/split_kv.cuh"

/* BLOCKS: per SM. KV: a page in registers, pages.cuh. MANY: an item has up to REDUCE_SETS chunks, each with its own
 * place in shared memory for the sums until the item's end; they are added as if each chunk were an item. */
template <int D, class P, int BLOCKS, template <int> class KV = page_f16, bool MANY = false>
__global__ void __launch_bounds__(shape<D>::WARPS * 32, BLOCKS) attend_split(const __grid_constant__ split_args a)
{
    typedef shape<D> S;
    constexpr bool ONE = P::ONE;
    constexpr int ROUNDS = ONE ? S::PAGES : ATTEND_ROUNDS; /* most pages of an item per warp */
    scratch<D> *x;
    if constexpr (MANY) {
        extern __shared__ __align__(16) uint8_t sm[];
        x = (scratch<D> *)sm;
    } else {
        __shared__ __align__(16) scratch<D> one;
        x = &one;
    }
    pdl_trigger();
    int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    uint32_t at = blockIdx.x, page = 0;
    /* the block's chunk follows from the block's number, if that chunk exists: the length need not be known first */
    if (P::FIRST)
        page = a.pages[fastdiv(at, a.kv_magic) * (S::PAGES * S::WARPS) + warp + lane % S::PAGES * S::WARPS];
    /* the step's metadata was written before any of its kernels started */
    const P &p = plan_of(a, (const P *)NULL);
    item it;
    if (!find(it, at, p, a)) {
        pdl_wait();
        return;
    }
    /* A chunk's pages are dealt out to the warps in turn, so that short contexts and the ends of long ones are shared,
     * too. */
    auto first_page = [&](const item &i) { return i.page0 + warp; };
    /* The number of the warp's pages that the item's last row sees; and the pages' numbers, in the warp's first
     * lanes. */
    auto pages_alive = [&](const item &i) {
        uint32_t end = min(i.last / KV_PAGE + 1, ((MANY ? i.end : i.chunk) + 1) * chunk_pages(p));
        return max((int)end + S::WARPS - 1 - (int)first_page(i), 0) / S::WARPS;
    };
    auto pages_of = [&](const item &i) {
        return a.pages[table_of(p, i.s) + min(first_page(i) + lane % ROUNDS * S::WARPS, i.last / KV_PAGE)];
    };
    KV<D> kv;
    uint32_t q[S::J][4];
    auto load_k = [&](uint32_t head, uint32_t pages, int round) {
        kv.load_k(a.kv, __shfl_sync(~0u, pages, round), head, g, t);
    };
    auto load_v = [&](uint32_t head, uint32_t pages, int round) {
        kv.load_v(a.kv, __shfl_sync(~0u, pages, round), head, g, t);
    };
    /* Row g, as the right operand: its address, or NULL past the tile's rows; and the load. */
    auto q_of = [&](const item &i) {
        uint32_t row, head = head_of(a, p, i, g, &row);
        return g < (int)i.rows ? a.q + (uint64_t)row * a.ldq + head * D + 8 * t : NULL;
    };
    auto load_q = [&](const __half *from) {
#pragma unroll
        for (int j = 0; j < S::J; j++)
            if (from && (D % 32 == 0 || 32 * j + 8 * t < D))
                load<4>(q[j], from + 32 * j);
            else
                q[j][0] = q[j][1] = q[j][2] = q[j][3] = 0;
    };
    if (!P::FIRST)
        page = pages_of(it);
    int alive = pages_alive(it);
    /*
     * KV of earlier steps is complete: a step's first kernel is launched without PDL and so waits for all of the step
     * before it, and whatever kernel of this step is still running writes only positions from `fresh` on of this
     * sequence; full pages shared with another sequence were published after the step that wrote them. Pages that this
     * step writes are only prefetched into L2, which is where they will be written.
     */
    bool early = alive && (first_page(it) + 1) * KV_PAGE <= fresh_of(p, it.s);
    if (early)
        load_k(it.head, page, 0), load_v(it.head, page, 0);
#pragma unroll 1
    for (int r = early; r < min(alive, S::PAGES); r++)
        KV<D>::prefetch(a.kv, __shfl_sync(~0u, page, r), it.head, lane);
    bool begun = false; /* this item's first K, V and q are in flight */
#pragma unroll 1
    for (;;) {
        /* the next item, and everything about this one that does not depend on what the step writes */
        item next = it;
        uint32_t next_page = 0;
        at += gridDim.x;
        bool more = find(next, at, p, a);
        int next_alive = 0;
        if (more)
            next_page = pages_of(next), next_alive = pages_alive(next);
        const __half *next_q = more ? q_of(next) : NULL;
        four mine = four_at<D>(a, p, it, tid);
        int pos[2], lo[2]; /* the positions that rows 2t and 2t + 1 see */
        float o[S::GROUPS][S::W][4], m[2], l[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            pos[e] = 2 * t + e < (int)it.rows ? (int)pos_of(a, p, it, 2 * t + e) : -1;
            lo[e] = (int)first_visible(pos[e], a.window);
            m[e] = -INFINITY, l[e] = 0;
        }
#pragma unroll
        for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
            for (int w = 0; w < S::W; w++)
                o[b][w][0] = o[b][w][1] = o[b][w][2] = o[b][w][3] = 0;
        if (!begun) {
            const __half *first_q = q_of(it);
            pdl_wait();
            load_q(first_q);
        }
        /* Stores the warp's sums of a chunk where the block adds them, and resets them for the next chunk. */
        auto leave = [&](uint32_t chunk) {
            item_leave<D>(x[chunk % REDUCE_SETS], it, tid, o, m, l);
            m[0] = m[1] = -INFINITY, l[0] = l[1] = 0;
#pragma unroll
            for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
                for (int w = 0; w < S::W; w++)
                    o[b][w][0] = o[b][w][1] = o[b][w][2] = o[b][w][3] = 0;
        };
        uint32_t left = it.chunk;                      /* the first chunk whose sums are not stored yet */
        int round = begun || early || !alive ? 0 : -1; /* -1: its first page is only now loaded */
        begun = true;
#pragma unroll 1
        for (;; round++) {
            bool ends = round + 1 >= alive, some = (uint32_t)round < (uint32_t)alive;
            float c[4] = {}, odd[4] = {}; /* two chains of sums */
            if (some)
                kv.scores(c, odd, q);
            /* the next page is requested as soon as the registers are free */
            uint32_t then_head = ends ? next.head : it.head, then_page = ends ? next_page : page;
            int then_round = ends ? 0 : round + 1;
            bool then = !ends || next_alive;
            if (then)
                load_k(then_head, then_page, then_round);
            if (ends && more)
                load_q(next_q);
            if (some) {
                uint32_t pr[2];
                online_softmax<D>(a, c, odd, pos, lo, (int)(first_page(it) + round * S::WARPS) * KV_PAGE + g, o, m, l,
                                  pr);
                kv.values(o, pr, g);
            }
            if (then)
                load_v(then_head, then_page, then_round);
            if (MANY && round % S::PAGES == S::PAGES - 1)
                leave(left++);
            if (ends)
                break;
        }
        if constexpr (MANY) {
#pragma unroll 1
            for (; left <= it.end; left++) /* including chunks of which the warp has no page */
                leave(left);
            __syncthreads();
            item_each<D, TILE_ROWS>(a, p, it, mine, tid, [&](four f) { reduce_chunks<D>(a, p, x, it, f); });
        } else
            item_end<D>(a, p, *x, it, mine, tid, o, m, l, []() { __syncthreads(); });
        if (!more)
            break;
        __syncthreads();
        it = next, page = next_page, alive = next_alive;
    }
}

/* --- launchers ---------------------------------------------------------------------------------------------------- */

/* Most blocks per SM. Where registers allow it, steps with work for more blocks than SMs run two on each: one ends an
 * item while the other loads. The bits are the same. */
constexpr int blocks_most(int d_head)
{
    return d_head <= 64 ? 2 : 1;
}

/* Head sizes whose items may have several chunks: the sums of all of them fit into shared memory. */
constexpr bool spans(int d_head)
{
    return d_head == 64 || d_head == 128;
}
template <int D> constexpr uint32_t span_bytes()
{
    return REDUCE_SETS * sizeof(scratch<D>);
}
bool attend_spans(const struct device *d, uint32_t d_head)
{
    bool fits = false;
    by_head(d_head, [&](auto size) {
        if constexpr (spans(size.d))
            fits = span_bytes<size.d>() + sizeof(plan) + 1024 <= d->smem_max;
    });
    return fits;
}

template <template <int> class KV, int D> static void split_init(struct device *d)
{
    if constexpr (spans(D))
        if (attend_spans(d, D))
            cuda_smem(d, attend_split<D, plan, blocks_most(D), KV, true>, span_bytes<D>());
    cuda_smem(d, attend_split<D, plan, 1, KV>, 0);
    cuda_smem(d, attend_split<D, plan_one<true, fixed_pages(D)>, 1, KV>, 0),
        cuda_smem(d, attend_split<D, plan_one<false, fixed_pages(D)>, 1, KV>, 0);
    if constexpr (blocks_most(D) > 1)
        cuda_smem(d, attend_split<D, plan, blocks_most(D), KV>, 0);
}

void attend_split_init(struct device *d)
{
    each_head([&](auto size) {
        split_init<page_f16, size.d>(d);
        if constexpr (size.d % KV_Q8_BLOCK == 0)
            split_init<page_q8, size.d>(d);
    });
}

uint32_t attend_items(const struct device *d, const split_args &a, uint32_t d_head)
{
    uint32_t tiles = (a.group + TILE_ROWS - 1) / TILE_ROWS, split = d->n_split,
             chunk = fixed_pages((int)d_head) * KV_PAGE;
    if (a.one && a.window) /* chunks that a window can overlap */
        split = min(split, (a.window + chunk - 2) / chunk + 1);
    return d->decode ? d->bucket * a.kv.n_kv * split * tiles : d->sms;
}

template <template <int> class KV, int D> static void split_run(struct device *d, const split_args &a)
{
    constexpr int MOST = blocks_most(D);
    uint32_t sms = d->sms, items = attend_items(d, a, D);
    if (spans(D) && a.span) {
        if constexpr (spans(D))
            cuda_launch(d, attend_split<D, plan, MOST, KV, true>, dim3(items < MOST * sms ? items : MOST * sms),
                        shape<D>::WARPS * 32, span_bytes<D>(), LAUNCH_PDL, a);
    } else if (MOST > 1 && !a.one && items > sms)
        cuda_launch(d, attend_split<D, plan, MOST, KV>, dim3(items < MOST * sms ? items : MOST * sms),
                    shape<D>::WARPS * 32, 0, LAUNCH_PDL, a);
    else
        by_plan<D>(a, [&](auto kind) {
            cuda_launch(d, attend_split<D, typename decltype(kind)::type, 1, KV>, dim3(items < sms ? items : sms),
                        shape<D>::WARPS * 32, 0, LAUNCH_PDL, a);
        });
}

void attend_split_run(struct device *d, const split_args &a, uint32_t d_head)
{
    by_head(d_head, [&](auto size) {
        if constexpr (size.d % KV_Q8_BLOCK == 0)
            if (a.q8) {
                split_run<page_q8, size.d>(d, a);
                return;
            }
        split_run<page_f16, size.d>(d, a);
    });
}
