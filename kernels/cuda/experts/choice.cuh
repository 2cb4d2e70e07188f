/*
 * choice.cuh - choosing a row's experts by its logits, and the weights of their results, by one warp: for route.cu's
 * kernels, and for blocks of `up` of one row (few_up.cuh).
 */
#ifndef HEARTH_CUDA_EXPERTS_CHOICE_CUH
#define HEARTH_CUDA_EXPERTS_CHOICE_CUH

extern "C" {
#include "kernels/fmath.h"
}
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/gemm/rows.cuh"

/* The parameters of op_route except its product. */
struct route_choice {
    enum route_kind kind;
    uint32_t n_expert, n_used, n_group, n_group_used, group_best;
    bool normalise;
    float scale;
    const float *select_bias;  /* [n_expert] or NULL */
    const float *expert_scale; /* [n_expert] or NULL */
};

static inline struct route_choice choice_of(const struct op_route *op, uint32_t n_expert)
{
    return {op->kind,       n_expert,      op->n_used, op->n_group,     op->n_group_used,
            op->group_best, op->normalise, op->scale,  op->select_bias, op->expert_scale};
}

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

/* A key that orders floats: NaN (1) is below every number, both zeros are equal, and the key 0, of no float, is below
 * all. */
__device__ static inline uint32_t key_of(float v)
{
    uint32_t u = __float_as_uint(v + 0.f);
    return isnan(v) ? 1 : u & 0x80000000u ? ~u : u | 0x80000000u;
}
/* The number of a key other than 0 and NaN's. */
__device__ static inline float number_of(uint32_t key)
{
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* Selects the k greatest of n keys, the lower index first among equal ones; each selected key becomes 0. Lane i returns
 * the index of the i-th. */
__device__ static uint32_t greatest(uint32_t *key, uint32_t n, uint32_t k, uint32_t lane)
{
    uint32_t mine = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < k; i++) {
        uint32_t best = 0, at = 0;
#pragma unroll 1
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

/* The same for up to 256 keys, which are kept in registers and not changed in memory. */
__device__ static inline uint32_t greatest_256(const uint32_t *keys, uint32_t n, uint32_t k, uint32_t lane)
{
    uint32_t key[8], mine = 0;
#pragma unroll
    for (uint32_t j = 0; j < 8; j++)
        key[j] = 32 * j + lane < n ? keys[32 * j + lane] : 0;
#pragma unroll 1
    for (uint32_t i = 0; i < k; i++) {
        uint32_t best[4], at[4];
#pragma unroll
        for (uint32_t j = 0; j < 4;
             j++) { /* neighbours first, so that of equal keys the left one has the lower index */
            bool right = key[2 * j + 1] > key[2 * j];
            best[j] = right ? key[2 * j + 1] : key[2 * j], at[j] = 2 * j + right;
        }
#pragma unroll
        for (uint32_t m = 2; m; m /= 2)
#pragma unroll
            for (uint32_t j = 0; j < m; j++) {
                bool right = best[2 * j + 1] > best[2 * j];
                best[j] = right ? best[2 * j + 1] : best[2 * j], at[j] = right ? at[2 * j + 1] : at[2 * j];
            }
        uint32_t own = 32 * at[0] + lane, most = warp_max(best[0]), id = ~warp_max(best[0] == most ? ~own : 0);
#pragma unroll
        for (uint32_t j = 0; j < 8; j++)
            key[j] = 32 * j + lane == id ? 0 : key[j];
        mine = lane == i ? id : mine;
    }
    return mine;
}

/*
 * The same in fewer steps, since all of a step waits for this; for keys that a warp has in registers: key[2 i + b] is
 * that of index 64 i + 2 lane + b. The index of the i-th goes to ids[i]. Each lane sorts its own keys, and each round
 * takes the greatest of all lanes' first ones.
 */
template <int PAIRS>
__device__ static inline void greatest_pairs(uint32_t (&key)[2 * PAIRS], uint32_t k, uint32_t *ids, uint32_t lane)
{
    enum { N = 2 * PAIRS };
    uint32_t of[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        of[i] = 64 * (i / 2) + 2 * lane + (i & 1);
#pragma unroll
    for (int i = 1; i < N; i++) /* insertion sort, which is stable */
#pragma unroll
        for (int j = i; j > 0; j--) {
            bool swap = key[j] > key[j - 1];
            uint32_t high = swap ? key[j] : key[j - 1], high_of = swap ? of[j] : of[j - 1];
            key[j] = swap ? key[j - 1] : key[j], of[j] = swap ? of[j - 1] : of[j];
            key[j - 1] = high, of[j - 1] = high_of;
        }
#pragma unroll 1
    for (uint32_t i = 0; i < k; i++) {
        uint32_t most = warp_max(key[0]);
        bool mine = key[0] == most;
        uint32_t who = __ballot_sync(~0u, mine);
        if (who & (who - 1)) { /* among equal keys the lowest index wins */
            uint32_t least = ~warp_max(mine ? ~of[0] : 0);
            mine = mine && of[0] == least;
        }
        if (!mine)
            continue;
        ids[i] = of[0];
#pragma unroll
        for (int j = 0; j + 1 < N; j++)
            key[j] = key[j + 1], of[j] = of[j + 1];
        key[N - 1] = 0;
    }
}

/* Clears the keys of all groups except the n_group_used best ones. by: what a group's score adds up; room:
 * [n_group]. */
__device__ static void drop_groups(const route_choice &a, const float *by, uint32_t *key, uint32_t *room, uint32_t lane)
{
    uint32_t size = a.n_expert / a.n_group;
#pragma unroll 1
    for (uint32_t g = lane; g < a.n_group; g += 32) {
        uint32_t last = ~0u, last_at = 0;
        float score = 0;
#pragma unroll 1
        for (uint32_t i = 0; i < a.group_best; i++) { /* the best key that comes after the previous one */
            uint32_t best = 0, at = 0;
#pragma unroll 1
            for (uint32_t e = g * size; e < (g + 1) * size; e++)
                if (key[e] > best && (key[e] < last || (key[e] == last && e > last_at)))
                    best = key[e], at = e;
            score += by[at], last = best, last_at = at;
        }
        room[g] = key_of(score);
    }
    __syncwarp();
    greatest(room, a.n_group, a.n_group_used, lane); /* the keys of the kept groups are 0 now */
#pragma unroll 1
    for (uint32_t e = lane; e < a.n_expert; e += 32)
        if (room[e / size])
            key[e] = 0;
    __syncwarp();
}

/* The weight of the result of the expert that this lane has: lane i has the i-th chosen, with id `id` and score
 * `score`. broken: this lane has seen a logit that is NaN, which makes all weights NaN. */
__device__ static inline float weight_of(const route_choice &a, uint32_t id, float score, bool broken, uint32_t lane)
{
    bool mine = lane < a.n_used, late = a.kind == ROUTE_SOFTMAX_CHOSEN;
    float w = mine ? score : late ? -INFINITY : 0.f;
    if (late) {
        float most = w;
        for (int i = 16; i; i /= 2)
            most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
        w = mine ? fm_exp(w - most) : 0.f;
    }
    if (late || a.normalise) {
        float sum = warp_sum(w);
        w /= fmaxf(sum, 1e-20f); /* the sigmoids may all underflow in F32 */
    }
    w *= a.scale;
    if (mine && a.expert_scale)
        w *= a.expert_scale[id];
    return __any_sync(~0u, broken) ? NAN : w;
}

/* Whether choose_256() does what choose() does. */
__host__ __device__ static inline bool chooses_256(const route_choice &a)
{
    return a.n_expert <= 256 && a.n_group <= 1;
}

/* What the scores of all of a row's logits depend on. */
struct route_total {
    float most, sum; /* of the logits, and of their exponentials (ROUTE_SOFTMAX only) */
    bool broken;     /* this lane has seen a NaN */
};

/* Called by a warp; a lane reads every 32nd logit, starting at its own number. */
__device__ static inline route_total total_of(const route_choice &a, const float *logits, uint32_t lane)
{
    route_total t = {-INFINITY, 0, false};
#pragma unroll 1
    for (uint32_t e = lane; e < a.n_expert; e += 32) {
        float v = logits[e];
        t.broken = t.broken || isnan(v);
        t.most = v > t.most ? v : t.most;
    }
    if (a.kind != ROUTE_SOFTMAX)
        return t;
    t.most = number_of(warp_max(key_of(t.most)));
#pragma unroll 1
    for (uint32_t e = lane; e < a.n_expert; e += 32)
        t.sum += fm_exp(logits[e] - t.most);
    t.sum = warp_sum(t.sum);
    return t;
}
/* The score of a logit; the logit itself for ROUTE_SOFTMAX_CHOSEN, whose scores are computed from the chosen ones
 * alone. */
__device__ static inline float score_of(const route_choice &a, float logit, const route_total &t)
{
    bool softmax = a.kind == ROUTE_SOFTMAX;
    if (a.kind == ROUTE_SOFTMAX_CHOSEN)
        return logit;
    float s = fm_exp(softmax ? logit - t.most : -logit);
    return softmax ? s / t.sum : 1.f / (1.f + s);
}

/*
 * A row's experts and their weights, chosen by one warp: the i-th's id and weight are returned in lane i, of the first
 * n_used lanes. logit(e): the logit of an expert; it is read once, by the lane that then writes room[e]. room: 2
 * n_expert words. Loops are not unrolled, because this code is not in the instruction cache when it is executed.
 */
template <class L>
__device__ static inline float2 choose_256(const route_choice &a, L logit, float *room, uint32_t lane)
{
    uint32_t n = a.n_expert, *key = (uint32_t *)(room + n);
#pragma unroll 1
    for (uint32_t e = lane; e < n; e += 32)
        room[e] = logit(e), key[e] = key_of(room[e]);
    route_total t = total_of(a, room, lane);
    if (a.select_bias)
#pragma unroll 1
        for (uint32_t e = lane; e < n; e += 32)
            key[e] = key_of(score_of(a, room[e], t) + a.select_bias[e]);
    __syncwarp();
    uint32_t id = greatest_256(key, n, a.n_used, lane);
    return make_float2((float)id, weight_of(a, id, lane < a.n_used ? score_of(a, room[id], t) : 0.f, t.broken, lane));
}

/* The same for more experts or for groups. Not unrolled either, as it is part of the same kernels. room: 4 n_expert
 * words. */
template <class L> __device__ static float2 choose_by_groups(const route_choice &a, L logit, float *room, uint32_t lane)
{
    uint32_t n = a.n_expert;
    float *score = room, *by = room + n;
    uint32_t *key = (uint32_t *)(by + n), *groups = key + n;
    bool broken = false, late = a.kind == ROUTE_SOFTMAX_CHOSEN;
    bool by_score = !late && (a.select_bias || a.n_group > 1);
    float most = -INFINITY, sum = 0;
#pragma unroll 1
    for (uint32_t e = lane; e < n; e += 32) {
        float v = logit(e);
        broken = broken || isnan(v);
        most = v > most ? v : most;
        score[e] = v;
    }
    for (int i = 16; i; i /= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
#pragma unroll 1
    for (uint32_t e = lane; e < n; e += 32) {
        float v = score[e], s = a.kind == ROUTE_SOFTMAX ? fm_exp(v - most) : 1.f / (1.f + fm_exp(-v));
        by[e] = v, score[e] = late ? v : s;
        sum += s;
    }
    sum = warp_sum(sum);
#pragma unroll 1
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
    uint32_t id = greatest(key, n, a.n_used, lane);
    return make_float2((float)id, weight_of(a, id, lane < a.n_used ? score[id] : 0.f, broken, lane));
}

/* The same for any. room: 4 n_expert words. */
template <class L> __device__ static inline float2 choose(const route_choice &a, L logit, float *room, uint32_t lane)
{
    return chooses_256(a) ? choose_256(a, logit, room, lane) : choose_by_groups(a, logit, room, lane);
}

#endif
