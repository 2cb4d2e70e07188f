/*
 * fit.h - a model that does not fit on the device: which of its weights stay in host memory, and how fast it will be.
 * Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_FIT_H
#define HEARTH_ENGINE_FIT_H

#include "daemon/engine/core/device.h"

enum { FIT_TOKENS = 8192 }; /* of KV, for which such a model's weights leave room, unless kv_bytes is set */

/* Bytes of the device that are kept free beside everything that is counted: for vectors, attention's partial sums,
 * graphs. */
uint64_t fit_spare(const struct engine *eng);

/* Whether models may be loaded partly into host memory: the device is a GPU that supports it, and the configuration
 * allows it. */
bool fit_possible(const struct engine *eng);

/* To be called once the workspace is reserved: determines how much room the weights have in both memories, records in
 * the entry how they will be placed and how fast that is, and logs it. HEARTH_ENOMEM names the sizes that do not
 * suffice. */
int fit_plan(struct engine *eng, struct model_entry *m, struct model_room *out, struct hearth_err *e);

/* Records how a model's weights are placed; zeros if it is not loaded. */
void fit_note(struct model_entry *m);

#endif
