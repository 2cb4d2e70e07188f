/* f16.cu - the GEMM bodies of F16, BF16 and F32. */
#include "kernels/cuda/gemm/skinny.cuh"

void gemm_f16(struct device *d, gemm_args &a)
{
    run_gemm<DT_F16, DT_F16, 0>(d, a);
}
void gemm_bf16(struct device *d, gemm_args &a)
{
    run_gemm<DT_BF16, DT_BF16, 0>(d, a);
}
void gemm_f32(struct device *d, gemm_args &a)
{
    run_gemm<DT_F32, DT_F32, 0>(d, a);
}
