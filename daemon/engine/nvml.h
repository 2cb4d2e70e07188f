/*
 * nvml.h - what NVIDIA's management library reports of one GPU: how much memory is in use, and by which processes. The
 * library is loaded with dlopen if it is installed, and needs no CUDA context.
 *
 * Thread: any, but only one at a time for each struct nvml.
 */
#ifndef HEARTH_ENGINE_NVML_H
#define HEARTH_ENGINE_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "libclient/err.h"

struct nvml;

enum { NVML_PROCESSES_MAX = 64 };
struct nvml_process {
    int64_t pid;    /* in the driver's PID namespace, which differs from a container's */
    uint64_t bytes; /* 0 if not reported */
};
struct nvml_memory {
    uint64_t total, free, used; /* bytes of the device; `used` by all processes and the driver */
    bool display;               /* a display is attached to it */
    uint32_t n;
    struct nvml_process process[NVML_PROCESSES_MAX]; /* [n], those that use the most */
};

/* Loads the library of that name ("libnvidia-ml.so.1") for the GPU whose UUID is these 32 hex digits. HEARTH_EDEVICE
 * says what is missing. */
int nvml_open(struct nvml **out, const char *library, const char *uuid, struct hearth_err *e);
void nvml_close(struct nvml *n); /* may be NULL */
int nvml_read(const struct nvml *n, struct nvml_memory *out, struct hearth_err *e);

#endif
