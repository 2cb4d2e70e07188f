/*
 * sample.cu - samples tokens from logits on the device: one kernel, with several blocks per row, which synchronise at
 * barriers of their own only for the passes that a slot's parameters need. Greedy sampling needs none.
 *
 * Cut-offs are found by radix histograms over the order-preserving bits of a logit, 11 + 11 + 10 of them: counts for
 * top-k, exp() in 40-bit fixed point for top-p. Integers add up to the same sum in any order, so that a token depends
 * only on its own row. The last row to finish writes the step's ticket for the host. Slots are set in slots.cu.
 */
#include "kernels/cuda/sample.cuh"
#include "kernels/philox.h"

#include <float.h>

/* Blocks: BLOCKS for a single row; for several rows one per ROW_IDS ids, in any case no more than can be resident. */
enum { THREADS = 512, BLOCKS = 128, AT_ONCE = 4, ROW_IDS = 4 * AT_ONCE * THREADS, RESIDENT = 2 /* blocks per SM */ };

struct sample_args {
    const float *logits;
    uint32_t ldl, n_vocab, row0;
    const step_dev *s;
    slot_dev *slot;
    int32_t *last;
    row_dev *row;
    uint32_t *rows_done;
    const uint32_t *mask;
    struct result *ring;
};

__device__ static inline uint32_t key_of(float v) /* monotonic: greater floats have greater keys */
{
    uint32_t u = __float_as_uint(v + 0.f); /* +0 and -0 are one */
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}
__device__ static inline float value_of(uint32_t key)
{
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}
__device__ static inline unsigned long long rank_of(float v, uint32_t id) /* best first, then the lowest id */
{
    return (unsigned long long)key_of(v) << 32 | (uint32_t)~id;
}

/* A barrier of the blocks of a row. All blocks of a launch are resident. */
__device__ static void row_barrier(row_dev *r, uint32_t *n_barrier)
{
    __syncthreads();
    if (!threadIdx.x) {
        uint32_t want = ++*n_barrier * gridDim.x, have;
        __threadfence();
        atomicAdd(&r->arrived, 1);
        do
            have = *(volatile uint32_t *)&r->arrived;
        while (have < want);
        __threadfence();
    }
    __syncthreads();
}

__device__ static void max_into(unsigned long long v, unsigned long long *to)
{
    for (int i = 16; i; i /= 2) {
        unsigned long long o = __shfl_xor_sync(~0u, v, i);
        v = o > v ? o : v;
    }
    if (threadIdx.x % 32 == 0 && v)
        atomicMax(to, v);
}

/* The same with one atomic per block; all threads of the block must call it. */
__device__ static void block_max_into(unsigned long long v, unsigned long long *to)
{
    __shared__ unsigned long long best;
    if (!threadIdx.x)
        best = 0;
    __syncthreads();
    max_into(v, &best);
    __syncthreads();
    if (!threadIdx.x && best)
        atomicMax(to, best);
}

struct view {
    const float *raw;
    const slot_dev *sl;
    const uint32_t *mask;
    uint32_t n;
};

/* The logit after penalties, bias and mask, in that order. */
__device__ static inline float logit(const view &w, uint32_t id)
{
    const slot_dev *sl = w.sl;
    float v = w.raw[id];
    if (sl->count) {
        uint32_t c = sl->count[id];
        if (c) {
            v = v > 0 ? v / sl->p.rep_penalty : v * sl->p.rep_penalty;
            v = fmaf(-sl->p.frequency_penalty, (float)c, v - sl->p.presence_penalty);
        }
    }
    if (sl->bias)
        v += sl->bias[id];
    if (w.mask && !(w.mask[id / 32] >> id % 32 & 1))
        v = -INFINITY;
    return v == v ? v : -INFINITY;
}

/* The rank of a raw logit; NaN is below all and never a candidate. */
__device__ static inline unsigned long long raw_rank(const view &w, uint32_t id)
{
    return isnan(w.raw[id]) ? 0 : rank_of(w.raw[id], id);
}

/* Calls f(id) for the ids of this thread, in groups of four neighbours. */
template <typename F> __device__ static inline void each(uint32_t n, F f)
{
    for (uint32_t id = 4 * (blockIdx.x * THREADS + threadIdx.x); id < n; id += 4 * THREADS * gridDim.x)
        for (uint32_t i = id; i < id + 4 && i < n; i++)
            f(i);
}

/* The best rank of this thread's ids by their raw logits, with loads of sixteen logits in flight at a time. Rows are
 * padded to a multiple of four. */
