/* q46_k.cu - gemv and skinny for q|k|v whose V is Q6_K beside parts of Q4_K. */
#include "kernels/cuda/gemm/copied.cuh"

void gemm_q46_k(struct device *d, gemm_args &a)
{
    run_gemm<DT_Q4_K, DT_Q6_K, 1>(d, a);
}
