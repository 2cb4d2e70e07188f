/*
 * runtime.h - what the files of the simulated CUDA runtime share.
 *
 * Work is done at once and in the thread that asks for it, one at a time (rt_enter takes the lock), so that a stream is
 * no more than the place where a capture writes down what is asked for. An error of a kernel sticks, as CUDA's do,
 * until cudaDeviceReset().
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

/* What the shared library shows of itself; all else of it is its own. */
#define RT_API __attribute__((visibility("default")))

/* Takes the lock; the error that sticks. rt_leave() gives the lock back and notes the error for cudaGetLastError(). */
cudaError_t rt_enter(void);
cudaError_t rt_leave(cudaError_t);
/* The device is at its end. */
void rt_fail(cudaError_t);
/* A number from the environment. */
uint64_t rt_setting(const char *name, uint64_t otherwise);

/* --- memory (runtime-memory.c) -------------------------------------------------------------------------------- */

/* Whether kernels may touch all of these bytes. */
bool rt_may_touch(const void *p, size_t n);
void rt_memory_reset(void);
/* memset(); of much of the device's memory to 0, pages that nobody has touched since cost nothing. */
void rt_set(void *p, int value, size_t n);

/* --- work (runtime-graph.c) ----------------------------------------------------------------------------------- */

enum rt_kind { RT_KERNEL, RT_COPY, RT_SET, RT_CALL };
struct rt_work {
    enum rt_kind kind;
    void *data; /* a kernel's parameters, or what `call` is given */
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
/* Does it, or writes it down with a copy of its data where the stream captures. */
cudaError_t rt_work(cudaStream_t, const struct rt_work *);
/* An error where this thread captures: a call that a capture forbids ends it. */
cudaError_t rt_unsafe(void);

#endif
