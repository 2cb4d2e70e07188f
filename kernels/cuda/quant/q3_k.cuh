/* q3_k.cuh - Q3_K on the GPU: q23_k.cuh with the third bit. */
#ifndef HEARTH_CUDA_Q3_K_CUH
#define HEARTH_CUDA_Q3_K_CUH

#include "kernels/cuda/quant/q23_k.cuh"

template <> struct quant<DT_Q3_K> : quant_q23_k<1> {
};

#endif
