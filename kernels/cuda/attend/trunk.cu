/*
 * trunk.cu - attention over the KV that sequences of a step share, read once for all of them: branches of a
 * conversation decode over the same pages.
 *
 * The host finds sequences whose block tables begin with the same pages (attend_trunks) and cuts what they share at
 * whole chunks of plan.cuh. Those chunks are items here: (trunk, chunk, 32 rows, KV head), where the rows are the query
 * heads of a KV head's group, one sequence after the other. Each item stores partial sums where split_kv.cu would have
 * stored them, chunk by chunk of a row, and reduce.cu adds them to those of the sequences' own chunks. So a row's bits
 * depend on the batch, and steps in which they must not have no trunks.
 *
 * A warp takes every eighth page of an item and copies its pages in bulk to stages of its own, two pages ahead;
 * fragments of K and V, once in registers, serve four tiles of eight rows. All of this KV was written by earlier steps:
 * no copy waits for a kernel, and nothing is masked.
 */
#include "kernels/cuda/attend/split_kv.cuh"
#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/local.cuh"

#include <limits.h>
#include <string.h>

template <int D> struct trunk_shape {
    static constexpr int WARPS = shape<D>::WARPS, THREADS = WARPS * 32;
    static constexpr int TILES = TRUNK_ROWS / TILE_ROWS;
    static constexpr int PAGE = KV_PAGE * D; /* halves of K, and of V */
    static constexpr int QLD = D + 32;       /* halves from query to query: no bank conflicts */
    static constexpr uint32_t STAGES = 2;    /* per warp, a page each */
    static constexpr int BARRIERS = 128;     /* bytes */
    static constexpr uint32_t QUERIES = TRUNK_ROWS * QLD * 2, SCRATCH = (sizeof(scratch<D>) + 127) & ~127u;
    static constexpr uint32_t BYTES = BARRIERS + QUERIES + SCRATCH + WARPS * STAGES * PAGE * 4;
};

#if __CUDA_ARCH__ >= 900
struct trunk_item {
    uint32_t first, row0, rows; /* first: of its sequences in step_trunks.seq; rows of (sequence, head), from row0 on */
    uint32_t head, chunk;
};

/* Finds item `at` of the step; false where there is none. Items of one chunk follow each other, so that its pages are
 * in L2. */
__device__ static inline bool trunk_find(trunk_item &it, uint32_t at, const split_args &a)
{
    uint32_t n_trunk = a.trunks->n;
    for (uint32_t i = 0; i < n_trunk; i++) {
        const step_trunk t = a.trunks->trunk[i];
        uint32_t rows = t.n_seq * a.group, parts = (rows + TRUNK_ROWS - 1) / TRUNK_ROWS,
                 n = a.kv.n_kv * parts * t.n_chunk;
        if (at < n) {
            uint32_t rest = at / a.kv.n_kv, part = rest % parts;
            it.first = t.first, it.head = at % a.kv.n_kv, it.chunk = rest / parts;
            it.row0 = part * TRUNK_ROWS, it.rows = min(rows - it.row0, (uint32_t)TRUNK_ROWS);
            return true;
        }
        at -= n;
    }
    return false;
}
#endif

