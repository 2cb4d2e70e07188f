/*
 * kv.c - KV pools of the CPU: they reserve address space for all pages at once, and memory only for pages in use.
 *
 * The pool is one MAP_NORESERVE mapping, so that its size costs nothing; the operating system commits zeroed memory
 * when a page is first written and takes it back when the page is cleared. For this, each KV page begins on a system
 * page. Extents that are not mapped are inaccessible (PROT_NONE), so that using one of their pages faults instead of
 * silently computing with zeros. Thread: the device's.
 */
#include "kernels/cpu/cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int cpu_kv_new(struct device *d, const struct kv_desc *desc, struct kv_pool **out, struct hearth_err *e)
{
    (void)d;
    uint64_t heads = desc->d_state, page, bytes, system = (uint64_t)sysconf(_SC_PAGESIZE);
    bool is_state = desc->d_state != 0;
    if (desc->type != DT_F32 && desc->type != DT_F16 && desc->type != DT_Q8_0) {
        const struct dtype_info *t = dtype_get(desc->type);
        return err_set(e, HEARTH_EUNSUPPORTED, "KV of type %s: the CPU keeps F32, F16 or Q8_0",
                       t ? t->name : "unknown");
    }
    uint32_t block = dtype_get(desc->type)->block_len;
    if (desc->d_k % block || desc->d_v % block)
        return err_set(e, HEARTH_EUNSUPPORTED, "KV of type %s for heads of %u and %u: it needs multiples of %u",
                       dtype_get(desc->type)->name, (unsigned)desc->d_k, (unsigned)desc->d_v, (unsigned)block);
    if (is_state && (desc->n_kv || desc->d_k || desc->d_v || desc->window || desc->type != DT_F32))
        return err_set(e, HEARTH_EPARAMS, "a pool of states of %u numbers, in %s, with %u KV heads beside",
                       (unsigned)desc->d_state, dtype_get(desc->type)->name, (unsigned)desc->n_kv);
    if (!desc->n_layer || !desc->n_page || (!is_state && (!desc->n_kv || !desc->d_k)))
        return err_set(e, HEARTH_EPARAMS, "KV pool of %u layers, %u heads of %u and %u, %u pages: none may be 0",
                       (unsigned)desc->n_layer, (unsigned)desc->n_kv, (unsigned)desc->d_k, (unsigned)desc->d_v,
                       (unsigned)desc->n_page);
    if ((!is_state &&
         __builtin_mul_overflow((uint64_t)desc->n_layer * desc->n_kv, (uint64_t)desc->d_k + desc->d_v, &heads)) ||
        (is_state && __builtin_mul_overflow((uint64_t)desc->n_layer, (uint64_t)desc->d_state, &heads)) ||
        __builtin_mul_overflow(heads, (uint64_t)(KV_PAGE * sizeof(float)), &page) || page > UINT64_MAX / 2 ||
        __builtin_mul_overflow((kv_page_bytes(desc) + system - 1) / system * system, (uint64_t)desc->n_page, &bytes) ||
        bytes > SIZE_MAX / 2)
        return err_set(e, HEARTH_ENOMEM, "KV pool of %u pages of %u layers is too large", (unsigned)desc->n_page,
                       (unsigned)desc->n_layer);
    struct kv_pool *p = calloc(1, sizeof *p);
    if (!p || (desc->extent && !(p->has = calloc(kv_extents(desc), sizeof *p->has)))) {
        free(p);
        return err_set(e, HEARTH_ENOMEM, "no memory for a KV pool");
    }
    p->desc = *desc;
    p->bytes = bytes;
    p->stride = bytes / desc->n_page;
    p->base = mmap(NULL, bytes, desc->extent ? PROT_NONE : PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p->base == MAP_FAILED) {
        int err = errno;
        free(p->has);
        free(p);
        return err_set(e, HEARTH_ENOMEM, "cannot reserve %llu bytes of address space for KV: %s",
                       (unsigned long long)bytes, strerror(err));
    }
    *out = p;
    return 0;
}

/* The address of the extent's pages, and their size in *bytes, 0 where the pool has no such extent. */
static char *extent_at(const struct kv_pool *p, uint32_t extent, size_t *bytes)
{
    const struct kv_desc *k = &p->desc;
    *bytes = 0;
    if (!k->extent || extent >= kv_extents(k))
        return NULL;
    uint32_t first = extent * k->extent, n = k->n_page - first < k->extent ? k->n_page - first : k->extent;
    *bytes = n * p->stride;
    return p->base + first * p->stride;
}

