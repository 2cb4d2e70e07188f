/*
 * fake-driver.c - a stand-in for libcuda.so.1 for driver.sh: the calls that the CUDA runtime makes before it has a
 * device.
 *
 * $FAKE_DRIVER is the driver's version in its own form (11040), $FAKE_INIT the result of cuInit() (100: no device).
 */
#include <stdlib.h>
#include <string.h>

/* The driver's own names and numbers, declared here because its header may be missing. */
int cuDriverGetVersion(int *version);
int cuInit(unsigned flags);
int cuDeviceGetCount(int *n);
int cuGetExportTable(const void **table, const void *id);
int cuGetProcAddress(const char *name, void **out, int version, unsigned long long flags);
int cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long long flags, int *found);

static int number(const char *variable, int otherwise)
{
    const char *s = getenv(variable);
    return s ? atoi(s) : otherwise;
}

int cuDriverGetVersion(int *version)
{
    *version = number("FAKE_DRIVER", 99000);
    return 0;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return number("FAKE_INIT", 100);
}

int cuDeviceGetCount(int *n)
{
    *n = 0;
    return 0;
}

int cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    *table = NULL;
    return 500; /* not found */
}

static int unknown(void)
{
    return 999;
}

int cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long long flags, int *found)
{
    static const struct {
        const char *name;
        void *f;
    } known[] = {{"cuDriverGetVersion", cuDriverGetVersion},
                 {"cuInit", cuInit},
                 {"cuDeviceGetCount", cuDeviceGetCount},
                 {"cuGetExportTable", cuGetExportTable},
                 {"cuGetProcAddress", cuGetProcAddress_v2}};
    (void)version, (void)flags;
    *out = unknown;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name))
            *out = known[i].f;
    if (found)
        *found = 0;
    return 0;
}

int cuGetProcAddress(const char *name, void **out, int version, unsigned long long flags)
{
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}
