/*
 * few_list.cuh - the list of fragments that a warp of few_up.cuh and few_one.cuh reads, one after the other. Computing
 * the place of a fragment takes divisions. So, for 32 fragments at a time, each lane computes the place of one, the
 * first time before the choice is known; once it is, as many lanes issue as many copies at once.
 */
#ifndef HEARTH_CUDA_EXPERTS_FEW_LIST_CUH
#define HEARTH_CUDA_EXPERTS_FEW_LIST_CUH

#include "kernels/cuda/experts/experts.cuh"

#if __CUDA_ARCH__ >= 900

/* For `up` these are the block's tiles, with a slice of one expert's K each; for `down` one tile, with a slice of the K
 * of all of the row's experts. */
template <int T, bool DOWN> struct few_list {
    static constexpr uint32_t PER = quant<T>::FRAGS, FRAG = quant<T>::FRAG_BYTES;
    uint32_t r0, r1; /* the warp's range of records in a tile */
    uint32_t n, at;  /* the number of its fragments; the next one to be copied */
    uint32_t slot;   /* which of the row's experts this lane's fragment belongs to */
    uint64_t place;  /* offset in the expert's matrix; from locate() on, the address */

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
    /* id: the row's experts, one in each lane. Called by all lanes. */
    __device__ void locate(const experts_args &a, uint32_t id)
    {
        place += (uint64_t)(uintptr_t)expert_at(a, __shfl_sync(~0u, id, slot & 31));
    }
    __device__ void copy(uint8_t *to, uint64_t *full) const
    {
        mbar_expect_tx(full, FRAG);
        cp_async_bulk(to, (const void *)place, FRAG, full, evict_first());
    }
    /*
     * Copies the first fragment. Until the ring is full a warp has one in flight at a time: those of all warps together
     * hide the memory's latency, and more would only queue in front of the loads that the step waits for.
     */
    __device__ void ask_first(uint8_t *ring, uint64_t *full, uint32_t lane)
    {
        at = min(1, n);
        if (lane < at)
            copy(ring, full);
        __syncwarp();
    }
    /* Copies the next fragment, if there is one. Called by all lanes. */
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
