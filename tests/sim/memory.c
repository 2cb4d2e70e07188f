/*
 * memory.c - the memory that kernels may access, and the PTX that reads and writes it: loads, stores, atomics.
 * Asynchronous copies are in async.c.
 */
#include "tests/sim/machine.h"

#include <stdlib.h>
#include <string.h>

/* --- addresses -------------------------------------------------------------------------------------------------- */

/* The memory that kernels may access, by address. `changes` counts its changes, which invalidate cached results. */
static struct range {
    const uint8_t *p;
    size_t n;
} * ranges;
static size_t n_ranges, room_ranges, changes;

/* The first range that begins after p. */
static size_t range_after(const uint8_t *p)
{
    size_t low = 0, high = n_ranges;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (ranges[mid].p <= p)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}
void sim_memory_add(const void *p, size_t n)
{
    if (n_ranges == room_ranges) {
        room_ranges = room_ranges ? 2 * room_ranges : 64;
        ranges = realloc(ranges, room_ranges * sizeof *ranges);
        if (!ranges)
            abort();
    }
    size_t k = range_after(p);
    memmove(ranges + k + 1, ranges + k, (n_ranges - k) * sizeof *ranges);
    ranges[k] = (struct range){p, n};
    n_ranges++;
    changes++;
}
void sim_memory_remove(const void *p)
{
    size_t k = range_after(p);
    if (!k || ranges[k - 1].p != p)
        return;
    memmove(ranges + k - 1, ranges + k, (n_ranges - k) * sizeof *ranges);
    n_ranges--;
    changes++;
}
/* Adjacent ranges count as one, because the pages of a pool are mapped one after another into a range of addresses. */
static bool may_touch(const uint8_t *p, size_t n)
{
    static struct range last;
    static size_t last_changes;
    if (last_changes == changes && p >= last.p && (size_t)(p - last.p) < last.n && last.n - (size_t)(p - last.p) >= n)
        return true;
    size_t k = range_after(p);
    if (!k)
        return false;
    struct range r = ranges[k - 1];
    while (k < n_ranges && ranges[k].p == r.p + r.n)
        r.n += ranges[k++].n;
    if ((size_t)(p - r.p) >= r.n || r.n - (size_t)(p - r.p) < n)
        return false;
    last = r, last_changes = changes;
    return true;
}

static const char *const spaces[] = {"generic", "global", "shared", "cluster's shared", "local", "parameter"};

/* Any n bytes; sim_place() is for addresses that are a multiple of n. */
void *sim_bytes(struct warp *w, const struct ins *i, int lane, enum space space, uint64_t address, uint32_t n)
{
    const struct grid *g = w->block->cluster->grid;
    const enum space asked = space;
    uint64_t a = address, size = 0;
    uint8_t *base = NULL;
    if (space == SPACE_GENERIC) {
        static const enum space windows[] = {
            [GENERIC_SHARED] = SPACE_CLUSTER, [GENERIC_LOCAL] = SPACE_LOCAL, [GENERIC_PARAM] = SPACE_PARAM};
        uint64_t window = a >> GENERIC_SHIFT;
        space = SPACE_GLOBAL;
        if (window && window <= GENERIC_PARAM)
            space = windows[window], a &= (1ull << GENERIC_SHIFT) - 1;
    }
    if (space == SPACE_GLOBAL) {
        if (may_touch((const uint8_t *)a, n))
            return (void *)a;
    } else if (space == SPACE_SHARED || space == SPACE_CLUSTER) {
        /* A cluster address has the rank of its block above; an address without a rank is the block's own. */
        const struct block *b = w->block;
        uint64_t rank = a >> CLUSTER_SHIFT;
        if (rank && rank <= b->cluster->n_blocks) {
            b = b->cluster->blocks + rank - 1;
            if (!b->live)
                sim_fault(w, i, lane, "shared memory of block %u of the cluster, which has ended", (unsigned)rank - 1);
            if (space == SPACE_SHARED && b != w->block)
                sim_fault(w, i, lane, "an address in another block's shared memory, but not a cluster's access");
            a &= (1u << CLUSTER_SHIFT) - 1;
        }
        base = b->shared, size = g->shared_bytes;
    } else if (space == SPACE_LOCAL) {
        base = w->local + (size_t)lane * g->fn->info.local_bytes, size = g->fn->info.local_bytes;
    } else {
        base = g->params, size = g->fn->info.params_bytes;
    }
    if (!base || a > size || n > size - a)
        sim_fault(w, i, lane, "%u bytes outside of %s memory: 0x%llx", n, spaces[asked], (unsigned long long)address);
    return base + a;
}
void *sim_place(struct warp *w, const struct ins *i, int lane, enum space space, uint64_t address, uint32_t n)
{
    if (address % n)
        sim_fault(w, i, lane, "%u bytes of %s memory at 0x%llx, which is no multiple", n, spaces[space],
                  (unsigned long long)address);
    return sim_bytes(w, i, lane, space, address, n);
}
uint64_t sim_address(const struct warp *w, const struct ins *i, int lane)
{
    uint64_t base = i->is_wide ? ((const uint64_t *)at(w, i->a))[lane] : ((const uint32_t *)at(w, i->a))[lane];
    uint64_t a = base + (uint64_t)i->imm;
    return i->is_wide ? a : (uint32_t)a;
}
/* --- loads and stores ------------------------------------------------------------------------------------------- */

