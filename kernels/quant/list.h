/*
 * list.h - the element types, one row each: X(name, NAME, number) with GGUF's name and number (ggml_type), ascending.
 *
 * Everything that exists once per type is generated from these rows: enum dtype and its table, the CPU's and the GPU's
 * kernels, the cases of the tests. A type is defined in two files of its own, quant/name.h (the block, its
 * specification and the CPU's kernels) and cuda/quant/name.cuh (the GPU's kernels). This file includes all of the
 * former for a source that defines QUANT_HEADERS before including it, and all of the latter for one that defines
 * QUANT_KERNELS.
 */
/* clang-format off */
#ifndef HEARTH_QUANT_LIST_H
#define HEARTH_QUANT_LIST_H

#define QUANTS(X)           \
    X(f32, F32, 0)          \
    X(f16, F16, 1)          \
    X(q4_0, Q4_0, 2)        \
    X(q4_1, Q4_1, 3)        \
    X(q5_0, Q5_0, 6)        \
    X(q5_1, Q5_1, 7)        \
    X(q8_0, Q8_0, 8)        \
    X(q2_k, Q2_K, 10)       \
    X(q3_k, Q3_K, 11)       \
    X(q4_k, Q4_K, 12)       \
    X(q5_k, Q5_K, 13)       \
    X(q6_k, Q6_K, 14)       \
    X(iq2_xxs, IQ2_XXS, 16) \
    X(iq2_xs, IQ2_XS, 17)   \
    X(iq3_xxs, IQ3_XXS, 18) \
    X(iq4_nl, IQ4_NL, 20)   \
    X(iq3_s, IQ3_S, 21)     \
    X(iq2_s, IQ2_S, 22)     \
    X(iq4_xs, IQ4_XS, 23)   \
    X(bf16, BF16, 30)       \
    X(mxfp4, MXFP4, 39)     \
    X(nvfp4, NVFP4, 40)

/* The types that the CPU multiplies in integers; kernels/cpu/kblock.h. */
#define QUANTS_INT(X) \
    X(q4_k, Q4_K)     \
    X(q5_k, Q5_K)     \
    X(q6_k, Q6_K)

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
#include QUANT_FILE(q4_1)
#include QUANT_FILE(q5_0)
#include QUANT_FILE(q5_1)
#include QUANT_FILE(q8_0)
#include QUANT_FILE(q2_k)
#include QUANT_FILE(q3_k)
#include QUANT_FILE(q4_k)
#include QUANT_FILE(q5_k)
#include QUANT_FILE(q6_k)
#include QUANT_FILE(iq2_xxs)
#include QUANT_FILE(iq2_xs)
#include QUANT_FILE(iq3_xxs)
#include QUANT_FILE(iq4_nl)
#include QUANT_FILE(iq3_s)
#include QUANT_FILE(iq2_s)
#include QUANT_FILE(iq4_xs)
#include QUANT_FILE(bf16)
#include QUANT_FILE(mxfp4)
#include QUANT_FILE(nvfp4)
#undef QUANT_FILE
#endif
#undef QUANT_STRING
#undef QUANT_HEADERS
#undef QUANT_KERNELS
