/* q_0.cu - the GEMM bodies of Q8_0 and Q4_0. */
#include "kernels/cuda/gemm/skinny.cuh"

void gemm_q8_0(struct device *d, gemm_args &a)
{
    run_gemm<DT_Q8_0, DT_Q8_0, 0>(d, a);
}
void gemm_q4_0(struct device *d, gemm_args &a)
{
    run_gemm<DT_Q4_0, DT_Q4_0, 0>(d, a);
}
