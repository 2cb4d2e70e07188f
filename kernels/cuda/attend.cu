/*
 * attend.cu - attention over paged fp16 KV for few rows a sequence: decode, short prompts, and the invariant mode.
 *
 * A work item is (sequence, KV head, tile of 8 rows, chunk of 256 tokens). The rows of a tile are the query heads of a
 * KV head's group over one or more tokens, so that grouped queries share what they read. Items are spread over a static
 * grid; how many there are is worked out on the device from the step's positions, so that one captured graph serves any
 * context length.
 *
 * Each warp of a block goes its own way through its pages of a chunk: K and V go from global memory straight into mma
 * fragments as the left operand (tokens are rows of the scores, dimensions rows of the result), rows of the tile are
 * the eight columns, and probabilities turn from the one into the other in registers. While a warp works on a page its
 * next one is under way, that of the next item included: nothing is passed through shared memory and no barrier is met
 * before the item's end, where the warps' partial results are added.
 *
 * Chunks and what a warp takes of them are fixed in position, and so is the order in which attend_merge adds their
 * partial sums: a row's bits depend on its own position and KV alone. Masked tokens weigh exactly zero. The merge is a
 * kernel of its own: with a ticket and the last block to arrive, each item's release and acquire held up what the
 * processor was reading, a third of all time at depth.
 */
#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/local.cuh"

enum {
    ROWS = 8, /* of a tile: the columns of an mma */
    CHUNK_PAGES = ATTEND_CHUNK / KV_PAGE,
    MERGE_WARPS = 4,
    MERGE = 16, /* chunks that a warp of a merge has under way */
};

/* What the sequences of the step come to, worked out by every block: [s] and its prefix sums. */
struct plan {
    uint32_t item[BATCH_SEQS_MAX + 1]; /* work items before sequence s */
    uint32_t part[BATCH_SEQS_MAX + 1]; /* (row, chunk) pairs before it: partial sums */
    uint32_t row[BATCH_SEQS_MAX], n_row[BATCH_SEQS_MAX], pos[BATCH_SEQS_MAX]; /* rows within the window of rows */
    uint32_t fresh[BATCH_SEQS_MAX]; /* the first position that this step writes */
    uint32_t chunk0[BATCH_SEQS_MAX], n_chunk[BATCH_SEQS_MAX], pages[BATCH_SEQS_MAX];
};

__device__ static inline uint32_t first_visible(uint32_t pos, uint32_t window)
{
    return window && pos + 1 > window ? pos + 1 - window : 0;
}

/* Sequence i of the plan; its counts of items and (row, chunk) pairs in v. */
__device__ static inline void plan_seq(plan *p, const attend_args &a, uint32_t i, uint32_t row0, uint32_t n_row,
                                       uint32_t pos0, uint32_t pages, uint32_t v[2])
{
    uint32_t lo = max(row0, a.row_lo), hi = min(row0 + n_row, a.row_hi), pos = pos0 + lo - row0;
    uint32_t n = n_row <= a.rows_max && hi > lo ? hi - lo : 0, n_tile = (n * a.group + ROWS - 1) / ROWS;
    uint32_t c0 = first_visible(pos, a.window) / ATTEND_CHUNK, c1 = (pos + n - 1) / ATTEND_CHUNK;
    p->row[i] = lo, p->n_row[i] = n, p->pos[i] = pos, p->fresh[i] = pos0, p->pages[i] = pages;
    p->chunk0[i] = c0, p->n_chunk[i] = n ? c1 - c0 + 1 : 0;
    v[0] = a.kv.n_kv * n_tile * p->n_chunk[i], v[1] = n * p->n_chunk[i];
}

