/* fake-nvml.c - a stand-in for libnvidia-ml.so.1; what it reports is in fake_nvml. */
#include "tests/unit/engine/fake-nvml.h"

#include <stdio.h>

struct fake_nvml fake_nvml;

/* The library's own names. */
int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3]);
int nvmlDeviceGetDisplayMode(void *device, int *out);
struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process *out);
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *n, struct process *out);

int nvmlInit_v2(void)
{
    fake_nvml.begun += !fake_nvml.init;
    return fake_nvml.init;
}

int nvmlShutdown(void)
{
    fake_nvml.begun--;
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **out)
{
    snprintf(fake_nvml.uuid, sizeof fake_nvml.uuid, "%s", uuid);
    *out = &fake_nvml;
    return fake_nvml.handle;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3])
{
    const struct fake_nvml *f = device;
    fake_nvml.looks++;
    out[0] = f->total;
    out[1] = f->free;
    out[2] = f->used;
    return f->read;
}

int nvmlDeviceGetDisplayMode(void *device, int *out)
{
    *out = ((const struct fake_nvml *)device)->display;
    return 0;
}

/* Like the library, reports only the number of entries if the array is too small. */
static int list(const struct fake_list *l, unsigned *n, struct process *out)
{
    unsigned room = *n;
    *n = l->n;
    if (l->n > room)
        return 7;
    for (unsigned i = 0; i < l->n; i++)
        out[i] = (struct process){l->v[i].pid, l->v[i].bytes, ~0u, ~0u};
    return l->rc;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process *out)
{
    return list(&((const struct fake_nvml *)device)->compute, n, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *n, struct process *out)
{
    return list(&((const struct fake_nvml *)device)->graphics, n, out);
}
