/*
 * runtime-launch.c - the code that nvcc embeds in a program, and its launches.
 */
#include "config.h"
#include "tests/sim/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the code that nvcc embeds -------------------------------------------------------------------------------- */

/* The argument of __cudaRegisterFatBinary(), and what it points to: a header, then entries, each with a header of its
 * own and its bytes. */
struct fat_wrapper {
    uint32_t magic, version;
    const uint8_t *data;
    void *unused;
};
struct fat_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes; /* bytes of all entries */
};
struct fat_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t packed_bytes, options; /* packed_bytes 0: not compressed */
    uint32_t isa, arch, name, name_bytes;
    uint64_t flags, unused, plain_bytes;
};
enum { FAT_WRAPPER = 0x466243b1, FAT_MAGIC = 0xba55ed50, FAT_PTX = 1, FAT_LZ4 = 0x2000 };

struct module {
    const uint8_t *ptx;
    size_t n, n_plain;      /* n_plain: size after decompression by LZ4; 0: not compressed */
    struct sim_module *sim; /* loaded at the first launch */
    bool tried;
};

struct kernel {
    const void *host; /* the address by which the program identifies it */
    const char *name;
    struct module *module;
    struct sim_fn *fn;
    uint32_t dynamic_shared; /* the attribute; 0 until it is set */
};

/* Kernels by their host address: a hash table whose size is a power of two, of pointers that stay valid. */
static struct {
    struct kernel **v;
    size_t n, cap;
} kernels;

static size_t slot_of(struct kernel *const *v, size_t cap, const void *host)
{
    size_t i = (size_t)(((uintptr_t)host >> 4) * 0x9e3779b97f4a7c15u) & (cap - 1);
    while (v[i] && v[i]->host != host)
        i = (i + 1) & (cap - 1);
    return i;
}

static void *must(void *p)
{
    if (p)
        return p;
    fputs("sim: no memory\n", stderr);
    abort();
}

static void kernels_grow(void)
{
    size_t cap = kernels.cap ? 2 * kernels.cap : 1024;
    struct kernel **v = must(calloc(cap, sizeof(struct kernel *)));
    for (size_t i = 0; i < kernels.cap; i++)
        if (kernels.v[i])
            v[slot_of(v, cap, kernels.v[i]->host)] = kernels.v[i];
    free(kernels.v);
    kernels.v = v;
    kernels.cap = cap;
}

/* The kernel of a function's address, or of the handle from __cudaGetKernel(). */
static struct kernel *kernel_of(const void *func)
{
    struct kernel *k = kernels.cap ? kernels.v[slot_of(kernels.v, kernels.cap, func)] : NULL;
    for (size_t i = 0; !k && i < kernels.cap; i++)
        if (kernels.v[i] == func)
            k = kernels.v[i];
    return k;
}

/* Functions that nvcc calls; no header declares all of them for C. */
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
                            uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp);
void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int ext, size_t bytes, int constant,
                       int global);
char __cudaInitModule(void **handle);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                               cudaStream_t stream);

RT_API void **__cudaRegisterFatBinary(void *p)
{
    const struct fat_wrapper *w = p;
    const struct fat_header *h = (const void *)w->data;
    struct module *m = must(calloc(1, sizeof(*m)));
    if (w->magic != FAT_WRAPPER || h->magic != FAT_MAGIC) {
        fputs("sim: this is not device code as nvcc embeds it\n", stderr);
        return (void **)m;
    }
    struct fat_entry e;
    const uint8_t *end = w->data + h->header_bytes + h->bytes;
    for (const uint8_t *at = w->data + h->header_bytes; at < end; at += e.header_bytes + e.bytes) {
        memcpy(&e, at, sizeof(e));
        if (e.kind != FAT_PTX || e.arch != CODE)
            continue;
        if (e.packed_bytes && !(e.flags & FAT_LZ4)) {
            fputs("sim: this PTX is compressed otherwise than by -compress-mode=speed\n", stderr);
            continue;
        }
        m->ptx = at + e.header_bytes;
        m->n = e.packed_bytes ? e.packed_bytes : e.bytes;
        m->n_plain = e.packed_bytes ? e.plain_bytes : 0;
    }
    return (void **)m;
}

RT_API void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

RT_API void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle; /* called when the process ends */
}

RT_API char __cudaInitModule(void **handle)
{
    (void)handle; /* needed for managed variables */
    return 1;
}

RT_API void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
                                   uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp)
{
    (void)device, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    rt_enter();
    if (2 * kernels.n >= kernels.cap)
        kernels_grow();
    struct kernel **at = &kernels.v[slot_of(kernels.v, kernels.cap, host)];
    if (!*at) {
        *at = must(calloc(1, sizeof(**at)));
        kernels.n++;
    }
    (*at)->host = host;
    (*at)->name = name;
    (*at)->module = (struct module *)handle;
    rt_leave(cudaSuccess);
}

