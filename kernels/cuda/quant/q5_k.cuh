/* q5_k.cuh - Q5_K on the GPU: q45_k.cuh with the fifth bit. */
#ifndef HEARTH_CUDA_Q5_K_CUH
#define HEARTH_CUDA_Q5_K_CUH

#include "kernels/cuda/quant/q45_k.cuh"

template <> struct quant<DT_Q5_K> : quant_q45_k<1> {
};

#endif
