/* iq2_xxs.cuh - IQ2_XXS on the GPU: no kernels of its own; the upload converts the weights to F16. */
#ifndef HEARTH_CUDA_IQ2_XXS_CUH
#define HEARTH_CUDA_IQ2_XXS_CUH

#include "kernels/cuda/gemm/tile16.cuh"

template <> struct quant<DT_IQ2_XXS> : quant_expanded {
};

#endif
