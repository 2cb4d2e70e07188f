/*
 * decode.cu - attention of decode steps of many sequences on Hopper, where bits may depend on the batch: the items and
 * sums of split_kv.cu, preceded by the tail of q|k|v (tailed.cuh), fed by bulk copies.
 *
 * A warp copies its pages in halves, K and V, each contiguous, into a ring of its own, across the ends of items: memory
 * is busy while an item's tail is computed and while its sums are added. Pages hold what was there before the step, so
 * they are requested before q|k|v has ended; the step's own token is a warp's first sum.
 *
 * Where a step has no more items than SMs, each of which has room for two blocks, two blocks of a thread block cluster
 * share an item, as its ranks, or four where there is an SM for each: pages are dealt out to the warps of all of them
 * in turn, each rank computes the item's queries, and sends its warps' sums to the first rank, which adds the ranks'
 * sums in order.
 */
#include <type_traits>

#include "kernels/cuda/attend/tailed.cuh"
#include "kernels/cuda/cluster.cuh"

enum { RANKS_MAX = 4 /* blocks of a cluster: eight lose more waiting to be scheduled than they gain */ };

/* Whether a block takes one item after the other, or each of its teams has one, with rings one page deep or one and a
 * half: see attend_decode(). */
enum decode_form { DECODE_MANY, DECODE_ONCE, DECODE_DEEP };

/* ROWS: most query heads per KV head. TEAM: warps that share an item. */
template <int D, int ROWS, int TEAM, decode_form FORM> struct decode_shape {
    static constexpr bool ONCE = FORM != DECODE_MANY;
    typedef std::conditional_t<ONCE, plan_whole, plan> P; /* a team's only item needs no plan of the others */
    static constexpr int WARPS = shape<D>::WARPS, THREADS = WARPS * 32, TEAMS = WARPS / TEAM;
    static constexpr int BLOCKS = D <= 64 || ONCE ? 2 : 1; /* per SM */
    static constexpr int PAGE = KV_PAGE * D;               /* halves of K, and of V */
    /* Stages of a warp's ring, half a page each: as many as fit, or so few that a block of the previous or next product
     * fits beside this one (DECODE_ONCE: at 128 dimensions with some 400 bytes to spare). */
    static constexpr uint32_t STAGES = FORM == DECODE_ONCE ? 2 : FORM == DECODE_DEEP ? 3 : ROWS <= 4 ? 6 : 4;
    static constexpr uint32_t BARRIERS = (WARPS * STAGES * 8 + 127) & ~127u, RING = WARPS * STAGES * PAGE * 2,
                              SCRATCH = (TEAMS * sizeof(scratch<D, ROWS, TEAM>) + 127) & ~127u,
                              QUERIES = TEAMS * (uint32_t)sizeof(typename tailed<D, ROWS, TEAM, P>::queries),
                              STATIC = sizeof(plan) + QUERIES + 256; /* at most */
    typedef float rank_sums[ROWS][D + 4];                            /* of a rank: sums, maximum, denominator */
    static constexpr uint32_t bytes(uint32_t ranks)
    {
        return BARRIERS + RING + SCRATCH + (ranks - 1) * (uint32_t)sizeof(rank_sums);
    }
};

