/*
 * one_type.cu - the products gemv and skinny by one type of weights. The build compiles it once for each, with
 * -DQUANT=q5_k, so that types build side by side.
 */
#include "kernels/cuda/gemm/copied.cuh"
#include "kernels/cuda/quant/one_type.cuh"

void OF_TYPE(gemm)(struct device *d, gemm_args &a)
{
    run_type<TYPE>(d, a);
}
