/*
 * nvml.h - what NVIDIA's management library says of one GPU: how much memory is in use, and by which processes. It is
 * opened by dlopen where it is there, and needs no CUDA context.
 *
 * Thread: any, one at a time for one struct nvml.
 */
#ifndef HEARTH_ENGINE_NVML_H
#define HEARTH_ENGINE_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "libclient/err.h"

struct nvml;

enum { NVML_PROCESSES_MAX = 64 };
struct nvml_process {
    int64_t pid;    /* in the namespace of the driver: a container's is another */
    uint64_t bytes; /* 0: not told */
};
struct nvml_memory {
    uint64_t total, free, used; /* bytes of the device; `used` by all processes and the driver */
    bool display;               /* a screen hangs on it */
    uint32_t n;
    struct nvml_process process[NVML_PROCESSES_MAX]; /* those with the most, [n] */
};

/* Opens the library of that name ("libnvidia-ml.so.1"), for the GPU whose UUID is those 32 hex digits. HEARTH_EDEVICE
 * says what is absent. */
int nvml_open(struct nvml **out, const char *library, const char *uuid, struct hearth_err *e);
void nvml_close(struct nvml *n); /* may be NULL */
int nvml_read(const struct nvml *n, struct nvml_memory *out, struct hearth_err *e);

#endif
