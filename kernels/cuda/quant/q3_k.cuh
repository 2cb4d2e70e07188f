/* q3_k.cuh - Q3_K on the GPU: no kernels of its own, the upload makes F16 of the weights. */
#ifndef HEARTH_CUDA_Q3_K_CUH
#define HEARTH_CUDA_Q3_K_CUH

#include "kernels/cuda/gemm/tile16.cuh"

template <> struct quant<DT_Q3_K> : quant_expanded {
};

#endif
