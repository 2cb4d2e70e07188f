/* backend.c - the table of backends; the only place that knows whether CUDA was built in. */
#include "config.h"

#include "kernels/backend.h"

#include <string.h>

extern const struct backend backend_cpu;
#ifdef HAVE_CUDA
extern const struct backend backend_cuda;
#endif

const struct backend *const backends[] = {
#ifdef HAVE_CUDA
    &backend_cuda,
#endif
    &backend_cpu,
    NULL,
};

const struct backend *backend_find(const char *name)
{
    for (const struct backend *const *b = backends; *b; b++)
        if (!strcmp((*b)->name, name))
            return *b;
    return NULL;
}
