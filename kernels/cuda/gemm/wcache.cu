/*
 * wcache.cu - expanded copies of matrices: the fp16 form that cuBLASLt reads, kept in GPU memory that is otherwise
 * unused.
 *
 * Expanding a matrix costs as much as some 150 rows of its product, and is the same work for every chunk of a prompt. A
 * copy is made by the first step that multiplies by it, as long as a good part of the memory stays free. Copies are
 * reclaimable: cuda_alloc() frees all of them before it refuses an allocation, and the next long step recreates those
 * that still fit. Without a copy cublaslt.cu expands slices as it goes.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/local.cuh"

/* Bytes of `total` that stay free: other processes cannot reclaim copies, and the driver needs memory of its own, for
 * graphs and for modules that are loaded late. */
static uint64_t reserve(uint64_t total)
{
    const uint64_t least = 2ull << 30;
    return total / 4 > least ? total / 4 : least;
}

static uint64_t copy_bytes(const wdev *w)
{
    return (uint64_t)w->n_out * wcache_ld(w) * sizeof(__half);
}

__half *wcache_alloc(struct device *d, struct wdev *w)
{
    uint64_t want = copy_bytes(w);
    if (!d->wcache_budget_known) {
        size_t avail = 0, total = 0;
        cuda_ok(d, cudaMemGetInfo(&avail, &total));
        d->wcache_budget = avail > reserve(total) ? avail - reserve(total) : 0;
        d->wcache_budget_known = true;
    }
    if (d->err.code || w->host || d->wcache_budget < want || d->wcache_limit < want ||
        d->wcache_bytes > d->wcache_limit - want)
        return NULL;
    d->hot_allocs++;
    void *p = NULL;
    cudaError_t rc = cudaMalloc(&p, want);
    if (rc == cudaErrorMemoryAllocation) { /* another process took the memory: not tried again until memory is freed */
        cudaGetLastError();
        d->wcache_budget = 0;
        return NULL;
    }
    if (!cuda_ok(d, rc))
        return NULL;
    w->cached = (__half *)p;
    d->wcache_budget -= want;
    d->wcache_bytes += want;
    return w->cached;
}

void wcache_free(struct device *d, struct wdev *w)
{
    if (!w->cached)
        return;
    d->wcache_bytes -= copy_bytes(w);
    cuda_free(d, w->cached);
    w->cached = NULL;
}

bool wcache_evict(struct device *d)
{
    if (!d->wcache_bytes)
        return false;
    cuda_wait(d); /* steps in flight read them */
    for (struct wdev *w = d->weights; w; w = w->next)
        wcache_free(d, w);
    return true;
}

void cache_limit(struct device *d, uint64_t bytes)
{
    if (d->wcache_bytes > bytes)
        wcache_evict(d);
    d->wcache_limit = bytes;
}

bool wcache_has_all(const struct device *d, const void *model)
{
    bool all = true, any = false;
    for (const struct wdev *w = d->weights; w && all; w = w->next)
        if (w->model == model && wdev_dense(w))
            all = w->cached, any = true;
    return any && all;
}
