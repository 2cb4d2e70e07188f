/*
 * tier-host.h - host memory that pages move to and from: slabs of the backend's (pinned for a GPU), cut into pages.
 *
 * Slabs are taken as they are needed and kept: pinning is slow. They go only where pages of another size (another
 * model's) need the room.
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
    struct host_page *next; /* free */
};

struct host {
    const struct backend *be;
    struct device *dev;
    uint64_t limit, bytes; /* of slabs: at most, and now */
    bool refused;          /* the system had no more */
    TAILQ_HEAD(, host_slab) slabs;
};

void host_init(struct host *h, const struct backend *be, struct device *dev, uint64_t limit);
void host_fini(struct host *h); /* no move is under way */

/* A page of that size, or NULL where there is none. The second adds a slab where need and limit allow it, in the place
 * of one for another size if it must: with a GPU the thread stands still for some ms. */
struct host_page *host_take(struct host *h, uint64_t page_bytes);
struct host_page *host_take_new(struct host *h, uint64_t page_bytes);
void host_give(struct host *h, struct host_page *page);
/* True where there is no memory and the system gives none: nobody needs to wait for a page. */
bool host_is_none(const struct host *h);

/* Pages of that size that could be had without waiting for the system. */
uint64_t host_spare(const struct host *h, uint64_t page_bytes);
/* Adds a slab for pages of that size; false where the limit or the system says no, as it may have said before. */
bool host_grow(struct host *h, uint64_t page_bytes);
bool host_may_grow(const struct host *h, uint64_t page_bytes);

#endif
