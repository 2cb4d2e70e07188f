/*
 * lead.h - how far the device is ahead of what is planned, and what the ends of its steps teach. Thread: the device
 * thread's.
 */
#ifndef HEARTH_ENGINE_LEAD_H
#define HEARTH_ENGINE_LEAD_H

#include "daemon/engine/core/device.h"

/* The step was submitted now. */
void lead_submitted(struct engine *eng, struct in_flight *f);

/* The oldest step in flight is over, with results if `done`: it was asked for at one time, and there by the other. */
void lead_learn(struct engine *eng, const struct in_flight *f, bool done, double asked, double now);

/*
 * Seconds until the next plan is to be made, of a device that has work; not above 0: now. Who comes is in no step that
 * was planned before. So a step that has a prompt beside somebody who decodes, or more of one than ROWS_GPU_LEAST rows,
 * or one while several users are at work, has no second one behind it until it is nearly over: until what is left of it
 * is what the next submission takes the host, and something for the error of the estimate.
 */
double lead_left(const struct engine *eng);

/* How long steps of that device may take. Static. */
const struct sched_pace *lead_pace(const struct device_info *info);

/* Waits for so long; true where a command has come. What was made is handed over first. */
bool lead_wait(struct engine *eng, double seconds);

#endif
