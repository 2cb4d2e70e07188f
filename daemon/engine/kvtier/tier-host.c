/* tier-host.c - slabs of host memory, cut into pages; see tier-host.h. Thread: the device thread's. */
#include "daemon/engine/kvtier/tier-host.h"

#include <stdlib.h>

/* A slab's size: small enough that allocating one is not felt as a pause, large enough that there are few of them.
 * Where the backend has not prepared the pages of the next slab in advance, pinning takes a millisecond for some 3 to 8
 * MB. */
static const uint64_t slab_bytes = 8 << 20;

struct host_slab {
    TAILQ_ENTRY(host_slab) link;
    void *mem;
    uint64_t page_bytes;
    uint32_t n, n_used;
    struct host_page *free;
    struct host_page page[];
};

void host_init(struct host *h, const struct backend *be, struct device *dev, uint64_t limit)
{
    *h = (struct host){.be = be, .dev = dev, .limit = limit};
    TAILQ_INIT(&h->slabs);
}

static void slab_free(struct host *h, struct host_slab *s)
{
    h->be->host_free(h->dev, s->mem);
    h->bytes -= s->n * s->page_bytes;
    TAILQ_REMOVE(&h->slabs, s, link);
    free(s);
}

void host_fini(struct host *h)
{
    struct host_slab *s;
    while ((s = TAILQ_FIRST(&h->slabs)))
        slab_free(h, s);
}

bool host_may_grow(const struct host *h, uint64_t page_bytes)
{
    return !h->refused && h->limit > h->bytes && h->limit - h->bytes >= page_bytes;
}

bool host_grow(struct host *h, uint64_t page_bytes)
{
    struct hearth_err err;
    if (!host_may_grow(h, page_bytes))
        return false;
    uint64_t room = (h->limit - h->bytes) / page_bytes, n = slab_bytes / page_bytes;
    n = n < 1 ? 1 : n;
    n = n > room ? room : n;
    struct host_slab *s = calloc(1, sizeof *s + n * sizeof s->page[0]);
    if (!s)
        return false;
    if (h->be->host_alloc(h->dev, n * page_bytes, &s->mem, &err)) {
        h->refused = true; /* from now on the existing slabs have to suffice */
        free(s);
        return false;
    }
    s->page_bytes = page_bytes;
    s->n = (uint32_t)n;
    for (uint32_t i = s->n; i-- > 0;) {
        s->page[i] = (struct host_page){(char *)s->mem + i * page_bytes, s, s->free};
        s->free = &s->page[i];
    }
    h->bytes += n * page_bytes;
    TAILQ_INSERT_HEAD(&h->slabs, s, link); /* full slabs are last: a search ends at the first of them */
    return true;
}

struct host_page *host_take(struct host *h, uint64_t page_bytes)
{
    struct host_slab *s = TAILQ_FIRST(&h->slabs);
    while (s && s->free && s->page_bytes != page_bytes)
        s = TAILQ_NEXT(s, link);
    if (!s || !s->free) /* full ones are last */
        return NULL;
    struct host_page *p = s->free;
    s->free = p->next;
    s->n_used++;
    if (!s->free) {
        TAILQ_REMOVE(&h->slabs, s, link);
        TAILQ_INSERT_TAIL(&h->slabs, s, link);
    }
    return p;
}

struct host_page *host_take_new(struct host *h, uint64_t page_bytes)
{
    struct host_slab *s, *next;
    struct host_page *p = host_take(h, page_bytes);
    if (!p && host_grow(h, page_bytes))
        p = host_take(h, page_bytes);
    for (s = TAILQ_FIRST(&h->slabs); s && s->free && !p; s = next) {
        next = TAILQ_NEXT(s, link);
        if (s->n_used || s->page_bytes == page_bytes)
            continue;
        slab_free(h, s);
        h->refused = false;
        if (host_grow(h, page_bytes))
            p = host_take(h, page_bytes);
    }
    return p;
}

void host_give(struct host *h, struct host_page *page)
{
    struct host_slab *s = page->slab;
    if (!s->free) {
        TAILQ_REMOVE(&h->slabs, s, link);
        TAILQ_INSERT_HEAD(&h->slabs, s, link);
    }
    page->next = s->free;
    s->free = page;
    s->n_used--;
}

bool host_is_none(const struct host *h)
{
    return h->refused && TAILQ_EMPTY(&h->slabs);
}

uint64_t host_spare(const struct host *h, uint64_t page_bytes)
{
    const struct host_slab *s;
    uint64_t n = 0;
    TAILQ_FOREACH (s, &h->slabs, link) {
        if (!s->free)
            break;
        n += s->page_bytes == page_bytes ? s->n - s->n_used : 0;
    }
    return n;
}
