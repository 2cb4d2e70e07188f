/* mxfp4.cuh - MXFP4 on the GPU: no kernels of its own, the upload makes F16 of the weights. */
#ifndef HEARTH_CUDA_MXFP4_CUH
#define HEARTH_CUDA_MXFP4_CUH

#include "kernels/cuda/gemm/tile16.cuh"

template <> struct quant<DT_MXFP4> : quant_expanded {
};

#endif
