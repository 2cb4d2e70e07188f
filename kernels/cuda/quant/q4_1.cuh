/* q4_1.cuh - Q4_1 on the GPU: q45_01.cuh without the fifth bit, with a min. */
#ifndef HEARTH_CUDA_Q4_1_CUH
#define HEARTH_CUDA_Q4_1_CUH

#include "kernels/cuda/quant/q45_01.cuh"

template <> struct quant<DT_Q4_1> : quant_q45_01<0, 1> {
};

#endif
