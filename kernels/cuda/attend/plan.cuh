/*
 * plan.cuh - how attention in chunks is divided: work items over a static grid, computed on the device from the step's
 * positions, so that one captured graph serves any context length; and where an item's results and partial sums go.
 * split_kv.cu, reduce.cu and the kernels beside them share it.
 */
#ifndef HEARTH_CUDA_ATTEND_PLAN_CUH
#define HEARTH_CUDA_ATTEND_PLAN_CUH

#include "kernels/cuda/attend/attend.cuh"
#include "kernels/cuda/fastdiv.cuh"

enum {
    REDUCE_SPAN = 2,
    REDUCE_SETS = 1 << REDUCE_SPAN, /* chunk c of a context belongs to set c % REDUCE_SETS: sums are added within
                                     * each set first, then over the sets */
    ATTEND_ROUNDS = 32,             /* most pages of a chunk per warp of split_kv.cu: a lane holds one's number */
};
/* Warps of a block of split_kv.cu. */
constexpr int attend_warps(int d_head)
{
    return d_head <= 128 ? ATTEND_FIRST_PAGES : ATTEND_FIRST_PAGES / 2;
}
/* Pages of a chunk where the order of sums depends on positions alone: two for each warp. */
constexpr int fixed_pages(int d_head)
{
    return 2 * attend_warps(d_head);
}

/*
 * The arguments of these kernels, which are bound by dependency chains: group_magic divides by the group, kv_magic by
 * the number of KV heads (fastdiv.cuh).
 */
struct split_args : attend_args {
    uint32_t group_magic, kv_magic;
    uint32_t fixed_pages, fixed_magic; /* pages per chunk where step_dev.chunk_pages is 0 */
    uint32_t span;                     /* an item has 1 << span consecutive chunks, aligned to that number */
};
/* The plan of a step, computed by every block that may have any of its items: arrays by sequence [s], and prefix sums
 * over them. */
struct plan {
    static constexpr bool ONE = false, FIRST = false; /* see plan_one */
    uint32_t item[BATCH_SEQS_MAX + 1];                /* work items before sequence s */
    uint32_t part[BATCH_SEQS_MAX + 1];                /* (row, chunk) pairs, which have partial sums, before it */
    uint32_t row[BATCH_SEQS_MAX], n_row[BATCH_SEQS_MAX], pos[BATCH_SEQS_MAX]; /* its rows within [row_lo, row_hi) */
    uint32_t fresh[BATCH_SEQS_MAX]; /* the first position that this step writes */
    uint32_t chunk0[BATCH_SEQS_MAX], n_chunk[BATCH_SEQS_MAX], n_span[BATCH_SEQS_MAX], pages[BATCH_SEQS_MAX];
    uint32_t trunk[BATCH_SEQS_MAX];    /* how many of its first chunks are done by trunk.cu */
    uint32_t chunk_pages, chunk_magic; /* of this step's chunks */
};

__device__ static inline uint32_t first_visible(uint32_t pos, uint32_t window)
{
    return window && pos + 1 > window ? pos + 1 - window : 0;
}

/* The chunk that a position is in. */
__device__ static inline uint32_t chunk_at(const plan &p, uint32_t pos)
{
    return fastdiv(pos / KV_PAGE, p.chunk_magic);
}

/* Fills in sequence i of the plan; returns its numbers of items and of (row, chunk) pairs in v. magic: chunk_magic. */
__device__ static inline void plan_seq(plan *p, const split_args &a, uint32_t magic, uint32_t i, uint32_t row0,
                                       uint32_t n_row, uint32_t pos0, uint32_t pages, uint32_t trunk, uint32_t v[2])
{
    uint32_t lo = max(row0, a.row_lo), hi = min(row0 + n_row, a.row_hi), pos = pos0 + lo - row0;
    uint32_t n = n_row <= a.rows_max && hi > lo ? hi - lo : 0, n_tile = (n * a.group + TILE_ROWS - 1) / TILE_ROWS;
    uint32_t c0 = fastdiv(first_visible(pos, a.window) / KV_PAGE, magic), c1 = fastdiv((pos + n - 1) / KV_PAGE, magic);
    p->row[i] = lo, p->n_row[i] = n, p->pos[i] = pos, p->fresh[i] = pos0, p->pages[i] = pages;
    p->chunk0[i] = c0, p->n_chunk[i] = n ? c1 - c0 + 1 : 0, p->trunk[i] = n ? trunk : 0;
    p->n_span[i] = n ? (c1 >> a.span) - ((c0 + trunk) >> a.span) + 1 : 0;
    v[0] = a.kv.n_kv * n_tile * p->n_span[i], v[1] = n * p->n_chunk[i];
}

