/*
 * route.cu - op_route: which experts a row goes to and how much their results weigh, in F32 throughout; and op_ffn_up's
 * gate for whole rows, which is a router of one output.
 *
 * A logit is one warp's: its lanes take fours of the columns in turn, in one chain of sums each, which are then added
 * pairwise. So a row's logits are the same bits whether it comes alone (its weights, which wait for nobody, are in
 * registers before the kernel before has ended) or among eight rows that share the weights' way. The last block to
 * arrive chooses.
 */
extern "C" {
#include "kernels/fmath.h"
}
#include "kernels/cuda/experts/row.cuh"
#include "kernels/cuda/states/states.cuh"

enum {
    ROUTE_ROWS = 8, /* a warp each to choose */
    EARLY = 24,     /* fours of an expert's weights, for a lane */
    GAINS = 4,      /* fours of the norm's weights, for a thread */
};

struct route_args {
    const float *w; /* [n_expert][n_in] */
    uint32_t n_in, n_expert;
    const float *bias, *select_bias;
    enum route_kind kind;
    uint32_t n_used, n_group, n_group_used, group_best;
    bool normalise;
    float scale;
    const float *expert_scale; /* [n_expert] or NULL */
    struct norm norm;
    const float *x;
    uint32_t ldx;
    float *logits, *out; /* [rows][n_expert], [rows][2 n_used] */
    uint32_t *semaphore;
    const step_dev *step;
    uint32_t row0;
    float *row_gate; /* [rows], in place of a choice */
    float *product;  /* [rows][ldproduct], in place of logits and a choice: op_project's columns */
    uint32_t ldproduct;
};

/* --- logits ----------------------------------------------------------------------------------------------------- */

/* Mean and factor of a row's norm, by one warp. */
__device__ static inline float2 row_stats(const float *x, uint32_t n, const struct norm &nm, uint32_t lane)
{
    float s = 0, mean = 0;
    if (nm.kind == NORM_NONE)
        return make_float2(0, 1);
    if (nm.kind == NORM_LAYER) {
        for (uint32_t k = lane * 4; k < n; k += 128) {
            float4 f = four_at(x, k, n);
            s += (f.x + f.y) + (f.z + f.w);
        }
        mean = warp_sum(s) / n;
        s = 0;
    }
#pragma unroll 8
    for (uint32_t k = lane * 4; k < n; k += 128) {
        float4 f = four_at(x, k, n);
        const float v[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            float c = k + i < n ? v[i] - mean : 0.f;
            s = fmaf(c, c, s);
        }
    }
    return make_float2(mean, rsqrtf(warp_sum(s) / n + nm.eps));
}

/* Four columns of norm(x). */
__device__ static inline float4 normed_four(const float *x, const struct norm &nm, float2 st, uint32_t k, uint32_t n)
{
    float4 f = four_at(x, k, n);
    if (nm.kind == NORM_NONE)
        return f;
    float4 w = four_at(nm.w, k, n), b = nm.b ? four_at(nm.b, k, n) : make_float4(0, 0, 0, 0);
    return make_float4(__fadd_rn(__fmul_rn(__fmul_rn(f.x - st.x, st.y), w.x), b.x),
                       __fadd_rn(__fmul_rn(__fmul_rn(f.y - st.x, st.y), w.y), b.y),
                       __fadd_rn(__fmul_rn(__fmul_rn(f.z - st.x, st.y), w.z), b.z),
                       __fadd_rn(__fmul_rn(__fmul_rn(f.w - st.x, st.y), w.w), b.w));
}

/* --- the choice --------------------------------------------------------------------------------------------------- */

__device__ static inline uint32_t warp_max(uint32_t v)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(~0u, v);
#else
    for (int i = 16; i; i /= 2)
        v = max(v, __shfl_xor_sync(~0u, v, i));
    return v;
#endif
}