/* By one warp. */
__device__ static void plan_make(plan *p, const attend_args &a)
{
    const step_dev *s = a.s;
    uint32_t lane = threadIdx.x, carry[2] = {0, 0}, n_seq = s->n_seq;
    for (uint32_t base = 0; base < BATCH_SEQS_MAX; base += 32) {
        uint32_t i = base + lane, v[2] = {0, 0};
        if (base >= n_seq && base) { /* nothing more: searches still look at these */
            p->item[i] = carry[0];
            continue;
        }
        /* asked for beside n_seq; what lies past it is not used */
        uint32_t row0 = s->row0[i], n = s->n_rows[i], pos0 = s->pos0[i], pages = s->pages0[i];
        if (i < n_seq)
            plan_seq(p, a, i, row0, n, pos0, pages, v);
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

/* The same for a step that can only have one row: one number to read. By one thread. */
__device__ static void plan_one(plan *p, const attend_args &a)
{
    uint32_t v[2];
    plan_seq(p, a, 0, 0, 1, a.s->pos0[0], 0, v);
    p->item[0] = p->part[0] = 0, p->item[BATCH_SEQS_MAX] = v[0];
}

struct item {
    uint32_t s, head, tile, rows; /* rows: live ones of the tile */
    uint32_t chunk, c_lo, c_hi;   /* chunks that the tile's rows see, of the context */
    uint32_t last;                /* position of the tile's last row */
};

/* The tile's live rows, where it ends, and the chunks that its rows see. */
__device__ static inline void tile_sees(item &it, const plan &p, const attend_args &a)
{
    it.rows = min((uint32_t)ROWS, p.n_row[it.s] * a.group - ROWS * it.tile);
    it.last = p.pos[it.s] + (ROWS * it.tile + it.rows - 1) / a.group;
    it.c_lo = first_visible(p.pos[it.s] + ROWS * it.tile / a.group, a.window) / ATTEND_CHUNK;
    it.c_hi = it.last / ATTEND_CHUNK;
}

/* The block's first item from `at` on; false where there is none. */
__device__ static inline bool find(item &it, uint32_t &at, const plan &p, const attend_args &a)
{
    uint32_t lane = threadIdx.x % 32, n_kv = a.kv.n_kv, total = p.item[BATCH_SEQS_MAX];
    for (; at < total; at += gridDim.x) {
        uint32_t s = 0;
        if (!a.one)
            s = __popc(__ballot_sync(~0u, p.item[lane + 1] <= at)) +
                __popc(__ballot_sync(~0u, p.item[lane + 33] <= at));
        uint32_t i = at - p.item[s], rest = i / n_kv, tile = rest / p.n_chunk[s];
        it.s = s, it.head = i - rest * n_kv, it.tile = tile, it.chunk = p.chunk0[s] + rest - tile * p.n_chunk[s];
        tile_sees(it, p, a);
        if (it.chunk >= it.c_lo && it.chunk <= it.c_hi)
            return true;
    }
    return false;
}

template <int D> struct shape {
    static constexpr int WARPS = D <= 128 ? 8 : 4;    /* registers: one block a processor */
    static constexpr int PAGES = CHUNK_PAGES / WARPS; /* of a chunk, for a warp */
    static constexpr int J = (D + 31) / 32;           /* 32 dimensions of QK a step: a lane's 16 bytes of a row */
    static constexpr int SPAN = D % 64 == 0 ? 64 : D % 32 == 0 ? 32 : 16;
    static constexpr int W = SPAN / 16;     /* words of V that a lane loads: dimensions 2W * g + i */
    static constexpr int GROUPS = D / SPAN; /* of dimensions */
    static constexpr int OLD = D + 4;       /* floats from row to row of the sums */
};

template <int D> struct scratch {
    float o[shape<D>::WARPS][ROWS][shape<D>::OLD], m[shape<D>::WARPS][ROWS], l[shape<D>::WARPS][ROWS];
};

/* In order, and from L2: what a load before the wait brought into L1 must not be found there after it. */
template <int W> __device__ static inline void load(uint32_t *to, const __half *from)
{
    if constexpr (W == 4)
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "l"(from));
    else if constexpr (W == 2)
        asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(from));
    else
        asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(to[0]) : "l"(from));
}
__device__ static inline uint32_t transpose8(uint32_t w)
{
    uint32_t r;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(w));
    return r;
}

