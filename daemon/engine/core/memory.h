/*
 * memory.h - the device's memory as the engine accounts for it (sched/ledger.h), for `status` and before a model is
 * loaded. Thread: the device thread's unless stated otherwise.
 */
#ifndef HEARTH_ENGINE_MEMORY_H
#define HEARTH_ENGINE_MEMORY_H

#include "daemon/engine/core/device.h"

/* To be called once the device is open: sets the limit, and starts watching other programs. */
void memory_open(struct engine *eng);
void memory_close(struct engine *eng);

/* Updates the ledger. Asking the backend costs a call into the driver. */
void memory_count(struct engine *eng);
/* Excludes from the counters what the device has computed since it reported `before`: a self-check's rows count neither
 * by path nor as replays. */
void memory_leave_out(struct engine *eng, const struct device_info *before);
/* Updates the ledger if something has changed: when the engine is idle, and every ten seconds if it never is. */
void memory_count_now_and_then(struct engine *eng, bool idle);

/* Computes the workspace for steps of n_row rows of the model, added to what is reserved already. invariant_prompts: as
 * in model_entry. */
void memory_workspace(const struct engine *eng, const struct workspace_dims *have, const struct model *m,
                      uint32_t n_row, bool invariant_prompts, struct workspace_dims *out);
/* The bytes that steps of n_row rows of the model may take beyond the workspace for partial sums of attention to that
 * many tokens; and how many of them are neither held nor promised (ledger.promised). */
uint64_t memory_sums(const struct engine *eng, const struct model *m, uint32_t n_row, uint32_t tokens);
uint64_t memory_more_sums(const struct engine *eng, const struct model *m, uint32_t n_row, uint32_t tokens);
/* How many rows, at most `most`, a GPU's steps of the model may have such that their workspace takes only a small part
 * of the free memory. */
uint32_t memory_rows(struct engine *eng, const struct model *m, uint32_t most);

/* Whether there is room for the model's weights, its workspace and the minimum of KV, `tokens` tokens: 0, or
 * HEARTH_ENOMEM with a message. */
int memory_check(struct engine *eng, const struct model_entry *m, uint32_t tokens, struct hearth_err *e);

/* Map and unmap memory for extents of a loaded model's pools, on behalf of its page table; `arg` is the model's
 * entry. */
bool memory_map(void *arg, uint32_t group, uint32_t extent);
void memory_unmap(void *arg, uint32_t group, uint32_t extent);

/* Whether the model would fit beside what the engine holds if other programs used nothing of the device. */
bool memory_is_others(const struct engine *eng, const struct model_entry *m, uint32_t tokens);

/* The number of engines among which free host memory is shared. */
uint32_t memory_sharers(const struct engine *eng);

/* Whether `bytes` more may be held while memory is yielded: 0, or HEARTH_ENOMEM with a message. */
int memory_check_yield(const struct engine *eng, uint64_t bytes, struct hearth_err *e);
/* The same for the model's weights, its workspace, and the minimum of KV: `tokens` tokens, or the pool that is
 * configured if that does not grow or is smaller. */
int memory_check_yield_of(const struct engine *eng, const struct model_entry *m, uint32_t tokens, struct hearth_err *e);

/* How many bytes of the device may still be used. */
uint64_t memory_room(struct engine *eng);

#endif