__device__ static inline unsigned long long best_raw(const float *raw, uint32_t n)
{
    unsigned long long best = 0;
    const uint32_t step = 4 * THREADS * gridDim.x;
    for (uint32_t id = 4 * (blockIdx.x * THREADS + threadIdx.x); id < n; id += AT_ONCE * step) {
        float4 v[AT_ONCE];
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++)
            v[u] = id + u * step < n ? __ldcg((const float4 *)(raw + id + u * step)) : make_float4(0, 0, 0, 0);
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++) {
            const float four[4] = {v[u].x, v[u].y, v[u].z, v[u].w};
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t of = id + u * step + i;
                unsigned long long k = rank_of(four[i], of);
                if (of < n && four[i] > -INFINITY) /* neither forbidden nor NaN */
                    best = k > best ? k : best;
            }
        }
    }
    return best;
}

/* Finds the bin where the sum from the best bin down reaches `want`: *bin, *above: the sum before it. For all threads.
 */
template <typename T>
__device__ static void find_bin(const T *hist, unsigned long long want, uint32_t *bin, unsigned long long *above)
{
    __shared__ unsigned long long seg[THREADS], found_above;
    __shared__ uint32_t found;
    const uint32_t per = SAMPLE_BINS / THREADS;
    uint32_t top = SAMPLE_BINS - 1 - threadIdx.x * per; /* this thread's bins: top, top - 1, ... */
    unsigned long long own = 0;
    for (uint32_t i = 0; i < per; i++)
        own += __ldcg(&hist[top - i]);
    seg[threadIdx.x] = own;
    if (!threadIdx.x)
        found = 0, found_above = 0;
    __syncthreads();
    for (uint32_t d = 1; d < THREADS; d *= 2) {
        unsigned long long v = threadIdx.x >= d ? seg[threadIdx.x - d] : 0;
        __syncthreads();
        seg[threadIdx.x] += v;
        __syncthreads();
    }
    unsigned long long before = seg[threadIdx.x] - own;
    if (before < want && seg[threadIdx.x] >= want)
        for (uint32_t i = 0; i < per; i++) {
            unsigned long long h = __ldcg(&hist[top - i]);
            if (before + h >= want) {
                found = top - i, found_above = before;
                break;
            }
            before += h;
        }
    __syncthreads();
    *bin = found, *above = found_above;
    __syncthreads();
}

/*
 * The greatest key such that the tokens at or above it weigh `want` or more. weigh(v, key) returns a token's weight, 0
 * to leave it out; goal(total) returns `want`, and is called after the first pass, when the total weight is known.
 */
template <typename T, typename W, typename G>
__device__ static uint32_t cut(row_dev *r, T hist[3][SAMPLE_BINS], T *sh, const view &w, uint32_t *n_barrier, W weigh,
                               G goal)
{
    const uint32_t shift[3] = {21, 10, 0}, bits[3] = {11, 11, 10};
    uint32_t prefix = 0, bin;
    unsigned long long want = 0, above;
    for (int level = 0; level < 3; level++) {
        for (uint32_t i = threadIdx.x; i < SAMPLE_BINS; i += THREADS)
            sh[i] = 0;
        __syncthreads();
        each(w.n, [&](uint32_t id) {
            float v = logit(w, id);
            uint32_t key = key_of(v);
            if (level && key >> (shift[level] + bits[level]) != prefix)
                return;
            T x = (T)weigh(v, key);
            if (x)
                atomicAdd(&sh[key >> shift[level] & ((1u << bits[level]) - 1)], x);
        });
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < SAMPLE_BINS; i += THREADS)
            if (sh[i])
                atomicAdd(&hist[level][i], sh[i]);
        row_barrier(r, n_barrier);
        if (!level) {
            __shared__ unsigned long long total;
            if (!threadIdx.x)
                total = 0;
            __syncthreads();
            unsigned long long own = 0;
            for (uint32_t i = threadIdx.x; i < SAMPLE_BINS; i += THREADS)
                own += __ldcg(&hist[0][i]);
            atomicAdd(&total, own);
            __syncthreads();
            want = goal(total);
        }
        find_bin(hist[level], want, &bin, &above);
        want -= above;
        prefix = prefix << bits[level] | bin;
    }
    return prefix;
}

__device__ static inline unsigned long long fixed(float x)
{
    return (unsigned long long)(x * 1099511627776.f);
} /* x in [0, 1] */

