/* iq4_nl.cuh - IQ4_NL on the GPU: no kernels of its own, the upload makes F16 of the weights. */
#ifndef HEARTH_CUDA_IQ4_NL_CUH
#define HEARTH_CUDA_IQ4_NL_CUH

#include "kernels/cuda/gemm/tile16.cuh"

template <> struct quant<DT_IQ4_NL> : quant_expanded {
};

#endif
