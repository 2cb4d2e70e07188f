/* ledger.c - see ledger.h. Pure. */
#include "daemon/engine/sched/ledger.h"

#include <stdio.h>
#include <string.h>

/* What stays free on a device with a screen: programs that draw on it cannot ask for it back. */
static const uint64_t display_headroom = UINT64_C(1) << 30;

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

uint64_t ledger_own(const struct ledger *l)
{
    uint64_t own = l->context;
    for (int k = 0; k < MEM_KINDS; k++)
        own += k == MEM_CACHE ? 0 : l->held[k];
    return own;
}

void ledger_count(struct ledger *l, const struct device_info *info, const struct ledger_seen *seen, double now)
{
    l->total = info->mem_total;
    l->free = info->mem_free;
    l->pinned = info->mem_pinned;
    l->sums = info->mem_sums;
    memcpy(l->held, info->held, sizeof l->held);
    uint64_t counted = ledger_own(l) - l->context + l->held[MEM_CACHE];
    bool settled = counted == l->counted && seen->at > l->counted_at;
    if (counted != l->counted)
        l->counted_at = now;
    l->counted = counted;
    if (seen->known && !seen->own)
        l->context = 0;
    else if (seen->known && settled)
        l->context = less(seen->own, counted);
    l->headroom = seen->known && seen->display ? display_headroom : 0;
    l->others_known = seen->known;
    l->others_apart = seen->known && seen->own;
    l->others = 0;
    if (!seen->known)
        return;
    l->others = less(seen->used, seen->own ? seen->own : counted);
}

/* What is left, with what is promised. */
static uint64_t left(const struct ledger *l)
{
    uint64_t room = less(l->free, l->headroom), allowed = less(l->limit, ledger_own(l));
    return l->limit && allowed < room ? allowed : room;
}

uint64_t ledger_room(const struct ledger *l)
{
    return less(left(l), l->promised);
}

uint64_t ledger_room_for_kv(const struct ledger *l)
{
    uint64_t room = ledger_room(l), half = left(l) / 2;
    return half > room ? half : room;
}

uint64_t ledger_share(const struct ledger *l, uint32_t percent)
{
    return l->total / 100 * percent;
}

double ledger_evictable(uint64_t bytes, double load_seconds, double idle_seconds)
{
    static const double least = 1e-3; /* seconds; avoids a division by zero */
    double cost = load_seconds > least ? load_seconds : least;
    return (double)bytes / cost * (idle_seconds > least ? idle_seconds : least);
}

static const char *gigabytes(char out[static 24], uint64_t bytes)
{
    snprintf(out, 24, bytes < UINT64_C(100) << 20 ? "%.3f GB" : "%.1f GB", 1e-9 * (double)bytes);
    return out;
}

int ledger_check(const struct ledger *l, const struct ledger_need *need, struct hearth_err *e)
{
    uint64_t all = need->weights + need->kv + need->workspace, own = ledger_own(l), room = ledger_room(l);
    char s[6][24];
    if (all <= room)
        return 0;
    gigabytes(s[0], all), gigabytes(s[1], need->weights), gigabytes(s[2], need->kv);
    gigabytes(s[3], l->limit ? l->limit : room);
    if (l->limit && less(less(l->limit, own), l->promised) < all)
        return err_set(e, HEARTH_ENOMEM,
                       "it needs %s on the GPU (weights %s, KV of %u tokens %s); gpu_memory = %s has %s left: raise it",
                       s[0], s[1], need->kv_tokens, s[2], s[3],
                       gigabytes(s[4], less(less(l->limit, own), l->promised)));
    return err_set(e, HEARTH_ENOMEM,
                   "it needs %s on the GPU (weights %s, KV of %u tokens %s); %s are free%s%s: end what uses it", s[0],
                   s[1], need->kv_tokens, s[2], s[3], l->others_known ? ", other programs have " : "",
                   l->others_known ? gigabytes(s[5], l->others) : "");
}
