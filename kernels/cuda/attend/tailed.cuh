/*
 * tailed.cuh - the tail of q|k|v as decode.cu's items begin with it: a block adds up the pieces of its KV head's
 * queries, key and value by itself (gemm/tail.cuh: the bits are those of epilogue.cu's kernel), leaves queries in
 * shared memory, and K and V in their page. The next item's pieces are under way while an item is walked through, and
 * its tail is made before the barrier that ends the item.
 *
 * A sequence has one row here, and a KV head's queries fit a tile. Of the blocks that share a sequence's context, by
 * chunks or as ranks of a cluster, the one with the last page appends K and V; no other one reads that page.
 */
#ifndef HEARTH_CUDA_ATTEND_TAILED_CUH
#define HEARTH_CUDA_ATTEND_TAILED_CUH

#include "kernels/cuda/attend/split_kv.cuh"
#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/gemm/tail.cuh"

/* What the product q|k|v has left: its pieces, and what is to be done to them. */
struct attend_tail {
    partials pieces;
    qkv_epilogue_args tail;
};
struct tailed_args : split_args, attend_tail {
    uint32_t log_ranks; /* blocks that share an item, as a power of two */
};

/* A warp's part: of an item's heads (queries, then K and V where the block appends them) every eighth. */
template <int D> struct tailed {
    static_assert(D % 32 == 0 && D <= 128, "a lane has four elements of a head");
    static constexpr int WARPS = shape<D>::WARPS, PIECES = 8; /* pieces that are under way together */
    struct queries {
        __half row[TILE_ROWS][D + 8]; /* so that the rows of a fragment lie in different banks */
    };
    queries &made;
    head_room room; /* the warp's own part of what it leaves at an item's end */
    uint32_t warp, lane, rank;
    /* The first of the warp's heads of the item that is next: */
    float4 piece[PIECES];
    float bias[4];
    uint32_t n, slot; /* pieces; where K and V go */

    __device__ tailed(queries &made, float *own, int warp, int lane, uint32_t rank)
        : made(made), room(head_room_at(own, D)), warp(warp), lane(lane), rank(rank)
    {
    }
    __device__ inline uint32_t heads(const tailed_args &a, const item &it) const
    {
        uint32_t reader = (it.last / KV_PAGE - it.page0) / WARPS & ((1u << a.log_ranks) - 1); /* of the last page */
        return a.group + (it.end == it.c_hi && reader == rank ? 2 : 0);
    }
    __device__ static inline uint32_t part(const tailed_args &a, uint32_t head)
    {
        return head < a.group ? 0 : head - a.group + 1;
    }
    /* Where the lane's four elements of the item's `head` begin in the product. */
    __device__ inline uint32_t column(const tailed_args &a, const item &it, uint32_t head) const
    {
        uint32_t of = head < a.group ? it.head * a.group + head : a.n_head + (head - a.group) * a.kv.n_kv + it.head;
        return of * D + 4 * lane;
    }
    /* Where the pieces of the lane's elements of `head` lie, and what else becomes of them: all of it before they are
     * there. */
    __device__ inline partials::place place(const tailed_args &a, uint32_t row, const item &it, uint32_t head)
    {
        bool mine = head < heads(a, it) && 4 * lane < D;
        uint32_t o = mine ? column(a, it, head) : 0;
        partials::place w = a.pieces.at(row, o);
        n = mine ? w.n : 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            bias[i] = mine && a.tail.bias ? a.tail.bias[o + i] : 0.f;
        slot = mine && head >= a.group ? a.tail.kv_slot[row] : NO_SLOT;
        return w;
    }
    __device__ inline void load(const partials::place &w, bool real = true)
    {
        piece[0] = load_if(real && n > 0, w.first);
#pragma unroll
        for (int i = 1; i < PIECES; i++)
            piece[i] = load_if(real && i < (int)n, w.later + (i - 1) * w.step);
    }
    __device__ inline void begin_head(const tailed_args &a, const plan &p, const item &it, uint32_t head)
    {
        head_begin(a.tail, D, part(a, head), p.row[it.s], p.pos[it.s], lane, room);
    }
    /* After place(), load() and begin_head(). */
    __device__ inline void end_head(const tailed_args &a, const plan &p, const item &it, uint32_t head,
                                    bool real = true)
    {
        uint32_t which = part(a, head);
        float4 f = piece[0];
#pragma unroll
        for (int i = 1; i < PIECES; i++)
            f.x += piece[i].x, f.y += piece[i].y, f.z += piece[i].z, f.w += piece[i].w;
        if (real && n > PIECES)
            f = a.pieces.four(p.row[it.s], column(a, it, head));
        if (a.tail.bias)
            f.x += bias[0], f.y += bias[1], f.z += bias[2], f.w += bias[3];
        if (4 * lane < D)
            *(float4 *)(room.v + 4 * lane) = f;
        head_end(a.tail, D, which, p.pos[it.s], lane, room);
        if (!real || head >= heads(a, it))
            return;
        if (which) {
            head_append(a.tail, D, which, p.row[it.s], it.head, __shfl_sync(~0u, slot, 0), lane, room.v);
            fence_copies();
        } else
            for (uint32_t i = lane; i < D; i += 32)
                made.row[head][i] = half_sat(room.v[i]);
        __syncwarp(); /* the room is used again */
    }
    /* Asks for the pieces of the warp's first head of an item, while it is at work on another. */
    __device__ inline void ask(const tailed_args &a, const plan &p, const item &it)
    {
        load(place(a, p.row[it.s], it, warp));
    }
    /* The warp's heads of the item from `head` on, of which the first was asked for or not. */
    __device__ inline void make(const tailed_args &a, const plan &p, const item &it, uint32_t head, bool asked)
    {
#pragma unroll 1
        for (; head < heads(a, it); head += WARPS, asked = false) {
            begin_head(a, p, it, head);
            if (!asked)
                load(place(a, p.row[it.s], it, head));
            end_head(a, p, it, head);
        }
    }
    /* A block's first item, by all of the block: waits for the product. */
    __device__ inline void make_first(const tailed_args &a, const plan &p, const item &it)
    {
        partials::place w = place(a, p.row[it.s], it, warp);
        begin_head(a, p, it, warp);
#pragma unroll 1
        for (int real = 0; real < 2; real++) { /* once on nothing, so that the code is there when the wait ends */
            if (real)
                pdl_wait();
            load(w, real);
            end_head(a, p, it, warp, real);
        }
        make(a, p, it, warp + WARPS, false);
        __syncthreads();
    }
    /* Row g of the tile, as the right operand. */
    __device__ inline void load_q(uint32_t (&q)[shape<D>::J][4], uint32_t rows)
    {
        uint32_t g = lane / 4, t = lane % 4;
#pragma unroll
        for (int j = 0; j < shape<D>::J; j++) {
            uint4 v = g < rows ? *(const uint4 *)&made.row[g][32 * j + 8 * t] : make_uint4(0, 0, 0, 0);
            q[j][0] = v.x, q[j][1] = v.y, q[j][2] = v.z, q[j][3] = v.w;
        }
    }
};

#endif
