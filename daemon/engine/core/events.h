/*
 * events.h - reports to the loop thread: events, ends of sequences, the values for `status`. Thread: the device
 * thread's.
 */
#ifndef HEARTH_ENGINE_EVENTS_H
#define HEARTH_ENGINE_EVENTS_H

#include "daemon/engine/core/device.h"

/* Queues an event of `bytes` bytes, zeroed. Never NULL: if there is no memory for it the process exits. */
void *engine_event_new(struct engine *eng, enum event_kind kind, size_t bytes);

/* Sends the queued events to the loop thread. Unless `now`, they may be held back for more (events.c says how long). */
void engine_notify(struct engine *eng, bool now);

/* Publishes the numbers of waiting and running sequences for `status`. */
void engine_count_seqs(struct engine *eng);

/* Records that the device failed: the loop then ends every sequence and the thread. */
void engine_fail(struct engine *eng, const struct hearth_err *e);

/* Whether the weights are those that were loaded. False, with HEARTH_EBADMODEL, if the device reads them from the
 * mapped file and that file has been written to; from then on the entry is unusable (model_entry.changed). */
bool model_is_intact(const struct engine *eng, struct model_entry *m, struct hearth_err *e);

/* Saves the KV of a long prompt that has been computed, while its sequence continues, so that neither a crash nor a
 * yield makes it necessary to recompute it. */
void save_prompt(struct engine *eng, struct seq *q);

/* To be called when the sequence has to wait for memory: reports that, and whether the memory is yielded. */
void tell_waits(struct engine *eng, struct seq *q);
/* To be called when it continues or begins. */
void tell_continues(struct engine *eng, struct seq *q);

/* Ends a sequence, saves its KV if it may be reused, and queues its EV_END. Takes ownership of the sequence. */
void end_seq(struct engine *eng, struct seq *q, enum end_reason reason, const struct hearth_err *err);

/* To be called when the model or its pages were used: updates its values for `status`. */
void engine_update_stats(const struct engine *eng, struct model_entry *m);

#endif
