/*
 * yield.h - memory that is given to other programs for a while, and what is done where a pool cannot grow. Thread: the
 * device thread's.
 *
 * A yield gives back, until enough is free: copies of weights, pages of KV that nobody has, cached KV, idle models, and
 * then those whose streams are parked: their KV is saved as for a preemption, and they wait where sequences wait for
 * their model's memory. Pinned models stay. Until its time is over hearth takes no more than it had when the yield was
 * answered; then all goes on by itself, a stream at the token where it stopped.
 *
 * The same is done where nobody asks, but other programs take what is left of the device (pressure.h), until they have
 * given it back.
 */
#ifndef HEARTH_ENGINE_YIELD_H
#define HEARTH_ENGINE_YIELD_H

#include "daemon/engine/core/device.h"

/* CMD_YIELD; of 0 seconds: the one that holds ends; `again`: engine_keep_yield()'s. Answered by EV_YIELDED, now or
 * later. */
void yield_begin(struct engine *eng, const struct command *o);

/* The sequence has to wait for memory for its model: who asked for it is told, and whether it is yielded memory. */
void yield_parks(struct engine *eng, struct seq *q);
/* It goes on, or begins. */
void yield_resumes(struct engine *eng, struct seq *q);

/* Between steps. True while streams are being parked. */
bool yield_advance(struct engine *eng);

/* Seconds until there is something to do; < 0: any. */
double yield_timeout(const struct engine *eng);

#endif