static uint64_t read_number(const uint8_t *p, uint32_t size, bool is_signed)
{
    uint8_t b;
    uint16_t h;
    uint32_t v;
    uint64_t q;
    switch (size) {
    case 1:
        b = *p;
        return is_signed ? (uint64_t)(int8_t)b : b;
    case 2:
        memcpy(&h, p, 2);
        return is_signed ? (uint64_t)(int16_t)h : h;
    case 4:
        memcpy(&v, p, 4);
        return is_signed ? (uint64_t)(int32_t)v : v;
    default:
        memcpy(&q, p, 8);
        return q;
    }
}
/*
 * Finds each lane's n bytes; lanes that do not execute get those of another lane. In one check if all of them are in
 * one range of memory or in the block's own shared memory, as is usual; otherwise one by one.
 */
static void places(struct warp *w, const struct ins *i, uint32_t n, uint8_t *p[LANES])
{
    uint64_t a[LANES], low = UINT64_MAX, high = 0, odd = 0;
    if (i->is_wide)
        for (int l = 0; l < LANES; l++)
            a[l] = ((const uint64_t *)at(w, i->a))[l] + (uint64_t)i->imm;
    else
        for (int l = 0; l < LANES; l++)
            a[l] = (uint32_t)(((const uint32_t *)at(w, i->a))[l] + (uint32_t)i->imm);
    if (w->exec != (uint32_t)ALL)
        for (int l = 0; l < LANES; l++)
            a[l] = w->exec >> l & 1 ? a[l] : a[leader(w)];
    for (int l = 0; l < LANES; l++)
        low = a[l] < low ? a[l] : low, high = a[l] > high ? a[l] : high, odd |= a[l];
    const bool aligned = !(odd & (n - 1)), shared = i->space == SPACE_SHARED;
    if (aligned && shared && high + n <= w->block->cluster->grid->shared_bytes) {
        for (int l = 0; l < LANES; l++)
            p[l] = w->block->shared + a[l];
    } else if (aligned && (i->space == SPACE_GLOBAL || (i->space == SPACE_GENERIC && !(odd >> GENERIC_SHIFT))) &&
               may_touch((const uint8_t *)low, high - low + n)) {
        for (int l = 0; l < LANES; l++)
            p[l] = (uint8_t *)a[l];
    } else {
        for (int l = 0; l < LANES; l++)
            p[l] = NULL;
        EACH_LANE(l)
        p[l] = sim_place(w, i, (int)l, (enum space)i->space, a[l], n);
        for (int l = 0; l < LANES; l++)
            p[l] = p[l] ? p[l] : p[leader(w)];
    }
}
void sim_load_op(struct warp *w, const struct ins *i)
{
    uint8_t *p[LANES];
    w->spins = i->flow == FLOW_POLL;
    places(w, i, i->size * i->n, p);
    for (uint32_t e = 0; e < i->n; e++) {
        uint32_t t[LANES], at_byte = e * i->size;
        uint64_t q[LANES];
        if (i->v[e] == NONE)
            continue;
        if (i->size == 16) {
            for (int half = 0; half < 2; half++) {
                for (int l = 0; l < LANES; l++)
                    memcpy(q + l, p[l] + 8 * half, 8);
                put64(w, i->v[e] + half * LANES * 8, q);
            }
        } else if (i->size == 4 && !i->wide_value) {
            for (int l = 0; l < LANES; l++)
                memcpy(t + l, p[l] + at_byte, 4);
            put32(w, i->v[e], t);
        } else if (i->wide_value) {
            for (int l = 0; l < LANES; l++)
                q[l] = read_number(p[l] + at_byte, i->size, i->is_signed);
            put64(w, i->v[e], q);
        } else {
            for (int l = 0; l < LANES; l++)
                t[l] = (uint32_t)read_number(p[l] + at_byte, i->size, i->is_signed);
            put32(w, i->v[e], t);
        }
    }
}
/* The lanes store in order, so that of several at the same place the last one remains. */
void sim_store_op(struct warp *w, const struct ins *i)
{
    uint8_t *p[LANES];
    places(w, i, i->size * i->n, p);
    for (uint32_t e = 0; e < i->n; e++) {
        const uint32_t at_byte = e * i->size;
        const uint32_t *v32 = at(w, i->v[e]);
        const uint64_t *v64 = at(w, i->v[e]);
        EACH_LANE(l)
        {
            if (i->size == 16)
                memcpy(p[l], v64 + l, 8), memcpy(p[l] + 8, v64 + LANES + l, 8);
            else if (i->wide_value)
                memcpy(p[l] + at_byte, v64 + l, i->size);
            else if (i->size == 4)
                memcpy(p[l] + at_byte, v32 + l, 4);
            else
                memcpy(p[l] + at_byte, v32 + l, i->size);
        }
    }
}
/* A prefetch: an invalid address is not a fault, except for a bulk prefetch (b: bytes). */
void sim_touch_op(struct warp *w, const struct ins *i)
{
    if (i->b == NONE)
        return;
    EACH_LANE(l)
    {
        uint32_t n = value32(w, i->b, l);
        if (n)
            sim_bytes(w, i, (int)l, SPACE_GLOBAL, sim_address(w, i, (int)l), n);
    }
}

