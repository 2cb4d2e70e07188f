/* rate.c - measures the memory bandwidth of all threads together. Thread: the engine's device thread. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/cpu.h"

enum {
    BUFFER = 512 << 20, /* several times any last-level cache */
    PIECE = 1 << 20,
    PASSES = 5,
};

struct reading {
    const uint64_t *buf;
    uint64_t *sum; /* [BUFFER / PIECE]: the sums keep the compiler from dropping the loads */
};

static void read_piece(void *arg, uint32_t item, uint32_t thread)
{
    struct reading *r = arg;
    const uint64_t *p = r->buf + (size_t)item * (PIECE / sizeof *p);
    uint64_t s[8] = {0};
    (void)thread;
    for (size_t i = 0; i < PIECE / sizeof *p; i += 8)
        for (size_t j = 0; j < 8; j++)
            s[j] += p[i + j];
    r->sum[item] = s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* `host` makes no difference here, and the buffer always has the same size. */
int cpu_read_rate(struct device *d, bool host, uint64_t bytes, double *bytes_per_s, struct hearth_err *e)
{
    (void)host, (void)bytes;
    uint64_t *buf = malloc(BUFFER), sum[BUFFER / PIECE];
    struct reading r = {buf, sum};
    double best = 0;
    if (!buf)
        return err_set(e, HEARTH_ENOMEM, "no memory for %d MiB to read", BUFFER >> 20);
    memset(buf, 1, BUFFER); /* allocates real pages in place of the shared zero page */
    for (int i = 0; i < PASSES; i++) {
        double begin = now();
        pool_run(d->pool, BUFFER / PIECE, read_piece, &r);
        double rate = BUFFER / (now() - begin);
        best = rate > best ? rate : best;
    }
    free(buf);
    *bytes_per_s = best;
    return 0;
}