/* Asks L2 for a page's K and V of one head. */
template <int D> __device__ static inline void prefetch(const attend_args &a, uint32_t page, uint32_t head, int lane)
{
    const char *k = (const char *)kv_k(a.kv, page * KV_PAGE, head);
#pragma unroll
    for (int i = lane; i < KV_PAGE * D * 2 / 128; i += 32) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(k + 128 * i));
        asm volatile("prefetch.global.L2 [%0];" ::"l"(k + 2 * (uint64_t)a.kv.v_off + 128 * i));
    }
}

/* Row of the step and query head of a tile's row r. */
__device__ static inline uint32_t head_of(const attend_args &a, const plan &p, const item &it, uint32_t r,
                                          uint32_t *row)
{
    uint32_t pr = ROWS * it.tile + r, q = pr / a.group;
    *row = p.row[it.s] + q;
    return it.head * a.group + pr - q * a.group;
}

/*
 * Four neighbouring dimensions of a row's result. Neighbouring lanes have neighbouring fours; where heads are made of
 * whole sub-blocks of 32, eight lanes add theirs: pairs of fours, as gemm.cuh's put_sums() adds them, to the bit.
 */
template <int D>
__device__ static inline void store_quad(const attend_args &a, uint32_t row, uint32_t head, uint32_t dim,
                                         const float v[4])
{
    union {
        __half h[4];
        uint2 u;
    } o;
    float sum = 0;
    uint32_t k = head * D + dim;
    for (int i = 0; i < 4; i++) {
        __half h = half_sat(v[i]);
        sum += __half2float(h);
        o.h[a.out.plain ? i : i == 1 ? 2 : i == 2 ? 1 : i] = h;
    }
    __half *to = a.out.p + (uint64_t)row * a.out.ld;
    *(uint2 *)(to + (a.out.plain ? k : prep_at(k))) = o.u;
    if (D % 32 == 0 && !a.out.plain) {
        uint32_t eight = 0xffu << (threadIdx.x % 32 & ~7);
        sum += __shfl_xor_sync(eight, sum, 1);
        sum += __shfl_xor_sync(eight, sum, 2);
        sum += __shfl_xor_sync(eight, sum, 4);
        if (dim % 32 == 0) {
            __half hi = half_sat(sum);
            to[prep_sum_at(k)] = hi, to[prep_sum_at(k) + 8] = half_sat(sum - __half2float(hi));
        }
    }
}

/* Where row's partial sums of a chunk lie. */
template <int D>
__device__ static inline float *partial(const attend_args &a, const plan &p, uint32_t s, uint32_t row, uint32_t head,
                                        uint32_t chunk)
{
    return a.part +
           ((uint64_t)(p.part[s] + (row - p.row[s]) * p.n_chunk[s] + chunk - p.chunk0[s]) * a.n_head + head) * (D + 4);
}

