/*
 * memory.cu - device memory, counted by what it is for, and the list of pinned blocks of host memory.
 *
 * Running out of memory is an ordinary refusal and does not stick; all other failures do. The list of blocks is short
 * (a few per matrix of a model) and is searched from its end, where the block to be freed most likely is.
 *
 * Thread: the engine's device thread.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/local.cuh"

#include <stdlib.h>

static const enum mem_kind PINNED = MEM_KINDS; /* a block of host memory */

struct cuda_block {
    void *p;
    uint64_t bytes;
    enum mem_kind kind;
};

void cuda_count(struct device *d, enum mem_kind kind, uint64_t bytes, bool more)
{
    d->held[kind] = more ? d->held[kind] + bytes : d->held[kind] - bytes;
}

/* Adds a block to the list; false where that is out of memory: the block is then not counted. */
static bool note_block(struct device *d, void *p, uint64_t bytes, enum mem_kind kind)
{
    if (d->mem.n == d->mem.cap) {
        uint32_t cap = d->mem.cap ? 2 * d->mem.cap : 256;
        struct cuda_block *v = (struct cuda_block *)realloc(d->mem.v, cap * sizeof(*v));
        if (!v)
            return false;
        d->mem.v = v;
        d->mem.cap = cap;
    }
    d->mem.v[d->mem.n++] = {p, bytes, kind};
    return true;
}

bool cuda_note_pinned(struct device *d, void *p, uint64_t bytes)
{
    if (!note_block(d, p, bytes, PINNED))
        return false;
    d->pinned += bytes;
    return true;
}

uint64_t cuda_forget(struct device *d, const void *p)
{
    uint32_t i = d->mem.n;
    while (i-- > 0)
        if (d->mem.v[i].p == p) {
            uint64_t *of = d->mem.v[i].kind == PINNED ? &d->pinned : &d->held[d->mem.v[i].kind];
            uint64_t bytes = d->mem.v[i].bytes;
            *of -= bytes;
            d->mem.v[i] = d->mem.v[--d->mem.n];
            return bytes;
        }
    return 0;
}

void *cuda_alloc_for(struct device *d, enum mem_kind kind, uint64_t bytes, const char *what, struct hearth_err *e)
{
    void *p = NULL;
    d->hot_allocs++;
    cudaError_t rc = cudaMalloc(&p, bytes ? bytes : 1);
    if (rc == cudaErrorMemoryAllocation && wcache_evict(d)) {
        cudaGetLastError();
        rc = cudaMalloc(&p, bytes ? bytes : 1);
    }
    d->wcache_budget_known = false;
    if (rc == cudaSuccess) {
        if (note_block(d, p, bytes, kind))
            d->held[kind] += bytes;
        return p;
    }
    if (rc == cudaErrorMemoryAllocation) {
        size_t avail = 0, total = 0;
        cudaGetLastError(); /* not sticky: the device goes on */
        cudaMemGetInfo(&avail, &total);
        err_set(e, HEARTH_ENOMEM, "GPU %d (%s): no room for %s: %llu MiB wanted, %llu of %llu MiB free", d->index,
                d->name, what, (unsigned long long)(bytes >> 20), (unsigned long long)(avail >> 20),
                (unsigned long long)(total >> 20));
        return NULL;
    }
    cuda_ok(d, rc);
    cuda_failure(d, e);
    return NULL;
}

void cuda_free(struct device *d, void *p)
{
    if (p) {
        d->hot_waits++;
        cuda_forget(d, p);
        cuda_ok(d, cudaFree(p));
    }
    d->wcache_budget_known = false;
}
