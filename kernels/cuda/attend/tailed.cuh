/*
 * tailed.cuh - the tail of q|k|v with which decode.cu's items begin: a block itself adds up the partial sums (pieces)
 * of its KV head's queries, key and value (gemm/tail.cuh, bit-identical to epilogue.cu's kernel), and leaves the
 * queries in shared memory, and K and V in their page. The next item's partial sums are in flight while an item is
 * processed, and its tail is computed before the barrier that ends the item.
 *
 * A sequence has one row here, and a KV head's queries fit a tile. The step's own token is not read back from its page:
 * among the warps that share a sequence's context, by chunks, as teams or as ranks of a cluster, one starts its sums
 * with that token (begin_own), and that warp's block appends K and V.
 */
#ifndef HEARTH_CUDA_ATTEND_TAILED_CUH
#define HEARTH_CUDA_ATTEND_TAILED_CUH

#include "kernels/cuda/attend/split_kv.cuh"
#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/gemm/tail.cuh"

/* What the product q|k|v has left: its partial sums, and what is to be done with them. */
struct attend_tail {
    partials pieces;
    qkv_epilogue_args tail;
};
struct tailed_args : split_args, attend_tail {
    uint32_t log_ranks; /* log2 of the blocks that share an item */
};

/* A warp's part of the tail of an item that WARPS warps share: every WARPS-th of its heads (at most ROWS queries, then
 * K and V where these warps append them). Teams have fewer warps than most items have heads: with heads of 64
 * dimensions each half of a warp takes a head, so that all are computed at once. P: the plan, of plan.cuh. */