/* Makes the plan; called by one warp. */
__device__ static void plan_make(plan *p, const split_args &a)
{
    const step_dev *s = a.s;
    uint32_t lane = threadIdx.x, carry[2] = {0, 0}, n_seq = s->n_seq;
    uint32_t pages_free = s->chunk_pages, magic = pages_free ? s->chunk_magic : a.fixed_magic;
    if (!lane)
        p->chunk_pages = pages_free ? pages_free : a.fixed_pages, p->chunk_magic = magic;
#pragma unroll 1
    for (uint32_t base = 0; base < BATCH_SEQS_MAX; base += 32) {
        uint32_t i = base + lane, v[2] = {0, 0};
        if (base >= n_seq && base) { /* past the last sequence: searches still read these */
            p->item[i] = carry[0];
            continue;
        }
        /* loaded together with n_seq; entries past it are not used */
        uint32_t row0 = s->row0[i], n = s->n_rows[i], pos0 = s->pos0[i], pages = a.pages0[i],
                 trunk = a.trunks ? a.trunks->chunks[i] : 0;
        if (i < n_seq)
            plan_seq(p, a, magic, i, row0, n, pos0, pages, trunk, v);
        for (int k = 0; k < 2; k++) {
            uint32_t sum = v[k];
            for (int d = 1; d < 32; d *= 2) {
                uint32_t o = __shfl_up_sync(~0u, sum, d);
                if ((int)lane >= d)
                    sum += o;
            }
            (k == 0 ? p->item : p->part)[i] = carry[k] + sum - v[k];
            carry[k] += __shfl_sync(~0u, sum, 31);
        }
    }
    if (!lane)
        p->item[BATCH_SEQS_MAX] = carry[0];
}

/* The plan of a decode step of one row (attend_args.one): one item per chunk and head, and few numbers to read. Kernels
 * for this plan alone are short, and code that a kernel executes once costs more to fetch than to execute. FIRST: the
 * row sees all of its context, through the step's first block table (attend_args.first). */
template <bool F, int PAGES> struct plan_one {
    static constexpr bool ONE = true, FIRST = F;
    uint32_t pos, table, c_lo; /* table: where its block table starts; c_lo: the first chunk that it sees */
};

/* The plan of an item of a decode step whose contexts are not cut: the item is a sequence and a KV head, and needs no
 * sums over the sequences before it, which would delay a block that starts late. */
struct plan_whole {
    uint32_t row, pos, table; /* of the item's sequence; table: where its block table starts */
    bool live;                /* whether there is such a sequence */
};

