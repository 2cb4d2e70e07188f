/*
 * one_type.cu - gemv and skinny for one type of weights. The build compiles it once for each type, with -DQUANT=q5_k
 * for example, so that types are compiled in parallel.
 */
#include "kernels/cuda/gemm/copied.cuh"
#include "kernels/cuda/quant/one_type.cuh"

void OF_TYPE(gemm)(struct device *d, gemm_args &a)
{
    run_type<TYPE>(d, a);
}
