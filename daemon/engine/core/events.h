/*
 * events.h - what the device thread tells the loop thread: events, ends of sequences, the numbers that `status` reads.
 * Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_EVENTS_H
#define HEARTH_ENGINE_EVENTS_H

#include "daemon/engine/core/device.h"

/* Queues an event of that many bytes, zeroed. Never NULL: where there is no memory for it the process ends. */
void *engine_event_new(struct engine *eng, enum event_kind kind, size_t bytes);

/* Hands the queued events to the loop thread. They may wait for more (events.c says for how long), unless `now`. */
void engine_notify(struct engine *eng, bool now);

/* Counts those that wait and run, for `status`. */
void engine_count_seqs(struct engine *eng);

/* The device failed: the loop ends every sequence, and then the thread. */
void engine_fail(struct engine *eng, const struct hearth_err *e);

/* Whether the weights are those that were loaded: false, with HEARTH_EBADMODEL, where the device reads them from the
 * mapped file and that has been written to. From then on the entry is of no use (model_entry.changed). */
bool model_is_intact(const struct engine *eng, struct model_entry *m, struct hearth_err *e);

/* Saves the KV of a long prompt that is computed, of a sequence that goes on: no kill and no yield costs it again. */
void save_prompt(struct engine *eng, struct seq *q);

/* Ends a sequence, saves its KV where it may be of use again, and queues its EV_END. Takes the sequence. */
void end_seq(struct engine *eng, struct seq *q, enum end_reason reason, const struct hearth_err *err);

/* The model was used, or its pages were: refreshes the numbers of it that `status` reads. */
void engine_update_stats(const struct engine *eng, struct model_entry *m);

#endif
