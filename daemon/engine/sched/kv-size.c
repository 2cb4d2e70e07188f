/* kv-size.c - the sizes of pools; see kv-size.h. Pure. */
#include "daemon/engine/sched/kv-size.h"

enum {
    /* Windows that stay cached for each context: one for the sequence that continues it, and three others to resume
     * at. */
    WINDOWS_CACHED = 4,
    SEQS_LEAST = 16,  /* sequences that a pool of a windowed group has room for, where the pool of a full group has, */
    AHEAD_EACH = 512, /* with this many rows of a step each: a longer step belongs to one sequence */
    STATES_OWN = 4,   /* of a sequence: its own two, and two that it keeps for others to resume at */
    STATES_LEAST = SEQS_LEAST,
    STATES_PAGES = 256, /* pages of a timeline: large states get one sequence's share for each such stretch of it, */
    STATES_MOST = STATES_OWN * BATCH_SEQS_MAX, /* and small ones enough for all sequences of a step: */
    STATES_BYTES = 1 << 30                     /* within this many bytes */
};

/* The bytes of one page of a timeline in all groups that have keys and values. */
static uint64_t page_bytes(const struct kv_desc *desc, uint32_t n_group)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < n_group; g++)
        bytes += desc[g].d_state ? 0 : kv_page_bytes(&desc[g]);
    return bytes;
}

/* For every full context, the sparse states and those of one sequence. There is a minimum, and it is bounded because
 * sixteen large states, or hundreds of small ones, would leave no pages in a small budget. */
static uint32_t states_of(const struct kv_desc *d, uint64_t beside, uint32_t n_page, uint32_t n_ctx)
{
    uint64_t context = n_ctx / KV_PAGE + 1, share = (uint64_t)n_page * (n_ctx / STATE_SPARSE + STATES_OWN) / context;
    uint64_t least = STATES_BYTES / kv_page_bytes(d), even = STATES_OWN + n_page * beside / kv_page_bytes(d);
    if (least <= STATES_LEAST) {
        least = (uint64_t)STATES_OWN * (1 + n_page / STATES_PAGES);
        least = least < STATES_LEAST ? least : STATES_LEAST;
    } else {
        least = least > STATES_MOST ? STATES_MOST : least;
        least = beside && least > even ? even : least;
    }
    return (uint32_t)(share > least ? share : least);
}

static uint32_t pages_of(const struct kv_desc *d, uint64_t beside, uint32_t n_page, uint32_t n_ctx, uint32_t lookahead)
{
    if (d->d_state)
        return states_of(d, beside, n_page, n_ctx);
    if (!d->window)
        return n_page;
    uint64_t context = n_ctx / KV_PAGE + 1, windows = (uint64_t)WINDOWS_CACHED * kv_most(d->window, 0);
    uint32_t each = lookahead < AHEAD_EACH ? lookahead : AHEAD_EACH;
    uint64_t share = (uint64_t)n_page * windows / context,
             least = (uint64_t)SEQS_LEAST * kv_most(d->window, each) + (lookahead - each) / KV_PAGE;
    share = share > least ? share : least;
    return share < n_page ? (uint32_t)share : n_page;
}

void kv_size_pools(struct kv_desc *desc, uint32_t n_group, uint32_t n_page, uint32_t n_ctx, uint32_t lookahead)
{
    uint64_t beside = page_bytes(desc, n_group);
    for (uint32_t g = 0; g < n_group; g++)
        desc[g].n_page = pages_of(&desc[g], beside, n_page, n_ctx, lookahead);
}

uint64_t kv_size_bytes(const struct kv_desc *desc, uint32_t n_group, uint32_t n_page, uint32_t n_ctx,
                       uint32_t lookahead)
{
    uint64_t bytes = 0, beside = page_bytes(desc, n_group);
    for (uint32_t g = 0; g < n_group; g++)
        bytes += kv_page_bytes(&desc[g]) * pages_of(&desc[g], beside, n_page, n_ctx, lookahead);
    return bytes;
}

uint32_t kv_size_for(const struct kv_desc *desc, uint32_t n_group, uint64_t bytes, uint32_t n_ctx, uint32_t lookahead)
{
    uint32_t fits = 0, most = KV_PAGES_MAX;
    while (fits < most) {
        uint32_t n = fits + (most - fits + 1) / 2;
        if (kv_size_bytes(desc, n_group, n, n_ctx, lookahead) <= bytes)
            fits = n;
        else
            most = n - 1;
    }
    return fits;
}

uint32_t kv_size_extent(const struct kv_desc *desc, uint64_t granule)
{
    const uint64_t worth = 64 << 20, parts = 32; /* bytes worth a call; extents of a pool, at least */
    uint64_t page = kv_page_bytes(desc), a = page, b = granule;
    while (b) { /* the greatest common divisor */
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    uint64_t unit = granule / a, n = worth / page, part = desc->n_page / parts;
    n = (n < part ? n : part) / unit * unit;
    return (uint32_t)(n > unit ? n : unit);
}

uint64_t kv_size_room(const struct kv_desc *desc, uint32_t n_group, uint32_t lookahead)
{
    uint64_t room = UINT64_MAX;
    for (uint32_t g = 0; g < n_group; g++) {
        bool endless = (desc[g].window && desc[g].n_page >= kv_most(desc[g].window, lookahead)) || desc[g].d_state;
        uint64_t n = (uint64_t)desc[g].n_page * KV_PAGE;
        room = endless || n > room ? room : n;
    }
    return room;
}
