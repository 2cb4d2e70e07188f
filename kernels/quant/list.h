/*
 * list.h - the element types, a row each: X(name, NAME, number) with GGUF's name and number (ggml_type), ascending.
 *
 * Everything that exists once a type is made of these rows: enum dtype and its table, the CPU's and the GPU's kernels,
 * the cases of the tests. What a type is stands in its own two files, quant/name.h (the block, its specification and
 * the CPU's kernels) and cuda/quant/name.cuh (the GPU's), which are included here, by whoever defines QUANT_HEADERS
 * or QUANT_KERNELS first.
 */
/* clang-format off */
#ifndef HEARTH_QUANT_LIST_H
#define HEARTH_QUANT_LIST_H

#define QUANTS(X)       \
    X(f32, F32, 0)      \
    X(f16, F16, 1)      \
    X(q4_0, Q4_0, 2)    \
    X(q5_0, Q5_0, 6)    \
    X(q8_0, Q8_0, 8)    \
    X(q4_k, Q4_K, 12)   \
    X(q5_k, Q5_K, 13)   \
    X(q6_k, Q6_K, 14)   \
    X(bf16, BF16, 30)

#endif

#define QUANT_STRING(s) #s
#if defined QUANT_KERNELS
#define QUANT_FILE(t) QUANT_STRING(kernels/cuda/quant/t.cuh)
#elif defined QUANT_HEADERS
#define QUANT_FILE(t) QUANT_STRING(kernels/quant/t.h)
#endif

#ifdef QUANT_FILE
#include QUANT_FILE(f32)
#include QUANT_FILE(f16)
#include QUANT_FILE(q4_0)
#include QUANT_FILE(q5_0)
#include QUANT_FILE(q8_0)
#include QUANT_FILE(q4_k)
#include QUANT_FILE(q5_k)
#include QUANT_FILE(q6_k)
#include QUANT_FILE(bf16)
#undef QUANT_FILE
#endif
#undef QUANT_STRING
#undef QUANT_HEADERS
#undef QUANT_KERNELS
