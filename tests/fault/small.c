/* small.c - see small.h. Thread: the device's. */
#include "config.h"

#include "tests/fault/small.h"

#include <stdlib.h>

static const double own_rate = 1e9, host_rate = 1e8;

static struct {
    const struct backend *inner;
    struct backend table;
    uint64_t total, own, host; /* bytes: in all, and held by weights in the device's and in host memory */
} small;

static uint64_t bytes_of(const struct weight *w)
{
    uint64_t n = w->n_expert ? w->n_expert : 1, bytes = 0;
    for (uint32_t i = 0; i < w->n_part; i++)
        bytes += n * dtype_bytes((int)w->part[i].type, (uint64_t)w->n_in * w->part[i].n_out);
    return SMALL_FACTOR * bytes;
}

static void info(struct device *d, struct device_info *out)
{
    small.inner->info(d, out);
    out->gpu = true;
    out->held[MEM_WEIGHTS] = small.own;
    uint64_t held = small.own + out->held[MEM_KV] + out->held[MEM_WORKSPACE];
    out->mem_total = small.total;
    out->mem_free = small.total > held ? small.total - held : 0;
    out->mem_pinned += small.host;
}

static uint64_t weight_bytes(struct device *d, const struct weight *w, uint64_t *passing)
{
    (void)d;
    *passing = w->role == WEIGHT_ROUTER ? 0 : 1;
    return bytes_of(w);
}

static int weight_load(struct device *d, struct weight *w, struct hearth_err *e)
{
    uint64_t bytes = bytes_of(w), *held = w->host ? &small.host : &small.own;
    if (!w->host && bytes > small.total - small.own)
        return err_set(e, HEARTH_ENOMEM, "the small GPU has no room for a matrix");
    int rc = small.inner->weight_load(d, w, e);
    if (!rc)
        *held += bytes;
    return rc;
}

static void weight_free(struct device *d, struct weight *w)
{
    *(w->host ? &small.host : &small.own) -= bytes_of(w);
    small.inner->weight_free(d, w);
}

static int read_rate(struct device *d, bool host, uint64_t bytes, double *bytes_per_s, struct hearth_err *e)
{
    (void)d, (void)bytes, (void)e;
    *bytes_per_s = host ? host_rate : own_rate;
    return 0;
}

const char *small_bytes;

const struct backend *small_wrap(const struct backend *be, struct device *d, struct hearth_err *e)
{
    char *end;
    (void)d;
    small.total = strtoull(small_bytes, &end, 10);
    if (!small.total || *end) {
        err_set(e, HEARTH_EPARAMS, "--small: \"%.40s\" is no number of bytes", small_bytes);
        return NULL;
    }
    small.inner = be;
    small.table = *be;
    small.table.info = info;
    small.table.weight_load = weight_load;
    small.table.weight_bytes = weight_bytes;
    small.table.weight_free = weight_free;
    small.table.read_rate = read_rate;
    return &small.table;
}
