/* launch.cuh - how kernels are launched, and how a kernel waits for the previous one. */
#ifndef HEARTH_CUDA_LAUNCH_CUH
#define HEARTH_CUDA_LAUNCH_CUH

#include "kernels/cuda/device.cuh"

/* The only place where kernels are launched; returns false where nothing was launched. `early`: the kernel may start
 * before the previous one has ended; `cluster`: blocks in a thread block cluster, must divide the grid. */
template <typename... P, typename... A>
static inline bool cuda_launch_on(struct device *d, cudaStream_t stream, bool early, uint32_t cluster, void (*k)(P...),
                                  dim3 grid, uint32_t block, size_t smem, A... args)
{
    if (d->err.code || !grid.x || !grid.y || !grid.z)
        return false;
    cudaLaunchAttribute attr[2];
    uint32_t n = 0;
    if (early) {
        attr[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[n++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attr[n].id = cudaLaunchAttributeClusterDimension;
        attr[n].val.clusterDim.x = cluster, attr[n].val.clusterDim.y = attr[n].val.clusterDim.z = 1;
        n++;
    }
    cudaLaunchConfig_t c = {};
    c.gridDim = grid;
    c.blockDim = dim3(block);
    c.dynamicSmemBytes = smem;
    c.stream = stream;
    c.attrs = attr;
    c.numAttrs = n;
    return cuda_ok(d, cudaLaunchKernelEx(&c, k, P(args)...));
}

/*
 * Launches a kernel of a step. LAUNCH_PDL: the kernel calls pdl_wait() before it touches anything that an earlier
 * kernel writes or reads (weights and vectors are constants), and pdl_trigger() as soon as the next kernel may start.
 * Every kernel launched with LAUNCH_PDL must call pdl_wait(), or completion is not transitive. For dynamic shared
 * memory above 48 KiB, call cuda_smem() once, in the file's init.
 */
enum { LAUNCH_PLAIN = 0, LAUNCH_PDL = 1 };

template <typename... P, typename... A>
static inline void cuda_launch_clusters(struct device *d, uint32_t cluster, void (*k)(P...), dim3 grid, uint32_t block,
                                        size_t smem, int flags, A... args)
{
    bool early = d->pdl && d->pdl_chain && (flags & LAUNCH_PDL);
    if (cuda_launch_on(d, d->stream, early, cluster, k, grid, block, smem, args...))
        d->pdl_chain = true;
}
template <typename... P, typename... A>
static inline void cuda_launch(struct device *d, void (*k)(P...), dim3 grid, uint32_t block, size_t smem, int flags,
                               A... args)
{
    cuda_launch_clusters(d, 1, k, grid, block, smem, flags, args...);
}
template <typename K> static inline void cuda_smem(struct device *d, K *k, size_t bytes)
{
    cuda_ok(d, cudaFuncSetAttribute((const void *)k, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    cuda_ok(d, cudaFuncSetAttribute((const void *)k, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
}

__device__ static inline void pdl_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ static inline void pdl_trigger()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif
