/*
 * fit.h - a model that the device has no room for: what of its weights stays in the host's memory, and how quick it
 * will be. Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_FIT_H
#define HEARTH_ENGINE_FIT_H

#include "daemon/engine/core/device.h"

enum { FIT_TOKENS = 8192 }; /* of KV that such a model's weights leave room for, where kv_bytes says nothing else */

/* Bytes of the device that stay free beside all that is counted: for vectors, attention's partial sums, graphs. */
uint64_t fit_spare(const struct engine *eng);

/* Whether models may be loaded so: the device is a GPU that can, and the configuration says nothing else. */
bool fit_possible(const struct engine *eng);

/* Finds how much room the weights have in both memories, once the workspace is reserved, notes in the entry where they
 * will lie and how fast that is, and says so in the log. HEARTH_ENOMEM names the sizes that do not suffice. */
int fit_plan(struct engine *eng, struct model_entry *m, struct model_room *out, struct hearth_err *e);

/* Notes where the weights of a model lie that was loaded, or that none do yet. */
void fit_note(struct model_entry *m);

#endif
