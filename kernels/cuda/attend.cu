/*
 * attend.cu - attention over paged fp16 KV for few rows a sequence: decode, short prompts, and the invariant mode.
 *
 * A work item is (sequence, KV head, tile of 16 rows, chunk of 256 tokens). The rows of a tile are the query heads of a KV
 * head's group over one or more tokens, so that grouped queries share what they read. Items are spread over a static
 * grid; how many there are is worked out on the device from the step's positions, so that one captured graph serves any
 * context length. Eight warps take 32 tokens of the chunk each; K and V go from global memory straight into mma
 * fragments: a dot product does not mind in which order its dimensions come, nor a product's columns, so that every
 * lane loads 16 contiguous bytes and no shared memory is passed through.
 *
 * Chunks are fixed in position, their partial sums are merged in chunk order by the last to arrive: a row's bits depend
 * on its own position and KV alone. Masked tokens weigh exactly zero.
 */
#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/local.cuh"

enum { WARPS = 8, WARP_TOKENS = ATTEND_CHUNK / WARPS };

/* What the sequences of the step come to, worked out by every block: [s] and its prefix sums. */
struct plan {
    uint32_t item[BATCH_SEQS_MAX + 1]; /* work items before sequence s */
    uint32_t tile[BATCH_SEQS_MAX + 1]; /* tiles before it: tickets */
    uint32_t part[BATCH_SEQS_MAX + 1]; /* (row, chunk) pairs before it: partial sums */
    uint32_t row[BATCH_SEQS_MAX], n_row[BATCH_SEQS_MAX], pos[BATCH_SEQS_MAX]; /* rows within the window of rows */
    uint32_t chunk0[BATCH_SEQS_MAX], n_chunk[BATCH_SEQS_MAX], n_tile[BATCH_SEQS_MAX], pages[BATCH_SEQS_MAX];
};

__device__ static inline uint32_t first_visible(uint32_t pos, uint32_t window) { return window && pos + 1 > window ? pos + 1 - window : 0; }

