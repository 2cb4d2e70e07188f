/*
 * runtime-memory.c - the simulated GPU's memory: device memory, pinned host memory, and the driver's virtual memory
 * management.
 *
 * New memory is 0xff in every byte, which is NaN in every floating point type, so that reads of uninitialised memory
 * are noticed.
 */
#include "config.h"
#include "tests/sim/runtime.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRANULE = 2 << 20, ALIGN = 256, ONES = 16 << 20 };

/* --- memory that kernels may access --------------------------------------------------------------------------- */

enum kind { DEVICE, PINNED, REGISTERED, MAPPED };
struct block {
    uintptr_t at;
    size_t n;
    enum kind kind;
};
/* By address; a few thousand at most. */
static struct {
    struct block *v;
    size_t n, cap;
} blocks;
static uint64_t used; /* bytes of the device's memory */

static uint64_t total_bytes(void)
{
    return rt_setting("HEARTH_SIM_MEMORY", 4096) << 20;
}

/* The number of blocks that begin at or before this address. */
static size_t upto(uintptr_t at)
{
    size_t lo = 0, hi = blocks.n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (blocks.v[mid].at <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static struct block *block_at(const void *p)
{
    size_t i = upto((uintptr_t)p);
    return i && blocks.v[i - 1].at == (uintptr_t)p ? &blocks.v[i - 1] : NULL;
}

static bool overlaps(uintptr_t at, size_t n)
{
    size_t i = upto(at + n - 1);
    return i && blocks.v[i - 1].at + blocks.v[i - 1].n > at;
}

static bool note(void *p, size_t n, enum kind kind)
{
    if (blocks.n == blocks.cap) {
        size_t cap = blocks.cap ? 2 * blocks.cap : 256;
        struct block *v = realloc(blocks.v, cap * sizeof(*v));
        if (!v)
            return false;
        blocks.v = v;
        blocks.cap = cap;
    }
    size_t i = upto((uintptr_t)p);
    memmove(&blocks.v[i + 1], &blocks.v[i], (blocks.n++ - i) * sizeof(*blocks.v));
    blocks.v[i] = (struct block){(uintptr_t)p, n, kind};
    sim_memory_add(p, n);
    return true;
}

static void forget(struct block *b)
{
    sim_memory_remove((void *)b->at);
    memmove(b, b + 1, (size_t)(blocks.v + --blocks.n - b) * sizeof(*b));
}

enum where { NOWHERE, ON_DEVICE, ON_HOST };

/* The kind of memory in which all of these bytes are, if kernels may access them; adjacent mappings count as one. */
static enum where where_is(const void *p, size_t n)
{
    uintptr_t at = (uintptr_t)p, end = at + n;
    size_t i = upto(at);
    if (!i || blocks.v[i - 1].at + blocks.v[i - 1].n <= at)
        return NOWHERE;
    i--;
    enum where where = blocks.v[i].kind == DEVICE || blocks.v[i].kind == MAPPED ? ON_DEVICE : ON_HOST;
    for (; blocks.v[i].at + blocks.v[i].n < end; i++)
        if (i + 1 == blocks.n || blocks.v[i].kind != MAPPED || blocks.v[i + 1].kind != MAPPED ||
            blocks.v[i].at + blocks.v[i].n != blocks.v[i + 1].at)
            return NOWHERE;
    return where;
}

bool rt_may_touch(const void *p, size_t n)
{
    return !n || where_is(p, n) != NOWHERE;
}

/* --- blocks --------------------------------------------------------------------------------------------------- */

/* Whole pages follow every block, so that an overrun that the simulator misses reaches an unmapped page. */
static size_t pages(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (n + page - 1) & ~(page - 1);
}

/* A file of ONES bytes of 0xff; -1 if it cannot be created. */
static int ones(void)
{
    static int fd = -1;
    if (fd >= 0 || (fd = memfd_create("ones", MFD_CLOEXEC)) < 0)
        return fd;
    void *p = ftruncate(fd, ONES) ? MAP_FAILED : mmap(NULL, ONES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        close(fd);
        return fd = -1;
    }
    memset(p, 0xff, ONES);
    munmap(p, ONES);
    return fd;
}

/* Consecutive private mappings of that file, since a device has far more memory than is ever used. */
static void *fresh(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *p = mmap(NULL, pages(n) + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    for (size_t at = 0, piece; at < pages(n); at += piece) {
        piece = pages(n) - at < ONES ? pages(n) - at : ONES;
        if (mmap(p + at, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, ones(), 0) ==
            MAP_FAILED) {
            munmap(p, pages(n) + page);
            return NULL;
        }
    }
    return p;
}

void rt_set(void *p, int value, size_t n)
{
    enum { MUCH = 1 << 20 };
    uintptr_t at = (uintptr_t)p, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (at + page - 1) & ~(page - 1), to = (at + n) & ~(page - 1);
    size_t i = upto(at);
    bool own = i && blocks.v[i - 1].kind == DEVICE && at + n <= blocks.v[i - 1].at + blocks.v[i - 1].n;
    if (value || n < MUCH || !own ||
        mmap((void *)from, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0) == MAP_FAILED) {
        memset(p, value, n);
        return;
    }
    memset(p, 0, from - at);
    memset((void *)to, 0, at + n - to);
}

static void gone(struct block *b)
{
    void *p = (void *)b->at;
    size_t n = b->n;
    if (b->kind == DEVICE)
        used -= n;
    forget(b);
    munmap(p, pages(n) + (size_t)sysconf(_SC_PAGESIZE));
}

static cudaError_t give(void **out, size_t n, enum kind kind)
{
    *out = NULL;
    if (!n)
        return cudaSuccess;
    if (kind == DEVICE && (n > total_bytes() || used + n > total_bytes()))
        return cudaErrorMemoryAllocation;
    void *p = fresh(n);
    if (!p)
        return cudaErrorMemoryAllocation;
    if (!note(p, n, kind)) {
        munmap(p, pages(n) + (size_t)sysconf(_SC_PAGESIZE));
        return cudaErrorMemoryAllocation;
    }
    used += kind == DEVICE ? n : 0;
    *out = p;
    return cudaSuccess;
}

static cudaError_t give_back(void *p, enum kind kind)
{
    struct block *b = p ? block_at(p) : NULL;
    if (p && (!b || b->kind != kind)) {
        fputs("sim: memory is freed by a function that is not its own\n", stderr); /* lib.sh: a case that failed */
        return cudaErrorInvalidValue;
    }
    if (b)
        gone(b);
    return cudaSuccess;
}

RT_API cudaError_t cudaMalloc(void **out, size_t n)
{
    cudaError_t rc = rt_enter();
    rc = rc ? rc : rt_unsafe();
    return rt_leave(rc ? rc : give(out, n, DEVICE));
}

RT_API cudaError_t cudaFree(void *p)
{
    cudaError_t rc = rt_enter();
    rc = rc ? rc : rt_unsafe();
    return rt_leave(rc ? rc : give_back(p, DEVICE));
}

RT_API cudaError_t cudaHostAlloc(void **out, size_t n, unsigned flags)
{
    (void)flags;
    cudaError_t rc = rt_enter();
    rc = rc ? rc : rt_unsafe();
    return rt_leave(rc ? rc : give(out, n, PINNED));
}

RT_API cudaError_t cudaFreeHost(void *p)
{
    cudaError_t rc = rt_enter();
    rc = rc ? rc : rt_unsafe();
    return rt_leave(rc ? rc : give_back(p, PINNED));
}

RT_API cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags)
{
    (void)flags;
    cudaError_t rc = rt_enter();
    if (!rc && (!p || !n))
        rc = cudaErrorInvalidValue;
    if (!rc && overlaps((uintptr_t)p, n))
        rc = cudaErrorHostMemoryAlreadyRegistered;
    if (!rc && !note(p, n, REGISTERED))
        rc = cudaErrorMemoryAllocation;
    return rt_leave(rc);
}

RT_API cudaError_t cudaHostUnregister(void *p)
{
    cudaError_t rc = rt_enter();
    struct block *b = block_at(p);
    if (!rc && (!b || b->kind != REGISTERED))
        rc = cudaErrorHostMemoryNotRegistered;
    if (!rc)
        forget(b);
    return rt_leave(rc);
}

RT_API cudaError_t cudaMemGetInfo(size_t *avail, size_t *total)
{
    cudaError_t rc = rt_enter();
    *total = total_bytes();
    *avail = used < *total ? *total - used : 0;
    return rt_leave(rc);
}

void rt_memory_reset(void)
{
    for (size_t i = blocks.n; i--;)
        if (blocks.v[i].kind == DEVICE)
            gone(&blocks.v[i]);
}

/* --- copies --------------------------------------------------------------------------------------------------- */

static size_t span(size_t pitch, size_t width, size_t height)
{
    return height ? (height - 1) * pitch + width : 0;
}

/* Whether a side of a copy is in the kind of memory that was specified. Pinned memory counts as either. */
static bool side_ok(const void *p, size_t n, bool device)
{
    enum where is = where_is(p, n);
    return device ? is != NOWHERE : is != ON_DEVICE && where_is(p, 1) != ON_DEVICE;
}

static cudaError_t copy(const struct rt_work *w, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    bool to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (!w->width || !w->height)
        return cudaSuccess;
    if (!w->dst || !w->src || w->width > w->dst_pitch || w->width > w->src_pitch)
        return cudaErrorInvalidValue;
    if (kind != cudaMemcpyDefault && (!side_ok(w->dst, span(w->dst_pitch, w->width, w->height), to) ||
                                      !side_ok(w->src, span(w->src_pitch, w->width, w->height), from)))
        return cudaErrorInvalidValue;
    return rt_work(stream, w);
}

RT_API cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                                     size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct rt_work w = {.kind = RT_COPY, .dst = dst, .src = src, .width = width, .height = height};
    w.dst_pitch = dst_pitch, w.src_pitch = src_pitch;
    cudaError_t rc = rt_enter();
    return rt_leave(rc ? rc : copy(&w, kind, stream));
}

RT_API cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return cudaMemcpy2DAsync(dst, n, src, n, n, 1, kind, stream);
}

