/*
 * tier-pin.c - how much host memory the tiers take, and when it is pinned; see tier.h. Thread: the device thread's.
 */
#include "config.h"

#include <stdlib.h>
#include <unistd.h>

#include "daemon/engine/kvtier/tier-internal.h"

static const uint64_t ram_most = UINT64_C(16) << 30; /* the most that TIER_RAM_AUTO takes */
static const uint64_t staging = 128 << 20;        /* host memory for pages in transit, in addition to the cached ones */
static const uint64_t prealloc_bytes = 256 << 20; /* pinned ahead of need */

/*
 * Pinning host memory blocks this thread, 3 ms for a slab, and with it every request that arrives meanwhile. After a
 * slab that took time d, the next one waits for a multiple of d. It is 19 d where sequences only decode: steps
 * submitted ahead hide the pause, but the GPU is delayed too (an 8B model lost a tenth of its decode rate on an H100
 * with a wait of only d). It is 9 d where a prompt waits for its first token or may arrive at any moment; and while
 * that prompt's step is not under way, no slab is pinned at all. When idle, the time counts from the last step on,
 * because a client that has just received an answer may send its next prompt at once.
 */
static const double pin_backoff_decode = 19, pin_backoff = 9;

static uint64_t ram_by_machine(bool gpu, uint32_t sharers)
{
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    if (!gpu || pages <= 0 || bytes <= 0) /* the CPU's pool is RAM already */
        return 0;
    uint64_t part = (uint64_t)pages * (uint64_t)bytes / 4 / (sharers ? sharers : 1);
    return part < ram_most ? part : ram_most;
}

void pin_open(struct tier *t)
{
    const struct tier_params *p = &t->p;
    t->ram = p->ram == TIER_RAM_AUTO ? ram_by_machine(p->gpu, p->sharers) : p->ram;
    t->ram_most = p->ram == TIER_RAM_AUTO ? t->ram : 0;
    host_init(&t->host, p->be, p->dev, t->ram < UINT64_MAX - staging ? t->ram + staging : t->ram);
    atomic_store(&p->counters->host_limit, t->ram);
}

static bool pin(struct tier *t, uint64_t page_bytes)
{
    double begun = engine_now();
    bool more = host_grow(&t->host, page_bytes);
    t->pin_ended = engine_now();
    t->pin_took = t->pin_ended - begun;
    return more;
}

static bool is_busy(const struct tier *t)
{
    return t->foreground == TIER_FG_DECODE || t->foreground == TIER_FG_PREFILL || t->foreground == TIER_FG_SUBMIT;
}

/* Whether a slab may be pinned at this point. If not, the next call of tier_poll may pin it, or the first one after
 * `pin_at`. */
static bool may_pin(struct tier *t, bool urgent)
{
    double rest = urgent ? (is_busy(t) ? 1 : 0) : t->foreground == TIER_FG_DECODE ? pin_backoff_decode : pin_backoff;
    double since = !urgent && t->foreground == TIER_FG_IDLE && t->busy > t->pin_ended ? t->busy : t->pin_ended;
    t->pin_at = since + rest * t->pin_took;
    return t->foreground != TIER_FG_SUBMIT && engine_now() >= t->pin_at;
}

/* Whether the pool is nearly full. Saves reference its pages until host memory has them, and generations must not have
 * to wait for that. */
static bool pool_is_short(const struct model_entry *m)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t g = 0; g < m->n_group; g++)
        least = m->kv[g].n_page < least ? m->kv[g].n_page : least;
    return kv_available(m->group.kv) < least / 4;
}

/* Whether anything waits for the page that host memory is wanted for, or soon will. */
static bool hurried(const struct tier *t, enum direction way, const struct model_entry *m)
{
    return way == TO_DEVICE || t->foreground == TIER_FG_BLOCKED || m == t->leaving || pool_is_short(m);
}

/* Pins one slab per call of tier_poll, so that commands are handled between two; for a restore that delays no other
 * sequence, as many as it needs. */
static bool pin_now(struct tier *t, enum direction way, const struct model_entry *m, uint64_t page_bytes)
{
    bool at_once = way == TO_DEVICE && (t->foreground == TIER_FG_IDLE || t->foreground == TIER_FG_BLOCKED);
    if (!may_pin(t, hurried(t, way, m)) || (t->pinned && !at_once)) {
        t->pin_wanted = true;
        return false;
    }
    t->pinned = true;
    return pin(t, page_bytes);
}

/*
 * For a save that nothing waits for, memory is pinned at the pace of may_pin() as long as the limit allows more, so
 * that it evicts no page of another conversation. Where something waits, pinning would be felt as a pause, so pages
 * that are in files too are evicted first.
 */
struct host_page *tier_host_page(struct tier *t, enum direction way, const struct model_entry *m, uint64_t bytes)
{
    struct host_page *p = t->p.gpu ? host_take(&t->host, bytes) : host_take_new(&t->host, bytes);
    bool patient = t->p.gpu && !p && !hurried(t, way, m);
    if (patient && host_may_grow(&t->host, bytes)) {
        if (pin_now(t, way, m, bytes))
            p = host_take(&t->host, bytes);
        else if (t->pin_wanted)
            return NULL;
    }
    while (!p && index_evict_clean(&t->index, bytes))
        p = host_take(&t->host, bytes);
    if (!p && !patient && t->p.gpu && host_may_grow(&t->host, bytes) && !pin_now(t, way, m, bytes) && t->pin_wanted)
        return NULL;
    if (!p)
        p = host_take_new(&t->host, bytes);
    while (!p && index_evict_oldest(&t->index))
        p = host_take_new(&t->host, bytes);
    return p;
}

/* Whether less than `want` bytes of host memory are free and the limit allows more. */
static bool wants_prealloc(const struct tier *t, uint64_t want)
{
    want = want < t->ram ? want : t->ram;
    return t->p.gpu && t->page_bytes && host_may_grow(&t->host, t->page_bytes) &&
           host_spare(&t->host, t->page_bytes) * t->page_bytes < want;
}

void pin_for_transit(struct tier *t)
{
    while (wants_prealloc(t, staging) && pin(t, t->page_bytes)) { /* short compared with the load itself */
    }
}

bool tier_idle(struct tier *t)
{
    if (!TAILQ_EMPTY(&t->restores) || !TAILQ_EMPTY(&t->waiting)) /* pinning a slab takes longer than a read of a file */
        return false;
    if (!wants_prealloc(t, prealloc_bytes))
        return false;
    if (may_pin(t, false))
        return pin(t, t->page_bytes);
    t->pin_wanted = true;
    return false;
}

/* Bounds the automatic size (TIER_RAM_AUTO) by what the machine has left at the moment: weights in host memory, other
 * engines and other programs come first. Existing slabs stay, and pages in transit keep their share in any case. */
static void follow_memory(struct tier *t, double now)
{
    static const double between = 1; /* seconds */
    if (!t->ram_most || !t->p.ram_left || now < t->looked + between)
        return;
    t->looked = now;
    uint64_t transit = t->host.limit - t->ram, most = t->ram_most + transit;
    uint64_t room = t->p.ram_left() / (t->p.sharers ? t->p.sharers : 1);
    uint64_t limit = room < most - (t->host.bytes < most ? t->host.bytes : most) ? t->host.bytes + room : most;
    t->ram = limit > transit ? limit - transit : 0;
    t->host.limit = t->ram + transit;
    atomic_store(&t->p.counters->host_limit, t->ram);
}

void pin_poll(struct tier *t, double now)
{
    follow_memory(t, now);
    t->pinned = t->pin_wanted = false;
    if (is_busy(t))
        t->busy = now;
}
