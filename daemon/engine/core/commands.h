/*
 * commands.h - the loop thread's commands: sequences are submitted, cancelled, ended at their deadlines, and wait if
 * there is no memory for their model; models are loaded, unloaded and pinned. Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_COMMANDS_H
#define HEARTH_ENGINE_COMMANDS_H

#include "daemon/engine/core/device.h"

/* Carries out the commands that have arrived, and submits sequences that waited for memory which has become
 * available. */
void commands_run(struct engine *eng);

/* Same between two pieces of a model that is being loaded: carries out commands in order, up to the first one that has
 * to wait for the end of the load. */
void commands_run_beside_load(struct engine *eng);

/* Seconds until a sequence that waits for memory tries again; < 0: none waits, or an idle model will make room for
 * it. */
double commands_timeout(const struct engine *eng);

/* Ends every sequence. Tokens of steps in flight are dropped. */
void commands_end_all(struct engine *eng, const struct hearth_err *err);

#endif
