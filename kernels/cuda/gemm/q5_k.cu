/* q5_k.cu - the GEMM bodies of Q5_K. */
#include "kernels/cuda/gemm/skinny.cuh"

void gemm_q5_k(struct device *d, gemm_args &a)
{
    run_gemm<DT_Q5_K, DT_Q5_K, 0>(d, a);
}
