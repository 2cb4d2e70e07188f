/*
 * memory.h - the device's memory as the engine counts it (sched/ledger.h), for `status` and before a model is loaded.
 * Thread: the device thread's, but for what says otherwise.
 */
#ifndef HEARTH_ENGINE_MEMORY_H
#define HEARTH_ENGINE_MEMORY_H

#include "daemon/engine/core/device.h"

/* Once the device is open: its limit, and the watch over other programs. */
void memory_open(struct engine *eng);
void memory_close(struct engine *eng);

/* Counts anew. Asking a backend costs a call into the driver. */
void memory_count(struct engine *eng);
/* What the device has computed since it said `before` was a self-check's: it counts to no step by path nor as a replay.
 */
void memory_leave_out(struct engine *eng, const struct device_info *before);
/* The same where something has changed: when the engine is idle, and every ten seconds when it never is. */
void memory_count_now_and_then(struct engine *eng, bool idle);

/* The workspace for steps of the model of so many rows beside what there is room for already; invariant_prompts: as in
 * model_entry. */
void memory_workspace(const struct engine *eng, const struct workspace_dims *have, const struct model *m,
                      uint32_t n_row, bool invariant_prompts, struct workspace_dims *out);
/* How many rows, `most` at most, a GPU's steps of the model may have, so that their workspace takes no large part of
 * the memory that is free. */
uint32_t memory_rows(struct engine *eng, const struct model *m, uint32_t most);

/* Whether there is room for the model's weights, its workspace and the least KV, of so many tokens: 0, or HEARTH_ENOMEM
 * with a sentence. */
int memory_check(struct engine *eng, const struct model_entry *m, uint32_t tokens, struct hearth_err *e);

/* Memory for extents of a loaded model's pools, as its page table asks for it; `arg` is the model's entry. */
bool memory_map(void *arg, uint32_t group, uint32_t extent);
void memory_unmap(void *arg, uint32_t group, uint32_t extent);

/* Whether the model would have that room beside what the engine holds, if other programs had nothing of the device. */
bool memory_is_others(const struct engine *eng, const struct model_entry *m, uint32_t tokens);

/* Between how many engines what is free of the host's memory is shared. */
uint32_t memory_sharers(const struct engine *eng);

/* Whether so many bytes more may be held, while memory is yielded; 0, or HEARTH_ENOMEM with a sentence. */
int memory_check_yield(const struct engine *eng, uint64_t bytes, struct hearth_err *e);

/* How many bytes of the device may still be taken. */
uint64_t memory_room(struct engine *eng);

#endif
