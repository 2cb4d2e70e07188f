/*
 * neighbours.h - how much of the device's memory other programs use. A thread of its own polls NVML (nvml.h), because
 * no event reports it and a call into the driver may take long.
 *
 * Thread: any.
 */
#ifndef HEARTH_ENGINE_NEIGHBOURS_H
#define HEARTH_ENGINE_NEIGHBOURS_H

#include "daemon/engine/nvml.h"

struct neighbours;

enum { NEIGHBOURS_MAX = 8 };
struct neighbour {
    int64_t pid;
    uint64_t bytes;
    char name[16]; /* the kernel's name for it; "" if it is outside this PID namespace */
};
struct neighbours_seen {
    bool known;
    char why[HEARTH_ERR_MSG]; /* why it is not known */
    uint64_t used;            /* memory of the device in use, by all processes */
    uint64_t own;             /* the part of `used` that is this process's; 0 if not reported, as in a container */
    bool display;
    double at; /* engine_now() at the time of the reading */
    uint32_t n;
    struct neighbour v[NEIGHBOURS_MAX]; /* [n] other processes, those that use the most */
};

enum { NEIGHBOURS_MUCH = 64 << 20 }; /* bytes: a large change, between two readings, of what others use */
/* Seconds until the next reading: `usual`, or less within 3 s after a large change. A program that takes memory usually
 * takes it piece by piece, and waits for each. */
static inline double neighbours_pause(double usual, double since_change)
{
    static const double eager = 0.025, lasts = 3;
    return since_change < lasts && eager < usual ? eager : usual;
}

/* Starts watching the GPU with that UUID, every `seconds`, and more often while much changes. `changed` is called, on
 * the watching thread, after the first reading and whenever others use more or less than at the previous one. */
int neighbours_open(struct neighbours **out, const char *library, const char *uuid, double seconds,
                    void (*changed)(void *arg), void *arg, struct hearth_err *e);
void neighbours_close(struct neighbours *n); /* n may be NULL */

void neighbours_get(struct neighbours *n, struct neighbours_seen *out);

#endif
