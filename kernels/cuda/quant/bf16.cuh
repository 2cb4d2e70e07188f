/* bf16.cuh - BF16 on the GPU: f16.cuh, with weights converted to fp16 when they are multiplied (exact from 6e-5 on). */
#ifndef HEARTH_CUDA_BF16_CUH
#define HEARTH_CUDA_BF16_CUH

#include "kernels/cuda/quant/f16.cuh"

template <> struct quant<DT_BF16> : quant_16<1> {
};

#endif
