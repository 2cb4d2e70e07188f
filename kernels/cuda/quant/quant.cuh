/*
 * quant.cuh - all types on the GPU: their files, and the few places where a type is known at run time alone.
 *
 * Everything here is made of kernels/quant/list.h. A type that is not in it has no quant<T>, so that a kernel of it
 * does not compile; a type without kernels of its own is never seen on the GPU, as upload.cu makes F16 of it.
 */
#ifndef HEARTH_CUDA_QUANT_CUH
#define HEARTH_CUDA_QUANT_CUH

#include "kernels/cuda/gemm/tile16_int.cuh"
#include "kernels/cuda/quant/slice.cuh"

#define QUANT_KERNELS
#include "kernels/quant/list.h"

/* f(quant<type>()) for a type that is a number; 0 where there is no such type. */
template <class R, class F> __host__ __device__ constexpr R quant_member(int type, F f)
{
    switch (type) {
#define X(t, T, number) \
    case DT_##T:        \
        return f(quant<DT_##T>());
        QUANTS(X)
#undef X
    }
    return 0;
}
__host__ __device__ constexpr bool quant_has_kernels(int type)
{
    return quant_member<bool>(type, [](auto q) { return q.OWN; });
}
__host__ __device__ constexpr uint32_t t16_frags(int type)
{
    return quant_member<uint32_t>(type, [](auto q) { return q.FRAGS; });
}
__host__ __device__ constexpr uint32_t t16_frag_bytes(int type)
{
    return quant_member<uint32_t>(type, [](auto q) { return q.FRAG_BYTES; });
}
/* Whether few rows multiply in integers. */
__host__ __device__ constexpr bool int_type(int type)
{
    return quant_member<bool>(type, [](auto q) { return q.INT8; });
}
__host__ __device__ constexpr int wg_order(int type)
{
    return quant_member<int>(type, [](auto q) { return q.WG_ORDER; });
}
__host__ __device__ constexpr uint32_t t16_kblk_bytes(int type)
{
    return t16_frag_bytes(type) * t16_frags(type);
}

/* f(quant<T>()) for the type `type`, which has kernels of its own: pack_plan() and upload.cu let nothing else in. */
template <class F> __device__ static inline void quant_visit(int type, F f)
{
    switch (type) {
#define X(t, T, number)                     \
    case DT_##T:                            \
        if constexpr (quant<DT_##T>::OWN) { \
            f(quant<DT_##T>());             \
            return;                         \
        }                                   \
        break;
        QUANTS(X)
#undef X
    }
    __trap();
}

/* Element k of a row as it lies in the file, as f32: what the embedding and the reference GEMM read. */
__device__ static inline float dq_at(enum dtype type, const uint8_t *row, uint32_t k)
{
    float v;
    quant_visit(type, [&](auto q) { v = q.at(row, k); });
    return v;
}

/* Elements k .. k + 7 (k % 8 == 0) of row (h, g) of a tile, as f32: the bits of dq_at(), as every product is exact but
 * the last rounding. For who wants single rows of a packed matrix. */
__device__ static inline void unpack_eight(uint32_t type, const uint8_t *tile, uint32_t n_kblk, uint32_t h, uint32_t g,
                                           uint32_t k, float out[8])
{
    quant_visit(type, [&](auto q) {
        const uint8_t *u = tile + (uint64_t)t16_frag_at(n_kblk, q.FRAGS, k >> 8, q.frag_of(k & 255)) * q.FRAG_BYTES;
        q.unpack(u, h, g, k & 255, out);
    });
}

#endif
