/* q4_k.cu - the GEMM bodies of Q4_K. */
#include "kernels/cuda/gemm/skinny.cuh"

void gemm_q4_k(struct device *d, gemm_args &a)
{
    run_gemm<DT_Q4_K, DT_Q4_K, 1>(d, a);
}
