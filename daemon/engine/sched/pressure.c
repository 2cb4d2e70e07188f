/* pressure.c - see pressure.h. Pure. */
#include "daemon/engine/sched/pressure.h"

/* What a driver takes for a program of its own, a display's say, is none that wants more. */
static const uint64_t slack = UINT64_C(64) << 20;

void pressure_accept(struct pressure *p, const struct ledger *l)
{
    p->on = false;
    p->seen = true;
    p->calm = p->last = l->others;
}

/* Others are known apart from hearth where the driver tells which memory is hearth's: its context is, then. */
static bool knows_others(const struct ledger *l)
{
    return l->others_known && l->context > 0;
}

enum pressure_act pressure_look(struct pressure *p, const struct ledger *l, uint64_t free)
{
    bool was_on = p->on, grew = p->seen && l->others > p->last;
    if (!p->headroom || !knows_others(l)) {
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
        p->want = 2 * p->headroom;
        return PRESSURE_GIVE;
    }
    p->most = l->others > p->most ? l->others : p->most;
    if (l->others <= p->calm + (p->most - p->calm) / 4) {
        pressure_accept(p, l);
        return PRESSURE_TAKE;
    }
    if (!grew || free >= p->headroom)
        return PRESSURE_NONE;
    p->want = p->want < l->total / 2 ? 2 * p->want : l->total;
    return PRESSURE_GIVE;
}
