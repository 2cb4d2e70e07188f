/*
 * runtime.h - shared by the files of the simulated CUDA runtime.
 *
 * Work is done at once, in the thread that submits it, one piece at a time (rt_enter() takes the lock), so a stream is
 * merely the place where a capture records what is submitted. An error of a kernel is sticky, as in CUDA, until
 * cudaDeviceReset().
 */
#ifndef HEARTH_SIM_RUNTIME_H
#define HEARTH_SIM_RUNTIME_H

#include "tests/sim/sim.h"

#include <cuda_runtime_api.h>

enum {
    SHARED_BLOCK = 48 << 10,  /* without an attribute */
    SHARED_OPTIN = 227 << 10, /* with it */
    SHARED_SM = 228 << 10,
    THREADS_BLOCK = 1024,
    CLUSTER_MAX = 8,
    PARAMS_MOST = 32764,
    CODE = 90,
    RUNTIME = CUDART_VERSION,
};

/* Symbols that the shared library exports; all others are internal. */
#define RT_API __attribute__((visibility("default")))

/* Takes the lock and returns the sticky error. rt_leave() releases the lock and records the error for
 * cudaGetLastError(). */
cudaError_t rt_enter(void);
cudaError_t rt_leave(cudaError_t);
/* Marks the device as failed with a sticky error. */
void rt_fail(cudaError_t);
/* A number from the environment, or `otherwise`. */
uint64_t rt_setting(const char *name, uint64_t otherwise);

/* --- memory (runtime-memory.c) -------------------------------------------------------------------------------- */

/* Whether kernels may access all of these bytes. */
bool rt_may_touch(const void *p, size_t n);
void rt_memory_reset(void);
/* Like memset(); setting much device memory to 0 costs nothing for pages that have not been touched. */
void rt_set(void *p, int value, size_t n);

/* --- work (runtime-graph.c) ----------------------------------------------------------------------------------- */

enum rt_kind { RT_KERNEL, RT_COPY, RT_SET, RT_CALL };
struct rt_work {
    enum rt_kind kind;
    void *data; /* a kernel's parameters, or the argument of `call` */
    size_t data_bytes;
    struct sim_fn *fn;
    struct sim_launch launch;
    void (*call)(void *data);
    /* copies and sets: rows of `width` bytes */
    uint8_t *dst;
    const uint8_t *src;
    size_t dst_pitch, src_pitch, width, height;
    int value;
};
/* Does the work or, if the stream is capturing, records it with a copy of its data. */
cudaError_t rt_work(cudaStream_t, const struct rt_work *);
/* An error if this thread is capturing, which ends the capture: for calls that are forbidden during one. */
cudaError_t rt_unsafe(void);

#endif