template <int D> __global__ void __launch_bounds__(shape<D>::WARPS * 32, 1) attend_split(attend_args a)
{
    typedef shape<D> S;
    __shared__ plan p;
    __shared__ __align__(16) scratch<D> x;
    pdl_go();
    int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    uint32_t at = blockIdx.x, page = 0;
    /* the block's chunk follows from its number, if there is such a chunk: no need to know the length first */
    bool guess = a.one && !a.window && a.group <= ROWS;
    if (guess)
        page = a.pages[at / a.kv.n_kv * CHUNK_PAGES + S::PAGES * warp + lane % S::PAGES];
    /* the step's metadata were there before any of its kernels */
    if (!a.one && !warp)
        plan_make(&p, a);
    else if (!tid)
        plan_one(&p, a);
    __syncthreads();
    item it;
    if (!find(it, at, p, a)) {
        pdl_wait();
        return;
    }
    auto first_page = [&](const item &i, int round) { return i.chunk * CHUNK_PAGES + S::PAGES * warp + round; };
    auto alive = [&](const item &i, int round) { return first_page(i, round) <= i.last / KV_PAGE; };
    /* The numbers of the warp's pages of an item, in its first lanes; dead ones are not looked at. */
    auto pages_of = [&](const item &i) {
        return a.pages[p.pages[i.s] + min(first_page(i, lane % S::PAGES), i.last / KV_PAGE)];
    };
    uint32_t k[S::J][2][4], v[S::GROUPS][4][S::W];
    auto load_k = [&](const item &i, uint32_t pages, int round) {
        const __half *from =
            a.kv.base + __shfl_sync(~0u, pages, round) * a.kv.page_step + (i.head * KV_PAGE + g) * D + 8 * t;
#pragma unroll
        for (int j = 0; j < S::J; j++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (D % 32 == 0 || 32 * j + 8 * t < D)
                    load<4>(k[j][e], from + 8 * e * D + 32 * j);
                else
                    k[j][e][0] = k[j][e][1] = k[j][e][2] = k[j][e][3] = 0;
    };
    auto load_v = [&](const item &i, uint32_t pages, int round) {
        const __half *from = a.kv.base + a.kv.v_off + __shfl_sync(~0u, pages, round) * a.kv.page_step +
                             (i.head * KV_PAGE + 2 * t) * D + 2 * S::W * g;
#pragma unroll
        for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
            for (int e = 0; e < 4; e++) /* tokens 2t, 2t + 1, 2t + 8, 2t + 9 */
                load<S::W>(v[b][e], from + ((e & 1) + 8 * (e / 2)) * D + b * S::SPAN);
    };
    uint32_t q[S::J][4];
    /* row g, as the right operand */
    auto load_q = [&](const item &i) {
        uint32_t row, head = head_of(a, p, i, g, &row);
        const __half *from = a.q + (uint64_t)row * a.ldq + head * D + 8 * t;
#pragma unroll
        for (int j = 0; j < S::J; j++)
            if (g < (int)i.rows && (D % 32 == 0 || 32 * j + 8 * t < D))
                load<4>(q[j], from + 32 * j);
            else
                q[j][0] = q[j][1] = q[j][2] = q[j][3] = 0;
    };
    /*
     * KV of earlier steps is there: a step's first kernel waits for all of the step before it, by an ordinary launch,
     * so that whatever kernel of this step is still at work writes positions from `fresh` on and nothing else of this
     * sequence; full pages that another sequence shares were published after the step that wrote them. What this step
     * writes is only asked into L2, which is where it will be written.
     */
    if (!guess)
        page = pages_of(it);
    bool mine = alive(it, 0), early = mine && (first_page(it, 0) + 1) * KV_PAGE <= p.fresh[it.s];
    if (early)
        load_k(it, page, 0), load_v(it, page, 0);
    for (int r = early; r < S::PAGES; r++)
        if (alive(it, r))
            prefetch<D>(a, __shfl_sync(~0u, page, r), it.head, lane);
    pdl_wait();
    load_q(it);
    if (mine && !early)
        load_k(it, page, 0), load_v(it, page, 0);

    item next = it;
    uint32_t next_page = 0;
    bool more = false;
    int round = 0;
    int pos[2], lo[2]; /* of rows 2t and 2t + 1: what they see */
    float o[S::GROUPS][S::W][4], m[2], l[2];
#pragma unroll 1
    for (;;) {
        bool ends = round == S::PAGES - 1;
        if (!round) {
            at += gridDim.x;
            more = find(next, at, p, a);
            if (more)
                next_page = pages_of(next);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                pos[e] = 2 * t + e < (int)it.rows ? (int)(p.pos[it.s] + (ROWS * it.tile + 2 * t + e) / a.group) : -1;
                lo[e] = (int)first_visible(pos[e], a.window);
                m[e] = -INFINITY, l[e] = 0;
            }
#pragma unroll
            for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
                for (int w = 0; w < S::W; w++)
                    o[b][w][0] = o[b][w][1] = o[b][w][2] = o[b][w][3] = 0;
        }
        float c[4] = {}, odd[4] = {}; /* two chains of sums */
        if (mine)
#pragma unroll
            for (int j = 0; j < S::J; j++) {
                mma16816(c, k[j][0][0], k[j][1][0], k[j][0][1], k[j][1][1], q[j][0], q[j][1]);
                mma16816(odd, k[j][0][2], k[j][1][2], k[j][0][3], k[j][1][3], q[j][2], q[j][3]);
            }
        /* what follows is asked for as soon as the registers are free */
        item to = it;
        uint32_t to_page = page, to_round = round + 1;
        if (ends)
            to = next, to_page = next_page, to_round = 0;
        bool then = (!ends || more) && alive(to, to_round);
        if (then)
            load_k(to, to_page, to_round);
        if (ends && more)
            load_q(next);
        if (mine) {
            int tok = (int)first_page(it, round) * KV_PAGE + g;
            float base[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float top = m[e];
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float *w = &c[2 * h + e], s = (*w + odd[2 * h + e]) * a.scale;
                    if (a.softcap != 0)
                        s = act_softcap(s, a.softcap);
                    *w = tok + 8 * h <= pos[e] && tok + 8 * h >= lo[e] ? s * 1.4426950408889634f : -INFINITY;
                    top = fmaxf(top, *w);
                }
#pragma unroll
                for (int i = 4; i < 32; i *= 2)
                    top = fmaxf(top, __shfl_xor_sync(~0u, top, i));
                base[e] = top == -INFINITY ? 0.f : top;
                float less = exp2_fast(m[e] - base[e]);
                m[e] = top, l[e] *= less;
#pragma unroll
                for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
                    for (int w = 0; w < S::W; w++)
                        o[b][w][e] *= less, o[b][w][2 + e] *= less;
            }
            uint32_t pr[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                /* what multiplies V is also what is summed: the rounded probability */
                __half2 w = __floats2half2_rn(exp2_fast(c[2 * h] - base[0]), exp2_fast(c[2 * h + 1] - base[1]));
                float2 f = __half22float2(w);
                l[0] += f.x, l[1] += f.y;
                pr[h] = transpose8(*(uint32_t *)&w);
            }
#pragma unroll
            for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
                for (int w = 0; w < S::W; w++)
                    mma16816(o[b][w], __byte_perm(v[b][0][w], v[b][1][w], 0x5410),
                             __byte_perm(v[b][0][w], v[b][1][w], 0x7632), __byte_perm(v[b][2][w], v[b][3][w], 0x5410),
                             __byte_perm(v[b][2][w], v[b][3][w], 0x7632), pr[0], pr[1]);
        }
        if (then)
            load_v(to, to_page, to_round);
        mine = then;
        if (!ends) {
            round++;
            continue;
        }
        /* the warps' results, added in order */
#pragma unroll
        for (int e = 0; e < 2; e++) {
#pragma unroll
            for (int i = 4; i < 32; i *= 2)
                l[e] += __shfl_xor_sync(~0u, l[e], i);
            if (!g)
                x.m[warp][2 * t + e] = m[e], x.l[warp][2 * t + e] = l[e];
            if (2 * t + e < (int)it.rows)
#pragma unroll
                for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
                    for (int w = 0; w < S::W; w++)
                        *(float2 *)&x.o[warp][2 * t + e][b * S::SPAN + 2 * (S::W * g + w)] =
                            make_float2(o[b][w][e], o[b][w][2 + e]);
        }
        __syncthreads();
        for (uint32_t i = tid; i < it.rows * (D / 4); i += S::WARPS * 32) {
            uint32_t r = i / (D / 4), dim = i % (D / 4) * 4, row, head = head_of(a, p, it, r, &row);
            float top = -INFINITY, den = 0, y[4] = {0, 0, 0, 0};
#pragma unroll
            for (int w = 0; w < S::WARPS; w++)
                top = fmaxf(top, x.m[w][r]);
            float base = top == -INFINITY ? 0.f : top;
#pragma unroll
            for (int w = 0; w < S::WARPS; w++) {
                float f = exp2_fast(x.m[w][r] - base);
                float4 s = *(const float4 *)&x.o[w][r][dim];
                den += f * x.l[w][r];
                y[0] += f * s.x, y[1] += f * s.y, y[2] += f * s.z, y[3] += f * s.w;
            }
            if (it.c_lo == it.c_hi) {
                den = 1.f / den;
                for (int e = 0; e < 4; e++)
                    y[e] *= den;
                store_quad<D>(a, row, head, dim, y);
            } else {
                float *to = partial<D>(a, p, it.s, row, head, it.chunk);
                *(float4 *)(to + dim) = make_float4(y[0], y[1], y[2], y[3]);
                if (!dim)
                    *(float2 *)(to + D) = make_float2(top, den);
            }
        }
        __syncthreads();
        if (!more)
            break;
        it = next, page = next_page, round = 0;
    }
}

