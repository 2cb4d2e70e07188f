/* iq2_s.cuh - IQ2_S on the GPU: no kernels of its own; the upload converts the weights to F16. */
#ifndef HEARTH_CUDA_IQ2_S_CUH
#define HEARTH_CUDA_IQ2_S_CUH

#include "kernels/cuda/gemm/tile16.cuh"

template <> struct quant<DT_IQ2_S> : quant_expanded {
};

#endif
