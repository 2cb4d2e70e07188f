/* pace.c - see pace.h. */
#include "config.h"

#include "daemon/model/pace.h"

static _Thread_local struct {
    pace_fn *fn;
    void *arg;
    size_t bytes; /* not yet reported to fn */
} own;

void pace_set(pace_fn *fn, void *arg)
{
    own.fn = fn;
    own.arg = arg;
    own.bytes = 0;
}

int pace(size_t bytes, struct hearth_err *e)
{
    own.bytes += bytes;
    if (own.bytes < PACE_STEP || !own.fn)
        return 0;
    bytes = own.bytes;
    own.bytes = 0;
    return own.fn(own.arg, bytes, e);
}
