/*
 * one_type.cu - the products of experts by weights of one type. The build compiles it once for each, with -DQUANT=q5_k.
 */
#include "kernels/cuda/experts/beside.cuh"
#include "kernels/cuda/experts/grouped.cuh"

#define GLUE(a, b) a##b
#define NAME(a, b) GLUE(a, b)

enum { /* type_q5_k = DT_Q5_K, ... */
#define X(t, T, number) type_##t = DT_##T,
       QUANTS(X)
#undef X
};

bool NAME(shares_, QUANT)(struct device *d, gemm_args a, const shares_args &s)
{
    constexpr int T = NAME(type_, QUANT);
    if constexpr (quant<T>::INT8)
        return shares_run<T>(d, a, s);
    return false;
}

void NAME(experts_, QUANT)(struct device *d, experts_args &a, enum experts_kernel kernel)
{
    constexpr int T = NAME(type_, QUANT);
    if (kernel == EXPERTS_UP_GROUPED)
        run_grouped<T, false>(d, a);
    else if (kernel == EXPERTS_DOWN_GROUPED)
        run_grouped<T, true>(d, a);
    else if constexpr (quant<T>::INT8) {
        if (kernel == EXPERTS_UP)
            experts_alone<T, false>(d, a);
        else if (kernel == EXPERTS_DOWN)
            experts_alone<T, true>(d, a);
        else if (kernel == EXPERTS_UP_BESIDE)
            up_beside<T>(d, a);
        else
            down_beside<T>(d, a);
    } else
        cuda_refuse(d, HEARTH_EINTERNAL, "experts' weights of type %d have no product in integers", T);
}