/* The block's plan: for many sequences, made by warp 0 for all warps; or for one row. */
__device__ static inline const plan &plan_of(const split_args &a, const plan *)
{
    __shared__ plan p;
    if (threadIdx.x < 32)
        plan_make(&p, a);
    __syncthreads();
    return p;
}
template <int PAGES>
__device__ static inline plan_one<true, PAGES> plan_of(const split_args &a, const plan_one<true, PAGES> *)
{
    return {a.s->pos0[0], 0, 0};
}
template <int PAGES>
__device__ static inline plan_one<false, PAGES> plan_of(const split_args &a, const plan_one<false, PAGES> *)
{
    uint32_t pos = a.s->pos0[0];
    return {pos, a.pages0[0], first_visible(pos, a.window) / (PAGES * KV_PAGE)};
}
/* The plan of item `at`. A sequence of a decode step has one row. */
__device__ static inline plan_whole plan_of(const split_args &a, const plan_whole *, uint32_t at)
{
    uint32_t s = fastdiv(at, a.kv_magic);
    bool inside = s < BATCH_SEQS_MAX;
    uint32_t n_seq = a.s->n_seq, i = inside ? s : 0;
    return {a.s->row0[i], a.s->pos0[i], a.pages0[i], s < n_seq};
}
__device__ static inline const plan &plan_of(const split_args &a, const plan *p, uint32_t)
{
    return plan_of(a, p);
}
/* For sequence s of a decode step: its row, and the position of that. */
__device__ static inline uint32_t row_of(const plan &p, uint32_t s)
{
    return p.row[s];
}
__device__ static inline uint32_t row_of(const plan_whole &p, uint32_t)
{
    return p.row;
}
__device__ static inline uint32_t row_pos(const plan &p, uint32_t s)
{
    return p.pos[s];
}
__device__ static inline uint32_t row_pos(const plan_whole &p, uint32_t)
{
    return p.pos;
}
/* For sequence s: the first position that this step writes, and where its block table starts. */
__device__ static inline uint32_t fresh_of(const plan &p, uint32_t s)
{
    return p.fresh[s];
}
template <bool FIRST, int PAGES> __device__ static inline uint32_t fresh_of(const plan_one<FIRST, PAGES> &p, uint32_t)
{
    return p.pos;
}
__device__ static inline uint32_t table_of(const plan &p, uint32_t s)
{
    return p.pages[s];
}
template <bool FIRST, int PAGES> __device__ static inline uint32_t table_of(const plan_one<FIRST, PAGES> &p, uint32_t)
{
    return p.table;
}
__device__ static inline uint32_t table_of(const plan_whole &p, uint32_t)
{
    return p.table;
}
/* Pages of a chunk. */
__device__ static inline uint32_t chunk_pages(const plan &p)
{
    return p.chunk_pages;
}
template <bool FIRST, int PAGES> __device__ static inline uint32_t chunk_pages(const plan_one<FIRST, PAGES> &)
{
    return PAGES;
}

struct item {
    uint32_t s, head, tile, rows; /* rows: live rows of the tile */
    uint32_t chunk, end;          /* the item's first and last chunk */
    uint32_t c_lo, c_hi;          /* the first and last chunk of the context that the tile's rows see */
    uint32_t last;                /* position of the tile's last row */
    uint32_t page0;               /* the first page of the item that is read */
};

/* Fills in the tile's live rows, its last position, and the chunks that its rows see. */
__device__ static inline void tile_sees(item &it, const plan &p, const split_args &a)
{
    it.rows = min((uint32_t)TILE_ROWS, p.n_row[it.s] * a.group - TILE_ROWS * it.tile);
    it.last = p.pos[it.s] + fastdiv(TILE_ROWS * it.tile + it.rows - 1, a.group_magic);
    it.c_lo = chunk_at(p, first_visible(p.pos[it.s] + fastdiv(TILE_ROWS * it.tile, a.group_magic), a.window));
    it.c_hi = chunk_at(p, it.last);
}
template <bool FIRST, int PAGES>
__device__ static inline void tile_sees(item &it, const plan_one<FIRST, PAGES> &p, const split_args &a)
{
    it.rows = a.group, it.last = p.pos, it.c_lo = p.c_lo, it.c_hi = p.pos / (PAGES * KV_PAGE);
}
/* Position of a tile's row r. */
__device__ static inline uint32_t pos_of(const split_args &a, const plan &p, const item &it, uint32_t r)
{
    return p.pos[it.s] + fastdiv(TILE_ROWS * it.tile + r, a.group_magic);
}
template <bool FIRST, int PAGES>
__device__ static inline uint32_t pos_of(const split_args &, const plan_one<FIRST, PAGES> &p, const item &, uint32_t)
{
    return p.pos;
}

/* The pages of an item's context, or of the part that its chunk has, without the step's own token (decode.cu), end
 * before this one. */
__device__ static inline uint32_t end_page(const plan &p, const item &it)
{
    return min((it.last + KV_PAGE - 1) / KV_PAGE, (it.chunk + 1) * p.chunk_pages);
}
__device__ static inline uint32_t end_page(const plan_whole &, const item &it)
{
    return (it.last + KV_PAGE - 1) / KV_PAGE;
}

