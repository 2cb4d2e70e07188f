/* gemm_b.cu - the GEMM bodies of the simple blocks and of plain floats. */
#include "kernels/cuda/gemm.cuh"

bool gemm_run_b(struct device *d, enum dtype ta, enum dtype tb, gemm_args &a)
{
    if (ta != tb)
        return false;
    switch (ta) {
    case DT_Q8_0:
        run_gemm<DT_Q8_0, DT_Q8_0, 0, 1>(d, a);
        return true;
    case DT_Q4_0:
        run_gemm<DT_Q4_0, DT_Q4_0, 0, 1>(d, a);
        return true;
    case DT_F16:
        run_gemm<DT_F16, DT_F16, 0, 1>(d, a);
        return true;
    case DT_BF16:
        run_gemm<DT_BF16, DT_BF16, 0, 0>(d, a);
        return true;
    case DT_F32:
        run_gemm<DT_F32, DT_F32, 0, 0>(d, a);
        return true;
    default:
        return false;
    }
}
