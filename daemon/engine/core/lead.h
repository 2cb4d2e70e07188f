/*
 * lead.h - how far the device's work extends beyond the last plan, that is, when the next plan must be made; and what
 * the ends of steps teach about their cost. Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_LEAD_H
#define HEARTH_ENGINE_LEAD_H

#include "daemon/engine/core/device.h"

/* To be called when the step has just been submitted. */
void lead_submitted(struct engine *eng, struct in_flight *f);

/* To be called when the oldest step in flight is over, with results if `done`: the wait for it began at `asked` and
 * ended at `now`. */
void lead_learn(struct engine *eng, const struct in_flight *f, bool done, double asked, double now);

/*
 * Seconds until the next plan has to be made while the device has work; <= 0: now. A request that arrives later than a
 * plan is not part of its step. Therefore no second step is queued behind a step that has a prompt beside decoding
 * sequences, or more than ROWS_GPU_LEAST rows of prompts, or a prompt while several users are at work, until that step
 * is nearly over: until the time left is what the next submission takes the host, plus a margin for the estimate's
 * error.
 */
double lead_left(const struct engine *eng);

/* The limits for how long steps of that device may take. Static. */
const struct sched_pace *lead_pace(const struct device_info *info);

/* Sends the queued events, then waits for `seconds`; true if a command has arrived. */
bool lead_wait(struct engine *eng, double seconds);

#endif
