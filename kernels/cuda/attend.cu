/*
 * attend.cu - attention over paged fp16 KV for few rows a sequence: decode, short prompts, and the invariant mode.
 *
 * A work item is (sequence, KV head, tile of 16 rows, chunk of 256 tokens). The rows of a tile are the query heads of a
 * KV head's group over one or more tokens, so that grouped queries share what they read. Items are spread over a static
 * grid; how many there are is worked out on the device from the step's positions, so that one captured graph serves any
 * context length. K and V go from global memory straight into mma fragments: a dot product does not mind in which order
 * its dimensions come, nor a product in which order its columns do, so that no shared memory is passed through and all
 * of a warp's loads are under way at once.
 *
 * Chunks are fixed in position, their partial sums are merged in chunk order by the last to arrive: a row's bits depend
 * on its own position and KV alone. Masked tokens weigh exactly zero.
 */
#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/local.cuh"

enum { WARPS = 8, WARP_TOKENS = ATTEND_CHUNK / WARPS, CHUNK_PAGES = ATTEND_CHUNK / KV_PAGE };

/* What the sequences of the step come to, worked out by every block: [s] and its prefix sums. */
struct plan {
    uint32_t item[BATCH_SEQS_MAX + 1]; /* work items before sequence s */
    uint32_t tile[BATCH_SEQS_MAX + 1]; /* tiles before it: tickets */
    uint32_t part[BATCH_SEQS_MAX + 1]; /* (row, chunk) pairs before it: partial sums */
    uint32_t row[BATCH_SEQS_MAX], n_row[BATCH_SEQS_MAX], pos[BATCH_SEQS_MAX]; /* rows within the window of rows */
    uint32_t chunk0[BATCH_SEQS_MAX], n_chunk[BATCH_SEQS_MAX], n_tile[BATCH_SEQS_MAX], pages[BATCH_SEQS_MAX];
};

__device__ static inline uint32_t first_visible(uint32_t pos, uint32_t window)
{
    return window && pos + 1 > window ? pos + 1 - window : 0;
}

__device__ static void plan_make(plan *p, const attend_args &a)
{
    const step_dev *s = a.s;
    uint32_t lane = threadIdx.x, carry[3] = {0, 0, 0}, n_seq = s->n_seq;
    for (uint32_t base = 0; base < BATCH_SEQS_MAX; base += 32) {
        uint32_t i = base + lane, v[3] = {0, 0, 0};
        if (base >= n_seq && base) { /* nothing more: searches still look at these */
            p->item[i] = carry[0];
            continue;
        }
        if (i < n_seq) {
            uint32_t row0 = s->row0[i], n = s->n_rows[i], lo = max(row0, a.row_lo), hi = min(row0 + n, a.row_hi);
            n = n <= a.rows_max && hi > lo ? hi - lo : 0;
            p->row[i] = lo, p->n_row[i] = n, p->pos[i] = s->pos0[i] + lo - row0, p->pages[i] = s->pages0[i];
            uint32_t c0 = first_visible(p->pos[i], a.window) / ATTEND_CHUNK, c1 = (p->pos[i] + n - 1) / ATTEND_CHUNK;
            p->chunk0[i] = c0, p->n_chunk[i] = n ? c1 - c0 + 1 : 0, p->n_tile[i] = (n * a.group + 15) / 16;
            v[0] = a.kv.n_kv * p->n_tile[i] * p->n_chunk[i], v[1] = p->n_tile[i], v[2] = n * p->n_chunk[i];
        }
        for (int k = 0; k < 3; k++) {
            uint32_t sum = v[k];
            for (int d = 1; d < 32; d *= 2) {
                uint32_t o = __shfl_up_sync(~0u, sum, d);
                if ((int)lane >= d)
                    sum += o;
            }
            (k == 0 ? p->item : k == 1 ? p->tile : p->part)[i] = carry[k] + sum - v[k];
            carry[k] += __shfl_sync(~0u, sum, 31);
        }
    }
    if (!lane)
        p->item[BATCH_SEQS_MAX] = carry[0];
}