int cpu_kv_map(struct device *d, struct kv_pool *p, uint32_t extent, struct hearth_err *e)
{
    size_t bytes;
    char *at = extent_at(p, extent, &bytes);
    if (!bytes)
        return err_set(e, HEARTH_EINTERNAL, "no extent %u in a KV pool of %u pages", (unsigned)extent,
                       (unsigned)p->desc.n_page);
    if (p->has[extent])
        return 0;
    if (mprotect(at, bytes, PROT_READ | PROT_WRITE))
        return err_set(e, HEARTH_ENOMEM, "no memory for %zu bytes of KV: %s", bytes, strerror(errno));
    p->has[extent] = true;
    d->held[MEM_KV] += bytes;
    return 0;
}

void cpu_kv_unmap(struct device *d, struct kv_pool *p, uint32_t extent)
{
    size_t bytes;
    char *at = extent_at(p, extent, &bytes);
    if (!bytes || !p->has[extent])
        return;
    madvise(at, bytes, MADV_DONTNEED);
    mprotect(at, bytes, PROT_NONE);
    p->has[extent] = false;
    d->held[MEM_KV] -= bytes;
}

void cpu_kv_free(struct device *d, struct kv_pool *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; p->has && i < kv_extents(&p->desc); i++)
        cpu_kv_unmap(d, p, i);
    munmap(p->base, p->bytes);
    free(p->has);
    free(p);
}

static char *kv_page(struct device *d, struct kv_pool *p, uint32_t page)
{
    if (page < p->desc.n_page)
        return p->base + page * p->stride;
    cpu_fail(d, HEARTH_EPARAMS, "KV page %u of a pool of %u", (unsigned)page, (unsigned)p->desc.n_page);
    return NULL;
}

void cpu_kv_copy(struct device *d, struct kv_pool *p, uint32_t dst, uint32_t src)
{
    char *to = kv_page(d, p, dst), *from = kv_page(d, p, src);
    if (to && from && to != from)
        memcpy(to, from, kv_page_bytes(&p->desc));
}

/* --- KV transfers: memcpy during the call; the transfer is complete on return ---------------------------- */

static bool pages_ok(struct device *d, struct kv_pool *p, const uint32_t *pages, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!kv_page(d, p, pages[i]))
            return false;
    return true;
}

uint64_t cpu_kv_save(struct device *d, struct kv_pool *p, const uint32_t *pages, void *const *host, uint32_t n)
{
    if (!pages_ok(d, p, pages, n))
        return 0;
    for (uint32_t i = 0; i < n; i++)
        memcpy(host[i], kv_page(d, p, pages[i]), kv_page_bytes(&p->desc));
    return ++d->transfers;
}

uint64_t cpu_kv_load(struct device *d, struct kv_pool *p, const uint32_t *pages, const void *const *host, uint32_t n)
{
    if (!pages_ok(d, p, pages, n))
        return 0;
    for (uint32_t i = 0; i < n; i++)
        memcpy(kv_page(d, p, pages[i]), host[i], kv_page_bytes(&p->desc));
    return ++d->transfers;
}

int cpu_kv_transfer_done(struct device *d, uint64_t ticket, struct hearth_err *e)
{
    if (ticket && ticket <= d->transfers)
        return 1;
    return err_set(e, HEARTH_EPARAMS, "no move of KV pages has ticket %llu", (unsigned long long)ticket);
}

int cpu_kv_transfer_wait(struct device *d, uint64_t ticket, struct hearth_err *e)
{
    int rc = cpu_kv_transfer_done(d, ticket, e);
    return rc < 0 ? rc : 0;
}

int cpu_host_alloc(struct device *d, uint64_t bytes, void **out, struct hearth_err *e)
{
    (void)d;
    uint64_t system = (uint64_t)sysconf(_SC_PAGESIZE);
    void *p = bytes && bytes <= SIZE_MAX / 2 ? aligned_alloc(system, (bytes + system - 1) / system * system) : NULL;
    if (!p)
        return err_set(e, HEARTH_ENOMEM, "no host memory for KV pages: %llu bytes wanted", (unsigned long long)bytes);
    *out = p;
    return 0;
}

void cpu_host_free(struct device *d, void *p)
{
    (void)d;
    free(p);
}

void cpu_kv_clear(struct device *d, struct kv_pool *p, uint32_t page)
{
    char *at = kv_page(d, p, page);
    /* Returns the memory to the operating system; the next access finds zeros. */
    if (at && madvise(at, p->stride, MADV_DONTNEED))
        memset(at, 0, p->stride);
}
