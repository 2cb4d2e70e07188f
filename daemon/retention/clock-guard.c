/* clock-guard.c - see clock-guard.h. Pure. */
#include "daemon/retention/clock-guard.h"

#include <math.h>

void clock_guard_init(struct clock_guard *a, double saved_wall, double saved_holdoff, double wall, double boot)
{
    bool odd = !(saved_holdoff >= 0 && saved_holdoff <= CLOCK_GUARD_HOLDOFF); /* true for NaN, of a damaged row, too */
    double off = wall - saved_wall;
    *a = (struct clock_guard){.wall = wall, .boot = boot, .holdoff = odd ? CLOCK_GUARD_HOLDOFF : saved_holdoff};
    if (!(off >= -CLOCK_GUARD_MAX_STEP && off <= CLOCK_GUARD_MAX_OFF))
        a->holdoff = CLOCK_GUARD_HOLDOFF;
}

bool clock_guard_update(struct clock_guard *a, double wall, double boot)
{
    double by_wall = wall - a->wall, by_boot = boot - a->boot;
    a->wall = wall;
    a->boot = boot;
    if (fabs(by_wall - by_boot) > CLOCK_GUARD_MAX_STEP)
        a->holdoff = CLOCK_GUARD_HOLDOFF;
    else if (a->holdoff > 0)
        a->holdoff = a->holdoff > by_boot ? a->holdoff - by_boot : 0;
    return a->holdoff == 0;
}
