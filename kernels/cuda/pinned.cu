/*
 * pinned.cu - host memory that the GPU accesses directly.
 *
 * Most of the time of pinning, a third of a millisecond per MB, is spent in the operating system finding and clearing
 * pages. The engine pins slabs for KV while sequences decode: a slab of 8 MB takes about as long as a step of 3 ms. So
 * a helper thread maps and populates the next block ahead of need, in huge pages where the system has them; only
 * registering it is left to the device's thread.
 *
 * Thread: an engine's device thread; prefault_main is the helper thread. Devices are opened and closed by one thread at
 * a time.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/local.cuh"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint64_t HUGE = 2ull << 20;
static const uint64_t PREFAULT_MAX = 160ull << 20; /* a larger block is seldom followed by another */

/* The next block of a size, mapped ahead of need. */
struct next_block {
    uint64_t bytes; /* 0: unused */
    bool wanted;    /* the helper thread is to map it */
    void *ready;
};

/* Shared by all devices of the process. Two sizes of blocks alternate: slabs of KV, and slabs of one recurrent state
 * (151 MB for qwen3.6-27b). */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t thread;
    uint32_t n_device;
    bool begun;                /* the helper thread runs; the first block starts it */
    uint64_t mapping;          /* size of the block that it is mapping; 0: none */
    struct next_block next[2]; /* the most recently requested size comes first */
} prefault = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, false, 0, {}};

/* A block's bytes in whole pages, plus a guard page: so no two blocks are adjacent, and no run of KV pages continues
 * from one block into the next, which the runtime would refuse to copy. */
static uint64_t mapped_bytes(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page + page;
}

/* Commits all of the pages now; before Linux 5.14 by writing to them. */
static bool populate(char *p, uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
#ifdef MADV_POPULATE_WRITE
    if (!madvise(p, bytes, MADV_POPULATE_WRITE))
        return true;
    if (errno != EINVAL)
        return false;
#endif
    for (uint64_t at = 0; at < bytes; at += page)
        ((volatile char *)p)[at] = 0;
    return true;
}

/* Returns mapped_bytes(bytes) of memory, all pages but the guard page populated, or NULL. */
static void *map_block(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), all = mapped_bytes(bytes), used = all - page;
    uint64_t align = bytes < HUGE ? page : HUGE;
    if (bytes > UINT64_MAX / 2)
        return NULL;
    char *room = (char *)mmap(NULL, all + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    char *p = (char *)(((uintptr_t)room + align - 1) / align * align), *end = room + all + align;
    if (p > room)
        munmap(room, (size_t)(p - room));
    if (end > p + all)
        munmap(p + all, (size_t)(end - (p + all)));
    mprotect(p + used, page, PROT_NONE);
    madvise(p, used, MADV_HUGEPAGE); /* if refused, pages are small */
    madvise(p, used, MADV_DONTFORK); /* copy-on-write after a fork could replace a page that the GPU uses */
    if (populate(p, used))
        return p;
    munmap(p, all);
    return NULL;
}

static void drop(struct next_block *b)
{
    if (b->ready)
        munmap(b->ready, mapped_bytes(b->bytes));
    *b = next_block();
}

/* The entry of that size, or NULL. */
static struct next_block *next_of(uint64_t bytes)
{
    for (struct next_block &b : prefault.next)
        if (b.bytes == bytes)
            return &b;
    return NULL;
}

static void *prefault_main(void *)
{
    pthread_mutex_lock(&prefault.lock);
    while (prefault.n_device) {
        uint64_t bytes = 0;
        for (const struct next_block &b : prefault.next)
            bytes = !bytes && b.wanted ? b.bytes : bytes;
        if (!bytes) {
            pthread_cond_wait(&prefault.work, &prefault.lock);
            continue;
        }
        prefault.mapping = bytes;
        pthread_mutex_unlock(&prefault.lock);
        void *p = map_block(bytes);
        pthread_mutex_lock(&prefault.lock);
        prefault.mapping = 0;
        struct next_block *b = next_of(bytes); /* it may have moved, but put_first() never drops a wanted one */
        b->ready = p;
        b->wanted = false;
        pthread_cond_broadcast(&prefault.done);
    }
    pthread_mutex_unlock(&prefault.lock);
    return NULL;
}

void pinned_init(void)
{
    pthread_mutex_lock(&prefault.lock);
    prefault.n_device++;
    pthread_mutex_unlock(&prefault.lock);
}

void pinned_fini(void)
{
    pthread_mutex_lock(&prefault.lock);
    bool last = !--prefault.n_device && prefault.begun;
    pthread_cond_signal(&prefault.work);
    pthread_mutex_unlock(&prefault.lock);
    if (!last)
        return;
    pthread_join(prefault.thread, NULL);
    prefault.begun = false;
    for (struct next_block &b : prefault.next)
        drop(&b);
}

/* Makes that size the first entry; a new size replaces the second entry, unless that one is still to be mapped. */
static void put_first(uint64_t bytes)
{
    struct next_block *first = &prefault.next[0], *second = &prefault.next[1];
    if (first->bytes == bytes || (second->bytes != bytes && second->wanted))
        return;
    if (second->bytes != bytes) {
        drop(second);
        second->bytes = bytes;
    }
    struct next_block was = *first;
    *first = *second;
    *second = was;
}

/* Returns a block of that size, the one mapped ahead if there is one, and has the helper map the next. A block that is
 * being mapped is waited for, which takes less time than mapping another. */
static void *take_block(uint64_t bytes)
{
    if (bytes > PREFAULT_MAX)
        return map_block(bytes);
    pthread_mutex_lock(&prefault.lock);
    if (!prefault.begun)
        prefault.begun = !pthread_create(&prefault.thread, NULL, prefault_main, NULL);
    if (prefault.begun)
        put_first(bytes);
    struct next_block *b;
    while ((b = next_of(bytes)) && prefault.mapping == bytes)
        pthread_cond_wait(&prefault.done, &prefault.lock);
    void *p = b ? b->ready : NULL;
    if (b) { /* it may be wanted already, if the helper has not begun with it */
        b->ready = NULL;
        b->wanted = true;
        pthread_cond_signal(&prefault.work);
    }
    pthread_mutex_unlock(&prefault.lock);
    return p ? p : map_block(bytes);
}

int host_alloc(struct device *d, uint64_t bytes, void **out, struct hearth_err *e)
{
    d->hot_allocs++;
    void *p = bytes ? take_block(bytes) : NULL;
    cudaError_t rc = p ? cudaHostRegister(p, bytes, cudaHostRegisterDefault) : cudaErrorMemoryAllocation;
    if (rc == cudaSuccess && cuda_note_pinned(d, p, bytes)) {
        *out = p;
        return 0;
    }
    if (rc == cudaSuccess) { /* no memory for its entry on the list */
        cudaHostUnregister(p);
        rc = cudaErrorMemoryAllocation;
    }
    if (p)
        munmap(p, mapped_bytes(bytes));
    if (rc == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* not sticky: the device goes on */
        return err_set(e, HEARTH_ENOMEM, "no pinned host memory: %llu KiB wanted", (unsigned long long)(bytes >> 10));
    }
    cuda_ok(d, rc);
    return err_set(e, HEARTH_EDEVICE, "%s", d->err.msg);
}

void host_free(struct device *d, void *p)
{
    if (!p)
        return;
    cuda_ok(d, cudaHostUnregister(p));
    munmap(p, mapped_bytes(cuda_forget(d, p)));
}