template <int D>
__global__ void __launch_bounds__(trunk_shape<D>::THREADS, 1) attend_trunk(const __grid_constant__ split_args a)
{
#if __CUDA_ARCH__ >= 900
    typedef shape<D> F;
    typedef trunk_shape<D> S;
    extern __shared__ __align__(128) uint8_t sm[];
    __half *queries = (__half *)(sm + S::BARRIERS);
    scratch<D> &x = *(scratch<D> *)(sm + S::BARRIERS + S::QUERIES);
    pdl_trigger();
    int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    uint64_t *full = (uint64_t *)sm + warp * S::STAGES;
    __half *ring = (__half *)(sm + S::BARRIERS + S::QUERIES + S::SCRATCH) + warp * S::STAGES * 2 * S::PAGE;
    if (!lane) {
        for (uint32_t s = 0; s < S::STAGES; s++)
            mbar_init(full + s, 1);
        mbar_init_done();
    }
    trunk_item it;
    uint32_t at = blockIdx.x, turn = 0; /* turn: counts all pages that the warp takes */
    if (!trunk_find(it, at, a)) {
        pdl_wait();
        return;
    }
    const plan &p = plan_of(a, (const plan *)NULL);
    const uint32_t n = p.chunk_pages, n_mine = (n + S::WARPS - 1 - warp) / S::WARPS;
    uint64_t policy = evict_first();
    uint32_t pages; /* numbers of the warp's pages of the item, one per lane */
    /* Copies the warp's i-th page of the item, into the stage that was read last. */
    auto copy = [&](const trunk_item &of, uint32_t i) {
        const __half *from = kv_k(a.kv, __shfl_sync(~0u, pages, i) * KV_PAGE, of.head);
        uint32_t stage = (turn + i) % S::STAGES;
        if (i < n_mine && !lane)
            mbar_expect_tx(full + stage, S::PAGE * 4);
        __syncwarp();
        if (i < n_mine && lane < 2) /* K and V */
            cp_async_bulk(ring + (stage * 2 + lane) * S::PAGE, from + lane * (uint64_t)a.kv.v_off, S::PAGE * 2,
                          full + stage, policy);
    };
    auto begin = [&](const trunk_item &of) {
        const uint32_t *table = a.pages + p.pages[a.trunks->seq[of.first]] + of.chunk * n;
        pages = table[min(warp + lane * S::WARPS, n - 1)];
        for (uint32_t i = 0; i < S::STAGES; i++)
            copy(of, i);
    };
    begin(it);
    pdl_wait();
    const int all[2] = {INT_MAX, INT_MAX}, none[2] = {0, 0}; /* the positions that a row sees */
    for (;;) {
        /* the item's row r: its sequence, row of the step and head */
        auto place = [&](uint32_t r, uint32_t &s, uint32_t &row, uint32_t &head) {
            uint32_t nth = fastdiv(it.row0 + r, a.group_magic);
            s = a.trunks->seq[it.first + nth], row = p.row[s];
            head = it.head * a.group + it.row0 + r - nth * a.group;
        };
        uint32_t tiles = (it.rows + TILE_ROWS - 1) / TILE_ROWS;
        for (uint32_t i = tid; i < tiles * TILE_ROWS * (D / 8); i += S::THREADS) {
            uint32_t r = i / (D / 8), k = i % (D / 8) * 8, s, row, head;
            uint4 v = make_uint4(0, 0, 0, 0);
            if (r < it.rows) {
                place(r, s, row, head);
                v = __ldcg((const uint4 *)(a.q + (uint64_t)row * a.ldq + head * D + k));
            }
            *(uint4 *)(queries + r * S::QLD + k) = v;
        }
        __syncthreads();
        float o[S::TILES][F::GROUPS][F::W][4], m[S::TILES][2], l[S::TILES][2];
#pragma unroll
        for (int i = 0; i < S::TILES; i++) {
            m[i][0] = m[i][1] = -INFINITY, l[i][0] = l[i][1] = 0;
#pragma unroll
            for (int b = 0; b < F::GROUPS; b++)
#pragma unroll
                for (int w = 0; w < F::W; w++)
                    o[i][b][w][0] = o[i][b][w][1] = o[i][b][w][2] = o[i][b][w][3] = 0;
        }
#pragma unroll 1
        for (uint32_t r = 0; r < n_mine; r++) {
            uint32_t stage = (turn + r) % S::STAGES;
            const __half *k = ring + stage * 2 * S::PAGE + g * D + 8 * t,
                         *v = ring + stage * 2 * S::PAGE + S::PAGE + 2 * t * D + 2 * F::W * g, *q = queries + 8 * t;
            float c[S::TILES][4] = {}, odd[S::TILES][4] = {};
            uint32_t pr[S::TILES][2];
            mbar_wait(full + stage, (turn + r) / S::STAGES & 1);
#pragma unroll
            for (int j = 0; j < F::J; j++) {
                uint4 ka = *(const uint4 *)(k + 32 * j), kb = *(const uint4 *)(k + 8 * D + 32 * j);
#pragma unroll
                for (int i = 0; i < S::TILES; i++)
                    if (i < tiles) {
                        uint4 b = *(const uint4 *)(q + (TILE_ROWS * i + g) * S::QLD + 32 * j);
                        mma16816(c[i], ka.x, kb.x, ka.y, kb.y, b.x, b.y);
                        mma16816(odd[i], ka.z, kb.z, ka.w, kb.w, b.z, b.w);
                    }
            }
#pragma unroll
            for (int i = 0; i < S::TILES; i++)
                if (i < tiles)
                    online_softmax<D>(a, c[i], odd[i], all, none, 0, o[i], m[i], l[i], pr[i]);
#pragma unroll
            for (int b = 0; b < F::GROUPS; b++) {
                uint32_t f[4][F::W];
#pragma unroll
                for (int e = 0; e < 4; e++) /* tokens 2t, 2t + 1, 2t + 8, 2t + 9 */
                    *(uint4 *)f[e] = *(const uint4 *)(v + ((e & 1) + 8 * (e / 2)) * D + b * F::SPAN);
#pragma unroll
                for (int w = 0; w < F::W; w++) {
                    uint32_t lo = __byte_perm(f[0][w], f[1][w], 0x5410), hi = __byte_perm(f[0][w], f[1][w], 0x7632),
                             lo8 = __byte_perm(f[2][w], f[3][w], 0x5410), hi8 = __byte_perm(f[2][w], f[3][w], 0x7632);
#pragma unroll
                    for (int i = 0; i < S::TILES; i++)
                        if (i < tiles)
                            mma16816(o[i][b][w], lo, hi, lo8, hi8, pr[i][0], pr[i][1]);
                }
            }
            __syncwarp(); /* all lanes have read the page */
            copy(it, r + S::STAGES);
        }
        turn += n_mine;
        trunk_item next;
        bool more = trunk_find(next, at += gridDim.x, a);
        if (more)
            begin(next);
            /* the warps' results are added in order, tile by tile */
#pragma unroll
        for (int i = 0; i < S::TILES; i++)
            if (i < tiles) {
#pragma unroll
                for (int d = 4; d < 32; d *= 2)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        l[i][e] += __shfl_xor_sync(~0u, l[i][e], d);
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    if (!g)
                        x.m[warp][2 * t + e] = m[i][e], x.l[warp][2 * t + e] = l[i][e];
#pragma unroll
                    for (int b = 0; b < F::GROUPS; b++)
#pragma unroll
                        for (int w = 0; w < F::W; w++)
                            *(float2 *)&x.o[warp][2 * t + e][b * F::SPAN + 2 * (F::W * g + w)] =
                                make_float2(o[i][b][w][e], o[i][b][w][2 + e]);
                }
                __syncthreads();
                four f;
                item one = {};
                f.r = tid / (D / 4), f.dim = tid % (D / 4) * 4;
                if (f.r < TILE_ROWS && TILE_ROWS * i + f.r < it.rows) {
                    place(TILE_ROWS * i + f.r, one.s, f.row, f.head);
                    one.chunk = it.chunk, one.c_hi = it.chunk + 1; /* at least the row's own page follows */
                    reduce_warps<D>(a, p, x, one, f);
                }
                __syncthreads();
            }
        if (!more)
            break;
        it = next;
    }