RT_API void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int ext, size_t bytes,
                              int constant, int global)
{
    /* Modules have variables, but no program here accesses one from the host. */
    (void)handle, (void)host, (void)address, (void)name, (void)ext, (void)bytes, (void)constant, (void)global;
}

/* A length in LZ4: four bits; 15 means that bytes follow, each of which continues if it is 255. */
static size_t lz4_length(const uint8_t **in, const uint8_t *end, unsigned bits)
{
    size_t n = bits;
    for (uint8_t more = bits == 15 ? 255 : 0; more == 255 && *in < end; n += more)
        more = *(*in)++;
    return n;
}

/* Decompresses a block of LZ4: runs of literals, and copies of earlier output. False: it is not valid. */
static bool lz4_unpack(const uint8_t *in, size_t n_in, char *out, size_t n_out)
{
    const uint8_t *end = in + n_in;
    size_t at = 0;
    while (in < end) {
        uint8_t token = *in++;
        size_t n = lz4_length(&in, end, token >> 4);
        if (n > (size_t)(end - in) || n > n_out - at)
            return false;
        memcpy(out + at, in, n);
        in += n, at += n;
        if (end - in < 2) /* the last run is not followed by a copy */
            break;
        size_t back = in[0] | (size_t)in[1] << 8;
        in += 2;
        n = lz4_length(&in, end, token & 15) + 4;
        if (!back || back > at || n > n_out - at)
            return false;
        for (; n; n--, at++)
            out[at] = out[at - back];
    }
    return at == n_out;
}

static struct sim_module *load_module(const struct module *m)
{
    const char *ptx = (const char *)m->ptx;
    if (!m->n_plain)
        return sim_load(ptx, strnlen(ptx, m->n));
    char *plain = must(malloc(m->n_plain)); /* lives as long as the module */
    if (!lz4_unpack(m->ptx, m->n, plain, m->n_plain)) {
        fputs("sim: this PTX is no block of LZ4\n", stderr);
        free(plain);
        return NULL;
    }
    return sim_load(plain, strnlen(plain, m->n_plain));
}

/* The simulator's kernel; its module is loaded when one of its kernels is first needed. */
static cudaError_t load(struct kernel *k)
{
    struct module *m = k ? k->module : NULL;
    if (!m || !m->ptx)
        return cudaErrorInvalidDeviceFunction;
    if (!m->tried)
        m->sim = load_module(m);
    m->tried = true;
    if (!m->sim)
        return cudaErrorInvalidPtx;
    if (!k->fn)
        k->fn = sim_function(m->sim, k->name);
    if (!k->fn)
        return cudaErrorInvalidDeviceFunction;
    return sim_info(k->fn) ? cudaSuccess : cudaErrorInvalidPtx;
}

RT_API cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
    cudaError_t rc = rt_enter();
    struct kernel *k = kernel_of(func);
    if (!rc && !k)
        rc = cudaErrorInvalidDeviceFunction;
    if (rc)
        return rt_leave(rc);
    switch ((int)attr) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
        if (value < 0 || value > SHARED_OPTIN)
            return rt_leave(cudaErrorInvalidValue);
        /* plus the kernel's static shared memory, which only its module knows */
        if (value > SHARED_OPTIN - SHARED_BLOCK && (rc = load(k)))
            return rt_leave(rc);
        if (value > SHARED_OPTIN - SHARED_BLOCK && value > SHARED_OPTIN - (int)sim_info(k->fn)->static_shared)
            return rt_leave(cudaErrorInvalidValue);
        k->dynamic_shared = (uint32_t)value;
        return rt_leave(cudaSuccess);
    case cudaFuncAttributePreferredSharedMemoryCarveout:
        return rt_leave(value < -1 || value > 100 ? cudaErrorInvalidValue : cudaSuccess);
    default:
        return rt_leave(cudaErrorInvalidValue);
    }
}

static uint32_t dynamic_most(const struct kernel *k, const struct sim_fn_info *f)
{
    uint32_t all = k->dynamic_shared ? SHARED_OPTIN : SHARED_BLOCK;
    uint32_t most = f->static_shared < all ? all - f->static_shared : 0;
    return k->dynamic_shared && k->dynamic_shared < most ? k->dynamic_shared : most;
}

static uint32_t threads_most(const struct sim_fn_info *f)
{
    return f->max_threads && f->max_threads < THREADS_BLOCK ? f->max_threads : THREADS_BLOCK;
}

RT_API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *func)
{
    cudaError_t rc = rt_enter();
    struct kernel *k = kernel_of(func);
    if (rc || (rc = load(k)))
        return rt_leave(rc);
    const struct sim_fn_info *f = sim_info(k->fn);
    *a = (struct cudaFuncAttributes){
        .sharedSizeBytes = f->static_shared,
        .localSizeBytes = f->local_bytes,
        .maxThreadsPerBlock = (int)threads_most(f),
        .numRegs = 64,
        .ptxVersion = CODE,
        .binaryVersion = CODE,
        .maxDynamicSharedSizeBytes = (int)dynamic_most(k, f),
    };
    return rt_leave(cudaSuccess);
}

