/*
 * few_list.cuh - the fragments that a warp of few_up.cuh and few_one.cuh reads, one after the other. Where one lies
 * takes divisions: so each lane finds the place of one, of 32 at a time, before there is a choice, and as many lanes
 * ask for as many of them at once when there is.
 */
#ifndef HEARTH_CUDA_EXPERTS_FEW_LIST_CUH
#define HEARTH_CUDA_EXPERTS_FEW_LIST_CUH

#include "kernels/cuda/experts/experts.cuh"

#if __CUDA_ARCH__ >= 900

/* Of `up` the block's tiles, a slice of an expert's K each; of `down` one tile, a slice of all of the row's experts'.
 */
template <int T, bool DOWN> struct few_list {
    static constexpr uint32_t PER = quant<T>::FRAGS, FRAG = quant<T>::FRAG_BYTES;
    uint32_t r0, r1; /* the warp's records of a tile */
    uint32_t n, at;  /* all of its fragments; the next one to be asked for */
    uint32_t slot;   /* the lane's: which of the row's experts */
    uint64_t place;  /* in the expert's matrix, and from locate() on in memory */

    __device__ few_list(const experts_args &a, uint32_t tiles, uint32_t records, uint32_t warp, uint32_t lane)
    {
        r0 = t16_slice(records, warp), r1 = t16_slice(records, warp + 1);
        n = (tiles - blockIdx.x + a.grid - 1) / a.grid * (r1 - r0) * PER, at = 0;
        find(a, lane);
    }
    __device__ void find(const experts_args &a, uint32_t lane)
    {
        uint32_t each = max((r1 - r0) * PER, 1), f = at + lane, i = f / each, rest = f - i * each;
        uint32_t tile = blockIdx.x + i * a.grid, rec = r0 + rest / PER;
        slot = DOWN ? rec / a.n_kblk : tile / a.n_tile;
        uint32_t t = DOWN ? tile : tile - slot * a.n_tile, r = DOWN ? rec - slot * a.n_kblk : rec;
        place = ((uint64_t)t * a.n_kblk * PER + t16_frag_at(a.n_kblk, PER, r, rest % PER)) * FRAG;
    }
    /* id: the row's experts, one a lane. All lanes call it. */
    __device__ void locate(const experts_args &a, uint32_t id)
    {
        place += (uint64_t)(uintptr_t)expert_at(a, __shfl_sync(~0u, id, slot & 31));
    }
    __device__ void copy(uint8_t *to, uint64_t *full) const
    {
        mbar_expect_tx(full, FRAG);
        cp_async_bulk(to, (const void *)place, FRAG, full, evict_first());
    }
    /* The first ones, a stage each. */
    __device__ void ask_first(uint32_t stages, uint8_t *ring, uint64_t *full, uint32_t lane)
    {
        at = min(stages, n);
        if (lane < at)
            copy(ring + lane * FRAG, full + lane);
        __syncwarp();
    }
    /* The next one, if there is one. All lanes call it. */
    __device__ void ask(const experts_args &a, uint32_t id, uint8_t *to, uint64_t *full, uint32_t lane)
    {
        if (at == n)
            return;
        if (!(at & 31))
            find(a, lane), locate(a, id);
        if (lane == (at & 31))
            copy(to, full);
        at++;
    }
};

#endif

#endif