#endif
}

/* --- what is shared ----------------------------------------------------------------------------------------------- */

/* Calls f(head_size<D>()); false where there is no kernel for heads of d_head. */
template <class F> static bool trunk_head(uint32_t d_head, F f)
{
    if (d_head == 64)
        f(head_size<64>());
    else if (d_head == 128)
        f(head_size<128>());
    else
        return false;
    return true;
}

/* Whether layers of the group use trunks: those with a window see little of them. */
static bool reads(const struct kv_desc *kv)
{
    return !kv->d_state && !kv->window;
}

/* The number of pages, of up to `most`, that two sequences have in common in all groups that use trunks; the first
 * `from` are known to be. */
static uint32_t common_pages(const struct device *d, const step_dev *m, uint32_t s, uint32_t t, uint32_t from,
                             uint32_t most)
{
    enum { RUN = 64 }; /* pages compared by one call of memcmp() */
    const uint32_t *pages = (const uint32_t *)(trunks_of(d, m) + 1);
    for (uint32_t g = 0; g < d->n_group && from < most; g++) {
        if (!reads(&d->kv[g]->desc))
            continue;
        const uint32_t *a = pages + m->group[g].pages0[s], *b = pages + m->group[g].pages0[t];
        uint32_t n = from;
        while (n + RUN <= most && !memcmp(a + n, b + n, RUN * sizeof(*a)))
            n += RUN;
        while (n < most && a[n] == b[n])
            n++;
        most = n;
    }
    return most;
}

