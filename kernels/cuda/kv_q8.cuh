/*
 * kv_q8.cuh - the layout of a page of Q8_0 KV, with quants and scales apart as described at struct kv_desc, and the
 * conversion to fp16. A head's part of a page is a tile: KV_PAGE vectors of D 8-bit quants, then their scales, one for
 * every 32 quants.
 */
#ifndef HEARTH_CUDA_KV_Q8_CUH
#define HEARTH_CUDA_KV_Q8_CUH

#include "kernels/cuda/cuda.cuh"

enum { KV_Q8_BLOCK = 32 /* quants that share a scale */ };

/* Bytes of a tile, a multiple of 16. */
__host__ __device__ constexpr uint32_t kv_q8_bytes(uint32_t d)
{
    return KV_PAGE * (d + d / KV_Q8_BLOCK * 2);
}
/* The tile of a head's K in a page; that of its V is v_off halves further. */
__device__ static inline uint8_t *kv_q8_tile(const kv_view &v, uint32_t page, uint32_t head)
{
    return (uint8_t *)(v.base + page * v.page_step) + head * kv_q8_bytes(v.d_head);
}
/* The scales of the tile's vector at `slot`: [d / 32]. */
__device__ static inline __half *kv_q8_scales(uint8_t *tile, uint32_t d, uint32_t slot)
{
    return (__half *)(tile + KV_PAGE * d) + slot % KV_PAGE * (d / KV_Q8_BLOCK);
}

/* Four neighbouring quants as fp16, exactly: the half 0x6400 + byte is 1024 + (q + 128), and 1152 is subtracted. */
__device__ static inline void kv_q8_halves(uint32_t q, __half2 to[2])
{
    const uint32_t zero = 0x64806480; /* 1152 twice */
    q ^= 0x80808080;                  /* from -128..127 to 0..255 */
    uint32_t lo = __byte_perm(q, 0x64646464, 0x4140), hi = __byte_perm(q, 0x64646464, 0x4342);
    to[0] = __hsub2(*(const __half2 *)&lo, *(const __half2 *)&zero);
    to[1] = __hsub2(*(const __half2 *)&hi, *(const __half2 *)&zero);
}

/*
 * A warp appends the vector v[0 .. d); each lane quantises one element of each block. The results are those of
 * q8_0_encode() (kernels/quant/q8_0.h), which also defines what becomes of a block with elements that are not finite.
 */
__device__ static inline void kv_q8_append(uint8_t *tile, uint32_t d, uint32_t slot, const float *v, uint32_t lane)
{
    for (uint32_t i = lane; i < d; i += KV_Q8_BLOCK) {
        float x = v[i], most = fabsf(x);
        bool finite = __all_sync(~0u, isfinite(x));
        for (int k = 16; k; k /= 2)
            most = fmaxf(most, __shfl_xor_sync(~0u, most, k));
        __half d16 = finite ? __float2half_rn(most / 127.f) : __ushort_as_half(0x7e00);
        float scale = __half2float(d16), q = finite && scale > 0.f ? rintf(x / scale) : 1.f;
        tile[slot % KV_PAGE * d + i] = (uint8_t)(int8_t)fminf(fmaxf(q, -127.f), 127.f);
        if (!lane)
            kv_q8_scales(tile, d, slot)[i / KV_Q8_BLOCK] = d16;
    }
}

#endif
