/*
 * one_type.cu - the experts' products with weights of one type. The build compiles it once per type, with -DQUANT=q5_k.
 */
#include "kernels/cuda/experts/beside.cuh"
#include "kernels/cuda/experts/grouped.cuh"
#include "kernels/cuda/quant/one_type.cuh"

bool OF_TYPE(shares)(struct device *d, gemm_args a, const shares_args &s)
{
    if constexpr (quant<TYPE>::INT8)
        return shares_run<TYPE>(d, a, s);
    return false;
}

void OF_TYPE(experts)(struct device *d, experts_args &a, enum experts_kernel kernel)
{
    if (kernel == EXPERTS_UP_GROUPED)
        run_grouped<TYPE, false>(d, a);
    else if (kernel == EXPERTS_DOWN_GROUPED)
        run_grouped<TYPE, true>(d, a);
    else if constexpr (quant<TYPE>::INT8) {
        if (kernel == EXPERTS_UP)
            experts_alone<TYPE, false>(d, a);
        else if (kernel == EXPERTS_DOWN)
            experts_alone<TYPE, true>(d, a);
        else if (kernel == EXPERTS_UP_BESIDE)
            up_beside<TYPE>(d, a);
        else
            down_beside<TYPE>(d, a);
    } else
        cuda_refuse(d, HEARTH_EINTERNAL, "experts' weights of type %d have no product in integers", TYPE);
}
