/* pressure.c - see pressure.h. Pure. */
#include "daemon/engine/sched/pressure.h"

/* Growth up to this much is not a program that wants more: the driver takes memory on its own account, for a display
 * say. */
static const uint64_t slack = UINT64_C(64) << 20;

void pressure_accept(struct pressure *p, const struct ledger *l)
{
    p->on = false;
    p->seen = true;
    p->calm = p->last = l->others;
}

/* The first target for free memory: enough to be reached in few steps, and no more than a part of the card for a
 * program that wants little. */
static uint64_t first_want(const struct pressure *p, const struct ledger *l)
{
    enum { PARTS = 16 };
    uint64_t part = l->total / PARTS;
    return part > 2 * p->headroom ? part : 2 * p->headroom;
}

/* With less than this free, the program's next allocation may be refused. It grows with the target, as the allocations
 * may. */
static uint64_t least_free(const struct pressure *p)
{
    uint64_t ahead = p->on ? p->want / 4 : 0;
    return ahead > p->headroom ? ahead : p->headroom;
}

enum pressure_act pressure_look(struct pressure *p, const struct ledger *l, uint64_t free)
{
    bool was_on = p->on, grew = p->seen && l->others > p->last;
    if (!p->headroom || !l->others_apart) {
        p->on = p->seen = false;
        return was_on ? PRESSURE_TAKE : PRESSURE_NONE;
    }
    if (!p->seen || (!p->on && (free >= p->headroom || l->others < p->calm))) {
        pressure_accept(p, l);
        return PRESSURE_NONE;
    }
    p->last = l->others;
    if (!p->on && l->others <= p->calm + slack)
        return PRESSURE_NONE;
    if (!p->on) {
        p->on = true;
        p->most = l->others;
        p->want = first_want(p, l);
        return PRESSURE_GIVE;
    }
    p->most = l->others > p->most ? l->others : p->most;
    if (l->others <= p->calm + (p->most - p->calm) / 4) {
        pressure_accept(p, l);
        return PRESSURE_TAKE;
    }
    if (!grew || free >= least_free(p))
        return PRESSURE_NONE;
    p->want = p->want < l->total / 2 ? 2 * p->want : l->total;
    return PRESSURE_GIVE;
}
