/* q5_1.cuh - Q5_1 on the GPU: no kernels of its own, the upload makes F16 of the weights. */
#ifndef HEARTH_CUDA_Q5_1_CUH
#define HEARTH_CUDA_Q5_1_CUH

#include "kernels/cuda/gemm/tile16.cuh"

template <> struct quant<DT_Q5_1> : quant_expanded {
};

#endif
