/* iq2_xs.cuh - IQ2_XS on the GPU: no kernels of its own; the upload converts the weights to F16. */
#ifndef HEARTH_CUDA_IQ2_XS_CUH
#define HEARTH_CUDA_IQ2_XS_CUH

#include "kernels/cuda/gemm/tile16.cuh"

template <> struct quant<DT_IQ2_XS> : quant_expanded {
};

#endif
