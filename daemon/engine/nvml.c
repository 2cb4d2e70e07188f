/* nvml.c - see nvml.h. NVML's header is not needed: the types below are those of its binary interface. */
#include "daemon/engine/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct nvml_device *device_handle;
struct memory_info {
    unsigned long long total, free, used;
};
struct process_info { /* for the functions that end in _v3 */
    unsigned pid;
    unsigned long long bytes; /* all ones: not available */
    unsigned gpu_instance, compute_instance;
};

enum { OK = 0, INSUFFICIENT_SIZE = 7 };

/* NVML's functions, and whether each is required. */
#define CALLS(X)                                                                                                 \
    X(nvmlInit_v2, true, (void))                                                                                 \
    X(nvmlShutdown, true, (void))                                                                                \
    X(nvmlDeviceGetHandleByUUID, true, (const char *uuid, device_handle *out))                                   \
    X(nvmlDeviceGetMemoryInfo, true, (device_handle d, struct memory_info * out))                                \
    X(nvmlDeviceGetComputeRunningProcesses_v3, false, (device_handle d, unsigned *n, struct process_info *out))  \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, false, (device_handle d, unsigned *n, struct process_info *out)) \
    X(nvmlDeviceGetDisplayMode, false, (device_handle d, int *out))

struct nvml {
    void *lib;
    device_handle device;
    bool begun; /* nvmlInit_v2() has succeeded */
#define X(name, needed, params) int(*name) params;
    CALLS(X)
#undef X
};

void nvml_close(struct nvml *n)
{
    if (!n)
        return;
    if (n->begun)
        n->nvmlShutdown();
    if (n->lib)
        dlclose(n->lib);
    free(n);
}

static int find(struct nvml *n, const char *library, struct hearth_err *e)
{
    n->lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!n->lib)
        return err_set(e, HEARTH_EDEVICE, "%.200s", dlerror());
#define X(name, needed, params)                    \
    n->name = (int(*) params)dlsym(n->lib, #name); \
    if (!n->name && needed)                        \
        return err_set(e, HEARTH_EDEVICE, "%.80s has no %s", library, #name);
    CALLS(X)
#undef X
    return 0;
}

static int begin(struct nvml *n, const char *library, const char *uuid, struct hearth_err *e)
{
    char name[64];
    int rc = n->nvmlInit_v2();
    if (rc != OK)
        return err_set(e, HEARTH_EDEVICE, "%.80s does not begin: error %d", library, rc);
    n->begun = true;
    snprintf(name, sizeof name, "GPU-%.8s-%.4s-%.4s-%.4s-%.12s", uuid, uuid + 8, uuid + 12, uuid + 16, uuid + 20);
    rc = n->nvmlDeviceGetHandleByUUID(name, &n->device);
    if (rc != OK)
        return err_set(e, HEARTH_EDEVICE, "%.80s does not know %s: error %d", library, name, rc);
    return 0;
}

int nvml_open(struct nvml **out, const char *library, const char *uuid, struct hearth_err *e)
{
    if (strspn(uuid, "0123456789abcdef") < 32)
        return err_set(e, HEARTH_EDEVICE, "the device has no UUID");
    struct nvml *n = calloc(1, sizeof *n);
    if (!n)
        return err_set(e, HEARTH_ENOMEM, "no memory for NVML");
    int rc = find(n, library, e);
    if (!rc)
        rc = begin(n, library, uuid, e);
    if (rc) {
        nvml_close(n);
        return rc;
    }
    *out = n;
    return 0;
}

/* A process that has contexts of both kinds is reported twice, with the same bytes. */
static void add(struct nvml_memory *out, const struct process_info *p)
{
    uint64_t bytes = p->bytes == ~0ull ? 0 : p->bytes;
    uint32_t at = 0;
    for (uint32_t i = 0; i < out->n; i++)
        if (out->process[i].pid == (int64_t)p->pid) {
            out->process[i].bytes = bytes > out->process[i].bytes ? bytes : out->process[i].bytes;
            return;
        }
    while (at < out->n && out->process[at].bytes >= bytes)
        at++;
    if (at == NVML_PROCESSES_MAX)
        return;
    uint32_t rest = out->n < NVML_PROCESSES_MAX ? out->n - at : out->n - at - 1;
    memmove(&out->process[at + 1], &out->process[at], rest * sizeof out->process[0]);
    out->process[at] = (struct nvml_process){p->pid, bytes};
    out->n += out->n < NVML_PROCESSES_MAX;
}

static void read_processes(int (*list)(device_handle, unsigned *, struct process_info *), device_handle device,
                           struct nvml_memory *out)
{
    struct process_info p[4 * NVML_PROCESSES_MAX];
    unsigned n = sizeof p / sizeof *p;
    int rc = list ? list(device, &n, p) : -1;
    if (rc != OK && rc != INSUFFICIENT_SIZE)
        return;
    if (rc == INSUFFICIENT_SIZE) /* nothing was written */
        n = 0;
    for (unsigned i = 0; i < n; i++)
        add(out, &p[i]);
}

int nvml_read(const struct nvml *n, struct nvml_memory *out, struct hearth_err *e)
{
    struct memory_info m;
    int display = 0, rc = n->nvmlDeviceGetMemoryInfo(n->device, &m);
    if (rc != OK)
        return err_set(e, HEARTH_EDEVICE, "the GPU's memory cannot be read: NVML's error %d", rc);
    *out = (struct nvml_memory){.total = m.total, .free = m.free, .used = m.used};
    if (n->nvmlDeviceGetDisplayMode && n->nvmlDeviceGetDisplayMode(n->device, &display) == OK)
        out->display = display;
    read_processes(n->nvmlDeviceGetComputeRunningProcesses_v3, n->device, out);
    read_processes(n->nvmlDeviceGetGraphicsRunningProcesses_v3, n->device, out);
    return 0;
}
