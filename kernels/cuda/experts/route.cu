/*
 * route.cu - op_route: which experts a row goes to and how much their results weigh, in F32 throughout; and op_ffn_up's
 * gate for whole rows, which is a router with one output.
 *
 * A logit is summed by one warp, in the order of row.cuh. So a row's logits are bit-identical whether its block
 * computes that row alone or eight rows that share the loads of the weights. The steps that wait for a router are those
 * of few rows. There the weights, which depend on no earlier kernel, are loaded into shared memory before the previous
 * kernel has ended; in registers there would be no room for them beside that kernel's blocks. The last block to arrive
 * makes the choice.
 */
#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/experts/route.cuh"
#include "kernels/cuda/experts/told.cuh"
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/plan.cuh"

/*
 * R rows a block, and eight experts at a time. Dynamic shared memory: R normed rows, or what choose() needs; behind
 * them, if SOON, the norm's weights and the first a.early columns of eight experts' weights. SOON: whatever depends on
 * no earlier kernel is loaded before griddepcontrol.wait, and rows are read several groups of four at once, at the
 * price of more registers. Otherwise a warp handles two experts at a time, so that it reads the rows once for both.
 */
template <int R, bool SOON>
__global__ void __launch_bounds__(ROUTE_WARPS * 32, R > 1 ? 2 : 1) route_rows(const __grid_constant__ route_args a)
{
    constexpr int AT_ONCE = R > 1 && SOON ? 4 : 1; /* of the eight parts that a row's columns are read in */
    constexpr uint32_t E = R > 1 && !SOON ? 2 : 1;
    extern __shared__ __align__(16) float room[];
    __shared__ float scale[R], found[R == 1 ? ROUTE_WARPS : 1];
    __shared__ uint32_t last;
    __shared__ __align__(8) uint64_t there[SOON ? ROUTE_WARPS : 1];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = a.n_in, all = tiled(n), ld = tiled_room(n);
    uint32_t row0 = a.row0 + blockIdx.y * R, first = (blockIdx.x * ROUTE_WARPS + warp) * E;
    bool defer = deferred(a.norm), tell = R == 1 && SOON && a.said;
    float *gains = room + a.gains, *early = gains + all + warp * a.early; /* used if SOON */
    uint32_t n_row = a.step->n_row;                                       /* written before the step's kernels start */
    uint32_t rows = n_row > row0 ? min((uint32_t)R, n_row - row0) : 0;
    bool asked = SOON && a.early && first < a.n_expert && rows; /* a warp that issues a copy waits for it */
    pdl_trigger();
#if __CUDA_ARCH__ >= 800
    if (asked) {
        if (!lane) {
            mbar_init(there + warp, fill_arrivals(a.bulk));
            mbar_init_done();
        }
        __syncwarp();
        const float *from = a.w + (uint64_t)first * n;
        if (!a.bulk) {
            cp_async_warp(early, from, a.early * 4, evict_first(), lane);
            cp_async_arrive(there + warp);
        } else if (!lane) {
            mbar_expect_tx(there + warp, a.early * 4);
            cp_async_bulk(early, from, a.early * 4, there + warp, evict_first());
        }
    }
#endif
    if (SOON && defer) {
        for (uint32_t k = threadIdx.x * 4; k < all; k += ROUTE_WARPS * 128)
            *(float4 *)(gains + k) = four_at(a.norm.w, k, n);
        __syncthreads();
    }
    auto gain = [&](uint32_t k) { return SOON ? *(const float4 *)(gains + k) : four_at(a.norm.w, k, n); };
    pdl_wait();
    if (!rows)
        return;
#if __CUDA_ARCH__ >= 800
    uint64_t tag = tell ? said_tag(a.step, a.nth) : 0;
    if (tell && blockIdx.x == gridDim.x - 1 &&
        threadIdx.x == blockDim.x - 1) /* not in the warp that makes the choice */
        say_x(a.said + row0, tag);
#endif
    if (R == 1 && defer) {
        const float *x = a.x + (uint64_t)row0 * a.ldx;
        float4 v[FOURS];
        take_fours(v, x, n, threadIdx.x);
        weigh(v, x, n, threadIdx.x, gain, room, room + all);
    } else if (warp < rows) {
        const float *x = a.x + (uint64_t)(row0 + warp) * a.ldx;
        float *to = room + warp * ld;
        if (defer) {
#pragma unroll 1
            for (uint32_t w = 0; w < ROUTE_WARPS; w += AT_ONCE) {
                float4 v[AT_ONCE][FOURS];
#pragma unroll
                for (uint32_t j = 0; j < AT_ONCE; j++)
                    take_fours(v[j], x, n, (w + j) * 32 + lane);
#pragma unroll
                for (uint32_t j = 0; j < AT_ONCE; j++)
                    weigh(v[j], x, n, (w + j) * 32 + lane, gain, to, to + all);
            }
            __syncwarp();
            scale[warp] = factor_of(to + all, n, a.norm.eps, lane);
        } else {
            float2 st = row_stats(x, n, a.norm, lane);
            for (uint32_t k = lane * 4; k < all; k += 128)
                *(float4 *)(to + k) = normed_four(x, a.norm, st, k, n);
            scale[warp] = 1;
        }
    }
    __syncthreads();
    for (uint32_t e = first; e < a.n_expert; e += gridDim.x * ROUTE_WARPS * E) {
        const float *w[E];
        float s[E][R] = {}, square = 0; /* for R == 1: summed along with the product */
#pragma unroll
        for (uint32_t j = 0; j < E; j++)
            w[j] = a.w + (uint64_t)min(e + j, a.n_expert - 1) * n;
        auto add = [&](uint32_t tile, auto weights) {
            float half[E][R], last[E][R];
            if (R == 1 && defer)
                square = __fadd_rn(square, room[all + tile]);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t k = tile * ROUTE_TILE + 4 * tile_four(i, lane);
                float4 f[E];
#pragma unroll
                for (uint32_t j = 0; j < E; j++)
                    f[j] = weights(j, k);
#pragma unroll
                for (uint32_t r = 0; r < R; r++) {
                    if (r >= rows)
                        continue;
                    float4 x = *(const float4 *)(room + r * ld + k);
#pragma unroll
                    for (uint32_t j = 0; j < E; j++) {
                        float v = dot_four(f[j], x, 0);
                        if (i & 1)
                            v = __fadd_rn(last[j][r], v);
                        if (i == 1)
                            half[j][r] = v;
                        else if (i == 3)
                            s[j][r] = __fadd_rn(s[j][r], __fadd_rn(half[j][r], v));
                        else
                            last[j][r] = v;
                    }
                }
            }
        };
        uint32_t tile = lane;
        if (asked && e == first) {
#if __CUDA_ARCH__ >= 800
            mbar_wait(there + warp, 0);
#endif
#pragma unroll 2
            for (; (tile + 1) * ROUTE_TILE <= a.early; tile += 32)
                add(tile, [&](uint32_t, uint32_t k) { return *(const float4 *)(early + k); });
        }
#pragma unroll 1
        for (; tile * ROUTE_TILE < n; tile += 32)
            add(tile, [&](uint32_t j, uint32_t k) { return weights_at(w[j], k, n); });
#pragma unroll
        for (uint32_t i = 0; i < E * R; i++) {
            uint32_t j = i / R, r = i % R;
            float sum = warp_sum(s[j][r]), of = R == 1 && defer ? warp_sum(square) : 0;
            float v = __fmul_rn(sum, R == 1 && defer ? row_factor(of, n, a.norm.eps) : scale[r]);
            if (lane || r >= rows || e + j >= a.n_expert)
                continue;
            if (a.row_gate)
                a.row_gate[row0 + r] = isnan(v) ? v : 1.f / (1.f + fm_exp(-v));
            else if (a.product)
                a.product[(uint64_t)(row0 + r) * a.ldproduct + e + j] = v;
            else if (v += a.bias ? a.bias[e + j] : 0.f; tell)
                found[R == 1 ? warp : 0] = v;
            else
                __stcg(a.logits + (uint64_t)(row0 + r) * a.n_expert + e + j, v);
        }
    }
    if (a.row_gate || a.product)
        return;
    __syncthreads();
    uint32_t row = row0 + warp;
    bool chooses;
    float *own =
        room +
        warp * 4 * a.n_expert; /* the warp's scratch space for choose(); published logits go to its last quarter */
    if (tell) {                /* each warp had at most one expert */
        uint32_t e = blockIdx.x * ROUTE_WARPS + 2 * threadIdx.x;
        chooses = !blockIdx.x && !warp;
#if __CUDA_ARCH__ >= 800
        route_said *said = a.said + row0;
        if (threadIdx.x < ROUTE_WARPS / 2 && e < a.n_expert)
            say(said->logit + e / 2, said_two(found[2 * lane], e + 1 < a.n_expert ? found[2 * lane + 1] : 0), tag);
        if (chooses)
            hear_logits(said, tag, a.n_expert, room + 3 * a.n_expert, lane);
#endif
    } else {
        if (!threadIdx.x) {
            __threadfence(); /* after the barrier, so it covers what the whole block wrote */
            last = atomicAdd(a.semaphore + blockIdx.y, 1) == gridDim.x - 1;
            if (last)
                a.semaphore[blockIdx.y] = 0;
            __threadfence();
        }
        __syncthreads();
        chooses = last && warp < rows;
    }
    if (!chooses)
        return;
    const float *logits = tell ? room + 3 * a.n_expert : a.logits + (uint64_t)row * a.n_expert;
    float2 chosen = choose(
        a.choice, [&](uint32_t e) { return tell ? logits[e] : __ldcg(logits + e); }, own, lane);
    float *out = a.out + (uint64_t)row * 2 * a.choice.n_used;
    if (lane >= a.choice.n_used)
        return;
