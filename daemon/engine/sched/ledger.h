/*
 * ledger.h - the account of the device's memory: what hearth holds, by purpose, what other programs hold, and what
 * hearth may still take. Pure.
 *
 * Two limits apply. `limit` (gpu_memory) bounds what hearth itself holds, its context included. The headroom stays free
 * beside whatever others hold. Copies that are given back when the memory is wanted (MEM_CACHE) count as free for both.
 */
#ifndef HEARTH_ENGINE_LEDGER_H
#define HEARTH_ENGINE_LEDGER_H

#include "kernels/backend.h"

struct ledger {
    uint64_t total, free; /* bytes of the device; `free` includes MEM_CACHE */
    uint64_t limit;       /* bytes that hearth may hold; 0: no limit */
    uint64_t headroom;    /* bytes that stay free */
    uint64_t held[MEM_KINDS];
    uint64_t sums;     /* of held[MEM_WORKSPACE]: what steps have taken for partial sums of attention ... */
    uint64_t promised; /* ... and what they may still take for them: nothing else may have it */
    /* What the process holds in addition to `held`, for the driver and the runtime; 0: not known. */
    uint64_t context;
    /* The sum of held[], and the time since which it has been that much. */
    uint64_t counted;
    double counted_at;
    uint64_t pinned; /* bytes of host memory */
    bool others_known, others_apart;
    /* What other programs hold; where !others_apart, hearth's context is included. */
    uint64_t others;
};

/* The device's memory use as observed from outside (neighbours.h), if it was. */
struct ledger_seen {
    bool known, display;
    /* Bytes used by all processes, and by this one; own is 0 where that is not reported. */
    uint64_t used, own;
    double at; /* time of the observation */
};

/* Fills in all but the limit. The observation lags behind what is held, by megabytes or gigabytes while memory is being
 * taken or given back. So the context is computed from an observation made after the last change of what is held, and
 * keeps its value until then, also if the observation failed. */
void ledger_count(struct ledger *l, const struct device_info *info, const struct ledger_seen *seen, double now);

/* What hearth holds, without what it gives back on demand (MEM_CACHE). */
uint64_t ledger_own(const struct ledger *l);

/* How many more bytes hearth may take, other than what is promised to steps. */
uint64_t ledger_room(const struct ledger *l);
/* The same for a pool that grows: at least half of what is left, because steps can do with less than they are promised
 * if other programs have taken it, but a sequence without KV cannot go on. */
uint64_t ledger_room_for_kv(const struct ledger *l);

/* Returns the bytes of `percent` (1 to 100) of the device; 0 where its size is not known. */
uint64_t ledger_share(const struct ledger *l, uint32_t percent);

/* How suitable an idle model is for eviction: the bytes it frees, divided by the time to load it again, times how long
 * it has been idle. */
double ledger_evictable(uint64_t bytes, double load_seconds, double idle_seconds);

/* The least that a model needs, in bytes. */
struct ledger_need {
    uint64_t weights, kv, workspace;
    uint32_t kv_tokens; /* tokens that this KV holds */
};
/* Returns 0, or HEARTH_ENOMEM with a sentence: what is needed, what is available, and what would help. */
int ledger_check(const struct ledger *l, const struct ledger_need *need, struct hearth_err *e);

#endif
