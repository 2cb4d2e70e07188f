/*
 * pool.cu - KV pools. Without extents a pool is one allocation. With extents it is a reserved range of addresses, whose
 * memory is mapped and unmapped by the driver's virtual memory management: an extent is one physical allocation, mapped
 * at the addresses of its pages, so that kernels, copies and captured graphs use the same addresses at all times.
 *
 * The driver's functions are looked up in libcuda.so.1, which the runtime has opened, so that an engine that is built
 * with CUDA also starts where there is no driver. Mapping does not wait for steps, unless it evicts expanded copies of
 * matrices. Before an extent is unmapped, the caller has waited for the transfers that may touch it; kv_unmap itself
 * waits for the work on the step stream.
 *
 * Thread: the engine's device thread.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/local.cuh"
#include "kernels/quant/q8_0.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>

#define DRIVER_CALLS(X)                                                                                                \
    X(cuMemAddressReserve, (CUdeviceptr * at, size_t size, size_t align, CUdeviceptr near, unsigned long long flags))  \
    X(cuMemAddressFree, (CUdeviceptr at, size_t size))                                                                 \
    X(cuMemCreate,                                                                                                     \
      (CUmemGenericAllocationHandle * memory, size_t size, const CUmemAllocationProp *what, unsigned long long flags)) \
    X(cuMemRelease, (CUmemGenericAllocationHandle memory))                                                             \
    X(cuMemMap,                                                                                                        \
      (CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle memory, unsigned long long flags))     \
    X(cuMemUnmap, (CUdeviceptr at, size_t size))                                                                       \
    X(cuMemSetAccess, (CUdeviceptr at, size_t size, const CUmemAccessDesc *who, size_t n))                             \
    X(cuMemGetAllocationGranularity,                                                                                   \
      (size_t * bytes, const CUmemAllocationProp *what, CUmemAllocationGranularity_flags option))

static struct {
    bool sought, found;
#define X(name, params) CUresult(*name) params;
    DRIVER_CALLS(X)
#undef X
} driver;

static bool driver_find()
{
    void *lib = driver.sought ? NULL : dlopen("libcuda.so.1", RTLD_NOW); /* never closed: the runtime has it open */
    if (lib) {
        driver.found = true;
#define X(name, params)                                  \
    driver.name = (CUresult(*) params)dlsym(lib, #name); \
    driver.found = driver.found && driver.name;
        DRIVER_CALLS(X)
#undef X
    }
    driver.sought = true;
    return driver.found;
}

static CUmemAllocationProp memory_of(const struct device *d)
{
    CUmemAllocationProp what = {};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what.location.id = d->index;
    return what;
}

