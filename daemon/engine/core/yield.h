/*
 * yield.h - memory that is yielded to other programs for a while, and what is done when a pool cannot grow. Thread: the
 * device thread's.
 *
 * A yield gives back memory until enough is free, in this order: copies of weights, free pages of KV, pages of cached
 * KV, idle models, and then models in use, whose streams are parked: their KV is saved as for a preemption, and they
 * wait among the sequences that wait for their model's memory. Pinned models stay, with the minimum of their pools.
 * Until the yield's time is over, hearth takes no more than it held when the yield was answered; a sequence of a loaded
 * model that needs more KV waits in the scheduler. Then everything resumes by itself, a stream at the token where it
 * stopped.
 *
 * The same is done without a request when other programs use up the device's memory (pressure.h), until they have given
 * it back.
 */
#ifndef HEARTH_ENGINE_YIELD_H
#define HEARTH_ENGINE_YIELD_H

#include "daemon/engine/core/device.h"

/* Carries out CMD_YIELD; with 0 seconds it ends the yield in force, with `again` it is engine_keep_yield(). Answered by
 * EV_YIELDED, now or later. */
void yield_begin(struct engine *eng, const struct command *o);

/* To be called between steps. True while streams are being parked. */
bool yield_advance(struct engine *eng);

/* If a step was refused memory (engine.refused): gives back copies of weights, free pages of KV, with `unload` an idle
 * model, or pages of cached KV, until there is something that was given back. Called by yield_advance(), and between
 * two pieces of a load, where no model may be unloaded. */
void yield_relieve_step(struct engine *eng, bool unload);

/* To be called when the next step has been planned: reports the sequences that wait for pages of KV because of a yield.
 */
void yield_tell(struct engine *eng);

/* Seconds until there is something to do; < 0: no limit. */
double yield_timeout(const struct engine *eng);

#endif