/*
 * What a chunk's 256 tokens look like to eight warps. Scores: each warp takes two pages of 16 tokens, all of K's
 * dimensions. Values: each takes SPAN dimensions and a part of the tokens, so that a lane loads 16 bytes where it can.
 * All loads of a phase are under way at once; pages past the end are the last page again, whose tokens weigh nothing
 * there, so that no load hangs on a condition.
 */
template <int D> struct shape {
    static constexpr int J = (D + 31) / 32; /* 32 dimensions of QK a step */
    static constexpr int SPAN = D % 64 == 0 ? 64 : D % 32 == 0 ? 32 : 16;
    static constexpr int NT = SPAN / 8;     /* n-tiles: lane g holds dimensions NT * g + i */
    static constexpr int GROUPS = D / SPAN; /* of dimensions */
    static constexpr int PARTS = GROUPS == 1 ? 8 : GROUPS == 2 ? 4 : GROUPS <= 4 ? 2 : 1; /* of tokens */
    static constexpr int STEPS = CHUNK_PAGES / PARTS;                                     /* pages of V a warp takes */
    static constexpr int BATCH = STEPS < 4 ? STEPS : 4;                                   /* pages of V under way */
    static constexpr int PLD = ATTEND_CHUNK + 8; /* halves from row to row of the probabilities */
    static constexpr int OLD = D + 8;            /* floats from row to row of the sums */
    typedef typename vec<NT>::type vload;
};

template <int D> struct scratch {
    uint4 q[shape<D>::J][2][32];                /* A fragments */
    float o[shape<D>::PARTS][8][shape<D>::OLD]; /* eight rows' sums */
    __half p[16 * shape<D>::PLD];
    float m[WARPS][16], l[WARPS][16], quad[16][D / 4];
    uint32_t page[CHUNK_PAGES];
    uint32_t row[16], head[16]; /* of the tile's rows: row of the step, query head */
    int pos[16];                /* -1: no row */
    bool last;
};

/* Four neighbouring dimensions of a row's result; their sum stays in x->quad. */
template <int D>
__device__ static inline void store_quad(const attend_args &a, scratch<D> *x, uint32_t r, uint32_t dim,
                                         const float v[4])
{
    union {
        __half h[4];
        uint2 u;
    } o;
    float sum = 0;
    uint32_t k = x->head[r] * D + dim;
    for (int i = 0; i < 4; i++) {
        __half h = half_sat(v[i]);
        sum += __half2float(h);
        o.h[a.out.plain ? i : i == 1 ? 2 : i == 2 ? 1 : i] = h;
    }
    *(uint2 *)(a.out.p + (uint64_t)x->row[r] * a.out.ld + (a.out.plain ? k : prep_at(k))) = o.u;
    x->quad[r][dim / 4] = sum;
}

/* The sub-block sums of the tile's rows, where heads are made of whole sub-blocks. */
template <int D> __device__ static inline void store_sums(const attend_args &a, scratch<D> *x, uint32_t rows)
{
    constexpr int B = D / 32;
    for (uint32_t i = threadIdx.x; i < rows * B; i += WARPS * 32) {
        uint32_t r = i / B, b = i % B, k = x->head[r] * D + 32 * b;
        const float *q = &x->quad[r][8 * b]; /* pairs of fours, as gemm.cuh's put_sums() adds them: to the bit */
        float sum = ((q[0] + q[1]) + (q[2] + q[3])) + ((q[4] + q[5]) + (q[6] + q[7]));
        __half hi = half_sat(sum), *s = a.out.p + (uint64_t)x->row[r] * a.out.ld + prep_sum_at(k);
        s[0] = hi, s[8] = half_sat(sum - __half2float(hi));
    }
}