template <int D, int ROWS, int WARPS, class P> struct tailed {
    static_assert(D % 32 == 0 && D <= 128, "a lane has four elements of a head");
    static constexpr int PIECES = 8; /* partial sums that are loaded together */
    static constexpr uint32_t LANES = D == 64 && WARPS < shape<D>::WARPS ? 16 : 32, /* of a head */
        PER = 32 / LANES;                                                           /* heads of a warp at a time */
    static_assert((PER == 2 ? 4 : 3) * D <= ROWS * shape<D>::OLD, "rooms of a warp's heads");
    struct queries {
        __half row[ROWS][D + 8]; /* padded: the rows of a fragment are in different banks */
        __half own[2][D];        /* K and V of the step's token */
    };
    queries &made;
    head_room room; /* part of the space for the warp's sums at an item's end */
    uint32_t warp, lane, rank;
    uint32_t nth, part_lane; /* the head's index among those computed together; the lane within its head */
    /* The first of the warp's heads of the next item: */
    float4 piece[PIECES];
    float bias[4];
    uint32_t n, slot; /* number of partial sums; where K and V go */

    __device__ tailed(queries &made, float *own, int warp, int lane, uint32_t rank)
        : made(made), warp(warp), lane(lane), rank(rank), nth(PER * warp + lane / LANES), part_lane(lane % LANES)
    {
        room = head_room_at(own + lane / LANES * 2 * D, D);
    }
    /* The warp, among all that share the item over all ranks, which starts with the step's token: the one after the
     * warp with the last page. A number past all of them where that warp is another item's. */
    __device__ inline uint32_t owner(const tailed_args &a, const item &it) const
    {
        uint32_t all = WARPS << a.log_ranks, pages = (it.last + KV_PAGE - 1) / KV_PAGE - it.page0;
        return it.end == it.c_hi ? pages & (all - 1) : all;
    }
    __device__ inline uint32_t heads(const tailed_args &a, const item &it) const
    {
        return a.group + (owner(a, it) / WARPS == rank ? 2 : 0);
    }
    __device__ static inline uint32_t part(const tailed_args &a, uint32_t head)
    {
        return head < a.group ? 0 : head - a.group + 1;
    }
    /* The column of the product at which the lane's four elements of the item's `head` begin. */
    __device__ inline uint32_t column(const tailed_args &a, const item &it, uint32_t head) const
    {
        uint32_t of = head < a.group ? it.head * a.group + head : a.n_head + (head - a.group) * a.kv.n_kv + it.head;
        return of * D + 4 * part_lane;
    }
    /* Where the partial sums of the lane's elements of `head` are; also sets n, bias and slot. It can be computed
     * before the partial sums are written. */
    __device__ inline partials::place place(const tailed_args &a, uint32_t row, const item &it, uint32_t head)
    {
        bool mine = head < heads(a, it) && 4 * part_lane < D;
        uint32_t o = mine ? column(a, it, head) : 0;
        partials::place w = a.pieces.at(row, o);
        n = mine ? w.n : 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            bias[i] = mine && a.tail.bias ? a.tail.bias[o + i] : 0.f;
        slot = mine && head >= a.group ? a.tail.kv_slot[row] : NO_SLOT;
        return w;
    }
    __device__ inline void load(const partials::place &w)
    {
        piece[0] = load_if(n > 0, w.first);
#pragma unroll
        for (int i = 1; i < PIECES; i++)
            piece[i] = load_if(i < (int)n, w.later + (i - 1) * w.step);
    }
    __device__ inline void begin_head(const tailed_args &a, const P &p, const item &it, uint32_t head)
    {
        head_begin<LANES>(a.tail, D, part(a, head), row_of(p, it.s), row_pos(p, it.s), part_lane, room);
    }
    /* To be called after load() of w and begin_head(). */
    __device__ inline void end_head(const tailed_args &a, const P &p, const item &it, uint32_t head,
                                    const partials::place &w)
    {
        uint32_t which = part(a, head);
        float4 f = piece[0];
#pragma unroll
        for (int i = 1; i < PIECES; i++)
            f.x += piece[i].x, f.y += piece[i].y, f.z += piece[i].z, f.w += piece[i].w;
#pragma unroll 1
        for (uint32_t i = PIECES; i < n; i++) {
            float4 v = load_if(true, w.later + (i - 1) * w.step);
            f.x += v.x, f.y += v.y, f.z += v.z, f.w += v.w;
        }
        if (a.tail.bias)
            f.x += bias[0], f.y += bias[1], f.z += bias[2], f.w += bias[3];
        if (4 * part_lane < D)
            *(float4 *)(room.v + 4 * part_lane) = f;
        head_end<false, LANES>(a.tail, D, which, row_pos(p, it.s), part_lane, room);
        if (head >= heads(a, it))
            return;
        if (which)
            head_append<LANES>(a.tail, D, which, row_of(p, it.s), it.head,
                               __shfl_sync(head_lanes<LANES>(), slot, 0, LANES), part_lane, room.v);
        __half *to = which ? made.own[which - 1] : made.row[head];
        for (uint32_t i = part_lane; i < D; i += LANES)
            to[i] = half_sat(room.v[i]);
        __syncwarp(head_lanes<LANES>()); /* the shared memory is reused */
    }
    /* Requests the partial sums of the first head of an item, while another item is being processed. */
    __device__ inline void ask(const tailed_args &a, const P &p, const item &it)
    {
        load(place(a, row_of(p, it.s), it, nth));
    }
    /* Computes the warp's heads of the item. asked: the first head's partial sums were already requested; first: this
     * is the warp's first item, which waits for the product. There is one code path for all cases, as code is fetched
     * as it is executed. */
    __device__ inline void make(const tailed_args &a, const P &p, const item &it, bool asked, bool first)
    {
#pragma unroll 1
        for (uint32_t head = nth; first || head / PER * PER < heads(a, it);
             head += WARPS * PER, asked = first = false) {
            partials::place w = place(a, row_of(p, it.s), it, head);
            if (first)
                pdl_wait();
            if (!asked)
                load(w);
            begin_head(a, p, it, head);
            end_head(a, p, it, head, w);
        }
        __syncwarp(); /* one half may have had no head; the warp reconverges */
    }
    /* Loads row g of the tile, as the right operand. */
    __device__ inline void load_q(uint32_t (&q)[shape<D>::J][4], uint32_t rows)
    {
        uint32_t g = lane / 4, t = lane % 4;
#pragma unroll
        for (int j = 0; j < shape<D>::J; j++) {
            uint4 v = g < rows ? *(const uint4 *)&made.row[g][32 * j + 8 * t] : make_uint4(0, 0, 0, 0);
            q[j][0] = v.x, q[j][1] = v.y, q[j][2] = v.z, q[j][3] = v.w;
        }
    }
    /* Turns the state that begin_item() left into that of the step's token alone: its score is the maximum, and its
     * value the sum, as online_softmax() and page_values() would compute them. Called by the owner. */
    __device__ inline void begin_own(const tailed_args &a, const uint32_t (&q)[shape<D>::J][4],
                                     float (&o)[shape<D>::GROUPS][shape<D>::W][4], float (&m)[2], float (&l)[2]) const
    {
        typedef shape<D> S;
        uint32_t g = lane / 4, t = lane % 4;
        float c[4] = {}, odd[4] = {}, p[2];
#pragma unroll
        for (int j = 0; j < S::J; j++) { /* all rows of the fragment are this token */
            uint4 k = *(const uint4 *)(made.own[0] + 32 * j + 8 * t);
            mma16816(c, k.x, k.x, k.y, k.y, q[j][0], q[j][1]);
            mma16816(odd, k.z, k.z, k.w, k.w, q[j][2], q[j][3]);
        }
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float s = (c[e] + odd[e]) * a.scale;
            if (a.softcap != 0)
                s = act_softcap(s, a.softcap);
            s *= LOG2E;
            m[e] = fmaxf(-INFINITY, s); /* fmaxf drops a NaN here; it remains in p */
            p[e] = exp2_fast(s - (m[e] == -INFINITY ? 0.f : m[e]));
            l[e] = g ? 0.f : p[e]; /* the lanes' sums are added at the end */
        }
#pragma unroll
        for (int b = 0; b < S::GROUPS; b++)
#pragma unroll
            for (int w = 0; w < S::W; w++) {
                float2 v = __half22float2(*(const __half2 *)(made.own[1] + b * S::SPAN + 2 * (S::W * g + w)));
#pragma unroll
                for (int e = 0; e < 2; e++)
                    o[b][w][e] = p[e] * v.x, o[b][w][2 + e] = p[e] * v.y;
            }
    }
};

#endif