/* Finds the first existing item of at, at + step, ...; false where there is none. Called by whole warps. */
__device__ static inline bool find(item &it, uint32_t &at, const plan &p, const split_args &a, uint32_t step)
{
    uint32_t lane = threadIdx.x % 32, n_kv = a.kv.n_kv, total = p.item[BATCH_SEQS_MAX];
    for (; at < total; at += step) {
        uint32_t s =
            __popc(__ballot_sync(~0u, p.item[lane + 1] <= at)) + __popc(__ballot_sync(~0u, p.item[lane + 33] <= at));
        uint32_t own = p.n_span[s], i = at - p.item[s], rest = i / n_kv, tile = rest / own,
                 first = ((p.chunk0[s] + p.trunk[s]) >> a.span) + rest - tile * own;
        first <<= a.span;
        it.s = s, it.head = i - rest * n_kv, it.tile = tile;
        tile_sees(it, p, a);
        it.chunk = max(first, it.c_lo), it.end = min(first + (1 << a.span) - 1, it.c_hi);
        it.page0 = it.chunk * p.chunk_pages;
        if (p.chunk_pages != a.fixed_pages) /* no fixed order of sums; tables have no pages before the window */
            it.page0 = max(it.page0, first_visible(pos_of(a, p, it, 0), a.window) / KV_PAGE);
        if (it.chunk <= it.end)
            return true;
    }
    return false;
}
__device__ static inline bool find(item &it, uint32_t at, const plan_whole &p, const split_args &a, uint32_t)
{
    it.s = fastdiv(at, a.kv_magic), it.head = at - it.s * a.kv.n_kv, it.tile = 0;
    it.rows = a.group, it.last = p.pos, it.chunk = it.end = it.c_lo = it.c_hi = 0;
    it.page0 = first_visible(p.pos, a.window) / KV_PAGE;
    return p.live;
}
/* The same for the items of a block. */
__device__ static inline bool find(item &it, uint32_t &at, const plan &p, const split_args &a)
{
    return find(it, at, p, a, gridDim.x);
}
template <bool FIRST, int PAGES>
__device__ static inline bool find(item &it, uint32_t at, const plan_one<FIRST, PAGES> &p, const split_args &a)
{
    uint32_t nth = fastdiv(at, a.kv_magic);
    it.s = it.tile = 0, it.chunk = it.end = p.c_lo + nth, it.head = at - nth * a.kv.n_kv;
    it.page0 = it.chunk * PAGES;
    tile_sees(it, p, a);
    return it.chunk <= it.c_hi;
}

/* The tile of a row of the step and its head `head`; false where these kernels do not take the row. */
__device__ static inline bool tile_of(item &it, uint32_t row, uint32_t head, const plan &p, const split_args &a)
{
    it.s = a.s->seq[row];
    if (row >= a.s->n_row || !p.n_row[it.s])
        return false;
    it.tile = ((row - p.row[it.s]) * a.group + head % a.group) / TILE_ROWS;
    tile_sees(it, p, a);
    return true;
}
template <bool FIRST, int PAGES>
__device__ static inline bool tile_of(item &it, uint32_t, uint32_t, const plan_one<FIRST, PAGES> &p,
                                      const split_args &a)
{
    it.s = it.tile = 0;
    tile_sees(it, p, a);
    return true;
}

/* Row of the step and query head of a tile's row r. */
__device__ static inline uint32_t head_of(const split_args &a, const plan &p, const item &it, uint32_t r, uint32_t *row)
{
    uint32_t pr = TILE_ROWS * it.tile + r, q = fastdiv(pr, a.group_magic);
    *row = p.row[it.s] + q;
    return it.head * a.group + pr - q * a.group;
}
__device__ static inline uint32_t head_of(const split_args &a, const plan_whole &p, const item &it, uint32_t r,
                                          uint32_t *row)
{
    *row = p.row;
    return it.head * a.group + r;
}
template <bool FIRST, int PAGES>
__device__ static inline uint32_t head_of(const split_args &a, const plan_one<FIRST, PAGES> &, const item &it,
                                          uint32_t r, uint32_t *row)
{
    *row = 0;
    return it.head * a.group + r;
}

/*
 * Stores four neighbouring dimensions of a row's result. Neighbouring lanes have neighbouring fours; where heads are
 * made of whole sub-blocks of 32, eight lanes add theirs: pairs of fours, bit-identical to xfrag_store_sums() of
 * prepare.cuh.
 */
