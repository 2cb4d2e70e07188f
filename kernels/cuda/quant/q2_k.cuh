/* q2_k.cuh - Q2_K on the GPU: q23_k.cuh without the third bit. */
#ifndef HEARTH_CUDA_Q2_K_CUH
#define HEARTH_CUDA_Q2_K_CUH

#include "kernels/cuda/quant/q23_k.cuh"

template <> struct quant<DT_Q2_K> : quant_q23_k<0> {
};

#endif
