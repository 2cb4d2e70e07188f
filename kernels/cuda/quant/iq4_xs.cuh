/* iq4_xs.cuh - IQ4_XS on the GPU: no kernels of its own, the upload makes F16 of the weights. */
#ifndef HEARTH_CUDA_IQ4_XS_CUH
#define HEARTH_CUDA_IQ4_XS_CUH

#include "kernels/cuda/gemm/tile16.cuh"

template <> struct quant<DT_IQ4_XS> : quant_expanded {
};

#endif
