/* q5_1.cuh - Q5_1 on the GPU: q45_01.cuh with the fifth bit and a min. */
#ifndef HEARTH_CUDA_Q5_1_CUH
#define HEARTH_CUDA_Q5_1_CUH

#include "kernels/cuda/quant/q45_01.cuh"

template <> struct quant<DT_Q5_1> : quant_q45_01<1, 1> {
};

#endif