static uint64_t combined(enum atom how, uint64_t was, uint64_t v, uint64_t other, uint32_t size, bool is_signed)
{
    bool less = is_signed ? (size == 4 ? (int32_t)v < (int32_t)was : (int64_t)v < (int64_t)was) : v < was;
    switch (how) {
    case ATOM_ADD:
        return was + v;
    case ATOM_MIN:
        return less ? v : was;
    case ATOM_MAX:
        return less ? was : v;
    case ATOM_AND:
        return was & v;
    case ATOM_OR:
        return was | v;
    case ATOM_XOR:
        return was ^ v;
    case ATOM_EXCH:
        return v;
    default:
        return was == v ? other : was;
    }
}
/* atom d, [a], b, c; red has no d. kind: an enum atom, with 0x100 for a sum of floats. */
void sim_atom_op(struct warp *w, const struct ins *i)
{
    EACH_LANE(l)
    {
        uint8_t *p = sim_place(w, i, (int)l, (enum space)i->space, sim_address(w, i, (int)l), i->size);
        uint64_t was = read_number(p, i->size, false), v = i->size == 8 ? value64(w, i->b, l) : value32(w, i->b, l),
                 other = i->c == NONE   ? 0
                         : i->size == 8 ? value64(w, i->c, l)
                                        : value32(w, i->c, l);
        uint64_t now;
        if (i->kind & 0x100) {
            float x, y;
            memcpy(&x, &was, 4), memcpy(&y, &v, 4);
            x += y;
            now = 0, memcpy(&now, &x, 4);
        } else {
            now = combined((enum atom)i->kind, was, v, other, i->size, i->is_signed);
        }
        memcpy(p, &now, i->size);
        if (i->d != NONE && i->size == 8)
            ((uint64_t *)at(w, i->d))[l] = was;
        else if (i->d != NONE)
            ((uint32_t *)at(w, i->d))[l] = (uint32_t)was;
    }
}

/* mapa.shared::cluster.u32 d, a, b: the address in the block of rank b that corresponds to a here */
void sim_mapa_op(struct warp *w, const struct ins *i)
{
    uint32_t t[LANES] = {0};
    EACH_LANE(l)
    {
        uint32_t rank = value32(w, i->b, l);
        if (rank >= w->block->cluster->n_blocks)
            sim_fault(w, i, (int)l, "block %u of a cluster of %u", rank, w->block->cluster->n_blocks);
        t[l] = (value32(w, i->a, l) & ((1u << CLUSTER_SHIFT) - 1)) | (rank + 1) << CLUSTER_SHIFT;
    }
    put32(w, i->d, t);
}
