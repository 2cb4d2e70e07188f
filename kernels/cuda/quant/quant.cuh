/*
 * quant.cuh - all types on the GPU: includes their files, and has the few functions whose type is only known at run
 * time.
 *
 * Everything here is generated from kernels/quant/list.h. A type that is not in it has no quant<T>, so that a kernel
 * for it does not compile. A type without kernels of its own never reaches the GPU, as upload.cu converts it to F16.
 */
#ifndef HEARTH_CUDA_QUANT_CUH
#define HEARTH_CUDA_QUANT_CUH

#include "kernels/cuda/gemm/tile16_int.cuh"
#include "kernels/cuda/quant/slice.cuh"

#define QUANT_KERNELS
#include "kernels/quant/list.h"

/* f(quant<T>()) for the type with that number; 0 where there is no such type. */
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
/* Whether the type can be multiplied in integers, for few rows. */
__host__ __device__ constexpr bool int_type(int type)
{
    return quant_member<bool>(type, [](auto q) { return q.INT8; });
}
__host__ __device__ constexpr int wg_order(int type)
{
    return quant_member<int>(type, [](auto q) { return q.WG_ORDER; });
}
__host__ __device__ constexpr bool has_row_scales(int type)
{
    return quant_member<bool>(type, [](auto q) { return q.WG_ROW_SCALES; });
}
__host__ __device__ constexpr uint32_t t16_kblk_bytes(int type)
{
    return t16_frag_bytes(type) * t16_frags(type);
}

/* f(quant<T>()) for the type `type`, which has kernels of its own: pack_plan() and upload.cu admit no others. */
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

/* Element k of a row in the file's form, as f32; for the embedding and the reference GEMM. */
__device__ static inline float dq_at(enum dtype type, const uint8_t *row, uint32_t k)
{
    float v;
    quant_visit(type, [&](auto q) { v = q.at(row, k); });
    return v;
}

/* Elements k .. k + 7 (k % 8 == 0) of row (h, g) of a tile, as f32, for reading single rows of a packed matrix.
 * Bit-identical to dq_at(), as all operations but the last are exact. */
__device__ static inline void unpack_eight(uint32_t type, const uint8_t *tile, uint32_t n_kblk, uint32_t h, uint32_t g,
                                           uint32_t k, float out[8])
{
    quant_visit(type, [&](auto q) {
        const uint8_t *u = tile + (uint64_t)t16_frag_at(n_kblk, q.FRAGS, k >> 8, q.frag_of(k & 255)) * q.FRAG_BYTES;
        q.unpack(u, h, g, k & 255, out);
    });
}

#endif
