/* gemm_k.cu - the GEMM bodies of the K types, and of their mixtures in one q|k|v. */
#include "kernels/cuda/gemm.cuh"

bool gemm_run_k(struct device *d, enum dtype ta, enum dtype tb, gemm_args &a)
{
    if (ta == DT_Q4_K && tb == DT_Q4_K)
        run_gemm<DT_Q4_K, DT_Q4_K, 1, 1>(d, a);
    else if (ta == DT_Q4_K && tb == DT_Q6_K)
        run_gemm<DT_Q4_K, DT_Q6_K, 0, 1>(d, a);
    else if (ta == DT_Q6_K && tb == DT_Q6_K)
        run_gemm<DT_Q6_K, DT_Q6_K, 1, 1>(d, a);
    else if (ta == DT_Q5_K && tb == DT_Q5_K)
        run_gemm<DT_Q5_K, DT_Q5_K, 0, 1>(d, a);
    else
        return false;
    return true;
}
