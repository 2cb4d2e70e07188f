/* q6_k.cu - the GEMM bodies of Q6_K. */
#include "kernels/cuda/gemm/skinny.cuh"

void gemm_q6_k(struct device *d, gemm_args &a)
{
    run_gemm<DT_Q6_K, DT_Q6_K, 1>(d, a);
}