template <int D>
__device__ static inline void store_quad(const split_args &a, uint32_t row, uint32_t head, uint32_t dim, float v[4],
                                         bool keep = true)
{
    float sum = 0;
    __half h[4];
    uint32_t k = head * D + dim;
    if (a.gates && keep)
        apply_gates<D>(a, row, head, dim, v);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        h[i] = half_sat(v[i]);
        sum += __half2float(h[i]);
    }
    if (a.out.layout >= LAYOUT_WG) {
        __half2 even = __halves2half2(h[0], h[2]), odd = __halves2half2(h[1], h[3]);
        __half *at = wg_place(a.out, row, k, a.n_head * D);
        if (keep)
            *(__half2 *)at = even, *(__half2 *)(at + a.out.ld * 8) = odd;
        return;
    }
    __half2 one = __halves2half2(h[0], a.out.layout ? h[1] : h[2]),
            two = __halves2half2(a.out.layout ? h[2] : h[1], h[3]);
    __half *to = act_row(a.out, row);
    if (keep)
        *(uint2 *)(to + (a.out.layout ? k : xfrag_at(k))) = make_uint2(*(uint32_t *)&one, *(uint32_t *)&two);
    if (D % 32 == 0 && !a.out.layout) {
        uint32_t eight = 0xffu << (threadIdx.x % 32 & ~7);
        sum += __shfl_xor_sync(eight, sum, 1);
        sum += __shfl_xor_sync(eight, sum, 2);
        sum += __shfl_xor_sync(eight, sum, 4);
        if (dim % 32 == 0 && keep) {
            __half hi = half_sat(sum);
            to[xfrag_sum_at(k)] = hi, to[xfrag_sum_at(k) + 8] = half_sat(sum - __half2float(hi));
        }
    }
}

/* Whether a tile's chunks are more than one item, so that reduce.cu adds their partial sums. */
__device__ static inline bool in_pieces(const split_args &a, const item &it)
{
    return it.c_lo >> a.span < it.c_hi >> a.span;
}

/* Combines four neighbouring dimensions of a row's head: the sums of N sets of its chunks, added in order; y(set, i) is
 * a set's i-th. */
template <int N, class Y>
__device__ static inline void join_sets(const split_args &a, uint32_t head, const float *top, const float *den, Y y,
                                        float v[4])
{
    float all = -INFINITY, d = 0;
#pragma unroll
    for (int w = 0; w < N; w++)
        all = fmaxf(all, top[w]);
#pragma unroll
    for (int e = 0; e < 4; e++)
        v[e] = 0;
#pragma unroll
    for (int w = 0; w < N; w++) {
        float u = exp2_fast(top[w] - all);
        d = __fmaf_rn(u, den[w], d);
#pragma unroll
        for (int e = 0; e < 4; e++)
            v[e] = __fmaf_rn(u, y(w, e), v[e]);
    }
    d = 1.f / with_sink(a, head, all, d);
#pragma unroll
    for (int e = 0; e < 4; e++)
        v[e] *= d;
}

/* Where a row's partial sums of a chunk are. */
template <int D>
__device__ static inline float *partial(const split_args &a, const plan &p, uint32_t s, uint32_t row, uint32_t head,
                                        uint32_t chunk)
{
    return a.part +
           ((uint64_t)(p.part[s] + (row - p.row[s]) * p.n_chunk[s] + chunk - p.chunk0[s]) * a.n_head + head) * (D + 4);
}
template <int D, bool FIRST, int PAGES>
__device__ static inline float *partial(const split_args &a, const plan_one<FIRST, PAGES> &, uint32_t, uint32_t,
                                        uint32_t head, uint32_t chunk)
{
    return a.part + ((uint64_t)chunk * a.n_head + head) * (D + 4);
}
template <int D>
__device__ static inline float *partial(const split_args &a, const plan_whole &, uint32_t, uint32_t, uint32_t, uint32_t)
{
    return a.part; /* not called: there is one chunk */
}

/* Calls f(plan_kind<P>()) for the kind of plan that these arguments need, as each_head() does for head sizes. */
template <class P> struct plan_kind {
    typedef P type;
};
template <int D, class F> static inline void by_plan(const attend_args &a, F f)
{
    if (!a.one)
        f(plan_kind<plan>());
    else if (a.first)
        f(plan_kind<plan_one<true, fixed_pages(D)>>());
    else
        f(plan_kind<plan_one<false, fixed_pages(D)>>());
}

#endif
