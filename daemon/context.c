/* context.c - see context.h. */
#include "daemon/context.h"

#include <time.h>

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double server_now(void)
{
    return seconds(CLOCK_REALTIME);
}

double server_boot(void)
{
    return seconds(CLOCK_BOOTTIME);
}

double server_cpu(void)
{
    return seconds(CLOCK_THREAD_CPUTIME_ID);
}

int server_check_open(const struct server *s, struct hearth_err *e)
{
    return s->phase == SERVER_RUNNING ? 0 : err_set(e, HEARTH_ESHUTDOWN, "hearthd is shutting down");
}
