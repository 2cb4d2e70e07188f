/*
 * nvtx.cuh - ranges that a profiler (Nsight Systems) shows on the device thread's timeline. They compile to nothing
 * without --enable-nvtx.
 */
#ifndef HEARTH_CUDA_NVTX_CUH
#define HEARTH_CUDA_NVTX_CUH

#ifdef HEARTH_NVTX
#include <nvtx3/nvToolsExt.h>

/* The range is open while the variable is in scope; ranges of a thread nest. */
struct nvtx_range {
    explicit nvtx_range(const char *name)
    {
        nvtxRangePushA(name);
    }
    ~nvtx_range()
    {
        nvtxRangePop();
    }
};
#define NVTX_RANGE(name) nvtx_range nvtx_range_of_function(name)
#else
#define NVTX_RANGE(name) ((void)0)
#endif

#endif