/*
 * The result of a row's head from the partial sums of its chunks. Chunk c of the context is warp c % MERGE_WARPS's,
 * which has MERGE of them under way from a fixed place on; then the warps' sums are added in order. Chunks that a row
 * does not see add exact zeros, and where all of a tile's rows see one chunk alone the result is there already.
 */
template <int D> __global__ void __launch_bounds__(MERGE_WARPS * 32) attend_merge(attend_args a)
{
    constexpr int QUADS = (D / 4 + 31) / 32; /* of neighbouring dimensions, for a lane */
    __shared__ plan p;
    __shared__ __align__(16) float y[MERGE_WARPS][D];
    __shared__ float top[MERGE_WARPS], den[MERGE_WARPS];
    uint32_t head = blockIdx.x, row = a.row_lo + blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    pdl_go();
    uint32_t n_row = a.s->n_row;
    item it;
    it.s = a.s->seq[row];
    if (!a.one && !warp)
        plan_make(&p, a);
    else if (!threadIdx.x)
        plan_one(&p, a);
    __syncthreads();
    pdl_wait();
    if (row >= n_row || !p.n_row[it.s])
        return;
    it.tile = ((row - p.row[it.s]) * a.group + head % a.group) / ROWS;
    tile_sees(it, p, a);
    if (it.c_lo == it.c_hi)
        return;
    uint64_t step = (uint64_t)a.n_head * (D + 4);
    const float *from = partial<D>(a, p, it.s, row, head, p.chunk0[it.s]);
    float m = -INFINITY, d = 0, sum[QUADS][4] = {};
#pragma unroll 1
    for (uint32_t c0 = it.c_lo / (MERGE * MERGE_WARPS) * (MERGE * MERGE_WARPS); c0 <= it.c_hi;
         c0 += MERGE * MERGE_WARPS) {
        float2 ml[MERGE];
        float4 f[MERGE][QUADS];
#pragma unroll
        for (int e = 0; e < MERGE; e++) {
            uint32_t c = c0 + MERGE_WARPS * e + warp;
            const float *at = from + (c - p.chunk0[it.s]) * step;
            bool there = c >= it.c_lo && c <= it.c_hi;
            ml[e] = there ? __ldcg((const float2 *)(at + D)) : make_float2(-INFINITY, 0);
#pragma unroll
            for (int k = 0; k < QUADS; k++)
                f[e][k] = there && (D % 128 == 0 || lane < D / 4 - 32 * k)
                              ? __ldcg((const float4 *)(at + 4 * (lane + 32 * k)))
                              : make_float4(0, 0, 0, 0);
        }
        float last = m;
#pragma unroll
        for (int e = 0; e < MERGE; e++)
            m = fmaxf(m, ml[e].x);
        float base = m == -INFINITY ? 0.f : m, less = exp2_fast(last - base);
        d *= less;
#pragma unroll
        for (int k = 0; k < QUADS; k++)
            for (int i = 0; i < 4; i++)
                sum[k][i] *= less;
#pragma unroll
        for (int e = 0; e < MERGE; e++) {
            float u = exp2_fast(ml[e].x - base);
            d += u * ml[e].y;
#pragma unroll
            for (int k = 0; k < QUADS; k++) {
                sum[k][0] += u * f[e][k].x, sum[k][1] += u * f[e][k].y;
                sum[k][2] += u * f[e][k].z, sum[k][3] += u * f[e][k].w;
            }
        }
    }
#pragma unroll
    for (int k = 0; k < QUADS; k++)
        if (D % 128 == 0 || lane < D / 4 - 32 * k)
            *(float4 *)&y[warp][4 * (lane + 32 * k)] = make_float4(sum[k][0], sum[k][1], sum[k][2], sum[k][3]);
    if (!lane)
        top[warp] = m, den[warp] = d;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < D / 4; i += MERGE_WARPS * 32) {
        float all = -INFINITY, v[4] = {0, 0, 0, 0};
        d = 0;
        for (int w = 0; w < MERGE_WARPS; w++)
            all = fmaxf(all, top[w]);
        for (int w = 0; w < MERGE_WARPS; w++) {
            float u = exp2_fast(top[w] - all);
            d += u * den[w];
            for (int e = 0; e < 4; e++)
                v[e] += u * y[w][4 * i + e];
        }
        d = 1.f / d;
        for (int e = 0; e < 4; e++)
            v[e] *= d;
        store_quad<D>(a, row, head, 4 * i, v);
    }
}