RT_API cudaError_t cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                                size_t height, enum cudaMemcpyKind kind)
{
    struct rt_work w = {.kind = RT_COPY, .dst = dst, .src = src, .width = width, .height = height};
    w.dst_pitch = dst_pitch, w.src_pitch = src_pitch;
    cudaError_t rc = rt_enter();
    rc = rc ? rc : rt_unsafe();
    return rt_leave(rc ? rc : copy(&w, kind, NULL));
}

RT_API cudaError_t cudaMemcpy(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind)
{
    return cudaMemcpy2D(dst, n, src, n, n, 1, kind);
}

static cudaError_t set(void *dst, int value, size_t n, cudaStream_t stream)
{
    struct rt_work w = {.kind = RT_SET, .dst = dst, .value = value, .dst_pitch = n, .width = n, .height = 1};
    if (!n)
        return cudaSuccess;
    return rt_may_touch(dst, n) ? rt_work(stream, &w) : cudaErrorInvalidValue;
}

RT_API cudaError_t cudaMemsetAsync(void *dst, int value, size_t n, cudaStream_t stream)
{
    cudaError_t rc = rt_enter();
    return rt_leave(rc ? rc : set(dst, value, n, stream));
}

RT_API cudaError_t cudaMemset(void *dst, int value, size_t n)
{
    cudaError_t rc = rt_enter();
    rc = rc ? rc : rt_unsafe();
    return rt_leave(rc ? rc : set(dst, value, n, NULL));
}