/* Where row r's partial sums of chunk ch (counted from the sequence's first) lie. */
template <int D>
__device__ static inline float *partial(const attend_args &a, const scratch<D> *x, const plan &p, uint32_t s,
                                        uint32_t r, uint32_t ch)
{
    return a.part +
           ((uint64_t)(p.part[s] + (x->row[r] - p.row[s]) * p.n_chunk[s] + ch) * a.n_head + x->head[r]) * (D + 4);
}

/* All chunks of a tile's rows. Four threads share four dimensions, chunk c of the context is thread c % 4's:
 * the order is fixed by positions, and chunks that a row does not see add exact zeros. */
template <int D>
__device__ static inline void merge(const attend_args &a, scratch<D> *x, const plan &p, uint32_t s, uint32_t rows,
                                    uint32_t c_lo, uint32_t n_chunk)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint64_t step = (uint64_t)a.n_head * (D + 4);
    uint32_t first = c_lo - p.chunk0[s];
    for (uint32_t r = warp; r < rows; r += WARPS) {
        const float *from = partial<D>(a, x, p, s, r, first) + D;
        float top = -INFINITY, den = 0;
        for (uint32_t k = (lane - c_lo) & 31; k < n_chunk; k += 32)
            top = fmaxf(top, __ldcg(from + k * step));
        for (int i = 16; i; i /= 2)
            top = fmaxf(top, __shfl_xor_sync(~0u, top, i));
        for (uint32_t k = (lane - c_lo) & 31; k < n_chunk; k += 32) {
            float2 ml = __ldcg((const float2 *)(from + k * step));
            den += exp2_fast(ml.x - top) * ml.y; /* a row sees something in each of its chunks or weighs exp2(-inf) */
        }
        for (int i = 16; i; i /= 2)
            den += __shfl_xor_sync(~0u, den, i);
        if (!lane)
            x->m[0][r] = top, x->l[0][r] = 1.f / den;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < rows * D;
         i += WARPS * 32) { /* rows * D is a multiple of 16: fours stay together */
        uint32_t row = i / D, dim = i % D & ~3u, sub = i & 3;
        const float *from = partial<D>(a, x, p, s, row, first);
        float top = x->m[0][row], v[4] = {0, 0, 0, 0};
#pragma unroll 4
        for (uint32_t k = (sub - c_lo) & 3; k < n_chunk; k += 4) {
            float f = exp2_fast(__ldcg(from + k * step + D) - top);
            float4 y = __ldcg((const float4 *)(from + k * step + dim));
            v[0] += f * y.x, v[1] += f * y.y, v[2] += f * y.z, v[3] += f * y.w;
        }
        uint32_t four = 0xfu << (threadIdx.x % 32 & ~3);
        for (int e = 0; e < 4; e++) {
            v[e] += __shfl_xor_sync(four, v[e], 1);
            v[e] += __shfl_xor_sync(four, v[e], 2);
            v[e] *= x->l[0][row];
        }
        if (!sub)
            store_quad<D>(a, x, row, dim, v);
    }
}

/* Asks L2 for what this warp will read of a chunk's K and V: whole lines, two lanes a row of a page. */
template <int D> __device__ static inline void prefetch(const attend_args &a, uint32_t page, uint32_t head, int lane)
{
    const char *k = (const char *)kv_k(a.kv, page * KV_PAGE, head);
#pragma unroll
    for (int i = lane & 15; i < KV_PAGE * D * 2 / 128; i += 16) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(k + 128 * i));
        asm volatile("prefetch.global.L2 [%0];" ::"l"(k + 2 * (uint64_t)a.kv.v_off + 128 * i));
    }
}

