/* age.c - the wall clock under suspicion; see age.h. Pure. */
#include "daemon/age.h"

#include <math.h>

void age_start(struct age *a, double kept_wall, double kept_doubt, double wall, double boot)
{
    bool odd = !(kept_doubt >= 0 && kept_doubt <= AGE_DOUBT); /* a damaged row, NaN among it */
    double away = wall - kept_wall;
    *a = (struct age){.wall = wall, .boot = boot, .doubt = odd ? AGE_DOUBT : kept_doubt};
    if (!(away >= -AGE_LEAP && away <= AGE_AWAY))
        a->doubt = AGE_DOUBT;
}

bool age_look(struct age *a, double wall, double boot)
{
    double by_wall = wall - a->wall, by_boot = boot - a->boot;
    a->wall = wall;
    a->boot = boot;
    if (fabs(by_wall - by_boot) > AGE_LEAP)
        a->doubt = AGE_DOUBT;
    else if (a->doubt > 0)
        a->doubt = a->doubt > by_boot ? a->doubt - by_boot : 0;
    return a->doubt == 0;
}
