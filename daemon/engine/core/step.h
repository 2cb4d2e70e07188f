/*
 * step.h - one step: a plan becomes a batch, runs on the device, and its tokens become events. Steps are submitted
 * ahead (max_in_flight) and finish in order. Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_STEP_H
#define HEARTH_ENGINE_STEP_H

#include "daemon/engine/core/device.h"

/* Submits the next step if there is one, else finishes the oldest; false: nothing to do. */
bool step_advance(struct engine *eng);

/* From here on the loop thread sees a `dev` that hangs (engine_stuck); NULL: nothing is waited for any more, or only
 * the next piece of a load. */
void step_watchdog(struct engine *eng, const struct device *dev);

/* Waits for every step in flight. */
void step_drain(struct engine *eng);

#endif
