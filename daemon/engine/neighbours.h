/*
 * neighbours.h - the other programs on the device: how much of its memory they have. A thread of its own asks NVML
 * (nvml.h), because no event tells of it and a call into the driver may take its time.
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
    char name[16]; /* as the kernel has it; "": not in this namespace */
};
struct neighbours_seen {
    bool known;
    char why[HEARTH_ERR_MSG]; /* it is not known */
    uint64_t used;            /* of the device, by all */
    uint64_t own;             /* of that, by this process; 0: not told, as in a container */
    bool display;
    double at; /* engine_now() when it was looked */
    uint32_t n;
    struct neighbour v[NEIGHBOURS_MAX]; /* [n] other processes, those with the most */
};

/* Seconds until the next look, where the last great change of what others have, of NEIGHBOURS_MUCH bytes between two
 * looks, was so long ago: a program that takes memory takes more of it, a piece at a time, and waits for each. */
enum { NEIGHBOURS_MUCH = 64 << 20 };
static inline double neighbours_pause(double usual, double since_change)
{
    static const double eager = 0.025, lasts = 3;
    return since_change < lasts && eager < usual ? eager : usual;
}

/* Begins to watch the GPU with that UUID, every so many seconds, and more often while much changes. `changed` is
 * called, by the watching thread, after it has looked for the first time and whenever others have more or less than at
 * the look before. */
int neighbours_open(struct neighbours **out, const char *library, const char *uuid, double seconds,
                    void (*changed)(void *arg), void *arg, struct hearth_err *e);
void neighbours_close(struct neighbours *n); /* may be NULL */

void neighbours_get(struct neighbours *n, struct neighbours_seen *out);

#endif
