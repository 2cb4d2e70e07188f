/*
 * gemv_ring.cuh - the producer warp of gemv.cuh: it copies weights into the ring and prefetches the keys that attention
 * reads next.
 */
#ifndef HEARTH_CUDA_GEMM_GEMV_RING_CUH
#define HEARTH_CUDA_GEMM_GEMV_RING_CUH

#include "kernels/cuda/gemm/gemv_block.cuh"

#if __CUDA_ARCH__ >= 800

/* The producer: copies the block's tiles, stage by stage, in the order of t16_frag_at(). With bulk copies it is one
 * lane, otherwise all lanes of the warp. */
template <int TA, int TB, int EP, bool BULK>
__device__ static inline void gemv_producer(const gemm_args &a, uint32_t n, uint64_t *full, uint64_t *empty,
                                            uint8_t *ring, uint32_t lane)
{
    using R = gemv_ring<TA, TB>;
    uint64_t policy = evict_first();
    uint32_t n_kblk = a.n_kblk, base = n_kblk / K_SLICES, rem = n_kblk % K_SLICES, s = 0, phase = 1, issued = 0,
             back = 0, back_phase = 0;
    bool ahead = a.ahead && a.in_flight == 1;
    auto copy = [&](const uint8_t *src, uint32_t bytes) {
        mbar_wait(empty + s, phase);
        /* At most in_flight copies are outstanding, as loads of the row would queue behind more. Once the ring has been
         * filled, the consumers have the row, and `ahead` skips this wait once, which leaves two copies in flight. */
        if (issued >= a.in_flight && !(ahead && issued == a.stages)) {
            mbar_wait(full + back, back_phase);
            if (++back == a.stages)
                back = 0, back_phase ^= 1;
        }
        issued++;
        if (BULK) {
            mbar_expect_tx(full + s, bytes);
            cp_async_bulk(ring + s * a.stage_bytes, src, bytes, full + s, policy);
        } else {
            cp_async_warp(ring + s * a.stage_bytes, src, bytes, policy, lane);
            cp_async_arrive(full + s);
        }
        if (++s == a.stages)
            s = 0, phase ^= 1;
    };
    if constexpr (EP == GEMV_PAIRS) { /* the two tiles' records alternate */
        uint32_t tile = n_kblk * R::UA * R::PA;
        const uint8_t *src = a.w + a.part[0].off + (uint64_t)tile_at(a, 0) * tile;
        for (uint32_t left = n_kblk; left;) {
            uint32_t u = min(left, (uint32_t)K_SLICES), bytes = u * R::UA;
            for (uint32_t q = 0; q < 2 * R::PA; q++)
                copy(src + (q < R::PA ? q * bytes : tile + (q - R::PA) * bytes), bytes);
            src += R::PA * bytes, left -= u;
        }
    } else if constexpr (in_sets(EP)) { /* the same for every two tiles */
        static_assert(R::PA == R::PB);
        for (uint32_t i = 0; i < n; i += 2) {
            const uint8_t *src[2];
            uint32_t frag[2], both = i + 1 < n;
            for (uint32_t j = 0; j <= both; j++) {
                uint32_t tile = tile_at<is_qkv(EP)>(a, i + j);
                const gemm_part &p = part_of(a, tile);
                frag[j] = TA != TB && p.second ? R::UB : R::UA;
                src[j] = a.w + p.off + (uint64_t)(tile - p.tile0) * n_kblk * frag[j] * R::PA;
            }
            for (uint32_t left = n_kblk; left;) {
                uint32_t u = min(left, (uint32_t)K_SLICES);
                for (uint32_t j = 0; j <= both; j++)
                    for (uint32_t q = 0; q < R::PA; q++) {
                        copy(src[j], u * frag[j]);
                        src[j] += u * frag[j];
                    }
                left -= u;
            }
        }
    } else if constexpr (in_rounds(EP)) { /* the two tiles alternate, a round's records at a time */
        uint32_t steps = (n_kblk + K_SLICES - 1) / K_SLICES;
        for (uint32_t first = 0; first < n; first += FLUSH)
            for (uint32_t round = 0; round < steps; round += a.round)
                for (uint32_t i = first; i < min(first + FLUSH, n); i++) {
                    uint32_t tile = tile_at<is_qkv(EP)>(a, i);
                    const gemm_part &p = part_of(a, tile);
                    bool second = TA != TB && p.second;
                    uint32_t frag = second ? R::UB : R::UA, per = second ? R::PB : R::PA;
                    const uint8_t *src =
                        a.w + p.off + ((uint64_t)(tile - p.tile0) * n_kblk + (uint64_t)round * K_SLICES) * frag * per;
                    for (uint32_t step = round; step < min(round + a.round, steps); step++)
                        for (uint32_t q = 0; q < per; q++) {
                            uint32_t u = step < base ? K_SLICES : rem;
                            copy(src, u * frag);
                            src += u * frag;
                        }
                }
    } else
        for (uint32_t i = 0; i < n; i++) {
            uint32_t tile = tile_at<is_qkv(EP)>(a, i);
            const gemm_part &p = part_of(a, tile);
            bool second = TA != TB && p.second;
            uint32_t frag = second ? R::UB : R::UA, per = second ? R::PB : R::PA, left = n_kblk * per;
            const uint8_t *src = a.w + p.off + (uint64_t)(tile - p.tile0) * n_kblk * frag * per;
            for (uint32_t step = 0; left; step++) {
                uint32_t u = step < base * per ? K_SLICES : rem;
                copy(src, u * frag);
                src += u * frag, left -= u;
            }
        }
}

/*
 * Prefetches into L2 the keys that attention's blocks read first, by the producer warp once copies of all of the
 * block's own weights are issued: from then until attention's first loads memory is idle, but not for much longer than
 * these keys take.
 */
__device__ static inline void prefetch_keys(const gemm_args &a, uint32_t lane)
{
#if __CUDA_ARCH__ >= 900
    uint32_t pos = a.step->pos0[0], n_kv = a.kv.n_kv, n = min(a.prefetch_items, (pos / ATTEND_CHUNK + 1) * n_kv);
    for (uint32_t i = lane * gridDim.x + blockIdx.x; i < n * ATTEND_FIRST_PAGES; i += 32 * gridDim.x) {
        uint32_t item = i / ATTEND_FIRST_PAGES, chunk = item / n_kv, head = item - chunk * n_kv,
                 page = chunk * (ATTEND_CHUNK / KV_PAGE) + i % ATTEND_FIRST_PAGES;
        if (page * KV_PAGE <= pos)
            asm volatile(
                "cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(kv_k(a.kv, a.prefetch[page] * KV_PAGE, head)),
                "r"((uint32_t)(KV_PAGE * a.kv.d_head * sizeof(__half)))
                : "memory");
    }
#endif
}

#endif

#endif
