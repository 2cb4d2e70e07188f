/* nvfp4.cuh - NVFP4 on the GPU: no kernels of its own; the upload converts the weights to F16. */
#ifndef HEARTH_CUDA_NVFP4_CUH
#define HEARTH_CUDA_NVFP4_CUH

#include "kernels/cuda/gemm/tile16.cuh"

template <> struct quant<DT_NVFP4> : quant_expanded {
};

#endif
