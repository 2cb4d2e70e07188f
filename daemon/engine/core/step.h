/*
 * step.h - one step: a plan becomes a batch, runs on the device, and its tokens become events. Steps are submitted
 * ahead (max_in_flight) and finish in order. Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_STEP_H
#define HEARTH_ENGINE_STEP_H

#include "daemon/engine/core/device.h"

/* Submits the next step if there is one, otherwise finishes the oldest; false if there was nothing to do. */
bool step_advance(struct engine *eng);

/* Arms the watchdog: from now on the loop thread can detect that `dev` hangs (engine_stuck()). NULL disarms it, except
 * that during a load the next piece is still watched. */
void step_watchdog(struct engine *eng, const struct device *dev);

/* Waits for every step in flight. */
void step_drain(struct engine *eng);

#endif
