/*
 * commands.h - what the loop thread asks for: sequences are submitted, cancelled, ended at their deadlines, and wait
 * where there is no memory for their model; models are loaded, unloaded and pinned. Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_COMMANDS_H
#define HEARTH_ENGINE_COMMANDS_H

#include "daemon/engine/core/device.h"

/* Carries out what has come, and what waited for memory that is there now. */
void commands_run(struct engine *eng);

/* The same between two pieces of a model that is being loaded, in order, up to what has to wait for its end. */
void commands_run_beside_load(struct engine *eng);

/* Seconds until one that waits for memory tries again; < 0: none waits, or an idle model will make room for it. */
double commands_timeout(const struct engine *eng);

/* Ends every sequence. Tokens of steps in flight are dropped. */
void commands_end_all(struct engine *eng, const struct hearth_err *err);

#endif
