/*
 * one_type.cuh - for sources that are compiled once per type, with e.g. -DQUANT=q5_k: then TYPE is DT_Q5_K, and
 * OF_TYPE(gemm) is the name gemm_q5_k.
 */
#ifndef HEARTH_CUDA_QUANT_ONE_TYPE_CUH
#define HEARTH_CUDA_QUANT_ONE_TYPE_CUH

#include "kernels/quant/list.h"

#define GLUE(a, b)    a##_##b
#define NAME(a, b)    GLUE(a, b)
#define OF_TYPE(name) NAME(name, QUANT)

enum { /* type_q5_k = DT_Q5_K, ... */
#define X(t, T, number) type_##t = DT_##T,
       QUANTS(X)
#undef X
};
static const int TYPE = OF_TYPE(type);

#endif
