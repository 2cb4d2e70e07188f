/*
 * one_type.cu - the GEMM bodies of one type of weights. The build compiles it once for each, with -DQUANT=q5_k, so that
 * types build side by side.
 */
#include "kernels/cuda/gemm/copied.cuh"

#define GLUE(a, b) a##b
#define NAME(a, b) GLUE(a, b)

enum { /* type_q5_k = DT_Q5_K, ... */
#define X(t, T, number) type_##t = DT_##T,
       QUANTS(X)
#undef X
};

void NAME(gemm_, QUANT)(struct device *d, gemm_args &a)
{
    run_type<NAME(type_, QUANT)>(d, a);
}