__device__ static void plan_make(plan *p, const attend_args &a)
{
    const step_dev *s = a.s;
    uint32_t lane = threadIdx.x, carry[3] = {0, 0, 0};
    for (uint32_t base = 0; base < BATCH_SEQS_MAX; base += 32) {
        uint32_t i = base + lane, v[3] = {0, 0, 0};
        if (i < s->n_seq) {
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

template <int D> struct shape {
    static constexpr int J = (D + 31) / 32;             /* 32 dimensions of QK a step */
    static constexpr int VW = D % 64 ? 4 : 8;           /* halves of V a lane loads at once */
    static constexpr int NB = (D + 8 * VW - 1) / (8 * VW);
    typedef typename vec<VW>::type vload;
};

/* Scores of 16 rows x 32 tokens: c[n] holds tokens 8n + 2t, +1 of rows g and g + 8. */
template <int D> __device__ static inline void scores(float c[4][4], const attend_args &a, const __half *qg, const __half *qh, uint32_t head,
                                                      const uint32_t page[2], int pages_live, int g, int t)
{
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < 4; i++)
            c[n][i] = 0;
    const uint4 zero = make_uint4(0, 0, 0, 0);
    const __half *k[2];
    for (int i = 0; i < 2; i++)
        k[i] = kv_k(a.kv, page[i] * KV_PAGE + g, head) + 8 * t;
#pragma unroll
    for (int j = 0; j < shape<D>::J; j++) {
        bool in = D % 32 == 0 || 32 * j + 8 * t < D;
        uint4 x = in && qg ? *(const uint4 *)(qg + 32 * j + 8 * t) : zero, y = in && qh ? *(const uint4 *)(qh + 32 * j + 8 * t) : zero;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint4 b = in && n / 2 < pages_live ? *(const uint4 *)(k[n / 2] + (n & 1) * 8 * D + 32 * j) : zero;
            mma16816(c[n], x.x, y.x, x.y, y.y, b.x, b.y);
            mma16816(c[n], x.z, y.z, x.w, y.w, b.z, b.w);
        }
    }
}

template <int D> __global__ void __launch_bounds__(WARPS * 32, D <= 128 ? 2 : 1) attend_split(attend_args a)
{
    typedef shape<D> S;
    extern __shared__ float sm[]; /* [WARPS][rows][D] sums, [WARPS][16] maxima, [WARPS][16] denominators */
    __shared__ plan p;
    __shared__ bool last;
    pdl_go();
    if (threadIdx.x < 32)
        plan_make(&p, a); /* the step's metadata were there before any of its kernels */
    __syncthreads();
    pdl_wait();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float *sm_m = sm + WARPS * a.tile_rows * D, *sm_l = sm_m + WARPS * 16;
    uint32_t total = p.item[BATCH_SEQS_MAX];
    for (uint32_t item = blockIdx.x; item < total; item += gridDim.x) {
        uint32_t s = __popc(__ballot_sync(~0u, p.item[lane + 1] <= item)) + __popc(__ballot_sync(~0u, p.item[lane + 33] <= item));
        uint32_t at = item - p.item[s], head = at % a.kv.n_kv, ch = at / a.kv.n_kv % p.n_chunk[s], tile = at / a.kv.n_kv / p.n_chunk[s];
        uint32_t rows = min(16u, p.n_row[s] * a.group - 16 * tile); /* live rows of the tile */
        uint32_t pos_lo = p.pos[s] + 16 * tile / a.group, pos_hi = p.pos[s] + (16 * tile + rows - 1) / a.group;
        uint32_t c_lo = first_visible(pos_lo, a.window) / ATTEND_CHUNK, c_hi = pos_hi / ATTEND_CHUNK, chunk = p.chunk0[s] + ch;
        if (chunk < c_lo || chunk > c_hi)
            continue;
        uint32_t tok0 = chunk * ATTEND_CHUNK + warp * WARP_TOKENS;
        /* rows g and g + 8 of the tile */
        uint32_t rg = 16 * tile + g, rh = rg + 8;
        bool live_g = (uint32_t)g < rows, live_h = (uint32_t)g + 8 < rows;
        uint32_t row_g = p.row[s] + rg / a.group, row_h = p.row[s] + rh / a.group;
        const __half *qg = live_g ? a.q + (uint64_t)row_g * a.ldq + (head * a.group + rg % a.group) * D : NULL;
        const __half *qh = live_h ? a.q + (uint64_t)row_h * a.ldq + (head * a.group + rh % a.group) * D : NULL;
        int pos_g = live_g ? (int)(p.pos[s] + rg / a.group) : -1, pos_h = live_h ? (int)(p.pos[s] + rh / a.group) : -1;

        float c[4][4], m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
        float o[S::NB][S::VW][4];
#pragma unroll
        for (int b = 0; b < S::NB; b++)
#pragma unroll
            for (int i = 0; i < S::VW; i++)
                o[b][i][0] = o[b][i][1] = o[b][i][2] = o[b][i][3] = 0;
        if (tok0 <= pos_hi) {
            int pages_live = tok0 + KV_PAGE <= pos_hi ? 2 : 1;
            uint32_t page[2];
            page[0] = a.pages[p.pages[s] + tok0 / KV_PAGE];
            page[1] = pages_live == 2 ? a.pages[p.pages[s] + tok0 / KV_PAGE + 1] : page[0];
            scores<D>(c, a, qg, qh, head, page, pages_live, g, t);
            int lo_g = (int)first_visible(pos_g, a.window), lo_h = (int)first_visible(pos_h, a.window);
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int tok = (int)tok0 + 8 * n + 2 * t + (i & 1);
                    float v = c[n][i] * a.scale;
                    if (a.softcap != 0)
                        v = act_softcap(v, a.softcap);
                    v *= 1.4426950408889634f;
                    bool see = i < 2 ? tok <= pos_g && tok >= lo_g : tok <= pos_h && tok >= lo_h;
                    c[n][i] = see ? v : -INFINITY;
                    m[i / 2] = fmaxf(m[i / 2], c[n][i]);
                }
            uint32_t pr[4][2]; /* probabilities, fp16 pairs: what multiplies V is also what is summed */
#pragma unroll
            for (int r = 0; r < 2; r++) {
                m[r] = fmaxf(m[r], __shfl_xor_sync(~0u, m[r], 1));
                m[r] = fmaxf(m[r], __shfl_xor_sync(~0u, m[r], 2));
                float base = m[r] == -INFINITY ? 0.f : m[r];
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    __half2 h = __floats2half2_rn(exp2f(c[n][2 * r] - base), exp2f(c[n][2 * r + 1] - base));
                    float2 f = __half22float2(h);
                    l[r] += f.x + f.y;
                    pr[n][r] = *(uint32_t *)&h;
                }
                l[r] += __shfl_xor_sync(~0u, l[r], 1);
                l[r] += __shfl_xor_sync(~0u, l[r], 2);
            }
#pragma unroll
            for (int k = 0; k < 2; k++) {
                if (k >= pages_live)
                    break;
                const __half *v = kv_v(a.kv, page[k] * KV_PAGE + 2 * t, head) + S::VW * g;
#pragma unroll
                for (int b = 0; b < S::NB; b++) {
                    union {
                        typename S::vload v;
                        uint32_t w[S::VW / 2];
                    } r[4];
                    bool in = D % (8 * S::VW) == 0 || 8 * S::VW * b + S::VW * g < D;
#pragma unroll
                    for (int i = 0; i < 4; i++) /* tokens 2t, 2t + 1, 2t + 8, 2t + 9 */
                        r[i].v = in ? *(const typename S::vload *)(v + ((i & 1) + 8 * (i / 2)) * D + 8 * S::VW * b) : typename S::vload();
#pragma unroll
                    for (int i = 0; i < S::VW; i++) {
                        uint32_t pick = i & 1 ? 0x7632 : 0x5410;
                        mma16816(o[b][i], pr[2 * k][0], pr[2 * k][1], pr[2 * k + 1][0], pr[2 * k + 1][1],
                                 __byte_perm(r[0].w[i / 2], r[1].w[i / 2], pick), __byte_perm(r[2].w[i / 2], r[3].w[i / 2], pick));
                    }
                }
            }
        }
        /* the eight warps' sums, in warp order */
        if (!t) {
            sm_m[warp * 16 + g] = m[0], sm_m[warp * 16 + g + 8] = m[1];
            sm_l[warp * 16 + g] = l[0], sm_l[warp * 16 + g + 8] = l[1];
        }
        __syncthreads();
        for (int r = 0; r < 2; r++) {
            uint32_t row = g + 8 * r;
            if (row >= rows)
                continue;
            float top = -INFINITY;
            for (int w = 0; w < WARPS; w++)
                top = fmaxf(top, sm_m[w * 16 + row]);
            float f = m[r] == -INFINITY ? 0.f : exp2f(m[r] - top);
            float *to = sm + (warp * a.tile_rows + row) * D;
#pragma unroll
            for (int b = 0; b < S::NB; b++)
#pragma unroll
                for (int i = 0; i < S::VW; i++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        int dim = 8 * S::VW * b + S::VW * (2 * t + e) + i;
                        if (D % (8 * S::VW) == 0 || dim < D)
                            to[dim] = o[b][i][2 * r + e] * f;
                    }
        }
        __syncthreads();
        uint32_t n_chunk = c_hi - c_lo + 1;
        for (uint32_t i = threadIdx.x; i < rows * D; i += WARPS * 32) {
            uint32_t row = i / D, dim = i % D, r = 16 * tile + row, qh_ = head * a.group + r % a.group;
            float top = -INFINITY, den = 0, v = 0;
            for (int w = 0; w < WARPS; w++)
                top = fmaxf(top, sm_m[w * 16 + row]);
            for (int w = 0; w < WARPS; w++) {
                float mw = sm_m[w * 16 + row];
                den += mw == -INFINITY ? 0.f : exp2f(mw - top) * sm_l[w * 16 + row];
                v += sm[(w * a.tile_rows + row) * D + dim];
            }
            if (n_chunk == 1)
                attend_store<D>(a.out, p.row[s] + r / a.group, qh_, dim, v / den);
            else {
                uint32_t trow = r / a.group;
                float *to = a.part + ((uint64_t)(p.part[s] + trow * p.n_chunk[s] + ch) * a.n_head + qh_) * (D + 2);
                to[dim] = v;
                if (!dim)
                    to[D] = top, to[D + 1] = den;
            }
        }
        if (n_chunk == 1) {
            __syncthreads();
            continue;
        }
        /* the last chunk to arrive merges all, in chunk order */
        __threadfence();
        __syncthreads();
        uint32_t *ticket = a.ticket + (p.tile[s] + tile) * a.kv.n_kv + head;
        if (!threadIdx.x) {
            last = atomicAdd(ticket, 1) == n_chunk - 1;
            if (last)
                *ticket = 0;
        }
        __syncthreads();
        if (last) {
            __threadfence();
            for (uint32_t i = threadIdx.x; i < rows * D; i += WARPS * 32) {
                uint32_t row = i / D, dim = i % D, r = 16 * tile + row, qh_ = head * a.group + r % a.group;
                const float *from = a.part + ((uint64_t)(p.part[s] + r / a.group * p.n_chunk[s] + c_lo - p.chunk0[s]) * a.n_head + qh_) * (D + 2);
                uint64_t step = (uint64_t)a.n_head * (D + 2);
                float top = -INFINITY, den = 0, v = 0;
#pragma unroll 8
                for (uint32_t k = 0; k < n_chunk; k++)
                    top = fmaxf(top, __ldcg(from + k * step + D));
#pragma unroll 8
                for (uint32_t k = 0; k < n_chunk; k++) {
                    float mk = __ldcg(from + k * step + D), f = mk == -INFINITY ? 0.f : exp2f(mk - top);
                    den += f * __ldcg(from + k * step + D + 1);
                    v += f * __ldcg(from + k * step + dim);
                }
                attend_store<D>(a.out, p.row[s] + r / a.group, qh_, dim, v / den);
            }
        }
        __syncthreads();
    }
}

