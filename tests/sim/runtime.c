/*
 * runtime.c - the CUDA runtime on top of the simulator: errors, and the device. Launches, memory, graphs and matrix
 * products have files of their own.
 */
#include "config.h"
#include "tests/sim/runtime.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

/* --- errors --------------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cudaError_t broken;
static _Thread_local cudaError_t last;

cudaError_t rt_enter(void)
{
    pthread_mutex_lock(&lock);
    return broken;
}

cudaError_t rt_leave(cudaError_t rc)
{
    pthread_mutex_unlock(&lock);
    if (rc && rc != cudaErrorNotReady)
        last = rc;
    return rc;
}

void rt_fail(cudaError_t rc)
{
    broken = broken ? broken : rc;
}

RT_API cudaError_t cudaGetLastError(void)
{
    cudaError_t rc = rt_enter();
    rc = rc ? rc : last;
    last = cudaSuccess;
    pthread_mutex_unlock(&lock);
    return rc;
}

RT_API cudaError_t cudaPeekAtLastError(void)
{
    cudaError_t rc = rt_enter();
    rc = rc ? rc : last;
    pthread_mutex_unlock(&lock);
    return rc;
}

RT_API const char *cudaGetErrorString(cudaError_t rc)
{
    switch (rc) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorInvalidMemcpyDirection:
        return "invalid copy direction for memcpy";
    case cudaErrorInvalidDeviceFunction:
        return "invalid device function";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorInvalidPtx:
        return "a PTX JIT compilation failed";
    case cudaErrorInvalidResourceHandle:
        return "invalid resource handle";
    case cudaErrorSymbolNotFound:
        return "named symbol not found";
    case cudaErrorNotReady:
        return "device not ready";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorHostMemoryAlreadyRegistered:
        return "part or all of the requested memory range is already mapped";
    case cudaErrorHostMemoryNotRegistered:
        return "pointer does not correspond to a registered memory region";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    case cudaErrorInvalidClusterSize:
        return "Cluster dimensions are invalid";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnjoined:
        return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
        return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent:
        return "operation not permitted on an event last recorded in a capturing stream";
    default:
        return "an error of the simulated runtime";
    }
}

/* --- the device ----------------------------------------------------------------------------------------------- */

uint64_t rt_setting(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);
    return s && *s ? strtoull(s, NULL, 10) : otherwise;
}

static int sms(void)
{
    return (int)rt_setting("HEARTH_SIM_SMS", 132);
}

RT_API cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}

RT_API cudaError_t cudaSetDevice(int device)
{
    return rt_leave(rt_enter() ? broken : device ? cudaErrorInvalidDevice : cudaSuccess);
}

RT_API cudaError_t cudaDriverGetVersion(int *version)
{
    *version = RUNTIME;
    return cudaSuccess;
}

RT_API cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = RUNTIME;
    return cudaSuccess;
}

RT_API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    size_t avail = 0, total = 0;
    if (device)
        return rt_leave(rt_enter() ? broken : cudaErrorInvalidDevice);
    cudaMemGetInfo(&avail, &total);
    *p = (struct cudaDeviceProp){
        .name = "hearth's simulated H100",
        .uuid.bytes = "hearth simulator",
        .totalGlobalMem = total,
        .sharedMemPerBlock = SHARED_BLOCK,
        .sharedMemPerBlockOptin = SHARED_OPTIN,
        .sharedMemPerMultiprocessor = SHARED_SM,
        .reservedSharedMemPerBlock = SHARED_SM - SHARED_OPTIN,
        .regsPerBlock = 65536,
        .regsPerMultiprocessor = 65536,
        .warpSize = 32,
        .maxThreadsPerBlock = THREADS_BLOCK,
        .maxThreadsPerMultiProcessor = 2048,
        .maxBlocksPerMultiProcessor = 32,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {INT32_MAX, 65535, 65535},
        .totalConstMem = 64 << 10,
        .major = CODE / 10,
        .minor = CODE % 10,
        .multiProcessorCount = sms(),
        .l2CacheSize = 50 << 20,
        .memoryBusWidth = 5120,
        .asyncEngineCount = 3,
        .concurrentKernels = 1,
        .canMapHostMemory = 1,
        .unifiedAddressing = 1,
        .cooperativeLaunch = 1,
        .clusterLaunch = 1,
    };
    return cudaSuccess;
}

RT_API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    cudaError_t rc = rt_enter();
    rc = rc ? rc : device ? cudaErrorInvalidDevice : cudaSuccess;
    switch ((int)attr) {
    case cudaDevAttrMpsEnabled:
        *value = 0;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = sms();
        break;
    case cudaDevAttrClockRate: /* in kHz */
        *value = 1980000;
        break;
    case cudaDevAttrMemoryClockRate:
        *value = 2619000;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = SHARED_OPTIN;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = CODE / 10;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = CODE % 10;
        break;
    default:
        rc = cudaErrorInvalidValue;
    }
    return rt_leave(rc);
}

RT_API cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t rc = rt_enter();
    return rt_leave(rc ? rc : rt_unsafe());
}

RT_API cudaError_t cudaDeviceReset(void)
{
    rt_enter();
    broken = cudaSuccess;
    rt_memory_reset();
    pthread_mutex_unlock(&lock);
    last = cudaSuccess;
    return cudaSuccess;
}
