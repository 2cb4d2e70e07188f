/*
 * exchange.c - exchange between the threads of a warp: shuffles, votes, reductions; and packing of registers.
 */
#include "tests/sim/machine.h"

#include <string.h>

void sim_nothing_op(struct warp *w, const struct ins *i)
{
    (void)w, (void)i;
}
void sim_trap_op(struct warp *w, const struct ins *i)
{
    sim_fault(w, i, leader(w), "trap");
}
/* shfl.sync d|v[0], a, b, c, e */
void sim_shfl_op(struct warp *w, const struct ins *i)
{
    const uint32_t *a = at(w, i->a), *b = at(w, i->b), *c = at(w, i->c);
    uint32_t t[LANES], in_range = 0;
    for (int l = 0; l < LANES; l++) {
        t[l] = 0;
        if (!(w->exec >> l & 1))
            continue;
        int segment = c[l] >> 8 & 31, clamp = c[l] & 31, by = b[l] & 31, low = l & segment,
            high = low | (clamp & ~segment), from;
        bool there;
        switch ((enum shfl)i->kind) {
        case SHFL_IDX:
            from = low | (by & ~segment), there = from <= high;
            break;
        case SHFL_UP:
            from = l - by, there = from >= high;
            break;
        case SHFL_DOWN:
            from = l + by, there = from <= high;
            break;
        default:
            from = l ^ by, there = from <= high;
            break;
        }
        if (!there)
            from = l;
        if (!(w->exec >> from & 1))
            sim_fault(w, i, l, "a shuffle from thread %d of the warp, which takes no part", from);
        t[l] = a[from];
        in_range |= (uint32_t)there << l;
    }
    put32(w, i->d, t);
    if (i->n)
        put_pred(w, i->v[0], in_range);
}
/* vote.sync d, a, e; kind 0x100: of !a */
void sim_vote_op(struct warp *w, const struct ins *i)
{
    uint32_t p = (i->kind & 0x100 ? ~pred_of(w, i->a) : pred_of(w, i->a)) & w->exec, t[LANES];
    switch ((enum vote)(i->kind & 0xff)) {
    case VOTE_ALL:
        put_pred(w, i->d, p == w->exec ? ~0u : 0);
        break;
    case VOTE_ANY:
        put_pred(w, i->d, p ? ~0u : 0);
        break;
    default:
        for (int l = 0; l < LANES; l++)
            t[l] = p;
        put32(w, i->d, t);
        break;
    }
}
void sim_activemask_op(struct warp *w, const struct ins *i)
{
    uint32_t t[LANES];
    for (int l = 0; l < LANES; l++)
        t[l] = w->exec;
    put32(w, i->d, t);
}
/* redux.sync d, a, e */
void sim_redux_op(struct warp *w, const struct ins *i)
{
    const uint32_t *a = at(w, i->a);
    uint32_t r = a[leader(w)], t[LANES];
    for (int l = leader(w) + 1; l < LANES; l++) {
        if (!(w->exec >> l & 1))
            continue;
        bool less = i->is_signed ? (int32_t)a[l] < (int32_t)r : a[l] < r;
        switch ((enum atom)i->kind) {
        case ATOM_ADD:
            r += a[l];
            break;
        case ATOM_MIN:
            r = less ? a[l] : r;
            break;
        case ATOM_MAX:
            r = less ? r : a[l];
            break;
        case ATOM_AND:
            r &= a[l];
            break;
        case ATOM_OR:
            r |= a[l];
            break;
        default:
            r ^= a[l];
            break;
        }
    }
    for (int l = 0; l < LANES; l++)
        t[l] = r;
    put32(w, i->d, t);
}
/* mov d, {v}: n parts of size bytes, the first lowest */
void sim_pack_op(struct warp *w, const struct ins *i)
{
    if (i->size == 8) { /* 128 bits from two registers */
        uint64_t *d = at(w, i->d);
        for (int e = 0; e < 2; e++) {
            const uint64_t *v = at(w, i->v[e]);
            for (int l = 0; l < LANES; l++)
                if (w->exec >> l & 1)
                    d[e * LANES + l] = v[l];
        }
        return;
    }
    uint64_t t[LANES] = {0};
    uint32_t low[LANES];
    for (int e = 0; e < i->n; e++) {
        const uint32_t *v = at(w, i->v[e]);
        for (int l = 0; l < LANES; l++)
            t[l] |= (uint64_t)(i->size == 2 ? v[l] & 0xffff : i->size == 1 ? v[l] & 0xff : v[l]) << 8 * i->size * e;
    }
    for (int l = 0; l < LANES; l++)
        low[l] = (uint32_t)t[l];
    if (i->wide_value)
        put64(w, i->d, t);
    else
        put32(w, i->d, low);
}
/* mov {v}, a */
void sim_unpack_op(struct warp *w, const struct ins *i)
{
    if (i->size == 8) {
        const uint64_t *a = at(w, i->a);
        for (int e = 0; e < 2; e++)
            if (i->v[e] != NONE)
                put64(w, i->v[e], a + e * LANES);
        return;
    }
    uint64_t whole[LANES];
    for (int l = 0; l < LANES; l++)
        whole[l] = i->wide_value ? ((const uint64_t *)at(w, i->a))[l] : ((const uint32_t *)at(w, i->a))[l];
    for (int e = 0; e < i->n; e++) {
        uint32_t t[LANES];
        for (int l = 0; l < LANES; l++)
            t[l] = (uint32_t)(whole[l] >> 8 * i->size * e & (i->size == 4 ? ~0u : (1u << 8 * i->size) - 1));
        if (i->v[e] != NONE)
            put32(w, i->v[e], t);
    }
}