/* Adds the token to the slot's counts for penalties, and removes the one that leaves the window. */
__device__ static void remember(slot_dev *sl, uint32_t token)
{
    if (!sl->count)
        return;
    if (sl->ring) {
        if (sl->ring_used == sl->p.penalty_last)
            sl->count[sl->ring[sl->ring_at]]--;
        else
            sl->ring_used++;
        sl->ring[sl->ring_at] = (int32_t)token;
        sl->ring_at = (sl->ring_at + 1) % sl->p.penalty_last;
    }
    sl->count[token]++;
}

__global__ void __launch_bounds__(THREADS, RESIDENT) sample(sample_args a)
{
    __shared__ unsigned long long hist[SAMPLE_BINS];
    __shared__ bool last;
    pdl_trigger();
    uint32_t i = a.row0 + blockIdx.y, n_barrier = 0;
    const step_dev *s = a.s; /* like the slots' parameters, complete before any of the step's kernels */
    if (i >= s->n_sample) {
        pdl_wait();
        return;
    }
    row_dev *r = a.row + blockIdx.y;
    slot_dev *sl = a.slot + s->slot[i];
    const struct sample_params *p = &sl->p;
    view w = {a.logits + (uint64_t)i * a.ldl, sl,
              s->mask[i] == NO_SLOT ? NULL : a.mask + (uint64_t)s->mask[i] * ((a.n_vocab + 31) / 32), a.n_vocab};
    float temp = p->temp, top_v = 0;
    const bool as_it_came = !sl->count && !sl->bias && !w.mask; /* raw logits are not adjusted */
    pdl_wait();
    /* First, as it does not depend on the parameters, whose loads may still be in flight; most rows need no more. */
    const unsigned long long best_of_raw = best_raw(w.raw, w.n);
    bool cut_k =
        temp > 0 && p->top_k && p->top_k<w.n, cut_p = temp> 0 && p->top_p<1.f, cut_m = temp> 0 && p->min_p >= FLT_MIN;
    uint32_t least = key_of(-FLT_MAX); /* keys below are excluded: at first only forbidden tokens */

    float log_z = 0;
    if (p->n_logprobs) { /* of the raw logits */
        unsigned long long m = 0;
        each(w.n, [&](uint32_t id) {
            unsigned long long k = raw_rank(w, id);
            m = k > m ? k : m;
        });
        max_into(m, &r->raw_max);
        row_barrier(r, &n_barrier);
        float raw = value_of((uint32_t)(__ldcg(&r->raw_max) >> 32));
        unsigned long long sum = 0;
        each(w.n, [&](uint32_t id) { sum += isnan(w.raw[id]) ? 0 : fixed(fm_exp(w.raw[id] - raw)); });
        for (int d = 16; d; d /= 2)
            sum += __shfl_xor_sync(~0u, sum, d);
        if (threadIdx.x % 32 == 0)
            atomicAdd(&r->sum, sum);
        unsigned long long below = ~0ull;
        for (uint32_t k = 0; k < p->n_logprobs; k++) {
            m = 0;
            each(w.n, [&](uint32_t id) {
                unsigned long long v = raw_rank(w, id);
                if (v < below && v > m)
                    m = v;
            });
            max_into(m, &r->top[k]);
            row_barrier(r, &n_barrier);
            below = __ldcg(&r->top[k]);
        }
        log_z = raw + logf((float)((double)__ldcg(&r->sum) * 9.094947017729282e-13));
    }
    if (temp > 0) {
        unsigned long long m = best_of_raw;
        if (!as_it_came) {
            m = 0;
            each(w.n, [&](uint32_t id) {
                unsigned long long k = rank_of(logit(w, id), id);
                m = k > m ? k : m;
            });
        }
        max_into(m, &r->max);
        row_barrier(r, &n_barrier);
        top_v = value_of((uint32_t)(__ldcg(&r->max) >> 32));
        if (!philox_decides(top_v, temp)) /* also if the best is infinite, or there is none */
            temp = 0, cut_k = cut_p = cut_m = false;
    }
    if (cut_k)
        least = max(least, cut(
                               r, r->count, (uint32_t *)hist, w, &n_barrier, [](float, uint32_t) { return 1u; },
                               [&](unsigned long long) { return (unsigned long long)p->top_k; }));
    uint32_t least_m = cut_m ? key_of(fmaf(temp, fm_log(p->min_p), top_v)) : 0;
    if (cut_p) {
        float share = p->top_p > 0 ? p->top_p : 0.f;
        least = max(least,
                    cut(
                        r, r->weight, hist, w, &n_barrier,
                        [&](float v, uint32_t key) { return key < least ? 0ull : fixed(fm_exp((v - top_v) / temp)); },
                        [&](unsigned long long all) {
                            unsigned long long want = (unsigned long long)ceil((double)share * (double)all);
                            return want ? want : 1ull;
                        }));
    }
    unsigned long long best = 0;
    uint32_t group = ~0u;
    float top_z = -INFINITY; /* the best of this thread */
    struct philox noise = {};
    const bool plain = !(temp > 0) && as_it_came;
    if (plain)
        best = best_of_raw;
    each(plain ? 0 : w.n, [&](uint32_t id) {
        float v = logit(w, id);
        if (v == -INFINITY)
            return;
        if (temp > 0) {
            if (key_of(v) < least || key_of(v) < least_m)
                return;
            if (id >> 2 != group) {
                group = id >> 2;
                noise = philox_group(p->seed, s->index[i], group);
            }
            uint32_t word = (id & 2) ? (id & 1 ? noise.v[3] : noise.v[2]) : (id & 1 ? noise.v[1] : noise.v[0]);
            v /= temp;
            if (v + philox_gumbel_bound(word) < top_z) /* cannot win: saves two logarithms */
                return;
            v += philox_gumbel(word);
            top_z = v > top_z ? v : top_z;
        }
        unsigned long long k = rank_of(v, id);
        best = k > best ? k : best;
    });
    block_max_into(best, &r->best);
    if (!threadIdx.x) {
        __threadfence();
        last = atomicAdd(&r->finished, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    if (!threadIdx.x) {
        unsigned long long won = __ldcg(&r->best);
        uint32_t token = won ? ~(uint32_t)won : 0; /* all forbidden: id 0 */
        struct sampled *out = &a.ring[s->ticket % RING].out[i];
        float raw = plain && won ? value_of((uint32_t)(won >> 32)) : w.raw[token];
        out->slot = s->slot[i], out->token = token, out->logprob = raw - log_z;
        out->n_top = 0;
        for (uint32_t k = 0; k < p->n_logprobs && __ldcg(&r->top[k]); k++) { /* 0: fewer tokens than n_logprobs */
            uint32_t id = ~(uint32_t)__ldcg(&r->top[k]);
            out->n_top++;
            out->top[k].id = id, out->top[k].logprob = w.raw[id] - log_z;
        }
        a.last[s->slot[i]] = (int32_t)token;
        remember(sl, token);
        r->max = r->best = r->raw_max = r->sum = 0;
        for (uint32_t k = 0; k < p->n_logprobs; k++)
            r->top[k] = 0;
        r->arrived = r->finished = 0;
        bool all = s->n_sample == 1;
        if (!all) { /* rows are counted in device memory; the last one signals the host for all */
            __threadfence();
            all = atomicAdd(a.rows_done, 1) == s->n_sample - 1;
            if (all)
                *a.rows_done = 0;
        }
        if (all) {
            __threadfence_system();
            a.ring[s->ticket % RING].ticket = s->ticket;
        }
    }
    if (cut_k)
        for (uint32_t k = threadIdx.x; k < 3 * SAMPLE_BINS; k += THREADS)
            r->count[0][k] = 0;
    if (cut_p)
        for (uint32_t k = threadIdx.x; k < 3 * SAMPLE_BINS; k += THREADS)
            r->weight[0][k] = 0;
}

__global__ void done(const step_dev *s, struct result *ring)
{
    pdl_wait();
    __threadfence_system();
    ring[s->ticket % RING].ticket = s->ticket;
}

/* --- host ----------------------------------------------------------------------------------------------------- */

void sample_run(struct device *d, uint32_t bucket, uint32_t n_vocab, struct result *ring)
{
    struct sampler *s = d->sampler;
    for (uint32_t row = 0; row < bucket; row += SAMPLE_ROWS) {
        uint32_t rows = bucket - row < SAMPLE_ROWS ? bucket - row : SAMPLE_ROWS, most = RESIDENT * d->sms / rows,
                 blocks = rows == 1 ? BLOCKS : (n_vocab + ROW_IDS - 1) / ROW_IDS;
        blocks = blocks < most ? blocks : most;
        sample_args a = {d->ws.logits, d->ws.ldl, n_vocab,      row,     d->step, s->slot,
                         s->last,      s->row,    s->rows_done, s->mask, ring};
        cuda_launch(d, sample, dim3(blocks < 1 ? 1 : blocks, rows), THREADS, 0, LAUNCH_PDL, a);
    }
}

void done_run(struct device *d, struct result *ring)
{
    cuda_launch(d, done, dim3(1), 1, 0, LAUNCH_PDL, d->step, ring);
}