uint64_t kv_granule(struct device *d)
{
    CUmemAllocationProp what = memory_of(d);
    size_t bytes = 0;
    if (!driver_find() || driver.cuMemGetAllocationGranularity(&bytes, &what, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return 0;
    return bytes;
}

/* --- extents -------------------------------------------------------------------------------------------------- */

/* The size of an extent, and its address. The last extent may be larger than its pages need. */
static uint64_t extent_bytes(const struct kv_pool *p)
{
    return (uint64_t)p->desc.extent * p->page_bytes;
}

static CUdeviceptr extent_at(const struct kv_pool *p, uint32_t extent)
{
    return (CUdeviceptr)(uintptr_t)p->base + extent * extent_bytes(p);
}

static int refuse_driver(struct device *d, CUresult rc, const char *what, uint64_t bytes, struct hearth_err *e)
{
    if (rc == CUDA_ERROR_OUT_OF_MEMORY)
        return err_set(e, HEARTH_ENOMEM, "GPU %d (%s): no room for %s: %llu MiB wanted", d->index, d->name, what,
                       (unsigned long long)(bytes >> 20));
    return err_set(e, HEARTH_EDEVICE, "GPU %d (%s): %s: the driver's error %d", d->index, d->name, what, (int)rc);
}

static int reserve(struct device *d, struct kv_pool *p, struct hearth_err *e)
{
    uint64_t bytes = kv_extents(&p->desc) * extent_bytes(p), granule = kv_granule(d);
    CUdeviceptr at = 0;
    if (!granule || extent_bytes(p) % granule)
        return err_set(e, HEARTH_EUNSUPPORTED, "extents of %llu bytes: this driver has memory in multiples of %llu",
                       (unsigned long long)extent_bytes(p), (unsigned long long)granule);
    p->mapped = (CUmemGenericAllocationHandle *)calloc(kv_extents(&p->desc), sizeof(*p->mapped));
    if (!p->mapped)
        return err_set(e, HEARTH_ENOMEM, "no memory for a KV pool");
    CUresult rc = driver.cuMemAddressReserve(&at, bytes, 0, 0, 0);
    if (rc)
        return refuse_driver(d, rc, "addresses for KV", bytes, e);
    p->base = (uint8_t *)(uintptr_t)at;
    return 0;
}

static CUresult map_at(struct device *d, CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle *memory)
{
    CUmemAllocationProp what = memory_of(d);
    CUmemAccessDesc who = {what.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult rc = driver.cuMemCreate(memory, bytes, &what, 0);
    if (rc)
        return rc;
    if (!(rc = driver.cuMemMap(at, bytes, 0, *memory, 0)) && (rc = driver.cuMemSetAccess(at, bytes, &who, 1)))
        driver.cuMemUnmap(at, bytes);
    if (rc) {
        driver.cuMemRelease(*memory);
        *memory = 0;
    }
    return rc;
}

int kv_map(struct device *d, struct kv_pool *p, uint32_t extent, struct hearth_err *e)
{
    uint64_t bytes = extent_bytes(p);
    if (!p->mapped || extent >= kv_extents(&p->desc))
        return err_set(e, HEARTH_EINTERNAL, "extent %u of a pool of %u", extent, p->mapped ? kv_extents(&p->desc) : 0);
    if (p->mapped[extent])
        return 0;
    d->hot_allocs++;
    CUresult rc = map_at(d, extent_at(p, extent), bytes, &p->mapped[extent]);
    if (rc == CUDA_ERROR_OUT_OF_MEMORY && wcache_evict(d))
        rc = map_at(d, extent_at(p, extent), bytes, &p->mapped[extent]);
    d->wcache_budget_known = false;
    if (rc)
        return refuse_driver(d, rc, "KV pages", bytes, e);
    cuda_count(d, MEM_KV, bytes, true);
    /* Attention multiplies masked values by zero, so that the unwritten part of a page must be finite. */
    cuda_ok(d, cudaMemsetAsync((void *)(uintptr_t)extent_at(p, extent), 0, bytes, d->stream));
    return 0;
}

void kv_unmap(struct device *d, struct kv_pool *p, uint32_t extent)
{
    if (!p->mapped || extent >= kv_extents(&p->desc) || !p->mapped[extent])
        return;
    cuda_wait(d); /* a clear or a copy may still be in flight */
    CUresult rc = driver.cuMemUnmap(extent_at(p, extent), extent_bytes(p));
    if (!rc)
        rc = driver.cuMemRelease(p->mapped[extent]);
    if (rc)
        cuda_refuse(d, HEARTH_EDEVICE, "GPU %d (%s): KV pages cannot be given back: the driver's error %d", d->index,
                    d->name, (int)rc);
    p->mapped[extent] = 0;
    cuda_count(d, MEM_KV, extent_bytes(p), false);
    d->wcache_budget_known = false;
}

/* --- pools ---------------------------------------------------------------------------------------------------- */

static int allocate(struct device *d, struct kv_pool *p, struct hearth_err *e)
{
    uint64_t bytes = p->page_bytes * p->desc.n_page;
    p->base = (uint8_t *)cuda_alloc_for(d, MEM_KV, bytes, "KV pages", e);
    if (!p->base)
        return d->err.code ? d->err.code : HEARTH_ENOMEM;
    /* As in kv_map(). */
    cuda_ok(d, cudaMemsetAsync(p->base, 0, bytes, d->stream));
    return 0;
}

int kv_new(struct device *d, const struct kv_desc *desc, struct kv_pool **out, struct hearth_err *e)
{
    bool is_state = desc->d_state != 0;
    if (is_state && (desc->n_kv || desc->d_k || desc->d_v || desc->window || desc->type != DT_F32))
        return err_set(e, HEARTH_EPARAMS, "a pool of states of %u numbers, in %s, with %u KV heads beside",
                       desc->d_state, dtype_get(desc->type) ? dtype_get(desc->type)->name : "?", desc->n_kv);
    if (!is_state && desc->type != d->kv_type)
        return err_set(e, HEARTH_EUNSUPPORTED, "KV of type %s: this GPU was opened to keep %s",
                       dtype_get(desc->type) ? dtype_get(desc->type)->name : "?", dtype_get(d->kv_type)->name);
    if (!is_state && desc->type == DT_Q8_0 && desc->d_k % Q8_0_LEN)
        return err_set(e, HEARTH_EUNSUPPORTED, "KV of type Q8_0 for heads of %u: it needs multiples of %d", desc->d_k,
                       Q8_0_LEN);
    if (!is_state && desc->type == DT_Q8_0 && !attend_supports(DT_Q8_0, desc->d_k, desc->d_v) &&
        attend_supports(DT_F16, desc->d_k, desc->d_v))
        return err_set(e, HEARTH_EUNSUPPORTED, "head size %u (values %u): the GPU keeps such KV in F16 alone",
                       desc->d_k, desc->d_v);
    if (!is_state && !attend_supports(desc->type, desc->d_k, desc->d_v))
        return err_set(e, HEARTH_EUNSUPPORTED, "head size %u (values %u): the GPU has attention for " HEAD_SIZES,
                       desc->d_k, desc->d_v);
    struct kv_pool *p = (struct kv_pool *)calloc(1, sizeof(*p));
    if (!p)
        return err_set(e, HEARTH_ENOMEM, "no memory for a KV pool");
    p->desc = *desc;
    p->layer_bytes = kv_layer_bytes(desc);
    p->page_bytes = kv_page_bytes(desc);
    int rc = desc->extent ? reserve(d, p, e) : allocate(d, p, e);
    if (rc) {
        free(p->mapped);
        free(p);
        return rc;
    }
    *out = p;
    return 0;
}

void kv_free(struct device *d, struct kv_pool *p)
{
    if (!p)
        return;
    step_drop_graphs(d);
    kv_transfer_drain(d);
    if (p->mapped) {
        for (uint32_t i = 0; i < kv_extents(&p->desc); i++)
            kv_unmap(d, p, i);
        driver.cuMemAddressFree((CUdeviceptr)(uintptr_t)p->base, kv_extents(&p->desc) * extent_bytes(p));
        free(p->mapped);
    } else {
        cuda_free(d, p->base);
    }
    free(p);
}

bool kv_page_ok(struct device *d, const struct kv_pool *p, uint32_t page)
{
    if (page < p->desc.n_page && (!p->mapped || p->mapped[page / p->desc.extent]))
        return true;
    cuda_refuse(d, HEARTH_EINTERNAL, "KV page %u of a pool of %u", page, p->desc.n_page);
    return false;
}

void kv_copy(struct device *d, struct kv_pool *p, uint32_t dst, uint32_t src)
{
    if (kv_page_ok(d, p, dst) && kv_page_ok(d, p, src))
        cuda_ok(d, cudaMemcpyAsync(p->base + dst * p->page_bytes, p->base + src * p->page_bytes, p->page_bytes,
                                   cudaMemcpyDeviceToDevice, d->stream));
}

void kv_clear(struct device *d, struct kv_pool *p, uint32_t page)
{
    if (kv_page_ok(d, p, page))
        cuda_ok(d, cudaMemsetAsync(p->base + page * p->page_bytes, 0, p->page_bytes, d->stream));
}