#if __CUDA_ARCH__ >= 800
    if (tell)
        say(a.said[row0].chosen + lane, said_two(chosen.x, chosen.y), tag);
#endif
    out[lane] = chosen.x, out[a.choice.n_used + lane] = chosen.y;
}

/* --- launchers ---------------------------------------------------------------------------------------------------- */

static uint32_t room_floats(const route_args &a, uint32_t rows)
{
    uint32_t x = tiled_room(a.n_in), choice = a.product ? 0 : 4 * a.n_expert;
    return rows * (x > choice ? x : choice);
}

/* Columns of an expert's weights that can be prefetched; lanes take groups of four of them in turn. */
static uint32_t early_of(const struct device *d, const route_args &a)
{
    return d->cc < 80 || a.n_in % 4 || (uintptr_t)a.w & 15 ? 0 : a.n_in < EARLY ? a.n_in : EARLY;
}

template <int R, bool SOON> static uint32_t room_bytes(const struct device *d, const route_args &a)
{
    uint32_t warps = a.n_expert < ROUTE_WARPS ? a.n_expert : ROUTE_WARPS;
    uint32_t soon = SOON ? tiled(a.n_in) + warps * early_of(d, a) : 0;
    return (room_floats(a, R) + soon) * sizeof(float);
}

template <int R, bool SOON> static void launch(struct device *d, route_args a, uint32_t bucket, uint32_t blocks)
{
    static uint32_t done;
    if (!(done >> d->index & 1)) {
        cuda_smem(d, route_rows<R, SOON>, d->smem_card - 1024); /* leaves room for the static part */
        done |= 1u << d->index;
    }
    a.gains = room_floats(a, R), a.early = SOON ? early_of(d, a) : 0, a.bulk = d->cc >= 90;
    cuda_launch(d, route_rows<R, SOON>, dim3(blocks, (bucket + R - 1) / R), ROUTE_WARPS * 32, room_bytes<R, SOON>(d, a),
                LAUNCH_PDL, a);
}