/* --- the driver's virtual memory management: libcuda.so.1 is another name of this library ---------------------------
 */

struct physical {
    int fd;
    size_t n;
    uint32_t holders; /* its handle, and each mapping */
};

static CUresult enter_driver(void)
{
    return rt_enter() ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

static CUresult leave_driver(CUresult rc)
{
    rt_leave(cudaSuccess);
    return rc;
}

static void let_go(struct physical *m)
{
    if (--m->holders)
        return;
    used -= m->n;
    close(m->fd);
    free(m);
}

RT_API CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *what,
                                              CUmemAllocationGranularity_flags option)
{
    (void)what, (void)option;
    *bytes = GRANULE;
    return CUDA_SUCCESS;
}

RT_API CUresult cuMemAddressReserve(CUdeviceptr *at, size_t n, size_t align, CUdeviceptr near, unsigned long long flags)
{
    (void)align, (void)near, (void)flags;
    if (!n || n % GRANULE)
        return CUDA_ERROR_INVALID_VALUE;
    uint8_t *p = mmap(NULL, n + GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t before = (size_t)(-(uintptr_t)p & (GRANULE - 1));
    if (before)
        munmap(p, before);
    munmap(p + before + n, GRANULE - before);
    *at = (CUdeviceptr)(uintptr_t)(p + before);
    return CUDA_SUCCESS;
}

RT_API CUresult cuMemAddressFree(CUdeviceptr at, size_t n)
{
    CUresult rc = enter_driver();
    if (!rc && (!n || n % GRANULE || overlaps(at, n)))
        rc = CUDA_ERROR_INVALID_VALUE; /* something is mapped there */
    if (!rc)
        munmap((void *)(uintptr_t)at, n);
    return leave_driver(rc);
}

RT_API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t n, const CUmemAllocationProp *what,
                            unsigned long long flags)
{
    (void)flags;
    CUresult rc = enter_driver();
    if (!rc && (!n || n % GRANULE || what->location.type != CU_MEM_LOCATION_TYPE_DEVICE || what->location.id))
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc && (n > total_bytes() || used + n > total_bytes()))
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    struct physical *m = rc ? NULL : calloc(1, sizeof(*m));
    if (rc || !m)
        return leave_driver(rc ? rc : CUDA_ERROR_OUT_OF_MEMORY);
    void *p = MAP_FAILED;
    *m = (struct physical){memfd_create("sim", MFD_CLOEXEC), n, 1};
    if (m->fd >= 0 && !ftruncate(m->fd, (off_t)n))
        p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    used += n;
    if (p == MAP_FAILED) {
        let_go(m);
        return leave_driver(CUDA_ERROR_OUT_OF_MEMORY);
    }
    memset(p, 0xff, n);
    munmap(p, n);
    *out = (CUmemGenericAllocationHandle)(uintptr_t)m;
    return leave_driver(CUDA_SUCCESS);
}