#if __CUDA_ARCH__ >= 900
/* Called by every thread when it starts: the other blocks' shared memory is accessible once they have started. */
__device__ static inline void ranks_begin(uint64_t *told)
{
    if (!threadIdx.x) {
        mbar_init(told, 1);
        mbar_init_done();
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
/* Adds what the block's warps have left in x, and what those of the other ranks have. sums: space in the first rank for
 * the others' sums, [ranks - 1], of which it is told; f: four_at() of the thread. */
template <int D, int ROWS>
__device__ static inline void ranks_end(const tailed_args &a, const scratch<D, ROWS> &x, float (*sums)[ROWS][D + 4],
                                        uint64_t *told, const item &it, four f, uint32_t rank)
{
    static_assert(ROWS * D / 4 <= shape<D>::WARPS * 32, "a thread has one four");
    bool mine = f.r < it.rows;
    float top[RANKS_MAX], den[RANKS_MAX], y[RANKS_MAX][4], v[4];
    if (mine)
        add_warps(x, f, top[0], den[0], y[0]);
    if (!rank && !threadIdx.x)
        mbar_expect_tx(told, ((1u << a.log_ranks) - 1) * it.rows * (D + 2) * (uint32_t)sizeof(float));
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); /* warps may have diverged */
    if (rank) {
        if (mine) {
            uint32_t to = there(sums[rank - 1][f.r], 0), bar = there(told, 0);
            tell(to + 4 * f.dim, bar, make_float4(y[0][0], y[0][1], y[0][2], y[0][3]));
            if (!f.dim)
                tell(to + 4 * D, bar, make_float2(top[0], den[0]));
        }
        return;
    }
    wait_told(told);
    if (!mine)
        return;
#pragma unroll
    for (uint32_t k = 1; k < RANKS_MAX; k++) {
        bool sent = k < 1u << a.log_ranks;
        const float *from = sums[k - 1][f.r];
        float4 s = sent ? *(const float4 *)(from + f.dim) : make_float4(0, 0, 0, 0);
        top[k] = sent ? from[D] : -INFINITY, den[k] = sent ? from[D + 1] : 0;
        y[k][0] = s.x, y[k][1] = s.y, y[k][2] = s.z, y[k][3] = s.w;
    }
    join_sets<RANKS_MAX>(
        a, f.head, top, den, [&](int k, int e) { return y[k][e]; }, v);
    store_quad<D>(a, f.row, f.head, f.dim, v);
}
#endif

/*
 * DECODE_ONCE: a block's warps are in teams of TEAM warps, each with one item, or with its rank's part of one, and
 * there is no code for a next item; the rings are one page deep, so that the block fits as soon as one of the product's
 * two blocks has left an SM, and the next product's block fits beside it. DECODE_DEEP: the same where so few blocks all
 * find room early; K of the next page is then in flight with a page. DECODE_MANY: all warps share an item, and a block
 * takes one item after the other.
 *
 * Where blocks start late, anything that they do before the wait delays the critical path: so there is no dry run to
 * warm the instruction cache, and the sines and cosines are computed while the partial sums are in flight.
 */
template <int D, int ROWS, int TEAM, decode_form FORM>
__global__ void __launch_bounds__(decode_shape<D, ROWS, TEAM, FORM>::THREADS, decode_shape<D, ROWS, TEAM, FORM>::BLOCKS)
    attend_decode(const __grid_constant__ tailed_args a)
{
#if __CUDA_ARCH__ >= 900
    typedef shape<D> F;
    typedef decode_shape<D, ROWS, TEAM, FORM> S;
    constexpr bool ONCE = S::ONCE;
    constexpr uint32_t STAGES = S::STAGES;
    constexpr bool RANKS = ONCE && TEAM == S::WARPS;
    constexpr bool EARLY = S::BLOCKS == 1; /* with two blocks there are no registers for the next item's partial sums */
    extern __shared__ __align__(128) uint8_t sm[];
    __shared__ __align__(16) typename tailed<D, ROWS, TEAM, typename S::P>::queries made[S::TEAMS];
    uint32_t rank = 0, log_ranks = RANKS ? a.log_ranks : 0;
    __shared__ __align__(8) uint64_t told;
    if (RANKS) {
        ranks_begin(&told);
        asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
    }
    pdl_trigger();
    int team = threadIdx.x / 32 / TEAM, tid = threadIdx.x % (TEAM * 32), warp = tid / 32; /* of the team */
    int lane = tid % 32, g = lane / 4, t = lane % 4;
    uint64_t *full = (uint64_t *)sm + threadIdx.x / 32 * STAGES;
    __half *ring = (__half *)(sm + S::BARRIERS) + threadIdx.x / 32 * STAGES * S::PAGE;
    scratch<D, ROWS, TEAM> &x = ((scratch<D, ROWS, TEAM> *)(sm + S::BARRIERS + S::RING))[team];
    if (!lane) {
#pragma unroll 1
        for (uint32_t s = 0; s < STAGES; s++)
            mbar_init(full + s, 1);
        mbar_init_done();
    }
    uint32_t at = (blockIdx.x >> log_ranks) * S::TEAMS + team, at_step = gridDim.x * S::TEAMS;
    const int stride = TEAM << log_ranks; /* from a warp's page to its next */
    tailed<D, ROWS, TEAM, typename S::P> tail(made[team], &x.o[warp][0][0], warp, lane, rank);
    const typename S::P &p = plan_of(a, (const typename S::P *)NULL, at);
    item it;
    if (!find(it, at, p, a, at_step)) {
        pdl_wait();
        return;
    }
    auto sync = [&]() { named_bar_sync<TEAM * 32>(1 + team); };
    /* Pages of an item are dealt out to its warps in turn: the number of half pages that the warp has, and its pages'
     * numbers, in its first lanes. */
    auto first_page = [&](const item &i) { return i.page0 + rank * TEAM + warp; };
    auto count = [&](const item &i, uint32_t end) {
        return ((uint32_t)max((int)end + stride - 1 - (int)first_page(i), 0) / TEAM >> log_ranks) * 2;
    };
    auto alive_of = [&](const item &i) { return count(i, end_page(p, i)); };
    auto pages_of = [&](const item &i) {
        return a.pages[table_of(p, i.s) + min(first_page(i) + lane % ATTEND_ROUNDS * stride, i.last / KV_PAGE)];
    };
    uint64_t policy = evict_first();
    /* Copies half page `nth` of those, which is the turn'th of all that the warp copies. */
    auto copy = [&](uint32_t head, uint32_t pages, uint32_t nth, uint32_t turn) {
        const __half *from = kv_k(a.kv, __shfl_sync(~0u, pages, nth / 2) * KV_PAGE, head);
        uint32_t stage = turn % STAGES;
        if (lane)
            return;
        mbar_expect_tx(full + stage, S::PAGE * 2);
        cp_async_bulk(ring + stage * S::PAGE, from + nth % 2 * a.kv.v_off, S::PAGE * 2, full + stage, policy);
    };
    auto landed = [&](uint32_t turn) {
        mbar_wait(full + turn % STAGES, turn / STAGES & 1);
        return ring + turn % STAGES * S::PAGE;
    };
    uint32_t page = pages_of(it), alive = alive_of(it), asked = 0, turn = 0;
    for (; asked < min(alive, STAGES); asked++)
        copy(it.head, page, asked, asked);
    uint32_t q[F::J][4];
    int pos[2], lo[2];
    float o[F::GROUPS][F::W][4], m[2], l[2];
    /* After load_q(), and before the barrier after which the next item's tail may be computed. */
    auto begin = [&](const item &i) {
        begin_item<D>(a, i, t, i.last, pos, lo, o, m, l);
        pos[0]--, pos[1]--; /* its own token is not in a page yet */
        if (tail.owner(a, i) == rank * TEAM + warp)
            tail.begin_own(a, q, o, m, l);
    };
    bool begun = false;
#pragma unroll 1
    for (;;) {
        item next = it;
        uint32_t next_page = 0, next_alive = 0, ahead = 0; /* ahead: half pages of the next item in flight */
        at += at_step;
        bool more = !ONCE && find(next, at, p, a, at_step);
        if (more)
            next_page = pages_of(next), next_alive = alive_of(next);
        four mine = four_at<D>(a, p, it, tid);
        if (!begun) {
            tail.make(a, p, it, false, true);
            sync();
            tail.load_q(q, it.rows);
            begin(it);
            sync(); /* all warps have read the queries before the next item's replace them */
            begun = true;
        }
        if (more && EARLY)
            tail.ask(a, p, next);
        for (; asked < min(alive, STAGES); asked++) /* after an item of which the warp had no page */
            copy(it.head, page, asked, turn + asked);
#pragma unroll 1
        for (uint32_t r = 0; r < alive; r += 2) {
            /* All lanes have read half page r + i: refill its stage. */
            auto pass = [&](uint32_t i) {
                __syncwarp();
                if (asked < alive)
                    copy(it.head, page, asked, turn + asked), asked++;
                else
                    for (; ahead < min(next_alive, STAGES) && alive + ahead <= r + i + STAGES; ahead++)
                        copy(next.head, next_page, ahead, turn + alive + ahead);
            };
            float c[4] = {}, odd[4] = {}; /* two chains of sums */
            uint32_t pr[2];
            page_scores<D>(landed(turn + r) + g * D + 8 * t, q, c, odd);
            pass(0);
            online_softmax<D>(a, c, odd, pos, lo, (int)(first_page(it) + r / 2 * stride) * KV_PAGE + g, o, m, l, pr);
            page_values<D>(landed(turn + r + 1) + 2 * t * D + 2 * F::W * g, pr, o);
            pass(1);
        }
        if constexpr (RANKS) {
            item_leave<D>(x, it, tid, o, m, l);
            __syncthreads();
            ranks_end<D>(a, x, (typename S::rank_sums *)(sm + S::BARRIERS + S::RING + S::SCRATCH), &told, it, mine,
                         rank);
        } else {
            if (more)
                tail.make(a, p, next, EARLY, false);
            item_end<D>(a, p, x, it, mine, tid, o, m, l, [&]() {
                sync();
                if (more)
                    tail.load_q(q, next.rows);
            });
        }
        if (!more)
            break;
        begin(next);
        sync();
        turn += alive, it = next, page = next_page, alive = next_alive, asked = ahead;
    }
#endif
}

/* --- launchers ---------------------------------------------------------------------------------------------------- */

/* Calls f(head_size<D>(), head_size<ROWS>()); false where there is no kernel for such heads. */
template <class F> static bool decode_head(uint32_t d_head, uint32_t group, F f)
{
    auto by_rows = [&](auto size) {
        if (group <= 4)
            f(size, head_size<4>());
        else
            f(size, head_size<TILE_ROWS>());
    };
    if (group > TILE_ROWS)
        return false;
    if (d_head == 64)
        by_rows(head_size<64>());
    else if (d_head == 128)
        by_rows(head_size<128>());
    else
        return false;
    return true;
}
/* Calls f(head_size<TEAM>()) for teams of so many warps. */
template <int D, class F> static void decode_team(uint32_t warps, F f)
{
    if (warps == 2)
        f(head_size<2>());
    else if (warps == 4)
        f(head_size<4>());
    else
        f(head_size<shape<D>::WARPS>());
}

bool attend_decode_takes(const struct device *d, const struct kv_desc *kv, uint32_t group)
{
    bool fits = false;
    if (d->cc >= 90 && d->path == PATH_WGMMA && d->decode && !d->invariant && kv->type == DT_F16 && kv->d_k == kv->d_v)
        decode_head(kv->d_k, group, [&](auto size, auto rows) {
            typedef decode_shape<size.d, rows.d, shape<size.d>::WARPS, DECODE_MANY> S;
            fits = S::bytes(1) + S::STATIC <= d->smem_max;
        });
    return fits;
}

uint32_t attend_ranks(const struct device *d, uint32_t items)
{
    uint64_t sms = d->sms;
    static_assert(RANKS_MAX == 4);
    /* Two blocks fit an SM, but clusters of four would wait too long for places. */
    return 4ull * items <= sms ? 2 : items <= sms ? 1 : 0;
}

/* Whether the blocks are so few that they need not fit beside a product's: for log_ranks of attend_ranks(), as
 * measured. */
static bool few_blocks(const struct device *d, uint32_t items, uint32_t log_ranks)
{
    return log_ranks && (uint64_t)items << (log_ranks == 1 ? 1 : 3) <= (uint64_t)d->sms;
}

uint32_t attend_decode_teams(const struct device *d, uint32_t d_head, uint32_t warps)
{
    return 2 * d->sms * (attend_warps((int)d_head) / warps);
}

void attend_decode_init(struct device *d)
{
    if (d->cc < 90)
        return;
    for (uint32_t group = 4; group <= TILE_ROWS; group += 4)
        for (uint32_t d_head = 64; d_head <= 128; d_head += 64)
            decode_head(d_head, group, [&](auto size, auto rows) {
                constexpr int D = size.d, ROWS = rows.d, WARPS = shape<D>::WARPS;
                cuda_smem(d, attend_decode<D, ROWS, WARPS, DECODE_MANY>,
                          decode_shape<D, ROWS, WARPS, DECODE_MANY>::bytes(1));
                cuda_smem(d, attend_decode<D, ROWS, WARPS, DECODE_DEEP>,
                          decode_shape<D, ROWS, WARPS, DECODE_DEEP>::bytes(RANKS_MAX));
                for (uint32_t warps = ATTEND_TEAM_MIN; warps <= WARPS; warps *= 2)
                    decode_team<D>(warps, [&](auto team) {
                        constexpr int TEAM = team.d;
                        cuda_smem(d, attend_decode<D, ROWS, TEAM, DECODE_ONCE>,
                                  decode_shape<D, ROWS, TEAM, DECODE_ONCE>::bytes(TEAM == WARPS ? RANKS_MAX : 1));
                    });
            });
}

template <int D, int ROWS, int TEAM, decode_form FORM>
static void launch_once(struct device *d, const tailed_args &a, uint32_t items)
{
    typedef decode_shape<D, ROWS, TEAM, FORM> S;
    uint32_t ranks = 1u << a.log_ranks;
    dim3 grid((items + S::TEAMS - 1) / S::TEAMS * ranks);
    if (ranks > 1)
        cuda_launch_clusters(d, ranks, attend_decode<D, ROWS, TEAM, FORM>, grid, S::THREADS, S::bytes(ranks),
                             LAUNCH_PDL, a);
    else
        cuda_launch(d, attend_decode<D, ROWS, TEAM, FORM>, grid, S::THREADS, S::bytes(1), LAUNCH_PDL, a);
}

void attend_decode_run(struct device *d, const split_args &a, const attend_tail &tail, uint32_t d_head)
{
    decode_head(d_head, a.group, [&](auto size, auto rows) {
        constexpr int D = size.d, ROWS = rows.d, WARPS = shape<D>::WARPS;
        uint32_t items = attend_items(d, a, D);
        tailed_args with = {a, tail, 0};
        if (!d->team) {
            typedef decode_shape<D, ROWS, WARPS, DECODE_MANY> many;
            uint32_t most = many::BLOCKS * d->sms;
            cuda_launch(d, attend_decode<D, ROWS, WARPS, DECODE_MANY>, dim3(items < most ? items : most), many::THREADS,
                        many::bytes(1), LAUNCH_PDL, with);
            return;
        }
        decode_team<D>(d->team, [&](auto team) {
            constexpr int TEAM = team.d;
            constexpr decode_form DEEP = TEAM == shape<D>::WARPS ? DECODE_DEEP : DECODE_ONCE;
            with.log_ranks = TEAM == WARPS ? attend_ranks(d, items) : 0;
            if (few_blocks(d, items, with.log_ranks))
                launch_once<D, ROWS, TEAM, DEEP>(d, with, items);
            else
                launch_once<D, ROWS, TEAM, DECODE_ONCE>(d, with, items);
        });
    });
}