template <int D> __global__ void __launch_bounds__(WARPS * 32, D <= 128 ? 2 : 1) attend_split(attend_args a)
{
    typedef shape<D> S;
    __shared__ plan p;
    extern __shared__ __align__(16) uint8_t raw[];
    scratch<D> *x = (scratch<D> *)raw;
    pdl_go();
    if (threadIdx.x < 32)
        plan_make(&p, a); /* the step's metadata were there before any of its kernels */
    __syncthreads();
    int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    uint32_t total = p.item[BATCH_SEQS_MAX];
    bool waited = false;
    for (uint32_t item = blockIdx.x; item < total; item += gridDim.x) {
        uint32_t s = __popc(__ballot_sync(~0u, p.item[lane + 1] <= item)) +
                     __popc(__ballot_sync(~0u, p.item[lane + 33] <= item));
        uint32_t at = item - p.item[s], n_kv = a.kv.n_kv, rest = at / n_kv, head = at - rest * n_kv,
                 tile = rest / p.n_chunk[s], ch = rest - tile * p.n_chunk[s];
        uint32_t rows = min(16u, p.n_row[s] * a.group - 16 * tile); /* live rows of the tile */
        uint32_t pos_lo = p.pos[s] + 16 * tile / a.group, pos_hi = p.pos[s] + (16 * tile + rows - 1) / a.group;
        uint32_t c_lo = first_visible(pos_lo, a.window) / ATTEND_CHUNK, c_hi = pos_hi / ATTEND_CHUNK,
                 chunk = p.chunk0[s] + ch;
        if (chunk < c_lo || chunk > c_hi)
            continue;
        uint32_t tok0 = chunk * ATTEND_CHUNK, n_chunk = c_hi - c_lo + 1;
        if (tid < CHUNK_PAGES)
            x->page[tid] = a.pages[p.pages[s] + min(tok0 / KV_PAGE + tid, pos_hi / KV_PAGE)];
        if (tid >= 32 && tid < 48) {
            uint32_t r = tid - 32, pr = 16 * tile + r, q = pr / a.group;
            x->row[r] = p.row[s] + q, x->head[r] = head * a.group + pr - q * a.group,
            x->pos[r] = r < rows ? (int)(p.pos[s] + q) : -1;
        }
        if (!waited) {
            /* only this step's own rows of K and V are not there yet */
            prefetch<D>(a, a.pages[p.pages[s] + min(tok0 / KV_PAGE + 2 * warp + lane / 16, pos_hi / KV_PAGE)], head,
                        lane);
            pdl_wait();
        }
        waited = true;
        __syncthreads();
        uint4 k[S::J][4];
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const __half *from = kv_k(a.kv, x->page[2 * warp + n / 2] * KV_PAGE + (n & 1) * 8 + g, head) + 8 * t;
#pragma unroll
            for (int j = 0; j < S::J; j++)
                if (D % 32 == 0 || 32 * j + 8 * t < D)
                    k[j][n] = *(const uint4 *)(from + 32 * j);
                else
                    k[j][n] = make_uint4(0, 0, 0, 0);
        }
        /* queries, as fragments: row r's eight dimensions 8c are lane (r % 8, c % 4)'s */
        for (int i = tid; i < 16 * 4 * S::J; i += WARPS * 32) {
            uint32_t r = i / (4 * S::J), c = i % (4 * S::J);
            uint4 w = make_uint4(0, 0, 0, 0);
            if (r < rows && 8 * c < D)
                w = *(const uint4 *)(a.q + (uint64_t)x->row[r] * a.ldq + x->head[r] * D + 8 * c);
            uint32_t *f = (uint32_t *)&x->q[c / 4][0][(r & 7) * 4 + c % 4] + r / 8;
            f[0] = w.x, f[2] = w.y, f[128] = w.z, f[130] = w.w;
        }
        __syncthreads();
        float c[4][4] = {};
#pragma unroll
        for (int j = 0; j < S::J; j++) {
            uint4 u = x->q[j][0][lane], w = x->q[j][1][lane];
#pragma unroll
            for (int n = 0; n < 4; n++) {
                mma16816(c[n], u.x, u.y, u.z, u.w, k[j][n].x, k[j][n].y);
                mma16816(c[n], w.x, w.y, w.z, w.w, k[j][n].z, k[j][n].w);
            }
        }
        /* the first values are on their way while the softmax is worked out */
        int group = warp % S::GROUPS, part = warp / S::GROUPS;
        bool works = part < S::PARTS;
        const uint32_t *vpage = x->page + (works ? part * S::STEPS : 0);
        const __half *vb =
            a.kv.base + a.kv.v_off + ((uint64_t)head * KV_PAGE + 2 * t) * D + group * S::SPAN + S::NT * g;
        union {
            typename S::vload v;
            uint32_t w[S::NT / 2];
        } v[S::BATCH][4];
        auto fetch = [&](int from) {
#pragma unroll
            for (int b = 0; b < S::BATCH; b++) {
                const __half *vp = vb + vpage[from + b] * a.kv.page_step;
#pragma unroll
                for (int i = 0; i < 4; i++) /* tokens 2t, 2t + 1, 2t + 8, 2t + 9 */
                    v[b][i].v = *(const typename S::vload *)(vp + ((i & 1) + 8 * (i / 2)) * D);
            }
        };
        fetch(0);
        float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int pos = x->pos[g + 8 * r], lo = (int)first_visible(pos, a.window);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int tok = (int)tok0 + warp * WARP_TOKENS + 8 * (i / 2) + 2 * t + (i & 1);
                float *e = &c[i / 2][2 * r + (i & 1)], w = *e * a.scale;
                if (a.softcap != 0)
                    w = act_softcap(w, a.softcap);
                *e = tok <= pos && tok >= lo ? w * 1.4426950408889634f : -INFINITY;
                m[r] = fmaxf(m[r], *e);
            }
            m[r] = fmaxf(m[r], __shfl_xor_sync(~0u, m[r], 1));
            m[r] = fmaxf(m[r], __shfl_xor_sync(~0u, m[r], 2));
            if (!t)
                x->m[warp][g + 8 * r] = m[r];
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; r++) {
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                m[r] = fmaxf(m[r], x->m[w][g + 8 * r]);
            float base = m[r] == -INFINITY ? 0.f : m[r];
#pragma unroll
            for (int n = 0; n < 4; n++) {
                /* what multiplies V is also what is summed: the rounded probability */
                __half2 h = __floats2half2_rn(exp2_fast(c[n][2 * r] - base), exp2_fast(c[n][2 * r + 1] - base));
                float2 f = __half22float2(h);
                l[r] += f.x + f.y;
                *(__half2 *)(x->p + (g + 8 * r) * S::PLD + warp * WARP_TOKENS + 8 * n + 2 * t) = h;
            }
            l[r] += __shfl_xor_sync(~0u, l[r], 1);
            l[r] += __shfl_xor_sync(~0u, l[r], 2);
            if (!t)
                x->l[warp][g + 8 * r] = l[r];
        }
        __syncthreads();
        float o[S::NT][4] = {};
        const __half *pa = x->p + (lane & 15) * S::PLD + (lane >> 4) * 8 + (works ? part : 0) * S::STEPS * KV_PAGE;