RT_API CUresult cuMemRelease(CUmemGenericAllocationHandle memory)
{
    CUresult rc = enter_driver();
    if (!rc)
        let_go((struct physical *)(uintptr_t)memory);
    return leave_driver(rc);
}

/* A mapping. cuMemSetAccess() registers it as memory that kernels may access; until then it is only in this list. */
struct mapping {
    uintptr_t at;
    size_t n;
    struct physical *memory;
    struct mapping *next;
};
static struct mapping *mappings;

RT_API CUresult cuMemMap(CUdeviceptr at, size_t n, size_t offset, CUmemGenericAllocationHandle memory,
                         unsigned long long flags)
{
    (void)flags;
    CUresult rc = enter_driver();
    struct physical *p = (struct physical *)(uintptr_t)memory;
    struct mapping *m = calloc(1, sizeof(*m));
    if (!m)
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    else if (!rc && (!n || n % GRANULE || at % GRANULE || offset + n > p->n))
        rc = CUDA_ERROR_INVALID_VALUE;
    for (const struct mapping *o = mappings; !rc && o; o = o->next)
        if (o->at < at + n && at < o->at + o->n)
            rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc && mmap((void *)(uintptr_t)at, n, PROT_NONE, MAP_SHARED | MAP_FIXED, p->fd, (off_t)offset) == MAP_FAILED)
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (rc) {
        free(m);
        return leave_driver(rc);
    }
    *m = (struct mapping){(uintptr_t)at, n, p, mappings};
    mappings = m;
    p->holders++;
    return leave_driver(CUDA_SUCCESS);
}

RT_API CUresult cuMemSetAccess(CUdeviceptr at, size_t n, const CUmemAccessDesc *who, size_t n_who)
{
    CUresult rc = enter_driver();
    size_t done = 0;
    if (!rc && (n_who != 1 || who->location.id || who->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
        rc = CUDA_ERROR_INVALID_VALUE;
    for (const struct mapping *m = mappings; !rc && m; m = m->next)
        if (m->at >= at && m->at + m->n <= at + n) {
            if (mprotect((void *)m->at, m->n, PROT_READ | PROT_WRITE) ||
                (!block_at((void *)m->at) && !note((void *)m->at, m->n, MAPPED)))
                rc = CUDA_ERROR_OUT_OF_MEMORY;
            done += m->n;
        }
    return leave_driver(rc ? rc : done == n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

RT_API CUresult cuMemUnmap(CUdeviceptr at, size_t n)
{
    CUresult rc = enter_driver();
    size_t done = 0;
    for (struct mapping **m = &mappings, *o; !rc && (o = *m);) {
        if (o->at < at || o->at + o->n > at + n) {
            m = &o->next;
            continue;
        }
        struct block *b = block_at((void *)o->at);
        if (b)
            forget(b);
        if (mmap((void *)o->at, o->n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
            MAP_FAILED)
            rc = CUDA_ERROR_UNKNOWN;
        done += o->n;
        let_go(o->memory);
        *m = o->next;
        free(o);
    }
    return leave_driver(rc ? rc : done == n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