/* Sub-block sums of prepared rows whose heads do not end on multiples of 32. */
__global__ void attend_sums(act_buf out, uint32_t n)
{
    pdl_go();
    pdl_wait();
    uint32_t k = (blockIdx.x * blockDim.x + threadIdx.x) * 32;
    __half *r = out.p + (uint64_t)blockIdx.y * out.ld;
    float sum = 0;
    if (k >= n)
        return;
    for (uint32_t i = k; i < k + 32 && i < n; i++)
        sum += __half2float(r[prep_at(i)]);
    __half hi = half_sat(sum);
    r[prep_sum_at(k)] = hi, r[prep_sum_at(k) + 8] = half_sat(sum - __half2float(hi));
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

bool attend_takes(uint32_t d_head) { return d_head == 64 || d_head == 80 || d_head == 96 || d_head == 128 || d_head == 256; }

template <int D> static size_t split_smem(uint32_t tile_rows) { return (WARPS * tile_rows * D + WARPS * 32) * sizeof(float); }

void attend_init(struct device *d)
{
    attend_long_init(d);
    cuda_smem(d, attend_split<64>, split_smem<64>(16));
    cuda_smem(d, attend_split<80>, split_smem<80>(16));
    cuda_smem(d, attend_split<96>, split_smem<96>(16));
    cuda_smem(d, attend_split<128>, split_smem<128>(16) < d->smem_max ? split_smem<128>(16) : d->smem_max);
    cuda_smem(d, attend_split<256>, split_smem<256>(16) < d->smem_max ? split_smem<256>(16) : d->smem_max);
}

void attend_reserve(struct device *d, const step_dev *m)
{
    uint64_t pairs = 0, heads = d->ws.dims.d_q / d->kv->desc.d_head;
    for (uint32_t s = 0; s < m->n_seq; s++) {
        uint64_t chunks = (m->pos0[s] + m->n_rows[s]) / ATTEND_CHUNK + 1;
        pairs += chunks * (m->n_rows[s] < GEMM_ROWS ? m->n_rows[s] : GEMM_ROWS);
    }
    uint64_t want = pairs * heads * (d->kv->desc.d_head + 2) * sizeof(float), have = d->ws.part_bytes ? d->ws.part_bytes : 64ull << 20;
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

template <int D> static void split(struct device *d, attend_args a)
{
    for (uint32_t lo = 0; lo < d->cap; lo += GEMM_ROWS) {
        a.row_lo = lo, a.row_hi = lo + GEMM_ROWS;
        cuda_launch(d, attend_split<D>, dim3(d->sms * (D <= 128 ? 2 : 1)), WARPS * 32, split_smem<D>(a.tile_rows), LAUNCH_PDL, a);
    }
    if (D % 32 && !a.out.plain)
        cuda_launch(d, attend_sums, dim3((a.n_head * D + 4095) / 4096, d->cap), 128, 0, LAUNCH_PDL, a.out, a.n_head * D);
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
    /* Where results are wanted row-major (fast prefill), longer runs of rows go to attend_long.cu. */
    a.rows_max = BATCH_ROWS_MAX;
    if (a.out.plain && attend_long(d, op, a, &a.rows_max))
        return;
    a.tile_rows = a.group >= 16 ? 16 : (d->decode ? a.group : 16);
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
        cuda_refuse(d, HEARTH_EUNSUPPORTED, "head size %u: the GPU has attention for 64, 80, 96, 128 and 256", op->d_head);
    }
}
