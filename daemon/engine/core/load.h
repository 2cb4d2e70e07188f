/*
 * load.h - models come to the device and go. A load lets the others take a step between two pieces of the weights, so
 * it stands above step.h. Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_LOAD_H
#define HEARTH_ENGINE_LOAD_H

#include "daemon/engine/core/device.h"

/* Gives the model to the device, or to the CPU where the device cannot serve it; and takes it back. HEARTH_EELSEWHERE:
 * other programs have the device's memory, and the machine has other devices, which come first unless the model is
 * `here`. A model with sequences is not unloaded: HEARTH_ELIMIT. */
int load_model(struct engine *eng, struct model_entry *m, struct hearth_err *e);
int unload_model(struct engine *eng, struct model_entry *m, struct hearth_err *e);

/* What devices are opened to keep KV in: device_params.kv_type. */
enum dtype load_kv_type(const struct engine_params *p);

/* Whether no model holds memory of the device. */
bool device_has_no_model(const struct engine *eng);

/* Whether another try may help where memory is short: no model is loaded, or an idle one may give way. */
bool load_may_evict(struct engine *eng);

/* Whether a model on the device will give way when it is idle: one that is not pinned. */
bool load_may_evict_later(const struct engine *eng);

/* Unloads models that nobody has used for params.idle_ms. */
void unload_idle(struct engine *eng);

/* Seconds until the next model's time has come; < 0: none is idle. */
double unload_poll_timeout(const struct engine *eng);

/* Closes what load_model() opened, every model being gone. */
void load_fini(struct engine *eng);

#endif