/* Sub-block sums of prepared rows whose heads do not end on multiples of 32. */
__global__ void attend_sums(act_buf out, uint32_t n)
{
    pdl_go();
    pdl_wait();
    uint32_t k = (blockIdx.x * blockDim.x + threadIdx.x) * 32;
    __half *r = out.p + (uint64_t)blockIdx.y * out.ld;
    float four[8] = {0};
    if (k >= n)
        return;
    for (uint32_t i = 0; i < 32 && k + i < n; i++)
        four[i / 4] += __half2float(r[prep_at(k + i)]);
    float sum = ((four[0] + four[1]) + (four[2] + four[3])) + ((four[4] + four[5]) + (four[6] + four[7]));
    __half hi = half_sat(sum);
    r[prep_sum_at(k)] = hi, r[prep_sum_at(k) + 8] = half_sat(sum - __half2float(hi));
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

bool attend_takes(uint32_t d_head)
{
    return d_head == 64 || d_head == 80 || d_head == 96 || d_head == 128 || d_head == 256;
}

void attend_init(struct device *d)
{
    attend_long_init(d);
    cuda_smem(d, attend_split<64>, 0);
    cuda_smem(d, attend_merge<64>, 0);
    cuda_smem(d, attend_split<80>, 0);
    cuda_smem(d, attend_merge<80>, 0);
    cuda_smem(d, attend_split<96>, 0);
    cuda_smem(d, attend_merge<96>, 0);
    cuda_smem(d, attend_split<128>, 0);
    cuda_smem(d, attend_merge<128>, 0);
    cuda_smem(d, attend_split<256>, 0);
    cuda_smem(d, attend_merge<256>, 0);
}

void attend_reserve(struct device *d, const step_dev *m)
{
    uint64_t pairs = 0, heads = d->ws.dims.d_q / d->kv->desc.d_head;
    for (uint32_t s = 0; s < m->n_seq; s++) {
        uint64_t chunks = (m->pos0[s] + m->n_rows[s]) / ATTEND_CHUNK + 1;
        pairs += chunks * (m->n_rows[s] < GEMM_ROWS ? m->n_rows[s] : GEMM_ROWS);
    }
    uint64_t want = pairs * heads * (d->kv->desc.d_head + 4) * sizeof(float),
             have = d->ws.part_bytes ? d->ws.part_bytes : 64ull << 20;
    if (want <= d->ws.part_bytes)
        return;
    while (have < want)
        have *= 2;
    cuda_ok(d, cudaStreamSynchronize(d->stream));
    step_forget(d);
    cuda_free(d, d->ws.part);
    if (d->ws.part_bytes)
        d->hot_allocs++; /* a longer context than any before */
    d->ws.part_bytes = 0;
    struct hearth_err e = {};
    d->ws.part = (float *)cuda_alloc(d, have, "attention partials", &e);
    if (d->ws.part)
        d->ws.part_bytes = have;
    else
        cuda_refuse(d, e.code, "%s", e.msg);
}

static void prepared_sums(struct device *d, const attend_args &a, uint32_t d_head)
{
    if (d_head % 32 && !a.out.plain)
        cuda_launch(d, attend_sums, dim3((a.n_head * d_head + 4095) / 4096, d->cap), 128, 0, LAUNCH_PDL, a.out,
                    a.n_head * d_head);
}

template <int D> static void split(struct device *d, attend_args a)
{
    /* No more blocks than a decode step can have items: the rest of the GPU then starts the next product's weights. */
    uint32_t most = d->sms, items = d->decode ? d->cap * a.kv.n_kv * d->depth * ((a.group + ROWS - 1) / ROWS) : most;
    for (uint32_t lo = 0; lo < d->cap; lo += GEMM_ROWS) {
        a.row_lo = lo, a.row_hi = lo + GEMM_ROWS;
        cuda_launch(d, attend_split<D>, dim3(items < most ? items : most), shape<D>::WARPS * 32, 0, LAUNCH_PDL, a);
        if (d->depth > 1)
            cuda_launch(d, attend_merge<D>, dim3(a.n_head, d->cap - lo < GEMM_ROWS ? d->cap - lo : GEMM_ROWS),
                        MERGE_WARPS * 32, 0, LAUNCH_PDL, a);
    }
    prepared_sums(d, a, D);
}

/*
 * Whether the step's longer runs of rows are few enough to be split too. attend_long.cu has a block for 128 rows and
 * heads, which walks the whole context: its time follows the context, and that of chunks the items. Measured where they
 * meet (README.md): at one and a half items a processor, at two where no row sees more than a chunk.
 */
static bool split_all(const struct device *d, const struct op_attend *op)
{
    uint64_t group = op->n_head / op->n_kv, items = 0;
    for (uint32_t s = 0; s < d->n_seq; s++)
        items += (d->host->n_rows[s] * group + ROWS - 1) / ROWS * op->n_kv;
    return 2 * items <= (d->max_pos <= ATTEND_CHUNK ? 4ull : 3ull) * d->sms;
}

void attend_run(struct device *d, const struct op_attend *op)
{
    attend_args a = {};
    a.q = d->ws.q, a.ldq = d->ws.ldq, a.out = d->ws.att;
    a.kv = kv_view_of(d->kv, op->layer);
    a.s = d->step, a.pages = d->pages;
    a.n_head = op->n_head, a.group = op->n_head / op->n_kv, a.window = op->window;
    a.scale = op->scale, a.softcap = op->softcap;
    a.one = d->decode && d->cap == 1;
    a.part = d->ws.part;
    /* Longer runs of rows go to attend_long.cu, whose bits depend on how a prompt is cut. */
    a.rows_max = BATCH_ROWS_MAX;
    if (!d->decode && !d->invariant && !split_all(d, op) && attend_long(d, op, a, &a.rows_max)) {
        prepared_sums(d, a, op->d_head);
        return;
    }
    switch (op->d_head) {
    case 64:
        split<64>(d, a);
        break;
    case 80:
        split<80>(d, a);
        break;
    case 96:
        split<96>(d, a);
        break;
    case 128:
        split<128>(d, a);
        break;
    case 256:
        split<256>(d, a);
        break;
    default:
        cuda_refuse(d, HEARTH_EUNSUPPORTED, "head size %u: the GPU has attention for 64, 80, 96, 128 and 256",
                    op->d_head);
    }
}