/* Numbers in their order: 0 is below all, NaN below every number, and both zeros are the same. */
__device__ static inline uint32_t key_of(float v)
{
    uint32_t u = __float_as_uint(v + 0.f);
    return isnan(v) ? 1 : u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* The k greatest keys of n, the lower index first of equal ones; each becomes 0. The i-th's index in lane i. */
__device__ static uint32_t greatest(uint32_t *key, uint32_t n, uint32_t k, uint32_t lane)
{
    uint32_t mine = 0;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t best = 0, at = 0;
        for (uint32_t e = lane; e < n; e += 32)
            if (key[e] > best)
                best = key[e], at = e;
        uint32_t most = warp_max(best), id = ~warp_max(best == most && most ? ~at : 0);
        id = id < n ? id : 0;
        __syncwarp();
        if (!lane)
            key[id] = 0;
        __syncwarp();
        if (lane == i)
            mine = id;
    }
    return mine;
}

/* The same of up to 256 keys, which it leaves as they are, in registers: all of a step waits for this. */
__device__ static uint32_t greatest_256(const uint32_t *key, uint32_t n, uint32_t k, uint32_t lane)
{
    uint32_t v[8], mine = 0;
#pragma unroll
    for (uint32_t j = 0; j < 8; j++)
        v[j] = 32 * j + lane < n ? key[32 * j + lane] : 0;
#pragma unroll 1
    for (uint32_t i = 0; i < k; i++) {
        uint32_t best = 0, at = 0;
#pragma unroll
        for (uint32_t j = 0; j < 8; j++)
            if (v[j] > best)
                best = v[j], at = 32 * j + lane;
        uint32_t most = warp_max(best), id = ~warp_max(best == most && most ? ~at : 0);
        id = id < n ? id : 0;
#pragma unroll
        for (uint32_t j = 0; j < 8; j++)
            if (32 * j + lane == id)
                v[j] = 0;
        if (lane == i)
            mine = id;
    }
    return mine;
}

/* Of the groups of `size` keys all but the best become 0. room: [n_group]. */
__device__ static void drop_groups(const route_args &a, const float *by, uint32_t *key, uint32_t *room, uint32_t lane)
{
    uint32_t size = a.n_expert / a.n_group;
    for (uint32_t g = lane; g < a.n_group; g += 32) {
        uint32_t last = ~0u, last_at = 0;
        float score = 0;
        for (uint32_t i = 0; i < a.group_best; i++) { /* the best that comes after the last one */
            uint32_t best = 0, at = 0;
            for (uint32_t e = g * size; e < (g + 1) * size; e++)
                if (key[e] > best && (key[e] < last || (key[e] == last && e > last_at)))
                    best = key[e], at = e;
            score += by[at], last = best, last_at = at;
        }
        room[g] = key_of(score);
    }
    __syncwarp();
    greatest(room, a.n_group, a.n_group_used, lane); /* the kept ones' are 0 now */
    for (uint32_t e = lane; e < a.n_expert; e += 32)
        if (room[e / size])
            key[e] = 0;
    __syncwarp();
}