/* The number of pages that each pair of sequences shares. Mostly it follows from a third sequence, the one that shares
 * the most with the later of the pair: if the pair's shared lengths with it differ, the shorter is the answer; if they
 * are equal, the pair is compared from there on. */
struct likeness {
    uint32_t pages[BATCH_SEQS_MAX][BATCH_SEQS_MAX];
};
static bool likeness_of(const struct device *d, const step_dev *m, struct likeness *l)
{
    bool any = false;
    for (uint32_t t = 0; t < m->n_seq; t++) {
        uint32_t like = 0;
        for (uint32_t s = 0; s < t; s++) { /* only whole pages from before this step */
            uint32_t whole = (m->pos0[s] < m->pos0[t] ? m->pos0[s] : m->pos0[t]) / KV_PAGE, n,
                     x = s ? l->pages[like][s] : 0, y = s ? l->pages[like][t] : 0;
            if (x != y && like != s)
                n = x < y ? x : y;
            else
                n = common_pages(d, m, s, t, s ? x : 0, whole);
            l->pages[s][t] = l->pages[t][s] = n;
            like = n > l->pages[like][t] ? s : like;
            any = any || n;
        }
        l->pages[t][t] = 0;
    }
    return any;
}

uint32_t attend_trunks(const struct device *d, const step_dev *m, struct step_trunks *to,
                       uint32_t pages[BATCH_SEQS_MAX])
{
    struct likeness like;
    bool taken[BATCH_SEQS_MAX] = {}, any = false;
    uint32_t n_trunk = 0, at = 0;
    memset(pages, 0, BATCH_SEQS_MAX * sizeof(*pages));
    if (d->cc < 90 || !d->decode || d->invariant || d->bucket <= GEMV_ROWS)
        return 0;
    for (uint32_t g = 0; g < d->n_group; g++)
        if (reads(&d->kv[g]->desc)) {
            const struct kv_desc *kv = &d->kv[g]->desc;
            any = true;
            if (kv->type != DT_F16 || kv->d_v != kv->d_k || !trunk_head(kv->d_k, [](auto) {}))
                return 0;
        }
    if (!any || !likeness_of(d, m, &like))
        return 0;
    for (; n_trunk < TRUNKS_MAX; n_trunk++) {
        /* the trunk that saves the most pages: all but one of the sequences that begin with it need not read it */
        uint32_t best = 0, of = 0, length = 0;
        for (uint32_t s = 0; s < m->n_seq; s++)
            for (uint32_t t = 0, tried = 0; t < m->n_seq && !taken[s]; t++) {
                uint32_t n = like.pages[s][t], others = 0;
                if (!n || n == tried || taken[t])
                    continue;
                for (uint32_t u = 0; u < m->n_seq; u++)
                    others += !taken[u] && like.pages[s][u] >= n;
                if (others * n > best)
                    best = others * n, of = s, length = n;
                tried = n;
            }
        if (!best)
            break;
        to->trunk[n_trunk] = {at, 0, 0};
        for (uint32_t t = 0; t < m->n_seq; t++)
            if (!taken[t] && (t == of || like.pages[of][t] >= length)) {
                taken[t] = true, pages[t] = length;
                to->seq[at++] = t;
                to->trunk[n_trunk].n_seq++;
            }
    }
    return n_trunk;
}

/* --- launchers ---------------------------------------------------------------------------------------------------- */

void attend_trunk_init(struct device *d)
{
    if (d->cc < 90)
        return;
    cuda_smem(d, attend_trunk<64>, trunk_shape<64>::BYTES), cuda_smem(d, attend_trunk<128>, trunk_shape<128>::BYTES);
}

void attend_trunk_run(struct device *d, const split_args &a, uint32_t d_head)
{
    trunk_head(d_head, [&](auto size) {
        typedef trunk_shape<size.d> S;
        cuda_launch(d, attend_trunk<size.d>, dim3(d->sms), S::THREADS, S::BYTES, LAUNCH_PDL, a);
    });
}