#pragma unroll
        for (int from = 0; from < S::STEPS; from += S::BATCH) {
            if (from)
                fetch(from);
#pragma unroll
            for (int b = 0; b < S::BATCH; b++) {
                uint32_t f[4];
                ldm4(f, shared_at(pa + (from + b) * KV_PAGE));
#pragma unroll
                for (int i = 0; i < S::NT; i++) {
                    uint32_t pick = i & 1 ? 0x7632 : 0x5410;
                    mma16816(o[i], f[0], f[1], f[2], f[3], __byte_perm(v[b][0].w[i / 2], v[b][1].w[i / 2], pick),
                             __byte_perm(v[b][2].w[i / 2], v[b][3].w[i / 2], pick));
                }
            }
        }
        /* the parts of the tokens, added in order: rows 0 to 7 of the tile, then, where there are more, 8 to 15 */
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if (r && rows <= 8)
                break;
            if (r)
                __syncthreads();
            if (works && g + 8 * r < (int)rows) {
                float *to = &x->o[part][g][group * S::SPAN + S::NT * 2 * t]; /* column 2t + e of n-tile i */
#pragma unroll
                for (int e = 0; e < 2; e++)
#pragma unroll
                    for (int i = 0; i < S::NT; i += 2)
                        *(float2 *)(to + S::NT * e + i) = make_float2(o[i][2 * r + e], o[i + 1][2 * r + e]);
            }
            __syncthreads();
            for (uint32_t i = tid; i < min(rows - 8 * r, 8u) * (D / 4); i += WARPS * 32) {
                uint32_t sub = i / (D / 4), row = sub + 8 * r, dim = i % (D / 4) * 4;
                float den = 0, top = -INFINITY, y[4] = {};
#pragma unroll
                for (int w = 0; w < WARPS; w++)
                    den += x->l[w][row], top = fmaxf(top, x->m[w][row]);
#pragma unroll
                for (int q = 0; q < S::PARTS; q++) {
                    float4 f = *(const float4 *)&x->o[q][sub][dim];
                    y[0] += f.x, y[1] += f.y, y[2] += f.z, y[3] += f.w;
                }
                if (n_chunk == 1) {
                    den = 1.f / den;
                    for (int e = 0; e < 4; e++)
                        y[e] *= den;
                    store_quad<D>(a, x, row, dim, y);
                } else {
                    float *to = partial<D>(a, x, p, s, row, ch);
                    *(float4 *)(to + dim) = make_float4(y[0], y[1], y[2], y[3]);
                    if (!dim)
                        *(float2 *)(to + D) = make_float2(top, den);
                }
            }
        }
        __syncthreads();
        if (n_chunk > 1) {
            /* the last chunk to arrive merges all, in chunk order */
            if (!tid) {
                uint32_t *ticket = a.ticket + (p.tile[s] + tile) * n_kv + head;
                __threadfence(); /* the block's stores, which the barrier has ordered before this */
                x->last = atomicAdd(ticket, 1) == n_chunk - 1;
                __threadfence();
                if (x->last)
                    *ticket = 0;
            }
            __syncthreads();
            if (!x->last)
                continue;
            merge<D>(a, x, p, s, rows, c_lo, n_chunk);
            __syncthreads();
        }
        if (D % 32 == 0 && !a.out.plain)
            store_sums<D>(a, x, rows);
        __syncthreads();
    }
    if (!waited)
        pdl_wait();
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
    cuda_smem(d, attend_split<64>, sizeof(scratch<64>));
    cuda_smem(d, attend_split<80>, sizeof(scratch<80>));
    cuda_smem(d, attend_split<96>, sizeof(scratch<96>));
    cuda_smem(d, attend_split<128>, sizeof(scratch<128>));
    cuda_smem(d, attend_split<256>, sizeof(scratch<256>));
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
    uint32_t most = d->sms * (D <= 128 ? 2 : 1),
             items = d->decode && a.group <= 16 ? d->cap * a.kv.n_kv * d->depth : most;
    for (uint32_t lo = 0; lo < d->cap; lo += GEMM_ROWS) {
        a.row_lo = lo, a.row_hi = lo + GEMM_ROWS;
        cuda_launch(d, attend_split<D>, dim3(items < most ? items : most), WARPS * 32, sizeof(scratch<D>), LAUNCH_PDL,
                    a);
    }
    prepared_sums(d, a, D);
}

void attend_run(struct device *d, const struct op_attend *op)
{
    attend_args a = {};
    a.q = d->ws.q, a.ldq = d->ws.ldq, a.out = d->ws.att;
    a.kv = kv_view_of(d->kv, op->layer);
    a.s = d->step, a.pages = d->pages;
    a.n_head = op->n_head, a.group = op->n_head / op->n_kv, a.window = op->window;
    a.scale = op->scale, a.softcap = op->softcap;
    a.part = d->ws.part, a.ticket = d->ws.ticket;
    /* Longer runs of rows go to attend_long.cu, whose bits depend on how a prompt is cut. */
    a.rows_max = BATCH_ROWS_MAX;
    if (!d->decode && !d->invariant && attend_long(d, op, a, &a.rows_max)) {
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
