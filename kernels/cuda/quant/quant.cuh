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

/* A member of quant<type>, for a type that is a number; 0 where there is no such type. */
#define QUANT_MEMBER(result, name, member)              \
    __host__ __device__ constexpr result name(int type) \
    {                                                   \
        switch (type) {                                 \
            QUANTS(QUANT_MEMBER_##member)               \
        }                                               \
        return 0;                                       \
    }
#define QUANT_MEMBER_OF(T, member) \
    case DT_##T:                   \
        return quant<DT_##T>::member;
#define QUANT_MEMBER_OWN(t, T, number)        QUANT_MEMBER_OF(T, OWN)
#define QUANT_MEMBER_FRAGS(t, T, number)      QUANT_MEMBER_OF(T, FRAGS)
#define QUANT_MEMBER_FRAG_BYTES(t, T, number) QUANT_MEMBER_OF(T, FRAG_BYTES)
#define QUANT_MEMBER_INT8(t, T, number)       QUANT_MEMBER_OF(T, INT8)
#define QUANT_MEMBER_WG_ORDER(t, T, number)   QUANT_MEMBER_OF(T, WG_ORDER)
QUANT_MEMBER(bool, quant_has_kernels, OWN)
QUANT_MEMBER(uint32_t, t16_frags, FRAGS)
QUANT_MEMBER(uint32_t, t16_frag_bytes, FRAG_BYTES)
QUANT_MEMBER(bool, int_type, INT8) /* whether few rows multiply in integers */
QUANT_MEMBER(int, wg_order, WG_ORDER)

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
