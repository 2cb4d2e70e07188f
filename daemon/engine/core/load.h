/*
 * load.h - loads and unloads models. Between two pieces of the weights a load lets the other models' sequences take a
 * step, so this is above step.h. Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_LOAD_H
#define HEARTH_ENGINE_LOAD_H

#include "daemon/engine/core/device.h"

/* Load a model to the device, or to the CPU if the device cannot serve it; and unload it. HEARTH_EELSEWHERE: other
 * programs use the device's memory, and the machine has other devices, which are tried first unless the model is
 * `here`. A model with sequences is not unloaded: HEARTH_ELIMIT. */
int load_model(struct engine *eng, struct model_entry *m, struct hearth_err *e);
int unload_model(struct engine *eng, struct model_entry *m, struct hearth_err *e);

/* The smallest useful pools of a loaded model, in pages (n_page), whatever the size of its own. */
void load_least_pools(const struct model_entry *m, struct kv_desc out[KV_GROUPS_MAX]);

/* The type of KV with which devices are opened: device_params.kv_type. */
enum dtype load_kv_type(const struct engine_params *p);

/* Whether no model holds memory of the device. */
bool device_has_no_model(const struct engine *eng);

/* Whether retrying may help when memory is short: no model is loaded, or an idle one may be unloaded. */
bool load_may_evict(struct engine *eng);

/* Whether a model on the device can be unloaded once it is idle: one that is not pinned. */
bool load_may_evict_later(const struct engine *eng);

/* Whether load_model() only refuses the model because of the yield in force, and loads it on no other device either. */
bool load_waits_for_yield(const struct engine *eng, const struct model_entry *m);

/* Unloads models that nobody has used for params.idle_ms. */
void unload_idle(struct engine *eng);

/* Seconds until the next model has been idle long enough to be unloaded; < 0: none is idle. */
double unload_poll_timeout(const struct engine *eng);

/* Closes what load_model() opened; all models must have been unloaded. */
void load_fini(struct engine *eng);

#endif