/* A row's experts and weights, by one warp. room: 4 n_expert words. */
__device__ static void choose(const route_args &a, uint32_t row, float *room, uint32_t lane)
{
    uint32_t n = a.n_expert;
    const float *logits = a.logits + (uint64_t)row * n;
    float *score = room, *by = room + n, *out = a.out + (uint64_t)row * 2 * a.n_used;
    uint32_t *key = (uint32_t *)(by + n), *groups = key + n;
    bool broken = false, late = a.kind == ROUTE_SOFTMAX_CHOSEN;
    bool by_score = !late && (a.select_bias || a.n_group > 1);
    float most = -INFINITY, sum = 0;
    for (uint32_t e = lane; e < n; e += 32) {
        float v = __ldcg(logits + e);
        broken = broken || isnan(v);
        most = v > most ? v : most;
        score[e] = v;
    }
    for (int i = 16; i; i /= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
    for (uint32_t e = lane; e < n; e += 32) {
        float v = score[e], s = a.kind == ROUTE_SOFTMAX ? fm_exp(v - most) : 1.f / (1.f + fm_exp(-v));
        by[e] = v, score[e] = late ? v : s;
        sum += s;
    }
    sum = warp_sum(sum);
    for (uint32_t e = lane; e < n; e += 32) {
        if (a.kind == ROUTE_SOFTMAX)
            score[e] /= sum;
        float v = by_score ? score[e] : by[e];
        by[e] = a.select_bias ? v + a.select_bias[e] : v;
        key[e] = key_of(by[e]);
    }
    __syncwarp();
    if (a.n_group > 1)
        drop_groups(a, by, key, groups, lane);
    uint32_t id = n <= 256 ? greatest_256(key, n, a.n_used, lane) : greatest(key, n, a.n_used, lane);
    bool mine = lane < a.n_used;
    float w = mine ? score[id] : late ? -INFINITY : 0.f;
    if (late) {
        most = w;
        for (int i = 16; i; i /= 2)
            most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
        w = mine ? fm_exp(w - most) : 0.f;
    }
    sum = warp_sum(w);
    if (late || a.normalise)
        w /= fmaxf(sum, 1e-20f); /* sigmoids may all be too small for F32 */
    broken = __any_sync(~0u, broken);
    w *= a.scale;
    if (mine && a.expert_scale)
        w *= a.expert_scale[id];
    if (mine)
        out[lane] = (float)id, out[a.n_used + lane] = broken ? NAN : w;
}

/* Squares of the columns that thread t of a block has; x times the norm's weights goes to `to`. gain(i): the weights of
 * its i-th four, of the first GAINS. */
template <class G>
__device__ static inline float weigh(const float *x, uint32_t n, uint32_t t, const float *weights, G gain, float *to)
{
    float s = 0;
    uint32_t k = t * 4;
    auto four = [&](float4 f, float4 w) {
        s = dot_four(f, f, s);
        *(float4 *)(to + k) =
            make_float4(__fmul_rn(f.x, w.x), __fmul_rn(f.y, w.y), __fmul_rn(f.z, w.z), __fmul_rn(f.w, w.w));
    };
    float4 v[GAINS];
#pragma unroll
    for (uint32_t i = 0; i < GAINS; i++)
        v[i] = four_at(x, k + i * ROUTE_WARPS * 128, n);
#pragma unroll
    for (uint32_t i = 0; i < GAINS; i++, k += ROUTE_WARPS * 128)
        if (k < n)
            four(v[i], gain(i));
    for (; k < n; k += ROUTE_WARPS * 128)
        four(four_at(x, k, n), four_at(weights, k, n));
    return warp_sum(s);
}

/*
 * R rows a block, and eight experts at a time. Dynamic shared memory: R normed rows, or what choose() wants. A row's
 * squares are added by thread, by warp, by block: where a warp has a row to itself it does what the eight would.
 */
template <int R> __global__ void __launch_bounds__(ROUTE_WARPS * 32) route_rows(const __grid_constant__ route_args a)
{
    extern __shared__ __align__(16) float room[];
    __shared__ float squares[ROUTE_WARPS], scale[R];
    __shared__ uint32_t last;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = a.n_in, ld = (n + 3) & ~3u;
    uint32_t row0 = a.row0 + blockIdx.y * R, first = blockIdx.x * ROUTE_WARPS + warp;
    bool defer = deferred(a.norm);
    float4 early[R == 1 ? EARLY : 1] = {}, gain[R == 1 ? GAINS : 1] = {};
    pdl_trigger();
    if constexpr (R == 1) {
#pragma unroll
        for (uint32_t i = 0; i < EARLY; i++)
            early[i] = first < a.n_expert ? four_at(a.w + (uint64_t)first * n, (i * 32 + lane) * 4, n) : float4{};
#pragma unroll
        for (uint32_t i = 0; i < GAINS; i++)
            gain[i] = defer ? four_at(a.norm.w, (i * ROUTE_WARPS * 32 + threadIdx.x) * 4, n) : float4{};
    }
    uint32_t n_row = a.step->n_row; /* was there before the step's kernels */
    uint32_t rows = n_row > row0 ? min((uint32_t)R, n_row - row0) : 0;
    pdl_wait();
    if (!rows)
        return;
    if (R == 1 && defer) {
        float s = weigh(
            a.x + (uint64_t)row0 * a.ldx, n, threadIdx.x, a.norm.w, [&](uint32_t i) { return gain[R == 1 ? i : 0]; },
            room);
        if (!lane)
            squares[warp] = s;
        __syncthreads();
        s = 0;
#pragma unroll
        for (uint32_t w = 0; w < ROUTE_WARPS; w++)
            s += squares[w];
        if (!threadIdx.x)
            scale[0] = row_factor(s, n, a.norm.eps);
    } else if (warp < rows) {
        const float *x = a.x + (uint64_t)(row0 + warp) * a.ldx;
        float s = 0, *to = room + warp * ld;
        if (defer) {
            for (uint32_t w = 0; w < ROUTE_WARPS; w++) {
                uint32_t t = w * 32 + lane;
                s += weigh(
                    x, n, t, a.norm.w, [&](uint32_t i) { return four_at(a.norm.w, (i * ROUTE_WARPS * 32 + t) * 4, n); },
                    to);
            }
            scale[warp] = row_factor(s, n, a.norm.eps);
        } else {
            float2 st = row_stats(x, n, a.norm, lane);
            for (uint32_t k = lane * 4; k < n; k += 128)
                *(float4 *)(to + k) = normed_four(x, a.norm, st, k, n);
            scale[warp] = 1;
        }
    }
    __syncthreads();
    for (uint32_t e = first; e < a.n_expert; e += gridDim.x * ROUTE_WARPS) {
        const float *w = a.w + (uint64_t)e * n;
        float s[R] = {};
        auto add = [&](float4 f, uint32_t k) {
#pragma unroll
            for (uint32_t r = 0; r < R; r++)
                if (r < rows)
                    s[r] = dot_four(f, *(const float4 *)(room + r * ld + k), s[r]);
        };
        uint32_t k = lane * 4;
        if constexpr (R == 1) {
            if (e == first) {
#pragma unroll
                for (uint32_t i = 0; i < EARLY; i++, k += 128)
                    if (k < n)
                        add(early[i], k);
            }
        }
#pragma unroll 2
        for (; k < n; k += 128)
            add(four_at(w, k, n), k);
#pragma unroll
        for (uint32_t r = 0; r < R; r++) {
            float v = __fmul_rn(warp_sum(s[r]), scale[r]);
            if (lane || r >= rows)
                continue;
            if (a.row_gate)
                a.row_gate[row0 + r] = 1.f / (1.f + fm_exp(-v));
            else if (a.product)
                a.product[(uint64_t)(row0 + r) * a.ldproduct + e] = v;
            else
                __stcg(a.logits + (uint64_t)(row0 + r) * a.n_expert + e, v + (a.bias ? a.bias[e] : 0.f));
        }
    }
    if (a.row_gate || a.product)
        return;
    __threadfence();
    __syncthreads();
    if (!threadIdx.x) {
        last = atomicAdd(a.semaphore + blockIdx.y, 1) == gridDim.x - 1;
        if (last)
            a.semaphore[blockIdx.y] = 0;
        __threadfence();
    }
    __syncthreads();
    if (last && warp < rows)
        choose(a, row0 + warp, room + warp * 4 * a.n_expert, lane);
}

/* --- launchers ---------------------------------------------------------------------------------------------------- */

static uint32_t room_bytes(const route_args &a, uint32_t rows)
{
    uint32_t x = (a.n_in + 3) & ~3u, choice = a.product ? 0 : 4 * a.n_expert;
    return rows * (x > choice ? x : choice) * sizeof(float);
}

template <int R> static void launch(struct device *d, const route_args &a, uint32_t bucket, uint32_t blocks)
{
    static uint32_t done;
    if (!(done >> d->index & 1)) {
        cuda_smem(d, route_rows<R>, d->smem_card - 1024); /* some of it is static */
        done |= 1u << d->index;
    }
    cuda_launch(d, route_rows<R>, dim3(blocks, (bucket + R - 1) / R), ROUTE_WARPS * 32, room_bytes(a, R), LAUNCH_PDL,
                a);
}

/* All rows of the step: eight a block, or each for itself, to the same bits. */
static void rows_run(struct device *d, const route_args &a)
{
    uint32_t blocks = (a.n_expert + ROUTE_WARPS - 1) / ROUTE_WARPS;
    if (d->bucket > GEMV_ROWS && room_bytes(a, ROUTE_ROWS) + 1024 <= d->smem_max)
        launch<ROUTE_ROWS>(d, a, d->bucket, d->bucket <= 64 ? blocks : (blocks + 3) / 4);
    else
        launch<1>(d, a, d->bucket, blocks);
}

/* Whether so many can be chosen of so many experts: as on the CPU. */
static bool can_choose(struct device *d, const struct op_route *op, uint32_t n_expert)
{
    uint32_t group = op->n_group > 1 ? op->n_group : 1, kept = op->n_group > 1 ? op->n_group_used : 1;
    bool divides = n_expert && n_expert <= EXPERTS_MAX && n_expert % group == 0;
    bool enough = divides && kept && kept <= group && op->n_used <= n_expert / group * kept;
    bool best = op->n_group <= 1 || (divides && op->group_best && op->group_best <= n_expert / group);
    if (enough && best && op->n_used && op->n_used <= EXPERTS_USED_MAX && 2 * op->n_used <= d->ws.dims.d_route)
        return true;
    cuda_refuse(d, HEARTH_EPARAMS, "%u of %u experts, from %u of %u groups by the best %u of each, cannot be chosen",
                op->n_used, n_expert, kept, group, op->group_best);
    return false;
}

void route_run(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_route *op = &o->route;
    const wdev *w = wdev_of(op->w);
    route_args a = {};
    if (w->role != WEIGHT_ROUTER || !can_choose(d, op, w->n_out))
        return;
    a.w = (const float *)w->part[0].raw, a.n_in = w->n_in, a.n_expert = w->n_out;
    a.bias = op->bias, a.select_bias = op->select_bias, a.kind = op->kind, a.n_used = op->n_used;
    a.n_group = op->n_group, a.n_group_used = op->n_group_used, a.group_best = op->group_best;
    a.normalise = op->normalise, a.scale = op->scale, a.expert_scale = op->expert_scale, a.norm = op->norm;
    a.x = d->ws.x, a.ldx = d->ws.ldx, a.logits = d->ws.experts.logits, a.out = d->ws.experts.route;
    a.semaphore = d->ws.semaphore, a.step = d->step;
    p->grouped = p->routed = false;
    rows_run(d, a);
}

void route_project(struct device *d, const struct op_project *op)
{
    const wdev *w = wdev_of(op->w);
    route_args a = {};
    a.w = (const float *)w->part[0].raw, a.n_in = w->n_in, a.n_expert = w->n_out, a.norm = op->norm;
    a.x = d->ws.x, a.ldx = d->ws.ldx, a.step = d->step, a.product = d->ws.mix + op->at, a.ldproduct = d->ws.ldmix;
    rows_run(d, a);
}

const float *row_gate_run(struct device *d, const struct op_ffn_up *op, uint32_t row0, uint32_t bucket)
{
    route_args a = {};
    if (!op->row_gate)
        return NULL;
    a.w = op->row_gate, a.n_in = wdev_of(op->w)->n_in, a.n_expert = 1, a.norm = op->norm;
    a.x = d->ws.x, a.ldx = d->ws.ldx, a.step = d->step, a.row0 = row0, a.row_gate = d->ws.experts.row_gate;
    launch<1>(d, a, bucket, 1);
    return a.row_gate;
}
