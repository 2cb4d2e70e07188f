/*
 * tier-host.h - the host-memory tier: a slab allocator over the backend's host memory (pinned for a GPU), cut into
 * pages.
 *
 * Slabs are allocated as they are needed and normally not freed again, because pinning is slow; a slab is freed only
 * where pages of another size (another model's) need the room.
 *
 * Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_TIER_HOST_H
#define HEARTH_ENGINE_TIER_HOST_H

#include <sys/queue.h>

#include "kernels/backend.h"

struct host_slab;
struct host_page {
    void *mem;
    struct host_slab *slab;
    struct host_page *next; /* next free page of the slab */
};

struct host {
    const struct backend *be;
    struct device *dev;
    uint64_t limit, bytes; /* of slabs: the maximum and the current sum */
    bool refused;          /* the last allocation failed */
    TAILQ_HEAD(, host_slab) slabs;
};

void host_init(struct host *h, const struct backend *be, struct device *dev, uint64_t limit);
void host_fini(struct host *h); /* no transfer may be under way */

/* Both return a page of that size, or NULL where there is none. The second adds a slab where it is needed and the limit
 * allows it, replacing an unused slab for another size if necessary; with a GPU, pinning it blocks the thread for some
 * milliseconds. */
struct host_page *host_take(struct host *h, uint64_t page_bytes);
struct host_page *host_take_new(struct host *h, uint64_t page_bytes);
void host_give(struct host *h, struct host_page *page);
/* Returns true where there is no slab and the last allocation failed: waiting for a page would be in vain. */
bool host_is_none(const struct host *h);

/* Returns the number of pages of that size that are available without an allocation. */
uint64_t host_spare(const struct host *h, uint64_t page_bytes);
/* Adds a slab for pages of that size; false where the limit forbids it or the allocation fails, in this call or an
 * earlier one. */
bool host_grow(struct host *h, uint64_t page_bytes);
bool host_may_grow(const struct host *h, uint64_t page_bytes);

#endif