/* Whether R rows a block fit, and all of the step's blocks are resident at once. */
template <int R> static bool at_once(const struct device *d, const route_args &a, uint32_t blocks)
{
    uint32_t bytes = room_bytes<R, true>(d, a) + 2048, each = bytes <= (uint32_t)d->smem_max / 2 ? 2 : 1;
    return bytes <= (uint32_t)d->smem_max && (d->bucket + R - 1) / R * blocks <= each * (uint32_t)d->sms;
}

/* Routes all rows of the step; the kernel chosen does not change the bits. Since a step waits for its routers, a block
 * takes few rows as long as all blocks are resident at once. Many rows are computed as a blocked product where that
 * kernel takes them. */
static void rows_run(struct device *d, route_args &a)
{
    uint32_t blocks = (a.n_expert + ROUTE_WARPS - 1) / ROUTE_WARPS, room = d->smem_max - 1024, n = d->bucket;
    bool alone = room_bytes<1, true>(d, a) <= room && (n <= GEMV_ROWS || at_once<1>(d, a, blocks));
    if (!alone || n > ROUTE_ALONE || d->cc < 90)
        a.said = NULL;
    if (alone)
        launch<1, true>(d, a, n, blocks);
    else if (at_once<2>(d, a, blocks))
        launch<2, true>(d, a, n, blocks);
    else if (at_once<4>(d, a, blocks))
        launch<4, true>(d, a, n, blocks);
    else if (n <= SOON_ROWS && room_bytes<ROUTE_ROWS, true>(d, a) <= room)
        launch<ROUTE_ROWS, true>(d, a, n, blocks);
    else if (!a.product && route_gemm_run(d, a))
        return;
    else if (room_bytes<ROUTE_ROWS, false>(d, a) <= room)
        launch<ROUTE_ROWS, false>(d, a, n, n <= SOON_ROWS ? blocks : (blocks + 3) / 4);
    else
        launch<1, false>(d, a, n, blocks);
}

/* Whether n_used of n_expert experts can be chosen under op's groups; the same rule as on the CPU. */
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
    p->normed = NULL;
    if (o == p->shares_of) { /* experts_up_run() does the rest */
        p->job_pairs = 0, p->routed = false, p->told = true;
        return;
    }
    if (p->acts.pieces & ACT_BIT(ACT_X)) {
        norm_pieces_run(d, p, &p->next->experts_up.norm, p->x_n, d->ws.xn, act_buf{}, false, d->bucket);
        p->normed = p->next;
    }
    a.w = (const float *)w->part[0].raw, a.n_in = w->n_in, a.n_expert = w->n_out;
    a.bias = op->bias, a.choice = choice_of(op, w->n_out), a.norm = op->norm;
    a.x = d->ws.x, a.ldx = d->ws.ldx, a.logits = d->ws.experts.logits, a.out = d->ws.experts.route;
    a.semaphore = d->ws.semaphore, a.step = d->step;
    a.said = d->ws.experts.said, a.nth = ++p->n_route;
    p->job_pairs = 0, p->routed = false;
    rows_run(d, a);
    p->told = a.said && p->next && p->next->kind == OP_EXPERTS_UP;
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
    if (room_bytes<1, true>(d, a) + 1024 <= (uint32_t)d->smem_max)
        launch<1, true>(d, a, bucket, 1);
    else
        launch<1, false>(d, a, bucket, 1);
    return a.row_gate;
}
