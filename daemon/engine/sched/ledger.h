/*
 * ledger.h - who has the device's memory: hearth, by what it is for, and the other programs; and what hearth may still
 * take. Pure.
 *
 * Two things bound what hearth takes. `limit` (gpu_memory) bounds what it has itself, with its context. The headroom
 * stays free beside whatever others have. Copies that are given back when the memory is wanted (MEM_CACHE) count as
 * free in both.
 */
#ifndef HEARTH_ENGINE_LEDGER_H
#define HEARTH_ENGINE_LEDGER_H

#include "kernels/backend.h"

struct ledger {
    uint64_t total, free; /* bytes of the device; `free` with MEM_CACHE */
    uint64_t limit;       /* that hearth may have; 0: any */
    uint64_t headroom;    /* that stays free */
    uint64_t held[MEM_KINDS];
    uint64_t context; /* what the process has beside that: the driver's and the runtime's; 0: not known */
    uint64_t counted; /* all that is held, and since when it is so much */
    double counted_at;
    uint64_t pinned; /* bytes of host memory */
    bool others_known, others_apart;
    uint64_t others; /* what other programs have; where they are not known apart, with hearth's context */
};

/* What was seen of the device from outside (neighbours.h), where it was. */
struct ledger_seen {
    bool known, display;
    uint64_t used, own; /* by all processes; by this one, 0: not told */
    double at;          /* when */
};

/* Fills in all but the limit. What was seen lags behind what is held, by megabytes or gigabytes while memory is taken
 * or given back, so that the context is told by a look that came after all of it, and stays as it was until then. */
void ledger_count(struct ledger *l, const struct device_info *info, const struct ledger_seen *seen, double now);

/* What hearth has and does not give back by itself. */
uint64_t ledger_own(const struct ledger *l);

/* How many bytes more hearth may take now. */
uint64_t ledger_room(const struct ledger *l);

/* Of a share in percent, 1 to 100, of the device; 0 where that is not known. */
uint64_t ledger_share(const struct ledger *l, uint32_t percent);

/* How well an idle model may go: what that gives, by what it costs to bring it back, by how long nobody wanted it. */
double ledger_evictable(uint64_t bytes, double load_seconds, double idle_seconds);

/* What a model takes at least. */
struct ledger_need {
    uint64_t weights, kv, workspace;
    uint32_t kv_tokens; /* that this KV is for */
};
/* 0, or HEARTH_ENOMEM with a sentence: what is needed, what there is, and what would help. */
int ledger_check(const struct ledger *l, const struct ledger_need *need, struct hearth_err *e);

#endif