/* --- launches ------------------------------------------------------------------------------------------------- */

static struct sim_dims dims_of(dim3 d)
{
    return (struct sim_dims){d.x, d.y, d.z};
}

static uint64_t count(struct sim_dims d)
{
    return (uint64_t)d.x * d.y * d.z;
}

static cudaError_t check_launch(const struct kernel *k, struct sim_launch *l)
{
    const struct sim_fn_info *f = sim_info(k->fn);
    if (!l->cluster.x)
        l->cluster = f->cluster.x ? f->cluster : (struct sim_dims){1, 1, 1};
    else if (f->cluster.x && memcmp(&l->cluster, &f->cluster, sizeof(f->cluster)))
        return cudaErrorInvalidClusterSize;
    const struct sim_dims g = l->grid, b = l->block, c = l->cluster;
    if (!count(g) || !count(b) || g.x > INT32_MAX || g.y > 65535 || g.z > 65535 || count(b) > THREADS_BLOCK || b.z > 64)
        return cudaErrorInvalidConfiguration;
    if (count(b) > threads_most(f) || l->dynamic_shared > dynamic_most(k, f))
        return cudaErrorInvalidValue;
    if (!count(c) || count(c) > CLUSTER_MAX)
        return cudaErrorInvalidClusterSize;
    if (g.x % c.x || g.y % c.y || g.z % c.z)
        return cudaErrorInvalidConfiguration;
    return cudaSuccess;
}

/* Call with the lock held. */
static cudaError_t launch(const void *func, struct sim_launch *l, void **args, cudaStream_t stream)
{
    struct kernel *k = kernel_of(func);
    static uint64_t params[PARAMS_MOST / 8 + 1]; /* only one launch at a time */
    cudaError_t rc = load(k);
    if (rc || (rc = check_launch(k, l)))
        return rc;
    const struct sim_fn_info *f = sim_info(k->fn);
    if (f->params_bytes > PARAMS_MOST)
        return cudaErrorInvalidValue;
    memset(params, 0, f->params_bytes);
    for (uint32_t i = 0; i < f->n_params; i++)
        memcpy((uint8_t *)params + f->param_offset[i], args[i], f->param_bytes[i]);
    struct rt_work w = {.kind = RT_KERNEL, .fn = k->fn, .launch = *l, .data = params, .data_bytes = f->params_bytes};
    return rt_work(stream, &w);
}

RT_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *func, void **args)
{
    struct sim_launch l = {dims_of(c->gridDim), dims_of(c->blockDim), {0, 0, 0}, (uint32_t)c->dynamicSmemBytes};
    cudaError_t rc = rt_enter();
    if (c->dynamicSmemBytes > UINT32_MAX)
        rc = rc ? rc : cudaErrorInvalidValue;
    for (unsigned i = 0; !rc && i < c->numAttrs; i++)
        switch ((int)c->attrs[i].id) {
        case cudaLaunchAttributeClusterDimension:
            l.cluster = (struct sim_dims){c->attrs[i].val.clusterDim.x, c->attrs[i].val.clusterDim.y,
                                          c->attrs[i].val.clusterDim.z};
            break;
        case cudaLaunchAttributeProgrammaticStreamSerialization: /* each kernel ends before the next one begins anyway
                                                                  */
        case cudaLaunchAttributeCooperative:
        case cudaLaunchAttributeIgnore:
            break;
        default:
            fprintf(stderr, "sim: launch attribute %d is not known here\n", (int)c->attrs[i].id);
            rc = cudaErrorInvalidValue;
        }
    return rt_leave(rc ? rc : launch(func, &l, args, c->stream));
}

RT_API cudaError_t cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args, size_t shared,
                                    cudaStream_t stream)
{
    cudaLaunchConfig_t c = {.gridDim = grid, .blockDim = block, .dynamicSmemBytes = shared, .stream = stream};
    return cudaLaunchKernelExC(&c, func, args);
}

RT_API cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host)
{
    cudaError_t rc = rt_enter();
    struct kernel *k = kernel_of(host);
    *out = (cudaKernel_t)k;
    return rt_leave(rc ? rc : k ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

RT_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                      cudaStream_t stream)
{
    const struct kernel *k = (const void *)kernel;
    return cudaLaunchKernel(k ? k->host : NULL, grid, block, args, shared, stream);
}

/* kernel<<<...>>>(...) pushes a configuration and calls a stub that pops it. */
static _Thread_local cudaLaunchConfig_t pushed;

RT_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream)
{
    pushed = (cudaLaunchConfig_t){.gridDim = grid, .blockDim = block, .dynamicSmemBytes = shared, .stream = stream};
    return 0;
}

RT_API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = pushed.gridDim;
    *block = pushed.blockDim;
    *shared = pushed.dynamicSmemBytes;
    *(cudaStream_t *)stream = pushed.stream;
    return cudaSuccess;
}
