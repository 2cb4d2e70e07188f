/* q5_0.cuh - Q5_0 on the GPU: q45_01.cuh with the fifth bit. */
#ifndef HEARTH_CUDA_Q5_0_CUH
#define HEARTH_CUDA_Q5_0_CUH

#include "kernels/cuda/quant/q45_01.cuh"

template <> struct quant<DT_Q5_0> : quant_q45_01<1, 0> {
};

#endif
